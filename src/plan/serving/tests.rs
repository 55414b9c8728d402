use super::*;
use crate::scenario::{GpuChoice, GroupSize, ModelChoice, Task};

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
    // recurrent states, a model that sees, an indexer, chunks
    let models = [
        "ai21labs/Jamba-v0.1",
        "Qwen/Qwen2.5-VL-7B-Instruct",
        "deepseek-ai/DeepSeek-V3.2",
        "Qwen/Qwen3-Next-80B-A3B-Instruct",
    ];
    for model in models {
        let rows = rows(model, Bytes::gib(80.0));
        for row in &rows {
            assert!([&row.room, &row.fp8].iter().all(|room| matches!(room, Room::Unknown(_))), "{model}");
        }
        assert_eq!(unanswered(&rows).iter().map(|(_, formats)| formats.len()).sum::<usize>(), rows.len());
        assert!(rows.iter().all(|row| row.weights > Bytes::ZERO));
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
