//! A small HTTP/1.1 server for tests. It answers requests for ranges correctly, or with the faults that a
//! test sets.

use std::collections::{BTreeMap, HashMap};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

/// A request for bytes of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    /// The path and the query.
    pub(crate) target: String,
    pub(crate) start: u64,
    /// The end of the range, exclusive.
    pub(crate) end: u64,
    /// The version that the client asks for.
    pub(crate) if_match: Option<String>,
    /// Whether it comes with credentials.
    pub(crate) has_credentials: bool,
}

/// A fault of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    Status(u16),
    /// The connection is reset before the request is read.
    Reset,
    /// The connection ends after half of the body.
    Cut,
    /// The body has the stated length, but ends before its range does.
    Short,
    /// `Content-Range` names other bytes.
    OtherRange,
    /// `Content-Range` names no bytes.
    StarRange,
    /// The whole file, with status 200.
    NoRange,
    /// Status 416 if the range ends after the file.
    RefusesEnds,
    /// The body in chunks, without `Content-Length`.
    Chunked,
    /// The same, and the connection ends within.
    CutChunks,
    /// Neither length nor chunks: the body ends with the connection.
    NoLength,
    /// Half of the body, and then nothing.
    Stalls,
    /// The body comes byte by byte, 50 in a second.
    Slow,
    /// No answer at all.
    Silent,
}

/// A file that is served.
#[derive(Clone, Debug)]
pub(crate) struct Served {
    pub(crate) bytes: Arc<[u8]>,
    /// Headers that name its version.
    pub(crate) headers: String,
}

impl Served {
    pub(crate) fn new(bytes: impl Into<Vec<u8>>) -> Self {
        let bytes = bytes.into();
        let sum = bytes.iter().fold(7u64, |sum, byte| sum.wrapping_mul(31).wrapping_add((*byte).into()));
        Self { bytes: bytes.into(), headers: format!("ETag: \"{sum:x}\"\r\n") }
    }
}

/// The running server. When it is dropped it ends, and all its connections with it.
pub(crate) struct Server {
    state: Arc<State>,
    address: SocketAddr,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct State {
    /// By their path, without the query.
    files: Mutex<BTreeMap<String, Served>>,
    /// The faults of the next answers, in reverse order.
    faults: Mutex<Vec<Fault>>,
    always: Mutex<Option<Fault>>,
    /// Every answer after this number of requests is wrong.
    later: Mutex<Option<(usize, Fault)>>,
    /// Where requests for a path are sent.
    redirects: Mutex<HashMap<String, String>>,
    requests: Mutex<Vec<Request>>,
    /// Pages of lists that were answered.
    pages: AtomicUsize,
    /// Connections that are open, and the most at one time.
    connections: AtomicUsize,
    max_connections: AtomicUsize,
    /// How long each answer to a request for a file takes.
    delay: Mutex<Duration>,
    /// Requests for files that are being answered, and the most at one time.
    in_flight: AtomicUsize,
    max_in_flight: AtomicUsize,
    /// Bytes of bodies that were sent.
    sent: AtomicU64,
    ended: AtomicBool,
}

impl Server {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(State::default());
        let shared = state.clone();
        let thread = std::thread::spawn(move || {
            for stream in listener.incoming() {
                if shared.ended.load(Ordering::SeqCst) {
                    break;
                }
                let shared = shared.clone();
                // A connection that breaks is the client's business.
                std::thread::spawn(move || {
                    let now = shared.connections.fetch_add(1, Ordering::SeqCst) + 1;
                    shared.max_connections.fetch_max(now, Ordering::SeqCst);
                    let _ = serve(&shared, &stream.unwrap());
                    shared.connections.fetch_sub(1, Ordering::SeqCst);
                });
            }
        });
        Self { state, address, thread: Some(thread) }
    }

    /// Pages of lists that were answered.
    pub(crate) fn pages(&self) -> usize {
        self.state.pages.load(Ordering::SeqCst)
    }

    /// The most connections that were open at one time.
    pub(crate) fn max_connections(&self) -> usize {
        self.state.max_connections.load(Ordering::SeqCst)
    }

    /// There is no file at `path` any more.
    pub(crate) fn remove(&self, path: &str) {
        self.state.files.lock().unwrap().remove(&format!("/{path}"));
    }

    /// Serves `file` at `path`; returns its URL.
    pub(crate) fn put(&self, path: &str, file: Served) -> String {
        self.state.files.lock().unwrap().insert(format!("/{path}"), file);
        self.url(path)
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}/{path}", self.address)
    }

    /// The next answers, in this order, are wrong.
    pub(crate) fn fail(&self, faults: &[Fault]) {
        self.state.faults.lock().unwrap().splice(0..0, faults.iter().rev().copied());
    }

    /// From now on each answer takes this long.
    pub(crate) fn delay(&self, by: Duration) {
        *self.state.delay.lock().unwrap() = by;
    }

    /// The most requests that were answered at one time.
    pub(crate) fn max_in_flight(&self) -> usize {
        self.state.max_in_flight.load(Ordering::SeqCst)
    }

    /// Every answer is wrong from now on.
    pub(crate) fn fail_always(&self, fault: Option<Fault>) {
        *self.state.always.lock().unwrap() = fault;
    }

    /// Every answer is wrong after `right` more.
    pub(crate) fn fail_after(&self, right: usize, fault: Fault) {
        *self.state.later.lock().unwrap() = Some((self.requests().len() + right, fault));
    }

    /// Sends requests for `path` to `url`; returns its URL.
    pub(crate) fn redirect(&self, path: &str, url: &str) -> String {
        self.state.redirects.lock().unwrap().insert(format!("/{path}"), url.into());
        self.url(path)
    }

    /// The requests so far, but for those that were reset.
    pub(crate) fn requests(&self) -> Vec<Request> {
        self.state.requests.lock().unwrap().clone()
    }

    /// Forgets the requests so far, so that many take no memory.
    pub(crate) fn forget_requests(&self) {
        self.state.requests.lock().unwrap().clear();
    }

    /// Bytes of bodies sent so far.
    pub(crate) fn sent(&self) -> u64 {
        self.state.sent.load(Ordering::SeqCst)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.state.ended.store(true, Ordering::SeqCst);
        // Wakes the thread that accepts. Once it has ended, nobody listens.
        TcpStream::connect(self.address).ok();
        self.thread.take().map(JoinHandle::join);
    }
}

/// Answers the requests of one connection.
fn serve(state: &State, stream: &TcpStream) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut reader = BufReader::with_capacity(1, stream);
    loop {
        // Leaves the request unread, so that closing the socket resets the connection.
        if stream.peek(&mut [0])? == 0 {
            return Ok(());
        }
        if state.ended.load(Ordering::SeqCst) {
            return Ok(());
        }
        let next = state.faults.lock().unwrap().pop();
        let requests = state.requests.lock().unwrap().len();
        let later =
            state.later.lock().unwrap().filter(|(right, _)| requests >= *right).map(|(_, fault)| fault);
        let fault = next.or(*state.always.lock().unwrap()).or(later);
        if fault == Some(Fault::Reset) {
            return Ok(());
        }
        let (mut target, mut range, mut if_match, mut has_credentials) = (String::new(), None, None, false);
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line)? == 0 {
                return Ok(());
            }
            if target.is_empty() {
                target = line.split(' ').nth(1).unwrap().to_owned();
            } else if line.trim().is_empty() {
                break;
            } else if let Some((name, value)) = line.split_once(": ")
                && name.eq_ignore_ascii_case("if-match")
            {
                if_match = Some(value.trim().to_owned());
            } else if line.to_lowercase().starts_with("authorization:") {
                has_credentials = true;
            } else if let Some((start, end)) = line
                .to_lowercase()
                .strip_prefix("range: bytes=")
                .and_then(|range| range.trim().split_once('-'))
            {
                range = Some((start.parse().unwrap(), end.parse::<u64>().unwrap() + 1));
            }
        }
        if let Some(query) =
            target.split_once('?').map(|(_, query)| query).filter(|q| q.contains("list-type=2"))
        {
            list(state, stream, target.split('?').next().unwrap(), query)?;
            continue;
        }
        // A request without a range asks for the whole file.
        let (start, end) = range.unwrap_or((0, u64::MAX));
        let request =
            Request { target: target.clone(), start, end, if_match: if_match.clone(), has_credentials };
        state.requests.lock().unwrap().push(request);
        let delay = *state.delay.lock().unwrap();
        if !delay.is_zero() {
            let now = state.in_flight.fetch_add(1, Ordering::SeqCst) + 1;
            state.max_in_flight.fetch_max(now, Ordering::SeqCst);
            std::thread::sleep(delay);
            state.in_flight.fetch_sub(1, Ordering::SeqCst);
        }
        let path = key_of(target.split('?').next().unwrap());
        if let Some(url) = state.redirects.lock().unwrap().get(&path) {
            let mut stream = stream;
            write!(stream, "HTTP/1.1 302 Found\r\nLocation: {url}\r\nContent-Length: 0\r\n\r\n")?;
            continue;
        }
        let file = state.files.lock().unwrap().get(&path).cloned();
        let is_other = |etag: &String| {
            file.as_ref().is_some_and(|file| !file.headers.contains(&format!("ETag: {etag}\r\n")))
        };
        // RFC 9110, section 13.1.1.
        let fault = if if_match.as_ref().is_some_and(is_other) { Some(Fault::Status(412)) } else { fault };
        if !answer(state, stream, file, range, fault)? {
            return Ok(());
        }
    }
}

/// The bucket whose files have the keys that a store has. Other files are found by the text of a request.
const LITERAL: &str = "/literal";

/// The key of the file that a request asks for.
fn key_of(target: &str) -> String {
    if target.starts_with(LITERAL) { decoded(target) } else { target.replace("%2F", "/") }
}

fn decoded(text: &str) -> String {
    let mut parts = text.split('%');
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        bytes.push(u8::from_str_radix(&part[..2], 16).unwrap());
        bytes.extend(&part.as_bytes()[2..]);
    }
    String::from_utf8(bytes).unwrap()
}

/// Lists the files of a bucket whose names begin with the prefix, as S3 does, 1,000 on a page; with a
/// delimiter only names without a slash after the prefix, and the folders of the others.
fn list(state: &State, mut stream: &TcpStream, bucket: &str, query: &str) -> std::io::Result<()> {
    if let Some(Fault::Status(number)) = *state.always.lock().unwrap() {
        return write!(stream, "HTTP/1.1 {number} No\r\nContent-Length: 0\r\n\r\n");
    }
    let value = |name: &str| query.split('&').find_map(|pair| pair.strip_prefix(name)).unwrap_or_default();
    let prefix = value("prefix=").replace("%2F", "/");
    let prefix = if bucket.starts_with(LITERAL) { decoded(&prefix.replace('+', " ")) } else { prefix };
    let root = format!("{}/", bucket.trim_end_matches('/'));
    state.pages.fetch_add(1, Ordering::SeqCst);
    let is_flat = !value("delimiter=").is_empty();
    let token = value("continuation-token=").replace("%2F", "/");
    let start = if token.is_empty() { format!("{root}{prefix}") } else { format!("{root}{token}") };
    let files = state.files.lock().unwrap();
    let (mut contents, mut folders, mut count, mut next) = (String::new(), BTreeMap::new(), 0, None);
    for (path, file) in files.range(start..) {
        let Some(key) = path.strip_prefix(&root) else { break };
        let Some(name) = key.strip_prefix(prefix.as_str()) else { break };
        if name.is_empty() {
            continue;
        }
        if let Some((folder, _)) = name.split_once('/').filter(|_| is_flat) {
            folders.insert(format!("{prefix}{folder}/"), ());
            continue;
        }
        if count == 1000 {
            next = Some(key);
            break;
        }
        count += 1;
        let key = key.replace('&', "&amp;");
        let etag = file.headers.split("ETag: ").nth(1).and_then(|rest| rest.lines().next());
        contents += &format!(
            "<Contents><Key>{key}</Key><LastModified>2026-07-06T10:00:00.000Z</LastModified>\
             <ETag>{}</ETag><Size>{}</Size></Contents>",
            etag.unwrap_or_default(),
            file.bytes.len()
        );
    }
    for folder in folders.keys() {
        contents += &format!("<CommonPrefixes><Prefix>{folder}</Prefix></CommonPrefixes>");
    }
    let token = next.map(|key| format!("<NextContinuationToken>{key}</NextContinuationToken>"));
    let body = format!(
        "<ListBucketResult><IsTruncated>{}</IsTruncated>{}{contents}</ListBucketResult>",
        token.is_some(),
        token.unwrap_or_default()
    );
    drop(files);
    write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}

/// Answers a request; says whether the connection goes on.
fn answer(
    state: &State,
    mut stream: &TcpStream,
    file: Option<Served>,
    range: Option<(u64, u64)>,
    fault: Option<Fault>,
) -> std::io::Result<bool> {
    let status = |mut stream: &TcpStream, status: u16| {
        let body = "the secret of the server";
        write!(stream, "HTTP/1.1 {status} No\r\nContent-Length: {}\r\n\r\n{body}", body.len())
    };
    if let Some(Fault::Status(number)) = fault {
        status(stream, number)?;
        return Ok(true);
    }
    if fault == Some(Fault::Silent) {
        until_closed(stream)?;
        return Ok(false);
    }
    let Some(Served { bytes, headers }) = file else {
        status(stream, 404)?;
        return Ok(true);
    };
    let len = bytes.len() as u64;
    let (start, end) = range.unwrap_or((0, len));
    let refuses_ends = fault == Some(Fault::RefusesEnds) && end > len;
    if start >= len && range.is_some() || refuses_ends {
        status(stream, 416)?;
        return Ok(true);
    }
    let end = end.min(len);
    let mut body = &bytes[start as usize..end as usize];
    let shift = u64::from(fault == Some(Fault::OtherRange));
    let mut first = format!(
        "206 Partial Content\r\nContent-Range: bytes {}-{}/{len}",
        start + shift,
        end.max(1) - 1 + shift
    );
    match fault {
        _ if range.is_none() => first = "200 OK".into(),
        Some(Fault::NoRange) => (first, body) = ("200 OK".into(), &bytes),
        Some(Fault::StarRange) => first = format!("206 Partial Content\r\nContent-Range: bytes */{len}"),
        Some(Fault::Short) => body = &body[..body.len() / 2],
        _ => {}
    }
    if matches!(fault, Some(Fault::Chunked | Fault::CutChunks | Fault::NoLength)) {
        let coding = if fault == Some(Fault::NoLength) { "" } else { "Transfer-Encoding: chunked\r\n" };
        write!(stream, "HTTP/1.1 {first}\r\n{coding}{headers}\r\n")?;
        let sent = if fault == Some(Fault::CutChunks) { &body[..body.len() / 2] } else { body };
        for part in sent.chunks(1000) {
            if fault == Some(Fault::NoLength) {
                stream.write_all(part)?;
            } else {
                write!(stream, "{:x}\r\n", part.len())?;
                stream.write_all(part)?;
                stream.write_all(b"\r\n")?;
            }
        }
        if fault == Some(Fault::Chunked) {
            stream.write_all(b"0\r\n\r\n")?;
        }
        return Ok(fault == Some(Fault::Chunked));
    }
    write!(stream, "HTTP/1.1 {first}\r\nContent-Length: {}\r\n{headers}\r\n", body.len())?;
    match fault {
        Some(Fault::Cut) => {
            stream.write_all(&body[..body.len() / 2])?;
            return Ok(false);
        }
        Some(Fault::Stalls) => {
            stream.write_all(&body[..body.len() / 2])?;
            until_closed(stream)?;
            return Ok(false);
        }
        Some(Fault::Slow) => {
            stream.set_read_timeout(Some(Duration::from_millis(20)))?;
            for byte in body {
                stream.write_all(&[*byte])?;
                // The pause ends early when the client has gone.
                if stream.read(&mut [0]).is_ok_and(|read| read == 0) {
                    return Ok(false);
                }
            }
            stream.set_read_timeout(None)?;
        }
        _ => {
            for part in body.chunks(4096) {
                stream.write_all(part)?;
                state.sent.fetch_add(part.len() as u64, Ordering::SeqCst);
            }
        }
    }
    Ok(true)
}

/// Waits until the client closes the connection.
fn until_closed(mut stream: &TcpStream) -> std::io::Result<()> {
    while stream.read(&mut [0; 64])? > 0 {}
    Ok(())
}
