//! The measured rows under changes of the library's code: `tools/mutants/run.py` copies this beside the examples of a changed copy.
//!   rows baseline OUT PART PARTS                           what each row comes to, and which changes it meets
//!   rows run OUT PART PARTS MOST SLOWEST LIST BASELINE...  each change of LIST under at most MOST rows that meet it, none slower than
//!                                                          SLOWEST µs: the quickest of each file of measurements first
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use headroom::check;
use headroom::issue::Issue;
use headroom::mutants::{ACTIVE, LEFT, MET, MOST, NONE, NOTE};
use headroom::step::{Recording, Traced};
use serde_json::{Value, json};

/// What a test holds of a row: the figures, the verdicts, and a hash of the allocator's events.
fn said(file: &str, row: &Value) -> String {
    let figures = match check::check_runs(file, &json!([row]).to_string()) {
        Ok((report, runs)) => {
            let reasons: Vec<_> = report.unsupported.into_iter().map(|one| one.reason).collect();
            format!("{}{}", check::write_runs(&runs), reasons.join(";"))
        }
        Err(error) => error.to_string(),
    };
    let recorded = || -> Result<Recording, Issue> {
        let scenario = check::scenario(row)
            .map_err(|error| Issue::error(headroom::issue::Field::Model, error.to_string()))?;
        Recording::of(&*scenario.architecture()?, &scenario, &scenario.gpu()?)
    };
    let mut hash = 0xcbf2_9ce4_8422_2325u64;
    let mut take = |numbers: &[u64]| {
        numbers.iter().for_each(|number| hash = (hash ^ number).wrapping_mul(0x100_0000_01b3))
    };
    for event in recorded().map(|recording| recording.whole_trace()).unwrap_or_default() {
        match event {
            Traced::Alloc { bytes, .. } => take(&[0, bytes]),
            Traced::Free { id, .. } => take(&[1, u64::from(id)]),
            Traced::EmptyCache => take(&[2]),
            Traced::Phase(phase) => phase.slug().bytes().for_each(|byte| take(&[byte.into()])),
        };
    }
    format!("{figures}{hash:x}")
}

fn rows() -> Vec<(String, Value)> {
    let mut paths: Vec<_> =
        fs::read_dir("data/measurements").unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let mut all = Vec::new();
    for path in paths.iter().filter(|path| !path.ends_with("time.json")) {
        let stem = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let rows: Vec<Value> = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
        all.extend(rows.into_iter().map(|row| (stem.clone(), row)));
    }
    all
}

/// What a row came to.
struct Base {
    row: usize,
    took: u64,
    calls: u64,
    said: String,
}

fn baseline(rows: &[(String, Value)], (part, parts): (usize, usize), out: &mut File) {
    for (number, (file, row)) in rows.iter().enumerate().skip(part).step_by(parts) {
        MET.iter().for_each(|met| met.store(false, Relaxed));
        ACTIVE.store(NOTE, Relaxed);
        LEFT.store(u64::MAX, Relaxed);
        let began = Instant::now();
        let said = said(file, row);
        let took = began.elapsed().as_micros() as u64;
        let calls = u64::MAX - LEFT.load(Relaxed);
        let met: Vec<usize> = (0..MOST).filter(|number| MET[*number].load(Relaxed)).collect();
        writeln!(out, "{}", json!({ "row": number, "took": took, "calls": calls, "said": said, "met": met }))
            .unwrap();
    }
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |index: usize| args[index].parse::<usize>().unwrap();
    let (part, parts) = (number(2), number(3));
    let mut out = fs::OpenOptions::new().create(true).append(true).open(&args[1]).unwrap();
    let rows = rows();
    if args[0] == "baseline" {
        return baseline(&rows, (part, parts), &mut out);
    }
    std::panic::set_hook(Box::new(|_| {}));
    let (most, slowest) = (number(4), number(5) as u64);
    let (mut bases, mut meeting) = (Vec::new(), vec![Vec::new(); MOST]);
    for path in &args[7..] {
        for line in fs::read_to_string(path).unwrap().lines() {
            let value: Value = serde_json::from_str(line).unwrap();
            let whole = |name: &str| value[name].as_u64().unwrap();
            for met in value["met"].as_array().unwrap() {
                meeting[met.as_u64().unwrap() as usize].push(bases.len());
            }
            let said = value["said"].as_str().unwrap().to_owned();
            bases.push(Base { row: whole("row") as usize, took: whole("took"), calls: whole("calls"), said });
        }
    }
    let list = fs::read_to_string(&args[6]).unwrap();
    for change in list
        .split_whitespace()
        .map(|word| word.parse::<usize>().unwrap())
        .filter(|change| change % parts == part)
    {
        // who reads this after a crash knows which it was
        writeln!(out, "begin {change}").unwrap();
        let mut order = meeting[change].clone();
        order.sort_by_key(|base: &usize| bases[*base].took);
        let mut turns: BTreeMap<&str, usize> = BTreeMap::new();
        let mut turn = |base: usize| {
            let turn = turns.entry(rows[bases[base].row].0.as_str()).or_default();
            *turn += 1;
            (*turn, bases[base].took, base)
        };
        let mut keyed: Vec<_> = order.into_iter().map(&mut turn).filter(|key| key.1 <= slowest).collect();
        keyed.sort_unstable();
        keyed.truncate(most);
        let mut verdict = format!("survived {}/{}", keyed.len(), meeting[change].len());
        for (.., base) in keyed {
            let Base { row, calls, said: own, .. } = &bases[base];
            LEFT.store(calls * 20 + 1_000_000, Relaxed);
            ACTIVE.store(change as u32, Relaxed);
            let found = catch_unwind(AssertUnwindSafe(|| said(&rows[*row].0, &rows[*row].1)));
            ACTIVE.store(NONE, Relaxed);
            match found {
                Ok(said) if said == *own => continue,
                Ok(_) => verdict = format!("noticed {row}"),
                Err(_) => verdict = format!("panicked {row}"),
            }
            break;
        }
        writeln!(out, "{change} {verdict}").unwrap();
    }
}
