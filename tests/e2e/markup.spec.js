// Markup in what others wrote is shown, not run: through a link, a paste, a drop and the Hub, in every view.
import { expect, test } from "./support/test.js";

const MARKUP = '<img src=x onerror="window.ran=1"></title></svg><script>window.ran=1</script>';

const LLAMA = {
  model_type: "llama",
  hidden_size: 2048,
  intermediate_size: 5632,
  num_attention_heads: 32,
  num_hidden_layers: 22,
  num_key_value_heads: 4,
  vocab_size: 32000,
};

/** Nothing of it became an element, and nothing ran. The page itself has no picture without a name and no script without a file. */
async function isText(page) {
  expect(await page.evaluate(() => window.ran)).toBeUndefined();
  await expect(page.locator("img[src='x'], [onerror], body script:not([src])")).toHaveCount(0);
}

/** A share link of a model of one's own, as the page itself writes it. */
async function linkOf(headroom, name) {
  const { page } = headroom;
  await headroom.open();
  await page.getByRole("button", { name: "Use a config.json or Hub id", exact: true }).click();
  const dialog = page.getByRole("dialog", { name: "Bring your own model" });
  await dialog.getByRole("button", { name: "config.json", exact: true }).click();
  await dialog.getByRole("textbox", { name: "Text of config.json" }).fill(JSON.stringify(LLAMA));
  await dialog.getByRole("textbox", { name: "Name (optional)" }).fill(name);
  await dialog.getByRole("button", { name: "Use this model" }).click();
  await expect(dialog).toBeHidden();
  await expect.poll(() => headroom.link().get("m")).toContain("img");
  return page.url();
}

test("a model's name, in every view, alone and compared", async ({ headroom, page }) => {
  const link = await linkOf(headroom, MARKUP);
  await isText(page);
  for (const address of [link, `${link}&2.b=8`]) {
    await page.goto("about:blank");
    await headroom.open(address);
    await expect(headroom.choice("Model")).toHaveValue(/^<img src=x/);
    for (const tab of await page.getByRole("tab").all()) {
      await tab.click();
      await expect(tab).toHaveAttribute("aria-selected", "true");
      await isText(page);
    }
  }
});

test("every key of a link", async ({ headroom, page }) => {
  const keys = ["v", "m", "gpu", "b", "s", "t", "o", "p", "view", "len", "drop", "st", MARKUP];
  await headroom.open();
  for (const key of keys) {
    await page.goto("about:blank");
    await page.goto(`./#${encodeURIComponent(key)}=${encodeURIComponent(MARKUP)}&2.b=8`);
    await expect(page.locator("html")).toHaveAttribute("data-state", "ready");
    await isText(page);
  }
  await expect(page.getByRole("main")).toBeVisible();
});

test("a configuration that is pasted", async ({ headroom, page }) => {
  await headroom.open();
  await page.getByRole("button", { name: "Read a training configuration" }).click();
  const dialog = page.getByRole("dialog", { name: "Bring your own model or configuration" });
  const text = dialog.getByRole("textbox", { name: "A configuration, a script’s arguments, or a command" });
  await text.fill(`base_model: '${MARKUP}'\nadapter: lora\noptimizer: '${MARKUP}'\n'${MARKUP}': 1\n`);
  await dialog.getByRole("button", { name: "Read it" }).click();
  await expect(dialog.getByText("<img src=x").filter({ visible: true }).first()).toBeVisible();
  await isText(page);
});

test("files that are dropped: their names and what is in them", async ({ headroom, page }) => {
  await headroom.open();
  for (const [name, text] of [
    [`${MARKUP}.json`, "{"],
    ["config.json", JSON.stringify({ ...LLAMA, model_type: MARKUP, hidden_act: MARKUP })],
    [`${MARKUP}.yaml`, `base_model: '${MARKUP}'\nadapter: lora\nlora_r: 8\n`],
    [`${MARKUP}.pickle`, "no pickle"],
  ]) {
    const dropped = await page.evaluateHandle(([name, text]) => {
      const data = new DataTransfer();
      data.items.add(new File([text], name));
      return data;
    }, [name, text]);
    await page.dispatchEvent("main", "drop", { dataTransfer: dropped });
    await expect(page.getByText("<img src=x").filter({ visible: true }).first()).toBeVisible();
    await isText(page);
    await page.keyboard.press("Escape");
    await headroom.open("?b=2");
  }
});

test("what the Hub answers: a file, and why there is none", async ({ headroom, page, problems }) => {
  await headroom.open();
  await page.evaluate(() => document.querySelector("meta[name=headroom-hub]").setAttribute("content", "/hub"));
  const answers = [
    { status: 200, contentType: "text/html", body: `<html>${MARKUP}</html>` },
    { status: 200, contentType: "application/json", body: JSON.stringify({ model_type: MARKUP }) },
    { status: 418, headers: { "x-error-code": MARKUP }, body: MARKUP },
    { status: 200, contentType: "image/svg+xml", body: `<svg xmlns="http://www.w3.org/2000/svg">${MARKUP}</svg>` },
  ];
  await page.route("**/hub/**", (route) => route.fulfill(answers.shift()));
  await page.getByRole("button", { name: "Use a config.json or Hub id", exact: true }).click();
  const dialog = page.getByRole("dialog", { name: "Bring your own model" });
  await dialog.getByRole("textbox", { name: "Id or address on the Hub" }).fill("someone/tiny");
  while (answers.length > 0) {
    const left = answers.length;
    await dialog.getByRole("button", { name: "Fetch" }).click();
    await expect.poll(() => answers.length).toBe(left - 1);
    await expect(dialog.getByRole("alert").filter({ hasText: /Hub/ })).toBeVisible();
    await isText(page);
  }
  // the browser tells of the answers that are none
  problems.splice(0, problems.length, ...problems.filter((problem) => !problem.includes("418")));
});

test("an answer of the Hub that never ends is given up", async ({ headroom, page, problems }) => {
  // the page's own patience, in a test that has less
  await page.addInitScript(() => {
    const timeout = AbortSignal.timeout.bind(AbortSignal);
    AbortSignal.timeout = (milliseconds) => timeout((window.patience = milliseconds) / 100);
  });
  await headroom.open();
  await page.evaluate(() => document.querySelector("meta[name=headroom-hub]").setAttribute("content", "/hub"));
  await page.route("**/hub/**", () => {});
  await page.getByRole("button", { name: "Use a config.json or Hub id", exact: true }).click();
  const dialog = page.getByRole("dialog", { name: "Bring your own model" });
  await dialog.getByRole("textbox", { name: "Id or address on the Hub" }).fill("someone/tiny");
  await dialog.getByRole("button", { name: "Fetch" }).click();
  await expect(dialog.getByRole("alert").filter({ hasText: "did not answer in time" })).toBeVisible();
  expect(await page.evaluate(() => window.patience)).toBeLessThanOrEqual(60_000);
  problems.splice(0);
});
