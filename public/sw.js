// Keeps each version of the page as a whole, for those without a network: of a host that is between two versions nothing is kept.
// scripts/offline.js writes the list.
const VERSION = "";
const FILES = [];

// Several pages may share an origin.
const PREFIX = `headroom ${registration.scope} `;
const OWN = PREFIX + VERSION;

addEventListener("install", (event) => {
  if (FILES.length === 0) return skipWaiting();
  const requests = FILES.map(([file, integrity]) => new Request(file, { cache: "no-cache", integrity }));
  event.waitUntil(caches.open(OWN).then((cache) => cache.addAll(requests)));
});

addEventListener("activate", (event) => {
  event.waitUntil(forgetOldVersions().then(() => clients.claim()));
});

// The version before this one stays: an old tab may still ask for its files.
async function forgetOldVersions() {
  const names = (await caches.keys()).filter((name) => name.startsWith(PREFIX) && name !== OWN);
  await Promise.all(names.slice(0, -1).map((name) => caches.delete(name)));
}

addEventListener("message", ({ data }) => {
  if (data === "update") skipWaiting();
});

addEventListener("fetch", (event) => {
  const { request } = event;
  const isOurs = request.url.startsWith(registration.scope);
  if (FILES.length > 0 && request.method === "GET" && isOurs) event.respondWith(answer(request));
});

async function answer(request) {
  const page = request.mode === "navigate" && new URL(request.url).pathname === new URL(registration.scope).pathname;
  const own = await caches.open(OWN);
  const kept = await own.match(page ? "./" : request, { ignoreSearch: true });
  return kept ?? (await caches.match(request, { ignoreSearch: true })) ?? fetch(request);
}
