//! Forwards the methods of a set that has the samples of another set.

/// The methods of a [`Dataset`](crate::Dataset) with the same samples, in the same order, as another set,
/// forwarded to that set: `forward!(self => self.inner);` in its `impl`.
macro_rules! forward {
    ($self:ident => $inner:expr) => {
        fn block_shuffle(&$self) -> Option<(u64, u64)> {
            $inner.block_shuffle()
        }

        fn plain_shuffle(&$self) -> Option<(u64, u64)> {
            $inner.plain_shuffle()
        }

        fn table_rows(&$self) -> Option<(u64, bool)> {
            $inner.table_rows()
        }

        fn has_random_geometry(&$self) -> bool {
            $inner.has_random_geometry()
        }

        fn prefetch(&$self, ids: &[u64], context: &mut $crate::Context) -> $crate::Prefetched {
            $inner.prefetch(ids, context)
        }

        fn path(&$self, id: u64) -> Option<&std::path::Path> {
            $inner.path(id)
        }
    };
}

pub(crate) use forward;
