// The package as somebody uses it who installed it in Node.js; `scripts/check packages` does.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { test } from "node:test";
import { estimate, levers, openLink, read } from "headroom-estimator";

test("the README's example runs", () => {
  const readme = readFileSync("node_modules/headroom-estimator/README.md", "utf8");
  writeFileSync("readme.mjs", readme.split("```js\n")[1].split("```")[0]);
  const [verdict, ...changes] = execFileSync(process.execPath, ["readme.mjs"], { encoding: "utf8" }).trim().split("\n");
  assert.match(verdict, /^fits \d+ backward$/);
  assert.ok(changes.length > 3, changes.join("\n"));
});

test("the README's figure", () => {
  const answer = estimate({
    model: "meta-llama/Llama-3.2-1B",
    method: "full",
    precision: "bf16",
    optimizer: "adamw",
    "gradient-checkpointing": "off",
    "batch-size": 4,
    "seq-length": 2048,
    gpu: "a100-sxm-40gb",
  });
  // PyTorch 2.11 and transformers 5.17 took 34,420,881,408 bytes (data/measurements/null-device.json)
  assert.ok(Math.abs(answer.peak.bytes - 34_420_881_408) < 2 ** 20, answer.peak.bytes);
  assert.equal(answer.verdict, "fits");
  assert.equal(
    Object.values(answer.peak.parts).reduce((sum, bytes) => sum + bytes),
    answer.peak.bytes,
  );
});

test("an answer's scenario and its link give the same answer", () => {
  const answer = estimate({ model: "gpt2", method: "full", "batch-size": 3 });
  assert.deepEqual(estimate(answer.scenario), answer);
  assert.deepEqual(estimate(answer.link), answer);
  assert.deepEqual(openLink(answer.link), { scenarios: [answer.scenario], notices: [] });
});

test("what is wrong says what would be right", () => {
  assert.throws(() => estimate({ modell: "gpt2" }), /there is no key/);
  assert.throws(() => estimate({ method: "qlorra" }), /qlora/);
  assert.throws(() => estimate("openai-community/gpt2"), /model:/);
  assert.throws(() => estimate("m=gpt2&b=many"), /Micro-batch size/);
  const answer = estimate({ model: "nobody/nothing" });
  assert.equal(answer.needed, undefined);
  assert.equal(answer.issues[0].severity, "error");
});

test("what to change", () => {
  const found = levers({ model: "meta-llama/Llama-3.1-8B", method: "full", gpu: "rtx-4090" });
  assert.equal(found.verdict, "over");
  for (const lever of found.single) {
    assert.equal(estimate(lever.link).needed, lever.needed);
    assert.equal(found.needed - lever.needed, lever.saved);
  }
});

test("a configuration of another project is read over a scenario", () => {
  const axolotl = "base_model: Qwen/Qwen3-8B\nadapter: lora\nlora_r: 32\nmicro_batch_size: 2\nsequence_len: 4096\nmagic: 1\n";
  const understood = read(axolotl, { gpu: "a100-sxm-80gb" });
  assert.equal(understood.format, "axolotl");
  const { model, method, gpu, "lora-rank": rank } = understood.scenario;
  assert.deepEqual([model, method, gpu, rank], ["Qwen/Qwen3-8B", "lora", "a100-sxm-80gb", 32]);
  assert.ok(understood.applied.some(({ key, said }) => key === "batch-size" && said === "micro_batch_size: 2"));
  assert.ok(understood.not_understood.some(({ said }) => said === "magic: 1"));
  assert.equal(estimate(understood.scenario).verdict, estimate(understood.link).verdict);
  // files add up
  const several = read('{"zero_optimization": {"stage": 3}}', understood.scenario).scenario;
  assert.deepEqual([several.shard, several.model], ["zero3", "Qwen/Qwen3-8B"]);
  assert.throws(() => read("one: 1"), /of no project that is known here/);
});
