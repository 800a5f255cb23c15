//! The thread that runs the requests.

use std::fmt;
use std::future::Future;

use feedline_core::{Error, ErrorKind, Result};
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

/// Max threads for the cache on disk and for DNS.
const BLOCKING: usize = 4;

/// The thread. Dropping it ends the thread and its tasks.
pub(super) struct Thread {
    handle: Handle,
    _stop: oneshot::Sender<()>,
    process: u32,
}

impl Thread {
    pub(super) fn start() -> Result<Self> {
        let cannot = |error: std::io::Error| {
            Error::new(ErrorKind::Unavailable, "cannot start the thread that fetches files")
                .with_source(error)
        };
        let mut builder = Builder::new_current_thread();
        let runtime = builder.enable_all().max_blocking_threads(BLOCKING).thread_name("feedline-remote");
        let runtime = runtime.build().map_err(cannot)?;
        let handle = runtime.handle().clone();
        let (_stop, stopped) = oneshot::channel::<()>();
        let run = move || {
            // This ends when the sender is dropped.
            let _ = runtime.block_on(stopped);
            // Do not wait for a DNS look-up: it may take a long time.
            runtime.shutdown_background();
        };
        std::thread::Builder::new().name("feedline-remote".into()).spawn(run).map_err(cannot)?;
        Ok(Self { handle, _stop, process: std::process::id() })
    }

    /// Refuses a forked process. It lacks the thread, and would wait forever.
    pub(super) fn check(&self) -> Result<()> {
        if std::process::id() == self.process {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Forked, "the process was forked: open files by URL in the child itself"))
    }

    pub(super) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.handle.spawn(task);
    }
}

impl fmt::Debug for Thread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Thread")
    }
}

/// The error of a task that ended early.
pub(super) fn ended() -> Error {
    Error::new(ErrorKind::Stopped, "the thread that fetches files has ended")
}
