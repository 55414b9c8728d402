// The watch that guards every other test, itself tested: a guard that sleeps would let everything pass.
import { expect, test } from "./support/test.js";

test("what must never happen is noticed", async ({ page, problems }) => {
  await page.goto(".");
  await page.evaluate(() => {
    console.error("an error");
    console.warn("a warning");
    console.info("a remark");
    setTimeout(() => {
      throw new Error("an exception");
    });
  });
  // The Hub is the one other host that the page's policy allows.
  await page.route("https://huggingface.co/**", (route) => route.abort());
  await page.evaluate(() => Promise.allSettled([fetch("missing.html"), fetch("https://huggingface.co/elsewhere")]));

  await expect.poll(() => problems.join("\n")).toContain("exception: an exception");
  const seen = problems.splice(0).join("\n");
  for (const problem of [
    /answer 404: .*missing\.html/,
    /console error: an error/,
    /console warning: a warning/,
    /third-party request: https:\/\/huggingface\.co\/elsewhere/,
  ]) {
    expect(seen).toMatch(problem);
  }
  expect(seen).not.toContain("a remark");
});

test("a page that behaves raises nothing", async ({ page, problems }) => {
  await page.goto(".");
  await expect(page.getByRole("heading", { level: 1 })).toBeVisible();
  expect(problems).toEqual([]);
});
