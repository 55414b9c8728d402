//! The step against everything that was measured. `HEADROOM_BLESS=1 cargo test --test accuracy` writes the figures down
//! anew; look at the difference before you commit it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::OnceLock;

use headroom::accuracy::{key, software};
use headroom::check::{self, Errors, Metric, Report};

const NULL_DEVICE: &str = "data/measurements/null-device.json";
const LOSSES: &str = "data/measurements/null-device-losses.json";
const PUBLISHED: &str = "data/measurements/published.json";
const KINDS: &str = "data/accuracy.tsv";

fn read(path: &str) -> String {
    let path = format!("{}/{path}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Rows of [`LOSSES`].
const LOSS_ROWS: usize = 21;
/// Rows of [`PUBLISHED`] that carry a complete configuration and can be expressed, at least.
const PUBLISHED_ROWS: usize = 139;

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

/// The published rows take longest, so they are predicted once for all tests.
fn published() -> &'static Report {
    static REPORT: OnceLock<Report> = OnceLock::new();
    REPORT.get_or_init(|| check::check(&read(PUBLISHED), false).expect("the file is an array of rows"))
}

/// Losses that do not write out all logits, as their own code runs them.
#[test]
fn every_loss_is_predicted() {
    let report = check::check(&read(LOSSES), false).expect("the file is an array of rows");
    assert!(report.unsupported.is_empty(), "{:?}", report.unsupported);
    within(&report.summary.allocated, LOSS_ROWS, [0.05, 0.5, 0.5]);
    within(&report.summary.reserved, LOSS_ROWS, [1.0, 8.0, 10.0]);
}

/// What other projects published of real GPUs: limits over all rows that carry a complete configuration.
#[test]
fn published_rows_are_predicted() {
    let report = published();
    let mut errors: Vec<f64> = report.rows.iter().map(|row| row.error_pct.abs()).collect();
    errors.sort_by(f64::total_cmp);
    let (median, mean) = (errors[errors.len() / 2], errors.iter().sum::<f64>() / errors.len() as f64);
    assert!(errors.len() >= PUBLISHED_ROWS, "only {} rows are predicted", errors.len());
    assert!(median <= 1.5, "median {median:.2} %");
    assert!(mean <= 8.0, "mean {mean:.2} %");
}

/// The worst error by kind of scenario, which the page shows as the band of an answer.
#[test]
fn the_bands_are_what_was_measured() {
    let mut kinds: BTreeMap<[String; 3], (u64, f64)> = BTreeMap::new();
    let check = |path| check::check(&read(path), false).expect("the file is an array of rows");
    let (null_device, losses) = (check(NULL_DEVICE), check(LOSSES));
    for (path, report) in [(NULL_DEVICE, &null_device), (LOSSES, &losses), (PUBLISHED, published())] {
        let text = read(path);
        let rows: Vec<serde_json::Value> = serde_json::from_str(&text).expect("the file is JSON");
        for found in report.rows.iter().filter(|found| found.metric == Metric::Allocated) {
            let row = rows.iter().find(|row| row["id"] == *found.id).expect("a row of the file");
            let scenario = check::scenario(row).expect("it was predicted");
            let family = scenario.architecture().expect("every model is known").model_type.clone();
            let kind = kinds.entry([software(&scenario), family, key(&scenario)]).or_default();
            kind.0 += 1;
            kind.1 = kind.1.max(found.error_pct.abs());
        }
    }
    let mut lines = String::new();
    for (kind, (rows, worst)) in kinds {
        writeln!(lines, "{}\t{rows}\t{worst:.3}", kind.join("\t")).expect("a String takes everything");
    }
    if std::env::var_os("HEADROOM_BLESS").is_some() {
        std::fs::write(format!("{}/{KINDS}", env!("CARGO_MANIFEST_DIR")), &lines)
            .expect("the project is writable");
    }
    assert_eq!(read(KINDS), lines, "run with HEADROOM_BLESS=1 and look at what changed");
}
