//! Decode and transfer without a loader. The test is the consumer: it makes requests and receives batches.

mod copies;
mod ends;
mod errors;
mod order;

use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, bounded};
use feedline_core::{
    BadSamples, BatchSampler, BatchSamplerOptions, Dataset, LastBatch, Layout, Sampler, Source, World,
};
use feedline_device::host::Host;
use feedline_device::{Backend, Pinned, launch_host};
use feedline_sim::interceptors::{Call, Intercepted, Interceptor, Op};
use feedline_testkit::fixtures::Fine;
use feedline_testkit::watchdog::LIMIT;

use super::*;
use crate::decode::{Input, Workers};
use crate::job::Requests;

/// Samples of [`fine`], in three batches.
const LEN: u64 = 12;
/// Rows per batch.
const BATCH: usize = 4;
/// Batches per epoch.
const STEPS: u64 = 3;

/// The options of the stages.
#[derive(Clone)]
struct Setting {
    batch: usize,
    workers: usize,
    host_slots: usize,
    device_slots: usize,
    copies: Copies,
}

impl Default for Setting {
    fn default() -> Self {
        Self { batch: BATCH, workers: 2, host_slots: 3, device_slots: 2, copies: Copies::default() }
    }
}

/// Records the sizes of all copies and the calls of the transfer thread, and fails copy number `fails`.
#[derive(Clone, Default)]
struct Copies {
    bytes: Arc<Mutex<Vec<usize>>>,
    calls: Arc<Mutex<Vec<Op>>>,
    fails: Option<usize>,
}

impl Interceptor for Copies {
    fn intercept<R>(&self, _: &dyn Backend, call: Call, make: impl FnOnce() -> Result<R>) -> Result<R> {
        if std::thread::current().name() == Some("fl-transfer") {
            self.calls.lock().unwrap().push(call.op);
        }
        if call.op == Op::CopyToDevice {
            let mut bytes = self.bytes.lock().unwrap();
            bytes.push(call.target.map_or(0, |span| span.bytes));
            if self.fails == Some(bytes.len()) {
                return Err(Error::new(ErrorKind::Device, "planned failure of a copy"));
            }
        }
        make()
    }
}

/// The stages, and the other ends of their channels.
struct Rig {
    compute: Stream,
    layout: Arc<Layout>,
    host_slots: Ring<Pinned, HostInfo>,
    device_slots: Arc<SlotRing>,
    pool: WorkerPool,
    requests: Arc<Requests>,
    /// The report's rates of copies.
    copied: Arc<Mutex<CopyRates>>,
    loaded: Receiver<Delivery>,
    /// The outcome of the transfer thread.
    ended: mpsc::Receiver<Result<()>>,
    /// The outcome of dropping the data, once no worker needs it.
    dropped: mpsc::Receiver<Result<()>>,
}

impl Rig {
    fn new(dataset: impl Dataset, setting: Setting) -> Self {
        Self::of(Input::dataset(dataset), setting)
    }

    fn source_builder(source: impl Source, setting: Setting) -> Self {
        Self::of(Input::Source(Arc::new(source)), setting)
    }

    fn of(input: Input, setting: Setting) -> Self {
        let Setting { batch, workers, host_slots, device_slots, copies } = setting;
        let device = feedline_device::with_backend(Intercepted::with(Host::new(), copies));
        let layout = Arc::new(Layout::new(input.spec(), batch).unwrap());
        let (last_batch, sampler, world) = (LastBatch::Keep, Sampler::Sequential, World::single());
        let (len, step) = match &input {
            Input::Dataset(dataset) | Input::ZeroCopy(dataset, _) => (dataset.len(), batch),
            Input::Source(source) => (source.shards(), 1),
        };
        let batch_sampler =
            BatchSampler::new(BatchSamplerOptions { len, sampler, seed: 0, batch: step, last_batch, world });
        let batch_sampler = Arc::new(batch_sampler.unwrap());
        let reader = input.reader(&batch_sampler, layout.capacity(), last_batch);
        let (requests, (loaded, to_consumer)) = (Arc::new(Requests::new(host_slots)), bounded(device_slots));
        let ((tell, ended), (tell_dropped, dropped)) = (mpsc::channel(), mpsc::channel());
        let copied = Arc::<Mutex<CopyRates>>::default();
        let decoder = Decoder {
            input: Some(input.of_workers(None)),
            batch_sampler,
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
            // The send fails if the test no longer waits.
            on_end: Box::new(move |outcome| drop(tell_dropped.send(outcome))),
        };
        let rig = Self {
            compute: device.stream().unwrap(),
            host_slots: Ring::new(
                (0..host_slots).map(|_| Pinned::new(&device, layout.bytes()).unwrap()).collect(),
            ),
            device_slots: SlotRing::new(&device, device_slots, layout.bytes()).unwrap(),
            layout,
            pool: WorkerPool::new(Workers::Count(workers)).unwrap(),
            requests,
            copied: copied.clone(),
            loaded: to_consumer,
            ended,
            dropped,
        };
        let transfer = Transfer {
            columns: None,
            host_slots: rig.host_slots.clone(),
            device_slots: rig.device_slots.clone(),
            stream: device.named_stream("copy", Default::default()).unwrap(),
            pool: rig.pool.clone(),
            decoder: Arc::new(decoder),
            next: loaded,
            lanes_read_host: false,
            copies: Some(copied.clone()),
        };
        let ended = move |outcome, transfer| {
            drop(transfer);
            let _ = tell.send(outcome);
        };
        transfer.start(reader, ended).unwrap();
        rig
    }

    /// Makes request `number`: all batches of the epochs `epoch..end`.
    fn ask(&self, number: u64, epoch: u64, end: u64) {
        self.requests.begin(Request { number, epoch, end, ..Request::default() }).unwrap();
    }

    /// Stops the stages, as a loader does.
    fn stop(&self) {
        self.host_slots.close();
        self.device_slots.close();
        self.requests.stop();
    }

    /// The next batch, unread.
    #[track_caller]
    fn next(&self) -> Loaded {
        match self.loaded.recv_timeout(LIMIT).expect("a batch is loaded") {
            Delivery::Copied(loaded) => loaded,
            Delivery::Filled(_) | Delivery::EpochEnd { .. } => panic!("not a batch on the device"),
        }
    }

    /// The bytes of a batch, copied out by work on the compute stream.
    fn bytes(&self, loaded: Loaded) -> Vec<u8> {
        let used = self.layout.used_bytes(loaded.info().ids.len());
        let reader = loaded.wait_on(&self.compute).unwrap();
        let (tell, told) = mpsc::channel();
        let copy = move |memory: &mut feedline_device::Memory<'_>| {
            tell.send(memory.input::<u8>(0).to_vec()).unwrap();
        };
        launch_host(&self.compute, "copy", [reader.view::<u8>(0, used).unwrap().into()], [], copy).unwrap();
        told.recv_timeout(LIMIT).unwrap()
    }

    /// Checks the rows of a batch of [`Fine`] samples to the last byte; returns its request, epoch and step.
    #[track_caller]
    fn check(&self, loaded: Loaded) -> (u64, u64, u64) {
        let info = loaded.info().clone();
        let mut bytes = self.bytes(loaded);
        bytes.resize(self.layout.bytes(), 0);
        let rows = fine().check(info.epoch, &self.layout, info.ids.len(), &bytes);
        assert_eq!(rows.expect("whole rows"), info.ids);
        (info.request, info.epoch, info.step)
    }

    /// Takes and checks the next batch; returns its epoch and step.
    #[track_caller]
    fn take(&self) -> (u64, u64) {
        let (_, epoch, step) = self.check(self.next());
        (epoch, step)
    }

    /// The outcome of the transfer thread, once its workers have finished.
    #[track_caller]
    fn end(&self) -> Result<()> {
        let ended = self.ended.recv_timeout(LIMIT).expect("the thread ends");
        self.dropped.recv_timeout(LIMIT).expect("the workers end their work").unwrap();
        assert!(self.loaded.try_recv().is_err(), "nothing more is delivered");
        assert_eq!(self.pool.readings(), []);
        ended
    }

    /// Kind, batch and sample of the error that ended the thread.
    #[track_caller]
    fn error(&self) -> (ErrorKind, Option<u64>, Option<u64>) {
        let error = self.end().expect_err("an error");
        (error.kind(), error.batch(), error.sample())
    }
}

fn fine() -> Fine {
    Fine::new(LEN, 100).unwrap()
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
