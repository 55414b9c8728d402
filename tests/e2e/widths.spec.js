// The page at every width between a phone and a wide screen, in low windows, in forced colours and on paper: nothing stands on
// anything else, and nothing is cut.
import { within } from "./support/access.js";
import { expect, test } from "./support/test.js";

const WIDTHS = [320, 360, 390, 480, 521, 640, 768, 900, 901, 940, 980, 1024, 1080, 1101, 1140, 1200, 1279, 1280, 1366, 1440, 1600, 1920];
/** A sentence of two lines at most widths. */
const LONG = "v=1&task=grpo&m=Qwen/Qwen2.5-7B-Instruct&method=lora&st=trl&gpu=a100-sxm-80gb&gpus=2&s=1536&b=8";

/** What stands on something else of these, or beyond the window's sides. */
const misplaced = (locator) =>
  locator.evaluateAll((elements) => {
    const seen = elements.map((element) => [element.textContent, element.getBoundingClientRect()]).filter(([, { width }]) => width > 0);
    const meet = (one, other) =>
      Math.min(one.right, other.right) - Math.max(one.left, other.left) > 1 && Math.min(one.bottom, other.bottom) - Math.max(one.top, other.top) > 1;
    const beyond = seen.filter(([, box]) => box.left < 0 || box.right > innerWidth).map(([text]) => `${text} is cut`);
    const pairs = seen.flatMap(([text, box], index) => seen.slice(0, index).filter(([, other]) => meet(box, other)).map(([other]) => `${text} on ${other}`));
    return [...beyond, ...pairs];
  });

for (const link of ["v=1", LONG]) {
  test(`figures and sentence have room at every width, ${link.slice(0, 12)}`, async ({ headroom, page }) => {
    await headroom.open(`#${link}`);
    await expect(headroom.verdict).toHaveAttribute("aria-busy", "false");
    await expect(headroom.verdict.getByText("tokens/s")).toBeVisible();
    const sentence = page.getByRole("group", { name: "The scenario in a sentence" });
    const figures = headroom.verdict.locator(".figures :is(dt, b, small), .known > :is(.known-name, b, small, .term)");
    for (const width of WIDTHS) {
      await page.setViewportSize({ width, height: 900 });
      expect(await misplaced(figures), `${width} pixels`).toEqual([]);
      expect(await misplaced(sentence.getByRole("button")), `${width} pixels`).toEqual([]);
      // what stays in sight stays beneath each other, too
      await page.evaluate(() => scrollTo(0, 1000));
      const [above, answer] = await Promise.all([sentence, page.locator("#answer")].map((part) => part.boundingBox()));
      expect(above.y + above.height, `${width} pixels, scrolled`).toBeLessThanOrEqual(answer.y + 1);
      await page.evaluate(() => scrollTo(0, 0));
    }
  });
}

test("what is said of a moment is in sight of who points at it, and the chart stays where it is", async ({ headroom, page }) => {
  await headroom.open("#v=1&view=timeline");
  const chart = page.getByRole("slider", { name: "Moment of the step" });
  await expect(headroom.verdict).toHaveAttribute("aria-busy", "false");
  for (const width of [1280, 390]) {
    await page.setViewportSize({ width, height: 900 });
    await chart.hover({ position: { x: 150, y: 100 } });
    const told = page.locator("#moment .moment-head");
    await expect(told).toContainText(/(makes|frees) [\w.: -]+/);
    expect(await within(told), `${width} pixels`).toBe(true);
    const [text, drawn] = await Promise.all([told, chart].map((part) => part.boundingBox()));
    expect(text.y + text.height).toBeLessThanOrEqual(drawn.y + 1);
    await page.mouse.move(1, 1);
    await expect(told).toContainText("At the peak");
    expect((await chart.boundingBox()).y).toBe(drawn.y);
  }
});

test("of a low window number, verdict and bar take little", async ({ headroom, page }) => {
  await page.setViewportSize({ width: 640, height: 450 });
  await headroom.open("#v=1&gpu=rtx-3060-12gb");
  await expect(headroom.verdict).toContainText("Does not fit");
  await page.evaluate(() => scrollTo(0, 700));
  const answer = page.locator("#answer");
  for (const part of [answer.locator(".total"), answer.getByText("Does not fit"), answer.locator(".meter")]) expect(await within(part)).toBe(true);
  const { y, height } = await answer.boundingBox();
  expect(y + height).toBeLessThan(110);
});

test("of a wide and low window number, verdict and bar stay in sight", async ({ headroom, page }) => {
  await page.setViewportSize({ width: 1280, height: 620 });
  await headroom.open("#v=1&gpu=rtx-3060-12gb");
  await expect(headroom.verdict).toContainText("Does not fit");
  await page.evaluate(() => scrollTo(0, 600));
  const answer = page.locator("#answer");
  for (const part of [answer.locator(".total"), answer.getByText("Does not fit"), answer.locator(".meter")]) expect(await within(part)).toBe(true);
  const { y, height } = await answer.boundingBox();
  expect(y + height).toBeLessThan(160);
});

for (const width of [540, 768, 1024]) {
  test(`the sentence stays in sight, ${width} wide`, async ({ headroom, page }) => {
    await page.setViewportSize({ width, height: 900 });
    await headroom.open(`#${LONG}`);
    await expect(headroom.verdict).toHaveAttribute("aria-busy", "false");
    await page.evaluate(() => scrollTo(0, 800));
    const sentence = page.getByRole("group", { name: "The scenario in a sentence" });
    await expect.poll(() => within(sentence)).toBe(true);
    const [above, answer] = await Promise.all([sentence, page.locator("#answer")].map((part) => part.boundingBox()));
    expect(Math.abs(above.y + above.height - answer.y)).toBeLessThan(2);
  });
}

test("on a phone the names on the timeline stand beside each other", async ({ headroom, page }) => {
  await page.setViewportSize({ width: 390, height: 844 });
  for (const gpu of ["rtx-4090", "rtx-3060-12gb", "rtx-a4000", "l4", "v100-pcie-16gb"]) {
    await headroom.open(`#v=1&view=timeline&gpu=${gpu}`);
    await expect(page.locator(".timeline .peak-name")).toBeVisible();
    expect(await misplaced(page.locator(".timeline :is(.peak-name, .capacity-name, .reserved-name)")), gpu).toEqual([]);
  }
});

test("in a small frame the view that is asked for is in sight", async ({ headroom, page }) => {
  await page.setViewportSize({ width: 600, height: 400 });
  await headroom.open("#v=1&view=timeline&embed=1");
  const chart = page.locator(".timeline .drawing");
  await expect(chart).toBeVisible();
  expect((await chart.boundingBox()).y).toBeLessThan(300);
});

test("in a small frame there is a chart, and no way to what is not there", async ({ headroom, page }) => {
  await page.setViewportSize({ width: 600, height: 400 });
  await headroom.open("#v=1&gpu=rtx-3060-12gb&embed=1");
  await expect(headroom.chart.locator("rect.part-weights")).toBeVisible();
  expect(await within(headroom.chart.locator("rect.part-weights"))).toBe(true);
  await expect(headroom.button("What to change")).toBeHidden();
});

test("a comparison on a phone breaks between words, and three scenarios have room", async ({ headroom, page }) => {
  await page.setViewportSize({ width: 390, height: 844 });
  await headroom.open("#v=1&2.method=lora&3.method=full&view=compare");
  const table = page.getByRole("table", { name: "Inputs in which the scenarios differ" });
  await expect(table).toContainText("Nearest measured run");
  const broken = await table.getByRole("rowheader").evaluateAll((heads) =>
    heads.flatMap((head) => {
      const text = document.createTreeWalker(head, NodeFilter.SHOW_TEXT).nextNode();
      const words = [...text.data.matchAll(/[^\s-]+/g)];
      const lines = ({ index, 0: word }) => {
        const range = document.createRange();
        range.setStart(text, index);
        range.setEnd(text, index + word.length);
        return range.getClientRects().length;
      };
      return words.filter((word) => lines(word) > 1).map(([word]) => word);
    }),
  );
  expect(broken).toEqual([]);
  expect(await table.evaluate((table) => table.offsetWidth - table.parentElement.clientWidth)).toBeLessThanOrEqual(0);
});

test("forced colours show what is a choice, and which view is open", async ({ headroom, page }) => {
  await page.emulateMedia({ forcedColors: "active" });
  await headroom.open();
  const style = (locator, name) => locator.evaluate((element, name) => getComputedStyle(element)[name], name);
  expect(await style(headroom.choice("Method"), "appearance")).toBe("auto");
  expect(await style(page.getByRole("tab", { name: "Plan" }), "borderBottomWidth")).toBe("0px");
  expect(await style(page.getByRole("tab", { name: "Fit" }), "outlineStyle")).toBe("solid");
});

test("paper has the answer, and nothing to press", async ({ headroom, page }) => {
  await headroom.open("#v=1&gpu=rtx-3060-12gb");
  await expect(page.getByText("Or on a larger card, or several")).toBeVisible();
  await page.emulateMedia({ media: "print" });
  for (const pressed of [page.getByRole("tablist"), page.getByText("Or on a larger card, or several"), page.getByText("Did it run out of memory?")]) {
    await expect(pressed).toBeHidden();
  }
  await expect(headroom.chart).toBeVisible();
  const [sentence, title] = await Promise.all([page.locator(".sentence-bar"), page.getByText("trained (0.5")].map((part) => part.boundingBox()));
  expect(title.y - sentence.y - sentence.height).toBeLessThan(30);
});

test("the filters of the measured runs keep to their lines", async ({ headroom, page }) => {
  await headroom.open("#v=1&view=accuracy");
  for (const name of [/^Only those behind/, /^Only misses/]) {
    const box = page.getByRole("checkbox", { name });
    await expect(box).toBeVisible();
    expect(await box.evaluate((box) => box.closest("label").offsetHeight)).toBeLessThan(40);
  }
});

test("the table of machines is no wider than its room", async ({ headroom, page }) => {
  await headroom.open("#v=1&gpu=rtx-3060-12gb&view=plan");
  const table = page.getByRole("table", { name: "Machines to rent with the cards that hold it" });
  await expect(table.getByRole("row").nth(1)).toBeVisible({ timeout: 120_000 });
  await expect(page.getByRole("table", { name: "Cards by method" })).toHaveAttribute("aria-busy", "false", { timeout: 120_000 });
  expect(await table.evaluate((table) => table.offsetWidth - table.parentElement.clientWidth)).toBeLessThanOrEqual(0);
});

test("what scrolls sideways on the smallest phone shows that it does", async ({ headroom, page }) => {
  await page.setViewportSize({ width: 320, height: 700 });
  await headroom.open("#v=1&view=plan");
  for (const row of [page.getByRole("tablist", { name: "Views" }), page.getByRole("navigation", { name: "Questions" })]) {
    const [more, shade] = await row.evaluate((it) => [it.scrollWidth - it.clientWidth, getComputedStyle(it).backgroundImage]);
    expect(more).toBeGreaterThan(0);
    expect(shade).toContain("linear-gradient");
  }
});
