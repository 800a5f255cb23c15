//! The outcome of preparing samples that will be read next.

/// The outcome of [`Storage::prefetch`](crate::Storage::prefetch).
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

/// # For loaders and readers
///
/// What loaders, bridges and sets that read other sets call. It may change in any release.
impl Prefetched {
    /// The combined outcome of `calls` for the parts of a set. Stops at the first call that prepares
    /// something.
    pub fn of_calls(calls: impl IntoIterator<Item = Self>) -> Self {
        let mut outcome = Self::Never;
        for call in calls {
            outcome = outcome.max(call);
            if outcome == Self::Prepared {
                break;
            }
        }
        outcome
    }

    /// The outcome for a composed set if only some of its parts were called. `others` are the outcomes of all
    /// parts, each called without samples: a part that this batch does not use may have something to prepare
    /// for another batch.
    pub fn beside(self, others: impl IntoIterator<Item = Self>) -> Self {
        let may_prepare = || others.into_iter().any(|other| other != Self::Never);
        if self == Self::Never && may_prepare() { Self::Ready } else { self }
    }
}
