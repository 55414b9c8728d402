//! How measured rows are read.

use super::*;
use crate::share;
use crate::units::Bytes;
use serde_json::json;

/// A row of a small llama with one key of its case set.
#[track_caller]
fn with(key: &str, value: Value) -> Result<Scenario, CheckError> {
    let mut row = json!({
        "id": "a", "device": { "cc": "9.0" },
        "case": {
            "config": {
                "model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
                "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 100
            },
            "model": "tiny", "head": "causal", "iters": 3
        },
        "measured": { "peak": { "overall": 1000 }, "reserved": { "peak_stat": 2000 } }
    });
    row["case"][key] = value;
    read(&row).map(|case| {
        let found: Vec<_> = case.measured.iter().map(|figure| (figure.metric, figure.bytes)).collect();
        assert_eq!(found, [(Metric::Allocated, Bytes(1000)), (Metric::Reserved, Bytes(2000))]);
        case.scenario
    })
}

/// How the scenario differs from what the harness takes where a case says nothing.
#[track_caller]
fn differs(key: &str, value: Value, link: &str) {
    let pairs = |scenario: Scenario| {
        let link = share::encode(&[Scenario { model: Scenario::default().model, ..scenario }]);
        link.split('&').map(str::to_owned).collect::<Vec<_>>()
    };
    let usual = pairs(with("batch", json!(1)).unwrap());
    let own = pairs(with(key, value).unwrap());
    let new: Vec<_> = own.into_iter().filter(|pair| !usual.contains(pair)).collect();
    assert_eq!(new.join("&"), link, "{key}");
}

#[test]
fn every_key_is_read() {
    for (key, value, link) in [
        ("dtype", json!("amp_fp16"), "p=amp-fp16"),
        ("dtype", json!("fp32"), "p=fp32"),
        ("method", json!("lora"), "method=lora"),
        (
            "lora",
            json!({ "r": 8, "dropout": 0.1, "targets": ["v_proj", "q_proj"] }),
            "r=8&t=q_proj,v_proj&ld=on",
        ),
        ("lora", json!({ "targets": "qv" }), "t=qv"),
        ("lora_autocast_adapter", json!(false), "a32=off"),
        ("qlora_prepare", json!(false), "prep=off"),
        ("qlora_double_quant", json!(false), "dq=off"),
        ("optimizer", json!("paged_adamw8bit"), "o=paged-adamw-8bit"),
        ("gradient_checkpointing", json!("reentrant"), "gc=reentrant"),
        ("attention", json!("sdpa_math"), "attn=math"),
        ("batch", json!(4), "b=4"),
        ("seq", json!(128), "s=128"),
        ("grad_accumulation", json!(2), "ga=2"),
        ("attention_mask", json!("padded"), "mask=padded"),
        ("packed", json!(4), "len=128~0&mask=packed"),
        ("dropout", json!(0.2), "drop=0.2"),
        ("loop", json!("naive"), "out=on"),
        ("zero_grad", json!("zero"), "stn=off"),
        ("clip", json!(false), "clip=off"),
        ("use_cache", json!(true), "cache=on"),
    ] {
        differs(key, value, link);
    }
    assert_eq!(with("seq", json!(8)).unwrap().gpu().unwrap().capability.unwrap().major, 9);
}

#[test]
fn what_is_not_modelled_says_so() {
    for (key, value, reason) in [
        ("experts", json!("eager"), "experts eager is not modelled"),
        ("optimizer", json!("none"), "optimizer none is not modelled"),
        ("head", json!("mlm"), "head mlm on llama is not modelled"),
        ("iters", json!(1), "a single iteration has no steady state"),
        ("lora", json!({ "targets": ["x_y"] }), "lora target x_y is not modelled"),
        ("moon", json!("full"), "the key \"moon\" is unknown"),
        ("lora", json!({ "moon": 1 }), "the key \"moon\" is unknown"),
    ] {
        assert_eq!(with(key, value), Err(reason.into()));
    }
}

/// A value of the wrong type is none of the harness's defaults.
#[test]
fn wrong_types_are_refused() {
    for (key, value, reason) in [
        ("method", json!(3), "method is 3 where a text belongs"),
        ("clip", json!("no"), "clip is \"no\" where true or false belongs"),
        ("attention", json!(7), "attention is 7 where a text belongs"),
        ("batch", json!(1.5), "batch is 1.5 where a whole number belongs"),
        ("batch", json!("4"), "batch is \"4\" where a whole number belongs"),
        ("cc", json!(8.0), "cc is 8.0 where a text belongs"),
        ("dropout", json!(2), "dropout is 2 where a probability belongs"),
        ("offload", json!(true), "offload is true where a text belongs"),
        ("weights", json!(16), "weights is 16 where a text belongs"),
        ("overrides", json!([1]), "overrides is [1] where a table belongs"),
        ("lora", json!([1]), "lora is [1] where a table belongs"),
        ("lora", json!({ "targets": [1, 2] }), "lora target 1 is not modelled"),
        ("lora", json!({ "targets": 1 }), "lora target 1 is not modelled"),
        ("lora", json!({ "r": "8" }), "r is \"8\" where a whole number belongs"),
        ("lora", json!({ "dropout": "0.1" }), "dropout is \"0.1\" where a probability belongs"),
    ] {
        assert_eq!(with(key, value), Err(reason.into()), "{key}");
    }
    let row = json!({ "case": { "config": { "model_type": "llama", "hidden_size": 64,
        "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 100 } },
        "measured": { "peak": { "overall": 1000 }, "reserved": { "peak_stat": 2000 } } });
    assert!(read(&row).is_ok());
    for (pointer, value, reason) in [
        ("/measured/peak/overall", json!(0), "measured.peak.overall is 0 where a number of bytes belongs"),
        ("/measured/peak/overall", json!(-1), "measured.peak.overall is -1 where a number of bytes belongs"),
        (
            "/measured/reserved/peak_stat",
            json!("2 GB"),
            "measured.reserved.peak_stat is \"2 GB\" where a number of bytes belongs",
        ),
    ] {
        let mut row = row.clone();
        *row.pointer_mut(pointer).unwrap() = value;
        assert_eq!(read(&row).map(|_| ()), Err(reason.into()));
    }
}
