//! A stream of the host device: one thread that runs its commands in order.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;

use feedline_core::{Error, ErrorKind, Result};

use super::queue::{Command, Queue, enter_stream_thread, on_stream_thread};

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
                let why = "cannot start a stream's thread: raise the limit of processes (ulimit -u) or of \
                           memory (ulimit -v)";
                Error::new(ErrorKind::Device, why).with_source(error)
            })?;
        Ok(Self { queue, thread: Mutex::new(Some(thread)) })
    }

    pub(super) fn queue(&self) -> &Queue {
        &self.queue
    }

    /// Runs the queue to its end and joins the thread. On a stream thread it only closes the queue, since
    /// the joined thread may be the caller itself or may be waiting for it.
    pub(super) fn join(&self) -> Result<()> {
        self.queue.close();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        match thread {
            Some(thread) if !on_stream_thread() => {
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
    enter_stream_thread();
    while let Some(command) = queue.pop() {
        // On a lost device the work is skipped, but recordings still complete, so that no wait hangs.
        let live = lost.get().is_none();
        match command {
            Command::Copy { from, to, bytes } if live => {
                // SAFETY: both ranges are valid and not accessed by anything else now
                // (`Backend::copy_to_device`, `copy_to_host`).
                unsafe { std::ptr::copy_nonoverlapping(from as *const u8, to as *mut u8, bytes) }
            }
            Command::Fill { to, value, bytes } if live => {
                // SAFETY: the range is valid and not accessed by anything else now (`Backend::fill`).
                unsafe { std::ptr::write_bytes(to as *mut u8, value, bytes) }
            }
            Command::Gather(gather) if live => {
                // SAFETY: the ranges are valid and not accessed by anything else now (`Backend::gather`).
                unsafe { gather.execute() }
            }
            Command::Run(task) => {
                // SAFETY: the spans are valid and not accessed by anything else now (`Backend::run`);
                // this thread runs one task at a time.
                let ended = if live { unsafe { task.execute() } } else { task.skip() };
                if let Err(error) = ended {
                    // Every later call returns the first loss.
                    let _ = lost.set(error);
                }
            }
            Command::Record(event, number) => event.complete(number),
            Command::Wait(event, number) => event.wait_for(number),
            Command::Copy { .. } | Command::Fill { .. } | Command::Gather(_) => {}
        }
    }
}
