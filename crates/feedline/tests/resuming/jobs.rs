//! Code of a user who reads shards in sequence on several ranks, and resumes from a copy of the data. The
//! files are written by NumPy and pyarrow.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Command;

use crate::common::alone;
use feedline::{Checkpoint, DType, Loader, Spec, World, source};
use feedline_datasets::{Bounded, OpenOptions, open_with};
use feedline_testkit::not_run;

/// Runs a Python program in `folder`. If the interpreter lacks a package, prints so and returns false.
fn python(what: &str, folder: &Path, program: &str) -> bool {
    let interpreter = std::env::var_os("FEEDLINE_PYTHON").unwrap_or_else(|| "python3".into());
    let has_packages = Command::new(&interpreter).args(["-c", "import numpy, pyarrow.csv"]).output();
    if !has_packages.is_ok_and(|output| output.status.success()) {
        not_run(what, "this python3 has no NumPy and pyarrow: set FEEDLINE_PYTHON");
        return false;
    }
    let output = Command::new(interpreter).args(["-c", program]).current_dir(folder).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    true
}

#[test]
fn a_source_of_3_shards_on_4_ranks() {
    alone(|| {
        let dir = tempfile::tempdir().unwrap();
        let program = "import pyarrow as pa, pyarrow.csv as csv\n\
            for shard, rows in enumerate([701, 40, 259]):\n\
            \x20   ids = [1000 * shard + row for row in range(rows)]\n\
            \x20   table = pa.table({'id': ids, 'half': [id / 2 for id in ids]})\n\
            \x20   options = csv.WriteOptions(include_header=False)\n\
            \x20   csv.write_csv(table, f'{shard}.csv', options)\n";
        if !python("a source of 3 shards on 4 ranks", dir.path(), program) {
            return;
        }
        let folder = dir.path().to_path_buf();
        let loader = |world: World| -> Result<_, Box<dyn std::error::Error>> {
            // What the user writes.
            let paths = [0, 1, 2].map(|shard| folder.join(format!("{shard}.csv")));
            let spec = Spec::new().field("id", DType::I64, [])?.field("half", DType::F64, [])?;
            let lines = move |_epoch, shard: u64| {
                Ok(BufReader::new(File::open(&paths[shard as usize])?).split(b'\n').map(|line| Ok(line?)))
            };
            let source = source::from_iter(3, spec, lines, |line, row, _| {
                let (id, half) = std::str::from_utf8(line)?.split_once(',').ok_or("a line of two cells")?;
                row.field_mut::<i64>(0)?[0] = id.parse()?;
                row.field_mut::<f64>(1)?[0] = half.parse()?;
                Ok(())
            });
            let builder = Loader::source_builder(source).batch_size(32).shuffle_shards().seed(7);
            let loader = builder.shuffle_buffer(1 << 20).split_shards().world(world).build_host()?;

            Ok(loader)
        };
        let (mut all, mut counts) = (Vec::new(), Vec::new());
        for rank in 0..4 {
            let mut loader = loader(World::new(rank, 4).unwrap()).unwrap();
            let before = all.len();
            for batch in loader.epoch(0).unwrap() {
                let batch = batch.unwrap();
                let (ids, halves) = (batch.field::<i64>("id").unwrap(), batch.field::<f64>("half").unwrap());
                assert!(ids.iter().zip(halves).all(|(&id, &half)| half * 2.0 == id as f64));
                all.extend_from_slice(ids);
            }
            counts.push(all.len() - before);
        }
        all.sort_unstable();
        let want = [701, 40, 259]
            .into_iter()
            .zip(0..)
            .flat_map(|(rows, shard)| (0..rows).map(move |row| 1000 * shard + row));
        assert!(all.into_iter().eq(want), "every record once");
        assert!(counts.iter().all(|count| (249..=251).contains(count)), "{counts:?}");
    });
}

#[test]
fn a_run_resumes_from_a_copy_of_its_file_and_not_from_another_file() {
    alone(|| {
        let dir = tempfile::tempdir().unwrap();
        let program = "import numpy as np\n\
            x = np.arange(3000, dtype='<i8').reshape(1000, 3)\n\
            np.save('x.npy', x)\n\
            x[999, 2] = 7\n\
            np.save('other.npy', x)\n";
        if !python("a re-staged file", dir.path(), program) {
            return;
        }
        let saved = dir.path().join("checkpoint");
        // Reads row by row, as from a file that does not fit in memory.
        let loader = |path: &Path| {
            let options = OpenOptions::with_memory_limit(0);
            Loader::builder(Bounded::new(open_with(path, &options)?)?)
                .batch_size(16)
                .shuffle()
                .seed(7)
                .build_host()
        };
        let sum = |batch: feedline::Result<feedline::HostBatch>| {
            batch.unwrap().field::<i64>("array").unwrap().iter().sum::<i64>()
        };
        let original = dir.path().join("x.npy");
        let mut first = loader(&original).unwrap();
        let read: i64 = first.epoch(0).unwrap().take(5).map(sum).sum();
        first.checkpoint().unwrap().save(&saved).unwrap();

        let copy = dir.path().join("staged-again.npy");
        std::fs::copy(&original, &copy).unwrap();
        let touched = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000);
        File::options().write(true).open(&copy).unwrap().set_modified(touched).unwrap();
        // What the user writes.
        let resume = |path: &Path| -> feedline::Result<i64> {
            let saved = Checkpoint::load(&saved)?;
            let mut loader = loader(path)?;
            let rest = loader.resume(saved.cursor)?.map(sum).sum();
            Ok(rest)
        };
        assert_eq!(read + resume(&copy).unwrap(), (0..3000).sum::<i64>());
        let error = resume(&dir.path().join("other.npy")).unwrap_err();
        assert!(error.message().contains("which also has 1000 samples: content"), "{error}");
    });
}

#[test]
fn a_version_that_the_user_states_stands_for_the_data() {
    alone(|| {
        let numbers = |first: u8| {
            feedline::InMemory::new().field("x", [], (first..first + 40).collect::<Vec<_>>()).unwrap()
        };
        let loader = |first, version: Option<&str>| {
            let builder = Loader::builder(numbers(first)).batch_size(8).shuffle().seed(7);
            let builder = version.into_iter().fold(builder, |builder, version| builder.data_version(version));
            builder.build_host().unwrap()
        };
        let mut saved = loader(0, Some("v1"));
        saved.epoch(0).unwrap().next();
        let cursor = saved.cursor();
        assert_eq!(loader(1, Some("v1")).resume(cursor).unwrap().count(), 4, "ignored");
        for (first, version) in [(0, Some("v2")), (0, None)] {
            let error = loader(first, version).resume(cursor).expect_err("an error");
            assert!(error.message().contains("which also has 40 samples"), "{error}");
        }
        assert_eq!(loader(0, None).resume(cursor.ignore_fingerprint()).unwrap().count(), 4);
    });
}
