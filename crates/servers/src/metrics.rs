//! Counters of a server, and the port that serves them: `GET /metrics` for Prometheus, `GET /health`.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// The time for a request of the second port, and the max bytes of its head.
const LIMITS: (Duration, usize) = (Duration::from_secs(5), 4096);

/// The work of a server since its start.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    requests: AtomicU64,
    refused: AtomicU64,
    shared: AtomicU64,
    rows_decoded: AtomicU64,
    decode_us: AtomicU64,
    rows_sent: AtomicU64,
    bytes_sent: AtomicU64,
    in_flight: AtomicU64,
    is_draining: AtomicBool,
}

/// A request that is being answered; its drop ends it.
pub(crate) struct InFlight(Arc<Metrics>);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Relaxed);
    }
}

impl Metrics {
    pub(crate) fn requested(self: &Arc<Self>) -> InFlight {
        self.requests.fetch_add(1, Relaxed);
        self.in_flight.fetch_add(1, Relaxed);
        InFlight(self.clone())
    }

    pub(crate) fn refused(&self) {
        self.refused.fetch_add(1, Relaxed);
    }

    pub(crate) fn shared(&self) {
        self.shared.fetch_add(1, Relaxed);
    }

    pub(crate) fn decoded(&self, rows: usize, busy_ns: u64) {
        self.rows_decoded.fetch_add(rows as u64, Relaxed);
        self.decode_us.fetch_add(busy_ns / 1000, Relaxed);
    }

    pub(crate) fn sent(&self, rows: usize, bytes: usize) {
        self.rows_sent.fetch_add(rows as u64, Relaxed);
        self.bytes_sent.fetch_add(bytes as u64, Relaxed);
    }

    pub(crate) fn drain(&self) {
        self.is_draining.store(true, Relaxed);
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.is_draining.load(Relaxed)
    }

    /// Three counts so far: rows decoded, rows sent, and requests that needed no decoding because another
    /// request had the same batch.
    pub(crate) fn rows(&self) -> [u64; 3] {
        [&self.rows_decoded, &self.rows_sent, &self.shared].map(|counter| counter.load(Relaxed))
    }

    /// The counters in the text format of Prometheus.
    pub(crate) fn text(&self) -> String {
        let counters = [
            ("requests_total", "Requests for batches", &self.requests),
            ("refused_total", "Requests that were refused", &self.refused),
            ("shared_total", "Requests that were answered from the decode of another", &self.shared),
            ("rows_decoded_total", "Rows decoded", &self.rows_decoded),
            ("decode_microseconds_total", "Time of the threads that decode", &self.decode_us),
            ("rows_sent_total", "Rows sent", &self.rows_sent),
            ("bytes_sent_total", "Bytes sent", &self.bytes_sent),
        ];
        let mut text = String::new();
        for (name, about, counter) in counters {
            let value = counter.load(Relaxed);
            // Writing to a string does not fail.
            let _ = write!(
                text,
                "# HELP feedline_decode_{name} {about}\n# TYPE feedline_decode_{name} counter\n"
            );
            let _ = writeln!(text, "feedline_decode_{name} {value}");
        }
        let in_flight = self.in_flight.load(Relaxed);
        let _ = write!(
            text,
            "# HELP feedline_decode_in_flight Requests being answered\n\
             # TYPE feedline_decode_in_flight gauge\n\
             feedline_decode_in_flight {in_flight}\n"
        );
        text
    }
}

/// Answers requests on `listener` for ever.
pub(crate) async fn serve(listener: TcpListener, metrics: Arc<Metrics>) {
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        let metrics = metrics.clone();
        tokio::spawn(async move {
            let _ = tokio::time::timeout(LIMITS.0, answer(stream, &metrics)).await;
        });
    }
}

async fn answer(mut stream: TcpStream, metrics: &Metrics) -> std::io::Result<()> {
    let mut head = Vec::new();
    while !head.windows(4).any(|end| end == b"\r\n\r\n") && head.len() < LIMITS.1 {
        if stream.read_buf(&mut head).await? == 0 {
            return Ok(());
        }
    }
    let path = head.split(|&byte| byte == b' ').nth(1).unwrap_or_default();
    let (status, text) = match (head.starts_with(b"GET "), path) {
        (true, b"/metrics") => ("200 OK", metrics.text()),
        (true, b"/health") if metrics.is_draining() => ("503 Service Unavailable", "draining\n".to_owned()),
        (true, b"/health") => ("200 OK", "ready\n".to_owned()),
        _ => ("404 Not Found", "GET /metrics or /health\n".to_owned()),
    };
    let len = text.len();
    let head = format!(
        "HTTP/1.1 {status}\r\ncontent-type: text/plain; version=0.0.4\r\ncontent-length: {len}\r\n\
         connection: close\r\n\r\n"
    );
    stream.write_all((head + &text).as_bytes()).await?;
    stream.shutdown().await
}
