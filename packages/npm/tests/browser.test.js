// The package as a page uses it: served as files, without a bundler; `scripts/check packages` does.
import assert from "node:assert/strict";
import { join } from "node:path";
import { test } from "node:test";
import { chromium } from "@playwright/test";
import { estimate } from "headroom-estimator";

const INSTALLED = "node_modules/headroom-estimator";
const ADDRESS = "http://package.test/";

test("a browser is given what Node.js is", async () => {
  const scenario = { model: "Qwen/Qwen3-0.6B", method: "lora", "seq-length": 1024, gpu: "rtx-3060-12gb" };
  const args = process.getuid?.() === 0 ? ["--no-sandbox"] : [];
  const browser = await chromium.launch({ executablePath: process.env.HEADROOM_CHROMIUM, args });
  try {
    const page = await browser.newPage();
    await page.route(`${ADDRESS}**`, (route) => {
      const { pathname } = new URL(route.request().url());
      if (pathname === "/") return route.fulfill({ contentType: "text/html", body: "<!doctype html>" });
      return route.fulfill({ path: join(INSTALLED, pathname) });
    });
    await page.goto(ADDRESS);
    const answer = await page.evaluate(
      async ([address, scenario]) => (await import(`${address}browser.js`)).estimate(scenario),
      [ADDRESS, scenario],
    );
    assert.ok(answer.needed > 0);
    assert.deepEqual(answer, estimate(scenario));
  } finally {
    await browser.close();
  }
});
