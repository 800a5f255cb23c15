//! Data that has changed since the run: the error names the sample and the file, and why the run is not
//! continued.

use std::fs::{File, read, write};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use feedline::record::{RecordOptions, Recorder};
use feedline::{Dataset, Device, ErrorKind, Loader};
use feedline_datasets::{Bounded, OpenOptions, open};
use feedline_record::{ChangedSample, Header, Manifest, Run, Verdict};
use feedline_testkit::{watchdog::LIMIT, with_watchdog};

use crate::record;

/// Samples of a shard.
const SHARD: u64 = 30;

/// Four shards of `u8` arrays of 5 elements.
fn shards(folder: &Path) -> PathBuf {
    let data = folder.join("data");
    std::fs::create_dir(&data).unwrap();
    for shard in 0..4_u8 {
        let header = format!("{{'descr': '|u1', 'fortran_order': False, 'shape': ({SHARD}, 5), }}");
        let mut file = b"\x93NUMPY\x01\x00".to_vec();
        file.extend(118_u16.to_le_bytes());
        file.extend(format!("{header:<117}\n").as_bytes());
        file.extend((0..SHARD as u8 * 5).map(|value| value ^ (shard * 17)));
        write(data.join(format!("part-{shard}.npy")), file).unwrap();
    }
    data
}

/// Changes the byte of sample `sample` of a shard, and puts the time of its last write at `time`.
fn flip(shard: &Path, sample: u64, time: SystemTime) {
    let mut bytes = read(shard).unwrap();
    bytes[128 + 5 * sample as usize + 2] ^= 1;
    write(shard, bytes).unwrap();
    File::options().write(true).open(shard).unwrap().set_modified(time).unwrap();
}

fn modified(path: &Path) -> SystemTime {
    path.metadata().unwrap().modified().unwrap()
}

fn set(data: &Path) -> impl Dataset {
    Bounded::new(open(data).unwrap()).unwrap()
}

#[test]
fn one_flipped_byte_is_named_with_its_sample_and_file_although_the_time_is_put_back() {
    with_watchdog(2 * LIMIT, || {
        let folder = tempfile::tempdir().unwrap();
        let (data, run) = (shards(folder.path()), folder.path().join("run"));
        record(Loader::builder(set(&data)).batch_size(16).shuffle().seed(9), &run, 2).unwrap();
        let run = Run::open(&run).unwrap();
        let manifest = Manifest::of(Loader::builder(set(&data)), |_, _| ()).unwrap();
        assert!(run.verify(&Loader::builder(set(&data)), |_, _| ()).unwrap().is_equal());

        let shard = data.join("part-2.npy");
        flip(&shard, 7, modified(&shard));
        let changed = 2 * SHARD + 7;
        let mut replayer = run.replayer(Loader::builder(set(&data)), 0);
        let mut differ = 0;
        replayer
            .steps(run.steps(), |replayed| {
                if replayed.verdict == Verdict::Equal {
                    assert!(!replayed.batch.ids().contains(&changed));
                } else {
                    assert_eq!(replayed.changed(), Some((changed, Some(&shard))));
                    differ += 1;
                }
                Ok(())
            })
            .unwrap();
        assert_eq!(differ, 2, "once in each epoch");

        let expected = vec![ChangedSample { sample: changed, path: Some(shard) }];
        let mut shown = (0, 0);
        let verified = run.verify(&Loader::builder(set(&data)), |done, all| shown = (done, all)).unwrap();
        assert_eq!((verified.samples, &verified.changed, shown), (120, &expected, (16, 16)));
        let file = folder.path().join("manifest");
        manifest.save(&file).unwrap();
        let manifest = Manifest::open(&file).unwrap().expect("a manifest");
        let verified = manifest.verify(Loader::builder(set(&data)), |_, _| ()).unwrap();
        assert_eq!((verified.samples, &verified.changed), (120, &expected));
    });
}

#[test]
fn two_changed_samples_of_a_batch_are_told_apart_by_other_epochs() {
    with_watchdog(LIMIT, || {
        let folder = tempfile::tempdir().unwrap();
        let (data, run) = (shards(folder.path()), folder.path().join("run"));
        record(Loader::builder(set(&data)).batch_size(8).shuffle().seed(9), &run, 3).unwrap();
        let run = Run::open(&run).unwrap();
        // Two samples of the first batch that come in different batches later.
        let ids = run.ids(0, 0).unwrap();
        for id in &ids[1..3] {
            let shard = data.join(format!("part-{}.npy", id / SHARD));
            flip(&shard, id % SHARD, modified(&shard));
        }
        let mut expected = ids[1..3].to_vec();
        expected.sort_unstable();
        let first = run.replayer(Loader::builder(set(&data)), 0).step(0).unwrap();
        assert_eq!(first.verdict, Verdict::OtherBytes { row: None });
        let verified = run.verify(&Loader::builder(set(&data)), |_, _| ()).unwrap();
        let named = Vec::from_iter(verified.changed.iter().map(|of| of.sample));
        assert_eq!((named, verified.suspected), (expected, vec![]));
    });
}

#[test]
fn a_run_is_not_continued_on_data_that_has_changed() {
    with_watchdog(LIMIT, || {
        let folder = tempfile::tempdir().unwrap();
        let (data, recorded) = (shards(folder.path()), folder.path().join("run"));
        record(Loader::builder(set(&data)).batch_size(16).shuffle().seed(9), &recorded, 1).unwrap();
        let run = Run::open(&recorded).unwrap();
        let device = Device::new_host();
        let mut loader = Loader::builder(set(&data)).batch_size(16).shuffle().seed(9).build(&device).unwrap();
        assert_eq!(run.resume(&mut loader, 3).unwrap().steps(), Some(5));

        let shard = data.join("part-1.npy");
        flip(&shard, 0, modified(&shard) + std::time::Duration::from_secs(5));
        let changed = format!("{} was written after the run had begun", shard.display());
        let mut loader = Loader::builder(set(&data)).batch_size(16).shuffle().seed(9).build(&device).unwrap();
        let refused = run.resume(&mut loader, 3).map(drop).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Cursor);
        assert!(refused.to_string().contains(&changed), "{refused}");
        // A loader does not continue the record either.
        let recorder = Recorder::new(&recorded, RecordOptions::default());
        let builder = Loader::builder(set(&data)).batch_size(16).shuffle().seed(9).record(&recorder);
        let refused = builder.build(&device).map(drop).unwrap_err();
        assert!(refused.to_string().contains(&changed), "{refused}");
        let paths = [shard.as_path()];
        assert_eq!(run.changed_files(paths), [changed]);
    });
}

#[test]
fn a_record_of_other_options_is_not_continued() {
    with_watchdog(LIMIT, || {
        let folder = tempfile::tempdir().unwrap();
        let data = shards(folder.path());
        let builder = |seed| Loader::builder(set(&data)).batch_size(16).shuffle().seed(seed);
        let run = folder.path().join("run");
        record(builder(9), &run, 1).unwrap();
        let other_seed = record(builder(10), &run, 1).unwrap_err().to_string();
        assert!(other_seed.contains("another seed"), "{other_seed}");
        let other_order = Loader::builder(set(&data)).batch_size(16).seed(9);
        let other_order = record(other_order, &run, 1).unwrap_err().to_string();
        assert!(other_order.contains("another sampler"), "{other_order}");
        // Two loaders at a time would mix their steps.
        let recorder = Recorder::new(&run, RecordOptions::default());
        let first = builder(9).record(&recorder).build_host().unwrap();
        for other in [recorder.clone(), Recorder::new(&run, RecordOptions::default())] {
            let refused = builder(9).record(&other).build_host().map(drop).unwrap_err().to_string();
            assert!(refused.contains("another loader"), "{refused}");
        }
        drop((first, recorder));
        record(builder(9), &run, 1).unwrap();
        assert_eq!(Run::open(&run).unwrap().steps(), 0..8, "the epoch was done again");
    });
}

#[test]
fn the_data_is_opened_by_its_path_in_the_form_of_the_batches() {
    with_watchdog(LIMIT, || {
        let folder = tempfile::tempdir().unwrap();
        let (table, run) = (folder.path().join("table.csv"), folder.path().join("run"));
        let lines = (0..40).map(|id| format!("{id},{}.5,\"{}\"", id * 3, "ab".repeat(id % 7)));
        write(&table, Vec::from_iter(lines).join("\n")).unwrap();
        let reader = open(&table).unwrap();
        let names = Vec::from_iter(reader.spec().fields().iter().map(|field| field.name().to_owned()));
        let set = feedline_datasets::Bounded::limited(reader, 30).unwrap();
        // The last two columns, exchanged.
        let spec = feedline::Spec::new().with(&set.spec().fields()[2]).unwrap();
        let spec = spec.with(&set.spec().fields()[1]).unwrap();
        let set = set
            .map(spec, |sample, row, _| {
                row.write_ragged_bytes(0, sample.bytes(2))?;
                row.write(1, sample.bytes(1));
                Ok(())
            })
            .unwrap();
        let recorder =
            Recorder::new(&run, RecordOptions { data: Some(table.clone()), ..RecordOptions::default() });
        let mut loader =
            Loader::builder(set).batch_size(6).shuffle().seed(1).record(&recorder).build_host().unwrap();
        loader.epoch(0).unwrap().for_each(|batch| drop(batch.unwrap()));
        drop(loader);
        let run = Run::open(&run).unwrap();
        let header: Header = run.header(0);
        let fields = Vec::from_iter(header.fields().unwrap().into_iter().map(|field| field.name));
        assert_eq!(fields, [names[2].clone(), names[1].clone()]);
        let opened = feedline_record::open(&header, None, &OpenOptions::default()).unwrap();
        let mut replayer = run.replayer(opened, 0);
        replayer
            .steps(run.steps(), |replayed| {
                assert_eq!(replayed.verdict, Verdict::Equal);
                Ok(())
            })
            .unwrap();
    });
}
