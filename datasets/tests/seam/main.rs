//! What must stay the same in every format and every set over it: fingerprints, specs, keys, the bytes of
//! samples, and the errors. `tests/golden/seam.json` has it.
//!
//! A change that is meant is written by `FEEDLINE_GOLDEN=write cargo test -p feedline-datasets --all-features
//! --test seam`. A cursor, a cache or a file of lengths of an earlier version is refused where a fingerprint
//! or a key differs, so the list of changes must say so.

mod bad_files;
mod facts;
mod files;
mod formats;
mod golden;
mod large;
#[path = "../made/mod.rs"]
mod made;
mod media;
mod options;
mod refused;
mod steps;
mod tables;
mod texts;
mod wrappers;

use std::path::Path;
use std::sync::Arc;

use feedline_core::Dataset;
use golden::Found;

/// Whether this process keeps lengths in a folder of its own. Otherwise runs `test` again in a process that
/// does: the user's cache may have lengths, and is not written.
fn has_own_cache(test: &str) -> bool {
    let cache = tempfile::tempdir().unwrap();
    feedline_testkit::own_process(test, |this| {
        this.env(feedline_core::CACHE_VARIABLE, cache.path());
    })
}

type Readers = Vec<(String, Arc<dyn Dataset>)>;

/// Every reader.
fn readers(dir: &Path) -> Readers {
    [formats::readers(dir), texts::readers(dir)].concat()
}

fn values() -> Found {
    let temporary = tempfile::tempdir().unwrap();
    // A folder of its own name, which may be in errors.
    let mut found = Found::new(&temporary.path().join("files"));
    let dir = found.dir.clone();
    for (name, reader) in readers(&dir) {
        found.reader(&name, &reader);
    }
    tables::values(&mut found);
    media::values(&mut found);
    large::values(&mut found);
    wrappers::values(&mut found);
    found
}

fn errors() -> Found {
    let temporary = tempfile::tempdir().unwrap();
    // A folder of its own name, which may be in errors.
    let mut found = Found::new(&temporary.path().join("files"));
    let dir = found.dir.clone();
    // Names with a comma are another form of the one before.
    for (name, reader) in readers(&dir).into_iter().filter(|(name, _)| !name.contains(',')) {
        bad_files::wrong_ids(&mut found, &name, &reader);
    }
    // The steps that another table has saved.
    texts::numbers(dir.join("a.csv")).saved(dir.join("a.table.json")).rows().unwrap();
    bad_files::errors(&mut found);
    options::errors(&mut found);
    refused::errors(&mut found);
    steps::errors(&mut found);
    found
}

#[test]
fn every_value_is_that_of_the_golden_file() {
    if !has_own_cache("every_value_is_that_of_the_golden_file") {
        return;
    }
    let found = values();
    if golden::is_written() {
        golden::write(&errors(), &found);
    }
    golden::compare("values", &found);
}

#[test]
fn every_error_is_that_of_the_golden_file() {
    if has_own_cache("every_error_is_that_of_the_golden_file") && !golden::is_written() {
        golden::compare("errors", &errors());
    }
}
