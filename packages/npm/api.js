// What the package offers, over the compiled part (`src/lib.rs`), which takes and gives text.
import * as core from "./wasm/headroom_npm.js";

/** The scenario as the compiled part reads it: a share link is opened first. */
const text = (scenario) =>
  JSON.stringify(typeof scenario === "string" ? openLink(scenario).scenarios[0] : (scenario ?? {}));

export const estimate = (scenario) => JSON.parse(core.estimate(text(scenario)));
export const levers = (scenario) => JSON.parse(core.levers(text(scenario)));
export const openLink = (link) => JSON.parse(core.open_link(link));
