//! A source with something done before each of its calls.

use std::path::Path;
use std::sync::Arc;

use feedline_core::source::{Next, Shard, Source};
use feedline_core::{Context, ReadError, Row, Spec};

type Hook<A> = Box<dyn Fn(A) -> Result<(), ReadError> + Send + Sync>;

/// Where a source is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The epoch.
    pub epoch: u64,
    /// The shard.
    pub shard: u64,
    /// Where in it.
    pub offset: u64,
}

/// The source `S`, with closures called before it is opened, read and decoded; an error from one is the call's.
pub struct Hooked<S> {
    inner: S,
    before_open: Hook<Place>,
    before_read: Arc<Hook<(u64, u64)>>,
    before_decode: Hook<u64>,
}

impl<S: Source> Hooked<S> {
    /// The source as it is.
    pub fn new(inner: S) -> Self {
        Self {
            inner,
            before_open: Box::new(|_| Ok(())),
            before_read: Arc::new(Box::new(|_| Ok(()))),
            before_decode: Box::new(|_| Ok(())),
        }
    }

    /// Calls `hook` before a shard is opened.
    pub fn before_open(self, hook: impl Fn(Place) -> Result<(), ReadError> + Send + Sync + 'static) -> Self {
        Self { before_open: Box::new(hook), ..self }
    }

    /// Calls `hook` before a record is read, with its shard and offset.
    pub fn before_read(
        self,
        hook: impl Fn((u64, u64)) -> Result<(), ReadError> + Send + Sync + 'static,
    ) -> Self {
        Self { before_read: Arc::new(Box::new(hook)), ..self }
    }

    /// Calls `hook` before a record is decoded, with the sample's id.
    pub fn before_decode(self, hook: impl Fn(u64) -> Result<(), ReadError> + Send + Sync + 'static) -> Self {
        Self { before_decode: Box::new(hook), ..self }
    }
}

struct HookedShard {
    shard: u64,
    inner: Box<dyn Shard>,
    before_read: Arc<Hook<(u64, u64)>>,
}

impl<S: Source> Source for Hooked<S> {
    fn shards(&self) -> u64 {
        self.inner.shards()
    }

    fn spec(&self) -> &Spec {
        self.inner.spec()
    }

    fn open(&self, epoch: u64, shard: u64, offset: u64) -> Result<Box<dyn Shard>, ReadError> {
        (self.before_open)(Place { epoch, shard, offset })?;
        let inner = self.inner.open(epoch, shard, offset)?;
        Ok(Box::new(HookedShard { shard, inner, before_read: self.before_read.clone() }))
    }

    fn decode(&self, record: &[u8], row: &mut Row<'_, '_>, context: &mut Context) -> Result<(), ReadError> {
        (self.before_decode)(context.current().map_or(0, |(_, id)| id))?;
        self.inner.decode(record, row, context)
    }

    fn path(&self, shard: u64) -> Option<&Path> {
        self.inner.path(shard)
    }

    fn fingerprint(&self) -> u64 {
        self.inner.fingerprint()
    }
}

impl Shard for HookedShard {
    fn offset(&self) -> u64 {
        self.inner.offset()
    }

    fn read(&mut self, record: &mut Vec<u8>) -> Result<Next, ReadError> {
        (self.before_read)((self.shard, self.inner.offset()))?;
        self.inner.read(record)
    }
}
