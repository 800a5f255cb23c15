//! Pointers to data sets as data sets.

use std::path::Path;
use std::sync::Arc;

use crate::{About, Context, Dataset, ReadError, Row, RowError, Rows, Spec, Storage};

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
            ) -> Result<(), RowError> {
                (**self).read_many(ids, rows, context)
            }

            fn storage(&self) -> &dyn Storage {
                (**self).storage()
            }

            fn about(&self) -> About<'_> {
                (**self).about()
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
