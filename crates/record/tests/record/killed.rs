//! A record that a kill has cut anywhere can be read up to the last whole step, and the resumed run continues
//! it without a gap or a duplicate.
//!
//! `FEEDLINE_KILLS` sets the number of killed processes: 20 by default, 200 at night.

use std::hash::{BuildHasher, RandomState};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use feedline::record::{RecordOptions, Recorder};
use feedline::{BadSamples, Cursor, Loader, LoaderBuilder, Workers};
use feedline_core::{Budget, Random};
use feedline_record::Run;
use feedline_testkit::fixtures::{Fine, failing};
use feedline_testkit::{watchdog::LIMIT, with_watchdog};

use crate::record;

const EPOCHS: u64 = 40;
const STEPS: u64 = EPOCHS * 13;
/// The folder of the process that trains.
const FOLDER: &str = "FEEDLINE_RECORDED_FOLDER";

/// 13 steps per epoch; some samples cannot be read.
fn builder() -> LoaderBuilder {
    Loader::builder(failing(Fine::new(100, 60).unwrap(), [3, 50]))
        .batch_size(8)
        .shuffle()
        .seed(5)
        .workers(Workers::Count(2))
        .bad_samples(BadSamples::Substitute { budget: Budget::Count(10_000) })
}

/// Continues `run` at step `step`, to the end of epoch `epochs - 1`.
fn go_on(folder: &Path, cursor: Cursor, epochs: u64) {
    let recorder = Recorder::new(folder, RecordOptions::default());
    let mut loader = builder().record(&recorder).build_host().unwrap();
    for epoch in cursor.epoch()..epochs {
        let batches = if epoch == cursor.epoch() {
            loader.resume(cursor).unwrap()
        } else {
            loader.epoch(epoch).unwrap()
        };
        for batch in batches {
            recorder.note("loss", batch.unwrap().ids()[0] as f64).unwrap();
        }
    }
}

#[test]
fn a_record_cut_at_any_byte_is_readable_to_its_last_step_and_continued() {
    with_watchdog(4 * LIMIT, || {
        let dir = tempfile::tempdir().unwrap();
        let whole = dir.path().join("whole");
        record(builder(), &whole, 3).unwrap();
        let whole = Run::open(&whole).unwrap();
        let bytes = std::fs::read(whole.folder().join("rank-0.rec")).unwrap();
        let (cut, mut last) = (dir.path().join("cut"), 0);
        std::fs::create_dir(&cut).unwrap();
        let mut random = Random::from_key(4);
        for len in 0..bytes.len() {
            let file = cut.join("rank-0.rec");
            std::fs::write(&file, &bytes[..len]).unwrap();
            let run = match Run::open(&cut) {
                Ok(run) => run,
                Err(error) => {
                    assert!(error.to_string().contains("there is no record"), "{len} bytes: {error}");
                    assert_eq!(last, 0, "{len} bytes");
                    continue;
                }
            };
            let steps = run.steps().end;
            assert!(steps == last || steps == last + 1, "{len} bytes: {last}, then {steps} steps");
            last = steps;
            if steps == 0 || random.below(60) > 0 {
                continue;
            }
            go_on(&cut, run.cursor(steps, 0).unwrap(), 3);
            let run = Run::open(&cut).unwrap();
            let compared = whole.compare(&run).unwrap();
            assert!(compared.is_equal() && compared.equal_steps == 39, "{len} bytes: {compared:?}");
            assert_eq!(run.gaps(), []);
        }
        assert_eq!(last, 39);
    });
}

#[test]
fn damage_before_the_end_is_an_error_that_names_the_byte() {
    with_watchdog(LIMIT, || {
        let dir = tempfile::tempdir().unwrap();
        let run = dir.path().join("run");
        record(builder(), &run, 200).unwrap();
        let file = run.join("rank-0.rec");
        let mut bytes = std::fs::read(&file).unwrap();
        assert!(bytes.len() > 100_000);
        bytes[5000] ^= 4;
        std::fs::write(&file, bytes).unwrap();
        let error = Run::open(&run).unwrap_err();
        assert!(error.offset().is_some_and(|offset| offset > 4800 && offset <= 5000), "{error}");
        let error = record(builder(), &run, 1).unwrap_err();
        assert!(error.to_string().contains("the record is damaged"), "{error}");
        // A long header that a kill has cut is not damage.
        let mut header = b"feedline record 1\n\x02\0\0\0".to_vec();
        header.extend(200_000_u32.to_le_bytes());
        header.resize(150_000, b'x');
        std::fs::write(&file, header).unwrap();
        record(builder(), &run, 1).unwrap();
        assert_eq!(Run::open(&run).unwrap().steps(), 0..13);
    });
}

/// Trains in this process until it is killed or done, with a checkpoint every few steps.
fn train(folder: &Path) {
    let recorder = Recorder::new(folder.join("run"), RecordOptions::default());
    let mut loader = builder().record(&recorder).build_host().unwrap();
    let saved = folder.join("saved");
    let cursor = std::fs::read(&saved).ok().map(|bytes| Cursor::from_bytes(&bytes).unwrap());
    let mut steps = 0_u64;
    for epoch in cursor.map_or(0, |cursor| cursor.epoch())..EPOCHS {
        let mut batches = match cursor.filter(|cursor| cursor.epoch() == epoch) {
            Some(cursor) => loader.resume(cursor).unwrap(),
            None => loader.epoch(epoch).unwrap(),
        };
        while let Some(batch) = batches.next() {
            recorder.note("loss", batch.unwrap().ids()[0] as f64).unwrap();
            steps += 1;
            if steps.is_multiple_of(5) {
                let part = folder.join("part");
                std::fs::write(&part, batches.checkpoint().unwrap().cursor.to_bytes()).unwrap();
                std::fs::rename(part, &saved).unwrap();
                // A step of training takes as long.
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }
}

fn trainer(folder: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["killed::killed_at_random_moments_the_record_has_no_gap_and_no_double", "--exact"])
        .env(FOLDER, folder)
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

#[test]
fn killed_at_random_moments_the_record_has_no_gap_and_no_double() {
    if let Some(folder) = std::env::var_os(FOLDER) {
        return train(Path::new(&folder));
    }
    let kills = std::env::var("FEEDLINE_KILLS").ok().and_then(|kills| kills.parse().ok()).unwrap_or(20_u32);
    with_watchdog(LIMIT * (2 + kills / 10), move || {
        let dir = tempfile::tempdir().unwrap();
        let whole = dir.path().join("whole");
        record(builder(), &whole, EPOCHS).unwrap();
        let whole = Run::open(&whole).unwrap();
        assert_eq!(whole.steps(), 0..STEPS);
        let mut random = Random::from_key(RandomState::new().hash_one(0));
        let (mut killed, mut running, mut parts) = (0, 0, 0);
        while killed < kills {
            let folder = dir.path().join(format!("{running}"));
            running += 1;
            std::fs::create_dir(&folder).unwrap();
            loop {
                let mut child = trainer(&folder);
                let delay = Duration::from_micros(random.below(60_000));
                std::thread::sleep(delay);
                let was_running = child.try_wait().unwrap().is_none();
                child.kill().unwrap();
                child.wait().unwrap();
                if !was_running {
                    break;
                }
                killed += 1;
                parts += 1;
                let Ok(run) = Run::open(folder.join("run")) else { continue };
                assert_eq!(run.gaps(), []);
                let compared = whole.compare(&run).unwrap();
                assert_eq!(compared.difference, None, "after {killed} kills");
                let Ok(saved) = std::fs::read(folder.join("saved")) else { continue };
                let saved = Cursor::from_bytes(&saved).unwrap();
                let steps = (saved.epoch() * 13 + saved.position().div_ceil(8)).min(STEPS);
                assert!(run.steps().end >= steps, "the checkpoint is of step {steps}: {:?}", run.steps());
                // The end of an epoch and the beginning of the next one are the same place.
                let place = |at: &Cursor| (100 * at.epoch() + at.position(), *at.proof(), at.order_hash());
                assert_eq!(place(&run.cursor(steps, 0).unwrap()), place(&saved), "step {steps}");
                if killed >= kills {
                    break;
                }
            }
            let status = trainer(&folder).wait().unwrap();
            assert!(status.success());
            let run = Run::open(folder.join("run")).unwrap();
            let compared = whole.compare(&run).unwrap();
            assert!(compared.is_equal(), "{compared:?}");
            assert_eq!(run.notes("loss"), whole.notes("loss"));
        }
        assert!(parts >= kills);
    });
}
