//! `headroom oom`: an out-of-memory message decoded in a terminal.

use serde_json::Value;

use super::{file, headroom_with, says};

const LINK: &str = "m=Qwen/Qwen2.5-0.5B&method=full&p=amp-bf16&b=8&s=512&gpu=rtx-4090";
const MESSAGE: &str = "CUDA out of memory. Tried to allocate 2.32 GiB. GPU 0 has a total capacity of 10.00 GiB of which 2.25 GiB is \
                       free. Of the allocated memory 7.10 GiB is allocated by PyTorch, and 657.89 MiB is reserved by PyTorch but unallocated.";

#[test]
fn a_message_is_read_from_standard_input_or_a_log() {
    let out = headroom_with(&["oom", LINK], MESSAGE).out;
    for line in [
        "PyTorch asked for 2.32 GiB, and the card had no room for it.",
        "  log_softmax: 4,096 tokens × 151,936 × 4 bytes (float32)",
        "- 658 MiB that PyTorch had reserved lay unallocated, in pieces. In one piece, with what was free, they would have been enough",
        "- The message's card has 10.0 GiB, the scenario's 23.5 GiB",
        "Loss kernel: Default → Liger fused",
    ] {
        assert!(out.contains(line), "{line} is missing in {out}");
    }
    // the other card is told once
    assert!(!out.contains("with GPU: "), "{out}");
    let log = file("train.log", &format!("step 12: loss 1.5, 500 MB / 2 GB\nTraceback:\n{MESSAGE}\n"));
    assert_eq!(headroom_with(&["oom", "--text", &log, LINK], "").out, out);
}

#[test]
fn json_has_the_figures_and_a_link_for_each_change() {
    let out = headroom_with(&["oom", "--json", LINK], MESSAGE).out;
    let read: Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!(read["suspects"][0]["agrees"], true);
    assert_eq!(read["account"][0]["holder"], "tensors");
    let link = read["remedies"][0]["link"].as_str().expect("a link");
    assert!(link.contains("loss=liger") && link.contains("gpu="), "{link}");
}

#[test]
fn what_is_no_message_says_what_would_be_one() {
    for (arguments, problem) in [
        (&["oom"][..], "error: nothing of an out-of-memory error was found"),
        (&["oom", "-"], "error: standard input is the scenario here"),
        (&["oom", "--text", "no-such.log"], "error: no-such.log: No such file"),
    ] {
        let run = headroom_with(arguments, "");
        assert!(run.err.starts_with(problem), "{}", run.err);
        assert_eq!((run.out.as_str(), run.status), ("", Some(2)));
    }
}

#[test]
fn what_another_run_may_have_been_is_opened_by_its_link() {
    let message = "CUDA out of memory. Tried to allocate 37.09 GiB. GPU 0 has a total capacity of 79.11 GiB of which 20.00 GiB is free. Of the \
                   allocated memory 56.70 GiB is allocated by PyTorch, and 1.00 GiB is reserved by PyTorch but unallocated.";
    let out = headroom_with(&["oom"], message).out;
    let line = out.lines().find(|line| line.contains("65,536 tokens × 151,936")).expect("a guess");
    assert!(line.contains(" are allocated before it"), "{line}");
    assert!(out.contains("\n    headroom estimate 'v=1&m=Qwen/Qwen3-8B"), "{out}");
    assert!(!out.contains("bytes card"), "{out}");
}

#[test]
fn on_a_mac_the_limit_is_told() {
    let message = "MPS backend out of memory (MPS allocated: 17.00 GB, other allocations: 1.00 GB, max allowed: 18.13 GB). Tried to allocate \
                   256.00 MB on private pool.";
    let out = headroom_with(&["oom"], message).out;
    assert!(
        out.contains("lets the process have 18.1 GiB") && out.contains("PYTORCH_MPS_HIGH_WATERMARK_RATIO"),
        "{out}"
    );
}

/// The command is the one that `headroom rules` names.
#[test]
fn what_the_named_command_prints_is_read() {
    let rules = headroom_with(&["rules", "--gpu", "rtx-4090"], "").out;
    let named = rules.lines().find_map(|line| line.split_once("--query-gpu=")).expect("a command").1;
    let fields: Vec<&str> = named.split_once(' ').expect("a format").0.split(',').collect();
    let header = fields.iter().map(|field| format!("{field} [MiB]")).collect::<Vec<_>>().join(", ");
    for (header, row) in [
        (header.as_str(), "23012 MiB, 24564 MiB, 1100 MiB"),
        (header.as_str(), "23012, 24564, 1100"),
        ("", "23012 MiB, 24564 MiB, 1100 MiB"),
        ("", "23012, 24564, 1100"),
    ] {
        let run = headroom_with(&["oom", "--text", "-"], &format!("{header}\n{row}\n"));
        assert_eq!(run.status, Some(0), "{}", run.err);
        assert!(run.out.contains("All processes  22.5 GiB\nFree           1.07 GiB"), "{}", run.out);
    }
}

#[test]
fn what_a_text_offers_to_change_is_a_link() {
    let table = "|   0  NVIDIA GeForce RTX 3090        Off |   00000000:01:00.0  On |   22987MiB /  24576MiB |    100%      Default |\n\
                 |    0   N/A  N/A            1822      G   /usr/lib/xorg/Xorg                      435MiB |\n\
                 |    0   N/A  N/A           23412      C   python                                22520MiB |";
    let out = headroom_with(&["oom", "gpu=rtx-4090"], table).out;
    for line in [
        "The process that trains  22.0 GiB",
        "- python (process 23412) has 22.0 GiB of the card, and beside it Xorg 435 MiB.",
        "GPU: GeForce RTX 4090 → GeForce RTX 3090",
        "Memory in use: 0 MiB → 435 MiB",
        "  headroom estimate 'v=1&gpu=rtx-3090'",
        "  headroom estimate 'v=1&used=435'",
    ] {
        assert!(out.contains(line), "{line} is missing in {out}");
    }
    let json: Value =
        serde_json::from_str(&headroom_with(&["oom", "--json", "gpu=rtx-4090"], table).out).expect("JSON");
    assert_eq!(json["offers"][1]["link"], "v=1&used=435");
    let killed =
        headroom_with(&["oom"], "Out of memory: Killed process 1234 (python) anon-rss:67108864kB").out;
    assert!(killed.starts_with("- The system killed the process"), "{killed}");
}

#[test]
fn a_log_may_stand_where_a_scenario_does() {
    let text = format!("step 12: loss 1.5, 500 MB / 2 GB\nTraceback:\n{MESSAGE}\n");
    let flags = ["--model", "Qwen/Qwen2.5-0.5B", "--method", "full", "--precision", "amp-bf16"];
    let rest = ["--batch-size", "8", "--seq-length", "512", "--gpu", "rtx-4090"];
    let asked = |first: &[&str]| headroom_with(&[&["oom"], first, &flags, &rest].concat(), "").out;
    let log = file("error.log", &text);
    let out = asked(&["--text", &log]);
    assert!(out.contains("  log_softmax: 4,096 tokens × 151,936 × 4 bytes (float32)"), "{out}");
    assert_eq!(asked(&[&log]), out);
    // whatever it is called, where it is no scenario
    assert_eq!(asked(&[&file("slurm-1234", &text)]), out);
    // a file that is one stays one: standard input is the message
    let scenario = file("run.toml", "# CUDA out of memory. Tried to allocate 1.00 GiB.\nmodel = \"gpt2\"\n");
    let run = headroom_with(&["oom", &scenario], MESSAGE);
    assert!(
        run.out.contains("PyTorch asked for 2.32 GiB") && run.out.contains("This scenario is not that run"),
        "{} {}",
        run.out,
        run.err
    );
    // and what is neither says what stands there
    let run = headroom_with(&["oom", &file("other.log", "nothing of it\n")], "");
    assert!(run.err.contains("or a log with an error that is known here"), "{}", run.err);
}

/// The commonest message on clusters is a log of the computer's memory; what is no message of PyTorch's is named.
#[test]
fn logs_of_others_are_named() {
    let slurm = "slurmstepd: error: Detected 1 oom-kill event(s) in StepId=1234.0. Some of your processes may have been killed by the cgroup out-of-memory handler.\n";
    let out = says(&["oom", &file("slurm.log", slurm)]);
    assert!(out.contains("computer's"), "{out}");
    for (name, text, whose) in [
        (
            "jax.log",
            "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 2147483648 bytes.\n",
            "JAX",
        ),
        (
            "tf.log",
            "OOM when allocating tensor with shape[32,512,30522] and type float on /job:localhost by allocator GPU_0_bfc\n",
            "TensorFlow",
        ),
        (
            "llama.log",
            "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 8192.00 MiB on device 0: cudaMalloc failed: out of memory\n",
            "llama.cpp",
        ),
        (
            "load.log",
            "ValueError: Some modules are dispatched on the CPU or the disk. Make sure you have enough GPU RAM\n",
            "as it loads",
        ),
    ] {
        let log = file(name, text);
        for arguments in [&["oom", &log][..], &["oom", "--text", &log]] {
            let run = headroom_with(arguments, "");
            assert!(run.err.contains(whose) && !run.err.contains("mapping"), "{arguments:?}: {}", run.err);
        }
    }
}
