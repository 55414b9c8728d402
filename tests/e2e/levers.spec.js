// What to change so that it fits.
import { expect, test } from "./support/test.js";

const SMALL = "#v=1&gpu=rtx-3060-12gb";

for (const width of [1280, 390]) {
  test(`the cheapest change makes it fit, and can be undone, ${width} wide`, async ({ headroom, page }) => {
    await page.setViewportSize({ width, height: 844 });
    await headroom.open(SMALL);
    await expect(headroom.verdict).toContainText("Does not fit");
    await expect(page.getByRole("heading", { name: "What makes it fit" })).toBeVisible();
    const first = page.locator(".lever").first();
    await expect(first).toContainText("Liger fused");
    await expect(first).toContainText("costs nothing");
    await first.click();
    await expect(headroom.verdict).toContainText("to spare");
    await headroom.expectLink("loss", "liger");
    await page.keyboard.press("Control+z");
    await expect(headroom.verdict).toContainText("Does not fit");
  });
}

test("three changes are offered, one setting each, and what costs money behind one line", async ({ headroom, page }) => {
  await headroom.open(SMALL);
  await expect(page.getByRole("heading", { name: "What makes it fit" })).toBeVisible();
  const offered = page.locator(".levers .lever").filter({ visible: true });
  await expect(offered).toHaveCount(3);
  await expect(offered.filter({ hasText: "Training library" })).toHaveCount(0);
  await page.getByText("Or on a larger card, or several").click();
  await expect(offered.filter({ hasText: "GPUs: " })).not.toHaveCount(0);
  await offered.filter({ hasText: /GPU: .* an hour \(/s }).click();
  await expect(headroom.verdict).toContainText("to spare");
  await headroom.button("Undo the last change").click();
  await expect(headroom.verdict).toContainText("Does not fit");
});

test("every change has its row, and takes effect", async ({ headroom, page }) => {
  await headroom.open(SMALL);
  await page.getByText("Every change, with what it saves").click();
  await headroom.expectLink("view", "plan");
  const rows = page.getByRole("table", { name: "Changes that save memory" }).locator("tbody tr");
  await expect(rows.first()).toContainText("Fits");
  await rows.filter({ hasText: "Sequence length: " }).getByRole("button").click();
  await expect.poll(() => headroom.link().get("s")).not.toBeNull();
  await expect(headroom.verdict).toContainText("to spare");
});

test("a phone shows what a change costs in time and leaves needed, too", async ({ headroom, page }) => {
  await page.setViewportSize({ width: 390, height: 844 });
  await headroom.open(`${SMALL}&view=plan`);
  const table = page.getByRole("table", { name: "Changes that save memory" });
  const row = table.locator("tbody tr", { hasText: "Micro-batch" }).or(table.locator("tbody tr", { hasText: "Sequence length" }));
  await expect(row.first().getByText(/needs [\d.]+\sGiB/)).toBeVisible();
  await expect(table.getByText(/\s% (slower|faster)/).first()).toBeVisible();
  const [wide, screen] = await table.evaluate((it) => [it.scrollWidth, document.documentElement.clientWidth]);
  expect(wide).toBeLessThanOrEqual(screen);
});

test("every use of the room is in the view Plan", async ({ headroom, page }) => {
  await headroom.open("#v=1&view=plan");
  const rows = page.getByRole("table", { name: "What the room is good for" }).locator("tbody tr");
  await expect(rows.filter({ hasText: "larger adapters" })).toContainText(/LoRA rank: \d+/);
  await rows.filter({ hasText: "LoRA rank: " }).getByRole("button").click();
  await expect.poll(() => headroom.link().get("r")).not.toBeNull();
  await expect(headroom.verdict).toContainText("to spare");
});

test("room that is left is offered for use", async ({ headroom, page }) => {
  await headroom.open();
  await expect(page.getByRole("heading", { name: "What the room is good for" })).toBeVisible();
  await page.locator(".lever", { hasText: "Micro-batch size" }).click();
  await expect.poll(() => headroom.link().get("b")).not.toBeNull();
  await expect(headroom.verdict).toContainText("to spare");
});

test("where the loop does not fit, the libraries that do are named with what they need", async ({ headroom, page }) => {
  await headroom.open("#v=1&gpu=rtx-3060-12gb");
  await expect(headroom.verdict).toHaveAttribute("data-fit", "over");
  const libraries = page.getByText("It fits as it is run by");
  await expect(libraries).toBeVisible({ timeout: 120_000 });
  await libraries.getByRole("button", { name: /^trl 1\.16, / }).focus();
  await page.keyboard.press("Enter");
  await expect(page.locator("#levers-title")).toBeFocused();
  await expect(headroom.verdict).toHaveAttribute("data-fit", "fits");
  await headroom.expectLink("st", "trl");
  await expect(libraries).toHaveCount(0);
});

test("what a card cannot run is offered no use of the room and no file", async ({ headroom, page }) => {
  await headroom.open("#v=1&gpu=apple-m4-max-64gb&o=paged-adamw-8bit");
  await expect(headroom.verdict).toContainText("Not followed");
  await expect(page.getByRole("heading", { name: "It does not run on this card" })).toBeVisible();
  await expect(page.getByRole("region", { name: "It does not run on this card" })).toContainText("needs kernels of CUDA or Triton");
  await expect(headroom.button("Get a file that runs")).toBeHidden();
  await headroom.button("Export").click();
  await expect(page.getByText("No file runs it on this card")).toBeVisible();
  await expect(page.getByText("Python script")).toHaveCount(0);
});
