// The first answer stands in the page itself, complete before any code arrives.
import { expect, test } from "./support/test.js";

/** An element's HTML without what no reader sees: comments, empty classes, styles that scripts set. */
function plain(html) {
  // the comment of an empty textarea would be read as its text
  const root = new DOMParser().parseFromString(html.replaceAll("<!---->", ""), "text/html").body;
  const comments = document.createTreeWalker(root, NodeFilter.SHOW_COMMENT);
  const found = [];
  while (comments.nextNode()) found.push(comments.currentNode);
  for (const comment of found) comment.remove();
  root.normalize();
  const lines = [];
  for (const element of root.querySelectorAll("*")) {
    const attributes = [...element.attributes]
      .filter(({ name, value }) => name !== "style" && !(name === "class" && value === ""))
      .map(({ name, value }) => `${name}=${value}`)
      .sort();
    const text = [...element.childNodes]
      .filter((node) => node.nodeType === Node.TEXT_NODE && node.data.trim() !== "")
      .map((node) => node.data);
    lines.push([element.localName, ...attributes, ...text].join(" "));
  }
  return lines;
}

test("the app draws what stands in the page", async ({ headroom, page, request }) => {
  const sent = await (await request.get(".")).text();
  await page.addInitScript(() => {
    // At the very moment at which the app says that it is there, before it has measured how wide its charts are.
    const set = Element.prototype.setAttribute;
    Element.prototype.setAttribute = function (name, value) {
      if (name === "data-state" && value === "ready") window.drawn = document.getElementById("app").innerHTML;
      return set.call(this, name, value);
    };
  });
  await headroom.open();
  await expect.poll(() => page.evaluate(() => window.drawn?.length ?? 0)).toBeGreaterThan(1000);
  const drawn = await page.evaluate(() => window.drawn);
  const app = await page.evaluate(
    (html) => new DOMParser().parseFromString(html, "text/html").getElementById("app").innerHTML,
    sent,
  );
  expect(await page.evaluate(`(${plain})(${JSON.stringify(drawn)})`)).toEqual(
    await page.evaluate(`(${plain})(${JSON.stringify(app)})`),
  );
});

for (const width of [390, 1280]) {
  test(`nothing moves while the app takes over, ${width} pixels wide`, async ({ headroom, page }) => {
    await page.setViewportSize({ width, height: 900 });
    await page.addInitScript(() => {
      window.moved = [];
      const words = ({ node, previousRect, currentRect }) =>
        `${node?.outerHTML?.slice(0, 100) ?? node?.textContent}: ${previousRect.y} to ${currentRect.y}`;
      new PerformanceObserver((list) => {
        for (const entry of list.getEntries()) window.moved.push(...entry.sources.map(words));
      }).observe({ type: "layout-shift", buffered: true });
    });
    await headroom.open();
    await expect(page.locator("html")).toHaveAttribute("data-state", "ready");
    await expect(headroom.verdict).toContainText("PyTorch reserves");
    expect(await page.evaluate(() => window.moved)).toEqual([]);
  });
}

for (const width of [1280, 1920]) {
  test(`what is read first stands where it stood once the code is there, ${width} pixels wide`, async ({ headroom, page }) => {
    await page.setViewportSize({ width, height: 900 });
    let go;
    const held = new Promise((resolve) => (go = resolve));
    await page.route(/\.wasm$/, async (route) => {
      await held;
      await route.continue();
    });
    // all that has a place of its own, by what it is and which of them it is
    const places = () =>
      page.evaluate(() => {
        const told = {};
        for (const kind of ["h2", "input", "select", ".sentence-bar *", ".known *", ".gist *", ".figures *", ".drawing svg", ".drawing .part", ".drawing .capacity", "tr"]) {
          [...document.querySelectorAll(`#app :is(${kind})`)].forEach((element, at) => {
            const { x, y, width, height } = element.getBoundingClientRect();
            if (width >= 1 && height >= 1) told[`${kind} ${at} ${element.id}`] = [x, y, width, height];
          });
        }
        return told;
      });
    await page.goto(".");
    await expect(page.locator("#app")).toHaveAttribute("inert", "");
    const before = await places();
    expect(Object.keys(before).length).toBeGreaterThan(100);
    go();
    await expect(page.locator("html")).toHaveAttribute("data-state", "ready");
    await expect(headroom.verdict).toContainText("PyTorch reserves");
    const moved = async () => {
      const after = await places();
      return Object.keys(before).filter((name) => before[name].some((place, at) => !(Math.abs(place - after[name]?.[at]) <= 1)));
    };
    await expect.poll(moved).toEqual([]);
  });
}

test("a link does not show the first answer, which is not its own", async ({ headroom, page }) => {
  await page.route(/\.wasm$/, (route) => setTimeout(() => route.continue(), 1000));
  await page.goto("#v=1&b=9");
  await expect(headroom.verdict).toBeHidden();
  await expect(headroom.box("Micro-batch size")).toHaveValue("9");
});

test.describe("without JavaScript", () => {
  test.use({ javaScriptEnabled: false });

  test("the first answer is there, with a word", async ({ headroom, page }) => {
    await page.goto(".");
    await expect(headroom.verdict).toContainText("Fits");
    await expect(headroom.verdict).toContainText("PyTorch reserves");
    await expect(headroom.parts).toContainText("Weights");
    await expect(headroom.choice("Model")).toHaveValue("meta-llama/Llama-3.1-8B");
    await expect(page.getByRole("heading", { name: /needs JavaScript/ })).toBeVisible();
  });
});

test("where the code does not come, the first answer stays and the page says so", async ({ headroom, page, problems }) => {
  await page.route(/\.wasm$/, (route) => route.abort());
  await page.goto(".");
  await expect(page.getByRole("heading", { name: "Headroom could not be loaded" })).toBeVisible();
  await expect(headroom.verdict).toContainText("Fits");
  problems.length = 0;
});

test("a program that stopped says so, and keeps the scenario", async ({ headroom, page }) => {
  await headroom.open("#v=1&b=7");
  // what `catch_crashes` marks where the program panics
  await page.evaluate(() => (document.documentElement.dataset.state = "crashed"));
  await expect(page.getByRole("heading", { name: "Headroom stopped" })).toBeVisible();
  await expect(page.locator("#app")).toBeHidden();
  await page.getByRole("button", { name: "Reload" }).click();
  await expect(headroom.box("Micro-batch size")).toHaveValue("7");
  await page.evaluate(() => (document.documentElement.dataset.state = "crashed"));
  await page.getByRole("button", { name: "Start afresh" }).click();
  await expect(headroom.box("Micro-batch size")).toHaveValue("1");
});
