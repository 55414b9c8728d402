// Up to four scenarios side by side, on one axis, with the difference to the first, all of it in the link.
import { expect, test } from "./support/test.js";

test("a second scenario stands beside the first, with its difference", async ({ headroom }) => {
  await headroom.open();
  await headroom.button("Compare").click();
  await headroom.box("Micro-batch size").fill("8");
  await headroom.box("Micro-batch size").blur();
  await headroom.expectLink("2.b", "8");
  expect(headroom.link().has("b"), "the pinned one stays as it was").toBe(false);

  const heads = headroom.parts.getByRole("columnheader");
  await expect(heads).toContainText([/Part/, /A/, /B/]);
  await expect(headroom.parts.getByRole("row", { name: /^Needed/ })).toContainText(/\+\d/);
  const differs = headroom.page.getByRole("table", { name: "Inputs in which the scenarios differ" });
  await expect(differs.getByRole("row", { name: /Micro-batch size/ })).toContainText(/1.*8/);
});

test("scenarios that differ in a setting without a place of its own say so", async ({ headroom }) => {
  await headroom.open("?v=1&2.dq=off&view=compare");
  const differs = headroom.page.getByRole("table", { name: "Inputs in which the scenarios differ" });
  await expect(differs.getByRole("row", { name: /Double quantisation/ })).toContainText(/On.*Off/);
  await expect(headroom.page.getByRole("button", { name: /Double quantisation Off/ })).toBeVisible();
});

test("a link opens on the scenario that was selected, and speeds stand beside the verdicts", async ({ headroom, page }) => {
  await headroom.open("#v=1&m=Qwen/Qwen3-8B&2.method=lora&view=compare");
  await page.getByRole("group", { name: "Scenarios" }).getByRole("button", { name: /^B/ }).click();
  await headroom.expectLink("selected", "B");
  await page.reload();
  await expect(page.getByRole("group", { name: "Scenarios" }).getByRole("button", { name: /^B/ })).toHaveAttribute("aria-pressed", "true");
  const outcomes = page.getByRole("table", { name: "Inputs in which the scenarios differ" });
  await expect(outcomes.getByRole("row", { name: /^Tokens per second/ })).toContainText(/tokens\/s/);
});

test("parts at different moments are told apart", async ({ headroom, page }) => {
  await headroom.open("#v=1&m=Qwen/Qwen3-8B&method=full&p=amp-bf16&gpu=h100-sxm-80gb&gpus=8&shard=fsdp2&2.shard=zero3&view=compare");
  await expect(page.getByText("Each column of the table is the moment at which that scenario needs most")).toBeVisible();
});

test("four at most, all of them in the link", async ({ headroom, context }) => {
  await headroom.open();
  const sequences = ["1024", "4096", "8192"];
  await headroom.button("Compare").click();
  await headroom.box("Sequence length").fill(sequences[0]);
  for (const sequence of sequences.slice(1)) {
    await headroom.button("Add a copy").click();
    await headroom.box("Sequence length").fill(sequence);
  }
  await headroom.box("Sequence length").blur();
  await expect(headroom.button("Add a copy")).toBeDisabled();
  await headroom.expectLink("4.s", "8192");

  const receiver = new headroom.constructor(await context.newPage());
  await receiver.open(headroom.page.url());
  // all four are looked at closely, one after the other
  await expect.poll(async () => (await receiver.answer()).parts).toBe((await headroom.answer()).parts);
});

test("one can be taken away, and that undone", async ({ headroom }) => {
  await headroom.open("?v=1&2.b=4");
  await headroom.button("Remove B").click();
  await expect(headroom.button("Compare")).toBeVisible();
  await headroom.button("Undo").click();
  await headroom.expectLink("2.b", "4");
});
