//! A function of the id as a set.

use std::fmt;

use crate::compose::check_id;
use crate::{Context, Dataset, Fingerprint, ReadError, Row, Spec};

type Function = dyn Fn(u64, &mut Row<'_, '_>, &mut Context) -> Result<(), ReadError> + Send + Sync;

/// A function of the id as a set; made by [`from_fn`].
pub struct FromFn {
    len: u64,
    spec: Spec,
    function: Box<Function>,
    version: u64,
}

/// A set of `len` samples of `spec`. `function` gets an id below `len` and must write the whole row; see
/// [`Dataset::read`].
///
/// ```
/// use feedline_core::{DType, Dataset, Spec, from_fn};
///
/// let spec = Spec::new().field("square", DType::I64, [])?;
/// let squares = from_fn(1000, spec, |id, row, _| {
///     row.field_mut::<i64>(0)?[0] = (id * id) as i64;
///     Ok(())
/// });
/// assert_eq!(squares.len(), 1000);
/// # Ok::<(), feedline_core::Error>(())
/// ```
pub fn from_fn(
    len: u64,
    spec: Spec,
    function: impl Fn(u64, &mut Row<'_, '_>, &mut Context) -> Result<(), ReadError> + Send + Sync + 'static,
) -> FromFn {
    FromFn { len, spec, function: Box::new(function), version: 0 }
}

impl FromFn {
    /// Sets the version of the function, which the fingerprint covers: change it when the function changes,
    /// so that a run does not resume with another function. Default: 0.
    pub fn version(self, version: u64) -> Self {
        Self { version, ..self }
    }
}

impl Dataset for FromFn {
    fn len(&self) -> u64 {
        self.len
    }

    fn spec(&self) -> &Spec {
        &self.spec
    }

    fn read(&self, id: u64, row: &mut Row<'_, '_>, context: &mut Context) -> Result<(), ReadError> {
        check_id(id, self.len)?;
        (self.function)(id, row, context)
    }

    /// Covers the length, the spec and the [`version`](FromFn::version); not the function itself.
    fn fingerprint(&self) -> u64 {
        let state = Fingerprint::new().bytes(b"from_fn").number(self.len);
        state.spec(&self.spec).number(self.version).value()
    }
}

impl fmt::Debug for FromFn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FromFn({} samples)", self.len)
    }
}
