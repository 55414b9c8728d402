use super::*;
use crate::memory::Category;
use crate::scenario::{GpuChoice, GroupSize, Method, ModelChoice, Precision, Task};

/// Qwen3-30B-A3B's experts are 768 columns wide: on 2 GPUs 384 each, three blocks of 128, on 4 GPUs 192.
#[test]
fn scales_that_a_part_would_cut_are_refused() {
    let room = |gpus: u64, stored: Stored| {
        let mut scenario = scenario("Qwen/Qwen3-30B-A3B", Bytes::gib(80.0));
        scenario.cluster.gpus = gpus;
        serving(&scenario).unwrap().into_iter().find(|row| row.stored == stored).unwrap().room
    };
    for stored in [Stored::Fp8, Stored::Gptq, Stored::Awq] {
        assert!(matches!(room(2, stored), Room::Tokens { .. }), "{stored:?}");
        let refused = room(4, stored);
        assert!(matches!(&refused, Room::Unknown(why) if why.contains("192 columns")), "{refused:?}");
    }
    assert!(matches!(room(4, Stored::Half), Room::Tokens { .. }));
}

/// As many tokens on each of them: what one GPU has no weights of is room for keys and values.
#[test]
fn more_gpus_keep_more_tokens() {
    let kept = |gpus: u64| {
        let mut scenario = scenario("Qwen/Qwen3-8B", Bytes::gib(24.0));
        scenario.cluster.gpus = gpus;
        let rows = serving(&scenario).unwrap();
        let half = rows.iter().find(|row| row.stored == Stored::Half).unwrap();
        match &half.room {
            Room::Tokens { tokens: [least, _], .. } => *least,
            other => panic!("{other:?}"),
        }
    };
    let [one, two, four] = [1, 2, 4].map(kept);
    assert!(one * 4 < two && two * 2 < four, "{one} {two} {four}");
}

/// Who asks for so many at once is told whether there is room, beyond doubt, perhaps or not; and so of formats that are a range.
#[test]
fn so_many_sequences_are_judged() {
    let rows = serving(&scenario("Qwen/Qwen3-32B", Bytes::gib(24.0))).unwrap();
    let of = |stored: Stored| rows.iter().find(|row| row.stored == stored).unwrap();
    let awq = of(Stored::Awq);
    let Room::Tokens { sequences: [fewest, most], .. } = awq.room else { panic!("{:?}", awq.room) };
    assert!(fewest.floor() < most.floor(), "{fewest} {most}");
    let asked = [fewest.floor() as u64, most.floor() as u64, most.ceil() as u64];
    assert_eq!(asked.map(|asked| awq.holds(asked)), [Verdict::Fits, Verdict::Close, Verdict::Over].map(Some));
    assert_eq!(of(Stored::Half).holds(1), Some(Verdict::Over));
    assert_eq!(of(Stored::Q4).holds(1), None);
    for (stored, verdict) in [(Stored::Fp8, Verdict::Over), (Stored::Awq, Verdict::Fits)] {
        assert!(matches!(&of(stored).needed, Needed::Between(_, own) if *own == verdict), "{stored:?}");
    }
}

fn scenario(model: &str, card: Bytes) -> Scenario {
    Scenario {
        task: Task::Generate,
        model: ModelChoice::Catalogue(model.into()),
        method: Method::Full,
        precision: Precision::Bf16,
        sequence: 2048,
        gpu: GpuChoice::Custom(card),
        ..Scenario::default()
    }
}

fn rows(model: &str, card: Bytes) -> Vec<ServingRow> {
    serving(&scenario(model, card)).unwrap()
}

/// Mistral 7B's layers have 8 heads of 128 elements and a window of 4,096 tokens, DeepSeek-V3's 61 layers 512 + 64 elements.
#[test]
fn a_file_of_llama_cpp_has_a_cache_whatever_the_attention() {
    let beside = |model: &str| {
        let mut scenario = scenario(model, Bytes::gib(80.0));
        (scenario.sequence, scenario.generation.new_tokens) = (8_192, 512);
        let rows = serving(&scenario).unwrap();
        let row = rows.iter().find(|row| row.stored == Stored::Q4).unwrap();
        match row.needed {
            Needed::AtLeast(least) => least.saturating_sub(row.weights).0,
            _ => panic!("{:?}", row.needed),
        }
    };
    assert_eq!(beside("mistralai/Mistral-7B-v0.1"), 32 * 2 * 2 * 8 * 128 * 4_096);
    assert_eq!(beside("deepseek-ai/DeepSeek-V3"), 61 * (512 + 64) * 2 * (8_192 + 512));
}

/// Tokens of a block.
const BLOCK: u64 = 16;

/// Qwen3-8B on 24 GiB: vLLM made 2,828 blocks in one measured run.
#[test]
fn what_is_left_are_blocks() {
    let rows = rows("Qwen/Qwen3-8B", Bytes::gib(24.0));
    let half = rows.iter().find(|row| row.stored == Stored::Half).unwrap();
    let Room::Tokens { tokens: [least, most], .. } = half.room else { panic!("{:?}", half.room) };
    let measured = 2_828 * BLOCK;
    assert!(least <= measured && measured <= most + most / 1000, "{least} {measured} {most}");
}

/// Keys and values of a byte each: twice as many tokens, to a block.
#[test]
fn fp8_holds_twice_as_many() {
    let mut compared = 0;
    for row in rows("Qwen/Qwen3-8B", Bytes::gib(24.0)) {
        let (Room::Tokens { tokens, .. }, Room::Tokens { tokens: more, .. }) = (&row.room, &row.fp8) else {
            continue;
        };
        for (own, more) in tokens.iter().zip(more) {
            assert!((2 * own..=2 * own + BLOCK).contains(more), "{row:?}");
            compared += 1;
        }
    }
    assert!(compared > 0);
}

/// GPTQ's and AWQ's groups are those that are chosen.
#[test]
fn groups_are_the_scenarios() {
    let mut scenario =
        Scenario { model: ModelChoice::Catalogue("Qwen/Qwen3-8B".into()), ..Scenario::default() };
    let weights = |scenario: &Scenario| {
        let rows = serving(scenario).unwrap();
        let row = rows.into_iter().find(|row| row.stored == Stored::Gptq).unwrap();
        (row.label(), row.weights)
    };
    let plain = weights(&scenario);
    scenario.quantization.group = GroupSize::Of32;
    let finer = weights(&scenario);
    assert_eq!((&*plain.0, &*finer.0), ("GPTQ (4 bits, 128)", "GPTQ (4 bits, 32)"));
    // 6.95 billion weights of linear layers, a scale and a zero of 2.5 bytes for each group
    assert_eq!(
        (finer.1.0 - plain.1.0) / 1_000_000,
        (6_945_767_424_u64 / 32 - 6_945_767_424 / 128) * 5 / 2 / 1_000_000
    );
}

#[test]
fn what_was_not_followed_is_said() {
    let small = rows("Qwen/Qwen3-8B", Bytes::gib(8.0));
    assert!(small.iter().filter(|row| row.room == Room::Stops).count() > 2, "{small:?}");
    // an indexer, and a model that vLLM does not serve
    for model in ["deepseek-ai/DeepSeek-V3.2", "meta-llama/Llama-3.2-11B-Vision"] {
        let rows = rows(model, Bytes::gib(80.0));
        for row in &rows {
            assert!([&row.room, &row.fp8].iter().all(|room| matches!(room, Room::Unknown(_))), "{model}");
        }
        assert_eq!(unanswered(&rows).iter().map(|(_, formats)| formats.len()).sum::<usize>(), rows.len());
        assert!(rows.iter().all(|row| row.weights > Bytes::ZERO));
    }
}

/// Models that see, with recurrent states, and in chunks have an answer.
#[test]
fn models_that_see_or_keep_states_have_an_answer() {
    for model in [
        "Qwen/Qwen2.5-VL-3B-Instruct",
        "Qwen/Qwen3-VL-4B-Instruct",
        "Qwen/Qwen3.5-4B",
        "google/gemma-3-4b-it",
        "LiquidAI/LFM2-1.2B",
        "tiiuae/falcon-mamba-7b",
    ] {
        let rows = rows(model, Bytes::gib(80.0));
        let half = rows.iter().find(|row| row.stored == Stored::Half).unwrap();
        assert!(
            matches!(half.room, Room::Tokens { tokens: [least, _], .. } if least > 0),
            "{model}: {:?}",
            half.room
        );
    }
}

/// Triton's and Marlin's kernels for experts were followed, bitsandbytes' were not.
#[test]
fn mixtures_have_an_answer_but_under_bitsandbytes() {
    for row in rows("Qwen/Qwen3-30B-A3B", Bytes::gib(80.0)) {
        let is_known = matches!(row.room, Room::Tokens { .. });
        let followed = matches!(
            row.stored,
            Stored::Half | Stored::Fp8 | Stored::Gptq | Stored::Awq | Stored::Nvfp4 | Stored::Mxfp4
        );
        assert_eq!(is_known, followed, "{row:?}");
    }
}

/// bf16 on a 24 GB card: Llama's 131,072 tokens are too many, Qwen's 40,960 hang on the profiling run; what is said to be enough is.
#[test]
fn it_is_said_up_to_which_context_vllm_starts() {
    let on = |model: &str, gpu: &str| {
        let mut scenario = scenario(model, Bytes::ZERO);
        scenario.gpu = GpuChoice::Catalogue(gpu.into());
        scenario
    };
    let half = |scenario: &Scenario| {
        let rows = serving(scenario).unwrap();
        rows.into_iter().find(|row| row.stored == Stored::Half).unwrap()
    };
    let mut llama = on("meta-llama/Llama-3.1-8B", "rtx-4090");
    let start = half(&llama).start.unwrap();
    assert_eq!((start.context, start.slug()), (131_072, "no"));
    let longest = start.longest;
    assert!(start.words() == format!("no, to {}", crate::units::grouped(longest)), "{}", start.words());
    let at_once = |scenario: &Scenario| match half(scenario).room {
        Room::Tokens { sequences: [least, _], .. } => least,
        Room::Stops => 0.0,
        Room::Unknown(reason) => panic!("{reason}"),
    };
    llama.sequence = longest - llama.generation.new_tokens;
    assert!(at_once(&llama) >= 1.0);
    llama.sequence += 1;
    assert!(at_once(&llama) < 1.0);
    assert_eq!(half(&on("Qwen/Qwen3-8B", "rtx-4090")).start.unwrap().slug(), "perhaps");
    let start = half(&on("Qwen/Qwen3-8B", "h100-sxm-80gb")).start.unwrap();
    assert_eq!((start.words().as_str(), start.longest), ("yes", start.context));
    // where the budget is not followed nothing is said
    assert!(rows("deepseek-ai/DeepSeek-V3.2", Bytes::gib(80.0)).iter().all(|row| row.start.is_none()));
}

/// The weights of a model that sees are those that the step loads: bitsandbytes packs its tower too.
#[test]
fn quantised_weights_are_those_of_the_step() {
    let models = ["Qwen/Qwen2.5-VL-7B-Instruct", "Qwen/Qwen3.5-9B", "google/gemma-3-4b-it", "Qwen/Qwen3-8B"];
    for model in models {
        for row in rows(model, Bytes::gib(140.0)) {
            let Needed::Followed(scenario, ..) = &row.needed else { continue };
            let parts = crate::estimate(scenario).memory.expect("an answer").peak().1.parts;
            let own = parts.get(Category::Weights).0 + parts.get(Category::QuantState).0;
            assert!(
                own.abs_diff(row.weights.0) < own / 1000,
                "{model}, {}: {own} and {}",
                row.label(),
                row.weights.0
            );
        }
    }
}

/// OpenAI's own: 19.1 of 20.9 billion weights are experts, 17 bytes for 32, and the rest has two. vLLM loaded 14.8 GB of it, padded.
#[test]
fn gpt_oss_is_as_it_is_published() {
    let found = rows("openai/gpt-oss-20b", Bytes::gib(80.0));
    let row = found.iter().find(|row| row.stored == Stored::Mxfp4).unwrap();
    let experts = 24 * 32 * 3 * 2880 * 2880;
    assert_eq!(row.weights.0, 2 * (20_914_757_184 - experts) + experts / 32 * 17);
    assert_eq!(row.label(), "MXFP4, as published");
    let architecture = crate::model::catalogue::architecture("openai/gpt-oss-20b").unwrap();
    let padded = row.weights + Stored::Mxfp4.padding(&architecture, 256);
    assert!((14_800_000_000..15_300_000_000).contains(&padded.0), "{padded}");
    let other = rows("Qwen/Qwen3-30B-A3B", Bytes::gib(80.0));
    assert!(other.iter().all(|row| !row.as_published));
}
