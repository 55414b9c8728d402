//! The scenario as a configuration of another project.
//!
//! What is written is read back ([`crate::import`]) before it is handed out: a setting that the file has no line for is an
//! [`Issue`], and what the project itself does otherwise is said in the file, which names the scenario that it runs.

mod axolotl;
mod launch;
mod lines;
mod llama_factory;
mod megatron;
mod torchtitan;
mod torchtune;
mod trl;
mod vllm;

use std::sync::Arc;

use super::projected;
use crate::estimate::estimate;
use crate::export::taken::taken;
use crate::import::{self, Understood};
use crate::issue::{Field, Issue};
use crate::model::{Architecture, Objective};
use crate::scenario::choices::Choice;
use crate::scenario::keys::{Key, keys};
use crate::scenario::{
    Allocator, LoraTargets, LossKernel, Method, ModelChoice, Modules, Precision, Scenario, Stack, Tuner,
    WrappedBy,
};
use crate::text::one_line;
use crate::units::Bytes;

/// Which project's configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Configuration {
    /// A script of transformers, trl or Unsloth: [`super::script`].
    Python,
    /// trl's command.
    Trl,
    /// axolotl.
    Axolotl,
    /// LLaMA-Factory.
    LlamaFactory,
    /// torchtune.
    Torchtune,
    /// accelerate's launcher.
    Accelerate,
    /// DeepSpeed.
    DeepSpeed,
    /// torchtitan.
    Torchtitan,
    /// Megatron-LM.
    Megatron,
    /// vLLM's server.
    Vllm,
}

impl Configuration {
    /// All, in the order in which they are offered.
    pub const ALL: [Configuration; 10] = [
        Configuration::Python,
        Configuration::Trl,
        Configuration::Axolotl,
        Configuration::LlamaFactory,
        Configuration::Torchtune,
        Configuration::Accelerate,
        Configuration::DeepSpeed,
        Configuration::Torchtitan,
        Configuration::Megatron,
        Configuration::Vllm,
    ];

    /// What they are called, in the same order.
    pub const CHOICES: [Choice; 10] = [
        Choice {
            slug: "python",
            label: "Python script",
            help: "Runs by itself, with the training library that is chosen.",
        },
        Choice {
            slug: "trl",
            label: "TRL (YAML)",
            help: "For trl sft --config, or trl dpo, kto, reward, grpo and rloo.",
        },
        Choice { slug: "axolotl", label: "axolotl (YAML)", help: "For axolotl train." },
        Choice { slug: "llama-factory", label: "LLaMA-Factory (YAML)", help: "For llamafactory-cli train." },
        Choice { slug: "torchtune", label: "torchtune (YAML)", help: "For tune run." },
        Choice {
            slug: "accelerate",
            label: "accelerate (YAML)",
            help: "How many GPUs share the work, for accelerate launch.",
        },
        Choice {
            slug: "deepspeed",
            label: "DeepSpeed (JSON)",
            help: "ZeRO's settings, for any trainer that takes them.",
        },
        Choice { slug: "torchtitan", label: "torchtitan (TOML)", help: "For torchtitan.train." },
        Choice {
            slug: "megatron",
            label: "Megatron-LM (shell script)",
            help: "Starts pretrain_gpt.py with made-up texts.",
        },
        Choice {
            slug: "vllm",
            label: "vLLM (shell script)",
            help: "The command that has vLLM serve the model.",
        },
    ];

    /// What it is called.
    pub const fn choice(self) -> Choice {
        Configuration::CHOICES[self as usize]
    }

    /// The file's name.
    pub const fn file(self) -> &'static str {
        match self {
            Configuration::Python => super::SCRIPT_NAME,
            Configuration::Trl => "trl.yaml",
            Configuration::Axolotl => "axolotl.yaml",
            Configuration::LlamaFactory => "llama-factory.yaml",
            Configuration::Torchtune => "torchtune.yaml",
            Configuration::Accelerate => "accelerate.yaml",
            Configuration::DeepSpeed => "deepspeed.json",
            Configuration::Torchtitan => "torchtitan.toml",
            Configuration::Megatron => "megatron.sh",
            Configuration::Vllm => "vllm.sh",
        }
    }

    /// The tasks that such a file is written of.
    const fn tasks(self) -> &'static str {
        match self {
            Configuration::Axolotl => "fine-tuning, DPO, KTO, ORPO, CPO and SimPO",
            Configuration::LlamaFactory => "fine-tuning, DPO, ORPO and SimPO",
            Configuration::Trl => "fine-tuning, DPO, KTO, reward models, GRPO and RLOO",
            Configuration::Vllm => "generation",
            Configuration::Python
            | Configuration::Torchtune
            | Configuration::Accelerate
            | Configuration::DeepSpeed
            | Configuration::Torchtitan
            | Configuration::Megatron => "fine-tuning on texts",
        }
    }

    /// The files that the text of this one names in the command that it is run by.
    pub fn beside(self, text: &str) -> impl Iterator<Item = Configuration> {
        let named = move |other: &Configuration| *other != self && text.contains(other.file());
        [Configuration::Accelerate, Configuration::DeepSpeed].into_iter().filter(named)
    }

    /// What a browser is told that it is.
    pub const fn mime(self) -> &'static str {
        match self {
            Configuration::Python => "text/x-python",
            Configuration::DeepSpeed => "application/json",
            Configuration::Torchtitan => "application/toml",
            Configuration::Megatron | Configuration::Vllm => "application/x-sh",
            Configuration::Trl
            | Configuration::Axolotl
            | Configuration::LlamaFactory
            | Configuration::Torchtune
            | Configuration::Accelerate => "application/yaml",
        }
    }

    /// The inputs that are another file's affair, or no file's: the card, how long the texts are.
    fn leaves_open(self, name: &str) -> bool {
        let cluster = [
            "gpus",
            "gpus-per-node",
            "shard",
            "shard-alone",
            "reshard-after-forward",
            "cpu-offload",
            "replicas",
            "reshard-root",
        ]
        .contains(&name);
        let zero = [
            "reduce-bucket",
            "prefetch-bucket",
            "persistence-threshold",
            "max-live-parameters",
            "contiguous-gradients",
            "overlap-comm",
        ]
        .contains(&name);
        // whether weights are gathered for checkpoints is said where they are divided
        let outside = ["gpu", "lengths", "saving"].contains(&name);
        match self {
            // a command line before the file sets the variable
            Configuration::Axolotl | Configuration::LlamaFactory => {
                outside || cluster || zero || name == "allocator"
            }
            // how the recipe shards is said in the file, among how many GPUs in the command
            Configuration::Torchtune => {
                let said = ["reshard-after-forward", "cpu-offload", "replicas"].contains(&name);
                outside || cluster && !said || zero || name == "allocator"
            }
            Configuration::Python => outside || cluster || zero,
            // how long prompts are is the data's affair, and how many pictures the texts have, and of what size
            Configuration::Trl => {
                outside || cluster || zero || name == "prompt-length" || OF_PICTURES.contains(&name)
            }
            // FSDP2's reduction is its own too, and no line of it is read; so is who wraps the model
            Configuration::Accelerate => !cluster && !["reduce-dtype", "wrapped-by", "cp"].contains(&name),
            Configuration::DeepSpeed => !["shard", "cpu-offload"].contains(&name) && !zero,
            // on how many machines its GPUs are the command says
            Configuration::Torchtitan => outside || zero || ["allocator", "gpus-per-node"].contains(&name),
            // whose answer is shown is no setting of the run
            Configuration::Megatron => outside || zero || name == "pipeline-stage",
            // which is read back in a way of its own
            Configuration::Vllm => true,
        }
    }
}

/// What the data says of its pictures.
const OF_PICTURES: [&str; 3] = ["images", "image-height", "image-width"];

/// A written configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// The file.
    pub text: String,
    /// What the project does otherwise than the scenario: one clause each. The file says it too.
    pub differs: Vec<String>,
    /// What of the scenario stands in no line of the file: in its command, in a file beside it, or in the data. One clause each. Whoever reads
    /// the file back has it of the scenario over which it is read.
    pub absent: Vec<String>,
    /// What the file's run needs of a GPU, by its tensors.
    pub needed: Bytes,
}

impl Written {
    /// What stands before the clauses of what is [absent](Written::absent).
    pub const ABSENT: &str = "In no line of the file, but in its command, in a file beside it or in the data";
}

/// What a file is written of.
struct Run<'s> {
    scenario: &'s Scenario,
    architecture: Arc<Architecture>,
}

/// Which layers get adapters, as files name them.
enum Targets {
    /// peft's default for the family.
    Default,
    /// `all-linear`.
    All,
    /// By name.
    Names(Vec<&'static str>),
}

impl Run<'_> {
    fn model(&self) -> String {
        self.scenario.model_name()
    }

    fn targets(&self) -> Targets {
        let names = |modules: Modules| Targets::Names(modules.iter().collect());
        match self.scenario.lora.targets {
            LoraTargets::AllLinear => Targets::All,
            LoraTargets::Qv => Targets::Default,
            LoraTargets::Attention => names(Modules::of_mixers(&self.architecture)),
            LoraTargets::Mlp => names(Modules::of_feed_forward(&self.architecture)),
            LoraTargets::AllLinearAndHead => names(Modules::of(&self.architecture)),
            LoraTargets::Named => names(self.scenario.lora.modules),
        }
    }

    /// The copies that are trained whole, as `modules_to_save` names them.
    fn saved(&self) -> Option<[&str; 2]> {
        let own = [self.architecture.embeddings.tokens.name, self.architecture.head.linear.name];
        self.scenario.lora.trains_embeddings.then_some(own)
    }

    /// `bf16` and `fp16` of transformers' arguments.
    fn mixed(&self) -> (bool, bool) {
        match self.scenario.precision {
            // one of them switches DeepSpeed's 16-bit engine on, which is what is followed
            precision if self.scenario.cluster.is_zero() => (!precision.is_float16(), precision.is_float16()),
            Precision::AmpBf16 | Precision::AmpBf16Weights => (true, false),
            Precision::AmpFp16 | Precision::AmpFp16Weights => (false, true),
            Precision::Fp32 | Precision::Bf16 | Precision::Fp16 => (false, false),
        }
    }

    /// What a launcher is told of its machines, with a space after it: how many GPUs each has, and where there are several how many
    /// there are and who is the first; and what is to be done on each of them.
    fn launched(&self) -> (String, &'static str) {
        let cluster = self.scenario.cluster;
        let (machines, each) = (cluster.machines(), cluster.gpus.max(1) / cluster.machines());
        match machines {
            1 => (format!("--nproc_per_node {each} "), ""),
            _ => (
                format!(
                    "--nnodes {machines} --rdzv_backend c10d --rdzv_endpoint FIRST_MACHINE:29500 --rdzv_id headroom --nproc_per_node {each} "
                ),
                "  (on each machine)",
            ),
        }
    }

    /// The variable that is set before the command, with a space after it; nothing where the project sets it itself so.
    fn variable(&self, sets_it: bool) -> &'static str {
        match (self.scenario.allocator, sets_it) {
            (Allocator::Expandable, false) => "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True ",
            (Allocator::Native, true) => "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:False ",
            (Allocator::Expandable, true) | (Allocator::Native, false) => "",
        }
    }

    /// What transformers' arguments say of checkpoints: so often as they do by default (transformers 5.17, `save_steps`).
    fn checkpoints(&self, lines: &mut lines::Lines) {
        if self.scenario.saves() {
            lines.set("save_strategy", "steps");
            lines.set("save_steps", 500);
        }
    }

    /// What transformers' arguments say of an optimizer that projects gradients.
    fn projection(&self, lines: &mut lines::Lines) {
        if let Some(pieces) = projected::pieces(self.scenario, &self.architecture) {
            let pieces: Vec<&str> = pieces.iter().map(String::as_str).collect();
            lines.list("optim_target_modules", &pieces);
            lines.text("optim_args", &format!("rank={}", self.scenario.lora.rank));
        }
    }

    /// The name of the optimizer in transformers' arguments.
    fn optim(&self) -> Result<String, Issue> {
        projected::trainers_name(self.scenario)?.ok_or_else(|| {
            Issue::error(Field::Optimizer, "transformers' arguments have no name for this optimizer")
                .with_fix("choose AdamW or 8-bit AdamW")
        })
    }
}

/// The scenario as a configuration of that project.
///
/// ```
/// use headroom::export::{Configuration, configuration};
/// use headroom::scenario::Scenario;
///
/// let written = configuration(&Scenario::default(), Configuration::Axolotl)?;
/// assert!(written.text.contains("adapter: qlora"), "{}", written.text);
/// # Ok::<(), headroom::issue::Issue>(())
/// ```
///
/// # Errors
/// An [`Issue`] where the scenario has no answer, or a setting that such a file has no line for.
pub fn configuration(scenario: &Scenario, which: Configuration) -> Result<Written, Issue> {
    if which == Configuration::Python {
        let text = super::script(scenario)?;
        let needed = estimate(scenario).memory.map_or(Bytes::ZERO, |memory| memory.needed());
        let absent = absent(which, scenario, &text);
        return Ok(Written { text, differs: Vec::new(), absent, needed });
    }
    // whose answer is another than transformers'
    if which == Configuration::Vllm {
        return vllm::written(scenario);
    }
    if let Some(issue) = estimate(scenario).errors().next() {
        return Err(issue.clone());
    }
    let architecture = scenario.architecture()?;
    if matches!(scenario.model, ModelChoice::Size(_)) {
        let issue = Issue::error(Field::Model, "a model of a size is no model that could be loaded");
        return Err(issue.with_fix("choose a model by name, or bring its config.json"));
    }
    if architecture.head.objective != Objective::CausalLm {
        let issue = Issue::error(Field::Model, "configurations are written for decoders only");
        return Err(issue.with_fix("choose a causal language model"));
    }
    let tuner = scenario.lora.tuner;
    let is_lora = matches!(tuner, Tuner::Lora | Tuner::Dora);
    if scenario.method.has_adapters() && !is_lora {
        let message = format!("{} has no line for {tuner}", which.choice().label);
        return Err(Issue::error(Field::Adapter, message).with_fix("choose LoRA, or the Python script"));
    }
    let run = Run { scenario, architecture };
    let (command, body) = match which {
        Configuration::Python | Configuration::Trl => trl::write(&run)?,
        Configuration::Axolotl => axolotl::write(&run)?,
        Configuration::LlamaFactory => llama_factory::write(&run)?,
        Configuration::Torchtune => torchtune::write(&run)?,
        Configuration::Accelerate => launch::accelerate(&run)?,
        Configuration::DeepSpeed => launch::deepspeed(&run)?,
        Configuration::Torchtitan => torchtitan::write(&run)?,
        Configuration::Megatron => megatron::write(&run)?,
        Configuration::Vllm => return vllm::written(scenario),
    };
    let (runs, written) = read_back(&run, which, &body)?;
    // JSON has no comments
    let text = if which == Configuration::DeepSpeed {
        body
    } else {
        header(&run, which, &command, &runs, &written) + &body
    };
    Ok(Written { text, ..written })
}

/// The beginning of a file: what it is, how it is run, what is otherwise in it than in the scenario, what it takes.
fn header(run: &Run<'_>, which: Configuration, command: &str, runs: &Scenario, written: &Written) -> String {
    let name = one_line(&run.model());
    let mut text = format!(
        "# {} of {name}, for {}, written by Headroom.\n# {command}\n",
        run.scenario.method.label(),
        which.choice().label,
    );
    for clause in &written.differs {
        text.push_str(&format!("# Otherwise than in the scenario: {}\n", one_line(clause)));
    }
    if !written.absent.is_empty() {
        text.push_str(&format!("# {}: {}\n", Written::ABSENT, one_line(&written.absent.join("; "))));
    }
    text.push_str(&taken(runs));
    text.push('\n');
    text
}

/// What the file says, as [`crate::import`] understands it: the scenario that it runs, and what of a written file follows from it.
fn read_back(run: &Run<'_>, which: Configuration, body: &str) -> Result<(Scenario, Written), Issue> {
    let scenario = run.scenario;
    if scenario.stack == Stack::Transformers && scenario.divided().tensor > 1 {
        let message = "no file that is written here has a line for layers that GPUs share";
        return Err(Issue::error(Field::TensorParallel, message).with_fix("use a tensor parallel size of 1"));
    }
    let mut base = Scenario::default();
    for key in keys().filter(|key| which.leaves_open(key.name) || key.name == "model") {
        key.copy(&mut base, scenario);
    }
    let shards_by_accelerate = which == Configuration::LlamaFactory && base.cluster.is_fsdp2();
    if shards_by_accelerate {
        base.cluster.wrapped_by = WrappedBy::Accelerate;
    }
    let project = which.choice().label;
    let understood = import::read(body, &base);
    let Understood { scenario: mut read, assumed, left, .. } =
        understood.map_err(|error| Issue::error(Field::Link, error.to_string()))?;
    if let Some(left) = left.first() {
        let message = format!("a file for {project} has no line for this: {}: {}", left.said, left.why);
        return Err(Issue::error(Field::Link, message).with_fix("choose another file"));
    }
    for key in keys().filter(|key| which.leaves_open(key.name)) {
        key.copy(&mut read, scenario);
    }
    // other words for the same run: layers by name that are all of a group, a mask of ones that is dropped
    let answer = estimate(&read);
    // without an answer nothing could be compared, nor could the file name what it takes
    if let Some(issue) = answer.errors().next() {
        let message = format!("what a file for {project} runs is not predicted: {issue}");
        return Err(Issue::error(issue.field, message).with_fix("choose another file"));
    }
    let memory = answer.memory;
    let matters_over = |read: &Scenario, key: &Key| {
        let mut other = read.clone();
        key.copy(&mut other, scenario);
        estimate(&other).memory != memory
    };
    // a model that a file says by its sizes has its own name where that is the same run
    if let Some(model) = Key::find("model").filter(|model| !matters_over(&read, model)) {
        model.copy(&mut read, scenario);
    }
    let matters = |key: &Key| matters_over(&read, key);
    // under another library nothing is asked of it, but the scenario does it
    let is_asked = |key: &Key| match key.field {
        Field::Float8 => key.matters(&read) || scenario.trains_in_float8(),
        Field::Qat => key.matters(&read) || scenario.trains_quantization_aware(),
        _ => key.matters(&read),
    };
    let differing = keys().filter(|key| is_asked(key) && !key.is_same(scenario, &read) && matters(key));
    let mut differs = Vec::new();
    for key in differing {
        // how a batch is filled is the data collator's affair, which each project has of its own; trl's trainers put their own fused
        // head into the place of others', and refuse Liger's (trl 1.16, trainer/sft_trainer.py)
        let has_its_head = which == Configuration::Trl
            && key.field == Field::Loss
            && matches!(scenario.savings.loss, LossKernel::Liger | LossKernel::Cut);
        let patches_layers_too = which == Configuration::LlamaFactory
            && matches!(key.field, Field::Stack | Field::Loss)
            && (scenario.stack, scenario.savings.loss) == (Stack::Transformers, LossKernel::Liger);
        let loads_so = which == Configuration::Trl
            && (key.field, scenario.precision, scenario.method)
                == (Field::Precision, Precision::AmpBf16, Method::Qlora);
        let is_the_projects = key.field == Field::Mask
            || has_its_head
            || patches_layers_too
            || loads_so
            || shards_by_accelerate && key.field == Field::WrappedBy
            || assumed.iter().any(|assumed| assumed.key == key.name);
        if !is_the_projects {
            let message = match key.field {
                Field::Task => {
                    format!("no file for {project} is written of this task, but of {}", which.tasks())
                }
                _ => {
                    format!("a file for {project} has no line for this setting: {}", key.label_for(scenario))
                }
            };
            let fix = format!("choose {} there, or another file", key.words(&read));
            return Err(Issue::error(key.field, message).with_fix(fix));
        }
        differs.push(format!(
            "{}: {}, not {}",
            key.label_for(scenario),
            key.words(&read),
            key.words(scenario)
        ));
    }
    let needed = memory.map_or(Bytes::ZERO, |memory| memory.needed());
    let absent = absent(which, scenario, body);
    Ok((read, Written { text: String::new(), differs, absent, needed }))
}

/// What of a scenario a file leaves to others and whoever reads it alone does not have: the card aside, which no file names.
fn absent(which: Configuration, scenario: &Scenario, body: &str) -> Vec<String> {
    let mut base = Scenario::default();
    for key in keys().filter(|key| ["model", "gpu"].contains(&key.name)) {
        key.copy(&mut base, scenario);
    }
    let Ok(alone) = import::read(body, &base) else { return Vec::new() };
    // what is shared and how is all that these say; the command that stands in a file sets the allocator
    let is_left = |key: &Key| match which {
        Configuration::Accelerate | Configuration::DeepSpeed => false,
        _ => which.leaves_open(key.name) && !["gpu", "allocator"].contains(&key.name),
    };
    let lost = |key: &&Key| is_left(key) && key.matters(scenario) && !key.is_same(scenario, &alone.scenario);
    keys().filter(lost).map(|key| format!("{}: {}", key.label_for(scenario), key.words(scenario))).collect()
}
