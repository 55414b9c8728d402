//! What Triton makes where it tries the settings of a kernel that runs for the first time (`triton.autotune`).

use super::Heap;
use crate::dtype::Dtype;
use crate::memory::Category;
use crate::step::what::{Source, What};

pub(in crate::step) static BENCHMARK: What = What::own(
    "buffer of Triton's benchmark",
    "what clears the card's cache between the runs of a kernel whose settings are tried when it runs first",
    Source::At("Triton, triton/backends/nvidia/driver.py, get_empty_cache_for_benchmark"),
);

/// Bytes of the buffer that Triton clears the card's cache with.
pub(in crate::step) const BENCHMARK_BUFFER: u64 = 256 << 20;

impl Heap {
    /// A kernel of that name runs: at first its settings are tried. A body that stands for several is none where only its first run
    /// does that.
    pub fn try_settings(&mut self, kernel: &'static str) {
        if self.stopped || self.tuned.contains(&kernel) {
            return;
        }
        self.tuned.push(kernel);
        self.alike &= self.repeating == 1;
        let buffer = self.alloc_as(Category::Temporaries, BENCHMARK_BUFFER, Dtype::U8, &BENCHMARK);
        self.release(buffer);
    }
}
