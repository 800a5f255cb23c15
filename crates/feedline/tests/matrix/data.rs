//! A data set that fails or blocks at one sample of one epoch, chosen by the cycle.

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
    /// The epoch and the sample of the fault.
    at: (u64, u64),
    reached: Sender<()>,
    was_reached: Arc<AtomicBool>,
    /// Blocks the read until the other end is dropped.
    hold: Option<Receiver<()>>,
}

/// Controls a blocked read.
pub struct Gate {
    reached: Receiver<()>,
    was_reached: Arc<AtomicBool>,
    closed: Mutex<Option<Sender<()>>>,
}

impl Data {
    pub fn new(cycle: &Cycle) -> (Self, Gate) {
        let (reached, on_reach) = unbounded();
        let (closed, hold) = bounded(0);
        let was_reached = Arc::new(AtomicBool::new(false));
        let (epoch, step) = cycle.target();
        let blocks = cycle.moment == Moment::Blocked || cycle.fault == Fault::ReadBlocks;
        let data = Self {
            fine: Fine::new(STEPS * BATCH as u64, 100).expect("a data set"),
            fault: cycle.fault,
            at: (epoch, step * BATCH as u64 + cycle.row),
            reached,
            was_reached: was_reached.clone(),
            hold: blocks.then_some(hold),
        };
        (data, Gate { reached: on_reach, was_reached, closed: Mutex::new(Some(closed)) })
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
            // The gate may be gone.
            let _ = self.reached.send(());
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
    /// Blocks until a read is waiting at the gate.
    pub fn wait(&self) {
        self.reached.recv_timeout(LONG).expect("the read is reached");
    }

    pub fn was_reached(&self) -> bool {
        self.was_reached.load(Ordering::Acquire)
    }

    /// Lets this read and later ones continue.
    pub fn open(&self) {
        self.closed.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}
