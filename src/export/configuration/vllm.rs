//! The command that has vLLM serve the model (vLLM 0.21 engine/arg_utils.py), with what its budget comes to in the comments.

use std::fmt::Write;

use super::{Configuration, Written};
use crate::hardware::Vendor;
use crate::import;
use crate::issue::{Field, Issue};
use crate::model::Objective;
use crate::plan::{Chosen, Room, chosen, kernels};
use crate::scenario::keys::{Key, keys};
use crate::scenario::{Method, ModelChoice, Precision, Scenario, ServedCache, Task, WeightFormat};
use crate::share;
use crate::text::one_line;
use crate::units::grouped;

/// The inputs that the command says. All others are of transformers' run, of the card or of the requests.
const SAID: [&str; 12] = [
    "task",
    "model",
    "method",
    "weight-format",
    "precision",
    "batch-size",
    "seq-length",
    "gpus",
    "vllm-percent",
    "vllm-max-num-batched-tokens",
    "vllm-max-num-seqs",
    "vllm-kv-cache-dtype",
];

/// The command, with what its verdict rests on.
///
/// # Errors
/// An [`Issue`] where vLLM would not serve the scenario, or its budget was not followed.
pub(super) fn written(scenario: &Scenario) -> Result<Written, Issue> {
    refused(scenario)?;
    let body = command(scenario)?;
    let (runs, differs) = read_back(scenario, &body)?;
    let chosen = chosen(&runs)?;
    if chosen.room == Room::Stops {
        return Err(without_room(&runs, &chosen));
    }
    let text = header(&runs, &chosen, &differs)? + &body;
    Ok(Written { text, differs, absent: Vec::new(), needed: chosen.share.bytes })
}

/// What is no server's.
fn refused(scenario: &Scenario) -> Result<(), Issue> {
    if scenario.task != Task::Generate {
        let issue = Issue::error(Field::Task, "vLLM serves a model, and this scenario trains one");
        return Err(issue.with_fix("choose generation (--task generate)"));
    }
    if let ModelChoice::Size(_) = scenario.model {
        let issue = Issue::error(Field::Model, "a model of a size is no model that could be loaded");
        return Err(issue.with_fix("choose a model by name, or bring its config.json"));
    }
    if scenario.architecture()?.head.objective != Objective::CausalLm {
        let issue = Issue::error(Field::Model, "this command is written for models that generate text");
        return Err(issue.with_fix("choose a causal language model"));
    }
    let card = scenario.card()?;
    if card.vendor != Vendor::Nvidia {
        let message = format!("vLLM's budget is followed on NVIDIA's cards, and not on {}", card.name);
        return Err(Issue::error(Field::Gpu, message).with_fix("choose a card of NVIDIA's"));
    }
    let in_bfloat16 = matches!(scenario.precision, Precision::Bf16 | Precision::AmpBf16Weights);
    if in_bfloat16 && !scenario.has_bfloat16() {
        let message =
            format!("vLLM stops at bfloat16 on {}: it wants compute capability 8.0 for it", card.name);
        return Err(Issue::error(Field::Precision, message).with_fix("choose fp16"));
    }
    Ok(())
}

/// Whether a sequence is longer than the model has positions for.
///
/// # Errors
/// Where these are learned: there is no more of them, and vLLM refuses.
fn is_beyond_its_positions(scenario: &Scenario, length: u64) -> Result<bool, Issue> {
    let architecture = scenario.architecture()?;
    let Some(positions) = architecture.max_positions.filter(|positions| (1..length).contains(positions))
    else {
        return Ok(false);
    };
    if architecture.embeddings.positions.is_some() {
        let message = format!(
            "a prompt and its new tokens are {} tokens, and the model has learned {} positions: vLLM stops",
            grouped(length),
            grouped(positions)
        );
        let issue = Issue::error(Field::Sequence, message);
        return Err(issue.with_fix("use a shorter sequence, or fewer new tokens"));
    }
    Ok(true)
}

fn without_room(scenario: &Scenario, chosen: &Chosen) -> Issue {
    let message = format!(
        "vLLM would stop: beside {} of weights and what its profiling run takes, not one sequence of {} tokens has room in its share of the \
         card, {} % and {}",
        chosen.weights,
        grouped(chosen.length),
        chosen.share.percent,
        chosen.share.bytes
    );
    let issue = Issue::error(Field::Sequence, message);
    match chosen.longest.filter(|longest| *longest > scenario.generation.new_tokens) {
        Some(longest) => {
            let prompt = longest - scenario.generation.new_tokens;
            issue.with_fix(format!(
                "use a sequence length of {} at most, beside the new tokens",
                grouped(prompt)
            ))
        }
        None => issue.with_fix("choose a larger card, more GPUs, or weights of fewer bits"),
    }
}

/// The command itself, an option a line.
fn command(scenario: &Scenario) -> Result<String, Issue> {
    let name = scenario.model_name();
    if !import::could_be_a_model(&name) {
        let message = format!("{:?} is no name of a repository, which vLLM would load", one_line(&name));
        return Err(Issue::error(Field::Model, message).with_fix("choose a model by its name on the Hub"));
    }
    let length = scenario.sequence.saturating_add(scenario.generation.new_tokens);
    let longer =
        if is_beyond_its_positions(scenario, length)? { "VLLM_ALLOW_LONG_MAX_MODEL_LEN=1 " } else { "" };
    let mut options = vec![format!("{longer}vllm serve {name}")];
    let mut set = |option: &str, value: &str| options.push(format!("--{option} {value}"));
    set("max-model-len", &length.to_string());
    let percent = match scenario.reserve.vllm {
        0 => crate::plan::UTILISATION,
        percent => percent.min(100),
    };
    set("gpu-memory-utilization", &format!("{:.2}", percent as f64 / 100.0));
    let serving = scenario.serving;
    if serving.sequences > 0 {
        set("max-num-seqs", &serving.sequences.to_string());
    }
    if serving.batched_tokens > 0 {
        set("max-num-batched-tokens", &serving.batched_tokens.to_string());
    }
    match serving.cache {
        ServedCache::Auto => {}
        ServedCache::Fp8 => set("kv-cache-dtype", "fp8"),
    }
    set(
        "dtype",
        match scenario.precision {
            Precision::Bf16 | Precision::AmpBf16Weights => "bfloat16",
            Precision::Fp16 | Precision::AmpFp16Weights => "float16",
            Precision::Fp32 | Precision::AmpBf16 | Precision::AmpFp16 => "float32",
        },
    );
    if scenario.method == Method::Qlora {
        match scenario.quantization.format {
            // model_executor/model_loader/bitsandbytes_loader.py, with scales that are quantised too
            WeightFormat::Nf4 if scenario.quantization.double_quant => set("quantization", "bitsandbytes"),
            format => {
                let message = format!(
                    "vllm serve makes 4-bit weights of a model only as bitsandbytes' NF4 with double quantisation: weights as {} it loads of a \
                     repository that holds them, whose name the scenario has not",
                    format.label()
                );
                let issue = Issue::error(Field::WeightFormat, message);
                return Err(issue.with_fix("choose NF4 with double quantisation, or full weights"));
            }
        }
    }
    if scenario.cluster.gpus > 1 {
        set("tensor-parallel-size", &scenario.cluster.gpus.to_string());
    }
    Ok(options.join(" \\\n    ") + "\n")
}

/// What the command says as [`import`] understands it, and what of that is otherwise than in the scenario.
fn read_back(scenario: &Scenario, body: &str) -> Result<(Scenario, Vec<String>), Issue> {
    let mut base = scenario.clone();
    let usual = Scenario::default();
    let says = |key: &&Key| SAID.contains(&key.name);
    // a name that no catalogue has stands for the model that has it
    keys().filter(says).filter(|key| key.name != "model").for_each(|key| key.copy(&mut base, &usual));
    let understood =
        import::read(body, &base).map_err(|error| Issue::error(Field::Link, error.to_string()))?;
    if let Some(left) = understood.left.first() {
        return Err(Issue::error(Field::Link, format!("{}: {}", left.said, left.why)));
    }
    let mut read = understood.scenario;
    // how many ask at a time is no affair of the server's
    read.batch = scenario.batch;
    // 0 stands for the default, which is written
    if scenario.reserve.vllm == 0 {
        read.reserve.vllm = 0;
    }
    // what generates has weights that are quantised or not
    if (read.method == Method::Qlora) == (scenario.method == Method::Qlora) {
        read.method = scenario.method;
    }
    let differing = keys().filter(says).filter(|key| key.matters(&read) && !key.is_same(scenario, &read));
    let differs = differing
        .map(|key| format!("{}: {}, not {}", key.label_for(scenario), key.words(&read), key.words(scenario)));
    let differs = differs.collect();
    Ok((read, differs))
}

/// What the command comes to: the budget, which is what its verdict rests on.
fn header(scenario: &Scenario, chosen: &Chosen, differs: &[String]) -> Result<String, Issue> {
    let Chosen { share, weights, beside, room, length, .. } = chosen;
    let card = scenario.card()?.name;
    let each = if scenario.cluster.is_many() {
        format!(" on each of {} GPUs", scenario.cluster.gpus)
    } else {
        String::new()
    };
    let [tokens, sequences] = room.words();
    let mut text = format!(
        "# {} served by vLLM 0.21 on {card}, written by Headroom.\n# bash {}\n",
        one_line(&scenario.model_name()),
        Configuration::Vllm.file()
    );
    let mut say = |line: std::fmt::Arguments<'_>| {
        // writing to a `String` cannot fail
        let _ = writeln!(text, "# {line}");
    };
    for clause in differs {
        say(format_args!("Otherwise than in the scenario: {}", one_line(clause)));
    }
    say(format_args!(
        "Its share is {} % of the card, {}{each}. Weights ({}): {weights}. Beside them its profiling run of {} tokens and {} sequences: {beside}.",
        share.percent,
        share.bytes,
        chosen.stored.label(),
        grouped(share.tokens),
        grouped(share.sequences)
    ));
    let at_most = match scenario.serving.sequences {
        0 => String::new(),
        most => format!(", {} at most (--max-num-seqs)", grouped(most)),
    };
    say(format_args!(
        "That leaves keys and values of {tokens} tokens: {sequences} sequences of {} tokens at once, and more of shorter ones{at_most}.",
        grouped(*length)
    ));
    if !chosen.starts {
        say(format_args!("It may stop: whether one sequence has room its profiling run decides."));
    }
    let context = scenario.architecture()?.max_positions.filter(|context| *context > 0 && *context < *length);
    if let Some(context) = context {
        say(format_args!(
            "The model has {} positions, and its answers beyond them are worth little: vLLM takes a longer --max-model-len only with VLLM_ALLOW_LONG_MAX_MODEL_LEN=1.",
            grouped(context)
        ));
    }
    if let Some(kernels) = kernels(scenario) {
        say(format_args!("{kernels}"));
    }
    say(format_args!(
        "Not counted: CUDA graphs, which it takes off these tokens unless it is told otherwise, and its libraries."
    ));
    let link = share::encode(std::slice::from_ref(scenario));
    say(format_args!("headroom serving '{link}'"));
    text.push('\n');
    Ok(text)
}
