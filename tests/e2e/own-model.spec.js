// A model of one's own: from the Hub, as a config.json that is pasted, chosen or dropped, by its dimensions, by its size.
import { overflow, violations } from "./support/access.js";
import { expect, test } from "./support/test.js";

const TINY = {
  model_type: "llama",
  hidden_size: 2048,
  intermediate_size: 5632,
  num_attention_heads: 32,
  num_hidden_layers: 22,
  num_key_value_heads: 4,
  vocab_size: 32000,
};
const TINY_COUNT = "1,100,048,384";

/** The dialog and what is in it, by accessible names only. */
class Dialog {
  constructor(page) {
    this.page = page;
    this.root = page.getByRole("dialog", { name: "Bring your own model" });
    this.id = this.root.getByRole("textbox", { name: "Id or address on the Hub" });
    this.config = this.root.getByRole("textbox", { name: "Text of config.json" });
    this.name = this.root.getByRole("textbox", { name: "Name (optional)" });
    this.use = this.root.getByRole("button", { name: "Use this model" });
    this.alert = this.root.getByRole("alert");
  }

  async open(part) {
    await this.page.getByRole("button", { name: "Use a config.json or Hub id", exact: true }).click();
    await expect(this.root).toBeVisible();
    if (part) await this.root.getByRole("button", { name: part, exact: true }).click();
  }

  async fetch(id) {
    await this.id.fill(id);
    await this.root.getByRole("button", { name: "Fetch" }).click();
  }

  async paste(text) {
    await this.config.fill(typeof text === "string" ? text : JSON.stringify(text));
  }
}

const dialogOf = (headroom) => new Dialog(headroom.page);

/** Answers for the Hub; the page is told its address, which is the page's own origin. */
async function hub(page, answer) {
  const asked = [];
  await page.route("**/hub/**", (route) => {
    asked.push(new URL(route.request().url()).pathname);
    return answer(route);
  });
  await page.evaluate(() => document.querySelector("meta[name=headroom-hub]").setAttribute("content", "/hub"));
  return asked;
}

const json = (config) => (route) => route.fulfill({ status: 200, contentType: "text/plain", body: JSON.stringify(config) });

test.describe("from the Hub", () => {
  for (const typed of ["someone/tiny", "https://huggingface.co/someone/tiny/blob/main/config.json"]) {
    test(`by ${typed}`, async ({ headroom, page }) => {
      await headroom.open();
      const asked = await hub(page, json(TINY));
      const dialog = dialogOf(headroom);
      await dialog.open();
      await dialog.id.fill(typed);
      expect(asked, "nothing is asked before the click").toEqual([]);
      await dialog.id.press("Enter");

      await expect(dialog.root).toBeHidden();
      expect(asked).toEqual(["/hub/someone/tiny/resolve/main/config.json"]);
      await expect(headroom.choice("Model")).toHaveValue("someone/tiny");
      await expect(page.getByText("1.10B parameters · context 2,048")).toBeVisible();
      await expect.poll(() => headroom.link().get("m")).toMatch(/^someone\/tiny\(/);
      await headroom.button("Undo").click();
      await expect(headroom.choice("Model")).toHaveValue("meta-llama/Llama-3.1-8B");
    });
  }

  test("the page's address is the Hub's own unless it says otherwise", async ({ headroom, page, problems }) => {
    await headroom.open();
    await page.route("https://huggingface.co/**", json(TINY));
    const dialog = dialogOf(headroom);
    await dialog.open();
    await dialog.fetch("someone/tiny");
    await expect(dialog.root).toBeHidden();
    expect(problems.splice(0)).toEqual(["third-party request: https://huggingface.co/someone/tiny/resolve/main/config.json"]);
  });

  test("an unknown id typed as the model leads there", async ({ headroom, page }) => {
    await headroom.open();
    await hub(page, json(TINY));
    await headroom.search("Model", "someone/tiny-llama-finetune");
    const dialog = dialogOf(headroom);
    await expect(dialog.id).toHaveValue("someone/tiny-llama-finetune");
    await dialog.id.press("Enter");
    await expect(headroom.choice("Model")).toHaveValue("someone/tiny-llama-finetune");
  });

  test("beside the missing answer of an unknown id stands the way to the Hub", async ({ headroom, page }) => {
    await headroom.open("#v=1&m=someone/tiny");
    await hub(page, json(TINY));
    await expect(headroom.verdict).toContainText("No answer");
    await page.getByRole("button", { name: "Look for someone/tiny on the Hub" }).click();
    const dialog = dialogOf(headroom);
    await expect(dialog.id).toHaveValue("someone/tiny");
    await dialog.id.press("Enter");
    await expect(headroom.choice("Model")).toHaveValue("someone/tiny");
    await expect(headroom.verdict).not.toContainText("No answer");
    await expect(page.getByRole("button", { name: "Look for someone/tiny on the Hub" })).toHaveCount(0);
  });

  test("an unknown id in a link leads there, too", async ({ headroom, page }) => {
    await page.goto("?m=someone/tiny-llama-finetune");
    await expect(page.getByText("No model is called").first()).toBeVisible();
    const dialog = dialogOf(headroom);
    await dialog.open();
    await expect(dialog.id).toHaveValue("someone/tiny-llama-finetune");
  });

  const refused = (status, code) => (route) =>
    route.fulfill({ status, headers: code ? { "x-error-code": code } : {}, body: "Access to model is restricted" });
  const REFUSALS = [
    ["gated", refused(401, "GatedRepo"), "gated"],
    ["forbidden", refused(403), "gated"],
    ["private, gated or missing", refused(401), "gated, private or not there"],
    ["missing", refused(404, "RepoNotFound"), "no public model"],
    ["without the file", refused(404, "EntryNotFound"), "no config.json in"],
    ["not found", refused(404), "no config.json of"],
    ["rate-limited", refused(429), "too many requests"],
    ["broken", refused(503), "answered 503"],
    ["unreachable", (route) => route.abort("connectionrefused"), "could not be reached"],
    ["not JSON", (route) => route.fulfill({ status: 200, body: "<html>Please sign in</html>" }), "not JSON"],
    ["not a model", json({ model_type: "llama", hidden_size: "large" }), "hidden_size"],
    ["too long", (route) => route.fulfill({ status: 200, body: `{"a":"${"x".repeat(6_000_000)}"}` }), "6 MB"],
  ];
  test("what the Hub refuses says why and offers to paste it", async ({ headroom, page, problems }) => {
    await headroom.open();
    const before = await headroom.verdict.innerText();
    let answer;
    await hub(page, (route) => answer(route));
    const dialog = dialogOf(headroom);
    await dialog.open();
    for (const [what, refusal, message] of REFUSALS) {
      await test.step(what, async () => {
        answer = refusal;
        await dialog.root.getByRole("button", { name: "From the Hub", exact: true }).click();
        await dialog.fetch("someone/tiny");
        await expect(dialog.alert.filter({ hasText: message })).toBeVisible();
        await expect(dialog.id).toHaveValue("someone/tiny");
        await expect(dialog.root.getByRole("link", { name: "Open the file on the Hub" })).toHaveAttribute(
          "href",
          "/hub/someone/tiny/blob/main/config.json",
        );
        await expect(headroom.verdict).toHaveText(before, { useInnerText: true });
        await dialog.root.getByRole("button", { name: "Paste it instead" }).click();
        await expect(dialog.config).toBeFocused();
      });
    }
    await dialog.paste(TINY);
    await dialog.use.click();
    await expect(headroom.choice("Model")).toHaveValue("someone/tiny");
    problems.splice(0);
  });

  test("offline is told from unreachable", async ({ headroom, context, problems }) => {
    await headroom.open();
    const dialog = dialogOf(headroom);
    await dialog.open();
    await context.setOffline(true);
    await dialog.fetch("someone/tiny");
    await expect(dialog.alert.filter({ hasText: "offline" })).toBeVisible();
    problems.splice(0);
  });

  test("what is no id is not asked for", async ({ headroom, page }) => {
    await headroom.open();
    const asked = await hub(page, json(TINY));
    const dialog = dialogOf(headroom);
    await dialog.open();
    await dialog.fetch("llama");
    await expect(dialog.alert.filter({ hasText: "org/name" })).toBeVisible();
    expect(asked).toEqual([]);
  });

  test("who closes the dialog meanwhile is not surprised", async ({ headroom, page }) => {
    await headroom.open();
    let answered;
    await hub(page, async (route) => {
      await new Promise((resolve) => (answered = resolve));
      await json(TINY)(route);
    });
    const dialog = dialogOf(headroom);
    await dialog.open();
    await dialog.fetch("someone/tiny");
    await expect(dialog.root.getByRole("button", { name: "Asking …" })).toBeVisible();
    await page.keyboard.press("Escape");
    await expect(dialog.root).toBeHidden();
    const done = page.waitForResponse("**/hub/**");
    answered();
    await (await done).finished();
    await expect(headroom.choice("Model")).toHaveValue("meta-llama/Llama-3.1-8B");
  });
});

test.describe("as a config.json", () => {
  test("pasted, counted at once, named, and in the link", async ({ headroom, page }) => {
    await headroom.open();
    const dialog = dialogOf(headroom);
    await dialog.open("config.json");
    await dialog.paste(TINY);
    await expect(dialog.alert.filter({ hasText: TINY_COUNT })).toBeVisible();
    await dialog.name.fill("My tiny (v2)");
    await dialog.use.click();
    await expect(dialog.root).toBeHidden();

    await expect(page.locator(".sentence-bar")).toContainText("My tiny (v2)");
    const before = await headroom.answer();
    await page.getByRole("tab", { name: "Plan" }).click();
    const row = headroom.fits.getByRole("row", { name: /^My tiny \(v2\)/ });
    await row.scrollIntoViewIfNeeded();
    await expect(row.getByRole("cell").nth(2)).toContainText(/batch/);
    await page.getByRole("tab", { name: "Fit" }).click();
    await expect.poll(() => headroom.link().get("view")).toBeNull();
    await expect.poll(() => headroom.link().get("m")).toMatch(/^My tiny ~\(v2~\)\(/);
    expect(page.url().length).toBeLessThan(2000);

    await page.reload();
    await expect(headroom.choice("Model")).toHaveValue("My tiny (v2)");
    await expect.poll(() => headroom.answer()).toEqual(before);
  });

  test("the next model has a name of its own", async ({ headroom }) => {
    await headroom.open();
    const dialog = dialogOf(headroom);
    await dialog.open("config.json");
    await dialog.paste(TINY);
    await dialog.name.fill("first");
    await dialog.use.click();
    await expect(headroom.choice("Model")).toHaveValue("first");
    await dialog.open();
    await expect(dialog.name).toHaveValue("");
    await headroom.page.mouse.click(4, 4);
    await expect(dialog.root, "a click beside it closes it").toBeHidden();
  });

  test("compared with another, both are named", async ({ headroom, page }) => {
    await headroom.open();
    await headroom.button("Compare").click();
    const dialog = dialogOf(headroom);
    await dialog.open("config.json");
    await dialog.paste(TINY);
    await dialog.name.fill("mine");
    await dialog.use.click();
    const scenarios = page.getByRole("group", { name: "Scenarios" });
    await expect(scenarios.getByRole("button", { name: /Llama-3\.1-8B/ })).toBeVisible();
    await expect(scenarios.getByRole("button", { name: /mine/ }).first()).toBeVisible();
    await expect(page.getByRole("row", { name: /^Model .*Llama-3\.1-8B mine/ })).toBeVisible();
  });

  test("a mixture of experts shows all and active parameters", async ({ headroom, page }) => {
    await headroom.open();
    const dialog = dialogOf(headroom);
    await dialog.open("config.json");
    await dialog.paste({ model_type: "mixtral" });
    await expect(dialog.alert.filter({ hasText: "46,702,792,704 parameters, 12,879,925,248 of them active" })).toBeVisible();
    await dialog.use.click();
    await expect(page.getByText("46.7B parameters, 12.9B active")).toBeVisible();
    await expect(headroom.choice("Model")).toHaveValue("mixtral, 46.7B");
  });

  test("an unknown family is counted with a warning, and its memory is not guessed", async ({ headroom, page }) => {
    await headroom.open();
    const dialog = dialogOf(headroom);
    await dialog.open("config.json");
    await dialog.paste({ ...TINY, model_type: "nobody_knows" });
    await expect(dialog.alert.filter({ hasText: /nobody_knows.*counted as a llama/ })).toBeVisible();
    await dialog.use.click();
    await expect(dialog.root).toBeHidden();
    await expect(page.getByText(/^Warning:.*nobody_knows/).filter({ visible: true })).toHaveCount(1);
    await expect(page.getByText(/not known, and not guessed/).filter({ visible: true }).first()).toBeVisible();
  });

  const UNREADABLE = [
    ["half a file", '{"model_type": "llama", "hidden_size"', "ends early"],
    ["a wrong type", '{"model_type": "llama", "hidden_size": "large"}', "hidden_size"],
    ["no JSON", "model_type: llama", "not JSON"],
    ["deep nesting", `${'{"a":'.repeat(100_000)}`, "nested too deeply"],
    ["a huge number", '{"model_type": "llama", "hidden_size": 1e308}', "sensible size"],
    ["NaN", '{"model_type": "llama", "hidden_size": NaN}', "hidden_size"],
    ["markup", '{"model_type": "<img src=x onerror=alert(1)>"}', "<img src=x"],
  ];
  test("what is no config is refused and stays in the box", async ({ headroom }) => {
    await headroom.open();
    const before = await headroom.verdict.innerText();
    const dialog = dialogOf(headroom);
    await dialog.open("config.json");
    for (const [what, text, message] of UNREADABLE) {
      await test.step(what, async () => {
        await dialog.paste(text);
        await expect(dialog.alert.filter({ hasText: message })).toBeVisible({ timeout: 1_500 });
        await dialog.use.click();
        await expect(dialog.root).toBeVisible();
        await expect(headroom.verdict).toHaveText(before, { useInnerText: true });

        await headroom.page.keyboard.press("Escape");
        await expect(dialog.root).toBeHidden();
        await dialog.open();
        await expect(dialog.config).toHaveValue(text);
      });
    }
  });

  test("fifty megabytes are refused before they are in the box", async ({ headroom }) => {
    await headroom.open();
    const dialog = dialogOf(headroom);
    await dialog.open("config.json");
    await dialog.config.evaluate((box) => {
      const clipboardData = new DataTransfer();
      clipboardData.setData("text", `{"a":"${"x".repeat(50_000_000)}"}`);
      box.dispatchEvent(new ClipboardEvent("paste", { clipboardData, bubbles: true, cancelable: true }));
    });
    await expect(dialog.alert.filter({ hasText: "50 MB" })).toBeVisible({ timeout: 1_500 });
    await expect(dialog.config).toHaveValue("");
  });

  test("chosen as a file", async ({ headroom }) => {
    await headroom.open();
    const dialog = dialogOf(headroom);
    await dialog.open("config.json");
    const file = (name, text) => ({ name, mimeType: "application/json", buffer: Buffer.from(text) });
    const input = dialog.root.getByLabel("Choose a file").first();
    await input.setInputFiles(file("weights.json", " ".repeat(17_000_000)));
    await expect(dialog.alert.filter({ hasText: "weights.json: this has more than 16 MB" })).toBeVisible();
    await input.setInputFiles(file("half.json", "{"));
    await expect(dialog.alert.filter({ hasText: "half.json: this JSON ends early" })).toBeVisible();
    await input.setInputFiles(file("tiny-llama.json", JSON.stringify(TINY)));
    await expect(headroom.choice("Model")).toHaveValue("tiny-llama");
  });

  /** Drops files on the middle of the page, as from a file manager. */
  async function drop(page, files) {
    await page.evaluate((files) => {
      const dataTransfer = new DataTransfer();
      for (const [name, text] of files) dataTransfer.items.add(new File([text], name));
      const target = document.elementFromPoint(innerWidth / 2, innerHeight / 2);
      for (const type of ["dragover", "drop"]) {
        target.dispatchEvent(new DragEvent(type, { dataTransfer, bubbles: true, cancelable: true }));
      }
    }, files);
  }

  test("dropped anywhere on the page", async ({ headroom, page }) => {
    await headroom.open();
    await drop(page, [["tokenizer.json", "{}"], ["config.json", JSON.stringify(TINY)]]);
    await expect(headroom.choice("Model")).toHaveValue("llama, 1.10B");
    await headroom.button("Undo").click();
    await expect(headroom.choice("Model")).toHaveValue("meta-llama/Llama-3.1-8B");
  });

  test("a dropped file that is none says so", async ({ headroom, page }) => {
    await headroom.open();
    await drop(page, [["picture.png", "\u0089PNG\u0000"]]);
    const dialog = dialogOf(headroom);
    await expect(dialog.alert.filter({ hasText: "picture.png: this is no text" })).toBeVisible();
    await expect(headroom.choice("Model")).toHaveValue("meta-llama/Llama-3.1-8B");
  });
});

test.describe("by its dimensions", () => {
  const number = (dialog, name) => dialog.root.getByRole("textbox", { name, exact: true });

  test("starting from the model on the screen, counted at once", async ({ headroom }) => {
    await headroom.open("?m=meta-llama/Llama-3.2-1B");
    const dialog = dialogOf(headroom);
    await dialog.open("Dimensions");
    const count = dialog.root.getByRole("status");
    await expect(count).toHaveText("1,235,814,400 parameters");
    for (const [name, value] of [
      ["Hidden size", "2048"], ["Layers", "16"], ["Heads", "32"], ["KV heads", "8"], ["MLP width", "8192"],
      ["Vocabulary", "128256"], ["Positions", "131072"],
    ]) {
      await expect(number(dialog, name)).toHaveValue(value);
    }
    await expect(headroom.choice("Tied embeddings")).toHaveValue("yes");
    await number(dialog, "Layers").fill("32");
    await expect(count).not.toHaveText("1,235,814,400 parameters");
    const twice = await count.innerText();
    await headroom.choice("Tied embeddings").selectOption("no");
    await expect(count).not.toHaveText(twice);
    await dialog.name.fill("deeper");
    await dialog.use.click();
    await expect(headroom.choice("Model")).toHaveValue("deeper");
    await expect.poll(() => headroom.link().get("m")).toContain("num_hidden_layers:32");
  });

  test("what does not fit together says so, and nothing typed is lost", async ({ headroom }) => {
    await headroom.open();
    const dialog = dialogOf(headroom);
    await dialog.open("Dimensions");
    await number(dialog, "Heads").fill("7");
    await expect(dialog.root.getByRole("status")).toContainText("no multiple of 7 heads");
    await dialog.use.click();
    await expect(dialog.root).toBeVisible();
    await number(dialog, "Layers").fill("many");
    await expect(number(dialog, "Layers")).toHaveAttribute("aria-invalid", "true");
    await headroom.page.keyboard.press("Escape");
    await dialog.open();
    await expect(number(dialog, "Heads")).toHaveValue("7");
  });
});

test.describe("the Model box knows", () => {
  const NAMES = [
    ["llama3-8b", "meta-llama/Meta-Llama-3-8B"],
    ["llama3-70b", "meta-llama/Meta-Llama-3-70B-Instruct"],
    ["llama2-7b", "meta-llama/Llama-2-7b-hf"],
    ["llama2-13b", "meta-llama/Llama-2-13b-hf"],
    ["llama 3 8b", "meta-llama/Meta-Llama-3-8B"],
    ["qwen2.5-7b", "Qwen/Qwen2.5-7B"],
    ["mistrl 7b", "mistralai/Mistral-7B-Instruct-v0.3"],
  ];
  test("short names and slips of the pen", async ({ headroom }) => {
    await headroom.open();
    for (const [typed, id] of NAMES) {
      await headroom.search("Model", typed);
      await expect(headroom.choice("Model"), typed).toHaveValue(id);
    }
  });

  test("the short names of the first version in links", async ({ headroom, page }) => {
    await headroom.open("?m=llama2-13b");
    await expect(headroom.notice).toBeHidden();
    await expect(page.getByText("13.0B parameters · context 4,096")).toBeVisible();
  });
});

test.describe("everybody can use it", () => {
  const parts = ["From the Hub", "config.json", "Dimensions"];
  for (const colorScheme of ["light", "dark"]) {
    test(`axe finds nothing in ${colorScheme} colours`, async ({ headroom, page, problems }) => {
      await page.emulateMedia({ colorScheme, reducedMotion: "reduce" });
      await headroom.open();
      await hub(page, (route) => route.fulfill({ status: 404 }));
      const dialog = dialogOf(headroom);
      await dialog.open();
      await dialog.fetch("someone/tiny");
      await expect(dialog.alert.filter({ hasText: "no config.json" })).toBeVisible();
      for (const part of parts) {
        await dialog.root.getByRole("button", { name: part, exact: true }).click();
        expect(await violations(page), part).toEqual([]);
      }
      problems.splice(0);
    });
  }

  for (const width of [320, 1280]) {
    test(`a long name needs no scrolling at ${width} pixels`, async ({ headroom, page }) => {
      await page.setViewportSize({ width, height: 800 });
      const config = Object.entries(TINY).map(([key, value]) => `${key}:${value}`);
      for (const others of ["", "&2.b=2&3.method=full&4.m=gpt2"]) {
        await headroom.open(`?v=1&m=${"W".repeat(80)}(${config})${others}`);
        expect(await overflow(page), `with ${others || "nothing"}`).toBeLessThanOrEqual(0);
      }
    });
  }

  for (const width of [320, 390]) {
    test(`the dialog is on the screen at ${width} pixels`, async ({ headroom, page }) => {
      await page.setViewportSize({ width, height: 800 });
      await headroom.open();
      const dialog = dialogOf(headroom);
      await dialog.open();
      for (const part of parts) {
        await dialog.root.getByRole("button", { name: part, exact: true }).click();
        const box = await dialog.root.boundingBox();
        expect(box.x).toBeGreaterThanOrEqual(0);
        expect(box.x + box.width).toBeLessThanOrEqual(width);
        expect(await dialog.root.evaluate((root) => root.scrollWidth - root.clientWidth)).toBeLessThanOrEqual(0);
      }
    });
  }

  test("by keyboard alone", async ({ headroom, page }) => {
    await headroom.open();
    await headroom.choice("Model").focus();
    await page.keyboard.press("Tab");
    await page.keyboard.press("Enter");
    const dialog = dialogOf(headroom);
    await expect(dialog.id).toBeFocused();
    await dialog.root.getByRole("button", { name: "config.json", exact: true }).focus();
    await page.keyboard.press("Enter");
    await dialog.config.focus();
    await page.keyboard.insertText(JSON.stringify(TINY));
    await expect(dialog.alert.filter({ hasText: TINY_COUNT })).toBeVisible();
    await dialog.use.focus();
    await page.keyboard.press("Enter");
    await expect(headroom.choice("Model")).toHaveValue("llama, 1.10B");
    await expect(headroom.button("Use a config.json or Hub id"), "the focus comes back").toBeFocused();
  });
});
