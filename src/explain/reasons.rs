//! Why a tensor is alive at the peak, by its part, its module and its operation, and where that is written.

use super::Known;
use crate::memory::Category;
use crate::scenario::Stack;
use crate::step::TensorGroup;

/// A reason and its source.
pub(super) type Reason = (&'static str, &'static str);

const DERIVATIVES: &str = "PyTorch, tools/autograd/derivatives.yaml";
const MODELING: &str = "transformers, the model's modeling file; compared with the allocator's trace";
const ENGINE: &str = "PyTorch, torch/csrc/autograd/engine.cpp";
const ATTENTION: &str = "PyTorch, aten/src/ATen/native/transformers/cuda";
const LOSS: &str = "transformers, loss/loss_utils.py; PyTorch, derivatives.yaml";
const BITSANDBYTES: &str = "bitsandbytes, functional.py";
const PEFT: &str = "peft, tuners/lora/layer.py";
const LIGER: &str = "liger-kernel, ops";
const OFFLOADING: &str =
    "trl, models/activation_offloading.py; torchtune, training/_activation_offloading.py";
const EXPERTS: &str = "transformers, integrations/moe.py";

/// What is said of a saved tensor of which nothing better is known.
pub(super) const SAVED: Reason = ("saved by forward because backward needs it", DERIVATIVES);
/// The same of a temporary one.
pub(super) const PASSING: Reason =
    ("the gradient of an operation's input, on its way to what made it", ENGINE);

/// The reason for a group of tensors of so many elements each.
pub(super) fn reason(group: &TensorGroup, numel: u64, known: &Known) -> Reason {
    let (why, source) = under_transformers(group, numel, known);
    (why, source_of(known.stack, source))
}

/// The same source in the code of another stack.
fn source_of(stack: Stack, source: &'static str) -> &'static str {
    match (stack, source) {
        (Stack::Torchtune, MODELING) => "torchtune, torchtune/modules; compared with the allocator's trace",
        (Stack::Torchtune, LOSS) => "torchtune, torchtune/modules/loss; PyTorch, derivatives.yaml",
        (Stack::Torchtune, BITSANDBYTES) => "torchao, torchao/dtypes/nf4tensor.py",
        (Stack::Torchtune, PEFT) => "torchtune, torchtune/modules/peft",
        (Stack::Unsloth, MODELING) => {
            "unsloth, unsloth/models and unsloth/kernels; compared with the allocator's trace"
        }
        (Stack::Unsloth, LOSS | LIGER) => "unsloth, unsloth/kernels; unsloth_zoo, fused_losses",
        (Stack::Litgpt, MODELING) => "litgpt, litgpt/model.py; compared with the allocator's trace",
        (Stack::Litgpt, LOSS) => "litgpt, litgpt/utils.py; PyTorch, derivatives.yaml",
        (Stack::Litgpt, PEFT) => "litgpt, litgpt/lora.py",
        (Stack::Trl, LOSS | LIGER) => "trl, trainer/utils.py and kernels/chunked_logprob.py",
        (
            Stack::Transformers
            | Stack::Trl
            | Stack::Liger
            | Stack::Torchtune
            | Stack::Unsloth
            | Stack::Litgpt,
            source,
        ) => source,
    }
}

fn under_transformers(group: &TensorGroup, numel: u64, known: &Known) -> Reason {
    let of_rows = group.shape.0 > 0;
    match group.category {
        Category::Weights if group.operation == "4-bit weight" => {
            ("the frozen weights, two to a byte: there from load to end", BITSANDBYTES)
        }
        Category::Weights => ("the model's own weights: there from load to end", MODELING),
        Category::Adapters
            if [group.shape.0, group.shape.1].into_iter().all(|side| known.ranks(group, side).is_none()) =>
        {
            (
                "a copy that is trained whole beside the frozen original (modules_to_save)",
                "peft, utils/other.py",
            )
        }
        Category::Adapters => ("LoRA's trained matrices A and B, of which one side is the rank", PEFT),
        Category::QuantState => {
            ("scales and code books that turn 4-bit weights back into numbers", BITSANDBYTES)
        }
        Category::Buffers if group.operation == "dequantised weight" => {
            ("where every 4-bit weight is turned back: made for the largest, there until the end", MODELING)
        }
        Category::Buffers if group.operation == "layer input" => {
            ("where layers' inputs come back from the CPU, in turns", MODELING)
        }
        Category::Buffers => ("tensors of the model that are not trained", MODELING),
        Category::Gradients => (
            "one gradient per trained parameter, in its element type, from its backward to zero_grad",
            "PyTorch, torch/csrc/autograd/functions/accumulate_grad.h",
        ),
        Category::Optimizer if numel == 1 => ("how many steps a parameter has made", "PyTorch, torch/optim"),
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
        _ if group.operation == "copy from the CPU" => (
            "a saved variable that came back for its operation's backward, and the one before it",
            OFFLOADING,
        ),
        Category::Activations | Category::Temporaries if is_scan(group.module) => (
            "a step of the scan as PyTorch's own operations write it out: the kernels of flash-linear-attention or mamba-ssm keep less",
            MODELING,
        ),
        Category::Activations => saved(group.module, group.operation),
        Category::Logits => logits(group.module, group.operation, numel, known.vocab),
        Category::Temporaries if group.recomputed => saved(group.module, group.operation),
        Category::Rounding => (
            "the allocator splits a block only where more than 1 MiB would be left of it",
            "c10/cuda/CUDACachingAllocator.cpp, should_split",
        ),
        Category::Temporaries => temporary(group.operation, of_rows),
    }
}

/// The reason for what is too small to be told alone.
pub(super) fn of_the_rest(groups: &[TensorGroup], known: &Known) -> Option<Reason> {
    let first = groups.first()?;
    Some(match first.category {
        Category::Activations | Category::Logits | Category::Temporaries => {
            ("smaller ones, each compared with the allocator's trace", DERIVATIVES)
        }
        Category::Optimizer => ("smaller ones, steps and scales among them", "PyTorch, torch/optim"),
        Category::Weights
        | Category::Adapters
        | Category::QuantState
        | Category::Buffers
        | Category::Gradients
        | Category::WeightCopies
        | Category::Workspace
        | Category::Batch
        | Category::Rounding => reason(first, 0, known),
    })
}

/// Whether a module is attention itself, between its projections.
pub(super) fn is_attention(module: &str) -> bool {
    matches!(module, "self_attn" | "attn" | "encoder_attn")
}

/// Whether a module is a norm, by its name.
fn is_norm(module: &str) -> bool {
    let leaf = module.rsplit('.').next().unwrap_or(module);
    leaf.contains("norm") || leaf.contains("Norm") || leaf.starts_with("ln_")
}

/// What forward saved for backward.
fn saved(module: &str, operation: &str) -> Reason {
    match operation {
        "range" | "positions" | "token types" | "ids" | "decoder ids" => (
            "indices of an embedding's rows or of positions, held by the model's forward until it ends",
            MODELING,
        ),
        "linear" if module == "mlp" => (
            "the gate or the other projection's output, over which Unsloth writes their gradients",
            "unsloth, unsloth/kernels/fast_lora.py",
        ),
        "cast" if module == "pos_embeddings" => {
            ("queries or keys, turned in float32, in the element type that attention computes in", MODELING)
        }
        "embedding" | "layer input" => {
            ("the hidden state that enters a layer; all that checkpointing keeps of it", MODELING)
        }
        "text numbers" | "text starts" => {
            ("which of the texts that share a sequence a token belongs to", "transformers, masking_utils.py")
        }
        "mask" | "additive mask" | "causal mask" | "attention mask" | "score mask" | "padding mask"
        | "same text" => (
            "the attention mask, queries × keys, which all layers are given",
            "transformers, masking_utils.py",
        ),
        "alibi" | "alibi mask" => ("a bias of the scores by distance, which all layers are given", MODELING),
        "attention (log-sum-exp)" => {
            ("one sum per query and head from which backward restores the probabilities", ATTENTION)
        }
        "attention (seed)" => ("the state of the random numbers, for the same dropout again", ATTENTION),
        "attention" | "attention (output)" => (
            "attention's output, saved with q, k and v for its own backward and for the projection's",
            ATTENTION,
        ),
        "relative position" => {
            ("distances between queries and keys, which biases are looked up by", MODELING)
        }
        "dequantised weight" => ("a 4-bit weight turned back for one product", BITSANDBYTES),
        "gated product" => ("the activation's product with its gate, made by one kernel", LIGER),
        "repeat_kv" => ("keys or values copied for every query head", MODELING),
        "mean" | "rstd" | "rsqrt" | "rms_norm (1 / root)" => ("one statistic per row of a norm", DERIVATIVES),
        "layer_norm" | "rms_norm" => ("the norm's output, saved as the projections' input", DERIVATIVES),
        "weight copy" => (
            "autocast's half-precision copy of a float32 weight, saved for the gradient of its input",
            "PyTorch, aten/src/ATen/autocast_mode.cpp",
        ),
        "adapted weight" | "adapted weight (factor)" => (
            "experts' weights with what their adapters add: peft adapts them as whole parameters, so that the sum is as \
             large as they are",
            PEFT,
        ),
        _ if module == "rotary_emb" => {
            ("cosines or sines of all positions, a factor of every layer's queries and keys", MODELING)
        }
        _ if is_attention(module) => attention(operation),
        _ if module == "router" => ("the router's scores of the experts, one row per token", EXPERTS),
        _ if module == "experts" => experts(operation),
        _ if module == "mlp" => feed_forward(operation),
        _ if module == "conv" => ("a step of the short convolution, saved for its backward", DERIVATIVES),
        _ if is_norm(module) => norm(operation),
        "linear" | "linear (4-bit)" | "mm" => {
            ("a projection's output that the next operation's backward needs", DERIVATIVES)
        }
        "cast" if !module.is_empty() => (
            "a projection's input in the element type that it computes in, saved for its weight's gradient",
            DERIVATIVES,
        ),
        "cast" => (
            "the hidden state in another element type, saved where the next operation computes in it",
            DERIVATIVES,
        ),
        "add" if module.is_empty() => {
            ("a sum on the residual path: what enters the next norm or layer", DERIVATIVES)
        }
        "add" => ("a projection's output with what its adapter or bias adds", DERIVATIVES),
        name if is_activation(name) => {
            ("the activation function's output, saved for its own backward", DERIVATIVES)
        }
        "dropout mask" => ("which elements dropout kept, one byte each, for its backward", DERIVATIVES),
        "dropout" => ("dropout's output, saved as the next operation's input", DERIVATIVES),
        "contiguous" | "clone" | "cat" => ("a copy in the order that the next operation needs", MODELING),
        "mul" => ("a product, saved as the next operation's input", DERIVATIVES),
        _ => SAVED,
    }
}

fn attention(operation: &str) -> Reason {
    match operation {
        "softmax" => (
            "attention probabilities, one per query, key and head: softmax's backward needs its output",
            DERIVATIVES,
        ),
        "dropout" => {
            ("the probabilities after dropout, a factor of the product with the values", DERIVATIVES)
        }
        "dropout mask" => ("which probabilities dropout kept, one byte each, for its backward", DERIVATIVES),
        "cast" => (
            "probabilities, or a gradient of them, in the element type of the products: softmax computes in float32",
            MODELING,
        ),
        "matmul" | "baddbmm" => {
            ("scores, or what the values add up to, saved as the next operation's input", DERIVATIVES)
        }
        "add" | "cat" => ("queries or keys turned by their positions, factors of the scores", MODELING),
        "mul" | "div" | "neg" => ("a step between queries, keys and scores, saved as a factor", DERIVATIVES),
        "contiguous" | "clone" => {
            ("queries, keys, values or the joined heads in the order that the next product needs", MODELING)
        }
        "linear" | "linear (4-bit)" => {
            ("queries, keys and values, saved for attention's backward", DERIVATIVES)
        }
        "tanh" => ("scores under a soft cap: tanh's backward needs its output", DERIVATIVES),
        "masked_fill" => ("scores with what may not be seen made the lowest number", MODELING),
        "zeros" => ("a bias of the scores that is zero, where attention has no learned one", MODELING),
        "flatten" => ("the heads joined again: the output projection's input", MODELING),
        _ => SAVED,
    }
}

fn feed_forward(operation: &str) -> Reason {
    match operation {
        name if is_activation(name) => {
            ("the activation function's output, a factor of the next product or its input", DERIVATIVES)
        }
        "tanh" => ("the tanh inside the activation function: its backward needs its output", DERIVATIVES),
        "add" => {
            ("a sum inside the activation function, a factor of the product that follows it", DERIVATIVES)
        }
        "pow" => {
            ("a power inside the activation function, saved for the product that follows it", DERIVATIVES)
        }
        "mul" => (
            "a product inside the feed-forward network, or with its gate: a factor or the next projection's input",
            DERIVATIVES,
        ),
        "cast" => {
            ("the feed-forward network's inside in the element type of the next operation", DERIVATIVES)
        }
        "dropout" | "dropout mask" => {
            ("dropout's output, and one byte per element of what it kept", DERIVATIVES)
        }
        _ => SAVED,
    }
}

fn experts(operation: &str) -> Reason {
    match operation {
        name if is_activation(name) => (
            "the experts' activation, a row for each token and expert: a factor of the product with the gate",
            EXPERTS,
        ),
        "mul" => ("the experts' inside or their weighted output, a row for each token and expert", EXPERTS),
        "masked_fill" => (
            "an expert product's output, a row for each token and expert, without what no expert is to compute",
            EXPERTS,
        ),
        "grouped_mm" => ("an expert product's output, a row for each token and expert", EXPERTS),
        "index" | "index_select" => {
            ("tokens in the order of their experts, a row for each token and expert", EXPERTS)
        }
        "cast" | "contiguous" => {
            ("experts' adapters or rows in the element type and order of the product", EXPERTS)
        }
        _ => ("part of sorting tokens by expert", EXPERTS),
    }
}

fn norm(operation: &str) -> Reason {
    match operation {
        "cast" => ("the norm's input or output in another element type: it computes in float32", MODELING),
        "mul" | "add" => {
            ("the normalised hidden state before or after the norm's weight, which both need it", MODELING)
        }
        "pow" => ("squares of the norm's input", MODELING),
        "sub" => ("the norm's input less its mean, a factor of its square and of the result", MODELING),
        _ => SAVED,
    }
}

fn logits(module: &str, operation: &str, numel: u64, vocab: u64) -> Reason {
    let per_entry = vocab > 0 && numel.is_multiple_of(vocab);
    match operation {
        _ if numel == 1 => ("the loss itself: one number, kept by the script", LOSS),
        "linear (weight gradient)" => ("the head's weight gradient, on its way to its parameter", ENGINE),
        "linear" | "linear (4-bit)" | "mm" if per_entry => {
            ("the logits: one number per token and vocabulary entry", LOSS)
        }
        "cast" if per_entry => {
            ("the logits, or their gradient, in another element type: the loss computes in float32", LOSS)
        }
        "cast" => (
            "the hidden states in the element type of the head, saved for its weight's gradient",
            DERIVATIVES,
        ),
        "log_softmax" => ("log-probabilities, saved for backward, or the gradient of the logits", LOSS),
        "nll_loss" => ("the gradient of the log-probabilities: as large as they are, nearly all zeros", LOSS),
        "linear (input gradient)" => ("the gradient of the hidden states that the head was given", ENGINE),
        "logits" => ("the logits of one chunk of the tokens: the fused loss never has all of them", LIGER),
        "index" | "index_select" => ("the hidden states of the tokens that have a label", LOSS),
        "gradient cast" => ("the gradient of the head's weight or input in its own element type", LIGER),
        "summed gradient" => {
            ("the gradient of the head's weight or input, summed in float32 over tiles of the logits", LIGER)
        }
        "sum of the gradient" | "gradient of the input" => (
            "the gradient of the hidden states, which the fused loss makes in its forward pass already",
            LIGER,
        ),
        "tanh" => ("the logits under a soft cap: tanh's backward needs its output", LOSS),
        "gelu" | "relu" | "add" => ("the hidden states on their way through the head's own layer", MODELING),
        _ if is_norm(module) => norm(operation),
        "contiguous" | "clone" | "slice" => {
            ("the logits without their last token, or in the order that the loss needs", LOSS)
        }
        _ => ("part of the head and the loss", LOSS),
    }
}

fn temporary(operation: &str, of_rows: bool) -> Reason {
    match operation {
        "linear (weight gradient)" => ("a weight's gradient before it is handed to its parameter", ENGINE),
        "linear (input gradient)" => ("the gradient of a projection's input", DERIVATIVES),
        "gradient sum" => ("the sum of two gradients of one tensor, made beside both", ENGINE),
        "gradient cast" => ("a gradient in its tensor's element type", ENGINE),
        "dequantised weight" | "scales" => ("a 4-bit weight turned back for one product", BITSANDBYTES),
        "adapted weight" | "adapted weight (factor)" => saved("experts", operation),
        "softmax" | "softmax (grad · output)" => {
            ("the gradient of scores, or what softmax's backward makes it from", DERIVATIVES)
        }
        "dropout" => ("a gradient behind a dropout mask", DERIVATIVES),
        "layer_norm" | "rms_norm" => ("the gradient of a norm's input", DERIVATIVES),
        "cast" if of_rows => ("a weight or its gradient in another element type", ENGINE),
        "cast" => ("a gradient in its tensor's element type", ENGINE),
        "gradient of the input" | "gradient of the weight" | "gradient of the chunk" => {
            ("a gradient that the fused loss computes in its forward pass already", LIGER)
        }
        "gradient of the product" | "adapter's copy" | "adapter's gradient" => (
            "what a fused function of projection and adapter makes of a gradient",
            "unsloth, unsloth/kernels/fast_lora.py",
        ),
        "foreach" => (
            "the square roots of all second moments at once: foreach works on every parameter in one go",
            "PyTorch, torch/optim/adam.py",
        ),
        "optimizer scratch" => (
            "the optimizer's scratch space for the largest parameter",
            "PyTorch, torch/optim; transformers, optimization.py",
        ),
        "norm" | "partial norms" => {
            ("norms of the gradients, for clipping", "PyTorch, torch/nn/utils/clip_grad.py")
        }
        "ones" => ("the gradient of the loss with respect to itself, from which backward starts", ENGINE),
        "attention (dq)"
        | "attention (dk)"
        | "attention (dv)"
        | "attention (delta)"
        | "attention (gradient)"
        | "attention (workspace)" => ("scratch space of the attention kernel's backward", ATTENTION),
        "sum (partial)" | "sum (semaphores)" => (
            "partial sums of a reduction that is split over thread blocks",
            "PyTorch, aten/src/ATen/native/cuda/Reduce.cuh",
        ),
        "embedding (partial sums)" | "embedding (segments)" => (
            "partial sums of the embedding's gradient",
            "PyTorch, aten/src/ATen/native/cuda/EmbeddingBackwardKernel.cu",
        ),
        "mul" | "matmul" | "silu" | "gelu" | "tanh" | "pow" | "add" | "cat" | "contiguous" | "clone"
        | "div" | "neg" | "index" | "grouped_mm" | "masked_fill" | "sum" | "zeros" | "embedding" => (
            "a gradient that this operation's backward makes or hands on, alive until the next one has used it",
            ENGINE,
        ),
        _ => PASSING,
    }
}

/// Whether an operation is an activation function, or the one inside of one that its derivative needs.
fn is_activation(operation: &str) -> bool {
    const NAMES: [&str; 13] = [
        "silu",
        "gelu",
        "relu",
        "relu6",
        "leaky_relu",
        "hardswish",
        "mish",
        "sigmoid",
        "erf",
        "softplus",
        "sqrt",
        "expm1",
        "where",
    ];
    NAMES.contains(&operation)
}

/// Whether a module is a state space or linear attention, but for its layers.
fn is_scan(module: &str) -> bool {
    matches!(module, "linear_attn" | "mixer")
}
