//! The accounts of waits, for the model of the pipeline in feedline-report.

pub use crate::decode::piece_rows;
pub use crate::report::account::{add_batch, in_epochs, mean};
pub use crate::report::charge::Charger;
use crate::report::{Account, Cause};

/// An account from `from` on, in nanoseconds.
pub fn account(epoch: u64, from: u64) -> Account {
    Account::new(epoch, from)
}

/// Charges the next `ns` nanoseconds to `cause`.
pub fn charge(account: &mut Account, cause: Cause, ns: u64) {
    account.charge(cause, ns);
}
