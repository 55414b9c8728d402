//! torchtune's YAML (0.6.1, recipes/configs), and what its command overrides.

use super::launch::on_machines;
use super::names::TORCHTUNE;
use super::reader::{Reader, Said, among};
use super::syntax::setting::Setting;
use super::trainer;
use crate::scenario::{ModelChoice, Stack};

const WHY: &str = "torchtune's default (0.6.1)";

const IDLE: &[&str] = &[
    "output_dir",
    "tokenizer*",
    "checkpointer*",
    "resume_from_checkpoint",
    "save_adapter_weights_only",
    "dataset*",
    "seed",
    "shuffle",
    "optimizer.lr",
    "optimizer.weight_decay",
    "optimizer.betas",
    "optimizer.eps",
    "lr_scheduler*",
    "epochs",
    "max_steps_per_epoch",
    "metric_logger*",
    "log_*",
    "device",
    "profiler*",
    "low_cpu_ram",
    "model.lora_alpha",
    "base_model_path",
    "config",
    "enable_async_checkpointing",
    "batch_size_val",
    "run_val*",
    "fsdp_sharding_strategy",
    // recipes read fsdp_cpu_offload
    "fsdp.cpu_offload",
    "clip_grad_norm",
    "rdzv*",
];

const REFUSED: &[(&[&str], &str)] = &[
    (&["compile"], "a compiled step is not predicted"),
    (&["model.use_dora"], "torchtune's own DoRA is not predicted"),
    (&["tensor_parallel_plan._component_"], "layers that GPUs share are not predicted for torchtune"),
    (&["quantizer._component_"], "quantisation-aware training is not read of torchtune's recipes"),
];

/// The sizes of a mesh of GPUs, and those with which all share shards of one model.
const DIMENSIONS: [(&str, &[f64]); 4] = [
    ("tensor_parallel_dim", &[1.0]),
    ("context_parallel_dim", &[1.0]),
    ("data_parallel_replicate_dim", &[1.0]),
    ("data_parallel_shard_dim", &[-1.0]),
];

pub(super) fn read(reader: &mut Reader) {
    reader.quietly("task", "sft");
    trainer::usual_loop(reader);
    reader.set("stack", Stack::Torchtune.slug(), "_component_: torchtune…");
    model(reader);
    trainer::optimizer_class(reader);
    recipe(reader);
}

/// Names of tables that have a class each: the command overrides that where it gives them a value (`optimizer=torch.optim.SGD`).
const COMPONENTS: [&str; 4] = ["model", "optimizer", "loss", "tokenizer"];

/// The settings of a command as a recipe has them.
pub(super) fn as_in_recipe(mut settings: Vec<Setting>) -> Vec<Setting> {
    for setting in settings.iter_mut().filter(|setting| COMPONENTS.contains(&setting.name.as_str())) {
        setting.name.push_str("._component_");
    }
    settings
}

/// What the command `tune run … batch_size=4` puts over a recipe that is not there: what it leaves out stays as it was.
pub(super) fn overrides(reader: &mut Reader) {
    let before = reader.scenario.clone();
    let assumed = reader.assumed.clone();
    reader.set("stack", Stack::Torchtune.slug(), "tune run");
    if reader.given(&["model._component_"]).is_empty() {
        let layers = ["model.lora_attn_modules", "model.apply_lora_to_mlp", "model.apply_lora_to_output"];
        let given = reader.given(&layers);
        if given.contains(&layers[0]) && given.contains(&layers[1]) {
            targets(reader);
        }
        for name in layers {
            if let Some(said) = reader.take(&[name]) {
                reader.leave(&said.said, "model.lora_attn_modules and model.apply_lora_to_mlp say together which layers get adapters: give both");
            }
        }
        for (key, name) in [("lora-rank", "model.lora_rank"), ("lora-dropout", "model.lora_dropout")] {
            if let Some(said) = reader.take(&[name]) {
                reader.set(key, &said.text(), &said.said);
            }
        }
    } else {
        model(reader);
    }
    if !reader.given(&["optimizer._component_"]).is_empty() {
        trainer::optimizer_class(reader);
    }
    recipe(reader);
    // of what the recipe says nothing is known
    reader.keep_what_is_taken(&before, assumed);
}

/// What a recipe says beside its model and its optimizer.
fn recipe(reader: &mut Reader) {
    reader.or_assume("batch-size", &["batch_size"], "1", "the recipe's batch_size");
    reader.or_assume("gradient-accumulation", &["gradient_accumulation_steps"], "1", WHY);
    let packed = reader.switch(&["dataset.packed"]);
    match reader.take(&["tokenizer.max_seq_len"]) {
        Some(said) => reader.set("seq-length", &said.text(), &said.said),
        None => {
            let length = reader.scenario.sequence.to_string();
            reader.assume(
                "seq-length",
                &length,
                "tokenizer.max_seq_len is null, so texts are as long as they come: as it was",
            );
        }
    }
    match packed {
        Some((true, said)) => reader.set("mask", "packed", &said),
        // padded_collate_sft hands over tokens and labels alone
        Some((false, said)) => reader.set("mask", "none", &said),
        None => reader.assume("mask", "none", "dataset.packed is off by default"),
    }
    match reader.take(&["dtype"]) {
        Some(said) => match said.text().as_str() {
            word @ ("bf16" | "fp32") => reader.set("precision", word, &said.said),
            _ => reader.keep("precision", &said.said, "torchtune's recipes train in bf16 or fp32"),
        },
        None => reader.assume("precision", "bf16", "the recipes' dtype"),
    }
    reader.switches_or_off("gradient-checkpointing", &["enable_activation_checkpointing"], WHY);
    reader.switches_or_off("activation-offloading", &["enable_activation_offloading"], WHY);
    match reader.switch(&["optimizer_in_bwd"]) {
        Some((on, said)) => {
            reader.set("optimizer-step", if on { "in-backward" } else { "after-backward" }, &said);
        }
        None => reader.assume("optimizer-step", "after-backward", WHY),
    }
    match reader.take(&["clip_grad_norm"]) {
        Some(said) => trainer::clips(reader, &said),
        None => reader.assume("clip-gradients", "off", "clip_grad_norm is null by default"),
    }
    match reader.take(&["loss._component_"]) {
        Some(said) if said.text().contains("ChunkedOutput") => reader.set("loss", "standard", &said.said),
        Some(said) if said.text().ends_with("CrossEntropyLoss") && said.text().starts_with("torch.nn") => {
            reader.set("loss", "full", &said.said);
        }
        // modules/loss/cross_entropy_loss.py, of a later torchtune than 0.6.1
        Some(said) if said.text().ends_with(".LinearCrossEntropyLoss") => {
            reader.keep("loss", &said.said, "this loss came after torchtune 0.6.1, which is predicted")
        }
        Some(said) => {
            reader.keep("loss", &said.said, "of losses the chunked and PyTorch's own are predicted")
        }
        None => reader.quietly("loss", "standard"),
    }
    reader.quietly("attention", "sdpa");
    let divides = reader.named(&["tensor_parallel_dim"]).iter().any(|said| said.number() != Some(1.0));
    gpus(reader);
    if !divides {
        let plan = reader.take(&["tensor_parallel_plan._component_"]);
        reader.idle.extend(plan.map(|said| said.said));
    }
    for (names, why) in REFUSED {
        reader.refuse(names, why);
    }
    reader.pass(|name| among(IDLE, name));
}

/// How many GPUs the command names, and how the distributed recipes shard the model among them.
fn gpus(reader: &mut Reader) {
    let nodes = reader.take(&["nnodes"]).and_then(|said| match said.number() {
        Some(nodes) => Some(nodes.max(1.0)),
        None => {
            reader.keep("gpus", &said.said, "this is no number of machines: one is taken");
            None
        }
    });
    if let Some(said) = reader.take(&["nproc_per_node", "nproc-per-node"]) {
        match said.number() {
            Some(each) => {
                let nodes = nodes.unwrap_or(1.0);
                reader.set("gpus", &(each * nodes).to_string(), &said.said);
                on_machines(reader, Some(nodes), &said.said);
            }
            None => reader.keep("gpus", &said.said, "this is no number of GPUs"),
        }
        reader.set("shard", "fsdp2", &said.said);
    }
    // what divides a model is a distributed recipe's: among how many GPUs its command says
    let dividing = DIMENSIONS.iter().find_map(|(name, whole)| {
        let divides = |said: &Said| !said.number().is_some_and(|number| whole.contains(&number));
        reader.named(&[*name]).into_iter().find(divides)
    });
    if let Some(said) = dividing.filter(|_| !reader.has_taken("shard")) {
        reader.set("shard", "fsdp2", &said.said);
    }
    if !reader.switches("reshard-after-forward", &["fsdp_reshard_after_forward"]) {
        reader.quietly("reshard-after-forward", "on");
    }
    match reader.switch(&["fsdp_cpu_offload"]) {
        Some((on, said)) => reader.set("cpu-offload", if on { "all" } else { "off" }, &said),
        None => reader.quietly("cpu-offload", "off"),
    }
    reader.quietly("replicas", "1");
    reader.quietly("sharded-layers", "layers");
    if let Some(said) = reader.take(&["custom_sharded_layers"]) {
        let mut names = said.words();
        names.retain(|name| !name.is_empty());
        names.sort_unstable();
        match names.iter().map(String::as_str).collect::<Vec<_>>()[..] {
            [] => reader.set("sharded-layers", "layers", &said.said),
            ["tok_embeddings"] => reader.set("sharded-layers", "embedding", &said.said),
            ["output", "tok_embeddings"] => reader.set("sharded-layers", "embedding-and-head", &said.said),
            _ => {
                let why =
                    "of what is sharded by itself 'tok_embeddings' is predicted, alone or with 'output'";
                reader.keep("sharded-layers", &said.said, why);
            }
        }
    }
    for (name, whole) in DIMENSIONS {
        let Some(said) = reader.take(&[name]) else { continue };
        if said.number().is_some_and(|number| whole.contains(&number)) {
            reader.idle.push(said.said);
        } else {
            reader.leave(&said.said, "torchtune is predicted with all GPUs sharing shards of one model");
        }
    }
}

/// The builder says the model and the method.
fn model(reader: &mut Reader) {
    let Some(said) = reader.take(&["model._component_"]) else {
        return reader.leave("model", "the recipe names no model");
    };
    let path = said.text();
    let (folder, builder) = path.rsplit_once('.').unwrap_or(("", &path));
    let (method, builder) = match (builder.strip_prefix("qlora_"), builder.strip_prefix("lora_")) {
        (Some(builder), _) => ("qlora", builder),
        (None, Some(builder)) => ("lora", builder),
        (None, None) => ("full", builder),
    };
    let plain = format!("{folder}.{builder}");
    match TORCHTUNE.iter().find(|(component, _)| *component == plain) {
        // another model of the same shape stays: a builder stands for the base model and the chat versions alike
        Some((_, id)) => {
            let own = same(reader, id).unwrap_or_else(|| (*id).to_owned());
            reader.set("model", &own, &said.said);
        }
        None => reader.keep("model", &said.said, "no model is known by this builder: bring its config.json"),
    }
    reader.set("method", method, &said.said);
    if method == "full" {
        return;
    }
    reader.or_assume("lora-rank", &["model.lora_rank"], "8", WHY);
    reader.or_assume("lora-dropout", &["model.lora_dropout"], "0", WHY);
    targets(reader);
    reader.or_assume("double-quant", &["model.quantize_base"], "on", "torchao's NF4 quantises its scales");
    reader.quietly("weight-format", "nf4");
    reader.quietly("train-embeddings", "off");
}

/// The scenario's model, where it has that one's shape.
fn same(reader: &Reader, id: &str) -> Option<String> {
    let of = |id: &str| crate::model::catalogue::find(id).map(|entry| entry.id);
    match &reader.scenario.model {
        ModelChoice::Catalogue(own) if of(own).is_some() && of(own) == of(id) => Some(own.clone()),
        ModelChoice::Catalogue(_) | ModelChoice::Size(_) | ModelChoice::Custom(_) => None,
    }
}

fn targets(reader: &mut Reader) {
    let modules = reader.take(&["model.lora_attn_modules"]);
    let mlp = reader.switch(&["model.apply_lora_to_mlp"]);
    let head = reader.switch(&["model.apply_lora_to_output"]);
    let words = modules.as_ref().map(Said::words).unwrap_or_default();
    let said = [
        modules.map(|said| said.said),
        mlp.clone().map(|(_, said)| said),
        head.clone().map(|(_, said)| said),
    ];
    let said = said.into_iter().flatten().collect::<Vec<_>>().join(", ");
    let (mlp, head) = (mlp.is_some_and(|(on, _)| on), head.is_some_and(|(on, _)| on));
    let mut names: Vec<&str> = words
        .iter()
        .filter(|word| !word.is_empty())
        .map(|word| if word == "output_proj" { "o_proj" } else { word })
        .collect();
    if mlp {
        names.extend(["gate_proj", "up_proj", "down_proj"]);
    }
    names.sort_unstable();
    let group = match &names[..] {
        ["down_proj", "gate_proj", "k_proj", "o_proj", "q_proj", "up_proj", "v_proj"] => {
            Some(if head { "all-linear-and-head" } else { "all-linear" })
        }
        ["k_proj", "o_proj", "q_proj", "v_proj"] if !head => Some("attention"),
        ["q_proj", "v_proj"] if !head => Some("qv"),
        ["down_proj", "gate_proj", "up_proj"] if !head => Some("mlp"),
        _ => None,
    };
    if head && group.is_none() {
        names.push("lm_head");
    }
    match group {
        Some(group) => reader.set("lora-targets", group, &said),
        None if names.is_empty() => reader.leave(&said, "no layer is adapted"),
        None => reader.set("lora-targets", &names.join(","), &said),
    }
}
