//! The step against everything that was measured. `HEADROOM_BLESS=1 cargo test --test accuracy` writes the figures down
//! anew; look at the difference before you commit it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::OnceLock;
use std::thread;

use headroom::allocator::Settings;
use headroom::check::{self, Confusion, Errors, Metric, Report, Run};
use headroom::step::Recording;
use headroom::units::BYTES_PER_GIB;

const NULL_DEVICE: &str = "data/measurements/null-device.json";
const STACKS: &str = "data/measurements/null-device-stacks.json";
/// Runs of which the larger one took less: pairs and a triple, one beside the other.
const GROWTH: &str = "data/measurements/growth.json";
const FIT: &str = "tests/fixtures/measurements/fit.json";
const PUBLISHED: &str = "data/measurements/published.json";
const FAMILIES: &str = "data/measurements/families.json";
const SWITCHES: &str = "data/measurements/switches.json";
const PACKED: &str = "data/measurements/packed.json";
const RANDOM: &str = "data/measurements/random.json";
const TRL: &str = "data/measurements/trl.json";
const PREFERENCE: &str = "data/measurements/preference.json";
/// trl's trainers of reinforcement where the model that is trained generates the answers: rows that the code was written beside, then
/// `-drawn-`, of other models and settings.
const ROLLOUTS: &str = "data/measurements/rollouts.json";
/// trl's trainer of distillation.
const DISTILLATION: &str = "data/measurements/distillation.json";
/// transformers' Trainer over heads for classification: rows that the code was written beside, then `-drawn-`.
const CLASSIFICATION: &str = "data/measurements/classification.json";
/// sentence-transformers' trainer, its contrastive loss at once and with cached gradients.
const EMBEDDING: &str = "data/measurements/embedding.json";
const ADAPTERS: &str = "data/measurements/adapters.json";
const DRAWN: &str = "data/measurements/drawn.json";
const MULTI: &str = "data/measurements/multi.json";
const RANKS: &str = "data/measurements/ranks.json";
/// transformers' own tensor parallelism, alone and with FSDP2: rows that the code was written beside, then `-after-` and `-last-`.
const TENSORS: &str = "data/measurements/tensor-parallel.json";
/// What `generate` of transformers took: rows that the code was written beside, then `-after-`, of other models and settings.
const VISION: &str = "data/measurements/vision.json";
const GENERATE: &str = "data/measurements/generate.json";
/// Frozen weights in LLM.int8: beside LoRA, and under `generate`.
const INT8: &str = "data/measurements/int8.json";
const MEGATRON: &str = "data/measurements/megatron.json";
const KINDS: &str = "data/accuracy.tsv";
const RUNS: &str = "data/measured.tsv";
/// What others published and is not predicted, with the reason.
const UNEXPRESSED: &str = "data/unexpressed.tsv";

fn read(path: &str) -> String {
    let path = format!("{}/{path}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Rows of [`STACKS`].
const STACK_ROWS: usize = 78;
/// Rows of [`TRL`].
const GROWTH_ROWS: usize = 17;
const TRL_ROWS: usize = 59;
/// Rows of [`PREFERENCE`].
const PREFERENCE_ROWS: usize = 85;
/// Rows of [`ROLLOUTS`].
const ROLLOUTS_ROWS: usize = 23;
/// Rows of [`DISTILLATION`].
const DISTILLATION_ROWS: usize = 16;
/// Rows of [`EMBEDDING`].
const EMBEDDING_ROWS: usize = 63;
/// Rows of [`CLASSIFICATION`].
const CLASSIFICATION_ROWS: usize = 53;
/// Rows of [`ADAPTERS`].
const ADAPTERS_ROWS: usize = 119;
/// Rows of [`PUBLISHED`] that carry a complete configuration and can be expressed, at least.
const PUBLISHED_ROWS: usize = 149;

/// Rows of [`MULTI`] whose engine is modelled.
const MULTI_ROWS: usize = 180;

/// Rows of [`RANKS`].
const RANKS_ROWS: usize = 279;

/// Rows of [`TENSORS`].
const TENSORS_ROWS: usize = 26;

/// Rows of [`GENERATE`].
const GENERATE_ROWS: usize = 40;

/// Rows of [`VISION`].
const VISION_ROWS: usize = 78;

/// Rows of [`INT8`].
const INT8_ROWS: usize = 20;

/// The same of Transformer Engine's layers.
const TRANSFORMER_ENGINE: &str = "data/measurements/transformer-engine.json";
/// What others measured on many GPUs.
const CLUSTERS: &str = "data/measurements/clusters.json";
/// Rows of [`TRANSFORMER_ENGINE`], and figures of either kind of [`CLUSTERS`].
const TRANSFORMER_ENGINE_ROWS: usize = 29;
const CLUSTERS_ROWS: usize = 80;
/// Rows of [`MEGATRON`].
const MEGATRON_ROWS: usize = 43;

/// Rows of [`DRAWN`] that are modelled.
const DRAWN_ROWS: usize = 1043;

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
    within(&report.summary.allocated, 231, [0.01, 0.5, 1.0]);
    within(&report.summary.reserved, 231, [0.01, 1.0, 7.0]);
}

/// trl's trainers on preferences and on rewards.
#[test]
fn every_row_of_other_tasks_is_predicted() {
    let report = check::check(&read(PREFERENCE), false).expect("the file is an array of rows");
    assert!(report.unsupported.is_empty(), "{:?}", report.unsupported);
    within(&report.summary.allocated, PREFERENCE_ROWS, [0.01, 0.1, 0.2]);
    within(&report.summary.reserved, PREFERENCE_ROWS, [0.01, 0.6, 1.0]);
}

/// Reinforcement whose answers the model that is trained generates: whole weights, LoRA and QLoRA, peaks of training and of generating.
#[test]
fn every_row_of_generation_while_training_is_predicted() {
    let report = check::check(&read(ROLLOUTS), false).expect("the file is an array of rows");
    assert!(report.unsupported.is_empty(), "{:?}", report.unsupported);
    within(&report.summary.allocated, ROLLOUTS_ROWS, [0.01, 0.03, 0.05]);
    within(&report.summary.reserved, ROLLOUTS_ROWS, [0.03, 4.0, 5.0]);
}

/// A student beside a teacher: whole weights, LoRA and QLoRA, teachers in float32, bfloat16 and 4 bits.
#[test]
fn every_row_of_distillation_is_predicted() {
    let report = check::check(&read(DISTILLATION), false).expect("the file is an array of rows");
    assert!(report.unsupported.is_empty(), "{:?}", report.unsupported);
    within(&report.summary.allocated, DISTILLATION_ROWS, [0.1, 1.0, 3.0]);
    within(&report.summary.reserved, DISTILLATION_ROWS, [2.0, 6.0, 6.0]);
}

/// Heads for whole texts: decoders and encoders, whole weights, LoRA and QLoRA.
#[test]
fn every_row_of_classification_is_predicted() {
    let report = check::check(&read(CLASSIFICATION), false).expect("the file is an array of rows");
    assert!(report.unsupported.is_empty(), "{:?}", report.unsupported);
    within(&report.summary.allocated, CLASSIFICATION_ROWS, [0.01, 1.0, 3.0]);
    within(&report.summary.reserved, CLASSIFICATION_ROWS, [0.01, 2.1, 6.5]);
}

/// Embeddings: encoders and decoders, whole weights, LoRA and QLoRA, gradients cached or not.
#[test]
fn every_row_of_embedding_is_predicted() {
    let report = check::check(&read(EMBEDDING), false).expect("the file is an array of rows");
    assert!(report.unsupported.is_empty(), "{:?}", report.unsupported);
    within(&report.summary.allocated, EMBEDDING_ROWS, [0.01, 0.5, 1.0]);
    within(&report.summary.reserved, EMBEDDING_ROWS, [0.01, 2.0, 5.0]);
}

/// Adapters beside LoRA, and optimizers that came later: Muon, schedule-free AdamW, StableAdamW. The worst of reserved memory is one
/// of LoKr, whose blocks are as large as weights.
#[test]
fn every_row_of_other_adapters_is_predicted() {
    let report = check::check(&read(ADAPTERS), false).expect("the file is an array of rows");
    assert!(report.unsupported.is_empty(), "{:?}", report.unsupported);
    within(&report.summary.allocated, ADAPTERS_ROWS, [0.01, 0.01, 0.05]);
    within(&report.summary.reserved, ADAPTERS_ROWS, [0.01, 0.25, 1.5]);
}

/// The published rows take longest, so they are predicted once for all tests.
fn published() -> &'static Report {
    static REPORT: OnceLock<Report> = OnceLock::new();
    REPORT.get_or_init(|| check::check(&read(PUBLISHED), false).expect("the file is an array of rows"))
}

/// Other kernels and losses that do not write out all logits, as their own code runs them.
#[test]
fn every_row_of_other_stacks_is_predicted() {
    let report = check::check(&read(STACKS), false).expect("the file is an array of rows");
    assert!(report.unsupported.is_empty(), "{:?}", report.unsupported);
    within(&report.summary.allocated, STACK_ROWS, [0.05, 0.5, 0.5]);
    within(&report.summary.reserved, STACK_ROWS, [1.0, 8.0, 10.0]);
}

/// PyTorch itself takes less for more sequences or tokens, where `tests/drawn/growth.rs` says so and where blocks are reused otherwise:
/// each step from one row to the next of a group, which differ by batch or length alone, has the sign that was measured.
#[test]
fn what_took_less_is_predicted_to() {
    let report = check::check(&read(GROWTH), false).expect("the file is an array of rows");
    assert!(report.unsupported.is_empty(), "{:?}", report.unsupported);
    within(&report.summary.allocated, GROWTH_ROWS, [0.001, 0.03, 0.03]);
    within(&report.summary.reserved, GROWTH_ROWS, [0.03, 3.4, 3.4]);
    // all before the batch
    let group = |id: &str| id.split("-b").next().map(str::to_owned);
    let rows: Vec<_> = report.rows.iter().filter(|row| row.metric == Metric::Allocated).collect();
    let mut groups = 0;
    for pair in rows.windows(2).filter(|pair| group(&pair[0].id) == group(&pair[1].id)) {
        let [small, large] = pair else { continue };
        assert!(large.measured < small.measured && large.predicted < small.predicted, "{}", large.id);
        groups += 1;
    }
    assert_eq!(groups, 9, "eight groups, one of three rows");
}

/// trl's own trainer, with its collator, head and loop.
#[test]
fn every_row_of_trl_is_predicted() {
    let report = check::check(&read(TRL), false).expect("the file is an array of rows");
    assert!(report.unsupported.is_empty(), "{:?}", report.unsupported);
    within(&report.summary.allocated, TRL_ROWS, [0.01, 0.1, 0.35]);
    within(&report.summary.reserved, TRL_ROWS, [0.01, 2.2, 4.5]);
}

/// What other projects published of real GPUs: limits over all rows that carry a complete configuration.
#[test]
fn published_rows_are_predicted() {
    let report = published();
    let Errors { count, median_pct, mean_pct, .. } = report.summary.all;
    assert!(count >= PUBLISHED_ROWS, "only {count} rows are predicted");
    assert!(median_pct <= 1.5, "median {median_pct:.2} %");
    assert!(mean_pct <= 8.0, "mean {mean_pct:.2} %");
}

/// One rank of jobs of Megatron-core: tensor and pipeline parallelism, any stage.
#[test]
fn every_row_of_megatron_is_predicted() {
    let report = check::check(&read(MEGATRON), false).expect("the file is an array of rows");
    assert!(report.unsupported.is_empty(), "{:?}", report.unsupported);
    within(&report.summary.allocated, MEGATRON_ROWS, [0.001, 0.05, 0.1]);
    within(&report.summary.reserved, MEGATRON_ROWS, [0.01, 2.0, 3.0]);
}

/// The same of Transformer Engine's layers, with sequence and context parallelism.
#[test]
fn every_row_of_transformer_engine_is_predicted() {
    let report = check::check(&read(TRANSFORMER_ENGINE), false).expect("the file is an array of rows");
    assert!(report.unsupported.is_empty(), "{:?}", report.unsupported);
    within(&report.summary.allocated, TRANSFORMER_ENGINE_ROWS, [0.001, 0.04, 0.1]);
    within(&report.summary.reserved, TRANSFORMER_ENGINE_ROWS, [0.06, 1.3, 6.9]);
}

/// SimuMax's runs of Megatron-LM on 8 B200, every rank. What was reserved differs among the ranks of one run by up to 7 %.
#[test]
fn every_figure_of_real_clusters_is_predicted() {
    let report = check::check(&read(CLUSTERS), false).expect("the file is an array of rows");
    assert!(report.unsupported.is_empty(), "{:?}", report.unsupported);
    within(&report.summary.allocated, CLUSTERS_ROWS, [0.001, 0.005, 0.01]);
    within(&report.summary.reserved, CLUSTERS_ROWS, [0.6, 3.7, 4.1]);
}

#[test]
fn every_measured_family_is_predicted() {
    let report = check::check(&read(FAMILIES), false).expect("the file is an array of rows");
    assert!(report.unsupported.is_empty(), "{:?}", report.unsupported);
    within(&report.summary.allocated, 216, [0.01, 0.3, 1.0]);
}

/// Steps in less memory by switches of the loop, whoever's code runs the model.
#[test]
fn every_switch_is_predicted() {
    let report = check::check(&read(SWITCHES), false).expect("the file is an array of rows");
    assert!(report.unsupported.is_empty(), "{:?}", report.unsupported);
    within(&report.summary.allocated, 118, [0.01, 0.1, 2.0]);
    within(&report.summary.reserved, 118, [0.01, 2.0, 8.0]);
}

/// Prompts and tokens after them, with a growing cache, a static one or none.
#[test]
fn every_row_of_generation_is_predicted() {
    let report = check::check(&read(GENERATE), false).expect("the file is an array of rows");
    assert!(report.unsupported.is_empty(), "{:?}", report.unsupported);
    within(&report.summary.allocated, GENERATE_ROWS, [0.001, 0.01, 0.1]);
    within(&report.summary.reserved, GENERATE_ROWS, [0.001, 0.5, 3.0]);
}

/// Pictures among the text: tower trained and frozen, with every method.
#[test]
fn every_row_with_pictures_is_predicted() {
    let report = check::check(&read(VISION), false).expect("the file is an array of rows");
    assert!(report.unsupported.is_empty(), "{:?}", report.unsupported);
    within(&report.summary.allocated, VISION_ROWS, [0.05, 0.15, 0.2]);
    within(&report.summary.reserved, VISION_ROWS, [0.3, 1.5, 4.5]);
}

/// Weights in 8 bits, with outliers in their inputs.
#[test]
fn every_row_of_int8_is_predicted() {
    let report = check::check(&read(INT8), false).expect("the file is an array of rows");
    assert!(report.unsupported.is_empty(), "{:?}", report.unsupported);
    within(&report.summary.allocated, INT8_ROWS, [0.001, 0.01, 0.02]);
    within(&report.summary.reserved, INT8_ROWS, [0.01, 0.5, 1.0]);
}

/// Texts that share a sequence, and the package flash-attn. The reserved peak that is furthest off is gemma3's, whose
/// tensors at the peak agree.
#[test]
fn every_packed_row_is_predicted() {
    let report = check::check(&read(PACKED), false).expect("the file is an array of rows");
    assert!(report.unsupported.is_empty(), "{:?}", report.unsupported);
    within(&report.summary.allocated, 86, [0.01, 0.05, 0.3]);
    within(&report.summary.reserved, 86, [0.01, 0.4, 21.0]);
}

/// Settings that a random generator chose: combinations that nobody had in mind.
#[test]
fn random_steps_are_predicted() {
    let report = check::check(&read(RANDOM), false).expect("the file is an array of rows");
    assert!(report.unsupported.is_empty(), "{:?}", report.unsupported);
    within(&report.summary.allocated, 162, [0.01, 0.5, 4.0]);
    within(&report.summary.reserved, 162, [0.05, 3.0, 20.0]);
}

/// Architectures and settings that `tools/draw_steps.py` drew, far from any published model: widths, heads of any size,
/// activations and switches that nobody had in mind. One switch of gpt2 is refused.
#[test]
fn drawn_steps_are_predicted() {
    let report = check::check(&read(DRAWN), false).expect("the file is an array of rows");
    let refused = |reason: &str| reason.contains("reorder_and_upcast_attn");
    let others: Vec<_> = report.unsupported.iter().filter(|row| !refused(&row.reason)).collect();
    assert!(others.is_empty(), "{others:?}");
    within(&report.summary.allocated, DRAWN_ROWS, [0.01, 0.15, 1.5]);
    within(&report.summary.reserved, DRAWN_ROWS, [0.02, 1.5, 13.0]);
}

/// One rank of many, as the engines' own code runs it.
#[test]
fn every_rank_of_many_is_predicted() {
    let report = check::check(&read(MULTI), false).expect("the file is an array of rows");
    assert!(report.unsupported.is_empty(), "{:?}", report.unsupported);
    within(&report.summary.allocated, MULTI_ROWS, [0.01, 0.07, 0.13]);
    within(&report.summary.reserved, MULTI_ROWS, [0.02, 4.6, 10.7]);
}

/// The same with other optimizers, and with trl's trainers.
#[test]
fn optimizers_and_tasks_on_many_are_predicted() {
    let report = check::check(&read(RANKS), false).expect("the file is an array of rows");
    assert!(report.unsupported.is_empty(), "{:?}", report.unsupported);
    within(&report.summary.allocated, RANKS_ROWS, [0.01, 0.04, 0.6]);
    within(&report.summary.reserved, RANKS_ROWS, [0.02, 2.0, 11.6]);
}

/// One rank where GPUs share layers by transformers' own plan.
#[test]
fn shared_layers_are_predicted() {
    let report = check::check(&read(TENSORS), false).expect("the file is an array of rows");
    assert!(report.unsupported.is_empty(), "{:?}", report.unsupported);
    within(&report.summary.allocated, TENSORS_ROWS, [0.01, 0.03, 0.05]);
    within(&report.summary.reserved, TENSORS_ROWS, [0.02, 2.3, 5.6]);
}

/// The worst error by kind of scenario, which the page shows as the band of an answer.
#[test]
fn the_bands_are_what_was_measured() {
    let mut kinds: BTreeMap<[String; 3], (u64, f64, Option<f64>)> = BTreeMap::new();
    let files = [
        NULL_DEVICE,
        FAMILIES,
        STACKS,
        GROWTH,
        TRL,
        PREFERENCE,
        ROLLOUTS,
        DISTILLATION,
        CLASSIFICATION,
        EMBEDDING,
        ADAPTERS,
        SWITCHES,
        PACKED,
        RANDOM,
        DRAWN,
        MULTI,
        RANKS,
        TENSORS,
        GENERATE,
        VISION,
        INT8,
        MEGATRON,
        TRANSFORMER_ENGINE,
        CLUSTERS,
        PUBLISHED,
    ];
    let of_file = |path: &str| {
        let name =
            path.rsplit('/').next().and_then(|name| name.strip_suffix(".json")).expect("a file's name");
        check::runs(name, &read(path)).expect("the file is an array of rows")
    };
    // the longest of all tests: a thread for each file
    let runs: Vec<Run> = thread::scope(|scope| {
        let all = files.map(|path| scope.spawn(move || of_file(path)));
        all.into_iter().flat_map(|runs| runs.join().expect("the file's rows are run")).collect()
    });
    let mut verdicts = Confusion::default();
    for run in &runs {
        verdicts.add(&run.verdicts);
        let kind = [run.software.clone(), run.family.clone(), run.settings.clone()];
        let error = |metric| run.figure(metric).map(|figure| figure.error_pct().abs());
        // A card that other projects measured on was shared, nearly full, or of another PyTorch: what was reserved there
        // says nothing of a run with room to spare.
        let reserved =
            error(Metric::Reserved).filter(|_| !["published", "clusters"].contains(&run.file.as_str()));
        let allocated = error(Metric::Allocated);
        if allocated.is_none() && reserved.is_none() {
            continue;
        }
        let kind = kinds.entry(kind).or_default();
        if let Some(error) = allocated {
            kind.0 += 1;
            kind.1 = kind.1.max(error);
        }
        if let Some(error) = reserved {
            kind.2 = Some(kind.2.map_or(error, |worst| worst.max(error)));
        }
    }
    holds(RUNS, &check::write_runs(&runs));
    assert_reasons(&runs);
    assert_verdicts(&verdicts);
    let mut lines = String::new();
    for (kind, (rows, allocated, reserved)) in kinds {
        let reserved = reserved.map_or("-".to_owned(), |reserved| format!("{reserved:.3}"));
        writeln!(lines, "{}\t{rows}\t{allocated:.3}\t{reserved}", kind.join("\t"))
            .expect("a String takes everything");
    }
    holds(KINDS, &lines);
}

/// What others published and is not predicted stands in a file with the reason, beside the runs on many GPUs that
/// `tools/unexpressed.py` judges.
#[test]
fn what_is_not_predicted_is_listed_with_its_reason() {
    let rows: Vec<serde_json::Value> = serde_json::from_str(&read(PUBLISHED)).expect("the file is JSON");
    let row_of = |id: &str| rows.iter().find(|row| row["id"] == id);
    let kept = read(UNEXPRESSED);
    let others = kept.lines().filter(|line| row_of(line.split('\t').next().unwrap_or_default()).is_none());
    let report = check::check(&read(PUBLISHED), false).expect("the file is an array of rows");
    assert!(report.unsupported.len() > 100, "{}", report.unsupported.len());
    let own = report.unsupported.iter().map(|unsupported| {
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

/// Every reason for a miss is still one of a miss.
fn assert_reasons(runs: &[Run]) {
    let mut said: Vec<&str> =
        runs.iter().map(|run| run.reason.as_str()).filter(|reason| !reason.is_empty()).collect();
    said.sort_unstable();
    said.dedup();
    let mut wanted: Vec<&str> =
        include_str!("../data/misses.tsv").lines().filter_map(|line| line.rsplit('\t').next()).collect();
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
    let rows: Vec<serde_json::Value> = serde_json::from_str(&read(NULL_DEVICE)).expect("the file is JSON");
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
