//! What a data set has prepared of the samples that will be read next.

/// The outcome of [`Dataset::prefetch`](crate::Dataset::prefetch).
///
/// The outcome for samples of several sets is the [`max`](Ord::max) of theirs:
///
/// ```
/// use feedline_core::Prefetched;
/// assert_eq!(Prefetched::Ready.max(Prefetched::Pending), Prefetched::Pending);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Prefetched {
    /// No call has anything to prepare: the loader stops calling.
    Never,
    /// Every sample is prepared.
    Ready,
    /// Other threads are preparing samples; every other sample is prepared.
    Pending,
    /// There is no memory for further samples before earlier ones have been read.
    Full,
    /// The call prepared some samples. Others may be missing, so the loader calls again.
    Prepared,
}
