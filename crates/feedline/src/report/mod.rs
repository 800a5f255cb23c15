//! An account of every wait of the consumer, by cause. The crate `feedline-report` displays it with a
//! diagnosis.
//!
//! | part | file |
//! | --- | --- |
//! | the rates of copies, beside decoding and without it | `copies.rs` |
//! | the causes; one wait, charged to them along the timeline of its batch | `charge.rs` |
//! | the account, kept by the consumer's thread | `ledger.rs` |
//! | the report: setup, service times and accounts as values and text | `account.rs` |
//! | the account as metrics, behind the feature `metrics` | `metrics.rs` |

mod account;
mod charge;
mod copies;
mod ledger;
#[cfg(feature = "metrics")]
mod metrics;

pub use crate::decode::MAX_WORKERS;
#[doc(hidden)] // For the model of the pipeline in feedline-report.
pub use crate::decode::piece_rows;
pub use crate::loader::MemoryUse;
pub use crate::transfer_mode::ChosenMode;
pub use crate::tune::Tuning;
#[doc(hidden)] // As above.
pub use account::mean;
pub(crate) use account::shuffle_at_once;
pub use account::{Account, Report, ServiceTimes, Setup};
pub use charge::Cause;
#[doc(hidden)] // As above.
pub use charge::Charger;
pub use copies::{CopyRate, CopyRates};
pub(crate) use ledger::Ledger;
pub(crate) use ledger::Reporter;
