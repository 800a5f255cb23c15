//! Misuse that does not compile: one file a misuse, with what the compiler says.
//!
//! The words are those of one compiler. On another, `TRYBUILD=overwrite` writes them anew; what counts is that every file
//! is refused, and for the reason in its first line.

use std::time::Duration;

use feedline::{Loader, Result, Stream};
use feedline_testkit::Watchdog;

/// What the files get wrong, done right: were this refused too, their refusal would prove nothing.
#[allow(dead_code, reason = "compiled, not run")]
fn the_way_it_is_meant(compute: &Stream, branch: &Stream, loader: &mut Loader) -> Result<()> {
    for epoch in 0..2 {
        for batch in loader.epoch(epoch)? {
            let batch = batch?.wait_on(compute)?;
            let other = batch.also_on(branch)?;
            compute.run("compute", [batch.field::<u8>("image")?.into()], [], |_| {})?;
            branch.run("branch", [other.field::<u8>("image")?.into()], [], |_| {})?;
        }
    }
    Ok(())
}

#[test]
fn misuse_does_not_compile() {
    // The first time it compiles what feedline stands on.
    let _watchdog = Watchdog::new(Duration::from_secs(900), "misuse_does_not_compile");
    trybuild::TestCases::new().compile_fail("tests/compile_fail/*.rs");
}
