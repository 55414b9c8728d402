// The page's weight, compressed as a good host sends it, against the budget. Run after the release build.
//   node scripts/size.js [DIST]
import { readFileSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { brotliCompressSync, constants, gzipSync } from "node:zlib";

const BUDGET_BYTES = 200_000; // brotli, everything that the first answer waits for
const SENT = /\.(html|css|js|wasm|json|woff2?)$/;
// What `scripts/pack` put apart: it follows after the first paint.
const LATER = /_rest\.wasm$/;

const dist = process.argv[2] ?? "dist";
const rows = readdirSync(dist, { recursive: true })
  .filter((name) => SENT.test(name))
  .map((name) => {
    const content = readFileSync(join(dist, name));
    const params = {
      [constants.BROTLI_PARAM_QUALITY]: 11,
      [constants.BROTLI_PARAM_LGWIN]: 24,
      [constants.BROTLI_PARAM_SIZE_HINT]: content.length,
    };
    return { name, raw: content.length, gzip: gzipSync(content, { level: 9 }).length, brotli: brotliCompressSync(content, { params }).length };
  })
  .sort((a, b) => b.brotli - a.brotli);

if (!rows.some(({ name }) => name.endsWith(".wasm"))) {
  console.error(`no page in ${dist}/: build it first with scripts/build`);
  process.exit(1);
}

const sum = (name, rows) => {
  const of = (key) => rows.reduce((total, row) => total + row[key], 0);
  return { name, raw: of("raw"), gzip: of("gzip"), brotli: of("brotli") };
};
const later = rows.filter(({ name }) => LATER.test(name));
const total = sum("what the first answer waits for", rows.filter((row) => !later.includes(row)));
const bytes = (n) => n.toLocaleString("en").padStart(11);
console.log("      bytes       gzip     brotli");
for (const row of [...rows, total, sum("what follows", later)]) console.log(`${bytes(row.raw)}${bytes(row.gzip)}${bytes(row.brotli)}  ${row.name}`);

const share = Math.round((100 * total.brotli) / BUDGET_BYTES);
const fits = total.brotli <= BUDGET_BYTES;
console.log(`${fits ? "within" : "OVER"} the budget of ${BUDGET_BYTES.toLocaleString("en")} bytes: ${share} %`);
process.exit(fits ? 0 : 1);
