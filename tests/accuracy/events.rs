//! What is asked of the allocator, what is given back, and in which order: of each kind of run that was measured the one of the
//! fewest tokens, as it was when what it took was found equal. The peaks of `data/measured.tsv` do not move with an order that only holes depend on, nor with
//! a tensor that lives where nothing is at its highest; these do. `tools/compare_trace.py` says whether a change of them is PyTorch's.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::thread;

use headroom::check::Run;
use headroom::issue::Issue;
use headroom::step::{Recording, Traced};

use crate::files::FILES;
use crate::holds;

const EVENTS: &str = "tests/fixtures/events.tsv";

/// FNV-1a, 64 bits, over whole numbers.
struct Hash(u64);

impl Hash {
    fn take(&mut self, numbers: impl IntoIterator<Item = u64>) {
        for number in numbers {
            self.0 = (self.0 ^ number).wrapping_mul(0x100_0000_01b3);
        }
    }
}

/// How many events a run has, and a hash of them: phases, sizes that are asked for, and which of them is given back.
fn events(run: &Run) -> Result<(usize, u64), Issue> {
    let scenario = run.scenario().expect("the link of a measured run says it");
    let recording = Recording::of(&*scenario.architecture()?, &scenario, &scenario.gpu()?)?;
    let mut hash = Hash(0xcbf2_9ce4_8422_2325);
    let events = recording.whole_trace();
    for event in &events {
        match *event {
            Traced::Alloc { bytes, .. } => hash.take([0, bytes]),
            Traced::Free { id, .. } => hash.take([1, u64::from(id)]),
            Traced::EmptyCache => hash.take([2]),
            Traced::Phase(phase) => hash.take(phase.slug().bytes().map(u64::from)),
        }
    }
    Ok((events.len(), hash.0))
}

#[test]
fn the_events_of_each_kind_of_run_are_as_they_were() {
    let mut kinds: BTreeMap<_, &Run> = BTreeMap::new();
    for run in FILES.iter().flat_map(|file| file.runs()) {
        let kind = [&run.software, &run.family, &run.settings].map(String::as_str);
        let smallest = kinds.entry(kind).or_insert(run);
        // one token more is an event more in some loops
        if run.batch.saturating_mul(run.sequence) < smallest.batch.saturating_mul(smallest.sequence) {
            *smallest = run;
        }
    }
    let own: Vec<&Run> = kinds.into_values().collect();
    let workers = thread::available_parallelism().map_or(1, usize::from);
    // each has one of so many, as runs of a file are alike in size
    let mut lines: Vec<(usize, String)> = thread::scope(|scope| {
        let share = |worker: usize| {
            let own = own.iter().enumerate().skip(worker).step_by(workers);
            let line = |(number, run): (usize, &&Run)| {
                let (count, hash) = events(run).unwrap_or_else(|issue| panic!("{}: {issue}", run.id));
                (number, format!("{}\t{}\t{count}\t{hash:016x}", run.file, run.id))
            };
            own.map(line).collect::<Vec<_>>()
        };
        let workers: Vec<_> = (0..workers).map(|worker| scope.spawn(move || share(worker))).collect();
        workers.into_iter().flat_map(|worker| worker.join().expect("its runs are recorded")).collect()
    });
    lines.sort();
    let mut text = String::new();
    for (_, line) in lines {
        writeln!(text, "{line}").expect("a String takes everything");
    }
    holds(EVENTS, &text);
}
