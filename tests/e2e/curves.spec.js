// How far one can go: memory against an input, up to where the card ends.
import { expect, test } from "./support/test.js";

for (const width of [390, 1280]) {
  test(`the value is set on the curve, by pointer and by keys, ${width} wide`, async ({ headroom, page }) => {
    await page.setViewportSize({ width, height: 844 });
    await headroom.open("#v=1&view=plan");
    await headroom.ask("Limits");
    const figure = page.getByRole("figure", { name: "How far can I go?" });
    await expect(figure.locator(".curve")).toHaveCount(1);
    await expect(page.getByText(/^Fits at [\d,]+ tokens; [\d,]+ tokens would need \d/)).toBeVisible({ timeout: 180_000 });
    const drawn = await figure.locator(".curve").getAttribute("points");

    const scrubber = page.getByRole("slider", { name: "Sequence length on the curve" });
    await expect(scrubber).toHaveAttribute("aria-valuetext", /^2,048 tokens, 13\.\d\sGiB/);
    await scrubber.press("ArrowRight");
    await expect(headroom.box("Sequence length")).toHaveValue("3072");
    await expect(scrubber).toHaveAttribute("aria-valuetext", /^3,072 tokens, 1[4-9]/);
    // what stands above is worked out anew after each change, and moves the curve until it is there
    let box;
    await expect(async () => {
      const before = await scrubber.boundingBox();
      await page.waitForTimeout(1_000);
      box = await scrubber.boundingBox();
      expect(Math.abs(before.y - box.y)).toBeLessThan(1);
    }).toPass({ timeout: 60_000 });
    // by the bare mouse: a locator's click scrolls the page when a table above grows just then
    await page.mouse.click(box.x + box.width - 17, box.y + 100);
    await expect(headroom.box("Sequence length")).toHaveValue(/^\d{5}$/);
    await expect(headroom.verdict).toContainText("Does not fit");
    // what stands above has become shorter, and the curve is still under the pointer
    await expect.poll(async () => Math.abs((await scrubber.boundingBox()).y - box.y)).toBeLessThan(3);
    await page.mouse.down();
    await page.mouse.move(box.x + 53, box.y + 100, { steps: 6 });
    await page.mouse.up();
    await expect(headroom.box("Sequence length")).toHaveValue("128");
    // another place on the same curve
    expect(await figure.locator(".curve").getAttribute("points")).toBe(drawn);
    await headroom.button("Undo the last change").click();
    await expect(headroom.box("Sequence length")).not.toHaveValue("128");
  });
}

test("what the curve says is what the scenario needs, also as a table", async ({ headroom, page }) => {
  await headroom.open("#v=1&view=plan&s=4096");
  await headroom.ask("Limits");
  await expect(page.getByText(/^Fits at/)).toBeVisible({ timeout: 180_000 });
  await page.getByText("As a table").click();
  const row = page.getByRole("table", { name: "Memory by value" }).getByRole("row", { name: /^4,096/ });
  const [needed] = (await headroom.verdict.locator(".total").innerText()).split(/\s/);
  await expect(row).toContainText(`${needed} GiB fits`);
});

test("the axis is chosen, and the rank only where there is one", async ({ headroom, page }) => {
  await headroom.open("#v=1&view=plan");
  await headroom.ask("Limits");
  const axes = page.getByRole("group", { name: "Against" });
  await axes.getByRole("button", { name: "LoRA rank" }).click();
  await expect(page.getByText(/^Fits .*rank \d/)).toBeVisible({ timeout: 180_000 });
  await axes.getByRole("button", { name: "Micro-batch size" }).click();
  await expect(page.getByText(/^Fits at \d+ sequences?; \d+ sequences would need/)).toBeVisible({ timeout: 180_000 });
  await headroom.choice("Method").selectOption("full");
  await expect(axes.getByRole("button", { name: "LoRA rank" })).toBeHidden();
});

test("scenarios that are compared have a curve each", async ({ headroom, page }) => {
  await headroom.open("#v=1&view=compare&2.method=lora");
  const figure = page.getByRole("figure", { name: "How far can I go?" });
  await expect(figure.locator(".curve")).toHaveCount(2, { timeout: 180_000 });
  await expect(figure.locator("text.name")).toHaveText(["A", "B"]);
  // each says whose it is, in a line of its own
  await expect(page.getByText(/^A, QLoRA: fits at [\s\S]*\nB, LoRA: fits /)).toBeVisible({ timeout: 180_000 });
  const strokes = await figure.locator(".curve").evaluateAll((curves) => curves.map((curve) => getComputedStyle(curve).strokeDasharray));
  expect(new Set(strokes).size).toBe(2);
});
