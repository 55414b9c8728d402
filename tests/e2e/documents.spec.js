// The documents beside the page: every link of theirs leads somewhere, and they can be read on a phone and in the dark.
import { existsSync, readFileSync, readdirSync } from "node:fs";
import { dirname, join } from "node:path";
import { overflow, violations } from "./support/access.js";
import { DIST, expect, test } from "./support/test.js";

const DOCUMENTS = join(DIST, "docs");
const documents = readdirSync(DOCUMENTS).filter((name) => name.endsWith(".html"));
const contents = (path) => readFileSync(path, "utf8");

/** What is asked for by a document's links, as files and the anchors in them; those to other sites left out. */
const links = (name) =>
  [...contents(join(DOCUMENTS, name)).matchAll(/(?:href|src)="([^":]+)"/g)].map(([, address]) => {
    const [path, anchor] = address.split("#");
    const file = path.endsWith("/") ? `${path}index.html` : path;
    return { file: path ? join(DOCUMENTS, file) : join(DOCUMENTS, name), anchor };
  });

test("every link of a document leads somewhere", () => {
  expect(documents).toContain("formulas.html");
  for (const name of documents) {
    for (const { file, anchor } of links(name)) {
      expect(existsSync(file), `${name}: ${file}`).toBe(true);
      if (anchor) expect(contents(file), `${name}: #${anchor}`).toContain(`id="${anchor}"`);
    }
  }
});

test("every document is listed", () => {
  const listed = links("index.html").filter(({ file }) => dirname(file) === DOCUMENTS);
  for (const name of documents) expect(listed.map(({ file }) => file)).toContain(join(DOCUMENTS, name));
});

test("a part leads to its formula", async ({ headroom, page, context }) => {
  await headroom.open("#v=1");
  await headroom.parts.getByRole("button", { name: /^Saved activations/ }).click();
  const opened = context.waitForEvent("page");
  await headroom.parts.getByRole("link", { name: "Its formula, source and known error" }).click();
  const document = await opened;
  await expect(document.getByRole("heading", { name: "Saved activations" })).toBeInViewport();
});

/** The links to the documents that can be seen there; each leads to a section that exists. */
const grounds = async (place) => {
  const found = place.getByRole("link", { name: "Its formula, source and known error" }).filter({ visible: true });
  const addresses = await found.evaluateAll((all) => all.map((link) => link.getAttribute("href")));
  for (const address of addresses) {
    const [file, anchor] = address.split("#");
    expect(anchor, address).toBeTruthy();
    expect(contents(join(DIST, file)), address).toContain(`id="${anchor}"`);
  }
  return addresses;
};

const TRAINING = "#v=1&m=openai-community/gpt2&b=1&s=128";

test("every figure leads to its formula in two clicks", async ({ headroom, page }) => {
  await headroom.open(TRAINING);
  // figures are drawn anew when the run was replayed, and what was open closes
  await expect(headroom.verdict).not.toContainText("…");
  const figures = headroom.verdict.locator("dt button");
  const leads = [];
  for (const figure of await figures.all()) {
    await figure.click();
    const meaning = headroom.verdict.getByRole("note").filter({ visible: true });
    await expect(meaning.getByRole("link", { name: "Its formula, source and known error" })).toBeVisible();
    const [lead, ...more] = await grounds(meaning);
    expect(more).toEqual([]);
    leads.push(lead);
    await page.keyboard.press("Escape");
  }
  expect(leads).toEqual([
    "docs/formulas.html#needs",
    "docs/formulas.html#pytorch-reserves",
    "docs/formulas.html#nvidia-smi-shows",
    "docs/time.html#how-right-it-is",
  ]);
});

/** The questions of a plan, each with the document and the section that its answer rests on. */
const RESTS_ON = {
  "How far can I go?": "formulas.html#the-most-that-fits",
  "How do several GPUs hold it?": "formulas.html#many-gpus",
  "How long?": "time.html#how-right-it-is",
  "How many sequences of what length?": "generate.html#batches-by-contexts",
  "In which format?": "serving.html#weights-by-layout",
  "In which format, how many at once?": "serving.html#weights-by-layout",
  "What can I change?": "formulas.html#changes",
  "What can I train?": "formulas.html#the-most-that-fits",
  "What would rules of thumb say?": "formulas.html#rules-of-thumb",
  "When will it run out? Paste the lengths of your texts": "formulas.html#texts-of-different-lengths",
  "Which card do I need?": "formulas.html#cards-and-prices",
  "Which micro-batch, how much accumulation?": "formulas.html#the-most-that-fits",
  "Which settings?": "formulas.html#settings-in-combination",
};

for (const [task, link] of [
  ["training", TRAINING],
  ["generating", "#v=1&task=generate&m=openai-community/gpt2&method=full&b=1&s=128"],
]) {
  test(`every question of a plan for ${task} leads to its formula and to measured runs`, async ({ headroom, page }) => {
    await headroom.open(`${link}&view=plan`);
    const folded = page.locator(".plan details:not([open]) > summary");
    while ((await folded.count()) > 0) await folded.first().click();
    const panels = page.getByRole("tabpanel").locator(".plan > section").filter({ visible: true });
    await expect(panels.first()).toBeVisible();
    expect(await panels.count()).toBeGreaterThan(6);
    for (const panel of await panels.all()) {
      const question = await panel.getByRole("heading").first().innerText();
      const found = await grounds(panel);
      expect(found, question).toEqual([`docs/${RESTS_ON[question]}`]);
    }
    await panels.last().getByRole("button", { name: "Measured runs like this" }).click();
    await expect(page.getByRole("heading", { name: "The nearest measured run" })).toBeVisible();
  });
}

test("a part of a moment and a comparison lead to their formulas", async ({ headroom, page }) => {
  await headroom.open(`${TRAINING}&view=timeline`);
  await page.getByRole("list", { name: "Parts at this moment" }).getByRole("button", { name: /^Weights/ }).click();
  expect(await grounds(page.locator(".of-moment"))).toEqual(["docs/formulas.html#weights"]);
  await headroom.open(`${TRAINING}&2.b=2&view=compare`);
  expect(await grounds(page.getByRole("tabpanel"))).toContain("docs/formulas.html#needs");
});

test("the card, the parameters, a moment and a message lead to their sections", async ({ headroom, page }) => {
  await headroom.open(TRAINING);
  await page.getByRole("button", { name: "How we know" }).click();
  for (const [words, section] of [
    ["What the card has, and who reported it", "the-cards-memory"],
    ["How parameters are counted", "parameters"],
  ]) {
    const link = page.getByRole("link", { name: words });
    await expect(link).toHaveAttribute("href", `docs/formulas.html#${section}`);
    expect(contents(join(DOCUMENTS, "formulas.html"))).toContain(`id="${section}"`);
  }
  await page.keyboard.press("Escape");
  await page.getByText("Did it run out of memory? Paste the error").click();
  expect(await grounds(page.locator(".oom"))).toEqual(["docs/formulas.html#out-of-memory-messages"]);
  await headroom.open(`${TRAINING}&view=timeline`);
  expect(await grounds(page.getByRole("tabpanel"))).toEqual(["docs/formulas.html#a-moment-of-the-step"]);
});

test("what the card has leads to who reported it", async ({ page }) => {
  await page.goto("docs/formulas.html#the-cards-memory");
  const cards = page.getByRole("link", { name: "gpus.csv" }).first();
  expect(existsSync(join(DOCUMENTS, await cards.getAttribute("href")))).toBe(true);
  await page.getByRole("link", { name: "sources" }).first().click();
  await expect(page.getByRole("heading", { name: "Where the figures come from" })).toBeVisible();
});

test("a speed leads to those measured on its card", async ({ headroom, page }) => {
  await headroom.open("#v=1&view=plan");
  await headroom.ask("Time");
  await page.getByRole("button", { name: "Measured speeds" }).click();
  await expect(page.getByRole("heading", { name: "Every published speed" })).toBeInViewport();
  const speeds = page.getByRole("table", { name: /^Published speeds/ });
  await expect(speeds.getByRole("row").nth(1)).toContainText("rtx-4090");
});

test("the runs behind a measured error are listed", async ({ headroom, page }) => {
  await headroom.open("#v=1&view=accuracy");
  const only = page.getByLabel(/^Only those behind this answer’s error: [\d,]+ runs/);
  const [, count] = (await only.locator("..").innerText()).match(/: ([\d,]+) runs/);
  await only.check();
  await expect(page.locator(".proof-gist")).toContainText(`, ${count} runs: off by`);
});

test("a price leads to its table at a commit", async ({ headroom, page }) => {
  await headroom.open(`${TRAINING}&view=plan`);
  const row = page.getByRole("table", { name: "Machines to rent with the cards that hold it" }).getByRole("row").nth(1);
  await expect(row.getByRole("link", { name: "source" })).toHaveAttribute("href", /^https:\/\/github\.com\/\S+\/tree\/[0-9a-f]{7,}$/);
});

for (const colorScheme of ["light", "dark"]) {
  for (const width of [320, 1280]) {
    test(`documents are read ${width} pixels wide, ${colorScheme}`, async ({ page }) => {
      await page.emulateMedia({ colorScheme });
      await page.setViewportSize({ width, height: 900 });
      for (const name of ["index", "formulas", "parallel"]) {
        await page.goto(`docs/${name}.html`);
        expect(await violations(page)).toEqual([]);
        expect(await overflow(page)).toBeLessThanOrEqual(0);
      }
    });
  }
}
