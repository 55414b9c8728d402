//! What a memory snapshot of PyTorch says: the bytes that were allocated and reserved, event by event, and which stretch of
//! them is most like a step.
//!
//! `torch.cuda.memory._record_memory_history()` and, after some steps, `torch.cuda.memory._dump_snapshot("snapshot.pickle")`
//! write such a file.

mod pickle;

use std::fmt;
use std::ops::Range;

use crate::units::Bytes;
use pickle::{Pickle, Value};

/// Why a file is no snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TraceError {
    /// It ends in the middle of something.
    EndsEarly,
    /// What stands before that byte is none of what snapshots are made of.
    NotUnderstood(usize),
    /// It has more values than a page can hold.
    TooLarge,
    /// It is a pickle of something else.
    NoSnapshot,
    /// It is a snapshot without a history.
    NoHistory,
}

impl fmt::Display for TraceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TraceError::EndsEarly => f.write_str("the file ends early: copy the whole of it"),
            TraceError::NotUnderstood(at) => {
                write!(f, "this is no pickled snapshot (byte {at}): torch.cuda.memory._dump_snapshot() writes one")
            }
            TraceError::TooLarge => {
                f.write_str("this snapshot has too many entries: record fewer with _record_memory_history(max_entries=100000)")
            }
            TraceError::NoSnapshot => {
                f.write_str("this pickle is no memory snapshot: torch.cuda.memory._dump_snapshot() writes one")
            }
            TraceError::NoHistory => f.write_str(
                "this snapshot has no history: call torch.cuda.memory._record_memory_history() before the steps that it should hold",
            ),
        }
    }
}

impl std::error::Error for TraceError {}

/// The bytes after each event in which a block came or went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    /// What tensors had asked for.
    pub allocated: Vec<Bytes>,
    /// What PyTorch had taken from the driver.
    pub reserved: Vec<Bytes>,
}

impl Trace {
    /// Reads a snapshot; of several GPUs the one on which most happened.
    ///
    /// # Errors
    /// Where the file is none, or has no history.
    ///
    /// ```
    /// use headroom::{allocator::Settings, export, scenario::Scenario, step::Recording, trace::Trace};
    /// let scenario = Scenario::default();
    /// let (model, gpu) = (scenario.architecture().unwrap(), scenario.gpu().unwrap());
    /// let recording = Recording::of(&model, &scenario, &gpu).unwrap();
    /// let file = export::memory_viz(&recording.snapshot(Settings::default()));
    /// assert!(Trace::read(&file).unwrap().peak().as_gib() > 10.);
    /// assert!(Trace::read(b"{}").is_err());
    /// ```
    pub fn read(file: &[u8]) -> Result<Trace, TraceError> {
        let (pickle, root) = pickle::read(file)?;
        let traces = pickle.get(root, "device_traces").ok_or(TraceError::NoSnapshot)?;
        let devices = pickle.items(traces).iter().enumerate();
        let (device, events) = devices
            .map(|(device, trace)| (device, pickle.items(*trace)))
            .max_by_key(|(_, events)| events.len())
            .ok_or(TraceError::NoHistory)?;
        let changes: Vec<Change> = events.iter().filter_map(|event| Change::of(&pickle, *event)).collect();
        if changes.is_empty() {
            return Err(TraceError::NoHistory);
        }
        // What there was before the history is what is there at its end less all that came.
        let (mut allocated, mut reserved) = at_the_end(&pickle, root, device as u64);
        let mut trace = Trace { allocated: Vec::new(), reserved: Vec::new() };
        for change in changes.iter().rev() {
            match change {
                Change::Allocated(_) => {
                    trace.allocated.push(bytes(allocated));
                    trace.reserved.push(bytes(reserved));
                }
                Change::Reserved(_) => {}
            }
            match change {
                Change::Allocated(by) => allocated = allocated.saturating_sub(*by),
                Change::Reserved(by) => reserved = reserved.saturating_sub(*by),
            }
        }
        trace.allocated.reverse();
        trace.reserved.reverse();
        Ok(trace)
    }

    /// The most that was allocated.
    pub fn peak(&self) -> Bytes {
        self.allocated.iter().copied().max().unwrap_or_default()
    }

    /// The stretch that is most like a step of those heights, of as many events.
    pub fn most_like(&self, step: &[Bytes]) -> Range<usize> {
        let events = step.len().min(self.allocated.len());
        let last = self.allocated.len() - events;
        let wanted = highest(&step[..events]);
        let distance = |from: usize| {
            let own = highest(&self.allocated[from..from + events]);
            let apart = own.iter().zip(&wanted).map(|(one, other)| one.0.abs_diff(other.0) as f64);
            apart.fold(0., |sum, apart| sum + apart)
        };
        let stride = (last / PLACES).max(1);
        let coarse = closest((0..=last).step_by(stride), distance);
        let around = coarse.saturating_sub(stride)..=(coarse + stride).min(last);
        let from = closest(around.step_by((stride / PLACES_BETWEEN).max(1)), distance);
        from..from + events
    }
}

/// The highest of each of some hundred parts of a stretch.
fn highest(heights: &[Bytes]) -> Vec<Bytes> {
    let part = heights.len().div_ceil(PARTS).max(1);
    heights.chunks(part).filter_map(|part| part.iter().copied().max()).collect()
}

/// In how many parts two stretches are compared.
const PARTS: usize = 200;

/// How many places of a trace are compared with a step, and how many between the closest two.
const PLACES: usize = 400;
const PLACES_BETWEEN: usize = 20;

fn closest(places: impl Iterator<Item = usize>, distance: impl Fn(usize) -> f64) -> usize {
    let mut best = (0, f64::INFINITY);
    for place in places {
        let now = distance(place);
        if now < best.1 {
            best = (place, now);
        }
    }
    best.0
}

/// What an event of the history changes.
enum Change {
    Allocated(i64),
    Reserved(i64),
}

impl Change {
    fn of<'a>(pickle: &Pickle<'a>, event: Value<'a>) -> Option<Change> {
        let size = || i64::try_from(pickle.number(event, "size")).unwrap_or(i64::MAX);
        let Some(Value::Text(action)) = pickle.get(event, "action") else { return None };
        Some(match action {
            b"alloc" => Change::Allocated(size()),
            b"free_completed" => Change::Allocated(-size()),
            b"segment_alloc" | b"segment_map" => Change::Reserved(size()),
            b"segment_free" | b"segment_unmap" => Change::Reserved(-size()),
            _ => return None,
        })
    }
}

/// What is allocated and reserved on a GPU where the history ends.
fn at_the_end<'a>(pickle: &Pickle<'a>, root: Value<'a>, device: u64) -> (i64, i64) {
    let (mut allocated, mut reserved) = (0_u64, 0_u64);
    let segments = pickle.get(root, "segments").unwrap_or(Value::Other);
    for segment in
        pickle.items(segments).iter().filter(|segment| pickle.number(**segment, "device") == device)
    {
        reserved = reserved.saturating_add(pickle.number(*segment, "total_size"));
        let blocks = pickle.get(*segment, "blocks").unwrap_or(Value::Other);
        for block in pickle.items(blocks) {
            // one that waits for its stream counts until that is done with it
            let is_free = pickle.says(*block, "state", "inactive");
            if !is_free {
                let asked = pickle.number(*block, "requested_size");
                allocated =
                    allocated.saturating_add(if asked > 0 { asked } else { pickle.number(*block, "size") });
            }
        }
    }
    let signed = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
    (signed(allocated), signed(reserved))
}

fn bytes(count: i64) -> Bytes {
    Bytes(u64::try_from(count).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two steps of a gpt2 with three layers, recorded by PyTorch 2.11 from the second on: its `max_memory_allocated()` was
    /// 3,422,703,104 in blocks, of which 3,416,187,984 were asked for (`requested_bytes.all.peak`).
    #[test]
    fn what_pytorch_dumps_is_read() {
        let file = include_bytes!("../tests/fixtures/snapshots/gpt2-3-layers.pickle");
        let trace = Trace::read(file).expect("a snapshot");
        assert_eq!(trace.peak(), Bytes(3_416_187_984));
        assert_eq!(trace.reserved.iter().max(), Some(&Bytes(3_636_461_568)));
        // whatever is cut off or changed is refused or read
        for length in (0..file.len()).step_by(997) {
            assert!(Trace::read(&file[..length]).is_err());
            let mut changed = file.to_vec();
            changed[length] ^= 0x55;
            drop(Trace::read(&changed));
        }
    }

    #[test]
    fn a_step_is_found_where_it_is() {
        let step = [1, 5, 9, 4].map(Bytes);
        let noise = [3, 3, 3, 3, 3, 3, 2, 2].map(Bytes);
        let all = [&noise[..], &step, &noise].concat();
        let trace = Trace { reserved: all.clone(), allocated: all };
        assert_eq!((trace.most_like(&step), trace.peak()), (8..12, Bytes(9)));
    }

    #[test]
    fn extremes_are_compared() {
        let trace = Trace { allocated: vec![Bytes(7)], reserved: vec![Bytes(9)] };
        for step in [&[][..], &[Bytes(u64::MAX)], &[Bytes(1); 900]] {
            assert_eq!(trace.most_like(step).len(), step.len().min(1));
        }
    }

    #[test]
    fn what_is_no_snapshot_says_so() {
        for (bytes, error) in [
            (&b"]."[..], TraceError::NoSnapshot),
            (b"}X\x0d\x00\x00\x00device_traces]s.", TraceError::NoHistory),
            (b"}X\x0d\x00\x00\x00device_traces]]as.", TraceError::NoHistory),
        ] {
            assert_eq!(Trace::read(bytes), Err(error.clone()), "{error}");
        }
    }
}
