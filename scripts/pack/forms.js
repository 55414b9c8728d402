// One module becomes two. The front holds the functions that the first answer runs; the rest imports from it all that
// it calls or touches. Where the front calls a function of the rest, it goes through a slot of the table:
//
//   (func $of_the_rest (param $0 i32) …      ; in the front: a stub
//     (call $arrive)                         ; makes sure that the rest is there
//     (call_indirect … (local.get $0) (i32.const SLOT)))
//
// The slots of the rest are empty until it is instantiated. An indirect call of the front, which may meet one, looks first:
//
//   (func $through_7 (param …) (param $slot i32) …
//     (if (ref.is_null (table.get $0 (local.get $slot))) (then (call $need_rest)))
//     (call_indirect $0 (type $7) … (local.get $slot)))
//
// The rest brings the constants that only its own functions reach.

import { Form } from "./wat.js";

/** Splits: `front` and `rest` are the forms of two modules; `isFirst` tells of a function's name where it belongs. */
export function split(forms, isFirst) {
  const of = (kind) => forms.filter((form) => form.kind === kind);
  understood(forms);
  const functions = of("func");
  const first = functions.filter(({ name }) => isFirst(name));
  const later = functions.filter(({ name }) => !isFirst(name));
  const laterNames = new Set(later.map(({ name }) => name));
  const data = part(of("data"), first, later);

  // Which functions of the rest the front must be able to reach, and through which slot.
  const [table] = of("table").filter(({ head }) => head.includes("funcref"));
  const [elements] = of("elem").filter(({ head }) => head.includes("func"));
  const slots = new Slots(table, elements);
  const called = [...first.flatMap((form) => form.calls()), ...of("export").map(({ name }) => name)];
  const stubbed = new Set(called.filter((name) => laterNames.has(name)));
  const stubs = later.filter(({ name }) => stubbed.has(name)).map((form) => stub(form, slots.of(form.name), table.name));

  const { looking, helpers } = lookFirst(first, of("type"), table.name);

  // What the rest needs of the front: functions, globals, the memory and the table.
  const imports = of("import");
  const imported = new Map(imports.map((form) => [form.name, form]));
  const needed = new Set(later.flatMap((form) => form.calls()).filter((name) => !laterNames.has(name)));
  const handed = [];
  const taken = [];
  const hand = (kind, name, type) => {
    const key = `$${handed.length.toString(36)}`;
    handed.push(new Form(` (export "${key}" (${kind} ${name}))`));
    taken.push(new Form(` (import "front" "${key}" (${kind} ${name} ${type}))`));
  };
  for (const form of first) if (needed.has(form.name)) hand("func", form.name, signature(form));
  const globals = new Set(later.flatMap((form) => form.globals()));
  for (const { name, head } of of("global")) if (globals.has(name)) hand("global", name, /\(mut \w+\)|\w+ref|[if]\d\d/.exec(head.slice(head.indexOf(name) + name.length))[0]);
  for (const { name, head } of of("table")) hand("table", name, name === table.name ? slots.type : head.slice(head.indexOf(name) + name.length + 1, -1));
  for (const { name, head } of of("memory")) hand("memory", name, head.slice(head.indexOf(name) + name.length + 1, -1));
  const own = [...needed].flatMap((name) => imported.get(name) ?? []);

  const front = [
    ...of("type"),
    new Form(` (import "./app_bg.js" "__headroom_need_rest" (func $need_rest))`),
    ...imports,
    ...of("global"),
    new Form(` (global $is_rest_here (mut i32) (i32.const 0))`),
    ...of("memory"),
    ...data.front,
    ...of("table").map((form) => (form === table ? new Form(` (table ${table.name} ${slots.type})`) : form)),
    ...slots.filled((name) => !laterNames.has(name)),
    ...of("export"),
    new Form(` (export "is_rest_here" (global $is_rest_here))`),
    ...handed,
    ...of("start"),
    ...looking,
    ...stubs,
    ...helpers,
    new Form(` (func $arrive\n  (if (i32.eqz (global.get $is_rest_here)) (then (call $need_rest))))`),
  ];
  const rest = [...of("type"), ...own, ...taken, ...data.rest, ...slots.filled((name) => laterNames.has(name)), ...later];
  return { front, rest, counts: { first: first.length, later: later.length, stubs: stubs.length, handed: handed.length } };
}

const KINDS = ["data", "elem", "export", "func", "global", "import", "memory", "start", "table", "type"];

/** Refuses a module with a form that is not split here: what it is for would be lost in silence. */
function understood(forms) {
  const strange = forms.find(({ kind }) => !KINDS.includes(kind));
  if (strange) throw new Error(`a form that the split does not know: ${strange.head.slice(0, 80)}`);
  for (const [kind, words] of [["elem", "func"], ["table", "funcref"]]) {
    const count = forms.filter((form) => form.kind === kind && form.head.includes(words)).length;
    if (count !== 1) throw new Error(`the split expects one ${kind} of functions, not ${count}`);
  }
}

const signature = ({ params, results }) =>
  [params.length ? `(param ${params.join(" ")})` : "", results.length ? `(result ${results.join(" ")})` : ""].join(" ");

/** A function of the front that stands for one of the rest. */
function stub(form, slot, table) {
  const passed = form.params.map((_, i) => `(local.get $p${i})`).join(" ");
  const named = form.params.map((type, i) => `(param $p${i} ${type})`).join(" ");
  const results = form.results.length ? `(result ${form.results.join(" ")})` : "";
  return new Form(
    ` (func ${form.name} ${named} ${results}\n  (call $arrive)\n  (call_indirect ${table} ${signature(form)} ${passed} (i32.const ${slot})))`,
  );
}

/** Functions whose indirect calls go through a helper for each type, which makes sure that the slot is filled. */
function lookFirst(functions, types, table) {
  const used = new Set();
  const call = new RegExp(String.raw`\(call_indirect (?:${table.replace("$", String.raw`\$`)} )?\(type (\$[^)\s]+)\)`, "g");
  const looking = functions.map(
    (form) =>
      new Form(
        form.text.replace(call, (_, type) => {
          used.add(type);
          return `(call $through_${type.slice(1)}`;
        }),
      ),
  );
  const unguarded = looking.find(({ text }) => /\((?:return_)?call_indirect/.test(text));
  if (unguarded) throw new Error(`an indirect call of another shape than expected in ${unguarded.name}`);
  const helpers = types.filter(({ name }) => used.has(name)).map((type) => {
    const [params, results] = [type.params, type.results];
    const named = params.map((each, i) => `(param $p${i} ${each})`).join(" ");
    const passed = params.map((_, i) => `(local.get $p${i})`).join(" ");
    const result = results.length ? `(result ${results.join(" ")})` : "";
    return new Form(
      ` (func $through_${type.name.slice(1)} ${named} (param $slot i32) ${result}\n` +
        `  (if (ref.is_null (table.get ${table} (local.get $slot))) (then (call $need_rest)))\n` +
        `  (call_indirect ${table} (type ${type.name}) ${passed} (local.get $slot)))`,
    );
  });
  return { looking, helpers };
}

/** The slots of the table: those that functions have anyway, and new ones behind them. */
class Slots {
  constructor(table, elements) {
    const [, size] = /(\d+) \d+ funcref/.exec(table.head);
    const [, offset, list] = /\(i32\.const (\d+)\) func (.*)\)$/s.exec(elements.text);
    this.table = table.name;
    this.size = Number(size);
    this.offset = Number(offset);
    this.names = list.match(/\$(?:"(?:[^"\\]|\\.)*"|[^\s()]+)/g);
    this.slot = new Map(this.names.map((name, i) => [name, this.offset + i]));
  }

  /** The slot of a function; a new one if it has none. */
  of(name) {
    if (!this.slot.has(name)) this.slot.set(name, this.size++);
    return this.slot.get(name);
  }

  /** The type of the table, once every function has its slot. */
  get type() {
    return `${this.size} ${this.size} funcref`;
  }

  /** The element segments that put these functions in their slots. */
  filled(wanted) {
    const all = new Map([...this.slot].map(([name, slot]) => [slot, name]));
    this.names.forEach((name, i) => all.set(this.offset + i, name));
    const runs = [];
    for (const [slot, name] of [...all].sort(([a], [b]) => a - b)) {
      if (!wanted(name)) continue;
      const last = runs.at(-1);
      if (last && last.start + last.names.length === slot) last.names.push(name);
      else runs.push({ start: slot, names: [name] });
    }
    return runs.map(({ start, names }, i) => new Form(` (elem $e${i} (table ${this.table}) (i32.const ${start}) func ${names.join(" ")})`));
  }
}

/** Parts the data: what only functions of the rest can reach goes with them; all other constants stay in front. */
function part(data, first, later) {
  const segments = data.map(segment);
  const inFront = reached(segments, first);
  const inRest = reached(segments, later);
  const goes = (each) => each.isConstant && inRest.has(each) && !inFront.has(each);
  return { front: joined(segments, (each) => !goes(each)), rest: joined(segments, goes) };
}

/** The segments that functions can reach, directly and through pointers in others; variables are reached by all. */
function reached(segments, functions) {
  const found = new Set(segments.filter((each) => !each.isConstant));
  const open = [...found];
  const reach = (each) => {
    if (!found.has(each)) open.push(each);
    found.add(each);
  };
  for (const form of functions) for (const address of addresses(form)) meant(segments, address).forEach(reach);
  while (open.length) for (const address of pointers(open.pop())) around(segments, address).forEach(reach);
  return found;
}

/** A segment of the data, in the order of addresses; the linker keeps one for each constant of the program. */
function segment(form) {
  const [, start, text] = /\(i32\.const (\d+)\) "(.*)"\)$/s.exec(form.text) ?? [];
  if (text === undefined) throw new Error(`a data segment that cannot be read: ${form.head.slice(0, 80)}`);
  const bytes = Buffer.from(text.replace(/\\([0-9a-f]{2}|[tnr"'\\])/g, (_, code) => String.fromCharCode(ESCAPES[code] ?? parseInt(code, 16))), "latin1");
  return { start: Number(start), end: Number(start) + bytes.length, bytes, isConstant: form.name?.startsWith("$.rodata") };
}

const ESCAPES = { t: 9, n: 10, r: 13, '"': 34, "'": 39, "\\": 92 };

/** Every constant of a function that may be an address: as a number, in either half of a long one, as an offset. */
function addresses(form) {
  const short = [...form.text.matchAll(/i32\.const (\d+)|offset=(\d+)/g)].map(([, a, b]) => Number(a ?? b));
  const long = [...form.text.matchAll(/i64\.const (-?\d+)/g)].flatMap(([, value]) => {
    const bits = BigInt.asUintN(64, BigInt(value));
    return [Number(bits & 0xffffffffn), Number(bits >> 32n)];
  });
  return [...short, ...long];
}

/** Every aligned word of some data that may be an address. */
function pointers({ start, bytes }) {
  const words = [];
  for (let at = -start & 3; at + 4 <= bytes.length; at += 4) words.push(bytes.readUInt32LE(at));
  return words;
}

/** How far beside a table an address may lie that is meant for it: loops count from one, or up to the end. */
const BESIDE = 64;

/** No address but the first number that is no character: what Rust writes for an absent one. */
const NO_CHARACTER = 0x110000;

/** The index of the first segment that ends behind an address. */
function firstBehind(segments, address) {
  let [low, high] = [0, segments.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (segments[middle].end <= address) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** The segment around an address. */
function around(segments, address) {
  const each = segments[firstBehind(segments, address)];
  return each && each.start <= address ? [each] : [];
}

/** The segments that an address in code may mean: that around it, and tables beside it. */
function meant(segments, address) {
  if (address === NO_CHARACTER) return segments.filter(({ start }) => start === address);
  const found = [];
  for (let i = firstBehind(segments, address - BESIDE - 1); segments[i]?.start <= address + BESIDE; i++) {
    const { start, end, bytes } = segments[i];
    const isTable = start % 4 === 0 && bytes.length % 4 === 0 && bytes.length >= 16;
    if (isTable || (start <= address && address < end)) found.push(segments[i]);
  }
  return found;
}

/** The chosen segments as forms; neighbours are one where the padding between them costs less than a second head. */
function joined(segments, isChosen) {
  const runs = [];
  segments.forEach((each, i) => {
    if (!isChosen(each)) return;
    const before = segments[i - 1];
    if (before && isChosen(before) && each.start - before.end < 8) {
      runs.at(-1).parts.push(Buffer.alloc(each.start - before.end), each.bytes);
    } else runs.push({ start: each.start, parts: [each.bytes] });
  });
  return runs.map(({ start, parts }) => {
    const text = [...Buffer.concat(parts)].map((byte) => `\\${byte.toString(16).padStart(2, "0")}`).join("");
    return new Form(` (data (i32.const ${start}) "${text}")`);
  });
}
