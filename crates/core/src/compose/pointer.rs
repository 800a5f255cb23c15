//! Pointers to data sets as data sets.

use std::path::Path;
use std::sync::Arc;

use crate::{About, Context, Dataset, Prefetched, ReadError, Row, Rows, Spec, StridedColumn};

macro_rules! pointers {
    ($(#[$doc:meta] $pointer:ty),*) => {$(
        #[$doc]
        impl<D: Dataset + ?Sized> Dataset for $pointer {
            fn len(&self) -> u64 {
                (**self).len()
            }

            fn spec(&self) -> &Spec {
                (**self).spec()
            }

            fn read(&self, id: u64, row: &mut Row<'_, '_>, context: &mut Context) -> Result<(), ReadError> {
                (**self).read(id, row, context)
            }

            fn read_many(
                &self,
                ids: &[u64],
                rows: &mut Rows<'_>,
                context: &mut Context,
            ) -> Result<(), (usize, ReadError)> {
                (**self).read_many(ids, rows, context)
            }

            fn column(&self, field: usize) -> Option<StridedColumn<'_>> {
                (**self).column(field)
            }

            fn left_out(
                &self,
                id: u64,
                field: usize,
                epoch: u64,
                to: &mut dyn FnMut(&[u8]),
            ) -> Result<(), ReadError> {
                (**self).left_out(id, field, epoch, to)
            }

            fn about(&self) -> About<'_> {
                (**self).about()
            }

            fn prefetch(&self, ids: &[u64], context: &mut Context) -> Prefetched {
                (**self).prefetch(ids, context)
            }

            fn path(&self, id: u64) -> Option<&Path> {
                (**self).path(id)
            }

            fn fingerprint(&self) -> u64 {
                (**self).fingerprint()
            }

            fn version(&self) -> u64 {
                (**self).version()
            }
        }
    )*};
}

pointers! {
    /// The set that the pointer shares, which its other owners can use at the same time.
    Arc<D>,
    /// The set in the box.
    Box<D>,
    /// The set that is referred to.
    &'static D
}
