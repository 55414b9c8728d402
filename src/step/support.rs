//! Which architectures the step can run. The rest is counted but refused here, so that what runs never meets a part that
//! it does not know.

mod acts;
mod answers;
mod balance;
mod by_trainer;
mod compiled;
mod fake_quant;
mod float8;
mod fused_adapters;
mod liger_layers;
mod logits;
mod optimizers;
mod pictures;
mod quantised;
mod spikes;
mod tuners;
mod under_trl;
mod unsloth;

use super::forward::stacks::expert_layers;
use super::forward::{Model, fills_cache};
use super::machine::Machine;
use super::parallel::NO_GRADIENT;
use crate::hardware::Device;
use crate::issue::{Field, Issue};
use crate::job::{Batch, Member};
use crate::model::blocks::{
    Attention, AttentionCode, Block, FeedForward, Mixer, Param, ParamRole, Projection, Scan, Submodule,
    Wiring, XIELU_PARAMETERS,
};
use crate::model::modeling::{Code, Modeling};
use crate::model::{Architecture, Objective};
use crate::scenario::software::ModelCode;
use crate::scenario::{AttentionKernel, Checkpointing, LoraTargets, Method, Modules, Precision};
use crate::units::Bytes;

pub(super) use acts::{acts, generation, idle, vocabularies};
pub(super) use balance::balance;
pub(super) use by_trainer::evaluation;
pub(super) use compiled::compiled;
pub(super) use fake_quant::fake_quant;
pub(super) use float8::float8;
pub(super) use fused_adapters::fused_adapters;
pub(super) use liger_layers::liger_layers;
pub(super) use pictures::seeing;
pub(super) use spikes::{merging, saving};
pub(super) use under_trl::under_trl;

/// The parameters beside the parts of a layer or a model that its family's code here reads: those of gemma4's experts and
/// of deberta's relative positions.
const SUBMODULES: [&str; 11] = [
    XIELU_PARAMETERS[0],
    XIELU_PARAMETERS[1],
    "encoder.rel_embeddings",
    "encoder.LayerNorm",
    "attention.self.pos_key_proj",
    "attention.self.pos_query_proj",
    "router.scale",
    "router.per_expert_scale",
    "post_feedforward_layernorm_1",
    "post_feedforward_layernorm_2",
    "pre_feedforward_layernorm_2",
];

/// The code that runs the model, or an issue that names what of the run is not modelled.
pub(super) fn modeling(
    architecture: &Architecture,
    (member, batch): (&Member, Batch),
    device: Device,
) -> Result<Modeling, Issue> {
    let Some(modeling) = architecture.family.map(|family| family.modeling) else {
        let message = "what a step of this model keeps is not known, and not guessed: there is no figure";
        let fix = "if its code is llama's, set model_type to llama in its config.json";
        return Err(Issue::error(Field::Model, message).with_fix(fix));
    };
    let modeling = expert_layers::modeling(modeling, member);
    if let Some(issue) = grouped_queries(modeling, architecture, member) {
        return Err(issue);
    }
    let checkpoints = member.checkpointing != Checkpointing::Off;
    if checkpoints && !modeling.checkpoints {
        let message = format!("transformers has no gradient checkpointing for {}", architecture.model_type);
        return Err(Issue::error(Field::Checkpointing, message).with_fix("switch checkpointing off"));
    }
    if member.method == Method::Qlora && architecture.blocks.iter().any(scans_by_token) {
        let family = &architecture.model_type;
        let message = if modeling.casts_scan_arguments {
            format!(
                "{family} with quantised weights does not run without mamba-ssm: its dt_proj.weight is multiplied as a matrix, which a packed weight is not"
            )
        } else {
            format!(
                "{family} with quantised weights is not modelled: its steps are then computed in another way"
            )
        };
        return Err(Issue::error(Field::Method, message).with_fix("choose LoRA or full fine-tuning"));
    }
    if member.method == Method::Qlora {
        quantised::eight_bit(architecture, member)?;
    }
    if member.adapts && modeling.peft.packs_projections {
        let message = format!(
            "adapters on {} are not modelled: its own code has one layer for queries, keys and values, which they were never compared on",
            architecture.model_type
        );
        return Err(Issue::error(Field::Method, message).with_fix("choose full fine-tuning"));
    }
    tuners::tuner(modeling, architecture, member, batch)?;
    quantised::float16_weights(member)?;
    logits::of_model(architecture, member)?;
    optimizers::optimizer(architecture, member)?;
    if let Some(issue) = upcast(architecture, member) {
        return Err(issue);
    }
    // what Unsloth packs is its own affair
    if batch.mask.is_packed()
        && member.software().model != ModelCode::Unsloth
        && let Some(issue) = packing(modeling, architecture, member)
    {
        return Err(issue);
    }
    if member.attention == AttentionKernel::FlashAttn
        && let Some(issue) = flash_attn(modeling, architecture, member, device)
    {
        return Err(issue);
    }
    if batch.pictures.count > 0
        && let Some(issue) = pictures::pictures(architecture, (member, batch))
    {
        return Err(issue);
    }
    let part = match &architecture.encoder {
        Some(_) if !modeling.runs_encoder => Some("an encoder beside its decoder".to_owned()),
        Some(_) => None,
        None if architecture.extra.iter().any(|submodule| unknown(submodule).is_some()) => {
            let names: Vec<&str> = architecture.extra.iter().filter_map(unknown).collect();
            Some(format!("parts beside its layers ({})", names.join(", ")))
        }
        None => architecture.blocks.iter().find_map(block),
    };
    match part {
        None => Ok(modeling),
        Some(part) => Err(Issue::error(
            Field::Model,
            format!(
                "the parameters of {} are counted, but running it is not modelled: it has {part}",
                architecture.model_type
            ),
        )
        .with_fix("choose another model")),
    }
}

/// An issue where adapters are trained and no layer has one: peft stops then (0.21, tuners/tuners_utils.py
/// `inject_adapter`: "Target modules … not found in the base model"). Names beside one that is found it passes over.
pub(super) fn adapted(model: &Model<'_>, architecture: &Architecture) -> Result<(), Issue> {
    let member = model.member;
    tuners::layers(model)?;
    optimizers::projected(model)?;
    optimizers::mini(model)?;
    if model.adapted || !member.adapts {
        return Ok(());
    }
    let (family, own) = (&architecture.model_type, Modules::of(architecture));
    let asked = member.lora.modules;
    let message = match member.lora.targets {
        LoraTargets::Named if asked.is_empty() => {
            "no layer to adapt is named: peft refuses to start".to_owned()
        }
        LoraTargets::Named if !asked.within(own).is_empty() => {
            format!("adapters on {} of {family} are not modelled", asked.list())
        }
        LoraTargets::Named if model.modeling.peft.experts => {
            format!("adapters on the experts of {family} alone are not modelled")
        }
        LoraTargets::Named => {
            format!("no layer of {family} is called {}: peft refuses to start", asked.list())
        }
        group => format!("{family} has none of the layers of {:?}: peft refuses to start", group.label()),
    };
    let fix = format!("use all-linear, or layers of {}", own.list());
    Err(Issue::error(Field::LoraTargets, message).with_fix(fix))
}

/// The largest sum of tensors that is answered; beyond it sizes saturate.
const LARGEST: Bytes = Bytes(1 << 60);

/// An issue where a run came across something that it has no code for, that stops in PyTorch, or that is beyond all counting.
pub(super) fn followed(machine: &Machine, member: &Member, highest: Bytes) -> Result<(), Issue> {
    attended(machine, member)?;
    if let Some(what) = machine.with(|state| state.unmodelled) {
        let message = format!("a step of this model has {what}, which is not modelled: there is no figure");
        // adapters stand in parts of it that no text runs
        let (field, fix) = match member.adapts && what == NO_GRADIENT {
            true => (
                Field::LoraTargets,
                "keep adapters off what no text runs: freeze the vision tower, or name the text's own layers",
            ),
            false => (Field::Model, "choose another model"),
        };
        return Err(Issue::error(field, message).with_fix(fix));
    }
    if machine.with(|state| state.parallel.is_lost()) {
        // deepspeed 0.19.8 partitioned_param_coordinator.py `_fetch_sub_module_impl`; peft 0.21 tuners/lora/layer.py `_activate_lora`
        let message = "peft takes the experts' matrices out of their module while it runs (ParamWrapper), so that DeepSpeed does not gather there what the \
                       pass that it recorded has next, and stops (\"tracing error at step\"): it gets by where gathering ahead passes over them, \
                       which ends at so many live parameters";
        let fix = "keep adapters off the experts (attention's layers), raise stage3_max_live_parameters, or choose FSDP2";
        return Err(Issue::error(Field::LoraTargets, message).with_fix(fix));
    }
    if highest >= LARGEST { Err(too_large()) } else { Ok(()) }
}

/// Of a run that has no room whatever there is.
pub(super) fn too_large() -> Issue {
    let message = "this step is too large to count: it needs more than a billion GiB";
    Issue::error(Field::Batch, message).with_fix("use fewer tokens, or a lower rank")
}

/// An issue where the one kernel that is allowed does not take an attention that ran: PyTorch stops then. Measured of the
/// memory-efficient one with grouped heads, of flash with a mask and in float32, and of cuDNN's with wide heads.
fn attended(machine: &Machine, member: &Member) -> Result<(), Issue> {
    let needs = match member.attention {
        AttentionKernel::Eager
        | AttentionKernel::Sdpa
        | AttentionKernel::Math
        | AttentionKernel::FlashAttn => {
            return Ok(());
        }
        AttentionKernel::Flash => "16-bit values, no mask, compute capability 8.0 and heads of at most 256",
        AttentionKernel::Efficient => {
            "as many heads of keys as of queries, and compute capability 8.0 for bfloat16"
        }
        AttentionKernel::Cudnn => "16-bit values, compute capability 8.0 and heads of at most 128 (9.0: 256)",
    };
    if !machine.with(|state| state.graph.math) {
        return Ok(());
    }
    let only = member.attention.label();
    let message = format!(
        "PyTorch stops with \"Invalid backend\": {only}, the only kernel that is allowed, needs {needs}"
    );
    Err(Issue::error(Field::Attention, message).with_fix("choose SDPA, which takes a kernel that runs"))
}

/// Eager attention that multiplies queries and keys in float32 (models/gpt2 `_upcast_and_reordered_attn`); all other
/// implementations pass that key of the config over.
fn upcast(architecture: &Architecture, member: &Member) -> Option<Issue> {
    let asked = architecture
        .blocks
        .iter()
        .filter_map(|block| block.mixer.attention())
        .any(|attention| attention.upcast);
    if !asked || member.attention != AttentionKernel::Eager || !runs_transformers(member) {
        return None;
    }
    let message = "eager attention with reorder_and_upcast_attn, as its config.json has it, is not modelled";
    Some(Issue::error(Field::Attention, message).with_fix("choose SDPA, which passes that key over"))
}

/// Fewer heads of keys and values in gpt2's layers, which Megatron-core alone has.
fn grouped_queries(modeling: Modeling, architecture: &Architecture, member: &Member) -> Option<Issue> {
    let is_grouped = |attention: &Attention| attention.kv_heads < attention.heads;
    let mut attentions = architecture.blocks.iter().filter_map(|block| block.mixer.attention());
    let asked = modeling.code == Code::Gpt2 && attentions.any(is_grouped);
    if !asked || runs_megatron(member) {
        return None;
    }
    let message = "num_query_groups in gpt2's config.json is Megatron-core's: other code has as many heads of keys and values as of queries";
    Some(Issue::error(Field::Stack, message).with_fix("choose Megatron-core, or leave the key out"))
}

/// What stands in the way of texts that share a sequence.
fn packing(modeling: Modeling, architecture: &Architecture, member: &Member) -> Option<Issue> {
    let family = &architecture.model_type;
    let (message, fix) = if !runs_transformers(member) {
        let stack = member.stack.label();
        (format!("texts that share a sequence are not modelled for {stack}"), "choose transformers")
    } else if fills_cache(modeling, architecture, member) {
        let message = "where a cache is filled transformers does not look for texts that share a sequence";
        (message.to_owned(), "switch the cache or the packing off, or checkpointing on")
    } else if !modeling.packs || architecture.head.objective != Objective::CausalLm {
        (format!("texts that share a sequence are not modelled for {family}"), "choose another mask")
    } else if architecture.blocks.iter().any(|block| block.mixer.is_recurrent()) {
        let message = format!("{family} keeps a state from token to token: packing it is not modelled");
        (message, "choose another mask")
    } else {
        return None;
    };
    Some(Issue::error(Field::Mask, message).with_fix(fix))
}

/// Whether transformers' own code asks for masks and attention.
fn runs_transformers(member: &Member) -> bool {
    member.software().runs_transformers()
}

/// Whether Megatron-core's modules run.
fn runs_megatron(member: &Member) -> bool {
    member.software().model == ModelCode::Megatron
}

/// Whether it has layers of a class derived from `nn.Linear`.
fn has_linear_subclass(architecture: &Architecture) -> bool {
    let mut found = false;
    for block in &architecture.blocks {
        block.visit(&mut |param: Param| found |= param.role == ParamRole::LinearSubclassWeight);
    }
    found
}

/// What the package flash-attn does not take, or transformers does not give it.
fn flash_attn(
    modeling: Modeling,
    architecture: &Architecture,
    member: &Member,
    device: Device,
) -> Option<Issue> {
    let family = &architecture.model_type;
    let attentions = || architecture.blocks.iter().filter_map(|block| block.mixer.attention());
    let wide = attentions().any(|own| own.head_dim > 256 || !own.head_dim.is_multiple_of(8));
    let float = match member.precision {
        Precision::Fp32 => true,
        Precision::Bf16 | Precision::Fp16 => {
            member.method == Method::Qlora && member.quantization.makes_rest_float32()
        }
        Precision::AmpBf16 | Precision::AmpBf16Weights | Precision::AmpFp16 | Precision::AmpFp16Weights => {
            false
        }
    };
    if runs_megatron(member) && device.capability >= 80 && !wide {
        // which of Transformer Engine's ways to attend are followed its own refusals say
        return None;
    }
    let fix = "choose SDPA";
    let (message, fix) = if device.capability < 80 {
        ("flash-attn needs compute capability 8.0".to_owned(), fix)
    } else if float {
        ("flash-attn takes 16-bit queries only".to_owned(), "train under autocast or in bfloat16")
    } else if wide {
        ("flash-attn takes heads of at most 256, a multiple of 8".to_owned(), fix)
    } else if !runs_transformers(member) {
        let stack = member.stack.label();
        (format!("the package flash-attn is not modelled for {stack}"), fix)
    } else if !modeling.flash_attn
        || architecture.blocks.iter().any(|block| block.mixer.attention().is_none())
        || attentions().any(|own| own.sinks)
    {
        (format!("{family} with flash-attn is not modelled"), fix)
    } else {
        return None;
    };
    Some(Issue::error(Field::Attention, message).with_fix(fix))
}

fn scans_by_token(block: &Block) -> bool {
    matches!(&block.mixer, Mixer::StateSpace(space) if matches!(space.scan, Scan::Mamba { .. }))
}

fn block(block: &Block) -> Option<String> {
    let mixer = match &block.mixer {
        Mixer::Attention(attention) => unmodelled_attention(attention),
        Mixer::Latent(_) => None,
        Mixer::Cross(_) => return None,
        Mixer::StateSpace(_) | Mixer::DeltaNet(_) | Mixer::ShortConv(_) => None,
        Mixer::Module(module) => Some(module.what.to_owned()),
        Mixer::None => None,
    };
    let rest = match (&block.ffn, &block.cross, &block.wiring) {
        (_, Some(_), _) => Some("attention to an encoder"),
        (FeedForward::None, _, wiring) if !matches!(wiring, Wiring::Single { .. }) => {
            Some("layers without a feed-forward network")
        }
        _ => None,
    };
    let submodules: Vec<&str> = block.extra.iter().filter_map(unknown).collect();
    let rest = rest.map(str::to_owned).or_else(|| {
        (!submodules.is_empty())
            .then(|| format!("further parameters in its layers ({})", submodules.join(", ")))
    });
    mixer.or(rest)
}

/// The name of a parameter beside the parts of a layer or a model, if no code here reads it.
fn unknown(submodule: &Submodule) -> Option<&'static str> {
    let name = match submodule {
        Submodule::Linear(linear) => linear.name,
        Submodule::Norm(norm) => norm.name,
        Submodule::Table(table) => table.name,
        Submodule::Bare(bare) => bare.name,
    };
    Some(name).filter(|name| !SUBMODULES.contains(name))
}

fn unmodelled_attention(attention: &Attention) -> Option<String> {
    match (&attention.code, &attention.projection) {
        (AttentionCode::Unmodelled(family), _) => Some(format!("the attention that only {family} has")),
        (_, Projection::QueriesOnly(_)) => Some("layers that borrow another's keys and values".to_owned()),
        _ if attention.position_bias.is_some() => Some("a learned bias by distance".to_owned()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hardware::Gpu;
    use crate::model::read::parse;
    use crate::scenario::Scenario;
    use crate::step::run;

    /// Why a step of that model is not run; none where it is.
    fn refusal(config: &str, scenario: &Scenario) -> Option<Issue> {
        let architecture = parse(config).expect("it is read");
        run(&architecture, scenario, &Gpu::custom(Bytes::gib(24.0))).err()
    }

    #[test]
    fn eager_attention_that_multiplies_in_float32_is_refused() {
        let config = |model_type: &str, upcast: bool| {
            format!(
                r#"{{"model_type": "{model_type}", "n_embd": 64, "n_head": 4, "n_layer": 2, "n_positions": 512,
                    "vocab_size": 256, "reorder_and_upcast_attn": {upcast}}}"#
            )
        };
        let with = |attention| Scenario {
            attention,
            method: Method::Full,
            sequence: 128,
            checkpointing: Checkpointing::Off,
            ..Scenario::default()
        };
        let eager = with(AttentionKernel::Eager);
        for model_type in ["gpt2", "gpt-sw3"] {
            let issue = refusal(&config(model_type, true), &eager).expect("it is refused");
            assert_eq!(issue.field, Field::Attention);
            assert!(issue.message.contains("reorder_and_upcast_attn"), "{}", issue.message);
            assert_eq!(refusal(&config(model_type, true), &with(AttentionKernel::Sdpa)), None);
            assert_eq!(refusal(&config(model_type, false), &eager), None);
        }
        // its code does not read that key
        assert_eq!(refusal(&config("gpt_bigcode", true), &eager), None);
    }

    #[test]
    fn adapters_on_a_layer_that_is_described_as_three_are_refused() {
        let config = r#"{"model_type": "baichuan", "hidden_size": 64, "num_hidden_layers": 2, "hidden_act": "silu",
            "num_attention_heads": 4, "intermediate_size": 128, "vocab_size": 256, "max_position_embeddings": 512,
            "rms_norm_eps": 1e-6, "tie_word_embeddings": false}"#;
        let with = |method| Scenario { method, sequence: 128, ..Scenario::default() };
        for method in [Method::Lora, Method::Qlora] {
            let issue = refusal(config, &with(method)).expect("it is refused");
            assert_eq!(issue.field, Field::Method);
            assert!(issue.message.contains("not modelled"), "{}", issue.message);
        }
        assert_eq!(refusal(config, &with(Method::Full)), None);
    }

    #[test]
    fn what_trl_does_under_shards_is_refused_where_it_was_not_compared() {
        let refused = |link: &str| {
            let shared = crate::share::decode(&format!("v=1&m=Qwen/Qwen3-0.6B&st=trl&gpus=4&gpu=80GB{link}"));
            assert!(shared.notices.is_empty(), "{:?}", shared.notices);
            let scenario = &shared.scenarios[0];
            let architecture = scenario.architecture().expect("it is in the catalogue");
            run(&architecture, scenario, &scenario.gpu().expect("a card")).err().map(|issue| issue.field)
        };
        let full = "&method=full&shard=fsdp2";
        for (link, field) in [
            (full.to_owned(), None),
            ("&method=full&shard=zero3".to_owned(), None),
            ("&method=lora&p=amp-bf16&shard=zero3&gc=reentrant&task=dpo&s=1024".to_owned(), None),
            ("&method=full&shard=zero3&task=dpo&s=1024&ref=precomputed".to_owned(), Some(Field::Reference)),
            ("&method=full&shard=zero2&gc=reentrant".to_owned(), None),
            (format!("{full}&gc=reentrant"), None),
            ("&method=full&shard=zero2&gc=offloaded".to_owned(), Some(Field::Checkpointing)),
            (format!("{full}&task=dpo&s=1024"), None),
            ("&method=lora&p=amp-bf16&shard=fsdp2&task=dpo&s=1024".to_owned(), None),
            ("&method=qlora&p=amp-bf16&shard=fsdp2&task=dpo&s=1024".to_owned(), None),
            (
                "&method=lora&p=amp-bf16&shard=fsdp2&task=dpo&s=1024&ref=precomputed".to_owned(),
                Some(Field::Reference),
            ),
            (format!("{full}&task=dpo&s=1024&ref=precomputed"), Some(Field::Reference)),
            (format!("{full}&task=kto&s=1024"), None),
            (format!("{full}&task=orpo&s=1024"), None),
            ("&method=qlora&p=amp-bf16&shard=fsdp2&task=simpo&s=1024".to_owned(), Some(Field::Method)),
            (format!("{full}&task=reward&s=1024"), None),
            ("&method=qlora&p=amp-bf16&shard=fsdp2&task=reward&s=1024".to_owned(), None),
            (format!("{full}&task=grpo&s=1024"), None),
            (format!("{full}&task=grpo&s=1024&rollouts=transformers"), Some(Field::Gpus)),
            (format!("{full}&task=distil&s=1024"), Some(Field::Gpus)),
            ("&method=lora&p=bf16&shard=fsdp2".to_owned(), Some(Field::Precision)),
            (format!("{full}&replicas=2"), None),
            (format!("{full}&replicas=2&task=dpo&s=1024"), None),
            ("&method=lora&p=amp-bf16&shard=fsdp2&replicas=2&cpu=all&loss=full".to_owned(), None),
            (format!("{full}&cpu=all"), None),
            (format!("{full}&cpu=all&task=kto&s=1024"), Some(Field::CpuOffload)),
        ] {
            assert_eq!(refused(&link), field, "{link}");
        }
    }
}
