// Starts the app, whose two files Trunk names in the script element, and then keeps the page for later without a network:
// a version that does not start is one that a newer one must be able to replace.

/** Milliseconds that a first paint is waited for, and that a newer version is given to take the place of the older one. */
const PATIENCE = 3000;

const workers = navigator.serviceWorker;
const { js, wasm, integrity } = document.querySelector("script[data-wasm]").dataset;
try {
  await painted();
  // Until the app runs nothing on the page takes an input, which would be lost. Before the first paint it would style all of the page anew.
  document.getElementById("app").inert = true;
  const [app, compiled] = await Promise.all([import(js), compile(wasm)]);
  await app.default({ module_or_path: compiled });
} finally {
  const registration = await workers?.register("sw.js").catch(() => undefined);
  if (registration) watch(registration);
}

/** When the answer that stands in the page is painted: before that compiling would take the processor from it. Nobody paints a hidden page. */
function painted() {
  return new Promise((done) => {
    setTimeout(done, document.hidden ? 0 : PATIENCE);
    requestAnimationFrame(() => setTimeout(done));
  });
}

/** Compiles the app's wasm as it comes, and holds it against what index.html says of its content before any of it runs. */
async function compile(address) {
  // with `integrity` the preloaded answer would not be used
  const answer = await fetch(address);
  const copy = answer.clone();
  // a server that calls it something else is served too
  const whole = async () => WebAssembly.compile(await answer.arrayBuffer());
  const isWasm = answer.headers.get("content-type") === "application/wasm";
  const compiled = isWasm ? WebAssembly.compileStreaming(answer) : whole();
  await Promise.all([compiled, check(copy)]);
  return compiled;
}

// Without TLS a browser hashes nothing: what is served there can be anybody's anyway.
async function check(answer) {
  if (!integrity || !globalThis.crypto?.subtle) return;
  const hash = new Uint8Array(await crypto.subtle.digest("SHA-256", await answer.arrayBuffer()));
  if (`sha256-${btoa(String.fromCharCode(...hash))}` !== integrity) throw new Error(`${wasm} is not the file that this page was built with`);
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
