// What somebody sees who did nothing but open the page.
import { bytes } from "./support/page.js";
import { expect, test } from "./support/test.js";

test("the first paint is a complete answer", async ({ headroom }) => {
  await headroom.open();
  await expect(headroom.choice("Model")).toHaveValue(/Llama-3\.1-8B/);
  await expect(headroom.choice("Method")).toHaveValue("qlora");
  await expect(headroom.choice("GPU")).toHaveValue(/4090/);

  await expect(headroom.verdict).toContainText(/Fits/);
  await expect(headroom.verdict).toContainText(/to spare/);
  await expect(headroom.verdict).toContainText(/\d\s% of 2\d\.\d\sGiB/);
  await expect(headroom.verdict).toContainText(/peak in the (forward|backward|loss|optimizer)/);
});

test("the parts sum to the total, and each has its stretch of the chart", async ({ headroom }) => {
  await headroom.open();
  await headroom.parts.getByRole("button", { name: /small parts/ }).click();
  const rows = headroom.parts.locator("tbody tr.part-row:not(.small, [hidden])");
  const amounts = await rows.locator("td:first-of-type").allInnerTexts();
  const sum = amounts.map(bytes).reduce((a, b) => a + b, 0);
  const total = bytes(await headroom.verdict.innerText());
  expect(Math.abs(sum - total) / total, "what rounding leaves").toBeLessThan(0.01);
  expect(await headroom.chart.locator("svg rect").count()).toBeGreaterThanOrEqual(amounts.length);
});

test("every part explains itself with its formula", async ({ headroom }) => {
  await headroom.open();
  await headroom.parts.getByRole("button", { name: /small parts/ }).click();
  const buttons = headroom.parts.locator("tr:not(.small, [hidden]) button[aria-controls]");
  const count = await buttons.count();
  expect(count).toBeGreaterThan(3);
  for (let index = 0; index < count; index += 1) {
    const button = buttons.nth(index);
    await button.click();
    await expect(button).toHaveAttribute("aria-expanded", "true");
    const explanation = headroom.page.locator(`#${await button.getAttribute("aria-controls")}`);
    await expect(explanation).toBeVisible();
    // The context is measured, no tensor: all other parts open into sums with a reason and its source.
    if (!(await button.textContent()).includes("context")) {
      await expect(explanation.locator(".zoom .made-of").first()).toHaveText(/\d|less the bytes of its tensors/);
      // what is innermost says why it is there, and where that can be read
      for (let level = 0; level < 3; level += 1) {
        const closed = explanation.locator(".zoom button[aria-expanded=false]").first();
        if (await explanation.locator(".zoom p").count()) break;
        await closed.click();
      }
      await expect(explanation.locator(".zoom p i").first()).toHaveText(/\w/);
    }
  }
});
