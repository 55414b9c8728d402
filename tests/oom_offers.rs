//! What a text says of the scenario itself (its card, who else has memory of it, the computer's memory, vLLM's share) and what it offers to change.

#![cfg(not(target_arch = "wasm32"))]

use headroom::hardware::Vendor;
use headroom::oom::{Decoded, Finding, Holder, decode, remedies};
use headroom::plan::Verdict;
use headroom::scenario::{Scenario, Sharding};
use headroom::share;
use headroom::units::Bytes;

fn linked(link: &str) -> Scenario {
    let shared = share::decode(link);
    assert!(shared.notices.is_empty(), "{link}: {:?}", shared.notices);
    shared.scenarios.into_iter().next().expect("a link holds a scenario")
}

fn decoded(text: &str, link: &str) -> Decoded {
    decode(text, &linked(link)).expect("something is said")
}

/// What is offered: `GPU: GeForce RTX 3090`.
fn offered(decoded: &Decoded) -> Vec<String> {
    let words = |changes: &[headroom::plan::Change]| {
        changes.iter().map(|change| format!("{}: {}", change.label, change.to)).collect::<Vec<_>>().join(", ")
    };
    decoded.offers.iter().map(|offer| words(&offer.changes)).collect()
}

fn said(decoded: &Decoded) -> String {
    decoded.findings.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

const TABLE: &str = "\
|   0  NVIDIA GeForce RTX 3090        Off |   00000000:01:00.0  On |                  N/A |
| 65%   71C    P2            345W /  350W |   22987MiB /  24576MiB |    100%      Default |
|   1  NVIDIA GeForce RTX 3090        Off |   00000000:02:00.0 Off |                  N/A |
| 30%   45C    P8             25W /  350W |      12MiB /  24576MiB |      0%      Default |
| Processes:                                                                              |
|    0   N/A  N/A            1822      G   /usr/lib/xorg/Xorg                      435MiB |
|    0   N/A  N/A           23412      C   python                                22520MiB |";

#[test]
fn the_card_and_what_others_have_are_taken_from_nvidia_smi() {
    let found = decoded(TABLE, "gpu=rtx-4090");
    assert!(
        said(&found)
            .starts_with("python (process 23412) has 22.0 GiB of the card, and beside it Xorg 435 MiB.")
    );
    assert_eq!(offered(&found), ["GPU: GeForce RTX 3090", "Memory in use: 435 MiB"]);
    let of_process = found.account.iter().find(|(holder, _)| *holder == Holder::Process);
    assert_eq!(of_process.map(|(_, bytes)| *bytes), Some(Bytes::mib(22_520)));
    // what was taken is not offered again, and the card is the same one
    let taken = decoded(TABLE, "gpu=rtx-3090&used=435");
    assert_eq!(offered(&taken), [""; 0]);
    assert!(!said(&taken).contains("The message's card"), "{}", said(&taken));
    // of a run that failed the processes are those of later
    let text = format!("CUDA out of memory. Tried to allocate 2.32 GiB.\n{TABLE}");
    assert_eq!(offered(&decoded(&text, "gpu=rtx-3090")), [""; 0]);
}

#[test]
fn rows_of_the_query_of_processes_are_read() {
    let text =
        "pid, process_name, used_gpu_memory [MiB]\n23412, /opt/bin/python3, 14850 MiB\n7, ollama, 900 MiB";
    let found = decoded(text, "gpu=rtx-4090");
    assert_eq!(offered(&found), ["Memory in use: 900 MiB"]);
    // the default scenario comes to 14.5 GiB
    let agrees = |finding: &Finding| matches!(finding, Finding::Beside { agrees: true, .. });
    assert!(found.findings.iter().any(agrees), "{}", said(&found));
}

#[test]
fn what_other_processes_had_is_taken_from_a_message() {
    let text = "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 23.64 GiB of which 1.50 MiB is free. Process 41 \
                has 3.00 GiB memory in use. Including non-PyTorch memory, this process has 20.60 GiB memory in use.";
    assert_eq!(offered(&decoded(text, "gpu=rtx-4090")), ["Memory in use: 3,072 MiB"]);
}

const REFUSED: &str = "RuntimeError: [enforce fail at alloc_cpu.cpp:114] data. DefaultCPUAllocator: not enough memory: you tried to allocate \
                       68719476736 bytes. Error code 12 (Cannot allocate memory)";

#[test]
fn the_computers_memory_is_told_from_the_cards() {
    let found = decoded(REFUSED, "gpu=rtx-4090");
    let headline = found.headline(|bytes| bytes.to_string()).expect("an amount");
    assert!(headline.starts_with("64.0 GiB of the computer's memory (RAM)"), "{headline}");
    assert!(said(&found).contains("No tensor of this scenario's step waits there"), "{}", said(&found));
    assert_eq!(offered(&found), [""; 0]);
    // what makes a card's run smaller is no help, however large that is
    assert_eq!(remedies(&decoded(REFUSED, "method=full&b=64&gpu=rtx-4090")), Ok(Vec::new()));
    for killed in [
        "Out of memory: Killed process 1234 (python) total-vm:9kB, anon-rss:8kB",
        "Killed",
        "exitcode  : -9 (pid: 7)",
    ] {
        let found = decoded(killed, "gpu=rtx-4090");
        assert!(said(&found).contains("the computer's own memory (RAM)"), "{killed}: {}", said(&found));
        assert_eq!(found.headline(|bytes| bytes.to_string()), None);
    }
    // processes end each other where one of them finds a card full
    let text = "CUDA out of memory. Tried to allocate 2.32 GiB.\nexitcode  : -9 (pid: 7)";
    assert!(!said(&decoded(text, "gpu=rtx-4090")).contains("(RAM)"));
}

#[test]
fn what_the_scenario_keeps_in_the_computers_memory_can_be_undone() {
    for (link, change) in [
        ("m=Qwen/Qwen2.5-1.5B&st=trl&offload=on", "Activation offloading: Off"),
        ("m=Qwen/Qwen2.5-1.5B&method=full&o=adamw-cpu-offload", "Optimizer: AdamW"),
        ("m=Qwen/Qwen2.5-1.5B&method=full&p=bf16&gpus=2&shard=zero3&cpu=all", "CPU offload: Off"),
        ("m=Qwen/Qwen2.5-1.5B&eval=metrics&evn=100&evacc=1", "Evaluation: Loss only"),
    ] {
        let found = decoded(REFUSED, link);
        assert!(said(&found).contains("In this scenario: "), "{link}: {}", said(&found));
        let offers = offered(&found);
        assert!(offers.iter().any(|offer| offer.starts_with(change)), "{link}: {offers:?}");
        let undone = &found.offers[0].scenario;
        assert!(found.offers[0].why.contains("on the card: "), "{}", found.offers[0].why);
        assert!(!undone.cluster.is_many() || undone.cluster.sharding == Sharding::Zero3);
    }
}

#[test]
fn vllms_share_that_is_taken_is_told() {
    let text = "ValueError: Free memory on device (3.21/23.64 GiB) on startup is less than desired GPU memory utilization (0.9, 21.28 GiB). \
                Decrease GPU memory utilization or reduce GPU memory used by other processes.";
    for text in [text.to_owned(), text.replace("device (", "device cuda:0 (")] {
        let found = decoded(&text, "gpu=rtx-4090");
        assert!(said(&found).contains("Others held 20.4 GiB: another process"), "{}", said(&found));
        assert_eq!(offered(&found), ["Memory in use: 20,921 MiB"]);
        assert_eq!(remedies(&found), Ok(Vec::new()));
        // the card with so much in use is the same card
        assert!(!said(&decoded(&text, "gpu=rtx-4090&used=20921")).contains("The message's card"));
    }
    // beside a training in the same process it is the share that changes, as far as what was free has room for it
    let beside = |free: &str| {
        offered(&decoded(&text.replace("3.21", free), "task=grpo&m=Qwen/Qwen2.5-1.5B&vllm=60&gpu=rtx-4090"))
    };
    assert_eq!(beside("9.50"), ["vLLM's share of the card: 40 %"]);
    assert_eq!(beside("0.50"), [""; 0]);
    // a server's card is none of the scenario's
    assert_eq!(offered(&decoded(text, "task=grpo&m=Qwen/Qwen2.5-1.5B&gpu=rtx-4090")), [""; 0]);
}

/// github.com/pinokiocomputer/pinokio/issues/941, an M1 Pro with 16 GB; github.com/lllyasviel/Fooocus/issues/980, 8 GB;
/// github.com/BoBo0037/bobo-fun/issues/8, an M1 Max with 64 GB: 1.7 times what Metal recommends there.
#[test]
fn a_macs_limit_names_a_mac() {
    let text = |allowed: &str| {
        format!(
            "RuntimeError: MPS backend out of memory (MPS allocated: 6.00 GB, other allocations: 720.00 KB, max allowed: {allowed} GB). Tried to \
             allocate 1.00 GB on private pool."
        )
    };
    for (allowed, gigabytes) in [("9.07", 8), ("18.13", 16), ("81.60", 64), ("6.80", 8)] {
        let found = decoded(&text(allowed), "gpu=rtx-4090");
        let gpu = found.scenario.gpu().expect("a card");
        assert_eq!(
            (gpu.vendor, gpu.marketed_gb),
            (Vendor::Apple, Some(gigabytes)),
            "{allowed}: {}",
            gpu.name
        );
        assert!(said(&found).contains(&format!("looked at on an {}", gpu.name)), "{}", said(&found));
        assert!(!said(&found).contains("The message's card"), "{}", said(&found));
    }
    let link = "m=Qwen/Qwen2.5-0.5B&method=lora&p=fp32&b=1&s=512";
    assert_eq!(decoded(&text("18.13"), link).verdict, Some(Verdict::NotFollowed));
    // the scenario's own where that has the limit
    let own = decoded(&text("18.13"), &format!("{link}&gpu=apple-m2-pro-16gb"));
    assert!(own.card.is_empty() && own.offers.is_empty(), "{:?}", own.offers);
    // what no Mac has
    assert!(decoded(&text("9000"), link).card.is_empty());
}

#[test]
fn pieces_can_be_joined_whatever_run_it_was() {
    let text = "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 224.00 MiB. GPU 0 has a total capacty of 23.69 GiB of which 114.69 \
                MiB is free. Including non-PyTorch memory, this process has 23.56 GiB memory in use. Of the allocated memory 16.90 GiB is allocated by \
                PyTorch, and 6.23 GiB is reserved by PyTorch but unallocated.";
    let found = decoded(text, "gpu=rtx-4090");
    assert!(!found.is_of_the_run(), "{:?}", found.suspects);
    assert_eq!(offered(&found), ["Allocator: Expandable segments"]);
    // who has it already is told otherwise
    assert_eq!(offered(&decoded(text, "gpu=rtx-4090&alloc=expandable")), [""; 0]);
}

const LOGITS: &str = "Traceback (most recent call last):
  File \"transformers/loss/loss_utils.py\", line 55, in ForCausalLMLoss
    logits = logits.float()
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 37.09 GiB. GPU 0 has a total capacity of 79.15 GiB of which 20.12 GiB is free. Of the \
allocated memory 57.50 GiB is allocated by PyTorch, and 1.02 GiB is reserved by PyTorch but unallocated.";

#[test]
fn the_traceback_stands_where_one_tensor_is_made() {
    let found = decoded(LOGITS, "m=Qwen/Qwen3-8B&method=lora&b=32&gpu=a100-sxm-80gb");
    let placed: Vec<&str> = found
        .suspects
        .iter()
        .filter(|suspect| suspect.place.is_some())
        .map(|suspect| &*suspect.line.what)
        .collect();
    assert_eq!((placed, found.suspects.len()), (vec!["cast"], 3), "{:?}", found.suspects);
}

#[test]
fn a_guess_has_what_the_message_says_or_says_that_it_has_not() {
    let found = decoded(LOGITS, "gpu=a100-sxm-80gb");
    assert_eq!(found.guesses.len(), 1, "{:?}", found.guesses);
    assert_eq!((found.guesses[0].vocabulary, found.guesses[0].said), (151_936, None));
    let less = decoded(&LOGITS.replace("57.50 GiB is", "31.00 GiB is"), "gpu=a100-sxm-80gb");
    let off = |bytes: Bytes| bytes.0.abs_diff(Bytes::gib(31.0).0);
    let all: Vec<u64> = less.guesses.iter().filter_map(|guess| guess.allocated.map(off)).collect();
    assert!(all.is_sorted(), "{all:?}");
    assert!(!less.guesses.is_empty());
    for guess in &less.guesses {
        let words = guess.in_words(|bytes| bytes.to_string());
        let differs = guess.allocated.is_some_and(|bytes| off(bytes) * 10 > Bytes::gib(31.0).0);
        assert_eq!(words.contains("the message says 31.0 GiB"), differs, "{words}");
    }
}

/// Where the card's memory is the computer's, what makes the run smaller helps; elsewhere it does not.
#[test]
fn a_kill_on_a_card_that_shares_the_computers_memory_is_of_the_run() {
    let text =
        "[ 1234.5] Out of memory: Killed process 4242 (python) total-vm:91234560kB, anon-rss:67108864kB";
    let large = "m=meta-llama/Llama-3.1-70B&method=full&p=bf16";
    let shared = decoded(text, &format!("{large}&gpu=gb10"));
    let said: Vec<String> = shared.findings.iter().map(ToString::to_string).collect();
    assert!(said.iter().any(|said| said.contains("what makes the run smaller helps")), "{said:?}");
    assert!(!said.iter().any(|said| said.contains("has no part in it")), "{said:?}");
    assert!(!remedies(&shared).unwrap().is_empty());
    let apart = decoded(text, &format!("{large}&gpu=h100-sxm-80gb"));
    assert!(remedies(&apart).unwrap().is_empty());
}

/// The other processes of a run are killed where one finds no memory on its card: that is told, and not theirs.
#[test]
fn a_signal_beside_a_drivers_message_is_no_kill() {
    let text = "RuntimeError: CUDA error: out of memory\n  exitcode  : -9 (pid: 4242)\n";
    let found = decoded(text, "gpu=rtx-4090");
    assert!(found.message.host.is_none() && found.message.is_of_driver, "{:?}", found.message);
}
