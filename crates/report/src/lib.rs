//! Reports about a loader's run: a diagnosis, predictions for other settings, traces and pages. `feedline`
//! measures the times. It does not depend on this crate.
//!
//! | part | file |
//! | --- | --- |
//! | the diagnosis in words; the stages | `diagnosis.rs`, `stages.rs` |
//! | service times of a run, for a small file | `profile.rs` |
//! | the pipeline in virtual time: predictions for other settings | `model.rs` |
//! | the report page for a browser | `page.rs`, `page.html` |
//! | a trace as a file for Perfetto | `trace.rs` |
//! | a trace as a profiler's table | `table.rs` |
//! | how long a training loop's stream waited for data | `wait_meter.rs` |
//! | benchmarks of a stream's work | `measure.rs` |
//!
//! ```
//! use feedline::{Device, InMemory, Loader};
//! use feedline_report::{Diagnosis, Profile, WhatIf};
//! let numbers = InMemory::new().field("number", [], (0..200).collect::<Vec<u8>>())?;
//! let mut loader = Loader::builder(numbers).batch_size(4).build(&Device::new_host())?;
//! loader.epoch(0)?.try_for_each(|batch| batch.map(drop))?;
//! let report = loader.report();
//! println!("{report}{}", Diagnosis::new(&report)); // a table, and what would help
//! let more = WhatIf { workers: Some(8), ..WhatIf::default() };
//! println!("{:.0} batches/s", more.predict(&Profile::new(&loader), 1000).batches_per_s());
//! # Ok::<(), feedline::Error>(())
//! ```
#![forbid(unsafe_code)]

mod diagnosis;
pub mod measure;
mod model;
mod page;
mod profile;
mod servers;
mod stages;
mod table;
mod trace;
mod wait_meter;

pub use diagnosis::{Bound, Diagnosis};
pub use feedline::report::{Account, Cause, CopyRate, CopyRates, Report, ServiceTimes, Setup};
pub use model::{Prediction, WhatIf};
pub use page::History;
pub use profile::Profile;
pub use servers::Served;
pub use table::{Kind, Row, Table};
pub use trace::{trace_json, write_trace};
pub use wait_meter::WaitMeter;

/// The report as one JSON object. Times are in nanoseconds, and `waiting` in seconds and nanoseconds.
pub fn to_json(report: &Report) -> String {
    // This cannot fail, because the report has only plain numbers and strings.
    serde_json::to_string(report).unwrap_or_default()
}

/// `part / whole`, or 0 if `whole` is 0.
fn ratio(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use feedline::{Device, InMemory, Loader};

    use super::*;

    #[test]
    fn a_report_goes_to_json_and_back() {
        let numbers = InMemory::new().field("number", [], (0..40).collect::<Vec<u8>>()).expect("a set");
        let loader =
            Loader::builder(numbers).batch_size(4).depth(3).build(&Device::new_host()).expect("a loader");
        let report = loader.report();
        let json = to_json(&report);
        for key in ["\"source_read\":0", "\"no_device_slot\":0", "\"device_slots\":3", "\"waiting\":null"] {
            assert!(json.contains(key), "{key} in {json}");
        }
        assert_eq!(serde_json::from_str::<Report>(&json).expect("a report"), report);
    }
}
