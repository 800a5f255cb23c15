//! The transfer stage by itself: one copy a batch, of what the batch uses; and every way its loop ends.

use std::sync::mpsc;
use std::sync::{Arc, Mutex};

use crossbeam_channel::{Receiver, Sender, bounded};
use feedline_core::{DType, Error, ErrorKind, Layout, Result, Spec, Ticket};
use feedline_device::host::Host;
use feedline_device::slot::{Loaded, SlotRing};
use feedline_device::wrap::{Around, Call, Op, Wrap};
use feedline_device::{Device, Driver, Pinned, Stream};
use feedline_slots::{ReadyLease, Ring};
use feedline_testkit::{watchdog::LIMIT, with_watchdog};
use feedline_transfer::Stage;

type Note = Option<Arc<Ticket>>;

const ROWS: usize = 10;
const DEPTH: usize = 2;

/// What the driver was given to copy; the copy number `fails` is refused.
#[derive(Clone, Default)]
struct Copies {
    bytes: Arc<Mutex<Vec<usize>>>,
    fails: Option<usize>,
}

impl Around for Copies {
    fn around<R>(&self, _: &dyn Driver, call: Call, make: impl FnOnce() -> Result<R>) -> Result<R> {
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

/// A stage that runs, and the other ends of its channels.
struct Rig {
    compute: Stream,
    layout: Arc<Layout>,
    host: Ring<Pinned, Note>,
    slots: SlotRing,
    filled: Sender<ReadyLease<Pinned, Note>>,
    loaded: Receiver<(Arc<Ticket>, Loaded)>,
    ended: mpsc::Receiver<Result<()>>,
}

impl Rig {
    fn start(copies: Copies) -> Self {
        let device = Device::with_driver(Wrap::around(Host::new(), copies));
        let spec = Spec::new().field("a", DType::U8, [100]).unwrap().field("b", DType::U16, []).unwrap();
        let layout = Arc::new(Layout::new(&spec, ROWS).unwrap());
        let host = Ring::new((0..DEPTH + 1).map(|_| device.pinned(layout.bytes()).unwrap()).collect());
        let slots = SlotRing::new(&device, DEPTH, layout.bytes()).unwrap();
        let ((filled, to_stage), (from_stage, loaded)) = (bounded(DEPTH + 1), bounded(DEPTH));
        let (tell, ended) = mpsc::channel();
        let stage = Stage {
            layout: layout.clone(),
            filled: to_stage,
            tables: None,
            ring: slots.clone(),
            stream: device.named_stream("copy", Default::default()).unwrap(),
            loaded: from_stage,
        };
        stage.start(move |result, _stage| tell.send(result).unwrap()).unwrap();
        Self { compute: device.stream().unwrap(), layout, host, slots, filled, loaded, ended }
    }

    /// Gives the stage batch `step` of `rows` rows, every byte of it `step`.
    fn give(&self, step: u64, rows: usize) {
        let mut lease = self.host.acquire().unwrap();
        let (bytes, note) = lease.parts_mut();
        bytes.fill(step as u8);
        *note = Some(Arc::new(Ticket { step, ids: vec![0; rows], ..Ticket::default() }));
        self.filled.send(lease.ready()).unwrap();
    }

    /// Takes the next batch, and returns its step after a look at its bytes.
    fn take(&self) -> u64 {
        let (ticket, loaded) = self.loaded.recv_timeout(LIMIT).expect("a loaded batch");
        let reader = loaded.wait_on(&self.compute).unwrap();
        let bytes = self.layout.used_bytes(ticket.ids.len());
        let (tell, told) = mpsc::channel();
        let wanted = ticket.step as u8;
        let look = move |memory: &mut feedline_device::Memory<'_>| {
            tell.send(memory.input::<u8>(0).iter().all(|&byte| byte == wanted)).unwrap();
        };
        self.compute.run("look", [reader.view::<u8>(0, bytes).unwrap().into()], [], look).unwrap();
        assert!(told.recv_timeout(LIMIT).unwrap(), "batch {}", ticket.step);
        ticket.step
    }

    /// How it ended, once nothing more comes in.
    fn end(self) -> Result<()> {
        drop(self.filled);
        self.ended.recv_timeout(LIMIT).expect("the stage ends")
    }
}

#[test]
fn one_copy_a_batch_of_what_it_uses() {
    with_watchdog(LIMIT, || {
        let copies = Copies::default();
        let rig = Rig::start(copies.clone());
        let rows = [ROWS, ROWS, 3, 1, ROWS];
        for (step, rows) in (0..).zip(rows) {
            rig.give(step, rows);
            assert_eq!(rig.take(), step);
        }
        let wanted: Vec<_> = rows.map(|rows| rig.layout.used_bytes(rows)).into();
        assert_eq!(*copies.bytes.lock().unwrap(), wanted);
        assert_eq!(rig.slots.free(), DEPTH);
        rig.end().unwrap();
    });
}

#[test]
fn no_more_batches_are_copied_than_there_are_slots() {
    with_watchdog(LIMIT, || {
        let copies = Copies::default();
        let rig = Rig::start(copies.clone());
        (0..DEPTH as u64 + 1).for_each(|step| rig.give(step, ROWS));
        // The host slot of a batch that has no device slot yet stays taken.
        let start = std::time::Instant::now();
        while rig.host.counts().in_flight < DEPTH {
            assert!(start.elapsed() < LIMIT, "{:?}", rig.host.counts());
            std::thread::yield_now();
        }
        assert_eq!(copies.bytes.lock().unwrap().len(), DEPTH);
        assert_eq!(rig.host.counts().ready, 1);
        for step in 0..DEPTH as u64 + 1 {
            assert_eq!(rig.take(), step);
        }
        rig.end().unwrap();
    });
}

#[test]
fn the_loop_ends_when_nobody_takes_what_it_loads() {
    with_watchdog(LIMIT, || {
        let rig = Rig::start(Copies::default());
        rig.give(0, ROWS);
        assert_eq!(rig.take(), 0);
        drop(rig.loaded);
        let mut lease = rig.host.acquire().unwrap();
        *lease.note_mut() = Some(Arc::default());
        rig.filled.send(lease.ready()).unwrap();
        assert!(rig.ended.recv_timeout(LIMIT).expect("the stage ends").is_ok());
        let slots = rig.slots;
        assert_eq!(slots.free(), DEPTH);
    });
}

#[test]
fn the_loop_ends_when_its_slots_are_closed() {
    with_watchdog(LIMIT, || {
        let rig = Rig::start(Copies::default());
        (0..DEPTH as u64 + 1).for_each(|step| rig.give(step, ROWS));
        rig.slots.close();
        assert_eq!(rig.end().unwrap_err().kind(), ErrorKind::Stopped);
    });
}

#[test]
fn a_copy_that_fails_is_named_after_the_batches_before_it() {
    with_watchdog(LIMIT, || {
        let rig = Rig::start(Copies { fails: Some(2), ..Copies::default() });
        rig.give(5, ROWS);
        assert_eq!(rig.take(), 5);
        rig.give(6, ROWS);
        let (host, slots) = (rig.host.clone(), rig.slots.clone());
        let error = rig.end().unwrap_err();
        assert_eq!(error.to_string(), "planned failure of a copy (stage transfer, batch 6)");
        // Nobody knows whether the device reads the one or writes the other: both are out of use.
        assert_eq!((host.counts().lost, slots.free()), (1, DEPTH - 1));
    });
}
