
/// Changes that are chosen while it runs: `tools/mutants` appends this to the library and asks it wherever it changed something.
#[doc(hidden)]
pub mod mutants {
    use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};

    /// More than there are changes.
    pub const MOST: usize = 20_000;
    /// The change that is made.
    pub static ACTIVE: AtomicU32 = AtomicU32::new(UNSET);
    /// What the variable MUTANT says.
    const UNSET: u32 = u32::MAX - 2;
    /// None is.
    pub const NONE: u32 = u32::MAX;
    /// None is, and those that are met are noted.
    pub const NOTE: u32 = u32::MAX - 1;
    /// Those that were met.
    pub static MET: [AtomicBool; MOST] = [const { AtomicBool::new(false) }; MOST];
    /// How often may be asked yet: a loop without an end panics.
    pub static LEFT: AtomicU64 = AtomicU64::new(u64::MAX);

    /// Whether the change of that number is made.
    #[inline]
    pub fn mutant(number: u32) -> bool {
        let left = LEFT.load(Relaxed);
        assert!(left > 0, "a loop without an end");
        LEFT.store(left - 1, Relaxed);
        let mut active = ACTIVE.load(Relaxed);
        if active == UNSET {
            active = std::env::var("MUTANT").ok().and_then(|number| number.parse().ok()).unwrap_or(NONE);
            ACTIVE.store(active, Relaxed);
        }
        if active == NOTE {
            MET[number as usize].store(true, Relaxed);
        }
        active == number
    }
}
pub use mutants::mutant;
