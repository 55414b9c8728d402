// The address carries everything: a link opens what its sender saw, and a damaged one opens something sane.
import { expect, test } from "./support/test.js";

test("a link reproduces exactly what its sender saw", async ({ headroom, context }) => {
  await headroom.open();
  await headroom.search("Model", "qwen2.5 7b");
  await headroom.choice("Method").selectOption("lora");
  await headroom.unfold();
  await headroom.choice("Optimizer").selectOption("lion-8bit");
  await headroom.box("Sequence length").fill("3333");
  await headroom.box("Sequence length").blur();
  await headroom.expectLink("s", "3333");
  const sent = await headroom.answer();

  const receiver = new headroom.constructor(await context.newPage());
  await receiver.open(headroom.page.url());
  expect(await receiver.answer()).toEqual(sent);
  expect(receiver.page.url()).toBe(headroom.page.url());
});

test("defaults are left out of the link", async ({ headroom }) => {
  await headroom.open();
  await headroom.box("Micro-batch size").fill("8");
  await headroom.expectLink("b", "8");
  expect([...headroom.link().keys()].sort()).toEqual(["b", "v"]);
});

test("the way of a slider is one entry of the history", async ({ headroom, page }) => {
  await headroom.open();
  const before = await page.evaluate(() => history.length);
  // at once, as a hand does: on a busy machine the presses of a test are far apart
  await headroom.slider("Sequence length").evaluate((slider) => {
    for (let step = 0; step < 5; step += 1) {
      slider.value = String(Number(slider.value) + 1);
      slider.dispatchEvent(new Event("input", { bubbles: true }));
    }
  });
  await expect.poll(() => headroom.link().has("s")).toBe(true);
  expect(await page.evaluate(() => history.length)).toBe(before + 1);
  await page.goBack();
  await expect(headroom.box("Sequence length")).toHaveValue("2048");
  await expect.poll(() => headroom.link().has("s")).toBe(false);
});

test("back undoes what was changed last, and buries no step of Undo", async ({ headroom, page }) => {
  await headroom.open("#v=1&b=2");
  const [batch, method] = [headroom.box("Micro-batch size"), headroom.choice("Method")];
  await batch.fill("4");
  await headroom.expectLink("b", "4");
  // changes that follow each other at once are one step
  await page.waitForTimeout(900);
  await method.selectOption("lora");
  await headroom.expectLink("method", "lora");
  await page.goBack();
  await expect(method).toHaveValue("qlora");
  await expect(batch).toHaveValue("4");
  await page.goBack();
  await expect(batch).toHaveValue("2");
  await headroom.expectLink("b", "2");
  await expect(headroom.button("Undo the last change")).toBeDisabled();
  await page.goForward();
  await expect(batch).toHaveValue("4");
  await page.goForward();
  await expect(method).toHaveValue("lora");
  // two steps were made, whatever way was gone
  await headroom.button("Undo the last change").click();
  await expect(method).toHaveValue("qlora");
  await expect.poll(() => headroom.link().has("method")).toBe(false);
  await headroom.button("Undo the last change").click();
  await expect(batch).toHaveValue("2");
  await expect(headroom.button("Undo the last change")).toBeDisabled();
  await headroom.expectLink("b", "2");
  // to undo is a change as well, which Back takes back
  await page.goBack();
  await expect(batch).toHaveValue("4");
  await page.goBack();
  await expect(method).toHaveValue("lora");
});

test("a browser that refuses to write the address is asked again", async ({ headroom, page }) => {
  await page.addInitScript(() => {
    const push = History.prototype.pushState;
    let refused = 0;
    History.prototype.pushState = function (...entry) {
      refused += 1;
      if (refused < 3) throw new DOMException("Attempt to use history.pushState() more than 100 times per 30 seconds", "SecurityError");
      return push.apply(this, entry);
    };
  });
  await headroom.open("#v=1&b=2");
  await headroom.box("Micro-batch size").fill("4");
  await headroom.expectLink("b", "4");
});

test("a damaged link opens with defaults for what it does not say, and says so", async ({ headroom }) => {
  await headroom.open("?v=1&b=0&s=1e99&method=fulll&o=%zz&gc=maybe&gpu=24%20parsecs");
  await expect(headroom.notice).toBeVisible();
  await expect(headroom.box("Micro-batch size")).toHaveValue("1");
  await expect(headroom.box("Sequence length")).toHaveValue("2048");
  await expect(headroom.choice("Method")).toHaveValue("full");
  await headroom.button("Dismiss").click();
  await expect(headroom.notice).toBeHidden();
});

test("what a link says in vain is told, as the command tells it", async ({ headroom, page }) => {
  await headroom.open("#v=1&b=2&foo=1&attn=flash2&table-cells=all&view=plans");
  await expect(headroom.notice).toBeVisible();
  await expect(headroom.box("Micro-batch size")).toHaveValue("2");
  const told = page.locator(".notice");
  for (const said of ["foo=1 in the link is not known", "attn=flash2 in the link", "table-cells=all is not understood", "view=plans is not understood"]) {
    await expect(told).toContainText(said);
  }
  await headroom.button("Dismiss").click();
  await expect(headroom.notice).toBeHidden();
  // and of an address that is edited
  await page.evaluate(() => (location.hash = "#v=1&b=5&bar=2"));
  await expect(told).toContainText("bar=2 in the link is not known");
  // what is no link at all, and a card that nothing is called
  await page.evaluate(() => (location.hash = "#%%%garbage"));
  await expect(told).toContainText('"%%%garbage" in the link could not be read');
  await page.evaluate(() => (location.hash = "#v=1&gpu=foo"));
  await expect(told).toContainText('no card is called "foo"');
});

test("keys of other sites in the address are not complained about", async ({ headroom }) => {
  await headroom.open("?v=1&b=2&utm_source=chat&fbclid=x");
  await expect(headroom.box("Micro-batch size")).toHaveValue("2");
  await expect(headroom.notice).toBeHidden();
});

test("an example can be undone, and back leads to what was before", async ({ headroom }) => {
  await headroom.open("?v=1&b=3");
  const before = await headroom.answer();
  await headroom.page.getByRole("group", { name: "Examples" }).getByRole("button").nth(1).click();
  await expect.poll(async () => (await headroom.answer()).verdict).not.toBe(before.verdict);
  await headroom.page.goBack();
  await expect(headroom.box("Micro-batch size")).toHaveValue("3");
  await expect.poll(() => headroom.answer()).toEqual(before);
});

test("a link of the first versions opens the same scenario, which then stands behind #", async ({ headroom, page }) => {
  await headroom.open("?v=1&b=3&method=lora");
  await expect(headroom.box("Micro-batch size")).toHaveValue("3");
  await headroom.expectLink("b", "3");
  expect(new URL(page.url()).search).toBe("");
  const before = await headroom.answer();
  await page.reload();
  await expect.poll(() => headroom.answer()).toEqual(before);
});

test("nothing of a scenario reaches the host", async ({ headroom, page }) => {
  const asked = [];
  page.on("request", (request) => asked.push(request.url()));
  await headroom.open("#v=1&b=7&m=Secret(model_type:llama,hidden_size:64,num_hidden_layers:2,num_attention_heads:4,intermediate_size:128,vocab_size:256)");
  await expect(headroom.box("Micro-batch size")).toHaveValue("7");
  await page.reload();
  await expect(headroom.box("Micro-batch size")).toHaveValue("7");
  expect(asked.length).toBeGreaterThan(3);
  // What stands behind # is no part of a request; Playwright shows it in the address all the same.
  expect(asked.map((url) => url.split("#")[0]).filter((url) => /secret|b=7/i.test(url))).toEqual([]);
});

test("an address that is edited is followed", async ({ headroom, page }) => {
  await headroom.open("#v=1&b=3");
  await page.evaluate(() => (location.hash = "#v=1&b=5"));
  await expect(headroom.box("Micro-batch size")).toHaveValue("5");
  await page.goBack();
  await expect(headroom.box("Micro-batch size")).toHaveValue("3");
});
