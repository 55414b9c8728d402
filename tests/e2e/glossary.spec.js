// The field's words say what they mean: by pointer, by keyboard, by touch.
import { expect, test } from "./support/test.js";

const footer = (page) => page.locator(".page-footer");
const meaning = (page) => footer(page).getByRole("note").filter({ visible: true });

test("a word is explained while a pointer rests on it, and the explanation can be reached", async ({ headroom, page }) => {
  await headroom.open();
  const word = footer(page).getByRole("button", { name: "ZeRO", exact: true });
  await word.hover();
  await expect(meaning(page)).toContainText("DeepSpeed’s sharding".replace("’", "'"));
  await meaning(page).hover();
  await expect(meaning(page)).toBeVisible();
  await page.keyboard.press("Escape");
  await expect(meaning(page)).toHaveCount(0);
  await page.mouse.move(0, 0);
  await word.hover();
  await expect(meaning(page)).toHaveCount(1);
  await page.mouse.move(0, 0);
  await expect(meaning(page)).toHaveCount(0);
});

test("the keyboard opens and closes it", async ({ headroom, page }) => {
  await headroom.open();
  const word = footer(page).getByRole("button", { name: "FSDP2", exact: true });
  await word.focus();
  await page.keyboard.press("Enter");
  await expect(meaning(page)).toContainText("gathers a layer while it runs");
  await page.keyboard.press("Escape");
  await expect(meaning(page)).toHaveCount(0);
});

test("a finger opens it", async ({ browser, server }) => {
  const context = await browser.newContext({ hasTouch: true, isMobile: true, viewport: { width: 390, height: 844 }, serviceWorkers: "block" });
  const page = await context.newPage();
  await page.goto(server.url);
  await expect(page.locator("html")).toHaveAttribute("data-state", "ready");
  await footer(page).getByRole("button", { name: "DDP", exact: true }).tap();
  await expect(meaning(page)).toContainText("every GPU has the whole model");
  await expect(meaning(page)).toBeInViewport({ ratio: 1 });
  await context.close();
});

test("words in an explanation are explained too", async ({ headroom, page }) => {
  await headroom.open();
  await headroom.button("How we know").click();
  const known = page.locator("#how-we-know");
  await known.getByRole("button", { name: "allocated", exact: true }).first().click();
  await expect(known.getByRole("note").filter({ visible: true })).toContainText("torch.cuda.memory_allocated()");
  await expect(known).toBeVisible();
});
