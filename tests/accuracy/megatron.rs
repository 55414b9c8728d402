//! Megatron-core's ranks, measured over the null device, by its own tests and on real clusters.

use std::collections::BTreeMap;

use headroom::check;
use headroom::export::Answer;
use headroom::scenario::Scenario;

use crate::files::*;

#[test]
fn every_row_of_megatron_is_predicted() {
    MEGATRON.is_predicted(43, [0.001, 0.021, 0.07], [0.001, 0.9, 2.8]);
}

#[test]
fn every_row_of_transformer_engine_is_predicted() {
    TRANSFORMER_ENGINE.is_predicted(43, [0.0015, 0.043, 0.23], [0.11, 5.5, 6.9]);
}

#[test]
fn every_row_of_gpt_3s_layers_is_predicted() {
    MEGATRON_GPT.is_predicted(30, [0.005, 0.3, 0.6], [0.2, 14.0, 15.0]);
}

#[test]
fn stages_of_different_numbers_of_layers_are_predicted() {
    MEGATRON_STAGES.is_predicted(41, [0.001, 0.6, 0.7], [0.07, 2.9, 7.2]);
}

#[test]
fn megatrons_fused_cross_entropy_is_predicted() {
    MEGATRON_FUSED.is_predicted(22, [0.001, 0.06, 0.12], [0.61, 11.1, 12.2]);
}

#[test]
fn biases_norms_and_rings_of_megatrons_attention_are_predicted() {
    MEGATRON_ATTENTION.is_predicted(42, [0.003, 0.02, 0.06], [0.08, 5.8, 11.1]);
}

#[test]
fn experts_that_are_given_what_was_chosen_are_predicted() {
    MEGATRON_EXPERTS.is_predicted(13, [0.001, 0.006, 0.006], [0.12, 1.8, 1.8]);
}

#[test]
fn every_figure_of_megatron_lms_own_tests_is_predicted() {
    MEGATRON_LM.is_predicted_allocated(162, [0.12, 0.5, 0.9]);
}

#[test]
fn every_figure_of_real_clusters_is_predicted() {
    // those of experts ran Megatron-core 0.14, in whose backward one hidden state more is there
    CLUSTERS.is_predicted(104, [0.001, 0.09, 0.13], [0.4, 3.5, 4.1]);
}

/// Of every published run whose stages were read apart, the stage that is named is the one whose GPUs reserved most.
#[test]
fn the_stage_that_reserved_most_is_named() {
    let mut runs: BTreeMap<String, Vec<(Scenario, u64)>> = BTreeMap::new();
    for row in CLUSTERS.rows() {
        let id = row["id"].as_str().unwrap_or_default();
        if let (Some((run, _)), Some(bytes)) = (
            id.strip_suffix("-reserved").and_then(|id| id.rsplit_once("-r")),
            row["reading"]["bytes"].as_u64(),
        ) {
            let scenario = check::scenario(&row).expect("it is expressed");
            runs.entry(run.to_owned()).or_default().push((scenario, bytes));
        }
    }
    let stage = |scenario: &Scenario| scenario.cluster.layout.stage;
    runs.retain(|_, gpus| gpus.iter().any(|(scenario, _)| stage(scenario) > 1));
    assert_eq!(runs.len(), 3);
    for (run, gpus) in runs {
        let (most, _) = gpus.iter().max_by_key(|(_, bytes)| *bytes).expect("it has GPUs");
        let mut whole = most.clone();
        whole.cluster.layout.stage = 0;
        let named = Answer::of(whole).estimate.memory.and_then(|memory| memory.rank);
        assert_eq!(named.map(|rank| rank.stage), Some(stage(most)), "{run}");
    }
}
