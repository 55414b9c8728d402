// Why is this so large? A sentence for each surprising part, with its switch.
import { expect, test } from "./support/test.js";

for (const colorScheme of ["light", "dark"]) {
  test(`what surprises is told, and the switch is pulled, ${colorScheme}`, async ({ headroom, page }) => {
    await page.emulateMedia({ colorScheme });
    await headroom.open("#v=1&gpu=rtx-3060-12gb");
    const notes = page.locator(".notes-list li");
    const prepared = notes.filter({ hasText: "prepare_model_for_kbit_training" });
    await expect(prepared).toContainText(/^\s*3\.9\d\sGiB\s+embed_tokens and lm_head in float32/);
    await expect(notes.filter({ hasText: "logits" })).toContainText("2,048 tokens × 128,256 entries × 4 bytes");
    await prepared.getByRole("button", { name: /^k-bit preparation: Off, −\d/ }).click();
    await headroom.expectLink("prep", "off");
    await expect(headroom.verdict).toContainText("Fits");
    await expect(prepared).toHaveCount(0);
    await page.keyboard.press("Control+z");
    await expect(headroom.verdict).toContainText("Does not fit");
    await expect(prepared).toHaveCount(1);
  });
}
