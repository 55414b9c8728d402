//! The file of a scenario that generates.

use super::python::{Call, boolean};
use super::run::Run;
use crate::issue::Issue;
use crate::scenario::{CacheKind, Mask, Sampling, Scenario};

/// The inputs that the file says beside those that every file says.
pub(super) const SAID: &[&str] = &[
    "task",
    "new-tokens",
    "kv-cache",
    "sampling",
    "attention",
    "weight-format",
    "double-quant",
    // of another program's run
    "vllm-percent",
    "vllm-max-num-batched-tokens",
    "vllm-max-num-seqs",
    "vllm-kv-cache-dtype",
];

/// A call of `generate` with prompts of the scenario's length.
pub(super) fn script(run: &Run<'_>) -> Result<String, Issue> {
    let Scenario { batch, sequence, generation, .. } = *run.scenario;
    let mut packages = vec!["torch==2.11.*", "transformers==5.17.*"];
    let mut names = vec![run.class(), "AutoTokenizer"];
    let (class, needs) = run.quantization_class().unzip();
    packages.extend_from_slice(run.quantiser());
    names.extend(class);
    let call = Call::new("model.generate")
        .with("**prompts")
        .keyword("max_new_tokens", "NEW")
        .keyword("min_new_tokens", "NEW")
        .keyword("use_cache", boolean(generation.cache != CacheKind::Off))
        .keyword("do_sample", boolean(generation.sampling != Sampling::Greedy));
    let call = match generation.sampling {
        Sampling::Greedy => call,
        Sampling::Drawn => call.keyword("temperature", 1.0).keyword("top_k", 0).keyword("top_p", 1.0),
        Sampling::Sampled => call.keyword("temperature", 0.7).keyword("top_k", 50).keyword("top_p", 0.9),
    };
    let call = match generation.cache {
        CacheKind::Dynamic | CacheKind::Off => call,
        CacheKind::Static => {
            call.keyword("cache_implementation", "\"static\"").keyword("disable_compile", "True")
        }
    };
    let mask = match run.scenario.mask {
        // left of the shortest prompts
        Mask::Padded => "mask[:, : LENGTH // 2] = 0\n",
        Mask::None | Mask::Ones | Mask::Packed | Mask::PaddingFree => "",
    };
    let (device, [allocated, of_what]) = (run.device().name(), run.device().allocated());
    Ok(format!(
        "{}\nimport torch\n{}from transformers import {}\n\nMODEL = {}\nBATCH, LENGTH, NEW = {batch}, {sequence}, {}\n{}\n\
         tokenizer = AutoTokenizer.from_pretrained(MODEL)\nmodel = {}\nmodel.eval()\n\
         ids = torch.randint(len(tokenizer), (BATCH, LENGTH), device=\"{device}\")  # put your prompts here\n\
         mask = torch.ones_like(ids)\n{mask}prompts = {{\"input_ids\": ids, \"attention_mask\": mask}}\n\
         text = {}\nprint(tokenizer.batch_decode(text[:, LENGTH:])[0])\n\
         print(f\"{{{allocated}():,}} bytes {of_what}\")\n",
        run.header(&packages),
        needs.unwrap_or_default(),
        names.join(", "),
        run.model(),
        generation.new_tokens,
        run.kernels(),
        run.loaded()?.written(0),
        call.written(0),
    ))
}
