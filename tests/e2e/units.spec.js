// A number and its unit are one word: no line ends between them.
import { expect, test } from "./support/test.js";

/** The texts in sight in which a space stands between a number and its unit at which a line may end. */
const torn = (page) =>
  page.evaluate(() => {
    const found = new Set();
    const walker = document.createTreeWalker(document.querySelector("main"), NodeFilter.SHOW_TEXT);
    for (let node = walker.nextNode(); node; node = walker.nextNode()) {
      const parent = node.parentElement;
      if (parent.closest("svg, option, [hidden], [popover], .unseen") || !parent.checkVisibility()) continue;
      if (/\d (?:[KMGT]i?B|%|×)(?![\w])/.test(node.data)) found.add(node.data.trim());
    }
    return [...found];
  });

for (const [name, link] of [
  ["fit", "#v=1&gpu=rtx-3060-12gb"],
  ["many GPUs", "#v=1&m=meta-llama/Llama-3.3-70B-Instruct&method=full&gpu=h100-sxm-80gb&gpus=8"],
  ["timeline", "#v=1&view=timeline"],
  ["compare", "#v=1&2.method=lora&view=compare"],
]) {
  test(`no line ends between a number and its unit: ${name}`, async ({ headroom, page }) => {
    await headroom.open(link);
    await expect(headroom.verdict).toHaveAttribute("aria-busy", "false");
    await expect(page.locator(".levers[aria-busy='true']")).toHaveCount(0, { timeout: 120_000 });
    expect(await torn(page)).toEqual([]);
  });
}
