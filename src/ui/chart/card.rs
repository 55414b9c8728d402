//! A picture that stands by itself: what was asked, the chart, its legend, where it is from.

use std::fmt::Write;

use super::backend::text_width;
use super::stack::{Bar, Layout, draw};
use crate::ui::format::Unit;
use crate::ui::markup::{Escaped, plain};

/// Around everything.
const MARGIN: u32 = 24;
/// Of a line of text.
const LINE: u32 = 22;
/// Of the heading.
const HEADING: f64 = 18.;
/// Of all other text.
const TEXT: f64 = 13.;

/// A line of the legend.
pub struct Named {
    /// The class that colours it.
    pub class: String,
    /// What it is, with its amount.
    pub words: String,
}

/// Draws the picture, as wide as it is told, and says how large it is; in its corner stands where it is from.
pub fn draw_card(
    heading: &str,
    lines: &[String],
    bars: &[Bar],
    legend: &[Named],
    (unit, from): (Unit, &str),
    width: u32,
) -> (String, (u32, u32)) {
    let inner = width.saturating_sub(2 * MARGIN);
    let labelled = bars.len() < 2;
    let layout = match labelled {
        true => Layout { width: inner, bar: 56, gap: 10, names: 0, amounts: 0, labelled, stretched: false },
        false => {
            Layout { width: inner, bar: 32, gap: 10, names: 24, amounts: 80, labelled, stretched: false }
        }
    };
    let mut body = String::new();
    let mut y = MARGIN;
    let text = |body: &mut String, class: &str, size: f64, x: f64, y: u32, words: &str| {
        // Writing to a string cannot fail.
        let _ = write!(
            body,
            "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y}\" font-size=\"{size}\">{}</text>",
            Escaped(&plain(words))
        );
    };
    text(&mut body, "name", HEADING, f64::from(MARGIN), y + 16, heading);
    y += 30;
    for line in lines {
        text(&mut body, "tick", TEXT, f64::from(MARGIN), y + 14, line);
        y += LINE;
    }
    y += 8;
    let chart = draw(bars, unit, layout, heading);
    let height = layout.height(bars.len());
    let _ = write!(body, "<g transform=\"translate({MARGIN} {y})\">{chart}</g>");
    y += height + 12;
    let mut x = 0.;
    for named in legend {
        let wide = text_width(&named.words, TEXT) + 40.;
        if x + wide > f64::from(inner) && x > 0. {
            x = 0.;
            y += LINE;
        }
        let at = f64::from(MARGIN) + x;
        let _ = write!(
            body,
            "<rect class=\"part {}\" x=\"{at:.1}\" y=\"{}\" width=\"12\" height=\"12\" rx=\"3\"/>",
            named.class,
            y + 4
        );
        text(&mut body, "name", TEXT, at + 18., y + 14, &named.words);
        x += wide;
    }
    y += LINE;
    let corner = f64::from(MARGIN) + x.max(f64::from(inner) - text_width(from, TEXT));
    if corner + text_width(from, TEXT) > f64::from(width) {
        y += LINE;
    }
    let corner = corner.min(f64::from(width.saturating_sub(MARGIN)) - text_width(from, TEXT)).max(0.);
    text(&mut body, "tick", TEXT, corner, y + 14 - LINE, from);
    y += MARGIN - 6;
    let svg = format!(
        "<svg viewBox=\"0 0 {width} {y}\" width=\"{width}\" height=\"{y}\"><rect class=\"paper\" width=\"{width}\" \
         height=\"{y}\"/>{body}</svg>"
    );
    (svg, (width, y))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ui::chart::stack::Segment;
    use crate::units::Bytes;

    #[test]
    fn everything_is_on_the_picture() {
        let segment = Segment { class: "part-weights".into(), label: "Weights", bytes: Bytes::gib(6.) };
        let bar = Bar {
            name: "A".into(),
            segments: vec![segment],
            capacity: Bytes::gib(24.),
            apart: None,
            faded: false,
        };
        let legend: Vec<_> = (0..9)
            .map(|n| Named { class: "part-weights".into(), words: format!("Weights number {n}, 6.00 GiB") })
            .collect();
        let lines = ["a <b>".to_owned()];
        let (svg, (width, height)) =
            draw_card("It fits", &lines, &[bar.clone(), bar], &legend, (Unit::Binary, "example.org"), 640);
        assert!(
            svg.contains(">It fits<")
                && svg.contains(">example.org<")
                && svg.contains("a &lt;b&gt;")
                && svg.contains("number 8"),
            "{svg}"
        );
        assert!(width == 640 && height > 200, "{height}");
        // the legend needs several lines
        let (_, (_, short)) = draw_card("It fits", &lines, &[], &legend[..1], (Unit::Binary, ""), 640);
        assert!(short < height);
    }
}
