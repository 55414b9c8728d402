// What scripts/offline.js writes of a built page, and what it refuses. `scripts/check browser` runs it.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";

const HASH = "0123456789abcdef";
const FILES = {
  [`base-${HASH}.css`]: "body { margin: 0 }",
  [`app-${HASH}.js`]: "export default () => {};",
  [`app-${HASH}_bg.wasm`]: "not really wasm",
  "sw.js": readFileSync("public/sw.js", "utf8"),
};
const PAGE =
  `<link href=./base-${HASH}.css rel=stylesheet><link href=./app-${HASH}.js rel=modulepreload>` +
  `<script data-js=./app-${HASH}.js data-wasm=./app-${HASH}_bg.wasm src=./load.js type=module></script>`;

const sha256 = (text) => `sha256-${createHash("sha256").update(text).digest("base64")}`;

/** The files of a page after the script ran over it. */
function sealed(page, files = FILES) {
  const dist = mkdtempSync(join(tmpdir(), "headroom-"));
  try {
    for (const [name, text] of Object.entries({ ...files, "index.html": page })) writeFileSync(join(dist, name), text);
    execFileSync(process.execPath, ["scripts/offline.js", dist], { stdio: "pipe" });
    return { page: readFileSync(join(dist, "index.html"), "utf8"), worker: readFileSync(join(dist, "sw.js"), "utf8") };
  } finally {
    rmSync(dist, { recursive: true });
  }
}

test("a hash that begins with zeros is shorter", () => {
  const short = (name) => name.replaceAll(HASH, HASH.slice(1));
  const { page } = sealed(short(PAGE), Object.fromEntries(Object.entries(FILES).map(([name, text]) => [short(name), text])));
  assert.equal(page.match(/ (data-)?integrity=sha256-/g).length, 3);
});

test("what names its content is sealed with that content", () => {
  const { page, worker } = sealed(PAGE);
  for (const name of [`base-${HASH}.css`, `app-${HASH}.js`]) {
    assert.match(page, new RegExp(`<link href=\\./${name.replaceAll(".", "\\.")} rel=\\S+ integrity=`));
    assert.ok(page.includes(`integrity=${sha256(FILES[name])}`), name);
  }
  const wasm = `app-${HASH}_bg.wasm`;
  assert.ok(page.includes(`data-wasm=./${wasm} data-integrity=${sha256(FILES[wasm])} `), page);
  // the page itself keeps its name: the worker checks it
  assert.ok(worker.includes(sha256(page)));
});

for (const [what, pattern, other] of [
  ["style sheet", / rel=stylesheet/, ' rel="stylesheet"'],
  ["module", / rel=modulepreload/, " rel=preload"],
  ["wasm", / data-wasm=\S+/, ""],
]) {
  test(`a page without a ${what} that can be sealed is refused`, () => {
    assert.throws(() => sealed(PAGE.replace(pattern, other)), /no style sheet or no module|name the app's wasm/);
  });
}
