// Tells the service worker of a built page what belongs to its version, and the page what its files contain. The last step of the
// build.
//   node scripts/offline.js [DIST]
import { createHash } from "node:crypto";
import { readFileSync, readdirSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";

const dist = process.argv[2] ?? "dist";
// tables of data beside the documents are looked at by few
const isKept = (name) =>
  statSync(join(dist, name)).isFile() && !["sw.js", "robots.txt", "social.png"].includes(name) && !name.startsWith("docs/data/");
const files = readdirSync(dist, { recursive: true }).filter(isKept).sort();
// The page is asked for by its folder; some hosts redirect its file name there.
const addresses = files.map((name) => (name === "index.html" ? "./" : name));

const integrity = (name) => `sha256-${createHash("sha256").update(readFileSync(join(dist, name))).digest("base64")}`;

// What the page itself asks for by a name that says its content is checked against that content. Other names stay from version
// to version: a host's cache that holds an older one would break the page. The preloaded wasm would be fetched twice.
// load.js holds it against what it is told here. Trunk writes a hash without its leading zeros.
const page = join(dist, "index.html");
const unsealed = readFileSync(page, "utf8");
const links = /<link href=\.\/(\S+-[0-9a-f]{8,16}\.(css|js)) rel=(?:stylesheet|modulepreload)(?=>)/g;
const found = [...unsealed.matchAll(links)].map(([, , kind]) => kind);
if (!found.includes("css") || !found.includes("js")) throw new Error(`${page} has no style sheet or no module to seal`);
const app = /(?<= data-wasm=\.\/(\S+-[0-9a-f]{8,16}_bg\.wasm))(?=[ >])/g;
if ([...unsealed.matchAll(app)].length !== 1) throw new Error(`${page} does not name the app's wasm once`);
const sealed = unsealed
  .replaceAll(links, (link, name) => `${link} integrity=${integrity(name)}`)
  .replace(app, (_, name) => ` data-integrity=${integrity(name)}`);
writeFileSync(page, sealed);

const hash = createHash("sha256");
for (const name of files) hash.update(name).update(readFileSync(join(dist, name)));
const version = hash.digest("hex").slice(0, 12);

const path = join(dist, "sw.js");
const source = readFileSync(path, "utf8");
// A name that says its content cannot be of another version.
const saysContent = /-[0-9a-f]{8,16}(_bg)?\./;
const listed = files.map((name, index) =>
  saysContent.test(name) ? [addresses[index]] : [addresses[index], integrity(name)],
);
const written = source
  .replace('const VERSION = "";', `const VERSION = ${JSON.stringify(version)};`)
  .replace("const FILES = [];", `const FILES = ${JSON.stringify(listed)};`);
if (!written.includes(version) || !written.includes('"./"')) throw new Error(`${path} has no place for its files`);
writeFileSync(path, written);
console.log(`version ${version}: ${files.length} files`);
