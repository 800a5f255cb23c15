//! Runs a case and compares every row of every batch with the reference: ids on the host, ids and bytes on
//! each stream that reads the batch.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use feedline::report::ChosenMode;
use feedline::{
    Batch, Cursor, Device, Epoch, Loader, LoaderBuilder, Ready, Sampler, Stream, TryNext, WorkerPool, Workers,
};
use feedline_device::host::Host;
use feedline_device::launch_host;
use feedline_sim::SimHandle;
use feedline_sim::interceptors::chaos::{Chaos, Options};
use feedline_testkit::pattern;

use super::case::{Case, From, Leg, Next, On};
use super::reference::{Expected, Reference};
use crate::common::assert_empty;

/// Counts of a run's actions, so that a test can check that there were enough.
#[derive(Clone, Copy, Debug, Default)]
pub struct Done {
    pub loaders: u64,
    pub batches: u64,
    /// Rows compared on the device, once per reader of a batch.
    pub rows: u64,
}

/// Runs `case` to its end.
///
/// # Panics
/// At the first difference from the reference, and if the device holds anything at the end.
pub fn run(case: &Case) -> Done {
    let (device, sim) = device(case);
    let mut done = Done::default();
    let mut place = Place { cursor: None, epoch: 0, delivered: 0 };
    let pool = case.pool.map(|workers| WorkerPool::new(Workers::Count(workers)).unwrap());
    for leg in &case.legs {
        let builder = case.builder(leg, pool.as_ref());
        let result = run_leg(case, leg, builder, &device, &mut place);
        done.loaders += 1;
        done.batches += result.batches;
        done.rows += result.rows;
    }
    assert_empty(&device);
    if let Some(sim) = sim {
        sim.finish().unwrap();
    }
    done
}

fn device(case: &Case) -> (Device, Option<SimHandle>) {
    match case.device {
        On::Host => (Device::new_host(), None),
        On::DelayedHost => {
            let options = Options {
                seed: case.seed,
                probability: 0.1,
                host_delay: Duration::ZERO..Duration::from_micros(100),
                device_delay: Duration::ZERO..Duration::from_micros(500),
                ..Options::default()
            };
            (feedline_device::with_backend(Chaos::new(Host::new(), options).expect("options in range")), None)
        }
        On::Sim => {
            let (device, sim) = feedline_sim::device(case.seed).unwrap();
            (device, Some(sim))
        }
    }
}

/// The position of a run, counted by the test.
struct Place {
    cursor: Option<Cursor>,
    epoch: u64,
    /// Samples of the epoch that all ranks have delivered so far.
    delivered: usize,
}

fn run_leg(case: &Case, leg: &Leg, builder: LoaderBuilder, device: &Device, place: &mut Place) -> Done {
    let checks = Arc::new(Checks::default());
    let streams: Vec<Stream> = (0..leg.readers).map(|_| device.stream().unwrap()).collect();
    let mut loader = builder.build(device).unwrap();
    assert_eq!(*loader.transfer_mode() == ChosenMode::ZeroCopy, leg.zero_copy);
    let mut done = Done { loaders: 1, ..Done::default() };
    std::thread::scope(|scope| {
        let senders: Vec<SyncSender<Vec<Ready>>> = (0..leg.holders)
            .map(|_| {
                let (send, receive) = sync_channel(leg.depth);
                let checks = checks.clone();
                scope.spawn(move || hold(case, &receive, &checks));
                send
            })
            .collect();
        let mut kept = VecDeque::new();
        for part in &leg.parts {
            let mut epoch = begin(case, &mut loader, part.from, place);
            let wanted = reference(case).batches(place.epoch, place.delivered);
            assert_eq!(epoch.steps(), Some(wanted.len() as u64), "steps of epoch {}", place.epoch);
            for (step, wanted) in (0..).zip(&wanted).take(part.max) {
                let batch = take(&mut epoch, part.next);
                check_host(&batch, place.epoch, step, wanted);
                place.delivered += wanted.step;
                done.batches += 1;
                done.rows += (wanted.ids.len() * streams.len()) as u64;
                let readers = open(batch, &streams);
                match senders.get(step as usize % (leg.holders + 1)) {
                    Some(sender) => sender.send(readers).unwrap(),
                    None => {
                        readers.iter().for_each(|ready| check_on_stream(case, ready, &checks));
                        kept.push_back(readers);
                        // Alternates between the oldest and the newest.
                        while kept.len() > leg.kept {
                            drop(if step % 2 == 0 { kept.pop_front() } else { kept.pop_back() });
                        }
                    }
                }
            }
            if part.max >= wanted.len() {
                assert!(epoch.next().is_none() && epoch.is_over(), "more batches than the reference has");
            }
            place.cursor = Some(loader.cursor());
        }
        drop(senders);
        if leg.outlives {
            drop(loader);
            kept.iter().flatten().for_each(|ready| check_on_stream(case, ready, &checks));
            done.rows += kept.iter().flatten().map(|ready| ready.len() as u64).sum::<u64>();
        } else {
            kept.clear();
            loader.stop(Duration::from_secs(60)).unwrap();
        }
    });
    streams.iter().for_each(|stream| stream.synchronize().unwrap());
    checks.assert(done.rows);
    done
}

fn reference(case: &Case) -> Reference<'_> {
    let Case { len, sampler, seed, batch, last_batch, world, skips, .. } = case;
    Reference {
        len: *len,
        sampler,
        seed: *seed,
        batch: *batch,
        last_batch: *last_batch,
        world: *world,
        skips,
    }
}

/// Starts a part, and sets `place` to its start.
fn begin<'a>(case: &Case, loader: &'a mut Loader, from: From, place: &mut Place) -> Epoch<'a> {
    match (from, place.cursor) {
        (From::Epoch(epoch), _) => {
            (place.epoch, place.delivered) = (epoch, 0);
            check_order(case, epoch);
            loader.epoch(epoch).unwrap()
        }
        (From::Cursor, Some(cursor)) => {
            let saved = Cursor::from_bytes(&cursor.to_bytes()).unwrap();
            loader.resume(saved).unwrap()
        }
        (From::Cursor, None) => {
            (place.epoch, place.delivered) = (0, 0);
            let fresh = loader.cursor();
            loader.resume(fresh).unwrap()
        }
    }
}

/// Checks what the sampler promises, independently of its implementation.
fn check_order(case: &Case, epoch: u64) {
    let mut ids = Reference { skips: &[], ..reference(case) }.samples(epoch);
    if matches!(case.sampler, Sampler::Sequential) {
        assert!(ids.iter().copied().eq(0..case.len));
    }
    if case.sampler.is_permutation() {
        ids.sort_unstable();
        assert!(ids.into_iter().eq(0..case.len), "not every sample once");
    }
}

/// Takes the next batch, which must exist.
fn take(epoch: &mut Epoch<'_>, next: Next) -> Batch {
    match next {
        Next::Blocking => epoch.next().expect("a batch").unwrap(),
        Next::Polling | Next::WithLimit => loop {
            let limit = if matches!(next, Next::Polling) { Duration::ZERO } else { Duration::from_millis(3) };
            match epoch.next_timeout(limit).unwrap() {
                TryNext::Batch(batch) => return batch,
                TryNext::NotYet => std::thread::yield_now(),
                TryNext::Over => panic!("fewer batches than the reference has"),
            }
        },
    }
}

/// Compares the host's facts about a batch.
fn check_host(batch: &Batch, epoch: u64, step: u64, wanted: &Expected) {
    let have = (batch.epoch(), batch.step(), batch.ids(), batch.valid_rows());
    assert_eq!(have, (epoch, step, &wanted.ids[..], wanted.valid));
    assert!(batch.substituted().is_empty());
}

/// Opens a batch on every stream.
fn open(batch: Batch, streams: &[Stream]) -> Vec<Ready> {
    let mut readers = vec![batch.wait_on(&streams[0]).unwrap()];
    for stream in &streams[1..] {
        let more = readers[0].also_on(stream).unwrap();
        readers.push(more);
    }
    readers
}

/// Checks the batches that it receives, and drops their readers in order or in reverse.
fn hold(case: &Case, batches: &Receiver<Vec<Ready>>, checks: &Arc<Checks>) {
    for mut readers in batches {
        readers.iter().for_each(|ready| check_on_stream(case, ready, checks));
        if readers[0].step() % 2 == 0 {
            readers.reverse();
        }
        if readers[0].step() % 5 == 0 {
            std::thread::sleep(Duration::from_micros(200));
        }
    }
}

/// The findings of the work on the streams.
#[derive(Default)]
struct Checks {
    rows: AtomicU64,
    wrong: Mutex<Vec<String>>,
}

impl Checks {
    fn assert(&self, rows: u64) {
        let wrong = self.wrong.lock().unwrap_or_else(PoisonError::into_inner);
        assert!(wrong.is_empty(), "{} rows are wrong: {:#?}", wrong.len(), &wrong[..wrong.len().min(5)]);
        assert_eq!(self.rows.load(Ordering::Relaxed), rows, "rows compared on the streams");
    }
}

/// Queues work on the reader's stream that compares every row byte by byte. Does not wait for it.
fn check_on_stream(case: &Case, ready: &Ready, checks: &Arc<Checks>) {
    if ready.len() == 0 {
        return;
    }
    let (ids, key, place) = (ready.ids().to_vec(), case.key(ready.epoch()), format!("{ready:?}"));
    let (width, checks) = (case.row_bytes, checks.clone());
    let fields = [ready.field::<i64>("id").unwrap().into(), ready.field::<u8>("bytes").unwrap().into()];
    let compare = move |memory: &mut feedline_device::Memory<'_>| {
        let rows = memory.input::<i64>(0).iter().zip(memory.input::<u8>(1).chunks(width));
        checks.rows.fetch_add(rows.len() as u64, Ordering::Relaxed);
        for (row, (&id, (read, bytes))) in ids.iter().zip(rows).enumerate() {
            let wrong = pattern::check(bytes, key, id).err();
            if *read != id as i64 || wrong.is_some() {
                let text = format!("{place}, row {row}: id {read}, not {id}; {wrong:?}");
                checks.wrong.lock().unwrap_or_else(PoisonError::into_inner).push(text);
            }
        }
    };
    launch_host(ready.stream(), "compare", fields, [], compare).unwrap();
}
