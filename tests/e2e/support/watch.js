/**
 * Collects what must never happen on the page: console errors and warnings, uncaught exceptions,
 * requests to another origin than `origin`, answers that are not OK.
 */
export function watch(page, origin) {
  const problems = [];
  page.on("console", (message) => {
    // Said where a test keeps the service worker away, so that it cannot answer in a test's place.
    if (message.text() === "Service Worker registration blocked by Playwright") return;
    if (["error", "warning"].includes(message.type())) problems.push(`console ${message.type()}: ${message.text()}`);
  });
  page.on("pageerror", (error) => problems.push(`exception: ${error.message}`));
  page.on("request", (request) => {
    const url = new URL(request.url());
    if (["http:", "https:", "ws:", "wss:"].includes(url.protocol) && url.origin !== origin) {
      problems.push(`third-party request: ${url.href}`);
    }
  });
  page.on("response", (response) => {
    if (response.status() >= 400) problems.push(`answer ${response.status()}: ${response.url()}`);
  });
  return problems;
}
