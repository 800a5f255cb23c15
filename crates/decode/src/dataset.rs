//! The batches of a data set: the plan says which samples, the set reads them.

use std::path::Path;
use std::sync::Arc;

use feedline_core::{Context, Dataset, Plan, ReadError, Result, Row, Rows, Ticket};

use crate::Run;
use crate::feed::{Calls, Decode, Feed, Fill, Next, Records, Samples};

/// A run through a data set: the steps are all there is to do in sequence, since the plan tells any batch at once.
pub(crate) struct Steps {
    plan: Arc<Plan>,
    steps: u64,
    batch: usize,
}

/// A data set and its plan.
pub(crate) struct FromDataset {
    dataset: Arc<dyn Dataset>,
    plan: Arc<Plan>,
}

/// The batch of one step.
struct Step<'a> {
    from: &'a FromDataset,
    run: Run,
    number: u64,
}

impl Steps {
    /// The steps of a plan of batches of at most `batch`.
    pub(crate) fn new(plan: Arc<Plan>, batch: usize) -> Self {
        Self { plan, steps: 0, batch }
    }
}

impl FromDataset {
    pub(crate) fn new(dataset: Arc<dyn Dataset>, plan: Arc<Plan>) -> Self {
        Self { dataset, plan }
    }
}

impl Feed for Steps {
    fn begin(&mut self, run: Run) {
        self.steps = self.plan.steps(run.epoch, run.start);
    }

    fn is_over(&self, steps: u64) -> bool {
        steps >= self.steps
    }

    fn take(&mut self, _: &mut Ticket, _: &mut Records, _: &Calls) -> Result<Next> {
        Ok(Next::Batch(self.batch))
    }
}

impl Fill for FromDataset {
    fn fill(
        &self,
        run: Run,
        ticket: &mut Ticket,
        _: &Records,
        bytes: &mut [u8],
        decode: &Decode<'_>,
    ) -> Result<()> {
        let Run { epoch, start, .. } = run;
        ticket.due = self.plan.batch(epoch, start, ticket.step, &mut ticket.ids);
        decode.rows(&Step { from: self, run, number: ticket.step }, ticket, bytes)
    }
}

impl Samples for Step<'_> {
    fn read_many(
        &self,
        ids: &[u64],
        rows: &mut Rows<'_>,
        context: &mut Context,
    ) -> Result<(), (usize, ReadError)> {
        self.from.dataset.read_many(ids, rows, context)
    }

    fn read(
        &self,
        id: u64,
        _due: usize,
        row: &mut Row<'_, '_>,
        context: &mut Context,
    ) -> Result<(), ReadError> {
        self.from.dataset.read(id, row, context)
    }

    /// Chosen by the row's global position alone: the same on every rank and in every replay.
    fn substitute(&self, row: usize, attempt: u32) -> (u64, usize) {
        let (plan, run) = (&self.from.plan, self.run);
        let position = plan.position(run.epoch, run.start, self.number, row).unwrap_or(0);
        (plan.substitute(run.epoch, position, attempt), row)
    }

    fn path(&self, id: u64) -> Option<&Path> {
        self.from.dataset.path(id)
    }
}
