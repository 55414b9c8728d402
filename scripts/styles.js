// Joins the style sheets of a built page to one, in their order: the first paint waits for each of them. What a document beside the
// page uses too stays.
//   node scripts/styles.js [DIST]
import { createHash } from "node:crypto";
import { readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";

const dist = process.argv[2] ?? "dist";
const page = join(dist, "index.html");
const html = readFileSync(page, "utf8");
const links = [...html.matchAll(/<link href=\.\/(\S+-[0-9a-f]{8,16}\.css) rel=stylesheet>/g)];
if (links.length === 0) throw new Error(`${page} has no style sheet`);

const files = links.map(([, name]) => join(dist, name));
const joined = files.map((file) => readFileSync(file, "utf8")).join("\n");
const name = `style-${createHash("sha256").update(joined).digest("hex").slice(0, 16)}.css`;
const documents = readdirSync(dist, { recursive: true }).filter((file) => file.endsWith(".html") && file !== "index.html");
const used = documents.map((file) => readFileSync(join(dist, file), "utf8")).join();
for (const [, file] of links) if (!used.includes(file)) rmSync(join(dist, file));
writeFileSync(join(dist, name), joined);

const [first, ...others] = links.map(([link]) => link);
const without = others.reduce((text, link) => text.replace(link, ""), html);
writeFileSync(page, without.replace(first, `<link href=./${name} rel=stylesheet>`));
console.log(`${files.length} style sheets joined to ${name}`);
