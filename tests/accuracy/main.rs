//! The step against everything that was measured. `HEADROOM_BLESS=1 cargo test --test accuracy` writes the figures down
//! anew; look at the difference before you commit it. A kind of run that is new is written twice: its verdicts are told by the band that
//! the first time wrote.

mod events;
mod files;
mod kept;
mod megatron;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::thread;

use headroom::allocator::Settings;
use headroom::check::{self, Confusion, Errors, Metric, Run};
use headroom::step::Recording;
use headroom::units::BYTES_PER_GIB;

use files::*;

const FIT: &str = "tests/fixtures/measurements/fit.json";
const KINDS: &str = "data/accuracy.tsv";
const RUNS: &str = "data/measured.tsv";
const MISSES: &str = "data/misses.tsv";
/// What others published and is not predicted, with the reason.
const UNEXPRESSED: &str = "data/unexpressed.tsv";

fn read(path: &str) -> String {
    let path = format!("{}/{path}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

#[test]
fn every_measured_row_is_predicted() {
    NULL_DEVICE.is_predicted(231, [0.001, 0.001, 0.01], [0.001, 0.001, 0.6]);
}

#[test]
fn every_row_of_other_tasks_is_predicted() {
    PREFERENCE.is_predicted(154, [0.001, 0.04, 0.19], [0.001, 0.6, 1.0]);
}

#[test]
fn every_row_of_generation_while_training_is_predicted() {
    ROLLOUTS.is_predicted(29, [0.0022, 0.012, 0.028], [0.016, 4.0, 5.0]);
}

#[test]
fn every_row_of_distillation_is_predicted() {
    DISTILLATION.is_predicted(30, [0.005, 0.05, 0.05], [0.001, 0.04, 0.11]);
}

#[test]
fn every_row_of_policies_is_predicted() {
    PPO.is_predicted(28, [0.02, 0.16, 0.2], [0.01, 0.15, 0.25]);
}

#[test]
fn every_row_of_classification_is_predicted() {
    CLASSIFICATION.is_predicted(68, [0.001, 0.4, 1.1], [0.001, 1.1, 7.0]);
}

#[test]
fn every_row_of_embedding_is_predicted() {
    EMBEDDING.is_predicted(70, [0.001, 0.08, 0.5], [0.001, 0.7, 1.1]);
}

#[test]
fn every_row_of_evaluation_is_predicted() {
    EVALUATION.is_predicted(67, [0.002, 0.02, 0.16], [0.02, 0.9, 6.7]);
    // on one GPU none is off
    let engines = ["-ddp-", "-fsdp2-", "-zero"];
    let alone: Vec<_> = EVALUATION
        .report()
        .rows
        .iter()
        .filter(|row| !engines.iter().any(|engine| row.id.contains(engine)))
        .collect();
    assert_eq!(alone.len(), 80);
    for row in alone {
        let limit = if row.metric == Metric::Reserved { 0.06 } else { 0.001 };
        assert!(row.error_pct.abs() <= limit, "{}: {} %", row.id, row.error_pct);
    }
}

#[test]
fn every_row_of_experts_that_are_layers_is_predicted() {
    EXPERT_LAYERS.is_predicted(22, [0.001, 0.015, 0.015], [0.001, 0.12, 0.12]);
}

#[test]
fn every_row_of_spikes_is_predicted() {
    SPIKES.is_predicted(48, [0.001, 0.04, 0.27], [0.001, 0.75, 4.9]);
}

#[test]
fn every_row_of_other_adapters_is_predicted() {
    ADAPTERS.is_predicted(158, [0.001, 0.001, 0.022], [0.001, 0.05, 1.4]);
}

#[test]
fn every_row_of_other_stacks_is_predicted() {
    STACKS.is_predicted(78, [0.001, 0.005, 0.018], [0.001, 1.3, 2.6]);
}

/// PyTorch itself takes less for more sequences or tokens, where `tests/drawn/growth.rs` says so and where blocks are reused otherwise:
/// each step from one row to the next of a group, which differ by batch or length alone, has the sign that was measured.
#[test]
fn what_took_less_is_predicted_to() {
    GROWTH.is_predicted(17, [0.001, 0.018, 0.018], [0.001, 4.0, 4.0]);
    // all before the batch
    let group = |id: &str| id.split("-b").next().map(str::to_owned);
    let rows: Vec<_> = GROWTH.report().rows.iter().filter(|row| row.metric == Metric::Allocated).collect();
    let mut groups = 0;
    for pair in rows.windows(2).filter(|pair| group(&pair[0].id) == group(&pair[1].id)) {
        let [small, large] = pair else { continue };
        assert!(large.measured < small.measured && large.predicted < small.predicted, "{}", large.id);
        groups += 1;
    }
    assert_eq!(groups, 9, "eight groups, one of three rows");
}

#[test]
fn every_row_of_trl_is_predicted() {
    TRL.is_predicted(70, [0.001, 0.013, 0.03], [0.001, 0.13, 2.9]);
}

/// What other projects published of real GPUs: limits over all rows that carry a complete configuration.
#[test]
fn published_rows_are_predicted() {
    let Errors { count, median_pct, mean_pct, .. } = PUBLISHED.report().summary.all;
    assert!(count >= 149, "only {count} rows are predicted");
    assert!(median_pct <= 1.5, "median {median_pct:.2} %");
    assert!(mean_pct <= 8.0, "mean {mean_pct:.2} %");
}

#[test]
fn every_row_of_torchtunes_ranks_is_predicted() {
    TORCHTUNE.is_predicted(34, [0.001, 0.15, 0.2], [0.001, 2.6, 3.2]);
}

#[test]
fn every_row_of_torchtitans_trainer_is_predicted() {
    TORCHTITAN.is_predicted(29, [0.001, 0.01, 0.015], [0.001, 0.21, 0.25]);
}

#[test]
fn every_row_of_fused_adapters_is_predicted() {
    FUSED_ADAPTERS.is_predicted(49, [0.001, 0.045, 0.86], [0.001, 0.66, 6.5]);
}

#[test]
fn every_row_of_axolotls_ranks_is_predicted() {
    AXOLOTL.is_predicted(27, [0.001, 0.09, 0.09], [0.062, 2.2, 21.1]);
}

#[test]
fn every_row_of_trainers_ranks_is_predicted() {
    TRAINER.is_predicted(34, [0.001, 0.002, 0.49], [0.001, 3.8, 3.9]);
}

#[test]
fn every_row_of_text_alone_beside_an_idle_tower_is_predicted() {
    IDLE_TOWERS.is_predicted(20, [0.005, 0.03, 0.09], [0.02, 1.2, 8.3]);
}

/// None of them was looked at while the code was written.
#[test]
fn every_row_of_sequences_that_gpus_share_is_predicted() {
    CONTEXTS.is_predicted(13, [0.001, 0.01, 0.01], [0.001, 8.1, 8.1]);
}

/// None of them was looked at while the code was written.
#[test]
fn every_row_of_losses_that_fuse_the_head_is_predicted() {
    FUSED_LOSSES.is_predicted(29, [0.001, 0.09, 1.5], [0.001, 0.6, 1.5]);
}

#[test]
fn every_figure_of_shards_on_real_cards_is_predicted() {
    SHARDED.is_predicted_apart((2, [2.4, 3.9, 3.9]), (25, [1.9, 9.7, 11.0]));
}

/// prime-rl's own code reserves over the null device what these cards did, to the byte.
#[test]
fn what_prime_rl_reserved_on_real_cards_is_predicted() {
    let errors: Vec<f64> = SHARDED
        .runs()
        .iter()
        .filter(|run| run.id.starts_with("prime-rl-"))
        .map(|run| run.figure(Metric::Reserved).expect("all are reserved peaks").error_pct().abs())
        .collect();
    assert_eq!(errors.len(), 12);
    assert!(errors.iter().all(|error| *error < 1.2), "{errors:?}");
    assert!(errors.iter().filter(|error| **error < 0.2).count() >= 8, "{errors:?}");
}

#[test]
fn every_measured_family_is_predicted() {
    FAMILIES.is_predicted(229, [0.001, 0.021, 1.1], [0.001, 0.4, 6.0]);
}

#[test]
fn every_switch_is_predicted() {
    SWITCHES.is_predicted(149, [0.001, 0.001, 1.3], [0.001, 0.12, 7.0]);
}

#[test]
fn every_row_of_generation_is_predicted() {
    GENERATE.is_predicted(85, [0.001, 0.011, 0.07], [0.001, 0.22, 0.82]);
}

#[test]
fn every_row_with_pictures_is_predicted() {
    VISION.is_predicted(165, [0.0045, 0.02, 0.08], [0.02, 0.7, 5.0]);
}

#[test]
fn every_row_with_pictures_under_trl_is_predicted() {
    VISION_TRL.is_predicted(25, [0.01, 0.08, 0.08], [0.09, 1.1, 1.1]);
}

#[test]
fn every_row_of_preferred_answers_with_pictures_is_predicted() {
    PICTURE_PREFERENCES.is_predicted(18, [0.006, 0.062, 0.062], [0.015, 1.6, 1.6]);
}

#[test]
fn every_row_of_answers_to_pictures_is_predicted() {
    PICTURE_ANSWERS.is_predicted(40, [0.02, 0.07, 0.15], [0.1, 1.4, 3.0]);
}

#[test]
fn every_row_with_pictures_on_several_gpus_is_predicted() {
    VISION_RANKS.is_predicted(35, [0.01, 0.05, 0.06], [0.07, 0.9, 8.9]);
}

#[test]
fn every_row_of_int8_is_predicted() {
    INT8.is_predicted(20, [0.001, 0.005, 0.01], [0.001, 0.4, 0.9]);
}

#[test]
fn every_row_over_torchaos_weights_is_predicted() {
    TORCHAO.is_predicted(20, [0.001, 0.001, 0.001], [0.001, 0.12, 0.12]);
}

#[test]
fn every_row_over_gptqs_weights_is_predicted() {
    GPTQ.is_predicted(21, [0.001, 0.051, 0.051], [0.001, 0.9, 1.6]);
}

#[test]
fn every_row_over_awqs_weights_is_predicted() {
    AWQ.is_predicted(27, [0.001, 0.001, 0.001], [0.001, 0.001, 0.021]);
}

#[test]
fn every_row_of_float8_is_predicted() {
    FLOAT8.is_predicted(53, [0.001, 0.001, 0.001], [0.001, 0.01, 0.15]);
}

#[test]
fn every_rank_of_other_adapters_is_predicted() {
    ADAPTER_RANKS.is_predicted(13, [0.001, 0.068, 0.068], [0.001, 1.4, 1.4]);
}

#[test]
fn every_rank_of_trls_trainers_with_experts_is_predicted() {
    EXPERT_TRAINERS.is_predicted(18, [0.001, 0.041, 0.041], [0.011, 2.68, 2.68]);
}

#[test]
fn every_rank_with_adapters_on_experts_is_predicted() {
    EXPERT_RANKS.is_predicted(43, [0.01, 0.03, 0.055], [0.2, 8.0, 10.4]);
}

#[test]
fn every_row_of_ligers_layers_under_trl_is_predicted() {
    TRL_LIGER.is_predicted(24, [0.001, 0.033, 0.033], [0.001, 0.14, 0.89]);
}

#[test]
fn other_adapters_and_weights_in_8_bits_under_trl_are_predicted() {
    TRL_ADAPTERS.is_predicted(28, [0.001, 0.21, 0.66], [0.001, 0.8, 1.25]);
}

#[test]
fn every_row_of_compiled_layers_is_predicted() {
    COMPILED.is_predicted(51, [0.001, 0.001, 0.001], [0.001, 0.001, 0.031]);
}

#[test]
fn every_row_of_compiled_models_is_predicted() {
    COMPILED_MODEL.is_predicted(16, [0.001, 0.017, 0.017], [0.001, 13.53, 13.53]);
}

#[test]
fn every_rank_of_float8_is_predicted() {
    FLOAT8_RANKS.is_predicted(10, [0.001, 0.001, 0.001], [0.001, 0.001, 0.001]);
}

#[test]
fn every_row_of_quantisation_aware_training_is_predicted() {
    QAT.is_predicted(18, [0.001, 0.001, 0.001], [0.001, 0.024, 0.024]);
}

/// `scripts/check accuracy` prints what these tests write down of each file.
#[test]
fn no_file_of_measurements_is_left_out() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("data/measurements");
    for entry in fs::read_dir(folder).expect("the folder is there") {
        let name = entry.expect("it is listed").file_name().into_string().expect("it is text");
        let stem = name.trim_end_matches(".json");
        // speeds are another test's
        assert!(stem == "time" || FILES.iter().any(|file| file.is_called(stem)), "{name} is not predicted");
    }
}

#[test]
fn every_packed_row_is_predicted() {
    PACKED.is_predicted(86, [0.001, 0.001, 0.019], [0.001, 0.012, 0.8]);
}

#[test]
fn random_steps_are_predicted() {
    RANDOM.is_predicted(162, [0.001, 0.016, 0.1], [0.001, 0.4, 1.5]);
}

#[test]
fn drawn_steps_are_predicted() {
    DRAWN.is_predicted_but(&["reorder_and_upcast_attn"], 1043, [0.001, 0.04, 0.6], [0.001, 0.4, 13.0]);
}

#[test]
fn ligers_kernels_of_other_families_are_predicted() {
    LIGER_FAMILIES.is_predicted(29, [0.001, 0.03, 0.04], [0.001, 0.16, 2.4]);
}

#[test]
fn ranks_of_other_families_are_predicted() {
    FAMILY_RANKS.is_predicted(34, [0.001, 0.01, 0.02], [0.001, 0.21, 0.26]);
}

#[test]
fn drawn_ranks_are_predicted() {
    let refused = ["the code of", "clip_qkv of olmoe"];
    DRAWN_RANKS.is_predicted_but(&refused, 97, [0.001, 0.12, 0.3], [0.001, 3.2, 3.5]);
}

#[test]
fn preferences_of_all_logits_are_predicted() {
    PREFERENCE_LOGITS.is_predicted(69, [0.001, 0.05, 0.06], [0.001, 0.7, 11.6]);
}

#[test]
fn reinforcement_under_unsloth_is_predicted() {
    UNSLOTH_GRPO.is_predicted(10, [0.002, 0.01, 0.01], [0.23, 2.3, 2.3]);
}

#[test]
fn layers_that_unsloth_compiles_are_predicted() {
    UNSLOTH_LAYERS.is_predicted(30, [0.001, 0.001, 0.7], [0.3, 2.3, 2.5]);
}

#[test]
fn preferences_under_unsloth_are_predicted() {
    UNSLOTH_PREFERENCES.is_predicted(12, [0.001, 0.001, 0.001], [0.001, 0.5, 0.5]);
}

#[test]
fn all_logits_of_trl_are_predicted() {
    TRL_LOGITS.is_predicted(42, [0.001, 0.02, 0.025], [0.001, 0.09, 0.12]);
}

#[test]
fn drawn_steps_of_trl_are_predicted() {
    let refused = ["reentrant checkpointing", "classification with", "texts that share a sequence"];
    DRAWN_TRL.is_predicted_but(&refused, 66, [0.001, 0.03, 0.03], [0.001, 0.3, 0.3]);
}

#[test]
fn drawn_steps_of_other_families_are_predicted() {
    DRAWN_FAMILIES.is_predicted(83, [0.001, 0.07, 0.32], [0.001, 0.8, 2.7]);
}

#[test]
fn every_rank_of_many_is_predicted() {
    MULTI.is_predicted(193, [0.001, 0.015, 0.13], [0.001, 2.8, 4.0]);
}

#[test]
fn optimizers_and_tasks_on_many_are_predicted() {
    RANKS.is_predicted(351, [0.001, 0.026, 0.6], [0.001, 1.6, 10.0]);
}

#[test]
fn shared_layers_are_predicted() {
    TENSORS.is_predicted(26, [0.001, 0.04, 0.05], [0.001, 2.3, 6.0]);
}

/// The worst error by kind of scenario, which the page shows as the band of an answer.
#[test]
fn the_bands_are_what_was_measured() {
    let mut kinds: BTreeMap<[String; 3], (u64, f64, Option<f64>, u64)> = BTreeMap::new();
    // the longest of all tests: a thread for each file
    let runs: Vec<Run> = thread::scope(|scope| {
        let all = FILES.map(|file| scope.spawn(move || file.runs().to_vec()));
        all.into_iter().flat_map(|runs| runs.join().expect("the file's rows are run")).collect()
    });
    let mut verdicts = Confusion::default();
    for run in &runs {
        verdicts.add(&run.verdicts);
        // they ran FSDP1: what FSDP2 is off by in its place says nothing of a run of FSDP2
        if run.id.starts_with("fsdpqlora-") {
            continue;
        }
        let kind = [run.software.clone(), run.family.clone(), run.settings.clone()];
        let error = |metric| run.figure(metric).map(|figure| figure.error_pct().abs());
        // A card that other projects measured on was shared, nearly full, or of another PyTorch: what was reserved there
        // says nothing of a run with room to spare.
        let reserved = error(Metric::Reserved)
            .filter(|_| !["published", "clusters", "sharded"].contains(&run.file.as_str()));
        let allocated = error(Metric::Allocated);
        if allocated.is_none() && reserved.is_none() {
            continue;
        }
        let kind = kinds.entry(kind).or_default();
        if let Some(error) = allocated {
            kind.0 += 1;
            kind.1 = kind.1.max(error);
            kind.3 += u64::from(run.ran_on() == "card");
        }
        if let Some(error) = reserved {
            kind.2 = Some(kind.2.map_or(error, |worst| worst.max(error)));
        }
    }
    holds(RUNS, &check::write_runs(&runs));
    assert_reasons(&runs);
    assert_verdicts(&verdicts);
    let mut lines = String::new();
    for (kind, (rows, allocated, reserved, on_cards)) in kinds {
        let reserved = reserved.map_or("-".to_owned(), |reserved| format!("{reserved:.3}"));
        writeln!(lines, "{}\t{rows}\t{allocated:.3}\t{reserved}\t{on_cards}", kind.join("\t"))
            .expect("a String takes everything");
    }
    holds(KINDS, &lines);
}

/// What others published and is not predicted stands in a file with the reason, beside the runs on many GPUs that
/// `tools/unexpressed.py` judges.
#[test]
fn what_is_not_predicted_is_listed_with_its_reason() {
    let rows = PUBLISHED.rows();
    let row_of = |id: &str| rows.iter().find(|row| row["id"] == id);
    let kept = read(UNEXPRESSED);
    let others = kept.lines().filter(|line| row_of(line.split('\t').next().unwrap_or_default()).is_none());
    let unsupported = &PUBLISHED.report().unsupported;
    assert!(unsupported.len() > 100, "{}", unsupported.len());
    // two GPUs of one project: what is predicted of them is a file of its own
    let sharded = SHARDED.rows();
    let is_elsewhere = |id: &str| sharded.iter().any(|row| row["id"] == id);
    let own = unsupported.iter().filter(|unsupported| !is_elsewhere(&unsupported.id)).map(|unsupported| {
        let row = row_of(&unsupported.id).expect("a row of the file");
        let text = |key: &str| row[key].as_str().unwrap_or_default();
        let project = text("source").split(':').next().unwrap_or_default();
        let commit = text("source_commit").get(..8).map(|commit| format!("@{commit}")).unwrap_or_default();
        format!("{}\t{project}{commit}\t{}\t{}", unsupported.id, text("quality"), unsupported.reason)
    });
    let lines = others.map(str::to_owned).chain(own).map(|line| line + "\n");
    holds(UNEXPRESSED, &lines.collect::<String>());
}

/// Holds a generated file to what was computed, or writes it where that is asked for.
#[track_caller]
fn holds(path: &str, text: &str) {
    if std::env::var_os("HEADROOM_BLESS").is_some() {
        std::fs::write(format!("{}/{path}", env!("CARGO_MANIFEST_DIR")), text)
            .expect("the project is writable");
    }
    let kept = read(path);
    let differs = kept.lines().zip(text.lines()).find(|(kept, found)| kept != found);
    assert!(
        kept == text,
        "{path}: {differs:?}; {} and {} lines: run with HEADROOM_BLESS=1 and look at what changed",
        kept.lines().count(),
        text.lines().count()
    );
}

/// Every miss has a reason, if only that none was found, and every reason is still one of a miss.
fn assert_reasons(runs: &[Run]) {
    let is_miss = |run: &Run| {
        Metric::ALL.iter().any(|metric| run.figure(*metric).is_some_and(|figure| figure.is_miss()))
    };
    let without: Vec<&str> =
        runs.iter().filter(|run| is_miss(run) && run.reason.is_empty()).map(|run| run.id.as_str()).collect();
    assert_eq!(without, [""; 0], "data/misses.tsv says nothing of these");
    let mut said: Vec<&str> =
        runs.iter().map(|run| run.reason.as_str()).filter(|reason| !reason.is_empty()).collect();
    said.sort_unstable();
    said.dedup();
    let kept = read(MISSES);
    let mut wanted: Vec<&str> = kept.lines().filter_map(|line| line.rsplit('\t').next()).collect();
    wanted.sort_unstable();
    wanted.dedup();
    assert_eq!(said, wanted, "data/misses.tsv gives reasons for what is no miss any more");
}

/// Of the verdicts on cards around what each run takes, at most 2 in 1000 may be wrong without being hedged: "fits" for a run
/// that fails, and a refusal of a run that gets through.
fn assert_verdicts(verdicts: &Confusion) {
    let Confusion { runs, fails, .. } = verdicts;
    assert!(runs.total() > 3_000 && fails.total() > 900, "{verdicts:?}");
    assert!(fails.fits * 1000 <= 2 * fails.total(), "{verdicts:?}");
    assert!(runs.over * 1000 <= 2 * runs.total(), "{verdicts:?}");
}

/// The allocator's replica under a capacity: what is reserved without one, and the least that a run gets through with, in
/// GiB, found on the null device by bisection to 0.5 %.
#[test]
fn the_least_that_a_run_gets_through_with() {
    let rows = NULL_DEVICE.rows();
    let measured: Vec<serde_json::Value> = serde_json::from_str(&read(FIT)).expect("the file is JSON");
    for fit in measured {
        let row = rows.iter().find(|row| row["id"] == fit["id"]).expect("a row of the null device");
        let scenario = check::scenario(row).expect("every row is predicted");
        let (architecture, gpu) =
            (scenario.architecture().expect("it is known"), scenario.gpu().expect("it is known"));
        let recording = Recording::of(&architecture, &scenario, &gpu).expect("it was predicted");
        let expandable_segments = fit["expandable"] == true;
        let with = |capacity| recording.allocate(Settings { expandable_segments, capacity });
        let unbounded = with(None);
        let (mut low, mut high) = (unbounded.allocated_peak.0 / 2, unbounded.reserved_peak.0);
        while high - low > high / 1000 {
            let middle = low.midpoint(high);
            let fails = with(Some(middle)).failure.is_some();
            *if fails { &mut low } else { &mut high } = middle;
        }
        let limit = 2.5;
        for (what, predicted) in [("reserved", unbounded.reserved_peak.0), ("needs", high)] {
            let gib = fit[what].as_f64().expect("a number");
            let error = (predicted as f64 / BYTES_PER_GIB as f64 / gib - 1.0) * 100.0;
            assert!(error.abs() <= limit, "{} {what}: {error:+.2} %", fit["id"]);
        }
    }
}
