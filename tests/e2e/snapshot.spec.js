// A memory snapshot of PyTorch's over the predicted step.
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { overflow, violations } from "./support/access.js";
import { expect, test } from "./support/test.js";

const FILE = fileURLToPath(new URL("../fixtures/snapshots/gpt2-3-layers.pickle", import.meta.url));
// the run that the file was recorded of
const LINK = "#v=1&m=gpt2(model_type:gpt2,n_embd:768,n_head:12,n_layer:3,n_positions:1024,vocab_size:50257)&method=full&p=bf16&o=adamw&b=8&s=512&gc=off&gpu=a100-sxm-40gb";

/** Drops a file anywhere on the page. */
async function drop(page, name, bytes) {
  const transfer = await page.evaluateHandle(
    ([name, bytes]) => {
      const transfer = new DataTransfer();
      transfer.items.add(new File([new Uint8Array(bytes)], name));
      return transfer;
    },
    [name, [...bytes]],
  );
  await page.locator("body").dispatchEvent("drop", { dataTransfer: transfer });
}

const told = (page) => page.getByRole("tabpanel").getByRole("status");

test("a dropped snapshot opens the timeline and lies on the prediction", async ({ headroom, page }) => {
  await headroom.open(LINK);
  await drop(page, "snapshot.pickle", readFileSync(FILE));
  await expect(page.getByRole("tab", { name: "Timeline" })).toHaveAttribute("aria-selected", "true");
  // blocks are predicted, what was asked for was recorded
  await expect(told(page)).toContainText("snapshot.pickle: allocated: 3.18 GiB measured, 3.19 GiB predicted (+0.19 %)");
  await expect(told(page)).toContainText("reserved: 3.39 GiB measured, 3.39 GiB predicted (0.00 %)");
  const figure = page.getByRole("figure", { name: "Over one step" });
  // the line follows the areas: it reaches as high, and as low
  const [line, reserved] = await figure.locator("svg").first().evaluate((svg) =>
    [".measured-line", ".reserved"].map((name) => {
      const { y, height, width } = svg.querySelector(name).getBBox();
      return { y, height, width };
    }),
  );
  expect(line.width).toBeGreaterThan(0.95 * reserved.width);
  expect(line.y).toBeGreaterThan(reserved.y);
  await page.getByRole("button", { name: "First step" }).click();
  await expect(figure.locator(".measured-line")).toHaveCount(0);
  await page.getByRole("button", { name: "Later steps" }).click();
  await expect(figure.locator(".measured-line")).toHaveCount(1);
  // another scenario, another comparison
  await headroom.box("Micro-batch size").fill("4");
  await expect(told(page)).toContainText(/3\.18\sGiB measured, \d.\d+\sGiB predicted \(−\d\d/);
  await page.getByRole("button", { name: "Take it away" }).click();
  await expect(told(page)).toBeEmpty();
  await expect(figure.locator(".measured-line")).toHaveCount(0);
});

test("what is no snapshot is refused with the way to make one", async ({ headroom, page }) => {
  await headroom.open("#v=1&view=timeline");
  for (const [bytes, words] of [
    [Buffer.from("cos\nsystem\n(S'true'\ntR."), "this is no pickled snapshot"],
    [Buffer.from([0x80, 4, 0x5d, 0x2e]), "this pickle is no memory snapshot"],
    [readFileSync(FILE).subarray(0, 5000), "the file ends early"],
    [Buffer.alloc(0), "the file ends early"],
  ]) {
    await drop(page, "a <b>.pkl", bytes);
    await expect(told(page)).toContainText(`a <b>.pkl: ${words}`);
  }
  await expect(headroom.verdict).toContainText("Fits");
});

test("a snapshot can be chosen with the keyboard", async ({ headroom, page }) => {
  await headroom.open(`${LINK}&view=timeline`);
  const input = page.getByLabel("Lay a memory snapshot over it");
  await input.focus();
  await expect(input).toBeFocused();
  await input.setInputFiles(FILE);
  await expect(told(page)).toContainText("gpt2-3-layers.pickle: allocated");
});

for (const colorScheme of ["light", "dark"]) {
  for (const width of [390, 1280, 1920]) {
    test.describe(`${width} pixels wide, ${colorScheme}`, () => {
      test.use({ colorScheme, viewport: { width, height: 900 }, reducedMotion: "reduce" });

      test("axe finds nothing and nothing is too wide", async ({ headroom, page }) => {
        await headroom.open(LINK);
        await drop(page, "snapshot.pickle", readFileSync(FILE));
        await expect(told(page)).toContainText("measured");
        expect(await violations(page)).toEqual([]);
        expect(await overflow(page)).toBeLessThanOrEqual(0);
      });
    });
  }
}
