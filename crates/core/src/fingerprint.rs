//! Fingerprints of data sets, for custom [`Dataset::fingerprint`](crate::Dataset::fingerprint) methods.

use std::cell::RefCell;
use std::fs::{self, File, Metadata};
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;
use std::time::UNIX_EPOCH;

use crate::random::{key, splitmix64};
use crate::{Error, ErrorKind, Result, Spec};

/// Bytes hashed per round.
const ROUND: usize = 32;

/// Bytes of a file read at a time; a multiple of [`ROUND`].
const BLOCK: usize = 1 << 20;

/// Files up to this length are sampled as a whole.
const SAMPLED_WHOLE: u64 = 512 << 10;
/// Bytes of one part of a sampled file.
const SAMPLED_PART: u64 = 64 << 10;
/// Parts between the first and the last one. All parts together have the bytes of [`SAMPLED_WHOLE`].
const SAMPLED_BETWEEN: u64 = SAMPLED_WHOLE / SAMPLED_PART - 2;

/// A 64-bit hash of everything added to it, in order; the same on every machine.
///
/// Detects changes, not forgery. There are three ways to cover a file:
///
/// | method | covers | costs |
/// | --- | --- | --- |
/// | [`file`](Self::file) | name, size, time of the last write | a system call |
/// | [`file_content`](Self::file_content) | only the bytes | reading the file |
/// | [`file_sampled`](Self::file_sampled) | the length, and up to 512 KiB of the bytes | reading them |
///
/// A copy of a file has another time, so a run resumes from a copy only with the last two.
///
/// ```
/// use feedline_core::Fingerprint;
/// let path = std::env::temp_dir().join(format!("feedline-doc-fingerprint-{}", std::process::id()));
/// std::fs::write(&path, "some data")?;
/// // Compute this once, in the constructor of the data set, and return it from `Dataset::fingerprint`.
/// let before = Fingerprint::new().number(2).file(&path)?.file_content(&path)?.value();
///
/// std::fs::write(&path, "same size")?;
/// let after = Fingerprint::new().number(2).file(&path)?.file_content(&path)?.value();
/// assert_ne!(before, after);
/// # std::fs::remove_file(&path)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct Fingerprint(u64);

impl Fingerprint {
    /// The empty fingerprint.
    pub const fn new() -> Self {
        Self(u64::from_le_bytes(*b"contents"))
    }

    /// Adds a number, such as a length or a version.
    pub const fn number(self, number: u64) -> Self {
        Self(key(&[self.0, number]))
    }

    /// Adds the names, types and shapes of the fields.
    pub fn spec(self, spec: &Spec) -> Self {
        Self(crate::dataset::spec_key(self.0, spec))
    }

    /// Adds bytes and their length. Takes about 0.2 ns per byte.
    pub fn bytes(self, bytes: &[u8]) -> Self {
        let mut lanes = Lanes::new();
        lanes.add(bytes);
        lanes.end(self)
    }

    /// Adds a file's name (without its folder), size and time of the last write. Does not read the file. A
    /// copy that keeps the time has the same value. A file that was overwritten and given its old time also
    /// has the same value; use [`file_content`](Self::file_content) if that may happen.
    ///
    /// # Errors
    /// `Data` when the file does not exist or is not a regular file, or the file system does not report its
    /// time.
    pub fn file(self, path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let metadata = regular(path)?;
        let written = metadata.modified().map_err(|error| cannot(path, error))?;
        let nanos = match written.duration_since(UNIX_EPOCH) {
            Ok(after) => after.as_nanos() as u64,
            Err(before) => !(before.duration().as_nanos() as u64),
        };
        let name = path.file_name().unwrap_or_default();
        Ok(self.bytes(name.as_encoded_bytes()).number(metadata.len()).number(nanos))
    }

    /// Adds the content of a file, like [`bytes`](Self::bytes). Reads 1 MiB at a time.
    ///
    /// # Errors
    /// `Data` when the file cannot be read or is not a regular file.
    pub fn file_content(self, path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        regular(path)?;
        let file = File::open(path).map_err(|error| cannot(path, error))?;
        self.reader(file).map_err(|error| cannot(path, error))
    }

    /// Adds the length of a file and a sample of its bytes: all bytes up to 512 KiB; of a longer file the
    /// first and the last 64 KiB, and 64 KiB in each of six equal parts between them, at offsets that depend
    /// only on the length. Changes elsewhere are not detected; name and time are not covered.
    ///
    /// # Errors
    /// `Data` when the file cannot be read or is not a regular file.
    pub fn file_sampled(self, path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let len = regular(path)?.len();
        let unreadable = |error| cannot(path, error);
        let mut file = File::open(path).map_err(unreadable)?;
        self.sampled(len, |offset, to| {
            file.seek(SeekFrom::Start(offset)).and_then(|_| file.read_exact(to)).map_err(unreadable)
        })
    }

    /// As [`file_sampled`](Self::file_sampled), for `len` bytes that `read` copies from an offset on.
    ///
    /// # Errors
    /// The errors of `read`.
    pub fn sampled<E>(
        self,
        len: u64,
        mut read: impl FnMut(u64, &mut [u8]) -> Result<(), E>,
    ) -> Result<Self, E> {
        let mut part = vec![0; len.min(SAMPLED_WHOLE) as usize];
        if len <= SAMPLED_WHOLE {
            read(0, &mut part)?;
            return Ok(self.bytes(&part));
        }
        part.truncate(SAMPLED_PART as usize);
        let between = (len - 2 * SAMPLED_PART) / SAMPLED_BETWEEN;
        let places = (0..SAMPLED_BETWEEN).map(|number| {
            let random = key(&[u64::from_le_bytes(*b"sampled "), len, number]);
            SAMPLED_PART + number * between + random % (between - SAMPLED_PART + 1)
        });
        let mut state = self.number(len);
        for offset in [0].into_iter().chain(places).chain([len - SAMPLED_PART]) {
            read(offset, &mut part)?;
            state = state.bytes(&part);
        }
        Ok(state)
    }

    /// Adds everything that `reader` yields, like [`bytes`](Self::bytes). Reads 1 MiB at a time.
    ///
    /// # Errors
    /// The errors of `reader`.
    pub fn reader(self, mut reader: impl Read) -> std::io::Result<Self> {
        let mut lanes = Lanes::new();
        let mut block = Vec::with_capacity(BLOCK);
        while reader.by_ref().take(BLOCK as u64).read_to_end(&mut block)? > 0 {
            lanes.add(&block);
            block.clear();
        }
        Ok(lanes.end(self))
    }

    /// The hash value.
    pub const fn value(self) -> u64 {
        self.0
    }
}

impl Default for Fingerprint {
    fn default() -> Self {
        Self::new()
    }
}

thread_local! {
    /// The first error of this thread that left data out of a fingerprint.
    static UNREAD: RefCell<Option<Error>> = const { RefCell::new(None) };
}

/// `Dataset::fingerprint` returns a number, whatever happens: errors come beside it.
impl Fingerprint {
    /// Leaves out data that could not be read. [`checked`](Self::checked) returns the `error`.
    pub fn unread(self, error: Error) -> Self {
        UNREAD.with_borrow_mut(|unread| {
            unread.get_or_insert(error);
        });
        self.bytes(b"unread")
    }

    /// The fingerprint that `compute` returns, if it covers all of the data. If the fingerprint covered only
    /// a part of the data, a cursor could be refused for equal data, or accepted for changed data.
    ///
    /// # Errors
    /// The first error that `compute`, on this thread, has given to [`unread`](Self::unread).
    pub fn checked(compute: impl FnOnce() -> u64) -> Result<u64> {
        let (value, unread) = Self::watched(compute);
        unread.map_or(Ok(value), Err)
    }

    /// The fingerprint that `compute` returns, and the first error that it passed to
    /// [`unread`](Self::unread): then the fingerprint does not cover all data.
    pub(crate) fn watched(compute: impl FnOnce() -> u64) -> (u64, Option<Error>) {
        let before = UNREAD.take();
        let value = compute();
        (value, UNREAD.replace(before))
    }
}

/// Four independent hash chains, each over every fourth word, for instruction-level parallelism.
struct Lanes {
    lanes: [u64; 4],
    len: u64,
}

impl Lanes {
    fn new() -> Self {
        Self { lanes: [1, 2, 3, 4], len: 0 }
    }

    /// Hashes the next bytes. The length must be a multiple of [`ROUND`], except in the last call.
    fn add(&mut self, bytes: &[u8]) {
        self.len = self.len.wrapping_add(bytes.len() as u64);
        let (rounds, rest) = bytes.as_chunks::<ROUND>();
        rounds.iter().for_each(|round| self.round(round));
        if !rest.is_empty() {
            let mut padded = [0; ROUND];
            padded[..rest.len()].copy_from_slice(rest);
            self.round(&padded);
        }
    }

    fn round(&mut self, bytes: &[u8; ROUND]) {
        let (words, _) = bytes.as_chunks::<8>();
        for (lane, word) in self.lanes.iter_mut().zip(words) {
            *lane = splitmix64(*lane ^ u64::from_le_bytes(*word));
        }
    }

    fn end(self, state: Fingerprint) -> Fingerprint {
        self.lanes.into_iter().fold(state.number(self.len), Fingerprint::number)
    }
}

/// Checked before opening the file: opening a named pipe blocks until it has a writer.
fn regular(path: &Path) -> Result<Metadata> {
    let metadata = fs::metadata(path).map_err(|error| cannot(path, error))?;
    if metadata.is_file() {
        return Ok(metadata);
    }
    Err(Error::new(ErrorKind::Data, "not a regular file: give the path of a regular file").at_path(path))
}

fn cannot(path: &Path, error: std::io::Error) -> Error {
    Error::new(ErrorKind::Data, "cannot read the file for its fingerprint, check the path")
        .with_source(error)
        .at_path(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(bytes: &[u8]) -> u64 {
        Fingerprint::new().bytes(bytes).value()
    }

    #[test]
    fn every_bit_and_every_length_changes_the_value() {
        let bytes: Vec<u8> = (0..100).collect();
        let mut seen = std::collections::HashSet::from([of(&bytes)]);
        for at in 0..bytes.len() {
            for bit in 0..8 {
                let mut other = bytes.clone();
                other[at] ^= 1 << bit;
                assert!(seen.insert(of(&other)), "byte {at}, bit {bit}");
            }
        }
        for len in 0..200 {
            assert!(seen.insert(of(&vec![0; len])), "{len} zeros");
        }
        let apart = Fingerprint::new().bytes(b"ab").bytes(b"c").value();
        assert_ne!(apart, Fingerprint::new().bytes(b"a").bytes(b"bc").value());
    }

    #[test]
    fn swapped_words_change_the_value_within_a_round_and_between_rounds() {
        let words = |words: [u64; 8]| of(&words.map(u64::to_le_bytes).concat());
        let one = words([1, 2, 3, 4, 5, 6, 7, 8]);
        assert_ne!(one, words([2, 1, 3, 4, 5, 6, 7, 8]));
        assert_ne!(one, words([5, 2, 3, 4, 1, 6, 7, 8]));
        assert_ne!(one, words([5, 6, 7, 8, 1, 2, 3, 4]));
    }

    #[test]
    fn an_error_that_left_data_out_comes_out_once_and_of_its_own_computation() {
        let failing = |why: &str| Fingerprint::new().unread(Error::new(ErrorKind::Data, why)).value();
        let inner = || Fingerprint::checked(|| failing("inner"));
        let error = Fingerprint::checked(|| {
            assert_eq!(inner().unwrap_err().message(), "inner");
            failing("first") ^ failing("second")
        });
        assert_eq!(error.unwrap_err().message(), "first");
        failing("nobody asks");
        assert_eq!(Fingerprint::checked(|| 7).unwrap(), 7);
        assert_ne!(failing("x"), Fingerprint::new().value());
    }

    /// Cursors contain fingerprints, so the values must never change.
    #[test]
    fn values_are_stable() {
        assert_eq!([of(b""), of(b"feedline")], GOLDEN);
    }

    const GOLDEN: [u64; 2] = [0xC6E9_AED2_4C23_56A2, 0x6729_8BB5_E6F3_36CE];
}
