// Several GPUs: how many it takes, under which engine, and what each of them and all of them hold.
import { expect, test } from "./support/test.js";

const FULL = "#v=1&method=full&gpu=a100-sxm-40gb";

test("from a card that is too small to GPUs that hold it is one click", async ({ headroom, page }) => {
  await headroom.open(FULL);
  await expect(headroom.verdict).toContainText("Does not fit");
  await page.getByText("Or on a larger card, or several").click();
  const lever = page.locator(".lever", { hasText: "GPUs: 3" });
  await expect(lever).toContainText("Sharding: FSDP2");
  await expect(lever).toContainText("on each · fits");
  await lever.click();
  await expect(headroom.verdict).toContainText("on each of the 3 × ");
  await expect(headroom.verdict).toContainText("to spare");
  await expect(headroom.verdict.locator(".total")).toContainText("GiB per GPU");
  await headroom.expectLink("gpus", "3");
  await headroom.expectLink("shard", "fsdp2");
});

test("fewer GPUs do where the CPU keeps what they share", async ({ headroom, page }) => {
  await headroom.open("#v=1&m=meta-llama/Llama-3.3-70B-Instruct&s=512&gpu=rtx-4090");
  const lever = page.locator(".lever", { hasText: "GPUs: 2" });
  await expect(lever).toContainText(/costs time · fits · needs [\d.]+\sGiB of RAM/);
  await lever.click();
  await expect(headroom.verdict).toContainText("on each of the 2 × ");
  await headroom.expectLink("cpu", "all");
});

test("what comes with a change is said, and is undone with it", async ({ headroom, page }) => {
  await headroom.open("#v=1&method=full&gpu=a100-sxm-80gb");
  await headroom.box("GPUs").fill("8");
  await headroom.box("GPUs").press("Enter");
  const told = page.locator(".toast");
  await expect(told).toContainText("Also set: Precision: bf16 mixed (fp32 weights)");
  await headroom.expectLink("gpus", "8");
  await told.getByRole("button", { name: "Undo" }).click();
  await expect(headroom.box("GPUs")).toHaveValue("1");
});

test("with several GPUs what they share appears, as it is usually run", async ({ headroom, page }) => {
  await headroom.open();
  const sharding = headroom.choice("Sharding");
  await expect(sharding).toBeHidden();
  await headroom.box("GPUs").fill("8");
  await headroom.box("GPUs").press("Enter");
  await expect(sharding).toBeVisible();
  await expect(sharding.locator("option:checked")).toHaveText("DDP");
  await headroom.choice("Method").selectOption({ label: "Full fine-tuning" });
  await expect(sharding.locator("option:checked")).toHaveText("FSDP2");
});

for (const width of [390, 1280]) {
  test(`the figure of one GPU and that of all are told apart, ${width} wide`, async ({ headroom, page }) => {
    await page.setViewportSize({ width, height: 844 });
    await headroom.open("#v=1");
    const figure = page.getByRole("figure", { name: "Memory at the peak of every GPU" });
    await expect(figure).toBeHidden();
    await page.getByRole("button", { name: "8B full, 8 × 80 GB" }).click();
    await expect(headroom.verdict).toHaveAttribute("aria-busy", "false");
    // all are alike: one bar stands for them
    await expect(figure).toContainText("each");
    const each = Number((await headroom.verdict.locator(".total strong").innerText()).replaceAll(",", ""));
    const told = await page.getByText(/Together they need/).innerText();
    const all = Number(told.match(/need ([\d,.]+)\sGiB of/)[1].replaceAll(",", ""));
    expect(Math.abs(all - 8 * each)).toBeLessThan(1);
    expect(await page.evaluate(() => document.documentElement.scrollWidth)).toBeLessThanOrEqual(width);
  });
}

test("from a card that is too small to a layout that fits is three clicks", async ({ headroom, page }) => {
  await headroom.open("#v=1&method=full&gpu=a100-sxm-40gb");
  await expect(headroom.verdict).toContainText("Does not fit");
  await headroom.view("Plan");
  await headroom.ask("Several GPUs");
  await page.getByRole("group", { name: "Number of GPUs" }).getByRole("button", { name: "8", exact: true }).click();
  const table = page.getByRole("table", { name: "Ways to use the GPUs" });
  await expect(page.getByText(/^\d+ of \d+ ways to use 8 of these cards fit; the fastest is /)).toBeVisible({ timeout: 180_000 });
  const fastest = table.getByRole("button", { name: /open/ }).first();
  await expect(fastest).toContainText("fits");
  const [needed] = (await fastest.innerText()).split(/\s/);
  await fastest.click();
  await headroom.expectLink("gpus", "8");
  await expect(headroom.verdict).toHaveAttribute("aria-busy", "false");
  await expect(headroom.verdict).toContainText("to spare");
  await expect(headroom.verdict.locator(".total strong")).toHaveText(needed);
});

test("ways to use GPUs are sorted by speed and by memory, and those that do not fit say why", async ({ headroom, page }) => {
  await headroom.open(`${FULL}&view=plan`);
  await headroom.ask("Several GPUs");
  await page.getByRole("group", { name: "Number of GPUs" }).getByRole("button", { name: "8", exact: true }).click();
  const table = page.getByRole("table", { name: "Ways to use the GPUs" });
  await expect(page.getByText(/^\d+ of \d+ ways to use 8 of these cards fit/)).toBeVisible({ timeout: 180_000 });
  await expect(table).toHaveAttribute("aria-busy", "false", { timeout: 180_000 });
  const figures = async (column) => {
    const cells = await table.locator(`tbody td:nth-child(${column + 1})`).allInnerTexts();
    return cells.filter((cell) => /^\d/.test(cell)).map((cell) => Number(cell.replaceAll(",", "").match(/^[\d.]+/)[0]));
  };
  const speeds = await figures(2);
  expect(speeds.length).toBeGreaterThan(2);
  // the fastest of all first, and of each engine before any engine's second
  expect(speeds[0]).toBe(Math.max(...speeds));
  const engines = (await table.locator("tbody th").allInnerTexts()).slice(0, 3).map((name) => name.split(/[,\n]/)[0]);
  expect(new Set(engines).size).toBe(3);
  await table.getByRole("button", { name: "Tokens per second" }).click();
  // of speed the most is looked for
  const sorted = await figures(2);
  expect(sorted).toEqual([...sorted].sort((one, other) => other - one));
  await table.getByRole("button", { name: "Each GPU needs" }).click();
  const needs = await figures(1);
  expect(needs).toEqual([...needs].sort((one, other) => one - other));
  await page.getByRole("button", { name: /more ways$/ }).click();
  await expect(table.getByRole("row", { name: /^DDP/ }).first()).toContainText("does not fit");
});

test("memory against the number of GPUs falls, and says from where on it fits", async ({ headroom, page }) => {
  await headroom.open(`${FULL}&view=plan`);
  await headroom.ask("Limits");
  await page.getByRole("group", { name: "Against" }).getByRole("button", { name: "GPUs" }).click();
  await expect(page.getByText(/^Fits on 4 GPUs, the fewest of these numbers: [\d.]+\sGiB on each\.$/)).toBeVisible({ timeout: 180_000 });
  const scrubber = page.getByRole("slider", { name: "GPUs on the curve" });
  await scrubber.press("ArrowRight");
  await scrubber.press("ArrowRight");
  await headroom.expectLink("gpus", "4");
  await expect(headroom.verdict).toContainText("to spare");
});

test("what is good to know of several GPUs is a line each, and the rest behind it", async ({ headroom, page }) => {
  await headroom.open(FULL.replace(/$/, "&gpus=8&shard=fsdp2"));
  const note = page.locator("#gpus-messages details.note");
  await expect(note.locator("summary")).toHaveText(/^Note: NCCL may take [\d.]+\s[MG]iB to [\d.]+\sGiB more of each GPU\.$/);
  const { height } = await note.boundingBox();
  expect(height).toBeLessThan(30);
  await note.locator("summary").click();
  await expect(note).toContainText("is called close");
  expect((await note.boundingBox()).height).toBeGreaterThan(2 * height);
  const shard = page.locator("#shard-messages details.note summary");
  await expect(shard).toHaveText("Note: FSDP2 in a training loop of your own.");
});

test("machines of GPUs are typed as 2x4", async ({ headroom, page }) => {
  await headroom.open("#v=1&method=full&gpu=h100-sxm-80gb&shard=fsdp2");
  const gpus = headroom.box("GPUs");
  await gpus.fill("2x4");
  await headroom.expectLink("gpus", "8");
  await headroom.expectLink("node", "4");
  await gpus.blur();
  await expect(gpus).toHaveValue("8");
  await gpus.fill("2xx4");
  await expect(page.locator("#gpus-messages")).toContainText("Still computing with 8");
});
