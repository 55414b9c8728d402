//! The answer in words.

use std::fmt::Write;

use super::detail::Detail;
use super::format::{Unit, exact, percent};
use super::markup::{self, Escaped, capitalised};
use super::part::Part;
use super::summary;
use crate::accuracy::{Band, Evidence};
use crate::estimate::Estimate;
use crate::hardware::Gpu;
use crate::memory::{Counted, Memory};
use crate::plan::{Fit, Margin, OnCard, Outcome, Verdict, fits};
use crate::scenario::Scenario;

/// `14.5 GiB to spare`.
pub fn margin(fit: &Fit, verdict: Verdict, unit: Unit) -> String {
    match (fit.margin, verdict) {
        (Margin::Overshoot(over), Verdict::Close) => {
            format!("over by {}, less than the estimate may be off by", unit.amount(over))
        }
        (Margin::Overshoot(over), _) => format!("over by {}", unit.amount(over)),
        (Margin::Headroom(free), Verdict::Fits) => format!("{} to spare", unit.amount(free)),
        (Margin::Headroom(free), Verdict::Close) => {
            format!("{} to spare, less than the estimate may be off by", unit.amount(free))
        }
        (Margin::Headroom(free), Verdict::Tight | Verdict::Over) => {
            format!("its tensors leave {}, the holes between them take more", unit.amount(free))
        }
    }
}

/// `on the GeForce RTX 4090 with 14.5 GiB to spare`.
fn circumstances(fit: &Fit, verdict: Verdict, scenario: &Scenario, unit: Unit) -> String {
    let joint = if verdict == Verdict::Fits { " with" } else { ":" };
    format!("on the {}{joint} {}", summary::card(scenario, unit), margin(fit, verdict, unit))
}

/// The whole of it in one sentence, to be read aloud.
pub fn sentence(scenario: &Scenario, memory: &Memory, fit: &Fit, verdict: Verdict, unit: Unit) -> String {
    format!(
        "{}. {} {}. The peak is in the {}.",
        unit.amount(fit.needed),
        verdict.label(),
        circumstances(fit, verdict, scenario, unit),
        memory.peak().0.label()
    )
}

/// The verdict on a scenario with figures, and what a close look adds where there was time for one.
pub fn html(scenario: &Scenario, memory: &Memory, gpu: &Gpu, detail: Option<&Detail>, unit: Unit) -> String {
    let fit = fits(memory, gpu);
    let verdict = Detail::verdict(detail, scenario, &fit);
    let (phase, peak) = memory.peak();
    let (number, name) = unit.split(fit.needed);
    format!(
        "<p class=\"total\" title=\"{}\"><strong>{number}</strong> <span>{name}</span></p>\
         <div class=\"words\"><p class=\"sentence\"><span class=\"stamp\">{}</span> {}</p>\
         <p class=\"aside\"><span>{} of {}</span><span>peak in the {}</span>\
         <span class=\"composition\">{} {} + {} CUDA context</span></p>\
         <p class=\"on-card\">{}</p></div>{}",
        exact(fit.needed),
        verdict.label(),
        Escaped(&circumstances(&fit, verdict, scenario, unit)),
        percent(fit.needed, fit.capacity),
        unit.amount(fit.capacity),
        phase.label(),
        unit.amount(peak.bytes),
        match memory.counted {
            Counted::Blocks => "allocated",
            Counted::Tensors => "of tensors",
        },
        unit.amount(memory.context),
        detail.map(|detail| on_card(detail, unit)).unwrap_or_default(),
        meter(memory, &fit),
    )
}

/// A bar as narrow as can be, for the verdict that stays in view on a phone.
fn meter(memory: &Memory, fit: &Fit) -> String {
    let whole = fit.needed.max(fit.capacity);
    let mut html = String::from(
        "<svg class=\"meter\" viewBox=\"0 0 100 1\" preserveAspectRatio=\"none\" aria-hidden=\"true\">",
    );
    let mut start = 0.;
    for part in Part::all() {
        let width = part.at_peak(memory).percent_of(whole);
        // Writing to a string cannot fail.
        let _ = write!(
            html,
            "<rect class=\"part {}\" x=\"{start:.2}\" width=\"{width:.2}\" height=\"1\"/>",
            part.class(),
        );
        start += width;
    }
    html.push_str("</svg>");
    html
}

/// What is said where there is no figure.
pub fn excuse(estimate: &Estimate) -> String {
    format!(
        "<p class=\"total\" aria-hidden=\"true\"><strong>–</strong></p><div class=\"words\">\
         <p class=\"sentence\"><span class=\"stamp\">No answer</span> for this scenario</p>{}</div>",
        markup::issues(estimate.errors())
    )
}

/// What the close look adds: what the run does on the card, and how sure that is.
fn on_card(detail: &Detail, unit: Unit) -> String {
    let (class, title, told) = match &detail.on_card {
        Ok(on_card) => on_the_card(on_card, unit),
        Err(issue) => ("holes", String::new(), Escaped(&capitalised(&issue.to_string())).to_string()),
    };
    format!(
        "<span class=\"{class}\" title=\"{title}\">{told}</span><span title=\"{}\">{}</span>",
        evidence(&detail.band),
        accuracy(&detail.band)
    )
}

fn on_the_card(on_card: &OnCard, unit: Unit) -> (&'static str, String, String) {
    let OnCard { outcome, reserved, shown, .. } = *on_card;
    let (class, told) = match outcome {
        Outcome::Runs => (
            "runs",
            format!("PyTorch reserves {}, nvidia-smi shows {}", unit.amount(reserved), unit.amount(shown)),
        ),
        Outcome::RunsExpandable => (
            "holes",
            "Choose expandable segments as the allocator \
             (PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True), and it runs"
                .to_owned(),
        ),
        Outcome::Fails(failure) => (
            "fails",
            format!(
                "Out of memory in the {}: {} more is asked for with {} reserved",
                failure.phase.map_or("loading of the model", |phase| phase.label()),
                unit.amount(failure.requested),
                unit.amount(reserved)
            ),
        ),
    };
    (class, exact(reserved), told)
}

/// How sure the figures are.
fn accuracy(band: &Band) -> String {
    let mut told = format!("allocated ±{:.1}%", band.percent);
    if let Some(reserved) = band.reserved_percent {
        told += &format!(", reserved ±{reserved:.1}%");
    }
    match band.evidence {
        Evidence::SameKind | Evidence::SameFamily => told,
        Evidence::OtherFamilies => format!("this family is not measured; others: {told}"),
        Evidence::OtherSoftware => "not measured with this software".to_owned(),
    }
}

/// What the band rests on, in a sentence.
fn evidence(band: &Band) -> String {
    let rows = band.rows;
    let kind = match band.evidence {
        Evidence::SameKind => "measured runs of this family, method, precision and attention",
        Evidence::SameFamily => "measured runs of this family under other settings",
        Evidence::OtherFamilies => "measured runs of other families: this one was not measured yet",
        Evidence::OtherSoftware => "measured runs with other software: with this one none was measured yet",
    };
    format!(
        "The worst errors over {rows} {kind}. Of the allocated peak, and at least that of the measuring device against \
         real GPUs; of the reserved peak on a card that is not nearly full"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::estimate;
    use crate::scenario::{GpuChoice, ModelChoice};
    use crate::units::{BYTES_PER_GIB, Bytes};

    fn of(scenario: &Scenario) -> (String, String) {
        let memory = estimate(scenario).memory.expect("an answer");
        let gpu = scenario.gpu().expect("a card");
        let fit = fits(&memory, &gpu);
        let sentence = sentence(scenario, &memory, &fit, Detail::verdict(None, scenario, &fit), Unit::Binary);
        (html(scenario, &memory, &gpu, None, Unit::Binary), sentence)
    }

    #[test]
    fn what_fits_says_what_is_left() {
        let (html, sentence) = of(&Scenario::default());
        assert!(html.contains(">Fits<") && html.contains("on the GeForce RTX 4090 with "), "{html}");
        assert!(sentence.contains("to spare. The peak is in the "), "{sentence}");
    }

    #[test]
    fn what_does_not_fit_says_what_is_missing() {
        let (html, _) = of(&Scenario { gpu: GpuChoice::Custom(Bytes::gib(2.)), ..Scenario::default() });
        assert!(html.contains(">Does not fit<") && html.contains("on the 2.00 GiB card: "), "{html}");
        assert!(html.contains(": over by "), "{html}");
    }

    #[test]
    fn without_an_answer_the_reasons_stand_there() {
        let scenario = Scenario { model: ModelChoice::Catalogue("<nobody>".into()), ..Scenario::default() };
        let html = excuse(&estimate(&scenario));
        assert!(html.contains("No answer") && html.contains("&lt;nobody&gt;"), "{html}");
    }

    #[test]
    fn a_close_look_says_what_is_reserved_and_how_sure_that_is() {
        let detail = Detail::of(&Scenario::default()).expect("an answer");
        let html = on_card(&detail, Unit::Binary);
        assert!(
            html.contains(">PyTorch reserves 1") && html.contains(">allocated ±1.0%, reserved ±"),
            "{html}"
        );
        let band =
            Band { percent: 1.0, reserved_percent: Some(2.0), evidence: Evidence::SameFamily, rows: 7 };
        assert!(
            evidence(&band).starts_with("The worst errors over 7 measured runs of this family under other")
        );
        let elsewhere = Band { evidence: Evidence::OtherFamilies, ..band };
        assert!(accuracy(&elsewhere).starts_with("this family is not measured"));
    }

    #[test]
    fn what_fits_by_its_tensors_only_is_no_fit() {
        let on = |gib: f64| Scenario { gpu: GpuChoice::Custom(Bytes::gib(gib)), ..Scenario::default() };
        let wide = Detail::of(&on(80.)).expect("an answer");
        let Ok(found) = &wide.on_card else { panic!("it was replayed") };
        // what it reserves where there is room, and a little less each time
        let reserved = found.shown.0 as f64 / BYTES_PER_GIB as f64;
        let mut tight =
            (1..100).map(|step| Detail::of(&on(reserved - f64::from(step) / 50.)).expect("an answer"));
        let is_tight = |detail: &Detail| matches!(&detail.on_card, Ok(found) if found.outcome == Outcome::RunsExpandable);
        let detail = tight.find(is_tight).expect("there is one between what runs and what fails");
        let scenario = &detail.scenario;
        let memory = estimate(scenario).memory.expect("an answer");
        let gpu = scenario.gpu().expect("a card");
        let html = html(scenario, &memory, &gpu, Some(&detail), Unit::Binary);
        assert!(html.contains(">Tight<") && !html.contains("to spare"), "{html}");
    }

    #[test]
    fn a_step_too_long_to_be_followed_says_so() {
        let link = "m=Deep(model_type:llama,hidden_size:64,num_hidden_layers:4096,num_attention_heads:4,\
                    intermediate_size:128,vocab_size:256)&method=lora&len=uniform";
        let shared = crate::share::decode(link);
        let html = on_card(&Detail::of(&shared.scenarios[0]).expect("an answer"), Unit::Binary);
        assert!(html.contains(">This step has about ") && html.contains("too many to be followed"), "{html}");
    }

    #[test]
    fn a_run_that_fails_says_where() {
        let small = Scenario { gpu: GpuChoice::Custom(Bytes::gib(9.)), ..Scenario::default() };
        let html = on_card(&Detail::of(&small).expect("an answer"), Unit::Binary);
        assert!(html.contains("class=\"fails\"") && html.contains(">Out of memory in the "), "{html}");
    }
}
