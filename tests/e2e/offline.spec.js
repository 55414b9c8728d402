// The page without a network, and a newer version of it.
import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { DIST, expect, test } from "./support/test.js";
import { serve } from "./support/server.js";

test.use({ serviceWorkers: "allow" });

const kept = (page) => page.evaluate(() => navigator.serviceWorker.ready.then((found) => found.active.state));

test("after one visit the page works without a network", async ({ headroom, page, context }) => {
  await headroom.open();
  await kept(page);
  await context.setOffline(true);
  await page.reload();
  await expect(headroom.verdict).toContainText("PyTorch reserves");
  await headroom.box("Micro-batch size").fill("64");
  await expect(headroom.verdict).toContainText("Does not fit");
  await context.setOffline(false);
});

test("it can be installed", async ({ page, request }) => {
  await page.goto(".");
  const manifest = await (await request.get(await page.locator("link[rel=manifest]").getAttribute("href"))).json();
  expect(manifest).toMatchObject({ name: "Headroom", display: "standalone", start_url: "./" });
  for (const icon of manifest.icons) expect((await request.get(icon.src)).ok()).toBe(true);
});

test("a newer version waits until it is asked for, and then comes as a whole", async ({ headroom, page, context, problems }) => {
  const folder = mkdtempSync(join(tmpdir(), "headroom-"));
  cpSync(DIST, folder, { recursive: true });
  const server = await serve(folder);
  const change = (name, from, to) => {
    const path = join(folder, name);
    writeFileSync(path, readFileSync(path, "utf8").replace(from, to));
  };
  await headroom.open(server.url);
  await kept(page);
  change("index.html", /<html /, '<html data-deploy="2" ');
  change("sw.js", /const VERSION = "/, 'const VERSION = "2');
  await page.evaluate(() => navigator.serviceWorker.ready.then((found) => found.update()));

  const offer = page.getByRole("status").filter({ hasText: "A newer version" });
  await expect(offer).toBeVisible();
  const old = await context.newPage();
  await old.goto(server.url);
  await expect(old.locator("html")).not.toHaveAttribute("data-deploy", "2");
  await expect(old.locator("html")).toHaveAttribute("data-state", "ready");

  await offer.getByRole("button", { name: "Reload" }).click();
  await expect(page.locator("html")).toHaveAttribute("data-deploy", "2");
  await expect(page.locator("html")).toHaveAttribute("data-state", "ready");
  // The tab that was left open still works.
  await new headroom.constructor(old).box("Micro-batch size").fill("64");
  await expect(new headroom.constructor(old).verdict).toContainText("Does not fit");
  // Its host is another than that of the other tests.
  problems.splice(0, problems.length, ...problems.filter((problem) => !problem.includes(server.url)));
  server.close();
  rmSync(folder, { recursive: true });
});
