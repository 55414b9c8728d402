//! How a recording goes up and down, and what each of its events does.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::heap::StorageId;
use super::heap::record::{Event, Maker, Pass};
use super::recording::Recording;
use crate::allocator::Settings;
use crate::memory::{Parts, Phase};
use crate::units::Bytes;

/// The ledger after one event of the last iteration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Moment {
    /// The event's number, for asking about it.
    pub at: usize,
    /// The phase.
    pub phase: Phase,
    /// Live bytes by category.
    pub parts: Parts,
    /// What the allocator has of the card.
    pub reserved: Bytes,
}

/// What an event does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Happening {
    /// Whether a tensor comes; otherwise it goes.
    pub comes: bool,
    /// The module that made it, without the layer's number.
    pub module: &'static str,
    /// The operation that made it.
    pub operation: &'static str,
    /// Whether checkpointing's recomputation made it.
    pub recomputed: bool,
    /// Bytes that were asked for.
    pub bytes: Bytes,
    /// Which of its kind it is in its phase, from 1, and how many there are: of what every layer makes once, the layer.
    pub place: (usize, usize),
    /// The layer whose it is, as PyTorch numbers them, and the last one of which something comes or goes in its phase; none
    /// outside of the layers.
    pub layer: Option<(u32, u32)>,
    /// What it is: what its operation was run for, or of a gradient and of what says all by itself, that.
    pub words: &'static str,
}

impl Recording {
    /// What is allocated after each block that comes or goes in the iteration that is shown, with the number of the event.
    pub fn heights(&self, settings: Settings) -> Vec<(usize, Bytes)> {
        let shown = self.shown();
        let mut heights = Vec::with_capacity(shown.len());
        self.feed(shown.end, settings, &mut |index, feed| {
            let is_block = matches!(self.event(index), Some(Event::Alloc(_) | Event::Free(_)));
            if is_block && shown.contains(&index) {
                heights.push((index, feed.parts().total()));
            }
        });
        heights
    }

    /// Some events in at most `points` moments; of every bucket the lowest and the highest.
    pub fn timeline(&self, events: Range<usize>, points: usize, settings: Settings) -> Vec<Moment> {
        let bucket = (events.len() * 2).div_ceil(points.max(2)).max(1);
        let mut moments = Vec::with_capacity(points + 2);
        let mut low_and_high: Option<[(usize, Moment); 2]> = None;
        let mut flush = |pair: &mut Option<[(usize, Moment); 2]>| {
            if let Some([low, high]) = pair.take() {
                let (first, second) = if low.0 <= high.0 { (low, high) } else { (high, low) };
                moments.push(first.1);
                if first.0 != second.0 {
                    moments.push(second.1);
                }
            }
        };
        self.feed(events.end, settings, &mut |index, feed| {
            let (true, Some(phase)) = (events.contains(&index), feed.phase()) else { return };
            let parts = feed.parts();
            let at = (index - events.start) / bucket;
            let moment = Moment { at: index, phase, parts, reserved: feed.reserved() };
            if low_and_high
                .is_some_and(|[low, _]| (low.0 - events.start) / bucket != at || low.1.phase != phase)
            {
                flush(&mut low_and_high);
            }
            let bytes = parts.total();
            let [low, high] = low_and_high.get_or_insert([(index, moment); 2]);
            if bytes < low.1.parts.total() {
                *low = (index, moment);
            }
            if bytes > high.1.parts.total() {
                *high = (index, moment);
            }
        });
        flush(&mut low_and_high);
        moments
    }

    /// What the event of that number does; nothing where no tensor comes or goes.
    pub fn happening(&self, at: usize) -> Option<Happening> {
        let (id, comes) = match self.event(at)? {
            Event::Alloc(id) => (id, true),
            Event::Free(id) => (id, false),
            Event::Becomes(..) | Event::Mark(_) | Event::EmptyCache => return None,
        };
        let Maker { module, what, pass, role, layer, .. } = *self.makers.get(id as usize)?;
        let words = match pass {
            _ if what.says_all => what.words,
            Pass::Backward => "a gradient on its way back",
            Pass::Forward | Pass::Recomputation => role.words,
        };
        Some(Happening {
            comes,
            module,
            operation: what.name,
            recomputed: pass == Pass::Recomputation,
            bytes: Bytes(self.storage(id).bytes()),
            place: self.place(at, id, comes),
            layer: layer.checked_sub(1).map(|number| (number, self.last_layer(at))),
            words,
        })
    }

    /// The numbers of the events around one, up to where its phase begins and ends: those before it, backwards, and those after it.
    fn around(&self, at: usize) -> (impl Iterator<Item = usize> + '_, impl Iterator<Item = usize> + '_) {
        let is_inside = |number: &usize| !matches!(self.event(*number), Some(Event::Mark(_)) | None);
        ((0..at).rev().take_while(is_inside), (at + 1..self.len()).take_while(is_inside))
    }

    /// The last layer, as PyTorch numbers them, of which something comes or goes in the phase of an event.
    fn last_layer(&self, at: usize) -> u32 {
        let layer = |number: usize| match self.event(number) {
            Some(Event::Alloc(id) | Event::Free(id)) => {
                self.makers.get(id as usize).map_or(0, |maker| maker.layer)
            }
            Some(Event::Becomes(..) | Event::Mark(_) | Event::EmptyCache) | None => 0,
        };
        let (before, after) = self.around(at);
        before.chain(after).chain([at]).map(layer).max().unwrap_or(0).saturating_sub(1)
    }

    /// Which of those of its kind an event is in its phase, and how many there are.
    fn place(&self, at: usize, id: StorageId, comes: bool) -> (usize, usize) {
        let kind =
            |id: StorageId| self.makers.get(id as usize).map(|maker| (maker.module, maker.what, maker.pass));
        let of_kind = |number: &usize| match self.event(*number) {
            Some(Event::Alloc(other)) => comes && kind(other) == kind(id),
            Some(Event::Free(other)) => !comes && kind(other) == kind(id),
            Some(Event::Becomes(..) | Event::Mark(_) | Event::EmptyCache) | None => false,
        };
        let (before, after) = self.around(at);
        let (before, after) = (before.filter(of_kind).count(), after.filter(of_kind).count());
        (before + 1, before + 1 + after)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Stage;
    use crate::share;
    use std::collections::HashMap;

    fn recorded(link: &str) -> Recording {
        let shared = share::decode(&format!("v=1&m=HuggingFaceTB/SmolLM2-135M&p=bf16&s=64&{link}"));
        assert!(shared.notices.is_empty(), "{:?}", shared.notices);
        let scenario = &shared.scenarios[0];
        let architecture = scenario.architecture().expect("a model");
        Recording::of(&architecture, scenario, &scenario.gpu().expect("a card")).expect("it is modelled")
    }

    /// Of what comes, and of what goes, in a phase those of a kind are numbered from 1 on to as many as there are.
    #[test]
    fn those_of_a_kind_are_numbered_through_a_phase() {
        for link in ["method=full&gc=off", "method=lora&gc=on&ga=2"] {
            let recording = recorded(link);
            let mut kinds: HashMap<_, Vec<(usize, usize)>> = HashMap::new();
            let mut phase = 0;
            for at in recording.shown() {
                match recording.event(at) {
                    Some(Event::Alloc(id) | Event::Free(id)) => {
                        let Happening { comes, place, .. } =
                            recording.happening(at).expect("it comes or goes");
                        let Maker { module, what, pass, .. } = recording.makers[id as usize];
                        let kind = (phase, comes, module, what.name, what.words, pass as u8);
                        kinds.entry(kind).or_default().push(place);
                    }
                    other => {
                        assert_eq!(recording.happening(at), None);
                        phase += usize::from(matches!(other, Some(Event::Mark(_))));
                    }
                }
            }
            assert!(kinds.len() > 100, "{link}: {}", kinds.len());
            for (kind, places) in kinds {
                let numbered: Vec<_> = (1..=places.len()).map(|place| (place, places.len())).collect();
                assert_eq!(places, numbered, "{link}: {kind:?}");
            }
        }
    }

    /// 30 layers: each keeps what its down projection was given, of 64 tokens and 1,536 numbers, and checkpointing makes it again in backward.
    #[test]
    fn what_every_layer_makes_once_is_numbered_by_the_layer() {
        let of_layers = |link: &str, recomputed: bool| {
            let recording = recorded(link);
            let of_phase = |stage: Stage| {
                let marks = |at: &usize| matches!(recording.event(*at), Some(Event::Mark(_)));
                let begins = |at: &usize| matches!(recording.event(*at), Some(Event::Mark(phase)) if phase.stage == stage);
                let first = recording.shown().find(begins).expect("it has such a phase");
                (first + 1..recording.shown().end).take_while(move |at| !marks(at))
            };
            let stage = if recomputed { Stage::Backward } else { Stage::Forward };
            let happenings = of_phase(stage).filter_map(|at| recording.happening(at));
            let own = happenings.filter(|own| {
                own.comes && own.recomputed == recomputed && (own.module, own.operation) == ("mlp", "mul")
            });
            own.map(|own| (own.bytes.0, own.place, own.layer)).collect::<Vec<_>>()
        };
        let layer = |layer: u32| (64 * 1536 * 2, layer);
        let numbered =
            |(place, (bytes, layer)): (usize, (u64, u32))| (bytes, (place + 1, 30), Some((layer, 29)));
        let forward: Vec<_> = (0..30).map(layer).enumerate().map(numbered).collect();
        // backward begins with the last layer
        let backward: Vec<_> = (0..30).rev().map(layer).enumerate().map(numbered).collect();
        assert_eq!(of_layers("method=lora&t=qv&gc=off", false), forward);
        assert_eq!(of_layers("method=lora&t=qv&gc=off", true), []);
        assert_eq!(of_layers("method=lora&t=qv&gc=on", true), backward);
    }
}
