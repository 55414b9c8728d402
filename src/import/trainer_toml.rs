//! A GPT-2-like trainer whose memory guide reads its TOML files: `model_embd`, `model_layer` and their like; the flags of its estimator and
//! the call of it.

use super::reader::{Reader, among};
use super::trainer;
use crate::model::dimensions::{Decoder, Dimensions};
use crate::scenario::{CustomModel, ModelChoice};

const IDLE: &[&str] = &[
    "corpus_path",
    "sources",
    "model_name",
    "model_path",
    "model_seed",
    "epochs",
    "learning_rate",
    "resume",
    "device",
    "max_length",
    "temperature",
    "beam_size",
    "max_context_length",
    "weight_decay",
    "log_interval",
    "seed",
    "tokenizer*",
];

/// What stands where nothing is said: heads, positions, tokens of a sequence, and whose word that is.
struct Defaults {
    heads: u64,
    positions: u64,
    tokens: &'static str,
    why: &'static str,
}

/// Those of the trainer's files.
const OF_FILES: Defaults =
    Defaults { heads: 12, positions: 1024, tokens: "1024", why: "the trainer's default" };

/// Those of its estimator. The guide prints for `--model-embd 768 --model-layer 12 --batch-size 8` "6 heads", "seq_len=512" and 123.94M
/// parameters, which are those of 512 positions; for 1,024 wide "16 heads", as 6 do not divide that.
fn of_estimator(hidden: u64) -> Defaults {
    let heads = if hidden.is_multiple_of(6) { 6 } else { 16 };
    Defaults { heads, positions: 512, tokens: "512", why: "as the estimator's guide prints it" }
}

/// gpt2's vocabulary, which the guide's parameter counts contain: 30.12M for 6 layers of 384.
const VOCABULARY: u64 = 50_257;

pub(super) fn read(reader: &mut Reader, is_estimator: bool) {
    let mut said = Vec::new();
    let mut number = |reader: &mut Reader, name: &str, default: u64| match reader.take(&[name]) {
        Some(setting) => {
            said.push(setting.said.clone());
            let value = setting.number().filter(|value| (1.0..=1e9).contains(value) && value.fract() == 0.0);
            if value.is_none() {
                reader.keep("model", &setting.said, "this is no size of a model");
            }
            value.map_or(default, |value| value as u64)
        }
        None => default,
    };
    let hidden = number(reader, "model_embd", 768);
    let defaults = if is_estimator { of_estimator(hidden) } else { OF_FILES };
    let dimensions = Dimensions {
        decoder: Decoder::Gpt2,
        hidden,
        layers: number(reader, "model_layer", 12),
        heads: number(reader, "model_head", defaults.heads),
        kv_heads: 0,
        intermediate: 0,
        vocab: number(reader, "vocab_size", VOCABULARY),
        positions: number(reader, "model_positions", defaults.positions),
        tied: true,
    };
    let dimensions = Dimensions {
        kv_heads: dimensions.heads,
        intermediate: dimensions.hidden.saturating_mul(4),
        ..dimensions
    };
    let all = said.join(", ");
    match CustomModel::read("GPT-2-like", &dimensions.config()) {
        Ok(model) => {
            reader.scenario.model = ModelChoice::Custom(model.into());
            let written = crate::scenario::keys::Key::find("model")
                .map(|key| key.write(&reader.scenario))
                .unwrap_or_default();
            reader.set("model", &written, if all.is_empty() { "the trainer's default model" } else { &all });
        }
        Err(issue) => reader.keep("model", &all, &issue.message),
    }
    reader.or_assume("batch-size", &["batch_size"], "12", "the trainer's default");
    reader.or_assume("seq-length", &["seq_len"], defaults.tokens, defaults.why);
    trainer::usual_loop(reader);
    reader.quietly("mask", "none");
    reader.assume("method", "full", "the trainer trains all weights");
    reader.assume("stack", "transformers", "a GPT-2 as transformers has it");
    precision(reader);
    for name in ["include_activations", "include_optimizer"] {
        match reader.switch(&[name]) {
            Some((true, said)) => reader.idle.push(said),
            Some((false, said)) => reader.leave(&said, "a training step has both, and each is shown apart"),
            None => {}
        }
    }
    reader.assume("optimizer", "adamw", "the trainer's AdamW");
    reader.assume("gradient-checkpointing", "off", "the trainer has none");
    if let Some(said) = reader.take(&["model_dropout"]) {
        reader.set("dropout", &said.text(), &said.said);
    }
    match reader.take(&["model_activation"]) {
        Some(said) if said.text() == "gelu" => reader.idle.push(said.said),
        Some(said) => reader.leave(&said.said, "GPT-2's activation is predicted, which is GELU"),
        None => {}
    }
    match reader.switch(&["use_compile"]) {
        Some((true, said)) => reader.leave(&said, "GPT-2's model that is compiled whole is not predicted"),
        Some((false, said)) => reader.idle.push(said),
        None => {}
    }
    reader.pass(|name| among(IDLE, name));
}

/// The switch, or the bytes of a number that the estimator is given: two stand for mixed precision there.
fn precision(reader: &mut Reader) {
    if let Some(said) = reader.take(&["dtype_bytes"]) {
        match said.number() {
            Some(2.0) => {
                reader.set("precision", "amp-fp16", &format!("{}, the trainer's mixed precision", said.said))
            }
            Some(4.0) => reader.set("precision", "fp32", &said.said),
            _ => {
                reader.keep("precision", &said.said, "the estimator knows 2 bytes (float16) and 4 (float32)")
            }
        }
    }
    match reader.switch(&["mixed_precision", "use_amp", "fp16"]) {
        Some((true, said)) => reader.set("precision", "amp-fp16", &said),
        Some((false, said)) => reader.set("precision", "fp32", &said),
        None => reader.assume("precision", "amp-fp16", "the trainer's mixed precision"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Format, Understood, read};
    use crate::scenario::{Precision, Scenario};

    fn understood(text: &str) -> Understood {
        read(text, &Scenario::default()).unwrap_or_else(|why| panic!("{text}: {why}"))
    }

    /// The line and the call as the guide prints them, with what it says that they come to.
    #[test]
    fn the_estimators_flags_and_its_call_are_read() {
        let model = |understood: &Understood| {
            let model = understood.scenario.architecture().expect("a model");
            (model.hidden, model.max_positions, model.parameters() / 10_000)
        };
        let flags = understood(
            "python estimate_memory.py --model-embd 768 --model-layer 12 --batch-size 8 --mixed-precision",
        );
        assert_eq!(flags.format, Format::TrainerToml);
        // its 123.94M are without biases
        assert_eq!(model(&flags), (768, Some(512), 12_404));
        assert_eq!((flags.scenario.batch, flags.scenario.sequence), (8, 512));
        let large = understood("python estimate_memory.py --model-embd 1024 --model-layer 24 --batch-size 4");
        assert!(large.left.is_empty(), "{:?}", large.left);
        let call = understood(
            "from src.utils import estimate_gpu_memory_requirements\nmemory_estimate = estimate_gpu_memory_requirements(\n    \
             model_positions=512,\n    model_embd=384,\n    model_layer=6,\n    model_head=6,\n    batch_size=24,\n    seq_len=512,\n    \
             dtype_bytes=2,  # 2 for float16, 4 for float32\n    include_activations=True,\n    include_optimizer=True\n)",
        );
        assert_eq!((call.format, &call.left[..]), (Format::TrainerToml, &[][..]));
        assert_eq!(model(&call), (384, Some(512), 3014));
        assert_eq!((call.scenario.batch, call.scenario.precision), (24, Precision::AmpFp16));
        // its README's file, whose settings may stand under headings
        let readme = "batch_size = 16\nseq_len = 512\nmodel_positions = 512\nmodel_embd = 384\nmodel_layer = 6\nmodel_head = 6\n\
                      model_activation = \"gelu\"\nmodel_dropout = 0.1\nuse_compile = false\nuse_amp = false\n";
        let plain = understood(readme);
        assert_eq!((plain.scenario.precision, plain.scenario.dropout), (Precision::Fp32, Some(1000)));
        assert!(plain.left.is_empty(), "{:?}", plain.left);
        let headed = readme.replace("model_positions", "[model]\nmodel_positions");
        assert_eq!(understood(&format!("[training]\n{headed}")).scenario, plain.scenario);
        // a file of the trainer's has its own defaults
        let file = understood("model_embd = 768\nmodel_layer = 12\n");
        assert_eq!((model(&file).1, file.scenario.sequence), (Some(1024), 1024));
    }
}
