// The page's weight, compressed as a good host sends it, against the budgets. Run after the release build.
//   node scripts/size.js [DIST]
import { readFileSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { brotliCompressSync, constants, gzipSync } from "node:zlib";

// In bytes of brotli. What is painted first, and what answers afterwards: of that 550,000 is wanted, and this only holds it
// where it is. docs/size.md says what it is made of and what made it grow.
const BUDGETS = [
  { name: "HTML and CSS", sent: /\.(html|css)$/, budget: 30_000 },
  { name: "all code", sent: /\.(js|wasm)$/, budget: 1_675_000 },
];

const dist = process.argv[2] ?? "dist";
// The documents are pages of their own, which this one does not load.
const files = readdirSync(dist, { recursive: true }).filter((name) => !/^docs\/|^document\.css$/.test(name));

function weigh(name) {
  const content = readFileSync(join(dist, name));
  const params = {
    [constants.BROTLI_PARAM_QUALITY]: 11,
    [constants.BROTLI_PARAM_LGWIN]: 24,
    [constants.BROTLI_PARAM_SIZE_HINT]: content.length,
  };
  return { name, raw: content.length, gzip: gzipSync(content, { level: 9 }).length, brotli: brotliCompressSync(content, { params }).length };
}

const bytes = (n) => n.toLocaleString("en").padStart(11);
const print = ({ raw, gzip, brotli, name }) => console.log(`${bytes(raw)}${bytes(gzip)}${bytes(brotli)}  ${name}`);
const sum = (rows, name) => {
  const of = (key) => rows.reduce((total, row) => total + row[key], 0);
  return { name, raw: of("raw"), gzip: of("gzip"), brotli: of("brotli") };
};

if (!files.some((name) => name.endsWith(".wasm"))) {
  console.error(`no page in ${dist}/: build it first with scripts/build`);
  process.exit(1);
}
console.log("      bytes       gzip     brotli");
for (const { name, sent, budget } of BUDGETS) {
  const rows = files.filter((file) => sent.test(file)).map(weigh).sort((a, b) => b.brotli - a.brotli);
  const total = sum(rows, name);
  const fits = total.brotli <= budget;
  for (const row of rows) print(row);
  print({ ...total, name: `${name}: ${fits ? "within" : "OVER"} the budget of ${budget.toLocaleString("en")} bytes` });
  if (!fits) process.exitCode = 1;
}
