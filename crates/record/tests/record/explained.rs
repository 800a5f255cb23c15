//! Where two runs part, where a sample was seen, and which samples made a spike.

use feedline::record::{RecordOptions, Recorder};
use feedline::{BadSamples, InMemory, Loader, LoaderBuilder, World};
use feedline_core::Budget;
use feedline_record::{How, Part, Run, SkipRange, spikes_page};
use feedline_testkit::fixtures::{Fine, failing};
use feedline_testkit::{watchdog::LIMIT, with_watchdog};

use crate::record;

fn numbers(len: u8, other: Option<usize>) -> InMemory {
    let mut numbers = Vec::from_iter(0..len);
    if let Some(other) = other {
        numbers[other] = 200;
    }
    InMemory::new().field("x", [], numbers).unwrap()
}

/// The record of two epochs.
fn run(name: &str, dir: &tempfile::TempDir, builder: LoaderBuilder) -> Run {
    record(builder, &dir.path().join(name), 2).unwrap();
    Run::open(dir.path().join(name)).unwrap()
}

#[test]
fn the_first_step_that_differs_is_named_with_its_reason() {
    with_watchdog(LIMIT, || {
        let dir = tempfile::tempdir().unwrap();
        let builder = |set| Loader::builder(set).batch_size(4).shuffle().seed(7);
        let base = run("base", &dir, builder(numbers(40, None)));
        assert!(base.compare(&run("again", &dir, builder(numbers(40, None)))).unwrap().is_equal());
        let differs = |name: &str, builder: LoaderBuilder| {
            base.compare(&run(name, &dir, builder)).unwrap().difference.expect(name)
        };

        let seed = differs("seed", builder(numbers(40, None)).shuffle().seed(8));
        assert_eq!(
            (seed.step, seed.part, &seed.causes[..]),
            (0, Part::Samples, &["seed: 7 and 8".to_owned()][..])
        );
        let sampler = differs("sampler", Loader::builder(numbers(40, None)).batch_size(4).seed(7));
        assert_eq!(sampler.causes, ["sampler: shuffle and sequential"]);
        let batch = differs("batch", builder(numbers(40, None)).batch_size(8));
        assert_eq!(batch.causes, ["batch size: 4 and 8"]);
        let skipped = differs("skipped", builder(numbers(40, None)).skip(0, 3..5));
        assert_eq!(
            (skipped.step, &skipped.causes[..]),
            (3, &["skipped steps: [] and [[0,3,5]]".to_owned()][..])
        );
        // The data: the sample is named, and the step at which it comes.
        let data = differs("data", builder(numbers(40, Some(11))));
        let first = base.sightings(11).unwrap()[0];
        assert_eq!((data.step, data.part), (first.step, Part::Bytes { sample: Some(11) }));
        assert!(data.causes[0].starts_with("fingerprint of the data: "), "{data:?}");
    });
}

#[test]
fn the_same_samples_on_other_ranks_are_only_another_order() {
    with_watchdog(LIMIT, || {
        let dir = tempfile::tempdir().unwrap();
        let [alone, two] = ["alone", "two"].map(|name| dir.path().join(name));
        record(Loader::builder(numbers(40, None)).batch_size(8).shuffle().seed(7), &alone, 1).unwrap();
        for rank in 0..2 {
            let builder = Loader::builder(numbers(40, None)).batch_size(4).shuffle().seed(7);
            record(builder.world(World::new(rank, 2).unwrap()), &two, 1).unwrap();
        }
        let compared = Run::open(&alone).unwrap().compare(&Run::open(&two).unwrap()).unwrap();
        let difference = compared.difference.unwrap();
        assert_eq!((difference.step, difference.part), (0, Part::Order));
        assert_eq!(difference.causes, ["number of ranks: 1 and 2", "batch size: 8 and 4"]);
    });
}

#[test]
fn a_sample_is_found_wherever_it_was_seen_and_where_it_could_not_be_read() {
    with_watchdog(LIMIT, || {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("run");
        for rank in 0..2 {
            let builder =
                Loader::builder(failing(Fine::new(40, 20).unwrap(), [9])).batch_size(4).shuffle().seed(7);
            let builder = builder.bad_samples(BadSamples::Substitute { budget: Budget::Count(10) });
            record(builder.world(World::new(rank, 2).unwrap()), &folder, 3).unwrap();
        }
        let run = Run::open(&folder).unwrap();
        let mut in_place = 0;
        for sample in 0..40 {
            let seen = run.sightings(sample).unwrap();
            for seen in &seen {
                let ids = run.ids(seen.step, seen.rank).unwrap();
                match seen.how {
                    How::ReplacedBy(other) => assert_eq!((sample, ids[seen.row]), (9, other)),
                    How::InPlaceOf(other) => {
                        in_place += 1;
                        assert_eq!((other, ids[seen.row]), (9, sample));
                    }
                    How::Drawn => assert_eq!(ids[seen.row], sample),
                }
            }
            let drawn = seen.iter().filter(|seen| !matches!(seen.how, How::InPlaceOf(_))).count();
            assert_eq!(drawn, 3, "once in each epoch: {seen:?}");
        }
        assert_eq!(in_place, 3);
    });
}

#[test]
fn a_planted_spike_is_found_and_its_samples_are_on_the_page() {
    with_watchdog(LIMIT, || {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("run");
        let pictures = || {
            let pixels = Vec::from_iter((0..200 * 64).map(|at| (at % 251) as u8));
            let set = InMemory::new().field("image", [8, 8], pixels).unwrap();
            set.field("label", [], Vec::from_iter((0..200).map(|id| id % 10))).unwrap()
        };
        // Samples 120 to 127 are poisoned.
        let recorder = Recorder::new(&folder, RecordOptions::default());
        let mut loader = Loader::builder(pictures()).batch_size(4).record(&recorder).build_host().unwrap();
        let mut steps = 0;
        for epoch in 0..2 {
            for batch in loader.epoch(epoch).unwrap() {
                let poisoned = batch.unwrap().ids().iter().any(|id| (120..128).contains(id));
                let loss = 1.0 / (1.0 + f64::from(steps)) + f64::from(steps % 7) * 0.01;
                recorder.note("loss", if poisoned { loss + 6.0 } else { loss }).unwrap();
                steps += 1;
            }
        }
        drop(loader);
        let run = Run::open(&folder).unwrap();
        assert_eq!((run.names(), run.notes("loss").len()), (vec!["loss"], 100));
        let spikes = run.spikes("loss");
        assert_eq!(Vec::from_iter(spikes.iter().map(|spike| spike.step)), [30, 31, 80, 81]);
        let skips = run.skip_ranges(&spikes).unwrap();
        assert_eq!(skips, [0, 1].map(|epoch| SkipRange { epoch, steps: 30..32 }));
        let mut replayer = run.replayer(Loader::builder(pictures()), 0);
        let page = spikes_page(&run, "loss", &spikes, |step| Ok(vec![replayer.step(step)?])).unwrap();
        for part in ["sample 120<", "sample 127<", ".skip(1, 30..32)", "data:image/bmp;base64,", "<circle"] {
            assert!(page.contains(part), "{part}");
        }
        assert!(!page.contains("sample 119<"));
    });
}
