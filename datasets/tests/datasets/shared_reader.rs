//! A pointer to a reader answers as the reader does.

use std::path::Path;
use std::sync::Arc;

use feedline_core::{About, DType, ElementType, Field, Prefetched, Result, Spec};
use feedline_datasets::{Buffers, Reader, Sink, Storage};

/// Each answer differs from the default of its method.
#[derive(Debug)]
struct Odd(Spec);

impl Reader for Odd {
    fn schema(&self) -> &Spec {
        &self.0
    }

    fn len(&self) -> u64 {
        4
    }

    fn visit(&self, sample: u64, row: &mut Sink<'_>, _: &mut Buffers) -> Result<()> {
        row.put(7, &[sample as u8 + 100])
    }

    fn about(&self) -> About<'_> {
        About { format: "odd", row_memory: 9, ..About::default() }
    }

    fn storage(&self) -> &dyn Storage {
        self
    }

    fn path(&self, _: u64) -> Option<&Path> {
        Some(Path::new("path"))
    }

    fn fingerprint(&self) -> u64 {
        11
    }
}

impl Storage for Odd {
    fn prefetch(&self, _: &[u64]) -> Prefetched {
        Prefetched::Pending
    }
}

#[test]
fn a_shared_reader_answers_as_the_reader_itself() {
    let fields = vec![Field::fixed("x", ElementType::Number(DType::U8), &[])];
    let odd: Arc<dyn Reader> = Arc::new(Odd(Spec::of_fields(fields)));
    let shared: Box<dyn Reader> = Box::new(odd.clone());
    let mut visited = Vec::new();
    let mut visit = |field: usize, bytes: &[u8], _: Option<&[usize]>| {
        visited.push((field, bytes.to_vec()));
        Ok(())
    };
    shared.visit(2, &mut Sink::new(&mut visit), &mut Buffers::default()).unwrap();
    assert_eq!(visited, [(7, vec![102])]);
    assert_eq!((shared.schema(), shared.len()), (odd.schema(), 4));
    assert_eq!(shared.about(), About { format: "odd", row_memory: 9, ..About::default() });
    assert_eq!(shared.storage().prefetch(&[]), Prefetched::Pending);
    assert_eq!((shared.path(0), shared.fingerprint()), (Some(Path::new("path")), 11));
}
