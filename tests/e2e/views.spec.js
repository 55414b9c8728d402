// The views under the answer: their tabs, their links, and that only what is shown does any work.
import { overflow, violations } from "./support/access.js";
import { expect, test } from "./support/test.js";

for (const [width, height] of [[390, 844], [640, 400]]) {
  test(`a view that is chosen comes into sight, ${width} wide`, async ({ headroom, page }) => {
    await page.setViewportSize({ width, height });
    await headroom.open();
    for (const name of ["Plan", "Timeline"]) {
      await headroom.view(name);
      const top = () => page.locator("#view").evaluate((view) => view.getBoundingClientRect().top);
      await expect.poll(top, { message: name }).toBeLessThan(height * 0.75);
      expect(await top()).toBeGreaterThan(0);
    }
  });
}

/** Each view, and what stands in it. */
const VIEWS = [
  ["Fit", "Memory at the peak"],
  ["Timeline", "Over one step"],
  ["Plan", "Which card do I need?"],
  ["Compare", "Compare with"],
  ["Accuracy", "How we know"],
];

test("every view has a tab, a link and its keys", async ({ headroom, page }) => {
  await headroom.open("#v=1&b=2");
  const heading = (name) => page.getByRole("tabpanel").getByRole("heading", { name, exact: true });
  for (const [name, title] of VIEWS) {
    await headroom.view(name);
    await expect(page.getByRole("tabpanel", { name })).toBeVisible();
    await expect(heading(title)).toBeVisible();
    if (name === "Fit") await expect.poll(() => headroom.link().has("view")).toBe(false);
    else await headroom.expectLink("view", name.toLowerCase());
    await headroom.expectLink("b", "2");
    await page.goto("about:blank");
    await page.goBack();
    await expect(heading(title)).toBeVisible();
  }
  // one stop for the keyboard, arrows between them
  const tabs = page.getByRole("tab");
  expect(await tabs.evaluateAll((all) => all.map((tab) => tab.tabIndex))).toEqual([-1, -1, -1, -1, 0]);
  await tabs.last().focus();
  await page.keyboard.press("ArrowRight");
  await expect(tabs.first()).toBeFocused();
  await expect(heading("Memory at the peak")).toBeVisible();
  await page.keyboard.press("End");
  await expect(heading("How we know")).toBeVisible();
  await tabs.last().blur();
  await page.keyboard.press("2");
  await expect(heading("Over one step")).toBeVisible();
});

test("a link without a view, and one with a view that is none, open Fit", async ({ headroom, page }) => {
  for (const [link, told] of [["?v=1&b=3", false], ["#v=1&b=3&view=everything", true]]) {
    await headroom.open(link);
    await expect(page.getByRole("tab", { name: "Fit" })).toHaveAttribute("aria-selected", "true");
    await expect(headroom.box("Micro-batch size")).toHaveValue("3");
    await expect(headroom.notice).toBeVisible({ visible: told });
  }
});

test("what is not shown is not there", async ({ headroom, page }) => {
  await headroom.open();
  await expect(page.getByRole("table")).toHaveCount(1);
  await headroom.view("Timeline");
  await expect(headroom.parts).toHaveCount(0);
});

test("the first change is four strokes away", async ({ headroom, page }) => {
  await headroom.open();
  await expect(page.locator(".lever").first()).toBeVisible();
  for (const key of ["Tab", "Tab", "Enter", "Tab"]) await page.keyboard.press(key);
  await expect(page.locator(".lever").first()).toBeFocused();
  await page.keyboard.press("Enter");
  await expect.poll(() => headroom.link().size).toBeGreaterThan(1);
});

test("cards by method: what is needed, whether it fits, what it costs to rent", async ({ headroom, page }) => {
  await headroom.open("#v=1&view=plan");
  const table = page.getByRole("table", { name: "Cards by method" });
  await expect(table).toHaveAttribute("aria-busy", "false", { timeout: 90_000 });
  await expect(page.getByText(/^As it is, it fits \d+ of \d+ cards; the smallest is the .+ The cheapest to rent is/)).toBeVisible();
  const rows = table.locator("tbody tr");
  const listed = await rows.count();
  const memories = await rows.locator("td:nth-child(2)").allInnerTexts();
  expect(memories.map(parseFloat)).toEqual(memories.map(parseFloat).sort((one, other) => one - other));
  await expect(rows.filter({ hasText: "$" }).first()).toContainText(/\$\d+\.\d\d\/h\s+\w+ \S+.*2026-\d\d-\d\d/);

  await table.getByRole("button", { name: "Rented from" }).click();
  await expect(table.getByRole("columnheader", { name: "Rented from" })).toHaveAttribute("aria-sort", "ascending");
  const prices = (await rows.locator("td:nth-child(3)").allInnerTexts()).map((text) => parseFloat(text.slice(1)));
  expect(prices[0]).toBeLessThanOrEqual(prices[1]);

  await page.getByRole("button", { name: /more cards/ }).click();
  expect(await rows.count()).toBeGreaterThan(listed);
  // a cell is that scenario
  await rows.first().locator("td:last-child").getByRole("button").click();
  await expect(headroom.verdict).toContainText(/Fits/);
  await expect.poll(() => headroom.link().has("gpu")).toBe(true);
  await page.keyboard.press("Control+z");
  await expect.poll(() => headroom.link().has("gpu")).toBe(false);
});

test("a table is sorted by any of its columns, and the link says by which", async ({ headroom, page }) => {
  await headroom.open("#v=1&view=plan&sorted=changes.3.down");
  const table = page.getByRole("table", { name: "Changes that save memory" });
  await expect(table).toHaveAttribute("aria-busy", "false");
  const header = (name) => table.getByRole("columnheader", { name });
  await expect(header("Saves")).toHaveAttribute("aria-sort", "descending");
  const MIB = { "KiB": 1 / 1024, "MiB": 1, "GiB": 1024 };
  const saved = async () => {
    const cells = await table.locator("tbody td:nth-child(4)").allInnerTexts();
    return cells.map((cell) => Number(cell.replace(/[−,]/g, "").split(/\s/)[0]) * MIB[cell.split(/\s/).pop()]);
  };
  const falling = await saved();
  expect(falling.length).toBeGreaterThan(3);
  expect(falling).toEqual([...falling].sort((one, other) => other - one));

  await header("Change").getByRole("button").click();
  await expect(header("Change")).toHaveAttribute("aria-sort", "ascending");
  await expect(header("Saves")).toHaveAttribute("aria-sort", "none");
  await expect.poll(() => headroom.link().get("sorted")).toBe("changes.0");
  const names = (await table.locator("tbody th").allInnerTexts()).map((name) => name.toLowerCase());
  expect(names).toEqual([...names].sort());
  // falling, and as it was found
  await header("Change").getByRole("button").click();
  await expect.poll(() => headroom.link().get("sorted")).toBe("changes.0.down");
  await header("Change").getByRole("button").click();
  await expect.poll(() => headroom.link().has("sorted")).toBe(false);
});

test("where no single card holds it the fewest that do together are told, and a click opens them", async ({ headroom, page }) => {
  await headroom.open("#v=1&view=plan&m=meta-llama/Llama-3.3-70B-Instruct&method=full");
  const table = page.getByRole("table", { name: "Cards by method" });
  await expect(table).toHaveAttribute("aria-busy", "false", { timeout: 120_000 });
  await expect(page.getByText(/^As it is, no single card holds it; the fewest that do together are \d+\s× /)).toBeVisible();
  const cell = table.locator("tbody tr").first().getByRole("button").filter({ hasText: " × " }).first();
  const [, gpus] = (await cell.innerText()).match(/^(\d+)\s× /);
  await cell.click();
  await expect(headroom.verdict).toContainText(/Fits/);
  await headroom.expectLink("gpus", gpus);
});

test("another question cancels what was asked of the cards", async ({ headroom, page }) => {
  await headroom.open("#v=1&view=plan&m=meta-llama/Llama-3.1-405B&method=lora");
  await headroom.open("#v=1&view=plan&m=openai-community/gpt2&s=512");
  await headroom.box("Micro-batch size").fill("2");
  await expect(page.getByRole("table", { name: "Cards by method" })).toHaveAttribute("aria-busy", "false", { timeout: 90_000 });
});

test("the budget of the table of models stands in the link, for its card", async ({ headroom }) => {
  await headroom.open("#v=1&view=plan&budget=80");
  await expect(headroom.box("On a card with")).toHaveValue("80");
  await headroom.search("GPU", "h100");
  await expect(headroom.box("On a card with")).not.toHaveValue("80");
  await expect.poll(() => headroom.link().has("budget")).toBe(false);
});

test("the methods stand side by side in one click, with their differences", async ({ headroom, page }) => {
  await headroom.open("#v=1&view=compare");
  await page.getByRole("tabpanel").getByRole("button", { name: /^LoRA the same model/ }).click();
  const differs = page.getByRole("table", { name: "Inputs in which the scenarios differ" });
  await expect(differs.getByRole("row", { name: /^Method/ })).toContainText(/QLoRA.*LoRA/s);
  await expect(differs.getByRole("row", { name: /^Needs/ })).toContainText(/GiB.*GiB\s+\+/s);
  await expect(differs.getByRole("row", { name: /^On its card/ })).toContainText("Fits");
  await expect(headroom.button("Remove B")).toBeVisible();
});

// Wider windows are walked through by walk.spec.js.
for (const colorScheme of ["light", "dark"]) {
  test.describe(`320 pixels wide, ${colorScheme}`, () => {
    test.use({ colorScheme, viewport: { width: 320, height: 800 }, reducedMotion: "reduce" });

    test("axe finds nothing in any view, and none is too wide", async ({ headroom, page }) => {
      test.slow();
      await headroom.open("#v=1&gpu=rtx-3060-12gb");
      for (const [name, title] of VIEWS) {
        await headroom.view(name);
        await expect(page.getByRole("heading", { name: title, exact: true })).toBeVisible();
        expect(await violations(page), name).toEqual([]);
        expect(await overflow(page), name).toBeLessThanOrEqual(0);
      }
    });
  });
}

test("back leads to the view before, and takes no setting away", async ({ headroom, page }) => {
  await headroom.open("#v=1&b=2");
  const tab = (name) => page.getByRole("tab", { name });
  await headroom.view("Timeline");
  await headroom.expectLink("view", "timeline");
  await headroom.view("Plan");
  await headroom.expectLink("view", "plan");
  await page.goBack();
  await expect(tab("Timeline")).toHaveAttribute("aria-selected", "true");
  await page.goBack();
  await expect(tab("Fit")).toHaveAttribute("aria-selected", "true");
  await headroom.expectLink("b", "2");
  await page.goForward();
  await expect(tab("Timeline")).toHaveAttribute("aria-selected", "true");
});
