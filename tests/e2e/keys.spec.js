// What the keyboard alone can do, and the one history of the page.
import { expect, test } from "./support/test.js";

test("keys that work anywhere, and the sheet that lists them", async ({ headroom, page }) => {
  await headroom.open();
  await page.keyboard.press("/");
  await expect(headroom.choice("Model")).toBeFocused();
  await expect(page.getByRole("listbox").getByRole("option").first()).toBeVisible();
  await page.keyboard.press("Escape");
  // what is typed into a box is text
  await page.keyboard.type("d?t");
  await expect(headroom.choice("Model")).toHaveValue("d?t");
  await page.keyboard.press("Escape");
  await headroom.choice("Model").blur();

  await page.keyboard.press("Shift+?");
  const sheet = page.getByRole("dialog", { name: "Keys" });
  await expect(sheet).toContainText("Search a model");
  await page.keyboard.press("d");
  await expect(headroom.button("Remove B")).toBeHidden();
  // keys of one letter can be switched off
  await sheet.getByRole("switch").click();
  await page.keyboard.press("Escape");
  await expect(sheet).toBeHidden();
  await page.keyboard.press("d");
  await page.keyboard.press("Shift+?");
  await expect(sheet).toBeVisible();
  await sheet.getByRole("switch").click();
  await page.keyboard.press("Escape");
  await page.keyboard.press("d");
  await expect(headroom.button("Remove B")).toBeVisible();
});

test("the sheet of keys is announced at the bottom of the page", async ({ headroom, page }) => {
  await headroom.open();
  await headroom.button("Keys").click();
  const sheet = page.getByRole("dialog", { name: "Keys" });
  await expect(sheet).toContainText("Read what was copied");
  await page.keyboard.press("Escape");
  await headroom.button("Keys").click();
  await expect(sheet).toBeVisible();
});

test("the way past all that comes before the answer", async ({ headroom, page }) => {
  await headroom.open();
  await page.keyboard.press("Tab");
  await expect(page.getByRole("link", { name: "Skip to the answer" })).toBeFocused();
  await page.keyboard.press("Enter");
  await expect(page.locator("#answer")).toBeFocused();
  expect(new URL(page.url()).hash).not.toContain("answer");
});

test("everything can be undone and done again", async ({ headroom, page }) => {
  await headroom.open();
  const first = await headroom.answer();
  await headroom.choice("Method").selectOption("lora");
  await page.waitForTimeout(1000);
  await headroom.box("Micro-batch size").fill("4");
  await page.waitForTimeout(1000);
  await headroom.page.getByRole("group", { name: "Examples" }).getByRole("button").first().click();
  await expect(headroom.choice("Model")).toHaveValue(/Llama-3\.2-1B/);
  const last = headroom.link();

  await page.keyboard.press("Control+z");
  await expect(headroom.choice("Model")).toHaveValue(/Llama-3\.1-8B/);
  await expect(headroom.box("Micro-batch size")).toHaveValue("4");
  await headroom.box("Micro-batch size").focus();
  await page.keyboard.press("Control+z");
  await expect(headroom.box("Micro-batch size")).toHaveValue("1");
  await headroom.button("Undo the last change").click();
  await expect(headroom.choice("Method")).toHaveValue("qlora");
  await expect(headroom.button("Undo the last change")).toBeDisabled();
  await expect.poll(() => headroom.answer()).toEqual(first);
  await page.keyboard.press("Control+z");
  await expect(page.getByText("Nothing to undo")).toBeVisible();

  for (let step = 0; step < 3; step += 1) await page.keyboard.press("Control+Shift+z");
  await expect(headroom.choice("Model")).toHaveValue(/Llama-3\.2-1B/);
  await expect(headroom.button("Redo the last change")).toBeDisabled();
  await expect.poll(() => headroom.link().toString()).toBe(last.toString());
});

test("the way of a slider is one step back", async ({ headroom, page }) => {
  await headroom.open();
  // at once, as a hand does: on a busy machine the presses of a test are far apart
  await headroom.slider("Sequence length").evaluate((slider) => {
    for (let step = 0; step < 4; step += 1) {
      slider.value = String(Number(slider.value) + 1);
      slider.dispatchEvent(new Event("input", { bubbles: true }));
    }
  });
  await expect(headroom.box("Sequence length")).toHaveValue("8192");
  await page.keyboard.press("Control+z");
  await expect(headroom.box("Sequence length")).toHaveValue("2048");
});

test("two scenarios change places, and that is undone", async ({ headroom, page }) => {
  await headroom.open("#v=1&b=2&2.b=8");
  await headroom.button("Swap B and A").click();
  await headroom.expectLink("b", "8");
  await headroom.expectLink("2.b", "2");
  await page.keyboard.press("Control+z");
  await headroom.expectLink("b", "2");
});
