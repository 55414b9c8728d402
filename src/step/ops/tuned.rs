//! What tuners of peft other than LoRA put beside a linear layer.

use crate::step::params::ParamId;

/// One layer's part of a tuner.
#[derive(Clone, Copy, Debug)]
pub(in crate::step) enum Tuned {
    Ia3(Ia3),
    Vera(Vera),
    Loha(Loha),
    Lokr(Lokr),
    Oft(Oft),
}

/// (IA)³: a factor for each feature.
#[derive(Clone, Copy, Debug)]
pub(in crate::step) struct Ia3 {
    pub scale: ParamId,
    /// Whether the layer's input is scaled and not its output (`feedforward_modules`).
    pub of_input: bool,
}

/// VeRA: two vectors between matrices that all layers share.
#[derive(Clone, Copy, Debug)]
pub(in crate::step) struct Vera {
    /// A and B, as wide as the widest adapted layer; a layer reads a slice of each.
    pub shared: [ParamId; 2],
    /// The factors behind A.
    pub d: ParamId,
    /// The factors behind B.
    pub b: ParamId,
    pub rank: u64,
    pub dropout: bool,
}

/// LoHa: the product, element by element, of two matrices that are two factors each.
#[derive(Clone, Copy, Debug)]
pub(in crate::step) struct Loha {
    /// The first matrix's factors, then the second's.
    pub factors: [ParamId; 4],
    pub rank: u64,
}

/// LoKr: the Kronecker product of two matrices.
#[derive(Clone, Copy, Debug)]
pub(in crate::step) struct Lokr {
    pub first: ParamId,
    pub second: Second,
}

/// LoKr's second matrix.
#[derive(Clone, Copy, Debug)]
pub(in crate::step) enum Second {
    Whole(ParamId),
    /// Two factors, the second matrix's rows and columns, and the rank between them.
    Factors([ParamId; 2], [u64; 2], u64),
}

/// OFT: a rotation for each block of the input's features.
#[derive(Clone, Copy, Debug)]
pub(in crate::step) struct Oft {
    pub weight: ParamId,
    pub blocks: u64,
    /// Features of a block.
    pub size: u64,
}
