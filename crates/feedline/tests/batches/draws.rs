//! Random numbers belong to a draw: the place in the order of an epoch. A repeated sample gets other numbers.
//! A place always gets the same numbers, for any workers, ranks, batches, resumes, skips and fillers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use feedline::bad_samples::Budget;
use feedline::dataset::Rows;
use feedline::filler::{
    BatchContent, BatchFiller, BatchProof, DataDescription, Fill, FillOutcome, FillRequest,
};
use feedline::record::field_hash;
use feedline::{
    BadSamples, Context, Cursor, DType, Dataset, HostLoader, LastBatch, Loader, LoaderBuilder, Mix,
    ReadError, Result, Row, Sampler, Spec, Workers, World, from_fn,
};
use feedline_testkit::fixtures::{failing, slow};

use crate::common::{alone, alone_in_parts};

const LEN: u64 = 24;
const SEED: u64 = 5;

/// The draw of a row, and random numbers that it got.
type Noise = [i64; 3];

fn spec() -> Spec {
    Spec::new().field("noise", DType::I64, [3]).unwrap()
}

/// Each sample is its draw and a random number.
fn noise(len: u64) -> impl Dataset {
    from_fn(len, spec(), |_, row, context| {
        let draw = context.draw() as i64;
        row.field_mut::<i64>(0)?.copy_from_slice(&[draw, context.random().next_u64() as i64, 0]);
        Ok(())
    })
}

/// A user's set: for each sample it reads two samples of another set in one call.
struct Pairs<D> {
    inner: D,
    spec: Spec,
}

impl<D: Dataset> Dataset for Pairs<D> {
    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn spec(&self) -> &Spec {
        &self.spec
    }

    fn read(&self, id: u64, row: &mut Row<'_, '_>, context: &mut Context) -> Result<(), ReadError> {
        let layout = feedline_core::Layout::new(self.inner.spec(), 2)?;
        let mut slab = vec![0_u64; layout.bytes() / 8];
        let bytes = bytemuck::cast_slice_mut(&mut slab);
        let ids = [id, (id + 1) % self.len()];
        self.inner.read_many(&ids, &mut Rows::new(&layout, bytes, 2), context).map_err(|(_, error)| error)?;
        let [one, other]: [&[u64]; 2] = [&slab[..3], &slab[3..6]];
        assert_eq!(one[0], other[0], "both are read for one draw");
        row.field_mut::<i64>(0)?.copy_from_slice(&[one[0] as i64, one[1] as i64, other[1] as i64]);
        Ok(())
    }
}

/// The sets, by their kind. All have [`LEN`] samples.
fn sets() -> Vec<(&'static str, Arc<dyn Dataset>)> {
    let third = |sample: &feedline::dataset::Sample<'_>, row: &mut Row<'_, '_>, context: &mut Context| {
        let [draw, random, _] = sample.field::<i64>(0)?[..] else { return Err("three numbers".into()) };
        let own = [draw, random, context.random().next_u64() as i64];
        row.field_mut::<i64>(0)?.copy_from_slice(&own);
        Ok(())
    };
    let half = || noise(LEN / 2);
    vec![
        ("plain", Arc::new(noise(LEN))),
        ("slow", Arc::new(slow(noise(LEN), None, Duration::from_micros(300)))),
        ("map", Arc::new(noise(LEN).map(spec(), third).unwrap())),
        ("map of a map", Arc::new(noise(LEN).map(spec(), third).unwrap().map(spec(), third).unwrap())),
        ("concat", Arc::new(half().concat(half().map(spec(), third).unwrap()).unwrap())),
        ("subset", Arc::new(half().subset(Vec::from_iter((0..LEN).map(|id| id / 2))).unwrap())),
        ("repeat", Arc::new(noise(LEN / 3).repeat(3).unwrap())),
        ("window", Arc::new(noise(LEN + 9).skip(9))),
        ("mix", Arc::new(Mix::builder(1).dataset(half(), 1.0).dataset(half(), 2.0).build().unwrap())),
        ("pairs", Arc::new(Pairs { inner: noise(LEN), spec: spec() })),
        ("pairs of a map", Arc::new(Pairs { inner: noise(LEN).map(spec(), third).unwrap(), spec: spec() })),
        ("concat of pairs", {
            let pairs = || Pairs { inner: noise(LEN / 2), spec: spec() };
            Arc::new(pairs().concat(pairs()).unwrap())
        }),
    ]
}

/// Samplers that draw a sample several times, with the number of draws in an epoch.
fn samplers() -> Vec<(Sampler, u64)> {
    let labels: Vec<u32> = (0..LEN as u32).map(|id| u32::from(id >= LEN as u32 - 2)).collect();
    let weights: Vec<f64> = (0..LEN).map(|id| if id < 3 { 20.0 } else { 1.0 }).collect();
    vec![
        (Sampler::balanced(&labels, 2).unwrap(), 44),
        (Sampler::weighted(&weights).unwrap().draws(61).unwrap(), 61),
        (Sampler::subset((0..50).map(|place| place % 5).collect(), Sampler::Shuffle).unwrap(), 50),
        (Sampler::Shuffle, LEN),
    ]
}

fn builder(set: &Arc<dyn Dataset>, sampler: &Sampler) -> LoaderBuilder {
    Loader::builder(set.clone()).sampler(sampler.clone()).seed(SEED)
}

/// The valid rows of up to `steps` batches, by their draws: the sample, and its noise.
fn rows(
    loader: &mut HostLoader,
    from: Option<Cursor>,
    steps: usize,
    seen: &mut BTreeMap<u64, (u64, Noise)>,
) -> Cursor {
    let batches = match from {
        Some(cursor) => loader.resume(cursor),
        None => loader.epoch(1),
    };
    for batch in batches.expect("an epoch").take(steps) {
        let batch = batch.expect("a batch");
        let noise: Vec<Noise> = batch.field::<i64>("noise").unwrap().as_chunks().0.to_vec();
        for (&id, noise) in batch.ids().iter().zip(noise).take(batch.valid_rows()) {
            let before = seen.insert(noise[0] as u64, (id, noise));
            assert!(before.is_none(), "draw {} came twice", noise[0]);
        }
    }
    loader.cursor()
}

/// A whole epoch on one rank.
fn alone_on_one_rank(builder: LoaderBuilder) -> BTreeMap<u64, (u64, Noise)> {
    let mut seen = BTreeMap::new();
    rows(&mut builder.build_host().expect("a loader"), None, usize::MAX, &mut seen);
    seen
}

#[test]
fn a_sample_that_is_drawn_again_gets_other_random_numbers() {
    alone_in_parts(|| {
        for (name, set) in sets() {
            for (sampler, draws) in samplers() {
                let seen = alone_on_one_rank(builder(&set, &sampler).batch_size(7));
                assert!(seen.keys().copied().eq(0..draws), "{name}, {sampler:?}: draws are places");
                let numbers: BTreeSet<i64> = seen.values().map(|(_, noise)| noise[1]).collect();
                assert_eq!(numbers.len() as u64, draws, "{name}, {sampler:?}");
                let thirds: BTreeSet<i64> = seen.values().map(|(_, noise)| noise[2]).collect();
                let has_thirds = thirds.len() > 2;
                // The two stages draw different numbers. In half of a concatenation there is no third number.
                let none = usize::from(thirds.contains(&0));
                assert_eq!(numbers.intersection(&thirds).count(), 0, "{name}");
                assert!(!has_thirds || none == 1 || thirds.len() as u64 == draws, "{name}, {sampler:?}");
            }
        }
    });
}

#[test]
fn a_draw_has_the_same_numbers_for_any_ranks_batches_workers_and_resumes() {
    alone_in_parts(|| {
        for (name, set) in sets() {
            for (sampler, _) in samplers() {
                let want =
                    alone_on_one_rank(builder(&set, &sampler).batch_size(1).workers(Workers::Count(1)));
                for (world, batch, last_batch) in
                    [(1, 9, LastBatch::Pad), (2, 3, LastBatch::Keep), (3, 5, LastBatch::Pad)]
                {
                    let mut seen = BTreeMap::new();
                    for rank in 0..world {
                        let builder = builder(&set, &sampler).batch_size(batch).last_batch(last_batch);
                        let builder = builder.world(World::new(rank, world).unwrap());
                        let mut loader = builder.workers(Workers::Count(3)).build_host().expect("a loader");
                        rows(&mut loader, None, usize::MAX, &mut seen);
                    }
                    assert!(seen == want, "{name}, {sampler:?}: {world} ranks, batches of {batch}");
                }
                // Two ranks; from the third step on, three.
                let (mut seen, mut cursors) = (BTreeMap::new(), Vec::new());
                let rank = |rank, world, batch| {
                    let builder = builder(&set, &sampler).batch_size(batch);
                    builder.world(World::new(rank, world).unwrap()).build_host().expect("a loader")
                };
                for first in 0..2 {
                    cursors.push(rows(&mut rank(first, 2, 3), None, 2, &mut seen));
                }
                for second in 0..3 {
                    rows(&mut rank(second, 3, 2), Some(cursors[0]), usize::MAX, &mut seen);
                }
                assert!(seen == want, "{name}, {sampler:?}: resumed on three ranks");
            }
        }
    });
}

#[test]
fn skipped_steps_leave_the_numbers_of_the_others() {
    alone(|| {
        let (_, set) = sets().swap_remove(2);
        let (sampler, _) = samplers().swap_remove(0);
        let want = alone_on_one_rank(builder(&set, &sampler).batch_size(4));
        let seen = alone_on_one_rank(builder(&set, &sampler).batch_size(4).skip(1, 1..3));
        let kept = want.into_iter().filter(|(draw, _)| !(4..12).contains(draw));
        assert!(seen.into_iter().eq(kept));
        // A batch across the gap has draws from both sides of it.
        let seen = alone_on_one_rank(builder(&set, &sampler).batch_size(5).skip(1, 1..2).skip(1, 3..4));
        assert_eq!(seen.len(), 34);
    });
}

#[test]
fn a_substitute_has_the_draw_of_the_sample_that_it_replaces() {
    alone(|| {
        let set: Arc<dyn Dataset> = Arc::new(failing(noise(LEN), [1, 22]));
        for (sampler, draws) in samplers() {
            let want = alone_on_one_rank(builder(&(Arc::new(noise(LEN)) as Arc<dyn Dataset>), &sampler));
            for batch in [1, 6] {
                let budget = Budget::Count(LEN);
                let builder = builder(&set, &sampler).bad_samples(BadSamples::Substitute { budget });
                let seen = alone_on_one_rank(builder.batch_size(batch));
                assert_eq!(seen.len() as u64, draws);
                let numbers = |rows: &BTreeMap<u64, (u64, Noise)>| {
                    rows.values().map(|(_, noise)| *noise).collect::<Vec<_>>()
                };
                assert_eq!(numbers(&seen), numbers(&want), "{sampler:?}, batches of {batch}");
                assert!(seen.values().all(|(id, _)| ![1, 22].contains(id)));
            }
        }
    });
}

/// Reads the set itself, as a decode server does.
struct Reads(Arc<dyn Dataset>);

impl BatchFiller for Reads {
    fn in_flight(&self) -> usize {
        2
    }

    fn check(&self, _: &DataDescription<'_>) -> Result<()> {
        Ok(())
    }

    fn reserve(&self, _: Duration) -> Option<Fill<'_>> {
        Some(Box::new(|request: &FillRequest<'_>, rows: &mut Rows<'_>| {
            let mut context = Context::new(request.data.seed, request.epoch()).with_draws(request.draws);
            self.0.read_many(request.ids(), rows, &mut context).map_err(|(_, error)| error)?;
            let mut content = BatchContent::new();
            for (row, bytes) in rows.column_mut(0).chunks(24).enumerate() {
                content.add(row, field_hash(0, bytes));
            }
            let order = BatchProof::of(request.epoch(), request.ids()).order();
            Ok(FillOutcome { order, content, network: Duration::ZERO, servers: 1 })
        }))
    }
}

#[test]
fn a_filler_gets_the_draws_of_its_rows() {
    alone_in_parts(|| {
        let mut filled = 0;
        for (name, set) in sets() {
            for (sampler, _) in samplers() {
                let want = alone_on_one_rank(builder(&set, &sampler).batch_size(6));
                let builder = builder(&set, &sampler).batch_size(6).filler(Reads(set.clone()));
                let mut loader = builder.workers(Workers::Count(1)).build_host().expect("a loader");
                let mut seen = BTreeMap::new();
                rows(&mut loader, None, usize::MAX, &mut seen);
                assert!(seen == want, "{name}, {sampler:?}");
                let report = loader.report().filler.expect("a filler");
                assert_eq!(report.rejected, 0, "{name}, {sampler:?}");
                filled += report.batches;
            }
        }
        assert!(filled > 0, "the filler has filled nothing");
    });
}

#[test]
fn the_numbers_of_a_draw_are_those_of_its_key() {
    alone(|| {
        let set: Arc<dyn Dataset> = Arc::new(noise(LEN));
        for (sampler, _) in samplers() {
            for (draw, (_, noise)) in alone_on_one_rank(builder(&set, &sampler).batch_size(6)) {
                assert_eq!(noise[1] as u64, feedline_core::Random::for_draw(SEED, 1, draw).next_u64());
            }
        }
    });
}
