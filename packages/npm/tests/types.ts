// Compiled, not run: the types know what is right and what is not.
import { estimate, levers, openLink, type Answer, type Scenario } from "headroom-estimator";

const scenario: Scenario = { model: "gpt2", method: "full", "batch-size": 2, "clip-gradients": true };
const answer: Answer = estimate(scenario);
const bytes: number | undefined = answer.peak?.parts.weights;
const again: Answer = estimate(answer.link);
const cheapest: string | undefined = levers(scenario).single[0]?.changes[0]?.label;
const opened: Scenario[] = openLink(answer.link).scenarios;

// @ts-expect-error there is no such method
estimate({ method: "qlorra" });
// @ts-expect-error there is no such key
estimate({ modell: "gpt2" });

export { bytes, again, cheapest, opened };
