//! LLaMA-Factory's files whose training Megatron-core does (its mcore adapter, and Megatron Bridge): what they call as transformers does.

use crate::import::llama_factory::IDLE;
use crate::import::reader::{Reader, among};
use crate::scenario::Method;

/// Names that LLaMA-Factory alone has, whose settings are Megatron's arguments otherwise.
pub(in crate::import) const ITS_OWN: [&str; 5] =
    ["finetuning_type", "cutoff_len", "lora_target", "stage", "template"];

/// The model by its name, and what of it is trained.
pub(super) fn begin(reader: &mut Reader) {
    if reader.given(&ITS_OWN).is_empty() {
        return;
    }
    if let Some(said) = reader.take(&["model_name_or_path"]) {
        reader.model(&said);
    }
    match reader.take(&["finetuning_type"]) {
        Some(said) if said.text() == "full" => reader.set("method", Method::Full.slug(), &said.said),
        // which has no answer with Megatron-core
        Some(said) => reader.set("method", Method::Lora.slug(), &said.said),
        None => reader.assume("method", Method::Lora.slug(), "LLaMA-Factory's default (0.9.5)"),
    }
    if let Some(said) = reader.take(&["stage"]) {
        match said.text().as_str() {
            "sft" | "pt" => reader.idle.push(said.said),
            _ => reader.keep("task", &said.said, "beside Megatron-core fine-tuning is followed"),
        }
    }
}

/// What is left of such a file.
pub(super) fn end(reader: &mut Reader) {
    if !reader.given(&ITS_OWN).is_empty() {
        reader.pass(|name| {
            among(IDLE, name) || ["mixed_precision", "image_max_pixels", "video_max_pixels"].contains(&name)
        });
    }
}
