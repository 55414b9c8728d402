//! The field's words in one sentence each: docs/glossary.md lists them, the page explains them wherever they stand.

/// A word and what it means.
#[derive(Debug, PartialEq, Eq)]
pub struct Term {
    /// The word.
    pub word: &'static str,
    /// Other forms of it.
    pub also: &'static [&'static str],
    /// What it means: a sentence without its full stop.
    pub means: &'static str,
}

const fn term(word: &'static str, also: &'static [&'static str], means: &'static str) -> Term {
    Term { word, also, means }
}

/// All of them, in alphabetical order.
pub const TERMS: [Term; 30] = [
    term("activations", &[], "results of forward that are kept because backward needs them"),
    term(
        "adapters",
        &["adapter"],
        "small matrices that are trained beside frozen weights: all that LoRA and QLoRA train",
    ),
    term(
        "allocated",
        &[],
        "bytes of the blocks that PyTorch's allocator has handed out to tensors: torch.cuda.memory_allocated()",
    ),
    term(
        "autocast",
        &[],
        "PyTorch computes products in half precision over weights of another type, and casts them for it",
    ),
    term(
        "context",
        &["CUDA context"],
        "what the driver takes of a card for a process before its first tensor: kernels, stacks, tables",
    ),
    term("DDP", &[], "every GPU has the whole model and its own batch; gradients are averaged"),
    term(
        "expandable segments",
        &[],
        "the allocator grows one piece of address space instead of taking many, so that holes between blocks are fewer (PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True)",
    ),
    term(
        "FSDP2",
        &["FSDP"],
        "PyTorch's sharding: every GPU keeps a part of weights, gradients and optimizer state, and gathers a layer while it runs",
    ),
    term("fused", &[], "several operations in one kernel, so that what lies between them is never stored"),
    term("GiB", &[], "1,073,741,824 bytes (2^30), as torch.cuda and nvidia-smi count; 1 GB is 1,000,000,000"),
    term(
        "gradient accumulation",
        &["accumulation"],
        "gradients of several micro-batches are added up before one step of the optimizer: a larger batch in the same memory",
    ),
    term(
        "gradient checkpointing",
        &["activation checkpointing", "checkpointing"],
        "a layer keeps its input alone and runs forward again in backward: less memory for about a third more time",
    ),
    term(
        "gradients",
        &["gradient"],
        "one number for each trained parameter, made by backward and used by the optimizer",
    ),
    term("KV cache", &[], "keys and values of all tokens so far, kept while text is generated"),
    term(
        "logits",
        &[],
        "a score for each word of the vocabulary at each token: batch × tokens × vocabulary numbers",
    ),
    term(
        "LoRA",
        &[],
        "low-rank adaptation: the weights are frozen, and small matrices beside them are trained",
    ),
    term("micro-batch", &["micro-batch size"], "the sequences that go through the model at once on one GPU"),
    term(
        "mixture of experts",
        &["experts"],
        "layers with many feed-forward blocks, of which each token visits a few; all of them take memory",
    ),
    term(
        "null device",
        &[],
        "a CUDA device whose kernels compute nothing: PyTorch's own code and allocator run over it as over a card, so that what they take is real and no card is needed",
    ),
    term(
        "optimizer state",
        &[],
        "what the optimizer remembers of each trained parameter: AdamW keeps two numbers",
    ),
    term("peak", &[], "the moment with the most bytes: a card that holds it holds the whole run"),
    term("QLoRA", &[], "LoRA beside weights that are stored in 4 bits"),
    term(
        "rank",
        &["LoRA rank"],
        "the small dimension of an adapter's matrices; of several GPUs, one process",
    ),
    term(
        "reserved",
        &["reserves"],
        "bytes that PyTorch has taken from the driver: what is allocated, the holes between, and what it keeps for later",
    ),
    term(
        "SDPA",
        &[],
        "PyTorch's scaled_dot_product_attention, which chooses a kernel; most kernels never store the scores",
    ),
    term("sequence length", &[], "tokens of one sequence"),
    term("tensor parallelism", &[], "each GPU holds a slice of every matrix"),
    term("vocabulary", &[], "the tokens that a model knows; the logits have a number for each"),
    term("weights", &[], "the model's parameters"),
    term(
        "ZeRO",
        &["ZeRO-1", "ZeRO-2", "ZeRO-3"],
        "DeepSpeed's sharding: optimizer state (1), gradients too (2), weights too (3) lie in parts on the GPUs",
    ),
];

/// A text in pieces: what is a word of the glossary, and what stands between. Of a word that comes several times the first
/// is explained.
///
/// ```
/// use headroom::glossary::pieces;
/// let pieces = pieces("LoRA keeps logits, and LoRAs");
/// let words: Vec<_> = pieces.iter().map(|(text, term)| (*text, term.is_some())).collect();
/// assert_eq!(words, [("LoRA", true), (" keeps ", false), ("logits", true), (", and LoRAs", false)]);
/// ```
pub fn pieces(text: &str) -> Vec<(&str, Option<&'static Term>)> {
    let mut pieces = Vec::new();
    let mut explained: Vec<&Term> = Vec::new();
    let (mut start, mut at) = (0, 0);
    while let Some(rest) = text.get(at..) {
        let found = if is_start(text, at) { found(rest) } else { None };
        let Some((term, length)) = found.filter(|(term, _)| !explained.contains(term)) else {
            let Some(next) = rest.chars().next() else { break };
            at += next.len_utf8();
            continue;
        };
        if start < at {
            pieces.push((&text[start..at], None));
        }
        pieces.push((&text[at..at + length], Some(term)));
        explained.push(term);
        at += length;
        start = at;
    }
    if start < text.len() {
        pieces.push((&text[start..], None));
    }
    pieces
}

/// Whether a word may begin there.
fn is_start(text: &str, at: usize) -> bool {
    text[..at].chars().next_back().is_none_or(|before| !is_letter(before))
}

fn is_letter(letter: char) -> bool {
    letter.is_alphanumeric() || matches!(letter, '-' | '_' | '.')
}

/// The term that a text begins with, by its longest form, and how long that is.
fn found(text: &str) -> Option<(&'static Term, usize)> {
    let forms = TERMS.iter().flat_map(|term| {
        [term.word].into_iter().chain(term.also.iter().copied()).map(move |form| (term, form))
    });
    let own = forms.filter(|(_, form)| begins(text, form));
    own.map(|(term, form)| (term, form.len())).max_by_key(|(_, length)| *length)
}

/// Whether a text begins with a word, whose first letter may be a capital.
fn begins(text: &str, word: &str) -> bool {
    let (Some(head), Some(rest)) = (text.get(..word.len()), text.get(word.len()..)) else { return false };
    let is_same = head == word || (head.get(1..) == word.get(1..) && head.eq_ignore_ascii_case(word));
    let ends = rest
        .chars()
        .next()
        .is_none_or(|next| !is_letter(next) || (next == '.' && !rest[1..].starts_with(is_letter)));
    is_same && ends
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_are_in_order_and_their_sentences_end_open() {
        assert!(TERMS.is_sorted_by_key(|term| term.word.to_lowercase()));
        for term in &TERMS {
            assert!(!term.means.ends_with('.') && term.means.len() > 20, "{}", term.word);
        }
    }

    #[test]
    fn words_are_found_whole_and_once() {
        let words = |text| -> Vec<&str> {
            pieces(text).into_iter().filter_map(|(word, term)| term.map(|_| word)).collect()
        };
        assert_eq!(words("Gradient checkpointing, then checkpointing."), ["Gradient checkpointing"]);
        assert_eq!(
            words("ZeRO-3, unzero, peaky, torch.cuda.memory.allocated, Weights."),
            ["ZeRO-3", "Weights"]
        );
        assert_eq!(words("LORA, lora"), [""; 0]);
        for text in ["", "é", "ünGiB", "…GiB…", "GiB"] {
            let all: String = pieces(text).into_iter().map(|(piece, _)| piece).collect();
            assert_eq!(all, text);
        }
    }
}
