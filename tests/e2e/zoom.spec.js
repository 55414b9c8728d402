// From the whole to a part, a module, a layer, a tensor; by click and by keyboard, at the peak and at any moment.
import { expect, test } from "./support/test.js";
import { bytes } from "./support/page.js";

/** The rows of a list of levels, without what is inside them. */
const rows = (list) => list.locator(":scope > li > button");
/** What a row says it comes to. */
const amount = async (row) => bytes(await row.locator("span").last().innerText());

test("a part opens into modules, a module into tensors, and every level comes to the one above", async ({ headroom, page }) => {
  await headroom.open();
  await headroom.parts.getByRole("button", { name: /^Optimizer/ }).click();
  const modules = page.locator("#why-optimizer .zoom").first();
  await expect(rows(modules).first()).toContainText("mlp.down_proj, layers 0 to 31");
  const part = await headroom.parts.getByRole("row", { name: /^Optimizer/ }).locator("td").first().innerText();
  const of = async (list) => {
    let sum = 0;
    for (const row of await rows(list).all()) sum += await amount(row);
    return sum;
  };
  expect(Math.abs((await of(modules)) / bytes(part) - 1)).toBeLessThan(0.01);

  const module = rows(modules).first();
  await expect(module).toContainText("32 × (");
  await module.focus();
  await page.keyboard.press("Enter");
  await expect(module).toHaveAttribute("aria-expanded", "true");
  const tensors = modules.locator(":scope > li").first().locator(":scope > .zoom");
  expect(Math.abs(((await of(tensors)) * 32) / (await amount(module)) - 1)).toBeLessThan(0.01);

  const tensor = rows(tensors).first();
  await expect(tensor).toContainText("rank 16 × 14,336 × 4 bytes");
  await tensor.focus();
  await page.keyboard.press("Space");
  await expect(tensors.locator("p").first()).toContainText("PyTorch, torch/optim");
  await page.keyboard.press("Space");
  await expect(tensor).toHaveAttribute("aria-expanded", "false");
});

test("what has but one thing inside is that thing", async ({ headroom, page }) => {
  await headroom.open();
  await headroom.parts.getByRole("button", { name: /^Weights/ }).click();
  const first = rows(page.locator("#why-weights .zoom").first()).first();
  await expect(first).toContainText("128,256 × 4,096 × 4 bytes (float32)");
  await first.click();
  await expect(page.locator("#why-weights .zoom p")).toContainText("bytes");
});

test("any moment of the timeline opens the same way, and what was opened stays open at the next", async ({ headroom, page }) => {
  await headroom.open("#v=1&view=timeline");
  const moment = page.locator("#moment");
  await expect(moment.locator(".alive li")).toHaveCount(5);
  await moment.getByRole("button", { name: /^Saved activations/ }).click();
  const levels = moment.locator(".zoom").first();
  await expect(rows(levels).first()).toBeVisible();
  await rows(levels).first().click();
  const before = await moment.innerText();
  const scrubber = page.getByRole("slider", { name: "Moment of the step" });
  await scrubber.focus();
  await page.keyboard.press("PageDown");
  await expect(moment).not.toHaveText(before, { useInnerText: true });
  await expect(moment.locator(".zoom [aria-expanded=true]").first()).toBeVisible();
  await moment.getByRole("button", { name: /^Saved activations/ }).click();
  await expect(moment.locator(".zoom")).toHaveCount(0);
});

test("a stretch of the bar opens the part that it is, and closes it", async ({ headroom, page }) => {
  await headroom.open();
  for (const [part, row] of [["weights", /^Weights/], ["optimizer", /^Optimizer/]]) {
    await headroom.chart.locator(`rect.part-${part}`).click();
    const name = headroom.parts.getByRole("button", { name: row });
    await expect(name).toHaveAttribute("aria-expanded", "true");
    await expect(page.locator(`#why-${part} p`).first()).toBeInViewport();
    await expect(page.locator(`#why-${part} .zoom`).first()).toBeVisible();
    await headroom.chart.locator(`rect.part-${part}`).click();
    await expect(name).toHaveAttribute("aria-expanded", "false");
  }
  // one that is folded among the small parts
  const folded = headroom.parts.getByRole("button", { name: /small parts/ });
  await expect(folded).toHaveAttribute("aria-expanded", "false");
  await folded.click();
  const small = await headroom.parts.locator("[aria-controls$=-small]:visible").first().getAttribute("aria-controls");
  await folded.click();
  await expect(folded).toHaveAttribute("aria-expanded", "false");
  // it may be narrower than a pointer
  const stretch = headroom.chart.locator(`rect.part-${small.slice("why-".length, -"-small".length)}`);
  await stretch.dispatchEvent("click");
  await expect(folded).toHaveAttribute("aria-expanded", "true");
  await expect(page.locator(`#${small}`)).toBeVisible();
  // what is open and folded away is shown, and not closed
  await folded.click();
  await stretch.dispatchEvent("click");
  await expect(page.locator(`#${small}`)).toBeVisible();
});
