//! The cores of a thread on systems other than Linux: threads run where the system puts them.

/// A thread that was moved to a node's cores: there is none on this system.
pub(crate) enum OnNode {}

impl OnNode {
    /// Moves no thread.
    pub(super) fn enter(_: &[usize]) -> Option<Self> {
        None
    }
}
