//! What charts with an axis of bytes have in common: ticks, lines, names.

use std::fmt::Write;

use plotters::coord::types::RangedCoordf64;
use plotters::prelude::{Cartesian2d, DrawingArea, PathElement, Polygon};
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{Color, FontFamily, IntoFont, RGBColor, TextStyle};

use super::backend::{Marks, SCALE, Svg};
use super::ticks::ticks;
use crate::ui::format::Unit;
use crate::ui::markup::Escaped;
use crate::units::Bytes;

/// Of the whole drawing.
pub const HEIGHT: u32 = 240;
/// Before the drawing, for the ticks.
pub const TICKS: u32 = 52;
/// Of all text.
pub const TEXT: f64 = 11.5;

/// The whole drawing, with its name.
pub fn svg(body: &str, name: &str, width: u32) -> String {
    svg_of(body, name, (width, HEIGHT))
}

/// The same of another height.
pub fn svg_of(body: &str, name: &str, (width, height): (u32, u32)) -> String {
    let mut svg = String::with_capacity(body.len() + 200);
    // Writing to a string cannot fail.
    let _ = write!(
        svg,
        "<svg viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" role=\"img\" \
         aria-label=\"{}\">{body}</svg>",
        Escaped(name),
    );
    svg
}

/// Draws in the coordinates of a chart: bytes upwards.
///
/// The backend writes to a string and cannot fail, so what plotters returns is dropped.
pub struct Pen<'a, 'b> {
    pub area: DrawingArea<Svg<'a>, Cartesian2d<RangedCoordf64, RangedCoordf64>>,
    pub marks: &'b Marks,
}

impl Pen<'_, '_> {
    /// A straight line.
    pub fn line(&self, class: &str, ends: [(f64, f64); 2]) {
        let color = self.marks.add(class, None);
        drop(self.area.draw(&PathElement::new(ends, color)));
    }

    /// A text at a point of the whole drawing.
    pub fn named(&self, class: &str, text: &str, at: (i32, i32), anchor: (HPos, VPos)) {
        let color: RGBColor = self.marks.add(class, None);
        let font = (FontFamily::SansSerif, TEXT * f64::from(SCALE)).into_font();
        let style = TextStyle::from(font).color(&color).pos(Pos::new(anchor.0, anchor.1));
        drop(self.area.strip_coord_spec().draw_text(text, &style, self.within_area(at)));
    }

    /// A shape whose corners are points of the whole drawing.
    pub fn fill(&self, corners: &[(i32, i32)], color: RGBColor) {
        let corners: Vec<_> = corners.iter().map(|point| self.within_area(*point)).collect();
        drop(self.area.strip_coord_spec().draw(&Polygon::new(corners, color.filled())));
    }

    /// A point of the drawing, counted from the corner of the areas.
    fn within_area(&self, at: (i32, i32)) -> (i32, i32) {
        let (left, top) = self.area.get_base_pixel();
        (at.0 - left, at.1 - top)
    }

    /// The axis of bytes, with lines across up to `end`.
    pub fn ticks(&self, most: Bytes, unit: Unit, end: f64) {
        for (y, text) in ticks(most, unit, 4) {
            self.line("grid", [(0., y), (end, y)]);
            let (left, height) = self.area.map_coordinate(&(0., y));
            self.named("tick", &text, (left - 6 * SCALE, height), (HPos::Right, VPos::Center));
        }
    }
}
