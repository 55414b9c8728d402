// The timeline can be asked: with a pointer, a finger, the arrow keys.
import { expect, test } from "./support/test.js";

test("any moment is read out, and the peak to begin with", async ({ headroom, page }) => {
  await headroom.open("#v=1&view=timeline");
  await expect(headroom.verdict).toHaveAttribute("aria-busy", "false");
  const scrubber = page.getByRole("slider", { name: "Moment of the step" });
  const moment = page.locator("#moment");
  await expect(moment).toContainText("At the peak, in the");
  const [peak] = (await headroom.verdict.innerText()).split("\n");
  await expect(moment.locator(".moment-head b")).toContainText(peak.trim().split(" ")[0]);
  // the drawing names it, too
  await expect(page.getByRole("figure", { name: "Over one step" }).getByText(/^peak \d/)).toBeVisible();

  await scrubber.focus();
  const at = await scrubber.getAttribute("aria-valuenow");
  await scrubber.press("Home");
  await expect(scrubber).toHaveAttribute("aria-valuenow", "1");
  await expect(scrubber).toHaveAttribute("aria-valuetext", /GiB in the forward pass\. Weights/);
  await expect(moment).not.toContainText("At the peak");
  await scrubber.press("ArrowRight");
  await expect(scrubber).toHaveAttribute("aria-valuenow", "2");
  // the worker says what happens there and what is alive
  await expect(moment).toContainText(/(makes|frees) [\w.: -]+/);
  await expect(moment.locator(".alive li")).toHaveCount(5);
  await scrubber.press("End");
  await expect(moment).toContainText("In the optimizer step");
  await scrubber.press("Escape");
  await expect(scrubber).toHaveAttribute("aria-valuenow", at);
});

test("a moment names its layer, and the tensors that are alive name theirs", async ({ headroom, page }) => {
  await headroom.open("#v=1&view=timeline");
  await expect(headroom.verdict).toHaveAttribute("aria-busy", "false");
  const scrubber = page.getByRole("slider", { name: "Moment of the step" });
  const head = page.locator("#moment .moment-head");
  const box = await scrubber.boundingBox();
  await scrubber.click({ position: { x: box.width * 0.25, y: 100 } });
  // 32 layers, numbered as PyTorch does
  await expect(head).toContainText(/(makes|frees) .+, [\d.]+\s[KM]iB, layer \d+ of 0 to 31: \w/);
  const alive = page.locator("#moment .alive li");
  await expect(alive).toHaveCount(5);
  await expect(alive.filter({ hasText: /, layers 0 to \d+/ }).first()).toBeVisible();
});

test("a pointer looks and a click stays", async ({ headroom, page }) => {
  await headroom.open("#v=1&view=timeline");
  await expect(headroom.verdict).toHaveAttribute("aria-busy", "false");
  const scrubber = page.getByRole("slider", { name: "Moment of the step" });
  const moment = page.locator("#moment");
  const peak = await moment.innerText();
  await scrubber.hover({ position: { x: 120, y: 100 } });
  await expect(moment).toContainText("In the forward pass");
  await page.mouse.move(5, 5);
  await expect(moment).toHaveText(peak, { useInnerText: true });
  await scrubber.click({ position: { x: 120, y: 100 } });
  await page.mouse.move(5, 5);
  await expect(moment).toContainText("In the forward pass");
  // another scenario is looked at from its peak
  await headroom.box("Sequence length").fill("1024");
  await expect(moment).toContainText("At the peak");
});

test("every part that is drawn is in the legend, with its amount at the moment", async ({ headroom, page }) => {
  await headroom.open("#v=1&view=timeline");
  const figure = page.getByRole("figure", { name: "Over one step" });
  await expect(figure.locator(".area").nth(5)).toBeVisible();
  const drawn = await figure.locator(".area").evaluateAll((areas) => areas.map((area) => area.classList[2]).sort());
  const legend = page.locator(".legend > li");
  const named = await legend.evaluateAll((items) => items.map((item) => item.classList[0]).filter((name) => name !== "small").sort());
  expect(named).toEqual(drawn);
  expect(named).toContain("part-temporaries");
  // the small ones are one row, which opens
  const buffers = legend.filter({ hasText: "Buffers" });
  await expect(buffers).toBeHidden();
  await page.getByRole("list", { name: "Parts at this moment" }).getByRole("button", { name: /^\d+ small parts/ }).click();
  await expect(buffers).toBeVisible();
});

test("the same as a table", async ({ headroom, page }) => {
  await headroom.open("#v=1&view=timeline");
  await page.getByText("As a table").click();
  const rows = page.getByRole("table", { name: "Memory over one step" }).getByRole("row");
  await expect(rows).toHaveCount(10);
  await expect(rows.nth(2)).toContainText(/The forward pass is highest\s*\d+\.\d+\sGiB\s*\d+\.\d+\sGiB/);
  // a column for each part that is a hundredth of it, and one for all others
  const columns = page.getByRole("table", { name: "Memory over one step" }).getByRole("columnheader");
  await expect(columns.filter({ hasText: /^Weights$/ })).toHaveCount(1);
  await expect(columns.last()).toHaveText("Others");
  await expect(columns.filter({ hasText: /^Buffers$/ })).toHaveCount(0);
});

test("the first step and later ones can be chosen, and reserved is drawn above", async ({ headroom, page }) => {
  await headroom.open("#v=1&view=timeline&method=full&m=meta-llama/Llama-3.2-1B-Instruct&gpu=h100-sxm-80gb");
  await expect(headroom.verdict).toHaveAttribute("aria-busy", "false");
  const moment = page.locator("#moment");
  const figure = page.getByRole("figure", { name: "Over one step" });
  const optimizer = page.getByRole("list", { name: "Parts at this moment" }).getByRole("listitem").filter({ hasText: "Optimizer state" });
  await expect(figure.locator(".reserved")).toHaveCount(1);
  await expect(moment).toContainText(/PyTorch reserves \d+\.\d\sGiB/);
  const scrubber = page.getByRole("slider", { name: "Moment of the step" });
  await scrubber.press("Home");
  await expect(optimizer).toContainText("GiB");
  await headroom.button("First step").click();
  await expect(figure).toHaveAttribute("aria-busy", "false");
  await scrubber.press("Home");
  // there is none before the first optimizer step
  await expect(optimizer).toHaveText(/–$/);
  await scrubber.press("End");
  await expect(optimizer).toContainText("GiB");
  await expect(moment.locator(".alive li")).toHaveCount(5);
});

test("zoom by button, key and wheel, and back", async ({ headroom, page }) => {
  await headroom.open("#v=1&view=timeline");
  await expect(headroom.verdict).toHaveAttribute("aria-busy", "false");
  const figure = page.getByRole("figure", { name: "Over one step" });
  const svg = figure.locator(".drawing svg");
  const scrubber = page.getByRole("slider", { name: "Moment of the step" });
  await scrubber.press("ArrowLeft");
  const whole = await svg.innerHTML();
  const drawn = () => svg.innerHTML();
  await headroom.button("Zoom in").click();
  await expect.poll(drawn).not.toBe(whole);
  const half = await drawn();
  await scrubber.press("+");
  await expect.poll(drawn).not.toBe(half);
  // the moment that was looked at is still looked at
  await expect(page.locator("#moment")).toContainText(/makes|frees/);
  await scrubber.press("-");
  await expect.poll(drawn).toBe(half);
  await scrubber.hover();
  await page.keyboard.down("Control");
  await page.mouse.wheel(0, 100);
  await page.keyboard.up("Control");
  await expect(headroom.button("Zoom out")).toBeDisabled();
  for (let step = 0; step < 14; step += 1) await scrubber.press("+");
  await expect(page.locator("#moment")).toContainText(/makes|frees/);
  await headroom.button("Whole step").click();
  await expect(headroom.button("Zoom out")).toBeDisabled();
});

test("what is there all the while can be left out", async ({ headroom, page }) => {
  await headroom.open("#v=1&view=timeline");
  await expect(headroom.verdict).toHaveAttribute("aria-busy", "false");
  const figure = page.getByRole("figure", { name: "Over one step" });
  const peak = await figure.getByText(/^peak \d/).textContent();
  const weights = figure.locator(".part-weights");
  await expect(weights.first()).toBeAttached();
  await page.getByRole("button", { name: "Only what changes" }).click();
  await expect(page.getByText(/^Drawn above the [\d.]+\sGiB that are there all the while\.$/)).toBeVisible();
  // adapters' weights and the frozen ones stay; the peak is as high as before
  await expect(weights).toHaveCount(0);
  await expect(figure.getByText(/^peak \d/)).toHaveText(peak);
  await page.getByRole("button", { name: "Only what changes" }).click();
  await expect(weights.first()).toBeAttached();
});

test("a stretch's table does not call its edges those of the pass", async ({ headroom, page }) => {
  await headroom.open("#v=1&view=timeline");
  await expect(headroom.verdict).toHaveAttribute("aria-busy", "false");
  await page.getByRole("group", { name: "Zoom" }).getByRole("button", { name: "Zoom in" }).click();
  await page.getByText("As a table").click();
  await expect(page.getByRole("rowheader", { name: /where the stretch (begins|ends)$/ }).first()).toBeVisible();
});

test("a link opens the moment, the stretch and the step that were looked at", async ({ headroom, page }) => {
  await headroom.open("#v=1&view=timeline");
  await expect(headroom.verdict).toHaveAttribute("aria-busy", "false");
  const figure = page.getByRole("figure", { name: "Over one step" });
  const scrubber = page.getByRole("slider", { name: "Moment of the step" });
  const moment = page.locator("#moment");
  await headroom.button("First step").click();
  await expect(figure).toHaveAttribute("aria-busy", "false");
  await headroom.button("Zoom in").click();
  await expect.poll(() => headroom.link().get("stretch")).toMatch(/^\d+-\d+$/);
  const zoomed = headroom.link().get("moment");
  await scrubber.press("End");
  // what the worker says of it, and the link a moment later
  await expect(moment.locator(".alive li")).toHaveCount(5);
  await expect.poll(() => headroom.link().get("moment")).not.toBe(zoomed);
  const [link, told] = [new URL(page.url()).hash, await moment.innerText()];
  expect(link).toContain("step=first");
  await headroom.open("#v=1");
  await expect(headroom.verdict).toHaveAttribute("aria-busy", "false");
  await headroom.open(link);
  await expect(moment).toHaveText(told, { useInnerText: true });
  await expect(headroom.button("First step")).toHaveAttribute("aria-pressed", "true");
  await expect(headroom.button("Zoom out")).toBeEnabled();
  // another scenario is looked at from its peak, and the link says so
  await headroom.box("Sequence length").fill("1024");
  await expect(headroom.button("Zoom out")).toBeDisabled();
  await expect.poll(() => headroom.link().has("moment")).toBe(false);
});

test.describe("with a finger", () => {
  test.use({ hasTouch: true, viewport: { width: 390, height: 844 } });

  test("a touch reads a moment out, which stays", async ({ headroom, page }) => {
    await headroom.open("#v=1&view=timeline");
    await expect(headroom.verdict).toHaveAttribute("aria-busy", "false");
    const moment = page.locator("#moment");
    await expect(moment).toContainText("At the peak");
    const scrubber = page.getByRole("slider", { name: "Moment of the step" });
    await scrubber.tap({ position: { x: 60, y: 100 } });
    await expect(moment).toContainText("In the forward pass");
    await expect(moment.locator(".alive li")).toHaveCount(5);
  });
});
