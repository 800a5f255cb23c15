//! Loaders of ragged fields padded or not, one of them kept on the host, with random data, options and
//! worlds, early ends and resumes. Each value, offset and length matches the samples. An epoch has each
//! sample exactly once.
//!
//! Runs for half of `FEEDLINE_RANDOM_SECONDS`, 5 s by default. A failure prints its seed; set
//! `FEEDLINE_SEED` to run only that one.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use crate::common::{alone_in_parts, assert_empty};
use feedline::bad_samples::Budget;
use feedline::dataset::Random;
use feedline::{
    BadSamples, Cursor, Device, LastBatch, Loader, LoaderBuilder, Pad, Ready, Sampler, Workers, World,
};
use feedline_device::host::Host;
use feedline_device::{Memory, launch_host};
use feedline_sim::SimHandle;
use feedline_sim::interceptors::chaos::{Chaos, Options};
use feedline_testkit::fixtures::{Uneven, failing};
use feedline_testkit::{Watchdog, gpu, watchdog};

/// The settings that all loaders of a case share.
#[derive(Debug)]
struct Case {
    seed: u64,
    len: u64,
    max: usize,
    sampler: Sampler,
    batch: usize,
    last_batch: LastBatch,
    world: u32,
    /// The padding of `bytes` and of `pairs`.
    pads: [Option<usize>; 2],
    /// Whether slots have room only for the longest batch.
    is_tight: bool,
    /// Samples that cannot be read.
    bad: Vec<u64>,
}

fn pick<T: Copy>(random: &mut Random, from: &[T]) -> T {
    from[random.below(from.len() as u64) as usize]
}

impl Case {
    fn draw(seed: u64) -> Self {
        let random = &mut Random::from_key(seed);
        let most_samples = pick(random, &[4, 30, 120]);
        let len = 1 + random.below(most_samples);
        let longest = pick(random, &[1, 9, 200, 3000]);
        let max = 1 + random.below(longest) as usize;
        let world = pick(random, &[1, 1, 2, 4]);
        let batch = 1 + random.below(len.min(20)) as usize;
        let fits = batch as u64 * u64::from(world) <= len;
        let batches = batch as u64;
        let sampler = match random.below(4) {
            0 => Sampler::Sequential,
            1 => Sampler::Shuffle,
            2 => {
                let data = Uneven::new(len, max).unwrap().seed(seed);
                let lengths: Vec<u32> = (0..len).map(|id| data.items(0, Uneven::BYTES, id) as u32).collect();
                Sampler::bucketed(&lengths, batches, 1 + random.below(4)).unwrap()
            }
            _ => Sampler::block(1 + random.below(9), 1 + random.below(30)).unwrap(),
        };
        let last_batch = if fits {
            pick(random, &[LastBatch::Keep, LastBatch::Drop, LastBatch::Pad])
        } else {
            LastBatch::Keep
        };
        let pads = [(); 2].map(|()| pick(random, &[None, None, Some(1), Some(LEFT), Some(8)]));
        let bad =
            if random.below(4) == 0 { (0..len / 3).map(|_| random.below(len)).collect() } else { vec![] };
        Self { seed, len, max, sampler, batch, last_batch, world, pads, is_tight: random.below(2) == 0, bad }
    }

    fn data(&self) -> Uneven {
        Uneven::new(self.len, self.max).unwrap().seed(self.seed)
    }

    fn builder(&self, rank: u32, random: &mut Random) -> LoaderBuilder {
        let builder = Loader::builder(failing(self.data(), self.bad.clone())).batch_size(self.batch);
        let builder = builder.sampler(self.sampler.clone()).seed(self.seed).last_batch(self.last_batch);
        let builder = builder.world(World::new(rank, self.world).unwrap());
        let builder = builder.workers(Workers::Count(1 + random.below(3) as usize));
        let mut builder =
            builder.depth(1 + random.below(3) as usize).keep_on_host("pairs").keep_on_host("id");
        if !self.bad.is_empty() {
            builder = builder.bad_samples(BadSamples::Substitute { budget: Budget::Count(u64::MAX) });
        }
        for (index, (field, pad)) in ["bytes", "pairs"].into_iter().zip(self.pads).enumerate() {
            if let Some(multiple) = pad {
                builder = builder.pad(field, pad_of(field, multiple));
            }
            if self.is_tight {
                builder =
                    builder.max_per_batch(field, self.tight([Uneven::BYTES, Uneven::PAIRS][index], pad));
            }
        }
        builder
    }

    /// The max items of a batch in the first three epochs: the items of the longest samples together.
    fn tight(&self, field: usize, pad: Option<usize>) -> usize {
        let data = self.data();
        let mut max = if field == Uneven::BYTES { self.max } else { self.max.div_ceil(3) };
        for epoch in 0..3 {
            let mut items: Vec<usize> = (0..self.len).map(|id| data.items(epoch, field, id)).collect();
            items.sort_unstable_by(|a, b| b.cmp(a));
            let longest = items.first().copied().unwrap_or(0);
            // Substitutes and padding repeat samples, even the longest.
            let repeats = !self.bad.is_empty() || self.last_batch == LastBatch::Pad;
            let together = if repeats { longest * self.batch } else { items.iter().take(self.batch).sum() };
            let padded = pad.map(|multiple| Pad::multiple_of(multiple).width(longest) * self.batch);
            max = max.max(padded.unwrap_or(together));
        }
        max
    }
}

/// The multiple of the rows that are padded on the left.
const LEFT: usize = 5;

fn pad_of(field: &str, multiple: usize) -> Pad {
    let pad = match multiple {
        1 => Pad::longest(),
        LEFT => Pad::multiple_of(LEFT).left(),
        _ => Pad::multiple_of(multiple),
    };
    if field == "bytes" { pad } else { pad.fill_value(0xABCDu16) }
}

fn device(seed: u64) -> (Device, Option<SimHandle>) {
    match seed % 4 {
        0 => (Device::new_host(), None),
        1 => {
            let options = Options {
                seed,
                probability: 0.1,
                host_delay: Duration::ZERO..Duration::from_micros(100),
                device_delay: Duration::ZERO..Duration::from_micros(500),
                ..Options::default()
            };
            (feedline_device::with_backend(Chaos::new(Host::new(), options).expect("options in range")), None)
        }
        _ => {
            let (device, sim) = feedline_sim::device(seed).unwrap();
            (device, Some(sim))
        }
    }
}

/// The findings of the work on the streams.
#[derive(Clone, Default)]
struct Wrong(Arc<Mutex<Vec<String>>>);

impl Wrong {
    fn add(&self, text: String) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(text);
    }
}

/// Queues work that compares every offset, length and value of a field with the samples.
fn check_field(case: &Case, ready: &Ready, field: usize, wrong: &Wrong) {
    let (name, pad) = [("bytes", case.pads[0]), ("id", None), ("pairs", case.pads[1])][field];
    let (data, epoch, ids, wrong) = (case.data(), ready.epoch(), ready.ids().to_vec(), wrong.clone());
    let item = if field == Uneven::BYTES { 1 } else { 4 };
    let place = format!("{ready:?}, field {name}");
    let rows: Vec<Vec<u8>> = ids.iter().map(|&id| data.values(epoch, field, id)).collect();
    if name == "pairs" {
        let kept = ready.host_rows(name).unwrap();
        if !kept.rows().eq(rows.iter().map(Vec::as_slice)) {
            wrong.add(format!("{place}: the rows on the host differ"));
        }
        let numbers: Vec<_> = ids.iter().map(|&id| (id as i64).to_ne_bytes()).collect();
        if !ready.host_rows("id").unwrap().rows().eq(numbers.iter().map(|bytes| &bytes[..])) {
            wrong.add(format!("{place}: the ids on the host differ"));
        }
    }
    let items: Vec<usize> = rows.iter().map(|row| row.len() / item).collect();
    let (numbers, values): (Vec<u32>, Vec<u8>) = match pad {
        None => {
            let ends = items.iter().scan(0, |sum, &items| {
                *sum += items as u32;
                Some(*sum)
            });
            (std::iter::once(0).chain(ends).collect(), rows.concat())
        }
        Some(multiple) => {
            let pad = pad_of(name, multiple);
            let width = pad.width(items.iter().copied().max().unwrap_or(0)) * item;
            let filler = if field == Uneven::BYTES { vec![0, 0] } else { 0xABCDu16.to_ne_bytes().to_vec() };
            let padded = rows.iter().flat_map(|row| {
                let rest: Vec<u8> = filler.iter().copied().cycle().take(width - row.len()).collect();
                if multiple == LEFT { [&rest[..], row].concat() } else { [row, &rest[..]].concat() }
            });
            (items.iter().map(|&items| items as u32).collect(), padded.collect())
        }
    };
    let check = move |got_values: Vec<u8>, got: &[u32]| {
        if got != numbers {
            wrong.add(format!("{place}: {got:?}, not {numbers:?}"));
        }
        if got_values != values {
            let at = got_values.iter().zip(&values).position(|(got, want)| got != want);
            wrong.add(format!("{place}: {} of {} bytes, {at:?} differs", got_values.len(), values.len()));
        }
    };
    macro_rules! inputs {
        ($T:ty) => {{
            let (values, numbers) = match pad {
                None => {
                    let ragged = ready.ragged::<$T>(name).unwrap();
                    (ragged.values, ragged.offsets)
                }
                Some(_) => {
                    let padded = ready.padded::<$T>(name).unwrap();
                    assert_eq!(padded.width * ids.len() * item, padded.values.len() * size_of::<$T>());
                    assert_eq!(padded.width * ids.len() - items.iter().sum::<usize>(), padded.padding);
                    (padded.values, padded.lengths)
                }
            };
            let work = move |memory: &mut Memory<'_>| {
                let values = memory.input::<$T>(0).iter().flat_map(|value| value.to_ne_bytes());
                check(values.collect(), memory.input::<u32>(1));
            };
            launch_host(ready.stream(), "check", [values.into(), numbers.into()], [], work).unwrap();
        }};
    }
    if field == Uneven::BYTES { inputs!(u8) } else { inputs!(u16) }
}

/// Runs every rank of `case`; returns the number of batches.
fn run(case: &Case) -> u64 {
    let mut batches = 0;
    let mut delivered: Vec<Vec<u64>> = vec![Vec::new(); 3];
    for rank in 0..case.world {
        let (device, sim) = device(case.seed.wrapping_add(u64::from(rank)));
        let random = &mut Random::from_key(case.seed ^ u64::from(rank));
        let wrong = Wrong::default();
        let mut cursor: Option<Cursor> = None;
        let mut epoch = 0;
        while epoch < 3 {
            let stream = device.stream().unwrap();
            let mut loader = case.builder(rank, random).build(&device).unwrap();
            let mut part = match cursor {
                Some(cursor) => loader.resume(cursor).unwrap(),
                None => loader.epoch(epoch).unwrap(),
            };
            let max = if random.below(2) == 0 { usize::MAX } else { random.below(4) as usize };
            for batch in part.by_ref().take(max) {
                let ready = batch.unwrap().wait_on(&stream).unwrap();
                delivered[epoch as usize].extend(&ready.ids()[..ready.valid_rows()]);
                check_field(case, &ready, Uneven::BYTES, &wrong);
                check_field(case, &ready, Uneven::PAIRS, &wrong);
                let ids = ready.ids().to_vec();
                let (id, wrong) = (ready.field::<i64>("id").unwrap(), wrong.clone());
                let check = move |memory: &mut Memory<'_>| {
                    if !memory.input::<i64>(0).iter().map(|&id| id as u64).eq(ids.iter().copied()) {
                        wrong.add(format!("ids {:?}, not {ids:?}", memory.input::<i64>(0)));
                    }
                };
                launch_host(&stream, "ids", [id.into()], [], check).unwrap();
                batches += 1;
            }
            if part.is_over() {
                (epoch, cursor) = (epoch + 1, None);
            } else {
                cursor = Some(part.cursor());
            }
            stream.synchronize().unwrap();
        }
        let wrong = wrong.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        assert!(wrong.is_empty(), "{} findings: {:#?}", wrong.len(), &wrong[..wrong.len().min(4)]);
        assert_empty(&device);
        if let Some(sim) = sim {
            sim.finish().unwrap();
        }
    }
    if case.bad.is_empty() && case.last_batch != LastBatch::Drop {
        for mut ids in delivered {
            ids.sort_unstable();
            assert!(ids.iter().copied().eq(0..case.len), "an epoch delivered {ids:?}");
        }
    }
    batches
}

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} must be a whole number, not {text:?}")))
}

/// Prints the case when its run panics.
struct Prints(u64);

impl Drop for Prints {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("ragged loaders: failed with FEEDLINE_SEED={}\n{:#?}", self.0, Case::draw(self.0));
        }
    }
}

#[test]
fn every_value_of_a_ragged_loader_matches_its_sample() {
    alone_in_parts(|| {
        let one = |seed: u64| {
            let hung = format!("ragged loaders: hung with FEEDLINE_SEED={seed}");
            let _watchdog = Watchdog::with_dump(watchdog::LIMIT, "a ragged loader", move || hung);
            let _prints = Prints(seed);
            run(&Case::draw(seed))
        };
        if let Some(seed) = number("FEEDLINE_SEED") {
            one(seed);
            return;
        }
        let limit = Duration::from_secs(number("FEEDLINE_RANDOM_SECONDS").unwrap_or(10)) / 2;
        let clock =
            SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |time| time.as_nanos());
        let (start, first, mut cases, mut batches) = (Instant::now(), clock as u64, 0, 0);
        while start.elapsed() < limit {
            batches += one(first.wrapping_add(cases));
            cases += 1;
        }
        println!("ragged loaders: {cases} cases from seed {first}, {batches} batches");
        assert!(cases > 0 && batches > cases);
    });
}

/// The same on a GPU, read back by copies: plain and padded, with `u16` items and without any.
#[test]
fn a_gpu_gets_the_values_and_offsets_of_every_sample() {
    let Some(device) = gpu("ragged fields") else { return };
    alone_in_parts(|| {
        let data = Uneven::new(300, 700).unwrap().seed(5);
        let stream = device.stream().unwrap();
        let builder =
            Loader::builder(data.clone()).batch_size(32).shuffle().seed(3).pad("pairs", Pad::multiple_of(8));
        let mut loader = builder.build(&device).unwrap();
        for epoch in 0..3 {
            for batch in loader.epoch(epoch).unwrap() {
                let ready = batch.unwrap().wait_on(&stream).unwrap();
                let of = |field| ready.ids().iter().map(move |&id| (id, field));
                let wanted: Vec<Vec<u8>> =
                    of(Uneven::BYTES).map(|(id, field)| data.values(epoch, field, id)).collect();
                let bytes = ready.ragged::<u8>("bytes").unwrap();
                let offsets = bytes.offsets.to_vec().unwrap();
                assert_eq!(bytes.values.to_vec().unwrap(), wanted.concat(), "{ready:?}");
                let lengths = offsets.windows(2).map(|pair| (pair[1] - pair[0]) as usize);
                assert!(offsets[0] == 0 && lengths.eq(wanted.iter().map(Vec::len)), "{ready:?}");
                let pairs = ready.padded::<u16>("pairs").unwrap();
                let values = pairs.values.to_vec().unwrap();
                let lengths = pairs.lengths.to_vec().unwrap();
                assert_eq!(ready.lengths("pairs").unwrap().to_vec().unwrap(), lengths, "{ready:?}");
                for (row, (id, field)) in of(Uneven::PAIRS).enumerate() {
                    let row_values = &values[row * 2 * pairs.width..][..2 * pairs.width];
                    let got: Vec<u8> = row_values.iter().flat_map(|value| value.to_ne_bytes()).collect();
                    let mut wanted = data.values(epoch, field, id);
                    assert_eq!(lengths[row] as usize * 4, wanted.len(), "{ready:?}, row {row}");
                    wanted.resize(got.len(), 0);
                    assert_eq!(got, wanted, "{ready:?}, row {row}");
                }
                let ids = ready.to_vec::<i64>("id").unwrap();
                assert!(ids.iter().map(|&id| id as u64).eq(ready.ids().iter().copied()));
            }
        }
    });
}
