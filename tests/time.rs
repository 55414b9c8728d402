//! How long steps take: what the operations count, and what was measured against what is predicted.
#![cfg(not(target_arch = "wasm32"))]

use headroom::check::{TimeErrors, TimeReport, TimeRow, Use, check_time, read_speeds, write_speeds};
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

/// Qwen3-30B-A3B's weights that every token is multiplied by: attention, routers, and the output head.
const DENSE: u64 = 48 * (2 * 2048 * 4096 + 2 * 2048 * 512 + 2048 * 128) + 151_936 * 2048;

/// Bytes of its keys and values of so many tokens, repeated for the heads that share them where the kernel wants that.
fn keys_and_values(length: u64) -> u64 {
    48 * 2 * 2 * length * 512
}

/// Each expert's matrix is read forward and for the gradient of what it was given, however few tokens that is.
#[test]
fn few_tokens_wait_for_the_experts_to_be_read() {
    let link = |rest: &str| format!("m=Qwen/Qwen3-30B-A3B&method=full&p=bf16&b=1&gc=off&gpu=b200{rest}");
    let experts = 48 * 128 * 3 * 2048 * 768;
    for length in [64, 2048] {
        let link = link(&format!("&s={length}"));
        assert_close(of(&link, Stage::Forward).read, 2 * (experts + DENSE) + keys_and_values(length));
        assert_close(of(&link, Stage::Backward).read, 2 * (experts + DENSE));
    }
    // eight experts a token: of four tokens at most 32 of 128 are chosen
    assert_close(of(&link("&s=4"), Stage::Forward).read, 2 * (experts / 4 + DENSE) + keys_and_values(4));
    // 116 GB at 69 % of 8 TB/s
    let short = pace_of(&link("&s=64")).expect("an answer").spent.products;
    let read = (4.0 * experts as f64 + 4.0 * DENSE as f64) / (0.69 * 8e12);
    assert!((short / read - 1.0).abs() < 0.01, "{short} {read}");
}

#[test]
fn pairs_are_read_twice_and_answers_of_a_server_are_left_out() {
    let of = |task: &str| {
        pace_of(&format!("m=meta-llama/Llama-3.1-8B&st=trl&b=2&s=1024&gpu=h100-sxm-80gb&task={task}"))
    };
    assert_eq!(of("sft").expect("an answer").tokens, 2 * 1024);
    let pairs = of("dpo").expect("an answer");
    assert_eq!(pairs.tokens, 2 * 2 * 1024);
    assert!(pairs.rests_on().ends_with("none of them of this task"), "{}", pairs.rests_on());
    let elsewhere = of("grpo").expect("an answer");
    assert!(elsewhere.without.is_some_and(|without| without.contains("vLLM")));
    assert!(elsewhere.prompts.is_none() && elsewhere.starts.is_none());
    // the model scores its answers before it learns from them
    assert!(elsewhere.step.typical > of("sft").expect("an answer").step.typical);
    let own = of("grpo&roll=transformers").expect("an answer");
    assert!(own.without.is_none() && own.prompts.is_some());
    // 512 tokens, each a pass of some 1,300 operations
    let more = own.step.typical - elsewhere.step.typical;
    assert!(more > 511.0 * own.per_token.expect("tokens").typical * 0.8, "{more} {own:?}");
    let why = of("distil").expect_err("the teacher is in 32 bits").to_string();
    assert!(why.contains("32 bits"), "{why}");
    let distilled = of("distil&p=bf16&method=full&tw=bf16").expect("an answer");
    assert!(distilled.without.is_some());
}

/// A further token reads every weight but the embedding table's, and the keys and values of all before it.
#[test]
fn a_further_token_reads_weights_and_what_is_kept() {
    let of = |rest: &str| {
        let link =
            format!("m=meta-llama/Llama-3.1-8B&task=generate&method=full&p=bf16&gpu=h100-sxm-80gb{rest}");
        of(&link, Stage::Decode)
    };
    let token = 32 * 2 * 1024 * 2;
    // of three tokens two are read, after 2,000 and 2,001 others
    assert_close(of("&b=1&s=2000&new=3").read, 2 * 2 * (LAYERS + HEAD) + (2001 + 2002) * token);
    assert_close(of("&b=8&s=2000&new=3").read, 2 * 2 * (LAYERS + HEAD) + 8 * (2001 + 2002) * token);
    assert_close(of("&b=8&s=2000&new=3").products, 8 * 2 * 2 * (LAYERS + HEAD));
    // 4-bit weights are read packed, where bitsandbytes' kernel for a single row takes them
    let packed = of("&b=1&s=16&new=2&method=qlora");
    assert_close(packed.read, LAYERS / 2 + 2 * HEAD + 17 * token);
}

/// Where few sequences are generated the GPU waits for Python, whatever the model's size; where many are, Python for the GPU.
#[test]
fn generating_waits_for_python_or_for_memory() {
    let of = |rest: &str| {
        let link =
            format!("m=meta-llama/Llama-3.1-8B&task=generate&method=full&p=bf16&gpu=h100-sxm-80gb&{rest}");
        pace_of(&link).expect("an answer")
    };
    let one = of("b=1&s=512&new=256");
    assert_eq!(one.tokens, 256);
    assert!(one.spent.waiting > 0.5 * one.step.typical, "{one:?}");
    assert!(one.rests_on().contains("operations of generate start as fast as in"), "{}", one.rests_on());
    let many = of("b=64&s=8192&new=256");
    assert!(many.spent.waiting < 0.2 * many.step.typical, "{many:?}");
    // 68 GB of keys and values at 69 % of 3,350 GB/s at least
    let each = many.per_token.expect("tokens");
    assert!(each.typical > 64.0 * 8192.0 * 131_072.0 / (0.69 * 3.35e12), "{each:?}");
    // prompt and tokens are all there is
    let whole = many.prompts.expect("a prompt").typical + 255.0 * each.typical;
    assert!((whole / many.step.typical - 1.0).abs() < 1e-6, "{whole}");
}

/// Seconds of an operation in the rows of `generate`, which all wait for Python: those that were used give what is said, and all
/// others lie within its range.
#[test]
fn operations_start_as_fast_as_was_measured() {
    let rows = serde_json::from_str::<Vec<serde_json::Value>>(include_str!("../data/measurements/time.json"));
    for (card, seconds) in [("a100-sxm-80gb", 19.4e-6), ("h20-96gb", 10.4e-6)] {
        let (mut used, mut kept) = (Vec::new(), 0);
        for row in rows.as_ref().expect("rows") {
            let link = row["link"].as_str().expect("a link");
            if !link.contains("task=generate") || !link.ends_with(card) {
                continue;
            }
            let pass = of(&link.replace("new=2048", "new=2"), Stage::Decode);
            let each = 1.0 / row["tokens_per_second"].as_f64().expect("a speed") / pass.operations as f64;
            if row["use"] == "derive" {
                used.push(each);
            } else {
                assert!((each / seconds - 1.0).abs() < 0.1, "{link}: {each:e}");
                kept += 1;
            }
        }
        let mean = used.iter().sum::<f64>() / used.len() as f64;
        assert!(used.len() == 2 && kept >= 4 && (mean / seconds - 1.0).abs() < 0.03, "{card}: {mean:e}");
    }
}

/// The measured rows against the predicted ones.
fn report() -> TimeReport {
    let report = check_time(include_str!("../data/measurements/time.json")).expect("rows");
    // an optimizer that is paged, and a card whose data sheet was not found
    let unanswered = report.unanswered.iter().map(|(id, _)| id.as_str());
    let unanswered: Vec<_> = unanswered.filter(|id| !id.contains("h20-generate")).collect();
    assert_eq!(unanswered, ["torchtune-4090-full"]);
    report
}

#[test]
fn what_was_kept_is_predicted_as_well_as_is_said() {
    let report = report();
    let kept = |row: &&TimeRow| row.purpose == Use::Check && !row.generates;
    let all = TimeErrors::of(report.rows.iter().filter(kept));
    assert!(all.count > 50 && all.median_pct <= 15.0 && all.covered_pct >= 90.0, "{all:?}");
    let eager = TimeErrors::of(report.rows.iter().filter(|row| kept(row) && !row.compiled));
    assert!(eager.count > 30 && eager.median_pct <= 10.0 && eager.covered_pct >= 90.0, "{eager:?}");
    let generated = report.rows.iter().filter(|row| row.purpose == Use::Check && row.generates);
    let generated = TimeErrors::of(generated);
    assert!(
        generated.count == 7 && generated.median_pct <= 10.0 && generated.covered_pct == 100.0,
        "{generated:?}"
    );
}

/// `HEADROOM_BLESS=1 cargo test --test time` writes anew what the page shows of the rows.
#[test]
fn what_the_page_shows_of_speeds_is_what_is_predicted() {
    let report = report();
    let (path, found) = (format!("{}/data/speeds.tsv", env!("CARGO_MANIFEST_DIR")), write_speeds(&report));
    if std::env::var_os("HEADROOM_BLESS").is_some() {
        std::fs::write(&path, &found).expect("the project is writable");
    }
    let kept = std::fs::read_to_string(&path).expect("the speeds");
    let speeds = read_speeds(&kept);
    assert_eq!(speeds.len(), report.rows.len());
    for (line, found) in kept.lines().zip(found.lines()) {
        assert_eq!(line, found, "run with HEADROOM_BLESS=1 and look at what changed");
    }
    for speed in &speeds {
        assert!(
            speed.source.starts_with("https://github.com/") && !speed.source.contains("HEAD"),
            "{speed:?}"
        );
    }
    let kept = report.rows.iter().filter(|row| row.purpose == Use::Check && !row.generates);
    let (all, shown) = (TimeErrors::of(kept), headroom::check::Speed::errors(&speeds));
    assert_eq!(shown.count, all.count);
    assert!((shown.median_pct - all.median_pct).abs() < 0.05, "{shown:?} {all:?}");
}

/// The cards of which runs were measured.
const CARDS: [&str; 6] = ["a100-sxm-80gb", "h100-sxm-80gb", "rtx-a6000", "rtx-4090", "rtx-3090", "b200"];

#[test]
fn figures_of_cards_are_derived_from_their_rows() {
    let report = report();
    for card in CARDS {
        let rows = || {
            report.rows.iter().filter(|row| row.purpose == Use::Derive && row.gpu == card && !row.generates)
        };
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
            if pace.speed.card != card || pace.prompts.is_some() {
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

/// Offloaded activations are waited for as far as the wire takes longer than the GPU computes.
#[test]
fn what_travels_to_the_cpus_memory_takes_the_wires_time() {
    let of = |settings: &str| {
        pace_of(&format!("m=meta-llama/Llama-3.1-8B&gpu=h100-sxm-80gb&gc=off&{settings}")).expect("an answer")
    };
    let waits = of("s=8192&offload=on");
    let link = "m=meta-llama/Llama-3.1-8B&gpu=h100-sxm-80gb&gc=off&s=8192&offload=on";
    let scenario = share::decode(link).scenarios.remove(0);
    let offloaded = estimate(&scenario).memory.expect("an answer").offloaded;
    // both ways over PCIe 5.0 with 16 lanes
    let travel = 2.0 * offloaded.0 as f64 / 63.0e9;
    assert!((waits.step.typical / travel - 1.0).abs() < 0.01, "{:?} for {travel}", waits.step);
    assert!(waits.spent.travel > 0.0 && waits.step.most > travel && waits.step.least <= waits.step.typical);
    let small = of("s=8192&offload=off");
    assert!(small.spent.travel == 0.0 && small.step.typical < waits.step.typical);
}

/// What travels between machines is only answered where their network is known.
#[test]
fn what_would_be_waited_for_without_end_has_no_answer() {
    let why = |link: &str| pace_of(link).err().map(|issue| issue.to_string());
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
