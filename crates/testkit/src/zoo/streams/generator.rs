//! Records that are made up.

use feedline_core::source::{Next, Shard, Source};
use feedline_core::{Context, ReadError, Result, Row, Spec};

use super::{decode, record, spec};

/// Shards of made-up records; nobody but the shard itself knows how many it has.
#[derive(Clone, Debug)]
pub struct Generator {
    spec: Spec,
    lens: Vec<u64>,
    wait: bool,
}

impl Generator {
    /// Shard `n` has `lens[n]` records.
    ///
    /// # Errors
    /// None in practice: the spec is fixed.
    pub fn new(lens: impl Into<Vec<u64>>) -> Result<Self> {
        Ok(Self { spec: spec()?, lens: lens.into(), wait: false })
    }

    /// The same, with nothing to give every other time it is asked.
    pub fn hesitant(self) -> Self {
        Self { wait: true, ..self }
    }
}

struct Made {
    shard: u64,
    number: u64,
    len: u64,
    wait: bool,
    waited: bool,
}

impl Source for Generator {
    fn shards(&self) -> u64 {
        self.lens.len() as u64
    }

    fn spec(&self) -> &Spec {
        &self.spec
    }

    fn open(&self, _epoch: u64, shard: u64, offset: u64) -> Result<Box<dyn Shard>, ReadError> {
        let len = *self.lens.get(shard as usize).ok_or("no such shard")?;
        Ok(Box::new(Made { shard, number: offset, len, wait: self.wait, waited: false }))
    }

    fn decode(&self, record: &[u8], row: &mut Row<'_, '_>, context: &mut Context) -> Result<(), ReadError> {
        decode(record, row, context)
    }
}

impl Shard for Made {
    fn offset(&self) -> u64 {
        self.number
    }

    fn read(&mut self, to: &mut Vec<u8>) -> Result<Next, ReadError> {
        self.waited ^= self.wait;
        if self.waited {
            return Ok(Next::Later);
        }
        if self.number == self.len {
            return Ok(Next::End);
        }
        to.extend(record(self.shard, self.number));
        self.number += 1;
        Ok(Next::Record)
    }
}
