// What takes long is computed beside the page.
import { expect, test } from "./support/test.js";

const HEAVY = "#v=1&m=meta-llama/Llama-3.1-405B&method=lora&len=uniform&gpu=b200";

test("a newer question breaks off an older one that takes long", async ({ headroom, page }) => {
  let ended = 0;
  page.on("worker", (worker) => worker.on("close", () => (ended += 1)));
  await headroom.open(HEAVY);
  await page.waitForTimeout(400);
  await page.getByRole("group", { name: "Examples" }).getByRole("button").first().click();
  await expect(headroom.verdict).toContainText("PyTorch reserves");
  await expect(headroom.choice("Model")).toHaveValue(/Llama-3\.2-1B/);
  await expect.poll(() => ended).toBeGreaterThan(0);
});

test("tables have workers of their own, a few and once", async ({ headroom, page }) => {
  await headroom.open("#v=1&view=plan");
  await expect.poll(() => page.workers().length).toBeGreaterThan(1);
  expect(page.workers().length).toBeLessThanOrEqual(4);
  const before = await headroom.verdict.innerText();
  await headroom.box("Micro-batch size").fill("3");
  await expect(headroom.verdict).not.toHaveText(before);
  await expect(headroom.verdict).toHaveAttribute("aria-busy", "false");
  // one that is ended in favour of the newer question is listed for a moment more
  await expect.poll(() => page.workers().length).toBeLessThanOrEqual(4);
});

test("the page answers while the worker is busy", async ({ headroom }) => {
  await headroom.open(HEAVY);
  const before = await headroom.verdict.innerText();
  await headroom.box("Micro-batch size").fill("3");
  await expect(headroom.verdict).not.toHaveText(before);
  await expect(headroom.verdict).toContainText("of tensors");
});

test("without a worker the page says so and stays usable", async ({ headroom, page, problems }) => {
  await page.route("**/worker.js", (route) => route.abort());
  await headroom.open();
  await expect(page.getByText("computed beside the page, by a Web Worker")).toBeVisible();
  await expect(page.getByText("The changes could not be tried").first()).toBeVisible();
  await expect(page.getByText("Trying the changes")).toBeHidden();
  await headroom.box("Micro-batch size").fill("64");
  await expect(headroom.verdict).toContainText("Does not fit");
  await page.unroute("**/worker.js");
  await headroom.box("Micro-batch size").fill("1");
  await expect(headroom.verdict).toContainText("PyTorch reserves");
  await expect(page.getByText("computed beside the page, by a Web Worker")).toBeHidden();
  await expect(page.locator(".lever-buttons button").first()).toBeVisible();
  await expect(page.getByText("The changes could not be tried")).toBeHidden();
  problems.length = 0;
});
