//! Settings of no project that is known, in the words that most projects use: `batch_size`, `--seq-length 2048`, a call of somebody's own
//! `TrainingConfig`. What they leave out stays as it was, as nobody knows whose defaults would hold.

use super::hugging_face::{IDLE, REFUSED};
use super::names;
use super::reader::{Reader, Said, among};
use super::syntax::setting::Setting;
use super::trainer;
use crate::scenario::{Method, Precision};

/// A key and what it is called elsewhere; its value is read as it stands.
const NUMBERS: [(&str, &[&str]); 6] = [
    (
        "batch-size",
        &[
            "per_device_train_batch_size",
            "per_device_batch_size",
            "train_micro_batch_size_per_gpu",
            "micro_batch_size",
            "train_batch_size",
            "batch_size",
            "micro_batch",
        ],
    ),
    (
        "gradient-accumulation",
        &[
            "gradient_accumulation_steps",
            "gradient_accumulation",
            "accumulation_steps",
            "grad_accum_steps",
            "grad_accum",
        ],
    ),
    (
        "seq-length",
        &[
            "max_seq_length",
            "max_seq_len",
            "max_length",
            "seq_length",
            "seq_len",
            "sequence_length",
            "sequence_len",
            "context_length",
            "block_size",
            "cutoff_len",
        ],
    ),
    ("lora-rank", &["lora_r", "lora_rank", "lora.r", "lora.rank"]),
    ("gpus", &["num_gpus", "n_gpus", "gpus", "num_processes", "nproc_per_node", "world_size"]),
    ("new-tokens", &["max_new_tokens", "new_tokens"]),
];

const MODEL: &[&str] = &[
    "model_name_or_path",
    "pretrained_model_name_or_path",
    "model_name",
    "model_id",
    "base_model",
    "hf_model",
    "model",
];
const OPTIMIZER: &[&str] = &["optimizer", "optim", "optimizer_type"];
const CHECKPOINTING: &[&str] =
    &["gradient_checkpointing", "activation_checkpointing", "use_gradient_checkpointing"];
const TARGETS: &[&str] = &["lora_target_modules", "target_modules", "lora.target_modules"];
const FLASH: &[&str] = &["use_flash_attention_2", "use_flash_attention", "flash_attention", "use_flash_attn"];
const KERNEL: &[&str] = &["attn_implementation", "attention_implementation"];
const PRECISION: &[&str] = &["precision", "mixed_precision", "dtype", "torch_dtype"];
const METHOD: &[&str] = &["method", "use_qlora", "qlora", "load_in_4bit", "use_lora", "lora", "use_peft"];
const MODE: &[&str] = &["mode"];
const ANSWERS: &[&str] = &["num_generations", "max_completion_length"];
const CARD: &[&str] = &["gpu_memory_gb", "gpu_memory"];

/// How many of the settings are such words.
pub(super) fn words(settings: &[Setting]) -> usize {
    let lists = [
        MODEL,
        OPTIMIZER,
        CHECKPOINTING,
        TARGETS,
        FLASH,
        KERNEL,
        PRECISION,
        METHOD,
        MODE,
        ANSWERS,
        CARD,
        &["bf16", "fp16"],
    ];
    let is_usual = |name: &str| {
        NUMBERS.iter().any(|(_, names)| names.contains(&name))
            || lists.iter().any(|names| names.contains(&name))
    };
    settings.iter().filter(|setting| is_usual(&setting.name)).count()
}

pub(super) fn read(reader: &mut Reader) {
    if let Some(said) = reader.take(MODEL) {
        reader.model(&said);
    }
    match reader.take(MODE) {
        Some(said) if said.text().starts_with("inference") => reader.set("task", "generate", &said.said),
        Some(said) if said.text().starts_with("train") => reader.idle.push(said.said),
        Some(said) => reader.leave(&said.said, "of modes training and inference are known"),
        None => {}
    }
    method(reader);
    for (key, names) in NUMBERS {
        if let Some(said) = reader.take(names) {
            reader.set(key, &said.text(), &said.said);
        }
    }
    if let Some(said) = reader.take(TARGETS) {
        reader.targets(&said);
    }
    precision(reader);
    if let Some(said) = reader.take(OPTIMIZER) {
        let name = said.text().to_ascii_lowercase();
        let slug = names::optimizer(&name).map_or(name.as_str(), |optimizer| optimizer.slug());
        reader.set("optimizer", slug, &said.said);
    }
    reader.switches("gradient-checkpointing", CHECKPOINTING);
    if let Some(said) = reader.take(KERNEL) {
        trainer::attention(reader, &said);
    }
    match reader.switch(FLASH) {
        Some((true, said)) => reader.set("attention", "flash-attention-2", &said),
        Some((false, said)) => reader.idle.push(said),
        None => {}
    }
    if let Some(said) = reader.take(&["max_grad_norm"]) {
        trainer::clips(reader, &said);
    }
    if let Some(said) = reader.take(CARD) {
        let amount = said.text();
        let amount = amount.trim_end_matches(|c: char| c.is_ascii_alphabetic() || c == ' ');
        // a card that is sold with so many GB has as many GiB
        reader.set("gpu", &format!("{amount}GiB"), &said.said);
    }
    let answers: Vec<Said> = ANSWERS.iter().filter_map(|name| reader.take(&[name])).collect();
    for said in answers {
        reader.leave(
            &said.said,
            "settings of reinforcement learning are read of trl's GRPOConfig and RLOOConfig",
        );
    }
    for (names, why) in REFUSED {
        reader.refuse(names, why);
    }
    let idle = ["epochs", "num_epochs", "lr", "steps", "device", "verbose"];
    reader.pass(|name| among(IDLE, name) || among(&idle, name));
}

/// Which weights are trained, by switches of many names.
fn method(reader: &mut Reader) {
    if let Some(said) = reader.take(&["method"]) {
        reader.set("method", &said.text().to_ascii_lowercase(), &said.said);
    }
    let four_bits = reader.switch(&["use_qlora", "qlora", "load_in_4bit"]);
    let adapters = reader.switch(&["use_lora", "lora", "use_peft"]);
    match (four_bits, adapters) {
        (Some((true, said)), _) => reader.set("method", Method::Qlora.slug(), &said),
        (_, Some((true, said))) => reader.set("method", Method::Lora.slug(), &said),
        (_, Some((false, said))) => reader.set("method", Method::Full.slug(), &said),
        (Some((false, said)), None) => reader.idle.push(said),
        (None, None) => {}
    }
}

/// What is computed in: switches, or a word, which means the weights where it is no switch of mixed precision.
fn precision(reader: &mut Reader) {
    let now = reader.scenario.precision;
    let mixed = |is_bfloat16: bool| match is_bfloat16 {
        true if now == Precision::AmpBf16Weights => Precision::AmpBf16Weights.slug(),
        true => Precision::AmpBf16.slug(),
        false => Precision::AmpFp16.slug(),
    };
    for name in ["fp16", "bf16"] {
        match reader.switch(&[name]) {
            Some((true, said)) => reader.set("precision", mixed(name == "bf16"), &said),
            Some((false, said)) => reader.idle.push(said),
            None => {}
        }
    }
    let Some(said) = reader.take(PRECISION) else { return };
    let is_mixed = said.said.contains("mixed");
    let word = said.text().to_ascii_lowercase();
    let slug = match word.trim_start_matches("torch.") {
        "true" | "mixed" | "amp" => mixed(now.is_bfloat16()),
        "bf16" | "bfloat16" if is_mixed => mixed(true),
        "fp16" | "float16" if is_mixed => mixed(false),
        "bf16" | "bfloat16" => Precision::Bf16.slug(),
        "fp16" | "float16" | "half" => Precision::Fp16.slug(),
        "fp32" | "float32" | "float" | "no" | "false" => Precision::Fp32.slug(),
        _ => &word,
    };
    reader.set("precision", slug, &said.said);
}

#[cfg(test)]
mod tests {
    use super::super::{Format, Understood, read as import};
    use crate::scenario::{Checkpointing, Method, Optimizer, Scenario, Task};
    use crate::units::Bytes;

    #[track_caller]
    fn read(text: &str) -> Understood {
        let understood = import(text, &Scenario::default()).unwrap_or_else(|why| panic!("{text}: {why}"));
        assert!(understood.assumed.is_empty(), "{:?}", understood.assumed);
        understood
    }

    /// The inputs of the guides, as they print them.
    #[test]
    fn what_guides_print_is_read() {
        let flags = read("--batch_size 20\n--gradient_accumulation_steps 1\n--bf16 true\n--fp16 false");
        assert_eq!((flags.format, flags.scenario.batch), (Format::Usual, 20));
        let yaml =
            read("batch_size: 2  # Was 4\ngradient_accumulation_steps: 16\nmax_seq_length: 512\nbf16: true");
        assert_eq!((yaml.scenario.batch, yaml.scenario.accumulation, yaml.scenario.sequence), (2, 16, 512));
        let call = read(
            "config = TrainingConfig(per_device_train_batch_size=1, use_lora=True, lora_r=8, num_generations=4)",
        );
        assert_eq!((call.scenario.method, call.scenario.lora.rank), (Method::Lora, 8));
        assert_eq!(call.left.len(), 1, "{:?}", call.left);
        let command = read(
            "python gpu_memory_calculator.py --model microsoft/phi-2 --mode training --precision bf16 --optimizer adamw --batch-size 4 \
             --gradient-checkpointing",
        );
        assert_eq!(command.scenario.model_name(), "microsoft/phi-2");
        assert_eq!(command.scenario.optimizer, Optimizer::AdamW);
        assert_eq!(command.scenario.checkpointing, Checkpointing::NonReentrant);
        let inference = read("python gpu_memory_calculator.py --model microsoft/phi-2 --mode inference");
        assert_eq!(inference.scenario.task, Task::Generate);
        let cluster = read(
            "python memory_calculator.py --model_size_gb 14 --gpu_memory_gb 80 --num_gpus 4 --optimizer adamw",
        );
        assert_eq!((cluster.scenario.cluster.gpus, cluster.left.len()), (4, 1));
        assert_eq!(cluster.scenario.gpu().map(|gpu| gpu.memory), Ok(Bytes::gib(80.)));
    }

    #[test]
    fn transformers_arguments_alone_are_transformers() {
        let text = "--per_device_train_batch_size 4 --bf16 --model_name_or_path Qwen/Qwen2.5-7B";
        let understood = import(text, &Scenario::default()).expect("arguments");
        assert_eq!((understood.format, understood.scenario.batch), (Format::Trl, 4));
    }

    #[test]
    fn what_says_nothing_of_memory_is_not_read() {
        for text in ["learning_rate = 1", "--verbose", "print(batch_size=3)", "python train.py --lr 1e-4"] {
            assert!(import(text, &Scenario::default()).is_err(), "{text}");
        }
    }
}
