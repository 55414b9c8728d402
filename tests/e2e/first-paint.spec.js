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
  await expect(headroom.verdict).toContainText(/\d% of 2\d\.\d GiB/);
  await expect(headroom.verdict).toContainText(/peak in the (forward|backward|loss|optimizer)/);
});

test("the parts sum to the total, and each has its stretch of the chart", async ({ headroom }) => {
  await headroom.open();
  const rows = headroom.parts.locator("tbody tr.part-row:visible");
  const amounts = await rows.locator("td:first-of-type").allInnerTexts();
  const sum = amounts.map(bytes).reduce((a, b) => a + b, 0);
  const total = bytes(await headroom.verdict.innerText());
  expect(Math.abs(sum - total) / total, "what rounding leaves").toBeLessThan(0.01);
  expect(await headroom.chart.locator("svg rect").count()).toBeGreaterThanOrEqual(amounts.length);
});

test("every part explains itself with its formula", async ({ headroom }) => {
  await headroom.open();
  const buttons = headroom.parts.getByRole("button");
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
      await expect(explanation.locator("code").first()).toHaveText(/ × \d+ bytes? \(\w+\)$/);
      await expect(explanation.locator(".reason i").first()).toHaveText(/\w/);
    }
  }
});

test("the first answer needs only the first part of the code", async ({ headroom, page, problems }) => {
  await page.route(/_rest\.wasm$/, (route) => route.abort());
  await headroom.open();
  await expect(headroom.chart.locator("svg rect").first()).toBeVisible();
  await expect(headroom.fits).toContainText("Llama-3.1-8B");
  await expect(headroom.parts).toContainText("Weights");
  await expect(headroom.verdict).toContainText(/PyTorch reserves/);
  await expect(page.locator("html")).toHaveAttribute("data-state", "ready");
  // What was cut off is all that may be missing.
  problems.splice(0, problems.length, ...problems.filter((problem) => !/ERR_FAILED|_rest\.wasm/.test(problem)));
});

test("what needs the second part before it came waits for it", async ({ headroom, page, problems }) => {
  const asked = [];
  await page.route(/_rest\.wasm$/, async (route) => {
    asked.push(route.request().resourceType());
    // The first request is kept waiting; the page then asks again, and does not go on without.
    if (asked.length === 1) return;
    await route.continue();
  });
  await headroom.open();
  await headroom.search("Model", "gpt2");
  await expect(headroom.choice("Model")).toHaveValue(/gpt2/);
  await expect(headroom.verdict).toContainText(/Fits/);
  expect(asked.length).toBeGreaterThan(1);
  problems.splice(0, problems.length, ...problems.filter((problem) => !/XMLHttpRequest/.test(problem)));
});
