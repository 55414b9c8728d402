//! Experts as transformers had them before 5: each has linear layers of its own, which 4-bit loading quantises and beside which adapters
//! stand, and they run one after the other over the tokens that chose them.
//!
//! Source: transformers 4.57.1 models/qwen3_moe, mixtral, qwen2_moe, olmoe, deepseek_v3 and glm4_moe, compared with the allocator's
//! trace. Which tokens choose an expert is data: every expert is given as many as any other, which is what routers are trained towards.

use std::borrow::Cow;

use crate::dtype::Dtype;
use crate::issue::{Field, Issue};
use crate::job::{HeadKind, Member};
use crate::model::Architecture;
use crate::model::blocks::{Block, FeedForward, Linear, Mlp, Moe};
use crate::model::modeling::{ExpertLayers, ExpertTurns, Modeling, Peft, Router};
use crate::scenario::software::Trainer;
use crate::scenario::{Cluster, Experts, Method, Tuner};
use crate::step::forward::load::autocast_dtype;
use crate::step::forward::loader::weights_dtype;
use crate::step::forward::{BoundLayer, Pass};
use crate::step::ops::linear::Layer;
use crate::step::tensor::Tensor;
use crate::step::what::{EXPERTS, What, roles, torch};
use crate::units::grouped;

static CHOICES: What =
    What::own("one_hot", "for each expert which tokens chose it, eight bytes each", EXPERTS);
static OF_EXPERTS: What = What::own("sums of one_hot", "how many tokens chose each expert", EXPERTS);
static OF_EXPERT: What =
    What::own("one_hot of an expert", "which tokens chose the expert whose turn it is", EXPERTS);

/// Experts of a layer, and of all layers, up to which each is run by itself: of the models that are followed DeepSeek-V3 has most,
/// 256 in each of 58 layers.
const MOST_OF_A_LAYER: u64 = 1024;
const MOST: u64 = 16_384;

/// How many experts each layer has.
fn experts(architecture: &Architecture) -> impl Iterator<Item = u64> {
    architecture.order.iter().map(|kind| match architecture.blocks.get(usize::from(*kind)) {
        Some(Block { ffn: FeedForward::Moe(moe), .. }) => moe.experts,
        Some(_) | None => 0,
    })
}

fn has_experts(architecture: &Architecture) -> bool {
    experts(architecture).any(|of_layer| of_layer > 0)
}

/// Whether hidden states are float32 where autocast makes the router's weights 16-bit: a 4-bit layer returns what it is given.
fn stops_at_the_sum(member: &Member) -> bool {
    let wide = member.quantization.makes_rest_float32() || weights_dtype(member) == Dtype::F32;
    member.method == Method::Qlora && wide && autocast_dtype(member.precision).is_some()
}

/// Refuses them under other libraries, which were not compared.
///
/// # Errors
/// An [`Issue`] on [`Field::Experts`].
pub(super) fn by_transformers(architecture: &Architecture, member: &Member) -> Result<(), Issue> {
    let software = member.software();
    // a loop of one's own around transformers' modules as they are
    let is_plain =
        software.runs_transformers() && software.trainer == Trainer::Loop && !software.liger_kernels;
    let elsewhere = !is_plain || member.head != HeadKind::Language;
    if member.experts == Experts::Layers && elsewhere && has_experts(architecture) {
        let message = "experts that are layers of their own are modelled as transformers 4.57 fine-tunes them, and no other library";
        let fix = "choose one tensor for all, or transformers + PEFT";
        return Err(Issue::error(Field::Experts, message).with_fix(fix));
    }
    Ok(())
}

/// The model with such experts, where they are asked for.
///
/// # Errors
/// An [`Issue`] on [`Field::Experts`] where the family, or what is done with it, was not compared.
pub(super) fn architecture<'a>(
    architecture: &'a Architecture,
    member: &Member,
    cluster: Cluster,
) -> Result<Cow<'a, Architecture>, Issue> {
    if member.experts == Experts::Tensors || !has_experts(architecture) {
        return Ok(Cow::Borrowed(architecture));
    }
    let family = &architecture.model_type;
    let refused = |what: &str| {
        let message = format!("experts that are layers of their own are not modelled {what}");
        Err(Issue::error(Field::Experts, message).with_fix("choose one tensor for all"))
    };
    if cluster.has_engine() {
        return refused(cluster.place_in_words());
    }
    if member.training.is_none() {
        return refused("where the model generates");
    }
    let Some(own) = architecture.family.and_then(|family| family.modeling.expert_layers) else {
        return refused(&format!("for {family}"));
    };
    if experts(architecture).any(|of_layer| of_layer > MOST_OF_A_LAYER)
        || experts(architecture).fold(0, u64::saturating_add) > MOST
    {
        let [of_layer, all] = [MOST_OF_A_LAYER, MOST].map(grouped);
        return refused(&format!("of more than {of_layer} experts in a layer, or {all} in all"));
    }
    if member.adapts && member.lora.tuner != Tuner::Lora {
        return refused("beside another tuner than LoRA");
    }
    if member.method == Method::Qlora
        && (member.quantization.format.bits() == 8 || member.quantization.format.checkpoint().is_some())
    {
        return refused("in 8 bits, of GPTQ or of AWQ");
    }
    if own.turns == ExpertTurns::Weighed && stops_at_the_sum(member) {
        let message = format!(
            "{family} in transformers 4.57 stops here: its experts return float32, which index_add_ does not add to a sum in 16 bits"
        );
        let fix = "load bfloat16 weights and leave k-bit preparation out";
        return Err(Issue::error(Field::KbitPrepare, message).with_fix(fix));
    }
    let blocks = architecture.blocks.iter().map(|block| with_layers(block, own)).collect();
    Ok(Cow::Owned(Architecture { blocks, ..architecture.clone() }))
}

fn with_layers(block: &Block, own: ExpertLayers) -> Block {
    let FeedForward::Moe(moe) = &block.ffn else { return block.clone() };
    let [gate, up, down] = own.names;
    let (hidden, width) = (moe.hidden, moe.expert_width);
    let expert = Mlp::Gated {
        gate: Linear::new(gate, hidden, width),
        up: Linear::new(up, hidden, width),
        down: Linear::new(down, width, hidden),
        act: moe.act,
    };
    let router_is_linear = own.turns != ExpertTurns::Weighed;
    let moe = Moe { layers: Some(expert), router_is_linear, ..(**moe).clone() };
    Block { ffn: FeedForward::Moe(Box::new(moe)), ..block.clone() }
}

/// What the code of a family does where its experts are layers: peft finds them as such, and mixtral's router is the others'.
pub(in crate::step) fn modeling(modeling: Modeling, member: &Member) -> Modeling {
    if member.experts == Experts::Tensors || modeling.expert_layers.is_none() {
        return modeling;
    }
    let router = match modeling.router {
        Router::Mixtral => Router::Qwen,
        other => other,
    };
    // nor are they slices of a tensor in a checkpoint, which was not compared
    Modeling { router, cuts_experts: false, peft: Peft { experts: false, ..modeling.peft }, ..modeling }
}

/// Variables of the loop over experts: what an expert left is there until the next one's takes its place.
#[derive(Default)]
struct Turn<'a> {
    positions: Option<Tensor<'a>>,
    weight: Option<Tensor<'a>>,
    given: Option<Tensor<'a>>,
    output: Option<Tensor<'a>>,
    weighted: Option<Tensor<'a>>,
}

impl<'a> Pass<'_, 'a> {
    /// A sparse feed-forward block whose experts are layers.
    pub(in crate::step::forward) fn expert_layers(
        &self,
        layer: &BoundLayer<'a>,
        (moe, expert): (&Moe, &Mlp),
        whole: &Tensor<'a>,
    ) -> Tensor<'a> {
        let turns = self.modeling.expert_layers.map_or(ExpertTurns::Chosen, |own| own.turns);
        let x = &whole.flattened();
        let routed = self.within("router", &roles::ROUTER, || self.routed(layer, moe, x));
        self.note_gate(&routed.logits);
        let (weights, indices) = (&routed.weights, &routed.indices);
        let mut sum = self.within("experts", &roles::EXPERTS, || {
            self.turns(layer, (moe, expert, turns), x, (weights, indices))
        });
        if turns == ExpertTurns::Weighed {
            if let Some(shared) = &moe.shared {
                let sum_of_all = sum.unflattened();
                drop(sum);
                return sum_of_all.add(&self.mlp(layer, shared, whole));
            }
        } else if let Some(shared) = &moe.shared {
            let mut output = self.mlp(layer, shared, x);
            if let Some(gate) = &moe.shared_gate {
                let open = {
                    let gate = x.through(&layer.linear(gate));
                    gate.keeping_output(&torch::SIGMOID)
                };
                output = output.mul_rows(&open);
            }
            sum = sum.add(&output);
        }
        sum.unflattened()
    }

    /// The experts, one after the other.
    fn turns(
        &self,
        layer: &BoundLayer<'a>,
        (moe, expert, turns): (&Moe, &Mlp, ExpertTurns),
        x: &Tensor<'a>,
        (weights, indices): (&Tensor<'a>, &Tensor<'a>),
    ) -> Tensor<'a> {
        let chosen = indices.value.numel;
        let dtype = if turns == ExpertTurns::Weighed { weights.value.dtype } else { x.value.dtype };
        let mut sum = x.fresh(x.value.numel, dtype, &torch::ZEROS);
        let choices = x.fresh(chosen.saturating_mul(moe.experts), Dtype::I64, &CHOICES);
        let given = chosen.min(moe.experts);
        let hit = (turns == ExpertTurns::Chosen).then(|| {
            let any = {
                let sums = x.fresh(moe.experts, Dtype::I64, &OF_EXPERTS);
                sums.fresh(moe.experts, Dtype::Bool, &torch::OTHERS)
            };
            any.true_at(given, 1)
        });
        let mut kept = Turn::default();
        for (number, layers) in (0..moe.experts).zip(layer.expert_layers.chunks_exact(3)) {
            let rows = chosen / moe.experts.max(1) + u64::from(number < chosen % moe.experts.max(1));
            if rows == 0 && turns != ExpertTurns::All {
                break;
            }
            let own = choices.fresh(chosen, Dtype::I64, &OF_EXPERT);
            // read as numbers that lie one after the other
            let dense =
                (turns == ExpertTurns::Chosen).then(|| own.fresh(chosen, Dtype::I64, &torch::CONTIGUOUS));
            let positions = kept.positions.insert(own.true_at(rows, 2));
            drop((dense, own));
            let added = if turns == ExpertTurns::Weighed {
                let weight = kept.weight.insert(weights.pairs_at(positions, rows));
                let given = kept.given.insert(x.rows_at(positions, rows, moe.hidden));
                let output = kept.output.insert(self.one_expert(expert, layers, given, layer));
                let weighted = output.mul_rows(weight);
                if weighted.value.dtype != dtype {
                    return x.unmodelled("a sum of experts in another element type");
                }
                kept.weighted.insert(weighted).clone()
            } else {
                // `hidden_states[None, top_x]` is of a view
                let given = kept.given.insert(x.flattened().rows_at(positions, rows, moe.hidden));
                let output = self.one_expert(expert, layers, given, layer);
                let weighted = output.mul_rows(&weights.pairs_at(positions, rows));
                kept.weighted.insert(weighted).to(dtype)
            };
            sum = sum.rows_added(positions, &added);
        }
        drop((hit, choices, kept));
        sum.to(x.value.dtype)
    }

    fn one_expert(
        &self,
        expert: &Mlp,
        layers: &[Layer],
        x: &Tensor<'a>,
        layer: &BoundLayer<'a>,
    ) -> Tensor<'a> {
        let (Mlp::Gated { act, .. }, [gate, up, down]) = (expert, layers) else {
            return x.unmodelled("an expert without three layers");
        };
        self.gated(x, [gate, up, down], *act, &layer.params)
    }
}
