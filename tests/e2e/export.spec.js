// What can be taken along.
import { readFileSync } from "node:fs";
import { expect, test } from "./support/test.js";

/** Takes something from the menu. */
async function take(headroom, name) {
  await headroom.button("Export").click();
  await headroom.page.locator("#take").getByRole("button").filter({ hasText: name }).click();
}

/** The file that is handed over. */
async function file(headroom, name) {
  const [download] = await Promise.all([headroom.page.waitForEvent("download"), take(headroom, name)]);
  return [download.suggestedFilename(), readFileSync(await download.path())];
}

test("the answer as Markdown, with a link that opens it", async ({ headroom, page, context }) => {
  await context.grantPermissions(["clipboard-read", "clipboard-write"]);
  await headroom.open("#v=1&b=2");
  await take(headroom, "Copy as Markdown");
  await expect(page.getByText("Markdown copied")).toBeVisible();
  const text = await page.evaluate(() => navigator.clipboard.readText());
  expect(text).toContain("| Needed | ");
  // what everybody looks for is ten lines, the rest is folded
  const [first, rest] = text.split("<details>");
  expect(first.split("\n").filter((line) => line.startsWith("| ")).length).toBeLessThanOrEqual(12);
  expect(rest).toContain("| Weights | ");
  const [, link] = text.match(/\[Open in Headroom\]\((.*)\)/);
  expect(new URL(link).hash).toBe("#v=1&b=2");
});

test("as CSV and JSON, of all scenarios", async ({ headroom }) => {
  await headroom.open("#v=1&2.b=2");
  const [csv, lines] = await file(headroom, "Download CSV");
  expect(csv).toBe("headroom.csv");
  expect(lines.toString()).toMatch(/^Micro-batch size,1,2\r$/m);
  const [json, text] = await file(headroom, "Download JSON");
  expect(json).toBe("headroom.json");
  expect(JSON.parse(text).map(({ verdict }) => verdict)).toHaveLength(2);
});

test("the file that runs it, or why there is none", async ({ headroom, page }) => {
  await headroom.open("#v=1&st=trl&b=2");
  const [name, text] = await file(headroom, "Python script");
  expect(name).toBe("train.py");
  expect(text.toString()).toContain("per_device_train_batch_size=2,");
  await expect(page.getByText("train.py saved")).toBeVisible();
  await headroom.open("#v=1&st=litgpt");
  await headroom.button("Export").click();
  const refused = page.getByRole("listitem").filter({ hasText: "Python script" });
  await expect(refused).toContainText(/litgpt/);
  await expect(refused.getByRole("button")).toHaveCount(0);
});

test("from what does not fit to a configuration that runs, in three clicks", async ({ headroom, page }) => {
  await headroom.open("#v=1&st=trl&b=32");
  await expect(headroom.verdict).toContainText("Does not fit");
  // the first is another library, which has files of its own
  await page.locator(".lever", { hasText: "Micro-batch size" }).click();
  const [name, text] = await file(headroom, "TRL (YAML)");
  expect(name).toBe("trl.yaml");
  expect(text.toString()).toContain("model_name_or_path: meta-llama/Llama-3.1-8B");
  expect(text.toString()).toContain("trl sft --config trl.yaml");
});

test("from what no single card of its kind holds to a file that runs several, in three clicks", async ({ headroom, page }) => {
  await headroom.open("#v=1&gpu=rtx-3060-12gb");
  await expect(headroom.verdict).toContainText("Does not fit");
  await headroom.button("Export").click();
  // some projects do it otherwise, with less: they are named
  await expect(page.getByText(/^Files that run it\. On its card, by their tensors: .*trl\.yaml/)).toBeVisible();
  await page.keyboard.press("Escape");
  await page.getByText("Or on a larger card, or several").click();
  await page.locator(".lever", { hasText: "GPUs: 2" }).click();
  await expect(headroom.verdict).toContainText("on each of the 2 × ");
  const [name, text] = await file(headroom, "Python script");
  expect(name).toBe("train.py");
  expect(text.toString()).toContain("# It runs by: torchrun --nproc-per-node 2 train.py\n");
  expect(text.toString()).toContain("\"stage\": 2,");
});

test("what a project does otherwise is said", async ({ headroom, page }) => {
  await headroom.open("#v=1&mask=padded");
  const [name, text] = await file(headroom, "axolotl (YAML)");
  expect(name).toBe("axolotl.yaml");
  expect(text.toString()).toContain("# Otherwise than in the scenario: k-bit preparation: Off, not On");
  await expect(page.getByText(/differs from what is shown, and needs .*: k-bit preparation/)).toBeVisible();
});

test("the chart as a picture that stands by itself", async ({ headroom, page }) => {
  await headroom.open();
  await expect(headroom.verdict).toHaveAttribute("aria-busy", "false");
  const [name, drawing] = await file(headroom, "Chart as SVG");
  expect(name).toBe("headroom.svg");
  const svg = drawing.toString();
  for (const part of ["Llama-3.1-8B", "Fits on the GeForce RTX 4090", "Weights 7.", "headroom"]) expect(svg).toContain(part);
  // what it is of, and where it is from; what is small is told together
  for (const part of ["QLoRA, rank 16 · 2,048 tokens · batch 1 · GeForce RTX 4090", "transformers + PEFT", "small parts", new URL(page.url()).host]) expect(svg).toContain(part);
  expect(svg).not.toContain(">Buffers ");
  expect(svg).toContain('xmlns="http://www.w3.org/2000/svg"');
  // colours that every program reads
  expect(svg).not.toMatch(/var\(--|oklch/);
  const colours = new Set(svg.match(/fill="[^"]+"/g));
  expect(colours.size).toBeGreaterThan(6);

  const [picture, pixels] = await file(headroom, "Chart as PNG");
  expect(picture).toBe("headroom.png");
  expect([...pixels.subarray(1, 4)]).toEqual([..."PNG"].map((letter) => letter.charCodeAt(0)));
  expect(pixels.length).toBeGreaterThan(10_000);
  await expect(page.getByText("cannot draw")).toBeHidden();
});

test("on paper: the sentence, what was changed, the answer; no buttons to press", async ({ headroom, page }) => {
  await headroom.open("#v=1&o=sgd");
  await page.emulateMedia({ media: "print" });
  await page.evaluate(() => dispatchEvent(new Event("beforeprint")));
  // the address that opens it
  await expect(page.locator(".on-paper")).toContainText(page.url());
  await expect(page.getByText("with QLoRA, rank 16").or(page.getByRole("button", { name: /QLoRA, rank 16/ })).first()).toBeVisible();
  await expect(page.locator(".on-paper").getByText("Optimizer: SGD")).toBeVisible();
  await expect(headroom.parts).toBeVisible();
  await expect(headroom.button("Export")).toBeHidden();
  await expect(headroom.slider("Micro-batch size")).toBeHidden();
});

test("on paper: every scenario that is compared, with what was changed of it", async ({ headroom, page }) => {
  await headroom.open("#v=1&2.o=sgd&view=compare");
  await page.emulateMedia({ media: "print" });
  await page.evaluate(() => dispatchEvent(new Event("beforeprint")));
  const paper = page.locator(".on-paper p");
  await expect(paper).toHaveCount(3);
  await expect(paper.nth(1)).toContainText(/^B: Llama-3.1-8B · QLoRA.*Optimizer: SGD/);
  await expect(page.getByRole("button", { name: "Remove B" })).toBeHidden();
  await page.evaluate(() => dispatchEvent(new Event("afterprint")));
  await expect(paper).toHaveCount(0);
});

test("the step for PyTorch's memory_viz", async ({ headroom }) => {
  await headroom.open("#v=1&m=HuggingFaceTB/SmolLM-135M&s=128");
  await expect(headroom.verdict).toHaveAttribute("aria-busy", "false");
  const [name, bytes] = await file(headroom, "Step for memory_viz");
  expect(name).toBe("headroom.pickle");
  // a pickle of protocol 2, as tests/memory_viz.rs reads them
  expect([...bytes.subarray(0, 2)]).toEqual([0x80, 2]);
  expect(bytes.at(-1)).toBe(".".charCodeAt(0));
  for (const key of ["device_traces", "segments", "free_completed", "active_allocated"]) expect(bytes.includes(key)).toBe(true);
});

test("the files that run are one press from the answer, and the menu is gone through by arrows", async ({ headroom, page }) => {
  await headroom.open();
  await headroom.button("Get a file that runs").click();
  await expect(page.locator("#take-files")).toBeFocused();
  await page.keyboard.press("ArrowDown");
  await expect(page.locator("#take-files + li button")).toBeFocused();
  await page.keyboard.press("Home");
  await expect(page.locator("#take").getByRole("button", { name: "Copy link" })).toBeFocused();
  await page.keyboard.press("ArrowUp");
  await expect(page.locator("#take button").last()).toBeFocused();
  await page.keyboard.press("Escape");
  await expect(page.locator("#take")).toBeHidden();
  await headroom.button("Export").focus();
  await page.keyboard.press("ArrowDown");
  await expect(page.locator("#take").getByRole("button", { name: "Copy link" })).toBeFocused();
});
