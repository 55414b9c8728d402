//! What a browser's 32-bit `usize` and another floating-point library could change, and must not. Runs natively and, by
//! `scripts/check wasm`, on wasm32 in Node.js.

use headroom::accuracy::{key, software};
use headroom::check::{self, Metric};
use headroom::scenario::{Method, Scenario};
use headroom::{estimate, share};
#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;

const MEASURED: &str = include_str!("../data/measurements/null-device.json");
/// Software, family, settings, rows and the worst errors of the native build in percent, allocated and reserved.
const NATIVE_ERRORS: &str = include_str!("../data/accuracy.tsv");
/// Those errors are written down with three decimals.
const ROUNDING_PCT: f64 = 0.0006;

#[test]
fn measured_runs_are_predicted_as_well_as_natively() {
    let report = check::check(MEASURED, false).expect("the file is an array of rows");
    assert!(report.unsupported.is_empty(), "{:?}", report.unsupported);
    let rows: Vec<serde_json::Value> = serde_json::from_str(MEASURED).expect("the file is JSON");
    let allocated = report.rows.iter().filter(|found| found.metric == Metric::Allocated);
    for (row, found) in rows.iter().zip(allocated) {
        let scenario = check::scenario(row).expect("every row is predicted");
        let family = scenario.architecture().expect("every model is known").model_type.clone();
        let kind = format!("{}\t{family}\t{}\t", software(&scenario), key(&scenario));
        let line = NATIVE_ERRORS.lines().find(|line| line.starts_with(&kind)).expect("every kind is listed");
        let native: f64 = line.split('\t').nth(4).and_then(|worst| worst.parse().ok()).expect("a number");
        assert!(found.error_pct.abs() <= native + ROUNDING_PCT, "{}: natively at most {native} %", found.id);
    }
}

#[test]
fn sizes_beyond_32_bits_are_whole() {
    let scenario = Scenario { method: Method::Full, batch: 64, sequence: 8192, ..Scenario::default() };
    let architecture = scenario.architecture().expect("the default model is known");
    assert_eq!(architecture.parameters(), 8_030_261_248);
    let memory = estimate(&scenario).memory.expect("the default model is known");
    assert!(memory.needed().0 > 100 << 30, "{memory:?}");
}

#[test]
fn the_largest_numbers_are_answered() {
    for method in Method::ALL.iter().copied() {
        let huge = Scenario {
            method,
            batch: u64::MAX,
            sequence: u64::MAX,
            accumulation: u64::MAX,
            ..Scenario::default()
        };
        let answer = estimate(&huge);
        assert!(answer.memory.is_some() || answer.errors().next().is_some(), "{method}");
    }
}

#[test]
fn links_open_and_close() {
    for link in [
        include_str!("fixtures/links/v1-full.link"),
        include_str!("fixtures/links/v1-four-compared.link"),
        include_str!("fixtures/links/v1-size-and-memory.link"),
    ] {
        let shared = share::decode(link.trim());
        assert!(shared.notices.is_empty(), "{:?}", shared.notices);
        assert_eq!(share::decode(&share::encode(&shared.scenarios)), shared);
    }
}
