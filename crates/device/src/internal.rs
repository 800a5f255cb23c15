//! For feedline's own crates. Nothing here is stable: items change in any release.

use feedline_core::Error;

pub use crate::device::{check_stream, synchronous};
pub use crate::graph::fork_join;
pub use crate::submit::keep_with_graph;
use crate::{Device, Stream};

/// Records an error that cannot be returned, such as the error of a drop.
/// [`take_errors`](crate::DeviceStats::take_errors) returns it.
pub fn report(device: &Device, error: Error) {
    device.stats().report(error);
}

/// Whether the device of `stream` can record graphs. CUDA can.
pub fn records_graphs(stream: &Stream) -> bool {
    stream.core().device.backend.records()
}
