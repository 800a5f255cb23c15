//! A stream of the host device: one thread that runs what it is given, in order.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::JoinHandle;

use crossbeam_channel::{Receiver, Sender, bounded};
use feedline_core::{Error, ErrorKind, Result};

use super::event::Mark;
use crate::gather::Gather;
use crate::task::Task;

/// Commands a stream holds before the giver blocks; about what a GPU's queue holds.
const QUEUE: usize = 1024;

pub(super) enum Command {
    Copy { from: u64, to: u64, bytes: usize },
    Fill { to: u64, value: u8, bytes: usize },
    Gather(Box<Gather>),
    Run(Box<Task>),
    Record(Arc<Mark>, u64),
    Wait(Arc<Mark>, u64),
    End,
}

pub(super) struct Worker {
    queue: Sender<Command>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Worker {
    pub(super) fn spawn(name: &str, lost: Arc<OnceLock<Error>>) -> Result<Self> {
        let (queue, commands) = bounded(QUEUE);
        let thread = std::thread::Builder::new()
            .name(format!("fl-stream-{name}"))
            .spawn(move || run(&commands, &lost))
            .map_err(|error| {
                let why = "cannot start a stream's thread: raise the limit of processes (ulimit -u)";
                Error::new(ErrorKind::Device, why).caused_by(error)
            })?;
        Ok(Self { queue, thread: Mutex::new(Some(thread)) })
    }

    /// Queues a command; blocks only while the queue is full.
    pub(super) fn give(&self, command: Command) -> Result<()> {
        self.queue.send(command).map_err(|_| Error::new(ErrorKind::Device, "the stream's thread has ended"))
    }

    /// Runs the queue to its end and joins the thread.
    pub(super) fn join(&self) -> Result<()> {
        let thread = self.thread.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).take();
        let Some(thread) = thread else { return Ok(()) };
        self.give(Command::End)?;
        if thread.thread().id() == std::thread::current().id() {
            // The last handle was dropped by work on this very stream; it ends by itself.
            return Ok(());
        }
        thread.join().map_err(|_| Error::new(ErrorKind::Device, "a stream's thread panicked"))
    }
}

fn run(commands: &Receiver<Command>, lost: &OnceLock<Error>) {
    for command in commands {
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
            Command::Run(task) if works => execute(*task, lost),
            Command::Record(mark, ticket) => mark.reach(ticket),
            Command::Wait(mark, ticket) => mark.wait_for(ticket),
            Command::End => break,
            Command::Copy { .. } | Command::Fill { .. } | Command::Gather(_) | Command::Run(_) => {}
        }
    }
}

fn execute(task: Task, lost: &OnceLock<Error>) {
    let name = task.name();
    // SAFETY: the spans are valid and used by nobody else now (`Backend::run`); this thread runs one task at a time.
    let ended = catch_unwind(AssertUnwindSafe(|| unsafe { task.execute() }));
    if let Err(panic) = ended {
        let why = panic_text(&*panic);
        let _ =
            lost.set(Error::new(ErrorKind::DeviceLost, format!("\"{name}\" panicked on its stream: {why}")));
    }
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message")
}
