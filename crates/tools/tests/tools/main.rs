//! Tests of the programs, and of the pieces of code in `docs/data.md`.

#[cfg(feature = "object-store")]
mod buckets;
mod collate;
mod inspect;
mod jobs;
mod machines;
#[path = "../../../../datasets/tests/made/mod.rs"]
mod made;
mod pack;
mod page;
mod record;
#[path = "../run/mod.rs"]
mod run;
#[cfg(feature = "object-store")]
#[expect(dead_code, reason = "here nothing goes wrong")]
#[path = "../../../../datasets/tests/server/mod.rs"]
mod server;
mod words;
