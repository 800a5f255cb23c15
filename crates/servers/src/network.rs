//! The connections to servers: threads of the network, names looked up, and requests in work.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use feedline::{Error, ErrorKind, Result};
use feedline_core::catch_panic;
use tokio::runtime::Runtime;
use tokio::task::AbortHandle;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint};

use crate::fetch::{Answer, Failure};
use crate::hosts::Name;
use crate::service::FRAME;
use crate::table::Table;

/// Max requests to one server at a time.
pub(crate) const PER_SERVER: usize = 16;

/// How often names are looked up.
const LOOK_UP: Duration = Duration::from_secs(10);

/// The limits for connecting, and for the comparison while a loader is built.
pub(crate) const CONNECT: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(5));

/// Windows of HTTP/2 for a batch, and for a connection.
const WINDOWS: (u32, u32) = (16 << 20, 64 << 20);

/// Connections and figures of all clones.
pub(crate) struct Network {
    pub(crate) runtime: Option<Runtime>,
    table: Mutex<Table>,
    /// A request has ended.
    pub(crate) freed: Condvar,
    names: Vec<Name>,
    roots: Option<Vec<u8>>,
}

/// Room for a request to a server; its drop gives it back.
pub(crate) struct Place<'a> {
    pub(crate) network: &'a Network,
    pub(crate) address: SocketAddr,
    pub(crate) channel: Channel,
    pub(crate) is_used: bool,
}

/// A request in work; its drop cancels it.
pub(crate) struct Attempt<'a> {
    pub(crate) network: &'a Network,
    pub(crate) address: SocketAddr,
    task: AbortHandle,
    pub(crate) start: Instant,
    has_ended: bool,
}

/// A runtime with `threads` threads called `name`.
///
/// # Errors
/// `Config` if the system refuses a thread.
pub(crate) fn start_runtime(threads: usize, name: &str) -> Result<Runtime> {
    let build = || {
        tokio::runtime::Builder::new_multi_thread()
            .worker_threads(threads)
            .thread_name(name)
            .enable_all()
            .build()
    };
    let cannot =
        || config("cannot start the threads of the network: raise the limit of processes (ulimit -u)");
    // `build` panics if the system refuses a thread.
    match catch_panic("the threads", build) {
        Ok(built) => built.map_err(|error| cannot().with_source(error)),
        Err(refused) => Err(cannot().with_source(refused)),
    }
}

impl Network {
    /// Starts the threads of the network, and looks `names` up. Blocks for the look-up.
    ///
    /// # Errors
    /// `Config` if the system refuses the threads.
    pub(crate) fn new(names: &[Name], roots: Option<&Vec<u8>>) -> Result<Arc<Self>> {
        let runtime = start_runtime(2, "fl-net")?;
        let network = Arc::new(Self {
            runtime: Some(runtime),
            table: Mutex::default(),
            freed: Condvar::new(),
            names: names.to_vec(),
            roots: roots.cloned(),
        });
        network.look_up();
        if let Some(runtime) = &network.runtime {
            runtime.spawn(look_up_again(Arc::downgrade(&network)));
        }
        Ok(network)
    }

    pub(crate) fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Room at the server that would answer first, other than the servers in `others`.
    pub(crate) fn place(&self, others: &[SocketAddr]) -> Option<Place<'_>> {
        let (address, channel) = self.table().take(PER_SERVER, others)?;
        Some(self.taken(address, channel))
    }

    /// The room that the table has given.
    pub(crate) fn taken(&self, address: SocketAddr, channel: Channel) -> Place<'_> {
        Place { network: self, address, channel, is_used: false }
    }

    /// Looks up all names. Blocks. A name that cannot be looked up keeps its addresses.
    fn look_up(&self) {
        let mut known = BTreeSet::new();
        for name in &self.names {
            match name.addresses() {
                Ok(addresses) => {
                    known.extend(addresses.into_iter().map(|address| (name.host.clone(), address)));
                }
                Err(_) => {
                    let table = self.table();
                    let before = table.servers().iter().filter(|server| server.host == name.host);
                    known.extend(before.map(|server| (server.host.clone(), server.address)));
                }
            }
        }
        let _entered = self.runtime.as_ref().map(Runtime::enter);
        self.table().update(&known, |host, address| self.connect(host, address).ok());
        self.freed.notify_all();
    }

    /// A channel that connects with its first request.
    fn connect(&self, host: &str, address: SocketAddr) -> Result<Channel> {
        let failed =
            |error: tonic::transport::Error| config("the certificates cannot be used").with_source(error);
        let scheme = if self.roots.is_some() { "https" } else { "http" };
        let mut endpoint = Endpoint::from_shared(format!("{scheme}://{address}"))
            .map_err(failed)?
            .connect_timeout(CONNECT.0)
            .tcp_nodelay(true)
            .initial_stream_window_size(WINDOWS.0)
            .initial_connection_window_size(WINDOWS.1)
            .max_frame_size(FRAME)
            .http2_keep_alive_interval(Duration::from_secs(5))
            .keep_alive_timeout(Duration::from_secs(5));
        if let Some(roots) = &self.roots {
            let tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(roots)).domain_name(host);
            endpoint = endpoint.tls_config(tls).map_err(failed)?;
        }
        Ok(endpoint.connect_lazy())
    }
}

/// Looks names up again, until the last clone is dropped.
async fn look_up_again(network: Weak<Network>) {
    loop {
        tokio::time::sleep(LOOK_UP).await;
        let Some(network) = network.upgrade() else { return };
        let _ = tokio::task::spawn_blocking(move || network.look_up()).await;
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Attempt<'_> {
    /// The request has ended with `outcome`.
    pub(crate) fn end(mut self, outcome: Result<&Answer, &Failure>) {
        self.has_ended = true;
        self.network.table().ended(self.address, Some(outcome), self.start.elapsed());
        self.network.freed.notify_one();
    }
}

impl<'a> Place<'a> {
    /// A request was sent by `task`; from here on the attempt gives the room back.
    pub(crate) fn asked(mut self, task: AbortHandle) -> Attempt<'a> {
        self.is_used = true;
        let (network, address) = (self.network, self.address);
        Attempt { network, address, task, start: Instant::now(), has_ended: false }
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        if !self.is_used {
            self.network.table().release(self.address);
            self.network.freed.notify_one();
        }
    }
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        if !self.has_ended {
            self.task.abort();
            self.network.table().ended(self.address, None, self.start.elapsed());
            self.network.freed.notify_one();
        }
    }
}

fn config(why: &str) -> Error {
    Error::new(ErrorKind::Config, why)
}
