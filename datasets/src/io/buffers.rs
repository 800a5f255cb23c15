//! Memory that workers keep while they read files.

use crate::io::read_ahead::ReadAhead;

/// Buffers for reading samples, which a worker keeps from sample to sample.
#[derive(Debug, Default)]
pub(crate) struct Buffers {
    /// The part of the file that was read most recently.
    pub(crate) ahead: ReadAhead,
    /// Buffer for a file that is a field of a sample.
    pub(crate) file: Vec<u8>,
    /// Buffer for a value that is made or joined from several parts.
    pub(crate) value: Vec<u8>,
    /// Whether each field was visited.
    #[cfg(feature = "tfrecord")]
    pub(crate) visited: Vec<bool>,
}
