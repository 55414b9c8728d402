// "Which micro-batch, how much accumulation?": an effective batch size, reached on the scenario's card and on usual ones.
import { expect, test } from "./support/test.js";

const table = (headroom) => headroom.page.getByRole("table", { name: "Micro-batch and accumulation by card" });

/** Waits for every card. */
async function filled(headroom) {
  await expect(table(headroom)).toHaveAttribute("aria-busy", "false", { timeout: 180_000 });
}

test("an effective batch is reached on every card that runs it, and a click opens it", async ({ headroom }) => {
  await headroom.open("#v=1&view=plan&gpu=rtx-4090");
  await headroom.ask("Batch");
  await filled(headroom);
  const rows = table(headroom).getByRole("row");
  await expect(rows.nth(1)).toContainText("RTX 4090");
  expect(await rows.count()).toBeGreaterThanOrEqual(9);
  await headroom.box("Effective batch size").fill("64");
  await headroom.expectLink("effective", "64");
  await filled(headroom);
  const chosen = rows.nth(1).getByRole("button");
  const product = async () => {
    const [, batch, passes] = (await chosen.innerText()).match(/(\d+) a pass × (\d+)/);
    return Number(batch) * Number(passes);
  };
  await expect.poll(product).toBe(64);
  const [, batch, passes] = (await chosen.innerText()).match(/(\d+) a pass × (\d+)/);
  await chosen.click();
  await expect(headroom.box("Micro-batch size")).toHaveValue(batch);
  await headroom.expectLink("ga", passes);
  await expect(headroom.verdict).toContainText(/Fits|Close/);
});

test("a link keeps the effective batch, and nonsense in it is told and the usual one", async ({ headroom }) => {
  await headroom.open("#v=1&view=plan&effective=128");
  await expect(headroom.box("Effective batch size")).toHaveValue("128");
  await headroom.open("#v=1&view=plan&effective=-3");
  await headroom.ask("Batch");
  await expect(headroom.box("Effective batch size")).toHaveValue("32");
  await expect(headroom.page.getByText("effective=-3 is not understood")).toBeVisible();
});

test("where not even one sequence runs the table says so", async ({ headroom }) => {
  await headroom.open("#v=1&view=plan&m=meta-llama/Llama-3.1-8B&method=full&gpu=rtx-3060-12gb");
  await headroom.ask("Batch");
  await filled(headroom);
  await expect(headroom.page.getByText("Not even one sequence runs on the")).toBeVisible();
  await expect(table(headroom).getByRole("row").nth(1)).toContainText("none");
});
