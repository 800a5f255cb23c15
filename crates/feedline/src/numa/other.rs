//! No-op: threads are placed on Linux only.

/// Never constructed on this system.
pub(crate) enum OnNode {}

impl OnNode {
    /// Moves no thread.
    pub(super) fn enter(_: &[usize]) -> Option<Self> {
        None
    }
}
