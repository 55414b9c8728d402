import init from "./wasm/headroom_npm.js";

await init();

export * from "./api.js";
