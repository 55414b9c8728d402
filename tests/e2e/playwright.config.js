import { defineConfig } from "@playwright/test";

// Chromium otherwise asks its maker's servers for updates, lists and time at every start.
const QUIET = [
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-quic",
  "--disable-sync",
  "--no-first-run",
];
const LONG = ["walk.spec.js", "lengths.spec.js"];
const isRoot = process.getuid?.() === 0;

export default defineConfig({
  testDir: ".",
  outputDir: "test-results",
  fullyParallel: true,
  forbidOnly: !!process.env.CI,
  // One test stood still for its four minutes beside 257 that passed, and did not again: such a test is run once more, and told as flaky.
  retries: 1,
  workers: 2,
  // What takes minutes begins first: at the end one of the two would wait for it.
  projects: [
    { name: "long", testMatch: LONG },
    { name: "short", testIgnore: LONG },
  ],
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
