//! Everything is allocated once: in the steady state the pipeline allocates no heap block, no pinned or
//! device memory, no stream and no event, and a batch costs a handful of driver calls.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use common::{LONG, assert_empty, one_at_a_time, wait_for_threads, wait_until};
use feedline::batch::{DeviceBatch, PinnedBatch};
use feedline::record::{RecordOptions, Recorder};
use feedline::{Batch, Dataset, Device, Epoch, Loader, Mix, Pad, Stream, TransferMode, TryNext, Workers};
use feedline_device::host::Host;
use feedline_device::launch_host;
use feedline_sim::interceptors::{Count, Op};
use feedline_testkit::alloc::{Allocations, CountingAllocator};
use feedline_testkit::fixtures::{self, Fine, Laid, Uneven};
use feedline_testkit::{Census, pattern};

#[global_allocator]
static HEAP: CountingAllocator = CountingAllocator::new();

/// The threads of the pipeline, of the consumer, and of the consumer's stream. The kernel truncates thread
/// names to 15 bytes.
type Threads<const N: usize> = [&'static str; N];
const THREADS: Threads<5> = ["fl-decode", "fl-transfer", "fl-stream-copy", "consumer", "fl-stream-compu"];

const BATCH: usize = 16;
const STEPS: u64 = 64;

/// The number of allocations of each of `threads` while `work` ran.
fn allocations<const N: usize>(threads: Threads<N>, work: impl FnOnce()) -> [(&'static str, Allocations); N] {
    // Arrays, because allocations of this thread count too.
    let before = threads.map(|name| HEAP.of_threads(name));
    work();
    std::array::from_fn(|i| (threads[i], HEAP.of_threads(threads[i]) - before[i]))
}

/// Asserts that none of `threads` allocates in at least one of the first six rounds of `work`. Crossbeam's
/// channels allocate the first time that a thread blocks on any of them (48 bytes), and the first time that
/// one of them blocks a thread (96 bytes); no warm-up makes every thread block at every point. An allocation
/// that recurs within a round shows in every round.
#[track_caller]
fn assert_a_round_without<const N: usize>(threads: Threads<N>, mut work: impl FnMut()) {
    if !CountingAllocator::knows_threads("allocations per batch") {
        return;
    }
    let mut rounds = Vec::new();
    for _ in 0..6 {
        rounds.push(allocations(threads, &mut work));
        if rounds.last().is_some_and(|round| round.iter().all(|(_, made)| made.calls == 0)) {
            return;
        }
    }
    panic!("{rounds:#?}");
}

/// Takes `count` batches with `next`, epoch after epoch, and opens and drops each.
fn take(
    loader: &mut Loader,
    compute: &Stream,
    epoch: &mut u64,
    count: u64,
    mut next: impl FnMut(&mut Epoch<'_>) -> Option<Batch>,
) {
    let mut taken = 0;
    while taken < count {
        let mut batches = loader.epoch(*epoch).unwrap();
        while let Some(batch) = next(&mut batches) {
            drop(batch.wait_on(compute).unwrap());
            taken += 1;
        }
        assert!(batches.is_over());
        *epoch += 1;
    }
}

/// Waits for the next batch.
fn blocking(batches: &mut Epoch<'_>) -> Option<Batch> {
    batches.next().transpose().unwrap()
}

/// Polls for the next batch.
fn polling(batches: &mut Epoch<'_>) -> Option<Batch> {
    loop {
        match batches.try_next().unwrap() {
            TryNext::Batch(batch) => return Some(batch),
            TryNext::NotYet => std::thread::yield_now(),
            TryNext::Over => return None,
        }
    }
}

/// Runs `work` on a thread named `consumer`.
fn as_consumer(work: impl FnOnce() + Send) {
    std::thread::scope(|scope| {
        let consumer = std::thread::Builder::new().name("consumer".into()).spawn_scoped(scope, work).unwrap();
        if let Err(panic) = consumer.join() {
            std::panic::resume_unwind(panic);
        }
    });
}

fn loader(device: &Device, workers: usize, depth: usize) -> Loader {
    let data = Fine::new(BATCH as u64 * STEPS, 64).unwrap();
    let builder = Loader::builder(data).batch_size(BATCH).shuffle().seed(1);
    builder.workers(Workers::Count(workers)).depth(depth).build(device).unwrap()
}

#[test]
fn a_steady_pipeline_allocates_nothing_on_the_heap() {
    let _one = one_at_a_time();
    for (workers, depth) in [(1, 1), (2, 3), (4, 2)] {
        let device = Device::new_host();
        as_consumer(|| {
            let compute = device.stream().unwrap();
            let mut loader = loader(&device, workers, depth);
            let mut epoch = 0;
            for next in [blocking as fn(&mut Epoch<'_>) -> Option<Batch>, polling] {
                take(&mut loader, &compute, &mut epoch, 4 * STEPS, next);
                assert_a_round_without(THREADS, || take(&mut loader, &compute, &mut epoch, 20 * STEPS, next));
            }
        });
        assert_empty(&device);
    }
}

#[test]
fn a_device_map_allocates_nothing_on_the_heap() {
    const OF_MAP: Threads<7> = [
        "fl-decode",
        "fl-transfer",
        "fl-stream-copy",
        "fl-map",
        "fl-stream-map 0",
        "consumer",
        "fl-stream-compu",
    ];
    let _one = one_at_a_time();
    for (lanes, depth, reads_host) in [(1, 1, false), (2, 3, false), (1, 1, true), (2, 3, true)] {
        let device = Device::new_host();
        as_consumer(|| {
            let compute = device.stream().unwrap();
            let data = Fine::new(BATCH as u64 * STEPS, 64).unwrap();
            let spec = data.spec().clone();
            let builder =
                Loader::builder(data).batch_size(BATCH).shuffle().seed(1).depth(depth).device_lanes(lanes);
            let builder = match reads_host {
                false => builder.device_map(spec, |_| {
                    Ok(|batch: &mut DeviceBatch<'_>| {
                        batch.copy("id")?;
                        batch.copy("bytes")
                    })
                }),
                true => builder.produce(spec, |_| {
                    Ok(|batch: &mut PinnedBatch<'_>| {
                        batch.copy("id")?;
                        batch.copy("bytes")
                    })
                }),
            };
            let mut loader = builder.workers(Workers::Count(2)).build(&device).unwrap();
            let mut epoch = 0;
            take(&mut loader, &compute, &mut epoch, 4 * STEPS, blocking);
            assert_a_round_without(OF_MAP, || take(&mut loader, &compute, &mut epoch, 20 * STEPS, blocking));
        });
        assert_empty(&device);
    }
}

#[test]
fn a_recorded_pipeline_allocates_nothing_on_the_heap() {
    let _one = one_at_a_time();
    let (device, folder) = (Device::new_host(), tempfile::tempdir().unwrap());
    let recorder = Recorder::new(folder.path(), RecordOptions::default());
    as_consumer(|| {
        let compute = device.stream().unwrap();
        let data = Laid::columns(&Fine::new(BATCH as u64 * STEPS, 64).unwrap(), 1).unwrap();
        let builder =
            Loader::builder(data).batch_size(BATCH).shuffle().seed(1).transfer_mode(TransferMode::Staged);
        let builder = builder.workers(Workers::Count(2)).depth(2).record(&recorder);
        let mut loader = builder.build(&device).unwrap();
        let mut epoch = 0;
        let next = |batches: &mut Epoch<'_>| {
            let batch = blocking(batches)?;
            recorder.note("loss", 0.5).unwrap();
            Some(batch)
        };
        take(&mut loader, &compute, &mut epoch, 4 * STEPS, next);
        assert_a_round_without(THREADS, || take(&mut loader, &compute, &mut epoch, 20 * STEPS, next));
    });
    let bytes = folder.path().join("rank-0.rec").metadata().unwrap().len();
    assert!(bytes > 24 * STEPS * (32 + 30), "{bytes} bytes are too few for a record of these steps");
    assert_empty(&device);
}

#[test]
fn a_steady_pipeline_of_ragged_fields_allocates_nothing_on_the_heap() {
    let _one = one_at_a_time();
    let device = Device::new_host();
    as_consumer(|| {
        let compute = device.stream().unwrap();
        let data = Uneven::new(BATCH as u64 * STEPS, 200).unwrap();
        let builder =
            Loader::builder(data).batch_size(BATCH).shuffle().seed(1).pad("pairs", Pad::multiple_of(8));
        let mut loader = builder.workers(Workers::Count(2)).depth(2).build(&device).unwrap();
        let mut epoch = 0;
        take(&mut loader, &compute, &mut epoch, 4 * STEPS, blocking);
        assert_a_round_without(THREADS, || take(&mut loader, &compute, &mut epoch, 10 * STEPS, blocking));
    });
    assert_empty(&device);
}

#[test]
fn composed_sets_scratch_and_map_batch_allocate_nothing_on_the_heap() {
    let _one = one_at_a_time();
    let device = Device::new_host();
    as_consumer(|| {
        let compute = device.stream().unwrap();
        let all = BATCH as u64 * STEPS;
        let doubled = |set: Laid| {
            let spec = set.spec().clone();
            set.map(spec, |sample, row, context| {
                row.write(0, sample.bytes(0));
                let shift = context.random().below(256) as u8;
                let bytes = row.field_mut::<u8>(1)?.iter_mut().zip(sample.field::<u8>(1)?);
                bytes.for_each(|(to, from)| *to = from.wrapping_add(shift));
                Ok(())
            })
        };
        let laid = || Laid::records(&Fine::new(all, 64).unwrap(), 0, 0).unwrap();
        let file = tempfile::tempdir().unwrap();
        let cached = fixtures::counting(laid()).0.cached_in_file(file.path().join("cache"), 1 << 30).unwrap();
        let kept = fixtures::counting(laid()).0.cached(1 << 20).unwrap();
        let (first, second) = (doubled(laid()).unwrap(), cached.concat(kept).unwrap());
        let mix = Mix::builder(1).dataset(first, 1.0).dataset(second, 2.0).samples(2 * all).build().unwrap();
        let [half, _] = mix.split([0.5, 0.5], 1).unwrap();
        let builder = Loader::builder(half.repeat(2).unwrap().take(all)).batch_size(BATCH).shuffle().seed(1);
        let builder = builder.map_batch(|batch, context| {
            let words = context.scratch::<Vec<u8>>();
            words.clear();
            words.extend_from_slice(batch.rows().column_mut(1));
            Ok(())
        });
        let mut loader = builder.workers(Workers::Count(2)).depth(2).build(&device).unwrap();
        let mut epoch = 0;
        take(&mut loader, &compute, &mut epoch, 6 * STEPS, blocking);
        assert_a_round_without(THREADS, || take(&mut loader, &compute, &mut epoch, 10 * STEPS, blocking));
    });
    assert_empty(&device);
}

/// Zero-copy mode sorts the rows of a batch. Only the worker and the consumer are counted, because the host
/// device allocates the list of rows to gather.
#[test]
fn sorting_the_rows_of_a_batch_allocates_nothing() {
    let _one = one_at_a_time();
    let device = Device::new_host();
    as_consumer(|| {
        let compute = device.stream().unwrap();
        let set = Laid::far(&Fine::new(300 * STEPS, 8).unwrap(), 600 << 20).unwrap();
        let mut loader = Loader::builder(set)
            .batch_size(300)
            .shuffle()
            .seed(1)
            .transfer_mode(TransferMode::ZeroCopy)
            .build(&device)
            .unwrap();
        let mut epoch = 0;
        take(&mut loader, &compute, &mut epoch, 4 * STEPS, blocking);
        let steady = || take(&mut loader, &compute, &mut epoch, 10 * STEPS, blocking);
        assert_a_round_without(["fl-decode", "consumer"], steady);
    });
    assert_empty(&device);
}

/// Everything that travels with a batch is allocated at the start, even if all slots fill for the first
/// time much later.
#[test]
fn filling_every_slot_for_the_first_time_allocates_nothing() {
    const DEPTH: usize = 4;
    let _one = one_at_a_time();
    let device = Device::new_host();
    as_consumer(|| {
        let compute = device.stream().unwrap();
        // The second batch is read only after the first one has been delivered and dropped.
        let (data, gate) = fixtures::blocking(Fine::new(BATCH as u64 * STEPS, 64).unwrap(), [BATCH as u64]);
        let (data, reads) = fixtures::counting(data);
        let builder = Loader::builder(data).batch_size(BATCH).workers(Workers::Count(1)).depth(DEPTH);
        let mut loader = builder.build(&device).unwrap();
        let mut batches = loader.epoch(0).unwrap();
        drop(batches.next().unwrap().unwrap().wait_on(&compute).unwrap());
        assert!(gate.wait_until_waiting(1, LONG));
        let fill = || {
            gate.open();
            let full = ((1 + 2 * DEPTH + 1) * BATCH) as u64;
            wait_until("every slot is full", || reads.total() == full);
        };
        let [(name, made)] = allocations(["fl-decode"], fill);
        assert_eq!(made, Allocations::default(), "{name}");
        // Holding four batches at once allocates nothing either.
        let mut all: [Option<Batch>; DEPTH] = Default::default();
        let hold = || all.iter_mut().for_each(|place| *place = Some(batches.next().unwrap().unwrap()));
        let [(name, made)] = allocations(["fl-decode"], hold);
        assert_eq!(made, Allocations::default(), "{name}");
    });
    assert_empty(&device);
}

#[test]
fn memory_is_flat_over_ten_thousand_batches() {
    let _one = one_at_a_time();
    let device = Device::new_host();
    as_consumer(|| {
        let compute = device.stream().unwrap();
        let mut loader = loader(&device, 2, 3);
        let held = || {
            let stats = device.stats();
            [&stats.pinned_bytes, &stats.device_bytes, &stats.streams, &stats.events]
                .map(|g| (g.get(), g.peak()))
        };
        let at_build = held();
        assert_eq!(at_build[0].0, loader.memory_use().pinned_bytes);
        assert_eq!(at_build[1].0, loader.memory_use().device_bytes);
        let mut epoch = 0;
        take(&mut loader, &compute, &mut epoch, 1000, blocking);
        // Two workers, a transfer thread and two streams.
        wait_for_threads("fl-", 5);
        let (before, threads) = (Census::take().unwrap(), Census::of_threads("fl-").unwrap());
        for _ in 0..10 {
            take(&mut loader, &compute, &mut epoch, 1000, blocking);
            assert_eq!(held(), at_build, "pinned bytes, device bytes, streams, events: now and peak");
        }
        threads.assert_same();
        let after = Census::take().unwrap();
        assert_eq!(after.locked_kib, before.locked_kib);
        // Allows for stack pages and the allocator's caches; a leak of 64 bytes per batch would be 625 KiB.
        let grown = after.resident_kib.saturating_sub(before.resident_kib);
        assert!(grown < 512, "{grown} KiB more of memory after 10,000 batches");
    });
    assert_empty(&device);
}

#[test]
fn a_batch_costs_at_most_six_driver_calls_plus_queries_and_creates_nothing() {
    let _one = one_at_a_time();
    for depth in [1, 3] {
        let driver = Count::by_thread(Host::new());
        let count = driver.handle();
        let device = feedline_device::with_backend(driver);
        as_consumer(|| {
            let compute = device.stream().unwrap();
            let mut loader = loader(&device, 2, depth);
            let mut epoch = 0;
            take(&mut loader, &compute, &mut epoch, 2 * STEPS, blocking);
            let (before, by_consumer) = (count.snapshot(), count.of_threads("consumer"));
            let (batches, start) = (50 * STEPS, Instant::now());
            take(&mut loader, &compute, &mut epoch, batches, blocking);
            let took = start.elapsed();
            let (made, by_consumer) = (count.snapshot() - before, count.of_threads("consumer") - by_consumer);

            // Slots that are being filled or copied may fall on either side of a snapshot.
            let ahead = 7 * (2 * depth as u64 + 2);
            // `HostWrite` is a hook for race checkers; the driver of a GPU never sees it.
            let (queries, hooks) = (made.of(Op::Query), made.of(Op::HostWrite));
            let calls = made.total() - queries - hooks;
            // One copy in 5 ms is timed: three events, two differences.
            let timed = 5 * (took.as_micros() as u64 / 5000 + 4);
            assert!(calls <= 6 * batches + ahead + timed, "{made:?} in {batches} batches");
            // The consumer queries once per batch, the transfer thread at most twice and then every 25 us
            // while it waits.
            let polls = took.as_micros() as u64 / 25;
            assert!(queries <= 3 * batches + polls + ahead, "{made:?} in {batches} batches, {took:?}");
            assert_eq!((made.created(), made.released()), (0, 0), "{made:?}");
            let copies = made.of(Op::CopyToDevice);
            assert!(copies.abs_diff(batches) <= ahead, "{copies} copies of {batches} batches");
            // The consumer queries whether the batch has arrived, makes its stream wait if not, and records
            // an event when it drops the batch. It never blocks on the device.
            assert_eq!(by_consumer.blocking(), 0, "{by_consumer:?}");
            let (queried, recorded) = (by_consumer.of(Op::Query), by_consumer.of(Op::Record));
            assert_eq!((queried, recorded), (batches, batches), "{by_consumer:?}");
            assert_eq!(by_consumer.total(), queried + recorded + by_consumer.of(Op::Wait), "{by_consumer:?}");
        });
        assert_empty(&device);
    }
}

/// With steps of milliseconds on the device, the pipeline's threads wait for each other but never block on
/// the device, which costs a thread much more. Every batch is intact and in order.
#[test]
fn the_pipeline_never_blocks_on_a_slow_device() {
    let _one = one_at_a_time();
    let driver = Count::by_thread(Host::new());
    let count = driver.handle();
    let device = feedline_device::with_backend(driver);
    as_consumer(|| {
        let compute = device.stream().unwrap();
        let mut loader = loader(&device, 2, 3);
        let fine = Fine::new(BATCH as u64 * STEPS, 64).unwrap();
        let wrong = Arc::new(AtomicU64::new(0));
        let step = |batch: Batch| {
            let ready = batch.wait_on(&compute).unwrap();
            let (ids, key) = (ready.ids().to_vec(), fine.key(ready.epoch()));
            let wrong = wrong.clone();
            let body = move |memory: &mut feedline_device::Memory<'_>| {
                std::thread::sleep(Duration::from_millis(2));
                let rows = memory.input::<u8>(0).chunks(64);
                let is_wrong = |(&id, row)| pattern::check(row, key, id).is_err();
                wrong.fetch_add(
                    ids.iter().zip(rows).filter(|&row| is_wrong(row)).count() as u64,
                    Ordering::Relaxed,
                );
            };
            launch_host(&compute, "step", [ready.field::<u8>("bytes").unwrap().into()], [], body).unwrap();
        };
        let mut after_warm_up = 0;
        for epoch in 0..4 {
            let mut next = 0;
            for batch in loader.epoch(epoch).unwrap() {
                let batch = batch.unwrap();
                assert_eq!(batch.step(), next);
                next += 1;
                step(batch);
            }
            assert_eq!(next, STEPS);
            if epoch == 0 {
                after_warm_up = count.of_threads("fl-").blocking();
            }
        }
        compute.synchronize().unwrap();
        assert_eq!(wrong.load(Ordering::Relaxed), 0, "wrong rows");
        assert_eq!(count.of_threads("fl-").blocking(), after_warm_up, "blocking device calls");
    });
    assert_empty(&device);
}

/// The slots take exactly the announced memory, which is checked against the budget before anything is
/// allocated.
#[test]
fn a_budget_that_is_too_small_is_refused_before_anything_is_allocated() {
    let _one = one_at_a_time();
    let device = Device::new_host();
    let builder = || Loader::builder(Fine::new(100, 1000).unwrap()).batch_size(10).depth(3);
    let needed = builder().build(&device).unwrap().memory_use().pinned_bytes;
    wait_until("the first loader has ended", || device.stats().pinned_bytes.get() == 0);
    drop(builder().pinned_budget(needed as usize).build(&device).unwrap());
    assert_eq!(device.stats().pinned_bytes.peak(), needed);

    let device = Device::new_host();
    let error = builder().pinned_budget(needed as usize - 1).build(&device).unwrap_err();
    assert_eq!(error.kind(), feedline::ErrorKind::Budget);
    for part in [needed.to_string(), (needed - 1).to_string(), "take a smaller batch or depth".into()] {
        assert!(error.to_string().contains(&part), "no {part:?} in: {error}");
    }
    assert_eq!(device.stats().pinned_bytes.peak(), 0);
    // Huge sizes do not overflow into small ones.
    let unlimited = || builder().pinned_budget(usize::MAX);
    for builder in [
        builder().depth(usize::MAX),
        builder().batch_size(1 << 50),
        builder().batch_size(usize::MAX),
        unlimited().depth(usize::MAX),
        unlimited().batch_size(1 << 45),
    ] {
        let error = builder.build(&device).unwrap_err();
        assert!(
            [feedline::ErrorKind::Budget, feedline::ErrorKind::Config].contains(&error.kind()),
            "{error}"
        );
    }
    assert_empty(&device);
}
