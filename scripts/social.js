// Makes the picture that stands for the page where somebody posts a link to it: the first answer of the built page, as it is
// shown within another page. Run after the release build.
//   node scripts/social.js
import { chromium } from "@playwright/test";
import { readFileSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { crc32 } from "node:zlib";
import { serve } from "../tests/e2e/support/server.js";

const at = (path) => fileURLToPath(new URL(path, import.meta.url));
// What it shows, which a test holds against the answer: it goes into the picture too.
const [, told] = readFileSync(at("../index.html"), "utf8").match(/property="og:image:alt"\s+content="([^"]+)"/);

const server = await serve(at("../dist"));
const args = process.getuid?.() === 0 ? ["--no-sandbox"] : [];
const browser = await chromium.launch({ executablePath: process.env.HEADROOM_CHROMIUM ?? "/usr/bin/chromium", args });
const page = await browser.newPage({ viewport: { width: 960, height: 504 }, deviceScaleFactor: 1.25, colorScheme: "light" });
await page.goto(`${server.url}#v=1&embed=1`);
await page.waitForSelector("html[data-state=ready]");
await page.waitForSelector(".verdict[aria-busy=false]");
// the answer and its chart, large
await page.evaluate(() => {
  for (const element of document.querySelectorAll(".oom, .embed-head a")) element.hidden = true;
});
const picture = await page.screenshot({ type: "png" });
await browser.close();
server.close();

/** A part of a PNG file. */
function chunk(type, content) {
  const body = Buffer.concat([Buffer.from(type, "latin1"), content]);
  const [length, sum] = [Buffer.alloc(4), Buffer.alloc(4)];
  length.writeUInt32BE(content.length);
  sum.writeUInt32BE(crc32(body));
  return Buffer.concat([length, body, sum]);
}

// behind the signature and the header, which are 8 and 25 bytes long
const note = chunk("iTXt", Buffer.from(`Description\0\0\0\0\0${told}`));
writeFileSync(at("../public/social.png"), Buffer.concat([picture.subarray(0, 33), note, picture.subarray(33)]));
