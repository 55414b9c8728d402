//! Share links: every link that was ever given out still opens the same scenarios, and any scenario survives a link.

#![cfg(not(target_arch = "wasm32"))]

use std::fs;
use std::path::Path;

use headroom::scenario::keys::keys;
use headroom::scenario::{
    Allocator, Answers, AttentionKernel, CacheKind, Checkpointing, Cluster, Compile, ContextComm, CpuOffload,
    CustomModel, Data, DeepSpeed, Embedding, Evaluates, Evaluation, Experts, Float8, Float8Layers,
    Float8Training, Generation, GpuChoice, Layout, Lengths, Loop, Lora, LoraTargets, LossKernel, Mask,
    Merges, Method, ModelChoice, Modules, Offloading, Optimizer, Overlap, Pictures, PolicyBatches, Pooling,
    Precision, Qat, QatGroup, QatLayers, QatTraining, Quantization, ReduceDtype, Reference, Reserve,
    Rollouts, Sampling, Saves, Savings, Scenario, ShardedLayers, Sharding, Spikes, Split, Stack, StepTime,
    Task, Teacher, TeacherWeights, TransformerImpl, Tuner, VisionTower, WeightFormat, WrappedBy, modules,
};
use headroom::share::{MOST_SCENARIOS, decode, encode, names, said};
use headroom::units::Bytes;
use proptest::prelude::*;
use proptest::sample::select;

/// The longest that a link without a model of the user's own may be: it must survive chats and trackers.
const ORDINARY_LINK: usize = 300;

/// What a frozen link opens. A key that is younger than the link is not in the file and has its default.
#[derive(serde::Deserialize)]
struct Frozen {
    scenarios: Vec<Scenario>,
    notices: usize,
}

/// What other pages put behind an address takes nothing away from an old link.
#[test]
fn a_fragment_without_keys_leaves_the_query() {
    for link in [
        "?v=1&b=4&method=full#main",
        "?v=1&b=4&method=full#",
        "#v=1&b=4&method=full",
        "?x=1#v=1&b=4&method=full",
        "?v=1&b=4&method=full#_=_",
    ] {
        let shared = decode(link);
        assert_eq!((shared.scenarios[0].batch, shared.scenarios[0].method), (4, Method::Full), "{link}");
    }
}

#[test]
fn a_link_that_was_typed_has_the_defaults_of_its_task() {
    for task in Task::ALL {
        let typed = decode(&format!("task={}", task.slug())).scenarios.remove(0);
        assert!(typed.task == *task && headroom::estimate(&typed).memory.is_some(), "{task}");
        // what it says counts, and one that was written is as it was
        let said = decode(&format!("task={}&st=transformers&b=3", task.slug())).scenarios.remove(0);
        assert_eq!((said.stack, said.batch), (headroom::scenario::Stack::Transformers, 3), "{task}");
        let written = decode(&format!("v=1&task={}", task.slug())).scenarios.remove(0);
        assert_eq!(written, Scenario { task: *task, ..Scenario::default() });
    }
}

/// Each `NAME.link` in `fixtures/links` is frozen for ever, with what it opens in `NAME.json`: the scenarios, written
/// out in full, and how many notices the reader sees.
#[test]
fn frozen_links_open_the_same_scenarios() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/links");
    let mut links: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "link"))
        .collect();
    links.sort();
    assert!(links.len() >= 10, "fixtures are missing: {links:?}");
    for path in links {
        let shared = decode(fs::read_to_string(&path).unwrap().trim_end());
        let json = path.with_extension("json");
        if !json.exists() {
            let opened =
                serde_json::json!({ "scenarios": shared.scenarios, "notices": shared.notices.len() });
            fs::write(&json, format!("{opened:#}\n")).unwrap();
            panic!(
                "{} is new: read what was written to it, and keep it for ever if it is right",
                json.display()
            );
        }
        let frozen: Frozen = serde_json::from_str(&fs::read_to_string(&json).unwrap()).unwrap();
        assert_eq!(shared.scenarios, frozen.scenarios, "{}", path.display());
        assert_eq!(shared.notices.len(), frozen.notices, "{}: {:?}", path.display(), shared.notices);
        let said = fs::read_to_string(&path).unwrap();
        let behind_hash = format!("https://example.org/#{}", said.trim_end().trim_start_matches('?'));
        assert_eq!(decode(&behind_hash), shared, "{behind_hash}");
        let again = decode(&encode(&shared.scenarios));
        assert_eq!(again.scenarios, shared.scenarios, "{}", path.display());
        assert_eq!(again.notices, [], "{}", path.display());
    }
}

#[test]
fn defaults_are_left_out() {
    assert_eq!(encode(&[Scenario::default()]), "v=1");
    assert_eq!(encode(&[]), "v=1");
    let two =
        [Scenario::default(), Scenario { method: Method::Full, ..Scenario::default() }, Scenario::default()];
    assert_eq!(encode(&two), "v=1&2.method=full&3=same");
}

#[test]
fn a_damaged_link_says_what_was_taken_instead() {
    let shared = decode("?v=7&b=0&s=abc&method=lorra&gpu=&utm_source=chat&p&2.b=-3");
    let notices: Vec<_> = shared.notices.iter().map(ToString::to_string).collect();
    assert_eq!(
        notices,
        [
            "the link is of version \"7\", this page reads version 1: what it knows was taken",
            "method=lorra in the link was read as lora: method: there is no \"lorra\" (use full, lora or qlora)",
            "p= in the link was read as amp-bf16-weights: precision: there is no \"\" (use fp32, bf16, fp16, amp-bf16, amp-bf16-weights, amp-fp16 or amp-fp16-weights)",
            "b=0 in the link was read as 1: batch-size: 0 is out of range or not whole (use a whole number from 1 to 16,777,216)",
            "s=abc in the link was read as 2048: seq-length: \"abc\" is not a number (use a whole number from 1 to 16,777,216)",
            "gpu= in the link was read as rtx-4090: gpu: there is no card (use a card such as rtx-4090 or an amount such as 24GB)",
            "2.b=-3 in the link was read as 1: batch-size: -3 is out of range or not whole (use a whole number from 1 to 16,777,216)",
        ]
    );
    assert_eq!(shared.scenarios.len(), 2);
}

#[test]
fn a_share_of_the_card_is_read_as_percent() {
    for text in ["30", "30%25", "0.3"] {
        assert_eq!(decode(&format!("task=grpo&vllm={text}")).scenarios[0].reserve.vllm, 30, "{text}");
    }
    let notices = decode("task=grpo&vllm=0.305").notices;
    assert!(notices[0].to_string().ends_with("(use a whole number from 0 to 100, or a share such as 0.4)"));
}

#[test]
fn what_is_wrong_is_quoted_in_short() {
    let digits = "9".repeat(20_000);
    for (link, message) in [
        (format!("m={digits}b"), "m=999"),
        (format!("b={digits}"), "b=999"),
        (format!("s=x{digits}"), "s=x999"),
        (format!("method=x{digits}"), "method=x999"),
        (
            "m=1e300b".to_owned(),
            "m=1e300b in the link was read as meta-llama/Llama-3.1-8B: model: 1e300b is out of range",
        ),
    ] {
        let notices: Vec<_> = decode(&link).notices.iter().map(ToString::to_string).collect();
        assert!(notices.len() == 1 && notices[0].starts_with(message), "{notices:?}");
        assert!(notices[0].chars().count() < 400, "{notices:?}");
    }
}

#[test]
fn a_huge_link_is_refused() {
    let shared = decode(&format!("b=4&m={}", "a".repeat(1 << 20)));
    assert_eq!(shared.scenarios, [Scenario::default()]);
    assert_eq!(shared.notices.len(), 1);
    let of_length = |length: usize| format!("b=4&x={}", "a".repeat(length - "b=4&x=".len()));
    assert_eq!(decode(&of_length(1 << 15)).scenarios[0].batch, 4);
    let [refused] = &decode(&of_length((1 << 15) + 1)).notices[..] else { panic!("one notice") };
    let message = "the link has 32,769 characters; it was not read (a link has at most 32,768)";
    assert_eq!(refused.to_string(), message);
    let bomb = decode("m=x(layer_types:!(!r9999999(!r9999999(a))))");
    assert_eq!(bomb.scenarios, [Scenario::default()]);
    assert_eq!(bomb.notices.len(), 1, "{:?}", bomb.notices);
}

/// Which settings a link states itself, and what it says beside its scenarios.
#[test]
fn a_link_is_asked_what_it_says() {
    for link in ["https://example.org/#v=1&b=4&2.s=8", "?batch-size=4&2.seq-length=8"] {
        assert!(names(link, "batch-size"), "{link}");
        for other in ["seq-length", "optimizer", "b", "v"] {
            assert!(!names(link, other), "{link} {other}");
        }
    }
    let link = "#v=1&b=4&view=plan&selected=B&view=fit%20it";
    assert_eq!(said(link, "view").as_deref(), Some("fit it"));
    assert_eq!(said(link, "selected").as_deref(), Some("B"));
    assert_eq!(said(link, "embed"), None);
}

fn models() -> impl Strategy<Value = ModelChoice> {
    prop_oneof![
        "[A-Za-z][A-Za-z0-9._/+ &%=()~!-]{0,30}[A-Za-z0-9]".prop_map(ModelChoice::Catalogue),
        (1u32..10_000_000).prop_map(|millions| ModelChoice::Size(f64::from(millions) / 1000.0)),
    ]
}

fn loras() -> impl Strategy<Value = Lora> {
    let groups: Vec<_> =
        LoraTargets::ALL.iter().copied().filter(|group| *group != LoraTargets::Named).collect();
    let named = proptest::collection::vec(select(modules::NAMES.to_vec()), 0..9).prop_map(|names| {
        let set = names.into_iter().fold(Modules::NONE, |set, name| set.with(name).unwrap());
        (LoraTargets::Named, set)
    });
    let targets = prop_oneof![select(groups).prop_map(|group| (group, Modules::NONE)), named];
    (1u64..=1 << 24, targets, select(Tuner::ALL), any::<(bool, bool, bool, bool)>()).prop_map(
        |(rank, (targets, modules), tuner, (dropout, fp32_adapters, trains_embeddings, fused))| Lora {
            tuner,
            rank,
            targets,
            modules,
            dropout,
            fp32_adapters,
            trains_embeddings,
            fused,
        },
    )
}

fn lengths() -> impl Strategy<Value = Lengths> {
    let spread = any::<(u64, u64)>().prop_map(|(mean, deviation)| Lengths::Spread { mean, deviation });
    prop_oneof![Just(Lengths::Equal), Just(Lengths::Uniform), spread]
}

fn float8() -> impl Strategy<Value = Float8Training> {
    (select(Float8::ALL), select(Float8Layers::ALL), any::<(bool, bool)>())
        .prop_map(|(recipe, layers, (pads, gathers))| Float8Training { recipe, layers, pads, gathers })
}

fn qat() -> impl Strategy<Value = QatTraining> {
    (select(Qat::ALL), select(QatGroup::ALL), select(QatLayers::ALL))
        .prop_map(|(scheme, group, layers)| QatTraining { scheme, group, layers })
}

fn savings() -> impl Strategy<Value = Savings> {
    (select(LossKernel::ALL), select(StepTime::ALL), select(Offloading::ALL))
        .prop_map(|(loss, step, offloading)| Savings { loss, step, offloading })
}

fn clusters() -> impl Strategy<Value = Cluster> {
    let own = (1u64..=1 << 24, select(Sharding::ALL), any::<bool>(), select(ReduceDtype::ALL));
    let units = (select(ShardedLayers::ALL), select(WrappedBy::ALL));
    let more = (any::<[bool; 3]>(), units, 1u64..=1 << 24, select(CpuOffload::ALL));
    (own, more, deepspeed(), layouts()).prop_map(
        |((gpus, sharding, reshards, reduce), (switches, units, replicas, cpu), deepspeed, layout)| {
            let [shards_alone, bucket_views, reshards_root] = switches;
            let (sharded, wrapped_by) = units;
            Cluster {
                gpus,
                sharding,
                shards_alone,
                bucket_views,
                reshards,
                reshards_root,
                sharded,
                wrapped_by,
                replicas,
                reduce,
                cpu,
                deepspeed,
                layout,
            }
        },
    )
}

fn layouts() -> impl Strategy<Value = Layout> {
    let size = || 1u64..=1 << 24;
    let none = || 0u64..=1 << 24;
    let sequences = (
        select(TransformerImpl::ALL),
        any::<bool>(),
        size(),
        select(ContextComm::ALL),
        size(),
        any::<bool>(),
    );
    let split = (none(), none(), any::<bool>(), any::<bool>()).prop_map(
        |(first, last, counts_embedding, counts_loss)| Split { first, last, counts_embedding, counts_loss },
    );
    (size(), size(), none(), split, none(), sequences).prop_map(
        |(tensor, pipeline, interleaved, split, stage, sequences)| {
            let (layers, sequence, context, context_comm, experts, fuses_gradients) = sequences;
            Layout {
                tensor,
                pipeline,
                interleaved,
                split,
                stage,
                layers,
                sequence,
                context,
                context_comm,
                experts,
                fuses_gradients,
            }
        },
    )
}

fn deepspeed() -> impl Strategy<Value = DeepSpeed> {
    let elements = || 1u64..=1 << 40;
    let sizes = (elements(), elements(), elements(), elements());
    (sizes, any::<bool>(), select(Overlap::ALL)).prop_map(|(sizes, contiguous, overlap)| {
        let (reduce_bucket, prefetch_bucket, persistence, live) = sizes;
        DeepSpeed { reduce_bucket, prefetch_bucket, persistence, live, contiguous, overlap }
    })
}

fn reserves() -> impl Strategy<Value = Reserve> {
    let mebibytes = || 0u64..=1 << 24;
    let sizes = (mebibytes(), mebibytes(), mebibytes(), mebibytes(), 0..=100_u64, any::<bool>());
    sizes.prop_map(|(used, margin, context, workspace, vllm, sleeps)| Reserve {
        used,
        margin,
        context,
        workspace,
        vllm,
        sleeps,
    })
}

fn data() -> impl Strategy<Value = Data> {
    (1u64..=1 << 50, 1u64..=1 << 24, 0u64..=1 << 24).prop_map(|(tokens, epochs, cents)| Data {
        tokens,
        epochs,
        cents,
    })
}

fn answers() -> impl Strategy<Value = Answers> {
    (1u64..=1 << 24, select(Reference::ALL), select(Rollouts::ALL), 1u64..=1 << 24)
        .prop_map(|(prompt, reference, rollouts, labels)| Answers { prompt, reference, rollouts, labels })
}

fn embeddings() -> impl Strategy<Value = Embedding> {
    (2u64..=256, 0u64..=1 << 24, select(Pooling::ALL)).prop_map(|(texts, cached, pooling)| Embedding {
        texts,
        cached,
        pooling,
    })
}

fn policies() -> impl Strategy<Value = PolicyBatches> {
    let count = || 1u64..=1 << 24;
    (count(), count(), count()).prop_map(|(rollout, parts, epochs)| PolicyBatches { rollout, parts, epochs })
}

fn evaluations() -> impl Strategy<Value = Evaluation> {
    (select(Evaluates::ALL), 1u64..=1 << 24, 0u64..=1 << 24, 1u64..=1 << 24)
        .prop_map(|(keeps, batch, accumulation, batches)| Evaluation { keeps, batch, accumulation, batches })
}

fn spikes() -> impl Strategy<Value = Spikes> {
    (select(Saves::ALL), select(Merges::ALL)).prop_map(|(saving, merging)| Spikes { saving, merging })
}

fn teachers() -> impl Strategy<Value = Teacher> {
    let model = prop_oneof![
        Just(None),
        "[A-Z][a-z]{0,8}/[A-Za-z0-9.-]{1,12}".prop_map(|id| Some(ModelChoice::Catalogue(id)))
    ];
    (model, select(TeacherWeights::ALL)).prop_map(|(model, weights)| Teacher { model, weights })
}

fn generations() -> impl Strategy<Value = Generation> {
    (1u64..=1 << 24, select(CacheKind::ALL), select(Sampling::ALL))
        .prop_map(|(new_tokens, cache, sampling)| Generation { new_tokens, cache, sampling })
}

fn pictures() -> impl Strategy<Value = Pictures> {
    (0u64..=1 << 24, 1u64..=1 << 24, 1u64..=1 << 24, 1u64..=1 << 24, select(VisionTower::ALL))
        .prop_map(|(count, height, width, frames, tower)| Pictures { count, height, width, frames, tower })
}

fn scenarios() -> impl Strategy<Value = Scenario> {
    let count = || prop_oneof![1u64..=64, 1u64..=1 << 24];
    let gpus = prop_oneof![
        // no card's name begins so: "l4-" is read as the L4
        "z[a-z0-9-]{0,20}".prop_map(GpuChoice::Catalogue),
        (1u64..1 << 50).prop_map(|bytes| GpuChoice::Custom(Bytes(bytes))),
        (1u64..1000).prop_map(|gb| GpuChoice::Custom(Bytes(gb * 1_000_000_000))),
    ];
    (
        (
            models(),
            select(Method::ALL),
            loras(),
            any::<(bool, bool)>(),
            select(Precision::ALL),
            select(Optimizer::ALL),
        ),
        (
            count(),
            count(),
            count(),
            select(Checkpointing::ALL),
            select(AttentionKernel::ALL),
            select(Mask::ALL),
        ),
        (
            proptest::option::of(0u16..=10_000),
            any::<(bool, bool, bool, bool)>(),
            gpus,
            clusters(),
            reserves(),
            data(),
        ),
        (
            select(Stack::ALL),
            savings(),
            (select(WeightFormat::ALL), select(Experts::ALL), float8(), qat(), select(Compile::ALL)),
            lengths(),
            select(Allocator::ALL),
        ),
        (
            select(Task::ALL),
            (answers(), teachers(), embeddings(), policies(), evaluations(), spikes()),
            generations(),
            pictures(),
        ),
    )
        .prop_map(
            |(
                what,
                how,
                rest,
                (stack, savings, (format, experts, float8, qat, compile), lengths, allocator),
                (task, (answers, teacher, embedding, policy, evaluation, spikes), generation, pictures),
            )| {
                let (model, method, lora, (double_quant, prepare), precision, optimizer) = what;
                let (batch, sequence, accumulation, checkpointing, attention, mask) = how;
                let (
                    dropout,
                    (keeps_outputs, grads_to_none, clips, fills_cache),
                    gpu,
                    cluster,
                    reserve,
                    data,
                ) = rest;
                Scenario {
                    task,
                    answers,
                    embedding,
                    teacher,
                    policy,
                    evaluation,
                    spikes,
                    generation,
                    pictures,
                    model,
                    method,
                    lora,
                    quantization: Quantization {
                        format,
                        double_quant,
                        prepare,
                        ..Scenario::default().quantization
                    },
                    experts,
                    float8,
                    qat,
                    compile,
                    precision,
                    optimizer,
                    batch,
                    sequence,
                    accumulation,
                    checkpointing,
                    attention,
                    mask,
                    dropout,
                    training_loop: Loop { keeps_outputs, grads_to_none, clips, fills_cache },
                    lengths,
                    stack,
                    savings,
                    allocator,
                    gpu,
                    cluster,
                    reserve,
                    data,
                }
            },
        )
}

proptest! {
    #[test]
    fn any_scenarios_survive_a_link(scenarios in proptest::collection::vec(scenarios(), 1..=MOST_SCENARIOS)) {
        let link = encode(&scenarios);
        let shared = decode(&link);
        prop_assert_eq!(&shared.scenarios, &scenarios, "{}", link);
        prop_assert_eq!(shared.notices, vec![]);
    }

    #[test]
    fn any_scenario_survives_json(scenario in scenarios()) {
        let json = serde_json::to_string(&scenario).unwrap();
        prop_assert_eq!(serde_json::from_str::<Scenario>(&json).unwrap(), scenario);
    }

    #[test]
    fn values_that_differ_read_differently(one in scenarios(), other in scenarios()) {
        // "qv" names other layers where (IA)³ adapts them, so its words are told by the tuner too.
        let words_rest_on_the_tuner = (one.lora.tuner == Tuner::Ia3) != (other.lora.tuner == Tuner::Ia3);
        // One library, in another version for a task or a loss.
        let words_rest_on_more = one.stack == other.stack && one.library() != other.library();
        let keys = keys().filter(|key| key.name != "model" && !(key.name == "lora-targets" && words_rest_on_the_tuner));
        let keys = keys.filter(|key| !(key.name == "stack" && words_rest_on_more));
        for key in keys.filter(|key| key.matters(&one) && key.matters(&other)) {
            let same = key.words(&one) == key.words(&other);
            prop_assert_eq!(same, key.is_same(&one, &other), "{}: {}", key.name, key.words(&one));
        }
    }

    #[test]
    fn a_setting_can_be_set_back(scenario in scenarios()) {
        let mut reset = scenario.clone();
        // What is set back may change the default of another, and that whether a third makes a difference.
        for _ in 0..4 {
            for key in reset.changed() {
                let defaults = reset.defaults();
                key.copy(&mut reset, &defaults);
            }
        }
        prop_assert_eq!(reset.changed().len(), 0);
    }

    #[test]
    fn any_text_is_answered(text in "\\PC{0,200}") {
        let shared = decode(&text);
        prop_assert!(!shared.scenarios.is_empty());
    }

    #[test]
    fn any_damage_is_answered(scenario in scenarios(), at in any::<prop::sample::Index>(), junk in "[ -~]{0,4}") {
        let mut link = encode(&[scenario.clone(), scenario]);
        let at = at.index(link.len());
        link.replace_range(at..at + 1, &junk);
        let shared = decode(&link);
        prop_assert!((1..=MOST_SCENARIOS).contains(&shared.scenarios.len()));
        prop_assert_eq!(decode(&encode(&shared.scenarios)).scenarios, shared.scenarios);
    }
}

#[test]
fn ordinary_links_are_short() {
    let ordinary = Scenario {
        model: ModelChoice::Catalogue("mistralai/Mistral-Small-3.1-24B-Instruct-2503".into()),
        method: Method::Lora,
        lora: Lora { rank: 64, dropout: true, ..Scenario::default().lora },
        precision: Precision::AmpBf16,
        optimizer: Optimizer::PagedAdamW8bit,
        batch: 16,
        sequence: 8192,
        accumulation: 8,
        checkpointing: Checkpointing::Reentrant,
        attention: AttentionKernel::Flash,
        gpu: GpuChoice::Catalogue("rtx-pro-6000-blackwell".into()),
        ..Scenario::default()
    };
    let link = encode(std::slice::from_ref(&ordinary));
    assert!(link.len() < ORDINARY_LINK, "{} {link}", link.len());
    let compared = [
        ordinary.clone(),
        Scenario { method: Method::Qlora, ..ordinary.clone() },
        Scenario { batch: 8, ..ordinary },
    ];
    let link = encode(&compared);
    assert!(link.len() < ORDINARY_LINK, "{} {link}", link.len());
}

/// The longest link that every browser, chat and server passes on whole.
const LONGEST_LINK: usize = 2_000;

#[test]
fn a_model_of_ones_own_travels_in_the_link() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("data/models");
    let mut lengths = Vec::new();
    for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        let name = path.file_stem().unwrap().to_string_lossy();
        let Ok(model) = CustomModel::read(&name, &fs::read_to_string(&path).unwrap()) else { continue };
        let scenario = Scenario { model: ModelChoice::Custom(model.into()), ..Scenario::default() };
        let link = encode(std::slice::from_ref(&scenario));
        let shared = decode(&link);
        assert_eq!(shared.notices, [], "{link}");
        assert_eq!(shared.scenarios, [scenario], "{link}");
        lengths.push((link.len(), name.into_owned()));
    }
    lengths.sort();
    let (longest, median) = (lengths.last().unwrap(), &lengths[lengths.len() / 2]);
    assert!(longest.0 < LONGEST_LINK && median.0 < ORDINARY_LINK * 2, "{longest:?} {median:?}");
}

/// Comparisons and exports tell cards apart by their names.
#[test]
fn cards_have_names_of_their_own() {
    let mut names: Vec<_> = headroom::hardware::gpus().map(|gpu| gpu.name.to_string()).collect();
    let count = names.len();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), count);
}
