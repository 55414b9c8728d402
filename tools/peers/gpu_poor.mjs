// Answers questions on standard input by gpu_poor's own functions: the part of its App.js before the page, without the imports.
import { readFileSync } from "node:fs";

const source = readFileSync(process.argv[2], "utf8");
const functions = source.slice(0, source.indexOf("function App()")).replace(/^import .*$/gm, "");
const window = { location: { hostname: "localhost" } };
const silent = { log() {} };
const compute = new Function("window", "console", `${functions}\nreturn getAllComputedData;`)(window, silent);

const answer = ({ config, length, batch, method, checkpoint }) => {
  const selections = {
    dropdownTrnOrNot: "trn",
    dropdownFullOrNot: method,
    dropdownOpt: "adam_opt",
    dropdownQuant: "no_quant",
  };
  const fail = (message) => {
    throw new Error(message);
  };
  return compute(config, null, "", length, "", selections, fail, () => {}, batch, checkpoint ? "yes" : "no");
};
const questions = JSON.parse(readFileSync(0, "utf8"));
process.stdout.write(JSON.stringify(questions.map(answer)));
