// The `test` of every specification: serves dist/, opens nothing by itself, and fails a test whose page misbehaved.
import { test as base } from "@playwright/test";
import { fileURLToPath } from "node:url";
import { HeadroomPage } from "./page.js";
import { serve } from "./server.js";
import { watch } from "./watch.js";

export { expect } from "@playwright/test";

export const DIST = fileURLToPath(new URL("../../../dist", import.meta.url));

export const test = base.extend({
  server: [
    // Playwright reads a fixture's dependencies from this pattern, empty or not.
    async ({}, use) => {
      const server = await serve(DIST);
      await use(server);
      server.close();
    },
    { scope: "worker" },
  ],

  baseURL: async ({ server }, use) => use(server.url),

  /** What went wrong on the page so far; a test that expects a problem empties it. */
  problems: [
    async ({ page, server }, use) => {
      const problems = watch(page, new URL(server.url).origin);
      await use(problems);
      base.expect(problems, "the page misbehaved").toEqual([]);
    },
    { auto: true },
  ],

  /** The page object; open it with `await headroom.open("?m=…")`. */
  headroom: async ({ page }, use) => use(new HeadroomPage(page)),
});
