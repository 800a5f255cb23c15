//! The bytes of a host slot cannot be kept and written once the slot is ready.

use feedline_device::slots::{FillLease, HeapMemory};

fn fill(mut lease: FillLease<HeapMemory>) {
    let bytes = lease.bytes_mut();
    let _ready = lease.ready();
    bytes[0] = 1;
}

fn main() {}
