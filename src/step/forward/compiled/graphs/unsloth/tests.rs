use super::super::tests::sizes;
use super::super::tests::written;
use super::*;
use crate::step::forward::compiled::graphs::unsloth::{answered, backward, forward};
use crate::step::forward::stacks::unsloth::bucketed;
use crate::step::inductor::{Graph, Line, Origin};
use crate::step::ops::attention::Kernel;

/// What PyTorch 2.11 generated of Unsloth's layers on compute capability 8.0 (`tools/unsloth_compiled_layers.py`).
const GENERATED: &str = include_str!("../../../../../../tests/fixtures/compiled/unsloth.txt");

/// The lines of a graph, without those that let go of what it was given.
fn own(graph: &Graph) -> Vec<String> {
    let lines = written(graph).into_iter();
    lines.filter(|line| !line.starts_with("free") || line.starts_with("free buf")).collect()
}

/// The lines of one whose buffers have places in pools.
fn pooled(mut graph: Graph) -> Vec<String> {
    let lines = graph.pooled_lines();
    let name = |buffer: usize| &graph.buffers[buffer].name;
    let line = |line: Line| match line {
        Line::Make(made) => Some(format!("make {} {}", name(made), graph.buffers[made].storage_size)),
        Line::Free(gone) if graph.buffers[gone].origin != Origin::Argument => {
            Some(format!("free {}", name(gone)))
        }
        Line::Free(_) | Line::Take { .. } | Line::Run(_) | Line::Place(_) => None,
    };
    lines.into_iter().filter_map(line).collect()
}

#[test]
fn the_code_is_what_inductor_generates_of_unsloths_layers() {
    let layers: Vec<&str> = GENERATED.split("layer ").filter(|layer| !layer.is_empty()).collect();
    assert_eq!(layers.len(), 25);
    let mut wrong = Vec::new();
    for layer in layers {
        let (case, code) = layer.split_once('\n').expect("a case and its code");
        let case: serde_json::Value = serde_json::from_str(case).expect("a case");
        let is_quantised = case["method"] == "qlora";
        let adapted = serde_json::json!({ "method": "lora" });
        let mut as_lora = case.clone();
        as_lora["method"] = adapted["method"].clone();
        let mut sizes = sizes(&as_lora, true);
        let kernel = match case["capability"].as_str() {
            Some("9.0") => Kernel::Cudnn,
            Some("7.5") => Kernel::Efficient,
            _ => Kernel::Flash,
        };
        if kernel == Kernel::Efficient {
            sizes.dtype = Dtype::F16;
        }
        let own_of = Own {
            is_quantised,
            rotary: (32768 * 64, Dtype::Bf16),
            kernel,
            attends: Attends::of(
                kernel,
                sizes.queries.heads > sizes.keys.heads,
                sizes.sequences * bucketed(sizes.tokens / sizes.sequences),
            ),
        };
        let code = code.replace("backward\n", "\nbackward\n").replace("answered\n", "\nanswered\n");
        for generated in code.split("\n\n") {
            let (name, generated) = generated.split_once('\n').expect("a graph");
            let ours = match name {
                "forward" => own(&forward(&sizes, own_of).graph),
                "backward" => own(&backward(&sizes, own_of).graph),
                "answered" => pooled(answered(&sizes, own_of).0),
                other => panic!("{other}: a graph"),
            };
            let theirs: Vec<&str> = generated.lines().collect();
            let ends = |line: &String| line.starts_with("free");
            let same = ours.len() >= theirs.len() && ours[..theirs.len()] == *theirs;
            if !same || !ours[theirs.len().min(ours.len())..].iter().all(ends) {
                let at = ours.iter().zip(&theirs).position(|(ours, theirs)| ours != theirs);
                let near = |lines: Vec<String>| {
                    let from = at.unwrap_or(0).saturating_sub(2);
                    lines.into_iter().skip(from).take(6).collect::<Vec<_>>()
                };
                let theirs = theirs.iter().map(ToString::to_string).collect();
                wrong.push(format!("{name} of {case}: {at:?}\n  {:?}\n  {:?}", near(ours), near(theirs)));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
