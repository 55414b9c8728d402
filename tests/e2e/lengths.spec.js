// "When will it run out?": the lengths of a data set's texts.
import { expect, test } from "./support/test.js";

// The lengths are worked out beside the other tables, on a busy machine in a minute or two.
test.describe.configure({ timeout: 300_000 });

test("lengths that are pasted say what runs out, and a click cuts to what runs", async ({ headroom, page }) => {
  await headroom.open("#v=1&b=4&s=8192&view=plan");
  const panel = page.getByRole("region", { name: /When will it run out/ });
  await panel.getByRole("heading").click();
  const box = panel.getByRole("textbox");
  await box.fill("400x9990 9000x10");
  await expect(panel).toContainText("10,000 texts of 409 tokens", { timeout: 240_000 });
  await expect(panel).toContainText("for 10 of the texts");
  await expect(panel.getByRole("row", { name: /^100 %/ })).toContainText("Does not fit");
  await expect(panel).toContainText("orders of the texts", { timeout: 120_000 });

  await panel.getByRole("button", { name: /^Sequence length/ }).click();
  await expect(panel).toContainText("no order of the texts needs more", { timeout: 240_000 });
  // what was pasted stays
  await expect(box).toHaveValue("400x9990 9000x10");
});

test("a file of lengths is read, and smaller micro-batches run every text", async ({ headroom, page }) => {
  await headroom.open("#v=1&b=4&s=4096&view=plan");
  const panel = page.getByRole("region", { name: /When will it run out/ });
  await panel.getByRole("heading").click();
  const buffer = Buffer.from("400x9990\n9000x10\n");
  await panel.getByLabel("Choose a file").setInputFiles({ name: "lengths.txt", mimeType: "text/plain", buffer });
  await expect(panel.getByRole("textbox")).toHaveValue(/9000x10/);
  await expect(panel).toContainText("every text runs as it is", { timeout: 240_000 });
  await panel.getByRole("button", { name: /^Micro-batch size/ }).click();
  await expect(panel).toContainText("no order of the texts needs more", { timeout: 240_000 });
});

test("what is no length is named, and what was typed stays", async ({ headroom, page }) => {
  await headroom.open("#v=1&view=plan");
  const panel = page.getByRole("region", { name: /When will it run out/ });
  await panel.getByRole("heading").click();
  await panel.getByRole("textbox").fill("512, <img src=x>");
  await expect(panel).toContainText("is no length");
  await expect(panel.getByRole("textbox")).toHaveValue("512, <img src=x>");
});
