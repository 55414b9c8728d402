//! `headroom need`: the cards that do, and what they cost.

use serde_json::Value;

use super::{headroom, says};

#[test]
fn need_lists_the_cards_that_do() {
    let text = says(&["need", "--model", "meta-llama/Llama-3.2-1B"]);
    let mut cards = text.lines().skip(3);
    assert!(
        cards.clone().any(|line| line.starts_with("A10G") && line.contains("$/h aws g5.xlarge")),
        "{text}"
    );
    assert!(
        cards.all(|line| {
            let notes = ["Prices", "The data set, ", "On its own card: Fewest GPUs"];
            let is_note = notes.iter().any(|note| line.starts_with(note));
            line.is_empty() || line.contains("fits: ") || line.contains(" × ") || is_note
        }),
        "{text}"
    );
    let json: Value = serde_json::from_str(&says(&["need", "--json"])).unwrap();
    let of_smallest = &json["cards"][0]["methods"];
    assert_eq!(of_smallest["qlora"]["verdict"].as_str(), Some("fits"));
    assert_eq!(of_smallest["full"]["verdict"].as_str(), Some("over"));
    // one does not hold all weights, so many do together
    let cards = json["cards"].as_array().unwrap();
    let card = cards.iter().find(|card| card["gpu"] == "rtx-4090").unwrap();
    let several = &card["methods"]["full"]["several"];
    let alone: Value =
        serde_json::from_str(&says(&["estimate", several["link"].as_str().unwrap(), "--json"])).unwrap();
    assert!(several["gpus"].as_u64() > Some(1), "{several}");
    assert_eq!(alone["needed"], several["needed"]);
}

#[test]
fn levers_and_need_say_how_many_gpus_hold_it() {
    let full = ["--method", "full", "--gpu", "a100-sxm-40gb"];
    let text = says(&[&["levers"], &full[..]].concat());
    assert!(
        text.contains("\nFewest GPUs that hold it, of one machine or machines of 8: 3 under FSDP2, "),
        "{text}"
    );
    for command in ["levers", "need"] {
        let json: Value = serde_json::from_str(&says(&[&[command, "--json"], &full[..]].concat())).unwrap();
        let fewest = &json["fewest_gpus"];
        let link = fewest["link"].as_str().unwrap();
        let estimate: Value = serde_json::from_str(&says(&["estimate", link, "--json"])).unwrap();
        assert_eq!((fewest["gpus"].as_u64(), &fewest["needed"]), (Some(3), &estimate["needed"]), "{command}");
    }
}

#[test]
fn the_fewest_gpus_are_told_with_the_engine_that_takes_them() {
    let full = ["levers", "--method", "full", "--model", "meta-llama/Llama-3.1-70B", "--gpu", "81GiB"];
    let text = says(&full);
    assert!(text.contains("machines of 8: 16 under ZeRO-3 (DeepSpeed), "), "{text}");
    let json: Value = serde_json::from_str(&says(&[&full[..], &["--json"]].concat())).unwrap();
    let link = json["fewest_gpus"]["link"].as_str().unwrap();
    let estimate: Value = serde_json::from_str(&says(&["estimate", link, "--json"])).unwrap();
    assert_eq!(
        (json["fewest_gpus"]["gpus"].as_u64(), &json["fewest_gpus"]["needed"]),
        (Some(16), &estimate["needed"])
    );
}

#[test]
fn need_takes_flags_at_their_word() {
    // values that fine-tuning has by default, and GRPO does not
    let grpo = ["--task", "grpo", "--model", "Qwen/Qwen3-0.6B", "--seq-length", "1024", "--method", "full"];
    let chosen = ["--reference", "scored", "--batch-size", "1", "--mask", "none"];
    let json = |flags: &[&str]| -> Value { serde_json::from_str(&says(flags)).unwrap() };
    for flags in [&grpo[..], &[&grpo[..], &chosen[..]].concat()] {
        let cards = json(&[&["need", "--json"], flags].concat());
        let card = cards["cards"].as_array().unwrap().iter().find(|card| card["gpu"] == "rtx-5090").unwrap();
        let estimate = json(&[&["estimate", "--json", "--gpu", "rtx-5090"], flags].concat());
        assert_eq!(card["methods"]["full"]["needed"], estimate["needed"], "{flags:?}");
    }
    // a link leaves nothing open
    let link = "task=grpo&m=Qwen/Qwen3-0.6B&st=trl&p=amp-bf16&method=full&s=1024&gpu=rtx-5090";
    let cards = json(&["need", "--json", link]);
    let card = cards["cards"].as_array().unwrap().iter().find(|card| card["gpu"] == "rtx-5090").unwrap();
    assert_eq!(card["methods"]["full"]["needed"], json(&["estimate", "--json", link])["needed"]);
}

#[test]
fn several_cards_have_a_price_together() {
    let out = says(&["need", "--method", "full"]);
    assert!(out.lines().any(|line| line.contains(" × ") && line.contains(" $/h together")), "{out}");
}

#[test]
fn a_card_that_others_have_has_no_share() {
    let out = says(&["estimate", "--used-mib", "30000"]);
    assert!(out.contains("The card has                             0 B"), "{out}");
    assert!(out.contains("nothing of it is left") && !out.contains("0 %, more"), "{out}");
}

#[test]
fn what_the_data_set_costs_where_is_a_table() {
    let all = ["need", "--model", "meta-llama/Llama-3.1-8B", "--dataset-tokens", "50M"];
    let told = says(&[&all[..], &["--machines", "--csv"]].concat());
    let mut lines = told.lines();
    let header = lines.next().unwrap();
    for column in ["The data takes (h)", "And costs ($)", "And costs: at most"] {
        assert!(header.contains(column), "{header}");
    }
    let at = header.split(',').position(|column| column == "And costs ($)").unwrap();
    let costs = |line: &str| line.split(',').nth(at).and_then(|cell| cell.parse::<f64>().ok());
    let known: Vec<f64> = lines.filter_map(costs).collect();
    assert!(known.len() > 20 && known.is_sorted(), "{known:?}");
    // the sentence under the cards names the first of them
    let cards = says(&all);
    let sentence = cards
        .lines()
        .find(|line| line.starts_with("The data set, 50,000,000 tokens, costs least on one "))
        .unwrap();
    assert!(sentence.contains(&format!(": ${:.2} (", known[0])), "{sentence}");
    let json: Value = serde_json::from_str(&says(&[&all[..], &["--json"]].concat())).unwrap();
    let machines =
        json["cards"].as_array().unwrap().iter().flat_map(|card| card["machines"].as_array().unwrap());
    let least =
        machines.filter_map(|machine| machine["dollars"]["typical"].as_f64()).fold(f64::MAX, f64::min);
    assert!((least - known[0]).abs() < 0.006, "{least} {known:?}");
}

/// Nobody asked for float16: it comes with cards that have nothing else.
#[test]
fn need_says_on_which_cards_there_is_no_answer() {
    let run = headroom(&["need", "--task", "ppo", "--model", "Qwen/Qwen2.5-1.5B", "--method", "lora"]);
    let told: Vec<&str> = run.err.lines().filter(|line| line.contains("no answer")).collect();
    assert!(!told.is_empty(), "{}", run.err);
    for line in told {
        assert!(line.starts_with("no answer on ") && line.contains("which the card does not have"), "{line}");
    }
}
