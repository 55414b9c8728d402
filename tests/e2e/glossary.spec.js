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

test("a click keeps what the pointer opened, until the pointer leaves", async ({ headroom, page }) => {
  await headroom.open();
  const word = footer(page).getByRole("button", { name: "ZeRO", exact: true });
  await word.hover();
  await expect(meaning(page)).toHaveCount(1);
  await word.click();
  await word.click();
  await expect(meaning(page)).toContainText("DeepSpeed's sharding");
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

test("figures say what they mean in the same way, beside the word and to the end", async ({ headroom, page }) => {
  await headroom.open();
  const meant = headroom.verdict.getByRole("note").filter({ visible: true });
  const figure = headroom.verdict.getByRole("button", { name: "nvidia-smi shows" });
  await figure.hover();
  await expect(meant).toHaveCount(1);
  const [word, told] = [await figure.boundingBox(), await meant.boundingBox()];
  expect(Math.abs(told.y - word.y - word.height)).toBeLessThan(40);
  expect(told.x).toBeLessThan(word.x + word.width);
  expect(told.x + told.width).toBeGreaterThan(word.x);
  expect(await meant.evaluate((box) => box.scrollWidth <= box.clientWidth)).toBe(true);
  await page.mouse.move(0, 0);
  await expect(meant).toHaveCount(0);
  await headroom.verdict.getByRole("button", { name: "Needs", exact: true }).focus();
  await page.keyboard.press("Enter");
  await expect(meant).toContainText(/\w{4}/);
  await page.keyboard.press("Escape");
  await expect(meant).toHaveCount(0);
});

test("a finger opens it", async ({ browser, server }) => {
  const context = await browser.newContext({ hasTouch: true, isMobile: true, viewport: { width: 390, height: 844 }, serviceWorkers: "block" });
  const page = await context.newPage();
  await page.goto(server.url);
  await expect(page.locator("html")).toHaveAttribute("data-state", "ready");
  await footer(page).getByRole("button", { name: "DDP", exact: true }).tap();
  await expect(meaning(page)).toContainText("every GPU has the whole model");
  await expect(meaning(page)).toBeInViewport({ ratio: 1 });
  // a second tap on it does not take it away, one beside it does
  await footer(page).getByRole("button", { name: "DDP", exact: true }).tap();
  await expect(meaning(page)).toHaveCount(1);
  await page.touchscreen.tap(4, 4);
  await expect(meaning(page)).toHaveCount(0);
  await context.close();
});
