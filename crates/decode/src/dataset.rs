//! The batches of a data set: the plan says which samples, the set reads them.

use std::path::Path;
use std::sync::Arc;

use feedline_core::{Context, Dataset, Plan, ReadError, Result, Row, Rows, Ticket};

use crate::batch::Decoder;
use crate::feed::{Feed, Next, Samples};
use crate::{Run, Stage};

/// A run through a data set.
pub(crate) struct FromDataset {
    dataset: Arc<dyn Dataset>,
    plan: Arc<Plan>,
    run: Run,
    steps: u64,
}

/// The batch of one step.
struct Step<'a> {
    from: &'a FromDataset,
    number: u64,
}

impl FromDataset {
    pub(crate) fn new(dataset: Arc<dyn Dataset>, plan: Arc<Plan>) -> Self {
        Self { dataset, plan, run: Run::default(), steps: 0 }
    }
}

impl Feed for FromDataset {
    fn begin(&mut self, run: Run) {
        self.steps = self.plan.steps(run.epoch, run.start);
        self.run = run;
    }

    fn is_over(&self, steps: u64) -> bool {
        steps >= self.steps
    }

    fn fill(
        &mut self,
        stage: &Stage,
        decoder: &mut Decoder,
        ticket: &mut Ticket,
        bytes: &mut [u8],
    ) -> Result<Option<Next>> {
        let Run { epoch, start, .. } = self.run;
        ticket.due = self.plan.batch(epoch, start, ticket.step, &mut ticket.ids);
        let rows = Rows::new(&stage.layout, bytes, ticket.ids.len());
        decoder.decode(&Step { from: self, number: ticket.step }, ticket, rows)?;
        Ok(None)
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
        let FromDataset { plan, run, .. } = self.from;
        let position = plan.position(run.epoch, run.start, self.number, row).unwrap_or(0);
        (plan.substitute(run.epoch, position, attempt), row)
    }

    fn path(&self, id: u64) -> Option<&Path> {
        self.from.dataset.path(id)
    }
}
