//! What can be trained on a card, or on each of several: models × methods, each with the largest micro-batch.

use serde::{Deserialize, Serialize};

use super::cell::{FitCell, Measure, held};
use super::each;
use super::solve::grain_of_length;
use crate::hardware::Vendor;
use crate::issue::Issue;
use crate::scenario::kernels;
use crate::scenario::{
    Checkpointing, Cluster, CpuOffload, GpuChoice, Layout, Method, ModelChoice, Scenario, Sharding, Stack,
};
use crate::units::{Bytes, grouped};

/// One model of the table.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct FitRow {
    /// What it is called: the Hub id of a model of the catalogue.
    pub model: String,
    /// How many parameters it has; none where it is not known.
    pub parameters: Option<u64>,
    /// One cell per method, in the order of [`Method::ALL`].
    pub cells: Vec<FitCell>,
}

/// What holds for every cell of a table, in two or three sentences: the rule of [`row`] and [`with_method`].
pub fn conditions(base: &Scenario, measure: Measure) -> String {
    let run = match (base.task.trains(), base.checkpointing) {
        (false, _) => format!("and {} new ones", grouped(base.generation.new_tokens)),
        (true, Checkpointing::Off) => "without gradient checkpointing".to_owned(),
        (true, Checkpointing::Selective) => "with recomputed attention".to_owned(),
        (true, Checkpointing::Alternate) => "with every second layer recomputed".to_owned(),
        (true, Checkpointing::Operations) => "with operations recomputed".to_owned(),
        (true, Checkpointing::NonReentrant | Checkpointing::Reentrant | Checkpointing::Offloaded) => {
            "with gradient checkpointing".to_owned()
        }
    };
    let half = if base.has_bfloat16() { "" } else { ", without bfloat16, which the card does not have" };
    let gpus = match (base.cluster.is_many(), base.task.trains()) {
        (false, _) => String::new(),
        (true, false) => on_one(base).map_or_else(String::new, |words| format!("{words} ")),
        (true, true) => format!(
            "On each of {} GPUs, under the engine that holds most: the scenario's, or the one that another method usually has, where \
             that holds as much. ",
            grouped(base.cluster.gpus)
        ),
    };
    let at_a_time = match base.least_batch() {
        1 => "One sequence".to_owned(),
        least => format!("{least} sequences"),
    };
    let sequences = match measure {
        Measure::Batch => {
            format!("Sequences of {} tokens, or as many as the model has positions,", grouped(base.sequence))
        }
        Measure::Length => {
            let multiple = match grain_of_length(base) {
                1 => String::new(),
                tokens => format!(" and a multiple of {tokens}, as others need a copy of the mask,"),
            };
            format!("{at_a_time} at a time, of no more tokens than the model has positions,{multiple}")
        }
        Measure::Rank => format!(
            "{at_a_time} at a time, of {} tokens or as many as the model has positions,",
            grouped(base.sequence)
        ),
    };
    let followed = match base.gpu().is_ok_and(|gpu| gpu.vendor != Vendor::Nvidia) {
        true => " Of this card tensors alone are counted: its kernels and its allocator are not followed.",
        false => "",
    };
    format!(
        "{gpus}{sequences} {run}; the rest as in the scenario. Methods other than its own, and what it leaves open, have the \
         precision and optimizer that {} is usually run with{half}.{followed}",
        base.library(),
    )
}

/// The table for an amount of memory: a [`row`] for each model, with its largest micro-batches.
pub fn table(models: &[&str], base: &Scenario, memory: Bytes) -> Vec<FitRow> {
    let named = |model: &&str| {
        row(
            &Scenario { model: ModelChoice::Catalogue((*model).to_owned()), ..base.clone() },
            memory,
            Measure::Batch,
        )
    };
    each(models, named)
}

/// The row of a scenario: all that is no matter of the method is the scenario's; so is the card where its memory is just that,
/// and sequences are no longer than the model's positions. What is to be left open is filled first ([`Scenario::filled`]).
///
/// Where it trains on several GPUs each has as much memory, and a cell is of the engine that holds most: the one that the scenario has, or
/// its method usually, unless another of its library's holds more.
///
/// ```
/// use headroom::plan::{FitCell, Measure, row};
/// use headroom::{scenario::Scenario, units::Bytes};
///
/// let row = row(&Scenario::default(), Bytes::gib(24.0), Measure::Batch);
/// let [full, _, qlora] = &row.cells[..] else { panic!("a cell per method") };
/// assert!(matches!(full, FitCell::TooLarge { needed } if *needed > Bytes::gib(55.0)));
/// assert!(matches!(qlora, FitCell::Fits { .. }), "{qlora:?}");
/// ```
pub fn row(base: &Scenario, memory: Bytes, measure: Measure) -> FitRow {
    let base = on_card(base, memory);
    let found = base.architecture().and_then(|architecture| Ok((architecture, base.gpu()?)));
    let cell = |method: &Method| match &found {
        Ok((architecture, gpu)) => match of_method(&base, *method) {
            Ok(scenario) => held(architecture, gpu, scenario, measure),
            Err(no_kernels) => FitCell::Unknown(no_kernels),
        },
        Err(issue) => FitCell::Unknown(issue.clone()),
    };
    let parameters = found.as_ref().ok().map(|(architecture, _)| architecture.parameters());
    FitRow { model: base.model_name(), parameters, cells: Method::ALL.iter().map(cell).collect() }
}

/// The scenario as a table of cards with so much memory asks about it, in the least micro-batch.
pub(super) fn on_card(base: &Scenario, memory: Bytes) -> Scenario {
    let own = base.gpu().is_ok_and(|gpu| gpu.memory == memory);
    let gpu = if own { base.gpu.clone() } else { GpuChoice::Custom(memory) };
    // what generates is followed on a single GPU
    let base = if base.task.trains() { base.clone() } else { alone(base) };
    Scenario { gpu, batch: base.least_batch(), ..base }
}

/// The same by a method.
///
/// # Errors
/// The card has no kernels for it.
pub(super) fn of_method(base: &Scenario, method: Method) -> Result<Scenario, Issue> {
    let scenario = within_positions(&with_method(base, method));
    kernels::without_kernels(&scenario).map_or(Ok(scenario), Err)
}

/// The scenario on a single GPU, as cards and their prices are asked about: of several there is nothing left that they share.
pub(super) fn alone(scenario: &Scenario) -> Scenario {
    let mut alone = scenario.clone();
    if scenario.cluster.is_many() {
        alone.cluster = Cluster { gpus: 1, cpu: CpuOffload::Off, ..scenario.cluster };
        if scenario.stack != Stack::Megatron {
            alone.cluster.layout = Layout::WHOLE;
        }
    }
    alone
}

/// The sentence that a table of single GPUs needs where the scenario has several.
pub fn on_one(scenario: &Scenario) -> Option<String> {
    let gpus = grouped(scenario.cluster.gpus);
    scenario.cluster.is_many().then(|| format!("For a single GPU, not for the {gpus} of the scenario."))
}

/// The scenario with another method, and with the precision and the optimizer that the training library is usually run
/// with for it on that card; as it is where the method is its own.
pub fn with_method(scenario: &Scenario, method: Method) -> Scenario {
    let mut other = Scenario { method, ..scenario.clone() };
    if scenario.method != method {
        // the element types are those of the engine that the method usually has
        other.cluster.sharding = other.defaults().cluster.sharding;
        if other.cluster.sharding == Sharding::Ddp {
            other.cluster.cpu = CpuOffload::Off;
        }
        let usual = other.defaults();
        other.precision = usual.precision;
        other.optimizer = usual.optimizer;
        other.savings.step = usual.savings.step;
    }
    other
}

/// The scenario with sequences no longer than the model's positions, beyond which it fails or was never trained.
pub(super) fn within_positions(scenario: &Scenario) -> Scenario {
    Scenario { sequence: scenario.within_positions(scenario.sequence), ..scenario.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hardware::Gpu;
    use crate::plan::answer::Answer;
    use crate::plan::largest_batch;
    use crate::plan::on_card::less_doubt;
    use crate::plan::verdict::Verdict;
    use crate::scenario::{Field, Mask, Optimizer, Precision, Reference, Task};

    #[test]
    fn a_method_brings_its_precision() {
        let base = Scenario {
            method: Method::Full,
            precision: Precision::Fp32,
            optimizer: Optimizer::Sgd,
            sequence: 512,
            ..Scenario::default()
        };
        assert_eq!(with_method(&base, Method::Full), base);
        let lora = with_method(&base, Method::Lora);
        assert_eq!(lora.precision, Precision::AmpBf16Weights);
        assert_eq!((lora.optimizer, lora.sequence), (Optimizer::AdamWFused, 512));
    }

    fn in_library(stack: Stack) -> Scenario {
        Scenario { stack, ..Scenario::default() }.filled(|key| key.field == Field::Stack)
    }

    #[test]
    fn every_method_is_answered_in_the_library_of_the_scenario() {
        for stack in [Stack::Torchtune, Stack::Litgpt, Stack::Liger] {
            let row = row(&in_library(stack), Bytes::gib(80.), Measure::Batch);
            let answered = row.cells.iter().all(|cell| !matches!(cell, FitCell::Unknown(_)));
            assert!(answered, "{stack}: {row:?}");
        }
        let row = row(&in_library(Stack::Unsloth), Bytes::gib(24.), Measure::Batch);
        assert!(matches!(row.cells[..], [FitCell::Unknown(_), _, FitCell::Fits { .. }]), "{row:?}");
    }

    #[test]
    fn cells_are_scenarios_that_run_as_they_are_asked_for() {
        let base = Scenario {
            model: ModelChoice::Catalogue("openai-community/gpt2".into()),
            gpu: GpuChoice::Catalogue("t4".into()),
            ..Scenario::default()
        };
        let base = base.filled(|key| matches!(key.field, Field::Model | Field::Gpu));
        let row = row(&base, base.gpu().unwrap().memory, Measure::Batch);
        for cell in &row.cells {
            let FitCell::Fits { scenario, .. } = cell else { panic!("{cell:?}") };
            assert_eq!((scenario.precision, scenario.sequence), (Precision::AmpFp16, 1024));
            assert!(scenario.validate().is_empty(), "{:?}", scenario.validate());
        }
    }

    #[test]
    fn what_was_chosen_stays_if_it_is_as_a_link_has_it_by_default_too() {
        let unsloth = Scenario { stack: Stack::Unsloth, method: Method::Lora, ..Scenario::default() };
        let found = |row: FitRow| match &row.cells[1] {
            FitCell::Fits { scenario, .. } => (**scenario).clone(),
            other => panic!("{other:?}"),
        };
        assert_eq!(found(row(&unsloth, Bytes::gib(80.), Measure::Batch)).optimizer, Optimizer::AdamWFused);
        let mut grpo = Scenario { task: Task::Grpo, ..Scenario::default() };
        grpo = grpo.filled(|key| key.field == Field::Task);
        (grpo.method, grpo.mask, grpo.answers.reference) = (Method::Lora, Mask::None, Reference::Scored);
        let kept = found(row(&grpo, Bytes::gib(80.), Measure::Batch));
        assert_eq!((kept.mask, kept.answers.reference), (Mask::None, Reference::Scored));
    }

    #[test]
    fn the_longest_sequence_surely_fits_and_a_longer_one_does_not() {
        let row = row(&Scenario::default(), Bytes::gib(16.), Measure::Length);
        let [FitCell::TooLarge { .. }, FitCell::TooLarge { .. }, FitCell::Fits { batch: 1, scenario, .. }] =
            &row.cells[..]
        else {
            panic!("{row:?}");
        };
        let longer = Scenario { sequence: scenario.sequence + 1, ..(**scenario).clone() };
        let fits = |scenario| Answer::of(scenario).verdict().map(Verdict::holds);
        let both = [(**scenario).clone(), longer].map(fits);
        assert_eq!(both, [Some(true), Some(false)], "{}", scenario.sequence);
    }

    #[test]
    fn what_would_stop_has_no_batch() {
        for link in [
            "task=generate&m=openai-community/gpt2&method=full&p=bf16&new=4000",
            "task=dpo&m=Qwen/Qwen3-0.6B&st=trl&p=amp-bf16&mask=padded&s=512&prompt=512",
        ] {
            let scenario = crate::share::decode(link).scenarios.remove(0);
            let row = row(&scenario, Bytes::gib(24.), Measure::Batch);
            let stop = scenario.stop().expect("it stops");
            for cell in &row.cells {
                assert!(matches!(cell, FitCell::Unknown(issue) if *issue == stop), "{link}: {cell:?}");
            }
        }
    }

    #[test]
    fn the_rule_is_said() {
        let text = conditions(&Scenario::default(), Measure::Batch);
        assert!(text.starts_with("Sequences of 2,048 tokens") && !text.contains("bfloat16"), "{text}");
        let old = Scenario { gpu: GpuChoice::Catalogue("t4".into()), ..Scenario::default() };
        assert!(conditions(&old, Measure::Batch).contains("without bfloat16, which the card does not have"));
        let generating =
            conditions(&Scenario { task: Task::Generate, ..Scenario::default() }, Measure::Batch);
        assert!(generating.contains("positions, and 512 new ones; the rest"), "{generating}");
        let many = Scenario { cluster: EIGHT, ..Scenario::default() };
        assert!(
            conditions(&many, Measure::Batch)
                .starts_with("On each of 8 GPUs, under the engine that holds most")
        );
        let generating = Scenario { task: Task::Generate, ..many };
        assert!(conditions(&generating, Measure::Batch).starts_with("For a single GPU, not for the 8"));
    }

    const EIGHT: Cluster = Cluster { gpus: 8, sharding: Sharding::Fsdp2, ..Cluster::ONE };

    #[test]
    fn several_gpus_share_what_one_does_not_hold() {
        let mut eight = Scenario { method: Method::Full, sequence: 512, ..Scenario::default() };
        eight.change(|scenario| scenario.cluster.gpus = 8);
        let found = row(&eight, Bytes::gib(24.), Measure::Batch);
        let engines: Vec<_> = found.cells.iter().map(FitCell::layout).collect();
        let held = ["FSDP2"; 3].map(|engine| Some(engine.to_owned()));
        assert_eq!(engines, held, "{found:?}");
        for cell in &found.cells {
            let FitCell::Fits { scenario, needed, .. } = cell else { panic!("it fits") };
            let answer = Answer::of((**scenario).clone());
            let is_held = answer.runs() == Some(true) && answer.fit().map(|fit| fit.needed) == Some(*needed);
            assert!(is_held && answer.scenario.cluster.gpus == 8);
        }
        // no other engine holds more
        let (architecture, gpu) = (eight.architecture().unwrap(), Gpu::custom(Bytes::gib(24.)));
        for sharding in [Sharding::Ddp, Sharding::Fsdp2, Sharding::Zero3] {
            let mut other = with_method(&eight, Method::Lora);
            other.change(|other| other.cluster.sharding = sharding);
            other.gpu = GpuChoice::Custom(gpu.memory);
            let sure = less_doubt(&architecture, &other, other.gpu().unwrap());
            let most = largest_batch(&architecture, &other, &sure).unwrap().map_or(0, |most| most.number);
            let FitCell::Fits { batch, .. } = &found.cells[1] else { panic!("it fits") };
            assert!(most <= *batch, "{sharding:?} holds {most}, not {batch}");
        }
        // another engine holds what whole copies do not
        let large = ModelChoice::Catalogue("Qwen/Qwen3-32B".into());
        let mut two = Scenario { model: large, ..eight.clone() };
        two.change(|scenario| (scenario.method, scenario.cluster.gpus) = (Method::Qlora, 2));
        let [full, lora, qlora] = &row(&two, Bytes::gib(24.), Measure::Batch).cells[..] else {
            panic!("a cell per method")
        };
        assert_eq!(qlora.layout().as_deref(), Some("FSDP2"), "{qlora:?}");
        let needed = |cell: &FitCell| match cell {
            FitCell::TooLarge { needed } => *needed,
            FitCell::Fits { .. } | FitCell::Unknown(_) => panic!("{cell:?}"),
        };
        assert!(needed(lora) > Bytes::gib(24.) && needed(full) > needed(lora));
        // another method on the same GPUs is sharded as it usually is
        let many = Scenario { cluster: EIGHT, ..Scenario::default() };
        assert_eq!(with_method(&many, many.method), many);
        assert_eq!(with_method(&many, Method::Lora).cluster.sharding, Sharding::Ddp);
    }

    #[test]
    fn other_engines_are_looked_at_where_one_has_no_answer() {
        let mut scenario = Scenario {
            model: ModelChoice::Catalogue("google/gemma-3-1b-it".into()),
            method: Method::Full,
            cluster: EIGHT,
            ..Scenario::default()
        };
        // FSDP2 is not followed with weights of another type than its optimizer's
        scenario.precision = Precision::AmpBf16Weights;
        let found = row(&scenario, Bytes::gib(24.), Measure::Batch);
        assert_eq!(found.cells[0].layout().as_deref(), Some("ZeRO-2 (DeepSpeed)"), "{:?}", found.cells[0]);
    }

    /// What one GPU refuses several do, and what is too large takes more than there is.
    #[test]
    fn what_other_engines_need_is_no_answer_of_its_own() {
        let stops = "task=dpo&m=Qwen/Qwen3-0.6B&st=trl&p=amp-bf16&mask=padded&s=512&prompt=512&gpus=8&gpu=h100-sxm-80gb";
        let edge = "m=openai-community/gpt2-xl&st=trl&method=full&p=amp-bf16-weights&gpus=8&shard=zero2";
        let alone = "m=tiiuae/falcon-7b&method=full&gpus=8&shard=fsdp2&p=amp-bf16";
        let cells = |link: &str, gib| {
            let scenario = crate::share::decode(link).scenarios.remove(0);
            row(&scenario, Bytes::gib(gib), Measure::Batch).cells
        };
        assert!(cells(stops, 80.).iter().all(|cell| matches!(cell, FitCell::Unknown(_))));
        assert!(
            matches!(cells(alone, 80.)[0], FitCell::Unknown(_)),
            "FSDP2 is not followed, and copies are too large"
        );
        for gib in [29., 29.5, 29.8, 30., 30.2, 30.5] {
            for cell in cells(edge, gib) {
                let FitCell::TooLarge { needed } = cell else { continue };
                assert!(needed > Bytes::gib(gib), "{needed} of {gib} GiB");
            }
        }
    }

    #[test]
    fn an_unknown_model_is_a_row_that_says_so() {
        let rows = table(&["nobody/nothing"], &Scenario::default(), Bytes::mib(24_576));
        assert_eq!(rows.len(), 1);
        assert_eq!(rows[0].cells.len(), Method::ALL.len());
        assert!(rows[0].cells.iter().all(|cell| matches!(cell, FitCell::Unknown(_))));
    }
}
