//! models/opt/modeling_opt.py.

use super::super::find;
use crate::dtype::Dtype;
use crate::step::forward::Pass;
use crate::step::forward::inputs::{Embedded, MaskCall, Shared};
use crate::step::tensor::Tensor;
use crate::step::what::{roles, torch};

impl<'a> Pass<'_, 'a> {
    /// `OPTDecoder.forward` up to its layers: positions are counted from a mask, of ones if none is given.
    pub(in crate::step::forward) fn opt_inputs(&self) -> (Embedded<'a>, Shared<Tensor<'a>>) {
        let embeddings = &self.architecture.embeddings;
        let tokens = self.batch.tokens();
        let mut hidden = self.embed_tokens();
        let given = self.batch.mask.is_given();
        // `generate` gives positions too
        let counts = self.generating.is_none();
        let ones = (!given).then(|| self.of_tokens(tokens, Dtype::F32, &torch::MASK_OF_ONES));
        let counted = if given { Dtype::I64 } else { Dtype::F32 };
        let positions = counts.then(|| {
            let summed = self.of_tokens(tokens, counted, &torch::POSITIONS);
            let shifted = {
                let _masked = self.of_tokens(tokens, counted, &torch::POSITIONS);
                self.of_tokens(tokens, counted, &torch::POSITIONS)
            };
            let positions = shifted.to(Dtype::I64);
            drop(shifted);
            drop(summed);
            positions
        });
        let full = self.mask(None, hidden.value.dtype, MaskCall { given: true, ..self.mask_call() });
        let mut locals = Vec::with_capacity(3);
        if let (Some(table), Some(param)) = (&embeddings.positions, self.outside.positions) {
            let rows = self.within(table.name, &roles::EMBEDDING, || {
                let ids = self.of_tokens(tokens, Dtype::I64, &torch::POSITIONS);
                self.lookup(param, Some(&ids), tokens, table.width)
            });
            if let Some(linear) = &embeddings.project_in {
                hidden = hidden.through(&find(&self.outside.linears, |bound| bound.name == linear.name));
            }
            let sum = hidden.add(&rows);
            locals.extend(ones);
            locals.extend([std::mem::replace(&mut hidden, sum), rows]);
        }
        let shared = Shared { positions: positions.clone(), full, ..Shared::none() };
        (Embedded { hidden, kept: false, positions, locals }, shared)
    }
}
