//! When element-wise work is worth more than one thread.

/// Elements a thread takes at a time; work of fewer stays on the calling thread. A parallel call costs some ten
/// microseconds, about what the simplest of these loops needs for as many elements.
pub(super) const CHUNK: usize = 64 * 1024;
