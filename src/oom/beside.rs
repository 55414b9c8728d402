//! The figures of a run that did not fail, beside those of the scenario.

use super::amount::Amount;
use super::finding::{Figure, Finding};
use super::message::Message;
use crate::accuracy;
use crate::plan::Answer;
use crate::units::{BYTES_PER_MIB, Bytes};

/// What a `memory_summary()` and nvidia-smi show, as far as the scenario has an answer; nothing where the text is of a run that
/// failed, which had not come to its peak.
pub(super) fn beside(message: &Message, answer: &Answer) -> Vec<Finding> {
    if message.requested.is_some() || message.failures.is_some_and(|failures| failures > 0) {
        return Vec::new();
    }
    let scenario = &answer.scenario;
    let (Some(memory), Ok(architecture), Ok(gpu)) =
        (&answer.estimate.memory, scenario.architecture(), scenario.gpu())
    else {
        return Vec::new();
    };
    let band = accuracy::band(&architecture, scenario);
    let compare = |figure, said: Option<Amount>, [least, most]: [Bytes; 2], percent: f64| {
        let said = said?;
        let agrees = said.most() as f64 >= least.0 as f64 * (1.0 - percent / 100.0)
            && said.least() as f64 <= most.0 as f64 * (1.0 + percent / 100.0);
        Some(Finding::Beside { figure, said: said.bytes, found: least, agrees })
    };
    let allocated = memory.peak().1.bytes;
    let reserved = answer.on_card.as_ref().map(|on_card| on_card.reserved);
    let used = Bytes(scenario.reserve.used.saturating_mul(BYTES_PER_MIB));
    // the process may have more beside PyTorch's allocator
    let range = |least: Bytes| [least, least + gpu.context_most.saturating_sub(gpu.context)];
    let shown = answer.on_card.as_ref().map(|on_card| match message.process {
        Some(process) => (Figure::Process, Some(process), range(on_card.shown)),
        None => (Figure::Shown, message.shown, range(on_card.shown + used)),
    });
    let of_reserved = band.reserved_percent.unwrap_or(band.percent);
    [
        compare(Figure::Allocated, message.allocated_peak, [allocated; 2], band.percent),
        reserved.and_then(|bytes| compare(Figure::Reserved, message.reserved_peak, [bytes; 2], of_reserved)),
        shown.and_then(|(figure, said, range)| compare(figure, said, range, of_reserved)),
    ]
    .into_iter()
    .flatten()
    .collect()
}
