//! The same of several things, which all processors work at.

/// What comes of each, in their order. In a browser's worker, and where the feature `parallel` is off, one comes after the other.
pub(crate) fn each<T: Sync, R: Send>(items: &[T], of: impl Fn(&T) -> R + Sync) -> Vec<R> {
    #[cfg(feature = "parallel")]
    {
        use rayon::prelude::*;
        items.par_iter().map(&of).collect()
    }
    #[cfg(not(feature = "parallel"))]
    items.iter().map(of).collect()
}
