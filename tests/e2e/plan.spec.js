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

test("what was stopped is no file, and a table without a row says so", async ({ headroom, page }) => {
  await headroom.open("#v=1&m=meta-llama/Llama-3.3-70B-Instruct&view=plan");
  await headroom.ask("Cards");
  await headroom.button("Stop").click();
  const cards = page.getByRole("table", { name: "Cards by method" });
  await expect(page.getByText("Stopped: the tables have what was found so far.")).toBeVisible();
  await expect(page.getByRole("button", { name: "Download CSV, once all of it is known of Cards by method" })).toBeDisabled();
  if ((await cards.locator("tbody th").count()) === 0) await expect(cards).toContainText("Nothing found yet");
});

test("generation on several GPUs leads to what vLLM keeps", async ({ headroom, page }) => {
  await page.goto("#v=1&task=generate&m=meta-llama/Llama-3.3-70B-Instruct&method=full&p=bf16&gpu=rtx-3090&gpus=2");
  await headroom.button("vLLM over all of them: which formats fit, and how many tokens").click();
  await expect(page.locator("h2:focus")).toHaveText("In which format?");
  await expect(page.getByRole("table", { name: "Weights by format" })).toContainText("AWQ");
});

test("a run costs what an hour of a GPU costs its owner", async ({ headroom, page }) => {
  await headroom.open("#v=1&view=plan&gpu=rtx-4090&data=50000000");
  const price = headroom.box("US dollars per GPU-hour");
  await expect(price).toHaveValue("");
  await expect(price).toHaveAttribute("placeholder", "not on record");
  await expect(page.locator(".pace").first()).toContainText("no rental price on record for this card: enter what an hour");
  await price.fill("0.40");
  await price.press("Enter");
  await expect(page.locator(".pace").first()).toContainText("at $0.40 for a GPU and hour");
  await headroom.expectLink("price", "40");
});

test("three questions are answered at once, the others where they are opened or a link asks them", async ({ headroom, page }) => {
  await headroom.open("#v=1&view=plan");
  const folded = page.locator(".plan details:not([open])");
  await expect(page.locator(".plan details[open]")).toHaveCount(3);
  expect(await folded.count()).toBeGreaterThan(5);
  const settings = page.getByRole("region", { name: "Which settings?" });
  await expect(settings.getByRole("table")).toHaveCount(0);
  await settings.getByRole("heading").click();
  await expect(settings.getByRole("table")).toHaveCount(1);
  // another view, and back: it is open still
  await headroom.view("Fit");
  await headroom.view("Plan");
  await expect(settings.getByRole("table")).toHaveCount(1);
  await settings.getByRole("heading").click();
  await expect(settings.getByRole("table")).toHaveCount(0);
  // who opens a link has folded nothing
  await page.goto("about:blank");
  await headroom.open("#v=1&view=plan&layout-gpus=4&sorted=settings.1");
  await expect(page.getByRole("region", { name: "How do several GPUs hold it?" }).getByRole("table")).toHaveCount(1);
  await expect(settings.getByRole("table")).toHaveCount(1);
});

for (const width of [390, 768, 1280]) {
  test(`the ways to the questions stay in sight beneath the verdict, ${width} wide`, async ({ headroom, page }) => {
    await page.setViewportSize({ width, height: 900 });
    await headroom.open("#v=1&view=plan");
    const ways = page.getByRole("navigation", { name: "Questions" });
    await headroom.ask("Rules of thumb");
    await expect.poll(() => within(page.getByRole("heading", { name: "What would rules of thumb say?" }))).toBe(true);
    const [verdict, nav, heading] = await Promise.all(
      [page.locator("#answer"), ways, page.locator("h2:focus")].map((part) => part.boundingBox()),
    );
    expect(nav.y).toBeGreaterThanOrEqual(verdict.y + verdict.height - 1);
    expect(nav.y).toBeLessThan(verdict.y + verdict.height + 12);
    expect(heading.y).toBeGreaterThanOrEqual(nav.y + nav.height - 1);
  });
}
