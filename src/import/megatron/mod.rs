//! Arguments of Megatron-LM (megatron/training/arguments.py, as Megatron-core 0.16.1 goes with them): of a command, of a script that has them
//! in arrays, and of the files of Megatron-LM's own functional tests.

mod factory;
mod known;
mod layout;
mod model;

use serde_json::Value;

pub(super) use self::factory::ITS_OWN;
use self::known::{FOLLOWED, IDLE, REFUSED};
use super::launch::ALLOCATOR;
use super::reader::{Reader, Said, among};
use super::syntax::script::Script;
use super::syntax::setting::Setting;
use super::trainer;
use crate::scenario::Stack;

const WHY: &str = "Megatron-LM's default";

/// Arguments of Megatron's alone.
const TELLING: [&str; 7] = [
    "tensor_model_parallel_size",
    "pipeline_model_parallel_size",
    "use_mcore_models",
    "num_layers_per_virtual_pipeline_stage",
    "use_distributed_optimizer",
    "untie_embeddings_and_output_weights",
    "recompute_granularity",
];

/// Tables of files in which arguments lie.
const TABLES: [&str; 7] = ["MODEL_ARGS.", "ENV_VARS.", "model.", "train.", "optimizer.", "ddp.", "dataset."];

/// Variables of the environment that say something of memory.
const VARIABLES: [&str; 5] = [
    "NVTE_ALLOW_NONDETERMINISTIC_ALGO",
    "NVTE_FLASH_ATTN",
    "NVTE_FUSED_ATTN",
    "NVTE_UNFUSED_ATTN",
    "CUBLAS_WORKSPACE_CONFIG",
];

/// Whether these are arguments of Megatron's. NeMo's files have some of their names, and others beside them.
pub(super) fn are_arguments(settings: &[Setting]) -> bool {
    let is_of_nemo = settings.iter().any(|setting| setting.name.starts_with("trainer."));
    !is_of_nemo && settings.iter().any(|setting| TELLING.contains(&setting.name.as_str()))
}

/// What a script says to Megatron: its options, and the variables that say something of memory.
pub(super) fn of_script(script: Script) -> Vec<Setting> {
    let known = |name: &str| VARIABLES.contains(&name) || ALLOCATOR.contains(&name);
    let variables = script.variables.into_iter().filter(|(name, _)| known(name));
    let variables =
        variables.map(|(name, value)| Setting { of: String::new(), name, value: Value::String(value) });
    let program = script.program.map(|name| Setting {
        of: String::new(),
        name: "program".to_owned(),
        value: Value::String(name),
    });
    script.settings.into_iter().chain(variables).chain(program).collect()
}

/// Settings of a file by the names of arguments: `MODEL_ARGS.--num-layers` is `num_layers`.
pub(super) fn as_arguments(settings: Vec<Setting>) -> Vec<Setting> {
    let renamed = settings.into_iter().map(|setting| {
        let own = TABLES.iter().find_map(|table| setting.name.strip_prefix(table));
        let own = own.unwrap_or(&setting.name);
        let name = match own.strip_prefix("--") {
            Some(flag) => flag.replace('-', "_"),
            None => own.to_owned(),
        };
        Setting { name, ..setting }
    });
    // a test's file gives all its processes other variables, too
    renamed
        .filter(|setting| !setting.name.starts_with("NCCL_") && setting.name != "CUDA_DEVICE_MAX_CONNECTIONS")
        .collect()
}

pub(super) fn read(reader: &mut Reader) {
    reader.quietly("task", "sft");
    trainer::usual_loop(reader);
    for (key, value) in [
        ("method", "full"),
        ("set-to-none", "on"),
        ("mask", "none"),
        ("lengths", "equal"),
        ("cpu-offload", "off"),
        ("replicas", "1"),
    ] {
        reader.quietly(key, value);
    }
    reader.set("stack", Stack::Megatron.slug(), "arguments of Megatron-LM");
    precision(reader);
    factory::begin(reader);
    if !reader.has_taken("model") {
        model::read(reader);
    }
    layout::read(reader);
    match reader.take(&["transformer_impl"]).map(|said| (said.text(), said.said)) {
        Some((word, said)) => reader.set("transformer-impl", &word.replace('_', "-"), &said),
        None => reader.assume("transformer-impl", "transformer-engine", WHY),
    }
    attention(reader);
    loss(reader);
    recomputation(reader);
    optimizer(reader);
    match reader.switch(&["no_gradient_accumulation_fusion"]) {
        Some((off, said)) => {
            reader.set("gradient-accumulation-fusion", if off { "off" } else { "on" }, &said)
        }
        None => reader.assume("gradient-accumulation-fusion", "on", WHY),
    }
    if let Some(said) = reader.take(&["CUBLAS_WORKSPACE_CONFIG"]) {
        match workspace(&said.text()) {
            Some(kib) => reader.set("cublas-workspace-kib", &kib.to_string(), &said.said),
            None => reader.keep(
                "cublas-workspace-kib",
                &said.said,
                "this is no list of sizes and counts, as :4096:8 is",
            ),
        }
    }
    batch_mask(reader);
    // a share of what goes to the CPU, where something does
    if reader.named(&["optimizer_cpu_offload"]).iter().all(|said| said.switch() == Some(false)) {
        let share = reader.take(&["optimizer_offload_fraction"]);
        reader.idle.extend(share.map(|said| said.said));
    }
    if let Some(said) = reader.take(&["expert_tensor_parallel_size"]) {
        let shared = reader.scenario.cluster.layout.tensor.max(1);
        if said.number() == Some(shared as f64) {
            reader.idle.push(said.said);
        } else {
            reader.leave(&said.said, "GPUs that share a layer are taken to share each of its experts");
        }
    }
    for (name, values) in FOLLOWED {
        let named = reader.named(&[name]);
        if named.iter().all(|said| values.contains(&said.text().as_str()))
            && let Some(said) = reader.take(&[name])
        {
            reader.idle.push(said.said);
        }
    }
    for (names, why) in REFUSED {
        reader.refuse(names, why);
    }
    reader.pass(|name| among(IDLE, name));
    factory::end(reader);
}

fn precision(reader: &mut Reader) {
    const FOLLOWED: &str = "Megatron-core is followed with --bf16: bfloat16 weights and float32 masters";
    let (half, brain) = (reader.switch(&["fp16"]), reader.switch(&["bf16"]));
    match (brain, half) {
        (Some((true, said)), half) => {
            reader.idle.extend(half.map(|(_, said)| said));
            reader.set("precision", "amp-bf16-weights", &said);
        }
        (_, Some((true, said))) => {
            reader.leave(&said, FOLLOWED);
            reader.assume("precision", "amp-bf16-weights", FOLLOWED);
        }
        (_, other) => {
            reader.idle.extend(other.map(|(_, said)| said));
            reader.leave("float32, as neither --bf16 nor --fp16 is given", FOLLOWED);
            reader.assume("precision", "amp-bf16-weights", FOLLOWED);
        }
    }
}

/// Which way to attend Transformer Engine takes, where it is not said (`get_attention_backend` of its
/// pytorch/attention/dot_product_attention/utils.py).
fn attention(reader: &mut Reader) {
    let deterministic = reader.take(&["NVTE_ALLOW_NONDETERMINISTIC_ALGO"]);
    let is_deterministic = deterministic.as_ref().is_some_and(|said| said.number() == Some(0.0))
        || reader.named(&["deterministic_mode"]).iter().any(|said| said.switch() == Some(true));
    reader.idle.extend(deterministic.map(|said| said.said));
    let is_local = !reader.scenario.cluster.layout.has_transformer_engine();
    let said = reader.take(&["attention_backend"]);
    let word = said.as_ref().map(|said| said.text());
    match (word.as_deref().map(|word| word.rsplit('.').next().unwrap_or(word)), said) {
        (Some("auto") | None, said) => {
            reader.idle.extend(said.map(|said| said.said));
            let (kernel, why) = chosen(reader, is_local, is_deterministic);
            reader.assume("attention", kernel, why);
        }
        (Some("fused"), Some(said)) if !is_local => reader.set("attention", "cudnn", &said.said),
        (Some("flash"), Some(said)) if !is_local => reader.set("attention", "flash-attention-2", &said.said),
        (Some("unfused" | "local"), Some(said)) if is_local => reader.set("attention", "eager", &said.said),
        (Some("unfused"), Some(said)) => reader.set("attention", "eager", &said.said),
        (_, said) => {
            let said = said.map(|said| said.said).unwrap_or_default();
            reader.leave(&said, "with these layers this way to attend is not followed");
            let (kernel, why) = chosen(reader, is_local, is_deterministic);
            reader.assume("attention", kernel, why);
        }
    }
}

fn chosen(reader: &Reader, is_local: bool, is_deterministic: bool) -> (&'static str, &'static str) {
    if is_local {
        return ("eager", "Megatron's local layers write attention out");
    }
    let major =
        reader.scenario.gpu().ok().and_then(|gpu| gpu.capability).map_or(9, |capability| capability.major);
    let by_flash = major < 9 || is_deterministic && major > 9;
    match (by_flash, model::has_layers_of_gpt3(&reader.scenario)) {
        (true, true) => (
            "flash-attention-2",
            "Transformer Engine takes flash-attn before Hopper, and where it has to be deterministic and cuDNN's is not",
        ),
        (true, false) => (
            "cudnn",
            "Transformer Engine takes flash-attn here (before Hopper, or deterministic on Blackwell), with which these layers are not followed",
        ),
        (false, _) => ("cudnn", "Transformer Engine prefers cuDNN's attention from Hopper on"),
    }
}

fn loss(reader: &mut Reader) {
    let kind = reader.take(&["cross_entropy_fusion_impl"]);
    match (reader.switch(&["cross_entropy_loss_fusion"]), kind) {
        (Some((true, said)), Some(kind)) => match &*kind.text() {
            name @ ("native" | "te") => reader.set("loss", name, &format!("{said}, {}", kind.said)),
            _ => reader.keep("loss", &kind.said, "followed are native and te"),
        },
        (Some((true, said)), None) => reader.set("loss", "native", &said),
        (other, kind) => {
            reader.idle.extend(other.map(|(_, said)| said).into_iter().chain(kind.map(|kind| kind.said)));
            reader.assume("loss", "standard", WHY);
        }
    }
}

fn recomputation(reader: &mut Reader) {
    let method = reader.take(&["recompute_method"]);
    let number = reader.take(&["recompute_num_layers"]);
    let modules = reader.take(&["recompute_modules"]);
    let selective = reader.switch(&["recompute_activations"]);
    let granularity = reader.take(&["recompute_granularity"]);
    // the switch is stronger than the word
    let (word, said) = match (granularity, selective) {
        (other, Some((true, said))) => {
            reader.idle.extend(other.map(|other| other.said));
            ("selective".to_owned(), said)
        }
        (Some(said), other) => {
            reader.idle.extend(other.map(|(_, said)| said));
            (said.text(), said.said)
        }
        (None, other) => {
            reader.idle.extend(other.map(|(_, said)| said));
            let rest = [method, number, modules].into_iter().flatten().map(|said| said.said);
            reader.idle.extend(rest);
            return reader.assume("gradient-checkpointing", "off", WHY);
        }
    };
    match word.as_str() {
        "full" => {
            reader.set("gradient-checkpointing", "on", &said);
            for said in [&method, &number].into_iter().flatten() {
                match said.text() == "uniform" || said.number() == Some(1.0) && !is_block(&method) {
                    true => reader.idle.push(said.said.clone()),
                    false => reader.leave(&said.said, "every layer is taken to be recomputed by itself"),
                }
            }
            reader.idle.extend(modules.map(|said| said.said));
        }
        "selective" => {
            reader.set("gradient-checkpointing", "selective", &said);
            let rest = [method, number].into_iter().flatten().map(|said| said.said);
            reader.idle.extend(rest);
            match modules {
                Some(said) if said.text() == "core_attn" => reader.idle.push(said.said),
                Some(said) => {
                    reader.leave(&said.said, "of parts of a layer attention alone (core_attn) is followed")
                }
                None => {}
            }
        }
        _ => reader.keep("gradient-checkpointing", &said, "of granularities full and selective are known"),
    }
}

fn is_block(method: &Option<Said>) -> bool {
    method.as_ref().is_some_and(|said| said.text() == "block")
}

fn optimizer(reader: &mut Reader) {
    match reader.take(&["optimizer"]) {
        Some(said) if said.text() == "adam" => reader.set("optimizer", "adamw", &said.said),
        Some(said) => {
            reader.leave(&said.said, "Megatron-core is followed with Adam");
            reader.assume("optimizer", "adamw", "Megatron-core is followed with Adam");
        }
        None => reader.assume("optimizer", "adamw", WHY),
    }
    match reader.take(&["clip_grad", "max_grad_norm"]) {
        Some(said) => trainer::clips(reader, &said),
        None => reader.assume("clip-gradients", "on", "clip_grad is 1.0 by default"),
    }
}

/// KiB of cuBLAS's workspace: sizes with their counts (`:4096:2:16:8`).
fn workspace(text: &str) -> Option<u64> {
    let numbers: Option<Vec<u64>> =
        text.trim_start_matches(':').split(':').map(|word| word.trim().parse().ok()).collect();
    let numbers = numbers.filter(|numbers| numbers.len() >= 2 && numbers.len().is_multiple_of(2))?;
    numbers.chunks(2).try_fold(0_u64, |sum, pair| sum.checked_add(pair[0].checked_mul(pair[1])?))
}

/// The mask that the batch of pretrain_gpt.py has, which is followed in GPT-3's layers and not in others.
fn batch_mask(reader: &mut Reader) {
    let said = reader.switch(&["no_create_attention_mask_in_dataloader"]);
    match (said, model::has_layers_of_gpt3(&reader.scenario)) {
        (Some((true, said)), true) => {
            reader
                .leave(&said, "a byte for each pair of positions is counted, as the batch has without this");
        }
        (Some((_, said)), _) => reader.idle.push(said),
        (None, true) => {}
        (None, false) => {
            let why = "a byte for each pair of positions of a sequence until forward is through is not counted here";
            reader.leave("the batch's mask (--no-create-attention-mask-in-dataloader leaves it out)", why);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workspaces_are_summed() {
        assert_eq!(workspace(":4096:8"), Some(32_768));
        assert_eq!(workspace(":4096:2:16:8"), Some(8_320));
        for odd in ["", ":", ":4096", "a:b", ":1:2:3", ":18446744073709551615:2"] {
            assert_eq!(workspace(odd), None, "{odd}");
        }
    }
}
