//! A load generator: each connection sends one request after the other.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bytes::Bytes;
use feedline_core::deadline;
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::HOST;
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

/// The answers of a run, over all connections.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Requests answered with 200.
    pub answered: u64,
    /// Requests refused with 429.
    pub refused: u64,
    /// Requests answered with anything else.
    pub other: u64,
    /// Connections that ended before an answer, or could not be made.
    pub closed: u64,
    /// The latency of each answered request, sorted after [`run`].
    pub latencies: Vec<Duration>,
    /// The duration of the run.
    pub time: Duration,
}

impl Outcome {
    /// Answers per second.
    pub fn rate(&self) -> f64 {
        self.answered as f64 / self.time.as_secs_f64().max(1e-9)
    }

    /// The latency that a share of the answered requests did not exceed: 0.5 is the median.
    pub fn quantile(&self, share: f64) -> Duration {
        let last = self.latencies.len().saturating_sub(1);
        self.latencies.get((share * last as f64).round() as usize).copied().unwrap_or_default()
    }

    fn add(&mut self, other: Self) {
        self.answered += other.answered;
        self.refused += other.refused;
        self.other += other.other;
        self.closed += other.closed;
        self.latencies.extend(other.latencies);
    }
}

/// Sends `body` to `POST /predict` over `connections` connections for `time`. Does not reopen a connection
/// that the server closes.
pub async fn run(address: SocketAddr, connections: usize, time: Duration, body: Bytes) -> Outcome {
    let (start, mut tasks, mut all) = (Instant::now(), JoinSet::new(), Outcome::default());
    for _ in 0..connections {
        tasks.spawn(connection(address, deadline(time), body.clone()));
    }
    while let Some(ended) = tasks.join_next().await {
        // A task that panicked counts as a closed connection.
        all.add(ended.unwrap_or(Outcome { closed: 1, ..Outcome::default() }));
    }
    all.time = start.elapsed();
    all.latencies.sort_unstable();
    all
}

async fn connection(address: SocketAddr, end: Instant, body: Bytes) -> Outcome {
    let mut outcome = Outcome::default();
    let Some(mut client) = connect(address).await else { return Outcome { closed: 1, ..outcome } };
    while Instant::now() < end {
        let start = Instant::now();
        match predict(&mut client, address, body.clone()).await {
            Some(StatusCode::OK) => {
                outcome.answered += 1;
                outcome.latencies.push(start.elapsed());
            }
            Some(StatusCode::TOO_MANY_REQUESTS) => outcome.refused += 1,
            Some(_) => outcome.other += 1,
            None => return Outcome { closed: 1, ..outcome },
        }
    }
    outcome
}

async fn connect(address: SocketAddr) -> Option<SendRequest<Full<Bytes>>> {
    let stream = TcpStream::connect(address).await.ok()?;
    stream.set_nodelay(true).ok()?;
    let (client, connection) = handshake(TokioIo::new(stream)).await.ok()?;
    tokio::spawn(connection);
    Some(client)
}

/// The status of `POST /predict`, once the whole answer has arrived.
async fn predict(client: &mut SendRequest<Full<Bytes>>, to: SocketAddr, body: Bytes) -> Option<StatusCode> {
    let request = Request::post("/predict").header(HOST, to.to_string()).body(Full::new(body)).ok()?;
    ask(client, request).await.map(|(status, _)| status)
}

/// The status and the body of the answer.
async fn ask(
    client: &mut SendRequest<Full<Bytes>>,
    request: Request<Full<Bytes>>,
) -> Option<(StatusCode, Bytes)> {
    client.ready().await.ok()?;
    let response = client.send_request(request).await.ok()?;
    let status = response.status();
    Some((status, response.into_body().collect().await.ok()?.to_bytes()))
}

/// The values of the counters with these names on the server's `/metrics`; `None` if it does not answer with
/// them.
pub async fn counters<const N: usize>(address: SocketAddr, names: [&str; N]) -> Option<[u64; N]> {
    let mut client = connect(address).await?;
    let request = Request::get("/metrics").header(HOST, address.to_string()).body(Full::default()).ok()?;
    let (_, text) = ask(&mut client, request).await?;
    let text = std::str::from_utf8(&text).ok()?;
    let value = |name: &str| {
        text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse::<u64>().ok())
    };
    let mut values = [0; N];
    for (to, name) in values.iter_mut().zip(names) {
        *to = value(name)?;
    }
    Some(values)
}
