//! A run with a device map, killed and resumed 200 times, equals the run without a kill: the same batches,
//! random numbers and proof of the order.

use feedline::dataset::Random;
use feedline::record::{RecordOptions, Recorder};
use feedline::{Cursor, Device, Loader, LoaderBuilder, Workers};

use crate::inverted::{check, each_way, each_way_in_parts, fine};

const LEN: u64 = 333;
const BATCH: usize = 4;
const EPOCHS: u64 = 5;
const KILLS: u64 = 200;

fn builder() -> LoaderBuilder {
    Loader::builder(fine(LEN)).batch_size(BATCH).shuffle().seed(11).epochs(EPOCHS)
}

/// A batch: its epoch, ids and random number.
type Seen = (u64, Vec<u64>, i64);

/// Takes up to `max` batches from `cursor` on, and ends the loader while others are in its stages.
fn stretch(builder: LoaderBuilder, cursor: Option<Cursor>, max: usize, seen: &mut Vec<Seen>) -> Cursor {
    let (device, fine) = (Device::new_host(), fine(LEN));
    let compute = device.stream().unwrap();
    let mut loader = builder.build(&device).unwrap();
    let first = cursor.map_or(0, |cursor| cursor.epoch());
    let mut left = max;
    for epoch in first..EPOCHS {
        let mut batches = match cursor {
            Some(cursor) if epoch == first => loader.resume(cursor).unwrap(),
            _ => loader.epoch(epoch).unwrap(),
        };
        while left > 0 {
            let Some(batch) = batches.next() else { break };
            let batch = batch.unwrap().wait_on(&compute).unwrap();
            seen.push((epoch, batch.ids().to_vec(), check(&fine, &batch)));
            left -= 1;
        }
        if left == 0 {
            break;
        }
    }
    loader.checkpoint(&compute).unwrap().cursor
}

/// The record covers the rows that are copied, and a replay makes those.
#[test]
fn a_recorded_run_is_replayed_with_the_rows_before_the_device_map() {
    each_way(|way| {
        let folder = tempfile::tempdir().unwrap();
        let recorder = Recorder::new(folder.path(), RecordOptions::default());
        let mut loader = way.inverted(builder().record(&recorder), 2).build(&Device::new_host()).unwrap();
        let steps = loader.epoch(0).unwrap().map(|batch| batch.unwrap().ids().to_vec()).collect::<Vec<_>>();
        drop(loader);
        let run = feedline_record::Run::open(folder.path()).unwrap();
        let mut replayer = run.replayer(way.inverted(builder(), 2), 0);
        for (number, ids) in (0..).zip(&steps).step_by(17) {
            let replayed = replayer.step(number).unwrap();
            assert!(replayed.verdict.is_equal(), "{:?}", replayed.verdict);
            assert_eq!(replayed.batch.ids(), ids);
            assert_eq!(replayed.batch.field::<i64>("id").unwrap().len(), ids.len());
            assert!(replayed.batch.field::<u8>("bytes").is_ok());
        }
    });
}

#[test]
fn a_run_that_is_killed_and_resumed_at_random_is_the_whole_run() {
    each_way_in_parts(|way| {
        let mut wanted = Vec::new();
        let end = stretch(way.inverted(builder(), 1), None, usize::MAX, &mut wanted);
        assert_eq!(wanted.len() as u64, EPOCHS * LEN.div_ceil(BATCH as u64));
        let (mut random, mut seen, mut cursor) = (Random::from_key(7), Vec::new(), None);
        let mut kills = 0;
        while seen.len() < wanted.len() {
            let mut draw = |bound| random.below(bound) as usize;
            let (lanes, depth, workers) = (1 + draw(3), 1 + draw(4), 1 + draw(3));
            let builder = builder().depth(depth).workers(Workers::Count(workers));
            // Zero means: killed before the first batch.
            let max = if kills < KILLS { draw(5) } else { usize::MAX };
            let saved = stretch(way.inverted(builder, lanes), cursor, max, &mut seen);
            // As it would come from a file.
            cursor = Some(Cursor::from_bytes(&saved.to_bytes()).unwrap());
            kills += 1;
        }
        assert!(kills >= KILLS, "{kills}");
        assert!(seen == wanted, "another run");
        assert_eq!(cursor.expect("a kill").proof(), end.proof());
    });
}
