//! What the whole numbers of a scenario count, and how large they may be.

use crate::units::{Letters, grouped};

/// The largest micro-batch, sequence length, accumulation and rank that are computed; above it a size is a typing error.
pub const LARGEST: u64 = 1 << 24;
/// The most elements of a buffer that are computed: twice as many as the largest models have parameters.
pub const MOST_ELEMENTS: u64 = 1 << 40;

/// The most tokens of a data set: more than were ever written.
pub const MOST_TOKENS: u64 = 1 << 50;

/// The most texts of an example that are computed.
pub const MOST_TEXTS: u64 = 256;

/// What a whole number counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Count {
    /// Dimensions of an adapter.
    Rank,
    /// Sequences.
    Sequences,
    /// The same where none is a choice.
    SequencesOrNone,
    /// Texts of an example: two at least.
    Texts,
    /// Tokens.
    Tokens,
    /// The same where none is a choice.
    TokensOrNone,
    /// Forward and backward passes.
    Passes,
    /// The same where none is a choice.
    PassesOrNone,
    /// Graphics cards.
    Gpus,
    /// Numbers of a tensor.
    Elements,
    /// The same where none is a choice.
    ElementsOrNone,
    /// Memory in MiB, none of it too.
    Mebibytes,
    /// Memory in KiB, none of it too.
    Kibibytes,
    /// Hundredths of a card, none of it too.
    Percent,
    /// Tokens of a data set.
    DatasetTokens,
    /// Times that a data set is gone through.
    Epochs,
    /// Hundredths of a US dollar, none too.
    Cents,
    /// Layers, where none is a choice.
    LayersOrNone,
    /// Pictures, none too.
    PicturesOrNone,
    /// Rows or columns of pixels.
    Pixels,
    /// Frames of a video.
    Frames,
    /// A stage of a pipeline, counted from 1, where none is a choice.
    StageOrNone,
}

impl Count {
    /// The smallest number that there is a meaning for.
    pub const fn least(self) -> u64 {
        match self {
            Count::Rank
            | Count::Sequences
            | Count::Tokens
            | Count::Passes
            | Count::Gpus
            | Count::Elements
            | Count::DatasetTokens
            | Count::Pixels
            | Count::Frames
            | Count::Epochs => 1,
            Count::Texts => 2,
            Count::SequencesOrNone
            | Count::TokensOrNone
            | Count::PassesOrNone
            | Count::ElementsOrNone
            | Count::Mebibytes
            | Count::Kibibytes
            | Count::Percent
            | Count::Cents
            | Count::LayersOrNone
            | Count::PicturesOrNone
            | Count::StageOrNone => 0,
        }
    }

    /// The largest number that the core computes with.
    pub const fn most(self) -> u64 {
        match self {
            Count::Rank
            | Count::Sequences
            | Count::SequencesOrNone
            | Count::Tokens
            | Count::TokensOrNone
            | Count::Passes
            | Count::PassesOrNone
            | Count::Gpus
            | Count::Mebibytes
            | Count::Kibibytes
            | Count::Epochs
            | Count::Cents
            | Count::LayersOrNone
            | Count::PicturesOrNone
            | Count::Pixels
            | Count::Frames
            | Count::StageOrNone => LARGEST,
            Count::Percent => 100,
            Count::Texts => MOST_TEXTS,
            Count::DatasetTokens => MOST_TOKENS,
            Count::Elements | Count::ElementsOrNone => MOST_ELEMENTS,
        }
    }

    /// What a letter behind a number stands for.
    pub(crate) const fn letters(self) -> Letters {
        match self {
            // as data sets, prices and DeepSpeed's buckets are counted
            Count::DatasetTokens | Count::Elements | Count::ElementsOrNone | Count::Epochs | Count::Cents => {
                Letters::Decimal
            }
            Count::Percent => Letters::Percent,
            Count::Rank
            | Count::Sequences
            | Count::SequencesOrNone
            | Count::Texts
            | Count::Tokens
            | Count::TokensOrNone
            | Count::Passes
            | Count::PassesOrNone
            | Count::Gpus
            | Count::Mebibytes
            | Count::Kibibytes
            | Count::LayersOrNone
            | Count::PicturesOrNone
            | Count::Pixels
            | Count::Frames
            | Count::StageOrNone => Letters::Binary,
        }
    }

    /// So many of it for people: `435 MiB`, and a number alone where its label says of what.
    pub(crate) fn in_words(self, number: u64) -> String {
        let number = grouped(number);
        match self {
            Count::Mebibytes => format!("{number} MiB"),
            Count::Kibibytes => format!("{number} KiB"),
            Count::Percent => format!("{number} %"),
            _ => number,
        }
    }

    /// What would be right, after "use".
    pub(crate) fn range(self) -> String {
        let share = if self == Count::Percent { ", or a share such as 0.4" } else { "" };
        format!("a whole number from {} to {}{share}", self.least(), grouped(self.most()))
    }
}
