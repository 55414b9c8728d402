//! Whatever is pasted, the answer is a model or a sentence, at once.
#![cfg(not(target_arch = "wasm32"))]

use std::sync::LazyLock;
use std::time::{Duration, Instant};

use headroom::model::read::{parse, parse_with_essence};
use proptest::prelude::*;
use serde_json::{Value, json};

/// Time for one text, in a build without optimisation on a busy machine.
const AT_ONCE: Duration = Duration::from_secs(1);

fn llama(changes: &[(&str, Value)]) -> String {
    let mut config = json!({
        "model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
        "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 128_256,
    });
    for (key, value) in changes {
        config[*key] = value.clone();
    }
    config.to_string()
}

#[track_caller]
fn refused(text: &str, message: &str) {
    let start = Instant::now();
    let issue = parse(text).expect_err("this is no model").to_string();
    assert!(issue.contains(message), "{message:?} is not in {issue:?}");
    assert!(!issue.contains('\n') && issue.chars().count() < 300, "{issue:?} is no sentence");
    assert!(start.elapsed() < AT_ONCE, "{:?}", start.elapsed());
}

#[track_caller]
fn counted(text: &str, parameters: u64) {
    assert_eq!(
        parse(text).map(|model| model.parameters()).map_err(|issue| issue.to_string()),
        Ok(parameters)
    );
}

const LLAMA: u64 = 8_030_261_248;

#[test]
fn what_is_no_config_is_refused() {
    for (text, message) in [
        ("", "empty"),
        (" \n\t", "empty"),
        ("\u{feff}", "empty"),
        ("<!DOCTYPE html><html>Access to model is gated</html>", "not JSON"),
        ("model_type: llama", "not JSON"),
        ("{'model_type': 'llama'}", "not JSON"),
        ("[]", "a list"),
        ("42", "42"),
        ("null", "null"),
        ("\"llama\"", "the text \"llama\""),
        ("{\"model_type\": \"llama\"", "ends early"),
        ("{\"model_type\": \"lla", "ends early"),
        ("{", "ends early"),
        ("{}", "without model_type is not known"),
        ("{\"model_type\": 7}", "model_type is 7 where a text belongs"),
        ("{\"model_type\": \"whisper\"}", "\"whisper\" is not known"),
        ("{\"model_type\": \"nothing\", \"hidden_size\": 8}", "it lacks num_hidden_layers"),
        ("\u{0}", "not JSON"),
    ] {
        refused(text, message);
    }
}

#[test]
fn wrong_values_are_named() {
    for (key, value, message) in [
        ("hidden_size", json!("4096"), "hidden_size is the text \"4096\" where a whole number"),
        ("hidden_size", json!(-1), "hidden_size is -1"),
        ("hidden_size", json!(0.5), "hidden_size is 0.5"),
        ("hidden_size", json!(0), "hidden_size is 0"),
        ("hidden_size", json!([4096]), "hidden_size is a list"),
        ("hidden_size", json!({"a": 1}), "hidden_size is an object"),
        ("hidden_size", json!(true), "hidden_size is true"),
        ("hidden_size", json!(null), "hidden_size is null"),
        ("hidden_size", json!(1e300), "hidden_size is 1e+300"),
        ("hidden_size", json!(u64::MAX), "hidden_size is 18446744073709551615"),
        ("vocab_size", json!(1u64 << 40), "vocab_size is 1099511627776"),
        ("num_hidden_layers", json!(1_000_000_000_000u64), "num_hidden_layers is 1000000000000"),
        ("num_hidden_layers", json!(1_000_000), "up to 4096 layers"),
        ("num_attention_heads", json!(0), "num_attention_heads is 0"),
        ("num_key_value_heads", json!(0), "num_key_value_heads is 0"),
        ("tie_word_embeddings", json!("yes"), "tie_word_embeddings is the text \"yes\" where true or false"),
        ("attention_bias", json!(2), "attention_bias is 2"),
        ("attention_dropout", json!("none"), "attention_dropout is the text"),
        ("hidden_act", json!(["silu"]), "hidden_act is a list"),
        ("layer_types", json!(["full_attention"]), "layer_types lists 1 layers and num_hidden_layers is 32"),
        ("layer_types", json!([1]), "layer_types is 1"),
        ("layer_types", json!(vec!["full_attention"; 100_000]), "layer_types lists 100000 things"),
        ("model_type", json!("x".repeat(100_000)), "not known"),
    ] {
        let text = llama(&[(key, value)]);
        if key == "model_type" {
            // A plain llama under a strange name is counted, with the name cut short.
            let notes = parse(&text).unwrap().notes;
            assert!(notes.iter().any(|note| note.contains(message) && note.len() < 300), "{notes:?}");
        } else {
            refused(&text, message);
        }
    }
}

#[test]
fn what_python_writes_is_read() {
    for text in [
        format!("\u{feff}{}", llama(&[])),
        llama(&[("rope_theta", json!("@"))]).replace("\"@\"", "Infinity"),
        llama(&[("time_step_limit", json!("@"))]).replace("\"@\"", "[0.0, -Infinity, NaN]"),
        llama(&[("note", json!("NaN \" Infinity \\"))]),
        llama(&[("hidden_size", json!(4096.0))]),
        llama(&[("tie_word_embeddings", json!(0))]),
        llama(&[("head_dim", json!(null)), ("num_key_value_heads", json!(8))]),
        llama(&[("quantization_config", json!({"bits": 4}))]),
        llama(&[("id2label", json!((0..1000).map(|n| n.to_string()).collect::<Vec<_>>()))]),
        // of a key that is there twice the last one holds, as in Python
        llama(&[]).replacen('{', "{\"hidden_size\": 1,", 1),
    ] {
        counted(&text, LLAMA);
    }
}

#[test]
fn depth_and_length_are_refused_at_once() {
    refused(&"[".repeat(1_000_000), "nested too deeply");
    refused(&"{\"a\":".repeat(100_000), "nested too deeply");
    let deep = format!("{}1{}", "[".repeat(100), "]".repeat(100));
    counted(&llama(&[("unread", serde_json::from_str(&deep).unwrap())]), LLAMA);
    refused(&format!("{{\"a\": \"{}\"}}", "x".repeat(50_000_000)), "50 MB");
    refused(&" ".repeat(50_000_000), "50 MB");
    refused(&format!("{{\"model_type\": {}", "9".repeat(1_000_000)), "not JSON");
}

/// A head of no elements would be a tensor of nothing, which kernels divide by.
#[test]
fn more_heads_than_elements_are_refused() {
    let message = "64 attention heads do not fit into a hidden size of 32";
    for (model_type, heads, hidden) in [
        ("llama", "num_attention_heads", "hidden_size"),
        ("mixtral", "num_attention_heads", "hidden_size"),
        ("gpt2", "n_head", "n_embd"),
        ("gpt_neo", "num_heads", "hidden_size"),
        ("gpt_neox", "num_attention_heads", "hidden_size"),
        ("bloom", "n_head", "hidden_size"),
        ("falcon", "num_attention_heads", "hidden_size"),
        ("mpt", "n_heads", "d_model"),
        ("opt", "num_attention_heads", "hidden_size"),
        ("bert", "num_attention_heads", "hidden_size"),
        ("modernbert", "num_attention_heads", "hidden_size"),
        ("bart", "encoder_attention_heads", "d_model"),
        ("dbrx", "n_heads", "d_model"),
        ("qwen", "num_attention_heads", "hidden_size"),
        ("chatglm", "num_attention_heads", "hidden_size"),
    ] {
        let mut config = json!({ "model_type": model_type, "num_hidden_layers": 2, "vocab_size": 256 });
        config["intermediate_size"] = json!(128);
        config["ffn_hidden_size"] = json!(128);
        config[hidden] = json!(32);
        config[heads] = json!(64);
        refused(&config.to_string(), message);
    }
    // where the size of a head is given, it need not be a share
    let own = [("hidden_size", json!(32)), ("num_attention_heads", json!(64)), ("head_dim", json!(16))];
    assert!(parse(&llama(&own)).is_ok());
}

#[test]
fn the_largest_dimensions_do_not_overflow() {
    let most = json!(1u64 << 30);
    let keys = [
        "hidden_size",
        "num_attention_heads",
        "num_key_value_heads",
        "head_dim",
        "intermediate_size",
        "vocab_size",
    ];
    let changes: Vec<_> = keys.iter().map(|key| (*key, most.clone())).collect();
    let model = parse(&llama(&changes)).unwrap();
    assert_eq!(model.parameters(), u64::MAX);
    assert_eq!(model.active_parameters(), u64::MAX);
}

/// Every config of the folder.
static CONFIGS: LazyLock<Vec<String>> = LazyLock::new(|| {
    let folder = format!("{}/data/models", env!("CARGO_MANIFEST_DIR"));
    let mut paths: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths.iter().map(|path| std::fs::read_to_string(path).unwrap()).collect()
});

fn absurd() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(json!(null)),
        any::<bool>().prop_map(|flag| json!(flag)),
        any::<i64>().prop_map(|n| json!(n)),
        (0u64..5).prop_map(|n| json!(n)),
        (0u32..63).prop_map(|bits| json!(1u64 << bits)),
        any::<f64>().prop_map(|n| json!(n)),
        Just(json!("auto")),
        ".{0,12}".prop_map(|text| json!(text)),
        Just(json!([])),
        Just(json!({})),
        proptest::collection::vec(0u64..200, 0..80).prop_map(|list| json!(list)),
        proptest::collection::vec(
            prop_oneof![Just("full_attention"), Just("linear_attention"), Just("x")],
            0..80
        )
        .prop_map(|list| json!(list)),
    ]
}

/// The n-th value of a tree that is no object, counted round.
fn replace(value: &mut Value, n: usize, new: &Value) {
    fn leaves<'v>(value: &'v mut Value, found: &mut Vec<&'v mut Value>) {
        if value.as_object().is_none_or(|object| object.is_empty()) {
            found.push(value);
        } else if let Value::Object(object) = value {
            object.values_mut().for_each(|value| leaves(value, found));
        }
    }
    let mut found = Vec::new();
    leaves(value, &mut found);
    let count = found.len().max(1);
    if let Some(leaf) = found.into_iter().nth(n % count) {
        *leaf = new.clone();
    }
}

/// Nothing panics or takes long, and what is understood is understood again from its essence.
fn survives(text: &str) {
    let start = Instant::now();
    if let Ok(parsed) = parse_with_essence(text) {
        let model = &parsed.architecture;
        assert!(model.active_parameters() <= model.parameters());
        assert!(model.text_parameters() <= model.parameters());
        let again = parse(&parsed.essence).expect("the essence of a model is a model");
        assert_eq!(again, parsed.architecture);
    }
    assert!(start.elapsed() < AT_ONCE, "{:?} for {text}", start.elapsed());
}

#[test]
fn every_config_is_its_essence() {
    CONFIGS.iter().for_each(|text| survives(text));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    #[test]
    fn changed_values(pick in any::<prop::sample::Index>(), changes in proptest::collection::vec((any::<usize>(), absurd()), 1..4)) {
        let text = pick.get(&CONFIGS).replace("Infinity", "1");
        let mut value: Value = serde_json::from_str(&text).unwrap();
        for (n, new) in &changes {
            replace(&mut value, *n, new);
        }
        survives(&value.to_string());
    }

    #[test]
    fn changed_texts(pick in any::<prop::sample::Index>(), cut in any::<prop::sample::Index>(), with in ".{0,6}") {
        let text = pick.get(&CONFIGS);
        let at = (0..=cut.index(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        survives(&text[..at]);
        survives(&format!("{}{with}{}", &text[..at], &text[at..]));
    }

    #[test]
    fn any_text(text in ".{0,200}") {
        survives(&text);
    }
}
