//! What is found of a message, in sentences.

use std::fmt;

use super::bare::Bitsandbytes;
use super::finding::{Figure, Finding, OfServing};
use super::joining::Joining;
use super::message::NoMessage;
use crate::allocator::segment_for;

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Finding::Fragmented { unallocated, joining } => write!(
                f,
                "Fragmentation: {unallocated} were reserved by PyTorch and not allocated, enough together with what was free, but \
                 not in one piece. {}",
                match joining {
                    Joining::Off => "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True lets the allocator join them.",
                    Joining::On =>
                        "The scenario already has expandable segments; if the run had them too, smaller requests are what is left to \
                         change.",
                    Joining::Doubtful =>
                        "PYTORCH_HIP_ALLOC_CONF=expandable_segments:True lets the allocator join them where PyTorch was built for it; where it \
                         warns \"expandable_segments not supported on this platform\" nothing changes, and smaller requests are what is left.",
                    Joining::Absent =>
                        "Windows has no expandable segments, which would join them; smaller requests are what is left to change.",
                    Joining::Unknown =>
                        "Smaller requests are what is left to change: a smaller micro-batch, shorter sequences, checkpointing.",
                }
            ),
            Finding::Pieces { unallocated, joining } => write!(
                f,
                "{unallocated} that PyTorch had reserved lay unallocated, in pieces. In one piece, with what was free, they would have been \
                 enough, but a card this full runs out at the next tensor: what makes the run smaller comes first{}.",
                match joining {
                    Joining::Off =>
                        "; beside it PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True lets the allocator join such pieces",
                    Joining::Doubtful =>
                        "; beside it PYTORCH_HIP_ALLOC_CONF=expandable_segments:True joins such pieces where PyTorch was built for it",
                    Joining::On | Joining::Unknown | Joining::Absent => "",
                }
            ),
            Finding::Short { by } => {
                write!(f, "No fragmentation: even in one piece {by} would have been missing.")
            }
            Finding::BesideAllocator => f.write_str(
                "This is the driver's error, not PyTorch's: the card had no room for something beside PyTorch's allocator, a CUDA context, a \
                 cuBLAS or NCCL buffer, a kernel. Other processes have the card (nvidia-smi lists them), or PyTorch had reserved all of it: then \
                 what makes the run smaller helps, and torch.cuda.set_per_process_memory_fraction(0.95) leaves the driver its part. Where pinned \
                 memory was asked for (pin_memory), it is the machine's own that ran out.",
            ),
            Finding::MetalLimit { allowed } => write!(
                f,
                "PyTorch lets the process have {allowed}, which is 1.7 times what Metal recommends for a GPU unless PYTORCH_MPS_HIGH_WATERMARK_RATIO \
                 says otherwise: 0.0 lifts that limit, and the system may fail then. A smaller micro-batch, shorter sequences and checkpointing ask for \
                 less."
            ),
            Finding::OnMac { name, recommended } => write!(
                f,
                "The scenario is looked at on an {name}, for which Metal recommends {recommended}; of which chip the message is it does not say."
            ),
            Finding::MoreThanFree { by } => write!(
                f,
                "{by} more than was free. The rest of the message says how much of what was in use PyTorch only kept for later."
            ),
            Finding::LargerThanCard => {
                f.write_str("This one tensor is larger than the whole card: it has to go or to shrink.")
            }
            Finding::AnySmallTensor { segment } => write!(
                f,
                "The card was full: {segment} is what the allocator asks for whenever a tensor of {} finds no free block. What \
                 was there already is the question, not this tensor.",
                if segment.0 <= segment_for(1) { "up to 1 MiB" } else { "1 to 10 MiB, or of 18 to 20," }
            ),
            Finding::OtherProcesses { bytes } => {
                write!(
                    f,
                    "Other processes had {bytes} of the card: the maker's tool lists them (nvidia-smi, rocm-smi, xpu-smi)."
                )
            }
            Finding::OtherCard { own, capacity } => write!(
                f,
                "The message's card has {capacity}, the scenario's {own}: the scenario is looked at on one with {capacity}."
            ),
            Finding::NoAnswer { reason } => {
                write!(f, "The scenario has no answer, so the message is not looked for in its run: {reason}.")
            }
            Finding::Limited { free, allowed } => {
                write!(f, "{free} of the card were free and could not be had: ")?;
                match allowed {
                    Some(allowed) => write!(f, "the process is limited to {allowed} (set_per_process_memory_fraction)."),
                    None => f.write_str(
                        "the process has a limit of its own, or another process had them at that moment.",
                    ),
                }
            }
            Finding::NoSuchTensor => f.write_str(
                "This scenario is not that run: none of its tensors asks for that much. Another model, micro-batch size or sequence \
                 length does.",
            ),
            Finding::MoreThanRun { said, most } => write!(
                f,
                "This scenario is not that run: {said} were allocated, and it never has more than {most}."
            ),
            Finding::HadRoom => f.write_str(
                "This scenario is not that run, unless the card was a smaller one or other processes had the rest: its own has room whenever that \
                 much is asked for.",
            ),
            Finding::LikelyLogits => f.write_str(
                "A request of that size is most often the logits: a loss that never makes them removes it (use_liger_kernel=True, cut cross \
                 entropy, trl's own head), and half as many tokens at a time halve it (per_device_train_batch_size, with \
                 gradient_accumulation_steps doubled).",
            ),
            Finding::LikelyScores => f.write_str(
                "A request of that size may be attention's scores, sequence × sequence for each head, which eager attention writes out: \
                 attn_implementation=\"sdpa\" or \"flash_attention_2\" makes none.",
            ),
            Finding::NotKnown => f.write_str(
                "Which tensor it was is not known: none of the runs that were tried, near this scenario and of the catalogue's models, asks for that much with as \
                 much allocated as the message says. The run's own model, batch and settings as the scenario name it.",
            ),
            Finding::SizeOfLogits { formula, models } => {
                let whose = match &models[..] {
                    [] => "this model's logits".to_owned(),
                    models => format!("the logits of {}", models.join(", ")),
                };
                write!(
                    f,
                    "Its size alone is that of {whose}: {formula}, micro-batch × length, in a run with other weights, another optimizer or \
                     more beside it than those that were tried. Where it is, a loss that never makes them removes it (use_liger_kernel=True, cut \
                     cross entropy)."
                )
            }
            Finding::Retried { retries: 0, .. } => {
                f.write_str("The allocator always found room on the card (no cudaMalloc retries).")
            }
            Finding::Retried { retries, failures } => write!(
                f,
                "The card was full: {retries} times the allocator had to give back its free segments and ask again (cudaMalloc retries), \
                 which costs time, and {failures} of these were in vain (CUDA OOMs)."
            ),
            Finding::Unused { unallocated, inactive: None, .. } => write!(
                f,
                "{unallocated} were reserved and not allocated: blocks that the allocator keeps for the next tensors of their sizes. \
                 nvidia-smi and its like count them as used."
            ),
            Finding::Unused { unallocated, inactive: Some(inactive), joining } => write!(
                f,
                "{unallocated} were reserved and not allocated, {inactive} of them in segments in which tensors have other parts: these are \
                 the holes of fragmentation, which emptying the cache (empty_cache()) cannot give back{}.",
                match joining {
                    Joining::Off | Joining::On => " and PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True avoids",
                    Joining::Doubtful =>
                        " and PYTORCH_HIP_ALLOC_CONF=expandable_segments:True avoids where PyTorch was built for it",
                    Joining::Unknown | Joining::Absent => "",
                }
            ),
            Finding::LentByWindows => f.write_str(
                "More was allocated than the card has: on Windows the driver lends CUDA the computer's memory when the card is full (CUDA - Sysmem Fallback \
                 Policy), over PCIe and many times slower, until that is not enough either.",
            ),
            Finding::SeveralRows { rows } => write!(
                f,
                "{rows} rows of nvidia-smi, cards or moments: the fullest is looked at, and no sum of them."
            ),
            Finding::NotThere { place } => write!(
                f,
                "The traceback stands {place}, and none of the scenario's tensors of that size is made there: another setting there may be \
                 what differs."
            ),
            Finding::Beside { figure, said, found, agrees: true } => {
                write!(f, "{said} {}: the scenario has {found}, so it may be that run.", figure.label())
            }
            Finding::Beside { figure: Figure::Shown, said, found, agrees: false } => write!(
                f,
                "{said} {}: the scenario comes to {found}. Its peak may be still to come, other processes may have a part, or it is another \
                 run.",
                Figure::Shown.label()
            ),
            Finding::Beside { figure: Figure::Process, said, found, agrees: false } => write!(
                f,
                "{said} {}: the scenario comes to {found}. Its peak may be still to come, or it is another run.",
                Figure::Process.label()
            ),
            Finding::Beside { figure: Figure::Reserved, said, found, agrees: false } => write!(
                f,
                "{said} {}, where the scenario has {found}: another setting of the allocator, lengths that vary, or another run.",
                Figure::Reserved.label()
            ),
            Finding::Beside { figure, said, found, agrees: false } => write!(
                f,
                "{said} {}: this scenario is not that run, it has {found}.",
                figure.label()
            ),
            Finding::OtherUse { said, found, shared } => {
                let unless = if *shared && said > found { ", unless other processes had the rest" } else { "" };
                let who = if *shared { "of the card were in use" } else { "are what the process had" };
                write!(
                    f,
                    "This scenario is not that run{unless}: when it asks for that much {found} are allocated, and {said} {who}."
                )
            }
            Finding::OtherMoment { said, found } => write!(
                f,
                "This scenario is not that run: when it asks for that much {found} are allocated, and the message says {said}."
            ),
            Finding::Listed(processes) => processes.fmt(f),
            Finding::OutOfHost(host) => host.fmt(f),
            Finding::OutOfShared => f.write_str(
                "The computer's own memory (RAM) ran out, or most likely did, and on this card that is the GPU's too: what makes the run smaller helps.",
            ),
            Finding::OnHost { notes } if notes.is_empty() => f.write_str(
                "No tensor of this scenario's step waits there. What else a process has of it: the data set, the batches that the workers of a loader \
                 have ready, a model while it is loaded, merged or written.",
            ),
            Finding::OnHost { notes } => write!(f, "In this scenario: {}.", notes.join("; ")),
            Finding::ShareTaken(share) => share.fmt(f),
            Finding::CacheShort(cache) => cache.fmt(f),
            Finding::SizeOfPartition { formula, models } => write!(
                f,
                "Its size alone is that of a rank's part of all parameters in one tensor, as DeepSpeed has them: {formula}, as of {}. More GPUs have smaller \
                 ones, and offload_optimizer has them in the computer's memory.",
                models.join(", ")
            ),
            Finding::WarmUp { of } => {
                f.write_str("transformers asks for room for all weights at once before it loads them (caching_allocator_warmup)")?;
                if let Some((formula, models)) = of {
                    write!(f, ": {formula}, as of {}", models.join(", "))?;
                }
                f.write_str(
                    ". That much the card did not have free: weights in fewer bits (load_in_4bit, dtype=torch.bfloat16 where they are loaded in float32), a \
                     part of them elsewhere (device_map=\"auto\"), or a smaller model. transformers 5.17 asks for no more than the card has, less 1.2 GiB.",
                )
            }
            Finding::InEvaluation => f.write_str(
                "It ran out in an evaluation, which the scenario has none of (--evaluation). Where metrics are computed the trainer keeps the logits of all of \
                 its batches on the GPU: eval_accumulation_steps moves them to the computer's memory, preprocess_logits_for_metrics keeps less of them, \
                 prediction_loss_only=True none, and per_device_eval_batch_size (8 by default) makes each batch smaller.",
            ),
            Finding::InMerging => f.write_str(
                "It ran out where adapters are merged into the weights (merge_and_unload), which the scenario has none of (--merging): each layer's product of the \
                 two matrices is made beside it, in float32 where they are. A model that is loaded in 16 bits in the computer's memory (device_map=\"cpu\") is \
                 merged there, and the card has no part in it.",
            ),
            Finding::InServing(serving) => serving.fmt(f),
            Finding::SizeOfServing(tensors) => {
                let one = |OfServing { formula, models }: &OfServing| format!("{formula}, as of {}", models.join(", "));
                let all: Vec<String> = tensors.iter().map(one).collect();
                write!(f, "Its size is that of {}.", all.join("; or of "))
            }
            Finding::OfOldPyTorch => f.write_str(
                "The card had no room for a tensor. This PyTorch is of before 2019 and says neither how large it was nor what was there: from 1.0 on it does \
                 (\"Tried to allocate …\"), and nvidia-smi shows who has the card.",
            ),
            Finding::OfBitsandbytes(Bitsandbytes::Managed) => f.write_str(
                "This is bitsandbytes' own code, not PyTorch's: it asked CUDA for managed memory, which card and computer (RAM) have in common and in which \
                 paged optimizers keep their state, and says neither how much nor where there was too little. An optimizer that is not paged asks for none \
                 (optim=\"adamw_8bit\" for \"paged_adamw_8bit\"). It is reported of WSL 2 with room on both sides (bitsandbytes' issue 959).",
            ),
            Finding::OfBitsandbytes(Bitsandbytes::Kernel) => f.write_str(
                "This is bitsandbytes' own code, not PyTorch's: the driver had no memory as one of its kernels ran, and it ends the process without a \
                 traceback. How much was asked for is not said. Other processes have the card (nvidia-smi lists them), or PyTorch had reserved all of it: \
                 then what makes the run smaller helps.",
            ),
            Finding::OfPool { kept } => {
                f.write_str("PyTorch's allocator was CUDA's own (backend:cudaMallocAsync)")?;
                if let Some(kept) = kept {
                    write!(
                        f,
                        ": {kept} of what was in use were no tensors, and how much of it are blocks that this allocator keeps for later the message does not say"
                    )?;
                }
                f.write_str(
                    ". The scenario is followed over PyTorch's own, which has the same tensors and other free blocks: without backend:cudaMallocAsync in \
                     PYTORCH_CUDA_ALLOC_CONF it is the one.",
                )
            }
        }
    }
}

impl fmt::Display for NoMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "nothing of an out-of-memory error was found: paste the line with \"Tried to allocate …\", the table that \
             torch.cuda.memory_summary() returns, what nvidia-smi shows (its table, or the rows of \
             --query-gpu=memory.used,memory.total,memory.free --format=csv), what vLLM says (\"Free memory on device …\", \"No available memory \
             for the cache blocks\"), or what says that the computer's own \
             memory ran out (\"you tried to allocate …\", \"Killed process …\")",
        )
    }
}
