//! A filled slot is submitted once: submitting consumes the lease.

use feedline_core::Result;
use feedline_device::slots::{HeapMemory, ReadyLease};

fn copy(lease: ReadyLease<HeapMemory>) -> Result<()> {
    lease.submit(|_, _| Ok(()))?;
    lease.submit(|_, _| Ok(()))
}

fn main() {}
