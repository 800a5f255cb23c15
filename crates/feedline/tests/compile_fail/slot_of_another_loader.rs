//! The slots of two loaders cannot be mixed: a loader exposes neither its leases nor the slot of a batch.

use feedline::{Batch, Loader};
use feedline_device::device_slots::{Loaded, WriteLease};

fn take_the_slot(batch: Batch) -> Loaded {
    batch.loaded
}

fn take_a_lease(loader: &Loader) -> WriteLease {
    loader.slots.acquire().unwrap()
}

fn main() {}
