//! What PyTorch says where its allocator is CUDA's own (`PYTORCH_CUDA_ALLOC_CONF=backend:cudaMallocAsync`): `c10/cuda/CUDAMallocAsyncAllocator.cpp`
//! `mallocAsync`.

use super::amount::{Amount, amounts};
use crate::units::BYTES_PER_GB;

/// How it begins.
pub(super) const BEGINS: &str = "would exceed allowed memory. (out of memory)";

/// Its figures, in the order in which they are written; those that were not copied are absent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Pool {
    /// What tensors have, by the bytes that they asked for.
    pub allocated: Option<Amount>,
    /// The tensor's bytes, as they are: no segment's.
    pub requested: Option<Amount>,
    /// What the card has.
    pub capacity: Option<Amount>,
    /// What of it nobody had.
    pub free: Option<Amount>,
    /// What the process may have, where it has a limit of its own.
    pub allowed: Option<Amount>,
}

impl Pool {
    /// What a text says, all blanks one.
    pub(super) fn read(words: &str) -> Option<Pool> {
        /// The next message of a log is not this one's.
        const LONGEST: usize = 400;
        let (_, rest) = words.split_once(BEGINS)?;
        let rest = rest.split(BEGINS).next().unwrap_or_default();
        let end = (0..=LONGEST.min(rest.len())).rev().find(|at| rest.is_char_boundary(*at))?;
        let found = amounts(&rest[..end], BYTES_PER_GB);
        let of = |name: &str| {
            let mut named =
                found.iter().filter(|found| found.before.trim_end_matches([':', ' ']).ends_with(name));
            named.next().map(|found| found.amount)
        };
        let capacity = of("Device limit");
        // without a limit it says 2⁶⁴ bytes
        let is_limit = |allowed: &Amount| capacity.is_some_and(|capacity| allowed.bytes < capacity.bytes);
        Some(Pool {
            allocated: of("Currently allocated"),
            requested: of("Requested"),
            capacity,
            free: of("Free (according to CUDA)"),
            allowed: of("PyTorch limit (set by user-supplied memory fraction)").filter(is_limit),
        })
    }
}

#[cfg(test)]
mod tests {
    use crate::oom::Message;
    use crate::units::Bytes;

    /// github.com/AIFSH/ComfyUI-ChatTTS/issues/9
    const TEXT: &str =
        "torch.cuda.OutOfMemoryError: Allocation on device 0 would exceed allowed memory. (out of memory)
Currently allocated     : 6.89 GiB
Requested               : 320.00 MiB
Device limit            : 23.69 GiB
Free (according to CUDA): 2.94 MiB
PyTorch limit (set by user-supplied memory fraction)
                        : 17179869184.00 GiB";

    #[test]
    fn its_figures_are_read() {
        // github.com/EvilBT/ComfyUI_SLK_joy_caption_two/issues/28, as it was copied
        let copied = "Allocation on device 0 would exceed allowed memory. (out of memory)\nCurrently allocated : 15.16 GiB\nRequested : \
                      512.00 KiB\nDevice limit : 15.99 GiB\nFree (according to CUDA): 0 bytes\nPyTorch limit (set by user-supplied memory \
                      fraction)\n: 17179869184.00 GiB";
        for (text, said) in [
            (TEXT, ["6.89 GiB", "320 MiB", "23.7 GiB", "2.94 MiB"]),
            (copied, ["15.2 GiB", "512 KiB", "16.0 GiB", "0 B"]),
        ] {
            let message: Message = text.parse().expect("a message");
            let read = [message.allocated, message.requested, message.capacity, message.free];
            let read = read.map(|amount| amount.expect("it is said").bytes.to_string());
            assert_eq!(read, said, "{text}");
            assert!(message.is_of_pool && message.allowed.is_none() && message.reserved.is_none());
            assert!(!message.is_of_driver && message.segment().is_none());
        }
        let limited: Message = TEXT.replace("17179869184.00", "8.00").parse().expect("a message");
        assert_eq!(limited.allowed.map(|amount| amount.bytes), Some(Bytes::gib(8.0)));
    }

    #[test]
    fn the_first_line_alone_says_whose_it_is() {
        let message: Message = TEXT.lines().next().unwrap_or_default().parse().expect("a message");
        assert!(message.is_of_pool && message.requested.is_none(), "{message:?}");
    }
}
