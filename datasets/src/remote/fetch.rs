//! Fetches one block from a store. Retries up to a max number of attempts and a time limit.

use std::error::Error as StdError;
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use feedline_core::{Error, Fingerprint, Result, named};
use futures_util::StreamExt;
use object_store::client::{HttpError, HttpErrorKind};
use object_store::{Error as StoreError, GetOptions, GetRange, GetResult};

use super::tag::Tag;
use super::url::Place;
use super::whole::{PAGE, check_encoding};
use super::{Counts, RemoteOptions};
use crate::error::{Unanswered, data, one_line};

/// The max wait between two attempts.
const MAX_WAIT: Duration = Duration::from_secs(10);
/// Max attempts to open an object that was just written. After them, it is refused.
const OPENINGS: u32 = 3;

/// A range of an object to fetch.
pub(super) struct Fetch<'a> {
    pub(super) place: &'a Place,
    pub(super) range: Range<u64>,
    /// The version that the answer must have. `None` while the object is being opened.
    pub(super) pinned: Option<&'a Tag>,
}

/// The error of an attempt, or of a fetch after all attempts.
pub(super) struct Failure {
    pub(super) error: Error,
    pub(super) kind: FailureKind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum FailureKind {
    /// Transient: another attempt may succeed.
    Passing,
    /// Transient, and no connection was made.
    Unreachable,
    Lasting,
    /// The object's version has changed.
    Changed,
}

impl Failure {
    pub(super) fn passing(why: impl Into<String>) -> Self {
        Self { error: data(why), kind: FailureKind::Passing }
    }

    pub(super) fn lasting(why: impl Into<String>) -> Self {
        Self { error: data(why), kind: FailureKind::Lasting }
    }

    /// Whether there is no such object.
    pub(super) fn is_of_no_object(&self) -> bool {
        self.error.message() == NO_OBJECT
    }

    /// Whether the server does not support ranges.
    pub(super) fn is_about_ranges(&self) -> bool {
        self.error.message() == NO_RANGES
    }
}

impl Fetch<'_> {
    /// Returns the bytes and the version to pin. Waits as long as another write could leave the version
    /// unchanged.
    pub(super) async fn open(
        &self,
        options: &RemoteOptions,
        counts: &Counts,
    ) -> Result<(Bytes, Tag), Failure> {
        for _ in 0..OPENINGS {
            let (bytes, tag) = self.run(options, counts).await?;
            match tag.settles_in(SystemTime::now()) {
                Some(wait) => tokio::time::sleep(wait).await,
                None => return Ok((bytes, tag)),
            }
        }
        Err(Failure::lasting("the object is written to all the time: open it when its writer is done"))
    }

    /// Returns the bytes and their version.
    pub(super) async fn run(
        &self,
        options: &RemoteOptions,
        counts: &Counts,
    ) -> Result<(Bytes, Tag), Failure> {
        let what = format!("fetch {} bytes", self.range.end - self.range.start);
        let what = (what.as_str(), self.range.start);
        let (bytes, tag) = retried(self.place, options, counts, what, || self.once()).await?;
        counts.bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        Ok((bytes, tag))
    }

    async fn once(&self) -> Result<(Bytes, Tag), Failure> {
        let answer = match self.get(&self.range, self.pinned.and_then(Tag::strong)).await {
            // Repeat the request without the condition, so that the answer names the current version.
            Err(StoreError::Precondition { .. }) => self.get(&self.range, None).await,
            answer => answer,
        };
        let answer = match answer {
            Ok(answer) => answer,
            Err(error) if is_beyond(&error) => return Err(self.beyond().await),
            Err(error) => return Err(failure(&error)),
        };
        check_encoding(&answer.attributes)?;
        let tag = Tag::of_meta(&answer.meta);
        self.check(&tag)?;
        let expected = answer.range.end.saturating_sub(answer.range.start);
        let asked = self.range.end.min(tag.len).saturating_sub(self.range.start);
        if answer.range.start != self.range.start || expected != asked {
            return Err(Failure::passing(format!(
                "the server answered bytes {} to {} where {} to {} were asked for",
                answer.range.start, answer.range.end, self.range.start, self.range.end
            )));
        }
        let mut bytes = Vec::with_capacity(expected as usize);
        let mut body = answer.into_stream();
        while let Some(part) = body.next().await {
            let part = part.map_err(|error| failure(&error))?;
            if bytes.len() + part.len() > expected as usize {
                return Err(Failure::passing(format!("the answer is longer than its {expected} bytes")));
            }
            bytes.extend_from_slice(&part);
        }
        if bytes.len() < expected as usize {
            let why = format!("the answer ends after {} of its {expected} bytes", bytes.len());
            return Err(Failure::passing(why));
        }
        Ok((bytes.into(), tag))
    }

    /// Requests a range. With `if_match`, only the version with this ETag is accepted.
    async fn get(&self, range: &Range<u64>, if_match: Option<&str>) -> Result<GetResult, StoreError> {
        let range = Some(GetRange::Bounded(range.clone()));
        let options = GetOptions { range, if_match: if_match.map(str::to_owned), ..Default::default() };
        self.place.store.get_opts(&self.place.path, options).await
    }

    /// Checks that the answer's version `now` is the pinned version.
    fn check(&self, now: &Tag) -> Result<(), Failure> {
        match self.pinned {
            Some(pinned) if !pinned.is_same(now) => {
                let why = format!(
                    "the object was written to while it was in use, this is another version: it had \
                     {pinned}, and has {now}; start again when its writer is done"
                );
                Err(Failure { error: data(why), kind: FailureKind::Changed })
            }
            _ => Ok(()),
        }
    }

    /// The error for a range beyond the end of the object. The object was truncated or is empty.
    async fn beyond(&self) -> Failure {
        if self.pinned.is_none() {
            // The object is empty, or the server refuses a range beyond the object's end.
            return Failure::lasting(NO_RANGES);
        }
        match self.get(&(0..1), None).await {
            Ok(answer) => match self.check(&Tag::of_meta(&answer.meta)) {
                Err(changed) => changed,
                Ok(()) => Failure::passing("the server answered with status 416 to a range of the object"),
            },
            Err(error) if is_beyond(&error) => {
                let error = data("the object was emptied while it was in use: restore it");
                Failure { error, kind: FailureKind::Changed }
            }
            Err(error) => failure(&error),
        }
    }
}

/// Calls `once` until it succeeds, fails for good, or attempts or time run out. `what` describes the request
/// in errors. The request's number varies the back-off.
pub(super) async fn retried<T, F: Future<Output = Result<T, Failure>>>(
    place: &Place,
    options: &RemoteOptions,
    counts: &Counts,
    (what, number): (&str, u64),
    once: impl Fn() -> F,
) -> Result<T, Failure> {
    let begun = Instant::now();
    let mut attempt = 1;
    loop {
        counts.requests.fetch_add(1, Ordering::Relaxed);
        let limit = options.request_time.min(options.total_time.saturating_sub(begun.elapsed()));
        let failure = match tokio::time::timeout(limit, once()).await {
            Ok(Ok(done)) => return Ok(done),
            Ok(Err(failure)) => failure,
            Err(_) => Failure::passing(format!("no whole answer within {limit:.1?}")),
        };
        if !matches!(failure.kind, FailureKind::Passing | FailureKind::Unreachable) {
            return Err(failure);
        }
        let wait = wait(place, number, options.backoff, attempt);
        if attempt >= options.attempts || begun.elapsed() + wait >= options.total_time {
            let tries = format!("after {attempt} attempts in {:.1?}", begun.elapsed());
            let why = match failure.kind {
                FailureKind::Unreachable => format!(
                    "cannot reach {} {tries}: check the URL, the server and the network",
                    place.host()
                ),
                _ => {
                    format!("cannot {what} {tries}: check the server and the network, or allow more attempts")
                }
            };
            let error = data(why).with_source(Unanswered(failure.error.message().to_owned()));
            return Err(Failure { error, ..failure });
        }
        counts.retries.fetch_add(1, Ordering::Relaxed);
        tokio::time::sleep(wait).await;
        attempt += 1;
    }
}

/// Exponential back-off after attempt `attempt`. The jitter depends on the request.
fn wait(place: &Place, number: u64, first: Duration, attempt: u32) -> Duration {
    let full = first.saturating_mul(1 << (attempt - 1).min(20)).min(MAX_WAIT);
    let state = Fingerprint::new().number(number).number(attempt.into());
    let state = state.number(std::process::id().into()).bytes(place.shown.as_bytes());
    full.mul_f64(1.0 - (state.value() % 1024) as f64 / 2048.0)
}

/// Whether the server says that the range lies beyond the object.
fn is_beyond(error: &StoreError) -> bool {
    status(&error.to_string()) == Some(416)
}

const NO_ACCESS: &str = "the store refuses access: check the credentials and their rights";

const NO_OBJECT: &str = "there is no such object: check the URL";

/// Whether `error` means that the URL may name a folder: there is no such object, or there is only a web
/// page.
pub(crate) fn may_be_folder(error: &Error) -> bool {
    [NO_OBJECT, PAGE].contains(&error.message())
}

/// Whether `error` means that there is no such object.
#[cfg(feature = "zarr")]
pub(crate) fn is_missing(error: &Error) -> bool {
    error.message() == NO_OBJECT
}

/// Describes an error. Omits text from the URL, a header or a body, which may be secret.
pub(super) fn failure(error: &StoreError) -> Failure {
    match error {
        StoreError::NotFound { .. } => return Failure::lasting(NO_OBJECT),
        StoreError::PermissionDenied { .. } | StoreError::Unauthenticated { .. } => {
            return Failure::lasting(NO_ACCESS);
        }
        StoreError::NotSupported { .. } => return Failure::lasting(NO_RANGES),
        _ => {}
    }
    let mut cause: Option<&(dyn StdError + 'static)> = Some(error);
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref::<HttpError>() {
            return match error.kind() {
                HttpErrorKind::Connect => unreachable(error),
                HttpErrorKind::Timeout => Failure::passing("the server did not answer in time"),
                _ if says(error, "redirect") => Failure::lasting(
                    "the server redirects in a circle, or to where it must not: check the URL",
                ),
                _ if says(error, "scheme is not allowed") => Failure::lasting(format!(
                    "the endpoint of the store is plain http, which must be allowed: {}",
                    named(
                        "add the option (\"allow_http\", \"true\") to RemoteOptions::store, or set \
                         AWS_ALLOW_HTTP=true",
                        "set AWS_ALLOW_HTTP=true in the environment"
                    )
                )),
                _ => Failure::passing("the connection ended before the answer was whole"),
            };
        }
        cause = error.source();
    }
    let text = error.to_string();
    if let Some(status) = status(&text) {
        let why = format!("the server answered with status {status}");
        // 408, 425 and 429 are transient. Other 4xx are mistakes of the client.
        if matches!(status, 401 | 403) {
            return Failure::lasting(NO_ACCESS);
        }
        let may_pass = status >= 500 || matches!(status, 408 | 425 | 429);
        return if may_pass { Failure::passing(why) } else { Failure::lasting(why) };
    }
    if text.contains("non-partial response") {
        return Failure::lasting(NO_RANGES);
    }
    if text.contains("Requested ") {
        return Failure::passing("the server answered with another range than it was asked for");
    }
    if text.contains("Content-Range") || text.contains("CONTENT_RANGE") {
        return Failure::passing(
            "the server does not say which bytes it sent: its Content-Range is not a range",
        );
    }
    if text.contains("redirect without LOCATION") {
        return Failure::lasting(
            "the server redirects to nowhere: check the URL, and the region of the store",
        );
    }
    if text.to_lowercase().contains("header") {
        return Failure::passing("the server's answer has a header that cannot be read");
    }
    Failure::passing("the request could not be made: check the options and the credentials")
}

/// The reason that the operating system gives for a failed connection.
fn unreachable(error: &HttpError) -> Failure {
    let mut why = "cannot connect".to_owned();
    let mut cause = error.source();
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref::<std::io::Error>() {
            let text = error.to_string();
            // Other texts may contain the request.
            if error.raw_os_error().is_some() || text.starts_with("failed to lookup address information") {
                why = format!("cannot connect: {}", one_line(text));
            }
        }
        cause = error.source();
    }
    Failure { error: data(why), kind: FailureKind::Unreachable }
}

/// Whether a cause of `error` says `part`. A refused redirect says so: there were too many, or one led from
/// https to http.
fn says(error: &HttpError, part: &str) -> bool {
    let mut cause = error.source();
    while let Some(error) = cause {
        if error.to_string().contains(part) {
            return true;
        }
        cause = error.source();
    }
    false
}

const NO_RANGES: &str = "the server does not answer requests for a range of bytes: download the file";

/// The HTTP status in the text of an error.
fn status(text: &str) -> Option<u16> {
    let (_, after) = text.split_once("status code: ")?;
    after.get(..3)?.parse().ok()
}
