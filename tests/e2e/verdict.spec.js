// What the verdict says where memory is not all that decides, and the figures beside it.
import { expect, test } from "./support/test.js";

test("three figures that cannot be confused, and how they are known", async ({ headroom, page }) => {
  await headroom.open();
  await expect(headroom.verdict).toHaveAttribute("aria-busy", "false");
  const figures = headroom.verdict.locator("dl.figures > div");
  await expect(figures.locator("dt")).toHaveText(["Needs", "PyTorch reserves", "nvidia-smi shows", "Speed, roughly"]);
  for (const amount of (await figures.locator("dd b").allInnerTexts()).slice(0, 3)) expect(amount).toMatch(/^\d+\.\d\sGiB$/);
  await headroom.button("How we know").click();
  await expect(page.getByText(/was off by (at most|less than) \d+\.\d\s% (over|in each of) \d+ measured runs/)).toBeVisible();
  await page.keyboard.press("Escape");
  await headroom.button("Help: GiB and GB").click();
  await expect(page.getByText("1 GB = 1,000,000,000 bytes")).toBeVisible();
});

test("a run that would stop is not green, whatever memory there is", async ({ headroom, page }) => {
  await headroom.open("#v=1&m=openai-community/gpt2&method=full&s=2048");
  await expect(headroom.verdict).toHaveAttribute("data-fit", "would-not-run");
  await expect(headroom.verdict).toContainText("Would not run");
  await expect(headroom.verdict).toContainText("The model has an embedding for each of 1,024 positions");
  await expect(headroom.verdict).not.toContainText("to spare");
  await headroom.box("Sequence length").fill("1024");
  await expect(headroom.verdict).toHaveAttribute("data-fit", "fits");
  await expect(page.getByText("PyTorch fails beyond them")).toBeHidden();
});

test("on a Mac nothing is promised, and nobody speaks of CUDA", async ({ headroom }) => {
  await headroom.open("#v=1&gpu=apple-m3-max-36gb");
  await expect(headroom.verdict).toHaveAttribute("data-fit", "not-followed");
  await expect(headroom.verdict).toContainText("Not followed");
  await expect(headroom.verdict).toContainText("Only the tensors are counted");
  await expect(headroom.verdict).not.toContainText(/CUDA|nvidia-smi|PyTorch reserves/);
  await headroom.view("Plan");
  await expect(headroom.page.getByText("By its tensors alone")).toBeVisible();
  await headroom.search("GPU", "rtx 3060 12");
  await expect(headroom.verdict).toHaveAttribute("data-fit", "over");
});

test("a link shows the same verdict in a comparison", async ({ headroom, page }) => {
  await headroom.open("#v=1&m=openai-community/gpt2&method=full&s=2048&2.s=1024&3.gpu=apple-m3-max-36gb");
  await expect(page.getByRole("row", { name: "On its card" })).toHaveText(/Would not run.*Fits.*Would not run/s);
});

test("where there is no answer, what would run instead is a click away", async ({ headroom, page }) => {
  await headroom.open("#v=1&method=full&p=amp-bf16-weights&gpu=a100-sxm-80gb&gpus=8&shard=fsdp2");
  await expect(headroom.verdict).toContainText("No answer");
  await expect(page.getByRole("heading", { name: "What would run instead" })).toBeVisible();
  // it may have been scrolled away under the verdict, which leads there
  await expect(headroom.verdict.getByRole("button", { name: "What would run instead" })).toBeVisible();
  await page.locator(".lever", { hasText: "Precision: bf16 mixed (fp32 weights)" }).click();
  await expect(headroom.verdict).toContainText("on each of the 8 × ");
  await headroom.expectLink("p", "amp-bf16");
});
