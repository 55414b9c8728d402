//! What an optimizer knows of the parameters that it steps.

use std::ops::Range;

use super::recipe::Torchao;
use crate::dtype::Dtype;
use crate::step::heap::{NOTHING, rounded};
use crate::step::machine::State;
use crate::step::params::{Blocks, ParamId, Parameter};
use crate::step::what::{Dims, Rank};

/// Elements below which bitsandbytes keeps a 32-bit state (`min_8bit_size`), and torchao one of the parameter's type, on the GPU
/// (`minimal_size`).
pub(super) const MIN_8BIT: u64 = 4096;

/// What the optimizer knows of a parameter.
#[derive(Clone, Copy)]
pub(super) struct Trained {
    /// The parameter.
    pub id: ParamId,
    pub module: &'static str,
    pub layer: u32,
    pub numel: u64,
    pub rows: u64,
    pub rank: Rank,
    pub times: u32,
    pub body: u32,
    pub dtype: Dtype,
    pub wide_state: bool,
    /// Whether it is a matrix of a layer.
    pub in_layer: bool,
    /// Whether other GPUs have other parts of it.
    pub divided: bool,
    /// Onto how many directions the optimizer projects its gradient, if it does.
    pub projection_rank: Option<u64>,
    /// How Adam-mini divides it, if that is the optimizer.
    pub blocks: Option<Blocks>,
}

impl Trained {
    fn of(id: ParamId, param: &Parameter) -> Trained {
        let Parameter { module, layer, kept, rank, times, body, wide_state, in_layer, divided, .. } = *param;
        Trained {
            id,
            module,
            layer,
            numel: kept.numel,
            rows: kept.rows,
            rank,
            times,
            body,
            dtype: kept.dtype,
            wide_state,
            in_layer,
            divided,
            projection_rank: param.projection_rank,
            blocks: param.blocks,
        }
    }

    pub fn columns(&self) -> u64 {
        self.numel / self.rows.max(1)
    }

    pub fn dims(&self) -> Dims {
        Dims::Parameter(self.rows, self.columns(), self.rank)
    }

    /// Whether torchao keeps its state in few bits (`_new_buffer` of torchao/optim/adam.py).
    pub fn is_quantised_by_torchao(&self, how: Torchao) -> bool {
        self.numel >= MIN_8BIT && self.numel.is_multiple_of(how.block)
    }

    /// Bytes of a tensor like it, and of those that it stands for.
    pub fn blocks(&self) -> u64 {
        blocks(self.numel.saturating_mul(self.dtype.bytes()), self.times)
    }
}

/// Bytes of so many tensors of `bytes` bytes, each rounded up as the allocator does.
pub(super) fn blocks(bytes: u64, times: u32) -> u64 {
    rounded(bytes).saturating_mul(u64::from(times))
}

/// The trained parameters of a model that have a gradient, in order: optimizers and `clip_grad_norm_` pass the others over.
pub(super) fn trained(state: &State, own: &Range<usize>) -> Vec<Trained> {
    trained_where(state, own, |param| param.grad != NOTHING)
}

pub(super) fn trained_where(
    state: &State,
    own: &Range<usize>,
    wanted: fn(&Parameter) -> bool,
) -> Vec<Trained> {
    if state.parallel.steps_on_host() {
        return Vec::new();
    }
    if let Some(numel) = state.parallel.partition() {
        let (module, rank, dtype) = ("", Rank::None, Dtype::F32);
        return vec![Trained {
            id: 0,
            module,
            layer: 0,
            numel,
            rows: 1,
            rank,
            times: 1,
            body: 0,
            dtype,
            wide_state: false,
            in_layer: false,
            divided: false,
            projection_rank: None,
            blocks: None,
        }];
    }
    let list = state.params.of(own);
    let numbered = (own.start as ParamId..).zip(list);
    let wanted = numbered.filter(|(_, param)| param.trainable && wanted(param));
    let mut trained = Vec::with_capacity(list.len());
    trained.extend(wanted.map(|(id, param)| Trained::of(id, param)));
    trained
}

/// A single parameter, which stands for no others; none where its number is none.
pub(super) fn trained_one(state: &State, id: ParamId) -> Option<Trained> {
    let param = state.params.list.get(id as usize)?;
    Some(Trained { times: 1, ..Trained::of(id, param) })
}

/// The parameters as a loop comes by them, where what it leaves of one meets the next: those of a repeated body twice, as
/// the first one's follow the last one's.
pub(super) fn in_turn(params: &[Trained]) -> impl Iterator<Item = &Trained> {
    params.chunk_by(|one, next| one.body == next.body).flat_map(|body| {
        let again = body.first().is_some_and(|first| first.times > 1);
        std::iter::repeat_n(body, 1 + usize::from(again)).flatten()
    })
}
