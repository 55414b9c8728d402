// What scripts/styles.js makes of a built page. `scripts/check browser` runs it.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";

/** The files of a page after the script ran over it, as often as told. */
function joined(files, times = 1) {
  const dist = mkdtempSync(join(tmpdir(), "headroom-"));
  try {
    for (const [name, text] of Object.entries(files)) writeFileSync(join(dist, name), text);
    for (let count = 0; count < times; count += 1) {
      execFileSync(process.execPath, ["scripts/styles.js", dist], { stdio: "pipe" });
    }
    return Object.fromEntries(readdirSync(dist).map((name) => [name, readFileSync(join(dist, name), "utf8")]));
  } finally {
    rmSync(dist, { recursive: true });
  }
}

const FILES = {
  "b-0123456789abcdef.css": "p { color: red }",
  "a-123456789abcdef.css": "p { color: green }",
  "document.css": "p { color: blue }",
  "index.html":
    "<meta charset=utf-8><link href=./b-0123456789abcdef.css rel=stylesheet><link href=./a-123456789abcdef.css rel=stylesheet>" +
    "<script src=boot.js></script>",
};

test("one style sheet is left, whose rules stand in the page's order", () => {
  const { "index.html": page, "document.css": kept, ...rest } = joined(FILES);
  assert.equal(kept, FILES["document.css"]);
  const [[name, text], ...others] = Object.entries(rest);
  assert.deepEqual(others, []);
  assert.match(name, /^style-[0-9a-f]{16}\.css$/);
  assert.equal(text, "p { color: red }\np { color: green }");
  assert.equal(page, `<meta charset=utf-8><link href=./${name} rel=stylesheet><script src=boot.js></script>`);
});

test("what a document uses stays", () => {
  const files = joined({ ...FILES, "document.html": '<link rel="stylesheet" href="../a-123456789abcdef.css">' });
  assert.equal(files["a-123456789abcdef.css"], FILES["a-123456789abcdef.css"]);
  assert.equal(files["b-0123456789abcdef.css"], undefined);
});

test("a page that was joined already stays as it is", () => {
  assert.deepEqual(joined(FILES, 2), joined(FILES));
});

test("a page without a style sheet is refused", () => {
  assert.throws(() => joined({ "index.html": "<p>" }), /has no style sheet/);
});
