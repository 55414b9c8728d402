//! What other libraries than PyTorch say where a card has no room: it is named, and looked for in no run of a scenario.

/// What a text says, and whose it is.
const OTHERS: [(&str, &str); 4] = [
    // XLA: "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 2147483648 bytes."
    (
        "RESOURCE_EXHAUSTED",
        "this is JAX's (XLA's): the card had no room for what its program asked for. Runs are followed as PyTorch allocates them, so no tensor \
         is looked for; JAX takes 75 % of a card when it starts (XLA_PYTHON_CLIENT_MEM_FRACTION)",
    ),
    // tensorflow/core/framework/op_kernel.cc
    (
        "OOM when allocating tensor with shape",
        "this is TensorFlow's: the card had no room for the tensor whose shape it says. Runs are followed as PyTorch allocates them, so it is \
         looked for in none",
    ),
    // ggml/src/ggml-cuda/ggml-cuda.cu
    (
        "cudaMalloc failed: out of memory",
        "this is llama.cpp's: the card had no room for weights, or for the keys and values of its context. What of a model and its context fits \
         says headroom serving",
    ),
    // transformers, quantizers/quantizer_bnb_4bit.py
    (
        "Some modules are dispatched on the CPU or the disk",
        "this is transformers', as it loads: the quantised weights did not fit on the card, and it does not move some of them to the computer's \
         memory unless it is asked to. Nothing was trained; headroom estimate says what the weights take",
    ),
];

/// What is said of a text of another library than PyTorch's out-of-memory messages; none where it is of none that is known here.
pub fn of_another(text: &str) -> Option<&'static str> {
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    OTHERS.iter().find(|(said, _)| words.contains(said)).map(|(_, why)| *why)
}
