// Starts the app, whose two files Trunk names in the script element, and then keeps the page for later without a network:
// a version that does not start is one that a newer one must be able to replace.
// Until the app runs nothing on the page takes an input, which would be lost.
document.getElementById("app").inert = true;

/** Milliseconds that a newer version is given to take the place of the older one. */
const PATIENCE = 3000;

const workers = navigator.serviceWorker;
const { js, wasm } = document.querySelector("script[data-wasm]").dataset;
try {
  const app = await import(js);
  await app.default({ module_or_path: wasm });
} finally {
  const registration = await workers?.register("sw.js").catch(() => undefined);
  if (registration) watch(registration);
}

// A newer version is kept beside this one until it is asked for: a page never changes under its visitor's hands.
function watch(registration) {
  const offer = () => {
    const newer = registration.installing ?? registration.waiting;
    const ready = () => {
      if (newer?.state === "installed" && workers.controller) document.getElementById("update").hidden = false;
    };
    newer?.addEventListener("statechange", ready);
    ready();
  };
  registration.addEventListener("updatefound", offer);
  offer();

  let asked = false;
  document.getElementById("take-update").addEventListener("click", () => {
    asked = true;
    // another tab may have taken it already
    if (!registration.waiting) return location.reload();
    registration.waiting.postMessage("update");
    setTimeout(insist, PATIENCE);
  });
  workers.addEventListener("controllerchange", () => {
    if (asked) location.reload();
  });

  // The older worker stays for as long as it answers a request of any tab, in Chromium up to five minutes
  // (w3c/ServiceWorker#1295). Without a worker the newer version comes from the network.
  async function insist() {
    if (!navigator.onLine) return;
    await registration.unregister();
    location.reload();
  }
}
