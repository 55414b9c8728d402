//! Operations of PyTorch that several files run, and what several of them make.

use super::{DERIVATIVES, ENGINE, MASKS, Source, What};

pub(in crate::step) static ADD: What = What::step("add", "a sum, saved as the next operation's input");
pub(in crate::step) static CAST: What =
    What::step("cast", "a copy in the element type that the next operation computes in");
pub(in crate::step) static CAT: What =
    What::step("cat", "parts joined in the order that the next operation needs");
pub(in crate::step) static CLAMP: What = What::step("clamp", "kept between two bounds");
pub(in crate::step) static CLONE: What =
    What::step("clone", "a copy, as what comes next is written over the original");
pub(in crate::step) static CONTIGUOUS: What =
    What::step("contiguous", "a copy in the order that the next operation needs");
pub(in crate::step) static COS: What = What::step("cos", "cosines");
pub(in crate::step) static SIN: What = What::step("sin", "sines");
pub(in crate::step) static DIV: What = What::step("div", "a quotient, saved as a factor");
pub(in crate::step) static EQ: What = What::step("eq", "which elements are equal, one byte each");
pub(in crate::step) static EXP: What = What::step("exp", "an exponential, which its own backward needs");
pub(in crate::step) static GATHER: What = What::step("gather", "what was chosen, by its indices");
pub(in crate::step) static RELU: What = What::step("relu", "its output, which its own backward needs");
pub(in crate::step) static SILU: What =
    What::step("silu", "its output, a factor of the next product or the next projection's input");
pub(in crate::step) static SIGMOID: What =
    What::step("sigmoid", "a sigmoid's output, which its own backward needs");
pub(in crate::step) static LOG_SIGMOID: What = What::step("log_sigmoid", "the logarithm of a sigmoid");
pub(in crate::step) static TANH: What =
    What::step("tanh", "the output of tanh, which its own backward needs");
pub(in crate::step) static INDEX: What = What::step("index", "rows chosen by their indices");
pub(in crate::step) static INDEX_ZEROS: What =
    What::step("index (zeros)", "zeros, to which the gradients of the chosen rows are added");
pub(in crate::step) static INDEX_SELECT: What = What::step("index_select", "rows chosen by their indices");
pub(in crate::step) static RMS_NORM: What =
    What::step("rms_norm", "the norm's output, saved as the next projection's input");
pub(in crate::step) static MEAN: What = What::step("mean", "one statistic per row");
pub(in crate::step) static RMS_NORM_ROOT: What =
    What::step("rms_norm (1 / root)", "one statistic per row: the reciprocal of the root");
pub(in crate::step) static LINEAR: What =
    What::step("linear", "the layer's output, which the next operation's backward needs");
pub(in crate::step) static LINEAR_4BIT: What =
    What::step("linear (4-bit)", "the layer's output, which the next operation's backward needs");
pub(in crate::step) static INPUT_GRADIENT: What =
    What::own("linear (input gradient)", "the gradient of a projection's input", DERIVATIVES);
pub(in crate::step) static MASKED_FILL: What =
    What::step("masked_fill", "with what does not count made the lowest number, or zero");
pub(in crate::step) static MATMUL: What = What::step("matmul", "a batched product");
pub(in crate::step) static MAX: What = What::step("max", "the largest of each group");
pub(in crate::step) static MAX_INDICES: What =
    What::step("max (indices)", "where the largest of each group is");
pub(in crate::step) static MUL: What =
    What::step("mul", "a product, saved as a factor or as the next operation's input");
pub(in crate::step) static NEG: What = What::step("neg", "the negative");
pub(in crate::step) static NONZERO: What = What::step("nonzero", "where elements are not zero");
pub(in crate::step) static ONES: What = What::step("ones", "ones");
pub(in crate::step) static POW: What = What::step("pow", "a power, saved for the product that follows");
pub(in crate::step) static REPEAT_INTERLEAVE: What = What::step("repeat_interleave", "each repeated");
pub(in crate::step) static SORT: What = What::step("sort", "in order");
pub(in crate::step) static SUB: What = What::step("sub", "a difference, a factor of what comes next");
pub(in crate::step) static SUM: What = What::step("sum", "a sum over rows or columns");
pub(in crate::step) static TOPK: What = What::step("topk", "the best of each row");
pub(in crate::step) static TOPK_INDICES: What =
    What::step("topk (indices)", "where the best of each row are");
pub(in crate::step) static TRIL: What = What::step("tril", "the lower triangle");
pub(in crate::step) static WHERE: What = What::step("where", "one of two for each element");
pub(in crate::step) static ZERO: What = What::step("zero", "a zero");
pub(in crate::step) static ZEROS: What = What::step("zeros", "zeros");
pub(in crate::step) static GRADIENT_CAST: What =
    What::own("gradient cast", "a gradient in its tensor's element type", ENGINE);
pub(in crate::step) static SLICE: What = What::step("slice", "a slice in a tensor of the whole's size");
pub(in crate::step) static MASKED: What =
    What::own("masked", "which scores are masked, one byte each", MASKS);
pub(in crate::step) static MASK: What =
    What::own("mask", "the attention mask, queries × keys, which all layers are given", MASKS);
pub(in crate::step) static ADDITIVE_MASK: What = What::own(
    "additive mask",
    "the attention mask, queries × keys, as numbers that are added to the scores",
    MASKS,
);
pub(in crate::step) static CAUSAL_MASK: What = What::own(
    "causal mask",
    "the attention mask, queries × keys, in which a token sees none after it",
    MASKS,
);
pub(in crate::step) static ATTENTION_MASK: What =
    What::own("attention mask", "which tokens are no padding: what the mask of the layers is made of", MASKS);
pub(in crate::step) static PADDING_MASK: What =
    What::own("padding mask", "which tokens are no padding: what the mask of the layers is made of", MASKS);
pub(in crate::step) static MASK_OF_ONES: What = What::own(
    "mask of ones",
    "a mask that hides nothing, as the model makes it where it is given none",
    MASKS,
);
pub(in crate::step) static TEXT_STARTS: What =
    What::own("text starts", "where the texts that share a sequence begin", MASKS);
pub(in crate::step) static WINDOW: What =
    What::own("window", "which keys are near enough to a query: a part of the attention mask", MASKS);
pub(in crate::step) static OTHERS: What = What::step("others", "what is not chosen");
pub(in crate::step) static LOWEST: What = What::step("lowest", "the lowest number");
pub(in crate::step) static ALIBI: What =
    What::own("alibi", "a bias of the scores by distance, which all layers are given", Source::Modeling);
pub(in crate::step) static RELATIVE_POSITION: What = What::own(
    "relative position",
    "distances between queries and keys, which biases are looked up by",
    Source::Modeling,
);
pub(in crate::step) static OFFSET: What = What::own(
    "offset",
    "what is taken from the scales before they are quantised themselves",
    Source::FourBit,
);
pub(in crate::step) static RANGE: What = What::own(
    "range",
    "indices of an embedding's rows or of positions, held by the model's forward until it ends",
    Source::Modeling,
);
pub(in crate::step) static POSITIONS: What = What::own(
    "positions",
    "indices of an embedding's rows or of positions, held by the model's forward until it ends",
    Source::Modeling,
);
pub(in crate::step) static INDICES: What =
    What::own("indices", "indices of sequences, tokens or positions", Source::Modeling);
pub(in crate::step) static TOKEN_TYPES: What = What::own(
    "token types",
    "indices of an embedding's rows, held by the model's forward until it ends",
    Source::Modeling,
);
pub(in crate::step) static IDS: What =
    What::own("ids", "indices of an embedding's rows or of experts", Source::Modeling);
pub(in crate::step) static LAYER_INPUT: What = What::own(
    "layer input",
    "the hidden state that enters a layer; all that checkpointing keeps of it",
    Source::Modeling,
);
pub(in crate::step) static LOSS: What =
    What::own("loss", "the loss itself: one number, kept by the script", Source::Loss);
pub(in crate::step) static LABELS: What =
    What::own("labels", "the labels of one chunk, or in the order that the loss needs", Source::Loss);
pub(in crate::step) static SHIFTED_LABELS: What =
    What::own("shifted labels", "the labels, shifted by one token", Source::Loss);
pub(in crate::step) static LOGITS: What = What::own(
    "logits",
    "the logits of one chunk of the tokens: the fused loss never has all of them",
    Source::FusedLoss,
);
pub(in crate::step) static SUMS_OF_LOGITS: What = What::own(
    "log-sum-exp",
    "one number per token, of which backward makes the probabilities again",
    Source::FusedLoss,
);
pub(in crate::step) static LOSS_INPUT_GRADIENT: What = What::own(
    "gradient of the input",
    "the gradient of the hidden states, which the fused loss makes in its forward pass already",
    Source::FusedLoss,
);
pub(in crate::step) static CHUNK_GRADIENT: What = What::own(
    "gradient of the chunk",
    "the gradient of one chunk of the hidden states, which the fused loss makes in its forward pass already",
    Source::FusedLoss,
);
pub(in crate::step) static LOG_PROBABILITIES: What =
    What::own("log-probabilities", "the log-probability of each token's label", Source::FusedLoss);
pub(in crate::step) static GATED_PRODUCT: What = What::own(
    "gated product",
    "the activation's product with its gate, made by one kernel",
    Source::FusedLoss,
);
