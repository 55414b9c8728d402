import { defineConfig } from "@playwright/test";

// Chromium otherwise asks its maker's servers for updates, lists and time at every start.
const QUIET = [
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-quic",
  "--disable-sync",
  "--no-first-run",
];
const isRoot = process.getuid?.() === 0;

export default defineConfig({
  testDir: ".",
  outputDir: "test-results",
  fullyParallel: true,
  forbidOnly: !!process.env.CI,
  retries: 0,
  workers: 2,
  timeout: 240_000,
  expect: { timeout: 20_000 },
  reporter: "list",
  use: {
    // The system's browser: none is downloaded. scripts/check finds it and says its name here.
    launchOptions: {
      executablePath: process.env.HEADROOM_CHROMIUM ?? "/usr/bin/chromium",
      args: isRoot ? [...QUIET, "--no-sandbox"] : QUIET,
    },
    viewport: { width: 1280, height: 900 },
    serviceWorkers: "block",
    // `--trace on` asks for one: recording each test takes half as long again as the tests.
    trace: "off",
  },
});
