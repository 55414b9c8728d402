// The text form of a WebAssembly module, as `wasm-dis` prints it, as a list of its top-level forms.
// Only what splitting needs is understood: every form begins a line with one space and a bracket.

import { execFileSync } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";

const NAME = String.raw`\$(?:"(?:[^"\\]|\\.)*"|[^\s()]+)`;
const CALL = new RegExp(String.raw`\((?:return_call|call|ref\.func) (${NAME})`, "g");
const GLOBAL = new RegExp(String.raw`\(global\.[gs]et (${NAME})`, "g");

// What Rust's compiler emits for wasm32; anything else that wasm-opt may do needs newer browsers.
const FEATURES = [
  "bulk-memory",
  "bulk-memory-opt",
  "call-indirect-overlong",
  "multivalue",
  "mutable-globals",
  "nontrapping-float-to-int",
  "reference-types",
  "sign-ext",
].map((name) => `--enable-${name}`);

/** A top-level form: `kind` is func, data, import, …; `name` its identifier with the dollar sign, where it has one. */
export class Form {
  constructor(text) {
    this.text = text;
    [, this.kind] = /^ \((\w+)/.exec(text);
    this.head = text.split("\n", 1)[0];
    this.name = new RegExp(NAME).exec(this.head)?.[0];
  }

  /** The functions that it calls or names. */
  calls() {
    return [...this.text.matchAll(CALL)].map(([, name]) => name);
  }

  /** The globals that it reads or writes. */
  globals() {
    return [...this.text.matchAll(GLOBAL)].map(([, name]) => name);
  }

  /** What a function takes, as a list of types. */
  get params() {
    return [...this.head.matchAll(/\(param (?:\$\S+ )?([^)]*)\)/g)].flatMap(([, types]) => types.split(" "));
  }

  /** What a function returns, as a list of types. */
  get results() {
    return [...this.head.matchAll(/\(result ([^)]*)\)/g)].flatMap(([, types]) => types.split(" "));
  }
}

/** The forms of a WebAssembly file. */
export function read(path) {
  const text = `${path}.wat`;
  execFileSync("wasm-dis", [...FEATURES, path, "-o", text]);
  const wat = readFileSync(text, "utf8");
  const starts = [...wat.matchAll(/^ \(\w+/gm)].map(({ index }) => index);
  const end = wat.lastIndexOf("\n)");
  return starts.map((start, i) => new Form(wat.slice(start, starts[i + 1] ?? end).trimEnd()));
}

/** Writes the forms as a WebAssembly file, optimised if wanted. */
export function write(path, forms, { optimise = false } = {}) {
  const text = `${path}.wat`;
  writeFileSync(text, `(module\n${forms.map((form) => form.text).join("\n")}\n)\n`);
  execFileSync("wasm-as", [...FEATURES, ...(optimise ? [] : ["-g"]), text, "-o", path]);
  if (optimise) execFileSync("wasm-opt", [...FEATURES, "-Oz", path, "-o", path]);
}
