// Packs the built page for its visitors, in place:
// - splits its code into two WebAssembly files: the front, which the first answer runs and waits for, and the rest,
//   which follows after the first paint (ARCHITECTURE.md, "The page in two files");
// - shortens the glue of wasm-bindgen, and joins the style sheets.
//   node scripts/pack [DIST]

import { createHash } from "node:crypto";
import { mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

import { minify_sync as minify } from "terser";

import { split } from "./forms.js";
import { inFront, profile } from "./profile.js";
import { read, write } from "./wat.js";

const dist = process.argv[2] ?? "dist";
const here = dirname(fileURLToPath(import.meta.url));
const wasm = readdirSync(dist).find((name) => name.endsWith("_bg.wasm"));
if (!wasm) throw new Error(`no page in ${dist}/`);
const js = wasm.replace("_bg.wasm", ".js");

const work = mkdtempSync(join(tmpdir(), "headroom-split-"));
try {
  const whole = join(work, "whole.wasm");
  writeFileSync(whole, readFileSync(join(dist, wasm)));
  const forms = read(whole);
  const ran = await profile(dist, { js, wasm }, forms);
  const shorter = shorten(forms);
  // Functions without a name are those that wasm-bindgen adds for itself.
  const { front, rest, counts } = split(forms, (name) => ran.has(name) || /^\$\d+$/.test(name));
  const files = { front: join(work, "front.wasm"), rest: join(work, "rest.wasm") };
  write(files.front, front, { optimise: true });
  write(files.rest, rest, { optimise: true });
  place(files, shorter);
  joinStyles();
  console.log(`${counts.first} functions in front, ${counts.later} in the rest; ${counts.stubs} stubs, ${counts.handed} handed over`);
} finally {
  rmSync(work, { recursive: true });
}

/** Gives what glue and module call each other by, names with a hash, short ones; returns both. */
function shorten(forms) {
  const names = new Map();
  for (const form of forms) {
    if (form.kind !== "import" && form.kind !== "export") continue;
    form.text = form.text.replace(/"(\w+_h?[0-9a-f]{16}\w*)"/, (_, long) => {
      names.set(long, `_${names.size.toString(36)}`);
      return `"${names.get(long)}"`;
    });
    form.head = form.text.split("\n", 1)[0];
  }
  // No name may be the beginning of another that is replaced after it.
  return [...names].sort(([a], [b]) => b.length - a.length);
}

/** One style sheet instead of several: one request, and shorter compressed. */
function joinStyles() {
  const page = join(dist, "index.html");
  const html = readFileSync(page, "utf8");
  const links = [...html.matchAll(/<link href=\.\/([\w-]+\.css) rel=stylesheet>/g)];
  if (links.length < 2) return;
  const style = links.map(([, name]) => readFileSync(join(dist, name), "utf8")).join("");
  const name = `style-${digest(style)}.css`;
  writeFileSync(join(dist, name), style);
  for (const [, old] of links) rmSync(join(dist, old));
  const [first, ...others] = links.map(([link]) => link);
  const joined = html.replace(first, `<link href=./${name} rel=stylesheet>`);
  writeFileSync(page, others.reduce((text, link) => text.replace(link, ""), joined));
}

function digest(...parts) {
  const hash = createHash("sha256");
  for (const part of parts) hash.update(part);
  return hash.digest("hex").slice(0, 16);
}

/** The glue without the words that nobody but its authors reads. */
function minified(glue) {
  const { code } = minify(glue, { module: true });
  return code;
}

/** Puts the two files in the place of the one, under the hash of what they hold, and tells the glue of them. */
function place(files, shorter) {
  const [front, rest] = [readFileSync(files.front), readFileSync(files.rest)];
  const runtime = readFileSync(join(here, "runtime.js"), "utf8");
  let glue = readFileSync(join(dist, js), "utf8");
  const hash = digest(front, rest, runtime, glue);
  const names = { js: `app-${hash}.js`, front: `app-${hash}_bg.wasm`, rest: `app-${hash}_rest.wasm` };
  const change = (from, to) => {
    if (glue.split(from).length !== 2) throw new Error(`the glue of wasm-bindgen has another shape than expected: ${from}`);
    glue = glue.replace(from, () => to);
  };
  for (const [long, short] of shorter) glue = glue.replaceAll(long, short);
  change(`"./app_bg.js": import0`, `"./app_bg.js": Object.assign(import0, { __headroom_need_rest: headroomRest.need })`);
  change(
    `await __wbg_load(await module_or_path, imports);`,
    `await __wbg_load(await module_or_path, imports);\n    await headroomRest.begin(instance.exports, imports);`,
  );
  glue += runtime.replace("REST", JSON.stringify(`./${names.rest}`));
  const html = readFileSync(join(dist, "index.html"), "utf8");
  writeFileSync(join(dist, "index.html"), inFront(html).replaceAll(js, names.js).replaceAll(wasm, names.front));
  for (const old of [js, wasm]) rmSync(join(dist, old));
  writeFileSync(join(dist, names.js), minified(glue));
  writeFileSync(join(dist, names.front), front);
  writeFileSync(join(dist, names.rest), rest);
}
