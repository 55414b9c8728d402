//! What each optimizer keeps of a parameter, and what its step allocates.

use crate::scenario::Optimizer;

/// Elements that share one scale in the 8-bit optimizers of bitsandbytes and torchao.
pub(super) const BLOCK_8BIT: u64 = 256;

/// What an optimizer keeps and needs: all that a step asks about it.
pub(super) struct Recipe {
    pub keeps: Keeps,
    pub step: Step,
}

/// The state that an optimizer keeps of every parameter.
pub(super) enum Keeps {
    /// So many tensors like the parameter.
    Moments { count: usize },
    /// A count of steps on the GPU and two tensors like the parameter.
    StepAndMoments,
    /// What one of bitsandbytes' optimizers keeps.
    Bitsandbytes(Bitsandbytes),
    /// Two tensors of 8-bit or 4-bit numbers like the parameter, each with its scales and its code book, or two like it where it is
    /// small or no multiple of a scale's numbers.
    Torchao(Torchao),
    /// A count of steps on the GPU and two tensors like the parameter where it is small, all else in the CPU's memory.
    OnCpu,
    /// A number for each row and each column, in the parameter's element type.
    Factored,
    /// The same in float32.
    FactoredInFloat32,
    /// The same, and the root mean square of the parameter.
    FactoredAndRms,
    /// Shampoo's preconditioners and their inverse roots, and the last preconditioned gradient.
    Preconditioners,
    /// A momentum like the parameter where it is a matrix of a layer, AdamW's two moments of all else.
    Muon,
    /// Two moments like the parameter, the square of epsilon, what rounding lost of each element where the parameter has 16 bits (a byte
    /// in its place where it has 32), and a mean square.
    Stable,
    /// Nothing before the step makes it: what a projected gradient wants, and what a whole one does, or Adam-mini's.
    Projected,
}

/// How torchao's optimizers keep moments in few bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Torchao {
    pub bits: u8,
    /// Elements that share one scale.
    pub block: u64,
}

/// torchao's 8-bit moments (optim/adam.py `AdamW8bit`).
const TORCHAO_8_BIT: Torchao = Torchao { bits: 8, block: BLOCK_8BIT };
/// Its 4-bit ones (`AdamW4bit`).
const TORCHAO_4_BIT: Torchao = Torchao { bits: 4, block: 128 };

/// An optimizer that projects gradients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LowRank {
    /// AdamW in directions that are singular vectors.
    GaLore,
    /// bitsandbytes' 8-bit AdamW there.
    GaLore8bit,
    /// Adafactor there.
    GaLoreAdafactor,
    /// AdamW in random directions, which scales the whole gradient.
    Apollo,
}

/// The states of an optimizer of bitsandbytes.
pub(super) struct Bitsandbytes {
    /// A tensor for each entry, which has so many numbers for each element of the parameter.
    pub copies: &'static [u64],
    /// 8, with a float32 scale for every 256 numbers, or 32.
    pub bits: u8,
    /// Whether they live in unified memory, but for those of small tensors.
    pub paged: bool,
    /// Whether the scales are made before the states.
    pub scales_first: bool,
    /// Whether the norm of the update is kept, by which it is bounded (`max_unorm`).
    pub bounded: bool,
}

/// Two moments in 32 bits on the GPU.
pub(super) const BITSANDBYTES: Bitsandbytes =
    Bitsandbytes { copies: &[1, 1], bits: 32, paged: false, scales_first: false, bounded: false };

/// The fast and the slow mean of the gradients in one tensor, and the mean of squares.
const ADEMAMIX: Bitsandbytes = Bitsandbytes { copies: &[2, 1], scales_first: true, ..BITSANDBYTES };

/// What a step allocates.
pub(super) enum Step {
    /// Nothing: one kernel updates a parameter in place.
    InPlace,
    /// So many temporaries of every parameter's size, for all parameters at once: torch's foreach implementations.
    Foreach { tensors: usize },
    /// As AdaBelief's does, one parameter after the other.
    AdaBelief,
    /// As Shampoo's does, one parameter after the other.
    Shampoo,
    /// As torch's for-loop Adam does.
    AdamOneByOne,
    /// In place, one parameter after the other, each of which is copied to float32 for its norm where it has fewer bits:
    /// bitsandbytes' with `max_unorm`.
    InPlaceByNorm,
    /// As torchao's compiled step does: both moments of a parameter in float32, and their new scales; before two 4-bit numbers are one
    /// byte, each is a 64-bit integer.
    Torchao(Torchao),
    /// As Adam-mini does, one parameter after the other.
    Mini,
    /// As torch's Muon does with matrices of the layers, then AdamW with all else.
    Muon,
    /// As transformers' Adafactor does.
    Adafactor,
    /// As torch's Adafactor does.
    AdafactorTorch,
    /// As an optimizer does that projects gradients, one parameter after the other, with their states.
    LowRank(LowRank),
}

/// What an optimizer keeps and what its step needs: a new one is described here.
pub(super) fn recipe(optimizer: Optimizer) -> Recipe {
    let moments = |count| Keeps::Moments { count };
    let foreach = |tensors| Step::Foreach { tensors };
    let bitsandbytes = |states| (Keeps::Bitsandbytes(states), Step::InPlace);
    let low_rank = |kind| (Keeps::Projected, Step::LowRank(kind));
    let (keeps, step) = match optimizer {
        // of schedulefree's the second point and the squares: its denominator is as large as the root
        Optimizer::AdamW | Optimizer::Adam | Optimizer::NAdam | Optimizer::ScheduleFreeAdamW => {
            (moments(2), foreach(1))
        }
        // the denominator beside the root
        Optimizer::AdamWEarly => (moments(2), foreach(2)),
        Optimizer::AdamWForLoop => (moments(2), Step::AdamOneByOne),
        Optimizer::AdamWFused => (Keeps::StepAndMoments, Step::InPlace),
        Optimizer::AmsGrad => (moments(3), foreach(1)),
        // LOMO's step is none of the optimizer's: see `fused.rs`
        Optimizer::Sgd | Optimizer::Lomo => (moments(0), Step::InPlace),
        Optimizer::AdaLomo => (Keeps::FactoredInFloat32, Step::InPlace),
        Optimizer::GaLoreAdamW => low_rank(LowRank::GaLore),
        Optimizer::GaLoreAdamW8bit => low_rank(LowRank::GaLore8bit),
        Optimizer::GaLoreAdafactor => low_rank(LowRank::GaLoreAdafactor),
        Optimizer::ApolloAdamW => low_rank(LowRank::Apollo),
        Optimizer::SgdMomentum | Optimizer::Nesterov => (moments(1), Step::InPlace),
        Optimizer::RmsProp => (moments(1), foreach(1)),
        Optimizer::Adagrad => (moments(1), foreach(2)),
        Optimizer::SparseAdam => (moments(2), Step::InPlace),
        Optimizer::AdaBelief => (moments(2), Step::AdaBelief),
        Optimizer::Shampoo => (Keeps::Preconditioners, Step::Shampoo),
        Optimizer::AdamMini => (Keeps::Projected, Step::Mini),
        Optimizer::Muon => (Keeps::Muon, Step::Muon),
        Optimizer::StableAdamW => (Keeps::Stable, Step::InPlace),
        Optimizer::Adafactor => (Keeps::FactoredAndRms, Step::Adafactor),
        Optimizer::AdafactorTorch => (Keeps::Factored, Step::AdafactorTorch),
        Optimizer::AdamW8bit => bitsandbytes(Bitsandbytes { bits: 8, ..BITSANDBYTES }),
        Optimizer::AdamW8bitTorchao => (Keeps::Torchao(TORCHAO_8_BIT), Step::Torchao(TORCHAO_8_BIT)),
        Optimizer::AdamW4bitTorchao => (Keeps::Torchao(TORCHAO_4_BIT), Step::Torchao(TORCHAO_4_BIT)),
        // AdamW fused steps the small parameters
        Optimizer::AdamWCpuOffload | Optimizer::AdamWCpuOffloadGradients => (Keeps::OnCpu, Step::InPlace),
        Optimizer::PagedAdamW => bitsandbytes(Bitsandbytes { paged: true, ..BITSANDBYTES }),
        Optimizer::PagedAdamW8bit => bitsandbytes(Bitsandbytes { bits: 8, paged: true, ..BITSANDBYTES }),
        Optimizer::Lamb => {
            (Keeps::Bitsandbytes(Bitsandbytes { bounded: true, ..BITSANDBYTES }), Step::InPlaceByNorm)
        }
        Optimizer::Lion => bitsandbytes(Bitsandbytes { copies: &[1], ..BITSANDBYTES }),
        Optimizer::Lion8bit => bitsandbytes(Bitsandbytes { copies: &[1], bits: 8, ..BITSANDBYTES }),
        Optimizer::AdEmaMix => bitsandbytes(ADEMAMIX),
        Optimizer::AdEmaMix8bit => bitsandbytes(Bitsandbytes { bits: 8, ..ADEMAMIX }),
        Optimizer::PagedAdEmaMix => bitsandbytes(Bitsandbytes { paged: true, ..ADEMAMIX }),
        Optimizer::PagedAdEmaMix8bit => bitsandbytes(Bitsandbytes { bits: 8, paged: true, ..ADEMAMIX }),
    };
    Recipe { keeps, step }
}
