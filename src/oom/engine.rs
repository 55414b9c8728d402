//! Messages of PyTorch's from inside an engine that serves models: what the engine was at, by the lines of its code that a traceback names.
//!
//! vLLM: `v1/worker/gpu_worker.py` and `gpu_model_runner.py` (`load_model`, `profile_run`, `initialize_kv_cache`, `capture_model`,
//! `_dummy_sampler_run`), `v1/sample/sampler.py`, `model_executor/`. SGLang: `srt/model_executor/model_runner.py`, `cuda_graph_runner.py`,
//! `srt/mem_cache/memory_pool.py`, `srt/layers/sampler.py`.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::traceback::{behind, traceback};

/// An engine that serves models.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Engine {
    /// vLLM.
    Vllm,
    /// SGLang.
    Sglang,
}

/// What an engine is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum At {
    /// It chooses tokens: logits of every sequence.
    Sampler,
    /// It records CUDA graphs.
    Graphs,
    /// It makes room for keys and values.
    Cache,
    /// It loads weights.
    Weights,
    /// It runs the longest batch once, to see what that takes.
    Profile,
    /// It computes a batch.
    Batch,
}

/// That a message is an engine's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Serving {
    /// Which.
    pub engine: Engine,
    /// What it was at; none where the text does not say it.
    pub at: Option<At>,
    /// The sequences of which tokens were chosen, where the text says how many.
    pub sequences: Option<u64>,
}

/// What stands in a traceback's lines, of each engine what names it. SGLang takes parts of vLLM's code, so it is looked for first.
const NAMED: [(Engine, &[&str]); 2] = [
    (Engine::Sglang, &["sglang/srt/", "sglang::scheduler"]),
    (
        Engine::Vllm,
        &[
            "vllm/v1/",
            "vllm/worker/",
            "vllm/executor/",
            "vllm/engine/",
            "vllm/entrypoints/",
            "vllm/model_executor/",
            "vllm/attention/",
            "vllm/compilation/",
            "gpu_model_runner.py",
            "(EngineCore",
            "(VllmWorker",
        ],
    ),
];

/// What it was at, by what a line has; what encloses others stands after these.
const STAGES: [(&str, At); 22] = [
    // its profiling run has a sampler, too
    ("profile_run", At::Profile),
    ("determine_available_memory", At::Profile),
    ("determine_num_available_blocks", At::Profile),
    ("profile_num_available_blocks", At::Profile),
    ("warming up sampler", At::Sampler),
    ("_dummy_sampler_run", At::Sampler),
    ("/sampler.py", At::Sampler),
    ("/logits_processor.py", At::Sampler),
    ("compute_logits", At::Sampler),
    ("capture_model", At::Graphs),
    ("cuda_graph_runner", At::Graphs),
    ("Capture cuda graph failed", At::Graphs),
    // keys and values are written in a batch
    ("forward_batch", At::Batch),
    ("forward_extend", At::Batch),
    ("forward_decode", At::Batch),
    (", in initialize_kv_cache", At::Cache),
    ("_allocate_kv_cache", At::Cache),
    ("/cache_engine.py", At::Cache),
    ("/memory_pool.py", At::Cache),
    ("load_model", At::Weights),
    ("model_loader", At::Weights),
    ("execute_model", At::Batch),
];

impl Serving {
    /// What a text says of it; none where its message is no engine's.
    pub(super) fn read(text: &str) -> Option<Serving> {
        let warmed = text.split_once("when warming up sampler with ");
        let sequences = warmed.and_then(|(_, rest)| {
            let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
            rest[..end].parse::<u64>().ok()
        });
        let lines = traceback(text).or_else(|| behind(text));
        let named = |lines: &str| {
            let names = |(_, words): &&(Engine, &[&str])| words.iter().any(|word| lines.contains(word));
            NAMED.iter().find(names).map(|(engine, _)| *engine)
        };
        // vLLM's own sentence has no figures
        let engine = lines.and_then(named).or(sequences.map(|_| Engine::Vllm))?;
        let lines = lines.filter(|_| sequences.is_none()).unwrap_or("warming up sampler");
        let at = STAGES.iter().find(|(word, _)| lines.contains(word)).map(|(_, at)| *at);
        Some(Serving { engine, at, sequences })
    }

    /// Whether the size of what it asked for may be a number of sequences by a vocabulary.
    pub(super) fn may_be_logits(self) -> bool {
        matches!(self.at, Some(At::Sampler | At::Batch | At::Profile) | None)
    }
}

impl fmt::Display for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Engine::Vllm => "vLLM",
            Engine::Sglang => "SGLang",
        })
    }
}

impl fmt::Display for Serving {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Serving { engine, at, sequences } = self;
        let was_at = match at {
            Some(At::Sampler) => "as it chose tokens (its sampler)",
            Some(At::Graphs) => "as it recorded CUDA graphs",
            Some(At::Cache) => "as it made room for keys and values",
            Some(At::Weights) => "as it loaded the weights",
            Some(At::Profile) => "as it ran its longest batch once, before it takes room for keys and values",
            Some(At::Batch) => "as it computed a batch",
            None => "as it served",
        };
        write!(f, "This is {engine}'s, {was_at}: it is looked for in no training step of the scenario. ")?;
        if let Some(sequences) = sequences {
            write!(f, "Of {sequences} sequences at once the logits were made. ")?;
        }
        f.write_str(match (engine, at) {
            (Engine::Vllm, Some(At::Sampler)) => {
                "The logits are sequences at once × vocabulary, copied in float32, beside the share that weights, keys and values have taken: fewer \
                 sequences (max_num_seqs; half as many halve it) or a smaller share (gpu_memory_utilization) leave room."
            }
            (Engine::Vllm, Some(At::Graphs)) => {
                "Graphs lie beside its share of the card: a smaller share (gpu_memory_utilization) leaves room for them, fewer sequences (max_num_seqs) \
                 need fewer, and enforce_eager=True records none."
            }
            (Engine::Vllm, Some(At::Cache)) => {
                "It takes what its share leaves: a smaller share (gpu_memory_utilization) is less, and another process may have taken a part of the card since \
                 it looked (nvidia-smi)."
            }
            (Engine::Vllm, Some(At::Weights)) => {
                "Weights come before its share is reckoned, so gpu_memory_utilization and max_model_len change nothing here: weights in fewer bits \
                 (quantization), several cards (tensor_parallel_size), a part in the computer's memory (cpu_offload_gb) or a smaller model do. Others may \
                 have the card (nvidia-smi)."
            }
            (Engine::Vllm, Some(At::Profile)) => {
                "Beside the weights there was no room for that batch: fewer tokens at once (max_num_batched_tokens, max_num_seqs), shorter sequences \
                 (max_model_len) or weights in fewer bits need less."
            }
            (Engine::Vllm, Some(At::Batch) | None) => {
                "What a batch takes lies beside weights, keys and values: a smaller share (gpu_memory_utilization) leaves room for it, fewer sequences \
                 (max_num_seqs), fewer tokens at once (max_num_batched_tokens), shorter ones (max_model_len) and enforce_eager=True need less."
            }
            (Engine::Sglang, Some(At::Weights)) => {
                "Weights come before the pool of keys and values, so mem_fraction_static changes nothing here: weights in fewer bits (--quantization), \
                 several cards (--tp) or a smaller model do. Others may have the card (nvidia-smi)."
            }
            (Engine::Sglang, Some(At::Graphs)) => {
                "Graphs lie beside the pool: a smaller one (--mem-fraction-static) leaves room for them, --cuda-graph-max-bs records fewer, and \
                 --disable-cuda-graph none."
            }
            (Engine::Sglang, _) => {
                "What a batch takes lies beside weights and the pool of keys and values: a smaller pool (--mem-fraction-static) leaves room for it, fewer \
                 tokens of prompts at once (--chunked-prefill-size) and fewer sequences (--max-running-requests) need less."
            }
        })?;
        f.write_str(" headroom serving says what a model's weights, keys and values take of a card.")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(lines: &str) -> Option<(Engine, Option<At>)> {
        let text =
            format!("{lines}\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 786.00 MiB.");
        Serving::read(&text).map(|serving| (serving.engine, serving.at))
    }

    #[test]
    fn the_lines_of_an_engines_code_say_what_it_was_at() {
        let site = "/opt/lib/python3.13/site-packages";
        let vllm = |frames: &[&str]| {
            let lines = frames.iter().map(|frame| format!("(EngineCore pid=3)   File \"{site}/vllm/{frame}"));
            at(&lines.collect::<Vec<_>>().join("\n"))
        };
        let worker = "v1/worker/gpu_worker.py\", line 136, in";
        let runner = "v1/worker/gpu_model_runner.py\", line 1167, in";
        let core = "v1/engine/core.py\", line 90, in _initialize_kv_caches";
        for (frames, stage) in [
            (
                vec![
                    format!("{worker} load_model"),
                    "model_executor/layers/linear.py\", line 201, in create_weights".into(),
                ],
                Some(At::Weights),
            ),
            (
                vec![
                    core.to_owned(),
                    format!("{worker} determine_available_memory"),
                    format!("{runner} _dummy_run"),
                ],
                Some(At::Profile),
            ),
            (
                vec![
                    core.to_owned(),
                    format!("{worker} compile_or_warm_up_model"),
                    format!("{runner} capture_model"),
                    format!("{runner} _dummy_run"),
                ],
                Some(At::Graphs),
            ),
            (
                vec![
                    format!("{runner} _dummy_sampler_run"),
                    "v1/sample/sampler.py\", line 86, in forward".into(),
                ],
                Some(At::Sampler),
            ),
            (vec![format!("{runner} initialize_kv_cache")], Some(At::Cache)),
            (
                vec![
                    format!("{runner} execute_model"),
                    "model_executor/models/llama.py\", line 340, in forward".into(),
                ],
                Some(At::Batch),
            ),
            (vec!["v1/worker/gpu_worker.py\", line 1, in somewhere".into()], None),
        ] {
            let frames: Vec<&str> = frames.iter().map(String::as_str).collect();
            assert_eq!(vllm(&frames), Some((Engine::Vllm, stage)), "{frames:?}");
        }
        // SGLang's traceback goes through what it takes of vLLM
        let sglang = format!(
            "  File \"{site}/sglang/srt/managers/scheduler.py\", line 9, in f\n  File \"{site}/sglang/srt/model_executor/cuda_graph_runner.py\", line 9, in capture\n  File \"{site}/vllm/utils.py\", line 928, in _patched_set_stream"
        );
        assert_eq!(at(&sglang), Some((Engine::Sglang, Some(At::Graphs))));
        // a training beside them, and one in a folder of that name
        for other in ["/home/u/vllm/train.py", "/home/u/verl/workers/rollout/vllm_rollout/run.py"] {
            assert_eq!(at(&format!("  File \"{other}\", line 3, in <module>")), None, "{other}");
        }
        assert_eq!(at("INFO (EngineCore pid=3) vllm/v1/engine is up"), None, "no traceback");
    }

    #[test]
    fn vllms_own_sentence_says_how_many_sequences() {
        let text = "RuntimeError: CUDA out of memory occurred when warming up sampler with 256 dummy requests. Please try lowering `max_num_seqs` or \
                    `gpu_memory_utilization` when initializing the engine.";
        let serving = Serving { engine: Engine::Vllm, at: Some(At::Sampler), sequences: Some(256) };
        assert_eq!(Serving::read(text), Some(serving));
    }
}
