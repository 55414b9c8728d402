// Within another page: the answer and one view, and the way to all of it.
import { violations } from "./support/access.js";
import { expect, test } from "./support/test.js";

test.use({ viewport: { width: 720, height: 640 } });

for (const colorScheme of ["light", "dark"]) {
  test(`the answer alone, ${colorScheme}`, async ({ headroom, page, context }) => {
    await page.emulateMedia({ colorScheme });
    await headroom.open("#v=1&b=2&view=timeline&embed=1");
    await expect(headroom.verdict).toContainText("Fits");
    await expect(page.getByRole("heading", { name: "Over one step" })).toBeVisible();
    for (const hidden of [page.getByRole("banner"), page.getByRole("form"), page.getByRole("contentinfo"), page.getByRole("tablist")]) {
      await expect(hidden).toBeHidden();
    }
    const found = await violations(page);
    expect(found.filter((found) => !found.startsWith("page-has-heading-one"))).toEqual([]);
    const [whole] = await Promise.all([context.waitForEvent("page"), page.getByRole("link", { name: "Open in Headroom" }).click()]);
    await expect(whole.getByRole("tab", { name: "Timeline" })).toHaveAttribute("aria-selected", "true");
    expect(new URL(whole.url()).hash).toBe("#v=1&b=2&view=timeline");
  });
}

test("the code to embed it is in the menu", async ({ headroom, page, context }) => {
  await context.grantPermissions(["clipboard-read", "clipboard-write"]);
  await headroom.open("#v=1&b=2&view=plan");
  await headroom.button("Export").click();
  await headroom.button("Copy code to embed").click();
  await expect(page.getByText("Code copied")).toBeVisible();
  const code = await page.evaluate(() => navigator.clipboard.readText());
  expect(code).toMatch(/^<iframe src="http[^"]+#v=1&amp;b=2&amp;view=plan&amp;embed=1" title="Headroom"/);
});
