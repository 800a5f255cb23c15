//! The server: Arrow Flight over tonic, with TLS by rustls and a bearer token.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use feedline::{Dataset, Error, ErrorKind, Result, Source};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinHandle;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Identity, ServerTlsConfig};
use tonic::{Request, Status};

use crate::direct::Direct;
use crate::metrics::{self, Metrics};
use crate::network::start_runtime;
use crate::pool::Pool;
use crate::service::{FRAME, PAGE, Service};
use crate::set::Sets;
use crate::shared::Shared;

/// Default budget of batches in work, in bytes.
const MEMORY: usize = 1 << 30;

/// Configures a decode server.
///
/// ```
/// use feedline::InMemory;
/// use feedline_decode::Server;
///
/// let numbers = InMemory::new().field("x", [], [1_u8, 2, 3])?;
/// let server = Server::new().dataset(numbers).bind("127.0.0.1:0")?;
/// println!("port {}", server.address().port());
/// server.drain(std::time::Duration::from_secs(1));
/// # Ok::<(), feedline::Error>(())
/// ```
#[derive(Default)]
#[must_use = "a server does nothing until `bind`"]
pub struct Server {
    paths: Vec<PathBuf>,
    datasets: Vec<Arc<dyn Dataset>>,
    sources: Vec<Arc<dyn Source>>,
    transforms: String,
    token: Option<String>,
    identity: Option<(Vec<u8>, Vec<u8>)>,
    workers: Option<usize>,
    memory: Option<usize>,
    shared: usize,
    metrics: Option<String>,
}

impl Server {
    /// A server without data.
    pub fn new() -> Self {
        Self::default()
    }

    /// Serves the file or folder `path`, of any format that `feedline_datasets::open` reads, in the form that
    /// a trainer asks for: `Bounded` with its limits. Nothing else on this machine is served.
    pub fn data(mut self, path: impl Into<PathBuf>) -> Self {
        self.paths.push(path.into());
        self
    }

    /// Serves `dataset`, for sets with transforms of the program.
    pub fn dataset(mut self, dataset: impl Dataset) -> Self {
        self.datasets.push(Arc::new(dataset));
        self
    }

    /// Decodes the records of `source`, which trainers read and send with their requests, up to 64 MiB each.
    pub fn source(mut self, source: impl Source) -> Self {
        self.sources.push(Arc::new(source));
        self
    }

    /// The version of the transforms and the tokenizer, which trainers must state too. Default: none.
    pub fn transforms(self, version: impl Into<String>) -> Self {
        Self { transforms: version.into(), ..self }
    }

    /// Answers only requests with this bearer token. Default: every request.
    pub fn token(self, token: impl Into<String>) -> Self {
        Self { token: Some(token.into()), ..self }
    }

    /// Accepts only TLS, with this chain of certificates and this key, both in PEM. Default: no TLS.
    pub fn tls(self, certificates: impl Into<Vec<u8>>, key: impl Into<Vec<u8>>) -> Self {
        Self { identity: Some((certificates.into(), key.into())), ..self }
    }

    /// Number of threads that decode. Default: one per core.
    pub fn workers(self, workers: usize) -> Self {
        Self { workers: Some(workers), ..self }
    }

    /// Max bytes of batches in work. A batch that is larger is refused; others wait. Default: 1 GiB.
    pub fn memory(self, bytes: usize) -> Self {
        Self { memory: Some(bytes), ..self }
    }

    /// Keeps up to `bytes` bytes of sent batches, for trainers that ask for the same samples a moment later.
    /// Requests at the same time are answered from one decode in any case. Default: 0.
    pub fn shared(self, bytes: usize) -> Self {
        Self { shared: bytes, ..self }
    }

    /// Serves metrics for Prometheus and the health of the server at `address`: `/metrics` and `/health`.
    pub fn metrics(self, address: impl Into<String>) -> Self {
        Self { metrics: Some(address.into()), ..self }
    }

    /// Opens the data, listens at `address` (port 0 for any free port), and answers requests on threads of
    /// its own.
    ///
    /// # Errors
    /// `Config` for an unusable address, an invalid certificate, or no data; as `feedline_datasets::open`.
    pub fn bind(self, address: &str) -> Result<Running> {
        let workers =
            self.workers.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
        if workers == 0 {
            return Err(config("workers is 0: at least one thread must decode"));
        }
        let sets = Sets::new(self.transforms, self.paths, self.datasets, self.sources)?;
        sets.check()?;
        let metrics = Arc::new(Metrics::default());
        let memory = self.memory.unwrap_or(MEMORY);
        let service = Service {
            sets: Arc::new(sets),
            pool: Arc::new(Pool::new(workers)?),
            shared: Shared::new(self.shared, metrics.clone()),
            memory: Arc::new(Semaphore::new((memory / PAGE).clamp(1, Semaphore::MAX_PERMITS))),
            max_bytes: memory,
            metrics: metrics.clone(),
        };
        let runtime = start_runtime(workers.clamp(1, 4), "decode-net")?;
        let bind = |address: &str| {
            let listener = runtime.block_on(TcpListener::bind(address));
            listener.map_err(|error| config(&format!("cannot listen at {address}")).with_source(error))
        };
        let listener = bind(address)?;
        let metrics_listener = self.metrics.as_deref().map(bind).transpose()?;
        let at = |listener: &TcpListener| {
            listener.local_addr().map_err(|error| config("the address is not known").with_source(error))
        };
        let metrics_address = metrics_listener.as_ref().map(at).transpose()?;
        let own = at(&listener)?;
        let mut server = tonic::transport::Server::builder()
            .tcp_nodelay(true)
            .max_frame_size(FRAME)
            .http2_keepalive_interval(Some(Duration::from_secs(20)))
            .http2_keepalive_timeout(Some(Duration::from_secs(10)));
        if let Some((certificates, key)) = self.identity {
            let tls = ServerTlsConfig::new().identity(Identity::from_pem(certificates, key));
            server = server
                .tls_config(tls)
                .map_err(|error| config("the certificate or its key cannot be used").with_source(error))?;
        }
        let token = self.token.map(|token| format!("Bearer {token}"));
        let check = move |request: Request<()>| match &token {
            Some(token) if !is_same(request.metadata().get("authorization"), token) => {
                Err(Status::unauthenticated("the token is missing or wrong: give the one of --token-file"))
            }
            _ => Ok(request),
        };
        let router = server.add_service(InterceptedService::new(Direct::new(service), check));
        let (stop, mut stopped) = watch::channel(false);
        let ended = runtime.spawn(async move {
            let drained = async move { drop(stopped.wait_for(|stop| *stop).await) };
            let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
            router.serve_with_incoming_shutdown(incoming, drained).await
        });
        if let Some(listener) = metrics_listener {
            runtime.spawn(metrics::serve(listener, metrics.clone()));
        }
        let running = Mutex::new(Some((runtime, ended)));
        Ok(Running { address: own, metrics_address, metrics, stop, running })
    }
}

/// Compares the token in a time that depends on its length only.
fn is_same(given: Option<&tonic::metadata::MetadataValue<tonic::metadata::Ascii>>, token: &str) -> bool {
    let given = given.map(|given| given.as_bytes()).unwrap_or_default();
    let differences = given.iter().zip(token.as_bytes()).fold(0, |all, (a, b)| all | (a ^ b));
    given.len() == token.len() && differences == 0
}

/// The end of the service.
type Ended = JoinHandle<Result<(), tonic::transport::Error>>;

/// A server that answers requests until it is drained or dropped.
pub struct Running {
    address: SocketAddr,
    metrics_address: Option<SocketAddr>,
    metrics: Arc<Metrics>,
    stop: watch::Sender<bool>,
    running: Mutex<Option<(Runtime, Ended)>>,
}

impl Running {
    /// The address of the Flight service.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The address of metrics and health, if they are served.
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.metrics_address
    }

    /// Three counts so far: rows decoded, rows sent, and requests that needed no decoding because another
    /// request had the same batch.
    pub fn rows(&self) -> [u64; 3] {
        self.metrics.rows()
    }

    /// Refuses new requests, answers those that it has for at most `limit`, and ends. Blocks.
    pub fn drain(&self, limit: Duration) {
        self.metrics.drain();
        let _ = self.stop.send(true);
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some((runtime, ended)) = running {
            let _ = runtime.block_on(async { tokio::time::timeout(limit, ended).await });
            runtime.shutdown_background();
        }
    }
}

/// Ends at once, and cuts the running answers.
impl Drop for Running {
    fn drop(&mut self) {
        let running = self.running.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if let Some((runtime, _)) = running {
            runtime.shutdown_background();
        }
    }
}

impl std::fmt::Debug for Running {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Running({})", self.address)
    }
}

fn config(why: &str) -> Error {
    Error::new(ErrorKind::Config, why)
}
