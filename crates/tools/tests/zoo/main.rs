//! Every format that `open` reads: restored at every step with other workers and depths, and read by worlds
//! of 1, 2 and 4 ranks, it gives the same batches. A format that is not listed here makes a test fail.
//!
//! Compositions, and the types of the default build, are in `crates/feedline/tests/zoo`.

#[path = "../../../feedline/tests/common/mod.rs"]
mod common;
#[path = "../../../feedline/tests/zoo/entry.rs"]
mod entry;
mod formats;
mod large_table;
#[path = "../../../../datasets/tests/made/mod.rs"]
mod made;
mod random_resumes;
#[cfg(feature = "object-store")]
mod remote;
#[path = "../../../feedline/tests/restoring/mod.rs"]
mod restoring;
#[cfg(feature = "object-store")]
#[expect(dead_code, reason = "here nothing goes wrong")]
#[path = "../../../../datasets/tests/server/mod.rs"]
mod server;

use std::collections::BTreeSet;
use std::path::Path;

use common::{alone_in_parts, one_at_a_time};
use entry::Entry;
use feedline_testkit::restore::{self, MIXES};
use restoring::{Restored, implementations, is_on_by_default, read_source, sources, variants};

/// Every entry, with its files in `dir`. Empty without the sources, because it needs their golden files.
fn zoo(test: &str, dir: &Path) -> Vec<Entry> {
    let Some(root) = sources(test) else { return Vec::new() };
    #[cfg_attr(not(feature = "object-store"), expect(unused_mut))]
    let mut all = formats::formats(&root, dir);
    #[cfg(feature = "object-store")]
    all.extend(remote::by_url(&root, dir));
    all
}

#[test]
fn every_format_resumes() {
    alone_in_parts(|| {
        let dir = tempfile::tempdir().unwrap();
        // Two of the mixes: one worker, and many workers. The other zoo runs all mixes.
        let mixes = [MIXES[0], MIXES[7]];
        zoo("every_format_resumes", dir.path()).iter().for_each(|entry| entry.resumes(&mixes));
    });
}

#[test]
fn every_format_is_replayed_from_its_record() {
    alone_in_parts(|| {
        let dir = tempfile::tempdir().unwrap();
        let all = zoo("every_format_is_replayed_from_its_record", dir.path());
        let compared: usize = all.iter().map(Entry::is_replayed).sum();
        assert_eq!(compared, 30 * all.len());
    });
}

#[test]
fn every_format_is_the_same_in_worlds_of_1_2_and_4() {
    alone_in_parts(|| {
        let dir = tempfile::tempdir().unwrap();
        let all = zoo("every_format_is_the_same_in_worlds_of_1_2_and_4", dir.path());
        all.iter().for_each(Entry::is_the_same_in_worlds);
    });
}

#[test]
fn a_tokenized_source_is_restored_at_every_step() {
    alone_in_parts(|| {
        let dir = tempfile::tempdir().unwrap();
        let build = formats::tokenized_source(dir.path());
        let builder = || build().batch_size(8).shuffle_shards().seed(31);
        let done = restore::everywhere(|mix| Restored::new(builder(), mix));
        assert!(done.steps >= 4 && done.restored >= 12 * done.steps, "{done:?}");
    });
}

/// Fails if a format or type is added without an entry in a zoo.
#[test]
fn no_format_is_left_out() {
    let _one = one_at_a_time(); // The files that it opens would show in the census of another test.
    let Some(root) = sources("no_format_is_left_out") else { return };
    let dir = tempfile::tempdir().unwrap();
    let all = formats::formats(&root, dir.path());
    let types: BTreeSet<String> = all.iter().map(|entry| entry.type_name().to_owned()).collect();
    for (implementor, file) in implementations(&root, "Dataset") {
        let is_here = types.contains(&implementor) || is_on_by_default(&root, &file);
        assert!(is_here, "{implementor}, a data set behind a feature, is not in the zoo");
    }
    // The second word of an entry is its kind.
    let mut kinds: BTreeSet<&str> = all.iter().filter_map(|entry| entry.name.split(' ').nth(1)).collect();
    // Entries of the default build have other types, and are in the other zoo.
    kinds.extend(["Idx", "Tar", "Text", "Refused", "Unknown"]);
    let known = variants(&read_source(&root.join("datasets/src/open/kind.rs")), "Kind");
    assert!(known.len() >= 15, "only {known:?} were found");
    for kind in known {
        assert!(kinds.contains(kind.as_str()), "Kind::{kind} is not in the zoo");
    }
    #[cfg(feature = "object-store")]
    remote::assert_all_kinds(&root, &remote::by_url(&root, dir.path()));
}
