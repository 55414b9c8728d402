// Answers questions on standard input by llmvram's own engines, bundled by esbuild, which stands with decimal.js where Node.js looks
// for packages from the working folder (`npm install esbuild decimal.js`).
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";

const require = createRequire(join(process.cwd(), "package.json"));
const engines = join(process.argv[2], "src/engines");
const { outputFiles } = require("esbuild").buildSync({
  stdin: { contents: 'export * from "./training"; export * from "./lora";', resolveDir: engines },
  bundle: true,
  format: "cjs",
  write: false,
  nodePaths: [join(process.cwd(), "node_modules")],
});
const module = { exports: {} };
new Function("module", "exports", "require", outputFiles[0].text)(module, module.exports, require);
const { calculateFullFineTuningVRAM, calculateLoRAFineTuningVRAM, calculateQLoRAFineTuningVRAM } = module.exports;

const answer = ({ method, ...run }) => {
  const by = { full: calculateFullFineTuningVRAM, lora: calculateLoRAFineTuningVRAM, qlora: calculateQLoRAFineTuningVRAM };
  const { total, frameworkOverhead } = by[method](run);
  return { total: Number(total), frameworkOverhead: Number(frameworkOverhead) };
};
const questions = JSON.parse(readFileSync(0, "utf8"));
process.stdout.write(JSON.stringify(questions.map(answer)));
