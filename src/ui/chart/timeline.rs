//! The memory over one step: a stack of areas, from the first operation of the forward pass to the end of the
//! optimizer's.

use plotters::prelude::{ChartBuilder, IntoDrawingArea, PathElement, Polygon};
use plotters::style::Color;
use plotters::style::text_anchor::{HPos, VPos};

use super::backend::{Marks, SCALE, Svg, text_width};
use super::pen::{HEIGHT, Pen, TEXT, TICKS, svg};
use crate::memory::{Category, Parts, in_order};
use crate::step::Moment;
use crate::ui::format::Unit;
use crate::ui::part::Part;
use crate::units::Bytes;

/// Beneath the areas, for the names of the phases.
const PHASES: u32 = 20;
/// After them.
const END: u32 = 1;
/// Above the highest moment, for its name.
const AIR: f64 = 1.14;
/// A card that ends no higher than this above the highest moment is drawn as a line.
const NEAR: f64 = 1.3;

/// The part of the drawing's width that the moments have.
fn room(width: u32) -> f64 {
    f64::from(width.saturating_sub(TICKS + END).max(1))
}

/// Where a moment is, in CSS pixels from the left.
pub fn place(index: usize, count: usize, width: u32) -> f64 {
    f64::from(TICKS) + room(width) * index as f64 / count.saturating_sub(1).max(1) as f64
}

/// The moment that is nearest to a place.
pub fn nearest(x: f64, count: usize, width: u32) -> usize {
    let last = count.saturating_sub(1);
    let index = (x - f64::from(TICKS)) / room(width) * last as f64;
    (index.round().max(0.) as usize).min(last)
}

/// The highest moment; the first where several are as high.
pub fn highest(moments: &[Moment]) -> usize {
    let mut best = (0, Bytes::ZERO);
    for (index, moment) in moments.iter().enumerate() {
        let bytes = moment.parts.total();
        if bytes > best.1 {
            best = (index, bytes);
        }
    }
    best.0
}

/// What moments are drawn against.
#[derive(Clone, Copy)]
pub struct Against<'a> {
    /// The driver's context.
    pub context: Bytes,
    /// How much a program can have of the card.
    pub capacity: Bytes,
    /// What that is of.
    pub place: &'a str,
    /// What is there at every moment and not drawn.
    pub stays: Bytes,
}

impl Against<'_> {
    /// The same above what stays at all of these moments, the context with it, and the moments without that.
    pub fn above_what_stays(self, moments: &[Moment]) -> (Self, Vec<Moment>) {
        let least = |index: usize| moments.iter().map(|moment| moment.parts.0[index]).min().unwrap_or(0);
        let floor: [u64; Category::COUNT] = std::array::from_fn(least);
        let stays = Parts(floor).total() + self.context;
        let above = |moment: &Moment| {
            let mut above = *moment;
            above.parts.0.iter_mut().zip(floor).for_each(|(bytes, floor)| *bytes -= floor);
            above.reserved = (moment.reserved + self.context).saturating_sub(stays);
            above
        };
        (Against { context: Bytes::ZERO, stays, ..self }, moments.iter().map(above).collect())
    }
}

/// Draws the moments of a step against the capacity of its card as an `<svg>` of that width. `measured` is a line over them:
/// where among the moments, and how much was allocated there.
pub fn draw(
    moments: &[Moment],
    measured: &[(f64, Bytes)],
    Against { context, capacity, place, stays }: Against<'_>,
    unit: Unit,
    width: u32,
) -> String {
    let amount = |bytes: Bytes| unit.amount(bytes + stays);
    // a card that ends below what stays ends below the drawing
    let end = capacity.0.checked_sub(stays.0).map(Bytes);
    let marks = Marks::default();
    let mut body = String::new();
    let root = Svg::new(&mut body, &marks, (width, HEIGHT)).into_drawing_area();
    let peak = highest(moments);
    let highest = moments.get(peak).map(|moment| moment.parts.total() + context).unwrap_or_default();
    let reserved = moments.iter().map(|moment| moment.reserved + context).max().unwrap_or_default();
    let measured: Vec<(f64, f64)> =
        measured.iter().map(|(place, bytes)| (*place, (*bytes + context).0 as f64)).collect();
    let seen = measured.iter().fold(0., |most: f64, (_, bytes)| most.max(*bytes));
    let most = highest.max(reserved).max(Bytes(seen as u64));
    // A card far larger than the step would press it flat: then it is only said how far up it ends.
    let line = end.filter(|end| end.0 as f64 <= most.0 as f64 * NEAR);
    let most = line.map_or(most, |line| most.max(line));
    let area = ChartBuilder::on(&root)
        .margin_top(6 * SCALE)
        .margin_bottom(PHASES as i32 * SCALE)
        .margin_left(TICKS as i32 * SCALE)
        .margin_right(END as i32 * SCALE)
        .build_cartesian_2d(0_f64..moments.len().max(2) as f64 - 1., 0_f64..most.0 as f64 * AIR + 1.)
        .map(|chart| chart.plotting_area().clone());
    if let Ok(area) = area {
        let pen = Pen { area, marks: &marks };
        pen.ticks(most, unit, moments.len() as f64);
        pen.areas(moments, context);
        pen.reserved(moments, context);
        let mut taken = Vec::new();
        if !measured.is_empty() {
            let color = marks.add("measured-line", None);
            drop(pen.area.draw(&PathElement::new(measured, color)));
        }
        pen.phases(moments, context);
        if !moments.is_empty() {
            taken.push(pen.peak(peak, moments.len(), highest, format!("peak {}", amount(highest))));
        }
        let told = unit.amount(capacity);
        let (height, side, text) = if let Some(line) = line {
            let y = line.0 as f64;
            pen.line("capacity", [(0., y), (moments.len() as f64, y)]);
            let (_, height) = pen.area.map_coordinate(&(0., y));
            (height - 4 * SCALE, VPos::Bottom, format!("{told} {place}"))
        } else {
            let way = if end.is_some() { '↑' } else { '↓' };
            (4 * SCALE, VPos::Top, format!("{way} the card ends at {told}"))
        };
        if line.is_some() || !moments.is_empty() {
            // at the end, or where the peak's name stands there at the beginning
            let (left, _) = pen.area.map_coordinate(&(0., 0.));
            let ends = [(width as i32 * SCALE, HPos::Right), (left + 4 * SCALE, HPos::Left)];
            let [at_end, at_start] =
                ends.map(|(x, end)| Name { text: text.clone(), at: (x, height), anchor: (end, side) });
            let is_free = !taken.iter().any(|name| at_end.frame().meets(name));
            taken.push(if is_free { at_end } else { at_start }.write(&pen, "capacity-name"));
        }
        if !moments.is_empty() {
            let words =
                if reserved + stays > capacity { "PyTorch would reserve" } else { "PyTorch reserves" };
            pen.name_reserved(moments, reserved, context, words, &taken);
        }
    }
    drop(root);
    let name = format!("Memory from the beginning of a step to its end; it peaks at {}", amount(highest));
    svg(&body, &name, width)
}

/// A text, the point of the whole drawing that it stands at, and which side of it is there.
struct Name {
    text: String,
    at: (i32, i32),
    anchor: (HPos, VPos),
}

/// The room that a text takes of the whole drawing.
#[derive(Clone, Copy)]
struct Frame {
    left: i32,
    right: i32,
    top: i32,
    bottom: i32,
}

impl Name {
    fn frame(&self) -> Frame {
        let size = |pixels: f64| (pixels * f64::from(SCALE)) as i32;
        let (wide, high) = (size(text_width(&self.text, TEXT)), size(TEXT));
        let left = match self.anchor.0 {
            HPos::Left => self.at.0,
            HPos::Center => self.at.0 - wide / 2,
            HPos::Right => self.at.0 - wide,
        };
        let top = match self.anchor.1 {
            VPos::Top => self.at.1,
            VPos::Center => self.at.1 - high / 2,
            VPos::Bottom => self.at.1 - high,
        };
        Frame { left, right: left + wide, top, bottom: top + high }
    }

    fn write(self, pen: &Pen<'_, '_>, class: &str) -> Frame {
        pen.named(class, &self.text, self.at, (self.anchor.0, self.anchor.1));
        self.frame()
    }
}

impl Frame {
    /// Whether two stand on each other, or with less than a space between.
    fn meets(&self, other: &Frame) -> bool {
        let gap = 4 * SCALE;
        self.left < other.right + gap
            && other.left < self.right + gap
            && self.top < other.bottom
            && other.top < self.bottom
    }
}

impl Pen<'_, '_> {
    /// The highest moment, with its name beside it; says where that is.
    fn peak(&self, index: usize, count: usize, bytes: Bytes, text: String) -> Frame {
        let (x, y) = self.area.map_coordinate(&(index as f64, bytes.0 as f64));
        let size = 4 * SCALE;
        let color = self.marks.add("peak", None);
        let flag = [(x, y - SCALE), (x - size, y - SCALE - 2 * size), (x + size, y - SCALE - 2 * size)];
        self.fill(&flag, color);
        let before = index * 2 > count;
        let (side, anchor) = if before { (-1, HPos::Right) } else { (1, HPos::Left) };
        let at = (x + side * 2 * size, y - SCALE - size);
        Name { text, at, anchor: (anchor, VPos::Center) }.write(self, "peak-name")
    }

    fn areas(&self, moments: &[Moment], context: Bytes) {
        let mut floor = vec![0_u64; moments.len()];
        for part in [Part::Context].into_iter().chain(Part::all().filter(|part| *part != Part::Context)) {
            let bytes = |moment: &Moment| match part {
                Part::Tensors(category) => moment.parts.get(category).0,
                Part::Context => context.0,
            };
            if moments.iter().all(|moment| bytes(moment) == 0) {
                continue;
            }
            let ceiling: Vec<u64> = moments
                .iter()
                .zip(&floor)
                .map(|(moment, floor)| floor.saturating_add(bytes(moment)))
                .collect();
            let mut outline = self.edge(&ceiling);
            outline.extend(self.edge(&floor).into_iter().rev());
            let color = self.marks.add(format!("area part {}", part.class()), None);
            drop(self.area.draw(&Polygon::new(outline, color.filled())));
            floor = ceiling;
        }
    }

    /// What the allocator has of the card, above what is handed out.
    fn reserved(&self, moments: &[Moment], context: Bytes) {
        let heights: Vec<u64> = moments.iter().map(|moment| (moment.reserved + context).0).collect();
        let color = self.marks.add("reserved", None);
        drop(self.area.draw(&PathElement::new(self.edge(&heights), color)));
    }

    /// The name of that line, where it is highest: above it or beneath it, before or behind, wherever no other name stands.
    fn name_reserved(&self, moments: &[Moment], most: Bytes, context: Bytes, words: &str, taken: &[Frame]) {
        let is_highest = |moment: &Moment| moment.reserved + context == most;
        let ends = [moments.iter().position(is_highest), moments.iter().rposition(is_highest)];
        let [Some(first), Some(last)] = ends else { return };
        let place = |index: usize| self.area.map_coordinate(&(index as f64, most.0 as f64));
        let ((from, y), (to, _)) = (place(first), place(last));
        let gap = 4 * SCALE;
        let places = [(y - gap, VPos::Bottom), (y + gap, VPos::Top)]
            .into_iter()
            .flat_map(|(y, side)| [((from, y), HPos::Left, side), ((to, y), HPos::Right, side)]);
        let mut names =
            places.map(|(at, end, side)| Name { text: words.to_owned(), at, anchor: (end, side) });
        let (left, right) = (self.area.map_coordinate(&(0., 0.)).0, place(moments.len() - 1).0);
        let is_free = |name: &Name| {
            let frame = name.frame();
            frame.left >= left && frame.right <= right && !taken.iter().any(|other| frame.meets(other))
        };
        if let Some(name) = names.find(is_free) {
            name.write(self, "reserved-name");
        }
    }

    /// A line through heights, without the points between two that are as high.
    fn edge(&self, heights: &[u64]) -> Vec<(f64, f64)> {
        let drawn: Vec<i32> =
            heights.iter().map(|bytes| self.area.map_coordinate(&(0., *bytes as f64)).1).collect();
        let last = heights.len().saturating_sub(1);
        let is_corner = |index: usize| {
            index == 0
                || index == last
                || drawn[index - 1] != drawn[index]
                || drawn[index + 1] != drawn[index]
        };
        let points = heights.iter().enumerate().filter(|(index, _)| is_corner(*index));
        points.map(|(index, bytes)| (index as f64, *bytes as f64)).collect()
    }

    /// The names of the phases, and where one ends: no higher than the moments beside it, of which the peak may be one.
    fn phases(&self, moments: &[Moment], context: Bytes) {
        let height = |moment: usize| (moments[moment].parts.total() + context).0 as f64;
        for phase in in_order(moments.iter().map(|moment| moment.phase)) {
            let of_phase = |moment: &Moment| moment.phase == phase;
            let (Some(first), Some(last)) =
                (moments.iter().position(of_phase), moments.iter().rposition(of_phase))
            else {
                continue;
            };
            if first > 0 {
                let top = height(first - 1).min(height(first));
                self.line("border", [(first as f64, 0.), (first as f64, top)]);
            }
            let name = phase.stage.short();
            let (from, floor) = self.area.map_coordinate(&(first as f64, 0.));
            let (to, _) = self.area.map_coordinate(&(last as f64, 0.));
            if f64::from((to - from) / SCALE) > text_width(name, TEXT) {
                self.named("tick", name, ((from + to) / 2, floor + 6 * SCALE), (HPos::Center, VPos::Top));
            } else if first == 0 {
                // few moments, of which the first may be the highest
                self.named("tick", name, (from, floor + 6 * SCALE), (HPos::Left, VPos::Top));
            } else if last + 1 == moments.len() {
                self.named("tick", name, (to, floor + 6 * SCALE), (HPos::Right, VPos::Top));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Scenario;
    use crate::ui::detail::Detail;

    fn against(context: Bytes, capacity: Bytes) -> Against<'static> {
        Against { context, capacity, place: "on the card", stays: Bytes::ZERO }
    }

    #[test]
    fn what_stays_is_left_out_and_told() {
        let moments = Detail::of(&Scenario::default()).expect("an answer").moments;
        let whole = against(Bytes::mib(500), Bytes::gib(14.));
        let (above, changing) = whole.above_what_stays(&moments);
        assert!(above.stays > Bytes::gib(1.), "{:?}", above.stays);
        for (moment, change) in moments.iter().zip(&changing) {
            assert_eq!(moment.parts.total() + whole.context, change.parts.total() + above.stays);
            assert_eq!(moment.reserved + whole.context, change.reserved + above.stays);
        }
        // some moment has none of what comes and goes of each kind
        assert_eq!(
            (0..Category::COUNT).map(|index| changing.iter().map(|moment| moment.parts.0[index]).min()).max(),
            Some(Some(0))
        );
        let peak = |against, moments: &[Moment]| {
            let svg = draw(moments, &[], against, Unit::Binary, 800);
            let at = svg.find(">peak ").expect("a peak");
            svg[at..].split('<').next().map(str::to_owned)
        };
        assert_eq!(peak(above, &changing), peak(whole, &moments));
        // what stays is more than this card has: its size is told all the same
        let (above, changing) = against(Bytes::mib(500), Bytes::gib(1.)).above_what_stays(&moments);
        let svg = draw(&changing, &[], above, Unit::Binary, 800);
        assert!(svg.contains("↓ the card ends at 1.00 GiB") && !svg.contains("class=\"capacity\""), "{svg}");
        assert!(svg.contains(">PyTorch would reserve<"), "{svg}");
    }

    #[test]
    fn the_phases_of_a_step_follow_each_other() {
        let detail = Detail::of(&Scenario::default()).expect("an answer");
        let svg = draw(
            &detail.moments,
            &[(0., Bytes::gib(1.)), (9.5, Bytes::gib(2.))],
            against(Bytes::mib(500), Bytes::gib(14.)),
            Unit::Binary,
            800,
        );
        let at = |text: &str| svg.find(text).unwrap_or_else(|| panic!("{text} is missing"));
        assert!(at(">Forward<") < at(">Backward<"));
        for class in [
            "measured-line",
            "area part part-weights",
            "part part-activations",
            "part part-context",
            "class=\"capacity\"",
        ] {
            at(class);
        }
        assert!(!svg.contains("NaN"));
    }

    #[test]
    fn extremes_are_drawn() {
        for width in [0, 1, 60, 4000] {
            for capacity in [Bytes(0), Bytes(u64::MAX)] {
                let svg = draw(&[], &[(0., capacity)], against(Bytes::ZERO, capacity), Unit::Decimal, width);
                assert!(svg.ends_with("</svg>") && !svg.contains("NaN"), "{svg}");
            }
        }
    }

    #[test]
    fn places_and_moments_find_each_other() {
        for (count, width) in [(1, 300), (2, 720), (401, 333)] {
            for index in 0..count {
                assert_eq!(nearest(place(index, count, width), count, width), index);
            }
        }
        assert_eq!(nearest(-50., 10, 300), 0);
        assert_eq!(nearest(9000., 10, 300), 9);
        assert_eq!(nearest(10., 0, 0), 0);
    }

    #[test]
    fn the_peak_is_marked_and_the_card_is_told() {
        let detail = Detail::of(&Scenario::default()).expect("an answer");
        let peak = detail.memory.steady.highest().1.bytes;
        assert_eq!(detail.moments[highest(&detail.moments)].parts.total(), peak);
        let of = |gib| draw(&detail.moments, &[], against(Bytes::ZERO, Bytes::gib(gib)), Unit::Binary, 800);
        let far = of(80.);
        assert!(far.contains("class=\"peak\"") && far.contains(">peak 1"), "{far}");
        assert!(far.contains("the card ends at 80.0 GiB") && !far.contains("class=\"capacity\""));
        assert!(of(12.).contains("class=\"capacity\""));
        // each line says what it is, at a phone's width too
        for width in [250, 330, 800] {
            for (gib, words) in [(80., ">PyTorch reserves<"), (12., ">PyTorch would reserve<")] {
                let capacity = against(Bytes::ZERO, Bytes::gib(gib));
                let svg = draw(&detail.moments, &[], capacity, Unit::Binary, width);
                assert!(svg.contains(words), "{gib} GiB, {width} wide: {svg}");
            }
        }
    }
}
