//! Out-of-memory messages: what PyTorch said of runs on cards that were too small, decoded.

#![cfg(not(target_arch = "wasm32"))]

#[path = "oom/frames.rs"]
mod frames;
#[path = "oom/outside.rs"]
mod outside;

use headroom::hardware::Vendor;
use headroom::oom::{At, Decoded, Engine, Figure, Finding, Joining, Kind, Place, decode, remedies};
use headroom::scenario::{AttentionKernel, GpuChoice, Precision, Scenario};
use headroom::share;
use headroom::units::Bytes;
use serde_json::Value;

/// What `tools/run_script.py` printed on a device with too little memory, as `data/SOURCES.md` says, with what the line of
/// Python that met the error was about to make.
const FAILED: &str = include_str!("fixtures/oom.json");

fn linked(link: &str) -> Scenario {
    let shared = share::decode(link);
    assert!(shared.notices.is_empty(), "{link}: {:?}", shared.notices);
    shared.scenarios.into_iter().next().expect("a link holds a scenario")
}

#[test]
fn the_tensor_is_the_one_that_the_traceback_names() {
    let rows: Vec<Value> = serde_json::from_str(FAILED).expect("the rows are JSON");
    assert!(rows.len() >= 9, "{} rows", rows.len());
    for row in rows {
        let text = |key: &str| row[key].as_str().unwrap_or_else(|| panic!("a row has {key}"));
        let decoded = decode(text("message"), &linked(text("link"))).expect("a message");
        let first =
            decoded.suspects.first().unwrap_or_else(|| panic!("{}: nothing of that size", text("link")));
        let found = format!("{}: {} in the {}", first.line.what, first.line.why, first.phase);
        assert!(found.contains(text("tensor")), "{}: {found}, and it was {}", text("link"), text("at"));
        assert_eq!(first.agrees, Some(true), "{}: {found} at {}", text("link"), first.allocated);
        // with its line above it the message means the same tensor, made at the place that the line names, if it names one
        let whole = format!("Traceback (most recent call last):\n    {}\n{}", text("at"), text("message"));
        let placed = decode(&whole, &linked(text("link"))).expect("a message");
        assert_eq!(placed.suspects[0].line, first.line, "{whole}");
        let named = ["exp_avg_sq", ".softmax(", "attn_weights = ", "run_backward", "cross_entropy"];
        let is_named = named.iter().any(|word| text("at").contains(word));
        assert_eq!(placed.suspects[0].place.is_some(), is_named, "{whole}");
    }
}

/// Other versions of the libraries and other cards move a run by more than was measured without a GPU.
#[test]
fn a_run_is_known_again_as_nearly_as_real_cards_are_predicted() {
    let scenario = linked("m=meta-llama/Llama-3.1-8B&gpu=rtx-3060-12gb");
    for (allocated, is_this_one) in [("11.00", true), ("10.70", true), ("8.00", false)] {
        let text = format!(
            "CUDA out of memory. Tried to allocate 1002.00 MiB. GPU 0 has a total capacity of 11.76 GiB of which 100.00 MiB is free. \
             Of the allocated memory {allocated} GiB is allocated by PyTorch, and 300.00 MiB is reserved by PyTorch but unallocated."
        );
        let decoded = decode(&text, &scenario).expect("a message");
        let agrees = decoded.suspects.first().and_then(|suspect| suspect.agrees);
        assert_eq!(agrees, Some(is_this_one), "{allocated}: {:?}", decoded.suspects);
    }
}

#[test]
fn a_remedy_fits_or_asks_for_less() {
    let link = "m=Qwen/Qwen2.5-0.5B&method=full&p=amp-bf16&b=8&s=512&gpu=rtx-4090";
    let text = "CUDA out of memory. Tried to allocate 2.32 GiB. GPU 0 has a total capacity of 10.00 GiB of which 2.25 GiB is free. Of \
                the allocated memory 7.10 GiB is allocated by PyTorch, and 657.89 MiB is reserved by PyTorch but unallocated.";
    let decoded = decode(text, &linked(link)).expect("a message");
    let remedies = remedies(&decoded).expect("changes");
    assert_eq!(remedies[0].changes[0].label, "Loss kernel");
    // joining the pieces is offered too, and not first: the whole run would need more than the card has
    let joined = remedies.iter().position(|lever| lever.changes[0].label == "Allocator");
    assert!(joined.is_some_and(|at| at > 0), "{remedies:?}");
}

#[test]
fn another_run_is_not_taken_for_this_one() {
    let text = "CUDA out of memory. Tried to allocate 37.09 GiB. GPU 0 has a total capacity of 79.10 GiB of which 1.00 GiB is free. Of \
                the allocated memory 60.00 GiB is allocated by PyTorch, and 2.00 GiB is reserved by PyTorch but unallocated.";
    let decoded = decode(text, &Scenario::default()).expect("a message");
    assert!(decoded.suspects.is_empty() && decoded.findings.contains(&Finding::NoSuchTensor), "{decoded:?}");
    assert_eq!(decoded.guesses[0].formula, "65,536 tokens × 151,936 × 4 bytes (float32)");
    // taken, it is not offered again: the message says more than it has
    let taken = decode(text, &decoded.guesses[0].scenario).expect("a message");
    assert!(!taken.is_of_the_run());
    let itself = taken.guesses.iter().filter(|guess| *guess.scenario == *taken.scenario);
    assert_eq!(itself.count(), 0, "{:?}", taken.guesses);
}

#[test]
fn what_cannot_be_said_is_not_said() {
    let decoded = |text: &str, link: &str| decode(text, &linked(link)).expect("a message");
    let text = "CUDA out of memory. Tried to allocate 2.30 GiB. GPU 0 has a total capacity of 23.64 GiB of which 60.00 MiB is free. Of the \
                allocated memory 20.00 GiB is allocated by PyTorch, and 2.00 GiB is reserved by PyTorch but unallocated.";
    // a scenario that nobody can run is not compared with the message
    let unanswered = decoded(text, "gpus=4&shard=fsdp2&st=litgpt");
    let is_reason = |finding: &Finding| matches!(finding, Finding::NoAnswer { .. });
    assert!(unanswered.findings.iter().any(is_reason), "{:?}", unanswered.findings);
    assert!(!unanswered.findings.contains(&Finding::NoSuchTensor));
    // what fits as it is has nothing to remove
    assert!(remedies(&decoded(text, "gpu=rtx-4090")).expect("changes").is_empty());
    // a full card of a far larger run
    let full = "CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of 79.10 GiB of which 10.00 MiB is free. Of the \
                allocated memory 77.00 GiB is allocated by PyTorch, and 1.00 GiB is reserved by PyTorch but unallocated.";
    let is_larger = |finding: &Finding| matches!(finding, Finding::MoreThanRun { .. });
    assert!(decoded(full, "gpu=rtx-4090").findings.iter().any(is_larger));
    assert!(!decoded(full, "method=full&p=bf16&b=64&gpu=a100-sxm-80gb").findings.iter().any(is_larger));
    // what fits comes first
    let text = "CUDA out of memory. Tried to allocate 62.62 GiB. GPU 0 has a total capacity of 11.65 GiB of which 5.00 GiB is free. Of \
                the allocated memory 6.00 GiB is allocated by PyTorch, and 78.00 MiB is reserved by PyTorch but unallocated.";
    let found = remedies(&decoded(text, "b=64&s=8192&gpu=rtx-3060-12gb")).expect("changes");
    assert_eq!(found[0].verdict, headroom::plan::Verdict::Fits, "{found:?}");
    // room that nobody had is no fragmentation; and the card of nvidia-smi's figure is the scenario's
    let text = "CUDA out of memory. Tried to allocate 12.50 MiB (GPU 0; 10.92 GiB total capacity; 8.57 MiB already allocated; 9.28 GiB free; \
                4.68 MiB cached)";
    assert!(matches!(decoded(text, "gpu=rtx-4090").findings[0], Finding::Limited { .. }));
    let smi = decoded("22100MiB / 24564MiB", "gpu=rtx-4090");
    assert_eq!(smi.account.len(), 2, "what all have, and what is free");
}

/// `tests/fixtures/memory_summary.txt`: three steps of Qwen2.5-0.5B, all weights, autocast in bfloat16, 8 × 512 tokens, by PyTorch 2.11
/// and transformers 5.17 over the null device.
#[test]
fn a_summary_is_set_beside_the_run() {
    let text = std::fs::read_to_string("tests/fixtures/memory_summary.txt").expect("a summary");
    let besides = |text: &str, link: &str| {
        let decoded = decode(text, &linked(link)).expect("figures");
        let of = |finding: &Finding| match finding {
            Finding::Beside { figure, agrees, .. } => Some((*figure, *agrees)),
            _ => None,
        };
        (decoded.findings.iter().filter_map(of).collect::<Vec<_>>(), decoded.findings)
    };
    let link = "m=Qwen/Qwen2.5-0.5B&method=full&p=amp-bf16&b=8&s=512&gpu=a100-pcie-40gb&gc=off";
    let (found, findings) = besides(&text, link);
    assert_eq!(found, [(Figure::Allocated, true), (Figure::Reserved, true)]);
    let [mib, inactive] = [22_986 - 5698, 3761].map(|mib| Bytes(mib << 20));
    assert!(
        findings.contains(&Finding::Unused {
            unallocated: mib,
            inactive: Some(inactive),
            joining: Joining::Off
        }),
        "{findings:?}"
    );
    assert!(findings.contains(&Finding::Retried { retries: 0, failures: 0 }));
    let (found, _) = besides(&text, &link.replace("b=8", "b=4"));
    assert_eq!(found, [(Figure::Allocated, false), (Figure::Reserved, false)]);
    // what failed had not come to its peak
    let failed = text
        .replace("CUDA OOMs: 0", "CUDA OOMs: 1")
        .replace("cudaMalloc retries: 0", "cudaMalloc retries: 3");
    let (found, findings) = besides(&failed, link);
    assert!(
        found.is_empty() && findings.contains(&Finding::Retried { retries: 3, failures: 1 }),
        "{findings:?}"
    );
    // nvidia-smi's, which has all processes and the context
    assert_eq!(besides("23552MiB / 40960MiB", link).0, [(Figure::Shown, true)]);
    assert_eq!(besides("12000MiB / 40960MiB", link).0, [(Figure::Shown, false)]);
}

/// People often paste the first line alone: what was in use is known from what was free.
#[test]
fn a_first_line_alone_says_how_much_was_missing_and_what_run_it_may_have_been() {
    let text = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.32 GiB. GPU 0 has a total capacity of 23.64 GiB of \
                which 1.08 GiB is free.";
    let decoded = decode(text, &Scenario::default()).expect("a message");
    let missing = decoded.findings.iter().find(|finding| matches!(finding, Finding::MoreThanFree { .. }));
    assert!(missing.is_some_and(|finding| finding.to_string().starts_with("1.24 GiB more than was free")));
    let in_use = decoded.message.in_use().expect("both are said");
    assert_eq!(
        decoded.account.iter().map(|(_, bytes)| *bytes).collect::<Vec<_>>(),
        [in_use, Bytes(1_159_641_170)]
    );
    for guess in &decoded.guesses {
        let before = guess.allocated.expect("it is looked at");
        assert!(before <= in_use && before.0 * 2 > in_use.0, "{}", guess.in_words(|bytes| bytes.to_string()));
    }
    assert!(!decoded.guesses.is_empty());
}

/// What was in use contradicts a scenario as what was allocated does: by far more than it has, and by less.
#[test]
fn a_first_line_alone_is_not_pinned_on_another_run() {
    let text = |free: &str| {
        format!(
            "CUDA out of memory. Tried to allocate 1.96 GiB. GPU 0 has a total capacity of 23.64 GiB of which {free} GiB is free."
        )
    };
    // the default scenario asks for as much while it loads lm_head, with 6.29 GiB allocated
    let decoded = decode(&text("1.21"), &Scenario::default()).expect("a message");
    assert!(!decoded.is_of_the_run(), "{:?}", decoded.suspects);
    let said = decoded.findings.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
    let other = "This scenario is not that run, unless other processes had the rest: when it asks for that much 6.29 GiB are allocated, and \
                 22.4 GiB of the card were in use.";
    assert!(said.contains(other), "{said}");
    assert!(!decoded.likely.is_empty() || !decoded.guesses.is_empty(), "what it may have been instead");
    for likely in &decoded.likely {
        assert!(likely.suspect.allocated.as_gib() < 22.43, "{likely:?}");
        assert!(likely.suspect.allocated.as_gib() > 11.2, "{likely:?}");
    }
    // as much as it has there, with the driver's context
    assert!(decode(&text("16.90"), &Scenario::default()).expect("a message").is_of_the_run());
    // less than is allocated then
    let decoded = decode(&text("20.00"), &Scenario::default()).expect("a message");
    let said = decoded.findings.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
    assert!(said.contains("This scenario is not that run: when it asks"), "{said}");
}

/// A size alone is no proof: where the card had room at every moment at which the scenario asks for as much, it was another run.
#[test]
fn a_bare_size_is_not_pinned_on_a_moment_that_had_room() {
    let text = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.96 GiB";
    // lm_head while it loads, with 6.29 GiB allocated of 23.5
    let decoded = decode(text, &linked("gpu=rtx-4090")).expect("a message");
    assert!(!decoded.suspects.is_empty() && !decoded.is_of_the_run(), "{:?}", decoded.suspects);
    let said = decoded.findings.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
    assert!(said.contains("its own has room whenever that much is asked for"), "{said}");
    assert!(!decoded.guesses.is_empty(), "what it may have been instead");
    // a batch whose logits are as large, on a card that they fill: they come first, and may be it
    let decoded = decode(text, &linked("gpu=rtx-3060-12gb&b=2")).expect("a message");
    let first = &decoded.suspects[0];
    assert!(first.agrees.is_none() && first.phase != "loading", "{:?}", decoded.suspects);
    let may_be = decoded.suspects.iter().filter(|suspect| suspect.agrees != Some(false));
    assert!(
        may_be.count() > 0
            && decoded
                .suspects
                .iter()
                .all(|suspect| suspect.phase != "loading" || suspect.agrees == Some(false))
    );
}

#[test]
fn what_no_run_can_have_been_is_not_guessed() {
    // more was allocated before it in every run of a model with that vocabulary than the card has
    let text = "CUDA out of memory. Tried to allocate 37.09 GiB. GPU 0 has a total capacity of 79.10 GiB of which 1.00 GiB is free. Of \
                the allocated memory 70.00 GiB is allocated by PyTorch, and 2.00 GiB is reserved by PyTorch but unallocated.";
    let decoded = decode(text, &Scenario::default()).expect("a message");
    for guess in &decoded.guesses {
        let (sequence, most) =
            (guess.scenario.sequence, guess.scenario.architecture().expect("a model").max_positions);
        assert!(most.is_none_or(|most| sequence <= most), "{}", guess.formula);
        assert!(guess.allocated.is_some_and(|bytes| bytes <= Bytes::gib(79.10)), "{guess:?}");
    }
}

#[test]
fn no_text_and_no_scenario_makes_it_fail() {
    let endless = "9".repeat(400);
    for text in [
        "Tried to allocate 0 bytes. 0 bytes is free",
        "Tried to allocate 2.00 MiB (GPU 0; 0 bytes total capacity; 9.00 GiB already allocated; 0 bytes free)",
        &format!(
            "Tried to allocate {endless} GiB. GPU 0 has a total capacity of {endless} TiB of which {endless} bytes is free"
        ),
        "| Allocated memory | | |\n0MiB / 0MiB",
    ] {
        for link in ["", "m=no-such-model", "m=openai-community/gpt2&s=99999999&b=99999999"] {
            let scenario = share::decode(link).scenarios.into_iter().next().unwrap_or_default();
            let Ok(decoded) = decode(text, &scenario) else { continue };
            drop(remedies(&decoded));
            decoded.findings.iter().for_each(|finding| assert!(!finding.to_string().is_empty()));
        }
    }
}

#[test]
fn the_run_that_it_may_have_been_is_found() {
    // what a run with twice the sequences said, beside the scenario with half of them
    let link = "m=Qwen/Qwen2.5-0.5B&method=full&p=amp-bf16&b=4&s=512&gpu=rtx-4090";
    let text = "CUDA out of memory. Tried to allocate 2.32 GiB. GPU 0 has a total capacity of 10.00 GiB of which 2.25 GiB is free. Of \
                the allocated memory 7.10 GiB is allocated by PyTorch, and 657.89 MiB is reserved by PyTorch but unallocated.";
    let decoded = decode(text, &linked(link)).expect("a message");
    let run = decoded.likely.first().expect("a run");
    assert_eq!((run.scenario.batch, run.scenario.sequence), (8, 512), "{:?}", run.changes);
    assert_eq!(run.suspect.agrees, Some(true));
    assert!(decoded.guesses.is_empty(), "{:?}", decoded.guesses);
    // taken, it is the run that the message is of
    let taken = decode(text, &run.scenario).expect("a message");
    assert!(taken.is_of_the_run() && taken.likely.is_empty(), "{:?}", taken.suspects);
}

#[test]
fn the_card_of_a_message_is_one_of_the_catalogue() {
    let text = "CUDA out of memory. Tried to allocate 1.96 GiB. GPU 0 has a total capacity of 15.77 GiB of which 1.02 GiB is free. Of \
                the allocated memory 12.00 GiB is allocated by PyTorch, and 1.10 GiB is reserved by PyTorch but unallocated.";
    let card = |text: &str| {
        let decoded = decode(text, &Scenario::default()).expect("a message");
        decoded.scenario.gpu().expect("a card")
    };
    assert!(card(&text.replace("15.77", "10.76")).name.contains("2080 Ti"), "{}", card(text).name);
    // several that people train on have as much: none is guessed
    let of_12_gb = card(&text.replace("15.77", "11.76"));
    assert_eq!((of_12_gb.slug.as_ref(), of_12_gb.memory), ("custom", Bytes::gib(11.76)));
    let of_amd = card(&text.replace("CUDA", "HIP").replace("15.77", "15.98"));
    assert_eq!(of_amd.vendor, Vendor::Amd, "{}", of_amd.name);
    assert!(decode("HIP out of memory", &Scenario::default()).is_err());
}

#[test]
fn the_card_that_nvidia_smi_names_is_the_one() {
    let text = "|   0  NVIDIA GeForce RTX 3090        On  |   00000000:01:00.0 Off |                  N/A |\n\
                | 30%   45C    P2            320W /  350W |   23010MiB /  24576MiB |     98%      Default |";
    let decoded = decode(text, &Scenario::default()).expect("figures");
    assert_eq!(decoded.scenario.gpu, GpuChoice::Catalogue("rtx-3090".into()));
    assert_eq!(decoded.card.len(), 1, "{:?}", decoded.card);
    // a folder is no card, and of two nobody knows which
    let own = Scenario { gpu: GpuChoice::Catalogue("t4".into()), ..Scenario::default() };
    for text in [
        "File \"/data/l4/train.py\": CUDA out of memory. Tried to allocate 2.32 GiB.",
        "NVIDIA GeForce RTX 3090 NVIDIA GeForce RTX 4090 CUDA out of memory. Tried to allocate 2.32 GiB.",
        "NVIDIA GeForce RTX 4060 Laptop GPU CUDA out of memory. Tried to allocate 2.32 GiB.",
    ] {
        assert_eq!(decode(text, &own).expect("figures").scenario.gpu, own.gpu, "{text}");
    }
}

/// It has no figure, and is named in guide 002.
#[test]
fn an_error_of_the_drivers_is_told_from_pytorchs() {
    let text = "RuntimeError: CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported at some other API call";
    let decoded = decode(text, &Scenario::default()).expect("it is one");
    assert_eq!(decoded.findings, [Finding::BesideAllocator]);
    let other = decode("Cuda failure 2 'out of memory'", &Scenario::default()).expect("NCCL's");
    assert_eq!(other.findings, [Finding::BesideAllocator]);
    let log = "RuntimeError: CUDA error: out of memory\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.32 GiB.";
    let decoded = decode(log, &Scenario::default()).expect("PyTorch's");
    assert!(!decoded.message.is_of_driver && decoded.message.requested.is_some(), "{:?}", decoded.message);
    assert!(decode("RuntimeError: CUDA error: device-side assert triggered", &Scenario::default()).is_err());
}

/// `c10/xpu/XPUCachingAllocator.cpp`, which says less than CUDA's, and what hipify makes of CUDA's message.
#[test]
fn other_makers_cards_are_theirs_and_get_no_advice_that_is_not() {
    let xpu = "XPU out of memory. Tried to allocate 2.32 GiB. GPU 0 has a total capacity of 15.91 GiB. Of the allocated memory 12.00 GiB \
               is allocated by PyTorch, and 2.50 GiB is reserved by PyTorch but unallocated. Please use `empty_cache` to release all \
               unoccupied cached memory.";
    // the scenario's card has as much and is another maker's
    let hip = "HIP out of memory. Tried to allocate 2.32 GiB. GPU 0 has a total capacity of 23.98 GiB of which 1.08 GiB is free. Of the \
               allocated memory 20.00 GiB is allocated by PyTorch, and 2.50 GiB is reserved by PyTorch but unallocated. If reserved but \
               unallocated memory is large try setting PYTORCH_HIP_ALLOC_CONF=expandable_segments:True to avoid fragmentation.";
    for (text, vendor, joining) in
        [(xpu, Vendor::Intel, Joining::Unknown), (hip, Vendor::Amd, Joining::Doubtful)]
    {
        let decoded = decode(text, &linked("gpu=rtx-4090")).expect("a message");
        let gpu = decoded.scenario.gpu().expect("a card");
        assert_eq!(gpu.vendor, vendor, "{}", gpu.name);
        let is_in_pieces = |finding: &&Finding| matches!(finding, Finding::Fragmented { joining: said, .. } if *said == joining);
        let finding = decoded.findings.iter().find(is_in_pieces).expect("there are pieces enough");
        assert!(!finding.to_string().contains("PYTORCH_CUDA"), "{finding}");
        assert_eq!(
            finding.to_string().contains("PYTORCH_HIP_ALLOC_CONF"),
            vendor == Vendor::Amd,
            "{finding}"
        );
        let joins = |change: &headroom::plan::Change| change.label == "Allocator";
        let remedies = remedies(&decoded).unwrap_or_default();
        assert!(remedies.iter().all(|lever| !lever.changes.iter().any(joins)), "{remedies:?}");
    }
}

/// ZeRO has several tensors of a rank's share in 32 bits: which one it was the traceback says.
#[test]
fn the_place_of_the_traceback_ranks_what_has_one_size() {
    let link = "m=Qwen/Qwen2.5-1.5B&method=full&p=bf16&b=1&s=512&gpus=8&shard=zero1&gpu=a100-sxm-80gb";
    let message = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 738.00 MiB. GPU 0 has a total capacity of 79.10 GiB of \
                   which 1.00 MiB is free.";
    let first = |frames: &str| {
        let text =
            format!("Traceback (most recent call last):\n  File \"train.py\", line 9\n{frames}\n{message}");
        let decoded = decode(&text, &linked(link)).expect("a message");
        let first = decoded.suspects.into_iter().next().expect("a tensor of that size");
        (
            first.line.what,
            first.place,
            decoded.findings.contains(&Finding::NotThere { place: Place::Attention }),
        )
    };
    let state = "    self.optimizer.step()\n    state[\"exp_avg_sq\"] = torch.zeros_like(p)";
    assert_eq!(first(state), ("optimizer state".to_owned(), Some(Place::OptimizerState), false));
    let flat = "    self.optimizer.step()\n    flat = _flatten_dense_tensors(tensors)";
    assert_eq!(first(flat), ("flat gradient".to_owned(), Some(Place::Flat), false));
    // nothing of that size is made in attention
    let attention = "    weights = nn.functional.softmax(scores, dim=-1)";
    let (_, place, not_there) = first(attention);
    assert_eq!((place, not_there), (None, true));
    assert_eq!(decode(message, &linked(link)).expect("a message").suspects[0].place, None);
}

#[test]
fn the_fullest_of_several_rows_is_looked_at() {
    let text = "memory.used [MiB], memory.total [MiB], memory.free [MiB]\n1 MiB, 24564 MiB, 24111 MiB\n23012 MiB, 24564 MiB, 1100 MiB";
    let decoded = decode(text, &linked("gpu=rtx-4090")).expect("rows");
    let amounts: Vec<u64> = decoded.account.iter().map(|(_, bytes)| bytes.0 >> 20).collect();
    assert_eq!(amounts, [23_012, 1100], "what all have, and what is free");
    assert!(decoded.findings.contains(&Finding::SeveralRows { rows: 2 }), "{:?}", decoded.findings);
}

/// github.com/lm-sys/FastChat/issues/2701: Vicuna 13B, which is Llama 2's, by QLoRA. 40 heads × 4,096 × 4,096 × 2 bytes are 1.25 GiB to the byte.
#[test]
fn the_scores_of_eager_attention_are_guessed() {
    let text = "OutOfMemoryError: CUDA out of memory. Tried to allocate 1.25 GiB (GPU 1; 79.10 GiB total capacity; 76.13 GiB \nalready allocated; 290.12 MiB \
                free; 77.47 GiB reserved in total by PyTorch) If reserved memory is >> allocated \nmemory try setting max_split_size_mb to avoid \
                fragmentation.  See documentation for Memory Management and \nPYTORCH_CUDA_ALLOC_CONF";
    let found = decode(text, &Scenario::default()).expect("a message");
    let first = &found.guesses[0];
    assert_eq!(
        (first.kind, &*first.formula),
        (Kind::Scores, "4,096 tokens × 4,096 keys × 40 heads × 2 bytes"),
        "{:?}",
        found.guesses
    );
    assert!(first.models.iter().any(|model| model.starts_with("Llama 2 13")), "{:?}", first.models);
    assert_eq!(first.said, None, "{:?}", first.allocated);
    assert!(found.findings.contains(&Finding::LikelyScores), "{:?}", found.findings);
    // beside the model itself it is the kernel, whatever else has the size
    let found =
        decode(text, &linked("m=meta-llama/Llama-2-13b-hf&method=qlora&s=4096&gc=off")).expect("a message");
    let eager = |run: &&headroom::oom::Likely| run.scenario.attention == AttentionKernel::Eager;
    let run = found.likely.iter().find(eager).unwrap_or_else(|| panic!("{:?}", found.likely));
    assert_eq!((run.changes.len(), run.suspect.agrees), (1, Some(true)), "{:?}", run.changes);
    assert!(run.suspect.line.what.contains("self_attn"), "{:?}", run.suspect);
}

const STEP: &str = "Traceback (most recent call last):\n  File \"train.py\", line 20, in <module>\n    optimizer.step()\ntorch.OutOfMemoryError: CUDA out of \
                    memory. Tried to allocate 224.00 MiB. GPU 0 has a total capacity of 79.15 GiB of which 100.00 MiB is free. Of the allocated memory 77.40 \
                    GiB is allocated by PyTorch, and 1.01 GiB is reserved by PyTorch but unallocated.";

/// In the optimizer's step nothing is as large as the batch makes it: the weights were in 32 bits.
#[test]
fn the_place_of_the_traceback_says_what_may_differ() {
    let found = decode(STEP, &linked("method=full&gpu=a100-sxm-80gb")).expect("a message");
    let first = found.likely.first().unwrap_or_else(|| panic!("{:?}", found.findings));
    assert_eq!(
        (first.scenario.precision, first.changes.len()),
        (Precision::AmpBf16, 1),
        "{:?}",
        first.changes
    );
    for run in &found.likely {
        assert_eq!(run.suspect.place, Some(Place::Step), "{:?}", run.suspect);
        assert!(
            run.suspect.line.what.contains("optimizer state") && run.scenario.batch == found.scenario.batch
        );
    }
    // beside another model it is the state of one of the catalogue, and no logits
    let found = decode(STEP, &linked("m=Qwen/Qwen2.5-0.5B&gpu=a100-sxm-80gb")).expect("a message");
    assert!(
        !found.guesses.is_empty() && found.guesses.iter().all(|guess| guess.kind == Kind::OptimizerState),
        "{:?}",
        found.guesses
    );
    assert!(found.guesses[0].formula.starts_with("14,336 × 4,096 × 4 bytes"), "{:?}", found.guesses[0]);
    let scenario = &found.guesses[0].scenario;
    assert!(decode(STEP, scenario).expect("a message").is_of_the_run(), "{scenario:?}");
}

/// What no run has is said not to be known, with the place that is.
#[test]
fn what_is_not_known_has_no_name() {
    let hip = "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 1002.00 MiB. GPU 0 has a total capacity of 23.98 GiB of which 600.00 MiB is free. Of \
               the allocated memory 22.20 GiB is allocated by PyTorch, and 500.00 MiB is reserved by PyTorch but unallocated.";
    let mlp = format!(
        "Traceback (most recent call last):\n    hidden_states = self.mlp(hidden_states)\n{}",
        hip.replace("1002.00 MiB", "1.97 GiB")
    );
    for (text, place) in [(hip, None), (&*mlp, Some(Place::Mlp))] {
        let found = decode(text, &linked("m=Qwen/Qwen2.5-0.5B&gpu=rx-7900-xtx")).expect("a message");
        let near = |bytes: Bytes| bytes.0.abs_diff(Bytes::gib(22.2).0) * 10 <= Bytes::gib(22.2).0;
        assert!(found.guesses.iter().all(|guess| guess.allocated.is_some_and(near)), "{:?}", found.guesses);
        let is_named = found.is_of_the_run() || !found.likely.is_empty() || !found.guesses.is_empty();
        assert_eq!(found.findings.contains(&Finding::NotKnown), !is_named, "{:?}", found.findings);
        if let Some(place) = place {
            assert!(
                found.guesses.is_empty() && found.findings.contains(&Finding::NotThere { place }),
                "{:?}",
                found.findings
            );
        }
    }
    let found = decode(hip, &Scenario::default()).expect("a message");
    assert!(found.guesses.is_empty() && found.findings.contains(&Finding::NotKnown), "{:?}", found.guesses);
    assert!(!found.findings.contains(&Finding::LikelyLogits));
}

/// Where nothing that was tried is the run, a size is told that is of logits; and what becomes of the scenario is not its verdict.
#[test]
fn a_size_of_logits_is_told_where_the_run_is_not_found() {
    let text = |asked: &str| {
        format!(
            "CUDA out of memory. Tried to allocate {asked}. GPU 0 has a total capacity of 23.64 GiB of which 5.12 GiB is free. Of the \
             allocated memory 15.20 GiB is allocated by PyTorch, and 2.90 GiB is reserved by PyTorch but unallocated."
        )
    };
    let told = |asked: &str| {
        let found = decode(&text(asked), &linked("gpu=rtx-4090")).expect("a message");
        assert!(found.is_of_another_run(), "{:?}", found.findings);
        found.findings.into_iter().find_map(|finding| match finding {
            Finding::SizeOfLogits { formula, models } => Some((formula, models.is_empty())),
            _ => None,
        })
    };
    let own = ("16,384 tokens × 128,256 × 4 bytes (float32)".to_owned(), true);
    assert_eq!(told("7.83 GiB"), Some(own));
    let qwens = ("32,768 tokens × 151,936 × 4 bytes (float32)".to_owned(), false);
    assert_eq!(told("18.55 GiB"), Some(qwens));
    assert_eq!(told("3.33 GiB"), None);
}

/// Several cards of one kind have as much as a message says, and drivers tell it differently.
#[test]
fn usual_capacities_are_of_a_card() {
    for (capacity, gpu) in [("14.75", "t4"), ("14.56", "t4"), ("15.77", "v100-pcie-16gb")] {
        let text = format!(
            "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of {capacity} GiB of which 1.00 GiB is free."
        );
        let found = decode(&text, &linked("gpu=h100-sxm-80gb")).expect("a message");
        assert_eq!(found.scenario.gpu, GpuChoice::Catalogue(gpu.into()), "{capacity}");
    }
}

fn said(decoded: &Decoded) -> String {
    decoded.findings.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
}
