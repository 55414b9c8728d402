//! What is compiled: calls of torch.compile's, and layers that Unsloth compiles by itself.

use super::launch::UNCOMPILED;
use super::reader::Reader;
use super::syntax::python::Call;
use crate::scenario::Compile;
use crate::text::short;

/// What a loop over a model's layers is usually written with: `for layer in model.model.layers: layer.compile()`.
const LAYERS: [&str; 4] = ["layer", "block", "decoder_layer", "transformer_block"];

/// What a script compiles: its layers one by one, or the whole model.
pub(super) fn of_calls(calls: &[Call], reader: &mut Reader) {
    for call in calls.iter().filter(|call| call.name() == "compile") {
        let said = short(&format!("{}(…)", call.path));
        let of = call.path.trim_end_matches(".compile");
        if LAYERS.contains(&of) {
            reader.set("compile", Compile::Layers.slug(), &said);
        } else if of == "torch" || of == "model" || of.ends_with(".model") {
            reader.set("compile", Compile::Model.slug(), &said);
        }
    }
}

/// What Unsloth does where nothing is said: it compiles the layers under checkpoints, where that is followed.
pub(super) fn by_unsloth(reader: &mut Reader) {
    let switched = reader.take(&[UNCOMPILED, &format!("env.{UNCOMPILED}")]);
    match switched {
        Some(said) if ["1", "partial"].contains(&said.text().as_str()) => {
            return reader.set("compile", Compile::Off.slug(), &said.said);
        }
        Some(said) => reader.idle.push(said.said),
        None => {}
    }
    if reader.scenario.compiles_as_unsloth() {
        let why = "Unsloth compiles the layers under checkpoints unless UNSLOTH_COMPILE_DISABLE=1 is set";
        reader.assume("compile", Compile::Layers.slug(), why);
    } else if reader.scenario.compile != Compile::Off {
        // as it was before this was read
        let why = "layers that Unsloth compiles are not followed of such a run: one operation at a time";
        reader.assume("compile", Compile::Off.slug(), why);
    }
}
