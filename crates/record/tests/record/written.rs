//! The content of a record: known hashes, the values, each rank of a process, and the positions of a source.

use std::path::Path;

use feedline::record::field_hash;
use feedline::record::file::{Frame, MAGIC, RankRecord, Substitute};
use feedline::record::{RecordOptions, Recorder};
use feedline::{
    BadSamples, Device, ErrorKind, InMemory, LastBatch, Loader, LoaderBuilder, Pad, Result, Stream,
};
use feedline_core::{BatchContent, Budget, Random, SourcePosition};
use feedline_record::{Run, Verdict, field_values};
use feedline_testkit::fixtures::streams::Generator;
use feedline_testkit::fixtures::{Fine, Uneven};
use feedline_testkit::{watchdog::LIMIT, with_watchdog};

use crate::{end, record};

/// The sums of these rows by the package xxhash of Python, so that records stay readable:
///
/// ```python
/// def chain(fields):
///     h = 0
///     for f in fields: h = xxhash.xxh3_64_intdigest(f, seed=h)
///     return h
/// rows = [[bytes(range(i, i + 8)), b'\x05' * (i * 70)] for i in range(5)]
/// p = 2**61 - 1
/// sum(chain(r) % p for r in rows) % p, sum(chain(r) % p * (i + 1) for i, r in enumerate(rows)) % p
/// ```
const GOLDEN: [u64; 2] = [0x10cd_dd18_9fbf_a897, 0x969_accb_ab70_d17f];

#[test]
fn the_content_of_a_batch_is_that_of_xxh3() {
    with_watchdog(LIMIT, || {
        let dir = tempfile::tempdir().unwrap();
        let fixed = (0..5_u8).flat_map(|id| id..id + 8);
        let set = InMemory::new().field("a", [8], Vec::from_iter(fixed)).unwrap();
        let set = set.ragged("b", [], 300, (0..5).map(|id| vec![5_u8; id * 70])).unwrap();
        record(Loader::builder(set).batch_size(5).pad("b", Pad::multiple_of(64)), dir.path(), 1).unwrap();
        let run = RankRecord::read(&dir.path().join("rank-0.rec")).unwrap().unwrap();
        assert_eq!(run.segments[0].steps[0].content.map(|content| content.parts()), Some(GOLDEN));
    });
}

#[test]
fn the_rows_are_hashed_as_they_are_delivered_after_map_batch() {
    with_watchdog(LIMIT, || {
        let dir = tempfile::tempdir().unwrap();
        let recorder = Recorder::new(dir.path(), RecordOptions::default());
        let builder = Loader::builder(Uneven::new(50, 30).unwrap()).batch_size(8).shuffle().seed(4);
        let builder = builder.pad("bytes", Pad::multiple_of(8).fill_value(7_u8).left());
        let builder = builder.map_batch(|batch, context| {
            for row in 0..batch.len() {
                let shift = context.random().below(100) as u8;
                batch
                    .ragged_mut::<u8>("bytes", row)?
                    .iter_mut()
                    .for_each(|byte| *byte = byte.wrapping_add(shift));
            }
            Ok(())
        });
        let mut loader = builder.record(&recorder).build_host().unwrap();
        let mut contents = Vec::new();
        for batch in loader.epoch(0).unwrap() {
            let batch = batch.unwrap();
            let (fields, mut content) = (field_values(&batch).unwrap(), BatchContent::new());
            for row in 0..batch.len() {
                content.add(row, fields.iter().fold(0, |hash, field| field_hash(hash, field.row(row))));
            }
            contents.push(Some(content));
        }
        end(loader).unwrap();
        let run = RankRecord::read(&dir.path().join("rank-0.rec")).unwrap().unwrap();
        assert_eq!(Vec::from_iter(run.segments[0].steps.iter().map(|step| step.content)), contents);
    });
}

#[test]
fn a_checkpoint_finds_every_step_before_it_in_the_file() {
    with_watchdog(LIMIT, || {
        let dir = tempfile::tempdir().unwrap();
        let recorder = Recorder::new(dir.path(), RecordOptions::default());
        let builder = Loader::builder(Fine::new(1000, 20).unwrap()).batch_size(2).record(&recorder);
        let mut loader = builder.build_host().unwrap();
        let mut batches = loader.epoch(0).unwrap();
        for step in 1..=500 {
            drop(batches.next().unwrap().unwrap());
            if step % 50 == 3 {
                let saved = batches.checkpoint().unwrap();
                let run = Run::open(dir.path()).unwrap();
                assert_eq!(run.steps(), 0..step);
                assert_eq!(run.cursor(step, 0).unwrap(), saved.cursor);
            }
        }
    });
}

#[test]
fn a_step_takes_32_bytes_beside_the_values() {
    with_watchdog(LIMIT, || {
        let size = |epochs: u64| -> u64 {
            let dir = tempfile::tempdir().unwrap();
            let recorder = Recorder::new(dir.path(), RecordOptions::default());
            let builder = Loader::builder(Fine::new(3000, 4).unwrap()).batch_size(1).record(&recorder);
            let mut loader = builder.build_host().unwrap();
            (0..epochs).for_each(|epoch| loader.epoch(epoch).unwrap().for_each(|batch| drop(batch.unwrap())));
            end(loader).unwrap();
            dir.path().join("rank-0.rec").metadata().unwrap().len()
        };
        // An epoch begins with its position.
        assert_eq!(size(3) - size(2), 3000 * 32 + 148);
    });
}

#[test]
fn the_ranks_of_one_process_write_their_own_files_and_a_value_is_noted_once() {
    with_watchdog(LIMIT, || {
        let dir = tempfile::tempdir().unwrap();
        let recorder = Recorder::new(dir.path(), RecordOptions::default());
        let early = recorder.note("loss", 1.0).unwrap_err();
        assert_eq!(early.kind(), ErrorKind::Config);
        let devices = [Device::new_host(), Device::new_host(), Device::new_host()];
        let builder =
            Loader::builder(Fine::new(60, 20).unwrap()).batch_size(4).shuffle().seed(1).record(&recorder);
        let mut loaders = builder.build_each(&devices).unwrap();
        let streams: Vec<Stream> = devices.iter().map(|device| device.stream().unwrap()).collect();
        let mut epochs = loaders.iter_mut().map(|loader| loader.epoch(0).unwrap()).collect::<Vec<_>>();
        for step in 0..5_u32 {
            for (batches, stream) in epochs.iter_mut().zip(&streams) {
                drop(batches.next().unwrap().unwrap().wait_on(stream).unwrap());
            }
            recorder.note("loss", f64::from(step)).unwrap();
        }
        drop(epochs);
        drop(loaders);
        let run = Run::open(dir.path()).unwrap();
        assert_eq!((run.steps(), run.header(0).world()), (0..5, 3));
        assert_eq!(
            run.notes("loss"),
            Vec::from_iter((0..5_u32).map(|step| (u64::from(step), f64::from(step))))
        );
        let mut ids = Vec::from_iter((0..5).flat_map(|step| (0..3).map(move |rank| (step, rank))))
            .into_iter()
            .map(|(step, rank)| run.ids(step, rank))
            .collect::<Result<Vec<_>>>()
            .unwrap()
            .concat();
        ids.sort_unstable();
        assert_eq!(ids, Vec::from_iter(0..60));
        // A kill has cut the last step of one rank: the run ends before it.
        let file = std::fs::File::options().write(true).open(dir.path().join("rank-2.rec")).unwrap();
        file.set_len(file.metadata().unwrap().len() - 1).unwrap();
        assert_eq!(Run::open(dir.path()).unwrap().steps(), 0..4);
    });
}

#[test]
fn a_source_is_recorded_and_resumed_within_an_epoch() {
    with_watchdog(LIMIT, || {
        let dir = tempfile::tempdir().unwrap();
        let loader = |name: &str| {
            let recorder = Recorder::new(dir.path().join(name), RecordOptions::default());
            let source = Generator::new([900, 0, 1000]).unwrap();
            let builder = Loader::source_builder(source).batch_size(4).seed(3).record(&recorder);
            let builder = builder.bad_samples(BadSamples::Substitute { budget: Budget::Count(5) });
            builder.build_host().unwrap()
        };
        let mut whole = loader("whole");
        (0..2).for_each(|epoch| whole.epoch(epoch).unwrap().for_each(|batch| drop(batch.unwrap())));
        end(whole).unwrap();
        let mut first = loader("parts");
        let mut batches = first.epoch(0).unwrap();
        (0..200).for_each(|_| drop(batches.next().unwrap().unwrap()));
        let saved = batches.checkpoint().unwrap();
        // Three steps that are done again.
        (0..3).for_each(|_| drop(batches.next().unwrap().unwrap()));
        end(first).unwrap();
        let mut second = loader("parts");
        second.resume(saved.cursor).unwrap().for_each(|batch| drop(batch.unwrap()));
        second.epoch(1).unwrap().for_each(|batch| drop(batch.unwrap()));
        end(second).unwrap();
        let [whole, parts] = ["whole", "parts"].map(|name| Run::open(dir.path().join(name)).unwrap());
        let compared = whole.compare(&parts).unwrap();
        assert!(compared.is_equal() && compared.equal_steps == 950, "{compared:?}");
        // Its samples cannot be found by their step.
        let error = whole.ids(3, 0).unwrap_err().to_string();
        assert!(error.contains("the run has read a source"), "{error}");
    });
}

/// The run of `tests/golden`, which stands for records of years ago.
fn golden() -> LoaderBuilder {
    let set = InMemory::new().field("number", [2], Vec::from_iter(0..80_u16)).unwrap();
    let set = set.ragged("text", [], 9, (0..40).map(|id| vec![id as u8; id % 10])).unwrap();
    Loader::builder(set)
        .batch_size(6)
        .shuffle()
        .seed(5)
        .last_batch(LastBatch::Pad)
        .pad("text", Pad::longest())
}

/// If the format changes on purpose, it gets a new number in its first line, and `FEEDLINE_BLESS=1` writes
/// the record anew.
#[test]
fn a_record_that_was_written_before_is_read_and_replayed() {
    with_watchdog(LIMIT, || {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
        if std::env::var_os("FEEDLINE_BLESS").is_some() {
            std::fs::remove_dir_all(&folder).ok();
            record(golden(), &folder, 2).unwrap();
        }
        let run = Run::open(&folder).unwrap();
        assert_eq!((run.steps(), run.header(0).seed(), run.names()), (0..14, 5, vec!["loss"]));
        assert_eq!(run.notes("loss").len(), 14);
        let mut replayer = run.replayer(golden(), 0);
        for number in run.steps() {
            let replayed = replayer.step(number).unwrap();
            assert_eq!(replayed.verdict, Verdict::Equal, "step {number}");
            assert_eq!(run.notes("loss")[number as usize].1, replayed.batch.ids()[0] as f64);
        }
    });
}

/// The record in `tests/golden` comes from a version whose random numbers belonged to samples.
#[test]
fn the_record_of_a_run_with_other_random_numbers_is_not_continued_and_not_taken_for_other_data() {
    with_watchdog(LIMIT, || {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
        let copy = tempfile::tempdir().unwrap();
        std::fs::copy(folder.join("rank-0.rec"), copy.path().join("rank-0.rec")).unwrap();
        let recorder = Recorder::new(copy.path(), RecordOptions::default());
        let refused = golden().record(&recorder).build_host().map(drop).unwrap_err();
        let why = "this record was begun by an earlier feedline, whose random numbers belong to samples and \
                   not to draws: record into another folder";
        assert_eq!((refused.kind(), refused.message()), (ErrorKind::Cursor, why));
        let run = Run::open(&folder).unwrap();
        let refused =
            Loader::resume(&mut golden().build(&Device::new_host()).unwrap(), run.cursor(3, 0).unwrap())
                .map(drop)
                .unwrap_err();
        assert!(refused.message().contains("whose random numbers belong to samples"), "{refused}");

        // As a run whose transforms draw random numbers.
        let set = InMemory::new().field("number", [2], Vec::from_iter(100..180_u16)).unwrap();
        let set = set.ragged("text", [], 9, (0..40).map(|id| vec![id as u8; id % 10])).unwrap();
        let other = Loader::builder(set).pad("text", Pad::longest());
        let refused = run.replayer(other, 0).step(3).map(drop).unwrap_err();
        assert!(
            refused.message().starts_with("several rows differ, and the run is of an earlier"),
            "{refused}"
        );
    });
}

fn bytes(frame: &Frame<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    frame.write(&mut bytes);
    bytes
}

/// Valid frames in an order that no loader writes; their checksums are right.
#[test]
fn frames_in_any_order_and_with_any_numbers_are_read_or_refused() {
    with_watchdog(LIMIT, || {
        let dir = tempfile::tempdir().unwrap();
        let file = RankRecord::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/rank-0.rec"));
        let golden = file.unwrap().unwrap();
        let (mut random, mut opened) = (Random::from_key(8), 0);
        let any =
            |random: &mut Random| [random.below(3), random.below(50), u64::MAX][random.below(3) as usize];
        let header = |random: &mut Random| {
            let mut header = golden.headers[0].clone();
            let key = ["samples", "batch", "world", "seed", "skips", "spec"][random.below(6) as usize];
            header[key] = any(random).into();
            header
        };
        for _ in 0..400 {
            // Most frames belong to one run, and have the frames that must come before them.
            let shared = header(&mut random);
            for rank in 0..2 {
                let own = |mut header: serde_json::Value| {
                    header["rank"] = rank.into();
                    bytes(&Frame::Header(&serde_json::to_vec(&header).unwrap()))
                };
                let begin = Frame::Begin { number: 0, cursor: golden.segments[0].cursor };
                let mut file = [MAGIC, &own(shared.clone()), &bytes(&begin)].concat();
                (0..3).for_each(|_| file.extend(bytes(&Frame::Name("loss"))));
                let mut substitutes = 0;
                for _ in 0..random.below(12) {
                    let frame = match random.below(if substitutes > 0 { 24 } else { 7 }) {
                        0 => own(header(&mut random)),
                        1 => own(shared.clone()),
                        2 => {
                            let cursor = golden.segments[0].cursor.at(
                                any(&mut random),
                                SourcePosition { position: any(&mut random), ..Default::default() },
                            );
                            bytes(&Frame::Begin { number: any(&mut random), cursor })
                        }
                        3 | 7.. => bytes(&Frame::Step {
                            order: 1,
                            content: None,
                            substitutes: std::mem::take(&mut substitutes),
                        }),
                        4 => bytes(&Frame::Name("loss")),
                        5 => bytes(&Frame::Note {
                            step: any(&mut random),
                            name: random.below(3) as u16,
                            value: 1.0,
                        }),
                        _ => {
                            let (row, sample) = (any(&mut random) as u32, any(&mut random));
                            substitutes += 1;
                            bytes(&Frame::Substitute(Substitute { row, substitute: 1, sample }))
                        }
                    };
                    file.extend(frame);
                }
                std::fs::write(dir.path().join(format!("rank-{rank}.rec")), file).unwrap();
            }
            let Ok(run) = Run::open(dir.path()) else { continue };
            opened += 1;
            let steps = run.steps();
            // Refused or not, but no panic.
            let _ = (
                run.gaps(),
                run.notes("loss"),
                run.sightings(3),
                run.compare(&run).map(|same| same.is_equal()),
            );
            for rank in 0..2 {
                let _ = (run.ids(steps.start, rank), run.cursor(steps.end, rank));
            }
            let _ = run.skip_ranges(&run.spikes("loss"));
        }
        assert!(opened > 100, "{opened} were opened");
    });
}
