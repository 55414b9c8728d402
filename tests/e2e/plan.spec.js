// The view Plan as a whole: the way to each question, and what is still being worked out.
import { within } from "./support/access.js";
import { expect, test } from "./support/test.js";

for (const width of [390, 1280]) {
  test(`every question is one click away, ${width} wide`, async ({ headroom, page }) => {
    await page.setViewportSize({ width, height: 844 });
    await headroom.open("#v=1&view=plan");
    const ways = page.getByRole("navigation", { name: "Questions" }).getByRole("button");
    await expect(ways).not.toHaveCount(0);
    const titles = new Set();
    for (const way of await ways.all()) {
      await way.click();
      const heading = page.locator("h2:focus");
      await expect.poll(() => within(heading)).toBe(true);
      titles.add(await heading.innerText());
    }
    expect(titles.size).toBe(await ways.count());
    expect(await page.evaluate(() => document.documentElement.scrollWidth)).toBeLessThanOrEqual(width);
  });
}

test("a model that generates is asked other questions", async ({ headroom, page }) => {
  await headroom.open("#v=1&task=generate&method=full&p=bf16&view=plan");
  const ways = page.getByRole("navigation", { name: "Questions" });
  await ways.getByRole("button", { name: "Formats" }).click();
  await expect(page.locator("h2:focus")).toHaveText("In which format?");
  await expect(ways.getByRole("button", { name: "Batch", exact: true })).toHaveCount(0);
  await ways.getByRole("button", { name: "Rules of thumb" }).click();
  await expect(page.getByRole("region", { name: "What would rules of thumb say?" })).toContainText("Weights and a fifth");
});

test("what is being worked out is stopped, and gone on with", async ({ headroom, page }) => {
  await headroom.open("#v=1&m=meta-llama/Llama-3.3-70B-Instruct&view=plan");
  const stop = headroom.button("Stop");
  await expect(page.getByText(/more to work out/)).toBeVisible();
  await stop.click();
  await expect(page.getByText("Stopped: the tables have what was found so far.")).toBeVisible();
  await expect(page.locator(".view [aria-busy=true]")).toHaveCount(0);
  // the answer itself goes on
  await headroom.box("Micro-batch size").fill("2");
  await expect(page.getByText(/more to work out/)).toBeVisible();
  await stop.click();
  await headroom.button("Go on").click();
  await expect(page.getByText(/more to work out/)).toBeVisible();
});

test("a run costs what an hour of a GPU costs its owner", async ({ headroom, page }) => {
  await headroom.open("#v=1&view=plan&gpu=rtx-4090&data=50000000");
  const price = headroom.box("US dollars per GPU-hour");
  await price.fill("0.40");
  await price.press("Enter");
  await expect(page.locator(".pace").first()).toContainText("at $0.40 for a GPU and hour");
  await headroom.expectLink("price", "40");
});
