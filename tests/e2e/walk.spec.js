// Every view and every dialog at three widths, in both themes: nothing that axe objects to, nothing wider than the window. One
// page is opened for each width and walked through; the other theme changes colours alone, and is asked about those.
import { contrast, overflow, violations } from "./support/access.js";
import { expect, test } from "./support/test.js";

/** What is wrong with the page as it stands. */
async function wrong(page) {
  // what is being worked out is pale, and what lies half under the sentence that stays on top is no smaller for it
  await expect(page.locator(".levers[aria-busy=true]")).toHaveCount(0);
  await page.evaluate(() => scrollTo(0, 0));
  const found = await violations(page);
  const over = await overflow(page);
  return over > 0 ? [...found, `${over} pixels wider than the window`] : found;
}

const escape = async (page) => page.keyboard.press("Escape");
const region = (page, name) => page.getByRole("region", { name });

/** Each stop: its name, the way to it from the one before, and the way out of it. */
const STOPS = [
  ["Fit, a part opened to its tensors", openTensors, () => {}],
  [
    "a figure explained",
    async (headroom, page) => {
      await headroom.button("PyTorch reserves").click();
      await expect(page.getByRole("note").filter({ visible: true })).toHaveCount(1);
    },
    (headroom, page) => escape(page),
  ],
  [
    "several GPUs and every example",
    async (headroom, page) => {
      await page.getByText("Or on a larger card, or several").click();
      await page.getByRole("group", { name: "Examples" }).getByRole("button", { name: /more$/ }).click();
    },
    () => {},
  ],
  [
    "an out-of-memory message",
    async (headroom, page) => {
      const panel = region(page, "Did it run out of memory? Paste the error");
      await panel.getByRole("heading").click();
      await panel.getByRole("textbox").fill("CUDA out of memory. Tried to allocate 2.32 GiB.");
      await expect(panel).toContainText(/\d\sGiB/);
    },
    () => {},
  ],
  [
    "all settings and the help of one",
    async (headroom, page) => {
      await headroom.unfold();
      await headroom.button("Help: Optimizer").click();
      await expect(page.locator("#optimizer-help")).toBeVisible();
    },
    (headroom, page) => escape(page),
  ],
  ["a list of models", (headroom) => headroom.choice("Model").click(), (headroom, page) => escape(page)],
  [
    "a model of one's own",
    async (headroom, page) => {
      await headroom.button("Use a config.json or Hub id").click();
      const dialog = page.getByRole("dialog", { name: "Bring your own model" });
      await expect(dialog).toBeVisible();
    },
    (headroom, page) => escape(page),
  ],
  ["the export menu", (headroom) => headroom.button("Export").click(), (headroom, page) => escape(page)],
  [
    "the keys",
    async (headroom, page) => {
      await page.evaluate(() => document.activeElement.blur());
      await page.keyboard.press("Shift+?");
      await expect(page.getByRole("dialog", { name: "Keys" })).toBeVisible();
    },
    (headroom, page) => escape(page),
  ],
  [
    "a word of the glossary",
    async (headroom, page) => {
      await page.locator(".page-footer").getByRole("button", { name: "ZeRO", exact: true }).click();
      await expect(page.locator(".page-footer").getByRole("note").filter({ visible: true })).toHaveCount(1);
    },
    (headroom, page) => escape(page),
  ],
  [
    "Timeline, a part of a moment",
    async (headroom, page) => {
      await headroom.view("Timeline");
      await page.getByRole("slider", { name: "Moment of the step" }).press("ArrowLeft");
      await page.locator("#moment").getByRole("button", { name: /^Weights/ }).click();
      await expect(page.locator("#moment .zoom button").first()).toBeVisible();
    },
    () => {},
  ],
  [
    "Plan, with lengths",
    async (headroom, page) => {
      await headroom.view("Plan");
      const panel = region(page, /When will it run out/);
      await panel.getByRole("heading").click();
      await panel.getByRole("textbox").fill("400x90 900x10");
      await expect(panel).toContainText("100 texts");
    },
    () => {},
  ],
  [
    "Accuracy",
    async (headroom, page) => {
      await headroom.view("Accuracy");
      await expect(page.getByRole("figure").first()).toBeVisible();
    },
    () => {},
  ],
  [
    "Compare",
    async (headroom, page) => {
      await headroom.button("Compare").click();
      await headroom.box("Micro-batch size").fill("8");
      await headroom.view("Compare");
      await expect(page.getByRole("table", { name: "Inputs in which the scenarios differ" })).toBeVisible();
    },
    () => {},
  ],
];

/** From the whole to one tensor, level by level. */
async function openTensors(headroom, page) {
  await headroom.parts.getByRole("button", { name: /^Weights/ }).click();
  const why = page.locator("#why-weights");
  await why.locator(".zoom button").first().click();
  await expect(why.locator(".zoom p").first()).toContainText("bytes");
}

/** Keeps a picture where somebody wants to look at them. */
async function shoot(page, name) {
  const shots = process.env.HEADROOM_SHOTS;
  if (shots) await page.screenshot({ path: `${shots}/${name.replaceAll(/[^a-zA-Z0-9]+/g, "-")}.png`, fullPage: true });
}

for (const width of [390, 1280, 1920]) {
  test.describe(`${width} pixels wide`, () => {
    test.use({ colorScheme: "light", viewport: { width, height: 900 }, reducedMotion: "reduce" });

    test("every view and every dialog, in light and dark", async ({ headroom, page }) => {
      test.setTimeout(400_000);
      await headroom.open("#v=1&gpu=rtx-3060-12gb");
      await expect(headroom.verdict).toHaveAttribute("aria-busy", "false");
      for (const [name, go, leave] of STOPS) {
        await test.step(name, async () => {
          await go(headroom, page);
          expect.soft(await wrong(page), name).toEqual([]);
          await shoot(page, `${width} light ${name}`);
          await page.emulateMedia({ colorScheme: "dark" });
          expect.soft(await contrast(page), `${name}, dark`).toEqual([]);
          await shoot(page, `${width} dark ${name}`);
          await page.emulateMedia({ colorScheme: "light" });
          await leave(headroom, page);
        });
      }
    });
  });
}
