//! Misuse that does not compile: one file per misuse, with the compiler's messages.
//!
//! The messages belong to one compiler version; `TRYBUILD=overwrite` updates them for another. Every file
//! must be rejected for the reason in its first line.

use std::time::Duration;

use feedline::{Loader, Result, Stream};
use feedline_device::launch_host;
use feedline_testkit::Watchdog;

/// Correct use of the same API: the rejected files prove something only if this compiles.
#[allow(dead_code, reason = "compiled, not run")]
fn correct_use(compute: &Stream, branch: &Stream, loader: &mut Loader) -> Result<()> {
    for epoch in 0..2 {
        for batch in loader.epoch(epoch)? {
            let batch = batch?.wait_on(compute)?;
            let other = batch.also_on(branch)?;
            launch_host(compute, "compute", [batch.field::<u8>("image")?.into()], [], |_| {})?;
            launch_host(branch, "branch", [other.field::<u8>("image")?.into()], [], |_| {})?;
        }
    }
    Ok(())
}

#[test]
fn misuse_does_not_compile() {
    // The first run compiles feedline's dependencies.
    let _watchdog = Watchdog::new(Duration::from_secs(900), "misuse_does_not_compile");
    trybuild::TestCases::new().compile_fail("tests/compile_fail/*.rs");
}
