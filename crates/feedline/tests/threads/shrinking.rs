//! A data set that shrinks while its loader is built: no transfer mode delivers rows that were not read.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::common::{alone, assert_empty};
use feedline::dataset::StridedColumn;
use feedline::{
    Context, Dataset, Device, Error, ErrorKind, Loader, ReadError, Result, Row, Spec, TransferMode,
};
use feedline_core::Storage;
use feedline_testkit::fixtures::{Fine, Laid};

const LEN: u64 = 103;
const LEFT: u64 = 50;

/// Has [`LEN`] samples for the first `calls` calls of `len`, then [`LEFT`].
struct Shrinking {
    laid: Laid,
    calls: AtomicU64,
}

impl Shrinking {
    fn after(calls: u64) -> Self {
        let laid = Laid::columns(&Fine::new(LEN, 9).expect("a set"), 0).expect("a laid set");
        Self { laid, calls: AtomicU64::new(calls) }
    }
}

impl Dataset for Shrinking {
    fn len(&self) -> u64 {
        let one_less = |calls: u64| calls.checked_sub(1);
        match self.calls.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less) {
            Ok(_) => LEN,
            Err(_) => LEFT,
        }
    }

    fn spec(&self) -> &Spec {
        self.laid.spec()
    }

    fn read(&self, id: u64, row: &mut Row<'_, '_>, context: &mut Context) -> Result<(), ReadError> {
        if id >= LEFT {
            return Err("the sample is gone".into());
        }
        self.laid.read(id, row, context)
    }

    fn storage(&self) -> &dyn Storage {
        self
    }
}

impl Storage for Shrinking {
    fn column(&self, field: usize) -> Option<StridedColumn<'_>> {
        let column = self.laid.storage().column(field)?;
        StridedColumn::new(column.bytes(), column.first(), column.stride(), LEFT as usize, column.row_bytes())
            .ok()
    }
}

/// Builds a loader and reads one epoch.
fn epoch(set: Shrinking, transfer_mode: TransferMode, device: &Device) -> Result<(), Error> {
    let mut loader = Loader::builder(set)
        .batch_size(8)
        .shuffle()
        .seed(1)
        .epochs(1)
        .transfer_mode(transfer_mode)
        .build(device)?;
    loader.epoch(0)?.try_for_each(|batch| batch.map(drop))
}

#[test]
fn a_data_set_that_shrinks_while_its_loader_is_built_is_an_error_in_every_transfer_mode() {
    alone(|| {
        let device = Device::new_host();
        for calls in 1..4 {
            let error = epoch(Shrinking::after(calls), TransferMode::Staged, &device).expect_err("staged");
            assert!(error.kind() == ErrorKind::Sample && error.message().contains("cannot read"), "{error}");
            let error =
                epoch(Shrinking::after(calls), TransferMode::ZeroCopy, &device).expect_err("zero-copy");
            assert_eq!(error.kind(), ErrorKind::Config, "{error}");
            for part in ["103", "50 rows"] {
                assert!(error.message().contains(part), "{part}: {error}");
            }
        }
        assert_empty(&device);
    });
}
