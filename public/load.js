// Starts the app. Trunk writes the names of its two files into the script element.
const { js, wasm } = document.querySelector("script[data-wasm]").dataset;
const { default: start } = await import(js);
await start({ module_or_path: wasm });
