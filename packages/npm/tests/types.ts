// Compiled, not run: the types know what is right and what is not.
import { estimate, levers, openLink, read, type Answer, type Scenario } from "headroom-estimator";

const scenario: Scenario = { model: "gpt2", method: "full", "batch-size": 2, "clip-gradients": true };
const answer: Answer = estimate(scenario);
const bytes: number | undefined = answer.peak?.parts.weights;
const again: Answer = estimate(answer.link);
const cheapest: string | undefined = levers(scenario).single[0]?.changes[0]?.label;
const opened: Scenario[] = openLink(answer.link).scenarios;
const understood: Scenario = read("base_model: gpt2", scenario).scenario;
const said: string | undefined = read("base_model: gpt2").not_understood[0]?.said;

// @ts-expect-error there is no such method
estimate({ method: "qlorra" });
// @ts-expect-error there is no such key
estimate({ modell: "gpt2" });

export { bytes, again, cheapest, opened, understood, said };
