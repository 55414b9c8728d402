//! The files that `headroom script` writes: what was run took what is shown, and whatever is asked for is written or refused.

#![cfg(not(target_arch = "wasm32"))]

use headroom::estimate;
use headroom::export::script;
use headroom::import;
use headroom::model::catalogue;
use headroom::plan::Answer;
use headroom::scenario::keys::{ValueKind, keys};
use headroom::scenario::{
    Cluster, Compile, CustomModel, Field, Method, ModelChoice, Qat, QatTraining, Scenario, Sharding, Stack,
    Task,
};
use headroom::share;
use serde_json::Value;

/// `tests/fixtures/measurements/scripts.json`: what files took that `tools/run_script.py` ran, as `data/SOURCES.md` says.
const RAN: &str = include_str!("fixtures/measurements/scripts.json");

/// How far the allocated and the reserved peak may be off on one GPU.
const ON_ONE: [f64; 2] = [0.005, 0.02];
/// And of other tasks than fine-tuning on texts, where a large batch without checkpointing moves what is reserved.
const OF_TASKS: [f64; 2] = [0.005, 0.21];
/// The middle of all rows.
const MIDDLE: [f64; 2] = [0.0001, 0.001];
/// And on several, where what DeepSpeed's partitions leave in the cache moves a small model's reserved memory.
const ON_SEVERAL: [f64; 2] = [0.005, 0.11];

/// A file of each library, and of each engine of several GPUs.
const FILES: [(&str, &str); 17] = [
    ("embedder", include_str!("fixtures/scripts/embedder.py")),
    ("classifier", include_str!("fixtures/scripts/classifier.py")),
    ("grpo", include_str!("fixtures/scripts/grpo.py")),
    ("simpo", include_str!("fixtures/scripts/simpo.py")),
    ("ddp", include_str!("fixtures/scripts/ddp.py")),
    ("fsdp2", include_str!("fixtures/scripts/fsdp2.py")),
    ("zero3", include_str!("fixtures/scripts/zero3.py")),
    ("trl-fsdp2", include_str!("fixtures/scripts/trl-fsdp2.py")),
    ("trl-zero2", include_str!("fixtures/scripts/trl-zero2.py")),
    ("transformers", include_str!("fixtures/scripts/transformers.py")),
    ("trl", include_str!("fixtures/scripts/trl.py")),
    ("pictures", include_str!("fixtures/scripts/pictures.py")),
    ("trl-pictures", include_str!("fixtures/scripts/trl-pictures.py")),
    ("unsloth", include_str!("fixtures/scripts/unsloth.py")),
    ("distil", include_str!("fixtures/scripts/distil.py")),
    ("gkd", include_str!("fixtures/scripts/gkd.py")),
    ("ppo", include_str!("fixtures/scripts/ppo.py")),
];

fn linked(link: &str) -> Scenario {
    let shared = share::decode(link);
    assert!(shared.notices.is_empty(), "{link}: {:?}", shared.notices);
    shared.scenarios.into_iter().next().expect("a link holds a scenario")
}

/// Files say `cuda`, as they were run; ROCm is called so too.
#[test]
fn a_file_is_written_for_its_cards_device() {
    let file = |link: &str| script(&linked(link)).unwrap_or_else(|issue| panic!("{link}: {issue}"));
    let of_tasks = [
        "method=lora&p=amp-bf16-weights",
        "method=lora&st=trl",
        "method=full&p=amp-fp16",
        "task=generate&method=full&p=bf16",
    ];
    for (gpu, device) in [("apple-m3-max-64gb", "mps"), ("arc-b580", "xpu")] {
        for task in of_tasks {
            let text = file(&format!("{task}&m=Qwen/Qwen2.5-0.5B&gpu={gpu}"));
            assert!(text.contains(&format!("PyTorch's device \"{device}\"")), "{text}");
            assert!(text.contains(&format!("device_map={{\"\": \"{device}")), "{text}");
            let named = text.lines().find(|line| line.contains("cuda") && !line.contains("CUDA"));
            assert_eq!(named, None, "{text}");
        }
    }
    let two = file("method=full&m=Qwen/Qwen2.5-0.5B&p=amp-bf16&gpu=max-1550&gpus=4&shard=fsdp2&replicas=2");
    for line in
        ["dist.init_process_group(\"xccl\")", "torch.xpu.set_device(GPU)", "init_device_mesh(\"xpu\", (2,"]
    {
        assert!(two.contains(line), "{line}: {two}");
    }
    for gpu in ["rtx-4090", "mi300x"] {
        let text = file(&format!("method=lora&gpu={gpu}"));
        assert!(text.contains("device_map={\"\": 0}") && !text.contains("PyTorch's device"), "{text}");
    }
    let refused = script(&linked("method=lora&gpu=tpu-v5e")).expect_err("no file for a TPU");
    assert!(refused.to_string().contains("torch_xla"), "{refused}");
}

#[test]
fn a_file_asks_for_the_transformers_whose_experts_it_has() {
    for (experts, version, package) in [
        ("layers", "transformers 4.57", "'transformers==4.57.1'"),
        ("tensors", "transformers 5.17", "'transformers==5.17.*'"),
    ] {
        let file = script(&linked(&format!("m=Qwen/Qwen3-30B-A3B&exl={experts}"))).expect("a file");
        assert!(file.contains(&format!("with {version}")) && file.contains(package), "{file}");
    }
}

/// `AutoModelForCausalLM` has no class for most of them, and for some one without the tower that the answer counts.
#[test]
fn a_file_loads_a_model_with_its_tower() {
    for (link, class) in [
        ("task=generate&m=Qwen/Qwen3-VL-4B-Instruct&p=bf16", "AutoModelForImageTextToText"),
        ("m=Qwen/Qwen3.5-9B&method=lora", "AutoModelForImageTextToText"),
        ("task=generate&m=Qwen/Qwen3-4B&p=bf16", "AutoModelForCausalLM"),
        ("m=Qwen/Qwen3-4B&method=lora", "AutoModelForCausalLM"),
        ("st=trl&m=Qwen/Qwen3-VL-4B-Instruct&method=lora&mask=padded", "AutoModelForImageTextToText"),
    ] {
        let scenario = linked(link);
        let file = script(&scenario).expect("a file");
        let others = file.matches("AutoModelFor").count();
        assert_eq!((file.matches(class).count(), others), (2, 2), "{file}");
        let read = import::read(&file, &Scenario::default()).expect("the file is read");
        let left: Vec<_> = read.left.iter().map(|left| (&left.said, &left.why)).collect();
        assert_eq!((read.scenario.model, left), (scenario.model, Vec::new()), "{link}");
    }
}

/// What a processor is told keeps pictures at the scenario's size, by its family's word for it.
#[test]
fn a_file_with_pictures_says_how_large_they_are() {
    for (link, line) in [
        (
            "m=Qwen/Qwen3-VL-4B-Instruct&imh=720&imw=1280&s=2048",
            "size = {\"shortest_edge\": 65536, \"longest_edge\": 901120}",
        ),
        // what is shrunk by the model's own limit is shrunk by it here
        (
            "m=Qwen/Qwen2.5-VL-3B-Instruct&imh=8000&imw=8000&s=20000",
            "size = {\"shortest_edge\": 3136, \"longest_edge\": 12845056}",
        ),
        ("m=mistralai/Ministral-3-3B-Instruct-2512&imh=300&imw=450&s=1024", "size = {\"longest_edge\": 450}"),
        ("m=OpenGVLab/InternVL3-8B-hf&imh=1024&imw=1024&s=4096", "max_patches = 9"),
        ("m=google/gemma-3-4b-it&s=1024", "processor = AutoProcessor.from_pretrained(MODEL)\nmodel"),
    ] {
        let file = script(&linked(&format!("{link}&img=1&method=lora&p=bf16"))).expect("a file");
        assert!(file.contains(line), "{link}: {file}");
    }
    let videos = linked("m=Qwen/Qwen3-VL-4B-Instruct&img=1&vf=16&s=4096&method=lora&p=bf16");
    let refused = script(&videos).expect_err("no file of videos");
    assert_eq!(refused.field, Field::Frames, "{refused}");
}

/// No data is known that has prompts as messages, or labelled answers, beside pictures.
#[test]
fn no_file_of_rewarded_or_labelled_answers_has_pictures() {
    for task in ["kto", "grpo", "rloo"] {
        let link = format!(
            "st=trl&task={task}&m=Qwen/Qwen2.5-VL-3B-Instruct&imh=448&imw=448&s=1024&mask=padded&b=8"
        );
        let refused = script(&linked(&format!("{link}&img=1"))).expect_err(task);
        assert_eq!(refused.field, Field::Pictures, "{refused}");
        assert!(refused.to_string().contains("no file of this task is written with pictures"), "{refused}");
        script(&linked(&format!("{link}&img=0"))).expect(task);
    }
}

/// DPO's data have pairs of answers beside the pictures; its processor has a template of its own.
#[test]
fn a_file_of_preferred_answers_has_pictures() {
    let link = |images: u64| {
        let link = "st=trl&task=dpo&m=Qwen/Qwen2.5-VL-3B-Instruct&imh=448&imw=448&s=2048&prompt=1024&method=lora&p=bf16&mask=padded";
        linked(&format!("{link}&img={images}"))
    };
    let file = script(&link(1)).expect("a file");
    for line in [
        "HuggingFaceH4/rlaif-v_formatted",
        "with columns \"prompt\", \"chosen\", \"rejected\" and \"images\"",
        "processing_class=processor",
        "from trl import DPOConfig, DPOTrainer",
        "longest_edge",
    ] {
        assert!(file.contains(line), "{line}: {file}");
    }
    for line in ["AutoTokenizer", "processing_class=tokenizer", "messages"] {
        assert!(!file.contains(line), "{line}: {file}");
    }
    let refused = script(&link(2)).expect_err("no pairs are joined");
    assert_eq!(refused.field, Field::Pictures, "{refused}");
}

/// A tower that stays as it is: its weights where all others are trained, else adapters in it.
#[test]
fn a_file_leaves_a_frozen_tower_as_it_is() {
    for (link, said) in [
        ("m=Qwen/Qwen2.5-VL-3B-Instruct&method=lora", vec!["exclude_modules=\".*visual.*\""]),
        (
            "m=google/gemma-3-4b-it&method=lora",
            vec!["exclude_modules=\".*(vision_tower|multi_modal_projector).*\""],
        ),
        (
            "m=google/gemma-3-4b-it&method=full",
            vec![
                "vision_tower.requires_grad_(False)",
                "model.model.multi_modal_projector.requires_grad_(False)",
            ],
        ),
        (
            "m=llava-hf/llava-v1.6-mistral-7b-hf&method=full",
            vec!["model.model.image_newline.requires_grad_(False)"],
        ),
    ] {
        for stack in ["transformers", "trl"] {
            let scenario = linked(&format!("{link}&p=bf16&vt=frozen&mask=padded&st={stack}"));
            let file = script(&scenario).unwrap_or_else(|issue| panic!("{link}: {issue}"));
            for said in &said {
                assert!(file.contains(said), "{file}");
            }
            // without the link of its first lines too
            let body: Vec<_> = file.lines().filter(|line| !line.starts_with("# What it takes")).collect();
            let read = import::read(&body.join("\n"), &Scenario::default()).expect("the file is read");
            assert_eq!(read.scenario.pictures.tower, scenario.pictures.tower, "{file}");
        }
    }
    // the tower alone is not what is known
    let half = "from transformers import AutoModelForImageTextToText\nmodel = AutoModelForImageTextToText.from_pretrained('google/gemma-3-4b-it')\n\
                model.model.vision_tower.requires_grad_(False)\noptimizer = torch.optim.AdamW(model.parameters())\n";
    let read = import::read(half, &Scenario::default()).expect("the file is read");
    assert!(read.left.iter().any(|left| left.said.contains("vision_tower")), "{:?}", read.left);
}

#[test]
fn a_file_that_runs_takes_what_is_shown() {
    let rows: Vec<Value> = serde_json::from_str(RAN).expect("the rows are JSON");
    assert!(rows.len() >= 120, "{} rows", rows.len());
    let mut errors = [Vec::new(), Vec::new()];
    for row in rows {
        let link = row["link"].as_str().expect("a row has a link");
        let mut scenario = linked(link);
        script(&scenario).unwrap_or_else(|issue| panic!("{link}: {issue}"));
        // a vLLM on the same card was not run
        scenario.reserve.vllm = 0;
        let answer = Answer::of(scenario);
        let memory = answer.estimate.memory.unwrap_or_else(|| panic!("{link}: no answer"));
        let on_card = answer.on_card.unwrap_or_else(|| panic!("{link}: no replay"));
        let limits = match (answer.scenario.task, answer.scenario.cluster.is_many()) {
            (Task::Sft | Task::Generate, false) => ON_ONE,
            (Task::Sft | Task::Generate, true) => ON_SEVERAL,
            (_, _) => OF_TASKS,
        };
        let figures = [("allocated", memory.peak().1.bytes), ("reserved", on_card.reserved)];
        for (((name, predicted), limit), errors) in figures.into_iter().zip(limits).zip(&mut errors) {
            let measured = row[name].as_f64().expect("a row has both figures");
            let off = predicted.0 as f64 / measured - 1.0;
            assert!(off.abs() <= limit, "{link}: {name} {:.3} %", off * 100.0);
            errors.push(off.abs());
        }
    }
    for (mut errors, limit) in errors.into_iter().zip(MIDDLE) {
        errors.sort_by(f64::total_cmp);
        assert!(errors[errors.len() / 2] <= limit, "{errors:?}");
    }
}

/// trl's trainers but those of SFT and reward models are given an optimizer that `Trainer` has no name for, or none is written.
#[test]
fn an_optimizer_without_a_name_is_made_in_the_file() {
    let of = |task: &str, method: &str| {
        script(&linked(&format!(
            "v=1&task={task}&m=Qwen/Qwen2.5-0.5B&method={method}&o=adam&mask=padded&st=trl&s=1024&gpu=a100-sxm-80gb"
        )))
    };
    let sft = of("sft", "lora").expect("SFTTrainer makes it");
    assert!(sft.contains("optimizer_cls_and_kwargs=(torch.optim.Adam, {"), "{sft}");
    let dpo = of("dpo", "full").expect("it is handed over");
    assert!(
        dpo.contains("optimizers=(torch.optim.Adam(model.parameters(), lr=LEARNING_RATE), None)"),
        "{dpo}"
    );
    assert!(!dpo.contains("optimizer_cls_and_kwargs"), "{dpo}");
    assert_eq!(of("dpo", "lora").expect_err("adapters are made later").field, Field::Optimizer);
}

/// What is written is read back as the same run: what a loop says in no call stands in the link of its first lines.
#[test]
fn a_file_is_read_back() {
    let rows: Vec<Value> = serde_json::from_str(RAN).expect("the rows are JSON");
    let ran = rows.iter().map(|row| row["link"].as_str().expect("a row has a link"));
    let files = FILES.iter().map(|(_, file)| link_of(file));
    for link in files.chain(ran) {
        let scenario = linked(link);
        let text = script(&scenario).unwrap_or_else(|issue| panic!("{link}: {issue}"));
        let read = import::read(&text, &Scenario::default()).unwrap_or_else(|why| panic!("{link}: {why}"));
        let left: Vec<_> = read.left.iter().map(|left| (&left.said, &left.why)).collect();
        assert_eq!(left, [], "{link}\n{text}");
        let (memory, other) = (estimate(&scenario).memory, estimate(&read.scenario).memory);
        assert!(memory.is_some() && memory == other, "{link} is read as {}", encoded(&read.scenario));
    }
}

/// A number that was changed in the file, and not in the link of its first lines, counts as it stands in the file.
#[test]
fn what_was_changed_in_a_file_counts() {
    let text = script(&linked("v=1&gpus=2")).expect("it can be written");
    let changed = text
        .replace("r=16,", "r=64,")
        .replace("torch.optim.AdamW(", "torch.optim.SGD(")
        .replace("fused=True", "momentum=0.9");
    let read = import::read(&changed, &Scenario::default()).expect("it is Python");
    assert_eq!(encoded(&read.scenario), "v=1&r=64&o=sgd-momentum&gpus=2");
}

/// So do the sizes that a loop begins with, and how its engine shares the work.
#[test]
fn sizes_and_engines_that_were_changed_in_a_file_count() {
    for (link, changes, expected) in [
        ("v=1", vec![("STEPS = 1, 2048, 1,", "STEPS = 2, 512, 4,")], "v=1&b=2&s=512&ga=4"),
        (
            "v=1&task=generate&method=full&p=bf16&new=64",
            vec![("NEW = 1, 2048, 64", "NEW = 8, 2048, 128")],
            "v=1&task=generate&method=full&p=bf16&b=8&new=128",
        ),
        (
            "v=1&method=full&p=amp-bf16&gpus=4&shard=fsdp2",
            vec![
                ("(layer, reshard_after_forward=True", "(layer, reshard_after_forward=False"),
                ("reduce_dtype=torch.float32", "reduce_dtype=torch.bfloat16"),
            ],
            "v=1&method=full&p=amp-bf16&gpus=4&shard=fsdp2&reshard=off&reduce=bf16",
        ),
        (
            "v=1&method=full&p=amp-bf16&gpus=4&shard=zero3",
            vec![("\"stage\": 3", "\"stage\": 2"), ("STEPS = 1,", "STEPS = 3,")],
            "v=1&method=full&p=amp-bf16&b=3&gpus=4&shard=zero2",
        ),
    ] {
        let written = script(&linked(link)).expect("it can be written");
        let mut text = written.clone();
        for (from, to) in changes {
            assert!(text.contains(from), "{from} is not in\n{text}");
            text = text.replace(from, to);
        }
        let read = import::read(&text, &Scenario::default()).expect("it is Python");
        assert_eq!(
            share::decode(&encoded(&read.scenario)),
            share::decode(expected),
            "{link}: {}",
            encoded(&read.scenario)
        );
    }
}

fn encoded(scenario: &Scenario) -> String {
    share::encode(std::slice::from_ref(scenario))
}

/// A line of a file changes with a word of its own here.
#[test]
fn files_are_as_they_were() {
    for (name, file) in FILES {
        let written = script(&linked(link_of(file))).unwrap_or_else(|issue| panic!("{name}: {issue}"));
        assert_eq!(written, file, "{name}");
    }
}

fn link_of(file: &str) -> &str {
    let told = file.lines().find(|line| line.starts_with("# What it takes of a GPU: "));
    let (_, link) =
        told.and_then(|line| line.split_once("headroom estimate ")).expect("a file says its link");
    link.trim_matches('\'')
}

#[test]
fn a_file_is_written_or_refused_for_every_model_library_and_method() {
    let (mut written, mut refused) = (0, 0);
    for entry in catalogue::entries() {
        for (stack, method) in
            Stack::ALL.iter().flat_map(|stack| Method::ALL.iter().map(move |method| (*stack, *method)))
        {
            let mut scenario =
                Scenario { model: ModelChoice::Catalogue(entry.id.into()), ..Scenario::default() };
            scenario.change(|scenario| scenario.stack = stack);
            scenario.change(|scenario| scenario.method = method);
            match script(&scenario) {
                Ok(text) => {
                    written += 1;
                    let link = share::encode(std::slice::from_ref(&scenario));
                    assert!(text.contains(&format!("headroom estimate '{link}'")), "{text}");
                    let count = |wanted: char| text.chars().filter(|c| *c == wanted).count();
                    for (open, close) in [('(', ')'), ('[', ']'), ('{', '}')] {
                        assert_eq!(count(open), count(close), "{text}");
                    }
                }
                Err(issue) => {
                    refused += 1;
                    assert!(issue.fix.is_some(), "{issue}");
                }
            }
        }
    }
    assert!(written > 1_000 && refused > 1_000, "{written} written, {refused} refused");
}

/// Whatever changes the figure changes the file, which is read back as that run, or there is none.
#[test]
fn what_makes_a_difference_is_said_or_refused() {
    let needs = |scenario: &Scenario| estimate(scenario).memory;
    // the link of the first lines says everything
    let body = |text: &str| {
        let lines = text.lines().filter(|line| !line.starts_with("# What it takes"));
        lines.collect::<Vec<_>>().join("\n")
    };
    let (mut said, mut refused) = (0, 0);
    let one = Cluster::ONE;
    let many = |sharding| Cluster { gpus: 4, sharding, ..one };
    for (stack, method, cluster) in [
        (Stack::Transformers, Method::Full, one),
        (Stack::Transformers, Method::Qlora, one),
        (Stack::Transformers, Method::Full, many(Sharding::Fsdp2)),
        (Stack::Transformers, Method::Lora, many(Sharding::Zero3)),
        (Stack::Liger, Method::Full, one),
        (Stack::Trl, Method::Lora, one),
        (Stack::Trl, Method::Qlora, one),
        (Stack::Trl, Method::Full, many(Sharding::Zero2)),
        (Stack::Trl, Method::Lora, many(Sharding::Zero3)),
        (Stack::Unsloth, Method::Qlora, one),
    ] {
        let mut usual =
            Scenario { model: ModelChoice::Catalogue("Qwen/Qwen3-0.6B".into()), ..Scenario::default() };
        usual.change(|scenario| scenario.stack = stack);
        usual.change(|scenario| scenario.method = method);
        usual.change(|scenario| scenario.cluster = cluster);
        let file = body(&script(&usual).expect("the defaults of a library can be written"));
        // what the card is, and what its driver takes, no file says
        let elsewhere = ["model", "stack", "method", "gpu", "context-mib"];
        for key in keys().filter(|key| !elsewhere.contains(&key.name)) {
            for value in values(key.kind()) {
                let mut other = usual.clone();
                key.read(&mut other, value).unwrap_or_else(|issue| panic!("{issue}"));
                if needs(&other) == needs(&usual) {
                    continue;
                }
                match script(&other) {
                    Ok(text) => {
                        assert_ne!(body(&text), file, "{stack} {method}: {} {value}", key.name);
                        let read = import::read(&text, &Scenario::default())
                            .unwrap_or_else(|why| panic!("{stack} {method}: {} {value}: {why}", key.name));
                        let (link, read) = (encoded(&other), encoded(&read.scenario));
                        assert!(needs(&linked(&read)) == needs(&other), "{link} is read as {read}");
                        said += 1;
                    }
                    Err(_) => refused += 1,
                }
            }
        }
    }
    assert!(said > 100 && refused > 50, "{said} said, {refused} refused");
}

/// Values that are not the default, or may be.
fn values(kind: ValueKind) -> Vec<&'static str> {
    match kind {
        ValueKind::Choice(choices) => choices.iter().map(|choice| choice.slug).collect(),
        ValueKind::Switch => vec!["on", "off"],
        ValueKind::Count(_) => vec!["2", "3"],
        ValueKind::Targets => vec!["qv", "attention", "mlp", "all-linear-and-head", "q_proj"],
        ValueKind::Lengths => vec!["uniform"],
        ValueKind::Dropout => vec!["0.1"],
        ValueKind::Model | ValueKind::Teacher | ValueKind::Gpu => Vec::new(),
    }
}

#[test]
fn a_name_stays_a_name() {
    let config = r#"{"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
        "intermediate_size": 128, "vocab_size": 256}"#;
    for stack in [Stack::Transformers, Stack::Trl, Stack::Unsloth] {
        let name = "m'\"\nimport os; os.abort()  # \\";
        let model = ModelChoice::Custom(CustomModel::read(name, config).expect("it is a config").into());
        let text = script(&Scenario { model, stack, ..Scenario::default() }).expect("it can be written");
        assert!(!text.lines().any(|line| line.starts_with("import os; ")), "{text}");
        assert!(text.lines().take(3).all(|line| line.starts_with("# ")), "{text}");
        assert!(text.contains(r#"MODEL = "m'\"\nimport os; os.abort()  # \\""#), "{text}");
    }
}

/// So does its preparation for quantisation-aware training, and what is written is read back.
#[test]
fn layers_are_prepared_for_quantisation() {
    let base = "v=1&m=Qwen/Qwen2.5-7B&method=full&p=bf16&gpu=h200-sxm";
    for scheme in Qat::ALL.iter().filter(|scheme| **scheme != Qat::Off) {
        for layers in ["all", "body"] {
            let link = format!("{base}&qat={}&qatg=64&qatl={layers}", scheme.slug());
            let mut scenario = share::decode(&link).scenarios.remove(0);
            if !scheme.has_groups() {
                scenario.qat.group = QatTraining::OFF.group;
            }
            let text = script(&scenario).unwrap_or_else(|issue| panic!("{link}: {issue}"));
            let lines =
                ["from torchao.quantization.qat import QATConfig\n", "step=\"prepare\"", "torchao==0.18.*"];
            assert!(lines.iter().all(|line| text.contains(line)), "{text}");
            let understood = import::read(&text, &Scenario::default()).expect("it is read");
            // torchao's own configuration of this scheme has no group of one's own, and axolotl's has the words for it
            assert_eq!(understood.scenario.qat, scenario.qat, "{text}");
        }
    }
    assert!(!script(&share::decode(base).scenarios[0]).expect("it is written").contains("torchao"));
}

/// torchao's conversion comes behind the adapters and before the optimizer, with the filter that is asked for.
#[test]
fn layers_are_converted_to_8_bits() {
    let written = |link: &str| {
        let scenario = &share::decode(link).scenarios[0];
        script(scenario).unwrap_or_else(|issue| panic!("{link}: {issue}"))
    };
    let base = "v=1&m=Qwen/Qwen2.5-7B&method=lora&gpu=h100-sxm-80gb";
    let inner = written(&format!("{base}&f8=tensorwise&f8p=on"));
    assert!(inner.contains("from accelerate.utils.ao import convert_model_to_fp8_ao\n"), "{inner}");
    assert!(
        inner.contains(
            "float8 = replace(float8, pad_inner_dim=True)\nconvert_model_to_fp8_ao(model, config=float8)\n"
        ),
        "{inner}"
    );
    let large = written(&format!("{base}&f8=rowwise&f8l=large"));
    let filter = "module_filter_fn=_auto_filter_for_recipe(\"rowwise\", [\"lm_head\"])";
    assert!(large.contains(filter) && large.contains("torchao==0.18.*"), "{large}");
    let body = written(&format!("{base}&f8=tensorwise&f8l=body"));
    assert!(body.contains("module_filter_fn=lambda module, name: \"lm_head\" not in name"), "{body}");
    assert!(!written(base).contains("float8"), "it is asked for");
    // what is saved at the end has no storage
    let wrapped = "v=1&m=Qwen/Qwen2.5-7B&method=full&gpu=h100-sxm-80gb&f8=tensorwise&f8g=on";
    assert_eq!(
        script(&share::decode(wrapped).scenarios[0]).expect_err("it could not save").field,
        Field::Float8Gather
    );
}

/// Layers are compiled once adapters and checkpoints are in place, before the optimizer sees the parameters.
#[test]
fn layers_are_compiled_one_by_one() {
    let written = |compile: &str| {
        let link =
            format!("v=1&m=meta-llama/Llama-3.1-8B&method=full&p=bf16&compile={compile}&gpu=h100-sxm-80gb");
        script(&share::decode(&link).scenarios[0]).expect("it is written")
    };
    let (layers, off) = (written("layers"), written("off"));
    let line = "for layer in model.model.layers:\n    layer.compile()\n";
    assert!(layers.contains(&format!("model.train()\n{line}")), "{layers}");
    assert_eq!(layers.replace(line, "").replace("&compile=layers", ""), off);
    let unlinked: String =
        layers.lines().filter(|own| !own.starts_with('#')).map(|own| format!("{own}\n")).collect();
    let understood = import::read(&unlinked, &Scenario::default()).expect("it is read");
    assert_eq!(understood.scenario.compile, Compile::Layers);
    let whole = written("model&gc=off");
    assert!(whole.contains("model.train()\nmodel.compile()\n"), "{whole}");
    let unlinked: String =
        whole.lines().filter(|own| !own.starts_with('#')).map(|own| format!("{own}\n")).collect();
    let understood = import::read(&unlinked, &Scenario::default()).expect("it is read");
    assert_eq!(understood.scenario.compile, Compile::Model);
}

/// Beside AWQ's weights peft's preparation does not turn checkpointing on: the file does.
#[test]
fn a_checkpoint_of_awqs_is_asked_for() {
    let scenario = &share::decode("v=1&m=Qwen/Qwen2.5-7B&method=qlora&q=awq-4&gs=32&gc=on").scenarios[0];
    let text = script(scenario).expect("it is written");
    for line in [
        "MODEL = \"Qwen/Qwen2.5-7B\"  # name a checkpoint of AWQ's of this model\n",
        "AwqConfig(bits=4, group_size=32, backend=\"auto_trainable\")",
        "model.gradient_checkpointing_enable(",
        "use_gradient_checkpointing=False",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
    let read = import::read(&text, &Scenario::default()).expect("it is read").scenario;
    assert_eq!((read.quantization, read.checkpointing), (scenario.quantization, scenario.checkpointing));
}

/// Weights of GPTQ's are loaded, not made: the file says what to name, and of how many weights a scale is.
#[test]
fn a_checkpoint_of_gptqs_is_asked_for() {
    let scenario = &share::decode("v=1&m=Qwen/Qwen2.5-7B&method=qlora&q=gptq-4&gs=64&gc=on").scenarios[0];
    let text = script(scenario).expect("it is written");
    assert!(
        text.contains("MODEL = \"Qwen/Qwen2.5-7B\"  # name a checkpoint of GPTQ's of this model\n"),
        "{text}"
    );
    assert!(
        text.contains("group_size=64") && text.contains("model.gradient_checkpointing_enable("),
        "{text}"
    );
    let read = import::read(&text, &Scenario::default()).expect("it is read").scenario;
    let of = |scenario: &Scenario| (scenario.quantization.format, scenario.quantization.group);
    assert_eq!(of(&read), of(scenario));
}

/// Of families without it loading stops where SDPA is asked for, and of those without a class in transformers where nobody trusts their own
/// code.
#[test]
fn a_file_loads_the_family_that_it_is_of() {
    let eager = linked("m=openai/gpt-oss-20b&method=lora&p=bf16&gpu=h100-sxm-80gb");
    let text = script(&eager).expect("a file");
    assert!(text.contains("attn_implementation=\"eager\"") && !text.contains("trust_remote_code"), "{text}");
    let read = import::read(&text, &Scenario { model: eager.model.clone(), ..Scenario::default() });
    assert_eq!(read.expect("a script").scenario.attention, eager.attention);
    let remote =
        script(&linked("m=internlm/internlm2-7b&method=lora&p=bf16&gpu=h100-sxm-80gb")).expect("a file");
    assert!(
        remote.contains("attn_implementation=\"sdpa\"") && remote.contains("trust_remote_code=True"),
        "{remote}"
    );
}

/// What others have of the card, what shall stay free, how large the data set is and what an hour costs are no affair of a file.
#[test]
fn what_is_no_affair_of_a_file_does_not_stop_it() {
    for said in ["used=500", "margin=1024", "ctx=600", "data=1000000", "ep=3", "price=250"] {
        let plain = script(&linked("gpu=rtx-4090")).expect("a file");
        let text = script(&linked(&format!("gpu=rtx-4090&{said}")))
            .unwrap_or_else(|issue| panic!("{said}: {issue}"));
        let code = |text: &str| text.split_once("\nimport ").map(|(_, code)| code.to_owned());
        assert_eq!(code(&text), code(&plain), "{said}");
    }
}
