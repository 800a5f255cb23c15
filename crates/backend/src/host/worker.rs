//! A stream of the host device: one thread that runs what it is given, in order.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;

use feedline_core::{Error, ErrorKind, Result};

use super::queue::{Command, Queue, mark_thread, runs_a_stream};

pub(super) struct Worker {
    queue: Arc<Queue>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Worker {
    pub(super) fn spawn(name: &str, lost: Arc<OnceLock<Error>>) -> Result<Self> {
        let queue = Arc::new(Queue::new());
        let commands = queue.clone();
        let thread = std::thread::Builder::new()
            .name(format!("fl-stream-{name}"))
            .spawn(move || run(&commands, &lost))
            .map_err(|error| {
                let why = "cannot start a stream's thread: raise the limit of processes (ulimit -u)";
                Error::new(ErrorKind::Device, why).caused_by(error)
            })?;
        Ok(Self { queue, thread: Mutex::new(Some(thread)) })
    }

    pub(super) fn queue(&self) -> &Queue {
        &self.queue
    }

    /// Closes the queue and joins the thread, which first runs what is queued. A thread that runs a stream
    /// must not block on one, so there this only closes the queue.
    pub(super) fn join(&self) -> Result<()> {
        self.queue.close();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        match thread {
            Some(thread) if !runs_a_stream() => {
                thread.join().map_err(|_| Error::new(ErrorKind::Device, "a stream's thread panicked"))
            }
            _ => Ok(()),
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.queue.close();
    }
}

fn run(queue: &Queue, lost: &OnceLock<Error>) {
    mark_thread();
    while let Some(command) = queue.pop() {
        // On a lost device the work is skipped, the marks are still reached: nothing hangs on them.
        let works = lost.get().is_none();
        match command {
            Command::Copy { from, to, bytes } if works => {
                // SAFETY: both ranges are valid and used by nobody else now (`Backend::copy_to_device`, `copy_to_host`).
                unsafe { std::ptr::copy_nonoverlapping(from as *const u8, to as *mut u8, bytes) }
            }
            Command::Fill { to, value, bytes } if works => {
                // SAFETY: the range is valid and used by nobody else now (`Backend::fill`).
                unsafe { std::ptr::write_bytes(to as *mut u8, value, bytes) }
            }
            Command::Gather(gather) if works => {
                // SAFETY: the ranges are valid and used by nobody else now (`Backend::gather`).
                unsafe { gather.execute() }
            }
            Command::Run(task) => {
                // SAFETY: the spans are valid and used by nobody else now (`Backend::run`); this thread runs
                // one task at a time.
                let ended = if works { unsafe { task.execute() } } else { task.skip() };
                if let Err(error) = ended {
                    // The first loss is the one that all calls return.
                    let _ = lost.set(error);
                }
            }
            Command::Record(mark, ticket) => mark.reach(ticket),
            Command::Wait(mark, ticket) => mark.wait_for(ticket),
            Command::Copy { .. } | Command::Fill { .. } | Command::Gather(_) => {}
        }
    }
}
