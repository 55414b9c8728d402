//! Messages of what runs beside the steps, and of what a system has not.

use headroom::oom::{Finding, decode, remedies};

use crate::linked;

const EVALUATION: &str = "Traceback (most recent call last):\n  File \"/x/transformers/trainer.py\", line 4300, in evaluation_loop\n    all_preds.add(logits)\n  \
    File \"/x/transformers/trainer_pt_utils.py\", line 330, in add\n    self.tensors = nested_concat(self.tensors, tensors, padding_index=self.padding_index)\n\
    torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 15.66 GiB. GPU 0 has a total capacity of 79.15 GiB of which 12.30 GiB is free. \
    Of the allocated memory 59.84 GiB is allocated by PyTorch, and 6.13 GiB is reserved by PyTorch but unallocated.";

const MERGING: &str = "Traceback (most recent call last):\n  File \"merge.py\", line 9, in <module>\n    model = model.merge_and_unload()\n  \
    File \"/x/peft/tuners/lora/layer.py\", line 700, in merge\n    delta_weight = self.get_delta_weight(active_adapter)\n\
    torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 112.00 MiB. GPU 0 has a total capacity of 15.77 GiB of which 38.00 MiB is free. \
    Of the allocated memory 15.15 GiB is allocated by PyTorch, and 3.00 MiB is reserved by PyTorch but unallocated.";

/// No run of training is offered for them, unless the scenario does it too.
#[test]
fn evaluations_and_merging_are_no_training() {
    let lora = "m=Qwen/Qwen2.5-7B&method=lora&gpu=a100-sxm-80gb&st=trl";
    for (text, finding, setting) in
        [(EVALUATION, Finding::InEvaluation, "&eval=metrics"), (MERGING, Finding::InMerging, "&merge=gpu")]
    {
        let decoded = decode(text, &linked(lora)).expect("a message");
        assert_eq!(decoded.findings.first(), Some(&finding), "{:?}", decoded.findings);
        assert!(decoded.suspects.is_empty() && decoded.likely.is_empty() && decoded.guesses.is_empty());
        let own = decode(text, &linked(&format!("{lora}{setting}"))).expect("a message");
        assert!(!own.findings.contains(&finding), "{:?}", own.findings);
    }
}

/// Windows has no expandable segments, and lends memory that the card has not.
#[test]
fn windows_is_not_advised_what_it_has_not() {
    let text = |file: &str| {
        format!(
            "Traceback (most recent call last):\n  File \"{file}\", line 170, in forward\n    down_proj = self.down_proj(x)\n\
             torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.16 GiB. GPU 0 has a total capacity of 8.00 GiB of which 0 bytes is free. \
             Of the allocated memory 14.21 GiB is allocated by PyTorch, and 5.00 GiB is reserved by PyTorch but unallocated."
        )
    };
    let scenario = linked("m=Qwen/Qwen2.5-0.5B&method=full&gpu=rtx-3070");
    let said = |text: &str| {
        let decoded = decode(text, &scenario).expect("a message");
        let words: Vec<String> = decoded.findings.iter().map(ToString::to_string).collect();
        (words.join(" "), remedies(&decoded).unwrap_or_default())
    };
    let (windows, helps) = said(&text("C:\\Users\\me\\train.py"));
    assert!(!windows.contains("expandable_segments:True") && windows.contains("lends CUDA"), "{windows}");
    assert!(!helps.iter().any(|lever| lever.changes.iter().any(|change| change.label == "Allocator")));
    let (linux, _) = said(&text("/home/me/train.py"));
    assert!(linux.contains("expandable_segments:True") && !linux.contains("lends CUDA"), "{linux}");
}
