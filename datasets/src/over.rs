//! What sets over another set have in common.

#[cfg(any(feature = "images", feature = "audio"))]
use std::path::Path;

use feedline_core::{About, Dataset};
#[cfg(any(feature = "images", feature = "audio"))]
use feedline_core::{Context, Random};

/// What `inner` says of itself, and the plain shuffle of its samples, which depends only on its files.
pub(crate) fn about(inner: &dyn Dataset) -> About<'_> {
    let about = inner.about();
    About { plain_shuffle: about.groups.and_then(|groups| groups.plain_shuffle(inner.len())), ..about }
}

/// Runs `work` with the random numbers of this set, and with a context for reads of the inner set, which
/// draws numbers of its own.
#[cfg(any(feature = "images", feature = "audio"))]
pub(crate) fn draw_beside<R>(context: &mut Context, work: impl FnOnce(&mut Random, &mut Context) -> R) -> R {
    let mut random = context.random().clone();
    let result = context.with_stream(0, |context| work(&mut random, context));
    *context.random() = random;
    result
}

/// Implements the methods of `Dataset` but `read` for a set over `inner`, with the fields `spec`; `$about` is
/// what it says of itself.
macro_rules! set_over {
    ($self:ident => $about:expr) => {
        fn len(&self) -> u64 {
            self.inner.len()
        }

        fn spec(&self) -> &feedline_core::Spec {
            &self.spec
        }

        fn about(&$self) -> feedline_core::About<'_> {
            $about
        }

        fn storage(&self) -> &dyn feedline_core::Storage {
            self
        }

        fn path(&self, id: u64) -> Option<&std::path::Path> {
            self.inner.path(id)
        }
    };
}
pub(crate) use set_over;

/// Implements `read` too, by a method `write` that writes a sample, with the memory of a worker.
macro_rules! samples_over {
    ($self:ident => $about:expr) => {
        $crate::over::set_over!($self => $about);

        fn read(
            &self,
            id: u64,
            row: &mut feedline_core::Row<'_, '_>,
            context: &mut feedline_core::Context,
        ) -> Result<(), feedline_core::ReadError> {
            let written = context.scoped_scratch(|memory, context| self.write(id, row, memory, context));
            written.map_err(|error| $crate::error::at_file(&*self.inner, id, error.at_sample(id)).into())
        }
    };
}
pub(crate) use samples_over;

/// The file that holds field `field` of sample `id`.
#[cfg(any(feature = "images", feature = "audio"))]
pub(crate) fn field_path(inner: &dyn Dataset, id: u64, field: usize) -> Option<&Path> {
    inner.storage().field_path(id, field).or_else(|| inner.path(id))
}
