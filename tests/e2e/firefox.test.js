// The page in Firefox: that it starts, answers, follows its controls and its links, and computes beside the page.
// Every other test runs in Chromium. Run by `scripts/check browser`, or: node --test tests/e2e/firefox.test.js
import assert from "node:assert/strict";
import { after, afterEach, before, beforeEach, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import puppeteer from "puppeteer-core";
import { serve } from "./support/server.js";

const DIST = fileURLToPath(new URL("../../dist", import.meta.url));
const PATIENCE = { timeout: 60_000 };

let server, browser, page, problems;

before(async () => {
  server = await serve(DIST);
  browser = await puppeteer.launch({
    browser: "firefox",
    executablePath: process.env.HEADROOM_FIREFOX ?? "/usr/bin/firefox-esr",
    headless: true,
    ...PATIENCE,
  });
});

after(async () => {
  await browser?.close();
  server?.close();
});

beforeEach(async () => {
  page = await browser.newPage();
  problems = [];
  page.on("console", (message) => ["error", "warn"].includes(message.type()) && problems.push(message.text()));
  page.on("pageerror", (error) => problems.push(error.message));
});

afterEach(async () => {
  await page.close();
  assert.deepEqual(problems, []);
});

async function open(link = "") {
  await page.goto(server.url + link, PATIENCE);
  await page.waitForSelector("html[data-state=ready]", PATIENCE);
}

/** Waits until a question about the page is answered with yes. Puppeteer's own `waitForFunction` builds its question
 * inside the page with `new Function`, which the page's Content-Security-Policy refuses, as it should. */
async function until(question, ...asked) {
  const patience = AbortSignal.timeout(PATIENCE.timeout);
  while (!(await page.evaluate(question, ...asked))) {
    assert.ok(!patience.aborted, `still not so: ${question} ${asked}`);
    await sleep(50);
  }
}

/** Waits until the verdict says something. */
const says = (text) => until((text) => document.querySelector(".verdict").textContent.includes(text), text);

const value = (id) => page.$eval(`#${id}`, (box) => box.value);

test("the first answer is complete", async () => {
  await open();
  await says("Fits");
  await says("PyTorch reserves");
  assert.match(await value("model"), /Llama-3\.1-8B/);
});

test("a control is followed, and stands in the link", async () => {
  await open();
  await page.select("#method", "full");
  await says("Does not fit");
  await until(() => location.hash.includes("method=full"));
});

test("a link opens its scenario, and one of the first versions moves behind #", async () => {
  await open("#v=1&b=5");
  assert.equal(await value("batch-size"), "5");
  await page.goto("about:blank");
  await open("?v=1&b=6");
  assert.equal(await value("batch-size"), "6");
  await until(() => location.search === "" && location.hash.includes("b=6"));
});

test("close looks come from the worker", async () => {
  await open("#v=1&b=2");
  await says("PyTorch reserves");
  await until(() => performance.getEntriesByType("resource").some(({ name }) => name.endsWith("worker.js")));
});

test("the cheapest change is one press away, and back", async () => {
  await open("#v=1&gpu=rtx-3060-12gb&b=4");
  await says("Does not fit");
  await until(() => document.querySelector(".levers[aria-busy=false] .lever") !== null);
  await page.click(".lever");
  await says("Fits");
  await page.keyboard.down("Control");
  await page.keyboard.press("z");
  await page.keyboard.up("Control");
  await says("Does not fit");
});

test("the timeline is drawn, and asked with the keys", async () => {
  await open("#v=1&view=timeline");
  await until(() => document.querySelector(".timeline .peak") !== null);
  await page.focus(".scrubber");
  await page.keyboard.press("Home");
  await until(() => document.querySelector(".scrubber").ariaValueNow === "1");
  await until(() => document.querySelectorAll("#moment .alive li").length === 5);
});

test("the plan's tables are filled beside the page", async () => {
  await open("#v=1&view=plan&gpu=rtx-3060-12gb&b=4");
  await until(() => document.querySelectorAll(".lever-table[aria-busy=false] tbody tr").length > 3);
});

test("two scenarios stand side by side", async () => {
  await open("#v=1&view=compare&2.method=lora");
  await until(() => document.body.textContent.includes("What differs"));
});
