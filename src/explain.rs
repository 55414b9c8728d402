//! Why a part of the memory is there: its tensors at the peak, each with the sum that makes its size, the reason why it
//! is alive, and the source of that.

use crate::estimate::Category;
use crate::scenario::Scenario;
use crate::step::TensorGroup;
use crate::units::{Bytes, grouped};

/// One kind of tensor that is alive at the peak.
#[derive(Clone, Debug, PartialEq, Eq)]
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
    pub why: &'static str,
    /// Where that is written or was measured.
    pub source: &'static str,
}

/// The most kinds of tensors that are told apart in one part; the smaller ones are summed up.
const KINDS: usize = 12;

/// Explains the tensors at the peak, part by part, the largest first.
pub fn explain(tensors: &[TensorGroup], scenario: &Scenario) -> Vec<Line> {
    let mut lines = Vec::new();
    for part in tensors.chunk_by(|a, b| a.category == b.category) {
        // one kind too many is better told than summed up alone
        let told = if part.len() > KINDS + 1 { KINDS } else { part.len() };
        lines.extend(part[..told].iter().map(|group| line(group, scenario)));
        lines.extend(rest(&part[told..]));
    }
    lines
}

fn rest(groups: &[TensorGroup]) -> Option<Line> {
    let first = groups.first()?;
    let count: u64 = groups.iter().map(|group| group.count).sum();
    let (why, source) = reason(first);
    Some(Line {
        category: first.category,
        what: format!("{} smaller tensors", grouped(count)),
        formula: format!("{} further kinds", groups.len()),
        bytes: groups.iter().map(TensorGroup::total).sum(),
        why,
        source,
    })
}

fn line(group: &TensorGroup, scenario: &Scenario) -> Line {
    let (why, source) = reason(group);
    Line {
        category: group.category,
        what: what(group),
        formula: formula(group, scenario),
        bytes: group.total(),
        why,
        source,
    }
}

fn what(group: &TensorGroup) -> String {
    match (group.module, group.operation) {
        ("", operation) => operation.to_owned(),
        (module, "parameter") => module.to_owned(),
        (module, operation) => format!("{module}: {operation}"),
    }
}

/// The sum behind a group's size. What is a multiple of the tokens is written as one.
fn formula(group: &TensorGroup, scenario: &Scenario) -> String {
    let size = group.dtype.bytes();
    let numel = group.bytes.0 / size.max(1);
    let tokens = scenario.tokens();
    let elements = if numel == 1 {
        "1".to_owned()
    } else if per_token(group.category) && tokens > 0 && numel.is_multiple_of(tokens) {
        let width = numel / tokens;
        let tokens = format!("{} tokens", grouped(tokens));
        if width == 1 {
            tokens
        } else if per_key(group.operation) && width.is_multiple_of(scenario.sequence) {
            let heads = width / scenario.sequence;
            format!("{tokens} × {} keys × {} heads", grouped(scenario.sequence), grouped(heads))
        } else {
            format!("{tokens} × {}", grouped(width))
        }
    } else {
        format!("{} elements", grouped(numel))
    };
    let bytes = if size == 1 { "1 byte".to_owned() } else { format!("{size} bytes") };
    let times = if group.count == 1 { String::new() } else { format!("{} × ", grouped(group.count)) };
    format!("{times}{elements} × {bytes} ({})", group.dtype.name())
}

/// Whether tensors of a category are one row per token.
fn per_token(category: Category) -> bool {
    match category {
        Category::Activations | Category::Logits | Category::Temporaries | Category::Batch => true,
        Category::Weights
        | Category::Adapters
        | Category::QuantState
        | Category::Buffers
        | Category::Gradients
        | Category::Optimizer
        | Category::WeightCopies
        | Category::Workspace => false,
    }
}

/// Whether an operation makes scores: one number per query and key.
fn per_key(operation: &str) -> bool {
    matches!(operation, "softmax" | "matmul" | "mask" | "additive mask")
}

const DERIVATIVES: &str = "PyTorch, tools/autograd/derivatives.yaml";
const MODELING: &str = "transformers, the model's modeling file; compared with the allocator's trace";
const ENGINE: &str = "PyTorch, torch/csrc/autograd/engine.cpp";
const ATTENTION: &str = "PyTorch, aten/src/ATen/native/transformers/cuda";
const LOSS: &str = "transformers, loss/loss_utils.py; PyTorch, derivatives.yaml";
const BITSANDBYTES: &str = "bitsandbytes, functional.py";

fn reason(group: &TensorGroup) -> (&'static str, &'static str) {
    match group.category {
        Category::Weights => ("the model's own weights: there from load to end", MODELING),
        Category::Adapters => ("LoRA's trained matrices A and B", "peft, tuners/lora/layer.py"),
        Category::QuantState => {
            ("scales and code books that turn 4-bit weights back into numbers", BITSANDBYTES)
        }
        Category::Buffers => ("tensors of the model that are not trained", MODELING),
        Category::Gradients => (
            "one gradient per trained parameter, in its element type, from its backward to zero_grad",
            "PyTorch, torch/csrc/autograd/functions/accumulate_grad.h",
        ),
        Category::Optimizer => {
            ("what the optimizer remembers from step to step", "PyTorch, torch/optim; bitsandbytes, optim")
        }
        Category::WeightCopies => (
            "autocast's half-precision copy of a float32 weight, saved for the gradient of its input",
            "PyTorch, aten/src/ATen/autocast_mode.cpp",
        ),
        Category::Workspace => {
            ("scratch space that cuBLAS keeps per thread", "PyTorch, aten/src/ATen/cuda/CublasHandlePool.cpp")
        }
        Category::Batch => ("token ids, labels and mask", MODELING),
        Category::Activations | Category::Temporaries if is_scan(group.module) => (
            "a step of the scan as PyTorch's own operations write it out: the kernels of flash-linear-attention or mamba-ssm keep less",
            MODELING,
        ),
        Category::Activations => activation(group.operation),
        Category::Logits => logits(group.operation),
        Category::Temporaries => temporary(group.operation),
    }
}

/// Whether a module is a state space or linear attention, but for its layers.
fn is_scan(module: &str) -> bool {
    matches!(module, "linear_attn" | "mixer")
}

fn activation(operation: &str) -> (&'static str, &'static str) {
    match operation {
        "linear" | "linear (4-bit)" => {
            ("a projection's output that the next operation's backward needs", DERIVATIVES)
        }
        "cast" => {
            ("a copy in another element type, saved where a product or norm computes in it", DERIVATIVES)
        }
        "attention" => (
            "attention's output, saved with q, k and v for its own backward and for the projection's",
            ATTENTION,
        ),
        "attention (log-sum-exp)" => {
            ("one sum per query and head from which backward restores the probabilities", ATTENTION)
        }
        "softmax" => ("attention probabilities: one per query, key and head", DERIVATIVES),
        "matmul" => ("attention scores or values", DERIVATIVES),
        "repeat_kv" => ("keys or values copied for every query head", MODELING),
        "silu" | "gelu" | "relu" | "tanh" => {
            ("the activation function's output, a factor of the next product", DERIVATIVES)
        }
        "mul" => {
            ("a product whose factors both have gradients: saved as the next operation's input", DERIVATIVES)
        }
        "add" => ("a sum on the residual path, saved as the next norm's input", DERIVATIVES),
        "pow" => ("a power, saved by the product that follows", DERIVATIVES),
        "layer_norm" => ("the norm's output, saved as the projections' input", DERIVATIVES),
        "mean" | "rstd" | "rsqrt" => ("one statistic per row of a norm", DERIVATIVES),
        "dropout" | "dropout mask" => ("dropout's output and its mask of one byte per element", DERIVATIVES),
        "embedding" | "layer input" => {
            ("the hidden state that enters a layer; all that checkpointing keeps of it", MODELING)
        }
        "mask" | "additive mask" => {
            ("the attention mask, sequence × sequence", "transformers, masking_utils.py")
        }
        "contiguous" | "clone" | "cat" => ("a copy in the order that the next operation needs", MODELING),
        _ => ("saved by forward because backward needs it", DERIVATIVES),
    }
}

fn logits(operation: &str) -> (&'static str, &'static str) {
    match operation {
        "linear" => ("the logits: one number per token and vocabulary entry", LOSS),
        "cast" => {
            ("the logits, or their gradient, in another element type: the loss computes in float32", LOSS)
        }
        "log_softmax" => ("log-probabilities, saved for backward, or the gradient of the logits", LOSS),
        "nll_loss" => ("the gradient of the log-probabilities: as large as they are, nearly all zeros", LOSS),
        _ => ("part of the loss", LOSS),
    }
}

fn temporary(operation: &str) -> (&'static str, &'static str) {
    match operation {
        "linear (weight gradient)" => ("a weight's gradient before it is handed to its parameter", ENGINE),
        "linear (input gradient)" => ("the gradient of a projection's input", DERIVATIVES),
        "gradient sum" => ("the sum of two gradients of one tensor, made beside both", ENGINE),
        "gradient cast" | "cast" => ("a gradient in its tensor's element type", ENGINE),
        "dequantised weight" | "scales" => ("a 4-bit weight turned back for one product", BITSANDBYTES),
        "foreach" => (
            "the square roots of all second moments at once: foreach works on every parameter in one go",
            "PyTorch, torch/optim/adam.py",
        ),
        "optimizer scratch" => (
            "the optimizer's scratch space for the largest parameter",
            "PyTorch, torch/optim; transformers, optimization.py",
        ),
        "attention (dq)"
        | "attention (dk)"
        | "attention (dv)"
        | "attention (delta)"
        | "attention (workspace)" => ("scratch space of the attention kernel's backward", ATTENTION),
        "sum (partial)" | "sum (semaphores)" => (
            "partial sums of a reduction that is split over thread blocks",
            "PyTorch, aten/src/ATen/native/cuda/Reduce.cuh",
        ),
        "embedding (partial sums)" | "embedding (segments)" => (
            "partial sums of the embedding's gradient",
            "PyTorch, aten/src/ATen/native/cuda/EmbeddingBackwardKernel.cu",
        ),
        _ => ("alive for a moment: recomputed by checkpointing, or a gradient on its way", DERIVATIVES),
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
            module: "mlp.act_fn",
            operation,
            dtype,
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
