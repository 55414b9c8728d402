//! What a text says of the scenario itself (its card, who else has memory of it, the computer's memory, vLLM's share) and what it offers to change;
//! texts of other allocators and libraries.

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
    assert_eq!(found.guesses[0].vocabulary, Some(151_936));
    // what is allocated in its run, said again, is no other amount
    let there = found.guesses[0].allocated.expect("it is looked at");
    let same = LOGITS.replace("57.50 GiB is", &format!("{:.2} GiB is", there.as_gib()));
    assert_eq!(decoded(&same, "gpu=a100-sxm-80gb").guesses[0].said, None, "{there}");
    let words = found.guesses[0].in_words(|bytes| bytes.to_string());
    assert!(words.ends_with(", and the message says 57.5 GiB"), "{words}");
    // with tens of percent less in every run it is none of them
    let less = decoded(&LOGITS.replace("57.50 GiB is", "31.00 GiB is"), "gpu=a100-sxm-80gb");
    let off = |bytes: Bytes| bytes.0.abs_diff(Bytes::gib(31.0).0);
    assert!(
        less.guesses
            .iter()
            .all(|guess| guess.allocated.is_some_and(|bytes| off(bytes) * 10 <= Bytes::gib(31.0).0))
    );
    assert_eq!(
        less.guesses.is_empty(),
        said(&less).contains("Which tensor it was is not known"),
        "{:?}",
        less.guesses
    );
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

/// The rows of a message's account: what they are called and what they have.
fn account(decoded: &Decoded) -> Vec<(Holder, String)> {
    decoded.account.iter().map(|(holder, bytes)| (*holder, bytes.to_string())).collect()
}

fn rows<const N: usize>(rows: [(Holder, &str); N]) -> Vec<(Holder, String)> {
    rows.map(|(holder, words)| (holder, words.to_owned())).into()
}

/// github.com/AIFSH/ComfyUI-ChatTTS/issues/9: `c10/cuda/CUDAMallocAsyncAllocator.cpp`.
const POOL: &str =
    "torch.cuda.OutOfMemoryError: Allocation on device 0 would exceed allowed memory. (out of memory)
Currently allocated     : 6.89 GiB
Requested               : 320.00 MiB
Device limit            : 23.69 GiB
Free (according to CUDA): 2.94 MiB
PyTorch limit (set by user-supplied memory fraction)
                        : 17179869184.00 GiB";

#[test]
fn cudas_own_allocator_is_read() {
    let found = decoded(POOL, "gpu=rtx-4090");
    let headline = found.headline(|bytes| bytes.to_string());
    assert_eq!(headline.as_deref(), Some("PyTorch asked for 320 MiB, and the card had no room for it."));
    let expected =
        [(Holder::Tensors, "6.89 GiB"), (Holder::AllButTensors, "16.8 GiB"), (Holder::Nobody, "2.94 MiB")];
    assert_eq!(account(&found), rows(expected));
    let words = said(&found);
    assert!(words.contains("16.8 GiB of what was in use were no tensors"), "{words}");
    assert!(!words.contains("Fragmentation") && !words.contains("more than was free"), "{words}");
    // what it asks for is a tensor's own size: 560 MB are 4,096 × 4 × 8,960 × 2 - 1 MiB, which PyTorch's allocator rounds up to 560 MiB
    let link = "m=Qwen/Qwen2.5-1.5B&method=lora&st=transformers&p=bf16&b=4&s=4095&gpu=rtx-4090&gc=off";
    let text = POOL.replace("6.89", "22.58").replace("320.00 MiB", "559.86 MiB");
    let tensor = decoded(&text, link).suspects.first().map(|first| first.line.formula.clone());
    assert!(tensor.as_ref().is_some_and(|formula| formula.contains("8,960")), "{tensor:?}");
    // and where it is small nothing is said of it, as segments have no part in it
    let small = decoded(&POOL.replace("320.00", "20.00").replace("6.89", "20.11"), "gpu=rtx-4090");
    assert!(!said(&small).contains("is what the allocator asks for"), "{}", said(&small));
    // a limit of its own, with room
    let limited = POOL.replace("17179869184.00", "7.00").replace("2.94 MiB", "16.10 GiB");
    let limited = decoded(&limited, "gpu=rtx-4090");
    assert!(said(&limited).contains("the process is limited to 7.00 GiB"), "{}", said(&limited));
}

/// github.com/rowanz/neural-motifs/issues/58 and github.com/MVIG-SJTU/AlphaPose/issues/154.
#[test]
fn a_pytorch_that_had_no_figures_is_read() {
    for file in
        ["/pytorch/aten/src/THC/THCTensorRandom.cu:25", "/pytorch/aten/src/THC/generic/THCStorage.cu:58"]
    {
        let found = decoded(
            &format!("RuntimeError: cuda runtime error (2) : out of memory at {file}"),
            "gpu=rtx-4090",
        );
        assert_eq!(found.findings, [Finding::OfOldPyTorch], "{file}");
        assert!(found.message.requested.is_none() && found.account.is_empty());
    }
    let other = "cuda runtime error (38) : no CUDA-capable device is detected at /pytorch/aten/src/THC/THCGeneral.cpp:74";
    assert!(decode(other, &linked("gpu=rtx-4090")).is_err());
}

/// github.com/bitsandbytes-foundation/bitsandbytes/issues/959 and github.com/jllllll/bitsandbytes-windows-webui/issues/14.
#[test]
fn what_bitsandbytes_prints_is_read() {
    let managed = "Error out of memory at line 380 in file /mmfs1/gscratch/zlab/timdettmers/git/bitsandbytes/csrc/pythonInterface.c";
    let found = decoded(managed, "o=paged-adamw-8bit&gpu=rtx-4090");
    assert!(said(&found).contains("paged optimizers keep their state"), "{}", said(&found));
    assert_eq!(offered(&found), ["Optimizer: AdamW 8-bit"]);
    assert_eq!(offered(&decoded(managed, "o=adamw&gpu=rtx-4090")), [""; 0]);
    // what makes the card's run smaller is no answer to it
    let large = decoded(managed, "method=full&b=64&o=paged-adamw-8bit&gpu=rtx-4090");
    assert_eq!(remedies(&large), Ok(Vec::new()));
    let kernel = "Error out of memory at line 88 in file D:\\a\\bitsandbytes-windows-webui\\bitsandbytes-windows-webui\\csrc\\ops.cu";
    let found = decoded(kernel, "o=paged-adamw-8bit&gpu=rtx-4090");
    assert!(said(&found).contains("one of its kernels") && offered(&found).is_empty(), "{}", said(&found));
}

#[test]
fn what_vllm_has_no_room_for_is_told() {
    let none = "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when initializing the engine.";
    let tokens = "ValueError: The model's max seq len (131072) is larger than the maximum number of tokens that can be stored in KV cache (89440). Try \
                  increasing `gpu_memory_utilization` or decreasing `max_model_len` when initializing the engine.";
    let bytes = "ValueError: To serve at least one request with the models's max seq len (40960), (5.62 GiB KV cache is needed, which is larger than the \
                 available KV cache memory (4.50 GiB). Based on the available memory, the estimated maximum model length is 32768. Try increasing \
                 `gpu_memory_utilization` or decreasing `max_model_len` when initializing the engine.";
    for (text, headline, words) in [
        (none, "left nothing for keys and values", "They took all of it"),
        (
            tokens,
            "room for the keys and values of 89,440 tokens, and one sequence may have 131,072",
            "max_model_len=89440 has room",
        ),
        (
            bytes,
            "needs 5.62 GiB for the keys and values of one sequence, and its share of the card left 4.50 GiB",
            "max_model_len=32768 has room",
        ),
    ] {
        let found = decoded(text, "gpu=rtx-4090");
        let told = found.headline(|bytes| bytes.to_string()).unwrap_or_default();
        assert!(told.contains(headline), "{told}");
        assert!(said(&found).contains(words), "{}", said(&found));
        assert_eq!(remedies(&found), Ok(Vec::new()));
    }
    // beside a training in the same process
    let beside = |share: u64| {
        offered(&decoded(none, &format!("task=grpo&m=Qwen/Qwen2.5-1.5B&vllm={share}&gpu=rtx-4090")))
    };
    assert!(beside(5)[0].starts_with("vLLM's share of the card: "), "{:?}", beside(5));
    assert_eq!(beside(60), [""; 0]);
}

/// github.com/pytorch/pytorch's `c10/xpu/XPUCachingAllocator.cpp` of 2.6, which does not say what was free, and of 2.9, which does
/// (github.com/intel/torch-xpu-ops/issues/3157).
#[test]
fn what_a_message_does_not_say_to_be_free_is_not_the_drivers() {
    let old = "XPU out of memory. Tried to allocate 1.96 GiB. GPU 0 has a total capacity of 15.91 GiB. Of the allocated memory 13.10 GiB is allocated by \
               PyTorch, and 500.00 MiB is reserved by PyTorch but unallocated. Please use `empty_cache` to release all unoccupied cached memory.";
    let unknown = (Holder::OutsideOthersAndNobody, "2.32 GiB");
    let tensors = [(Holder::Tensors, "13.1 GiB"), (Holder::FreeBlocks, "500 MiB")];
    assert_eq!(account(&decoded(old, "gpu=rtx-4090")), rows([tensors[0], tensors[1], unknown]));
    let new = old.replace("15.91 GiB. Of", "15.91 GiB of which 1.50 GiB is free. Of");
    let beside = [(Holder::OutsideAndOthers, "841 MiB"), (Holder::Nobody, "1.50 GiB")];
    assert_eq!(account(&decoded(&new, "gpu=rtx-4090")), rows([tensors[0], tensors[1], beside[0], beside[1]]));
}

/// GPT-2 on a Mac mini with 18 GB that a project's notes have, in GB, and github.com/pytorch/pytorch from 2.6 on in GiB.
#[test]
fn a_macs_other_allocations_are_shown() {
    let old = "RuntimeError: MPS backend out of memory (MPS allocated: 16.06 GB, other allocations: 1.32 GB, max allowed: 18.13 GB). Tried to allocate \
               785.27 MB on private pool. Use PYTORCH_MPS_HIGH_WATERMARK_RATIO=0.0 to disable upper limit for memory allocations (may cause system failure).";
    let new = "RuntimeError: MPS backend out of memory (MPS allocated: 11.70 GiB, other allocations: 14.83 GiB, max allowed: 27.20 GiB). Tried to allocate \
               952.00 MiB on private pool. ";
    for (text, amounts) in
        [(old, ["16.1 GiB", "1.32 GiB", "768 MiB"]), (new, ["11.7 GiB", "14.8 GiB", "686 MiB"])]
    {
        let [tensors, other, left] = amounts;
        let expected = [(Holder::Tensors, tensors), (Holder::BesideMetal, other), (Holder::Nobody, left)];
        assert_eq!(account(&decoded(text, "gpu=rtx-4090")), rows(expected));
    }
}

/// PyTorch's own words: "if reserved memory is >> allocated". 174 MiB of a full T4 are blocks that were rounded.
#[test]
fn a_full_card_is_not_called_fragmented() {
    let full = "CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 14.76 GiB total capacity; 13.41 GiB already allocated; 13.75 MiB free; \
                13.58 GiB reserved in total by PyTorch) If reserved memory is >> allocated memory try setting max_split_size_mb to avoid \
                fragmentation.";
    let found = decoded(full, "m=Qwen/Qwen2.5-1.5B&gpu=t4");
    let words = said(&found);
    assert!(words.contains("The card was full") && !words.contains("Fragmentation"), "{words}");
    // a side note, and nothing that is offered by itself
    assert!(words.contains("expandable_segments:True"), "{words}");
    assert!(!offered(&found).iter().any(|offer| offer.starts_with("Allocator")), "{:?}", offered(&found));
    // half of the card in pieces is the cause
    let pieces = full.replace("13.41 GiB already", "7.41 GiB already");
    let words = said(&decoded(&pieces, "m=Qwen/Qwen2.5-1.5B&gpu=t4"));
    assert!(words.contains("Fragmentation"), "{words}");
}

/// A process or a card with a number proves others beside it.
#[test]
fn a_rank_is_of_a_run_of_several_gpus() {
    let several =
        linked("m=Qwen/Qwen2.5-7B&method=full&p=bf16&b=16&s=2048&gpu=h100-sxm-80gb&gpus=4&shard=fsdp2");
    let text = |allocated: f64, who: &str| {
        format!(
            "{who}torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 18.56 GiB. GPU 0 has a total capacity of 79.11 GiB of which \
             1.00 GiB is free. Of the allocated memory {allocated:.2} GiB is allocated by PyTorch, and 1.00 GiB is reserved by PyTorch but unallocated."
        )
    };
    // what that run has when its logits are asked for
    let found = decode(&text(30.0, ""), &several).expect("a message");
    let allocated = found.suspects.first().expect("logits").allocated.0 as f64 / f64::from(1 << 30);
    let guessed = |who: &str| {
        let decoded =
            decode(&text(allocated, who), &linked("m=Qwen/Qwen2.5-7B&gpu=h100-sxm-80gb")).expect("a message");
        let runs = decoded
            .likely
            .iter()
            .map(|run| &run.scenario)
            .chain(decoded.guesses.iter().map(|guess| &guess.scenario));
        runs.map(|run| run.cluster.gpus).collect::<Vec<_>>()
    };
    let of_rank = guessed("[rank3]: ");
    assert!(!of_rank.is_empty() && of_rank.iter().all(|gpus| *gpus == 4), "{of_rank:?}");
    assert!(guessed("").iter().all(|gpus| *gpus == 1));
}
