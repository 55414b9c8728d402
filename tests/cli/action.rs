//! The GitHub Action's script, run as a runner runs it.
#![cfg(unix)]

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use super::{file, headroom};

/// What the script says, writes into the summary and the output, and its status.
#[track_caller]
fn gate(test: &str, files: &str, gpu: &str) -> (String, String, String, Option<i32>) {
    gate_of(test, files, gpu, "")
}

/// The same of a model that is given.
#[track_caller]
fn gate_of(test: &str, files: &str, gpu: &str, model: &str) -> (String, String, String, Option<i32>) {
    let path = |name: &str| PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("action-{test}-{name}"));
    let (summary, out) = (path("summary"), path("output"));
    fs::write(&summary, "").unwrap();
    fs::write(&out, "").unwrap();
    let run = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/packages/action/gate.sh"))
        .env("FILES", files)
        .env("GPU", gpu)
        .env("MODEL", model)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .env("HEADROOM", env!("CARGO_BIN_EXE_headroom"))
        .env("GITHUB_STEP_SUMMARY", &summary)
        .env("GITHUB_OUTPUT", &out)
        .output()
        .unwrap();
    let read = |path| fs::read_to_string(path).unwrap();
    (String::from_utf8(run.stdout).unwrap(), read(summary), read(out), run.status.code())
}

#[test]
fn what_fits_passes_and_what_does_not_fails_the_job() {
    let small = file("action small.toml", "model = \"Qwen/Qwen3-0.6B\"\n");
    let large = file("action-large.toml", "method = \"full\"\n");
    let (said, summary, out, status) = gate("small", &small, "");
    assert_eq!((said, out.as_str(), status), (format!("fits: {small}\n"), "fits=true\n", Some(0)));
    assert!(summary.contains("| Model | Qwen/Qwen3-0.6B |"), "{summary}");
    let (said, summary, out, status) = gate("both", &format!("{small}\n{large}\n"), "rtx-4090");
    assert_eq!((out.as_str(), status), ("fits=false\n", Some(1)));
    assert!(
        said.contains(&format!("::error file={large}::")) && said.contains("does not run on rtx-4090"),
        "{said}"
    );
    assert!(summary.contains("does not fit: meta-llama/Llama-3.1-8B on GeForce RTX 4090"), "{summary}");
}

#[test]
fn what_has_no_answer_fails_otherwise_than_what_does_not_fit() {
    let wrong = file("action-wrong.toml", "modell = \"gpt2\"\n");
    let (said, _, out, status) = gate("wrong", &wrong, "");
    assert_eq!((out.as_str(), status), ("fits=false\n", Some(2)));
    assert!(said.contains("has no answer") && said.contains("there is no key"), "{said}");
    assert_eq!(gate("none", "", "").3, Some(2));
    assert!(gate("pattern", "no-such-*.toml", "").0.contains("no file is called no-such-*.toml"));
    // text that a shell would run stays a name
    let (said, ..) = gate("hostile", "$(echo run); x", "");
    assert!(said.contains("no file is called $(echo run); x") || said.contains("has no answer"), "{said}");
}

/// A configuration as it lies in a training repository: the project's own file, with what of it is not followed.
#[test]
fn configurations_of_other_projects_are_gated() {
    const FIXTURES: &str = "tests/fixtures/configurations";
    for (name, gpu, says) in [
        ("axolotl-qlora.yml", "rtx-4090", "fits: {file}"),
        ("llama-factory-lora.yaml", "h100-sxm-80gb", "::warning file={file}::{file}: the number of GPUs: "),
        ("peft-qlora.py", "rtx-4090", "a compiled step is not predicted"),
        ("trainer.toml", "t4", "fits: {file}"),
        ("trl-command.sh", "h100-sxm-80gb", "fits: {file}"),
        ("trl-sft.yaml", "rtx-4090", "fits: {file}"),
        ("unsloth-cell.py", "t4", "fits: {file}"),
        ("unsloth.ipynb", "t4", "fits: {file}"),
    ] {
        let file = format!("{FIXTURES}/{name}");
        let (said, summary, out, status) = gate(name, &file, gpu);
        assert_eq!((out.as_str(), status), ("fits=true\n", Some(0)), "{name}: {said}");
        assert!(said.contains(&says.replace("{file}", &file)), "{said}");
        assert!(summary.contains("| Method | "), "{summary}");
        // every warning stands in the summary too
        let warnings = said.lines().filter_map(|line| line.strip_prefix("::warning ")?.split_once("::"));
        for (_, warning) in warnings {
            assert!(summary.contains(&format!("- note: {warning}")), "{warning}\n{summary}");
        }
    }
    let large = format!("{FIXTURES}/llama-factory-lora.yaml");
    let (said, ..) = gate("over", &large, "t4");
    assert!(said.contains(&format!("::error file={large}::{large} does not run on t4")), "{said}");
    let packed = format!("{FIXTURES}/torchtune-lora.yaml");
    let (said, _, _, status) = gate("packed", &packed, "");
    assert_eq!(status, Some(2));
    assert!(said.contains("has no answer: error: Qwen/Qwen2.5-7B-Instruct: texts that share"), "{said}");
}

#[test]
fn files_that_make_one_run_are_joined_and_a_model_is_given() {
    const FIXTURES: &str = "tests/fixtures/configurations";
    let [arguments, engine, zero] = ["trl-sft.yaml", "accelerate-fsdp2.yaml", "accelerate-zero3.yaml"]
        .map(|name| format!("{FIXTURES}/{name}"));
    let (said, _, _, status) = gate("alone", &engine, "");
    assert_eq!(status, Some(2));
    assert!(said.contains("names no model that is known here (accelerate; say --model"), "{said}");
    let (said, summary, _, status) = gate_of("given", &zero, "", "Qwen/Qwen3-0.6B");
    assert_eq!((said.as_str(), status), (format!("fits: {zero}\n").as_str(), Some(0)));
    assert!(summary.contains("| Model | Qwen/Qwen3-0.6B |") && summary.contains("ZeRO-3"), "{summary}");
    let (said, summary, _, status) = gate("joined", &format!("{arguments} + {engine}"), "");
    assert_eq!((said.as_str(), status), (format!("fits: {arguments}\n").as_str(), Some(0)));
    let title = format!("### {arguments} + {engine}\n");
    for line in [title.as_str(), "| GPUs | 8 |", "| Model | Qwen/Qwen3-0.6B |", "| Sharding | FSDP2 |"] {
        assert!(summary.contains(line), "{line}\n{summary}");
    }
    assert!(
        gate("missing", &format!("{arguments} + none-*.yaml"), "")
            .0
            .contains("no file is called none-*.yaml")
    );
}

#[test]
fn the_flag_is_for_other_machines_too() {
    let over = headroom(&["estimate", "--method", "full", "--fail-unless-fits", "--json"]);
    assert_eq!(
        (over.status, over.err.as_str()),
        (Some(1), "does not fit: meta-llama/Llama-3.1-8B on GeForce RTX 4090\n")
    );
    assert_eq!(headroom(&["estimate", "--fail-unless-fits"]).status, Some(0));
    // a limit holds for what was asked, not for what stands in its place
    for link in ["b=abc&m=gpt2", "m=gpt2&bach=4", "https://example.org/"] {
        let answer = headroom(&["estimate", link, "--fail-unless-fits"]);
        assert_eq!(answer.status, Some(2), "{link}: {}", answer.err);
    }
    assert_eq!(headroom(&["estimate", "b=abc&m=gpt2"]).status, Some(0));
}

/// A file that divides the model in a way that is not read is of another run than the one that is answered.
#[test]
fn a_limit_is_not_checked_where_a_way_to_divide_is_not_read() {
    let axolotl = "base_model: Qwen/Qwen3-0.6B\nsequence_len: 512\nbf16: true\n";
    let fsdp = "fsdp_version: 2\nfsdp_config:\n  cpu_ram_efficient_loading: true\ndp_shard_size: 4\n";
    let accelerate = "compute_environment: LOCAL_MACHINE\ndistributed_type: FSDP\nnum_processes: 8\nfsdp_config:\n  fsdp_version: 2\n";
    let mesh = |size: &str| format!("{accelerate}parallelism_config:\n  parallelism_config_{size}\n");
    let zero = |more: &str| {
        format!("{{\"bf16\": {{\"enabled\": true}}, \"zero_optimization\": {{\"stage\": 3, {more}}}}}")
    };
    let of = |name: &str, text: &str| {
        let path = file(name, text);
        let answer = headroom(&[
            "estimate",
            "--fail-unless-fits",
            "--gpu",
            "h100-sxm-80gb",
            "--model",
            "Qwen/Qwen3-0.6B",
            "--method",
            "full",
            "--precision",
            "bf16",
            "--gpus",
            "8",
            "--from",
            &path,
        ]);
        (answer.status, answer.err)
    };
    for (name, text, told) in [
        ("context.yml", format!("{axolotl}context_parallel_size: 4\n"), "context_parallel_size: 4"),
        ("degree.yml", format!("{axolotl}sequence_parallel_degree: 4\n"), "sequence_parallel_degree: 4"),
        ("sp.yaml", mesh("sp_size: 2"), "sp_size: 2"),
        ("hpz.json", zero("\"zero_hpz_partition_size\": 8"), "zero_hpz_partition_size: 8"),
        ("quantised.json", zero("\"zero_quantized_weights\": true"), "zero_quantized_weights: true"),
    ] {
        let (status, err) = of(name, &text);
        let told = err.contains("error: the limit was not checked: ") && err.contains(told);
        assert!(status == Some(2) && told, "{text}: {status:?} {err}");
    }
    // shared layers are read, and beside axolotl's shards they have no answer
    let (status, err) = of("tensor.yml", &format!("{axolotl}{fsdp}tensor_parallel_size: 2\n"));
    assert!(status == Some(2) && err.contains("tensor parallelism is not modelled"), "{status:?} {err}");
    for (name, text) in [
        ("one.yml", format!("{axolotl}{fsdp}context_parallel_size: 1\ntensor_parallel_size: 1\n")),
        ("one.yaml", mesh("cp_size: 1")),
        ("one.json", zero("\"zero_hpz_partition_size\": 1, \"zero_quantized_weights\": false")),
    ] {
        let (status, err) = of(name, &text);
        assert!(status == Some(0) && !err.contains("not followed"), "{text}: {status:?} {err}");
    }
}

/// A known setting whose value is none stands for something else: the run that was asked about is another one.
#[test]
fn a_limit_is_not_checked_where_a_configuration_is_misread() {
    let axolotl = "adapter: lora\nlora_r: 8\nlora_alpha: 16\nsequence_len: 512\n";
    let of = |name: &str, more: &str| file(name, &format!("{axolotl}{more}\n"));
    let status = |arguments: &[&str]| {
        let answer =
            headroom(&[&["estimate", "--fail-unless-fits", "--gpu", "h100-sxm-80gb"], arguments].concat());
        (answer.status, answer.err)
    };
    for (name, more, told) in [
        ("batch.yml", "base_model: Qwen/Qwen3-0.6B\nmicro_batch_size: many", "micro_batch_size: many"),
        ("checkpointing.yml", "base_model: Qwen/Qwen3-0.6B\ngradient_checkpointing: perhaps", "perhaps"),
        ("optimizer.yml", "base_model: Qwen/Qwen3-0.6B\noptimizer: adamw_of_mine", "adamw_of_mine"),
    ] {
        let file = of(name, more);
        let told_in = |err: &str| err.contains("error: the limit was not checked: ") && err.contains(told);
        let (code, err) = status(&[&file]);
        assert!(code == Some(2) && told_in(&err), "{more}: {code:?} {err}");
        let (code, err) = status(&["--from", &file]);
        assert!(code == Some(2) && told_in(&err), "{more}: {code:?} {err}");
        // the answer itself stands
        assert_eq!(headroom(&["estimate", "--from", &file]).status, Some(0), "{more}");
    }
    // what is given in its place is what was asked about
    let folder = of("given.yml", "base_model: ./my/own/model\nmicro_batch_size: many");
    let given = ["--from", &folder, "--model", "Qwen/Qwen3-0.6B", "--batch-size", "2"];
    assert_eq!(status(&given).0, Some(0), "{}", status(&given).1);
    assert_eq!(status(&given[..4]).0, Some(2));
    // a setting that is not known may be anything
    let unknown = of("unknown.yml", "base_model: Qwen/Qwen3-0.6B\nmagic: 1");
    assert_eq!(status(&[&unknown]).0, Some(0), "{}", status(&[&unknown]).1);
}
