//! HTTP: routes, errors of one line, and the drain.

use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

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

use crate::{Metrics, Pool, Refused};

/// How long a client may take to send the headers of a request, and then its body.
const CLIENT_LIMIT: Duration = Duration::from_secs(10);

/// A pool behind a TCP port.
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
    /// `Unavailable` if the address cannot be listened on.
    pub async fn bind(address: SocketAddr, pool: Pool) -> Result<Self> {
        let failed = |error| {
            let why = format!("cannot listen on {address}: give another --listen");
            Error::new(ErrorKind::Unavailable, why).caused_by(error)
        };
        Ok(Self { listener: TcpListener::bind(address).await.map_err(failed)?, pool: Arc::new(pool) })
    }

    /// The address that it listens on.
    ///
    /// # Errors
    /// `Unavailable` if the system does not say.
    pub fn address(&self) -> Result<SocketAddr> {
        let failed = |error| Error::new(ErrorKind::Unavailable, "the socket has no address").caused_by(error);
        self.listener.local_addr().map_err(failed)
    }

    /// The pool.
    pub fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    /// Serves until `stop`, then drains: takes no new connections, answers every request that a client has
    /// begun to send, and closes. A client that stops in the middle of a request holds the drain up for at
    /// most 20 seconds.
    pub async fn run(self, stop: impl Future<Output = ()>) {
        let Self { listener, pool } = self;
        let connections = GracefulShutdown::new();
        let mut stop = std::pin::pin!(stop);
        loop {
            tokio::select! {
                biased;
                () = &mut stop => break,
                accepted = listener.accept() => match accepted {
                    Ok((client, _)) => serve(client, &pool, &connections),
                    // Out of file descriptors, for example: connections that end make room.
                    Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
                },
            }
        }
        // Clients that the system has connected already may have sent their requests.
        while let Ok(Ok((client, _))) = tokio::time::timeout(Duration::ZERO, listener.accept()).await {
            serve(client, &pool, &connections);
        }
        drop(listener);
        connections.shutdown().await;
        // The connections have ended, and their handles of the pool with them; the caller may have others.
        if let Some(pool) = Arc::into_inner(pool) {
            let _ = tokio::task::spawn_blocking(|| pool.drain()).await;
        }
    }
}

/// Serves the requests of one connection, in a task of its own.
fn serve(client: TcpStream, pool: &Arc<Pool>, connections: &GracefulShutdown) {
    // Answers are small, and the next one may take long.
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
    tokio::spawn(async move {
        // The client is gone, or did not speak HTTP: nobody is left to tell.
        let _ = connection.await;
    });
}

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
        (&Method::GET, "/health") => line(StatusCode::OK, "ok"),
        (_, "/predict") => line(StatusCode::METHOD_NOT_ALLOWED, "send the pixels with POST"),
        (_, "/metrics" | "/health") => line(StatusCode::METHOD_NOT_ALLOWED, "ask with GET"),
        _ => line(StatusCode::NOT_FOUND, "there are POST /predict, GET /metrics and GET /health"),
    }
}

async fn predict(pool: &Pool, body: Incoming) -> Response<Full<Bytes>> {
    let wrong = |metrics: &Metrics, status, why: &str| {
        metrics.wrong.add(1);
        line(status, why)
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
        Err(Refused::Wrong(why)) => return line(StatusCode::BAD_REQUEST, &why),
        Err(Refused::Full) => {
            let mut response = line(StatusCode::TOO_MANY_REQUESTS, "the queue is full: try again later");
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
        Ok(Err(error)) => line(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
        Err(_) => line(StatusCode::INTERNAL_SERVER_ERROR, "the stream's thread has ended"),
    }
}

/// A response of one line of text.
fn line(status: StatusCode, text: &str) -> Response<Full<Bytes>> {
    let mut response = Response::new(format!("{text}\n").into());
    *response.status_mut() = status;
    response
}
