//! What is said without a figure where a card has no room: by the driver and CUDA's libraries, by PyTorch before its caching
//! allocator wrote a message, by bitsandbytes' own code.

use serde::{Deserialize, Serialize};

/// What is said where CUDA or one of its libraries finds no memory beside PyTorch's allocator.
const DRIVERS: [&str; 8] = [
    "CUDA error: out of memory",
    "CUDA driver error: out of memory",
    "cudaErrorMemoryAllocation",
    "CUDA_ERROR_OUT_OF_MEMORY",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CUDNN_STATUS_ALLOC_FAILED",
    "HIP error: out of memory",
    // NCCL: "Cuda failure 2 'out of memory'"
    "'out of memory'",
];

/// Whether a text has an error of the driver's; `words` is the text with every blank one.
pub(super) fn is_of_driver(words: &str) -> bool {
    DRIVERS.iter().any(|said| words.contains(said))
}

/// Whether a PyTorch says it that had no figures to say: `cuda runtime error (2) : out of memory at …/THC/generic/THCStorage.cu:58`
/// (`aten/src/THC/THCGeneral.cpp` `__THCudaCheck`, of a tensor until 1.0 and of other things until 1.6).
pub(super) fn is_old(words: &str) -> bool {
    words.contains("cuda runtime error (2) : out of memory")
}

/// Which of bitsandbytes' requests failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Bitsandbytes {
    /// Managed memory, in which paged optimizers keep their state: `cudaMallocManaged` in `cget_managed_ptr` of `csrc/pythonInterface.c`
    /// (later `.cpp`), where alone that file asks for memory.
    Managed,
    /// What a kernel of `csrc/ops.cu` found.
    Kernel,
}

/// Which request of bitsandbytes' failed: `Error out of memory at line 380 in file …/csrc/pythonInterface.c`, which its macro
/// `CUDA_CHECK_RETURN` prints before it ends the process.
pub(super) fn bitsandbytes(words: &str) -> Option<Bitsandbytes> {
    let (_, rest) = words.split_once("Error out of memory at line ")?;
    let (line, rest) = rest.split_once(" in file ")?;
    line.parse::<u32>().ok()?;
    // a folder's name may have blanks
    let path = rest.split(".c").next().unwrap_or_default();
    Some(if path.ends_with("pythonInterface") { Bitsandbytes::Managed } else { Bitsandbytes::Kernel })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bitsandbytes_requests_are_told_by_their_file() {
        for (text, of) in [
            // github.com/bitsandbytes-foundation/bitsandbytes/issues/959 and 464
            (
                "Error out of memory at line 380 in file /mmfs1/gscratch/zlab/timdettmers/git/bitsandbytes/csrc/pythonInterface.c",
                Some(Bitsandbytes::Managed),
            ),
            (
                "Error out of memory at line 351 in file /home/developer/bitsandbytes/csrc/pythonInterface.c",
                Some(Bitsandbytes::Managed),
            ),
            // github.com/jllllll/bitsandbytes-windows-webui/issues/14
            (
                "Error out of memory at line 88 in file D:\\a\\bitsandbytes-windows-webui\\bitsandbytes-windows-webui\\csrc\\ops.cu",
                Some(Bitsandbytes::Kernel),
            ),
            // github.com/InternLM/xtuner/issues/247, which is none
            ("Error operation not supported at line 380 in file /csrc/pythonInterface.c", None),
            ("Error out of memory at line", None),
        ] {
            assert_eq!(bitsandbytes(text), of, "{text}");
        }
    }
}
