//! A decode stage that runs by itself, and the other ends of its channels.
#![allow(dead_code)] // each of the tests looks at a part

use std::sync::{Arc, mpsc};

use crossbeam_channel::{Receiver, Sender, bounded, unbounded};
use feedline_core::{BadSamples, Layout, Order, Plan, PlanOptions, Result, Tail, Ticket, World};
use feedline_decode::{Activity, Input, Run, Stage, Workers};
use feedline_device::{Device, Pinned};
use feedline_slots::{ReadyLease, Ring};
use feedline_testkit::watchdog::LIMIT;
use feedline_testkit::zoo::Fine;

pub type Filled = ReadyLease<Pinned, Option<Arc<Ticket>>>;

/// What a stage is started with.
pub struct Setting {
    pub batch: usize,
    pub workers: usize,
    pub slots: usize,
    pub order: Order,
    /// When it is not what the rows need.
    pub slot_bytes: Option<usize>,
    /// A run that was asked for before.
    pub asked: Option<Run>,
}

/// The stage.
pub struct Rig {
    pub ring: Ring<Pinned, Option<Arc<Ticket>>>,
    pub layout: Arc<Layout>,
    pub runs: Sender<Run>,
    pub filled: Receiver<Filled>,
    pub tickets: Sender<Arc<Ticket>>,
    /// How it ended.
    pub over: mpsc::Receiver<Result<()>>,
    /// That its last thread has.
    pub ended: mpsc::Receiver<()>,
    pub activity: Arc<Activity>,
}

impl Rig {
    pub fn new(input: Input, setting: Setting) -> Self {
        let Setting { batch, workers, slots, order, slot_bytes, asked } = setting;
        let device = Device::host();
        let layout = Arc::new(Layout::new(input.spec(), batch).unwrap());
        let (len, batch) = match &input {
            Input::Dataset(dataset) | Input::Direct(dataset, _) => (dataset.len(), batch),
            Input::Source(source) => (source.shards(), 1),
        };
        let tail = Tail::Keep;
        let plan = Plan::new(PlanOptions { len, order, seed: 0, batch, tail, world: World::single() });
        let slot_bytes = slot_bytes.unwrap_or(layout.bytes());
        let ring = Ring::new((0..slots).map(|_| device.pinned(slot_bytes).unwrap()).collect());
        let ((runs, to_stage), (from_stage, filled)) = (unbounded(), bounded(slots));
        asked.into_iter().for_each(|run| runs.send(run).unwrap());
        let ((tickets, home), (tell, over), (done, ended)) = (bounded(16), mpsc::channel(), mpsc::channel());
        let stage = Stage {
            input,
            plan: Arc::new(plan.unwrap()),
            tail,
            bad_samples: BadSamples::Fail,
            layout: layout.clone(),
            ring: ring.clone(),
            runs: to_stage,
            filled: from_stage,
            tickets: home,
        };
        let activity = stage.start(
            Workers::Count(workers),
            move |result| tell.send(result).unwrap(),
            move |_stage| {
                // Nobody may wait for it any more.
                let _ = done.send(());
            },
        );
        Self { ring, layout, runs, filled, tickets, over, ended, activity: activity.unwrap() }
    }

    #[track_caller]
    pub fn next(&self) -> Filled {
        self.filled.recv_timeout(LIMIT).expect("a filled slot")
    }

    /// Checks a filled slot with rows of `data` to the last byte; its run, epoch and step.
    #[track_caller]
    pub fn check(&self, data: &Fine, filled: &Filled) -> (u64, u64, u64) {
        let ticket = filled.note().as_ref().expect("a ticket");
        let rows = data.check(ticket.epoch, &self.layout, ticket.ids.len(), filled.bytes());
        assert_eq!(rows.expect("whole rows"), ticket.ids);
        (ticket.run, ticket.epoch, ticket.step)
    }
}
