//! Where in the step a traceback stands: what its lines name, and which tensors are made there.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::traceback::traceback;
use crate::explain::Line;
use crate::memory::Category;

/// A place in the code of a step that a line of a traceback names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Place {
    /// Where an optimizer makes what it remembers.
    OptimizerState,
    /// Where DeepSpeed joins many tensors to one.
    Flat,
    /// Where shards are gathered from all GPUs.
    Gather,
    /// Where the loss is computed.
    Loss,
    /// Where the logits are made, or copied in another element type.
    Logits,
    /// Where attention's scores become weights.
    Attention,
    /// Where attention's scores are made, masked or used.
    Scores,
    /// The feed-forward network.
    Mlp,
    /// The optimizer's step.
    Step,
    /// The backward pass.
    Backward,
    /// Where a model is loaded.
    Loading,
    /// Where transformers asks for room for all weights at once, before it loads them.
    WarmUp,
    /// An evaluation, and what is kept of its batches.
    Evaluation,
    /// Where adapters become part of the weights.
    Merging,
}

/// What a line has where it names a place: all words of one row. A row stands before those whose words a line of its kind has too.
const NAMED: [(&[&str], Place); 46] = [
    // torch/optim: state["exp_avg_sq"] = torch.zeros_like(p, …)
    (&["exp_avg", "zeros_like"], Place::OptimizerState),
    (&["momentum_buffer", "clone"], Place::OptimizerState),
    // bitsandbytes/optim/optimizer.py
    (&["get_state_buffer"], Place::OptimizerState),
    // deepspeed/runtime/zero: stage_1_and_2.py, stage3.py
    (&["flatten_dense_tensors"], Place::Flat),
    (&["single_grad_partition"], Place::Flat),
    (&["single_partition_of_fp32_groups"], Place::Flat),
    (&["partitioned_groups_flat"], Place::Flat),
    (&["_create_fp32_partitions"], Place::Flat),
    (&["initialize_optimizer_states"], Place::Flat),
    (&["deepspeed/runtime/zero/stage", "in __init__"], Place::Loading),
    (&["deepspeed.initialize("], Place::Loading),
    (&["all_gather"], Place::Gather),
    (&["allgather"], Place::Gather),
    (&["cross_entropy"], Place::Loss),
    (&["log_softmax"], Place::Loss),
    (&["logits.float()"], Place::Logits),
    (&["logits.to("], Place::Logits),
    (&["lm_head("], Place::Logits),
    (&["softmax("], Place::Attention),
    // transformers' eager attention, of today and before
    (&["attn_weights = torch."], Place::Scores),
    (&["attn_weights = attn_weights"], Place::Scores),
    (&["attn_weights = nn."], Place::Scores),
    (&["torch.matmul(attn_weights"], Place::Scores),
    (&["torch.matmul(query"], Place::Scores),
    (&["attention_scores"], Place::Scores),
    (&[".mlp("], Place::Mlp),
    (&["act_fn("], Place::Mlp),
    (&["gate_proj("], Place::Mlp),
    (&["up_proj("], Place::Mlp),
    (&["down_proj("], Place::Mlp),
    (&["optimizer.step("], Place::Step),
    (&["deepspeed/runtime/zero/stage", "in step"], Place::Step),
    (&["torch/optim/"], Place::Step),
    (&[".backward("], Place::Backward),
    (&["run_backward("], Place::Backward),
    (&["caching_allocator_warmup"], Place::WarmUp),
    // transformers/trainer.py, trainer_pt_utils.py
    (&["nested_concat("], Place::Evaluation),
    (&["in evaluation_loop"], Place::Evaluation),
    (&["in prediction_step"], Place::Evaluation),
    // peft/tuners
    (&["merge_and_unload("], Place::Merging),
    (&["merge_adapter("], Place::Merging),
    (&["get_delta_weight("], Place::Merging),
    (&["from_pretrained("], Place::Loading),
    (&["load_state_dict("], Place::Loading),
    (&["model.to("], Place::Loading),
    (&["model.cuda("], Place::Loading),
];

/// The places that the traceback above a message names, the innermost first; none where the text has no traceback.
pub(super) fn places(text: &str) -> Vec<Place> {
    let Some(traceback) = traceback(text) else { return Vec::new() };
    let mut places = Vec::new();
    for line in traceback.lines().rev() {
        let names = |(words, _): &&(&[&str], Place)| words.iter().all(|word| line.contains(word));
        let found = NAMED.iter().find(names).map(|(_, place)| *place);
        places.extend(found.filter(|place| !places.contains(place)));
    }
    places
}

impl Place {
    /// Whether what is made there is as large as parameters are, whatever the batch.
    pub(super) const fn is_of_parameters(self) -> bool {
        matches!(self, Place::OptimizerState | Place::Step | Place::Loading | Place::Merging)
    }

    /// Whether its size hangs on how many tokens there are.
    pub(super) const fn is_of_tokens(self) -> bool {
        !self.is_of_parameters() && !matches!(self, Place::Flat | Place::WarmUp)
    }

    /// Whether attention's scores, or what their backward makes, may be made there.
    pub(super) const fn may_be_of_scores(self) -> bool {
        matches!(self, Place::Attention | Place::Scores | Place::Backward)
    }

    /// Whether logits, or their gradients, may be made there.
    pub(super) const fn may_be_of_logits(self) -> bool {
        matches!(self, Place::Loss | Place::Logits | Place::Backward)
    }

    /// Whether a tensor is made there: what it is, and what is running.
    pub(super) fn makes(self, line: &Line, phase: &str) -> bool {
        let is_of = |word: &str| line.what.contains(word);
        match self {
            Place::OptimizerState => line.category == Category::Optimizer && !is_of("master weights"),
            Place::Flat => is_of("flat ") || is_of("master weights"),
            Place::Gather => is_of("gather"),
            Place::Loss => line.category == Category::Logits && phase != BACKWARD && !is_of("lm_head"),
            Place::Logits => {
                let is_copy = line.category == Category::Logits && is_of("cast");
                (is_copy || is_of("lm_head")) && phase != BACKWARD
            }
            Place::Attention => is_of("softmax") && line.category != Category::Logits,
            Place::Scores => {
                let module = line.what.split(": ").next().unwrap_or_default();
                module.ends_with("attn") || module.ends_with("attention")
            }
            Place::Mlp => is_of("mlp") || is_of("experts"),
            Place::Step => phase == STEP,
            Place::Loading => phase == LOADING,
            Place::WarmUp => false,
            Place::Evaluation => phase.contains("evaluation"),
            Place::Merging => phase.contains("merg"),
            Place::Backward => phase == BACKWARD,
        }
    }
}

/// What runs while there is no phase.
pub(super) const LOADING: &str = "loading";
/// As [`crate::memory::Phase::label`] says them.
const BACKWARD: &str = "backward pass";
const STEP: &str = "optimizer step";

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Place::OptimizerState => "where the optimizer's state is made",
            Place::Flat => "where many tensors are joined to one",
            Place::Gather => "where shards are gathered from all GPUs",
            Place::Loss => "in the loss",
            Place::Logits => "where the logits are made or copied",
            Place::Attention => "in attention's softmax",
            Place::Scores => "at attention's scores",
            Place::Mlp => "in the feed-forward network",
            Place::Step => "in the optimizer's step",
            Place::Loading => "where a model is loaded",
            Place::WarmUp => "where room is made for all weights at once",
            Place::Evaluation => "in an evaluation",
            Place::Merging => "where adapters are merged into the weights",
            Place::Backward => "in the backward pass",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{Phase, Stage};

    #[test]
    fn the_innermost_line_comes_first() {
        let text = "epoch 1: cross_entropy 2.3\nTraceback (most recent call last):\n  \
             File \"train.py\", line 20, in <module>\n    optimizer.step()\n  \
             File \"torch/optim/adamw.py\", line 153, in _init_group\n    \
             state[\"exp_avg_sq\"] = torch.zeros_like(\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.";
        assert_eq!(places(text), [Place::OptimizerState, Place::Step]);
        // a product of two such tensors is no state
        let scratch = text
            .replace("state[\"exp_avg_sq\"] = torch.zeros_like(", "torch._foreach_sqrt(device_exp_avg_sqs)");
        assert_eq!(places(&scratch), [Place::Step]);
        let recomputed = "Traceback (most recent call last):\n    loss.backward()\n    attn = nn.functional.softmax(scores)\n";
        assert_eq!(places(recomputed), [Place::Attention, Place::Backward]);
        // an attention that makes no scores hands over none either
        let kernels = "Traceback (most recent call last):\n    attn_output, attn_weights = attention_interface(\n    self.mlp(hidden_states)\n";
        assert_eq!(places(kernels), [Place::Mlp]);
        let loading =
            "Traceback (most recent call last):\n    model = AutoModelForCausalLM.from_pretrained(\n";
        assert_eq!(places(loading), [Place::Loading]);
        assert_eq!(places("cross_entropy(logits) CUDA out of memory. Tried to allocate 2.00 GiB"), []);
    }

    /// What moves a batch beside the model's call loads nothing.
    #[test]
    fn a_model_is_loaded_where_it_is_moved() {
        let at = |line: &str| places(&format!("Traceback (most recent call last):\n    {line}\n"));
        for line in ["model.to(device)", "model = model.cuda()", "model = AutoModel.from_pretrained(name)"] {
            assert_eq!(at(line), [Place::Loading], "{line}");
        }
        for line in ["loss = model(batch.to(device))", "out = model.generate(**inputs.to(model.device))"] {
            assert_eq!(at(line), [], "{line}");
        }
    }

    #[test]
    fn phases_are_named_as_elsewhere() {
        let label = |stage| Phase { act: 0, stage }.label();
        assert_eq!([label(Stage::Backward), label(Stage::Step)], [BACKWARD, STEP]);
    }
}
