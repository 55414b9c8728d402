//! What must hold for every scenario, tried on random ones.

#![cfg(not(target_arch = "wasm32"))]

#[path = "drawn/growth.rs"]
mod growth;

use growth::may_need_less;
use headroom::export::Answer;
use headroom::memory::Memory;
use headroom::plan::{
    FitCell, Largest, Outcome, Replayed, Verdict, fits, largest_batch, largest_rank, longest_sequence, table,
};
use headroom::scenario::{
    Allocator, AttentionKernel, Checkpointing, GpuChoice, LARGEST, Lora, LoraTargets, LossKernel, Mask,
    Method, ModelChoice, Offloading, Optimizer, Precision, Quantization, Savings, Scenario, Stack, StepTime,
    Tuner, WeightFormat,
};
use headroom::units::Bytes;
use headroom::{estimate, export};
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::TestCaseError;

/// One model per way in which layers are wired.
const MODELS: [&str; 8] = [
    "openai-community/gpt2",
    "meta-llama/Llama-3.2-1B-Instruct",
    "Qwen/Qwen2.5-0.5B",
    "Qwen/Qwen3-0.6B",
    "google/gemma-2-2b",
    "microsoft/Phi-3-mini-4k-instruct",
    "mistralai/Mistral-7B-v0.1",
    "meta-llama/Llama-3.1-8B",
];

const GPUS: [&str; 4] = ["t4", "a100-sxm-80gb", "rtx-4090", "h100-sxm-80gb"];

fn loras() -> impl Strategy<Value = Lora> {
    let groups: Vec<_> =
        LoraTargets::ALL.iter().copied().filter(|group| *group != LoraTargets::Named).collect();
    (select(vec![1, 8, 16, 64]), select(groups), select(Tuner::ALL), any::<(bool, bool, bool)>()).prop_map(
        |(rank, targets, tuner, (dropout, fp32_adapters, trains_embeddings))| Lora {
            tuner,
            rank,
            targets,
            dropout,
            fp32_adapters,
            trains_embeddings,
            ..Scenario::default().lora
        },
    )
}

fn savings() -> impl Strategy<Value = Savings> {
    (select(LossKernel::ALL), select(StepTime::ALL), select(Offloading::ALL), any::<bool>())
        .prop_map(|(loss, step, offloading, liger_layers)| Savings { loss, step, offloading, liger_layers })
}

/// Scenarios of sizes that people run.
fn scenarios() -> impl Strategy<Value = Scenario> {
    (
        (select(MODELS.to_vec()), select(Method::ALL), loras(), any::<(bool, bool)>()),
        (
            select(Precision::ALL),
            select(Optimizer::ALL),
            select(Checkpointing::ALL),
            select(AttentionKernel::ALL),
        ),
        (1u64..=16, select(vec![1u64, 17, 128, 512, 1024, 2048, 4096]), 1u64..=3, select(Mask::ALL)),
        (any::<(bool, bool, bool, bool)>(), select(GPUS.to_vec())),
        (select(Stack::ALL), select(WeightFormat::ALL), savings()),
    )
        .prop_map(|(what, how, sizes, rest, (stack, format, savings))| {
            let (model, method, lora, (double_quant, prepare)) = what;
            let (precision, optimizer, checkpointing, attention) = how;
            let (batch, sequence, accumulation, mask) = sizes;
            let ((keeps_outputs, grads_to_none, clips, fills_cache), gpu) = rest;
            let mut scenario = Scenario {
                model: ModelChoice::Catalogue(model.to_owned()),
                method,
                lora,
                quantization: Quantization {
                    format,
                    double_quant,
                    prepare,
                    ..Scenario::default().quantization
                },
                precision,
                optimizer,
                batch,
                sequence,
                accumulation,
                checkpointing,
                attention,
                mask,
                stack,
                savings,
                gpu: GpuChoice::Catalogue(gpu.to_owned()),
                ..Scenario::default()
            };
            scenario.training_loop.keeps_outputs = keeps_outputs;
            scenario.training_loop.grads_to_none = grads_to_none;
            scenario.training_loop.clips = clips;
            scenario.training_loop.fills_cache = fills_cache;
            scenario
        })
}

/// The memory, where there is an answer.
fn memory(scenario: &Scenario) -> Option<Memory> {
    estimate(scenario).memory
}

fn needed(scenario: &Scenario) -> Option<Bytes> {
    memory(scenario).map(|memory| memory.needed())
}

fn more_needs_no_less(scenario: &Scenario, larger: &Scenario) -> Result<(), TestCaseError> {
    let (Some(before), Some(after)) = (needed(scenario), needed(larger)) else { return Ok(()) };
    let least = before.0 as f64 * (1.0 - may_need_less(scenario, larger) / 100.0);
    prop_assert!(after.0 as f64 >= least, "{:?} {:?}", before, after);
    Ok(())
}

proptest! {
    #[test]
    fn parts_sum_to_the_total(scenario in scenarios()) {
        let Some(memory) = memory(&scenario) else { return Ok(()) };
        for iteration in [&memory.first, &memory.steady] {
            for (phase, peak) in &iteration.phases {
                prop_assert_eq!(peak.parts.total(), peak.bytes, "{:?}", phase);
                prop_assert!(peak.bytes <= memory.peak().1.bytes);
                prop_assert!(peak.bytes >= memory.resting.total() || *iteration == memory.first);
            }
        }
    }

    #[test]
    fn an_answer_or_an_error(scenario in scenarios()) {
        let answer = estimate(&scenario);
        prop_assert_eq!(answer.memory.is_none(), answer.errors().next().is_some(), "{:?}", answer.issues);
    }

    #[test]
    fn more_batch_never_needs_less(scenario in scenarios(), more in 1u64..8) {
        let larger = Scenario { batch: scenario.batch + more, ..scenario.clone() };
        more_needs_no_less(&scenario, &larger)?;
    }

    #[test]
    fn more_tokens_never_need_less(scenario in scenarios(), more in 1u64..512) {
        let larger = Scenario { sequence: scenario.sequence + more, ..scenario.clone() };
        more_needs_no_less(&scenario, &larger)?;
    }
}

/// Each exception of [`may_need_less`] is one: a pair that needs less, and would need no less without its cause.
#[test]
fn what_may_need_less_does() {
    for (small, large, without) in [
        ("m=mistralai/Mistral-7B-v0.1&method=lora&p=fp32&s=4095", "s=4523", "m=openai-community/gpt2"),
        ("m=Qwen/Qwen2.5-0.5B&st=litgpt&p=bf16&b=8&s=512", "s=513", "st=transformers"),
        ("m=Qwen/Qwen2.5-0.5B&method=full&gc=off&p=bf16&b=3&s=1000&loss=chunked", "s=1001", "loss=standard"),
        ("m=Qwen/Qwen2.5-0.5B&st=unsloth&gc=offloaded&s=1170", "s=1171", "gc=off"),
        ("m=Qwen/Qwen2.5-0.5B&method=full&p=bf16&gc=off&s=127&offload=on", "s=128", "offload=off"),
    ] {
        let needs = |link: String| {
            let shared = headroom::share::decode(&link);
            assert_eq!(shared.notices, [], "{link}");
            needed(&shared.scenarios[0])
                .unwrap_or_else(|| panic!("{link}: {:?}", estimate(&shared.scenarios[0])))
        };
        let [before, after] = [needs(small.to_owned()), needs(format!("{small}&{large}"))];
        assert!(after < before, "{small}, {large}: {before:?} {after:?}");
        let [before, after] =
            [needs(format!("{small}&{without}")), needs(format!("{small}&{without}&{large}"))];
        assert!(after >= before, "{small}, {without}, {large}: {before:?} {after:?}");
    }
}

/// Counts and amounts at the ends of what fits in a link.
fn extremes() -> impl Strategy<Value = u64> {
    prop_oneof![Just(0), Just(1), Just(LARGEST), Just(LARGEST + 1), Just(u64::MAX), any::<u64>(), 1..=LARGEST]
}

proptest! {
    /// Adapters cost activations: each adapted layer keeps an input of its own, so without recomputation, or with an
    /// optimizer without state, LoRA can need more than full fine-tuning. With both of what people run it saves:
    /// recomputation, and an optimizer with two moments. DoRA is not among it: over the output head it makes a copy of the
    /// head's weight, which is more than a small model's gradients.
    #[test]
    fn lora_never_needs_more_than_full(scenario in scenarios(), fused in any::<bool>(), batch in 1u64..=4, sequence in 1u64..=1024) {
        let full = Scenario {
            method: Method::Full,
            lora: Lora { trains_embeddings: false, tuner: Tuner::Lora, ..scenario.lora },
            optimizer: if fused { Optimizer::AdamWFused } else { Optimizer::AdamW },
            batch,
            sequence,
            checkpointing: match scenario.checkpointing {
                Checkpointing::Reentrant | Checkpointing::Offloaded => Checkpointing::Reentrant,
                _ => Checkpointing::NonReentrant,
            },
            ..scenario
        };
        let lora = Scenario { method: Method::Lora, ..full.clone() };
        let (Some(full), Some(lora)) = (needed(&full), needed(&lora)) else { return Ok(()) };
        prop_assert!(lora <= full, "LoRA {lora}, full {full}");
    }

    #[test]
    fn extremes_are_answered(
        scenario in scenarios(),
        batch in extremes(),
        sequence in extremes(),
        accumulation in extremes(),
        rank in extremes(),
        memory in extremes(),
    ) {
        let gpu = GpuChoice::Custom(Bytes(memory));
        let mut scenario = Scenario { batch, sequence, accumulation, gpu, ..scenario };
        scenario.lora.rank = rank;
        let answer = estimate(&scenario);
        prop_assert_eq!(answer.memory.is_none(), answer.errors().next().is_some());
        let answers = [Answer::of(scenario.clone()), Answer::of(scenario)];
        prop_assert_eq!(answers[0].estimate.memory.is_some(), answer.memory.is_some());
        if let (Some(blocks), Some(tensors)) = (&answers[0].estimate.memory, &answer.memory) {
            prop_assert!(blocks.peak().1.bytes >= tensors.peak().1.bytes);
        }
        prop_assert!(!export::text(&answers).is_empty() && !export::csv(&answers).is_empty());
        prop_assert!(export::json(&answers[0]).is_object() && !export::markdown(&answers, "").is_empty());
    }

    #[test]
    fn the_largest_that_fits_is_the_largest(scenario in scenarios(), gib in 1u64..200) {
        let gpu = GpuChoice::Custom(Bytes(gib << 30));
        let scenario = Scenario { gpu, ..scenario };
        let (Ok(architecture), Ok(gpu)) = (scenario.architecture(), scenario.gpu()) else { return Ok(()) };
        let runs = |trial: Scenario| {
            let memory = headroom::step::run(&architecture, &trial, &gpu)?;
            let on_card = Replayed::of(&architecture, &trial, &gpu, &memory)?.on_card;
            Ok(fits(&memory, &gpu).fits() && on_card.outcome == Outcome::Runs)
        };
        let runs_with =
            |batch, sequence, allocator| runs(Scenario { batch, sequence, allocator, ..scenario.clone() });
        let sequence = scenario.sequence;
        match largest_batch(&architecture, &scenario, &gpu) {
            Ok(Some(Largest { number: batch, allocator })) => {
                prop_assert_eq!(runs_with(batch, sequence, allocator), Ok(true));
                let more = runs_with(batch.saturating_add(1), sequence, Allocator::Expandable);
                prop_assert!(batch == LARGEST || more != Ok(true));
            }
            Ok(None) => prop_assert_eq!(runs_with(1, sequence, Allocator::Expandable), Ok(false)),
            Err(issue) => prop_assert_eq!(runs_with(1, sequence, Allocator::Native), Err(issue)),
        }
        if let Ok(Some(Largest { number: sequence, allocator })) =
            longest_sequence(&architecture, &scenario, &gpu)
        {
            prop_assert_eq!(runs_with(scenario.batch, sequence, allocator), Ok(true));
            let limit = architecture.max_positions.unwrap_or(LARGEST);
            // rows of a mask begin at multiples of 8 elements
            let has_mask = matches!(scenario.mask, Mask::Padded | Mask::Packed | Mask::PaddingFree);
            let is_given = matches!(scenario.attention, AttentionKernel::Sdpa | AttentionKernel::Efficient);
            let next = sequence + if has_mask && is_given { 8 } else { 1 };
            let more = runs_with(scenario.batch, next, Allocator::Expandable);
            prop_assert!(next > limit || more != Ok(true));
        }
        if let Ok(Some(Largest { number: rank, allocator })) = largest_rank(&architecture, &scenario, &gpu) {
            let with = |rank, allocator| {
                let mut trial = Scenario { allocator, ..scenario.clone() };
                trial.lora.rank = rank;
                runs(trial)
            };
            let cap = headroom::step::largest_rank(&architecture, &scenario, &gpu).unwrap_or_default();
            prop_assert!(rank <= cap);
            prop_assert_eq!(with(rank, allocator), Ok(true));
            // OFT's is one that divides
            let more = with(rank + 1, Allocator::Expandable);
            prop_assert!(rank == cap || scenario.lora.tuner == Tuner::Oft || more != Ok(true));
        }
    }
}

#[test]
fn every_cell_of_the_table_opens_what_it_says() {
    let memory = Bytes(24_000_000_000);
    for row in table(&MODELS, &Scenario::default(), memory) {
        for (method, cell) in Method::ALL.iter().zip(row.cells) {
            match cell {
                FitCell::Fits { batch, scenario, .. } => {
                    assert_eq!((scenario.method, scenario.batch), (*method, batch));
                    let larger = Scenario { batch: batch + 1, ..*scenario.clone() };
                    let fits = |scenario| Answer::of(scenario).verdict().map(Verdict::holds);
                    let both = [*scenario, larger].map(fits);
                    assert_eq!(both, [Some(true), Some(false)], "{}", row.model);
                }
                FitCell::TooLarge { needed } => assert!(needed > memory, "{}", row.model),
                FitCell::Unknown(issue) => panic!("{}: {issue}", row.model),
            }
        }
    }
}
