//! The answer in words.

use std::fmt::Write;

use super::detail::Detail;
use super::format::{Unit, exact, percent};
use super::markup::{self, Escaped};
use super::part::Part;
use super::summary;
use crate::accuracy::{Band, Basis};
use crate::estimate::{Estimate, Memory};
use crate::hardware::Gpu;
use crate::plan::{Fit, Margin, Outcome, fits};
use crate::scenario::Scenario;

/// The first words of a verdict.
pub const fn word(fit: &Fit) -> &'static str {
    match fit.margin {
        Margin::Headroom(_) => "Fits",
        Margin::Overshoot(_) => "Does not fit",
    }
}

/// Its name in the style sheet.
pub const fn class(fit: &Fit) -> &'static str {
    match fit.margin {
        Margin::Headroom(_) => "fits",
        Margin::Overshoot(_) => "over",
    }
}

/// `14.5 GiB to spare`.
pub fn margin(fit: &Fit, unit: Unit) -> String {
    match fit.margin {
        Margin::Headroom(free) => format!("{} to spare", unit.amount(free)),
        Margin::Overshoot(over) => format!("{} too much", unit.amount(over)),
    }
}

/// `on the GeForce RTX 4090 with 14.5 GiB to spare`.
fn circumstances(fit: &Fit, scenario: &Scenario, unit: Unit) -> String {
    let joint = if fit.fits() { " with" } else { ":" };
    format!("on the {}{joint} {}", summary::card(scenario, unit), margin(fit, unit))
}

/// The whole of it in one sentence, to be read aloud.
pub fn sentence(scenario: &Scenario, memory: &Memory, gpu: &Gpu, unit: Unit) -> String {
    let fit = fits(memory, gpu);
    format!(
        "{}. {} {}. The peak is in the {}.",
        unit.amount(fit.needed),
        word(&fit),
        circumstances(&fit, scenario, unit),
        memory.peak().0.label()
    )
}

/// The verdict on a scenario with figures.
pub fn html(scenario: &Scenario, memory: &Memory, gpu: &Gpu, unit: Unit) -> String {
    let fit = fits(memory, gpu);
    let (phase, peak) = memory.peak();
    let (number, name) = unit.split(fit.needed);
    format!(
        "<p class=\"total\" title=\"{}\"><strong>{number}</strong> <span>{name}</span></p>\
         <div class=\"words\"><p class=\"sentence\"><span class=\"stamp\">{}</span> {}</p>\
         <p class=\"aside\"><span>{} of {}</span><span>peak in the {}</span>\
         <span class=\"composition\">{} allocated + {} CUDA context</span></p></div>{}",
        exact(fit.needed),
        word(&fit),
        Escaped(&circumstances(&fit, scenario, unit)),
        percent(fit.needed, fit.capacity),
        unit.amount(fit.capacity),
        phase.label(),
        unit.amount(peak.bytes),
        unit.amount(memory.context),
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
            part.class()
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

/// What the close look adds: how sure it is, and what the allocator and `nvidia-smi` say.
pub fn closer(detail: &Detail, fit: &Fit, unit: Unit) -> String {
    let reserved = detail.on_card.reserved;
    let shown = detail.on_card.shown;
    let figures = format!(
        "<span>{} reserved by PyTorch</span><span>up to {} in nvidia-smi</span>",
        unit.amount(reserved),
        unit.amount(shown)
    );
    let remark = match detail.on_card.outcome {
        Outcome::Runs => "",
        Outcome::Fails(_) if !fit.fits() => "",
        Outcome::RunsExpandable => {
            "The tensors fit, the holes between them do not: set \
             PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True."
        }
        Outcome::Fails(_) => "The tensors fit, but fragmentation makes the allocator run out of memory.",
    };
    let remark =
        if remark.is_empty() { String::new() } else { format!("<p class=\"message warning\">{remark}</p>") };
    format!("<p class=\"aside\">{figures}<span>{}</span></p>{remark}", band(&detail.band))
}

/// `±0.96%, from 23 measured runs of this kind`.
fn band(band: &Band) -> String {
    let of = match band.basis {
        Basis::SameKind => "of this kind",
        Basis::SameFamily => "of this family",
        Basis::OtherFamilies => "of other families",
    };
    format!("±{:.2}%, from {} measured runs {of}", band.percent, band.rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::estimate;
    use crate::scenario::{GpuChoice, ModelChoice};
    use crate::units::Bytes;

    fn of(scenario: &Scenario) -> (String, String) {
        let memory = estimate(scenario).memory.expect("an answer");
        let gpu = scenario.gpu().expect("a card");
        (html(scenario, &memory, &gpu, Unit::Binary), sentence(scenario, &memory, &gpu, Unit::Binary))
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
        assert!(html.contains(" too much"), "{html}");
    }

    #[test]
    fn without_an_answer_the_reasons_stand_there() {
        let scenario = Scenario { model: ModelChoice::Catalogue("<nobody>".into()), ..Scenario::default() };
        let html = excuse(&estimate(&scenario));
        assert!(html.contains("No answer") && html.contains("&lt;nobody&gt;"), "{html}");
    }

    #[test]
    fn a_close_look_says_how_sure_it_is() {
        let scenario = Scenario::default();
        let detail = Detail::of(&scenario).expect("an answer");
        let memory = estimate(&scenario).memory.expect("an answer");
        let html = closer(&detail, &fits(&memory, &scenario.gpu().expect("a card")), Unit::Binary);
        assert!(html.contains("reserved by PyTorch") && html.contains("measured runs"), "{html}");
    }
}
