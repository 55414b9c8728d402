//! A tower that stays as it is: which modules a text leaves alone.

use serde_json::Value;

use super::reader::{Reader, Said};
use super::syntax::python::Call;
use super::syntax::setting::{Setting, flatten};
use crate::model::vision::VisionCode;

const REQUIRES: &str = "requires_grad_";

/// Whether a call leaves a module of a tower as it is, which is noted: `model.model.visual.requires_grad_(False)`.
pub(super) fn takes(call: &Call, settings: &mut Vec<Setting>) -> bool {
    let module = call.path.strip_suffix(&format!(".{REQUIRES}")).and_then(|path| path.rsplit('.').next());
    let module = module.filter(|name| VisionCode::ALL.iter().any(|code| code.modules().contains(name)));
    match (module, call.values.first()) {
        (Some(module), Some(Value::Bool(false))) => {
            flatten("", REQUIRES, Value::from(module), settings);
            true
        }
        _ => false,
    }
}

fn code(reader: &Reader) -> Option<VisionCode> {
    Some(reader.scenario.architecture().ok()?.vision()?.1.code)
}

/// What such calls say: a tower stays as it is with what makes tokens of it, or is trained with it. Beside adapters no weight is trained anyway.
pub(super) fn read(reader: &mut Reader) {
    let said = reader.take_each(&[REQUIRES]);
    if said.is_empty() {
        return;
    }
    let all = code(reader).is_some_and(|code| {
        code.modules().iter().all(|module| said.iter().any(|said| said.text() == *module))
    });
    let said: Vec<String> = said.iter().map(|said| format!("{}.{REQUIRES}(False)", said.text())).collect();
    if reader.scenario.method.has_adapters() {
        reader.idle.extend(said);
    } else if all {
        reader.set("vision-tower", "frozen", &said.join(", "));
    } else {
        reader.leave(&said.join(", "), "the projector is trained with the tower, or frozen with it");
    }
}

/// Layers that adapters are kept off: a whole tower with its projector is known, as Headroom writes it and as Qwen's is written, whose projector is in
/// `visual` too. peft matches a pattern with a module's whole name, and what a list has with its end (0.21, tuners/tuners_utils.py
/// `_check_target_module_exists`).
pub(super) fn excluded(reader: &mut Reader, said: &Said) {
    let whole = [".*\\.visual\\..*", "model\\.visual\\..*", "model.visual.*"];
    let is_known = code(reader).is_some_and(|code| {
        let is_qwens = code.modules() == ["visual"];
        let text = said.text();
        text == code.pattern() || is_qwens && whole.contains(&text.as_str())
    });
    match is_known && !said.value.is_array() {
        true => reader.set("vision-tower", "frozen", &said.said),
        false => reader.leave(
            &said.said,
            "of layers that adapters are kept off a whole tower with its projector is known (--vision-tower frozen), as Qwen's \".*visual.*\"",
        ),
    }
}
