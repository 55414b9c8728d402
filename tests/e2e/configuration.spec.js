// A configuration of another project: pasted or dropped, applied, told, taken back.
import { readFileSync } from "node:fs";
import { violations } from "./support/access.js";
import { expect, test } from "./support/test.js";

const AXOLOTL = `base_model: Qwen/Qwen3-8B
adapter: lora
lora_r: 64
micro_batch_size: 4
sequence_len: 4096
optimizer: adamw_bnb_8bit
torch_compile: true
`;

const dialogOf = (page) => page.getByRole("dialog", { name: "Bring your own model or configuration" });

test("what is pasted is applied, told, and taken back", async ({ headroom, page }) => {
  await headroom.open();
  await page.getByRole("button", { name: "Read a training configuration" }).click();
  const dialog = dialogOf(page);
  const text = dialog.getByRole("textbox", { name: "A configuration, a script’s arguments, or a command" });
  await expect(text).toBeFocused();
  await text.fill("hello");
  await dialog.getByRole("button", { name: "Read it" }).click();
  const unknown = dialog.getByText("no configuration that is known here").filter({ visible: true });
  await expect(unknown).toHaveCount(1);

  await text.fill(AXOLOTL);
  await dialog.getByRole("button", { name: "Read it" }).click();
  await expect(unknown).toHaveCount(0);
  await expect(dialog.getByRole("heading", { name: "Axolotl" })).toBeVisible();
  await expect(dialog.getByRole("listitem").filter({ hasText: "torch_compile" })).toContainText("a compiled step is not predicted");
  await expect(dialog.getByRole("listitem").filter({ hasText: "micro_batch_size" })).toContainText("Micro-batch size");
  await expect(dialog.getByText("Assumed, as nothing is said")).toBeVisible();
  expect(await violations(page, "dialog")).toEqual([]);
  await expect.poll(() => headroom.link().get("b")).toBe("4");

  await dialog.getByRole("button", { name: "Take it back" }).click();
  await expect.poll(() => headroom.link().get("b")).toBeNull();
  await dialog.getByRole("button", { name: "Read it" }).click();
  await dialog.getByRole("button", { name: "Show the answer" }).click();
  await expect(dialog).toBeHidden();
  expect(headroom.link().get("r")).toBe("64");
  await headroom.button("Undo").click();
  await expect.poll(() => headroom.link().get("r")).toBeNull();
});

test("a recorded run is dropped, and its figures stand beside the prediction", async ({ headroom, page }) => {
  await headroom.open();
  const text = readFileSync(new URL("../fixtures/measurements/recorded.json", import.meta.url), "utf8");
  const dropped = await page.evaluateHandle((text) => {
    const data = new DataTransfer();
    data.items.add(new File([text], "headroom-record.json"));
    return data;
  }, text);
  await page.dispatchEvent("main", "drop", { dataTransfer: dropped });
  const dialog = dialogOf(page);
  await expect(dialog.getByRole("heading", { name: "A recorded run" })).toBeVisible();
  await dialog.getByRole("button", { name: "Show the answer" }).click();
  const beside = page.getByRole("table", { name: "What the recorded run took, and what is predicted" });
  await expect(beside.getByRole("row").filter({ hasText: "0.0" })).toHaveCount(2);
  await expect.poll(() => headroom.link().get("took")).toBe("allocated:1072002560,reserved:1480589312,driver:1480589312");
  await headroom.button("Undo").click();
  await expect(beside).toBeHidden();
});

test("what is dropped anywhere is recognised", async ({ headroom, page }) => {
  await headroom.open();
  const files = [
    ["run.yaml", AXOLOTL],
    ["fsdp.yaml", "compute_environment: LOCAL_MACHINE\ndistributed_type: MULTI_GPU\nnum_processes: 4\n"],
  ];
  for (const file of files) {
    const dropped = await page.evaluateHandle(([name, text]) => {
      const data = new DataTransfer();
      data.items.add(new File([text], name));
      return data;
    }, file);
    await page.dispatchEvent("main", "drop", { dataTransfer: dropped });
    await expect(dialogOf(page).getByRole("button", { name: "Show the answer" })).toBeVisible();
    await dialogOf(page).getByRole("button", { name: "Close" }).click();
  }
  // the second over the first
  await expect.poll(() => headroom.link().get("gpus")).toBe("4");
  expect(headroom.link().get("r")).toBe("64");
});

test("an out-of-memory message among configurations is read as one", async ({ headroom, page }) => {
  await headroom.open();
  await page.getByRole("button", { name: "Read a training configuration" }).click();
  const dialog = dialogOf(page);
  const message =
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.32 GiB. GPU 0 has a total capacity of 10.00 GiB of which 2.25 GiB is free. " +
    "Of the allocated memory 7.10 GiB is allocated by PyTorch, and 657.89 MiB is reserved by PyTorch but unallocated.";
  await dialog.getByRole("textbox", { name: "A configuration, a script’s arguments, or a command" }).fill(message);
  await dialog.getByRole("button", { name: "Read it" }).click();
  await expect(dialog).toBeHidden();
  await expect(page.locator("#oom-text")).toBeFocused();
  await expect(page.locator("#oom-text")).toHaveValue(message);
  await expect(page.getByRole("heading", { name: "Did it run out of memory? Paste the error" })).toBeVisible();
});

/** Pastes a text where nothing has the focus, or in a box. */
const paste = (page, text, selector = "body") =>
  page.evaluate(
    ([text, selector]) => {
      const clipboardData = new DataTransfer();
      clipboardData.setData("text", text);
      const event = new ClipboardEvent("paste", { clipboardData, bubbles: true, cancelable: true });
      document.querySelector(selector).dispatchEvent(event);
      return event.defaultPrevented;
    },
    [text, selector],
  );

test("what is pasted where nothing is written is read, whatever it is", async ({ headroom, page }) => {
  await headroom.open();
  await paste(page, AXOLOTL);
  const dialog = dialogOf(page);
  await expect(dialog.getByRole("heading", { name: "Axolotl" })).toBeVisible();
  await dialog.getByRole("button", { name: "Show the answer" }).click();
  await headroom.expectLink("b", "4");
  await paste(page, "CUDA out of memory. Tried to allocate 1002.00 MiB. GPU 0 has a total capacity of 23.49 GiB of which 301.00 MiB is free.");
  await expect(page.locator("#oom-text")).toHaveValue(/Tried to allocate/);
  await paste(page, "https://example.org/headroom/#v=1&b=7");
  await headroom.expectLink("b", "7");
  await page.keyboard.press("Escape");
  await paste(page, "hello");
  await expect(dialog.getByText("no configuration that is known here").filter({ visible: true })).toHaveCount(1);
  await page.keyboard.press("Escape");
  // a box keeps what is its own
  expect(await paste(page, "hello", "#seq-length")).toBe(false);
});

test("a text that is far too long does not come into the box", async ({ headroom, page }) => {
  await headroom.open();
  await page.getByRole("button", { name: "Read a training configuration" }).click();
  expect(await paste(page, "x: 1\n".repeat(1_000_000), "#own-settings")).toBe(true);
  await expect(dialogOf(page).getByText("This is more than 1 MB of text").filter({ visible: true })).toHaveCount(1);
});
