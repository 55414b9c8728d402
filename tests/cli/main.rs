//! The command, run as a user runs it: standard output, standard error and exit status.

#![cfg(all(feature = "cli", not(target_arch = "wasm32")))]

mod action;
mod check;
mod cluster;
mod files;
mod fit;
mod flags;
mod guides;
mod need;
mod oom;
mod plan;
mod record;
mod serving;
mod tables;

use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::Value;

/// What a run of the command gave.
struct Run {
    out: String,
    err: String,
    status: Option<i32>,
}

#[track_caller]
fn headroom_with(arguments: &[&str], input: &str) -> Run {
    let mut child = Command::new(env!("CARGO_BIN_EXE_headroom"))
        .args(arguments)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A command that does not read its input closes the pipe.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    let output = child.wait_with_output().unwrap();
    Run {
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
        status: output.status.code(),
    }
}

#[track_caller]
fn headroom(arguments: &[&str]) -> Run {
    headroom_with(arguments, "")
}

/// Standard output of a run that must succeed without a word on standard error.
#[track_caller]
fn says(arguments: &[&str]) -> String {
    let run = headroom(arguments);
    assert_eq!((run.err.as_str(), run.status), ("", Some(0)), "{arguments:?}");
    run.out
}

/// A run that must fail with that message and nothing on standard output.
#[track_caller]
fn fails(arguments: &[&str], message: &str) {
    let run = headroom(arguments);
    assert_eq!((run.err.as_str(), run.out.as_str(), run.status), (message, "", Some(2)), "{arguments:?}");
}

/// A file for one test.
fn file(name: &str, text: &str) -> String {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

const LLAMA: &str = "data/models/meta-llama__Llama-3.1-8B.json";

#[test]
fn params_counts_what_estimate_takes_for_a_model() {
    let out = says(&["params", "openai-community/gpt2", "llama3-8b", "7b"]);
    let lines: Vec<_> = out.lines().collect();
    assert_eq!(lines[..2], ["124439808\topenai-community/gpt2", "8030261248\tllama3-8b"], "{out}");
    let of_size: u64 = lines[2].split('\t').next().and_then(|count| count.parse().ok()).expect("a count");
    assert!((6_800_000_000..7_200_000_000).contains(&of_size), "{out}");
    let unknown = headroom(&["params", "nobody/nothing"]);
    assert!(unknown.status == Some(2) && unknown.err.contains("nobody/nothing"), "{}", unknown.err);
}

#[test]
fn params_counts_every_file_that_it_understands() {
    let broken = file("broken.json", "{\"model_type\":");
    let run =
        headroom(&["params", LLAMA, &broken, "missing.json", "data/models/openai-community__gpt2.json"]);
    assert_eq!(run.out, format!("8030261248\t{LLAMA}\n124439808\tdata/models/openai-community__gpt2.json\n"));
    let lines: Vec<_> = run.err.lines().collect();
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(lines[0].starts_with(&format!("{broken}: this JSON ends early, at line 1, ")), "{lines:?}");
    assert!(lines[1].starts_with("missing.json: No such file or directory"), "{lines:?}");
    assert_eq!(run.status, Some(2));
}

#[test]
fn estimate_answers_without_arguments() {
    let out = says(&["estimate"]);
    let begins = "\
Task                                     Fine-tune (SFT)
Model                                    meta-llama/Llama-3.1-8B
GPU                                      GeForce RTX 4090
GPUs                                     1
Method                                   QLoRA
LoRA rank                                16
Target modules                           All linear layers
Training library                         transformers 5.17 + PEFT 0.21
Precision                                bf16 mixed (bf16 weights)
Optimizer                                AdamW (fused)
Micro-batch size                         1
Sequence length                          2,048
Gradient accumulation                    1
Gradient checkpointing                   On
Attention                                SDPA (PyTorch chooses)
Loss kernel                              Default
Activation offloading                    Off
Allocator                                Default
Other settings, at their default         26

Needed                                   ";
    assert!(out.starts_with(begins), "{out}");
    for line in [
        "The card has                             23.5 GiB\n",
        "Peak in the                              backward pass\n",
        "Driver context                           481 MiB",
        "Trained parameters                       41,943,040\n",
    ] {
        assert!(out.contains(line), "{line}{out}");
    }
}

#[test]
fn the_same_scenario_every_way_it_can_be_said() {
    let flags = says(&[
        "estimate",
        "--model",
        "Qwen/Qwen2.5-1.5B",
        "--method",
        "full",
        "--precision",
        "amp_bf16",
        "--optimizer",
        "adamw",
        "--batch-size",
        "4",
        "--seq-length",
        "1024",
        "--gradient-checkpointing",
        "--json",
    ]);
    let link = "m=Qwen/Qwen2.5-1.5B&method=full&p=amp-bf16&o=adamw&b=4&s=1024";
    assert_eq!(says(&["estimate", "--json", link]), flags);
    assert_eq!(says(&["estimate", "--json", &format!("https://example.org/?v=1&{link}#x")]), flags);
    assert_eq!(says(&["estimate", "--json", &format!("https://example.org/#v=1&{link}")]), flags);

    let toml = file(
        "scenario.toml",
        "model = \"Qwen/Qwen2.5-1.5B\"\nmethod = \"full\"\nprecision = \"amp-bf16\"\noptimizer = \"adamw\"\nbatch-size = 4\nseq-length = 1024\n",
    );
    assert_eq!(says(&["estimate", "--json", &toml]), flags);

    let answer: Value = serde_json::from_str(&flags).unwrap();
    assert_eq!(answer["link"], format!("v=1&{link}"));
    let piped = headroom_with(&["estimate", "--json", "-"], &answer["scenario"].to_string());
    assert_eq!((piped.out, piped.status), (flags, Some(0)));
}

#[test]
fn flags_go_over_the_source() {
    let out = says(&["estimate", "method=lora&b=8&2.b=16", "--seq-length", "512", "--json"]);
    let answers: Value = serde_json::from_str(&out).unwrap();
    let links: Vec<_> =
        answers.as_array().unwrap().iter().map(|answer| answer["link"].as_str().unwrap()).collect();
    assert_eq!(links, ["v=1&method=lora&b=8&s=512", "v=1&method=lora&b=16&s=512"]);
}

#[test]
fn json_holds_bytes_that_add_up() {
    let answer: Value = serde_json::from_str(&says(&["estimate", "--json"])).unwrap();
    let bytes = |value: &Value| value.as_u64().unwrap();
    let parts: u64 = answer["peak"]["parts"].as_object().unwrap().values().map(bytes).sum();
    assert_eq!(parts, bytes(&answer["peak"]["bytes"]));
    assert_eq!(bytes(&answer["peak"]["bytes"]) + bytes(&answer["context"]), bytes(&answer["needed"]));
    assert_eq!(bytes(&answer["needed"]) + bytes(&answer["left"]), bytes(&answer["gpu"]["memory"]));
    assert_eq!(answer["fits"], true);
    let steady = &answer["phases"]["steady"];
    assert!(
        ["forward", "backward", "step"]
            .iter()
            .any(|phase| steady[*phase]["bytes"] == answer["peak"]["bytes"])
    );
}

#[test]
fn a_config_of_ones_own() {
    let out = says(&["estimate", "--config", LLAMA, "--json"]);
    let own: Value = serde_json::from_str(&out).unwrap();
    let known: Value = serde_json::from_str(&says(&["estimate", "--json"])).unwrap();
    assert_eq!(own["peak"], known["peak"]);
    let link = own["link"].as_str().unwrap();
    assert!(link.starts_with("v=1&m=meta-llama__Llama-3.1-8B(") && link.len() < 1_000, "{link}");
    assert_eq!(says(&["estimate", link, "--json"]), out);
}

#[test]
fn over_the_limit_is_status_1() {
    assert_eq!(headroom(&["estimate", "--fail-if-over", "24GB"]).status, Some(0));
    // what vLLM has of the card is taken too, and said to be needed of the whole card, without a measured error
    let link = "v=1&task=grpo&m=Qwen/Qwen2.5-7B-Instruct&method=lora&st=trl&gpu=h100-sxm-80gb&vllm=30";
    let beside_vllm = |limit: &str| headroom(&["estimate", link, "--fail-if-over", limit]).status;
    let json = |link: &str| serde_json::from_str::<Value>(&says(&["estimate", link, "--json"])).unwrap();
    let [awake, asleep, elsewhere] =
        [link.to_owned(), format!("{link}&vsleep=on"), link.replace("&vllm=30", "")].map(|link| json(&link));
    let figure = |answer: &Value, name: &str| answer[name].as_u64().unwrap();
    // to the blocks that other tensors are cut out of
    let both = figure(&elsewhere, "needed") + 84_577_091_584 * 30 / 100;
    assert!(figure(&awake, "needed").abs_diff(both) < 16 << 20, "{both} {}", awake["needed"]);
    assert!(figure(&asleep, "needed") < figure(&awake, "needed"));
    assert_eq!([&awake, &asleep].map(|own| &own["gpu"]), [&elsewhere["gpu"]; 2]);
    assert!(figure(&awake, "nvidia_smi") > figure(&awake, "needed"));
    assert_eq!(
        [&awake, &asleep, &elsewhere].map(|own| own["measured_error"].is_object()),
        [false, false, true]
    );
    let text = says(&["estimate", link]);
    assert!(text.contains("not known: no run with vLLM on the same card was measured"), "{text}");
    assert_eq!((beside_vllm("35GiB"), beside_vllm("60GiB")), (Some(1), Some(0)));
    let run = headroom(&["estimate", "--method", "full", "--fail-if-over", "24GB", "--json"]);
    assert_eq!(run.status, Some(1));
    assert!(
        run.err.starts_with("over: meta-llama/Llama-3.1-8B needs ")
            && run.err.ends_with(" more than 22.4 GiB\n")
    );
    let answer: Value = serde_json::from_str(&run.out).unwrap();
    assert_eq!(answer["fits"], false);
    assert!(answer["left"].as_i64().unwrap() < 0);
}

#[test]
fn what_is_wrong_says_what_would_be_right() {
    fails(
        &["estimate", "--model", "mistral-7b-v9"],
        "error: mistral-7b-v9: no model is called \"mistral-7b-v9\" (perhaps mistralai/Mistral-7B-Instruct-v0.3, mistralai/Mistral-7B-v0.1, mistralai/Mixtral-8x7B-v0.1)\n",
    );
    fails(
        &["estimate", "--method", "dora"],
        "error: --method: there is no \"dora\" (use full, lora or qlora)\n",
    );
    fails(
        &["estimate", "--batch-size", "-1"],
        "error: --batch-size: -1 is out of range or not whole (use a whole number from 1 to 16,777,216)\n",
    );
    for size in ["1e300b", "0.001b"] {
        fails(
            &["estimate", "--model", size],
            &format!(
                "error: --model: {size} is out of range (use a Hub id such as meta-llama/Llama-3.1-8B or a size from 0.01b to 10000b)\n"
            ),
        );
    }
    fails(
        &["estimate", "--gpu", "a100-sxm"],
        "error: meta-llama/Llama-3.1-8B: no card is called \"a100-sxm\" (perhaps a100-sxm-40gb, a100-sxm-80gb)\n",
    );
    fails(
        &["estimate", "llama"],
        "error: \"llama\" is neither a file nor a link (give a share link or its query string such as 'm=gpt2&b=4', a TOML or JSON file or a configuration of another project, or - for standard input)\n",
    );
    let run = headroom_with(&["estimate", "-"], "{\"method\":\"lora\",\"rank\":4}");
    assert_eq!(run.status, Some(2));
    assert!(
        run.err.starts_with("error: standard input: there is no key \"rank\" (use task, model, method, "),
        "{}",
        run.err
    );
    let run = headroom_with(&["estimate", "-"], "{\"rank\":4,\"alpha\":8}");
    let words = "error: standard input: there are no keys \"rank\", \"alpha\" (use task, model, ";
    assert!(run.err.starts_with(words) && run.err.matches("(use task").count() == 1, "{}", run.err);
    let toml = file("wrong.toml", "seq-length = \"long\"\n");
    let run = headroom(&["estimate", &toml]);
    assert!(
        run.err.contains("seq-length: \"long\" is not a number (use a whole number from 1 to "),
        "{}",
        run.err
    );
    // clap's own words for flags that it does not know or that exclude each other.
    for arguments in [
        &["estimate", "--batchsize", "4"][..],
        &["estimate", "--json", "--csv"],
        &["estimate", "--model", "gpt2", "--config", LLAMA],
        &["estimate", "--fail-if-over", "24 parsecs"],
        &["params"],
        &["unknown"],
    ] {
        let run = headroom(arguments);
        assert_eq!((run.out.as_str(), run.status), ("", Some(2)), "{arguments:?}");
        assert!(run.err.starts_with("error: "), "{}", run.err);
    }
}

#[test]
fn amounts_are_read_as_they_are_meant_or_refused() {
    for arguments in [
        &["fit", "--memory", "24"][..],
        &["fit", "--memory", "24,5GB"],
        &["estimate", "--fail-if-over", "24"],
        &["estimate", "--gpu", "24"],
        &["estimate", "--gpu", "24,5GB"],
        &["estimate", "--batch-size", "1,5"],
    ] {
        let run = headroom(arguments);
        assert_eq!((run.out.as_str(), run.status), ("", Some(2)), "{arguments:?}");
        let right = match *arguments.last().unwrap() {
            "24" => "\"24\" is without a unit (write 24GB or 24GiB)",
            "24,5GB" => "a comma separates thousands (write 24.5GB)",
            _ => "a comma separates thousands (use a whole number from 1 to 16,777,216)",
        };
        assert!(run.err.contains(right), "{}", run.err);
    }
    let exact = |memory: &str| says(&["estimate", &format!("gpu={memory}")]);
    let same = ["24.5GB", "24,500MB", "24,500,000,000B"].map(exact);
    assert!(same.iter().all(|answer| *answer == same[0]), "{same:?}");
    let run = headroom(&["estimate", "gpu=24&b=1,5"]);
    assert_eq!((run.status, run.err.lines().count()), (Some(0), 2), "{}", run.err);
}

#[test]
fn a_damaged_link_is_followed_with_a_note() {
    let run = headroom(&["estimate", "b=0&method=lora", "--json"]);
    assert_eq!(run.status, Some(0));
    assert_eq!(
        run.err,
        "note: b=0 in the link cannot be used: Micro-batch size is 1 (use a whole number from 1 to 16,777,216)\n"
    );
}

#[test]
fn tables_of_several_scenarios() {
    let csv = says(&["estimate", "method=lora&2.method=full", "--csv"]);
    assert!(csv.contains("\r\nMicro-batch size,1,1\r\n"), "{csv}");
    assert!(csv.starts_with("Task,Fine-tune (SFT),Fine-tune (SFT)\r\nModel,meta-llama/Llama-3.1-8B,meta-llama/Llama-3.1-8B\r\nGPU,GeForce RTX 4090,GeForce RTX 4090\r\nGPUs,1,1\r\nMethod,LoRA,Full fine-tuning\r\nLoRA rank,16,\r\n"), "{csv}");
    assert!(csv.contains("\r\nVerdict,Fits,Does not fit\r\nLeft of the card,"), "{csv}");
    let needed = csv.lines().find_map(|line| line.strip_prefix("Needed,")).unwrap();
    assert!(needed.split(',').all(|bytes| bytes.parse::<u64>().unwrap() > 1 << 33), "{needed}");
    let markdown = says(&["estimate", "method=lora&2.method=full", "--markdown"]);
    assert!(
        markdown.starts_with(
            "**GPU memory of meta-llama/Llama-3.1-8B**\n\n| Question | 1 | 2 |\n| --- | ---: | ---: |\n| Model | "
        ),
        "{markdown}"
    );
    // what is looked at first, and all else behind it
    let (first, rest) = markdown.split_once("\n<details>\n").expect("the rest is folded");
    assert!(first.lines().count() <= 14 && first.contains("\n| Verdict | "), "{first}");
    assert!(rest.contains("\n| Task | Fine-tune (SFT) | Fine-tune (SFT) |\n"), "{rest}");
    assert!(markdown.ends_with("\n[Open in Headroom](#v=1&method=lora&2.method=full)\n"), "{markdown}");
}

/// Writing that fails is a failure of the command; a reader that has read enough is none.
#[cfg(target_os = "linux")]
#[test]
fn what_cannot_be_written_is_told() {
    let into = |out: Stdio| {
        let command = Command::new(env!("CARGO_BIN_EXE_headroom"))
            .args(["estimate", "--json"])
            .stdout(out)
            .stderr(Stdio::piped())
            .spawn();
        let output = command.unwrap().wait_with_output().unwrap();
        (String::from_utf8(output.stderr).unwrap(), output.status.code())
    };
    let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let (said, status) = into(full.into());
    assert!(said.starts_with("error: standard output: No space left on device"), "{said}");
    assert_eq!(status, Some(2));
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    assert_eq!(into(writer.into()), (String::new(), Some(0)));
}

#[test]
fn names_do_not_steer_the_terminal_or_the_spreadsheet() {
    let model = "(model_type:llama,hidden_size:64,num_hidden_layers:2,num_attention_heads:4,intermediate_size:128,vocab_size:256)";
    let run = headroom(&["estimate", "m=%1b]0;x%07&b=%1b[2Jx"]);
    assert!(run.err.contains('\u{fffd}') && !run.err.contains(['\u{1b}', '\u{7}']), "{:?}", run.err);
    assert_eq!(run.err.lines().count(), 2, "{}", run.err);
    let named = |name: &str, format: &str| says(&["estimate", &format!("m={name}{model}&s=64"), format]);
    for name in ["=cmd|' /C calc'!A0", "+1", "-1", "@SUM(1)"] {
        let plain = name.replace('!', "~!").replace('(', "~(").replace(')', "~)");
        let csv = named(&plain.replace('+', "%2B"), "--csv");
        assert!(csv.contains(&format!("\r\nModel,\"'{name} (115,008 parameters)\"\r\n")), "{csv}");
    }
    let markdown = named("a%0A<img src=x>|b", "--markdown");
    assert!(markdown.contains("| Model | a \\<img src=x>\\|b (115,008 parameters) |\n"), "{markdown}");
    let text = says(&["estimate", &format!("m=a%0Db%1b[31m{model}&s=64")]);
    assert!(text.contains("  a b\u{fffd}[31m (115,008 parameters)\n"), "{text:?}");
}

#[test]
fn scenarios_are_read_wherever_they_lie() {
    let json = "\u{feff}{\"model\":\"gpt2\",\"seq-length\":512}";
    let expected = says(&["estimate", "m=gpt2&s=512"]);
    for name in ["bom.json", "no_extension", "other.txt"] {
        assert_eq!(says(&["estimate", &file(name, json)]), expected, "{name}");
    }
    assert_eq!(
        says(&["estimate", &file("bom.toml", "\u{feff}model = 'gpt2'\nseq-length = 512\n")]),
        expected
    );
    let piped = headroom_with(&["estimate", "-"], json);
    assert_eq!((piped.out.as_str(), piped.err.as_str()), (expected.as_str(), ""));
    if cfg!(target_os = "linux") {
        assert_eq!(headroom_with(&["estimate", "/dev/stdin"], json).out, expected);
        fails(&["estimate", "/dev/zero"], "error: /dev/zero: this has more than 16 MB and was not read\n");
    }
    let twice = file("twice.toml", "b = 4\nbatch-size = 8\n");
    let run = headroom(&["estimate", &twice]);
    assert!(run.err.contains("b and batch-size are the same key (leave one out)"), "{}", run.err);
    let long = file("long.json", &" ".repeat(17 << 20));
    fails(&["estimate", &long], &format!("error: {long}: this has more than 16 MB and was not read\n"));
}

#[test]
fn json_says_of_which_form_it_is_and_what_is_up_to_the_failure() {
    for (link, fails) in [("m=gpt2&s=512", false), ("method=full", true)] {
        let answer: Value = serde_json::from_str(&says(&["estimate", link, "--json"])).unwrap();
        assert_eq!(answer["schema"], "headroom-estimate/1");
        assert_eq!(answer["up_to_failure"], fails, "{answer:#}");
        assert_eq!(says(&["estimate", link]).contains(" up to the failure\n"), fails);
    }
}

#[test]
fn a_task_brings_what_is_usual_for_it() {
    let json = |arguments: &[&str]| -> Value {
        serde_json::from_str(&says(&[&["estimate", "--json"], arguments].concat())).unwrap()
    };
    let of = |arguments: &[&str]| {
        let link = json(arguments)["link"].as_str().unwrap().to_owned();
        headroom::share::decode(&link).scenarios.remove(0)
    };
    let small = ["--model", "Qwen/Qwen3-0.6B", "--method", "full"];
    for task in ["dpo", "grpo", "generate"] {
        let said = of(&[&["--task", task], &small[..]].concat());
        // as the page does it: task, model and method are chosen, one after the other
        let mut chosen = headroom::scenario::Scenario::default();
        chosen.change(|scenario| scenario.task = said.task);
        chosen.change(|scenario| scenario.model = said.model.clone());
        chosen.change(|scenario| scenario.method = said.method);
        assert_eq!(said, chosen, "{task}");
    }
    // on a card without bfloat16, and for a model of few positions
    let t4 =
        of(&["--task", "generate", "--method", "full", "--model", "openai-community/gpt2", "--gpu", "t4"]);
    assert_eq!((t4.precision.slug(), t4.sequence), ("fp16", 513));
    // what is given stays, a link all the more: without the flag it is as every link has it
    let given = ["--reference", "scored", "--batch-size", "1", "--mask", "none"];
    let grpo = of(&[&["--task", "grpo"], &small[..], &given[..]].concat());
    assert_eq!((grpo.answers.reference.slug(), grpo.batch, grpo.mask.slug()), ("scored", 1, "none"));
    let link = "task=grpo&st=trl&m=Qwen/Qwen3-0.6B&method=full&p=amp-bf16";
    assert_eq!(of(&[link]), headroom::share::decode(link).scenarios.remove(0));
    let over = of(&["m=Qwen/Qwen3-0.6B&method=full&b=4&s=1024", "--task", "grpo"]);
    assert_eq!((over.batch, over.mask.slug(), over.stack.slug()), (4, "padded", "trl"));
}

#[test]
fn contexts_say_why_there_are_none() {
    let message =
        "error: 200,000 new tokens leave nothing of any length to a prompt (use fewer than 32,768)\n";
    fails(&["contexts", "--model", "Qwen/Qwen3-0.6B", "--new-tokens", "200000"], message);
    let rows = says(&["contexts", "--model", "Qwen/Qwen3-0.6B", "--new-tokens", "32767"]);
    assert!(rows.contains("\n32,768 "), "{rows}");
}

#[test]
fn a_flag_that_makes_no_difference_is_told() {
    let run = headroom(&["estimate", "--labels", "5", "--lora-rank", "8"]);
    assert_eq!((run.err.as_str(), run.status), ("note: --labels makes no difference to this run\n", Some(0)));
}
