//! A function of each sample.

use std::fmt;
use std::path::Path;

use crate::compose::config;
use crate::compose::sample::{Sample, Slab};
use crate::{
    About, Context, Dataset, Fingerprint, Layout, Prefetched, ReadError, Result, Row, RowError, Rows, Spec,
    StableDataset, Storage, TakeItems,
};

/// Maximum bytes and samples that are read before they are mapped: few enough to stay in a processor's
/// cache.
const AT_ONCE: (usize, usize) = (64 << 10, 64);

type Function = dyn Fn(&Sample<'_>, &mut Row<'_, '_>, &mut Context) -> Result<(), ReadError> + Send + Sync;

/// A function of each sample of another set; made by [`Dataset::map`].
pub struct Map {
    inner: StableDataset,
    spec: Spec,
    /// The layout of the inner samples that are read by one call.
    layout: Layout,
    function: Box<Function>,
    version: u64,
}

impl Map {
    pub(crate) fn new(
        inner: StableDataset,
        spec: Spec,
        function: impl Fn(&Sample<'_>, &mut Row<'_, '_>, &mut Context) -> Result<(), ReadError>
        + Send
        + Sync
        + 'static,
    ) -> Result<Self> {
        if spec.fields().is_empty() {
            return Err(config("a map to a spec without fields: declare what it writes".to_owned()));
        }
        <dyn Dataset>::check_nesting("map", 1 + inner.about().nesting)?;
        let rows = (AT_ONCE.0 / inner.spec().sample_bytes().max(1)).clamp(1, AT_ONCE.1);
        let layout = Layout::new(inner.spec(), rows)?;
        Ok(Self { inner, spec, layout, function: Box::new(function), version: 0 })
    }

    /// Sets the version of the function, which the fingerprint covers: change it when the function changes,
    /// so that a run does not resume with another function. Default: 0.
    pub fn version(self, version: u64) -> Self {
        Self { version, ..self }
    }

    /// Reads the samples `ids` into `slab`. Returns the number of samples read, and the error of the next
    /// one.
    fn read_inner(
        &self,
        ids: &[u64],
        slab: &mut [u8],
        context: &mut Context,
        read: impl FnOnce(&mut Rows<'_>, &mut Context) -> Result<(), RowError>,
    ) -> (usize, Option<ReadError>) {
        let mut rows = Rows::new(&self.layout, slab, ids.len());
        rows.poison();
        // The function uses the random stream of this set.
        match context.with_stream(0, |context| read(&mut rows, context)) {
            Ok(()) => (ids.len(), None),
            Err((good, error)) => (good.min(ids.len()), Some(error)),
        }
    }
}

impl Dataset for Map {
    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn spec(&self) -> &Spec {
        &self.spec
    }

    fn read(&self, id: u64, row: &mut Row<'_, '_>, context: &mut Context) -> Result<(), ReadError> {
        context.scoped_scratch(|slab: &mut Slab, context| {
            let bytes = slab.bytes_mut(self.layout.bytes())?;
            let read = |rows: &mut Rows<'_>, context: &mut Context| {
                rows.row(0).read_by(|row| self.inner.read(id, row, context)).map_err(|error| (0, error))
            };
            if let (_, Some(error)) = self.read_inner(&[id], bytes, context, read) {
                return Err(error);
            }
            let sample = Sample::of(&self.layout, bytes, 0);
            (self.function)(&sample, row, context)
        })
    }

    fn read_many(&self, ids: &[u64], rows: &mut Rows<'_>, context: &mut Context) -> Result<(), RowError> {
        context.scoped_scratch(|slab: &mut Slab, context| {
            let bytes = slab.bytes_mut(self.layout.bytes()).map_err(|error| (0, error.into()))?;
            let mut first = 0;
            for group in ids.chunks(self.layout.capacity()) {
                let (good, error) = self.read_inner(group, bytes, context, |rows, context| {
                    context.delegate(first, group, |context| {
                        rows.read_by(|rows| self.inner.read_many(group, rows, context))
                    })
                });
                for (index, &id) in group[..good].iter().enumerate() {
                    let at = first + index;
                    let sample = Sample::of(&self.layout, bytes, index);
                    let mut row = rows.row(at);
                    let map = |context: &mut Context| (self.function)(&sample, &mut row, context);
                    context.sample(at, id, map).map_err(|error| (at, error))?;
                }
                if let Some(error) = error {
                    return Err((first + good, error));
                }
                first += group.len();
            }
            Ok(())
        })
    }

    fn storage(&self) -> &dyn Storage {
        self
    }

    fn about(&self) -> About<'_> {
        let inner = self.inner.about();
        About { nesting: 1 + inner.nesting, ..inner }
    }

    fn path(&self, id: u64) -> Option<&Path> {
        self.inner.path(id)
    }

    /// Covers the inner set, the spec and the [`version`](Map::version); not the function itself.
    fn fingerprint(&self) -> u64 {
        let state = Fingerprint::new().bytes(b"map").number(self.inner.fingerprint());
        state.spec(&self.spec).number(self.version).value()
    }
}

impl Storage for Map {
    fn left_out(&self, id: u64, field: usize, epoch: u64, _to: TakeItems<'_>) -> Result<(), ReadError> {
        let name = self.spec.fields().get(field).map_or("", |field| field.name());
        let inner: &dyn Dataset = &self.inner;
        inner.check_whole(name, id, epoch)
    }

    fn prefetch(&self, ids: &[u64], context: &mut Context) -> Prefetched {
        self.inner.storage().prefetch(ids, context)
    }
}

/// # For loaders
///
/// What the Python package calls. It may change in any release.
impl dyn Dataset {
    /// Refuses sample `id` of a set whose field `name` was made by a function of this set, if this set leaves
    /// out items of the field of that name. If it has none of that name, any field counts.
    ///
    /// # Errors
    /// `Config`.
    pub fn check_whole(&self, name: &str, id: u64, epoch: u64) -> Result<(), ReadError> {
        let fields = match self.spec().index_of(name) {
            Ok(field) => field..field + 1,
            Err(_) => 0..self.spec().fields().len(),
        };
        for field in fields {
            let mut is_whole = true;
            self.storage().left_out(id, field, epoch, &mut |items| is_whole &= items.is_empty())?;
            if !is_whole {
                let of = self.spec().fields()[field].name();
                return Err(config(format!(
                    "field \"{name}\" is made by a function of \"{of}\", whose list is cut, so that the \
                     items before the cut are not known: call negatives first, and map afterwards"
                ))
                .into());
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Map {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Map({} samples)", self.len())
    }
}
