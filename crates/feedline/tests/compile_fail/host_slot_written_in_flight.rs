//! The bytes of a ready lease are read-only.

use feedline_device::slots::{HeapMemory, ReadyLease};

fn touch(lease: &mut ReadyLease<HeapMemory>) {
    lease.bytes()[0] = 1;
}

fn main() {}
