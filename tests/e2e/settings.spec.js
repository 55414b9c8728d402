// "Which settings?": combinations of method, precision, optimizer, loss and checkpointing, ranked by speed or by memory.
import { readFile } from "node:fs/promises";
import { expect, test } from "./support/test.js";

const table = (headroom) => headroom.page.getByRole("table", { name: "Combinations of settings" });

async function filled(headroom) {
  await expect(table(headroom)).toHaveAttribute("aria-busy", "false", { timeout: 60_000 });
}

const needs = async (headroom) => {
  const cells = await table(headroom).getByRole("row").locator("td:nth-of-type(1)").allInnerTexts();
  return cells.map((text) => Number.parseFloat(text) * (text.includes("GiB") ? 1024 : 1));
};

test("those that fit come first, the fastest before all, and a click opens one", async ({ headroom }) => {
  await headroom.open("#v=1&view=plan&m=meta-llama/Llama-3.1-8B&gpu=rtx-4090&b=4");
  await headroom.ask("Settings");
  await filled(headroom);
  const first = table(headroom).getByRole("row").nth(1);
  await expect(first).toContainText(/tokens\/s/);
  const name = await first.getByRole("rowheader").innerText();
  await first.getByRole("button").click();
  await expect(headroom.verdict).toContainText("Fits");
  const method = { LoRA: "lora", QLoRA: "qlora" }[name.split(/\s/)[0]] ?? "full";
  await expect(headroom.choice("Method")).toHaveValue(method);
});

test("by memory the least comes first, and the whole table can be taken along", async ({ headroom, page }) => {
  await headroom.open("#v=1&view=plan&m=openai-community/gpt2&s=512&gpu=rtx-4090");
  await headroom.ask("Settings");
  await filled(headroom);
  await table(headroom).getByRole("button", { name: "Needs" }).click();
  const amounts = await needs(headroom);
  expect(amounts[0]).toBe(Math.min(...amounts));
  const coming = page.waitForEvent("download");
  await page.getByRole("button", { name: "Download CSV of Combinations of settings" }).click();
  const file = await coming;
  expect(file.suggestedFilename()).toBe("headroom-settings.csv");
  const lines = (await readFile(await file.path(), "utf8")).trim().split("\r\n");
  expect(lines[0]).toContain("Settings,Settings: note,Needs (GiB),Needs: verdict,");
  // the least first, as a number, and its verdict beside it
  expect(lines[1]).toMatch(/,\d+\.\d{3},fits,/);
  expect(lines.join()).not.toContain("−");
  // those too that are shown when they are asked for
  await page.getByRole("button", { name: /more combinations$/ }).click();
  expect(lines.length).toBe((await table(headroom).locator("tbody tr").count()) + 1);
  expect(lines.length).toBeGreaterThan(amounts.length + 1);
});

for (const width of [1280, 390]) {
  test(`how far vLLM starts stands in words of a line, ${width} wide`, async ({ headroom, page }) => {
    await page.setViewportSize({ width, height: 844 });
    await headroom.open("#v=1&view=plan&task=generate&m=meta-llama/Llama-3.1-8B&method=full&p=bf16&gpu=rtx-4090");
    const row = page.getByRole("table", { name: "Weights by format" }).locator("tbody tr", { hasText: "bf16 or fp16" });
    const cell = row.locator("td").nth(2);
    await expect(cell).toContainText("only to --max-model-len");
    const [wide, high] = await cell.evaluate((it) => [it.offsetWidth, it.offsetHeight]);
    expect(wide).toBeGreaterThan(150);
    expect(high).toBeLessThan(110);
    expect(await page.evaluate(() => document.documentElement.scrollWidth)).toBeLessThanOrEqual(width);
  });
}

test("what generates has no such table", async ({ headroom, page }) => {
  await headroom.open("#v=1&view=plan&task=generate");
  await expect(page.getByRole("table", { name: "Weights by format" })).toBeVisible();
  await expect(table(headroom)).toHaveCount(0);
});
