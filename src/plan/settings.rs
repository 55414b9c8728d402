//! Which settings: every sensible combination of method, precision, optimizer, loss and checkpointing for a model on its card.
//!
//! A combination is a [`Way`]: a scenario that is run like any other, in the micro-batch with which it is fastest of those that fit, with
//! as many sequences in a step as the scenario asks for.

use super::cards;
use super::each;
use super::layouts::{Way, WayOrder, rank_ways, tried};
use super::table::with_method;
use crate::scenario::keys::Key;
use crate::scenario::{Checkpointing, LossKernel, Method, Optimizer, Precision, Scenario};

/// The combinations, not yet tried: each method in the scenario's own precision and optimizer, or those that its library is usually run with
/// for the method ([`with_method`]), and in the other precisions; with bitsandbytes' 8-bit optimizers too; each with the loss as it is and
/// fused with the head, with and without gradient checkpointing. None for what does not train,
/// and of a card that is not NVIDIA's none that it has no use for.
pub fn settings(scenario: &Scenario) -> Vec<Scenario> {
    let mut found: Vec<Scenario> = Vec::new();
    if !scenario.task.trains() {
        return found;
    }
    for method in scenario.task.methods() {
        let mut base = with_method(scenario, *method);
        base.batch = scenario.batch.saturating_mul(scenario.accumulation).max(1);
        base.accumulation = 1;
        for precision in precisions(&base) {
            for optimizer in optimizers(&base) {
                for loss in [base.savings.loss, LossKernel::Liger] {
                    for checkpointing in checkpointing(&base) {
                        let mut other = Scenario { precision, optimizer, checkpointing, ..base.clone() };
                        other.savings.loss = loss;
                        if !found.contains(&other) && cards::has_use_for(scenario, &other) {
                            found.push(other);
                        }
                    }
                }
            }
        }
    }
    found
}

fn precisions(base: &Scenario) -> Vec<Precision> {
    let others = match base.has_bfloat16() {
        true => [Precision::AmpBf16, Precision::Bf16, Precision::Fp32].as_slice(),
        false => [Precision::AmpFp16, Precision::Fp32].as_slice(),
    };
    std::iter::once(base.precision).chain(others.iter().copied().filter(|it| *it != base.precision)).collect()
}

/// Its own, and bitsandbytes' in 8 bits: in the card's memory, where the states of all weights are large, and paged.
fn optimizers(base: &Scenario) -> Vec<Optimizer> {
    let others: &[Optimizer] = match base.method {
        Method::Full => &[Optimizer::AdamW8bit, Optimizer::PagedAdamW8bit],
        Method::Lora | Method::Qlora => &[Optimizer::PagedAdamW8bit],
    };
    std::iter::once(base.optimizer).chain(others.iter().copied().filter(|it| *it != base.optimizer)).collect()
}

/// As it is, off, and on.
fn checkpointing(base: &Scenario) -> Vec<Checkpointing> {
    match base.checkpointing {
        Checkpointing::Off => vec![Checkpointing::Off, Checkpointing::NonReentrant],
        own => vec![Checkpointing::Off, own],
    }
}

/// What a combination is called by: its method, then its precision, optimizer, loss and checkpointing in the words of their keys.
///
/// ```
/// use headroom::plan::{setting_name, settings};
/// use headroom::scenario::Scenario;
/// let [method, rest] = setting_name(&settings(&Scenario::default())[1]);
/// assert_eq!((method.as_str(), rest.as_str()), ("Full fine-tuning", "bf16 mixed (bf16 weights), AdamW (fused), checkpointing"));
/// ```
pub fn setting_name(scenario: &Scenario) -> [String; 2] {
    let words = |name: &str| Key::find(name).map_or_else(String::new, |key| key.words(scenario));
    let loss = match scenario.savings.loss {
        LossKernel::Standard => None,
        LossKernel::Full
        | LossKernel::Axolotl
        | LossKernel::LogSoftmax
        | LossKernel::FloatLogits
        | LossKernel::VocabularyChunks
        | LossKernel::Liger
        | LossKernel::Cut
        | LossKernel::TransformerEngine
        | LossKernel::MegatronFused
        | LossKernel::Chunked => Some(format!("loss: {}", words("loss"))),
    };
    let checkpointing = match scenario.checkpointing {
        Checkpointing::Off => None,
        Checkpointing::NonReentrant => Some("checkpointing".to_owned()),
        Checkpointing::Reentrant
        | Checkpointing::Selective
        | Checkpointing::Alternate
        | Checkpointing::Operations
        | Checkpointing::Offloaded => {
            Some(format!("{} checkpointing", words("gradient-checkpointing").to_lowercase()))
        }
    };
    let [precision, optimizer] = ["precision", "optimizer"].map(|name| Some(words(name)));
    let rest: Vec<String> = [precision, optimizer, loss, checkpointing].into_iter().flatten().collect();
    [scenario.task.method_label(scenario.method).to_owned(), rest.join(", ")]
}

/// Every combination, tried and in order: the fastest of those that fit first.
pub fn tried_settings(scenario: &Scenario, order: WayOrder) -> Vec<Way> {
    let mut ways: Vec<Way> = each(&settings(scenario), tried);
    rank_ways(&mut ways, order);
    ways
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Answer;
    use crate::scenario::Task;

    #[test]
    fn every_combination_is_there_once_with_as_many_sequences() {
        let scenario = Scenario { batch: 2, accumulation: 4, ..Scenario::default() };
        let ways = tried_settings(&scenario, WayOrder::Speed);
        for method in Method::ALL {
            for checkpointing in [Checkpointing::Off, Checkpointing::NonReentrant] {
                let of = |way: &&Way| {
                    way.scenario.method == *method && way.scenario.checkpointing == checkpointing
                };
                assert!(ways.iter().filter(of).count() > 3, "{method:?} {checkpointing:?}");
            }
        }
        assert!(ways.iter().all(|way| way.scenario.batch * way.scenario.accumulation == 8));
        for way in ways.iter().filter(|way| way.fits()) {
            assert_eq!(way.needed(), Answer::of((*way.scenario).clone()).fit().map(|fit| fit.needed));
        }
        let speeds: Vec<f64> =
            ways.iter().filter(|way| way.fits()).filter_map(Way::speed).map(|speed| speed.typical).collect();
        assert!(speeds.len() > 3 && speeds.is_sorted_by(|one, next| one >= next), "{speeds:?}");
    }

    #[test]
    fn what_does_not_train_has_none() {
        assert_eq!(settings(&Scenario { task: Task::Generate, ..Scenario::default() }), []);
    }
}
