// Every control changes the answer, the chart, the table and the link, at once.
import { expect, test } from "./support/test.js";

// Name of the control, what somebody chooses, the key in the link, and the link to start from where it is not the
// first answer (there the logits hide what attention keeps).
const CHOICES = [
  ["Method", "full", "method"],
  ["Precision", "fp32", "p"],
  ["Optimizer", "sgd", "o"],
  ["Gradient checkpointing", "off", "gc"],
  ["Attention", "eager", "attn", "#v=1&gc=off"],
  ["Target modules", "qv", "t"],
  ["Training library", "liger", "st"],
  ["Loss kernel", "cut", "loss", "#v=1&method=lora&p=bf16"],
];
const NUMBERS = [
  ["LoRA rank", "64", "r"],
  ["Micro-batch size", "4", "b"],
  ["Sequence length", "4096", "s"],
];

/** Follows a link, does something, and waits until everything that `changed` names is another. */
async function follows(headroom, act, { from = "#v=1", changed = ["verdict", "chart", "parts"] } = {}) {
  await headroom.open(from);
  await headroom.unfold();
  const before = await headroom.answer();
  await act();
  for (const what of changed) {
    await expect.poll(async () => (await headroom.answer())[what], { message: what }).not.toBe(before[what]);
  }
}

test("every choice is followed", async ({ headroom }) => {
  for (const [name, value, key, from] of CHOICES) {
    await test.step(name, async () => {
      await follows(headroom, () => headroom.choice(name).selectOption(value), { from });
      await headroom.expectLink(key, value);
    });
  }
});

test("every number is followed, box and slider", async ({ headroom }) => {
  for (const [name, value, key] of NUMBERS) {
    await test.step(name, async () => {
      await follows(headroom, () => headroom.box(name).fill(value));
      await headroom.expectLink(key, value);
      const typed = await headroom.answer();

      await headroom.slider(name).press("ArrowRight");
      await expect(headroom.box(name)).not.toHaveValue(value);
      expect((await headroom.answer()).verdict).not.toBe(typed.verdict);
      await headroom.expectLink(key, (await headroom.box(name).inputValue()).replaceAll(/\D/g, ""));
    });
  }
});

test("Gradient accumulation is followed", async ({ headroom }) => {
  await headroom.open("?v=1&method=full&m=meta-llama/Llama-3.2-1B");
  await headroom.unfold();
  const before = await headroom.verdict.innerText();
  await headroom.box("Gradient accumulation").fill("8");
  await headroom.expectLink("ga", "8");
  // Gradients then live through the next forward pass.
  await expect(headroom.verdict).not.toHaveText(before);
});

test("Model is followed", async ({ headroom }) => {
  await follows(headroom, () => headroom.search("Model", "qwen2.5 7b"));
  await expect(headroom.choice("Model")).toHaveValue(/Qwen2\.5-7B/);
  await expect.poll(() => headroom.link().get("m")).toMatch(/^Qwen\/Qwen2\.5-7B/);
});

test("a model can be given by its size alone", async ({ headroom }) => {
  await follows(headroom, async () => {
    await headroom.choice("Model").click();
    await headroom.choice("Model").fill("13b");
    const found = headroom.page.getByRole("listbox").getByRole("option");
    // what people mean by it stands before the model that nobody made
    await expect(found.first()).toContainText("13b", { ignoreCase: true });
    await expect(found.first()).not.toContainText("Llama-like");
    await found.filter({ hasText: "Any 13B Llama-like model" }).click();
  });
  await headroom.expectLink("m", "13b");
  await headroom.box("Model size").fill("30");
  await headroom.expectLink("m", "30b");
});

test("GPU is followed", async ({ headroom }) => {
  await follows(headroom, () => headroom.search("GPU", "h100"), { changed: ["verdict", "chart"] });
  await expect.poll(() => headroom.link().get("gpu")).toMatch(/^h100/);
});

test("a card can be given by its memory alone", async ({ headroom }) => {
  await headroom.open();
  await headroom.choice("GPU").click();
  await headroom.choice("GPU").fill("6");
  await headroom.page.getByRole("listbox").getByRole("option").filter({ hasText: "Any 6 GiB card" }).click();
  await expect(headroom.verdict).toContainText("Does not fit");
  await headroom.box("GPU memory").fill("48");
  await expect(headroom.verdict).toContainText("Fits");
  await headroom.expectLink("gpu", "48GiB");
});

test("LoRA's controls stand there only for LoRA and QLoRA", async ({ headroom }) => {
  await headroom.open();
  await headroom.unfold();
  for (const [method, shown] of [["full", false], ["lora", true], ["qlora", true]]) {
    await headroom.choice("Method").selectOption(method);
    await expect(headroom.box("LoRA rank")).toBeVisible({ visible: shown });
    await expect(headroom.choice("Target modules")).toBeVisible({ visible: shown });
  }
});

test("what is no rank is not called one", async ({ headroom, page }) => {
  await headroom.open("#v=1&method=lora&ad=oft&p=amp-bf16&r=64");
  await headroom.unfold();
  await expect(headroom.box("OFT block size")).toHaveValue("64");
  await expect(headroom.box("LoRA rank")).toHaveCount(0);
  await expect(page.getByRole("group", { name: "The scenario in a sentence" })).toContainText("OFT, blocks of 64");
  await headroom.choice("Adapter").selectOption("loha");
  await expect(headroom.box("LoRA rank")).toBeVisible();
  await expect(headroom.box("OFT block size")).toHaveCount(0);
});

test("FSDP2 wraps the model of one GPU where that is chosen, and is switched off again", async ({ headroom, page }) => {
  await headroom.open("#v=1&m=meta-llama/Llama-3.2-1B&method=full");
  await headroom.unfold();
  const alone = page.getByRole("switch", { name: "FSDP2 on one GPU" });
  await alone.click();
  await headroom.expectLink("alone", "on");
  await headroom.expectLink("shard", "fsdp2");
  await expect(headroom.choice("Sharding")).toBeVisible();
  // another engine is not this one
  await headroom.choice("Sharding").selectOption("ddp");
  await expect(alone).not.toBeChecked();
  await alone.click();
  await expect(headroom.choice("Sharding")).toHaveValue("fsdp2");
  await alone.click();
  await expect(headroom.choice("Sharding")).toBeHidden();
  await headroom.box("GPUs").fill("2");
  await headroom.box("GPUs").press("Enter");
  await expect(alone).toBeHidden();
});

test("a number box is not overwritten while it has the focus", async ({ headroom }) => {
  await headroom.open();
  const box = headroom.box("Sequence length");
  await box.focus();
  const before = await headroom.verdict.innerText();
  await box.fill("");
  await expect(box).toHaveValue("");
  await box.pressSequentially("0");
  await expect(box).toHaveValue("0");
  await box.fill("3000");
  await expect(box).toHaveValue("3000");
  await expect(headroom.verdict).not.toHaveText(before);
  await box.blur();
  await expect(box).toHaveValue(/^3,?000$/);
});

test("what a box cannot read leaves the last good answer and says so", async ({ headroom }) => {
  await headroom.open();
  const before = await headroom.verdict.innerText();
  const box = headroom.box("Micro-batch size");
  await box.fill("many");
  await expect(box).toHaveAttribute("aria-invalid", "true");
  await expect(headroom.verdict).toHaveText(before, { useInnerText: true });
  await expect(headroom.page.getByText(/Use a whole number from 1 to 16,777,216/)).toBeVisible();
  await box.press("Enter");
  await expect(box).toHaveValue("many");
  await expect(headroom.page.getByText(/Use a whole number from 1 to 16,777,216/)).toBeVisible();
  await box.blur();
  // what is wrong is still there to be mended, beside what is wrong with it, until there is another value
  await expect(box).toHaveValue("many");
  await expect(box).toHaveAttribute("aria-invalid", "true");
  await box.focus();
  await expect(box).toHaveValue("many");
  await expect(headroom.page.getByText(/Use a whole number from 1 to 16,777,216/)).toBeVisible();
  await box.fill("2");
  await expect(headroom.page.getByText(/Use a whole number from 1 to 16,777,216/)).toBeHidden();
  await expect(box).toHaveAttribute("aria-invalid", "false");
  // nor after all was put back
  await box.fill("many");
  await headroom.button("Reset").click();
  await expect(box).toHaveValue("1");
  await expect(headroom.page.getByText(/Use a whole number from 1 to 16,777,216/)).toBeHidden();
});

test("extremes are answered, not crashed on", async ({ headroom }) => {
  await headroom.open();
  await headroom.unfold();
  for (const name of ["Micro-batch size", "Sequence length", "Gradient accumulation", "LoRA rank"]) {
    await headroom.box(name).fill("999999999999999999999");
    await headroom.box(name).blur();
  }
  await expect(headroom.verdict).toBeVisible();
  await headroom.choice("Method").selectOption("full");
  await expect(headroom.choice("Method")).toHaveValue("full");
});

// Name of a switch, its key in the link, and the link under which it makes a difference.
const SWITCHES = [
  ["Double quantisation", "dq", "off"],
  ["k-bit preparation", "prep", "off"],
  ["LoRA dropout", "ld", "on", "#v=1&gc=off"],
  ["Adapters in fp32", "a32", "off", "#v=1&method=lora&p=bf16"],
  ["Train embeddings too", "emb", "on"],
  ["Gradients freed", "stn", "off", "#v=1&method=full&m=meta-llama/Llama-3.2-1B"],
  ["KV cache in training", "cache", "on", "#v=1&gc=off"],
];

test("every switch is followed", async ({ headroom, page }) => {
  for (const [name, key, value, from] of SWITCHES) {
    await test.step(name, async () => {
      const act = async () => {
        await page.getByRole("switch", { name, exact: true }).click();
      };
      await follows(headroom, act, { from, changed: ["parts"] });
      await headroom.expectLink(key, value);
    });
  }
});

test("every input has a control", async ({ headroom, page }) => {
  await headroom.open("?v=1&gc=off&m=EleutherAI/pythia-14m&s=256");
  await headroom.unfold();
  for (const name of ["Outputs kept", "Gradient clipping"]) {
    await expect(page.getByRole("switch", { name, exact: true })).toBeVisible();
  }
  for (const name of ["Adapter", "Quantised weights", "Padding", "Optimizer step"]) await expect(headroom.choice(name)).toBeVisible();
  await page.getByRole("textbox", { name: "Dropout", exact: true }).fill("0.1");
  await headroom.expectLink("drop", "0.1");
  await page.getByRole("textbox", { name: "Dropout", exact: true }).fill("much");
  await expect(page.getByText("Use a probability from 0 to 1")).toBeVisible();
  await headroom.expectLink("drop", "0.1");
  await page.getByRole("textbox", { name: "Lengths" }).fill("uniform");
  // where lengths vary many batches are replayed
  await expect.poll(() => headroom.link().get("len"), { timeout: 20_000 }).toBe("uniform");
});

test("what of the card is not for the run has controls, and so has the data set", async ({ headroom }) => {
  await headroom.open("?v=1&gpu=a100-sxm-80gb");
  await headroom.unfold();
  for (const [name, value, key] of [
    ["Memory in use", "900", "used"],
    ["Safety margin", "1024", "margin"],
    ["CUDA context", "600", "ctx"],
  ]) {
    await headroom.box(name).fill(value);
    await headroom.expectLink(key, value);
  }
  await headroom.open("?v=1&gpu=a100-sxm-80gb&view=plan");
  await headroom.ask("Time");
  await headroom.box("Tokens of the data set").fill("100k x 500");
  await headroom.expectLink("data", "50000000");
  await headroom.box("Epochs").fill("3");
  await headroom.expectLink("ep", "3");
});

test("every setting of DeepSpeed has a control", async ({ headroom, page }) => {
  await headroom.open("?v=1&m=Qwen/Qwen2.5-0.5B&method=full&p=bf16&gpus=8&shard=zero3");
  await headroom.unfold();
  for (const [name, value, key] of [
    ["Reduce bucket", "1000000", "zbucket"],
    ["Prefetch bucket", "0", "zprefetch"],
    ["Persistence threshold", "0", "zpersist"],
    ["Live parameters", "2000000000", "zlive"],
  ]) {
    await headroom.box(name).fill(value);
    await headroom.expectLink(key, value);
  }
  await headroom.choice("Overlap reductions").selectOption("on");
  await headroom.expectLink("zoverlap", "on");
  await page.getByRole("switch", { name: "Contiguous gradients", exact: true }).click();
  await headroom.expectLink("zcontiguous", "off");
});

test("a single GPU may be wrapped by FSDP2, too", async ({ headroom, page }) => {
  await headroom.open("?v=1&m=Qwen/Qwen2.5-0.5B&method=full&p=bf16&shard=fsdp2");
  await headroom.unfold();
  await page.getByRole("switch", { name: "FSDP2 on one GPU", exact: true }).click();
  await headroom.expectLink("alone", "on");
});

test("what is changed in the folded settings stays in sight and can be set back", async ({ headroom, page }) => {
  await headroom.open("?v=1&dq=off&out=on");
  await expect(headroom.button("All settings, 2 changed")).toBeVisible();
  await headroom.button("Double quantisation: Off. Set back to On").click();
  await expect(headroom.button("All settings, 1 changed")).toBeVisible();
  await expect.poll(() => headroom.link().has("dq")).toBe(false);
  await headroom.expectLink("out", "on");
});

test("what is at its default stays there when the training library changes", async ({ headroom }) => {
  await headroom.open();
  await headroom.unfold();
  await headroom.choice("Training library").selectOption("torchtune");
  await expect(headroom.choice("Precision")).toHaveValue("bf16");
  await expect(headroom.verdict).toContainText(/Fits/);
  await headroom.choice("Training library").selectOption("transformers");
  await expect(headroom.choice("Precision")).toHaveValue("amp-bf16-weights");
  await expect.poll(() => [...headroom.link().keys()].join()).toBe("v");
});

test("what matches nothing says so, with what to do, and is not dropped without a word", async ({ headroom, page }) => {
  await headroom.open();
  const box = headroom.choice("GPU");
  await box.click();
  await box.fill("no such thing");
  await expect(page.getByText("No card matches “no such thing”")).toBeVisible();
  await expect(box).toHaveAttribute("aria-expanded", "false");
  await expect(box).toHaveAttribute("aria-activedescendant", "");
  await box.blur();
  await expect(page.getByText("Nothing is called “no such thing”")).toBeVisible();
  await expect(box).toHaveValue(/4090/);
});

test("what is no amount and no name leaves what was chosen, and says so", async ({ headroom, page }) => {
  await headroom.open();
  for (const [name, kept] of [
    ["GPU", /4090/],
    ["Model", /Llama-3\.1-8B/],
  ]) {
    const box = headroom.choice(name);
    for (const words of ["-12 GB", "0 GB", "🙂"]) {
      await box.click();
      await box.fill(words);
      await box.press("Enter");
      await box.blur();
      await expect(page.getByText(`Nothing is called “${words}”`)).toBeVisible();
      await expect(box).toHaveValue(kept);
    }
    for (const leave of [() => box.press("Enter"), () => box.blur()]) {
      await box.click();
      await box.fill("");
      await leave();
      await expect(page.getByText("Nothing was written")).toBeVisible();
      await expect(box).toHaveValue(kept);
      // what is picked after all takes the complaint away
      await box.click();
      await expect(page.getByText("Nothing was written")).toBeHidden();
      await box.press("Escape");
    }
  }
});

test("several GPUs are taken where the card is", async ({ headroom, page }) => {
  await headroom.open();
  const box = headroom.choice("GPU");
  await box.click();
  await box.fill("8x h100");
  const first = page.getByRole("listbox").getByRole("option").first();
  await expect(first).toContainText("8 × H100");
  await first.click();
  await headroom.expectLink("gpus", "8");
  await expect(headroom.verdict).toContainText("8 × H100");
});

test("embeddings are a task, whose gradients may be cached", async ({ headroom }) => {
  await headroom.open("?v=1&m=google-bert/bert-base-uncased&method=full&p=amp-bf16");
  await headroom.choice("Task").selectOption("embed");
  await headroom.unfold();
  await expect(headroom.box("Texts per example")).toHaveValue("2");
  const before = await headroom.verdict.innerText();
  await headroom.box("GradCache").fill("8");
  await expect(headroom.verdict).not.toHaveText(before, { useInnerText: true });
  await headroom.expectLink("gradcache", "8");
});

test("checkpoints and merging have controls", async ({ headroom }) => {
  await headroom.open("?v=1&m=Qwen/Qwen2.5-0.5B&method=lora");
  await headroom.unfold();
  await headroom.choice("Merging").selectOption("gpu");
  await headroom.expectLink("merge", "gpu");
  await headroom.choice("Checkpoints").selectOption("full");
  await headroom.expectLink("save", "full");
});

test("answers that a server generates need GPUs elsewhere", async ({ headroom }) => {
  await headroom.open("?v=1&task=grpo&st=trl&mask=padded&ref=none&b=8");
  const server = headroom.page.getByText("vLLM has GPUs of its own elsewhere");
  await expect(server).toBeVisible();
  await expect(headroom.box("Micro-batch size (answers)")).toHaveValue("8");
  await headroom.unfold();
  await headroom.choice("Answers come from").selectOption("transformers");
  await expect(server).toBeHidden();
  // in the process that trains it has a share of the card, trl's to begin with
  await headroom.choice("Answers come from").selectOption("colocated");
  await expect(server).toBeHidden();
  await headroom.expectLink("vllm", "30");
  await headroom.choice("Answers come from").selectOption("server");
  await expect(server).toBeVisible();
});

test("a box that is left to the page says what it comes to, and numbers their unit", async ({ headroom, page }) => {
  await headroom.open("#v=1&gpu=rtx-4090");
  await headroom.unfold();
  const context = headroom.box("CUDA context");
  await expect(context).toHaveValue("");
  await expect(context).toHaveAttribute("placeholder", /^auto \([\d,]+\)$/);
  await expect(page.locator(".field", { has: context }).locator(".unit")).toHaveText("MiB");
  await context.fill("600");
  await headroom.expectLink("ctx", "600");
  await context.fill("");
  await expect.poll(() => headroom.link().has("ctx")).toBe(false);
  await context.blur();
  await expect(context).toHaveValue("");
  await expect(context).toHaveAttribute("aria-invalid", "false");
  await expect(page.getByRole("textbox", { name: "Lengths" })).toHaveAttribute("placeholder", "auto (all equal)");
});
