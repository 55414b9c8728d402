// The proof: every measured run beside its prediction, fetched when it is looked at, and the run nearest to the scenario.
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { overflow, violations } from "./support/access.js";
import { DIST, expect, test } from "./support/test.js";

const [header, ...lines] = readFileSync(join(DIST, "measured.tsv"), "utf8").trimEnd().split("\n");
const names = header.split("\t");
const runs = lines.map((line) => Object.fromEntries(line.split("\t").map((value, index) => [names[index], value])));

/** The errors of a figure in percent, for those runs that have it. */
const errors = (figure, of = runs) => of.filter((run) => run[figure]).map((run) => (run[`${figure} predicted`] / run[figure] - 1) * 100);

const table = (page) => page.getByRole("table", { name: "Measured runs, those furthest off first" });
const gist = (page) => page.getByRole("tabpanel").getByRole("status");

test("the runs are fetched where they are looked at, and not before", async ({ headroom, page }) => {
  const asked = [];
  page.on("request", (request) => asked.push(request.url()));
  await headroom.open();
  expect(asked.filter((url) => url.endsWith("measured.tsv"))).toEqual([]);
  await headroom.view("Accuracy");
  await expect(table(page)).toBeVisible();
  await headroom.view("Fit");
  await headroom.view("Accuracy");
  await expect(table(page)).toBeVisible();
  expect(asked.filter((url) => url.endsWith("measured.tsv")).length).toBe(1);
});

test("every row that CI checks is there, and the filters look at some", async ({ headroom, page }) => {
  await headroom.open("#v=1&view=accuracy");
  const all = errors("allocated");
  await expect(gist(page)).toContainText(`Allocated peak, ${all.length.toLocaleString("en")} runs: off by 0.00 % in the median`);
  const worst = Math.max(...all.map(Math.abs));
  await expect(gist(page)).toContainText(`${worst.toFixed(1)} % at worst`);
  // the table begins with it
  await expect(table(page).getByRole("row").nth(1)).toContainText(`${worst.toFixed(2)} %`);

  await page.getByLabel("What was measured").selectOption("reserved");
  await page.getByLabel("File", { exact: true }).selectOption("published");
  await page.getByLabel("Method of the run").selectOption("lora");
  await page.getByLabel(/^Only misses/).check();
  const own = runs.filter((run) => run.file === "published" && run.settings.startsWith("lora "));
  const misses = errors("reserved", own).filter((error) => Math.abs(error) >= 1);
  await expect(gist(page)).toContainText(`Reserved peak, ${misses.length} runs`);
  await expect(table(page).getByRole("row")).toHaveCount(Math.min(misses.length, 20) + 1);
  const row = table(page).getByRole("row").nth(1);
  await expect(row).toContainText("Texts of 3234 ± 2547 tokens");
  await expect(row.getByRole("link", { name: "source" })).toHaveAttribute("href", /^https:\/\/github\.com\/modelscope\/ms-swift\/blob\/\w+\//);

  await page.getByLabel("What was measured").selectOption("driver");
  await page.locator("#proof-software").selectOption("unsloth");
  await expect(gist(page)).toContainText("no run has this figure under these filters");
  await expect(table(page)).toBeHidden();
});

test("no run that fails was said to fit", async ({ headroom, page }) => {
  await headroom.open("#v=1&view=accuracy");
  const matrix = page.getByRole("table", { name: "Verdicts by what the runs do" });
  await expect(matrix.getByRole("columnheader")).toHaveText(["The run", "Fits", "Close", "Tight", "Does not fit"]);
  const sum = (place) => runs.reduce((total, run) => total + Number(run.verdicts.split(" ")[place]), 0);
  const fails = matrix.getByRole("row", { name: /^It fails/ });
  await expect(fails.getByRole("cell").first()).toHaveText("0");
  await expect(fails.getByRole("cell").last()).toHaveText(sum(11).toLocaleString("en"));
});

test("runs on real GPUs are looked at alone", async ({ headroom, page }) => {
  await headroom.open("#v=1&view=accuracy");
  await page.getByLabel("Measured on").selectOption("card");
  const own = errors("allocated", runs.filter((run) => !run["measured on"].startsWith("null device")));
  expect(own.length).toBeGreaterThan(50);
  await expect(gist(page)).toContainText(`Allocated peak, ${own.length.toLocaleString("en")} runs`);
});

test("a row opens its run, which then says what the row predicts", async ({ headroom, page }) => {
  await headroom.open("#v=1&view=accuracy");
  const row = table(page).getByRole("row").nth(1);
  const predicted = await row.getByRole("cell").nth(1).innerText();
  await row.getByRole("button").click();
  await expect(headroom.verdict).toContainText(`${predicted} allocated`);
  await expect(page.getByText("It is this scenario: nothing differs.")).toBeVisible();
  await page.keyboard.press("Control+z");
  await expect.poll(() => headroom.link().has("m")).toBe(false);
});

test("every scenario has its nearest measured run, with what differs and its error", async ({ headroom, page }) => {
  await headroom.open("#v=1&view=accuracy&b=3&r=32");
  const nearest = page.getByRole("table", { name: "The nearest measured run, measured and predicted" });
  await expect(nearest.getByRole("row", { name: /^Allocated peak/ })).toContainText(/\d\sGiB.*\d\sGiB.*\d\.\d\d\s%/s);
  const differs = page.getByRole("table", { name: "What differs between this scenario and the nearest measured run" });
  await expect(differs.getByRole("row", { name: /^Micro-batch size/ })).toContainText("3");
  await page.getByRole("button", { name: "Compare with it" }).click();
  await expect(page.getByRole("table", { name: "Inputs in which the scenarios differ" })).toBeVisible();
  await headroom.view("Accuracy");
  await expect(page.getByText("It is this scenario: nothing differs.")).toBeVisible();
});

test("misses without a cause are counted", async ({ headroom, page }) => {
  await headroom.open("#v=1&view=accuracy");
  await page.getByLabel("What was measured").selectOption("reserved");
  const misses = runs.filter((run) => run.reserved && Math.abs(run["reserved predicted"] / run.reserved - 1) >= 0.01);
  const unknown = misses.filter((run) => /[Nn]ot found/.test(run.reason));
  await expect(gist(page)).toContainText(`Of the ${misses.length} others ${unknown.length} have no cause`);
});

test("published speeds stand beside the predicted ones", async ({ headroom, page }) => {
  await headroom.open("#v=1&view=accuracy");
  const lines = readFileSync(join(DIST, "speeds.tsv"), "utf8").trimEnd().split("\n").slice(1);
  const speeds = page.getByRole("table", { name: "Published speeds, those on this card first, then those furthest off" });
  const own = lines.map((line) => line.split("\t")).filter((fields) => fields[2] === "rtx-4090");
  const off = own.map((fields) => fields[6] / fields[7] - 1);
  const worst = Math.max(...off.map(Math.abs));
  await expect(speeds.getByRole("row").nth(1)).toContainText(`${(worst * 100).toFixed(2)} %`);
});

test("each compared scenario has its nearest run", async ({ headroom, page }) => {
  await headroom.open("#v=1&m=openai-community/gpt2&b=1&s=128&view=compare");
  await page.getByRole("button", { name: "A copy" }).click();
  const row = page.getByRole("row", { name: /^Nearest measured run/ });
  await expect(row.getByRole("cell")).toHaveText([/%.*peak/, /%.*peak/]);
  await row.getByRole("button").last().click();
  await expect(page.getByRole("heading", { name: "The nearest measured run" })).toBeVisible();
});

test("other calculators stand beside, over the same rows and with their code", async ({ headroom, page }) => {
  const asked = [];
  page.on("request", (request) => asked.push(request.url()));
  await headroom.open();
  expect(asked.filter((url) => url.endsWith("peers.tsv"))).toEqual([]);
  await headroom.view("Accuracy");
  const lines = readFileSync(join(DIST, "peers.tsv"), "utf8").trimEnd().split("\n").map((line) => line.split("\t"));
  const keys = lines.find(([first]) => first === "row");
  const place = keys.indexOf("fitcheck");
  const said = Object.fromEntries(lines.slice(lines.indexOf(keys) + 1).map((cells) => [cells[0], Number(cells[place])]));
  const litgpt = runs.filter((run) => run.source.includes("Lightning-AI/litgpt") && !run.settings.startsWith("full") && said[run.run]);
  const theirs = litgpt.map((run) => Math.abs(said[run.run] / run.allocated - 1) * 100).sort((one, other) => one - other);
  const median = (theirs[theirs.length >> 1] + theirs[(theirs.length - 1) >> 1]) / 2;
  const sources = page.getByRole("table", { name: "Median error by calculator" });
  const row = sources.getByRole("row", { name: /^litgpt .*LoRA/ });
  await expect(row).toContainText(`${median.toFixed(2)} % ${theirs.length} rows, Headroom`);
  expect(asked.filter((url) => url.endsWith("peers.tsv")).length).toBe(1);

  const all = page.getByRole("table", { name: "What each calculator can say, and how far off it is" });
  await expect(all.getByRole("row", { name: /^fitcheck 0\.3\.1/ })).toContainText("the family of the model: 14");
  await expect(all.getByRole("row", { name: /^gpu_poor/ }).getByRole("link", { name: "source" })).toHaveAttribute("href", /github\.com\/RahulSChand\/gpu_poor\/tree\/\w+/);
  const several = page.getByRole("table", { name: "Several GPUs: median errors" });
  await expect(several.getByRole("row", { name: /^SimuMax Allocated peak, full fine-tuning/ })).toContainText("SimuMax");
  await page.getByLabel("File", { exact: true }).selectOption("published");
  await expect(table(page).getByRole("row").nth(1)).toContainText("Other calculators: fitcheck 0.3.1");
});

test("the data can be downloaded, and its absence is said", async ({ headroom, page, problems }) => {
  await headroom.open("#v=1&view=accuracy");
  await expect(page.getByRole("link", { name: "Published, but not predicted, and why" })).toHaveAttribute("href", "unexpressed.tsv");
  await expect(page.getByRole("link", { name: /^Every term/ })).toHaveAttribute("href", "docs/formulas.html");
  const download = page.waitForEvent("download");
  await page.getByRole("link", { name: /^Download the data/ }).click();
  expect((await download).suggestedFilename()).toBe("headroom-measured.tsv");

  await page.route("**/measured.tsv", (route) => route.fulfill({ status: 404 }));
  await page.reload();
  await expect(page.getByRole("alert").filter({ hasText: "is not where this page lies" })).toBeVisible();
  await page.unroute("**/measured.tsv");
  await page.getByRole("button", { name: "Try again" }).click();
  await expect(table(page)).toBeVisible();
  problems.length = 0;
});

test("a point says what it is", async ({ headroom, page }) => {
  await headroom.open("#v=1&view=accuracy");
  await page.getByLabel("File", { exact: true }).selectOption("trl");
  const scatter = page.getByRole("figure", { name: "Predicted against measured" });
  await scatter.scrollIntoViewIfNeeded();
  const { x, y } = await scatter.locator(".points.near").evaluate((path) => {
    const at = path.getPointAtLength(0);
    const box = path.ownerSVGElement.getBoundingClientRect();
    return { x: box.x + at.x, y: box.y + at.y };
  });
  await page.mouse.move(x, y);
  await expect(page.getByText(/^trl-.*: measured .*\sGiB, predicted .*\sGiB, /)).toBeVisible();
});

for (const colorScheme of ["light", "dark"]) {
  for (const width of [390, 1280, 1920]) {
    test.describe(`${width} pixels wide, ${colorScheme}`, () => {
      test.use({ colorScheme, viewport: { width, height: 900 }, reducedMotion: "reduce" });

      test("axe finds nothing, nothing is too wide, and the keyboard reaches all of it", async ({ headroom, page }) => {
        await headroom.open("#v=1&view=accuracy");
        await expect(table(page)).toBeVisible();
        expect(await violations(page)).toEqual([]);
        expect(await overflow(page)).toBeLessThanOrEqual(0);
        await page.getByLabel("What was measured").focus();
        for (const label of ["Measured on", "File", "Training library", "Method of the run", "Family"]) {
          await page.keyboard.press("Tab");
          const field = page.getByRole("group", { name: "Which runs" }).getByLabel(label, { exact: true });
          await expect(field).toBeFocused();
          await expect(field).toBeInViewport();
        }
      });
    });
  }
}
