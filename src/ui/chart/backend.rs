//! A plotters backend that writes SVG with classes instead of colours: the theme is the style sheet's business, a
//! change of theme redraws nothing, and the layout is the same natively as in the browser.

use std::cell::RefCell;
use std::convert::Infallible;
use std::fmt::Write;

use crate::ui::markup::{Escaped, plain};
use crate::units::shortest;
use plotters::style::RGBColor;
use plotters_backend::text_anchor::{HPos, VPos};
use plotters_backend::{
    BackendColor, BackendCoord, BackendStyle, BackendTextStyle, DrawingBackend, DrawingErrorKind,
};

/// Plotters counts in whole pixels; drawing four times as large keeps quarters of one.
pub const SCALE: i32 = 4;

/// What a shape is: its classes in the style sheet, and what a pointer that rests on it is told.
struct Mark {
    class: String,
    title: Option<String>,
}

/// The marks of one drawing. Plotters hands styles through as colours, so a colour carries the number of a mark.
#[derive(Default)]
pub struct Marks(RefCell<Vec<Mark>>);

impl Marks {
    /// Adds a mark and gives the colour that stands for it.
    pub fn add(&self, class: impl Into<String>, title: Option<String>) -> RGBColor {
        let mut marks = self.0.borrow_mut();
        let number = u16::try_from(marks.len()).unwrap_or(u16::MAX);
        marks.push(Mark { class: class.into(), title });
        let [high, low] = number.to_be_bytes();
        RGBColor(high, low, 0)
    }
}

/// An SVG in the making.
pub struct Svg<'a> {
    body: &'a mut String,
    marks: &'a Marks,
    size: (u32, u32),
    /// Where what stretches with the drawing begins and ends, in CSS pixels; nothing does without.
    stretched: Option<(f64, f64)>,
}

impl<'a> Svg<'a> {
    /// A drawing of so many CSS pixels; its elements are appended to `body`.
    pub fn new(body: &'a mut String, marks: &'a Marks, (width, height): (u32, u32)) -> Svg<'a> {
        let scale = SCALE.unsigned_abs();
        let size = (width.saturating_mul(scale), height.saturating_mul(scale));
        Svg { body, marks, size, stretched: None }
    }

    /// The same as wide as its box, whatever that is: places between these two are written as shares of what is between them, from
    /// where the first is; what is beyond keeps its distance. Rectangles, lines across and texts, but no shapes.
    pub fn stretched(self, from: u32, to: u32) -> Svg<'a> {
        Svg { stretched: Some((f64::from(from), f64::from(to))), ..self }
    }

    /// A length across.
    fn wide(&self, pixels: f64) -> String {
        match self.stretched {
            Some((from, to)) => format!("{}%", written(pixels / (to - from).max(1.) * 100.)),
            None => written(pixels),
        }
    }

    /// A place across.
    fn across(&self, pixels: f64) -> String {
        match self.stretched {
            Some((_, to)) if pixels > to => format!("100%\" dx=\"{}", written(pixels - to)),
            Some((from, _)) if pixels < from => written(pixels - from),
            Some((from, _)) => self.wide(pixels - from),
            None => written(pixels),
        }
    }

    fn element(&mut self, name: &str, attributes: std::fmt::Arguments<'_>, color: BackendColor, text: &str) {
        let marks = self.marks.0.borrow();
        let number = usize::from(u16::from_be_bytes([color.rgb.0, color.rgb.1]));
        let Some(Mark { class, title }) = marks.get(number) else { return };
        // Writing to a string cannot fail.
        let _ = write!(self.body, "<{name} class=\"{class}\" {attributes}>{}", Escaped(&plain(text)));
        if let Some(title) = title {
            let _ = write!(self.body, "<title>{}</title>", Escaped(&plain(title)));
        }
        let _ = write!(self.body, "</{name}>");
    }

    fn points(points: impl IntoIterator<Item = BackendCoord>) -> String {
        let mut text = String::new();
        for (x, y) in points {
            let _ = write!(text, "{},{} ", written(pixels(x)), written(pixels(y)));
        }
        text
    }
}

/// The width of a text in CSS pixels, close enough to decide whether it fits: measuring in the page would force a
/// layout for every label.
pub fn text_width(text: &str, size: f64) -> f64 {
    let em: f64 = text
        .chars()
        .map(|c| match c {
            'i' | 'j' | 'l' | 'I' | '.' | ',' | ':' | '\'' | '|' => 0.29,
            ' ' | 'f' | 'r' | 't' | '-' | '(' | ')' => 0.36,
            'm' | 'w' | 'M' | 'W' | '%' => 0.87,
            'A'..='Z' => 0.68,
            _ => 0.6,
        })
        .sum();
    em * size
}

fn pixels(units: i32) -> f64 {
    f64::from(units) / f64::from(SCALE)
}

/// A number of pixels as it is written into the drawing.
fn written(pixels: f64) -> String {
    shortest(pixels, 2)
}

type Drawn = Result<(), DrawingErrorKind<Infallible>>;

impl DrawingBackend for Svg<'_> {
    type ErrorType = Infallible;

    fn get_size(&self) -> (u32, u32) {
        self.size
    }

    fn ensure_prepared(&mut self) -> Drawn {
        Ok(())
    }

    fn present(&mut self) -> Drawn {
        Ok(())
    }

    fn draw_pixel(&mut self, point: BackendCoord, color: BackendColor) -> Drawn {
        self.draw_rect(point, (point.0 + 1, point.1 + 1), &color, true)
    }

    fn draw_line<S: BackendStyle>(&mut self, from: BackendCoord, to: BackendCoord, style: &S) -> Drawn {
        let [x1, x2] = [from.0, to.0].map(|units| self.across(pixels(units)));
        let [y1, y2] = [from.1, to.1].map(|units| written(pixels(units)));
        self.element(
            "line",
            format_args!("x1=\"{x1}\" y1=\"{y1}\" x2=\"{x2}\" y2=\"{y2}\""),
            style.color(),
            "",
        );
        Ok(())
    }

    fn draw_rect<S: BackendStyle>(
        &mut self,
        upper_left: BackendCoord,
        bottom_right: BackendCoord,
        style: &S,
        _fill: bool,
    ) -> Drawn {
        let (x, y) = (self.across(pixels(upper_left.0)), written(pixels(upper_left.1)));
        let size = [bottom_right.0.saturating_sub(upper_left.0), bottom_right.1.saturating_sub(upper_left.1)];
        let [width, height] = size.map(|units| pixels(units.max(0)));
        let (width, height) = (self.wide(width), written(height));
        self.element(
            "rect",
            format_args!("x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\""),
            style.color(),
            "",
        );
        Ok(())
    }

    fn draw_path<S: BackendStyle, I: IntoIterator<Item = BackendCoord>>(
        &mut self,
        path: I,
        style: &S,
    ) -> Drawn {
        let path: Vec<BackendCoord> = path.into_iter().collect();
        match path[..] {
            [from, to] => self.draw_line(from, to, style),
            _ => {
                self.element("polyline", format_args!("points=\"{}\"", Svg::points(path)), style.color(), "");
                Ok(())
            }
        }
    }

    fn fill_polygon<S: BackendStyle, I: IntoIterator<Item = BackendCoord>>(
        &mut self,
        vertices: I,
        style: &S,
    ) -> Drawn {
        self.element("polygon", format_args!("points=\"{}\"", Svg::points(vertices)), style.color(), "");
        Ok(())
    }

    fn draw_text<S: BackendTextStyle>(&mut self, text: &str, style: &S, at: BackendCoord) -> Drawn {
        let anchor = style.anchor();
        let horizontal = match anchor.h_pos {
            HPos::Left => "start",
            HPos::Center => "middle",
            HPos::Right => "end",
        };
        let drop = match anchor.v_pos {
            VPos::Top => 0.75,
            VPos::Center => 0.35,
            VPos::Bottom => 0.,
        };
        let size = style.size() / f64::from(SCALE);
        let x = self.across(pixels(at.0));
        let [y, size] = [pixels(at.1) + drop * size, size].map(written);
        self.element(
            "text",
            format_args!("x=\"{x}\" y=\"{y}\" font-size=\"{size}\" text-anchor=\"{horizontal}\""),
            style.color(),
            text,
        );
        Ok(())
    }

    fn estimate_text_size<S: BackendTextStyle>(
        &self,
        text: &str,
        style: &S,
    ) -> Result<(u32, u32), DrawingErrorKind<Infallible>> {
        Ok((text_width(text, style.size()) as u32, style.size() as u32))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_models_cannot_break_the_drawing() {
        let marks = Marks::default();
        let color = marks.add("part", Some("a<b & \"c\"".into()));
        let mut body = String::new();
        let drawn = Svg::new(&mut body, &marks, (10, 10)).draw_rect((0, 2), (8, 6), &color, true);
        assert!(drawn.is_ok());
        assert_eq!(
            body,
            "<rect class=\"part\" x=\"0\" y=\"0.5\" width=\"2\" height=\"1\">\
             <title>a&lt;b &amp; &quot;c&quot;</title></rect>"
        );
    }

    #[test]
    fn every_mark_is_found_again() {
        let marks = Marks::default();
        let colors: Vec<RGBColor> = (0..600).map(|n| marks.add(format!("m{n}"), None)).collect();
        for (n, color) in colors.iter().enumerate() {
            let mut body = String::new();
            assert!(Svg::new(&mut body, &marks, (9, 9)).draw_pixel((0, 0), color.color()).is_ok());
            assert!(body.contains(&format!("\"m{n}\"")), "{body}");
        }
    }
}
