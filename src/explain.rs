//! Why a part of the memory is there: its tensors at the peak, each with the sum that makes its size, the reason why it
//! is alive, and the source of that.

mod notes;
mod reasons;

use serde::{Deserialize, Serialize};

use crate::job::Batch;
use crate::memory::Category;
use crate::model::blocks::{FeedForward, Mixer};
use crate::scenario::{Method, Scenario, Stack};
use crate::step::{Happening, TensorGroup};
use crate::units::{Bytes, grouped};
pub use notes::{Note, Switch, notes};
use reasons::{is_attention, of_the_rest, reason};

/// One kind of tensor that is alive at the peak.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Line {
    /// The part that it belongs to.
    pub category: Category,
    /// What it is: the operation and the module that made it.
    pub what: String,
    /// The sum: `32 × 2,048 tokens × 14,336 × 2 bytes (bfloat16)`.
    pub formula: String,
    /// Bytes of all of them.
    pub bytes: Bytes,
    /// Why it is alive at this moment.
    pub why: String,
    /// Where that is written or was measured.
    pub source: String,
}

/// What the tensors of a model are told by.
struct Known {
    /// Rows of its vocabulary.
    vocab: u64,
    /// How many heads a layer may have.
    heads: Vec<u64>,
    /// How many experts a layer may have.
    experts: Vec<u64>,
    /// LoRA's rank, where there are adapters.
    rank: Option<u64>,
    /// Whose code runs it.
    stack: Stack,
}

impl Known {
    fn of(scenario: &Scenario) -> Known {
        let rank = (scenario.method != Method::Full).then_some(scenario.lora.rank);
        let Ok(architecture) = scenario.architecture() else {
            return Known { vocab: 0, heads: Vec::new(), experts: Vec::new(), rank, stack: scenario.stack };
        };
        let encoder = architecture.encoder.as_ref().map_or(&[][..], |encoder| &encoder.blocks[..]);
        let heads = architecture.blocks.iter().chain(encoder).filter_map(|block| match &block.mixer {
            Mixer::Attention(attention) => Some(attention.heads),
            Mixer::Latent(latent) => Some(latent.heads),
            Mixer::Cross(_)
            | Mixer::ShortConv(_)
            | Mixer::StateSpace(_)
            | Mixer::DeltaNet(_)
            | Mixer::Module(_)
            | Mixer::None => None,
        });
        let experts = architecture.blocks.iter().filter_map(|block| match &block.ffn {
            FeedForward::Moe(moe) => Some(moe.experts),
            FeedForward::Dense(_) | FeedForward::None => None,
        });
        let stack = scenario.stack;
        Known { vocab: architecture.vocab, heads: heads.collect(), experts: experts.collect(), rank, stack }
    }

    /// How many times the rank a side of a trained parameter is, where it is that: once, or for experts as many times as
    /// there are of them, twice that where two layers are one.
    fn ranks(&self, group: &TensorGroup, side: u64) -> Option<u64> {
        let trained =
            matches!(group.category, Category::Adapters | Category::Gradients | Category::Optimizer);
        let rank = self.rank.filter(|rank| trained && *rank > 0 && side.is_multiple_of(*rank))?;
        let of_experts = |times: u64| {
            let counts = self.experts.iter();
            group.module.ends_with("experts")
                && counts.into_iter().any(|count| times == *count || times == 2 * count)
        };
        Some(side / rank).filter(|times| *times == 1 || of_experts(*times))
    }
}

/// The most kinds of tensors that are told apart in one part; the smaller ones are summed up.
const KINDS: usize = 12;

/// Explains the tensors at the peak, part by part, the largest first.
///
/// ```
/// use headroom::explain::explain;
/// use headroom::{allocator::Settings, scenario::Scenario, step::Recording};
///
/// let scenario = Scenario::default();
/// let (model, gpu) = (scenario.architecture().unwrap(), scenario.gpu().unwrap());
/// let recording = Recording::of(&model, &scenario, &gpu).unwrap();
/// let lines = explain(&recording.tensors_at_peak(Settings::default()), &scenario);
/// assert!(lines.iter().any(|line| line.formula.contains("128,256")), "the logits");
/// ```
pub fn explain(tensors: &[TensorGroup], scenario: &Scenario) -> Vec<Line> {
    let known = Known::of(scenario);
    let batch = Batch::from(scenario).laid_out(scenario.stack);
    let mut lines = Vec::new();
    for part in tensors.chunk_by(|a, b| a.category == b.category) {
        // one kind too many is better told than summed up alone
        let told = if part.len() > KINDS + 1 { KINDS } else { part.len() };
        lines.extend(part[..told].iter().map(|group| line(group, batch, &known)));
        lines.extend(rest(&part[told..], &known));
    }
    lines
}

fn rest(groups: &[TensorGroup], known: &Known) -> Option<Line> {
    let first = groups.first()?;
    let count = groups.iter().map(|group| group.count).fold(0, u64::saturating_add);
    let (why, source) = of_the_rest(groups, known)?;
    Some(Line {
        category: first.category,
        what: format!("{} smaller tensors", grouped(count)),
        formula: format!("{} further kinds of at most {} bytes", groups.len(), grouped(first.total().0)),
        bytes: Bytes(groups.iter().map(|group| group.total().0).fold(0, u64::saturating_add)),
        why: why.to_owned(),
        source: source.to_owned(),
    })
}

fn line(group: &TensorGroup, batch: Batch, known: &Known) -> Line {
    let (why, source) = reason(group, numel(group), known);
    Line {
        category: group.category,
        what: what(group.module, group.operation, group.recomputed),
        formula: formula(group, batch, known),
        bytes: group.total(),
        why: why.to_owned(),
        source: source.to_owned(),
    }
}

/// What an event does: `makes mlp.down_proj: linear, 112 MiB`.
pub fn event(happening: &Happening) -> String {
    let Happening { comes, module, operation, recomputed, bytes } = *happening;
    let verb = if comes { "makes" } else { "frees" };
    format!("{verb} {}, {bytes}", what(module, operation, recomputed))
}

fn what(module: &str, operation: &str, recomputed: bool) -> String {
    let again = if recomputed { "recomputed " } else { "" };
    match (module, operation) {
        ("", operation) => format!("{again}{operation}"),
        (module, "parameter") => module.to_owned(),
        (module, operation) => format!("{again}{module}: {operation}"),
    }
}

fn numel(group: &TensorGroup) -> u64 {
    group.bytes.0 / group.dtype.bytes().max(1)
}

/// The sum behind a group's size, which comes to the bytes that are asked for.
fn formula(group: &TensorGroup, batch: Batch, known: &Known) -> String {
    if group.category == Category::Rounding {
        return "memory_allocated() less the bytes of its tensors".to_owned();
    }
    let size = group.dtype.bytes();
    let bytes = if size == 1 { "1 byte".to_owned() } else { format!("{size} bytes") };
    let times = if group.count == 1 { String::new() } else { format!("{} × ", grouped(group.count)) };
    format!("{times}{} × {bytes} ({})", elements(group, batch, known), group.dtype.name())
}

/// The elements of one tensor: those of a parameter as its rows and columns, what is a multiple of the tokens as one.
fn elements(group: &TensorGroup, batch: Batch, known: &Known) -> String {
    let numel = numel(group);
    if numel == 1 {
        return "1".to_owned();
    }
    let by_parameter = of_parameter(group, numel, known);
    let by_tokens = || if by_tokens(group) { of_tokens(group, numel, batch, known) } else { None };
    by_parameter.or_else(by_tokens).unwrap_or_else(|| format!("{} elements", grouped(numel)))
}

/// `14,336 × rank 16`; with a divisor where elements stand for several of the parameter.
fn of_parameter(group: &TensorGroup, numel: u64, known: &Known) -> Option<String> {
    let (rows, columns) = group.shape;
    let whole = rows.checked_mul(columns)?;
    if rows <= 1 || numel == 0 {
        return None;
    }
    let side = |side: u64| match known.ranks(group, side) {
        Some(1) => format!("rank {}", grouped(side)),
        Some(several) => format!("rank {} × {}", grouped(side / several), grouped(several)),
        None => grouped(side),
    };
    let both = || format!("{} × {}", side(rows), side(columns));
    if whole == numel {
        return Some(both());
    }
    // 4-bit weights, one scale for so many of them, blocks of 8-bit states
    let shared = matches!(
        group.operation,
        "4-bit weight" | "scales" | "scales (8-bit)" | "scales of scales" | "optimizer state"
    );
    (shared && whole / numel > 1 && whole.is_multiple_of(numel))
        .then(|| format!("{} ÷ {}", both(), grouped(whole / numel)))
}

/// `2,048 tokens × 4,096`; scores by their keys, positions by theirs.
fn of_tokens(group: &TensorGroup, numel: u64, batch: Batch, known: &Known) -> Option<String> {
    let (tokens, sequence) = (batch.tokens(), batch.length);
    // chunks of the tokens, or all but the last of each sequence
    let entries = numel.checked_div(known.vocab).filter(|rows| {
        group.category == Category::Logits
            && *rows > 0
            && *rows != tokens
            && numel.is_multiple_of(known.vocab)
    });
    if let Some(rows) = entries {
        return Some(format!("{} tokens × {}", grouped(rows), grouped(known.vocab)));
    }
    let is_score = is_score(group.module, group.operation);
    let per = |count: u64, name: &str| {
        let width = numel.checked_div(count).filter(|width| *width > 0 && numel.is_multiple_of(count))?;
        let rows = format!("{} {name}", grouped(count));
        let heads = width.checked_div(sequence).filter(|heads| {
            is_score && width.is_multiple_of(sequence) && (*heads == 1 || known.heads.contains(heads))
        });
        Some(match heads {
            Some(1) => format!("{rows} × {} keys", grouped(sequence)),
            Some(heads) => format!("{rows} × {} keys × {} heads", grouped(sequence), grouped(heads)),
            None if width == 1 => rows,
            None => format!("{rows} × {}", grouped(width)),
        })
    };
    let positions = group.module == "rotary_emb" || group.operation == "range";
    // a mask or a bias may be one for all sequences
    let shared = is_score && !numel.is_multiple_of(tokens.saturating_mul(sequence));
    let own_positions = positions && batch.mask.is_packed();
    if !own_positions && (positions || shared) { per(sequence, "positions") } else { per(tokens, "tokens") }
}

/// Whether tensors of a group are one row per token.
fn by_tokens(group: &TensorGroup) -> bool {
    let of_weights = matches!(
        group.operation,
        "adapted weight"
            | "adapted weight (factor)"
            | "dequantised weight"
            | "scales"
            | "weight copy"
            | "foreach"
            | "optimizer scratch"
            | "norm"
            | "partial norms"
            | "linear (weight gradient)"
            | "convolution (weight gradient)"
            | "gradient of the weight"
            | "dW"
    );
    match group.category {
        Category::Activations | Category::Logits | Category::Temporaries | Category::Batch => !of_weights,
        Category::Weights
        | Category::Adapters
        | Category::QuantState
        | Category::Buffers
        | Category::Gradients
        | Category::Optimizer
        | Category::WeightCopies
        | Category::Workspace
        | Category::Rounding => false,
    }
}

/// Whether an operation makes scores: one number per query and key.
fn is_score(module: &str, operation: &str) -> bool {
    match operation {
        "mask" | "relative position" | "additive mask" | "causal mask" | "attention mask" | "score mask"
        | "alibi mask" => true,
        "softmax"
        | "softmax (grad · output)"
        | "dropout"
        | "dropout mask"
        | "matmul"
        | "baddbmm"
        | "cast"
        | "zeros"
        | "masked_fill" => is_attention(module),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::Dtype;

    fn group(
        category: Category,
        operation: &'static str,
        dtype: Dtype,
        numel: u64,
        count: u64,
    ) -> TensorGroup {
        TensorGroup {
            category,
            module: "self_attn",
            operation,
            dtype,
            shape: (0, 0),
            recomputed: false,
            bytes: Bytes(numel * dtype.bytes()),
            count,
        }
    }

    #[test]
    fn sums_are_written_with_the_scenarios_numbers() {
        let scenario = Scenario { batch: 1, sequence: 2048, ..Scenario::default() };
        for (group, formula) in [
            (
                group(Category::Activations, "silu", Dtype::Bf16, 2048 * 14_336, 32),
                "32 × 2,048 tokens × 14,336 × 2 bytes (bfloat16)",
            ),
            (
                group(Category::Activations, "softmax", Dtype::F32, 2048 * 2048 * 32, 1),
                "2,048 tokens × 2,048 keys × 32 heads × 4 bytes (float32)",
            ),
            (
                group(Category::Weights, "parameter", Dtype::F32, 4096, 2),
                "2 × 4,096 elements × 4 bytes (float32)",
            ),
        ] {
            assert_eq!(explain(&[group], &scenario)[0].formula, formula);
        }
    }
}
