//! A lease that is ready gives out its bytes to read, never to write.

use feedline_slots::{HeapMemory, ReadyLease};

fn touch(lease: &mut ReadyLease<HeapMemory>) {
    lease.bytes()[0] = 1;
}

fn main() {}
