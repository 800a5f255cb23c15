//! The batches of a set that the device reads itself: a slot gets the ids of its rows, and no sample is decoded.

use std::sync::Arc;

use feedline_core::{Plan, Result, Ticket};

use crate::batch::Decoder;
use crate::feed::{Feed, Next};
use crate::{Run, Stage};

/// A run through a plan, without its data.
pub(crate) struct Ids {
    plan: Arc<Plan>,
    run: Run,
    steps: u64,
}

impl Ids {
    pub(crate) fn new(plan: Arc<Plan>) -> Self {
        Self { plan, run: Run::default(), steps: 0 }
    }
}

impl Feed for Ids {
    fn begin(&mut self, run: Run) {
        self.steps = self.plan.steps(run.epoch, run.start);
        self.run = run;
    }

    fn is_over(&self, steps: u64) -> bool {
        steps >= self.steps
    }

    fn fill(
        &mut self,
        _: &Stage,
        _: &mut Decoder,
        ticket: &mut Ticket,
        bytes: &mut [u8],
    ) -> Result<Option<Next>> {
        let Run { epoch, start, .. } = self.run;
        ticket.due = self.plan.batch(epoch, start, ticket.step, &mut ticket.ids);
        for (place, id) in bytes.chunks_exact_mut(size_of::<u64>()).zip(&ticket.ids) {
            place.copy_from_slice(&id.to_ne_bytes());
        }
        Ok(None)
    }
}
