//! The decode stage alone. The test plays the transfer thread: it hands out slots and receives the
//! workers' messages.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use feedline_core::{
    BadSamples, BatchSampler, BatchSamplerOptions, Dataset, ErrorKind, LastBatch, Layout, Result, Sampler,
    Source, StableDataset, World,
};
use feedline_device::slots::{HostMemory, ReadyLease, Ring};
use feedline_device::zero_copy::GatherOrder;
use feedline_device::{Device, Pinned};
use feedline_testkit::fixtures::streams::Generator;
use feedline_testkit::fixtures::{self, Fine};
use feedline_testkit::{watchdog::LIMIT, with_watchdog};

use super::*;
use crate::job::{Delivery, HostInfo, Job, Message, Request, Requests, SourceReader};

mod panics;

/// Rows per batch.
const BATCH: usize = 4;
/// The request and the epoch of every batch.
const REQUEST: u64 = 1;
const EPOCH: u64 = 3;

struct Rig {
    pool: WorkerPool,
    decoder: Arc<Decoder>,
    requests: Arc<Requests>,
    layout: Arc<Layout>,
    batch_sampler: Arc<BatchSampler>,
    slots: Ring<Pinned, HostInfo>,
    /// The outcome of dropping the data.
    dropped: mpsc::Receiver<Result<()>>,
}

impl Rig {
    /// Workers and two slots for `dataset`, in sequential order.
    fn new(dataset: impl Dataset, workers: usize) -> Self {
        Self::of(Input::dataset(dataset), BATCH, workers, Sampler::Sequential, None)
    }

    fn of(input: Input, batch: usize, workers: usize, sampler: Sampler, slot_bytes: Option<usize>) -> Self {
        const SLOTS: usize = 2;
        let device = Device::new_host();
        let layout = Arc::new(Layout::new(input.spec(), batch).unwrap());
        let (len, batch) = match &input {
            Input::Dataset(dataset) | Input::ZeroCopy(dataset, _) => (dataset.len(), batch),
            Input::Source(source) => (source.shards(), 1),
        };
        let options = BatchSamplerOptions {
            len,
            sampler,
            seed: 0,
            batch,
            last_batch: LastBatch::Keep,
            world: World::single(),
        };
        let batch_sampler = Arc::new(BatchSampler::new(options).unwrap());
        let slot_bytes = slot_bytes.unwrap_or(layout.bytes());
        let slots = Ring::new((0..SLOTS).map(|_| Pinned::new(&device, slot_bytes).unwrap()).collect());
        let (requests, (tell, dropped)) = (Arc::new(Requests::new(SLOTS)), mpsc::channel());
        let decoder = Decoder {
            input: Some(input.of_workers(None)),
            batch_sampler: batch_sampler.clone(),
            layout: layout.clone(),
            bad_samples: BadSamples::Fail,
            map_batch: None,
            content: None,
            host_fields: Vec::new(),
            reads_whole: false,
            rest: None,
            workers: Arc::new(workers.into()),
            requests: requests.clone(),
            stop: Default::default(),
            filling: None,
            trace: None,
            row_ns: Default::default(),
            prefetch: Default::default(),
            splits: Default::default(),
            on_end: Box::new(move |outcome| drop(tell.send(outcome))),
        };
        let decoder = Arc::new(decoder);
        let pool = WorkerPool::new(Workers::Count(workers)).unwrap();
        let rig = Self { pool, decoder, requests, layout, batch_sampler, slots, dropped };
        rig.request(REQUEST);
        rig
    }

    /// Makes request `number`.
    fn request(&self, number: u64) {
        self.requests.begin(Request { number, ..Request::default() }).unwrap();
        assert!(matches!(self.message(), Message::Wake));
        self.requests.woken();
    }

    /// Queues batch `number`, which is `step` of the epoch, for the workers.
    fn begin(&self, number: u64, step: u64) {
        self.begin_with(number, step, None);
    }

    fn begin_with(&self, number: u64, step: u64, reader: Option<Box<SourceReader>>) {
        let request = Request { number: REQUEST, epoch: EPOCH, step, ..Request::default() };
        let batch = Job::new(number, request, self.slots.acquire().unwrap(), (None, reader));
        self.pool.begin(&self.decoder, batch, true);
    }

    fn message(&self) -> Message {
        self.requests.inbox.recv(Some(LIMIT)).expect("the workers send something")
    }

    /// The number and the outcome of the next batch.
    #[track_caller]
    fn decoded(&self) -> (u64, Result<Option<Delivery>>) {
        let Message::Decoded { number, outcome } = self.message() else { panic!("not the end of a batch") };
        (number, outcome)
    }

    /// The next batch, which must be decoded.
    #[track_caller]
    fn ready(&self) -> (u64, ReadyLease<Pinned, HostInfo>) {
        match self.decoded() {
            (number, Ok(Some(Delivery::Filled(filled)))) => (number, filled),
            (number, other) => panic!("batch {number} is not ready: {:?}", other.err()),
        }
    }

    /// Checks the rows of a batch to the last byte.
    #[track_caller]
    fn check(&self, filled: &ReadyLease<Pinned, HostInfo>) {
        let info = &filled.info().batch;
        let rows = fine().check(EPOCH, &self.layout, info.ids.len(), filled.bytes());
        assert_eq!(rows.expect("whole rows"), info.ids);
    }
}

fn fine() -> Fine {
    Fine::new(20, 100).unwrap()
}

/// Waits for another thread to make `done` true.
#[track_caller]
fn until(what: &str, done: impl Fn() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < LIMIT / 4, "never: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn rows_are_decoded_in_place_with_any_number_of_workers() {
    with_watchdog(LIMIT, || {
        for workers in [1, 2, 5] {
            let rig = Rig::new(fine(), workers);
            let mut places = BTreeSet::new();
            // The first batch is split into single rows; the pieces of later batches depend on its time.
            for number in 0..10 {
                rig.begin(number, number % 5);
                let (decoded, filled) = rig.ready();
                assert_eq!((decoded, filled.info().batch.step), (number, number % 5));
                assert!(filled.info().batch.ids.iter().copied().eq(4 * (number % 5)..4 * (number % 5) + 4));
                rig.check(&filled);
                places.insert(filled.memory().as_ptr() as usize);
            }
            assert_eq!(places.len(), rig.slots.len(), "slots are reused");
        }
    });
}

#[test]
fn in_zero_copy_mode_a_slot_holds_the_gather_order_of_its_batch() {
    const ROWS: usize = 512;
    with_watchdog(LIMIT, || {
        let data = Fine::new(5 * ROWS as u64 + 100, 8).unwrap();
        let stable = Arc::new(StableDataset::new(Arc::new(data.clone())));
        for (bytes, is_ordered) in [(1 << 30, true), (1 << 20, false)] {
            let input = Input::ZeroCopy(stable.clone(), GatherOrder::new(data.len(), bytes));
            let rig = Rig::of(input, ROWS, 1, Sampler::Shuffle, Some(GatherOrder::slot_bytes(ROWS)));
            for step in 0..6 {
                rig.begin(step, step);
                let (_, filled) = rig.ready();
                let ids = &filled.info().batch.ids;
                assert_eq!(ids.len(), if step < 5 { ROWS } else { 100 });
                let (visited, places) = filled.bytes().split_at(8 * ids.len());
                let visited: Vec<_> =
                    visited.as_chunks().0.iter().map(|id| u64::from_ne_bytes(*id)).collect();
                // The last batch is too short to be reordered.
                if !is_ordered || step == 5 {
                    assert_eq!(&visited, ids);
                    continue;
                }
                let places = places.as_chunks().0.iter().map(|place| u32::from_ne_bytes(*place) as usize);
                let places: Vec<_> = places.take(ids.len()).collect();
                assert!(visited.iter().zip(&places).all(|(&id, &place)| ids[place] == id));
                assert_eq!(places.iter().collect::<BTreeSet<_>>().len(), ids.len(), "each place once");
                // 2,660 samples have 512 buckets of 8, some of them unused.
                assert!(visited.iter().map(|id| id / 8).is_sorted());
            }
        }
    });
}

#[test]
fn a_reading_names_worker_batch_sample_and_time() {
    with_watchdog(LIMIT, || {
        let (data, gate) = fixtures::blocking(fine(), [6]);
        let rig = Rig::new(data, 2);
        assert_eq!(rig.pool.readings(), []);
        rig.begin(0, 1);
        assert!(gate.wait_until_waiting(1, LIMIT));
        // The other worker may still be reading other rows of the batch.
        until("one read is left", || rig.pool.readings().len() == 1);
        let reading = rig.pool.readings()[0];
        assert_eq!((reading.step, reading.sample), (1, 6));
        assert!(reading.worker < 2);
        let text = reading.to_string();
        let start = format!("worker fl-decode-{} has been reading sample 6 of batch 1 for ", reading.worker);
        assert!(text.starts_with(&start), "{text}");
        assert!(rig.pool.readings()[0].time >= reading.time);
        gate.open();
        rig.check(&rig.ready().1);
        assert_eq!(rig.pool.readings(), []);
    });
}

#[test]
fn worker_counts_outside_the_limits_are_refused() {
    for count in [0, MAX_WORKERS + 1, usize::MAX] {
        let error = Workers::Count(count).threads().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config);
        assert!(error.to_string().contains(&count.to_string()), "{error}");
        assert_eq!(WorkerPool::new(Workers::Count(count)).unwrap_err().kind(), ErrorKind::Config);
        assert!(Workers::AutoUpTo(count).threads().unwrap_err().to_string().contains(&count.to_string()));
    }
    assert_eq!(
        [1, 3, MAX_WORKERS].map(|count| Workers::Count(count).threads().unwrap()),
        [1, 3, MAX_WORKERS]
    );
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    assert!((1..=cores).contains(&Workers::PerCore.threads().unwrap()));
}

#[test]
fn a_stale_batch_is_not_read() {
    with_watchdog(LIMIT, || {
        let (data, reads) = fixtures::counting(fine());
        let rig = Rig::new(data, 2);
        rig.request(REQUEST + 1);
        rig.begin(0, 0);
        assert!(matches!(rig.decoded(), (0, Ok(None))));
        assert_eq!(reads.total(), 0);
    });
}

#[test]
fn a_stop_is_final() {
    let rig = Rig::new(fine(), 1);
    rig.requests.stop();
    let request = Request { number: REQUEST + 1, ..Request::default() };
    assert_eq!(rig.requests.begin(request).unwrap_err().kind(), ErrorKind::Stopped);
    assert!(rig.requests.is_stale(REQUEST + 1));
}

#[test]
fn a_batch_after_a_failed_one_is_not_read() {
    with_watchdog(LIMIT, || {
        let (data, reads) = fixtures::counting(fixtures::failing(fine(), [5]));
        let rig = Rig::new(data, 2);
        rig.begin(1, 1);
        let (number, outcome) = rig.decoded();
        let error = outcome.err().expect("sample 5 fails");
        assert_eq!((number, error.batch(), error.sample()), (1, Some(1), Some(5)));
        rig.begin(2, 2);
        assert!(matches!(rig.decoded(), (2, Ok(None))));
        assert_eq!(reads.of(8), 0);
        rig.begin(0, 0);
        rig.check(&rig.ready().1);
    });
}

/// Batch 1 fails while two rows of batch 0 are unclaimed. They are still read, because batch 0 will be
/// delivered.
#[test]
fn a_batch_before_a_failed_one_is_read_to_its_end() {
    with_watchdog(LIMIT, || {
        // The second batch has one row, so it is not split.
        let data = fixtures::failing(Fine::new(BATCH as u64 + 1, 100).unwrap(), [4]);
        let (data, second) = fixtures::blocking(data, [4]);
        let (data, first) = fixtures::blocking(data, [0, 1]);
        let rig = Rig::new(data, 3);
        rig.begin(1, 1);
        assert!(second.wait_until_waiting(1, LIMIT));
        rig.begin(0, 0);
        assert!(first.wait_until_waiting(2, LIMIT));
        second.open();
        assert!(matches!(rig.decoded(), (1, Err(_))));
        // Now the third worker is idle and can join the first batch.
        first.open();
        let (number, filled) = rig.ready();
        assert_eq!(number, 0);
        rig.check(&filled);
    });
}

#[test]
fn the_error_of_the_first_failed_row_is_reported() {
    with_watchdog(LIMIT, || {
        let (data, reads) = fixtures::counting(fixtures::failing(fine(), [0, 2]));
        let (data, gate) = fixtures::blocking(data, [0]);
        let rig = Rig::new(data, 2);
        rig.begin(0, 0);
        until("row 2 has failed", || reads.of(2) == 1 && rig.pool.readings().len() == 1);
        gate.open();
        let error = rig.decoded().1.err().expect("two rows fail");
        assert_eq!((error.kind(), error.sample()), (ErrorKind::Sample, Some(0)));
    });
}

/// The reader is sent back before the batch is decoded, so that another worker can continue reading.
#[test]
fn the_reader_of_a_source_is_sent_back_before_the_rows_are_decoded() {
    with_watchdog(LIMIT, || {
        let (opened, gate) = mpsc::sync_channel::<()>(0);
        let gate = std::sync::Mutex::new(gate);
        let source = fixtures::streams::Hooked::new(Generator::new([40]).unwrap()).before_decode(move |_| {
            // The receive fails once the other end is gone; from then on nothing blocks.
            let _ = gate.lock().map(|gate| gate.recv());
            Ok(())
        });
        let source: Arc<dyn Source> = Arc::new(source);
        let rig = Rig::of(Input::Source(source), BATCH, 1, Sampler::Sequential, None);
        let reader = SourceReader::new(&rig.batch_sampler, BATCH, LastBatch::Keep);
        rig.begin_with(0, 0, Some(Box::new(reader)));
        let Message::Reader { request, .. } = rig.message() else { panic!("not the reader") };
        assert_eq!(request, REQUEST);
        assert!(rig.requests.inbox.try_recv().is_none(), "the batch is still being decoded");
        drop(opened);
        let (_, filled) = rig.ready();
        assert_eq!(filled.info().batch.ids.len(), BATCH);
    });
}

#[test]
fn a_stale_batch_returns_the_reader_of_its_source() {
    with_watchdog(LIMIT, || {
        let source: Arc<dyn Source> = Arc::new(Generator::new([40]).unwrap());
        let rig = Rig::of(Input::Source(source), BATCH, 1, Sampler::Sequential, None);
        rig.request(REQUEST + 1);
        let reader = SourceReader::new(&rig.batch_sampler, BATCH, LastBatch::Keep);
        rig.begin_with(0, 0, Some(Box::new(reader)));
        assert!(matches!(rig.message(), Message::Reader { request: REQUEST, .. }));
        assert!(matches!(rig.decoded(), (0, Ok(None))));
    });
}

#[test]
fn the_data_is_dropped_once_no_worker_reads() {
    with_watchdog(LIMIT, || {
        let (data, gate) = fixtures::blocking(fine(), [0]);
        let rig = Rig::new(data, 2);
        rig.begin(0, 0);
        assert!(gate.wait_until_waiting(1, LIMIT));
        let Rig { decoder, dropped, slots, pool, requests, .. } = rig;
        requests.close();
        drop(decoder);
        assert!(dropped.try_recv().is_err(), "a worker is still reading");
        gate.open();
        dropped.recv_timeout(LIMIT).expect("the data is dropped").unwrap();
        // The batch was not received, but its slot has been released.
        assert_eq!(slots.counts().free, slots.len());
        drop(pool);
    });
}

#[test]
fn a_worker_decodes_the_first_batch_into_the_slot_that_it_filled_last() {
    let (rig, other) = (Rig::new(fine(), 1), Rig::new(fine(), 1));
    let batch = |rig: &Rig, number, filled_by| {
        let lease = rig.slots.acquire().unwrap();
        (rig.decoder.clone(), Job::new(number, Request::default(), lease, (filled_by, None)))
    };
    let mut queue =
        VecDeque::from([batch(&rig, 0, Some(1)), batch(&other, 5, Some(2)), batch(&rig, 1, Some(2))]);
    let mut chosen_by = |worker| {
        Job::choose_slot(worker, &mut queue);
        queue.iter().map(|(_, batch)| (batch.timeline.number, batch.lease.index())).collect::<Vec<_>>()
    };
    for worker in [0, 1] {
        assert_eq!(chosen_by(worker), [(0, 0), (5, 0), (1, 1)], "worker {worker} has no other slot");
    }
    for _ in 0..2 {
        assert_eq!(chosen_by(2), [(0, 1), (5, 0), (1, 0)]);
    }
    assert_eq!(chosen_by(1), [(0, 0), (5, 0), (1, 1)]);
}

#[test]
fn any_number_of_requests_takes_one_place_in_the_inbox() {
    let rig = Rig::new(fine(), 1);
    (2..6).for_each(|number| rig.requests.begin(Request { number, ..Request::default() }).unwrap());
    assert!(matches!(rig.message(), Message::Wake));
    assert!(rig.requests.inbox.is_empty());
}

#[test]
fn a_batch_that_nobody_received_is_dropped_when_the_transfer_thread_ends() {
    with_watchdog(LIMIT, || {
        let rig = Rig::new(fine(), 1);
        rig.begin(0, 0);
        until("the batch is decoded", || !rig.requests.inbox.is_empty());
        assert_eq!(rig.slots.counts().ready, 1);
        rig.requests.close();
        assert_eq!(rig.slots.counts().free, rig.slots.len());
    });
}
