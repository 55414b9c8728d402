//! What layers of gptqmodel's have in common, whichever method a checkpoint was quantised by: weights that are packed into integers, with
//! a zero and a scale for each group of a column, and are opened whole in float16.
//!
//! Source: gptqmodel 7.7 nn_modules/qlinear/__init__.py.

use super::shape::Shape;
use crate::dtype::Dtype;
use crate::step::machine::State;
use crate::step::tensor::Value;
use crate::step::what::{Source, What};

pub(in crate::step) static WEIGHT: What =
    What::own("qweight", "the frozen weights, packed into 32-bit integers: there from load to end", SOURCE);
pub(in crate::step) static ZEROS: What =
    What::own("qzeros", "the zero of each group of a column's weights, packed like the weights", SOURCE);
pub(in crate::step) static SCALES: What =
    What::own("scales", "the scale of each group of a column's weights, in float16", SOURCE);

const SOURCE: Source = Source::At("gptqmodel, nn_modules/qlinear/__init__.py");

impl State {
    /// The whole weight of a layer in an element type, which a kernel writes and nothing besides.
    pub(super) fn opened(&mut self, shape: Shape, dtype: Dtype, what: &'static What) -> Value {
        let numel = shape.weights();
        let storage = self.alloc(numel, dtype, what);
        self.note_dims(storage, shape.dims());
        Value::plain(storage, numel, dtype)
    }
}
