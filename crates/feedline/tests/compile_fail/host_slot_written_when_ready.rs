//! A host slot cannot be written once it is ready, because the lease for writing is consumed.

use feedline_device::slots::{FillLease, HeapMemory};

fn fill(mut lease: FillLease<HeapMemory>) {
    let _ready = lease.ready();
    lease.bytes_mut()[0] = 1;
}

fn main() {}
