//! Every way in which a data set can break its promise is found, with the sample, the field and the byte.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, ThreadId};

use feedline_core::check::{CheckOptions, Fault, Report, Samples};
use feedline_core::{
    Context, DType, Dataset, ErrorKind, ReadError, Row, Rows, Spec, StridedColumn, check_dataset,
};

/// How a set goes wrong; the samples below 50 are good.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Good,
    Partial,
    Random,
    Thread,
    ReadMany,
    Fails,
    Panics,
    StridedColumn,
    ShortTable,
    Epoch,
}

/// 100 samples of an id and five bytes.
struct Set {
    way: Way,
    spec: Spec,
    ids: Vec<u8>,
    reads: AtomicU64,
    home: ThreadId,
}

impl Set {
    fn new(way: Way) -> Self {
        let spec = Spec::new().field("id", DType::I64, []).unwrap().field("bytes", DType::U8, [5]).unwrap();
        let rows = if way == Way::ShortTable { 50 } else { 100 };
        let mut ids: Vec<u8> = (0..rows).flat_map(i64::to_le_bytes).collect();
        if way == Way::StridedColumn {
            ids[8 * 99 + 3] = 1;
        }
        Self { way, spec, ids, reads: AtomicU64::new(0), home: thread::current().id() }
    }
}

impl Dataset for Set {
    fn len(&self) -> u64 {
        100
    }

    fn spec(&self) -> &Spec {
        &self.spec
    }

    fn read(&self, id: u64, row: &mut Row<'_, '_>, context: &mut Context) -> Result<(), ReadError> {
        let read = self.reads.fetch_add(1, Ordering::Relaxed);
        let way = if id < 50 { Way::Good } else { self.way };
        row.field_mut::<i64>(0)?[0] = id as i64;
        let noise = context.random().next_u64() as u8;
        let bytes = row.bytes_mut(1);
        if way == Way::Partial {
            bytes[..2].fill(noise);
            bytes[4] = noise;
            return Ok(());
        }
        bytes.fill(noise);
        match way {
            Way::Random => bytes[1] = read as u8,
            Way::Thread if thread::current().id() != self.home => bytes[4] ^= 1,
            Way::Fails => return Err("no such file".into()),
            Way::Panics => panic!("planned: sample {id}"),
            Way::Epoch if context.epoch() > 0 => bytes[0] ^= 1,
            _ => {}
        }
        Ok(())
    }

    fn read_many(
        &self,
        ids: &[u64],
        rows: &mut Rows<'_>,
        context: &mut Context,
    ) -> Result<(), (usize, ReadError)> {
        for (index, &id) in ids.iter().enumerate() {
            context.begin(index, id);
            self.read(id, &mut rows.row(index), context).map_err(|error| (index, error))?;
        }
        if self.way == Way::ReadMany {
            rows.row(ids.len() - 1).bytes_mut(1)[3] ^= 1;
        }
        Ok(())
    }

    fn column(&self, field: usize) -> Option<StridedColumn<'_>> {
        let has = matches!(self.way, Way::Good | Way::StridedColumn | Way::ShortTable) && field == 0;
        has.then(|| StridedColumn::new(&self.ids, 0, 8, self.ids.len() / 8, 8).ok())?
    }
}

fn check(way: Way) -> Report {
    check_dataset(&Set::new(way), &CheckOptions::default()).unwrap()
}

#[test]
fn a_good_set_is_clean() {
    let report = check(Way::Good);
    assert!(report.is_clean(), "{report}");
    assert_eq!((report.samples, report.to_string().as_str()), (64, "64 samples checked, 0 faults"));
    // Other bytes in another epoch are no fault.
    assert!(check(Way::Epoch).is_clean());
}

#[test]
fn every_fault_is_found_with_its_place() {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| ()));
    let reports = [
        (Way::Partial, Fault::NotWritten, Some("bytes"), Some(2), "byte 2 was not written"),
        (Way::Random, Fault::Differs, Some("bytes"), Some(1), "byte 1 differs between two reads"),
        (
            Way::Thread,
            Fault::DiffersOnAnotherThread,
            Some("bytes"),
            Some(4),
            "byte 4 differs on another thread",
        ),
        (Way::Fails, Fault::Unreadable("no such file".into()), None, None, "it cannot be read: no such file"),
        (
            Way::StridedColumn,
            Fault::TableDiffers,
            Some("id"),
            Some(3),
            "its table has other bytes than its read",
        ),
        (Way::ShortTable, Fault::TableShape, Some("id"), None, "its table is not one row per sample"),
    ]
    .map(|(way, fault, field, byte, text)| (check(way), fault, field, byte, text));
    let panics = check(Way::Panics);
    std::panic::set_hook(hook);
    for (report, fault, field, byte, text) in reports {
        let finding = report.findings.first().unwrap_or_else(|| panic!("{fault:?} was not found"));
        assert!(finding.sample >= 50, "{finding}");
        assert_eq!(
            (&finding.fault, finding.field.as_deref(), finding.byte),
            (&fault, field, byte),
            "{finding}"
        );
        assert!(finding.to_string().contains(text), "{finding}");
        assert!(report.findings.iter().all(|finding| finding.fault == fault), "{report}");
    }
    let finding = &panics.findings[0];
    assert_eq!(finding.fault, Fault::Panicked(format!("planned: sample {}", finding.sample)));
}

#[test]
fn a_bulk_read_that_is_not_the_single_one_is_found() {
    let report = check(Way::ReadMany);
    assert!(report.findings.iter().all(|finding| finding.fault == Fault::ReadManyDiffers), "{report}");
    let finding = &report.findings[0];
    assert_eq!((finding.field.as_deref(), finding.byte), (Some("bytes"), Some(3)));
}

#[test]
fn named_samples_are_checked_and_no_others() {
    let only = |ids: &[u64]| {
        let options = CheckOptions { samples: Samples::Ids(ids.to_vec()), ..CheckOptions::default() };
        check_dataset(&Set::new(Way::Partial), &options)
    };
    assert!(only(&[0, 49]).unwrap().is_clean());
    let found = only(&[49, 50]).unwrap();
    assert!(found.findings.iter().all(|finding| finding.sample == 50) && !found.is_clean(), "{found}");
    assert_eq!(only(&[100]).unwrap_err().kind(), ErrorKind::Config);
}

#[test]
fn a_set_that_is_wrong_everywhere_ends_the_check_early() {
    struct Nothing(Spec);
    impl Dataset for Nothing {
        fn len(&self) -> u64 {
            1 << 40
        }
        fn spec(&self) -> &Spec {
            &self.0
        }
        fn read(&self, _: u64, _: &mut Row<'_, '_>, _: &mut Context) -> Result<(), ReadError> {
            Ok(())
        }
    }
    let nothing = Nothing(Spec::new().field("x", DType::U8, [3]).unwrap());
    let options = CheckOptions { samples: Samples::Spread(1000), ..CheckOptions::default() };
    let report = check_dataset(&nothing, &options).unwrap();
    assert_eq!((report.samples, report.findings.len()), (16, 32));
    assert!(report.findings.iter().all(|finding| finding.fault == Fault::NotWritten), "{report}");
}
