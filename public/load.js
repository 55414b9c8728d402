// Starts the app, whose two files Trunk names in the script element, and then keeps the page for later without a network.
// Until it runs nothing on the page takes an input, which would be lost.
document.getElementById("app").inert = true;
const { js, wasm } = document.querySelector("script[data-wasm]").dataset;
const app = await import(js);
await app.default({ module_or_path: wasm });

const workers = navigator.serviceWorker;
const registration = await workers?.register("sw.js").catch(() => undefined);
registration?.addEventListener("updatefound", offer);
if (registration?.waiting) offer();

// A newer version is kept beside this one until it is asked for: a page never changes under its visitor's hands.
function offer() {
  const newer = registration.installing ?? registration.waiting;
  const ready = () => {
    if (newer.state === "installed" && workers.controller) document.getElementById("update").hidden = false;
  };
  newer.addEventListener("statechange", ready);
  ready();
}

let asked = false;
document.getElementById("take-update").addEventListener("click", () => {
  asked = true;
  registration.waiting?.postMessage("update");
});
workers?.addEventListener("controllerchange", () => {
  if (asked) location.reload();
});
