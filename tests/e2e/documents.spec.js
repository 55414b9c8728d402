// The documents beside the page: every link of theirs leads somewhere, and they can be read on a phone and in the dark.
import { existsSync, readFileSync, readdirSync } from "node:fs";
import { dirname, join } from "node:path";
import { overflow, violations } from "./support/access.js";
import { DIST, expect, test } from "./support/test.js";

const DOCUMENTS = join(DIST, "docs");
const documents = readdirSync(DOCUMENTS);
const contents = (path) => readFileSync(path, "utf8");

/** What is asked for by a document's links, as files and the anchors in them; those to other sites left out. */
const links = (name) =>
  [...contents(join(DOCUMENTS, name)).matchAll(/(?:href|src)="([^":]+)"/g)].map(([, address]) => {
    const [path, anchor] = address.split("#");
    const file = path.endsWith("/") ? `${path}index.html` : path;
    return { file: path ? join(DOCUMENTS, file) : join(DOCUMENTS, name), anchor };
  });

test("every link of a document leads somewhere", () => {
  expect(documents).toContain("formulas.html");
  for (const name of documents) {
    for (const { file, anchor } of links(name)) {
      expect(existsSync(file), `${name}: ${file}`).toBe(true);
      if (anchor) expect(contents(file), `${name}: #${anchor}`).toContain(`id="${anchor}"`);
    }
  }
});

test("every document is listed", () => {
  const listed = links("index.html").filter(({ file }) => dirname(file) === DOCUMENTS);
  for (const name of documents) expect(listed.map(({ file }) => file)).toContain(join(DOCUMENTS, name));
});

test("a part leads to its formula", async ({ headroom, page, context }) => {
  await headroom.open("#v=1");
  await headroom.parts.getByRole("button", { name: /^Saved activations/ }).click();
  const opened = context.waitForEvent("page");
  await page.getByRole("link", { name: "Its formula, source and known error" }).click();
  const document = await opened;
  await expect(document.getByRole("heading", { name: "Saved activations" })).toBeInViewport();
});

for (const colorScheme of ["light", "dark"]) {
  for (const width of [320, 1280]) {
    test(`documents are read ${width} pixels wide, ${colorScheme}`, async ({ page }) => {
      await page.emulateMedia({ colorScheme });
      await page.setViewportSize({ width, height: 900 });
      for (const name of ["index", "formulas", "parallel"]) {
        await page.goto(`docs/${name}.html`);
        expect(await violations(page)).toEqual([]);
        expect(await overflow(page)).toBeLessThanOrEqual(0);
      }
    });
  }
}
