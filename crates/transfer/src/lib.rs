//! Stage 2: one thread copies filled host slots to device slots, on a stream of its own, one copy a batch;
//! or has the device gather the rows that the slots name.
//!
//! The two waits of this stage, never confused:
//! - the **copy stream** waits on the device for `consumed` of every reader before a device slot is overwritten
//!   (`feedline_device::slot`);
//! - the **host** waits for `copied` before a page-locked slot is filled again (`feedline_slots::Ring::acquire`).
#![forbid(unsafe_code)]

use std::sync::Arc;
use std::thread::JoinHandle;

use crossbeam_channel::{Receiver, Sender};
use feedline_core::{Error, ErrorKind, Layout, Result, Ticket};
use feedline_device::slot::{Loaded, SlotRing, Tables};
use feedline_device::{Pinned, Stream};
use feedline_slots::ReadyLease;

/// Everything the transfer loop works with.
pub struct Stage {
    /// Where fields lie in a slot.
    pub layout: Arc<Layout>,
    /// Filled slots; the loop ends when the other end is dropped.
    pub filled: Receiver<ReadyLease<Pinned, Option<Arc<Ticket>>>>,
    /// What the device reads itself, when host slots hold nothing but ids.
    pub tables: Option<Arc<Tables>>,
    /// The device slots.
    pub ring: SlotRing,
    /// The copy stream.
    pub stream: Stream,
    /// Where loaded batches go; the loop ends when the other end is dropped.
    pub loaded: Sender<(Arc<Ticket>, Loaded)>,
}

impl Stage {
    /// Starts the thread `fl-transfer`; `ended` gets its result and the stage when it ends, also after a panic.
    ///
    /// Who finds the stage's channels closed looks for the cause: `ended` tells it before it drops the stage.
    ///
    /// # Errors
    /// `Config` when the machine refuses a thread.
    pub fn start(self, ended: impl FnOnce(Result<()>, Self) + Send + 'static) -> Result<JoinHandle<()>> {
        let run = move || {
            let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| self.run()));
            let panicked = |_| Err(Error::new(ErrorKind::Panic, "the transfer loop panicked"));
            ended(outcome.unwrap_or_else(panicked), self);
        };
        std::thread::Builder::new().name("fl-transfer".to_owned()).spawn(run).map_err(|error| {
            Error::new(ErrorKind::Config, "cannot start the transfer thread").caused_by(error)
        })
    }

    fn run(&self) -> Result<()> {
        for mut filled in &self.filled {
            let slot = self.ring.acquire()?;
            // The ticket goes ahead with the batch; the host slot goes home without it.
            let ticket = filled.note_mut().take().unwrap_or_default();
            let loaded = match &self.tables {
                None => slot.upload(&self.stream, filled, self.layout.used_bytes(ticket.ids.len())),
                Some(tables) => slot.gather(&self.stream, filled, tables, &ticket.ids),
            };
            let loaded = loaded
                .map_err(|error| error.at_stage(feedline_core::Stage::Transfer).at_batch(ticket.step))?;
            if self.loaded.send((ticket, loaded)).is_err() {
                break;
            }
        }
        Ok(())
    }
}
