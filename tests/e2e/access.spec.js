// Everybody can use the page: by keyboard, with a screen reader, in the dark, on a phone.
import { overflow, violations } from "./support/access.js";
import { expect, test } from "./support/test.js";

for (const colorScheme of ["light", "dark"]) {
  test.describe(`in ${colorScheme} colours`, () => {
    test.use({ colorScheme, reducedMotion: "reduce" });

    test("axe finds nothing", async ({ headroom }) => {
      await headroom.open();
      expect(await violations(headroom.page)).toEqual([]);
    });

    test("axe finds nothing in a comparison that does not fit, with an explanation open", async ({ headroom }) => {
      await headroom.open("?v=1&method=full&o=adamw&2.b=8&3.method=lora");
      await headroom.parts.getByRole("button").first().click();
      // what the bars cover in part cannot be hit there
      await headroom.page.evaluate(() => scrollTo(0, 0));
      expect(await violations(headroom.page)).toEqual([]);
    });
  });
}

test("axe finds nothing with a list open and a notice shown", async ({ headroom }) => {
  await headroom.open("?v=1&b=0");
  await headroom.choice("Model").click();
  expect(await violations(headroom.page)).toEqual([]);
});

for (const width of [320, 390, 768, 1280, 1920]) {
  test(`no horizontal scrolling at ${width} pixels`, async ({ headroom, page }) => {
    await page.setViewportSize({ width, height: 800 });
    for (const query of ["", "?v=1&method=full&2.b=8&3.method=lora&4.m=7b"]) {
      await headroom.open(query);
      expect(await overflow(page), `with ${query || "nothing"}`).toBeLessThanOrEqual(0);
    }
  });
}

test("the theme follows the system, can be turned, and is remembered", async ({ headroom, page }) => {
  const background = () => page.evaluate(() => getComputedStyle(document.documentElement).backgroundColor);
  await page.emulateMedia({ colorScheme: "light" });
  await headroom.open();
  const light = await background();
  await page.emulateMedia({ colorScheme: "dark" });
  await expect.poll(background).not.toBe(light);

  await page.getByRole("button", { name: /^Theme/ }).click();
  await expect.poll(background).toBe(light);
  await page.reload();
  await expect(headroom.verdict).toBeVisible();
  expect(await background()).toBe(light);
});

test("a run with the keyboard alone", async ({ headroom, page }) => {
  await headroom.open();
  const before = await headroom.verdict.innerText();

  await tabTo(page, headroom.choice("Model"));
  await page.keyboard.type("qwen2.5 7b");
  await page.keyboard.press("Enter");
  await expect(headroom.choice("Model")).toHaveValue(/Qwen2\.5-7B/);

  await tabTo(page, headroom.choice("Method"));
  await page.keyboard.type("LoRA");
  await expect(headroom.choice("Method")).toHaveValue("lora");

  await tabTo(page, headroom.slider("Micro-batch size"));
  await page.keyboard.press("ArrowRight");
  await tabTo(page, headroom.box("Micro-batch size"));
  await page.keyboard.press("ArrowUp");
  await expect(headroom.box("Micro-batch size")).not.toHaveValue("1");

  const part = headroom.parts.getByRole("button").first();
  await tabTo(page, part);
  await page.keyboard.press("Enter");
  await expect(part).toHaveAttribute("aria-expanded", "true");
  expect(await headroom.verdict.innerText()).not.toBe(before);
});

/** Presses Tab until that element has the focus, and sees that the focus shows. */
async function tabTo(page, target) {
  for (let presses = 0; presses < 120; presses += 1) {
    if (await target.evaluate((element) => element === document.activeElement)) {
      await expect(target).toBeInViewport();
      return;
    }
    await page.keyboard.press("Tab");
  }
  throw new Error("Tab never reaches it");
}
