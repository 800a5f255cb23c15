//! The version of an object, as an answer states it.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use object_store::ObjectMeta;

use super::kept::{number, string, text};
use crate::error::one_line;

/// Write times are in whole seconds, and clocks differ. For this long after a write, another write may have
/// the same version.
const SETTLED: Duration = Duration::from_secs(2);

/// The ETag, the time of the last write and the length of an object.
#[derive(Clone, Debug)]
pub(super) struct Tag {
    etag: Option<String>,
    /// The time of the last write, if the server states it.
    modified: Option<String>,
    /// `modified` in seconds since 1970.
    seconds: Option<u64>,
    /// Bytes of the whole object.
    pub(super) len: u64,
}

impl Tag {
    pub(super) fn of_meta(meta: &ObjectMeta) -> Self {
        // The crate returns 1970-01-01 if the server states no time.
        let modified = Some(meta.last_modified).filter(|time| time.timestamp() != 0);
        Self {
            etag: meta.e_tag.clone(),
            modified: modified.map(|time| time.to_string()),
            seconds: modified.and_then(|time| time.timestamp().try_into().ok()),
            len: meta.size,
        }
    }

    /// Appends the version to a kept listing.
    pub(super) fn write(&self, to: &mut Vec<u8>) {
        for part in [&self.etag, &self.modified] {
            to.extend(u64::from(part.is_some()).to_le_bytes());
            text(to, part.as_deref().unwrap_or_default());
        }
        for part in [self.seconds.map_or(0, |_| 1), self.seconds.unwrap_or_default(), self.len] {
            to.extend(part.to_le_bytes());
        }
    }

    /// Reads a version that [`write`](Self::write) wrote from the front of `from`, and removes it.
    pub(super) fn read(from: &mut &[u8]) -> Option<Self> {
        let mut part = || Some((number(from)? == 1, string(from)?));
        let [etag, modified] = [part()?, part()?].map(|(is_there, text)| is_there.then_some(text));
        let (is_there, seconds, len) = (number(from)? == 1, number(from)?, number(from)?);
        Some(Self { etag, modified, seconds: is_there.then_some(seconds), len })
    }

    /// The ETag, if it is strong. A weak ETag may stand for objects with different bytes.
    pub(super) fn strong(&self) -> Option<&str> {
        self.etag.as_deref().filter(|etag| !etag.starts_with("W/"))
    }

    /// How long another write may still have this version. If only the write time identifies a version, this
    /// is until the second of the last write has passed. `None` if no other write can have this version.
    pub(super) fn settles_in(&self, now: SystemTime) -> Option<Duration> {
        let seconds = self.seconds?;
        // nginx makes this ETag from the time and the length.
        let of_time = format!("\"{seconds:x}-{:x}\"", self.len);
        if self.strong().is_some_and(|etag| etag != of_time) {
            return None;
        }
        let settled = UNIX_EPOCH.checked_add(Duration::from_secs(seconds))?.checked_add(SETTLED)?;
        // A longer wait means that the clocks differ. So the time is ignored.
        settled.duration_since(now).ok().filter(|wait| *wait <= 2 * SETTLED)
    }

    pub(super) fn is_same(&self, other: &Self) -> bool {
        // Machines of one store may state different times for the same version.
        let is_strong = self.strong().is_some() && other.strong().is_some();
        self.etag == other.etag && self.len == other.len && (is_strong || self.modified == other.modified)
    }
}

impl fmt::Display for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.etag, &self.modified) {
            (Some(etag), _) => write!(f, "ETag {}, ", one_line(etag))?,
            (None, Some(modified)) => write!(f, "written {modified}, ")?,
            (None, None) => {}
        }
        write!(f, "{} bytes", self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WRITTEN: u64 = 1_800_000_000;

    fn tag(etag: Option<&str>, seconds: Option<u64>) -> Tag {
        Tag {
            etag: etag.map(str::to_owned),
            modified: seconds.map(|seconds| seconds.to_string()),
            seconds,
            len: 255,
        }
    }

    #[test]
    fn a_version_settles_when_the_second_of_its_write_has_passed() {
        let at = |seconds: u64| UNIX_EPOCH + Duration::from_secs(seconds);
        let of_time = format!("\"{WRITTEN:x}-ff\"");
        for etag in [None, Some("W/\"a\""), Some(of_time.as_str())] {
            let tag = tag(etag, Some(WRITTEN));
            assert_eq!(tag.settles_in(at(WRITTEN)), Some(SETTLED), "{etag:?}");
            assert_eq!(tag.settles_in(at(WRITTEN + 1)), Some(Duration::from_secs(1)), "{etag:?}");
            assert_eq!(tag.settles_in(at(WRITTEN + 3)), None, "{etag:?}");
            assert_eq!(tag.settles_in(at(WRITTEN - 3600)), None, "a clock that is an hour off");
        }
        assert_eq!(tag(Some("\"a\""), Some(WRITTEN)).settles_in(at(WRITTEN)), None);
        assert_eq!(tag(None, None).settles_in(at(WRITTEN)), None);
    }

    #[test]
    fn a_weak_tag_needs_the_time_too() {
        let (one, two) = (Some(WRITTEN), Some(WRITTEN + 1));
        assert!(tag(Some("\"a\""), one).is_same(&tag(Some("\"a\""), two)));
        assert!(!tag(Some("W/\"a\""), one).is_same(&tag(Some("W/\"a\""), two)));
        assert!(!tag(None, one).is_same(&tag(None, two)) && tag(None, one).is_same(&tag(None, one)));
        assert!(!tag(Some("\"a\""), one).is_same(&tag(Some("\"b\""), one)));
    }
}
