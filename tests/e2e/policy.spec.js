// The page's own policy: nothing but its files runs, and it talks to nobody but its host and the Hub.
import { expect, test } from "./support/test.js";

test("no script and no style stands in the page", async ({ request }) => {
  const html = await (await request.get(".")).text();
  expect(html).toContain("Content-Security-Policy");
  expect(html).not.toMatch(/<style|\sstyle=|\son\w+=|<script(?![^>]*\ssrc=)/);
});

test("what is put into the page from elsewhere does not run, and reaches nobody", async ({ headroom, page, problems }) => {
  await headroom.open();
  const ran = await page.evaluate(async () => {
    const script = document.createElement("script");
    script.textContent = "window.ran = true";
    document.body.append(script);
    const image = document.createElement("div");
    image.innerHTML = '<img src="missing.png" onerror="window.ran = true">';
    document.body.append(image);
    const reached = await fetch("https://example.org/").then(() => true, () => false);
    return [window.ran ?? false, reached];
  });
  expect(ran).toEqual([false, false]);
  expect(problems.join("\n")).toContain("Content Security Policy");
  problems.length = 0;
});

test("a WebAssembly that the page was not built with does not run", async ({ page, problems }) => {
  const other = Buffer.from([0x00, 0x61, 0x73, 0x6d, 0x01, 0x00, 0x00, 0x00]);
  await page.route("**/*_bg.wasm", (route) => route.fulfill({ contentType: "application/wasm", body: other }));
  await page.goto(".");
  await expect(page.locator("html")).toHaveAttribute("data-state", "unloaded");
  expect(problems.join("\n")).toContain("is not the file that this page was built with");
  problems.length = 0;
});

test("everything that the page does keeps the policy", async ({ headroom, page }) => {
  await page.addInitScript(() => {
    window.violations = [];
    addEventListener("securitypolicyviolation", ({ violatedDirective, blockedURI }) =>
      window.violations.push(`${violatedDirective} ${blockedURI}`),
    );
  });
  await headroom.open("#v=1&method=full&2.b=8");
  await headroom.parts.getByRole("button").first().click();
  await headroom.choice("Model").click();
  await page.getByRole("button", { name: "Use a config.json or Hub id" }).click();
  await expect(page.getByRole("dialog")).toBeVisible();
  await page.keyboard.press("Escape");
  await headroom.view("Plan");
  await expect(headroom.fits).toHaveAttribute("aria-busy", "false", { timeout: 60_000 });
  expect(await page.evaluate(() => window.violations)).toEqual([]);
});
