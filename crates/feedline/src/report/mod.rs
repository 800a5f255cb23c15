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

pub(crate) mod account;
pub(crate) mod charge;
mod copies;
mod ledger;
#[cfg(feature = "metrics")]
mod metrics;

/// # For loaders
///
/// How waits are charged, for the model of the pipeline in the crate feedline-report. It may change in any
/// release.
pub mod waits {
    pub use super::account::{add_batch, in_epochs, mean};
    pub use super::charge::Charger;
    pub use crate::decode::piece_rows;
}

pub use crate::decode::MAX_WORKERS;
pub use crate::loader::MemoryUse;
pub use crate::transfer_mode::ChosenMode;
pub use crate::tune::Tuning;
pub(crate) use account::shuffle_at_once;
pub use account::{Account, Report, ServiceTimes, Setup};
pub use charge::Cause;
pub use copies::{CopyRate, CopyRates};
pub(crate) use ledger::Ledger;
pub(crate) use ledger::Reporter;
