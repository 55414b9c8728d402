import { readFileSync } from "node:fs";
import { initSync } from "./wasm/headroom_npm.js";

initSync({ module: readFileSync(new URL("./wasm/headroom_npm_bg.wasm", import.meta.url)) });

export * from "./api.js";
