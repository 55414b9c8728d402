// "What can I train on X GB?": models by methods, each cell the largest micro-batch or why there is none.
import { expect, test } from "./support/test.js";

// The table is some seconds of work, on a busy machine a minute or two.
test.describe.configure({ timeout: 300_000 });

/** Shows the table, which is computed while it is seen, and waits for all of it. */
async function filled(headroom) {
  await headroom.view("Plan");
  await expect(headroom.fits).toHaveAttribute("aria-busy", "false", { timeout: 240_000 });
  await expect(headroom.fits).not.toContainText("…");
}

const cell = (headroom, model, column) => headroom.fits.getByRole("row", { name: model }).getByRole("cell").nth(column);

test("every cell says the largest micro-batch or why there is none", async ({ headroom }) => {
  await headroom.open();
  await filled(headroom);
  await expect(headroom.fits.getByRole("columnheader")).toHaveText(["Model", "Full fine-tuning", "LoRA", "QLoRA"]);
  const cells = await headroom.fits.getByRole("cell").allInnerTexts();
  expect(cells.length).toBeGreaterThanOrEqual(30);
  for (const text of cells) expect(text).toMatch(/^(batch\s+[\d,]+|needs\s+[\d.,]+\s[GMT]i?B)/);
});

test("cells say the longest sequence where that is asked for, in the link too", async ({ headroom }) => {
  await headroom.open("#v=1&view=plan");
  await headroom.choice("Cells say").selectOption({ label: "Longest sequence" });
  await filled(headroom);
  await headroom.expectLink("table-cells", "length");
  const longest = cell(headroom, /^Llama-3\.1-8B/, 2);
  await expect(longest).toContainText(/[\d,]+ tokens/);
  const [tokens] = (await longest.innerText()).replaceAll(",", "").match(/\d+/);
  await longest.getByRole("button").click();
  await expect(headroom.box("Sequence length")).toHaveValue(tokens);
  await expect(headroom.verdict).toContainText(/Fits|Close/);
});

test("cells say the largest rank of the methods that have one", async ({ headroom }) => {
  await headroom.open("#v=1&view=plan");
  await headroom.choice("Cells say").selectOption({ label: "Largest rank" });
  await filled(headroom);
  await headroom.expectLink("table-cells", "rank");
  await expect(headroom.fits.getByRole("columnheader")).toHaveText(["Model", "LoRA", "QLoRA"]);
  const largest = cell(headroom, /^Llama-3\.1-8B/, 1);
  await expect(largest).toContainText(/rank [\d,]+/);
  const [rank] = (await largest.innerText()).replaceAll(",", "").match(/\d+/);
  await largest.getByRole("button").click();
  await expect(headroom.box("LoRA rank")).toHaveValue(rank);
  await expect(headroom.verdict).toContainText(/Fits|Close/);
});

test("the largest models of the catalogue are named, and a button opens one that fits", async ({ headroom }) => {
  await headroom.open("#v=1&view=plan&budget=24");
  const table = headroom.page.locator("section", { has: headroom.fits });
  await expect(table).toContainText(/Of 3\d\d models the largest that surely fit: \S+ by Full fine-tuning/, { timeout: 240_000 });
  const largest = table.getByRole("button", { name: /^Open \S+ · QLoRA/ });
  const [, name] = (await largest.innerText()).match(/^Open (\S+)/);
  await largest.click();
  await expect(headroom.choice("Model")).toHaveValue(new RegExp(`${name}$`));
  await expect(headroom.verdict).toHaveAttribute("data-fit", "fits");
});

test("a smaller card trains less", async ({ headroom }) => {
  await headroom.open("#v=1&view=plan");
  const memory = headroom.box("On a card with");
  await memory.fill("80");
  await filled(headroom);
  await expect(cell(headroom, /^Llama-3\.1-8B/, 2)).toContainText("batch");
  await headroom.expectLink("budget", "80");
  await memory.fill("6");
  await expect(cell(headroom, /^Llama-3\.1-8B/, 0)).toContainText("needs", { timeout: 240_000 });
  await expect(cell(headroom, /^Llama-3\.1-8B/, 2)).toContainText("needs", { timeout: 240_000 });
});

test("a click on a cell opens that scenario, which fits and is the largest that does", async ({ headroom }) => {
  await headroom.open();
  await filled(headroom);
  const chosen = cell(headroom, /^Qwen3-8B/, 2);
  const [, batch] = (await chosen.innerText()).replace(",", "").match(/batch\s+(\d+)/);
  await chosen.getByRole("button").click();

  await expect(headroom.choice("Model")).toHaveValue("Qwen/Qwen3-8B");
  await expect(headroom.choice("Method")).toHaveValue("qlora");
  await expect(headroom.box("Micro-batch size")).toHaveValue(batch);
  await expect(headroom.verdict).toContainText("PyTorch reserves");
  await expect(headroom.verdict).toContainText(/Fits|Close/);
  await headroom.expectLink("m", "Qwen/Qwen3-8B");

  await headroom.box("Micro-batch size").fill(String(Number(batch) + 1));
  await expect(headroom.verdict).toContainText(/Does not fit|Tight/);
});

test("what fits by its tensors only is no fit, and the allocator that makes it one is offered", async ({ headroom }) => {
  await headroom.open("?v=1&m=meta-llama/Llama-2-7b-hf&method=lora&b=6&gpu=23GB");
  await expect(headroom.verdict).toContainText("Tight");
  await expect(headroom.verdict).toContainText("the holes between them take more");
  await expect(headroom.verdict.getByText("expandable_segments:True")).toBeVisible();
  await expect(headroom.verdict).toContainText("with expandable segments, as it then runs");
  await headroom.page.setViewportSize({ width: 360, height: 700 });
  expect(await headroom.page.evaluate(() => document.documentElement.scrollWidth)).toBeLessThanOrEqual(360);
  await headroom.verdict.getByRole("button", { name: "Choose expandable segments" }).click();
  // with little to spare
  await expect(headroom.verdict).toContainText(/Fits|Close/);
  await headroom.expectLink("alloc", "expandable");
});

test("scenarios side by side have the verdict that each has alone", async ({ headroom }) => {
  await headroom.open("?v=1&m=meta-llama/Llama-2-7b-hf&method=lora&b=6&gpu=23GB&2.b=4&3.b=30");
  await expect(headroom.page.getByRole("row", { name: "On its card" })).toHaveText(/Tight.*Fits.*Does not fit/s);
});

test("a table that leaves models out says how many there are", async ({ headroom, page }) => {
  await headroom.open("#v=1&view=plan&table-models=qwen");
  await expect(page.getByText(/^The 20 nearest of \d+ models with such a name: more words/)).toBeVisible();
  await expect(headroom.fits.getByRole("row")).toHaveCount(21);
});
