// How fast the built page is in a real browser, against its budgets. It prints and never fails: on a busy machine what is
// painted is painted later. Work is what the processor did for the page's main thread, whoever else is at it. Run after
// the release build.
//   node scripts/speed.js [--short]
// Between other checks it is short: fewer visits and changes.
import { chromium } from "@playwright/test";
import { fileURLToPath } from "node:url";
import { serve } from "../tests/e2e/support/server.js";

const SLOW = { offline: false, latency: 150, downloadThroughput: 200_000, uploadThroughput: 200_000 };
/** Links of several kinds: what they show is not on the page before its code. */
const LINKS = {
  "that fits": "#v=1&m=meta-llama/Llama-3.2-1B&method=full&gpu=a100-sxm-40gb",
  "that does not": "#v=1&gpu=rtx-3060-12gb&b=4",
  "of eight GPUs": "#v=1&m=Qwen/Qwen3-8B&method=full&gpus=8&gpu=h100-sxm-80gb&shard=fsdp2",
  "of GRPO": "#v=1&task=grpo&m=Qwen/Qwen2.5-7B-Instruct&method=lora&st=trl&gpu=a100-sxm-80gb",
  "to compare": "#v=1&view=compare&2.method=lora",
};
const HEAVY = "#v=1&m=meta-llama/Llama-3.1-405B&method=lora&gpu=b200&2.b=2&3.s=4096&4.s=8192";

const short = process.argv.includes("--short");

/** How often the page is opened: the middle one counts. */
const VISITS = short ? 3 : 5;

/** How many changes the tab's memory is held against. */
const CHANGES = short ? 1000 : 5000;

/** Keeps what WebAssembly is given to compute in, which nothing else tells. */
const KEEP_MEMORY = `
  self.memories = [];
  for (const name of ["instantiate", "instantiateStreaming"]) {
    const own = WebAssembly[name];
    WebAssembly[name] = async (...given) => {
      const made = await own.apply(WebAssembly, given);
      self.memories.push((made.instance ?? made).exports.memory);
      return made;
    };
  }
`;

/** Collects what the browser says of painting. */
function observe() {
  window.seen = { lcp: 0, cls: 0 };
  const watch = (type, each) =>
    new PerformanceObserver((list) => list.getEntries().forEach(each)).observe({ type, buffered: true });
  watch("largest-contentful-paint", ({ startTime }) => (window.seen.lcp = startTime));
  watch("layout-shift", ({ value }) => (window.seen.cls += value));
}

async function open(network, width = 1280) {
  const context = await browser.newContext({ viewport: { width, height: 900 }, serviceWorkers: "block" });
  const page = await context.newPage();
  await page.addInitScript(observe);
  await page.addInitScript(KEEP_MEMORY);
  if (network) {
    const session = await context.newCDPSession(page);
    await session.send("Network.enable");
    await session.send("Network.emulateNetworkConditions", network);
  }
  return page;
}

async function visit(page, url) {
  await page.goto(url);
  await page.waitForSelector("html[data-state=ready]", { timeout: 120_000 });
  await page.waitForTimeout(1000);
}

/** The work of each task of the page's main thread while something is done, in milliseconds, and of those with a mark. */
async function work(page, act) {
  await browser.startTracing(page, { categories: ["toplevel", "blink.user_timing"] });
  await act();
  await page.evaluate(() => performance.mark("over"));
  const { traceEvents } = JSON.parse((await browser.stopTracing()).toString());
  const { pid, tid } = traceEvents.find(({ name }) => name === "over");
  const own = traceEvents.filter((event) => event.pid === pid && event.tid === tid);
  const tasks = own.filter(({ name }) => name.endsWith("RunTask"));
  const took = ({ tdur = 0 }) => tdur / 1000;
  const around = ({ ts }) => tasks.find((task) => task.ts <= ts && ts <= task.ts + task.dur);
  const marked = own.filter(({ name }) => name === "step").map((mark) => took(around(mark) ?? {}));
  return { longest: Math.max(...tasks.map(took)), marked: marked.sort((a, b) => a - b) };
}

/** Steps a slider; the task of each step, until it is laid out, is marked. */
const steps = (page) =>
  page.evaluate(async () => {
    const slider = document.querySelector("input[type=range][aria-label='Micro-batch size']");
    for (let step = 0; step < 40; step += 1) {
      slider.value = String(step % 10);
      performance.mark("step");
      slider.dispatchEvent(new Event("input", { bubbles: true }));
      await new Promise((done) => queueMicrotask(done));
      document.body.getBoundingClientRect();
      await new Promise((done) => setTimeout(done, 100));
    }
  });

/** Moves a slider by one step, and how long it takes until each of what `select` finds has been busy and is no longer. */
const settles = (page, select) =>
  page.evaluate(async (select) => {
    const slider = document.querySelector("input[type=range][aria-label='Micro-batch size']");
    const began = performance.now();
    const ended = new Map();
    const name = (element) => element.querySelector("caption")?.textContent ?? element.className;
    const look = () => {
      const busy = [...document.querySelectorAll(select)];
      for (const element of busy) {
        if (element.getAttribute("aria-busy") === "true") ended.set(name(element), undefined);
        else if (ended.has(name(element))) ended.set(name(element), ended.get(name(element)) ?? performance.now() - began);
      }
      return ended.size > 0 && [...ended.values()].every(Boolean);
    };
    slider.value = String((Number(slider.value) + 1) % 3);
    slider.dispatchEvent(new Event("input", { bubbles: true }));
    for (let quiet = 0; quiet < 100 && performance.now() - began < 240_000; ) {
      await new Promise((done) => setTimeout(done, 5));
      quiet = look() ? quiet + 1 : 0;
    }
    return [...ended].map(([what, took]) => ({ what, took: took ?? Infinity }));
  }, select);

/** The middle of several such times, by what settled. */
async function settled(page, select, times) {
  const all = new Map();
  for (let count = 0; count < times; count += 1) {
    for (const { what, took } of await settles(page, select)) all.set(what, [...(all.get(what) ?? []), took]);
  }
  const middle = (took) => took.sort((a, b) => a - b)[Math.floor(took.length / 2)];
  return [...all].map(([what, took]) => ({ what, took: middle(took) })).sort((a, b) => a.took - b.took);
}

/** What the tab has after so many changes: JavaScript's heap, and what the page's and the worker's code compute in. */
async function memoryAfter(page, changes) {
  await page.evaluate(async (changes) => {
    const slider = document.querySelector("input[type=range][aria-label='Micro-batch size']");
    const channel = new MessageChannel();
    const turn = () => new Promise((done) => ((channel.port1.onmessage = done), channel.port2.postMessage(0)));
    for (let step = 0; step < changes; step += 1) {
      slider.value = String(step % 10);
      slider.dispatchEvent(new Event("input", { bubbles: true }));
      await turn();
      if (step % 100 === 0) await new Promise((done) => setTimeout(done, 300));
    }
  }, changes);
  await page.waitForTimeout(3000);
  const session = await page.context().newCDPSession(page);
  await session.send("HeapProfiler.collectGarbage");
  const { usedSize: js } = await session.send("Runtime.getHeapUsage");
  const { nodes } = await session.send("Memory.getDOMCounters");
  const held = () => self.memories.reduce((sum, { buffer }) => sum + buffer.byteLength, 0);
  const beside = await Promise.all(page.workers().map((worker) => worker.evaluate(held)));
  return { js, nodes, wasm: await page.evaluate(held), worker: beside.reduce((sum, bytes) => sum + bytes, 0) };
}

const print = (what, figure, budget) => console.log(`${what.padEnd(62)}${figure.padStart(10)}   ${budget}`);
const ms = (value) => `${Math.round(value)} ms`;
const mib = (bytes) => `${(bytes / 2 ** 20).toFixed(1)} MiB`;

const server = await serve(fileURLToPath(new URL("../dist", import.meta.url)), { compressed: true });
const args = process.getuid?.() === 0 ? ["--no-sandbox"] : [];
const browser = await chromium.launch({ executablePath: process.env.HEADROOM_CHROMIUM ?? "/usr/bin/chromium", args });
// The browser draws itself first.
const blank = await open(null);
await blank.waitForTimeout(3000);
await blank.context().close();
for (const [name, network, budget] of [["here", null, "150 ms"], ["at 1.6 Mbit/s, 150 ms away", SLOW, "700 ms"]]) {
  const visits = [];
  for (let count = 0; count < VISITS; count += 1) {
    const page = await open(network);
    const { longest } = await work(page, () => visit(page, server.url));
    const seen = await page.evaluate(() => ({
      ...window.seen,
      fcp: performance.getEntriesByName("first-contentful-paint")[0].startTime,
    }));
    visits.push({ ...seen, longest });
    await page.context().close();
  }
  const middle = (key) => visits.map((visit) => visit[key]).sort((a, b) => a - b)[Math.floor(VISITS / 2)];
  print(`first contentful paint ${name}`, ms(middle("fcp")), budget);
  print(`largest contentful paint ${name}`, ms(middle("lcp")), budget);
  print(`work of the longest task ${name}`, ms(middle("longest")), "50 ms");
  print(`layout shift ${name}`, middle("cls").toFixed(3), "0");
}
for (const [kind, link] of Object.entries(LINKS)) {
  for (const width of [1280, 390]) {
    const page = await open(null, width);
    await visit(page, server.url + link);
    await page.waitForTimeout(2000);
    print(`layout shift of a link ${kind}, ${width} wide`, (await page.evaluate(() => window.seen.cls)).toFixed(3), "0");
    await page.context().close();
  }
}
const page = await open(null);
await visit(page, server.url + HEAVY);
const { marked } = await work(page, () => steps(page));
print("work of a slider's step, four scenarios of 405B, 95th percentile", ms(marked[Math.floor(marked.length * 0.95)]), "16 ms");
await page.context().close();

// What is answered beside the page, from the change to its last figure.
const asking = await open(null);
await visit(asking, server.url);
for (const { took } of await settled(asking, "section.levers", VISITS)) print("from a change to all of what to change", ms(took), "300 ms");
await asking.getByRole("tab", { name: "Plan", exact: true }).click();
await asking.waitForTimeout(20_000);
for (const { what, took } of await settled(asking, ".plan table[aria-busy]", 1)) {
  print(`from a change to the table “${what}”`, ms(took), "300 ms");
}
await asking.context().close();

// The same few answers over and over: the tab may not grow.
const kept = await open(null);
await kept.route("**/worker.js", async (route) => {
  const response = await route.fetch();
  await route.fulfill({ response, body: KEEP_MEMORY + (await response.text()) });
});
await visit(kept, server.url);
const before = await memoryAfter(kept, 200);
const after = await memoryAfter(kept, CHANGES);
const grown = (name, of, written) => print(name, `${written(before[of])} → ${written(after[of])}`, "flat");
grown(`JavaScript’s heap over ${CHANGES.toLocaleString("en")} changes`, "js", mib);
grown("nodes of the page", "nodes", String);
grown("memory of the page’s code", "wasm", mib);
grown("memory of the workers’ code", "worker", mib);
await browser.close();
server.close();
