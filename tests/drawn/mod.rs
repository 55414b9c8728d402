//! Scenarios drawn at random over every key, the same ones every time but where `HEADROOM_DRAW_SEED` asks for others, and what must hold of each answer.

pub mod growth;
mod random;

use headroom::estimate;
use headroom::issue::Field;
use headroom::memory::{Category, Iteration};
use headroom::model::catalogue;
use headroom::scenario::keys::{Count, Key, ValueKind, keys};
use headroom::scenario::{Lengths, LoraTargets, ModelChoice, Scenario, Sharding};
use headroom::share;
use headroom::step::Recording;
use random::Random;

/// What one iteration may have of events, which is what bounds the time of an answer (`MOST_EVENTS` of `step/schedule.rs`).
const MOST_EVENTS: usize = 3 << 20;

/// Ranks of Megatron-core.
pub const MEGATRON: [&str; 5] = [
    "st=megatron&method=full&o=adamw&p=amp-bf16-weights&attn=eager&gpus=8&tp=2&shard=dist-opt&gc=on",
    "m=meta-llama/Llama-2-7b-hf&st=megatron&method=full&o=adamw&p=amp-bf16-weights&attn=eager&gpus=16&tp=2&pp=4&shard=dist-opt&gc=off&ga=5",
    "m=meta-llama/Llama-3.2-1B-Instruct&st=megatron&method=full&o=adamw&p=amp-bf16-weights&attn=eager&gpus=4&tp=4&shard=ddp&gc=selective",
    "m=meta-llama/Llama-3.1-8B&st=megatron&method=full&o=adamw&p=amp-bf16-weights&timpl=transformer-engine&attn=cudnn&gpus=8&tp=4&sp=on&shard=dist-opt&gc=off&loss=te",
    "m=meta-llama/Llama-3.2-1B-Instruct&st=megatron&method=full&o=adamw&p=amp-bf16-weights&timpl=transformer-engine&attn=cudnn&gpus=16&tp=2&sp=on&cp=2&pp=2&shard=dist-opt&gc=selective&ga=4",
];

/// From which stream on scenarios are drawn: `HEADROOM_DRAW_SEED`, for others than those of every day.
pub fn first_seed() -> u64 {
    let Ok(text) = std::env::var("HEADROOM_DRAW_SEED") else { return 0 };
    text.parse().unwrap_or_else(|_| panic!("HEADROOM_DRAW_SEED is {text:?} and not a number"))
}

/// Scenarios at random.
pub struct Draw(Random);

impl Draw {
    /// A stream of scenarios of its own for each seed.
    pub fn new(seed: u64) -> Draw {
        Draw(Random::new(seed))
    }

    /// A number below `below`.
    pub fn below(&mut self, below: usize) -> usize {
        self.0.below(below)
    }

    fn of(&mut self, values: &[&'static str]) -> &'static str {
        let value: &&str = self.0.of(values);
        value
    }

    /// A value for a key.
    fn value(&mut self, kind: ValueKind) -> &'static str {
        match kind {
            ValueKind::Model => {
                let entries = catalogue::entries();
                entries[self.below(entries.len())].id
            }
            ValueKind::Teacher => "same",
            ValueKind::Choice(choices) => choices[self.below(choices.len())].slug,
            ValueKind::Targets => {
                let groups = LoraTargets::ALL.iter().filter(|group| **group != LoraTargets::Named);
                let mut names: Vec<_> = groups.map(|group| group.slug()).collect();
                names.extend(["q_proj", "q_proj,v_proj", "up_proj,down_proj"]);
                self.of(&names)
            }
            ValueKind::Count(Count::Rank) => self.of(&["1", "7", "16", "64"]),
            ValueKind::Count(Count::Sequences) => self.of(&["1", "2", "3", "8"]),
            ValueKind::Count(Count::SequencesOrNone) => self.of(&["0", "0", "2"]),
            ValueKind::Count(Count::Texts) => self.of(&["2", "3"]),
            ValueKind::Count(Count::Tokens) => self.of(&["1", "17", "128", "200", "513", "2048"]),
            ValueKind::Count(Count::TokensOrNone) => self.of(&["0", "0", "512", "4096"]),
            ValueKind::Count(Count::PassesOrNone) => self.of(&["0", "0", "2"]),
            ValueKind::Count(Count::Passes) => self.of(&["1", "2", "5"]),
            ValueKind::Count(Count::Gpus) => self.of(&["1", "2", "3", "8"]),
            ValueKind::Count(Count::Elements) => self.of(&["1", "70000", "20000000", "500000000"]),
            ValueKind::Count(Count::ElementsOrNone) => self.of(&["0", "70000", "20000000", "500000000"]),
            ValueKind::Count(Count::Mebibytes) => self.of(&["0", "500", "3000"]),
            ValueKind::Count(Count::Kibibytes) => self.of(&["0", "128", "32768"]),
            ValueKind::Count(Count::Percent) => self.of(&["0", "0", "30"]),
            ValueKind::Count(Count::DatasetTokens | Count::Epochs | Count::Cents) => self.of(&["1", "3"]),
            ValueKind::Count(Count::LayersOrNone) => self.of(&["0", "1", "2"]),
            ValueKind::Count(Count::PicturesOrNone) => {
                self.of(&["0", "0", "0", "0", "0", "0", "0", "1", "2"])
            }
            ValueKind::Count(Count::Pixels) => self.of(&["56", "224", "333"]),
            ValueKind::Count(Count::Frames) => self.of(&["1", "1", "2", "5", "16"]),
            ValueKind::Count(Count::StageOrNone) => self.of(&["0", "0", "1", "2"]),
            ValueKind::Switch => self.of(&["on", "off"]),
            ValueKind::Lengths => self.of(&["equal", "equal", "uniform", "400~300"]),
            ValueKind::Dropout => self.of(&["config", "0", "0.1", "1"]),
            ValueKind::Gpu => {
                self.of(&["t4", "rtx-3060", "a100-sxm-80gb", "rtx-4090", "h100-sxm-80gb", "24GB"])
            }
        }
    }

    /// A scenario that likely has an answer: what runs is drawn first, each choice with what usually goes with it, and then one in
    /// ten of all other keys.
    pub fn likely(&mut self) -> Scenario {
        let mut scenario = Scenario::default();
        let mut what = ["method", "task", "stack", "gpus", "shard", "model"].as_slice();
        if self.below(8) == 0 {
            // of which hardly any draw would have all that it wants
            scenario = share::decode(self.of(&MEGATRON)).scenarios.remove(0);
            what = &[];
        }
        for key in what.iter().filter_map(|name| Key::find(name)) {
            let value = self.value(key.kind());
            if self.below(2) == 0 {
                scenario.change(|scenario| key.read(scenario, value).expect("it is one of the key's values"));
            }
        }
        for key in keys().filter(|key| !what.contains(&key.name) && key.field != Field::Model) {
            let value = self.value(key.kind());
            let one_in = if ["batch-size", "seq-length"].contains(&key.name) { 2 } else { 10 };
            if self.below(one_in) == 0 {
                scenario.change(|scenario| key.read(scenario, value).expect("it is one of the key's values"));
            }
        }
        scenario
    }

    /// A scenario of that model with about a third of its keys drawn: with all of them hardly any would have an answer.
    pub fn scenario_of(&mut self, model: ModelChoice) -> Scenario {
        let mut scenario = Scenario { model, ..Scenario::default() };
        // the step is the same whatever is left of the card, and however much is trained on
        let alters = |key: &&Key| match key.kind() {
            ValueKind::Model | ValueKind::Lengths => false,
            ValueKind::Count(count) => !matches!(
                count,
                Count::Mebibytes | Count::Percent | Count::DatasetTokens | Count::Epochs | Count::Cents
            ),
            ValueKind::Choice(_)
            | ValueKind::Teacher
            | ValueKind::Targets
            | ValueKind::Switch
            | ValueKind::Dropout
            | ValueKind::Gpu => true,
        };
        for key in keys().filter(alters) {
            let value = self.value(key.kind());
            // what goes with few other choices would have most of the rest refused
            let rarely =
                matches!(key.field, Field::Compile | Field::Float8 | Field::Qat | Field::FusedAdapters);
            if self.below(if rarely { 12 } else { 3 }) == 0 {
                key.read(&mut scenario, value).expect("it is one of the key's values");
            }
        }
        scenario
    }

    /// A scenario with about a third of its keys drawn, the model among them.
    pub fn scenario(&mut self) -> Scenario {
        let id = self.value(ValueKind::Model);
        let mut scenario = self.scenario_of(ModelChoice::Catalogue(id.to_owned()));
        let lengths = keys().find(|key| matches!(key.kind(), ValueKind::Lengths)).expect("lengths are a key");
        let value = self.value(ValueKind::Lengths);
        lengths.read(&mut scenario, value).expect("it is one of the key's values");
        scenario
    }
}

/// What is wrong with the answer to a scenario; nothing where it has no figure.
pub fn answers(scenario: &Scenario) -> Option<Vec<String>> {
    let link = share::encode(std::slice::from_ref(scenario));
    let answer = estimate(scenario);
    assert_eq!(answer.memory.is_none(), answer.errors().next().is_some(), "{link}: a figure or an error");
    let memory = answer.memory?;
    let mut wrong = Vec::new();
    let resting: u64 = memory.resting.total().0;
    for iteration in [&memory.first, &memory.steady] {
        for (phase, peak) in &iteration.phases {
            if peak.parts.total() != peak.bytes {
                wrong.push(format!("{link}: parts of the {} are not its peak", phase.label()));
            }
        }
    }
    // The graph of kept outputs holds 4-bit weights as they were gathered (bitsandbytes, autograd/_functions.py, MatMul4Bit:
    // `ctx.tensors`) until the next loss is there; the step gathers those that ZeRO-3 keeps whole once more beside them.
    let gathers_twice = scenario.cluster.sharding == Sharding::Zero3 && scenario.training_loop.keeps_outputs;
    for (phase, peak) in &memory.steady.phases {
        if peak.bytes.0 < resting && !gathers_twice {
            wrong.push(format!("{link}: the {} has less than what rests", phase.label()));
        }
    }
    let (Ok(architecture), Ok(gpu)) = (scenario.architecture(), scenario.gpu()) else { return Some(wrong) };
    if scenario.lengths != Lengths::Equal {
        // a recording has hundreds of batches of other lengths then
        return Some(wrong);
    }
    // of a pipeline the stage whose tensors take most, which need not be the one that reserves most
    let mut scenario = scenario.clone();
    scenario.cluster.layout.stage = memory.rank.map_or(0, |rank| rank.stage);
    // steps of too many events are refused
    let Ok(recording) = Recording::of(&architecture, &scenario, &gpu) else { return Some(wrong) };
    let (_, events) = recording.trace();
    assert!(events.len() < MOST_EVENTS, "{link}: {} events", events.len());
    let [first, later] = recording.iterations();
    wrong.extend(differences(&link, "first", &memory.first, &first));
    wrong.extend(differences(&link, "later", &memory.steady, &later));
    Some(wrong)
}

fn differences(link: &str, name: &str, fast: &Iteration, whole: &Iteration) -> Vec<String> {
    let mut differences = Vec::new();
    let phases = |iteration: &Iteration| iteration.phases.iter().map(|(phase, _)| *phase).collect::<Vec<_>>();
    if phases(fast) != phases(whole) {
        differences.push(format!("{link}: {name} phases are {:?} for {:?}", phases(fast), phases(whole)));
    }
    for (phase, fast) in &fast.phases {
        let (fast, whole) = (*fast, whole.phase(*phase));
        let parts = Category::ALL.into_iter().filter_map(|category| {
            let (fast, whole) = (fast.parts.get(category), whole.parts.get(category));
            (fast != whole).then(|| format!("{} {} for {}", category.slug(), fast.0, whole.0))
        });
        let parts: Vec<String> = parts.collect();
        if fast != whole {
            let (phase, parts) = (phase.label(), parts.join(", "));
            differences
                .push(format!("{link}: {name} {phase}: {} for {} ({parts})", fast.bytes.0, whole.bytes.0));
        }
    }
    differences
}
