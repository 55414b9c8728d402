//! Ways to use GPUs, tried and ranked.

use std::collections::BTreeSet;

use super::trying::{of, place};
use super::way::{engine, name};
use super::*;
use crate::plan::answer::Answer;
use crate::scenario::{
    Allocator, Checkpointing, ContextComm, GpuChoice, Method, ModelChoice, Precision, Scenario, Stack,
};
use crate::units::Bytes;

fn full(model: &str, card: &str) -> Scenario {
    let mut scenario = Scenario {
        model: ModelChoice::Catalogue(model.into()),
        gpu: GpuChoice::Catalogue(card.into()),
        ..Scenario::default()
    };
    scenario.change(|scenario| scenario.method = Method::Full);
    scenario
}

const SMALL: &str = "HuggingFaceTB/SmolLM-360M";

#[test]
fn every_engine_and_every_division_is_there_once() {
    let ways = ways(&full("meta-llama/Llama-3.1-8B", "h100-sxm-80gb"), 16);
    let names: Vec<(String, Checkpointing)> = ways
        .iter()
        .map(|way| {
            let pure = if way.precision == Precision::Bf16 { " in bfloat16" } else { "" };
            (name(way) + pure, way.checkpointing)
        })
        .collect();
    let has = |name: &str| names.iter().filter(|(own, _)| own == name).count();
    for engine in [
        "DDP",
        "FSDP2",
        "FSDP2 in bfloat16",
        "FSDP2, kept after forward",
        "FSDP2, 8 replicas",
        "FSDP2, in the CPU's memory",
    ] {
        assert_eq!(has(engine), 2, "{engine}: {names:?}");
    }
    for divided in [
        "tensor 8 × pipeline 2",
        "tensor 2 × pipeline 4 × data 2, 1 layer at a time",
        "pipeline 16",
        "data 16",
    ] {
        assert_eq!(has(&format!("Megatron-core, {divided}")), 3, "{divided}: {names:?}");
    }
    let mut once = ways.clone();
    once.dedup();
    assert_eq!(once.len(), ways.len());
    assert!(ways.iter().all(|way| way.cluster.gpus == 16));
}

/// A library that usually trains all weights is not asked to train them where adapters are.
#[test]
fn every_way_trains_what_the_scenario_trains() {
    for (method, stack) in [
        (Method::Qlora, Stack::Transformers),
        (Method::Lora, Stack::Transformers),
        (Method::Full, Stack::Megatron),
        (Method::Full, Stack::Transformers),
    ] {
        let mut base = Scenario::default();
        base.change(|base| base.stack = stack);
        base.change(|base| base.method = method);
        let all = ways(&base, 4);
        assert!(all.len() > 20 && all.iter().all(|way| way.method == method), "{method:?} {stack}");
    }
    // so Megatron-core, which has no adapters, has no answer beside QLoRA
    let found = layouts(&Scenario { model: ModelChoice::Catalogue(SMALL.into()), ..Scenario::default() }, 2);
    let megatron = found.iter().filter(|way| way.name().starts_with("Megatron-core")).collect::<Vec<_>>();
    assert!(megatron.len() > 3 && megatron.iter().all(|way| way.verdict().is_none()), "{megatron:?}");
}

#[test]
fn three_machines_have_three_replicas_and_torchtitan_divides_layers() {
    let found = names(&full("meta-llama/Llama-3.1-8B", "h100-sxm-80gb"), 24);
    for way in
        ["FSDP2, 3 replicas", "FSDP2, 12 replicas", "ZeRO-3 (DeepSpeed), optimizer in the CPU's memory"]
    {
        assert!(found.iter().any(|name| name == way), "{way}: {found:?}");
    }
    let mut titan = full("meta-llama/Llama-3.1-70B", "h100-sxm-80gb");
    titan.change(|titan| titan.stack = Stack::Torchtitan);
    let shared = ways(&titan, 64).into_iter().filter(|way| way.cluster.layout.tensor > 1);
    let answered = shared.filter(|way| Answer::of_tensors(way.clone()).fit().is_some()).count();
    assert!(answered > 2, "{answered}");
}

/// Newer versions of trl stop there, and older ones are a way.
#[test]
fn an_older_trl_has_its_weights_in_the_cpus_memory() {
    let link = "m=meta-llama/Llama-3.1-70B&method=qlora&gpu=rtx-4090&gpus=2&st=trl&shard=fsdp2";
    let base = crate::share::decode(link).scenarios.remove(0);
    let ways = layouts(&base, 2);
    let fitting: Vec<&Way> = ways.iter().filter(|way| way.fits()).collect();
    assert!(!fitting.is_empty(), "{ways:?}");
    let brings = fitting[0].brings(&base).expect("another loss");
    assert!(fitting[0].name() == "FSDP2, in the CPU's memory" && brings.contains("Full logits"), "{brings}");
    let levers = crate::plan::levers(&base).expect("it has an answer");
    assert!(levers.single.iter().any(|lever| lever.holds() && lever.cost == crate::plan::Cost::Software));
}

/// Of two stages Megatron-LM interleaves none unless what they send overlaps what they compute.
#[test]
fn two_stages_are_not_interleaved() {
    let found = ways(&full("meta-llama/Llama-3.1-8B", "h100-sxm-80gb"), 16);
    let stages = |pipeline| found.iter().filter(move |way| way.cluster.layout.pipeline == pipeline);
    assert!(stages(2).count() > 0 && stages(2).all(|way| way.cluster.layout.interleaved == 0));
    assert!(stages(4).any(|way| way.cluster.layout.interleaved > 0));
}

#[test]
fn trl_has_fsdp2_among_its_ways() {
    let base = Scenario { stack: Stack::Trl, ..full("meta-llama/Llama-3.1-8B", "a100-sxm-80gb") };
    let ways = layouts(&base, 4);
    let found = |name: &str| ways.iter().find(|way| way.name() == name && way.fits());
    let allocator = |name: &str| found(name).map(|way| way.scenario.allocator);
    // whole copies only without holes between their tensors
    assert_eq!(allocator("FSDP2"), Some(Allocator::Native));
    assert_eq!(allocator("DDP"), Some(Allocator::Expandable));
}

#[test]
fn a_step_sees_as_many_sequences_in_every_way() {
    let base = Scenario { batch: 3, accumulation: 4, ..full(SMALL, "h100-sxm-80gb") };
    for way in ways(&base, 8).iter().map(tried) {
        let Scenario { cluster, batch, accumulation, .. } = *way.scenario;
        let together = way.scenario.divided().gpus();
        assert_eq!(cluster.gpus / together * batch * accumulation, 8 * 12, "{}", way.name());
    }
}

#[test]
fn what_is_ranked_is_what_its_scenario_answers() {
    let ways = layouts(&full(SMALL, "a100-sxm-40gb"), 2);
    assert!(ways.iter().filter(|way| way.fits()).count() > 10);
    for way in &ways {
        let answer = Answer::of((*way.scenario).clone());
        assert_eq!(way.needed(), answer.fit().map(|fit| fit.needed), "{}", way.name());
        assert_eq!(way.verdict(), answer.verdict(), "{}", way.name());
        let pace = answer.pace().map(|pace| pace.tokens_per_second());
        assert_eq!(way.speed(), pace, "{}", way.name());
    }
    // the fastest of each engine, then the others
    let fitting: Vec<&Way> = ways.iter().filter(|way| way.fits()).collect();
    let engines: BTreeSet<&str> = fitting.iter().map(|way| engine(&way.scenario)).collect();
    let (leading, others) = fitting.split_at(engines.len());
    assert_eq!(leading.iter().map(|way| engine(&way.scenario)).collect::<BTreeSet<_>>(), engines);
    assert!(engines.len() > 3 && !others.is_empty(), "{engines:?}");
    for part in [leading, others] {
        let speeds: Vec<f64> = part.iter().filter_map(|way| way.speed()).map(|speed| speed.typical).collect();
        assert!(speeds.is_sorted_by(|one, next| one >= next), "{speeds:?}");
    }
    for way in others {
        let first = leading.iter().find(|first| engine(&first.scenario) == engine(&way.scenario));
        let speeds = first.and_then(|first| Some((first.speed()?.typical, way.speed()?.typical)));
        assert!(speeds.is_none_or(|(first, own)| first >= own), "{}", way.name());
    }
    assert!(ways.iter().map(place).is_sorted());
}

#[test]
fn the_fastest_micro_batch_that_fits_is_taken() {
    let mut base = full(SMALL, "rtx-4090");
    (base.batch, base.accumulation) = (1, 64);
    let fsdp2 = ways(&base, 2).into_iter().find(|way| name(way) == "FSDP2").expect("it is a way");
    let way = tried(&fsdp2);
    assert!(way.fits() && way.scenario.batch > 1, "{way:?}");
    let more = Scenario {
        batch: way.scenario.batch * 2,
        accumulation: way.scenario.accumulation / 2,
        ..*way.scenario.clone()
    };
    assert!(!of(Answer::of_tensors(more)).fits());
}

#[test]
fn the_fewest_gpus_are_those_of_which_fewer_hold_it_in_no_way() {
    let base = full("meta-llama/Llama-3.1-8B", "a100-sxm-40gb");
    let (gpus, ways) = fewest_layouts(&base);
    assert!(ways[0].fits(), "{gpus}: {:?}", ways[0]);
    let without_host = |way: &Way| way.fits() && way.on_host() == Bytes::ZERO;
    assert!((2..=8).contains(&gpus) && !layouts(&base, gpus - 1).iter().any(without_host));
}

#[test]
fn what_cannot_be_combined_says_why_once_for_all() {
    let lora = Scenario { method: Method::Lora, ..full(SMALL, "a100-sxm-40gb") };
    let ways = layouts(&lora, 4);
    let reasons = refusals(ways.iter());
    let megatron = reasons.iter().find(|(issue, _)| issue.message.contains("no adapters of its own"));
    assert!(megatron.is_some_and(|(_, names)| names.len() > 3), "{reasons:?}");
    let unsloth = Scenario { stack: Stack::Unsloth, ..lora };
    assert!(layouts(&unsloth, 4).iter().all(|way| way.verdict().is_none()));
}

/// The names of all ways to use so many GPUs.
fn names(scenario: &Scenario, gpus: u64) -> Vec<String> {
    ways(scenario, gpus).iter().map(name).collect()
}

#[test]
fn sequences_are_divided_where_each_gpu_has_4_096_tokens_of_one() {
    let long = |sequence| Scenario { sequence, ..full("meta-llama/Llama-3.1-8B", "h100-sxm-80gb") };
    let has_context = |name: &String| name.contains("context");
    assert!(!names(&long(8_191), 16).iter().any(has_context));
    let found = names(&long(16_384), 16);
    for divided in
        ["context 2 × data 8", "pipeline 4 × context 4, 1 layer at a time", "pipeline 8 × context 2"]
    {
        let same = |own: &&String| **own == format!("Megatron-core, {divided}");
        assert_eq!(found.iter().filter(same).count(), 3, "{divided}: {found:?}");
    }
    assert!(!found.iter().any(|name| name.contains("context 8")), "{found:?}");
    // there are eight heads of keys and values: sixteen GPUs give them round
    let ways = ways(&long(131_072), 16);
    let of = |wanted: &str| {
        let way = ways.iter().find(|way| name(way) == format!("Megatron-core, {wanted}")).cloned();
        Answer::of_tensors(way.unwrap_or_else(|| panic!("{wanted}"))).fit().is_some()
    };
    assert!(of("context p2p 16") && of("context 8 × data 2") && of("tensor 4 × context p2p 4"));
}

/// `headroom estimate --tp 8 --cp 8 --cp-comm-type p2p --sequence-parallel on` answers a million tokens, and so do the ways.
#[test]
fn a_million_tokens_fit_in_a_ring() {
    let base = Scenario { sequence: 1_048_576, ..full("meta-llama/Llama-3.1-8B", "h100-sxm-80gb") };
    let wanted = "Megatron-core, tensor 8 × context p2p 8";
    let is_so = |way: &&Scenario| name(way) == wanted && way.checkpointing == Checkpointing::NonReentrant;
    let on_64 = ways(&base, 64);
    let way = tried(on_64.iter().find(is_so).unwrap_or_else(|| panic!("{wanted}")));
    assert!(way.fits(), "{way:?}");
    let layout = way.scenario.cluster.layout;
    assert_eq!((layout.sequence, layout.context_comm), (true, ContextComm::P2p));
}

#[test]
fn experts_are_divided_among_gpus_that_hold_the_same_part() {
    let base = full("deepseek-ai/DeepSeek-V2", "h100-sxm-80gb");
    let on_16 = ways(&base, 16);
    let needed = |experts: &str| {
        let wanted = format!("Megatron-core, data 16{experts}");
        let is_so = |way: &&Scenario| name(way) == wanted && way.checkpointing == Checkpointing::NonReentrant;
        let way = on_16.iter().find(is_so).cloned();
        let answer = Answer::of_tensors(way.unwrap_or_else(|| panic!("{wanted}")));
        answer.fit().map(|fit| fit.needed).unwrap_or_else(|| panic!("{wanted}: {}", answer.refusal()))
    };
    assert!(needed(", experts among 16") < needed(", experts among 2"));
    assert!(needed(", experts among 2") < needed(""));
    // beside latent attention layers are not divided, and 160 experts not among three
    let found = names(&base, 48);
    assert!(!found.iter().any(|name| name.contains("tensor") && name.contains("experts")), "{found:?}");
    assert!(!found.iter().any(|name| name.contains("experts among 3")), "{found:?}");
    let dense = full("meta-llama/Llama-3.1-8B", "h100-sxm-80gb");
    assert!(!names(&dense, 16).iter().any(|name| name.contains("experts")));
}

/// GPUs that share a layer, a sequence or a stage share experts with their copies, too.
#[test]
fn experts_are_divided_beside_layers_sequences_and_stages() {
    let base = Scenario { sequence: 8_192, ..full("Qwen/Qwen3-235B-A22B", "b200") };
    let on_64 = ways(&base, 64);
    for divided in [
        "tensor 2 × pipeline 8 × data 4, experts among 4",
        "tensor 2 × pipeline 8 × data 4, experts among 2",
        "tensor 2 × pipeline 8 × context 2 × data 2, experts among 4",
        "tensor 2 × pipeline 4 × context 2 × data 4, experts among 8",
    ] {
        let of = |way: &&Scenario| {
            name(way).starts_with(&format!("Megatron-core, {divided}, stages of"))
                && way.checkpointing == Checkpointing::NonReentrant
        };
        let way = on_64.iter().find(of).unwrap_or_else(|| panic!("{divided}"));
        let answer = Answer::of_tensors(way.clone());
        assert!(answer.fit().is_some(), "{divided}: {}", answer.refusal());
    }
}

/// What weights, gradients and states have no room for is told so, without a step: what the step needs is no less.
#[test]
fn what_is_much_too_large_is_not_followed() {
    let ways: Vec<Way> =
        ways(&full("meta-llama/Llama-3.1-70B", "h100-sxm-80gb"), 8).iter().map(tried).collect();
    let mut found = 0;
    for way in &ways {
        let WayOutcome::TooLarge { least } = way.outcome else { continue };
        found += 1;
        let fit = Answer::of_tensors((*way.scenario).clone()).fit().expect("it has an answer");
        assert!(!fit.fits() && least <= fit.needed, "{}: {least} of {}", way.name(), fit.needed);
    }
    assert!(found > 10, "{found} of {}", ways.len());
    // the nearest is told to the byte
    let all = layouts(&full("meta-llama/Llama-3.1-70B", "h100-sxm-80gb"), 2);
    let nearest = all.iter().find(|way| way.needed().is_some() && !way.fits()).expect("none fits");
    assert!(nearest.is_followed(), "{nearest:?}");
}

#[test]
fn ways_stay_so_many_that_a_table_holds_them() {
    for (model, gpus, sequence) in [
        ("meta-llama/Llama-3.1-405B", 512, 4_096),
        ("meta-llama/Llama-3.1-405B", 512, 131_072),
        ("deepseek-ai/DeepSeek-V2", 1_024, 131_072),
        ("Qwen/Qwen3-235B-A22B", 512, 4_096),
    ] {
        let scenario = Scenario { sequence, ..full(model, "h100-sxm-80gb") };
        let found = ways(&scenario, gpus).len();
        assert!(found < 1_500, "{model} on {gpus}, {sequence} tokens: {found}");
    }
}
