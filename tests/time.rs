//! How long steps take: what the operations count, and what was measured against what is predicted.
#![cfg(not(target_arch = "wasm32"))]

use headroom::check::{TimeErrors, TimeReport, TimeRow, Use, check_time};
use headroom::memory::Stage;
use headroom::plan::{Near, Pace, Speed, pace};
use headroom::scenario::Issue;
use headroom::work::{Sent, Work};
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

/// peft adapts experts' weights as whole parameters: the product of each expert's factors is added to its matrix before it is used,
/// and once more to check it.
#[test]
fn adapters_of_experts_multiply_a_rank_for_each() {
    let of = |rank: u64| {
        let link = format!("m=Qwen/Qwen3-30B-A3B&method=lora&r={rank}&p=bf16&b=1&s=2048&gc=off&gpu=h200-sxm");
        of(&link, Stage::Forward).products
    };
    // 48 layers of 128 experts: gate and up in one, which has the rank of two, and down
    let experts = 48 * 128 * (2 * 2 + 1) * 2048 * 768;
    let attention = 48 * (2 * (2048 + 4096) + 2 * (2048 + 512));
    assert_close(of(32) - of(16), 2 * 16 * (2 * experts + TOKENS * attention));
}

/// Each expert's matrix is read forward and for the gradient of what it was given, however few tokens that is.
#[test]
fn few_tokens_wait_for_the_experts_to_be_read() {
    let link = |rest: &str| format!("m=Qwen/Qwen3-30B-A3B&method=full&p=bf16&b=1&gc=off&gpu=b200{rest}");
    let experts = 48 * 128 * 3 * 2048 * 768;
    for length in [64, 2048] {
        let link = link(&format!("&s={length}"));
        assert_eq!(of(&link, Stage::Forward).read, 2 * experts);
        assert_eq!(of(&link, Stage::Backward).read, 2 * experts);
    }
    // eight experts a token: of four tokens at most 32 of 128 are chosen
    assert_eq!(of(&link("&s=4"), Stage::Forward).read, 2 * experts / 4);
    // 116 GB at 8 TB/s
    let short = pace_of(&link("&s=64")).expect("an answer").spent.products;
    assert!((short / (4.0 * experts as f64 / 8e12) - 1.0).abs() < 0.01, "{short}");
}

#[test]
fn pairs_are_read_twice_and_what_is_generated_meanwhile_has_no_answer() {
    let of = |task: &str| {
        pace_of(&format!("m=meta-llama/Llama-3.1-8B&st=trl&b=2&s=1024&gpu=h100-sxm-80gb&task={task}"))
    };
    assert_eq!(of("sft").expect("an answer").tokens, 2 * 1024);
    let pairs = of("dpo").expect("an answer");
    assert_eq!(pairs.tokens, 2 * 2 * 1024);
    assert!(pairs.rests_on().ends_with("none of them of this task"), "{}", pairs.rests_on());
    let why = of("grpo").expect_err("answers are generated").to_string();
    assert!(why.contains("generated meanwhile"), "{why}");
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

/// The cards of which runs were measured.
const CARDS: [&str; 6] = ["a100-sxm-80gb", "h100-sxm-80gb", "rtx-a6000", "rtx-4090", "rtx-3090", "b200"];

#[test]
fn figures_of_cards_are_derived_from_their_rows() {
    let report = report();
    for card in CARDS {
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

/// The card in the middle of six others stands for one that was not measured: as wide a range as each of the six needs when it is
/// predicted from the other five.
#[test]
fn a_card_that_was_not_measured_is_answered_by_the_others() {
    let of =
        |gpu: &str| pace_of(&format!("m=meta-llama/Llama-3.1-8B&p=amp-fp16&gpu={gpu}")).expect("an answer");
    let middle = |cards: &mut dyn Iterator<Item = &str>, share: fn(&Speed) -> f64| {
        let mut shares: Vec<f64> = cards.map(|card| share(of(card).speed)).collect();
        shares.sort_by(f64::total_cmp);
        (shares[(shares.len() - 1) / 2] + shares[shares.len() / 2]) / 2.0
    };
    let other = of("t4");
    assert_eq!(other.near, Near::Others);
    let shares: [fn(&Speed) -> f64; 3] =
        [|speed| speed.products, |speed| speed.attention, |speed| speed.memory];
    for share in shares {
        assert!((share(other.speed) - middle(&mut CARDS.into_iter(), share)).abs() < 1e-9);
    }
    let (mut least, mut most) = (f64::INFINITY, 0.0f64);
    let measured = include_str!("../data/measurements/time.json");
    for card in CARDS {
        let [products, attention, memory] = shares.map(|share| {
            let mut others = CARDS.into_iter().filter(|other| *other != card);
            share(of(card).speed) / middle(&mut others, share)
        });
        let mut ratios = Vec::new();
        for row in serde_json::from_str::<Vec<serde_json::Value>>(measured).expect("rows") {
            let Ok(pace) = pace_of(row["link"].as_str().expect("a link")) else { continue };
            if pace.speed.card != card {
                continue;
            }
            let spent = pace.spent;
            let own = spent.products * products + spent.attention * attention + spent.memory * memory;
            let predicted = own + spent.exchange + spent.idle;
            let tokens = pace.tokens as f64 / pace.gpus as f64;
            ratios.push(tokens / row["tokens_per_second"].as_f64().expect("a speed") / predicted);
        }
        ratios.sort_by(f64::total_cmp);
        // nine of ten of each card's runs
        let tail = ratios.len() / 20;
        least = least.min(ratios[tail]);
        most = most.max(ratios[ratios.len() - 1 - tail]);
    }
    let (low, high) = other.speed.range;
    assert!((low - least).abs() < 0.05 && (high - most).abs() < 0.05, "{least} to {most}");
}

/// What travels to the CPU's memory is only answered where it hides behind what is computed, and what travels between machines where
/// their network is known.
#[test]
fn what_would_be_waited_for_without_end_has_no_answer() {
    let why = |link: &str| pace_of(link).err().map(|issue| issue.to_string());
    let offloaded = "m=meta-llama/Llama-3.1-8B&gpu=h100-sxm-80gb&gc=off&s=8192&offload=on";
    assert!(why(offloaded).is_some_and(|why| why.contains("travel")), "57 GiB in a second");
    let many = "m=meta-llama/Llama-3.1-8B&method=full&p=amp-bf16&shard=fsdp2&gpu=";
    assert_eq!(why(&format!("{many}a100-sxm-80gb&gpus=64")), None);
    assert_eq!(why(&format!("{many}a100-pcie-80gb&gpus=8")), None);
    let far = why(&format!("{many}a100-pcie-80gb&gpus=64"));
    assert!(far.is_some_and(|why| why.contains("several machines wait for each other")));
}

fn pace_of(link: &str) -> Result<Pace, Issue> {
    let scenario = share::decode(link).scenarios.remove(0);
    let memory = estimate(&scenario).memory.expect("an answer");
    pace(&scenario, &memory)
}

/// What a GPU sends in a step.
#[track_caller]
fn sent(link: &str) -> Sent {
    work(link).into_iter().fold(Sent::default(), |sum, (_, work)| sum.and(work.sent))
}

/// Llama-3.1-8B's parameters.
const PARAMETERS: u64 = 8_030_261_248;

/// Seven eighths of so many bytes of every parameter.
fn around(bytes: u64) -> u64 {
    PARAMETERS * bytes / 8 * 7
}

#[test]
fn engines_send_what_their_collectives_move() {
    let of = |rest: &str| {
        sent(&format!("m=meta-llama/Llama-3.1-8B&method=full&p=amp-bf16&gpus=8&gpu=h100-sxm-80gb&{rest}"))
    };
    // gathered in bfloat16, forward and backward, and reduced in float32
    assert_close(of("shard=fsdp2").data, around(2 + 2 + 4));
    assert_close(of("shard=fsdp2&ga=3").data, 3 * around(2 + 2 + 4));
    assert_close(of("shard=fsdp2&reshard=off").data, around(2 + 4));
    // an all-reduce of gradients in the weights' type, once a step
    assert_close(of("shard=ddp").data, 2 * around(4));
    assert_close(of("shard=ddp&ga=3").data, 2 * around(4));
    // `allreduce_bucket`, then the partitions are gathered
    assert_close(of("shard=zero1").data, around(2 * 2 + 2));
    assert_close(of("shard=zero1&ga=3").data, around(2 * 2 + 2));
    assert_close(of("shard=zero2&ga=3").data, around(3 * 2 * 2 + 2));
    // two groups of four
    let hybrid = of("shard=fsdp2&replicas=2");
    assert_close(hybrid.data, PARAMETERS * 8 / 4 * 3);
    assert_close(hybrid.replicas, PARAMETERS * 4 / 4);
}

#[test]
fn a_divided_layer_adds_up_twice_each_way() {
    let megatron = "m=meta-llama/Llama-3.1-8B&method=full&st=megatron&p=amp-bf16-weights&o=adamw&attn=eager&gc=off&s=2048&ga=8\
                    &gpus=16&tp=4&pp=2&gpu=h100-sxm-80gb&stage=2";
    let of = |rest: &str| sent(&format!("{megatron}{rest}"));
    // 16 layers of a stage, 8 micro-batches of 2,048 tokens in bfloat16, two sums forward and two backward, and the head's
    let hidden = 2048 * 4096 * 2;
    assert_close(of("").tensor, 8 * (16 * 4 + 1) * hidden * 2 / 4 * 3);
    // hidden states come from the first stage
    assert_close(of("").stages, 8 * hidden);
    // two copies: gradients in float32 are scattered, and what was stepped is gathered
    let held = (LAYERS / 2 + HEAD) / 4;
    assert_close(of("&shard=dist-opt").data, held * (4 + 2) / 2);
    assert_close(of("&shard=ddp").data, held * 4 * 2 / 2);
}

#[test]
fn a_pipeline_computes_every_micro_batch_and_waits_for_its_ends() {
    let of = |accumulation: u64, pipeline: u64| {
        let tensor = 8 / pipeline;
        let link = format!(
            "m=meta-llama/Llama-3.1-8B&method=full&st=megatron&p=amp-bf16-weights&o=adamw&attn=eager&gc=off&s=2048&gpus=8\
             &gpu=h100-sxm-80gb&tp={tensor}&pp={pipeline}&ga={accumulation}"
        );
        pace_of(&link).expect("an answer")
    };
    let products = |accumulation| of(accumulation, 4).spent.products;
    assert!((products(64) / products(16) - 4.0).abs() < 1e-3, "{} {}", products(16), products(64));
    let idle = |accumulation, pipeline| {
        let spent = of(accumulation, pipeline).spent;
        spent.idle / (spent.products + spent.attention + spent.memory + spent.waiting + spent.exchange)
    };
    assert_eq!([idle(16, 4), idle(64, 4), idle(16, 1)], [3.0 / 16.0, 3.0 / 64.0, 0.0]);
    // a step's tokens are those of the groups that hold the model once
    assert_eq!(of(16, 4).tokens, 16 * 2048);
}
