//! Why a part of the memory is there: its tensors at the peak, each with the sum that makes its size, the reason why it
//! is alive, and the source of that. The words are the operation's ([`What`](crate::step::What)) and those of the code that
//! ran it ([`Role`](crate::step::Role)); here they become sentences.

mod layers;
mod notes;
mod source;
mod zoom;

use serde::{Deserialize, Serialize};

use crate::memory::Category;
use crate::scenario::{Scenario, Stack};
use crate::step::{Dims, Happening, Pass, Rank, Rows, Source, TensorGroup, is_engines};
use crate::units::{Bytes, grouped};
use layers::{named, numbers};
pub use notes::{Note, Switch, notes};
pub use source::read_at;
pub use zoom::{Level, zoom};

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
    let mut lines = Vec::new();
    for part in tensors.chunk_by(|a, b| a.category == b.category) {
        // one kind too many is better told than summed up alone
        let told = if part.len() > KINDS + 1 { KINDS } else { part.len() };
        lines.extend(part[..told].iter().map(|group| line(group, scenario.loss_stack())));
        lines.extend(rest(&part[told..], scenario.loss_stack()));
    }
    lines
}

/// The largest so many kinds of tensors, whatever their part, of tensors that are grouped
/// [by layer](crate::step::Recording::tensors_by_layer), each with the layers of which it is: `mlp.down_proj, layers 0 to 31`.
pub fn largest(tensors: &[TensorGroup], scenario: &Scenario, most: usize) -> Vec<Line> {
    let mut kinds: Vec<(TensorGroup, Vec<u32>)> = Vec::new();
    for group in tensors {
        let bare = TensorGroup { layer: 0, count: 0, ..group.clone() };
        let known = kinds.iter_mut().find(|(kind, _)| TensorGroup { count: 0, ..kind.clone() } == bare);
        match known {
            Some((kind, layers)) => {
                kind.count = kind.count.saturating_add(group.count);
                let place = layers.partition_point(|other| *other < group.layer);
                layers.insert(place, group.layer);
            }
            None => kinds.push((TensorGroup { count: group.count, ..bare }, vec![group.layer])),
        }
    }
    kinds.sort_by_key(|(kind, _)| std::cmp::Reverse(kind.total()));
    let told = |(kind, layers): &(TensorGroup, Vec<u32>)| {
        let line = line(kind, scenario.loss_stack());
        Line { what: named(line.what, numbers(layers)), ..line }
    };
    kinds.iter().take(most).map(told).collect()
}

fn rest(groups: &[TensorGroup], stack: Stack) -> Option<Line> {
    let first = groups.first()?;
    let count = groups.iter().map(|group| group.count).fold(0, u64::saturating_add);
    let (why, source) = match first.category {
        Category::Activations | Category::Logits | Category::Temporaries => (
            "smaller ones, each compared with the allocator's trace".to_owned(),
            "PyTorch, tools/autograd/derivatives.yaml".to_owned(),
        ),
        Category::Optimizer => {
            ("smaller ones, steps and scales among them".to_owned(), "PyTorch, torch/optim".to_owned())
        }
        Category::QuantState => (
            "scales and code books that turn 4-bit weights back into numbers".to_owned(),
            first.what.source.of(stack).to_owned(),
        ),
        Category::Buffers => {
            ("tensors of the model that are not trained".to_owned(), Source::Modeling.of(stack).to_owned())
        }
        Category::Weights
        | Category::Adapters
        | Category::Gradients
        | Category::KvCache
        | Category::WeightCopies
        | Category::Workspace
        | Category::Batch
        | Category::Rounding => reason(first, stack),
    };
    Some(Line {
        category: first.category,
        what: format!("{} smaller tensors", grouped(count)),
        formula: format!("{} further kinds of at most {} bytes", groups.len(), grouped(first.total().0)),
        bytes: Bytes(groups.iter().map(|group| group.total().0).fold(0, u64::saturating_add)),
        why,
        source,
    })
}

fn line(group: &TensorGroup, stack: Stack) -> Line {
    let (why, source) = reason(group, stack);
    Line {
        category: group.category,
        what: what(group.module, group.what.name, group.pass == Pass::Recomputation),
        formula: formula(group),
        bytes: group.total(),
        why,
        source,
    }
}

/// What an event does, of which layer, and what that is: `makes mlp.down_proj: linear, 112 MiB, layer 17 of 0 to 31: a projection`.
pub fn event(happening: &Happening) -> String {
    let Happening { comes, module, operation, recomputed, bytes, place, layer, words } = *happening;
    let verb = if comes { "makes" } else { "frees" };
    let place = match (layer, place) {
        (Some((layer, last)), _) if last > 0 => {
            format!(", layer {} of 0 to {}", grouped(u64::from(layer)), grouped(u64::from(last)))
        }
        (Some((layer, _)), _) => format!(", layer {}", grouped(u64::from(layer))),
        (None, (_, 1)) => String::new(),
        (None, (number, count)) => {
            format!(", number {} of {} in this phase", grouped(number as u64), grouped(count as u64))
        }
    };
    format!("{verb} {}, {bytes}{place}: {words}", what(module, operation, recomputed))
}

fn what(module: &str, operation: &str, recomputed: bool) -> String {
    let again = if recomputed { "recomputed " } else { "" };
    match (module, operation) {
        ("", operation) => format!("{again}{operation}"),
        (module, "parameter") => module.to_owned(),
        (module, operation) => format!("{again}{module}: {operation}"),
    }
}

/// Why it is alive, and the source of that.
fn reason(group: &TensorGroup, stack: Stack) -> (String, String) {
    let TensorGroup { what, role, .. } = group;
    let own = || (what.words.to_owned(), what.source.of(stack).to_owned());
    match group.category {
        // whatever made it, it stays because it is that now; but for the buffers of an engine of many GPUs
        Category::Gradients if !is_engines(what) => (
            "one gradient per trained parameter, in its element type, from its backward to zero_grad"
                .to_owned(),
            "PyTorch, torch/csrc/autograd/functions/accumulate_grad.h".to_owned(),
        ),
        Category::Optimizer if numel(group) == 1 => {
            ("how many steps a parameter has made".to_owned(), "PyTorch, torch/optim".to_owned())
        }
        Category::Buffers if !what.says_all => (
            format!("{}: a tensor of the model that is not trained", what.words),
            role.source.of(stack).to_owned(),
        ),
        Category::Weights
        | Category::Adapters
        | Category::QuantState
        | Category::Buffers
        | Category::Optimizer
        | Category::Gradients
        | Category::KvCache
        | Category::WeightCopies
        | Category::Workspace
        | Category::Rounding => own(),
        Category::Activations | Category::Logits | Category::Temporaries | Category::Batch => {
            match group.pass {
                _ if what.says_all => own(),
                Pass::Forward | Pass::Recomputation => {
                    let [of_role, of_what] = [role.source.of(stack), what.source.of(stack)];
                    let sources = if of_role.split("; ").any(|one| one == of_what) {
                        of_role.to_owned()
                    } else {
                        format!("{of_role}; {of_what}")
                    };
                    (format!("{}: {}", role.words, what.words), sources)
                }
                Pass::Backward => (
                    format!(
                        "a gradient that this operation's backward makes or hands on, alive until the next one has used it \
                         ({})",
                        role.words
                    ),
                    "PyTorch, torch/csrc/autograd/engine.cpp".to_owned(),
                ),
            }
        }
    }
}

fn numel(group: &TensorGroup) -> u64 {
    group.bytes.0 / group.dtype.bytes().max(1)
}

/// The sum behind a group's size, which comes to the bytes that are asked for.
fn formula(group: &TensorGroup) -> String {
    if group.category == Category::Rounding {
        return "memory_allocated() less the bytes of its tensors".to_owned();
    }
    let size = group.dtype.bytes();
    let bytes = if size == 1 { "1 byte".to_owned() } else { format!("{size} bytes") };
    let times = if group.count == 1 { String::new() } else { format!("{} × ", grouped(group.count)) };
    format!("{times}{} × {bytes} ({})", elements(group.dims, numel(group)), group.dtype.name())
}

/// The elements of one tensor by its dimensions.
fn elements(dims: Dims, numel: u64) -> String {
    let all = || format!("{} elements", grouped(numel));
    match dims {
        _ if numel == 1 => "1".to_owned(),
        Dims::Elements => all(),
        Dims::Parameter(rows, columns, rank) => {
            of_parameter((rows, columns, rank), numel).unwrap_or_else(all)
        }
        Dims::Rows(of, rows) => {
            width(numel, rows).map_or_else(all, |width| format!("{}{}", of_rows(of, rows), times(width)))
        }
        Dims::Scores(of, rows, keys) => match width(numel, rows.saturating_mul(keys)) {
            Some(1) => format!("{} × {} keys", of_rows(of, rows), grouped(keys)),
            Some(heads) => {
                format!("{} × {} keys × {} heads", of_rows(of, rows), grouped(keys), grouped(heads))
            }
            None => all(),
        },
        Dims::Chosen(tokens, experts) => {
            let rows = || format!("{} × {} experts", of_rows(Rows::Tokens, tokens), grouped(experts));
            width(numel, tokens.saturating_mul(experts))
                .map_or_else(all, |width| format!("{}{}", rows(), times(width)))
        }
    }
}

/// What is left of so many elements for each of so many rows.
fn width(numel: u64, rows: u64) -> Option<u64> {
    numel.checked_div(rows).filter(|width| *width > 0 && numel.is_multiple_of(rows))
}

fn times(width: u64) -> String {
    if width == 1 { String::new() } else { format!(" × {}", grouped(width)) }
}

fn of_rows(of: Rows, rows: u64) -> String {
    let name = match of {
        Rows::Tokens => "tokens",
        Rows::Positions => "positions",
    };
    format!("{} {name}", grouped(rows))
}

/// `14,336 × rank 16`; with a divisor where elements stand for several of the parameter.
fn of_parameter((rows, columns, rank): (u64, u64, Rank), numel: u64) -> Option<String> {
    let whole = rows.checked_mul(columns)?;
    if rows <= 1 || numel == 0 || !whole.is_multiple_of(numel) {
        return None;
    }
    let (first, second) = match rank {
        Rank::None | Rank::OneRow => (grouped(rows), grouped(columns)),
        Rank::Rows(rank) => (of_rank(rank, rows), grouped(columns)),
        Rank::Columns(rank) => (grouped(rows), of_rank(rank, columns)),
    };
    let divisor = if whole == numel { String::new() } else { format!(" ÷ {}", grouped(whole / numel)) };
    Some(format!("{first} × {second}{divisor}"))
}

/// `rank 16`, or of eight experts' matrices in one `rank 16 × 8`.
fn of_rank(rank: u32, side: u64) -> String {
    match width(side, u64::from(rank)) {
        Some(1) => format!("rank {}", grouped(side)),
        Some(matrices) => format!("rank {} × {}", grouped(u64::from(rank)), grouped(matrices)),
        None => grouped(side),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_written_with_the_dimensions_that_were_noted() {
        for (dims, numel, words) in [
            (Dims::Rows(Rows::Tokens, 2048), 2048 * 14_336, "2,048 tokens × 14,336"),
            (Dims::Rows(Rows::Positions, 2048), 2048, "2,048 positions"),
            (Dims::Rows(Rows::Tokens, 2048), 100, "100 elements"),
            (Dims::Rows(Rows::Tokens, 0), 100, "100 elements"),
            (
                Dims::Scores(Rows::Tokens, 2048, 2048),
                2048 * 2048 * 32,
                "2,048 tokens × 2,048 keys × 32 heads",
            ),
            (Dims::Scores(Rows::Positions, 2048, 2048), 2048 * 2048, "2,048 positions × 2,048 keys"),
            (Dims::Scores(Rows::Tokens, u64::MAX, u64::MAX), 7, "7 elements"),
            (Dims::Chosen(2048, 2), 2 * 2048 * 64, "2,048 tokens × 2 experts × 64"),
            (Dims::Parameter(4096, 16, Rank::Columns(16)), 65_536, "4,096 × rank 16"),
            (Dims::Parameter(128, 64, Rank::Rows(16)), 8192, "rank 16 × 8 × 64"),
            (Dims::Parameter(4096, 64, Rank::None), 4096, "4,096 × 64 ÷ 64"),
            (Dims::Parameter(1, 4096, Rank::None), 4096, "4,096 elements"),
            (Dims::Elements, 1, "1"),
        ] {
            assert_eq!(elements(dims, numel), words);
        }
    }
}
