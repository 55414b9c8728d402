//! What a tensor is, in words. An operation says it where it allocates ([`What`]), the code that runs it says what it runs it
//! for ([`Role`]); a record of the step keeps both beside the tensor. [`torch`] are PyTorch's operations, as far as several
//! files run them; whatever one file runs alone says it there.

pub(super) mod roles;
pub(super) mod torch;

use crate::scenario::Stack;
use crate::scenario::software::Software;

/// What an operation makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct What {
    /// The operation, by the name that PyTorch or the library that brings it gives it.
    pub name: &'static str,
    /// What it makes, and why that stays.
    pub words: &'static str,
    /// Where that is written or was measured.
    pub source: Source,
    /// Whether the words say all, whatever the operation is run for. A product is a product of something.
    pub says_all: bool,
}

impl What {
    /// A step of something that its [`Role`] names.
    pub(super) const fn step(name: &'static str, words: &'static str) -> What {
        What { name, words, source: DERIVATIVES, says_all: false }
    }

    /// Something that is the same wherever it is made.
    pub(super) const fn own(name: &'static str, words: &'static str, source: Source) -> What {
        What { name, words, source, says_all: true }
    }
}

/// What code runs its operations for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Role {
    /// What their results are.
    pub words: &'static str,
    /// Where that is written.
    pub source: Source,
}

impl Role {
    pub(super) const fn new(words: &'static str, source: Source) -> Role {
        Role { words, source }
    }
}

/// The dimensions of a tensor, by what gives them; what they leave of its elements is its width.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Dims {
    /// A number of elements.
    Elements,
    /// Rows and columns of the parameter that it is, or is made for: several of its elements may share one of the tensor's.
    Parameter(u64, u64, Rank),
    /// A row for each of so many.
    Rows(Rows, u64),
    /// A number for each of so many queries, of so many keys, in each head.
    Scores(Rows, u64, u64),
    /// A row for each of so many tokens and each of so many experts that it visits.
    Chosen(u64, u64),
}

/// Which side of a matrix is LoRA's rank, if one is, and the rank. Of experts the side has a rank for each of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rank {
    /// It is no adapter's.
    None,
    /// The same of a tensor whose first dimension is 1: one row has no part for each of several GPUs, where a vector has.
    OneRow,
    /// Its rows: what the adapter puts in its low dimension.
    Rows(u32),
    /// Its columns: what it makes of that.
    Columns(u32),
}

impl Dims {
    /// Those of a matrix that is no adapter's.
    pub(super) const fn matrix(rows: u64, columns: u64) -> Dims {
        Dims::Parameter(rows, columns, Rank::None)
    }

    /// The same rows without keys.
    pub(super) fn without_keys(self) -> Dims {
        match self {
            Dims::Scores(of, rows, _) => Dims::Rows(of, rows),
            Dims::Elements | Dims::Parameter(..) | Dims::Rows(..) | Dims::Chosen(..) => self,
        }
    }

    /// So many rows of the same kind.
    pub(super) fn with_rows(self, rows: u64) -> Dims {
        match self {
            Dims::Rows(of, _) | Dims::Scores(of, ..) => Dims::Rows(of, rows),
            Dims::Chosen(tokens, experts) if rows == tokens.saturating_mul(experts) => self,
            Dims::Chosen(..) | Dims::Elements | Dims::Parameter(..) => Dims::Elements,
        }
    }
}

/// What the rows of a tensor are of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rows {
    /// The tokens of the batch, or of a part of it.
    Tokens,
    /// The positions of a sequence, whatever the batch is.
    Positions,
}

/// Where something is written or was measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// The code of the model's layers.
    Modeling,
    /// The loss.
    Loss,
    /// The loss that never has all logits.
    FusedLoss,
    /// 4-bit weights.
    FourBit,
    /// LoRA's adapters.
    Adapters,
    /// The same whatever runs the model.
    At(&'static str),
}

pub(super) const DERIVATIVES: Source = Source::At("PyTorch, tools/autograd/derivatives.yaml");
pub(super) const ENGINE: Source = Source::At("PyTorch, torch/csrc/autograd/engine.cpp");
pub(super) const ATTENTION: Source = Source::At("PyTorch, aten/src/ATen/native/transformers/cuda");
pub(super) const EXPERTS: Source = Source::At("transformers, integrations/moe.py");
pub(super) const MASKS: Source = Source::At("transformers, masking_utils.py");
pub(super) const OFFLOADING: Source = Source::At(
    "trl, models/activation_offloading.py; torchtune, torchtune/training/_activation_offloading.py",
);

impl Source {
    /// The file, in the code that runs the model.
    pub fn of(self, stack: Stack) -> &'static str {
        let software = Software::of(stack);
        match self {
            Source::At(file) => file,
            Source::Modeling => software.modeling_source,
            Source::Loss => software.loss_source,
            Source::FusedLoss => software.fused_loss_source,
            Source::FourBit => software.four_bit_source,
            Source::Adapters => software.adapters_source,
        }
    }
}
