//! How long steps take: what the operations count, and what was measured against what is predicted.
#![cfg(not(target_arch = "wasm32"))]

use headroom::check::{TimeErrors, TimeReport, TimeRow, Use, check_time};
use headroom::memory::Stage;
use headroom::plan::pace;
use headroom::work::Work;
use headroom::{estimate, share};

/// What a later iteration of the scenario behind a link computes.
#[track_caller]
fn work(link: &str) -> Vec<(Stage, Work)> {
    let decoded = share::decode(link);
    assert!(decoded.notices.is_empty(), "{link}: {:?}", decoded.notices);
    let estimate = estimate(&decoded.scenarios[0]);
    let memory = estimate.memory.unwrap_or_else(|| panic!("{link}: {:?}", estimate.issues));
    memory.work.iter().map(|(phase, work)| (phase.stage, *work)).collect()
}

#[track_caller]
fn of(link: &str, stage: Stage) -> Work {
    let found = work(link).into_iter().find(|(own, _)| *own == stage);
    found.unwrap_or_else(|| panic!("{link} has no {stage:?}")).1
}

/// Llama-3.1-8B's weights that tokens are multiplied by: layers, and the output head.
const LAYERS: u64 = 32 * (2 * 4096 * 4096 + 2 * 4096 * 1024 + 3 * 4096 * 14336);
const HEAD: u64 = 4096 * 128_256;
const TOKENS: u64 = 2048;
const FULL: &str = "m=meta-llama/Llama-3.1-8B&method=full&p=bf16&b=1&s=2048&gpu=a100-sxm-80gb";

/// Equal but for the products of the rotary embedding's frequencies and other small ones.
#[track_caller]
fn assert_close(counted: u64, expected: u64) {
    let error = counted as f64 / expected as f64 - 1.0;
    assert!(error.abs() < 1e-3, "{counted} where {expected} was expected: {error:+.5}");
}

#[test]
fn a_forward_pass_multiplies_each_weight_by_each_token() {
    let plain = format!("{FULL}&gc=off");
    assert_close(of(&plain, Stage::Forward).products, 2 * TOKENS * (LAYERS + HEAD));
    assert_close(of(&plain, Stage::Backward).products, 4 * TOKENS * (LAYERS + HEAD));
    assert_eq!(of(&plain, Stage::Step).products, 0);
}

#[test]
fn recomputation_stops_before_what_nobody_needs() {
    let plain = of(&format!("{FULL}&gc=off"), Stage::Backward).products;
    let checkpointed = of(&format!("{FULL}&gc=on"), Stage::Backward).products;
    // the last product of a layer saves nothing that its own backward wants
    let last = 32 * 4096 * 14336;
    assert_close(checkpointed - plain, 2 * TOKENS * (LAYERS - last));
}

#[test]
fn frozen_weights_have_no_gradient() {
    let lora =
        "m=meta-llama/Llama-3.1-8B&method=lora&r=1&t=q_proj&p=bf16&b=1&s=2048&gc=off&gpu=a100-sxm-80gb";
    let ratio = of(lora, Stage::Backward).products as f64
        / of(&format!("{FULL}&gc=off"), Stage::Backward).products as f64;
    // nothing is wanted of what lies before the first layer's queries
    assert!((0.48..0.502).contains(&ratio), "{ratio}");
}

#[test]
fn attention_is_quadratic_and_a_causal_mask_halves_it() {
    let attention = |link: &str| of(link, Stage::Forward).attention;
    let plain = format!("{FULL}&gc=off");
    // scores and output, 32 heads of 128
    assert_eq!(attention(&plain), 32 * 2 * 2 * TOKENS * TOKENS * 4096 / 2);
    assert_eq!(attention(&plain.replace("s=2048", "s=4096")), 4 * attention(&plain));
    assert_eq!(of(&plain, Stage::Backward).attention, attention(&plain) * 5 / 2);
    let eager = of(&format!("{plain}&attn=eager"), Stage::Forward);
    assert_eq!(eager.attention, 0);
    assert_close(eager.products, 2 * TOKENS * (LAYERS + HEAD) + 2 * attention(&plain));
}

#[test]
fn accumulation_repeats_all_but_the_step() {
    let one = work(FULL);
    let eight = work(&format!("{FULL}&ga=8"));
    for ((stage, one), (_, eight)) in one.into_iter().zip(eight) {
        match stage {
            Stage::Forward | Stage::Backward => assert_close(eight.products, 8 * one.products),
            Stage::Step => assert_close(eight.written, one.written),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn only_chosen_experts_multiply() {
    let link = "m=Qwen/Qwen3-30B-A3B&method=full&p=bf16&b=1&s=2048&gc=off&gpu=b200";
    let decoded = share::decode(link);
    let model = decoded.scenarios[0].architecture().expect("a model");
    let embedding = 151_936 * 2048;
    assert_close(of(link, Stage::Forward).products, 2 * TOKENS * (model.active_parameters() - embedding));
}

/// The measured rows against the predicted ones.
fn report() -> TimeReport {
    let report = check_time(include_str!("../data/measurements/time.json")).expect("rows");
    // an optimizer that is paged
    let unanswered: Vec<_> = report.unanswered.iter().map(|(id, _)| id.as_str()).collect();
    assert_eq!(unanswered, ["torchtune-4090-full"]);
    report
}

#[test]
fn what_was_kept_is_predicted_as_well_as_is_said() {
    let report = report();
    let kept = |row: &&TimeRow| row.purpose == Use::Check;
    let all = TimeErrors::of(report.rows.iter().filter(kept));
    assert!(all.count > 50 && all.median_pct <= 15.0 && all.covered_pct >= 90.0, "{all:?}");
    let eager = TimeErrors::of(report.rows.iter().filter(|row| kept(row) && !row.compiled));
    assert!(eager.count > 30 && eager.median_pct <= 10.0 && eager.covered_pct >= 90.0, "{eager:?}");
}

#[test]
fn figures_of_cards_are_derived_from_their_rows() {
    let report = report();
    for card in ["a100-sxm-80gb", "h100-sxm-80gb", "rtx-a6000", "rtx-4090", "rtx-3090"] {
        let rows = || report.rows.iter().filter(|row| row.purpose == Use::Derive && row.gpu == card);
        let mut errors: Vec<f64> = rows().map(TimeRow::error_pct).collect();
        errors.sort_by(f64::total_cmp);
        // as many are slower as are faster than predicted
        let middle = errors[(errors.len() - 1) / 2] + errors[errors.len() / 2];
        assert!(middle.abs() / 2.0 < 5.0, "{card}: {errors:?}");
        let errors = TimeErrors::of(rows());
        assert!(errors.covered_pct >= 90.0, "{card}: {errors:?}");
    }
}

/// What travels between GPUs or to the CPU's memory is only answered where it hides behind what is computed.
#[test]
fn what_would_be_waited_for_has_no_answer() {
    let why = |link: &str| {
        let scenario = share::decode(link).scenarios.remove(0);
        let memory = estimate(&scenario).memory.expect("an answer");
        pace(&scenario, &memory).err().map(|issue| issue.to_string())
    };
    let offloaded = "m=meta-llama/Llama-3.1-8B&gpu=h100-sxm-80gb&gc=off&s=8192&offload=on";
    assert!(why(offloaded).is_some_and(|why| why.contains("travel")), "57 GiB in a second");
    let eight = "m=meta-llama/Llama-3.1-8B&method=full&p=amp-bf16&gpus=8&shard=fsdp2&gpu=";
    assert_eq!(why(&format!("{eight}a100-sxm-80gb")), None);
    assert!(why(&format!("{eight}a100-pcie-80gb")).is_some_and(|why| why.contains("wait for each other")));
}
