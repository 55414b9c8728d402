// Loads the rest of the page's code. Written into the glue of wasm-bindgen by `scripts/pack`, which fills in its address.

const headroomRest = (() => {
  const address = new URL(REST, import.meta.url).href;
  let front, imports, coming;
  // Milliseconds between two attempts.
  let pause = 1000;
  const wanted = () => ({ ...imports, front });
  const arrived = () => {
    front.is_rest_here.value = 1;
    document.documentElement.removeAttribute("data-part");
    // Later: the page may be in the middle of a call.
    setTimeout(() => dispatchEvent(new Event("headroom-whole")));
  };

  /** Starts loading, once; after a failure it is tried again in a while, or as soon as somebody needs it. */
  const load = () =>
    (coming ??= fetch(address)
      .then((response) => (response.ok ? response.arrayBuffer() : Promise.reject(response.status)))
      .then((bytes) => front.is_rest_here.value || WebAssembly.instantiate(bytes, wanted()).then(arrived))
      .catch(() => {
        coming = undefined;
        setTimeout(load, (pause *= 2));
      }));

  return {
    /** Called between the instantiation of the front and its start. A link may name any model: it waits for all. */
    begin(exports, given) {
      [front, imports] = [exports, given];
      if (location.search) return load();
      // After the first paint.
      requestAnimationFrame(() => setTimeout(load));
    },

    /** Called where a function of the rest is needed before it came: rare, for it follows the first paint. */
    need() {
      const request = new XMLHttpRequest();
      request.open("GET", address, false);
      // One character for each byte.
      request.overrideMimeType("text/plain; charset=x-user-defined");
      try {
        request.send();
        const bytes = Uint8Array.from(request.responseText, (c) => c.charCodeAt(0));
        new WebAssembly.Instance(new WebAssembly.Module(bytes), wanted());
        arrived();
      } catch (error) {
        document.documentElement.dataset.state = "unloaded";
        throw error;
      }
    },
  };
})();
