//! Calls that change a model, or how it is run, in a way that is not followed: they are listed, so that nobody takes the answer for theirs.

use serde_json::Value;

use super::syntax::python::Call;

const CAST: &str =
    "a model that is cast after it was loaded is not followed: say its dtype in from_pretrained";

/// Weights that a text freezes by hand, where it has no adapters beside which all are frozen.
pub(super) const FROZEN: &str =
    "weights that are frozen by hand are not followed: all of them are taken as trained";

/// Why a call is not followed; none where it changes nothing that is predicted, or is read elsewhere.
pub(super) fn why(call: &Call) -> Option<&'static str> {
    let of = call.path.strip_suffix(call.name()).unwrap_or_default().trim_end_matches('.');
    let is_model = of == "model" || of.ends_with(".model");
    match call.name() {
        "half" | "float" | "bfloat16" if is_model => Some(CAST),
        "to" if is_model && casts(call) => Some(CAST),
        "resize_token_embeddings" => {
            Some("a vocabulary of another size is not followed: bring a config.json that has it")
        }
        "DataParallel" => Some(
            "torch.nn.DataParallel is not followed, which has copies and what all of them return on the first GPU",
        ),
        "set_attn_implementation" => Some(
            "attention that is chosen after loading is not followed: say attn_implementation in from_pretrained",
        ),
        "set_per_process_memory_fraction" => Some(
            "a share of the card that a process may have is not read: say it as the GPU's memory (--gpu 20GB)",
        ),
        "zero_grad"
            if call
                .named
                .iter()
                .any(|(name, value)| name == "set_to_none" && *value == Value::Bool(false)) =>
        {
            Some("gradients that are kept as zeros are not read: --set-to-none off has them")
        }
        name if name.starts_with("apply_liger_kernel_to") => {
            Some("Liger's kernels are read where the trainer applies them: say use_liger_kernel=True")
        }
        _ => None,
    }
}

/// Whether a call of `to` names an element type.
fn casts(call: &Call) -> bool {
    let is_type = |value: &Value| {
        let text = value.as_str().unwrap_or_default().rsplit('.').next().unwrap_or_default();
        ["bfloat16", "float16", "half", "float32", "float"].contains(&text)
    };
    let named =
        |(name, value): &(String, Value)| ["dtype", "torch_dtype"].contains(&name.as_str()) || is_type(value);
    call.values.iter().any(is_type) || call.named.iter().any(named)
}

/// The first line of a text that freezes weights.
pub(super) fn freezes(text: &str) -> Option<&str> {
    let code = |line: &str| line.split('#').next().unwrap_or_default().replace(' ', "");
    let is_so = |line: &&str| {
        let code = code(line);
        let assigned = code.split(".requires_grad=").nth(1).is_some_and(|to| !to.starts_with(['=', 'T']));
        assigned || code.contains("model.requires_grad_(False)")
    };
    text.lines().find(is_so).map(str::trim)
}
