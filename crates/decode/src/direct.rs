//! The batches of a set that the device reads itself: a slot gets the ids of its rows, and no sample is decoded.

use std::sync::Arc;

use feedline_core::{Plan, Result, Ticket};
use feedline_device::slot::Visits;

use crate::Run;
use crate::feed::{Decode, Fill, Records};

/// A plan, without its data.
pub(crate) struct Ids {
    plan: Arc<Plan>,
    visits: Visits,
}

impl Ids {
    pub(crate) fn new(plan: Arc<Plan>, visits: Visits) -> Self {
        Self { plan, visits }
    }
}

impl Fill for Ids {
    fn fill(
        &self,
        run: Run,
        ticket: &mut Ticket,
        _: &Records,
        bytes: &mut [u8],
        _: &Decode<'_>,
    ) -> Result<()> {
        ticket.due = self.plan.batch(run.epoch, run.start, ticket.step, &mut ticket.ids);
        self.visits.write(&ticket.ids, bytes);
        Ok(())
    }
}
