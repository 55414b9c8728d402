//! Stacked horizontal bars on one axis of memory, each against its card's capacity.

use std::fmt::Write;

use plotters::coord::Shift;
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::{Cartesian2d, ChartBuilder, DrawingArea, IntoDrawingArea, PathElement, Rectangle};
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{Color, FontFamily, IntoFont, RGBColor, TextStyle};

use super::backend::{Marks, SCALE, Svg, text_width};
use super::ticks::ticks;
use crate::memory::Parts;
use crate::ui::format::{Unit, exact, percent};
use crate::ui::markup::Escaped;
use crate::ui::part::Part;
use crate::units::Bytes;

/// One coloured stretch of a bar.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The class that colours it: `part-weights`.
    pub class: String,
    /// Its name.
    pub label: &'static str,
    /// How long it is.
    pub bytes: Bytes,
}

/// One bar.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bar {
    /// What stands before it; may be empty.
    pub name: String,
    /// Its stretches, in order.
    pub segments: Vec<Segment>,
    /// What the card has for it.
    pub capacity: Bytes,
    /// What others have of the card.
    pub apart: Option<Segment>,
    /// Whether it is set back behind the others.
    pub faded: bool,
}

impl Bar {
    /// The stretches of the parts of a moment and of the CUDA context.
    pub fn segments(parts: &Parts, context: Bytes) -> Vec<Segment> {
        let tensors = parts.iter().map(|(category, bytes)| (Part::Tensors(category), bytes));
        tensors
            .chain([(Part::Context, context)])
            .map(|(part, bytes)| Segment { class: part.class(), label: part.label(), bytes })
            .collect()
    }

    /// The length of the whole bar.
    pub fn total(&self) -> Bytes {
        self.segments.iter().map(|segment| segment.bytes).sum()
    }

    /// The whole card.
    fn card(&self) -> Bytes {
        self.capacity + self.apart.as_ref().map(|apart| apart.bytes).unwrap_or_default()
    }
}

/// How large everything is, in CSS pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Of the whole drawing.
    pub width: u32,
    /// Of one bar.
    pub bar: u32,
    /// Between two bars.
    pub gap: u32,
    /// Room for names before the bars.
    pub names: u32,
    /// Room for amounts after the bars.
    pub amounts: u32,
    /// Whether stretches carry their names and the capacity its own.
    pub labelled: bool,
    /// Whether it is as wide as its box from the first, of which `width` only says what there is room for.
    pub stretched: bool,
}

impl Layout {
    /// How high so many bars are drawn.
    pub fn height(&self, bars: usize) -> u32 {
        self.top() + self.rows(bars) + AXIS
    }

    fn top(&self) -> u32 {
        if self.labelled { CAPTION } else { 4 }
    }

    fn rows(&self, bars: usize) -> u32 {
        let count = u32::try_from(bars).unwrap_or(0);
        count * self.bar + count.saturating_sub(1) * self.gap
    }
}

/// Under the bars, for the axis.
const AXIS: u32 = 22;
/// Above them, for the name of the capacity line.
const CAPTION: u32 = 20;
/// Of all text.
const TEXT: f64 = 11.5;

/// Draws bars on one axis as an `<svg>` that fills its box; `name` is what it is called.
///
/// ```
/// use headroom::{ui::chart::stack::*, ui::format::Unit, units::Bytes};
/// let segment = Segment { class: "part-weights".into(), label: "Weights", bytes: Bytes(1 << 30) };
/// let bar = Bar { name: String::new(), segments: vec![segment], capacity: Bytes(4 << 30), apart: None, faded: false };
/// let layout = Layout { width: 640, bar: 40, gap: 8, names: 0, amounts: 0, labelled: true, stretched: false };
/// let svg = draw(&[bar], Unit::Binary, layout, "Memory");
/// assert!(svg.starts_with("<svg") && svg.contains("part-weights") && svg.contains("4.00 GiB"));
/// ```
pub fn draw(bars: &[Bar], unit: Unit, layout: Layout, name: &str) -> String {
    let (top, rows) = (layout.top(), layout.rows(bars.len()));
    let (width, height) = (layout.width, layout.height(bars.len()));
    let marks = Marks::default();
    let mut body = String::new();
    let whole = Svg::new(&mut body, &marks, (width, height));
    let root = match layout.stretched {
        true => whole.stretched(layout.names, width.saturating_sub(layout.amounts)),
        false => whole,
    };
    let root = root.into_drawing_area();
    let most = bars.iter().map(|bar| bar.total().max(bar.card())).max().unwrap_or_default();
    // A little air after the longest bar, so that a capacity line at the end is seen as a line.
    let end = most.0 as f64 * 1.015 + 1.;
    let area = ChartBuilder::on(&root)
        .margin_top(units(top))
        .margin_bottom(units(AXIS))
        .margin_left(units(layout.names))
        .margin_right(units(layout.amounts))
        .build_cartesian_2d(0_f64..end, f64::from(rows)..0_f64)
        .map(|chart| chart.plotting_area().clone());
    if let Ok(area) = area {
        let pen = Pen { root: &root, area, marks: &marks, unit, layout, rows: f64::from(rows) };
        pen.axis(most);
        for (index, bar) in bars.iter().enumerate() {
            let y = index as f64 * f64::from(layout.bar + layout.gap);
            pen.bar(bar, y);
            pen.capacity(bar, y, index == 0);
        }
    }
    drop(root);
    let mut svg = String::with_capacity(body.len() + 200);
    let size = match layout.stretched {
        true => format!("class=\"names-{}\" width=\"100%\"", layout.names),
        false => format!("viewBox=\"0 0 {width} {height}\" width=\"{width}\""),
    };
    // Writing to a string cannot fail.
    let _ = write!(
        svg,
        "<svg {size} height=\"{height}\" role=\"img\" aria-label=\"{}\">{body}</svg>",
        Escaped(name),
    );
    svg
}

/// The longer side of a stretch that the end of the card crosses, so that no label lies under the line; else all of it.
fn clear_of(line: f64, start: f64, end: f64) -> [f64; 2] {
    match line {
        _ if line <= start || line >= end => [start, end],
        _ if line - start > end - line => [start, line],
        _ => [line, end],
    }
}

fn units(pixels: u32) -> i32 {
    i32::try_from(pixels).unwrap_or(i32::MAX).saturating_mul(SCALE)
}

type Area<'a> = DrawingArea<Svg<'a>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;

/// Draws in the coordinates of the chart: bytes to the right, CSS pixels downwards.
///
/// The backend writes to a string and cannot fail, so what plotters returns is dropped.
struct Pen<'a, 'b> {
    root: &'b DrawingArea<Svg<'a>, Shift>,
    area: Area<'a>,
    marks: &'b Marks,
    unit: Unit,
    layout: Layout,
    rows: f64,
}

impl Pen<'_, '_> {
    fn rect(&self, color: RGBColor, x: (f64, f64), y: (f64, f64)) {
        drop(self.area.draw(&Rectangle::new([(x.0, y.0), (x.1, y.1)], color.filled())));
    }

    /// A vertical line; its ends may stick out of the area of the bars.
    fn line(&self, color: RGBColor, x: f64, y: (f64, f64)) {
        let (from, to) = (self.at(x, y.0), self.at(x, y.1));
        drop(self.root.draw(&PathElement::new([from, to], color)));
    }

    fn text(&self, text: &str, class: &str, at: (i32, i32), anchor: (HPos, VPos)) {
        let font = (FontFamily::SansSerif, TEXT * f64::from(SCALE)).into_font();
        let color = self.marks.add(class, None);
        let style = TextStyle::from(font).color(&color).pos(Pos::new(anchor.0, anchor.1));
        drop(self.root.draw_text(text, &style, at));
    }

    /// A point in the units of the backend.
    fn at(&self, x: f64, y: f64) -> (i32, i32) {
        let (left, top) = self.area.map_coordinate(&(x, 0.));
        (left, top + (y * f64::from(SCALE)) as i32)
    }

    /// How many CSS pixels so many bytes are.
    fn length(&self, bytes: Bytes) -> f64 {
        f64::from(self.at(bytes.0 as f64, 0.).0 - self.at(0., 0.).0) / f64::from(SCALE)
    }

    fn axis(&self, most: Bytes) {
        let width = self.length(most);
        let grid = self.marks.add("grid", None);
        for (x, text) in ticks(most, self.unit, (width / 56.) as usize) {
            self.line(grid, x, (0., self.rows + 4.));
            let mut at = self.at(x, self.rows + 8.);
            // The first and last text would stick out of the drawing.
            let near_end = self.layout.amounts == 0 && self.length(Bytes(x as u64)) > width - 36.;
            let anchor = match (x == 0., near_end) {
                (true, _) => HPos::Left,
                (false, true) => HPos::Right,
                (false, false) => HPos::Center,
            };
            // the number stands at its line, its unit behind it
            if matches!(anchor, HPos::Center) {
                let unit = text.find(' ').map_or(0., |start| text_width(&text[start..], TEXT));
                at.0 += (unit / 2. * f64::from(SCALE)) as i32;
            }
            self.text(&text, "tick", at, (anchor, VPos::Top));
        }
    }

    fn bar(&self, bar: &Bar, y: f64) {
        let (total, height) = (bar.total(), f64::from(self.layout.bar));
        let middle = y + height / 2.;
        let faded = if bar.faded { " faded" } else { "" };
        let room = self.marks.add("headroom", None);
        self.rect(room, (total.0.min(bar.capacity.0) as f64, bar.capacity.0 as f64), (y, y + height));
        if let Some(apart) = &bar.apart {
            self.apart(apart, bar, (y, y + height));
        }
        let mut start = 0_f64;
        for segment in &bar.segments {
            let end = start + segment.bytes.0 as f64;
            let amount = self.unit.amount(segment.bytes);
            let title = format!(
                "{}: {amount}, {} ({})",
                segment.label,
                percent(segment.bytes, total),
                exact(segment.bytes)
            );
            let color = self.marks.add(format!("part {}{faded}", segment.class), Some(title));
            self.rect(color, (start, end), (y, y + height));
            if self.layout.labelled {
                let [start, end] = clear_of(bar.capacity.0 as f64, start, end);
                self.label(segment, &amount, (start, end), middle);
            }
            start = end;
        }
        if total > bar.capacity {
            let over = self.marks.add("over", None);
            self.rect(over, (bar.capacity.0 as f64, start), (y, y + height));
        } else if self.layout.labelled {
            self.free(bar, start, middle);
        }
        if self.layout.names > 0 {
            let at = (0, self.at(0., middle).1);
            self.text(&bar.name, &format!("name{faded}"), at, (HPos::Left, VPos::Center));
        }
        if self.layout.amounts > 0 {
            let at = (units(self.layout.width), self.at(0., middle).1);
            self.text(&self.unit.amount(total), &format!("amount{faded}"), at, (HPos::Right, VPos::Center));
        }
    }

    /// What others have, behind what is left of the card.
    fn apart(&self, apart: &Segment, bar: &Bar, (top, bottom): (f64, f64)) {
        let (start, end) = (bar.capacity.0 as f64, bar.card().0 as f64);
        let amount = self.unit.amount(apart.bytes);
        let color = self.marks.add(apart.class.as_str(), Some(format!("{}: {amount}", apart.label)));
        self.rect(color, (start, end), (top, bottom));
        if self.layout.labelled && bar.total() <= bar.capacity {
            self.label(apart, &amount, (start, end), (top + bottom) / 2.);
        }
    }

    /// Name and amount inside a stretch, where they fit.
    fn label(&self, segment: &Segment, amount: &str, (start, end): (f64, f64), middle: f64) {
        let x = (start + end) / 2.;
        let room = self.length(Bytes((end - start) as u64)) - 12.;
        let class = format!("label {}", segment.class);
        let named = text_width(segment.label, TEXT) <= room;
        if named && text_width(amount, TEXT) <= room {
            self.text(segment.label, &class, self.at(x, middle - 8.), (HPos::Center, VPos::Center));
            self.text(amount, &class, self.at(x, middle + 8.), (HPos::Center, VPos::Center));
        } else if text_width(amount, TEXT) <= room {
            self.text(amount, &class, self.at(x, middle), (HPos::Center, VPos::Center));
        }
    }

    /// How much is left, inside the free stretch: what the page is called after.
    fn free(&self, bar: &Bar, start: f64, middle: f64) {
        let left = bar.capacity.saturating_sub(bar.total());
        let room = self.length(left) - 16.;
        let (amount, x) = (self.unit.amount(left), (start + bar.capacity.0 as f64) / 2.);
        if text_width("headroom", TEXT).max(text_width(&amount, TEXT)) <= room {
            self.text("headroom", "free", self.at(x, middle - 8.), (HPos::Center, VPos::Center));
            self.text(&amount, "free", self.at(x, middle + 8.), (HPos::Center, VPos::Center));
        }
    }

    fn capacity(&self, bar: &Bar, y: f64, named: bool) {
        let x = bar.capacity.0 as f64;
        let line = self.marks.add("capacity", None);
        let air = f64::from(self.layout.gap) / 2.;
        self.line(line, x, (y - air.max(4.), y + f64::from(self.layout.bar) + air.max(4.)));
        if named && self.layout.labelled {
            let place = if bar.apart.is_some() { "of the card left" } else { "on the card" };
            let text = format!("{} {place}", self.unit.amount(bar.capacity));
            let room_left = self.length(bar.capacity);
            let anchor = if room_left < text_width(&text, TEXT) { HPos::Left } else { HPos::Right };
            self.text(&text, "capacity-name", self.at(x, -8.), (anchor, VPos::Bottom));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAYOUT: Layout =
        Layout { width: 800, bar: 40, gap: 8, names: 0, amounts: 0, labelled: true, stretched: false };

    fn bar(gib: &[u64], capacity: u64) -> Bar {
        let segments = gib
            .iter()
            .map(|n| Segment { class: format!("part-{n}"), label: "Part", bytes: Bytes(n << 30) })
            .collect();
        Bar { name: "A <b>".into(), segments, capacity: Bytes(capacity << 30), apart: None, faded: false }
    }

    #[test]
    fn what_others_have_stands_behind_what_is_left() {
        let vllm = Segment { class: "apart".into(), label: "vLLM", bytes: Bytes(8 << 30) };
        let svg = draw(&[Bar { apart: Some(vllm), ..bar(&[6, 2], 16) }], Unit::Binary, LAYOUT, "x");
        assert!(svg.contains("class=\"apart\"") && svg.contains(">vLLM<"), "{svg}");
        assert!(svg.contains(">16.0 GiB of the card left<") && svg.contains(">8.00 GiB<"), "{svg}");
    }

    #[test]
    fn a_fitting_bar_says_what_is_free() {
        let svg = draw(&[bar(&[6, 2], 24)], Unit::Binary, LAYOUT, "x");
        assert!(svg.contains(">headroom<") && svg.contains(">16.0 GiB<"), "{svg}");
        assert!(svg.contains(">24.0 GiB on the card<"), "{svg}");
        assert!(svg.contains("<title>Part: 6.00 GiB, 75 % (6,442,450,944 bytes)</title>"), "{svg}");
        assert!(!svg.contains("class=\"over\""), "{svg}");
    }

    #[test]
    fn a_bar_beyond_the_card_is_marked() {
        let svg = draw(&[bar(&[6, 22], 24)], Unit::Binary, LAYOUT, "x");
        assert!(svg.contains("class=\"over\"") && !svg.contains("headroom<"), "{svg}");
    }

    /// The first answer is drawn before anybody knows how wide it will be.
    #[test]
    fn a_stretched_drawing_has_its_bars_where_they_are_at_any_width() {
        let drawn = |width: u32| {
            let layout = Layout { width, names: 40, amounts: 80, labelled: false, stretched: true, ..LAYOUT };
            draw(&[bar(&[6, 18], 24)], Unit::Binary, layout, "x")
        };
        let svg = drawn(800);
        assert!(svg.starts_with("<svg class=\"names-40\" width=\"100%\" height=\"66\""), "{svg}");
        assert!(svg.contains("x=\"0%\" y=\"4\" width=\"24.6"), "{svg}");
        // names and amounts keep their distance
        assert!(svg.contains("x=\"-40\"") && svg.contains("x=\"100%\" dx=\"80\""), "{svg}");
        let starts = |svg: &str| {
            let rest =
                svg.split("class=\"part part-18\" x=\"").nth(1).and_then(|rest| rest.split('%').next());
            rest.and_then(|share| share.parse::<f64>().ok()).expect("a share")
        };
        assert!((starts(&svg) - starts(&drawn(1000))).abs() < 0.1, "{svg}");
    }

    #[test]
    fn stretches_follow_each_other() {
        let svg = draw(&[bar(&[6, 18], 24)], Unit::Binary, LAYOUT, "x");
        let of = |class: &str| {
            let at = svg.find(class).expect(class);
            let number = |key: &str| {
                let rest = &svg[at..][svg[at..].find(key).expect(key) + key.len()..];
                rest[..rest.find('"').expect("a closing quote")].parse::<f64>().expect("a number")
            };
            (number(" x=\""), number(" width=\""))
        };
        let (first, second) = (of("part part-6"), of("part part-18"));
        assert_eq!(first.0, 0.);
        assert!((first.0 + first.1 - second.0).abs() < 0.5, "{svg}");
        assert!((second.1 / first.1 - 3.).abs() < 0.02, "{svg}");
    }

    #[test]
    fn extremes_are_drawn() {
        let layout = Layout { names: 40, amounts: 80, ..LAYOUT };
        for bars in [vec![], vec![bar(&[], 0)], vec![bar(&[u64::MAX >> 30; 3], 24), bar(&[0, 1], 0)]] {
            for width in [0, 1, 50, 4000] {
                let svg = draw(&bars, Unit::Decimal, Layout { width, ..layout }, "a \"b\"");
                assert!(svg.ends_with("</svg>") && !svg.contains("NaN") && !svg.contains("<b>"), "{svg}");
            }
        }
    }

    #[test]
    fn labels_stay_clear_of_the_end_of_the_card() {
        assert_eq!(clear_of(8., 2., 6.), [2., 6.]);
        assert_eq!(clear_of(5., 2., 6.), [2., 5.]);
        assert_eq!(clear_of(3., 2., 6.), [3., 6.]);
    }
}
