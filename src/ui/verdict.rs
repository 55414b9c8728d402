//! The answer in words.

use super::detail::Detail;
use super::format::{Unit, percent};
use super::summary;
use crate::accuracy::band;
use crate::hardware::Vendor;
use crate::issue::Field;
use crate::memory::Memory;
use crate::plan::{Fit, Level, Margin, OnCard, Outcome, Verdict};
use crate::scenario::{Method, Scenario};
use crate::units::Bytes;

/// `14.5 GiB to spare`.
pub fn margin(fit: &Fit, verdict: Verdict, unit: Unit) -> String {
    verdict.margin(fit.margin, |bytes| unit.amount(bytes))
}

/// `on the GeForce RTX 4090 with 14.5 GiB to spare`, `on each of the 8 × GeForce RTX 4090 with 2.67 GiB to spare`, `on 8 × H100 SXM: each is
/// over by 64.8 GiB`.
pub fn circumstances(fit: &Fit, verdict: Verdict, scenario: &Scenario, unit: Unit) -> String {
    let joint = match verdict {
        Verdict::Fits => " with",
        Verdict::WouldNotRun => ",",
        Verdict::Close | Verdict::Tight | Verdict::Over | Verdict::NotFollowed => ":",
    };
    let card = match scenario.cluster.is_many() {
        false => format!("on the {}", summary::card(scenario, unit)),
        // what does not fit on each may fit on some
        true if verdict == Verdict::Over => format!("on {}", summary::cards(scenario, unit)),
        true => format!("on each of the {}", summary::cards(scenario, unit)),
    };
    let margin = match scenario.stop().map(|issue| issue.field) {
        // a larger card has a larger share
        Some(Field::VllmPercent) => "as vLLM’s share of it is too small".to_owned(),
        Some(_) => "whatever memory there is".to_owned(),
        None => margin(fit, verdict, unit),
    };
    let each = match (scenario.cluster.is_many() && verdict == Verdict::Over, fit.margin) {
        (true, Margin::Overshoot(_)) => "each is ",
        (true, Margin::Headroom(_)) => "on each ",
        (false, _) => "",
    };
    format!("{card}{joint} {each}{margin}")
}

/// The whole of it in one sentence, to be read aloud.
pub fn sentence(scenario: &Scenario, memory: &Memory, fit: &Fit, verdict: Verdict, unit: Unit) -> String {
    format!(
        "{}. {} {}. The peak {} in the {}.",
        unit.amount(fit.needed),
        verdict.label(),
        circumstances(fit, verdict, scenario, unit),
        if ends_before(verdict) { "would be" } else { "is" },
        memory.peak().0.label()
    )
}

/// Whether the run may end before its peak.
fn ends_before(verdict: Verdict) -> bool {
    matches!(verdict, Verdict::Over | Verdict::WouldNotRun)
}

/// A clause beside the verdict.
pub struct Aside {
    /// What is said wherever there is room for a line.
    pub words: String,
    /// What is left out on a phone: the rest of it.
    pub more: &'static str,
    /// Whether it is said there.
    pub on_phone: bool,
}

impl Aside {
    fn of(words: String) -> Aside {
        Aside { words, more: "", on_phone: false }
    }
}

/// `56 % of 23.5 GiB`, how much that is, where the peak is, which stage of a pipeline has it, and what runs elsewhere.
pub fn aside(
    scenario: &Scenario,
    memory: &Memory,
    (fit, verdict): (&Fit, Verdict),
    unit: Unit,
) -> Vec<Aside> {
    let (phase, _) = memory.peak();
    let share = match fit.capacity {
        Bytes::ZERO => "nothing of the card is left".to_owned(),
        capacity => {
            format!("{} of {}", percent(fit.needed, capacity), unit.amount(capacity))
        }
    };
    let share = Aside { on_phone: true, ..Aside::of(share) };
    // what may fit after all is not more than there is
    let is_told = |level: &Level| verdict != Verdict::Close || *level != Level::Beyond;
    let level = (verdict != Verdict::WouldNotRun).then(|| Level::of(fit)).filter(is_told);
    // what would do is not known of a card that is not followed, nor where it may get through
    let advice = |level: Level| match verdict {
        Verdict::NotFollowed | Verdict::Close => "",
        _ => level.advice(),
    };
    let level =
        level.map(|level| Aside { words: level.label().to_owned(), more: advice(level), on_phone: true });
    let note = scenario.gpu().ok().and_then(|gpu| gpu.note()).map(str::to_owned);
    let server =
        scenario.asks_a_server().then(|| "vLLM has GPUs of its own elsewhere, not counted here".to_owned());
    // a stage that was asked for is named beside the bars of all
    let worst = memory.rank.filter(|_| scenario.cluster.layout.stage == 0);
    let worst = worst.map(|rank| format!("most in {}", rank.words()));
    let would = if ends_before(verdict) { "would peak" } else { "peak" };
    let peak = format!("{would} in the {}", phase.label());
    let others = [note, Some(peak), worst, server].into_iter().flatten();
    [Some(share), level].into_iter().flatten().chain(others.map(Aside::of)).collect()
}

/// What is said of a run that gets through beside the verdict, where the card has no bfloat16.
const EMULATED: &str = "It would be slow: the card does not compute in bfloat16 itself, PyTorch emulates it";

/// What else must be said of the verdict: how bad it is, as a class, and the words.
pub fn remark(
    scenario: &Scenario,
    verdict: Verdict,
    detail: Option<&Detail>,
    unit: Unit,
) -> Option<(&'static str, String)> {
    match verdict {
        Verdict::WouldNotRun => Some(("fails", super::markup::capitalised(&scenario.stop()?.to_string()))),
        Verdict::NotFollowed => Some((
            "holes",
            format!("Only the tensors are counted: {} not followed", what_is_its_own(scenario)),
        )),
        // how CUDA's allocator would end it says nothing of another card's
        Verdict::Over if scenario.gpu().is_ok_and(|gpu| gpu.vendor != Vendor::Nvidia) => {
            let own = what_is_its_own(scenario);
            Some(("holes", format!("The tensors alone are more than there is: {own} not followed")))
        }
        Verdict::Fits | Verdict::Close | Verdict::Tight | Verdict::Over => match &detail?.on_card {
            Ok(on_card) if verdict == Verdict::Close && on_card.outcome == Outcome::Runs => {
                Some(("holes", what_may_be_more(scenario, unit)?))
            }
            Ok(on_card) => of_run(scenario, on_card, unit).or_else(|| {
                scenario.emulates_bfloat16().then(|| ("holes", format!("{EMULATED}: choose fp16")))
            }),
            Err(issue) => Some(("holes", super::markup::capitalised(&issue.to_string()))),
        },
    }
}

/// What a card that is not NVIDIA's has of its own, as far as the run meets it.
fn what_is_its_own(scenario: &Scenario) -> &'static str {
    match scenario.method == Method::Qlora || scenario.optimizer.is_of_bitsandbytes() {
        true => "the kernels, the allocator and bitsandbytes of this card are",
        false => "the kernels and the allocator of this card are",
    }
}

/// What would end a run that gets through: a little more asked for, and the driver's part at its largest.
fn what_may_be_more(scenario: &Scenario, unit: Unit) -> Option<String> {
    Some(format!("It runs by the estimate, and may not: {}", more_that_may_be(scenario, unit)?))
}

fn more_that_may_be(scenario: &Scenario, unit: Unit) -> Option<String> {
    let (architecture, gpu) = (scenario.architecture().ok()?, scenario.gpu().ok()?);
    let percent = band(&architecture, scenario).more_percent;
    let more = unit.amount(gpu.context_most.saturating_sub(gpu.context));
    let who = if scenario.cluster.is_many() { "the driver and NCCL" } else { "the driver" };
    Some(format!("PyTorch may reserve {percent:.1} % more, and {who} may take up to {more} more"))
}

fn of_run(scenario: &Scenario, on_card: &OnCard, unit: Unit) -> Option<(&'static str, String)> {
    match on_card.outcome {
        Outcome::Runs => None,
        Outcome::RunsExpandable => {
            // no more is promised than what is said of that run itself, once it is chosen
            let then = match on_card.close.then(|| more_that_may_be(scenario, unit)).flatten() {
                Some(more) => format!("it is close: {more}"),
                None => "it runs".to_owned(),
            };
            let words =
                format!("With expandable segments (PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True) {then}");
            Some(("holes", words))
        }
        Outcome::Fails(failure) => Some((
            "fails stops",
            format!(
                "Out of memory {}: asks for {} more when PyTorch has reserved {}",
                failure.phase.map_or("while the model is loaded".to_owned(), |phase| format!(
                    "in the {}",
                    phase.label()
                )),
                unit.amount(failure.requested),
                unit.amount(on_card.reserved)
            ),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::super::figures::figures;
    use super::*;
    use crate::plan::fits;
    use crate::scenario::GpuChoice;
    use crate::ui::markup::plain;
    use crate::units::{BYTES_PER_GIB, Bytes};

    /// The verdict, the sentence and the remark on a scenario that was looked at closely.
    #[track_caller]
    fn of(scenario: &Scenario) -> (Verdict, String, String) {
        let detail = Detail::of(scenario).expect("an answer");
        let gpu = scenario.gpu().expect("a card");
        let fit = fits(&detail.memory, &gpu);
        let verdict = Detail::verdict(Some(&detail), scenario, &fit);
        let told = sentence(scenario, &detail.memory, &fit, verdict, Unit::Binary);
        let remark = remark(scenario, verdict, Some(&detail), Unit::Binary);
        (verdict, plain(&told), plain(&remark.map(|(_, words)| words).unwrap_or_default()))
    }

    fn on(gib: f64) -> Scenario {
        Scenario { gpu: GpuChoice::Custom(Bytes::gib(gib)), ..Scenario::default() }
    }

    #[test]
    fn what_fits_says_what_is_left() {
        let (verdict, told, remark) = of(&Scenario::default());
        assert_eq!((verdict, remark.as_str()), (Verdict::Fits, ""));
        assert!(
            told.contains("Fits on the GeForce RTX 4090 with ")
                && told.contains("to spare. The peak is in the ")
        );
    }

    #[test]
    fn a_figure_of_several_gpus_is_that_of_each() {
        let (_, told, _) =
            of(&crate::share::decode("method=full&p=amp-bf16&gpus=8&shard=fsdp2").scenarios[0]);
        assert!(told.contains(" on each of the 8 × GeForce RTX 4090"), "{told}");
    }

    #[test]
    fn what_does_not_fit_on_several_is_over_on_each() {
        let over = &crate::share::decode("m=70b&method=full&p=bf16&gpus=2&shard=fsdp2").scenarios[0];
        let (verdict, told, _) = of(over);
        assert_eq!(verdict, Verdict::Over);
        assert!(told.contains("Does not fit on 2 × GeForce RTX 4090: each is over by "), "{told}");
        assert!(told.contains(" The peak would be in the "), "{told}");
    }

    #[test]
    fn what_does_not_fit_says_what_is_missing_and_where_it_fails() {
        let (verdict, told, remark) = of(&on(2.));
        assert_eq!(verdict, Verdict::Over);
        assert!(told.contains("Does not fit on the 2.00 GiB card: over by "), "{told}");
        assert!(remark.starts_with("Out of memory while the model is loaded: asks for "), "{remark}");
        let (_, _, remark) = of(&on(9.));
        assert!(remark.starts_with("Out of memory in the forward pass: asks for "), "{remark}");
    }

    #[test]
    fn what_stops_or_is_not_followed_says_so_and_is_no_fit() {
        let of = |link: &str| of(&crate::share::decode(link).scenarios[0]);
        let (verdict, told, remark) = of("m=openai-community/gpt2&s=2048");
        assert_eq!(verdict, Verdict::WouldNotRun);
        assert!(told.contains("Would not run on the GeForce RTX 4090, whatever memory there is"), "{told}");
        assert!(remark.starts_with("The model has an embedding for each of 1,024 positions: PyTorch fails beyond them (use at most 1,024)"), "{remark}");
        let (verdict, _, remark) = of("m=meta-llama/Llama-3.1-8B&method=lora&gpu=apple-m2-16gb");
        assert_eq!(verdict, Verdict::Over);
        assert!(remark.starts_with("The tensors alone are more than there is"), "{remark}");
        let (verdict, told, remark) =
            of("task=grpo&m=Qwen/Qwen2.5-7B-Instruct&method=lora&st=trl&gpu=l40s&vllm=30");
        assert_eq!(verdict, Verdict::WouldNotRun);
        assert!(told.contains("Would not run on the L40S, as vLLM’s share of it is too small"), "{told}");
        assert!(
            remark.ends_with("(give it 35 % of the card, or have a server elsewhere generate)"),
            "{remark}"
        );
        let (verdict, _, remark) = of("gpu=v100-pcie-16gb");
        assert_eq!(verdict, Verdict::Fits);
        assert!(
            remark.starts_with("It would be slow: the card does not compute in bfloat16 itself"),
            "{remark}"
        );
        let (verdict, told, remark) = of("gpu=apple-m3-max-36gb");
        assert_eq!(verdict, Verdict::NotFollowed);
        assert!(told.contains("Not followed on the Apple M3 Max 36GB: its tensors leave "), "{told}");
        assert!(!told.contains("CUDA") && !remark.contains("CUDA"), "{remark}");
    }

    #[test]
    fn what_is_close_is_not_more_than_there_is() {
        let scenario = Scenario::default();
        let detail = Detail::of(&scenario).expect("an answer");
        let fit = crate::plan::within(Bytes::gib(12.01), Bytes::gib(12.));
        let told = |verdict| {
            let told = aside(&scenario, &detail.memory, (&fit, verdict), Unit::Binary);
            told.into_iter().map(|aside| aside.words).collect::<Vec<_>>().join(", ")
        };
        assert!(told(Verdict::Over).contains("more than there is"));
        assert!(!told(Verdict::Close).contains("more than there is"), "{}", told(Verdict::Close));
    }

    /// What vLLM has of the card is part of what is needed, awake or asleep, and said.
    #[test]
    fn training_beside_vllm_says_so() {
        let link = "v=1&task=grpo&m=Qwen/Qwen2.5-3B&method=full&p=amp-bf16&b=8&ref=none&mask=padded&st=trl&gpu=a100-sxm-80gb&vllm=30";
        let scenario = &crate::share::decode(link).scenarios[0];
        let (verdict, told, _) = of(scenario);
        assert_eq!(verdict, Verdict::Fits);
        assert!(told.contains("Fits on the A100 SXM4 80GB with "), "{told}");
        let detail = Detail::of(scenario).expect("an answer");
        let gpu = scenario.gpu().expect("a card");
        let fit = fits(&detail.memory, &gpu);
        let aside = aside(scenario, &detail.memory, (&fit, verdict), Unit::Binary);
        assert!(plain(&aside[0].words).ends_with("% of 79.1 GiB"), "{}", aside[0].words);
        assert_eq!(aside[1].more, "nothing else should start on the card");
        let figures = figures(&detail.memory, (&gpu, scenario), Some(&detail), Unit::Binary);
        assert!(plain(&figures[0].note).ends_with("driver, vLLM’s 23.7 GiB among it"), "{}", figures[0].note);
        assert_eq!(figures[1].note, "with the holes between tensors");
        // asleep it leaves the card to the training, which needs less then
        let asleep = Detail::of(&crate::share::decode(&format!("{link}&vsleep=on")).scenarios[0]);
        assert!(asleep.expect("an answer").memory.needed() < detail.memory.needed());
    }

    #[test]
    fn what_fits_by_its_tensors_only_is_no_fit() {
        let wide = Detail::of(&on(80.)).expect("an answer");
        let Ok(found) = &wide.on_card else { panic!("it was replayed") };
        // what it reserves where there is room, and a little less each time
        let reserved = found.shown.0 as f64 / BYTES_PER_GIB as f64;
        let mut cards = (1..100).map(|step| on(reserved - f64::from(step) / 50.));
        let tight = cards.find(|scenario| {
            let detail = Detail::of(scenario).expect("an answer");
            matches!(&detail.on_card, Ok(found) if found.outcome == Outcome::RunsExpandable)
        });
        let (verdict, told, remark) = of(&tight.expect("there is one between what runs and what fails"));
        assert!(verdict == Verdict::Tight && !told.contains("to spare"), "{told}");
        assert!(remark.contains("expandable_segments:True"), "{remark}");
    }

    /// What is close once another allocator is chosen is called so before.
    #[test]
    fn another_allocator_promises_no_more_than_it_holds() {
        let link = "m=Qwen/Qwen3-8B&method=full&gpu=rtx-3090&shard=fsdp2&p=amp-bf16&gpus=8";
        let told = |link: &str| of(&crate::share::decode(link).scenarios[0]);
        let (verdict, _, remark) = told(link);
        assert_eq!(verdict, Verdict::Tight);
        assert!(
            remark.starts_with("With expandable segments (") && remark.contains(" it is close: "),
            "{remark}"
        );
        let (verdict, _, chosen) = told(&format!("{link}&alloc=expandable"));
        assert_eq!(verdict, Verdict::Close);
        // the same is said of why
        assert_eq!(
            remark.split_once("is close: ").map(|(_, why)| why),
            chosen.split_once("may not: ").map(|(_, why)| why)
        );
    }

    #[test]
    fn a_step_too_long_to_be_followed_says_so() {
        let link = "m=Deep(model_type:llama,hidden_size:64,num_hidden_layers:4096,num_attention_heads:4,\
                    intermediate_size:128,vocab_size:256)&method=lora&len=uniform";
        let (_, _, remark) = of(&crate::share::decode(link).scenarios[0]);
        assert!(
            remark.starts_with("This step has about ") && remark.contains("too many to be followed"),
            "{remark}"
        );
    }
}
