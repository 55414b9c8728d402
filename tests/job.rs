//! Two models in one round, through the library, beside what PyTorch's allocator measured of them.

#![cfg(not(target_arch = "wasm32"))]

use std::collections::BTreeSet;

use headroom::allocator::Settings;
use headroom::check;
use headroom::estimate;
use headroom::export;
use headroom::issue::{Field, Severity};
use headroom::job::{Act, Batch, Job, Loss, Member, Scorer};
use headroom::memory::{Category, Iteration, Peak, Phase, Stage};
use headroom::model::catalogue;
use headroom::plan::Answer;
use headroom::scenario::{
    Answers, Checkpointing, Cluster, GpuChoice, Lengths, Lora, Mask, Merges, Method, ModelChoice, Offloading,
    Precision, Quantization, Reference, Rollouts, Saves, Scenario, Sharding, Spikes, Stack, Task, Tuner,
    WeightFormat,
};
use headroom::share;
use headroom::step::{self, Recording};
use headroom::units::Bytes;
use serde_json::Value;

/// `tests/fixtures/measurements/jobs.json`: rounds of two models, as `data/SOURCES.md` says.
const JOBS: &str = include_str!("fixtures/measurements/jobs.json");

/// How far the allocated peak of a round may be off.
const ALLOCATED: f64 = 0.001;
/// How far the reserved peak may be off.
const RESERVED: f64 = 0.02;

fn rows() -> Vec<Value> {
    serde_json::from_str(JOBS).expect("the rows are JSON")
}

/// The job of a row, on its card.
fn job(row: &Value) -> (Job, Scenario) {
    let scenario = check::scenario(row).expect("the row can be expressed");
    let policy = Member::from(&scenario);
    let reference = Member { training: None, checkpointing: Checkpointing::Off, ..policy.clone() };
    let (batch, times) = (Batch::from(&scenario), scenario.accumulation);
    let round = match row["round"].as_str() {
        Some("score-train") => vec![
            Act::score(1, batch),
            Act::Train { member: 0, batch, loss: Loss::Labels, times },
            Act::Update { member: 0 },
        ],
        Some("preference") => {
            let prompt = row["prompt"].as_u64().expect("a prompt has a length");
            let loss = Loss::Preference { reference: Scorer::Member(1), prompt };
            vec![Act::Train { member: 0, batch, loss, times }, Act::Update { member: 0 }]
        }
        other => panic!("no round is called {other:?}"),
    };
    (Job { members: vec![policy, reference], round, cluster: Cluster::ONE, vllm: None }, scenario)
}

/// What is said of a figure that is off by more than that.
fn off(what: &str, predicted: u64, measured: &Value, tolerance: f64) -> Option<String> {
    let measured = measured.as_u64().unwrap_or_else(|| panic!("{what} was measured"));
    let error = predicted as f64 / measured as f64 - 1.0;
    let said = format!("{what}: {predicted} for {measured}, {:+.3} %", error * 100.0);
    println!("{said}");
    (error.abs() > tolerance).then_some(said)
}

/// A student that answers by itself writes the answers of all micro-batches of a step before it learns from them.
#[test]
fn a_student_writes_its_answers_first() {
    let linked = |more: &str| {
        let link = format!(
            "v=1&m=Qwen/Qwen2.5-0.5B&task=distil&st=trl&p=bf16&method=full&tw=bf16&s=256&prompt=128&b=2&ga=3{more}"
        );
        share::decode(&link).scenarios.remove(0)
    };
    let (own, elsewhere) = (linked("&roll=transformers"), linked(""));
    let [first, ..] = Job::from(&own).round[..] else { panic!("nothing is done") };
    let Act::Generate { member: 0, batch, how } = first else { panic!("{first:?}") };
    assert_eq!((batch.sequences, batch.length, how.new_tokens), (6, 128, 128));
    assert!(!Job::from(&elsewhere).round.iter().any(|act| matches!(act, Act::Generate { .. })));
    let memory = estimate(&own).memory.expect("an answer");
    assert!(memory.steady.phases.iter().any(|(phase, _)| phase.stage == Stage::Decode));
}

#[test]
fn two_models_in_one_round_need_what_was_measured() {
    let mut wrong = Vec::new();
    for row in rows() {
        let id = row["id"].as_str().expect("a row has a name");
        let (job, scenario) = job(&row);
        let recording =
            Recording::of_job(&job, &scenario.gpu().expect("a card")).expect("the job is modelled");
        let replay = recording.replay(Settings::default());
        let measured = &row["measured"];
        let (allocated, reserved) = (replay.allocation.allocated_peak.0, replay.allocation.reserved_peak.0);
        wrong.extend(off(&format!("{id} allocated"), allocated, &measured["peak"]["overall"], ALLOCATED));
        wrong.extend(off(&format!("{id} reserved"), reserved, &measured["reserved"]["peak_stat"], RESERVED));
        let Some(phases) = measured["peak"]["steady"].as_object() else { continue };
        for (phase, peak) in &replay.steady.phases {
            let name = format!("{id} {}", phase.slug());
            wrong.extend(off(&name, peak.bytes.0, &phases[phase.slug()], ALLOCATED));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn one_layer_on_behalf_of_many_says_the_same_of_a_job() {
    for row in rows() {
        let (job, scenario) = job(&row);
        let gpu = scenario.gpu().expect("a card");
        let memory = step::run_job(&job, &gpu).expect("the job is modelled");
        let [first, later] = Recording::of_job(&job, &gpu).expect("the job is modelled").iterations();
        assert_eq!((&memory.first, &memory.steady), (&first, &later), "{}", row["id"]);
        let (total, trainable) = (memory.parameters.total, memory.parameters.trainable);
        assert_eq!(total, 2 * trainable, "{}: two models, of which one is trained", row["id"]);
    }
}

#[test]
fn a_scenario_is_a_job_of_one_model() {
    let scenario = Scenario::default();
    let gpu = scenario.gpu().expect("a card");
    let architecture = scenario.architecture().expect("a model");
    let memory = step::run(&architecture, &scenario, &gpu).expect("it is modelled");
    assert_eq!(step::run_job(&Job::from(&scenario), &gpu), Ok(memory));
}

#[test]
fn a_model_that_scores_keeps_nothing() {
    let scenario = Scenario { method: Method::Full, ..Scenario::default() };
    let gpu = scenario.gpu().expect("a card");
    let member = Member { training: None, ..Member::from(&scenario) };
    let batch = Batch::from(&scenario);
    let round = vec![Act::score(0, batch)];
    let job = Job { members: vec![member], round, cluster: Cluster::ONE, vllm: None };
    let memory = step::run_job(&job, &gpu).expect("it is modelled");
    let stages =
        |iteration: &Iteration| iteration.phases.iter().map(|(phase, _)| phase.stage).collect::<Vec<_>>();
    assert_eq!(stages(&memory.steady), [Stage::Score]);
    assert_eq!(memory.parameters.trainable, 0);
    let doubled = Batch { sequences: batch.sequences * 2, ..batch };
    let twice = Job { round: vec![Act::score(0, doubled)], ..job };
    let twice = step::run_job(&twice, &gpu).expect("it is modelled");
    let token_ids = 2 * 8 * batch.tokens();
    assert_eq!(
        twice.resting.total().0,
        memory.resting.total().0 + token_ids,
        "only the batch is larger at rest"
    );
}

#[test]
fn every_model_scores_the_same_both_ways() {
    let mut answered = 0;
    for entry in catalogue::entries() {
        let scenario = Scenario {
            model: ModelChoice::Catalogue(entry.id.to_owned()),
            method: Method::Full,
            precision: Precision::AmpBf16,
            checkpointing: Checkpointing::Off,
            batch: 2,
            sequence: 64,
            ..Scenario::default()
        };
        let gpu = scenario.gpu().expect("a card");
        let member = Member { training: None, ..Member::from(&scenario) };
        let round = vec![Act::score(0, Batch::from(&scenario))];
        let job = Job { members: vec![member], round, cluster: Cluster::ONE, vllm: None };
        let Ok(memory) = step::run_job(&job, &gpu) else { continue };
        let [first, later] = Recording::of_job(&job, &gpu).expect("it is as modelled").iterations();
        assert_eq!((&memory.first, &memory.steady), (&first, &later), "{}", entry.id);
        let peak = memory.peak().1.parts;
        assert_eq!(
            peak.get(Category::Gradients) + peak.get(Category::Activations),
            Bytes::ZERO,
            "{}",
            entry.id
        );
        answered += 1;
    }
    assert!(answered > 150, "{answered} models score");
}

#[test]
fn what_is_no_job_says_what_would_be() {
    let scenario = Scenario::default();
    let gpu = scenario.gpu().expect("a card");
    let member = Member::from(&scenario);
    let frozen = Member { training: None, ..member.clone() };
    let batch = Batch::from(&scenario);
    let train = |loss| Act::Train { member: 0, batch, loss, times: 1 };
    let labels = train(Loss::Labels);
    let preference = train(Loss::Preference { reference: Scorer::Member(1), prompt: 1 });
    let uniform = Batch { lengths: Lengths::Uniform, ..batch };
    let packed = Batch { mask: Mask::Packed, ..batch };
    let generation = Scenario::default().generation;
    let liger = Member { stack: Stack::Liger, precision: Precision::Bf16, ..frozen.clone() };
    let trl = Member { stack: Stack::Trl, method: Method::Full, ..member.clone() };
    let pair = vec![trl.clone(), Member { training: None, ..trl.clone() }];
    let offloading = Member { offloading: Offloading::On, ..member.clone() };
    let unsloth = Member { stack: Stack::Unsloth, ..frozen.clone() };
    let cases = [
        (vec![], vec![], "nothing is done in a round"),
        (vec![member.clone()], vec![Act::Update { member: 1 }], "act 0 names member 1, of which there are 1"),
        (vec![frozen.clone()], vec![labels], "member 0 is trained, but nothing says how"),
        (vec![member.clone(), frozen.clone()], vec![labels], "no act runs member 1"),
        (
            vec![member.clone(), frozen.clone()],
            vec![preference],
            "preferences and reinforcement are modelled as trl's trainers run them",
        ),
        (
            vec![member.clone()],
            vec![Act::Merge { member: 0 }, labels],
            "adapters are merged once, when all else is done",
        ),
        (vec![unsloth], vec![Act::score(0, batch)], "without a loss is not modelled"),
        (
            vec![offloading, frozen.clone()],
            vec![labels, Act::score(1, batch)],
            "activations in the CPU's memory are not modelled of a job of several models",
        ),
        (
            vec![member, frozen],
            vec![labels, Act::score(1, uniform)],
            "lengths that vary are modelled of a job with one batch only",
        ),
        (
            vec![liger],
            vec![Act::Generate { member: 0, batch, how: generation }],
            "generation is modelled with transformers, not with transformers 5.17 + Liger",
        ),
        (
            pair.clone(),
            vec![Act::Train {
                member: 0,
                batch: uniform,
                loss: Loss::Preference { reference: Scorer::Member(1), prompt: 1 },
                times: 1,
            }],
            "lengths that vary are not modelled of answers",
        ),
        (
            pair,
            vec![Act::Train {
                member: 0,
                batch: packed,
                loss: Loss::Preference { reference: Scorer::Member(1), prompt: 1 },
                times: 1,
            }],
            "answers are modelled with a sequence in each row",
        ),
    ];
    for (members, round, message) in cases {
        let job = Job { members, round, cluster: Cluster::ONE, vllm: None };
        let issue = step::run_job(&job, &gpu).expect_err(message);
        assert!(issue.message.contains(message), "{issue}");
        assert!(issue.fix.is_some(), "{issue}");
        assert_eq!(Recording::of_job(&job, &gpu).expect_err(message), issue);
    }
}

/// Who scores is told apart where the policy and its reference do: each has its row in the tables and its key in JSON, of which the
/// policy's is the one that was there when it scores alone.
#[test]
fn scoring_is_named_for_who_does_it() {
    for (method, reference, expected) in [
        (Method::Lora, Reference::Scored, &[Stage::Policy, Stage::Reference][..]),
        (Method::Full, Reference::Scored, &[Stage::Policy, Stage::Reference]),
        (Method::Full, Reference::None, &[Stage::Policy]),
    ] {
        let scenario = Scenario {
            task: Task::Grpo,
            model: ModelChoice::Catalogue("Qwen/Qwen3-0.6B".into()),
            stack: Stack::Trl,
            method,
            precision: Precision::AmpBf16,
            answers: Answers { reference, prompt: 256, ..Scenario::default().answers },
            ..Scenario::default()
        };
        let answer = Answer::of(scenario);
        let memory = answer.estimate.memory.as_ref().expect("nothing stands in the way");
        let phases: Vec<Phase> = memory.steady.phases.iter().map(|(phase, _)| *phase).collect();
        let scoring: Vec<Stage> = phases.iter().map(|phase| phase.stage).take(expected.len()).collect();
        assert_eq!(scoring, expected, "{method:?} {reference:?}");
        for name in [Phase::label, Phase::slug] {
            let names: BTreeSet<&str> = phases.iter().map(|phase| name(*phase)).collect();
            assert_eq!(names.len(), phases.len(), "{phases:?}");
        }
        assert_eq!(phases[0].slug(), "score");
        let json = export::json(&answer);
        for (phase, peak) in &memory.steady.phases {
            assert_eq!(json["phases"]["steady"][phase.slug()]["bytes"], peak.bytes.0, "{phase:?}");
        }
    }
}

/// Side by side the passes of one name share a row, whichever act of its round each is; what one of them does not run is left empty.
#[test]
fn phases_of_one_name_share_a_row() {
    let link = "m=Qwen/Qwen3-0.6B&task=grpo&st=trl&mask=padded&2.task=sft";
    let answers: Vec<Answer> = share::decode(link).scenarios.into_iter().map(Answer::of).collect();
    let table = export::csv(&answers);
    let rows: Vec<&str> = table.lines().filter(|line| line.contains("Peak in the ")).collect();
    let names: BTreeSet<&str> = rows.iter().filter_map(|row| row.split('"').nth(1)).collect();
    assert_eq!(names.len(), rows.len(), "{rows:#?}");
    let scoring = rows.iter().find(|row| row.contains("policy's scoring")).expect("GRPO scores");
    assert!(scoring.ends_with(','), "{scoring}");
}

/// What stands outside the steps has phases of its own: merging after the last step alone.
#[test]
fn saving_and_merging_are_phases() {
    let scenario = Scenario {
        model: ModelChoice::Catalogue("meta-llama/Llama-3.2-1B".into()),
        method: Method::Lora,
        precision: Precision::Bf16,
        spikes: Spikes { saving: Saves::On, merging: Merges::Gpu },
        ..Scenario::default()
    };
    let memory = estimate(&scenario).memory.expect("nothing stands in the way");
    let stages = |iteration: &Iteration| -> Vec<Stage> {
        iteration.phases.iter().map(|(phase, _)| phase.stage).collect()
    };
    let step = [Stage::Forward, Stage::Backward, Stage::Step, Stage::Save];
    assert_eq!(stages(&memory.first), step);
    assert_eq!(stages(&memory.steady), [&step[..], &[Stage::Merge]].concat());
    let highest = |stage: Stage| {
        let mut phases = memory.steady.phases.iter();
        phases.find(|(phase, _)| phase.stage == stage).map(|(_, peak)| peak.bytes.0)
    };
    // the product of A and B of the largest layer, and the same with its scale, in 32 bits
    let largest = 2048 * 8192;
    assert_eq!(highest(Stage::Merge), Some(memory.resting.total().0 + 2 * 4 * largest));
    assert_eq!(highest(Stage::Save), Some(memory.resting.total().0));
}

/// A vLLM's share is part of what is needed: of one that is awake all the while, of one that sleeps beside what training keeps between its
/// steps.
#[test]
fn vllms_share_is_part_of_what_is_needed_awake_and_asleep() {
    let apart = Scenario {
        task: Task::Grpo,
        model: ModelChoice::Catalogue("Qwen/Qwen2.5-1.5B".into()),
        stack: Stack::Trl,
        method: Method::Lora,
        precision: Precision::AmpBf16Weights,
        mask: Mask::Padded,
        gpu: GpuChoice::Custom(Bytes(40 << 30)),
        ..Scenario::default()
    };
    let mut asleep = apart.clone();
    (asleep.reserve.vllm, asleep.reserve.sleeps) = (30, true);
    let share = Bytes(12 << 30);
    assert_eq!(asleep.gpu().unwrap().memory, Bytes(40 << 30));
    let mut awake = asleep.clone();
    awake.reserve.sleeps = false;
    assert_eq!(awake.gpu().unwrap().memory, Bytes(40 << 30));

    let [apart, awake, asleep] = [apart, awake, asleep].map(|scenario| {
        let memory = estimate(&scenario).memory.expect("an answer");
        let recording = Recording::of(&scenario.architecture().unwrap(), &scenario, &scenario.gpu().unwrap());
        // the other path says the same, in blocks
        let replayed = recording.expect("it runs").replay(Settings::default()).allocation.allocated_peak;
        assert!(replayed >= memory.peak().1.bytes && replayed.0 < memory.peak().1.bytes.0 + (256 << 20));
        memory
    });
    assert_eq!(awake.resting.total(), apart.resting.total() + share);
    assert_eq!(awake.needed(), apart.needed() + share);
    for ((phase, own), (other, alone)) in awake.steady.phases.iter().zip(&apart.steady.phases) {
        assert_eq!((phase, own.bytes), (other, alone.bytes + share));
    }
    assert!(asleep.needed() < awake.needed());
    let ((first, peak), rest) = asleep.steady.phases.split_first().expect("it has phases");
    assert_eq!(first.stage, Stage::Wake);
    assert_eq!(peak.bytes, asleep.resting.total() + share);
    // vLLM's copy of the weights in 16 bits, and keys and values in the rest
    let weights = 2 * (asleep.parameters.total - asleep.parameters.trainable);
    assert_eq!(peak.parts.get(Category::KvCache), Bytes(share.0 - weights));
    let peaks = |phases: &[(Phase, Peak)]| -> Vec<_> {
        phases.iter().map(|(phase, peak)| (phase.stage, *peak)).collect()
    };
    assert_eq!(peaks(rest), peaks(&apart.steady.phases));
}

/// Whole weights are gathered one after the other: the largest is on the GPU for a moment, in the type that its shards are kept in, and all
/// of them, or the optimizer's states after them, in the first process.
#[test]
fn whole_weights_are_saved_one_by_one() {
    let cluster = Cluster { gpus: 4, sharding: Sharding::Fsdp2, ..Scenario::default().cluster };
    let saved = |saving: Saves| {
        let scenario = Scenario {
            model: ModelChoice::Catalogue("meta-llama/Llama-3.2-1B".into()),
            method: Method::Full,
            precision: Precision::AmpBf16,
            cluster,
            spikes: Spikes { saving, merging: Merges::Off },
            ..Scenario::default()
        };
        estimate(&scenario)
    };
    let highest = |saving: Saves| {
        let memory = saved(saving).memory.expect("nothing stands in the way");
        let mut phases = memory.steady.phases.iter();
        let save = phases.find(|(phase, _)| phase.stage == Stage::Save).map(|(_, peak)| peak.bytes.0);
        (save, memory.resting.total().0, memory.host.saving.0)
    };
    let (own, resting, in_the_cpus) = highest(Saves::On);
    assert_eq!((own, in_the_cpus), (Some(resting), 0));
    let (whole, resting, in_the_cpus) = highest(Saves::Full);
    let table = 128_256 * 2_048 * 4;
    assert_eq!(whole, Some(resting + table));
    // AdamW's two states of 1.24 billion parameters
    assert_eq!(in_the_cpus / 1_000_000, 1_235_814_400 * 8 / 1_000_000);
    let told = |saving| saved(saving).issues.into_iter().find(|issue| issue.field == Field::Saving);
    assert!(told(Saves::Full).is_some_and(|issue| issue.message.contains("gathered")));
    assert!(told(Saves::On).is_some_and(|issue| issue.message.contains("its own shards")));
}

/// What was not compared is refused, with what would be right.
#[test]
fn what_of_saving_and_merging_was_not_compared_is_refused() {
    let refused = |scenario: &Scenario, field: Field| {
        let issues = estimate(scenario).issues;
        let issue =
            issues.into_iter().find(|issue| issue.severity == Severity::Error).expect("it is refused");
        assert_eq!(issue.field, field, "{}", issue.message);
        assert!(issue.fix.is_some(), "{}", issue.message);
    };
    let merged =
        Scenario { spikes: Spikes { saving: Saves::Off, merging: Merges::Gpu }, ..Scenario::default() };
    let int8 = Quantization { format: WeightFormat::Int8, ..merged.quantization };
    refused(&Scenario { quantization: int8, ..merged.clone() }, Field::Merging);
    let dora = Lora { tuner: Tuner::Dora, ..merged.lora };
    refused(&Scenario { lora: dora, ..merged.clone() }, Field::Merging);
    let many = Cluster { gpus: 2, sharding: Sharding::Ddp, ..merged.cluster };
    refused(&Scenario { cluster: many, ..merged }, Field::Merging);
    let saved = Scenario {
        model: ModelChoice::Catalogue("ibm-granite/granite-3.1-1b-a400m-base".into()),
        method: Method::Full,
        spikes: Spikes { saving: Saves::On, merging: Merges::Off },
        ..Scenario::default()
    };
    refused(&saved, Field::Saving);
}

/// Of Unsloth's trainers `DPOTrainer` and `GRPOTrainer` alone were measured, in bf16 autocast on one GPU; GRPO's where vLLM writes several
/// answers at a time.
#[test]
fn of_unsloths_trainers_two_are_answered() {
    let dpo = Scenario {
        task: Task::Dpo,
        stack: Stack::Unsloth,
        method: Method::Qlora,
        precision: Precision::AmpBf16Weights,
        checkpointing: Checkpointing::Offloaded,
        ..Scenario::default()
    };
    let gpu = dpo.gpu().expect("the card is known");
    let run = |scenario: &Scenario| step::run_job(&Job::from(scenario), &gpu).map(drop);
    assert_eq!(run(&dpo), Ok(()));
    let half = Scenario { precision: Precision::Fp16, ..dpo.clone() };
    assert_eq!(run(&half).expect_err("not measured").field, Field::Precision);
    for task in [Task::Kto, Task::Orpo, Task::Cpo, Task::Simpo, Task::Rloo] {
        let other = Scenario { task, ..dpo.clone() };
        assert_eq!(run(&other).expect_err("not measured").field, Field::Stack, "{task:?}");
    }
    let mut grpo = Scenario { task: Task::Grpo, batch: 4, ..dpo.clone() };
    for reference in [Reference::None, Reference::Scored] {
        grpo.answers.reference = reference;
        assert_eq!(run(&grpo), Ok(()));
    }
    let refused = |change: &dyn Fn(&mut Scenario)| {
        let mut other = grpo.clone();
        change(&mut other);
        run(&other).expect_err("not measured").field
    };
    assert_eq!(refused(&|other| other.precision = Precision::Fp16), Field::Precision);
    assert_eq!(refused(&|other| other.batch = 1), Field::Batch);
    assert_eq!(refused(&|other| other.answers.rollouts = Rollouts::Transformers), Field::Rollouts);
    assert_eq!(export::script(&grpo).expect_err("no file is written").field, Field::Task);
    let issue = export::script(&dpo).expect_err("no file is written");
    assert_eq!(issue.field, Field::Task);
}

/// trl's head asks for no cache whatever the config says, of a reference as of what is trained (trainer/dpo_trainer.py, kto_trainer.py
/// `use_cache=False`); a teacher of GKD's is called as it is, and fills one.
#[test]
fn a_reference_of_trls_fills_no_cache() {
    let needed = |task: Task, reference: Reference| {
        let with = |fills_cache: bool| {
            let mut scenario = Scenario {
                task,
                model: ModelChoice::Catalogue("Qwen/Qwen2.5-0.5B".into()),
                method: Method::Full,
                stack: Stack::Trl,
                mask: Mask::Padded,
                batch: 4,
                sequence: 1024,
                checkpointing: Checkpointing::Off,
                ..Scenario::default()
            };
            scenario.answers.reference = reference;
            scenario.training_loop.fills_cache = fills_cache;
            let found = estimate(&scenario);
            found.memory.unwrap_or_else(|| panic!("{task:?}: {:?}", found.issues)).needed()
        };
        (with(false), with(true))
    };
    for task in [Task::Dpo, Task::Kto] {
        let (without, with) = needed(task, Reference::Scored);
        assert_eq!(without, with, "{task:?}");
    }
}
