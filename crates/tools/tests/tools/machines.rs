//! One machine reads the files that another writes: packed sets, fitted tables, checkpoints, caches and
//! records of x86-64 and of Arm, in `tests/golden`.
//!
//! With `FEEDLINE_GOLDEN=1` the test first writes the files of the machine that it runs on anew.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use feedline::record::{RecordOptions, Recorder};
use feedline::{Checkpoint, Cursor, Dataset, Device, Loader, LoaderBuilder};
use feedline_core::compose::Cached;
use feedline_datasets::{Bounded, PackOptions, Table, open, pack};

use crate::run::write;

/// The names are Rust's.
const MACHINES: [&str; 2] = ["x86_64", "aarch64"];
const ROWS: u64 = 60;
/// Steps before the checkpoint.
const STEPS: usize = 5;
/// The order hash of the checkpoint.
const ORDER: u64 = 0xDBB1_E7E8_9AD3_59E8;

fn golden(machine: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(machine)
}

/// The packed set of a folder, cached in a file there.
fn set(folder: &Path) -> Arc<Cached> {
    let set = Bounded::new(open(folder.join("set.arrow")).unwrap()).unwrap();
    Arc::new(set.cached_in_file(folder.join("cache"), 1 << 20).unwrap())
}

fn builder(set: &Arc<Cached>) -> LoaderBuilder {
    Loader::builder(set.clone()).batch_size(4).shuffle().seed(9)
}

/// A batch: its ids, and the bytes of its fields.
type Contents = (Vec<u64>, Vec<i64>, Vec<u32>, Vec<i64>);

/// Up to `steps` batches, from the first one or from a cursor; and the checkpoint after them.
fn run(builder: LoaderBuilder, from: Option<Cursor>, steps: usize) -> (Vec<Contents>, Checkpoint) {
    let device = Device::new_host();
    let compute = device.stream().unwrap();
    let mut loader = builder.build(&device).unwrap();
    let batches = match from {
        Some(cursor) => loader.resume(cursor),
        None => loader.epoch(0),
    };
    let contents = batches.unwrap().take(steps).map(|batch| {
        let batch = batch.unwrap().wait_on(&compute).unwrap();
        let bits = batch.to_vec::<f32>("x").unwrap().iter().map(|x| x.to_bits()).collect();
        (batch.ids().to_vec(), batch.to_vec("id").unwrap(), bits, batch.to_vec("color").unwrap())
    });
    (contents.collect(), loader.checkpoint(&compute).unwrap())
}

/// Writes one file of each kind to `folder`.
fn write_all(folder: &Path) {
    let scratch = tempfile::tempdir().unwrap();
    let color = |id: u64| ["red", "green", "blue"][id as usize % 3];
    let lines = (0..ROWS).map(|id| format!("{id},{}.{},{}\n", id * 7 % 31, id % 10, color(id)));
    let csv = format!("id,x,color\n{}", lines.collect::<String>());
    let csv = write(scratch.path(), "a.csv", csv.as_bytes());
    let table = Table::open(csv).category("color").standardize("x").saved(folder.join("table.json"));
    pack(&*table.rows().unwrap(), folder.join("set.arrow"), PackOptions::default(), |_| ()).unwrap();

    let (set, recorder) = (set(folder), Recorder::new(folder, RecordOptions::default()));
    let (_, checkpoint) = run(builder(&set), None, STEPS);
    checkpoint.save(folder.join("run.checkpoint")).unwrap();
    // The whole epoch: it fills the cache.
    run(builder(&set).record(&recorder), None, usize::MAX);
}

#[test]
fn files_of_one_machine_are_read_on_the_other() {
    let fresh = tempfile::tempdir().unwrap();
    write_all(fresh.path());
    if std::env::var_os("FEEDLINE_GOLDEN").is_some() {
        let folder = golden(std::env::consts::ARCH);
        fs::remove_dir_all(&folder).ok();
        fs::create_dir_all(&folder).unwrap();
        for file in fs::read_dir(fresh.path()).unwrap() {
            let file = file.unwrap();
            fs::copy(file.path(), folder.join(file.file_name())).unwrap();
        }
    }
    let (expected, _) = run(builder(&set(fresh.path())), None, usize::MAX);
    assert_eq!(expected.len(), 15);
    for machine in MACHINES {
        // A copy, because a cache is opened to write.
        let copy = tempfile::tempdir().unwrap();
        let mut files = 0;
        for file in fs::read_dir(golden(machine)).unwrap() {
            let file = file.unwrap();
            fs::copy(file.path(), copy.path().join(file.file_name())).unwrap();
            files += 1;
        }
        assert_eq!(files, 5, "{machine}");
        for name in ["set.arrow", "table.json", "run.checkpoint"] {
            let [here, there] =
                [fresh.path(), copy.path()].map(|folder| fs::read(folder.join(name)).unwrap());
            assert!(here == there, "{machine}: {name} has other bytes");
        }
        let set = set(copy.path());
        let saved = Checkpoint::load(copy.path().join("run.checkpoint")).unwrap();
        assert_eq!(saved.cursor.order_hash(), ORDER, "{machine}");
        let (rest, end) = run(builder(&set), Some(saved.cursor), usize::MAX);
        assert_eq!(rest, expected[STEPS..], "{machine}");
        assert_eq!(end.cursor.proof().count(), ROWS, "{machine}");
        let read = ROWS - 4 * STEPS as u64;
        assert!(set.stats().hits >= read && set.stats().misses == 0, "{machine}: its cache was not used");
        let mut diff = Command::new(env!("CARGO_BIN_EXE_feedline"));
        let diff = diff.arg("diff").args([fresh.path(), copy.path()]).output().unwrap();
        assert!(diff.status.success(), "{machine}: {}", String::from_utf8_lossy(&diff.stdout));
    }
}
