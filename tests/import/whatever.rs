//! What is no configuration, or not all of one.

use headroom::import::{self};
use headroom::scenario::Scenario;

use crate::{FILES, left, read};

#[test]
fn what_is_no_configuration_says_so() {
    for text in ["", "hello", "[1, 2]", "a: 1", "{", "print(1)", "<html></html>", "python", "x = 1"] {
        let error = import::read(text, &Scenario::default()).expect_err(text).to_string();
        assert!(error.len() > 10 && !error.ends_with('.'), "{text}: {error}");
    }
}

/// No setting is lost: each is applied, without effect, or left.
#[test]
fn nothing_is_lost() {
    let yaml = "base_model: gpt2\nmicro_batch_size: 0\nsequence_len: long\noptimizer: magic\nadapter: ia3\nmystery: [1, 2]\nbf16: perhaps\nnested:\n  deep: 1\n";
    let understood = read(yaml);
    let said: Vec<_> = understood.left.iter().map(|left| left.said.as_str()).collect();
    let wanted = [
        "adapter: ia3",
        "micro_batch_size: 0",
        "sequence_len: long",
        "optimizer: magic",
        "mystery: 1, 2",
        "nested.deep: 1",
    ];
    for one in wanted {
        assert!(said.contains(&one), "{one}: {said:?}");
    }
}

#[test]
fn what_changes_memory_is_not_without_effect() {
    let file = "model_name_or_path: mistralai/Mistral-7B-v0.1\nbf16: true\nlabel_smoothing_factor: 0.1\nfull_determinism: true\n";
    assert_eq!(left(&read(file)), ["label_smoothing_factor: 0.1", "full_determinism: true"]);
    assert!(left(&read(&file.replace("0.1\n", "0\n").replace("full_determinism: true", ""))).is_empty());
    let unsloth = |on: &str| {
        read(&format!(
            "m = FastLanguageModel.from_pretrained('unsloth/Meta-Llama-3.1-8B', fast_inference={on}, gpu_memory_utilization=0.6)"
        ))
    };
    assert_eq!(left(&unsloth("False")), [""; 0]);
    assert_eq!(
        left(&unsloth("True")),
        ["from_pretrained(fast_inference=true)", "from_pretrained(gpu_memory_utilization=0.6)"]
    );
}

#[test]
fn every_refused_setting_is_listed() {
    let adapter = |patterns: &str| {
        read(&format!(
            "{{\"base_model_name_or_path\": \"meta-llama/Llama-3.1-8B\", \"fan_in_fan_out\": false, \"peft_type\": \"LORA\", \"r\": 64, {patterns}, \"target_modules\": [\"q_proj\", \"v_proj\"], \"use_dora\": false}}"
        ))
    };
    assert_eq!(left(&adapter("\"rank_pattern\": {}, \"alpha_pattern\": {}")), [""; 0]);
    let patterns = adapter("\"rank_pattern\": [1], \"alpha_pattern\": [2]");
    assert_eq!(left(&patterns), ["LoraConfig(alpha_pattern=2)", "LoraConfig(rank_pattern=1)"]);
    // the one that is followed, and the one that is not
    let twice = read(
        "args = SFTConfig(max_seq_length=512)\ntrainer = SFTTrainer(model='gpt2', args=args, max_seq_length=1024)",
    );
    assert_eq!(twice.scenario.sequence, 1024);
    assert_eq!(left(&twice), ["SFTConfig(max_seq_length=512)"]);
}

#[test]
fn a_part_of_a_file_is_no_harm() {
    for (_, text, ..) in FILES {
        for (end, _) in text.char_indices().step_by(7) {
            drop(import::read(&text[..end], &Scenario::default()));
            drop(import::read(&text[end..], &Scenario::default()));
        }
    }
}

#[test]
fn what_is_no_text_is_told() {
    for (text, why) in [
        (" \n", "there is no text"),
        ("\u{fffd}PNG\r\n\u{1a}\n\0\0\0\rIHDR", "this is no text, but a picture, an archive or weights"),
    ] {
        let refused = import::read(text, &Scenario::default()).expect_err("nothing is read");
        assert_eq!(refused.to_string(), why);
    }
}

#[test]
fn a_web_page_is_no_configuration_and_is_called_a_page() {
    let error =
        import::read("<!doctype html>\n<p>learning_rate = 1</p>", &Scenario::default()).expect_err("a page");
    assert!(error.to_string().contains("angle brackets"), "{error}");
}
