// What a visitor finds, at three widths and in both themes: the sentence, the answer, the ways in; nothing that axe objects to.
import { overflow, violations, within } from "./support/access.js";
import { expect, test } from "./support/test.js";

for (const colorScheme of ["light", "dark"]) {
  for (const width of [390, 1280, 1920]) {
    test.describe(`${width} pixels wide, ${colorScheme}`, () => {
      test.use({ colorScheme, viewport: { width, height: 800 }, reducedMotion: "reduce" });

      test("the sentence leads to every control, the answer comes first, and what opens can be read", async ({ headroom, page }) => {
        await headroom.open();
        const sentence = page.getByRole("group", { name: "The scenario in a sentence" });
        // where lines break anywhere no dot stands at the end of one
        const dot = width > 520 ? " · " : " ";
        const told = ["Fine-tune Llama-3.1-8B with QLoRA, rank 16 in transformers + PEFT on 1 × GeForce RTX 4090", "2,048 tokens", "batch 1", "All settings"];
        await expect.poll(async () => (await sentence.innerText()).replace(/\s+/g, " ").trim()).toBe(told.join(dot));
        for (const name of ["Model", "Method", "Sequence length", "Micro-batch size"]) {
          await sentence.getByRole("button", { name: new RegExp(`^${name}: `) }).click();
          const control = page.locator(":focus");
          await expect(control).toBeInViewport();
          expect(await control.evaluate((element) => element.labels[0].textContent)).toBe(name);
          await page.keyboard.press("Escape");
          // always in sight; on a phone the verdict is, which leaves more room
          await expect(width > 520 ? sentence : page.locator("#answer")).toBeInViewport();
        }
        // the answer is before the controls where there is no room beside them
        await page.evaluate(() => scrollTo(0, 0));
        const [answer, form] = await Promise.all(
          [page.locator("#answer"), page.getByRole("form", { name: "Scenario" })].map((part) => part.boundingBox()),
        );
        if (width < 900) expect(answer.y).toBeLessThan(form.y);
        else expect(answer.x).toBeGreaterThan(form.x + form.width - 1);

        await sentence.getByRole("button", { name: /^All settings/ }).click();
        await expect(headroom.choice("Optimizer")).toBeVisible();
        // help can be read to its end, wherever its button is
        const help = page.locator("#optimizer-help");
        await headroom.button("Help: Optimizer").click();
        await expect(help).toBeVisible();
        await expect.poll(() => within(help)).toBe(true);
        await help.evaluate((element) => element.scrollTo(0, element.scrollHeight));
        await expect(help.locator("dd").last()).toBeInViewport();
        await page.keyboard.press("Escape");

        await headroom.button("Export").click();
        await expect.poll(() => within(page.locator("#take"))).toBe(true);
        expect(await violations(page)).toEqual([]);
        expect(await overflow(page)).toBeLessThanOrEqual(0);
      });
    });
  }
}

test("the surface holds what most people choose, all else is one step away", async ({ headroom, page }) => {
  await headroom.open("#v=1&o=sgd");
  const form = page.getByRole("form", { name: "Scenario" });
  await expect(form.getByRole("combobox")).toHaveCount(4);
  await expect(form.getByRole("spinbutton")).toHaveCount(4);
  await expect(headroom.button("Optimizer: SGD. Set back to AdamW (fused)")).toBeVisible();
  await headroom.unfold();
  expect(await form.getByRole("combobox").count()).toBeGreaterThan(12);
});

test("boxes are large enough on touch screens, so that iOS does not zoom in", async ({ browser, server }) => {
  const context = await browser.newContext({ hasTouch: true, isMobile: true, viewport: { width: 390, height: 844 }, serviceWorkers: "block" });
  const page = await context.newPage();
  await page.goto(server.url);
  await expect(page.locator("html")).toHaveAttribute("data-state", "ready");
  const sizes = await page.locator("input[type=text], select").evaluateAll((all) => all.map((one) => parseFloat(getComputedStyle(one).fontSize)));
  expect(Math.min(...sizes)).toBeGreaterThanOrEqual(16);
  await context.close();
});

test("with storage blocked the theme still turns, both ways", async ({ headroom, page }) => {
  await page.addInitScript(() => {
    Object.defineProperty(window, "localStorage", {
      get() {
        throw new DOMException("blocked", "SecurityError");
      },
    });
  });
  await page.emulateMedia({ colorScheme: "light" });
  await headroom.open();
  const button = page.getByRole("button", { name: /^Theme/ });
  const background = () => page.evaluate(() => getComputedStyle(document.documentElement).backgroundColor);
  const light = await background();
  await button.click();
  await expect(button).toHaveText(/Dark/);
  await expect.poll(background).not.toBe(light);
  await button.click();
  await expect(button).toHaveText(/Light/);
  await expect.poll(background).toBe(light);
  await button.click();
  await expect(button).toHaveText(/Auto/);
  await expect.poll(background).toBe(light);
});

test("small parts are folded into one row, and every row opens wherever it is clicked", async ({ headroom, page }) => {
  await headroom.open();
  const small = headroom.parts.getByRole("button", { name: /^\d small parts/ });
  await expect(headroom.parts.getByRole("row", { name: /Input tokens/ })).toHaveCount(0);
  await small.click();
  await expect(headroom.parts.getByRole("row", { name: /Input tokens/ })).toBeVisible();
  await headroom.parts.getByRole("row", { name: /^Weights/ }).locator("td.share").click();
  await expect(page.locator("#why-weights")).toBeVisible();
  // the way out is on every row, seen without a pointer
  const chevrons = await headroom.parts
    .locator(".part-row button")
    .evaluateAll((buttons) => buttons.map((button) => getComputedStyle(button, "::after").opacity));
  expect(new Set(chevrons)).toEqual(new Set(["1"]));
});

test("no label lies under the end of the card", async ({ headroom }) => {
  await headroom.open("#v=1&gpu=rtx-3060-12gb");
  await expect(headroom.verdict).toHaveAttribute("aria-busy", "false");
  const crossed = await headroom.chart.locator("svg").evaluate((svg) => {
    const line = svg.querySelector(".capacity").getBoundingClientRect();
    return [...svg.querySelectorAll(".label, .free")]
      .map((label) => label.getBoundingClientRect())
      .filter(({ left, right }) => left < line.right && right > line.left).length;
  });
  expect(crossed).toBe(0);
});

test("a sentence that is wider than the window takes two lines", async ({ headroom, page }) => {
  await page.setViewportSize({ width: 1280, height: 800 });
  await headroom.open("#v=1&task=grpo&m=Qwen/Qwen2.5-7B-Instruct&method=lora&b=8&st=trl&ref=none&mask=padded&gpu=a100-sxm-80gb&gpus=2");
  const sentence = page.getByRole("group", { name: "The scenario in a sentence" });
  await expect(sentence).toContainText("All settings");
  await expect.poll(() => sentence.evaluate((bar) => bar.scrollWidth - bar.clientWidth)).toBeLessThanOrEqual(0);
});
