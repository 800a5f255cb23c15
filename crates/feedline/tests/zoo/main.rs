//! Every data set, composition and format of this repository: restored at every step with other workers and
//! depths, and read by worlds of 1, 2 and 4 ranks, it gives the same batches. A new one that is not listed
//! here makes a test fail.
//!
//! | part | file |
//! | --- | --- |
//! | data sets and compositions | `sets.rs` |
//! | files of the formats of the default build | `files.rs` |
//! | what is checked; also for all other formats, by `crates/tools/tests/zoo` | `entry.rs` |

#[path = "../common/mod.rs"]
mod common;
mod entry;
mod files;
#[path = "../restoring/mod.rs"]
mod restoring;
mod sets;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use common::{alone_in_parts, one_at_a_time};
use entry::{BATCH, Entry};
use feedline_testkit::restore::{From, MIXES, Pipeline};
use restoring::{Restored, implementations, is_on_by_default, read_source, sources};

/// Every entry, with its files in `dir`.
fn zoo(dir: &Path) -> Vec<Entry> {
    let mut all = sets::fixtures();
    all.extend(sets::compositions(dir));
    all.extend(files::data_sets(dir));
    all.extend(files::formats(dir));
    all
}

#[test]
fn every_data_set_resumes() {
    alone_in_parts(|| {
        let dir = tempfile::tempdir().unwrap();
        zoo(dir.path()).iter().for_each(|entry| entry.resumes(&MIXES));
    });
}

#[test]
fn every_data_set_is_the_same_in_worlds_of_1_2_and_4() {
    alone_in_parts(|| {
        let dir = tempfile::tempdir().unwrap();
        zoo(dir.path()).iter().for_each(Entry::is_the_same_in_worlds);
    });
}

#[test]
fn every_data_set_is_replayed_from_its_record() {
    alone_in_parts(|| {
        let dir = tempfile::tempdir().unwrap();
        let compared: usize = zoo(dir.path()).iter().map(Entry::is_replayed).sum();
        assert!(compared >= 1000, "only {compared} steps were compared by their bytes");
    });
}

/// Changes a byte of every file below `path` that holds samples, without changing its size.
fn change(path: &Path) {
    for entry in std::fs::read_dir(path).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            change(&path);
            continue;
        }
        // A changed index would not fit its file of ids, which changes too.
        if path.extension().is_some_and(|extension| extension == "idx") {
            continue;
        }
        let mut bytes = std::fs::read(&path).unwrap();
        let at = match path.extension().and_then(|extension| extension.to_str()) {
            Some("tar") => 512,             // the first byte of the first sample
            Some("txt") => bytes.len() - 2, // the last one before the end of the last line
            _ => bytes.len() - 1,
        };
        bytes[at] = bytes[at].wrapping_add(1);
        std::fs::write(&path, bytes).unwrap();
        // Two writes within the resolution of the file system's clock have one time.
        let file = std::fs::File::options().write(true).open(&path).unwrap();
        let later = std::time::SystemTime::now() + std::time::Duration::from_secs(10);
        file.set_modified(later).unwrap();
    }
}

#[test]
fn a_run_over_files_that_have_changed_does_not_resume() {
    alone_in_parts(|| {
        let formats = |dir: &Path| files::data_sets(dir).into_iter().chain(files::formats(dir));
        let count = formats(Path::new("")).count();
        for index in 0..count {
            let dir = tempfile::tempdir().unwrap();
            let Entry { name, build, .. } = formats(dir.path()).nth(index).unwrap();
            let loader = || Restored::new(build().batch_size(BATCH).shuffle().seed(5), MIXES[0]);
            let mut first = loader();
            first.run(From::Epoch(0), 1);
            let cursor = first.cursor();
            drop(first);
            loader().loader.resume(cursor).map(drop).unwrap_or_else(|error| panic!("{name}: {error}"));
            change(dir.path());
            let refused = loader().loader.resume(cursor).map(drop).map_err(|error| error.to_string());
            let why = refused.expect_err(name);
            assert!(why.contains("the cursor belongs to another data set"), "{name}: {why}");
        }
    });
}

#[test]
fn a_run_over_a_folder_with_other_files_does_not_resume() {
    alone_in_parts(|| {
        type Change = fn(&Path);
        let changes: [(&str, Change); 4] = [
            ("one more", |folder| std::fs::write(folder.join("bees/more"), "x").unwrap()),
            ("one fewer", |folder| std::fs::remove_file(folder.join("cats/002")).unwrap()),
            ("renamed", |folder| std::fs::rename(folder.join("ants/000"), folder.join("ants/0000")).unwrap()),
            ("another class", |folder| {
                std::fs::rename(folder.join("ants/021"), folder.join("bees/021")).unwrap()
            }),
        ];
        for (what, change) in changes {
            let dir = tempfile::tempdir().unwrap();
            let entry =
                || files::formats(dir.path()).into_iter().find(|entry| entry.name == "Folder").unwrap();
            let build = || (entry().build)().batch_size(BATCH).shuffle().seed(5);
            let mut first = Restored::new(build(), MIXES[0]);
            first.run(From::Epoch(0), 1);
            let cursor = first.cursor();
            drop(first);
            change(&dir.path().join("folder"));
            let folder = feedline_datasets::Folder::open(dir.path().join("folder")).unwrap();
            let builder = feedline::Loader::builder(files::of_any_size(Arc::new(folder)));
            let mut loader = Restored::new(builder.batch_size(BATCH).shuffle().seed(5), MIXES[0]);
            let refused = loader.loader.resume(cursor).map(drop).map_err(|error| error.to_string());
            let why = refused.expect_err(what);
            assert!(why.contains("the cursor belongs to another data set"), "{what}: {why}");
        }
    });
}

/// Fails when a data set, a composition or a format is added and is not in the zoo.
#[test]
fn no_data_set_composition_or_format_is_left_out() {
    let _one = one_at_a_time(); // The files that it opens would show in the census of another test.
    let Some(root) = sources("no_data_set_composition_or_format_is_left_out") else { return };
    let dir = tempfile::tempdir().unwrap();
    let listed = |entries: &[Entry]| -> BTreeSet<String> {
        entries.iter().map(|entry| entry.type_name().to_owned()).collect()
    };
    let mut sets = sets::fixtures();
    sets.extend(sets::compositions(dir.path()));
    sets.extend(files::data_sets(dir.path()));
    let mut tested = listed(&sets);
    for pointer in ["Arc", "Box", "Ref"] {
        assert!(tested.remove(pointer), "{pointer}: a pointer to a data set is one too");
    }
    // Sets behind a feature that is off by default are tested with the formats.
    let on_by_default = |name: &str| -> BTreeSet<String> {
        let all = implementations(&root, name).into_iter();
        all.filter(|(_, file)| is_on_by_default(&root, file)).map(|(name, _)| name).collect()
    };
    tested.extend(listed(&files::formats(dir.path())));
    let mut all = on_by_default("Dataset");
    // Any table; its formats need features: with those in the other zoo.
    assert!(all.remove("Manifest"));
    assert_eq!(all, tested);

    // Several methods make the same type, so each is named.
    let methods = read_source(&root.join("crates/core/src/dataset.rs")).replace("(\n        self", "(self");
    let composing = methods.lines().filter_map(|line| line.trim().strip_prefix("fn ")?.split_once("(self"));
    let composing = Vec::from_iter(composing.map(|(method, _)| method.split('<').next().unwrap_or(method)));
    assert_eq!(composing.len(), 15, "{composing:?}");
    for method in composing {
        let is_named = |entry: &Entry| entry.name.split([' ', ',']).any(|word| word == method);
        assert!(sets.iter().any(is_named), "Dataset::{method} is not in the zoo");
    }
}
