//! A source of iterators.

use std::fmt;

use crate::source::{Next, Shard, Source};
use crate::{Context, ReadError, Row, Spec};

type Records = Box<dyn Iterator<Item = Result<Vec<u8>, ReadError>> + Send>;
type Open = dyn Fn(u64, u64) -> Result<Records, ReadError> + Send + Sync;
type Decode = dyn Fn(&[u8], &mut Row<'_, '_>, &mut Context) -> Result<(), ReadError> + Send + Sync;

/// A source whose shards are iterators over records; created by [`from_iter`].
pub struct FromIter {
    shards: u64,
    spec: Spec,
    version: u64,
    open: Box<Open>,
    decode: Box<Decode>,
}

/// A source of `shards` iterators: `open` gets an epoch and the number of a shard, and returns the raw
/// records of the shard. `decode` writes a record into its row of `spec`.
///
/// The same epoch and shard must yield the same records at each call. The offset of a record is its number,
/// so a run that resumes inside a shard reads and drops the records before it. Implement [`Source`] if a
/// shard can seek, or may have no record for a while.
///
/// ```
/// use std::io::BufRead;
///
/// use feedline_core::source::{self, Source};
/// use feedline_core::{DType, Spec};
///
/// let shards = ["1\n2\n3\n", "4\n5\n"]; // in a program: files, sockets, archives
/// let spec = Spec::new().field("x", DType::F32, [])?;
/// let source = source::from_iter(
///     2,
///     spec,
///     move |_epoch, shard| {
///         let lines = std::io::Cursor::new(shards[shard as usize]).split(b'\n');
///         Ok(lines.map(|line| Ok(line?)))
///     },
///     |line, row, _| {
///         row.field_mut::<f32>(0)?[0] = std::str::from_utf8(line)?.parse()?;
///         Ok(())
///     },
/// );
/// assert_eq!(source.shards(), 2);
/// # Ok::<(), feedline_core::Error>(())
/// ```
pub fn from_iter<I>(
    shards: u64,
    spec: Spec,
    open: impl Fn(u64, u64) -> Result<I, ReadError> + Send + Sync + 'static,
    decode: impl Fn(&[u8], &mut Row<'_, '_>, &mut Context) -> Result<(), ReadError> + Send + Sync + 'static,
) -> FromIter
where
    I: Iterator<Item = Result<Vec<u8>, ReadError>> + Send + 'static,
{
    let open = move |epoch, shard| Ok(Box::new(open(epoch, shard)?) as Records);
    FromIter { shards, spec, version: 0, open: Box::new(open), decode: Box::new(decode) }
}

impl FromIter {
    /// Sets the version of the data, which the fingerprint covers: change it when the records change, so that
    /// cursors of the old records are rejected. 0 by default.
    pub fn version(self, version: u64) -> Self {
        Self { version, ..self }
    }
}

impl Source for FromIter {
    fn shards(&self) -> u64 {
        self.shards
    }

    fn spec(&self) -> &Spec {
        &self.spec
    }

    fn open(&self, epoch: u64, shard: u64, offset: u64) -> Result<Box<dyn Shard>, ReadError> {
        let mut records = (self.open)(epoch, shard)?;
        for number in 0..offset {
            match records.next() {
                Some(record) => drop(record?),
                None => return Err(format!("the shard has {number} records, not {offset}").into()),
            }
        }
        Ok(Box::new(OpenIter { records, number: offset }))
    }

    fn decode(&self, record: &[u8], row: &mut Row<'_, '_>, context: &mut Context) -> Result<(), ReadError> {
        (self.decode)(record, row, context)
    }

    fn version(&self) -> u64 {
        self.version
    }
}

impl fmt::Debug for FromIter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FromIter({} shards)", self.shards)
    }
}

struct OpenIter {
    records: Records,
    number: u64,
}

impl Shard for OpenIter {
    fn offset(&self) -> u64 {
        self.number
    }

    fn read(&mut self, record: &mut Vec<u8>) -> Result<Next, ReadError> {
        let Some(read) = self.records.next() else { return Ok(Next::End) };
        record.extend(read?);
        self.number += 1;
        Ok(Next::Record)
    }
}
