//! A key: what is to know about one input of a scenario.

use super::invalid::InvalidValue;
use crate::model::dimensions::SIZES;
use crate::scenario::count::Count;
use crate::scenario::{Choice, Field, Issue, LoraTargets, Method, Scenario};
use crate::units::grouped;

/// What values a key takes, and so which control the page has for it.
#[derive(Clone, Copy, Debug)]
pub enum ValueKind {
    /// A Hub id, a size such as `7b`, or a model of the user's own.
    Model,
    /// The same, or `same` for the model that is trained.
    Teacher,
    /// One of a closed set.
    Choice(&'static [Choice]),
    /// A group of layers or a list of layer names.
    Targets,
    /// A whole number from [`Count::least`] to [`Count::most`].
    Count(Count),
    /// On or off.
    Switch,
    /// `equal`, `uniform`, or a mean and a standard deviation such as `3234~2547`.
    Lengths,
    /// A probability, or `config` for what the config says.
    Dropout,
    /// A card's slug, or an amount of memory such as `24GB`.
    Gpu,
}

/// Inputs that stand together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// What is trained, and on what.
    Model,
    /// Which weights are trained, by whose code.
    Training,
    /// Element types and the optimizer.
    Precision,
    /// The data of one step.
    Batch,
    /// What the trainer evaluates between steps.
    Evaluation,
    /// What happens before, between and after the steps.
    Spikes,
    /// What trades time for memory.
    Savings,
    /// The training loop's habits.
    Loop,
}

impl Group {
    /// Every group, in the order in which they are shown.
    pub const ALL: [Group; 8] = [
        Group::Model,
        Group::Training,
        Group::Precision,
        Group::Batch,
        Group::Evaluation,
        Group::Spikes,
        Group::Savings,
        Group::Loop,
    ];

    /// The name shown to people.
    pub const fn label(self) -> &'static str {
        match self {
            Group::Model => "Model and card",
            Group::Training => "Training",
            Group::Precision => "Precision and optimizer",
            Group::Batch => "Batch",
            Group::Evaluation => "Evaluation",
            Group::Spikes => "Outside the steps",
            Group::Savings => "Save memory",
            Group::Loop => "Training loop",
        }
    }
}

impl Group {
    /// What there is to say of all of it, in a sentence; nothing of most.
    pub const fn help(self) -> Option<&'static str> {
        match self {
            Group::Evaluation => Some(
                "The trainer evaluates after some of its steps, beside weights and optimizer state: with a batch size of its own, 8 unless told otherwise.",
            ),
            Group::Spikes => Some(
                "What a run does between its steps and after the last one, whose memory is not the step’s.",
            ),
            Group::Model
            | Group::Training
            | Group::Precision
            | Group::Batch
            | Group::Savings
            | Group::Loop => None,
        }
    }
}

/// Where an input is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Always, and at the top of the page's form: what a beginner chooses.
    Surface,
    /// Always in an export; under "All settings" in the page's form.
    Front,
    /// Rarely changed: in an export where it is not at its default.
    Folded,
    /// The same, and on the page in the view Plan, beside what follows from it.
    Planned,
}

impl Place {
    /// Whether an export names it whatever its value.
    pub const fn is_always_said(self) -> bool {
        match self {
            Place::Surface | Place::Front => true,
            Place::Folded | Place::Planned => false,
        }
    }
}

/// How a value is read, written and said.
pub struct Value {
    pub(super) kind: ValueKind,
    pub(super) get: fn(&Scenario) -> String,
    pub(super) set: fn(&mut Scenario, &str) -> Result<(), InvalidValue>,
    pub(super) words: fn(&Scenario) -> String,
    pub(super) number: Option<Number>,
}

/// A whole number.
#[derive(Clone, Copy)]
pub(super) struct Number {
    /// Its name in a sentence, after "the".
    pub noun: &'static str,
    pub of: fn(&Scenario) -> u64,
}

/// One input of a scenario.
///
/// A key has two names: the short one is frozen into links, the long one is what people write in files and on the
/// command line. Both are read everywhere.
pub struct Key {
    /// Name in links. Frozen: links that carry it must work for ever.
    pub link: &'static str,
    /// Name in JSON and TOML and, after `--`, on the command line. Frozen too.
    pub name: &'static str,
    /// The name shown to people.
    pub label: &'static str,
    /// One sentence on what it is, without a full stop.
    pub help: &'static str,
    /// The field that issues about this input name.
    pub field: Field,
    /// The inputs that it is shown with.
    pub group: Group,
    /// Where it is shown.
    pub place: Place,
    pub(super) value: Value,
    pub(super) matters: fn(&Scenario) -> bool,
    pub(super) band: fn(&Scenario) -> &'static str,
}

/// What the micro-batch is called where answers are rewarded, and what it is then.
const COMPLETIONS: (&str, &str) = (
    "Micro-batch size (answers)",
    "Answers (completions) in one forward pass, as per_device_train_batch_size has it: those of one prompt are num_generations of them. Activations and logits grow with it",
);

/// What a sequence is where it begins with a prompt that is not learned from.
const PROMPT_AND_ANSWER: (&str, &str) = (
    "Sequence length (prompt and answer)",
    "Tokens of the prompt and its answer together: max_length of trl where answers are given, the prompt and max_completion_length where they are generated. Activations and logits grow with it, attention's work with its square",
);

/// What the micro-batch is called where answers are compared, and what it is then.
const PAIRS: (&str, &str) = (
    "Micro-batch size (pairs)",
    "Pairs of answers in one forward pass, as per_device_train_batch_size has it: two sequences each. Activations and logits grow with it",
);

/// What the method is called where nothing is trained, and what it is then.
const WEIGHTS: (&str, &str) =
    ("Weights", "Whether the weights are quantised, in 4 or 8 bits: what generates trains none");

/// What the rank is called where an optimizer projects gradients, and what it is then.
const PROJECTION_RANK: (&str, &str) = (
    "Projection rank",
    "Onto how many directions GaLore or APOLLO projects the gradients of the target modules: rank in optim_args, 128 where nothing is said",
);

impl Key {
    /// What values it takes.
    pub fn kind(&self) -> ValueKind {
        self.value.kind
    }

    /// The scenario's value as text: equal texts are equal values.
    pub fn write(&self, scenario: &Scenario) -> String {
        (self.value.get)(scenario)
    }

    /// The scenario's value for people.
    pub fn words(&self, scenario: &Scenario) -> String {
        match self.field {
            // what generates has no adapters, but weights that are quantised or not
            Field::Method if !scenario.task.trains() && scenario.method == Method::Qlora => {
                let label = scenario.task.method_label(scenario.method);
                format!("{label} ({})", scenario.quantization.format.label())
            }
            Field::Method => scenario.task.method_label(scenario.method).to_owned(),
            _ => (self.value.words)(scenario),
        }
    }

    /// What it is called under the scenario's other choices, and what is said of it: OFT has blocks, and no rank, GRPO learns from
    /// completions, and DPO from pairs.
    fn named(&self, scenario: &Scenario) -> (&'static str, &'static str) {
        let is_rank = self.field == Field::LoraRank;
        let own = match scenario.projects() {
            true => Some(PROJECTION_RANK),
            false => scenario.lora.tuner.own_size(),
        };
        let counted = match scenario.task {
            task if task.is_online() => Some(COMPLETIONS),
            task if task.has_pairs() => Some(PAIRS),
            _ => None,
        };
        let is_batch = self.field == Field::Batch;
        let is_length = self.field == Field::Sequence && scenario.task.has_answers();
        let named = own.filter(|_| is_rank).or(counted.filter(|_| is_batch));
        let named = named.or(is_length.then_some(PROMPT_AND_ANSWER));
        let has_weights_alone = self.field == Field::Method && !scenario.task.trains();
        let named = named.or(has_weights_alone.then_some(WEIGHTS));
        named.unwrap_or((self.label, self.help))
    }

    /// Its label under the scenario's other choices.
    pub fn label_for(&self, scenario: &Scenario) -> &'static str {
        self.named(scenario).0
    }

    /// What it is under the scenario's other choices, in a sentence without a full stop.
    pub fn help_for(&self, scenario: &Scenario) -> &'static str {
        self.named(scenario).1
    }

    /// Its label for several scenarios: the one under which it makes a difference to all of them, if there is one.
    pub fn label_among<'a>(&self, scenarios: impl IntoIterator<Item = &'a Scenario>) -> &'static str {
        let mut labels = scenarios.into_iter().filter(|one| self.matters(one)).map(|one| self.label_for(one));
        let first = labels.next().unwrap_or(self.label);
        if labels.all(|label| label == first) { first } else { self.label }
    }

    /// Whether the value makes a difference under the scenario's other choices: the rank of adapters does not where there
    /// are none.
    pub fn matters(&self, scenario: &Scenario) -> bool {
        (self.matters)(scenario)
    }

    /// Whether both scenarios have the same value.
    pub fn is_same(&self, scenario: &Scenario, other: &Scenario) -> bool {
        self.write(scenario) == self.write(other)
    }

    /// Whether the value makes a difference and is another than by default.
    pub fn is_changed(&self, scenario: &Scenario, defaults: &Scenario) -> bool {
        self.matters(scenario) && !self.is_same(scenario, defaults)
    }

    /// Sets the value that another scenario has.
    pub fn copy(&self, scenario: &mut Scenario, from: &Scenario) {
        // What a key writes it reads.
        let _ = (self.value.set)(scenario, &self.write(from));
    }

    /// What the value adds to the kind of run that errors were measured for; nothing where runs of one kind may differ in it.
    pub fn band(&self, scenario: &Scenario) -> &'static str {
        (self.band)(scenario)
    }

    /// Sets the value that the text says.
    ///
    /// # Errors
    /// An [`Issue`] where the text is no such value; the scenario then has the value it had, or the choice whose name is
    /// nearly that.
    pub fn read(&self, scenario: &mut Scenario, text: &str) -> Result<(), Issue> {
        (self.value.set)(scenario, text.trim()).map_err(|invalid| {
            Issue::error(self.field, format!("{}: {invalid}", self.name))
                .with_fix(format!("use {}", self.valid()))
        })
    }

    /// What is wrong with a number that the scenario was given otherwise than by [`Key::read`].
    pub(crate) fn out_of_range(&self, scenario: &Scenario) -> Option<Issue> {
        let (ValueKind::Count(count), Some(number)) = (self.value.kind, self.value.number) else {
            return None;
        };
        let value = (number.of)(scenario);
        if (count.least()..=count.most()).contains(&value) {
            return None;
        }
        let own = scenario.lora.tuner.own_size().filter(|_| self.field == Field::LoraRank);
        let noun = own.map_or(number.noun, |(name, _)| name);
        let issue = Issue::error(self.field, format!("the {noun} is {}", grouped(value)));
        Some(issue.with_fix(format!("use {}", self.valid())))
    }

    /// What would be right, after "use".
    pub fn valid(&self) -> String {
        match self.value.kind {
            ValueKind::Model => {
                let (least, most) = (SIZES.start(), SIZES.end());
                format!("a Hub id such as meta-llama/Llama-3.1-8B or a size from {least}b to {most}b")
            }
            ValueKind::Teacher => {
                "a Hub id such as meta-llama/Llama-3.1-8B, or same for the model that is trained".to_owned()
            }
            ValueKind::Choice(choices) => one_of(&slugs(choices)),
            ValueKind::Targets => {
                let groups: Vec<_> = LoraTargets::ALL.iter().map(|choice| choice.slug()).collect();
                format!("{} or names such as q_proj,v_proj", groups.join(", "))
            }
            ValueKind::Count(count) => count.range(),
            ValueKind::Switch => "on or off".to_owned(),
            ValueKind::Lengths => "equal, uniform, or a mean and a deviation such as 3234~2547".to_owned(),
            ValueKind::Dropout => "a probability from 0 to 1, or config for the config's own".to_owned(),
            ValueKind::Gpu => "a card such as rtx-4090 or an amount such as 24GB".to_owned(),
        }
    }
}

/// The slugs of some choices.
pub(crate) fn slugs(choices: &[Choice]) -> Vec<&'static str> {
    choices.iter().map(|choice| choice.slug).collect()
}

fn one_of(slugs: &[&str]) -> String {
    match slugs {
        [head @ .., last] if !head.is_empty() => format!("{} or {last}", head.join(", ")),
        _ => slugs.concat(),
    }
}
