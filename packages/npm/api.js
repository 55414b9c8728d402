// What the package offers, over the compiled part (`src/lib.rs`), which takes and gives text.
import * as core from "./wasm/headroom_npm.js";

/** The scenario as the compiled part reads it: a share link is opened first. */
const text = (scenario) => JSON.stringify(typeof scenario === "string" ? opened(scenario) : (scenario ?? {}));

/** The first scenario of a link of which everything could be followed. */
const opened = (link) => {
  if (!link.includes("=")) throw new Error(`"${link}" is no share link (a model is given by its key: { model: "${link}" })`);
  const { scenarios, notices } = openLink(link);
  if (notices.length > 0) throw new Error(notices.join("; "));
  return scenarios[0];
};

export const estimate = (scenario) => JSON.parse(core.estimate(text(scenario)));
export const levers = (scenario) => JSON.parse(core.levers(text(scenario)));
export const read = (configuration, over) => JSON.parse(core.read_configuration(configuration, text(over)));
export const openLink = (link) => JSON.parse(core.open_link(link));
