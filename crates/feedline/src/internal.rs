//! For feedline's own crates. No stability: items change in any release.

pub use feedline_core::internal::*;

pub use crate::builder::{either, lanes_use_cpu, replaying, sample_path, threads_per_worker, under_one_lock};
pub use crate::compute::{is_copied, read_in_place};
pub use crate::decode::worker_count;
pub use crate::host_loader::build_host_on;
pub use crate::loader::{check_slots, check_thread, layout};
pub use crate::progress::service_times;

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
