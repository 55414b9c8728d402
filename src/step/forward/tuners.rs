//! What tuners of peft other than LoRA put beside a linear layer: their parameters on the machine.

use super::loader::Loader;
use crate::dtype::Dtype;
use crate::memory::Category;
use crate::model::blocks::Linear;
use crate::scenario::Tuner;
use crate::step::heap::Loading;
use crate::step::ops::linear::Adapter;
use crate::step::ops::tuned::{Ia3, Loha, Lokr, Oft, Second, Tuned, Vera};
use crate::step::params::ParamId;
use crate::step::what::{Rank, Source, What};

static FACTORS: What = What::own(
    "parameter",
    "the trained factors of (IA)³, one for each feature that it scales",
    Source::At("peft, tuners/ia3/layer.py"),
);
static VECTOR: What = What::own(
    "parameter",
    "a trained vector of VeRA's: a factor for each element of the low dimension, or for each output",
    Source::At("peft, tuners/vera/layer.py"),
);
static SHARED: What = What::own(
    "parameter",
    "a random matrix of VeRA's, frozen, of which every adapted layer reads a slice",
    Source::At("peft, tuners/vera/model.py"),
);

static FACTOR: What = What::own(
    "parameter",
    "one of LoHa's four trained factors, of which one side is the rank",
    Source::At("peft, tuners/loha/layer.py"),
);
static KRONECKER: What = What::own(
    "parameter",
    "a matrix of LoKr's Kronecker product, or a factor of its second one",
    Source::At("peft, tuners/lokr/layer.py"),
);

/// Two factors of a number that are as near to each other as may be, the smaller one first (tuners/lokr/layer.py `factorization`).
fn factorised(number: u64) -> (u64, u64) {
    let smaller = (1..=number.isqrt()).rev().find(|factor| number.is_multiple_of(*factor)).unwrap_or(1);
    (smaller, number / smaller.max(1))
}

static BLOCKS: What = What::own(
    "parameter",
    "OFT's trained angles: of each block of a layer's inputs the elements above the diagonal",
    Source::At("peft, tuners/oft/layer.py"),
);

static PLACES: What = What::own(
    "buffer",
    "where OFT's angles stand in a block: an index for each, of rows or of columns",
    Source::At("peft, tuners/oft/layer.py"),
);

/// The divisor of a number that is nearest to another one, the smaller of two that are as near.
fn block_size(input: u64, asked: u64) -> u64 {
    if asked >= input {
        return input;
    }
    let lower = (1..=asked).rev().find(|size| input.is_multiple_of(*size)).unwrap_or(1);
    let higher = (asked..=input).find(|size| *size > 0 && input.is_multiple_of(*size)).unwrap_or(input);
    if asked - lower <= higher - asked { lower } else { higher }
}

/// Above which rank a tuner of a layer gains nothing.
fn largest_rank(tuner: Tuner, spec: &Linear) -> u64 {
    match tuner {
        // a change of the weight has no higher rank
        Tuner::Lora | Tuner::Dora | Tuner::Vera | Tuner::Loha => spec.input.min(spec.output),
        // the second matrix is whole from there on
        Tuner::Lokr => [spec.input, spec.output]
            .map(|side| factorised(side).1)
            .into_iter()
            .max()
            .unwrap_or(1)
            .div_ceil(2),
        // one block
        Tuner::Oft => spec.input,
        Tuner::Ia3 => 1,
        // they stand beside no layer
        Tuner::Prompt | Tuner::PTuning | Tuner::Prefix | Tuner::PrefixProjected => 0,
    }
}

/// What all layers under VeRA have in common.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Shared {
    /// How wide the two matrices are: peft looks for the widest adapted layer before it adapts the first
    /// (tuners/vera/model.py `_find_dim`). None while that is found out.
    pub known: Option<Widest>,
    /// The widest of the layers so far.
    pub widest: Widest,
    pub matrices: Option<[ParamId; 2]>,
}

/// The most inputs and the most outputs of any layer.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Widest {
    input: u64,
    output: u64,
}

impl Loader<'_> {
    /// What stands beside a linear layer that is adapted, with the element type that its 4-bit product is computed in.
    pub fn beside(&mut self, spec: &Linear, quantised: Option<Dtype>) -> (Option<Adapter>, Option<Tuned>) {
        self.adapted = true;
        self.largest_rank = self.largest_rank.max(largest_rank(self.member.lora.tuner, spec));
        let tuned = match self.member.lora.tuner {
            Tuner::Lora | Tuner::Dora => return (Some(self.adapter(spec, quantised)), None),
            Tuner::Ia3 => Tuned::Ia3(self.ia3(spec, quantised)),
            Tuner::Vera => Tuned::Vera(self.vera(spec, quantised)),
            Tuner::Loha => Tuned::Loha(self.loha(spec)),
            Tuner::Lokr => Tuned::Lokr(self.lokr(spec)),
            Tuner::Oft => Tuned::Oft(self.oft(spec, quantised)),
            Tuner::Prompt | Tuner::PTuning | Tuner::Prefix | Tuner::PrefixProjected => return (None, None),
        };
        (None, Some(tuned))
    }

    fn ia3(&mut self, spec: &Linear, quantised: Option<Dtype>) -> Ia3 {
        let names = self.scaled.map_or(&[][..], |own| own.feed_forward);
        let of_input = names.iter().any(|name| spec.name.ends_with(name));
        let shape = if of_input { (1, spec.input) } else { (spec.output, 1) };
        let dtypes = self.adapter_dtypes(quantised);
        Ia3 { scale: self.adapter_parameter(&FACTORS, (shape, Rank::None), dtypes), of_input }
    }

    fn vera(&mut self, spec: &Linear, quantised: Option<Dtype>) -> Vera {
        let lora = self.member.lora;
        let dtypes = self.adapter_dtypes(quantised);
        let [b, d] = [spec.output, lora.rank]
            .map(|count| self.adapter_parameter(&VECTOR, ((1, count), Rank::None), dtypes));
        let Widest { input, output } = self.shared.widest;
        self.shared.widest = Widest { input: input.max(spec.input), output: output.max(spec.output) };
        let shared = match self.shared.matrices {
            Some(matrices) => matrices,
            None => {
                let Widest { input, output } = self.shared.known.unwrap_or_default();
                [(lora.rank, input), (output, lora.rank)].map(|shape| self.shared_matrix(shape, dtypes))
            }
        };
        self.shared.matrices = Some(shared);
        Vera { shared, d, b, rank: lora.rank, dropout: lora.dropout }
    }

    /// peft looks for a block size that divides the input (tuners/oft/layer.py `adjust_oft_parameters`).
    fn oft(&mut self, spec: &Linear, quantised: Option<Dtype>) -> Oft {
        let size = block_size(spec.input, self.member.lora.rank);
        let blocks = spec.input / size.max(1);
        let elements = size.saturating_mul(size.saturating_sub(1)) / 2;
        let dtypes = self.adapter_dtypes(quantised);
        let weight = self.adapter_parameter(&BLOCKS, ((blocks, elements), Rank::None), dtypes);
        for _ in ["rows", "cols"] {
            let (bytes, times) = (elements.saturating_mul(8), self.times);
            self.load_in(Loading::Adapters, |own| {
                own.state.persistent(bytes, Dtype::I64, times, Category::Adapters, &PLACES)
            });
        }
        Oft { weight, blocks, size }
    }

    fn loha(&mut self, spec: &Linear) -> Loha {
        let rank = self.member.lora.rank;
        let side = u32::try_from(rank).unwrap_or(u32::MAX);
        let dtypes = self.adapter_dtypes(None);
        let a = ((spec.output, rank), Rank::Columns(side));
        let b = ((rank, spec.input), Rank::Rows(side));
        let factors = [a, b, a, b].map(|shape| self.adapter_parameter(&FACTOR, shape, dtypes));
        Loha { factors, rank }
    }

    fn lokr(&mut self, spec: &Linear) -> Lokr {
        let rank = self.member.lora.rank;
        let side = u32::try_from(rank).unwrap_or(u32::MAX);
        let dtypes = self.adapter_dtypes(None);
        let [(columns, inner_columns), (rows, inner_rows)] = [spec.input, spec.output].map(factorised);
        let mut add = |shape, rank| self.adapter_parameter(&KRONECKER, (shape, rank), dtypes);
        let first = add((rows, columns), Rank::None);
        let second = if rank.saturating_mul(2) >= inner_rows.max(inner_columns) {
            Second::Whole(add((inner_rows, inner_columns), Rank::None))
        } else {
            let a = add((inner_rows, rank), Rank::Columns(side));
            let b = add((rank, inner_columns), Rank::Rows(side));
            Second::Factors([a, b], [inner_rows, inner_columns], rank)
        };
        Lokr { first, second }
    }

    /// A frozen matrix that all layers share.
    fn shared_matrix(&mut self, shape: (u64, u64), (made, dtype): (Dtype, Dtype)) -> ParamId {
        let add = |own: &mut Self| own.state.add_frozen_beside(&SHARED, shape, dtype);
        if made == dtype {
            return self.load_in(Loading::Adapters, add);
        }
        let numel = shape.0.saturating_mul(shape.1);
        let narrow = self.load_in(Loading::Adapters, |own| own.state.while_loading(numel, made));
        self.load_in(Loading::AdapterCasts, |own| {
            let id = add(own);
            own.state.release(narrow);
            id
        })
    }
}
