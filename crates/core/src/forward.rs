//! What a set says of its samples, where it has those of another set.

/// The methods of a [`Dataset`](crate::Dataset) that are those of the set whose samples it has, in the same
/// order: `forward!(self => self.inner);` in its `impl`.
macro_rules! forward {
    ($self:ident => $inner:expr) => {
        fn block_shuffle(&$self) -> Option<(u64, u64)> {
            $inner.block_shuffle()
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
