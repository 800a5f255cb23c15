//! Damaged pictures are bad samples like any other: workers find them by their bytes alone, and they get the
//! same substitutes for any decoder and any number of ranks.

use feedline::bad_samples::{Budget, Failure};
use feedline::{BadSamples, Device, LoaderBuilder, World};
use feedline_images::Transforms;
use feedline_pictures::Decode;
use feedline_testkit::watchdog::{LIMIT, Watchdog};

use crate::files::{Files, all, crops, golden, plain};

const EPOCHS: u64 = 2;

/// Cut below the top, so that some crops do not reach the cut; cut pictures that nvJPEG refuses; bytes that
/// are no picture; and noise after a valid header, which every decoder reads.
fn damaged() -> Vec<Vec<u8>> {
    let cut = |name: &str| {
        let bytes = golden(name);
        bytes[..bytes.len() * 4 / 5].to_vec()
    };
    let mut files = all();
    let noise = {
        let mut bytes = golden("420.jpg");
        let (from, to) = (bytes.len() / 2, bytes.len() / 2 + 40);
        bytes[from..to].fill(0x55);
        bytes
    };
    for (place, bad) in [
        cut("420.jpg"),
        cut("444.jpg"),
        cut("420-progressive.jpg"),
        cut("RGB.png"),
        cut("lossy.webp"),
        b"no picture".to_vec(),
        noise,
    ]
    .into_iter()
    .enumerate()
    {
        files.insert(7 * place + 3, bad);
    }
    files
}

/// Number of files of [`damaged`] that nobody decodes.
const BAD: usize = 6;

/// A batch: its ids, and the row, failed samples and substitute of each bad one.
type Seen = (Vec<u64>, Vec<(usize, Vec<u64>, u64)>);

/// The batches of one rank of `world`, and the bad samples of its report.
fn run(builder: LoaderBuilder, world: World) -> (Vec<Seen>, Vec<u64>) {
    let builder = builder.batch_size(8 / world.size() as usize).shuffle().seed(5).epochs(EPOCHS).world(world);
    let budget = BadSamples::Substitute { budget: Budget::Count(100) };
    let device = Device::new_host();
    let compute = device.stream().unwrap();
    let mut loader = builder.bad_samples(budget).build(&device).unwrap();
    let mut seen = Vec::new();
    for epoch in 0..EPOCHS {
        for batch in loader.epoch(epoch).unwrap() {
            let batch = batch.unwrap().wait_on(&compute).unwrap();
            let samples = |failures: &[Failure]| failures.iter().map(|failure| failure.sample).collect();
            let bad = batch.substituted().iter();
            let bad = bad.map(|bad| (bad.row, samples(&bad.failures), bad.substitute));
            seen.push((batch.ids().to_vec(), bad.collect()));
        }
    }
    let samples = loader.bad_sample_report().samples().iter().map(|bad| bad.sample).collect();
    (seen, samples)
}

#[test]
fn damaged_pictures_get_the_same_substitutes_whoever_decodes_on_any_number_of_ranks() {
    let _watchdog = Watchdog::new(4 * LIMIT, "damaged pictures");
    let files = Files::new(damaged(), crops());
    for ranks in [1, 2, 4] {
        let mut of_ranks = Vec::new();
        for rank in 0..ranks {
            let world = World::new(rank, ranks).unwrap();
            let wanted = run(plain(&files), world);
            for decode in [Decode::Cpu, Decode::Auto] {
                let found = run(files.builder(decode).device_lanes(2), world);
                assert!(found == wanted, "{decode:?}, rank {rank} of {ranks}");
            }
            of_ranks.extend(wanted.1);
        }
        of_ranks.sort_unstable();
        of_ranks.dedup();
        assert_eq!(of_ranks.len(), BAD, "{of_ranks:?}");
    }
}

/// Workers that decode a crop of each picture find the same ones.
#[test]
fn workers_that_decode_find_the_same_bad_pictures() {
    let files = Files::new(damaged(), crops());
    let mut scratch = feedline_images::Scratch::default();
    let mut random = feedline::dataset::Random::from_key(3);
    let crop = Transforms::new().random_resized_crop(4);
    let mut bad = 0;
    for file in files.files.iter() {
        let checked = crop.check(file, &mut scratch).is_ok();
        bad += usize::from(!checked);
        for _ in 0..3 {
            let read = crop.read(file, &mut random, &mut scratch, &mut [0; 48]);
            assert_eq!(read.is_ok(), checked, "{read:?}");
        }
    }
    assert_eq!(bad, BAD);
}

/// Without a budget, the first one ends the run, with its sample.
#[test]
fn a_damaged_picture_ends_a_run_without_a_budget_by_name() {
    let _watchdog = Watchdog::new(LIMIT, "a damaged picture");
    let files = Files::new(damaged(), crops());
    let device = Device::new_host();
    let mut loader = files.builder(Decode::Cpu).batch_size(2).build(&device).unwrap();
    let error = loader.epoch(0).unwrap().find_map(|batch| batch.err()).expect("an error");
    assert_eq!((error.sample(), error.batch()), (Some(3), Some(1)), "{error}");
    assert!(error.to_string().contains("cut short"), "{error}");
}
