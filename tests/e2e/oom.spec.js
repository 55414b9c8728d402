// An out-of-memory error that is pasted: which tensor it was, and what removes it.
import { expect, test } from "./support/test.js";

const MESSAGE =
  "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.32 GiB. GPU 0 has a total capacity of 10.00 GiB of which " +
  "2.25 GiB is free. Of the allocated memory 7.10 GiB is allocated by PyTorch, and 657.89 MiB is reserved by PyTorch but unallocated.";
const LINK = "?v=1&m=Qwen/Qwen2.5-0.5B&method=full&p=amp-bf16&b=8&s=512&gpu=rtx-4090";

test("a pasted error names its tensor and what removes it", async ({ headroom }) => {
  await headroom.open(LINK);
  const panel = headroom.page.getByRole("region", { name: "Did it run out of memory? Paste the error" });
  await panel.getByRole("heading").click();
  await panel.getByRole("textbox").fill(MESSAGE);
  await expect(panel).toContainText("4,096 tokens × 151,936 × 4 bytes (float32)");
  await expect(panel).toContainText("658 MiB that PyTorch had reserved lay unallocated, in pieces");
  await expect(panel.getByRole("table")).toContainText("7.10 GiB");

  // what was pasted stays while one looks elsewhere
  await headroom.page.getByRole("tab", { name: "Plan" }).click();
  await headroom.page.getByRole("tab", { name: "Fit" }).click();
  await expect(panel.getByRole("textbox")).toHaveValue(MESSAGE);

  await panel.getByRole("button", { name: /Loss kernel: Liger fused.*GPU: / }).click();
  await headroom.expectLink("loss", "liger");
});

test("a text without an error says what would be one", async ({ headroom }) => {
  await headroom.open();
  const panel = headroom.page.getByRole("region", { name: "Did it run out of memory? Paste the error" });
  await panel.getByRole("heading").click();
  await panel.getByRole("textbox").fill("my training crashed <img src=x onerror=alert(1)>");
  await expect(panel).toContainText("Tried to allocate");
  await expect(panel.getByRole("textbox")).toHaveValue(/crashed/);
});

test("what nvidia-smi's query prints is read", async ({ headroom }) => {
  await headroom.open();
  const panel = headroom.page.getByRole("region", { name: "Did it run out of memory? Paste the error" });
  await panel.getByRole("heading").click();
  const printed = "memory.used [MiB], memory.total [MiB], memory.free [MiB]\n23012 MiB, 24564 MiB, 1100 MiB\n";
  await panel.getByRole("textbox").fill(printed);
  await expect(panel).toContainText("22.5 GiB");
});
