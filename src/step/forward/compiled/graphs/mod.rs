//! The graphs of a compiled layer: what torch.compile traces, differentiates, divides and fuses of it.
//!
//! All were read off the scheduler of PyTorch 2.11 for many shapes, with transformers 5.17 (`tools/compiled_layers.py --nodes`). Each is the
//! same for all, but for what its file says.

mod autocast;
mod full;
mod lora;
pub(super) mod unsloth;
pub(super) mod whole;

use super::draft::{ARGUMENTS, Draft, Sizes, op};
use crate::dtype::Dtype;
use crate::step::inductor::{Call, Graph, Origin};

/// The graph of a layer's forward.
pub(super) fn forward(sizes: &Sizes) -> Forward {
    match sizes.adapters {
        Some(adapters) => lora::forward(sizes, adapters),
        None if sizes.autocast => autocast::forward(sizes),
        None => full::forward(sizes),
    }
}

/// The graph of its backward.
pub(super) fn backward(sizes: &Sizes) -> Backward {
    match sizes.adapters {
        Some(adapters) => lora::backward(sizes, adapters),
        None if sizes.autocast => autocast::backward(sizes),
        None => full::backward(sizes),
    }
}

/// The forward graph.
pub(super) struct Forward {
    pub graph: Graph,
    /// What is saved for backward.
    pub kept: Vec<usize>,
    pub output: usize,
}

/// The backward graph.
pub(super) struct Backward {
    pub graph: Graph,
    /// What forward saved, in forward's order.
    pub kept: Vec<usize>,
    /// The gradient of the layer's output.
    pub gradient: usize,
    /// By argument of the layer: the gradient, where it has one.
    pub gradients: [Option<usize>; ARGUMENTS],
}

/// The kernel of a norm of forward: the mean of the squares, the scale, and the result, which is written over all of what is normed but the
/// layer's input.
fn norm(draft: &mut Draft, weight: usize, of: &[usize], [mean, scale, result]: [usize; 3]) {
    let read = [&[weight][..], of, &[scale]].concat();
    let ops =
        vec![op(mean, of, &[]), op(scale, &[mean], &[]), op(result, &read, of.get(1..).unwrap_or_default())];
    draft.node(Call::Kernel, ops);
}

/// A forward graph, which saves all that it makes and returns but the layer's output.
fn forward_of(draft: Draft, output: usize) -> Forward {
    let graph = draft.done();
    let is_kept = |index: &usize| {
        let buffer = &graph.buffers[*index];
        buffer.returned && buffer.origin != Origin::Argument && *index != output
    };
    let kept = (0..graph.buffers.len()).filter(is_kept).collect();
    Forward { graph, kept, output }
}

/// A backward graph.
fn backward_of(draft: Draft, gradient: usize, gradients: [Option<usize>; ARGUMENTS]) -> Backward {
    let graph = draft.done();
    let is_saved = |index: &usize| graph.buffers[*index].origin == Origin::Saved;
    let kept = (0..graph.buffers.len()).filter(is_saved).collect();
    Backward { graph, kept, gradient, gradients }
}

/// What attention's kernel returns in forward: its result, the logarithms of its sums, and two tensors for its random numbers.
fn attention(draft: &mut Draft, sizes: &Sizes, given: [usize; 3]) -> [usize; 4] {
    let parts = attention_alone(draft, sizes, given);
    // the view of its result has a number and is none of the graph's buffers
    draft.skip();
    parts
}

/// The same without a view of its result.
fn attention_alone(draft: &mut Draft, sizes: &Sizes, given: [usize; 3]) -> [usize; 4] {
    let returned = [
        (sizes.tokens.saturating_mul(sizes.queries.features), sizes.dtype),
        (sizes.log_sums, Dtype::F32),
        (sizes.seeds[0], Dtype::I64),
        (sizes.seeds[1], Dtype::I64),
    ];
    let tuple = draft.made((0, sizes.dtype), Origin::MultiOutputLayout, false);
    draft.simple(Call::Attention, tuple, &given);
    let mut index = 0;
    returned.map(|size| {
        let part = draft.made(size, Origin::MultiOutput, true);
        draft.simple(Call::MultiOutput(index), part, &[tuple]);
        index += 1;
        part
    })
}

/// What attention's kernel leaves in backward: the gradients of queries, keys and values, where they are wanted.
fn attention_backward(draft: &mut Draft, sizes: &Sizes, given: &[usize], wanted: [bool; 3]) -> [usize; 3] {
    let tuple = draft.made((0, sizes.dtype), Origin::MultiOutputLayout, false);
    draft.simple(Call::AttentionBackward, tuple, given);
    let mut index = 0;
    [sizes.queries, sizes.keys, sizes.keys].map(|of| {
        let size = (sizes.tokens.saturating_mul(of.features), sizes.dtype);
        let part = draft.made(size, Origin::MultiOutput, false);
        if wanted[index] {
            draft.simple(Call::MultiOutput(index), part, &[tuple]);
        }
        index += 1;
        part
    })
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::draft::{Adapters, Beside, Projected, Targets};
    use super::super::rules::{bias_sums, norm_sums, padded};
    use super::*;
    use crate::hardware::Device;
    use crate::hardware::Gpu;
    use crate::step::inductor::Line;
    use crate::units::Bytes;

    /// What PyTorch 2.11 generated on compute capability 8.0 (`tools/compiled_layers.py`).
    const GENERATED: &str = include_str!("../../../../../tests/fixtures/compiled/generated.txt");

    pub(in super::super) fn written(graph: &Graph) -> Vec<String> {
        // workspaces are numbered as they are allocated
        let all = graph.lines();
        let workspaces: Vec<usize> = (all.iter())
            .filter_map(|line| match line {
                Line::Make(made) | Line::Take { made, .. } => Some(*made),
                Line::Free(_) | Line::Run(_) | Line::Place(_) => None,
            })
            .filter(|made| graph.buffers[*made].origin == Origin::Workspace)
            .collect();
        let name = |buffer: usize| match workspaces.iter().position(|workspace| *workspace == buffer) {
            Some(number) => format!("workspace_{number}"),
            None => graph.buffers[buffer].name.clone(),
        };
        let mut lines: Vec<String> = Vec::new();
        // made since a kernel ran
        let mut fresh = Vec::new();
        for line in all {
            match line {
                Line::Make(made) => {
                    fresh.push(made);
                    lines.push(format!("make {} {}", name(made), graph.buffers[made].storage_size));
                }
                Line::Take { made, from } => {
                    // what becomes another buffer within one kernel was never there by itself
                    let own = name(from);
                    let last = lines.last_mut().filter(|last| {
                        let is_its = last.split(' ').nth(1).is_some_and(|name| *name == own);
                        is_its && last.starts_with("make") && fresh.contains(&from)
                    });
                    match last {
                        Some(last) => *last = last.replacen(&own, &name(made), 1),
                        None => lines.push(format!("take {} {}", name(made), own)),
                    }
                    fresh.push(made);
                }
                Line::Free(gone) => lines.push(format!("free {}", name(gone))),
                Line::Run(_) => fresh.clear(),
                Line::Place(_) => {}
            }
        }
        lines
    }

    /// Where a graph's code is not the generated one, if it is not.
    pub(in super::super) fn difference(graph: &Graph, generated: &[&str]) -> Option<String> {
        let own = written(graph);
        // what would be freed last is left to the end of the function
        let same = own.len() >= generated.len() && own[..generated.len()] == *generated;
        let ends = own[generated.len().min(own.len())..].iter().all(|line| line.starts_with("free"));
        (!same || !ends).then(|| {
            let at = own.iter().zip(generated).position(|(own, generated)| own != generated);
            format!("line {at:?}\n  own {own:?}\n  generated {generated:?}")
        })
    }

    /// The sizes of a case of the tool, in a layer whose input wants a gradient or not.
    pub(in super::super) fn sizes(case: &serde_json::Value, input: bool) -> Sizes {
        let device = Device::of(&Gpu::custom(Bytes::gib(80.0)));
        let config = &case["config"];
        let number = |key: &str| config[key].as_u64().unwrap_or_else(|| panic!("{key} of {case}"));
        let [sequences, length] = ["batch", "seq"].map(|key| case[key].as_u64().expect("a number"));
        let (hidden, heads) = (number("hidden_size"), number("num_attention_heads"));
        let head = config["head_dim"].as_u64().unwrap_or(hidden / heads);
        let tokens = sequences * length;
        let beside = match config["model_type"].as_str() {
            Some("qwen2") => Beside::Biases,
            Some("qwen3") => Beside::HeadNorms,
            _ => Beside::Nothing,
        };
        let projected = |heads: u64| Projected {
            features: heads * head,
            heads,
            numbers: padded(sequences, length * heads),
            sums: match beside {
                Beside::HeadNorms => norm_sums(device, tokens * heads, head),
                Beside::Nothing | Beside::Biases => bias_sums(device, tokens, heads * head),
            },
        };
        Sizes {
            sequences,
            tokens,
            hidden,
            queries: projected(heads),
            keys: projected(number("num_key_value_heads")),
            width: number("intermediate_size"),
            numbers: padded(sequences, length),
            log_sums: tokens * heads,
            seeds: [2, 1],
            dtype: Dtype::Bf16,
            sums: norm_sums(device, tokens, hidden),
            beside,
            adapters: (case["method"] == "lora").then(|| Adapters {
                rank: case["lora"]["r"].as_u64().unwrap_or(16),
                targets: match case["lora"]["targets"].as_str() {
                    Some("all-linear") => Targets::All,
                    Some("qv") => Targets::QueriesAndValues,
                    _ => Targets::Attention,
                },
                input,
            }),
            autocast: case["dtype"] == "amp_bf16",
        }
    }

    #[test]
    fn the_code_is_what_inductor_generates() {
        let layers: Vec<&str> = GENERATED.split("layer ").filter(|layer| !layer.is_empty()).collect();
        assert_eq!(layers.len(), 36);
        let mut wrong = Vec::new();
        for layer in layers {
            let (case, code) = layer.split_once('\n').expect("a case and its code");
            let case: serde_json::Value = serde_json::from_str(case).expect("a case");
            for generated in
                code.replace("\nforward", "\n\nforward").replace("\nbackward", "\n\nbackward").split("\n\n")
            {
                let mut generated: Vec<&str> = generated.lines().collect();
                let name = generated.remove(0);
                // with adapters, the first layer is the first in forward and the last in backward
                let graph = match name {
                    "forward 0" => forward(&sizes(&case, false)).graph,
                    "forward 1" => forward(&sizes(&case, true)).graph,
                    "backward 0" => backward(&sizes(&case, true)).graph,
                    "backward 1" => backward(&sizes(&case, false)).graph,
                    other => panic!("{other}: a graph"),
                };
                if let Some(how) = difference(&graph, &generated) {
                    wrong.push(format!("{case}, {name}: {how}"));
                }
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }
}
