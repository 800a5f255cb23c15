//! A data set that does what the cycle says at one sample of one epoch.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};

use crossbeam_channel::{Receiver, Sender, bounded, unbounded};
use feedline::{Context, Dataset, ReadError, Row, Spec};
use feedline_testkit::fixtures::Fine;

use super::{BATCH, Cycle, Fault, Moment, STEPS};
use crate::common::LONG;

pub struct Data {
    pub fine: Fine,
    fault: Fault,
    /// The epoch and the sample.
    at: (u64, u64),
    source_position: Sender<()>,
    was_reached: Arc<AtomicBool>,
    /// Holds the read back until its other end is dropped.
    hold: Option<Receiver<()>>,
}

/// The other side of a read that is held back.
pub struct Gate {
    source_position: Receiver<()>,
    was_reached: Arc<AtomicBool>,
    closed: Mutex<Option<Sender<()>>>,
}

impl Data {
    pub fn new(cycle: &Cycle) -> (Self, Gate) {
        let (source_position, on_reach) = unbounded();
        let (closed, hold) = bounded(0);
        let was_reached = Arc::new(AtomicBool::new(false));
        let (epoch, step) = cycle.target();
        let held = cycle.moment == Moment::Blocked || cycle.fault == Fault::ReadBlocks;
        let data = Self {
            fine: Fine::new(STEPS * BATCH as u64, 100).expect("a data set"),
            fault: cycle.fault,
            at: (epoch, step * BATCH as u64 + cycle.row),
            source_position,
            was_reached: was_reached.clone(),
            hold: held.then_some(hold),
        };
        (data, Gate { source_position: on_reach, was_reached, closed: Mutex::new(Some(closed)) })
    }
}

impl Dataset for Data {
    fn len(&self) -> u64 {
        self.fine.len()
    }

    fn spec(&self) -> &Spec {
        self.fine.spec()
    }

    fn read(&self, id: u64, row: &mut Row<'_, '_>, context: &mut Context) -> Result<(), ReadError> {
        if (context.epoch(), id) == self.at {
            self.was_reached.store(true, Ordering::Release);
            // Nobody may be there to hear it.
            let _ = self.source_position.send(());
            if let Some(hold) = &self.hold {
                let _ = hold.recv();
            }
            match self.fault {
                Fault::ReadError => return Err("planned failure".into()),
                Fault::ReadPanic => panic!("planned panic of a read"),
                _ => {}
            }
        }
        self.fine.read(id, row, context)
    }
}

impl Gate {
    /// Blocks until a read stands before the gate.
    pub fn wait(&self) {
        self.source_position.recv_timeout(LONG).expect("the read is reached");
    }

    pub fn was_reached(&self) -> bool {
        self.was_reached.load(Ordering::Acquire)
    }

    /// Lets the read go on, and later ones too.
    pub fn open(&self) {
        self.closed.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}
