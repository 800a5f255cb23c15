//! For feedline's own crates. No stability: items change in any release.

pub use feedline_core::internal::*;
use feedline_core::{Layout, Result};

pub use crate::builder::{either, hand_over, replaying, sample_path, under_one_lock};
pub use crate::compute::{is_copied, read_in_place};
pub use crate::decode::worker_count;
pub use crate::host_loader::build_host_on;
use crate::report::ServiceTimes;
use crate::{Epoch, Loader, Progress};

/// The records of runs, for feedline-record.
pub mod record {
    pub use crate::record::frame::{Frame, MAGIC, STEP_BYTES, Substitute};
    pub use crate::record::header::{absolute, changed_files, file_name, file_state, files};
    pub use crate::record::read::{Note, RankRecord, Segment, Step};
}

/// The accounts of waits, for feedline-report.
pub mod report;

/// The content of traces, for feedline-report.
pub mod trace {
    pub use crate::trace::content::{BatchId, Lane, Name, Recorded, Span, recorded};
}

/// The memory layout of a batch as it is copied, before a device map.
pub fn layout(loader: &Loader) -> &Layout {
    loader.layout()
}

/// The service times of the last batches, up to 256, the oldest first.
pub fn service_times(progress: &Progress) -> Vec<ServiceTimes> {
    progress.service_times()
}

/// Fails if batches hold every slot, so that no batch can arrive: for callers of
/// [`next_timeout`](Epoch::next_timeout) that have their own time limit.
///
/// # Errors
/// `SlotsHeld`, unless another thread seems to work with the batches; with `on_any_thread`, even then.
pub fn check_slots(epoch: &Epoch<'_>, on_any_thread: bool) -> Result<()> {
    epoch.check_slots(on_any_thread)
}

/// Refuses `call` on a worker of the loader's own pool. Call it before ending the epoch.
///
/// # Errors
/// `Config`.
pub fn check_thread(epoch: &Epoch<'_>, call: &str) -> Result<()> {
    epoch.check_thread(call)
}
