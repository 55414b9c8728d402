//! What levers are held to.

mod several;

use super::*;
use crate::hardware::cheapest;
use crate::plan::usual_cards;
use crate::scenario::{
    Allocator, CacheKind, GpuChoice, Lora, LossKernel, Mask, Method, ModelChoice, Offloading, Optimizer,
    Precision, Reference, Sharding, Stack, TeacherWeights,
};

fn on(card: &str) -> Scenario {
    Scenario { gpu: GpuChoice::Catalogue(card.into()), ..Scenario::default() }
}

#[track_caller]
fn found(scenario: &Scenario) -> Levers {
    levers(scenario).unwrap_or_else(|issue| panic!("{issue}"))
}

/// What comes of a scenario, with every event.
fn of(scenario: &Scenario) -> Option<Outlook> {
    Outlook::read(&Answer::of(scenario.clone()))
}

/// A kernel of Liger's is started by more than an operation of PyTorch's, which no measured run says how long takes: beside a step that
/// waits for its operations no time is said of another library; beside one that does not it is.
#[test]
fn no_time_is_said_of_another_library_where_the_gpu_waits_for_python() {
    let said = |link: &str| -> Vec<bool> {
        let found = found(&crate::share::decode(link).scenarios[0]);
        let of_liger = found.single.iter().filter(|lever| lever.scenario.stack == Stack::Liger);
        of_liger.map(|lever| lever.slower.is_some()).collect()
    };
    assert_eq!(said("m=Qwen/Qwen3-0.6B&method=full&s=1024&gpu=h100-sxm-80gb"), [false]);
    assert_eq!(said("m=meta-llama/Llama-3.1-8B&method=lora&s=8192&gpu=h100-sxm-80gb"), [true]);
}

#[test]
fn what_a_lever_saves_is_the_difference_of_two_answers() {
    let scenario = on("rtx-3060-12gb");
    let levers = found(&scenario);
    assert!(levers.single.len() > 5);
    for lever in &levers.single {
        let after = of(&lever.scenario).unwrap();
        assert_eq!((after.needed, after.verdict), (lever.needed, lever.verdict));
        assert!(!lever.changes.is_empty() && *lever.scenario != scenario);
    }
}

#[test]
fn what_fits_comes_first_and_of_that_the_cheapest() {
    for card in ["rtx-3060-12gb", "rtx-4090"] {
        let levers = found(&on(card));
        let rank = |lever: &Lever| (lever.verdict != Verdict::Fits, lever.cost, lever.needed);
        assert!(levers.single.is_sorted_by_key(rank), "{card}");
    }
}

/// The CPU's memory may not be there: what does without it is said beside the change that takes it.
#[test]
fn changes_that_leave_the_cpus_memory_alone_are_found_beside_one_that_takes_it() {
    let scenario =
        of_link("m=meta-llama/Llama-3.1-70B&method=full&p=amp-bf16&gpus=8&shard=fsdp2&gpu=h100-sxm-80gb");
    let levers = found(&scenario);
    let offloaded = levers.single.iter().find(|lever| lever.verdict.holds() && lever.on_host > Bytes::ZERO);
    assert_eq!(offloaded.map(|lever| lever.cost), Some(Cost::Time));
    let together = levers.together.expect("there is a way");
    assert!(together.verdict.holds() && together.on_host == Bytes::ZERO, "{together:?}");
    assert!(together.cost < Cost::Training, "{together:?}");
}

/// What waits in the CPU's memory is a cost, whatever puts it there: that memory may not be there.
#[test]
fn ram_is_told_and_is_no_part_of_the_cheapest_way() {
    let link = "m=meta-llama/Llama-3.1-8B&method=lora&gpu=rtx-4090&b=4&gc=off";
    let levers = found(&crate::share::decode(link).scenarios[0]);
    let waits = |lever: &&Lever| lever.scenario.savings.offloading == Offloading::On;
    assert!(levers.single.iter().filter(waits).all(|lever| lever.on_host > Bytes::gib(20.0)));
    let together = levers.together.expect("there is a way");
    assert_eq!((together.verdict, together.on_host), (Verdict::Fits, Bytes::ZERO));
    // states that are paged are on the card as far as there is room
    let full =
        found(&crate::share::decode("m=meta-llama/Llama-3.1-8B&method=full&gpu=a100-sxm-80gb").scenarios[0]);
    let paged = |lever: &&Lever| lever.scenario.optimizer == Optimizer::PagedAdamW;
    let on_host: Vec<Bytes> = full.single.iter().filter(paged).map(|lever| lever.on_host).collect();
    assert!(on_host.iter().any(|bytes| (1.0..30.0).contains(&bytes.as_gib())), "{on_host:?}");
}

#[test]
fn what_a_dear_change_uncovers_is_had_for_nothing() {
    for (link, longest) in [
        ("method=full&gpu=rtx-3060-12gb", 2048),
        ("m=Qwen/Qwen3-14B&method=full&gpu=rtx-4070-ti-super", 2048),
    ] {
        let levers = found(&crate::share::decode(link).scenarios[0]);
        let single = levers.single.iter().find(|lever| lever.verdict.holds());
        let way = levers.together.as_ref().or(single).expect("there is a way");
        assert_eq!((way.verdict, way.scenario.sequence), (Verdict::Fits, longest), "{link}");
    }
}

#[test]
fn a_card_that_is_not_followed_is_answered_by_its_tensors() {
    let mac = Scenario { batch: 4, ..on("apple-m3-max-64gb") };
    let levers = found(&mac);
    assert!(levers.can_fit() && levers.verdict == Verdict::NotFollowed);
    let large = found(&Scenario { batch: 64, method: Method::Lora, ..on("apple-m3-max-36gb") });
    assert!(large.can_fit(), "{large:?}");
    for lever in large.single.iter().chain(&large.together) {
        let Scenario { stack, optimizer, savings, .. } = &*lever.scenario;
        assert!(!optimizer.is_of_bitsandbytes() && *stack == mac.stack, "{lever:?}");
        assert!(!matches!(savings.loss, LossKernel::Liger | LossKernel::Cut), "{lever:?}");
    }
}

/// What costs nothing may take from another change what it saves: with a loss in pieces 4-bit weights beside a head in float32 save
/// nothing on a Mac, and without it they are enough.
#[test]
fn a_change_that_makes_another_useless_is_not_made() {
    for (link, card) in [
        ("m=meta-llama/Llama-3.1-8B&method=lora", "apple-m2-16gb"),
        ("m=Qwen/Qwen2.5-7B&method=lora", "apple-m2-16gb"),
        ("m=google/gemma-2-9b&method=full", "apple-m2-16gb"),
        ("m=google/gemma-2-9b&method=lora", "apple-m4-pro-24gb"),
    ] {
        let levers = found(&of_link(&format!("{link}&gpu={card}")));
        let together = levers.together.unwrap_or_else(|| panic!("{link} on {card}"));
        assert!(together.holds() && together.scenario.method == Method::Qlora, "{link}: {together:?}");
        assert_eq!(together.scenario.sequence, 2048, "{link} on {card}: {together:?}");
    }
    let hopeless = found(&of_link("m=meta-llama/Llama-3.1-70B&method=qlora&gpu=apple-m2-16gb"));
    assert_eq!(hopeless.together, None);
}

/// Logits that an earlier trl makes are saved by a newer one, of fine-tuning as of preferences.
#[test]
fn a_newer_trl_is_one_of_the_changes() {
    for task in ["sft", "dpo"] {
        let link = format!(
            "task={task}&m=Qwen/Qwen3-0.6B&method=lora&st=trl&loss=full&b=4&mask=padded&gpu=rtx-3060-12gb"
        );
        let levers = found(&crate::share::decode(&link).scenarios[0]);
        let newer = levers.single.iter().find(|lever| {
            let Scenario { stack, savings, .. } = &*lever.scenario;
            (*stack, savings.loss) == (Stack::Trl, LossKernel::Standard)
        });
        assert!(newer.is_some_and(|lever| lever.verdict.holds()), "{task}: {newer:?}");
    }
}

/// Halved until it fits, and then as long as it may be: 64 tokens more do not fit beyond doubt.
#[test]
fn a_shorter_sequence_is_as_long_as_it_may_be() {
    let scenario = Scenario { sequence: 4096, batch: 2, ..on("rtx-3060-12gb") };
    let levers = found(&scenario);
    let shorter = levers.single.iter().find(|lever| lever.changes[0].label == "Sequence length");
    let shorter = &*shorter.expect("it is one of the changes").scenario;
    assert_eq!((shorter.sequence % 64, of(shorter).map(Outlook::fits)), (0, Some(true)));
    let more = Scenario { sequence: shorter.sequence + 64, ..shorter.clone() };
    assert!(!of(&more).is_some_and(Outlook::fits), "{}", shorter.sequence);
}

/// Money: of the larger cards that hold the run as it is, the one that costs least to rent.
#[test]
fn a_larger_card_is_the_cheapest_that_holds_it() {
    let scenario = on("rtx-3060-12gb");
    let larger = found(&scenario).larger.expect("there is one");
    let memory = |scenario: &Scenario| scenario.gpu().expect("a card").memory;
    assert!(memory(&larger.scenario) > memory(&scenario) && larger.verdict == Verdict::Fits);
    assert_eq!(larger.changes[0].label, "GPU");
    for card in usual_cards() {
        let price = cheapest(&card.slug, 1).map_or(f64::INFINITY, |machine| machine.per_hour);
        if card.memory > memory(&scenario) && price < larger.machine.per_hour {
            let fits = of(&on(&card.slug)).is_some_and(Outlook::fits);
            assert!(!fits, "{} costs {price}", card.slug);
        }
    }
    assert_eq!(found(&on("rtx-4090")).larger, None, "it fits");
}

/// Unsloth is usually run with an 8-bit optimizer, which is a coarser training wherever it comes from.
#[test]
fn a_change_costs_what_it_brings_along() {
    let levers = found(&on("rtx-4090"));
    let unsloth = levers.single.iter().find(|lever| lever.scenario.stack == Stack::Unsloth);
    let unsloth = unsloth.expect("it saves");
    assert_eq!((unsloth.scenario.optimizer, unsloth.cost), (Optimizer::AdamW8bit, Cost::Precision));
    let liger = levers.single.iter().find(|lever| lever.scenario.stack == Stack::Liger);
    assert_eq!(liger.map(|lever| lever.cost), Some(Cost::Software));
    let scenario = of_link("m=meta-llama/Llama-3.1-8B&method=lora&gpu=rtx-4090&b=8&s=4096&st=trl&gc=off");
    let together = found(&scenario).together.expect("there is a way");
    assert_eq!(
        (together.cost, together.scenario.optimizer),
        (Cost::Time, scenario.optimizer),
        "{together:?}"
    );
    assert_eq!(together.on_host, Bytes::ZERO, "the CPU's memory is asked for last");
}

/// Of a model of 14B on two cards: in 16 bits it runs where segments grow, and what two cards hold with the CPU is told once.
#[test]
fn what_only_holes_are_in_the_way_of_comes_with_expandable_segments() {
    let scenario = of_link("v=1&m=Qwen/Qwen3-14B&method=lora&gpu=rtx-4090&gpus=2&shard=fsdp2&p=amp-bf16");
    let levers = found(&scenario);
    let precision = levers.single.iter().find(|lever| lever.changes[0].label == "Precision");
    let precision = precision.unwrap_or_else(|| panic!("{:?}", levers.single));
    assert_eq!((precision.verdict, precision.changes.len()), (Verdict::Close, 2));
    assert_eq!(precision.scenario.allocator, Allocator::Expandable);
    assert!(levers.single.iter().any(|lever| lever.scenario.cluster.cpu == CpuOffload::All));
    assert_eq!(levers.offloaded, None);
}

/// A smaller batch of texts has fewer to be told from, in however many passes: cached gradients come first.
#[test]
fn embeddings_fit_with_cached_gradients() {
    let scenario = of_link(
        "v=1&task=embed&m=google-bert/bert-base-uncased&method=full&p=amp-fp16&b=512&s=256&mask=padded&gpu=t4",
    );
    let levers = found(&scenario);
    let first = &levers.single[0];
    assert_eq!((first.verdict, first.cost), (Verdict::Fits, Cost::Time), "{first:?}");
    assert_eq!((first.scenario.embedding.cached, first.scenario.batch), (32, 512));
    let smaller = levers.single.iter().filter(|lever| lever.scenario.batch < 512);
    assert!(smaller.clone().count() > 0 && smaller.clone().all(|lever| lever.cost == Cost::Training));
}

fn of_link(link: &str) -> Scenario {
    crate::share::decode(link).scenarios.remove(0)
}

#[test]
fn what_is_slower_for_nothing_is_told_where_there_is_room() {
    let scenario = of_link("v=1&m=Qwen/Qwen2.5-0.5B&attn=eager&o=adamw-for-loop&gpu=rtx-4090");
    let uses = found(&scenario).uses;
    let about = |label: &str| uses.iter().find(|usage| usage.changes[0].label == label);
    for (label, to) in [("Attention", "SDPA (PyTorch chooses)"), ("Optimizer", "AdamW (fused)")] {
        let usage = about(label).unwrap_or_else(|| panic!("{label}: {uses:?}"));
        assert_eq!((usage.gain, usage.changes.len(), usage.changes[0].to.as_str()), (Gain::Speed, 1, to));
    }
    assert!(found(&on("rtx-4090")).uses.iter().all(|usage| usage.changes[0].label != "Optimizer"));
}

#[test]
fn fewer_gpus_do_where_the_cpu_keeps_the_shards() {
    let scenario = of_link("v=1&m=meta-llama/Llama-3.3-70B-Instruct&s=512&gpu=rtx-4090");
    let levers = found(&scenario);
    let fewest = levers.fewest.as_ref().unwrap().as_ref().map(|layout| layout.gpus);
    let lever = levers.offloaded.as_ref().expect("there is a way");
    let (gpus, cpu) = (lever.scenario.cluster.gpus, lever.scenario.cluster.cpu);
    assert_eq!((fewest, gpus, cpu), (Some(4), 2, CpuOffload::All));
    assert!(lever.on_host > Bytes(30 << 30) && lever.verdict == Verdict::Fits && levers.can_fit());
    // nothing is moved where it fits
    assert_eq!(found(&on("rtx-4090")).offloaded, None);
}

#[test]
fn copies_under_trl_are_offered_shards_of_both_engines_that_run_them() {
    use Sharding::{Ddp, Fsdp2, Zero2};
    let base = "m=meta-llama/Llama-3.1-8B&method=full&p=amp-bf16&st=trl&gpus=2&shard=ddp&gpu=a100-sxm-80gb";
    for (rest, offered) in [
        ("", vec![Fsdp2, Zero2]),
        ("&task=dpo", vec![Fsdp2, Zero2]),
        ("&task=orpo", vec![Fsdp2, Zero2]),
        // does not run under accelerate's FSDP2
        ("&o=adamw-8bit", vec![Zero2]),
    ] {
        let levers = found(&of_link(&format!("{base}{rest}")));
        assert_eq!(levers.verdict, Verdict::Over, "{rest}");
        let engines = levers.single.iter().map(|lever| lever.scenario.cluster.sharding);
        let mut engines: Vec<Sharding> = engines.filter(|engine| *engine != Ddp).collect();
        engines.sort_by_key(|engine| *engine != Fsdp2);
        assert_eq!(engines, offered, "{rest}");
    }
}

#[test]
fn a_run_that_generates_is_not_told_to_train_otherwise() {
    let base = "task=generate&m=Qwen/Qwen3-4B&p=bf16&b=64&s=2048&new=512";
    for (rest, fits) in [("method=full&gpu=rtx-4090", false), ("method=qlora&gpu=h200-sxm", true)] {
        let scenario = of_link(&format!("{base}&{rest}"));
        let levers = found(&scenario);
        assert_eq!(levers.verdict == Verdict::Fits, fits, "{rest}");
        for lever in levers.single.iter().chain(&levers.together) {
            assert_ne!(lever.cost, Cost::Training, "{lever:?}");
            assert_eq!(lever.scenario.accumulation, 1, "{lever:?}");
        }
        for usage in &levers.uses {
            assert!(usage.scenario.method != Method::Lora && usage.gain != Gain::Method, "{usage:?}");
        }
        let finer = levers.uses.iter().any(|usage| usage.gain == Gain::Precision);
        assert_eq!(finer, fits, "{:?}", levers.uses);
    }
}

#[test]
fn the_cache_the_reference_and_packing_are_levers() {
    #[track_caller]
    fn cost(link: &str, is: fn(&Scenario) -> bool) -> Option<Cost> {
        let levers = found(&of_link(link));
        levers.single.iter().find(|lever| is(&lever.scenario)).map(|lever| lever.cost)
    }
    let generate = "task=generate&m=Qwen/Qwen3-0.6B&method=full&p=bf16&b=64&s=2048";
    let is_off = |scenario: &Scenario| scenario.generation.cache == CacheKind::Off;
    assert_eq!(cost(&format!("{generate}&new=2048"), is_off), Some(Cost::Time));
    let grows = |scenario: &Scenario| scenario.generation.cache == CacheKind::Dynamic;
    let cache = Key::find("kv-cache").expect("it is a key").link;
    assert_eq!(cost(&format!("{generate}&new=2048&{cache}=static"), grows), Some(Cost::Nothing));
    let trl = "m=Qwen/Qwen3-0.6B&st=trl&p=amp-bf16&mask=padded&method=full";
    let is = |reference| format!("v=1&{trl}&task={reference}");
    let precomputed = |scenario: &Scenario| scenario.answers.reference == Reference::Precomputed;
    assert_eq!(cost(&is("dpo"), precomputed), Some(Cost::Nothing));
    let none = |scenario: &Scenario| scenario.answers.reference == Reference::None;
    assert_eq!(cost(&is("grpo"), none), Some(Cost::Training));
    let one_row = |scenario: &Scenario| scenario.mask == Mask::PaddingFree;
    let padded = "v=1&m=Qwen/Qwen3-0.6B&st=trl&p=amp-bf16&method=full&b=4";
    assert_eq!(cost(&format!("{padded}&mask=padded"), one_row), Some(Cost::Nothing));
    assert_eq!(cost(padded, one_row), None);
}

#[test]
fn what_would_not_run_is_no_lever() {
    // half of the sequence is less than the prompt, and gpt2 has an embedding for each of 1,024 positions
    let dpo =
        "task=dpo&m=openai-community/gpt2&st=trl&p=amp-bf16&mask=padded&method=full&s=1024&prompt=700&b=64";
    let generate = "task=generate&m=openai-community/gpt2&method=full&p=bf16&s=200&new=500";
    let beyond = "m=openai-community/gpt2&method=full&p=bf16&s=4096&b=16";
    for link in [dpo, generate, beyond] {
        let levers = found(&of_link(link));
        let single = levers.single.iter().chain(&levers.together).map(|lever| &lever.scenario);
        let all: Vec<_> = single.chain(levers.uses.iter().map(|usage| &usage.scenario)).collect();
        assert!(!all.is_empty(), "{link}");
        for scenario in all {
            assert_eq!(scenario.stop(), None, "{link}");
        }
    }
}

#[test]
fn where_nothing_helps_nothing_is_promised() {
    let model = ModelChoice::Catalogue("meta-llama/Llama-3.1-405B".into());
    let levers = found(&Scenario { model, ..on("rtx-3060-12gb") });
    assert_eq!((levers.together, levers.uses), (None, Vec::new()));
    assert!(levers.single.iter().all(|lever| lever.verdict == Verdict::Over));
}

#[test]
fn room_is_put_to_use() {
    let levers = found(&on("rtx-4090"));
    let gains: Vec<_> = levers.uses.iter().map(|usage| usage.gain).collect();
    assert!(gains.contains(&Gain::Batch) && gains.contains(&Gain::Sequence), "{gains:?}");
    for usage in &levers.uses {
        assert_eq!(of(&usage.scenario).unwrap().verdict, usage.verdict);
        assert_eq!(usage.verdict, Verdict::Fits, "{usage:?}");
    }
    let full = found(&Scenario { method: Method::Lora, ..on("h200-sxm") });
    assert!(full.uses.iter().any(|usage| usage.gain == Gain::Method));
}

#[test]
fn a_rank_is_offered_as_high_as_it_fits_or_adds_something() {
    #[track_caller]
    fn rank(rest: &str) -> Option<(u64, bool)> {
        let uses = found(&of_link(&format!("m=Qwen/Qwen2.5-0.5B&p=amp-bf16&gpu=rtx-4090&{rest}"))).uses;
        let usage = uses.into_iter().find(|usage| usage.gain == Gain::Rank)?;
        assert_eq!(usage.verdict, Verdict::Fits, "{usage:?}");
        Some((usage.scenario.lora.rank, usage.limit.is_some()))
    }
    // 896 fit and add something: more than anybody compared
    assert_eq!(rank("method=lora"), Some((512, false)));
    assert_eq!(rank("method=lora&t=k_proj"), Some((128, true)));
    assert!(rank("method=lora&b=4").is_some_and(|(rank, limited)| (17..=512).contains(&rank) && !limited));
    for none in ["method=full", "method=lora&ad=ia3", "method=lora&r=512", "method=lora&r=2000"] {
        assert_eq!(rank(none), None, "{none}");
    }
}

#[test]
fn a_scenario_without_an_answer_says_why() {
    assert!(levers(&on("no-such-card")).is_err_and(|issue| issue.field == Field::Gpu));
}

#[test]
fn a_rank_that_nothing_had_is_no_change() {
    let mut full = Scenario::default();
    full.change(|scenario| scenario.method = Method::Full);
    let mut apollo = full.clone();
    apollo.change(|scenario| scenario.optimizer = Optimizer::ApolloAdamW);
    let labels = |before: &Scenario, after: &Scenario| {
        let changes = Change::between(before, after, "optimizer");
        changes.into_iter().map(|change| change.label).collect::<Vec<_>>()
    };
    assert_eq!(apollo.lora.rank, 128);
    assert_eq!(labels(&full, &apollo), ["Optimizer"]);
    let fewer = Scenario { lora: Lora { rank: 64, ..apollo.lora }, ..apollo.clone() };
    assert_eq!(labels(&apollo, &fewer), ["Projection rank"]);
}

#[test]
fn runs_that_are_made_ahead_change_nothing() {
    for link in
        ["v=1", "gpu=rtx-3060-12gb", "method=full&gpu=rtx-4090", "task=generate&gpu=rtx-3060-12gb", "s=40000"]
    {
        let scenario = of_link(link);
        let ahead = ahead(&scenario);
        let looks = ahead.chunks(3).map(look).fold(Looks::default(), |mut all, some| {
            all.extend(some);
            all
        });
        let found = changes(&scenario, looks);
        assert_eq!(found, changes(&scenario, Looks::default()), "{link}");
        let single = found.expect("changes").single;
        let is_known = |lever: &&Lever| {
            let joined = |run| Scenario { allocator: Allocator::Expandable, ..Scenario::clone(run) };
            ahead.iter().any(|run| *lever.scenario == *run || *lever.scenario == joined(run))
        };
        assert!(single.iter().filter(is_known).count() * 4 >= single.len() * 3, "{link}");
        let uses: Vec<Use> = (0..USES).filter_map(|number| use_of(&scenario, number)).collect();
        let all = levers(&scenario).expect("levers").uses;
        assert!(all.is_empty() || all == uses, "{link}");
    }
}

/// vLLM's share of a card of 44 GiB does not hold its weights of 14.2: that is the first thing to change, and then its own
/// precision is enough; and a share that is larger than vLLM needs is the training's.
#[test]
fn vllms_share_of_the_card_is_one_of_the_changes() {
    let link = "task=grpo&m=Qwen/Qwen2.5-7B-Instruct&method=lora&p=amp-bf16&b=8&s=1536&ref=none&mask=padded&st=trl&gpu=l40s";
    let small = of_link(&format!("{link}&vllm=30"));
    let levers = found(&small);
    assert_eq!(levers.verdict, Verdict::WouldNotRun);
    let alone = levers.single.iter().find(|lever| lever.changes[0].label == "vLLM's share of the card");
    assert_eq!(alone.map(|lever| (lever.scenario.reserve.vllm, lever.cost)), Some((35, Cost::Nothing)));
    let together = levers.together.expect("there is a way");
    assert_eq!((together.scenario.reserve.vllm, together.scenario.method), (35, Method::Lora));
    assert!(together.verdict.holds() && together.cost < Cost::Training, "{together:?}");
    let large = of_link(&format!("{link}&vllm=70&p=amp-bf16-weights"));
    let levers = found(&large);
    let smaller = levers.single.iter().find(|lever| lever.scenario.reserve.vllm == 35).expect("it is one");
    assert!(smaller.verdict.holds() && smaller.cost == Cost::Time, "{smaller:?}");
}

#[test]
fn a_vllm_that_sleeps_leaves_the_card_to_the_training() {
    let link = "task=grpo&m=Qwen/Qwen2.5-7B-Instruct&method=lora&p=amp-bf16-weights&b=8&s=1536&ref=none&mask=padded&st=trl&gpu=a100-sxm-40gb&vllm=50";
    let awake = of_link(link);
    let levers = found(&awake);
    assert_eq!(levers.verdict, Verdict::Over);
    let asleep = levers.single.iter().find(|lever| lever.scenario.reserve.sleeps).expect("it is one");
    assert!(asleep.verdict.holds() && asleep.cost == Cost::Time, "{asleep:?}");
    // what training keeps in float32 leaves no room for it to wake
    let float32 = of_link(&format!("{link}&vsleep=on").replace("amp-bf16-weights", "amp-bf16"));
    assert_eq!(found(&float32).verdict, Verdict::Over);
}

#[test]
fn a_card_that_emulates_bfloat16_is_offered_float16() {
    for link in ["gpu=v100-pcie-16gb", "gpu=v100-pcie-32gb&method=lora&m=meta-llama/Llama-3.2-1B&p=bf16"] {
        let uses = found(&of_link(link)).uses;
        let first = &uses[0];
        assert_eq!(
            (first.gain, first.changes[0].label.as_str()),
            (Gain::Speed, "Precision"),
            "{link}: {uses:?}"
        );
        assert!(!first.scenario.emulates_bfloat16());
    }
    let uses = found(&of_link("gpu=rtx-4090")).uses;
    assert!(uses.iter().all(|usage| usage.changes[0].label != "Precision"), "{uses:?}");
}

/// Autocast multiplies frozen weights as bfloat16 either way, and adapters stay in float32: only what is added up between layers is coarser.
/// Weights that are trained lose more.
#[test]
fn frozen_weights_in_16_bits_cost_less_than_trained_ones() {
    let to_16_bits = |link: &str| {
        let single = found(&of_link(link)).single;
        let place = single.iter().position(|lever| lever.scenario.precision == Precision::AmpBf16Weights);
        (place, place.map(|place| single[place].cost))
    };
    let lora = "task=dpo&method=lora&gpu=rtx-4090";
    assert_eq!(to_16_bits(lora), (Some(0), Some(Cost::Rounding)));
    assert_eq!(to_16_bits(&format!("{lora}&p=amp-bf16&fp32-adapters=off")).1, Some(Cost::Precision));
    assert_eq!(to_16_bits("method=full&p=amp-bf16&m=Qwen/Qwen2.5-0.5B").1, Some(Cost::Precision));
}

/// FSDP2 over a single GPU copies every unit and its gradients, and shares nothing.
#[test]
fn what_wraps_a_single_gpu_is_switched_off_first() {
    let wrapped = of_link("m=meta-llama/Llama-3.1-8B&method=lora&p=bf16&shard=fsdp2&alone=on&gpu=rtx-4090");
    let levers = found(&wrapped);
    let off =
        levers.single.iter().find(|lever| lever.changes[0].label == "FSDP2 on one GPU").expect("it is one");
    assert!(!off.scenario.cluster.has_engine() && off.cost == Cost::Nothing, "{off:?}");
    assert!(off.needed < of(&wrapped).unwrap().needed && off.changes.len() == 1, "{off:?}");
    let plain = found(&off.scenario);
    assert!(plain.single.iter().all(|lever| lever.changes[0].label != "FSDP2 on one GPU"));
}

#[test]
fn a_teacher_and_pictures_are_made_smaller() {
    let label = |link: &str, key: &str| {
        let scenario = of_link(link);
        let label = Key::find(key).map(|key| key.label_for(&scenario).to_owned());
        let levers = found(&scenario).single;
        levers.into_iter().find(|lever| Some(&lever.changes[0].label) == label.as_ref())
    };
    let distil = "task=distil&m=Qwen/Qwen3-1.7B&teacher=Qwen/Qwen3-8B&gpu=rtx-4090";
    let lever = label(distil, "teacher-weights").expect("a smaller teacher");
    assert_eq!((lever.cost, lever.scenario.teacher.weights), (Cost::Precision, TeacherWeights::Nf4));
    let sees = "m=Qwen/Qwen2.5-VL-7B-Instruct&method=lora&s=8192&gpu=rtx-4090";
    let sees = format!("{sees}&images=4&image-height=896&image-width=896");
    assert!(label(&sees, "vision-tower").is_some_and(|lever| lever.cost == Cost::Training));
    let lever = label(&sees, "image-height").expect("smaller pictures");
    let pictures = lever.scenario.pictures;
    assert!(pictures.height < 896 && pictures.height == pictures.width, "{pictures:?}");
}
