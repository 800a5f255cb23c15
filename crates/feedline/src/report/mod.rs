//! Where the time goes: an account of every wait of the consumer, and what would help.
//!
//! | part | file |
//! | --- | --- |
//! | the causes that time is charged to | `cause.rs` |
//! | one wait, charged along the timeline of its batch | `charge.rs` |
//! | the account, kept by the consumer's thread | `ledger.rs` |
//! | the report: accounts as values, text and JSON | `account.rs` |
//! | service times of the stages, for a small file | `profile.rs` |
//! | the pipeline in virtual time: what other settings would give | `model.rs` |
//! | the diagnosis in words | `diagnosis.rs` |
//! | the account as metrics, behind the feature `metrics` | `metrics.rs` |
//! | the report page for a browser | `page.rs`, `page.html` |

mod account;
mod cause;
mod charge;
mod diagnosis;
mod ledger;
#[cfg(feature = "metrics")]
mod metrics;
mod model;
mod page;
mod profile;
#[cfg(test)]
mod tests;

pub use crate::tune::{Move, Setting, Tuning};
pub(crate) use account::ratio;
pub use account::{Account, Report};
pub use cause::{Cause, Causes};
pub use diagnosis::{Bound, Diagnosis};
pub(crate) use ledger::Ledger;
pub use ledger::Reporter;
pub use model::{Prediction, WhatIf};
pub use page::History;
pub use profile::{Profile, ServiceTimes, Setup};
