//! The step against everything that was measured. `HEADROOM_BLESS=1 cargo test --test accuracy` writes the figures down
//! anew; look at the difference before you commit it.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use headroom::accuracy::key;
use headroom::check::{self, Errors, Metric};

const NULL_DEVICE: &str = "data/measurements/null-device.json";
const FAMILIES: &str = "data/measurements/families.json";
const KINDS: &str = "data/accuracy.tsv";

fn read(path: &str) -> String {
    let path = format!("{}/{path}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Limits in percent: median, 95th percentile, worst.
#[track_caller]
fn within(errors: &Errors, rows: usize, [median, p95, worst]: [f64; 3]) {
    assert_eq!(errors.count, rows, "rows that are predicted");
    for (name, error, limit) in [
        ("median", errors.median_pct, median),
        ("p95", errors.p95_pct, p95),
        ("worst", errors.worst_pct, worst),
    ] {
        assert!(error <= limit, "{name} {error:.3} % is above {limit} %");
    }
}

#[test]
fn every_measured_row_is_predicted() {
    let report = check::check(&read(NULL_DEVICE), false).expect("the file is an array of rows");
    assert!(report.unsupported.is_empty(), "{:?}", report.unsupported);
    within(&report.summary.allocated, 231, [0.01, 0.5, 4.0]);
    within(&report.summary.reserved, 231, [0.5, 5.0, 10.0]);
}

#[test]
fn every_measured_family_is_predicted() {
    let report = check::check(&read(FAMILIES), false).expect("the file is an array of rows");
    assert!(report.unsupported.is_empty(), "{:?}", report.unsupported);
    within(&report.summary.allocated, 105, [0.01, 0.3, 1.0]);
}

/// The worst error by kind of scenario, which the page shows as the band of an answer.
#[test]
fn the_bands_are_what_was_measured() {
    let mut kinds: BTreeMap<(String, String), (u64, f64)> = BTreeMap::new();
    for text in [read(NULL_DEVICE), read(FAMILIES)] {
        let report = check::check(&text, false).expect("the file is an array of rows");
        let rows: Vec<serde_json::Value> = serde_json::from_str(&text).expect("the file is JSON");
        for row in &rows {
            let scenario = check::scenario(row).expect("every row is predicted");
            let family = scenario.architecture().expect("every model is known").model_type.clone();
            let error =
                report.rows.iter().find(|found| row["id"] == *found.id && found.metric == Metric::Allocated);
            let kind = kinds.entry((family, key(&scenario))).or_default();
            kind.0 += 1;
            kind.1 = kind.1.max(error.map_or(f64::INFINITY, |found| found.error_pct.abs()));
        }
    }
    let mut lines = String::new();
    for ((family, settings), (rows, worst)) in kinds {
        writeln!(lines, "{family}\t{settings}\t{rows}\t{worst:.3}").expect("a String takes everything");
    }
    if std::env::var_os("HEADROOM_BLESS").is_some() {
        std::fs::write(format!("{}/{KINDS}", env!("CARGO_MANIFEST_DIR")), &lines)
            .expect("the project is writable");
    }
    assert_eq!(read(KINDS), lines, "run with HEADROOM_BLESS=1 and look at what changed");
}
