//! A run whose lanes decode pictures, killed and resumed 200 times, equals the run without a kill.

use feedline::dataset::Random;
use feedline::{Cursor, Device, LoaderBuilder, Workers};
use feedline_pictures::Decode;
use feedline_testkit::watchdog::{LIMIT, Watchdog};

use crate::files::{Files, Made, all, crops, plain, taken};

const ROWS: usize = 3;
const EPOCHS: u64 = 20;
const KILLS: u64 = 200;

/// Takes up to `max` batches from `cursor` on, and ends the loader while others are being decoded.
fn stretch(builder: LoaderBuilder, cursor: Option<Cursor>, max: usize, seen: &mut Vec<Made>) -> Cursor {
    let device = Device::new_host();
    let compute = device.stream().unwrap();
    let mut loader = builder.build(&device).unwrap();
    let (first, mut left) = (cursor.map_or(0, |cursor| cursor.epoch()), max);
    for epoch in first..EPOCHS {
        let mut batches = match cursor {
            Some(cursor) if epoch == first => loader.resume(cursor).unwrap(),
            _ => loader.epoch(epoch).unwrap(),
        };
        while left > 0 {
            let Some(batch) = batches.next() else { break };
            seen.push(taken(&batch.unwrap().wait_on(&compute).unwrap()));
            left -= 1;
        }
        if left == 0 {
            break;
        }
    }
    loader.checkpoint(&compute).unwrap().cursor
}

#[test]
fn a_run_that_is_killed_and_resumed_at_random_is_the_whole_run() {
    let _watchdog = Watchdog::new(10 * LIMIT, "pictures killed and resumed");
    let files = Files::new(all(), crops());
    let wanted = files.wanted(plain(&files).batch_size(ROWS).shuffle().seed(11), EPOCHS);
    let whole = |decode| files.builder(decode).batch_size(ROWS).shuffle().seed(11).epochs(EPOCHS);
    let (mut random, mut seen, mut cursor, mut kills) = (Random::from_key(7), Vec::new(), None, 0);
    while seen.len() < wanted.len() {
        let mut draw = |bound| random.below(bound) as usize;
        let builder = whole(if draw(2) == 0 { Decode::Cpu } else { Decode::Auto });
        let builder = builder.device_lanes(1 + draw(3)).depth(1 + draw(4));
        // Zero means: killed before the first batch.
        let max = if kills < KILLS { draw(4) } else { usize::MAX };
        let saved = stretch(builder.workers(Workers::Count(1 + draw(3))), cursor, max, &mut seen);
        // As it would come from a file.
        cursor = Some(Cursor::from_bytes(&saved.to_bytes()).unwrap());
        kills += 1;
    }
    assert!(kills >= KILLS, "{kills}");
    assert!(seen == wanted, "another run");
    // Samples come in the order of the files, whichever decoder is used.
    let mut loader = plain(&files).batch_size(ROWS).shuffle().seed(11).epochs(EPOCHS).build_host().unwrap();
    for epoch in 0..EPOCHS {
        loader.epoch(epoch).unwrap().for_each(|batch| drop(batch.unwrap()));
    }
    assert_eq!(cursor.expect("a kill").proof(), loader.cursor().proof());
}
