// The package as somebody uses it who installed it in Node.js; `scripts/check packages` does.
import assert from "node:assert/strict";
import { test } from "node:test";
import { estimate, levers, openLink } from "headroom-estimator";

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
  assert.throws(() => estimate("m=gpt2&b=many"), /batch-size/);
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
