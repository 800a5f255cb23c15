//! Every data set, composition and format of this repository: restored at every step with other workers and
//! depths, and read by worlds of 1, 2 and 4 ranks, it gives the same batches. A new one that is not listed
//! here makes a test fail.
//!
//! | part | file |
//! | --- | --- |
//! | data sets and compositions | `sets.rs` |
//! | files of every format | `files.rs` |

#[path = "../common/mod.rs"]
mod common;
mod files;
#[path = "../restoring/mod.rs"]
mod restoring;
mod sets;

use std::collections::BTreeSet;
use std::path::Path;

use common::{alone_in_parts, one_at_a_time};
use feedline::{LoaderBuilder, World};
use feedline_testkit::restore::{self, From, MIXES, Pipeline, Step};
use feedline_testkit::{Watchdog, watchdog};
use restoring::{Restored, implementations, read_source, sources};

/// Samples of every set: two full batches of [`BATCH`] and a short one.
const LEN: u64 = 23;
const BATCH: usize = 9;

/// A data set of the zoo.
struct Entry {
    /// The name of its type, and after it what makes it different from others of this type.
    name: &'static str,
    /// A loader of it, of single samples.
    build: Box<dyn Fn() -> LoaderBuilder>,
    /// Whether a row depends on the other rows of its batch.
    mixes_rows: bool,
}

impl Entry {
    fn new(name: &'static str, build: impl Fn() -> LoaderBuilder + 'static) -> Self {
        Self { name, build: Box::new(build), mixes_rows: false }
    }

    /// The name of its type.
    fn type_name(&self) -> &str {
        self.name.split(' ').next().unwrap_or_default()
    }
}

/// Every entry, with its files in `dir`.
fn zoo(dir: &Path) -> Vec<Entry> {
    let mut all = sets::fixtures();
    all.extend(sets::compositions(dir));
    all.extend(files::data_sets(dir));
    all.extend(files::readers(dir));
    all
}

#[test]
fn every_data_set_resumes() {
    alone_in_parts(|| {
        let dir = tempfile::tempdir().unwrap();
        for Entry { name, build, .. } in zoo(dir.path()) {
            let _watchdog = Watchdog::new(watchdog::LIMIT, name);
            println!("{name}");
            let builder = || build().batch_size(BATCH).shuffle(5);
            let done = restore::everywhere(|mix| Restored::new(builder(), mix));
            assert!(done.steps >= 4 && done.restored >= 12 * done.steps, "{name}: {done:?}");
        }
    });
}

/// The rows of a step, each with its sample.
fn rows(step: &Step, widths: &[usize]) -> Vec<(u64, Vec<u8>)> {
    let count = step.ids.len();
    let row = |row: usize| {
        let mut field = 0;
        let bytes = widths.iter().flat_map(|&width| {
            let start = field + row * width;
            field += count * width;
            step.bytes[start..start + width].to_vec()
        });
        (step.ids[row], bytes.collect())
    };
    (0..count).map(row).collect()
}

#[test]
fn every_data_set_is_the_same_in_worlds_of_1_2_and_4() {
    alone_in_parts(|| {
        let dir = tempfile::tempdir().unwrap();
        for Entry { name, build, mixes_rows, .. } in zoo(dir.path()) {
            if mixes_rows {
                continue;
            }
            let _watchdog = Watchdog::new(watchdog::LIMIT, name);
            // The rows of each step, over all ranks.
            let steps = |world: u32| -> Vec<Vec<(u64, Vec<u8>)>> {
                let mut steps = Vec::new();
                for rank in 0..world {
                    let builder = build().batch_size(8 / world as usize).shuffle(5);
                    let builder = builder.world(World::new(rank, world).unwrap());
                    let mut loader = Restored::new(builder, MIXES[(rank + world) as usize]);
                    let fields = loader.loader.layout().spec().fields().iter();
                    let widths: Vec<usize> = fields.map(|field| field.row_bytes()).collect();
                    let delivered = (0..2).flat_map(|epoch| loader.run(From::Epoch(epoch), usize::MAX));
                    for (number, step) in delivered.enumerate() {
                        steps.resize_with(steps.len().max(number + 1), Vec::new);
                        steps[number].extend(rows(&step, &widths));
                    }
                }
                steps
            };
            let alone = steps(1);
            assert_eq!(alone.len(), 2 * 3, "{name}");
            for world in [2, 4] {
                assert!(steps(world) == alone, "{name}: {world} ranks read something else");
            }
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
    let implemented: BTreeSet<String> = implementations(&root, "Dataset").into_keys().collect();
    assert_eq!(implemented, tested);

    // Formats behind a feature that is off by default are tested with the formats.
    let modules = read_source(&root.join("datasets/src/lib.rs"));
    let on_by_default: BTreeSet<String> = implementations(&root, "Reader")
        .into_iter()
        .filter(|(_, file)| is_on_by_default(&root, &modules, file))
        .map(|(reader, _)| reader)
        .collect();
    assert_eq!(on_by_default, listed(&files::readers(dir.path())));

    // Several methods make the same type, so each is named.
    let methods = read_source(&root.join("crates/core/src/dataset.rs")).replace("(\n        self", "(self");
    let composing = methods.lines().filter_map(|line| line.trim().strip_prefix("fn ")?.split_once("(self"));
    let composing = Vec::from_iter(composing.map(|(method, _)| method.split('<').next().unwrap_or(method)));
    assert!(composing.len() >= 12, "only {composing:?} were found");
    for method in composing {
        let is_named = |entry: &Entry| entry.name.split([' ', ',']).any(|word| word == method);
        assert!(sets.iter().any(is_named), "Dataset::{method} is not in the zoo");
    }
}

/// Whether `modules`, the root of the data sets, has the module of `file` in a default build.
fn is_on_by_default(root: &Path, modules: &str, file: &Path) -> bool {
    let inside = file.strip_prefix(root.join("datasets/src")).expect("a file of the data sets");
    let module = inside.iter().next().and_then(|first| Path::new(first).file_stem()).expect("a module");
    let line = format!("mod {};", module.to_str().expect("a name"));
    let (before, _) = modules.split_once(&line).unwrap_or_else(|| panic!("{}: not a module", file.display()));
    let Some((_, feature)) = before.rsplit_once('\n').map_or(before, |(before, _)| before).rsplit_once('\n')
    else {
        return true;
    };
    let Some(feature) = feature.strip_prefix("#[cfg(feature = \"") else { return true };
    let defaults = read_source(&root.join("datasets/Cargo.toml"));
    let defaults = defaults.lines().find(|line| line.starts_with("default = ")).expect("default features");
    defaults.contains(&format!("\"{}", feature.trim_end_matches(")]")))
}
