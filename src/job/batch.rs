//! What a forward pass is given.

use crate::scenario::software::{Software, Trainer};
use crate::scenario::{Cluster, Lengths, Mask, Pictures, Scenario, Stack};

/// What one forward pass is given: rows of tokens.
///
/// ```
/// use headroom::job::Batch;
/// use headroom::scenario::{Lengths, Mask, Pictures};
///
/// let (lengths, mask) = (Lengths::Equal, Mask::None);
/// let batch = Batch { sequences: 4, length: 2048, lengths, mask, pictures: Pictures::NONE };
/// assert_eq!(batch.tokens(), 8192);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Batch {
    /// Sequences (the micro-batch size).
    pub sequences: u64,
    /// Tokens of each; the most of them where lengths vary.
    pub length: u64,
    /// How long the texts are.
    pub lengths: Lengths,
    /// The mask that comes with them.
    pub mask: Mask,
    /// The pictures in each sequence.
    pub pictures: Pictures,
}

impl Batch {
    /// Tokens of all sequences; saturates.
    pub fn tokens(&self) -> u64 {
        self.sequences.saturating_mul(self.length)
    }

    /// The same texts where the data collator of a stack puts them: without padding they are one row, and trl makes a mask
    /// of every other batch.
    pub fn laid_out(self, stack: Stack) -> Batch {
        match self.mask {
            Mask::None if Software::of(stack).trainer == Trainer::Trl => Batch { mask: Mask::Ones, ..self },
            Mask::None | Mask::Ones | Mask::Padded | Mask::Packed => self,
            Mask::PaddingFree => Batch {
                sequences: 1,
                length: self.tokens(),
                lengths: Lengths::Spread { mean: self.length, deviation: 0 },
                mask: Mask::Packed,
                pictures: self.pictures,
            },
        }
    }

    /// What a GPU of those that share each sequence has of it.
    pub(crate) fn in_contexts(self, cluster: Cluster, trainer: Trainer) -> Batch {
        match trainer {
            Trainer::Megatron | Trainer::Loop => {
                Batch { length: self.length / cluster.layout.context.max(1), ..self }
            }
            Trainer::Trl | Trainer::Torchtune | Trainer::Torchtitan => self,
        }
    }
}

impl From<&Scenario> for Batch {
    fn from(scenario: &Scenario) -> Batch {
        let Scenario { task, batch, sequence: length, lengths, mask, pictures, .. } = *scenario;
        let sequences = if task.has_pairs() { batch.saturating_mul(2) } else { batch };
        Batch { sequences, length, lengths, mask, pictures }
    }
}
