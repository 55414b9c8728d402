//! Settings in usual words.

use super::super::{Format, Understood, read as import};
use crate::estimate::estimate;
use crate::scenario::{
    CacheKind, Checkpointing, Mask, Method, ModelChoice, Optimizer, Precision, Scenario, Task, WeightFormat,
};
use crate::units::Bytes;

#[track_caller]
fn read(text: &str) -> Understood {
    let understood = import(text, &Scenario::default()).unwrap_or_else(|why| panic!("{text}: {why}"));
    // what calculators count where nothing is said
    let counted = ["method", "gradient-checkpointing", "precision"];
    assert!(understood.assumed.iter().all(|one| counted.contains(&one.key)), "{:?}", understood.assumed);
    understood
}

/// The inputs of the guides, as they print them.
#[test]
fn what_guides_print_is_read() {
    let flags = read("--batch_size 20\n--gradient_accumulation_steps 1\n--bf16 true\n--fp16 false");
    assert_eq!((flags.format, flags.scenario.batch), (Format::Usual, 20));
    assert_eq!((flags.idle.len(), flags.left.len()), (1, 0), "{:?}", flags.left);
    let yaml =
        read("batch_size: 2  # Was 4\ngradient_accumulation_steps: 16\nmax_seq_length: 512\nbf16: true");
    assert_eq!((yaml.scenario.batch, yaml.scenario.accumulation, yaml.scenario.sequence), (2, 16, 512));
    let call = read(
        "config = TrainingConfig(per_device_train_batch_size=1, use_lora=True, lora_r=8, num_generations=4)",
    );
    assert_eq!((call.scenario.method, call.scenario.lora.rank), (Method::Lora, 8));
    assert_eq!((call.scenario.task, call.left.len()), (Task::Grpo, 0), "{:?}", call.left);
    let answers = read(
        "config = GSPOConfig(per_device_train_batch_size=1, num_generations=4, max_completion_length=256, use_lora=True)",
    );
    assert_eq!(answers.scenario.sequence, answers.scenario.answers.prompt + 256);
    assert_eq!((answers.scenario.task, answers.idle.len()), (Task::Grpo, 1));
    let command = read(
        "python gpu_memory_calculator.py --model microsoft/phi-2 --mode training --precision bf16 --optimizer adamw --batch-size 4 \
         --gradient-checkpointing",
    );
    assert_eq!(command.scenario.model_name(), "microsoft/phi-2");
    assert_eq!(command.scenario.optimizer, Optimizer::AdamW);
    assert_eq!(command.scenario.checkpointing, Checkpointing::NonReentrant);
    assert_eq!(command.scenario.method, Method::Full);
    let inference = read("python gpu_memory_calculator.py --model microsoft/phi-2 --mode inference");
    assert_eq!(inference.scenario.task, Task::Generate);
    let uncached = read(
        "python gpu_memory_calculator.py --model microsoft/phi-2 --mode inference --precision bf16 --no-kv-cache",
    );
    assert_eq!((uncached.scenario.generation.cache, uncached.left.len()), (CacheKind::Off, 0));
    let cluster = read(
        "python memory_calculator.py --model_size_gb 14 --gpu_memory_gb 80 --num_gpus 4 --optimizer adamw",
    );
    assert_eq!((cluster.scenario.cluster.gpus, cluster.left.len()), (4, 0), "{:?}", cluster.left);
    assert_eq!(cluster.scenario.model, ModelChoice::Size(7.0));
    assert_eq!((cluster.scenario.method, cluster.scenario.checkpointing), (Method::Full, Checkpointing::Off));
    let unknown = import("--model_size_gb 1e9 --batch_size 1", &Scenario::default()).expect("a batch");
    let [left] = unknown.left.as_slice() else { panic!("{:?}", unknown.left) };
    assert!(left.why.contains("500000000 billion parameters"), "{left:?}");
    assert_eq!((left.is_misread, left.key, unknown.assumed[0].key), (true, Some("model"), "model"));
    assert_eq!(cluster.scenario.gpu().map(|gpu| gpu.memory), Ok(Bytes::gib(80.)));
}

/// What axolotl alone can have falls where another project's text is read over its scenario.
#[test]
fn what_one_project_alone_has_falls_with_it() {
    let axolotl = "base_model: NousResearch/Llama-3.2-1B\nadapter: lora\nlora_dropout: 0\nlora_target_linear: true\nlora_mlp_kernel: true\nlora_qkv_kernel: true\nlora_o_kernel: true\nsample_packing: true\nbf16: true\n";
    let before = import(axolotl, &Scenario::default()).expect("a file of axolotl's").scenario;
    assert!(before.lora.fused && before.mask == Mask::PaddingFree, "{before:?}");
    for text in [
        "python gpu_memory_calculator.py --model microsoft/phi-2 --mode training --batch-size 4",
        "model_embd = 384\nmodel_layer = 6\nmodel_head = 6\n",
    ] {
        let scenario = import(text, &before).expect(text).scenario;
        assert!(!scenario.lora.fused && scenario.mask == Mask::None, "{text}: {scenario:?}");
    }
}

#[test]
fn what_is_of_a_project_stays_its_own() {
    for (text, format, batch) in [
        ("--per_device_train_batch_size 4 --bf16 --model_name_or_path Qwen/Qwen2.5-7B", Format::Trl, 4),
        ("python train.py --gradient_accumulation_steps 4 --fsdp full_shard", Format::Trl, 8),
        ("num_train_epochs: 3\ngradient_accumulation_steps: 4", Format::Trl, 8),
        ("python -m axolotl.cli.train config.yml", Format::Accelerate, 1),
        ("gpu=\"rtx-3090\"\nmethod=\"full\"\nbatch-size=3", Format::Headroom, 3),
        ("model_name: Qwen/Qwen2.5-7B\nbatch_size: 4\noutput_dir: out", Format::Usual, 4),
        ("micro_batch_size: 4\ntrain_batch_size: 256", Format::Usual, 4),
    ] {
        let understood = import(text, &Scenario::default()).unwrap_or_else(|why| panic!("{text}: {why}"));
        assert_eq!((understood.format, understood.scenario.batch), (format, batch), "{text}");
    }
}

#[test]
fn autocast_and_weights_are_two_questions() {
    for (text, precision) in [
        ("bf16: true\ntorch_dtype: bfloat16", Precision::AmpBf16Weights),
        ("bf16: true\ndtype: float32", Precision::AmpBf16),
        ("dtype: bfloat16", Precision::Bf16),
        ("mixed_precision: fp16\nbatch_size: 1", Precision::AmpFp16),
        ("mixed_precision: no\nbatch_size: 1", Precision::Fp32),
    ] {
        assert_eq!(read(text).scenario.precision, precision, "{text}");
    }
    let both = read("use_lora: true\nload_in_4bit: true\nbatch_size: 1");
    assert_eq!((both.scenario.method, both.idle.len()), (Method::Qlora, 1));
    let memory = import("gpu_memory: 24576MiB\nbatch_size: 1", &Scenario::default()).expect("an amount");
    assert_eq!(memory.scenario.gpu().map(|gpu| gpu.memory), Ok(Bytes::gib(24.)));
    let none = import("gpu_memory: \"\"\nbatch_size: 1", &Scenario::default()).expect("a batch");
    assert_eq!((none.scenario.gpu, none.left.len()), (Scenario::default().gpu, 1));
}

#[test]
fn what_says_nothing_of_memory_is_not_read() {
    for text in [
        "learning_rate = 1",
        "--verbose",
        "print(batch_size=3)",
        "python train.py --lr 1e-4",
        "mode: development",
        "method: get",
        "LLM(model=\"Qwen/Qwen3-8B\", dtype=\"bfloat16\")",
    ] {
        assert!(import(text, &Scenario::default()).is_err(), "{text}");
    }
}

/// Inference and answers that are learnt from bring what their tasks have by default, and each has an answer.
#[test]
fn tasks_of_guides_bring_their_defaults() {
    const INFERENCE: &str = "python gpu_memory_calculator.py --model microsoft/phi-2 --mode inference --batch-size 1 --seq-length 2048";
    let generates = |more: &str| {
        let understood = read(&format!("{INFERENCE} {more}"));
        assert_eq!((understood.scenario.task, understood.left.len()), (Task::Generate, 0), "{more}");
        let answer = estimate(&understood.scenario);
        assert!(answer.memory.is_some(), "{more}: {:?}", answer.issues);
        let Scenario { method, precision, quantization, .. } = understood.scenario;
        (method, precision, quantization.format)
    };
    let usual = Scenario::default().quantization.format;
    for (more, wanted) in [
        ("--precision bf16 --no-kv-cache", (Method::Full, Precision::Bf16, usual)),
        ("--precision bf16", (Method::Full, Precision::Bf16, usual)),
        ("--precision fp16", (Method::Full, Precision::Fp16, usual)),
        ("--precision fp32", (Method::Full, Precision::Fp32, usual)),
        ("", (Method::Full, Precision::Bf16, usual)),
        ("--precision int8", (Method::Qlora, Precision::Bf16, WeightFormat::Int8)),
        ("--precision int4 --no-kv-cache", (Method::Qlora, Precision::Bf16, WeightFormat::Nf4)),
    ] {
        assert_eq!(generates(more), wanted, "{more}");
    }
    let trained = read(&INFERENCE.replace("inference", "training --precision int8"));
    let Scenario { method, quantization, .. } = &trained.scenario;
    assert_eq!((*method, quantization.format), (Method::Qlora, WeightFormat::Int8));
    assert!(estimate(&trained.scenario).memory.is_some() && trained.left.is_empty(), "{:?}", trained.left);

    let mut base = Scenario::default();
    base.change(|base| base.model = ModelChoice::Catalogue("meta-llama/Llama-2-7b-hf".into()));
    base.change(|base| base.gpu = crate::scenario::GpuChoice::Catalogue("a100-sxm-80gb".into()));
    let asked = {
        let mut asked = base.clone();
        asked.change(|asked| asked.method = Method::Lora);
        asked.change(|asked| asked.task = Task::Grpo);
        asked
    };
    for (text, batches) in [
        (
            "config = TrainingConfig(per_device_train_batch_size=1, gradient_accumulation_steps=4, num_generations=4, \
             max_completion_length=256, use_lora=True, lora_r=16, gradient_checkpointing=True, bf16=True)",
            4,
        ),
        (
            "config = GSPOConfig(per_device_train_batch_size=1, num_generations=4, max_completion_length=256, use_lora=True, \
             gradient_checkpointing=True)",
            1,
        ),
        (
            "config = TrainingConfig(use_lora=True, gradient_checkpointing=True, bf16=True, per_device_train_batch_size=1, \
             max_completion_length=256)",
            1,
        ),
    ] {
        let understood = import(text, &base).expect(text);
        let sequence = asked.answers.prompt + 256;
        let wanted = Scenario { batch: 1, accumulation: batches, sequence, ..asked.clone() };
        assert_eq!(understood.scenario, wanted, "{text}");
        assert_eq!(
            (understood.left.as_slice(), understood.kept().len()),
            (&[][..], 2),
            "{:?}",
            understood.kept()
        );
        let answer = estimate(&understood.scenario);
        assert!(answer.memory.is_some(), "{text}: {:?}", answer.issues);
    }
}

/// Blocks of the guides of one argument, and of what people write beside.
#[test]
fn a_single_word_of_a_known_class_is_read() {
    let read = |text: &str| import(text, &Scenario::default()).expect(text).scenario;
    let off = Scenario { checkpointing: crate::scenario::Checkpointing::Off, ..Scenario::default() };
    let text = "config = TrainingConfig(\n    gradient_checkpointing=True,\n)";
    assert_ne!(import(text, &off).expect(text).scenario.checkpointing, off.checkpointing);
    let four = read(
        "from x import AgentConfig\nconfig = AgentConfig(use_8bit=True)\nconfig = AgentConfig(use_4bit=True)",
    );
    assert_eq!((four.method, four.quantization.format), (Method::Qlora, WeightFormat::Nf4));
    let eight = read("config = AgentConfig(use_8bit=True)");
    assert_eq!((eight.method, eight.quantization.format), (Method::Qlora, WeightFormat::Int8));
    let dropout = read("TrainingConfig(use_lora=True, lora_dropout=0.05)");
    assert_ne!(dropout.lora.dropout, Scenario::default().lora.dropout);
    assert!(import("Settings(bf16=True)", &Scenario::default()).is_err());
}
