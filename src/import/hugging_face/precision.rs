//! What is computed in, and what the weights are.

use super::super::names::holds_with_bfloat16;
use super::super::reader::Reader;
use super::Parts;
use crate::dtype::Dtype;
use crate::model::catalogue;
use crate::scenario::{Method, Scenario, Task};

/// An element type as these libraries name it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Element {
    Fp32,
    Bf16,
    Fp16,
    /// As the model was published.
    Published,
}

pub(super) fn element_type(name: &str) -> Option<Element> {
    match name.trim_start_matches("torch.").trim_start_matches("jnp.") {
        "float32" | "fp32" | "float" => Some(Element::Fp32),
        "bfloat16" | "bf16" => Some(Element::Bf16),
        "float16" | "fp16" | "half" => Some(Element::Fp16),
        "auto" => Some(Element::Published),
        _ => None,
    }
}

/// Whether a switch is on, also where the text asks the card.
fn asked(reader: &mut Reader, name: &str) -> Option<(bool, String)> {
    let said = reader.take(&[name])?;
    let on = match holds_with_bfloat16(&said.text()) {
        Some(holds) => Some(reader.scenario.has_bfloat16() == holds),
        None => said.switch(),
    };
    if on.is_none() {
        reader.keep("precision", &said.said, "this is neither on nor off");
    }
    on.map(|on| (on, said.said))
}

/// What the model's weights were published in: those of encoders in float32, before others were in 16 bits; of others what the catalogue's
/// config says. A model of the same shape is in 16 bits where the one is whose config is known.
fn published(scenario: &Scenario) -> Option<Element> {
    if scenario.architecture().is_ok_and(|model| model.classifier.is_some()) {
        return Some(Element::Fp32);
    }
    let name = scenario.model_name();
    let entry = catalogue::find(&name)?;
    match entry.dtype()? {
        Dtype::F32 => entry.id.eq_ignore_ascii_case(&name).then_some(Element::Fp32),
        _ => Some(Element::Bf16),
    }
}

pub(super) fn precision(reader: &mut Reader, parts: Parts) {
    let said =
        reader.take(&["dtype", "torch_dtype", "model_init_kwargs.dtype", "model_init_kwargs.torch_dtype"]);
    let (fp16, bf16) = (asked(reader, "fp16"), asked(reader, "bf16"));
    if said.is_none() && !parts.arguments && !parts.loads {
        return;
    }
    let card = if reader.scenario.has_bfloat16() { Element::Bf16 } else { Element::Fp16 };
    let named = said.as_ref().and_then(|said| {
        let found = element_type(&said.text());
        if found.is_none() {
            reader.keep("precision", &said.said, "this is no element type");
        }
        found
    });
    let known = published(&reader.scenario);
    let published = known.unwrap_or(Element::Bf16);
    let weights = match named {
        Some(Element::Published) => published,
        Some(element) => element,
        None if parts.unsloth => card,
        None if parts.loads => published,
        None if parts.trl => Element::Fp32,
        None => published,
    };
    let is_as_published = !parts.unsloth
        && match named {
            Some(element) => element == Element::Published,
            None => parts.loads || !parts.trl,
        };
    let is_of_catalogue = catalogue::find(&reader.scenario.model_name()).is_some();
    if is_as_published && known.is_none() && is_of_catalogue && reader.scenario.method != Method::Qlora {
        reader.leave(
            "dtype",
            "what the model's weights were published in is not known here: taken for bfloat16, as most are; in float32 (gpt2, t5) they take twice as much",
        );
    }
    let own = reader.take(&["computes_in"]);
    let is_on = |switch: &Option<(bool, String)>| switch.as_ref().is_some_and(|(on, _)| *on);
    let computes = match (is_on(&bf16), is_on(&fp16)) {
        (true, _) => Some(Element::Bf16),
        (false, true) => Some(Element::Fp16),
        // Unsloth's trainers switch on what the card computes in (unsloth/models/rl.py)
        (false, false) if parts.has_trls_defaults() && bf16.is_none() => {
            Some(if parts.unsloth { card } else { Element::Bf16 })
        }
        // FSDP2's policy of the type that the weights have is none
        (false, false) => own.as_ref().and_then(|own| element_type(&own.text())).filter(|element| {
            own.as_ref().is_none_or(|own| !own.said.contains("Policy")) || *element != weights
        }),
    };
    // DeepSpeed's engines make what they compute in of any weights
    let is_zero = !reader.given(&["zero_optimization.stage"]).is_empty();
    let named_by = said.as_ref().map(|said| said.said.clone());
    let slug = match (weights, computes) {
        (Element::Fp32, None) => "fp32",
        (Element::Fp32, Some(Element::Bf16)) => "amp-bf16",
        (Element::Fp32, Some(_)) => "amp-fp16",
        (Element::Fp16, Some(Element::Fp16)) if parts.unsloth => "fp16",
        (Element::Fp16 | Element::Bf16 | Element::Published, Some(Element::Fp16)) if is_zero => "fp16",
        (Element::Fp16, Some(Element::Bf16)) if is_zero => "amp-bf16-weights",
        (Element::Bf16 | Element::Published, None) => "bf16",
        (Element::Bf16 | Element::Published, Some(Element::Bf16)) => "amp-bf16-weights",
        (Element::Fp16, None) => "fp16",
        (Element::Fp16, Some(Element::Fp16))
            if !parts.trl && reader.scenario.method.has_adapters() && reader.scenario.task == Task::Sft =>
        {
            "amp-fp16-weights"
        }
        (Element::Fp16, Some(_)) | (Element::Bf16 | Element::Published, Some(_)) => {
            let said = fp16.or(bf16).map(|(_, said)| said).or(own.map(|own| own.said));
            // what the arguments compute in by default is in no line: the weights' type is
            let said = said.or(named_by).unwrap_or_else(|| "dtype".to_owned());
            return reader.keep(
                "precision",
                &said,
                "mixed precision over weights of another 16-bit type is not predicted",
            );
        }
    };
    let all: Vec<String> = [
        said.map(|said| said.said),
        own.map(|own| own.said),
        fp16.map(|(_, said)| said),
        bf16.map(|(_, said)| said),
    ]
    .into_iter()
    .flatten()
    .collect();
    let weights_are_said = named.is_some();
    let as_published = match known {
        Some(Element::Fp32) => "weights as they were published, in float32",
        Some(_) => "weights as they were published, in 16 bits",
        None => "weights as they were published: taken for bfloat16",
    };
    let loaded = format!("transformers 5 loads {as_published}");
    let why = match (parts.command, parts.trl, parts.loads) {
        _ if parts.unsloth => "Unsloth loads in the type that the card computes in",
        (true, ..) => "trl's command loads in float32 and trains with bf16 where nothing is said",
        (false, true, false) => "trl's trainers load a model in float32, and their arguments train with bf16",
        (false, _, true) => &loaded,
        (false, false, false) => as_published,
    };
    if all.is_empty() {
        reader.assume("precision", slug, why)
    } else if weights_are_said {
        reader.set("precision", slug, &all.join(", "))
    } else {
        reader.set("precision", slug, &format!("{}; {why}", all.join(", ")))
    }
}
