// How fast the built page is in a real browser, against its budgets. It prints and never fails: on a busy machine every
// figure is too high. Run after the release build.
//   node scripts/speed.js
import { chromium } from "@playwright/test";
import { fileURLToPath } from "node:url";
import { serve } from "../tests/e2e/support/server.js";

const SLOW = { offline: false, latency: 150, downloadThroughput: 200_000, uploadThroughput: 200_000 };
const HEAVY = "#v=1&m=meta-llama/Llama-3.1-405B&method=lora&gpu=b200&2.b=2&3.s=4096&4.s=8192";

/** Collects what the browser says of painting and of tasks that keep it from answering. */
function observe() {
  window.seen = { lcp: 0, cls: 0, longest: 0, steps: [] };
  const watch = (type, each) =>
    new PerformanceObserver((list) => list.getEntries().forEach(each)).observe({ type, buffered: true });
  watch("largest-contentful-paint", ({ startTime }) => (window.seen.lcp = startTime));
  watch("layout-shift", ({ value }) => (window.seen.cls += value));
  watch("longtask", ({ duration }) => (window.seen.longest = Math.max(window.seen.longest, duration)));
}

async function visit(browser, url, network) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 }, serviceWorkers: "block" });
  const page = await context.newPage();
  await page.addInitScript(observe);
  if (network) {
    const session = await context.newCDPSession(page);
    await session.send("Network.enable");
    await session.send("Network.emulateNetworkConditions", network);
  }
  await page.goto(url);
  await page.waitForSelector("html[data-state=ready]", { timeout: 120_000 });
  await page.waitForTimeout(1000);
  return page;
}

/** Steps a slider and gives the work of each step until it is painted, sorted, in milliseconds. */
const steps = (page) =>
  page.evaluate(async () => {
    const slider = document.querySelector("input[type=range][aria-label='Micro-batch size']");
    const taken = [];
    for (let step = 0; step < 40; step += 1) {
      slider.value = String(step % 10);
      const began = performance.now();
      slider.dispatchEvent(new Event("input", { bubbles: true }));
      await new Promise((done) => queueMicrotask(done));
      document.body.getBoundingClientRect();
      taken.push(performance.now() - began);
      await new Promise((done) => setTimeout(done, 100));
    }
    return taken.sort((a, b) => a - b);
  });

const print = (what, figure, budget) => console.log(`${what.padEnd(62)}${figure.padStart(10)}   ${budget}`);
const ms = (value) => `${Math.round(value)} ms`;

const server = await serve(fileURLToPath(new URL("../dist", import.meta.url)));
const args = process.getuid?.() === 0 ? ["--no-sandbox"] : [];
const browser = await chromium.launch({ executablePath: process.env.HEADROOM_CHROMIUM ?? "/usr/bin/chromium", args });
for (const [name, network, budget] of [["here", null, "150 ms"], ["at 1.6 Mbit/s, 150 ms away", SLOW, "700 ms"]]) {
  const page = await visit(browser, server.url, network);
  const { lcp, cls, longest } = await page.evaluate(() => window.seen);
  const fcp = await page.evaluate(() => performance.getEntriesByName("first-contentful-paint")[0].startTime);
  print(`first contentful paint ${name}`, ms(fcp), budget);
  print(`largest contentful paint ${name}`, ms(lcp), budget);
  print(`longest task on the main thread ${name}`, ms(longest), "50 ms");
  print(`layout shift ${name}`, cls.toFixed(3), "0");
  await page.context().close();
}
const page = await visit(browser, server.url + HEAVY, null);
const taken = await steps(page);
print("work of a slider's step, four scenarios of 405B, 95th percentile", ms(taken[Math.floor(taken.length * 0.95)]), "16 ms");
await browser.close();
server.close();
