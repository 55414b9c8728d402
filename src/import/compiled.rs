//! Calls of torch.compile's.

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
