//! How far one can go: memory against the sequence length, the micro-batch, the rank or the number of GPUs. A click, a drag or the arrow
//! keys set the value.

use leptos::ev::{KeyboardEvent, PointerEvent};
use leptos::html;
use leptos::prelude::*;

use super::chart::{USUAL_WIDTH, follow_width};
use super::document::Grounds;
use super::rows::{pieces, summed_up};
use crate::plan::Verdict;
use crate::scenario::Method;
use crate::ui::asked::Listed;
use crate::ui::axis::Axis;
use crate::ui::behind::Behind;
use crate::ui::browser;
use crate::ui::chart::curve::{BEYOND, Curve, Frame, draw};
use crate::ui::chart::pen::TICKS;
use crate::ui::controls::{Cell, Row, Table};
use crate::ui::desk::Place;
use crate::ui::format::Unit;
use crate::ui::question::{Answer, Question};
use crate::ui::state::{State, letter};
use crate::units::{Bytes, grouped};

/// What curves answer.
pub const CURVES: &str = "How far can I go?";
/// After the drawing.
const END: f64 = 16.;

/// Where a value lies among stops, in stops: halfway where its logarithm is halfway.
fn place(stops: &[u64], value: u64) -> f64 {
    let log = |value: u64| (value.max(1) as f64).ln();
    let after = stops.iter().position(|stop| *stop >= value);
    match after {
        Some(0) => 0.,
        Some(after) => {
            let (low, high) = (log(stops[after - 1]), log(stops[after]));
            after as f64 - (high - log(value)) / (high - low).max(f64::MIN_POSITIVE)
        }
        None => stops.len().saturating_sub(1) as f64,
    }
}

/// What a stop needs, and whether it gets through.
type Point = Option<(Bytes, Verdict)>;

/// The curves of all scenarios on the page, and the same as a table.
#[component]
pub fn Curves() -> impl IntoView {
    let state = State::of_page();
    let axis = state.asked.axis;
    let label = move |axis: Axis| state.current().scenario.with(|scenario| axis.label(scenario));
    let stops = Memo::new(move |_| state.current().scenario.with(|scenario| axis.get().stops(scenario)));
    let found = pieces(
        state,
        // Another value of the input that is drawn is another place on the same curves.
        move || {
            let (axis, stops) = (axis.get(), stops.get());
            let least = stops.first().copied().unwrap_or(1);
            let scenarios = state.scenarios();
            (axis, stops, scenarios.iter().map(|scenario| axis.at(scenario, least)).collect::<Vec<_>>())
        },
        |(axis, stops, scenarios)| {
            let ask = |scenario, stop: &u64| Question::Point(Box::new(axis.at(scenario, *stop)));
            scenarios.iter().flat_map(|scenario| stops.iter().map(move |stop| ask(scenario, stop))).collect()
        },
        Place::Point,
        |answer| {
            let Answer::Point(point) = answer else { return None };
            Some(point)
        },
    );
    // Of each scenario, stop by stop.
    let points = move || {
        let count = stops.with(Vec::len).max(1);
        found.heard.with(|heard| {
            let known: Vec<Point> = heard.iter().map(|point| point.flatten()).collect();
            known.chunks(count).map(<[Point]>::to_vec).collect::<Vec<_>>()
        })
    };
    // What is far beyond the card would press all that fits flat.
    let count = Memo::new(move |_| {
        let capacity = state.current().scenario.with(|scenario| scenario.gpu().map(|gpu| gpu.memory));
        let count = stops.with(Vec::len);
        match axis.get() {
            Axis::Sequence | Axis::Batch | Axis::Rank => {
                drawn(&points(), count, capacity.unwrap_or_default())
            }
            // more of them need less
            Axis::Gpus => count,
        }
    });
    let now = move || state.current().scenario.with(|scenario| axis.get().get(scenario));
    let set = move |value: u64| {
        let axis = axis.get_untracked();
        if untrack(now) != value {
            state.change(|scenario| axis.set(scenario, value));
        }
    };
    let place_of = NodeRef::<html::Div>::new();
    let width = RwSignal::new(USUAL_WIDTH);
    follow_width(place_of, width);
    let drawing = move || {
        let unit = state.unit();
        let (alone, active) = (state.alone(), state.active.get());
        let curve = |(position, points): (usize, Vec<Point>)| Curve {
            name: if alone { String::new() } else { letter(position).to_owned() },
            points: points.into_iter().take(count.get()).map(|point| point.map(|(bytes, _)| bytes)).collect(),
            position,
            active: position == active,
        };
        let curves: Vec<Curve> = points().into_iter().enumerate().map(curve).collect();
        let written: Vec<String> =
            stops.with(|stops| stops.iter().take(count.get()).map(|stop| grouped(*stop)).collect());
        let name = format!("Memory against {}", label(axis.get()).to_lowercase());
        state.current().answer(|_, memory, gpu| {
            let at = stops.with(|stops| place(stops, now())).min(count.get().saturating_sub(1) as f64);
            let chosen = (at, memory.needed());
            draw(
                &curves,
                &Frame { stops: &written, capacity: gpu.memory, chosen, name: &name },
                unit,
                width.get(),
            )
        })
    };
    let size = move || state.current().scenario.with(|scenario| scenario.lora.tuner.size_word());
    let told = move || {
        summed_up(found.busy, found.stopped, &found.looking("Looking at every value"), || {
            let of = |(position, points): (usize, &Vec<Point>)| {
                let gist = stops.with(|stops| gist((axis.get(), size()), stops, points, state.unit()));
                if state.alone() {
                    return gist;
                }
                let name = state.names.with(|names| names.get(position).cloned()).unwrap_or_default();
                let mut rest = gist.chars();
                let first: String = rest.next().into_iter().flat_map(char::to_lowercase).collect();
                format!("{}, {name}: {first}{}", letter(position), rest.as_str())
            };
            points().iter().enumerate().map(of).collect::<Vec<_>>().join("\n")
        })
    };
    let stop_at = move |event: &PointerEvent| {
        let room = (f64::from(width.get_untracked()) - f64::from(TICKS) - END).max(1.);
        let last = count.get_untracked().saturating_sub(1);
        let index = (f64::from(event.offset_x()) - f64::from(TICKS)) / room * last as f64;
        stops.with_untracked(|stops| stops[(index.round().max(0.) as usize).min(last)])
    };
    let press = move |event: KeyboardEvent| {
        let (now, scale) = (untrack(now) as f64, axis.get_untracked().scale());
        let to = match event.key().as_str() {
            "ArrowLeft" | "ArrowDown" => scale.step(now, false) as u64,
            "ArrowRight" | "ArrowUp" => scale.step(now, true) as u64,
            "Home" => stops.with_untracked(|stops| stops.first().copied().unwrap_or(1)),
            "End" => stops.with_untracked(|stops| stops.last().copied().unwrap_or(1)),
            _ => return,
        };
        event.prevent_default();
        set(to);
    };
    let spoken = Signal::derive(move || {
        let unit = state.unit();
        let needed = state.current().answer(|_, memory, _| unit.amount(memory.needed())).unwrap_or_default();
        format!("{}, {needed}", axis.get().scale().spoken(now() as f64))
    });
    let choice = move |one: Axis| {
        let idle = move || {
            state.current().scenario.with(|scenario| match one {
                Axis::Sequence | Axis::Batch => false,
                Axis::Rank => scenario.method == Method::Full || !scenario.task.trains(),
                Axis::Gpus => !scenario.task.trains(),
            })
        };
        view! {
            <button
                type="button"
                hidden=idle
                aria-pressed=Signal::derive(move || (axis.get() == one).to_string())
                on:click=move |_| axis.set(one)
            >
                {move || label(one)}
            </button>
        }
    };
    let open = RwSignal::new(false);
    let columns = Signal::derive(move || {
        let letters =
            (0..state.count.get()).map(|position| if state.alone() { "Needs" } else { letter(position) });
        [label(axis.get())].into_iter().chain(letters).map(str::to_owned).collect::<Vec<_>>()
    });
    let rows = Signal::derive(move || {
        let (unit, points) = (state.unit(), points());
        let row = |(index, stop): (usize, &u64)| Row {
            head: Cell::amount(grouped(*stop), *stop as f64),
            cells: points.iter().map(|points| cell(points.get(index).copied().flatten(), unit)).collect(),
            ..Row::default()
        };
        stops.with(|stops| stops.iter().enumerate().map(row).collect::<Vec<_>>())
    });
    view! {
        <div class="units" role="group" aria-label="Against">
            {Axis::ALL.map(choice)}
        </div>
        <p class="remark lines">{told}</p>
        <figure class="chart timeline" aria-label=CURVES>
            <div class="drawing" node_ref=place_of inner_html=drawing></div>
            <div
                class="scrubber"
                role="slider"
                tabindex="0"
                aria-label=Signal::derive(move || format!("{} on the curve", label(axis.get())))
                aria-valuemin=Signal::derive(move || stops.with(|stops| stops.first().copied().unwrap_or(1)).to_string())
                aria-valuemax=Signal::derive(move || stops.with(|stops| stops.last().copied().unwrap_or(1)).max(now()).to_string())
                aria-valuenow=Signal::derive(move || now().to_string())
                aria-valuetext=spoken
                on:pointerdown=move |event| {
                    browser::follow_pointer(&event);
                    set(stop_at(&event));
                }
                on:pointermove=move |event| {
                    if event.buttons() == 1 {
                        set(stop_at(&event));
                    }
                }
                on:keydown=press
            ></div>
        </figure>
        <details class="twin" on:toggle=move |_| open.set(true)>
            <summary>"As a table"</summary>
            {move || {
                open.get().then(|| view! { <Table caption="Memory by value" class="measured" listing=state.asked.listing(Listed::Curve) columns=columns rows=rows busy=found.busy stopped=found.stopped /> })
            }}
        </details>
        <Grounds of=Behind::Limits />
    }
}

fn cell(point: Point, unit: Unit) -> Cell {
    match point {
        None => Cell::of("–"),
        Some((bytes, verdict)) => Cell {
            small: verdict.label().to_lowercase(),
            class: verdict.slug(),
            ..Cell::bytes(bytes, unit).judged(verdict.slug())
        },
    }
}

/// How many stops are drawn: up to the first at which nothing comes near its card any more.
fn drawn(points: &[Vec<Point>], count: usize, capacity: Bytes) -> usize {
    let known = points.iter().flatten().flatten().map(|(bytes, _)| *bytes);
    let near = capacity.max(known.min().unwrap_or_default());
    let is_near = |point: &Point| point.is_none_or(|(bytes, _)| (bytes.0 as f64) < near.0 as f64 * BEYOND);
    let last = |points: &Vec<Point>| points.iter().take_while(|point| is_near(point)).count() + 1;
    points.iter().map(last).max().unwrap_or(count).clamp(2, count.max(2)).min(count)
}

/// Up to which value it fits, and what the next needs.
fn gist((axis, size): (Axis, &str), stops: &[u64], points: &[Point], unit: Unit) -> String {
    let holds = |point: &Point| point.is_some_and(|(_, verdict)| verdict.holds());
    let runs = |point: &Point| holds(point) || point.is_some_and(|(_, verdict)| verdict == Verdict::Close);
    let stops_there = |point: &Point| point.is_none_or(|(_, verdict)| verdict == Verdict::WouldNotRun);
    let spoken = |stop: u64| match axis {
        Axis::Sequence | Axis::Batch | Axis::Gpus => axis.scale().spoken(stop as f64),
        Axis::Rank => format!("{size} {}", grouped(stop)),
    };
    if axis == Axis::Gpus {
        // as the fewest GPUs are counted above the curve
        let first = points.iter().position(holds);
        let first = first.and_then(|first| Some((*stops.get(first)?, points[first]?.0)));
        return match first {
            Some((gpus, bytes)) => {
                format!(
                    "Fits on {}, the fewest of these numbers: {} on each.",
                    spoken(gpus),
                    unit.amount(bytes)
                )
            }
            None => {
                format!("Fits on no number of them, up to {}.", spoken(stops.last().copied().unwrap_or(1)))
            }
        };
    }
    // what stops below them, such as a sequence shorter than its prompt, is no end of the card
    let stopping = points.iter().take_while(|point| stops_there(point)).count();
    let from = if points.iter().any(runs) { stopping } else { 0 };
    let (stops, points) = (stops.get(from..).unwrap_or_default(), points.get(from..).unwrap_or_default());
    let fitting = points.iter().take_while(|point| holds(point)).count();
    let running = points.iter().take_while(|point| runs(point)).count();
    let last_of = |count: usize| stops.get(count.checked_sub(1)?).map(|stop| spoken(*stop));
    let last = last_of(fitting);
    let what = match axis {
        Axis::Sequence => "length",
        Axis::Batch => "batch",
        Axis::Rank => size,
        Axis::Gpus => "number",
    };
    let close = last_of(running).filter(|_| running > fitting);
    let close = close.map(|close| format!("; close at {close}")).unwrap_or_default();
    let next = stops.get(running).zip(points.get(running).copied().flatten());
    let beyond = next.map(|(stop, (bytes, verdict))| {
        format!("{} would need {}: {}", spoken(*stop), unit.amount(bytes), verdict.label().to_lowercase())
    });
    match (last, beyond) {
        (Some(last), Some(beyond)) => format!("Fits at {last}{close}; {beyond}."),
        (Some(last), None) if close.is_empty() => format!("Fits at every value, up to {last}."),
        (Some(last), None) => format!("Fits at {last}{close}."),
        (None, Some(beyond)) if close.is_empty() => format!("Fits at no {what}: {beyond}."),
        (None, Some(beyond)) => format!("Fits for certain at no {what}{close}; {beyond}."),
        (None, None) if !close.is_empty() => format!("Fits for certain at no {what}{close}."),
        (None, None) => "There is no answer for this scenario.".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Scenario;

    #[test]
    fn every_axis_is_an_input() {
        for axis in Axis::ALL {
            assert!(!axis.label(&Scenario::default()).is_empty());
            let other = axis.at(&Scenario::default(), 64);
            assert_eq!(axis.get(&other), 64);
            assert!(axis.stops(&other).len() > 5);
        }
    }

    #[test]
    fn values_lie_among_the_stops() {
        let stops = [128, 256, 1024];
        for (value, at) in [(1, 0.), (128, 0.), (256, 1.), (512, 1.5), (1024, 2.), (9999, 2.)] {
            assert!((place(&stops, value) - at).abs() < 1e-9, "{value}");
        }
    }

    #[test]
    fn the_end_of_the_card_is_told() {
        let gist = |axis, stops: &[u64], points: &[Point]| {
            crate::ui::markup::plain(&gist((axis, "rank"), stops, points, Unit::Binary))
        };
        let stops = [1024, 2048, 4096];
        let point = |gib, verdict| Some((Bytes::gib(gib), verdict));
        let points = [point(10., Verdict::Fits), point(12., Verdict::Fits), point(17., Verdict::Over)];
        assert_eq!(
            gist(Axis::Sequence, &stops, &points),
            "Fits at 2,048 tokens; 4,096 tokens would need 17.0 GiB: does not fit."
        );
        let near = [points[0], point(16., Verdict::Close), points[2]];
        assert_eq!(
            gist(Axis::Sequence, &stops, &near),
            "Fits at 1,024 tokens; close at 2,048 tokens; 4,096 tokens would need 17.0 GiB: does not fit."
        );
        assert_eq!(
            gist(Axis::Sequence, &stops, &near[1..2]),
            "Fits for certain at no length; close at 1,024 tokens."
        );
        // a prompt of 512 tokens is no text of 128
        let short = [None, point(9., Verdict::WouldNotRun), points[1], points[2]];
        assert_eq!(
            gist(Axis::Sequence, &[128, 512, 2048, 4096], &short),
            "Fits at 2,048 tokens; 4,096 tokens would need 17.0 GiB: does not fit."
        );
        let rank = gist(Axis::Rank, &stops, &points[..2]);
        assert_eq!(rank, "Fits at every value, up to rank 2,048.");
        let gpus = [point(40., Verdict::Over), point(21., Verdict::Fits), point(12., Verdict::Fits)];
        assert_eq!(
            gist(Axis::Gpus, &[1, 2, 4], &gpus),
            "Fits on 2 GPUs, the fewest of these numbers: 21.0 GiB on each."
        );
        let none = gist(Axis::Gpus, &[1, 2, 4], &gpus[..1]);
        assert_eq!(none, "Fits on no number of them, up to 4 GPUs.");
        let batch = gist(Axis::Batch, &stops, &points[2..]);
        assert!(batch.starts_with("Fits at no batch: 1,024 sequences"), "{batch}");
    }

    #[test]
    fn what_is_far_beyond_the_card_is_not_drawn() {
        let point = |gib| Some((Bytes::gib(gib), Verdict::Fits));
        let points = vec![vec![point(4.), point(8.), point(40.), point(80.)]];
        assert_eq!(drawn(&points, 4, Bytes::gib(10.)), 3);
        assert_eq!(drawn(&points, 4, Bytes::gib(100.)), 4);
        assert_eq!(drawn(&points, 4, Bytes::gib(1.)), 2, "nowhere near");
        assert_eq!(drawn(&[vec![None; 4]], 4, Bytes::gib(1.)), 4);
        assert_eq!(drawn(&[], 1, Bytes::gib(1.)), 1);
    }
}
