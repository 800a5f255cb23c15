//! A reader that several data sets read.

use std::path::Path;
use std::sync::Arc;

use feedline_core::{About, Result, Spec};

use crate::{Buffers, Reader, Sink, Storage};

/// Lets two data sets share a reader. So a folder in a store is listed only once.
impl<R: Reader + ?Sized> Reader for Arc<R> {
    fn schema(&self) -> &Spec {
        (**self).schema()
    }

    fn len(&self) -> u64 {
        (**self).len()
    }

    fn visit(&self, sample: u64, row: &mut Sink<'_>, buffers: &mut Buffers) -> Result<()> {
        (**self).visit(sample, row, buffers)
    }

    fn about(&self) -> About<'_> {
        (**self).about()
    }

    fn storage(&self) -> &dyn Storage {
        (**self).storage()
    }

    fn path(&self, sample: u64) -> Option<&Path> {
        (**self).path(sample)
    }

    fn fingerprint(&self) -> u64 {
        (**self).fingerprint()
    }
}
