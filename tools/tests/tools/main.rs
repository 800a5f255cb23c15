//! Tests of the programs, and of the pieces of code in `docs/data.md`.

mod inspect;
mod jobs;
#[path = "../../../datasets/tests/made/mod.rs"]
mod made;
mod pack;
mod page;
#[path = "../run/mod.rs"]
mod run;
#[cfg(feature = "object-store")]
#[allow(dead_code)] // made for tests of faults
#[path = "../../../datasets/tests/server/mod.rs"]
mod server;
