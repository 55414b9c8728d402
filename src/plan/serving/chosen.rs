//! What vLLM has for keys and values with the weights that a scenario itself has.

use super::share::{cache, length, ranks};
use crate::issue::{Field, Issue};
use crate::model::stored::Stored;
use crate::scenario::{Method, Precision, Scenario, WeightFormat};
use crate::units::{Between, Bytes};
use crate::vllm::{Asked, Room, Served, Share};

/// vLLM's budget for a scenario.
#[derive(Clone, Debug, PartialEq)]
pub struct Chosen {
    /// The format of the weights.
    pub stored: Stored,
    /// What vLLM asks of the card.
    pub share: Share,
    /// Of one GPU's weights.
    pub weights: Bytes,
    /// What its profiling run takes beside them, at least and at most, with its table of positions.
    pub beside: Between,
    /// What is left for keys and values.
    pub room: Room,
    /// Tokens of a sequence.
    pub length: u64,
    /// Whether one sequence has room whatever the profiling run takes.
    pub starts: bool,
    /// The longest `--max-model-len` with which that is so, up to the model's context; none where its context is not known.
    pub longest: Option<u64>,
}

/// How a scenario's weights are stored; none where vLLM has no such format, or none that is followed.
fn stored(scenario: &Scenario) -> Option<Stored> {
    match (scenario.method, scenario.quantization.format) {
        (Method::Qlora, WeightFormat::Nf4 | WeightFormat::Nf4Early) => Some(Stored::Nf4),
        (Method::Qlora, WeightFormat::Int8) => Some(Stored::Int8),
        (Method::Qlora, WeightFormat::Gptq4) => Some(Stored::Gptq),
        (Method::Qlora, WeightFormat::Awq4) => Some(Stored::Awq),
        (Method::Qlora, WeightFormat::TorchaoInt8 | WeightFormat::Gptq8 | WeightFormat::Awq4Cuda) => None,
        (Method::Full | Method::Lora, _) => Some(match scenario.precision {
            Precision::Fp32 | Precision::AmpBf16 | Precision::AmpFp16 => Stored::Fp32,
            Precision::Bf16 | Precision::Fp16 | Precision::AmpBf16Weights | Precision::AmpFp16Weights => {
                Stored::Half
            }
        }),
    }
}

/// vLLM's budget with the scenario's own weights.
///
/// # Errors
/// An [`Issue`] where model or card are not known, and where vLLM's budget was not followed.
pub fn chosen(scenario: &Scenario) -> Result<Chosen, Issue> {
    let architecture = scenario.architecture()?;
    let card = scenario.card()?;
    let share = Share::of(scenario)?;
    let Some(stored) = stored(scenario) else {
        let label = scenario.quantization.format.label();
        let message = format!("weights as {label} are not followed in vLLM");
        return Err(Issue::error(Field::WeightFormat, message).with_fix("choose NF4, AWQ or GPTQ of 4 bits"));
    };
    let length = length(scenario);
    let group = u64::try_from(scenario.quantization.group.size()).unwrap_or(0);
    let served = Served::new(&architecture, ranks(scenario), share, &Asked { length, group });
    let budget = served
        .budget(stored, cache(scenario), &card)
        .map_err(|reason| Issue::error(Field::Model, format!("there is no answer for vLLM: {reason}")))?;
    let context = architecture.max_positions.filter(|context| *context > 0);
    let start = context.and_then(|context| served.start(stored, cache(scenario), &card, context));
    Ok(Chosen {
        stored,
        share,
        weights: budget.weights,
        beside: budget.beside,
        room: budget.room(),
        length,
        starts: budget.starts(),
        longest: start.map(|start| start.longest),
    })
}
