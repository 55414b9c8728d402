// Which functions the page runs until its first answer is complete: a count at the head of every function, in a real
// browser. What waits for the whole code by itself (`browser::when_whole`) is not asked for.

import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

import { chromium } from "@playwright/test";

import config from "../../tests/e2e/playwright.config.js";
import { serve } from "../../tests/e2e/support/server.js";
import { Form, write } from "./wat.js";

/** The page as it is while only the front of its code is there; `runtime.js` says when that changes. */
export const inFront = (html) => html.replace("<html ", "<html data-part=front ");

/** The names of the functions that ran. */
export async function profile(dist, { js, wasm }, forms) {
  const names = [];
  const counted = forms.map((form) => {
    if (form.kind !== "func") return form;
    const lines = form.text.split("\n");
    let at = 1;
    while (lines[at]?.startsWith("  (local ")) at++;
    lines.splice(at, 0, `  (call $ran (i32.const ${names.push(form.name) - 1}))`);
    return new Form(lines.join("\n"));
  });
  const ran = new Form(` (import "./app_bg.js" "__headroom_ran" (func $ran (param i32)))`);

  const folder = mkdtempSync(join(tmpdir(), "headroom-profile-"));
  try {
    cpSync(dist, folder, { recursive: true });
    write(join(folder, wasm), [ran, ...counted]);
    const glue = readFileSync(join(folder, js), "utf8");
    const told = glue.replace(`"./app_bg.js": import0`, `"./app_bg.js": Object.assign(import0, { __headroom_ran: (i) => (globalThis.ran ??= new Set()).add(i) })`);
    if (told === glue) throw new Error("the glue of wasm-bindgen has another shape than expected");
    writeFileSync(join(folder, js), told);
    const page = join(folder, "index.html");
    writeFileSync(page, inFront(readFileSync(page, "utf8")));
    const indices = await use(folder);
    return new Set(indices.map((i) => names[i]));
  } finally {
    rmSync(folder, { recursive: true });
  }
}

/** Opens the page and waits for all that comes by itself. */
async function use(folder) {
  const server = await serve(folder);
  const browser = await chromium.launch(config.use.launchOptions);
  try {
    const page = await browser.newPage({ viewport: config.use.viewport });
    const problems = [];
    page.on("pageerror", (error) => problems.push(error.message));
    await page.goto(server.url);
    await page.locator("html[data-state=ready]").waitFor();
    await page.waitForTimeout(2000);
    if (problems.length) throw new Error(`the page failed: ${problems.join("; ")}`);
    return await page.evaluate(() => [...globalThis.ran]);
  } finally {
    await browser.close();
    server.close();
  }
}
