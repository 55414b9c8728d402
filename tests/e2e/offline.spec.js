// The page without a network, and a newer version of it.
import { createHash } from "node:crypto";
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

/** The page in a folder of its own. */
async function deployed() {
  const folder = mkdtempSync(join(tmpdir(), "headroom-"));
  cpSync(DIST, folder, { recursive: true });
  const server = await serve(folder);
  const contents = (name) => readFileSync(join(folder, name), "utf8");
  const change = (name, from, to) => writeFileSync(join(folder, name), contents(name).replace(from, to));
  const changePage = () => change("index.html", /<html /, '<html data-deploy="2" ');
  /** Another version, whose list says what the page contains. */
  const changeList = () => {
    const hash = createHash("sha256").update(contents("index.html")).digest("base64");
    change("sw.js", /const VERSION = "/, 'const VERSION = "2');
    change("sw.js", /\["\.\/","sha256-[^"]+"\]/, `["./","sha256-${hash}"]`);
  };
  const close = () => {
    server.close();
    rmSync(folder, { recursive: true });
  };
  return { server, changePage, changeList, close };
}

/** The page in a folder of its own, open in `page`, and a newer version of it, which the page offers. */
async function withNewer({ headroom, page }, use) {
  const { server, changePage, changeList, close } = await deployed();
  await headroom.open(server.url);
  await kept(page);
  changePage();
  changeList();
  await page.evaluate(() => navigator.serviceWorker.ready.then((found) => found.update()));
  const offer = page.getByRole("status").filter({ hasText: "A newer version" });
  await expect(offer).toBeVisible();
  await use({ server, take: () => offer.getByRole("button", { name: "Reload" }).click() });
  close();
}

/** A tab of the version before. */
async function oldTab(context, server) {
  const tab = await context.newPage();
  await tab.goto(server.url);
  await expect(tab.locator("html")).not.toHaveAttribute("data-deploy", "2");
  await expect(tab.locator("html")).toHaveAttribute("data-state", "ready");
  return tab;
}

async function expectNewer(page) {
  await expect(page.locator("html")).toHaveAttribute("data-deploy", "2");
  await expect(page.locator("html")).toHaveAttribute("data-state", "ready");
}

// The host of these is another than that of the other tests.
const forgive = (problems, url) =>
  problems.splice(0, problems.length, ...problems.filter((problem) => !problem.includes(url)));

test("a newer version waits until it is asked for, and then comes as a whole", async ({ headroom, page, context, problems }) => {
  await withNewer({ headroom, page }, async ({ server, take }) => {
    const old = await oldTab(context, server);
    await take();
    await expectNewer(page);
    // The tab that was left open still works.
    await new headroom.constructor(old).box("Micro-batch size").fill("64");
    await expect(new headroom.constructor(old).verdict).toContainText("Does not fit");
    forgive(problems, server.url);
  });
});

test("of a host that is between two versions nothing is kept", async ({ headroom, page, context, problems }) => {
  const { server, changePage, changeList, close } = await deployed();
  await headroom.open(server.url);
  await kept(page);
  // the list is there of a version whose page is not the one that is served
  changeList();
  changePage();
  const installed = page.evaluate(async () => {
    const found = await navigator.serviceWorker.ready;
    const ended = new Promise((resolve) =>
      found.addEventListener("updatefound", () =>
        found.installing.addEventListener("statechange", (event) => resolve(event.target.state)),
      ),
    );
    await found.update();
    return ended;
  });
  expect(await installed).toBe("redundant");
  await context.setOffline(true);
  await page.reload();
  await expect(page.locator("html")).not.toHaveAttribute("data-deploy", "2");
  await expect(headroom.verdict).toContainText("PyTorch reserves");
  await context.setOffline(false);
  forgive(problems, server.url);
  close();
});

test("a newer version comes while the older one still answers another tab", async ({ headroom, page, context, problems }) => {
  await withNewer({ headroom, page }, async ({ server, take }) => {
    const old = await oldTab(context, server);
    await old.evaluate((path) => void fetch(path), server.unanswered);
    await take();
    await expectNewer(page);
    forgive(problems, server.url);
  });
});
