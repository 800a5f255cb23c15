//! HTTP: routes, errors of one line, and the drain.

use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use feedline::{Error, ErrorKind, Result};
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, RETRY_AFTER};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use crate::{Metrics, Pool, Refused};

/// How long a client may take to send the headers of a request, and then its body.
const CLIENT_LIMIT: Duration = Duration::from_secs(10);

/// The maximum number of connections that a drain accepts: the length of the system's queue under tokio.
const MAX_PENDING: usize = 1024;

/// The minimum time for the pool to end, even if the connections have used up the drain limit.
const MIN_POOL_DRAIN: Duration = Duration::from_secs(1);

/// A pool that a TCP port serves.
///
/// | route | answer |
/// | --- | --- |
/// | `POST /predict`, body: one byte per pixel | `{"class":7,"logits":[...]}` |
/// | `GET /metrics` | counters, in the text format of Prometheus |
/// | `GET /health` | `ok` |
///
/// Errors are one line of text: 400 for wrong input, 404, 405, 408 for a slow client, 429 while the queue is
/// full, 500 if the device fails.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    pool: Arc<Pool>,
}

impl Server {
    /// Listens on `address`; port 0 takes a free one.
    ///
    /// # Errors
    /// `Unavailable` if the address is taken or is not one of this machine.
    pub async fn bind(address: SocketAddr, pool: Pool) -> Result<Self> {
        let failed = |error| {
            let why = format!("cannot listen on {address}: give another --listen");
            Error::new(ErrorKind::Unavailable, why).with_source(error)
        };
        Ok(Self { listener: TcpListener::bind(address).await.map_err(failed)?, pool: Arc::new(pool) })
    }

    /// The address that it listens on.
    ///
    /// # Errors
    /// `Unavailable` if the system does not return it.
    pub fn address(&self) -> Result<SocketAddr> {
        let failed =
            |error| Error::new(ErrorKind::Unavailable, "the socket has no address").with_source(error);
        self.listener.local_addr().map_err(failed)
    }

    /// The pool.
    pub fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    /// Serves until `stop`, then drains: accepts no new connections, answers every request that a client has
    /// begun to send, and closes. Returns the number of connections that it closed without an answer, because
    /// after `drain_limit` their clients had sent no request or read no answer. A drain takes a second longer
    /// at most.
    pub async fn run(self, stop: impl Future<Output = ()>, drain_limit: Duration) -> usize {
        let Self { listener, pool } = self;
        let (connections, mut tasks) = (GracefulShutdown::new(), JoinSet::new());
        let mut stop = std::pin::pin!(stop);
        loop {
            tokio::select! {
                biased;
                () = &mut stop => break,
                accepted = listener.accept() => match accepted {
                    Ok((client, _)) => drop(tasks.spawn(serve(client, &pool, &connections))),
                    // No free file descriptor, for example: wait until connections end.
                    Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
                },
                Some(_) = tasks.join_next() => {}
            }
        }
        let drained_since = Instant::now();
        // Clients that the system has connected already may have sent their requests.
        for _ in 0..MAX_PENDING {
            let accepted = tokio::time::timeout(Duration::ZERO, listener.accept()).await;
            let Ok(Ok((client, _))) = accepted else { break };
            tasks.spawn(serve(client, &pool, &connections));
        }
        drop(listener);
        let ended = async {
            connections.shutdown().await;
            while tasks.join_next().await.is_some() {}
        };
        let _ = tokio::time::timeout(drain_limit, ended).await;
        while tasks.try_join_next().is_some() {}
        let cut = tasks.len();
        tasks.shutdown().await;
        // The connections have dropped their handles of the pool; the caller may have others.
        if let Some(pool) = Arc::into_inner(pool) {
            let left = drain_limit.saturating_sub(drained_since.elapsed());
            drain(pool, left.max(MIN_POOL_DRAIN)).await;
        }
        cut
    }
}

/// Drains the pool on a thread of its own, which is abandoned after `limit`: a device may hang.
async fn drain(pool: Pool, limit: Duration) {
    let (ended, has_ended) = oneshot::channel();
    let drain = move || {
        pool.drain();
        let _ = ended.send(());
    };
    if std::thread::Builder::new().name("serve-drain".to_owned()).spawn(drain).is_ok() {
        let _ = tokio::time::timeout(limit, has_ended).await;
    }
}

/// Serves the requests of one connection.
fn serve(
    client: TcpStream,
    pool: &Arc<Pool>,
    connections: &GracefulShutdown,
) -> impl Future<Output = ()> + use<> {
    // Answers are small and should not wait for the next one.
    let _ = client.set_nodelay(true);
    let pool = pool.clone();
    let service = service_fn(move |request| {
        let pool = pool.clone();
        async move { Ok::<_, Infallible>(respond(&pool, request).await) }
    });
    let mut http = http1::Builder::new();
    let connection = http
        .timer(TokioTimer::new())
        .header_read_timeout(CLIENT_LIMIT)
        .serve_connection(TokioIo::new(client), service);
    let connection = connections.watch(connection);
    async move {
        // An error means that the client is gone or does not speak HTTP.
        let _ = connection.await;
    }
}

/// The response to a request.
async fn respond(pool: &Pool, request: Request<Incoming>) -> Response<Full<Bytes>> {
    let path = request.uri().path().to_owned();
    match (request.method(), path.as_str()) {
        (&Method::POST, "/predict") => predict(pool, request.into_body()).await,
        (&Method::GET, "/metrics") => {
            let mut response = Response::new(pool.metrics().text().into());
            let kind = "text/plain; version=0.0.4";
            response.headers_mut().insert(CONTENT_TYPE, hyper::header::HeaderValue::from_static(kind));
            response
        }
        (&Method::GET, "/health") => text(StatusCode::OK, "ok"),
        (_, "/predict") => text(StatusCode::METHOD_NOT_ALLOWED, "send the pixels with POST"),
        (_, "/metrics" | "/health") => text(StatusCode::METHOD_NOT_ALLOWED, "ask with GET"),
        _ => text(StatusCode::NOT_FOUND, "there are POST /predict, GET /metrics and GET /health"),
    }
}

async fn predict(pool: &Pool, body: Incoming) -> Response<Full<Bytes>> {
    let wrong = |metrics: &Metrics, status, why: &str| {
        metrics.wrong.add(1);
        text(status, why)
    };
    let pixels = match tokio::time::timeout(CLIENT_LIMIT, Limited::new(body, pool.inputs()).collect()).await {
        Ok(Ok(body)) => body.to_bytes(),
        Ok(Err(error)) if error.is::<LengthLimitError>() => {
            let wanted = pool.inputs();
            let why = format!("the body has more than {wanted} bytes: send {wanted}, one per pixel");
            return wrong(pool.metrics(), StatusCode::BAD_REQUEST, &why);
        }
        Ok(Err(_)) => return wrong(pool.metrics(), StatusCode::BAD_REQUEST, "the body is cut short"),
        Err(_) => return wrong(pool.metrics(), StatusCode::REQUEST_TIMEOUT, "the body did not come in time"),
    };
    let answer = match pool.submit(pixels) {
        Ok(answer) => answer,
        Err(Refused::Wrong(why)) => return text(StatusCode::BAD_REQUEST, &why),
        Err(Refused::Full) => {
            let mut response = text(StatusCode::TOO_MANY_REQUESTS, "the queue is full: try again later");
            response.headers_mut().insert(RETRY_AFTER, 1.into());
            return response;
        }
    };
    match answer.await {
        Ok(Ok(answer)) => {
            let json = serde_json::json!({ "class": answer.class, "logits": answer.logits });
            let mut response = Response::new(json.to_string().into());
            let kind = hyper::header::HeaderValue::from_static("application/json");
            response.headers_mut().insert(CONTENT_TYPE, kind);
            response
        }
        Ok(Err(error)) => text(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
        Err(_) => text(StatusCode::INTERNAL_SERVER_ERROR, "the stream's thread has ended"),
    }
}

/// A response of one line of text.
fn text(status: StatusCode, line: &str) -> Response<Full<Bytes>> {
    let mut response = Response::new(format!("{line}\n").into());
    *response.status_mut() = status;
    response
}
