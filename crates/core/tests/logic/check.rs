//! Every violation of the data-set contract is found, with the sample, the field and the byte.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, ThreadId};

use feedline_core::check::{CheckOptions, Fault, Finding, Report, Samples};
use feedline_core::{
    Context, DType, Dataset, ErrorKind, ReadError, Row, RowError, Rows, Spec, Storage, StridedColumn,
    check_dataset,
};

/// How a data set violates the contract. Samples below 50 are always good.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Defect {
    None,
    Partial,
    Random,
    Thread,
    ReadMany,
    /// `read_many` begins the samples in an order that differs from the ids.
    OtherDraws,
    /// `read_many` takes random numbers of its own context, which has ids for draws.
    OwnContext,
    Fails,
    Panics,
    WrongColumn,
    ShortColumn,
    Epoch,
}

/// 100 samples, each with an id and five bytes.
struct Set {
    defect: Defect,
    spec: Spec,
    ids: Vec<u8>,
    reads: AtomicU64,
    main_thread: ThreadId,
}

impl Set {
    fn new(defect: Defect) -> Self {
        let spec = Spec::new().field("id", DType::I64, []).unwrap().field("bytes", DType::U8, [5]).unwrap();
        let rows = if defect == Defect::ShortColumn { 50 } else { 100 };
        let mut ids: Vec<u8> = (0..rows).flat_map(i64::to_le_bytes).collect();
        if defect == Defect::WrongColumn {
            ids[8 * 99 + 3] = 1;
        }
        Self { defect, spec, ids, reads: AtomicU64::new(0), main_thread: thread::current().id() }
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
        let defect = if id < 50 { Defect::None } else { self.defect };
        row.field_mut::<i64>(0)?[0] = id as i64;
        let noise = context.random().next_u64() as u8;
        let bytes = row.bytes_mut(1);
        if defect == Defect::Partial {
            bytes[..2].fill(noise);
            bytes[4] = noise;
            return Ok(());
        }
        bytes.fill(noise);
        match defect {
            Defect::Random => bytes[1] = read as u8,
            Defect::Thread if thread::current().id() != self.main_thread => bytes[4] ^= 1,
            Defect::Fails => return Err("no such file".into()),
            Defect::Panics => panic!("injected panic of sample {id}"),
            Defect::Epoch if context.epoch() > 0 => bytes[0] ^= 1,
            _ => {}
        }
        Ok(())
    }

    fn read_many(&self, ids: &[u64], rows: &mut Rows<'_>, context: &mut Context) -> Result<(), RowError> {
        let mut own = Context::new(CheckOptions::default().seed, context.epoch());
        let context = if self.defect == Defect::OwnContext { &mut own } else { context };
        for (index, &id) in ids.iter().enumerate() {
            let begun = if self.defect == Defect::OtherDraws { ids.len() - 1 - index } else { index };
            context.begin(begun, id);
            self.read(id, &mut rows.row(index), context).map_err(|error| (index, error))?;
        }
        if self.defect == Defect::ReadMany {
            rows.row(ids.len() - 1).bytes_mut(1)[3] ^= 1;
        }
        Ok(())
    }

    fn storage(&self) -> &dyn Storage {
        self
    }
}

impl Storage for Set {
    fn column(&self, field: usize) -> Option<StridedColumn<'_>> {
        let has =
            matches!(self.defect, Defect::None | Defect::WrongColumn | Defect::ShortColumn) && field == 0;
        has.then(|| StridedColumn::new(&self.ids, 0, 8, self.ids.len() / 8, 8).ok())?
    }
}

fn check(defect: Defect) -> Report {
    check_dataset(&Set::new(defect), &CheckOptions::default()).unwrap()
}

#[test]
fn a_good_data_set_is_clean() {
    let report = check(Defect::None);
    assert!(report.is_clean(), "{report}");
    assert_eq!((report.samples, report.to_string().as_str()), (64, "64 samples checked, 0 faults"));
    // Samples may differ between epochs.
    assert!(check(Defect::Epoch).is_clean());
}

#[test]
fn every_fault_is_found_with_its_location() {
    let reports = [
        (Defect::Partial, Fault::NotWritten, Some("bytes"), Some(2), "byte 2 was not written"),
        (Defect::Random, Fault::Differs, Some("bytes"), Some(1), "byte 1 differs between two reads"),
        (
            Defect::Thread,
            Fault::DiffersOnAnotherThread,
            Some("bytes"),
            Some(4),
            "byte 4 differs on another thread",
        ),
        (
            Defect::Fails,
            Fault::Unreadable("no such file".into()),
            None,
            None,
            "the read failed: no such file",
        ),
        (
            Defect::WrongColumn,
            Fault::ColumnDiffers,
            Some("id"),
            Some(3),
            "byte 3 differs between column and read",
        ),
        (
            Defect::ShortColumn,
            Fault::ColumnShape,
            Some("id"),
            None,
            "the column does not have one row of the field's size per sample",
        ),
    ]
    .map(|(defect, fault, field, byte, text)| (check(defect), fault, field, byte, text));
    let panics = check(Defect::Panics);
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
    assert_eq!(finding.fault, Fault::Panicked(format!("injected panic of sample {}", finding.sample)));
    assert!(finding.line.as_ref().is_some_and(|line| line.contains(".rs:")), "{finding:?}");
}

/// Runs in a process of its own, so that the test can read the output.
#[test]
#[cfg_attr(miri, ignore = "miri starts no processes")]
fn the_panics_of_a_check_print_nothing_and_each_fault_is_found_once() {
    const NAME: &str = "the_panics_of_a_check_print_nothing_and_each_fault_is_found_once";
    if std::env::var_os("FEEDLINE_CHECK_CHILD").is_some() {
        for (defect, faults) in [(Defect::Panics, 32), (Defect::Fails, 32)] {
            let report = check(defect);
            let mut samples: Vec<u64> = report.findings.iter().map(|finding| finding.sample).collect();
            samples.dedup();
            assert_eq!((samples.len(), report.findings.len()), (faults, faults), "{report}");
        }
        return;
    }
    let own = std::env::current_exe().unwrap();
    let child = std::process::Command::new(own)
        .args(["--exact", &format!("check::{NAME}"), "--nocapture"])
        .env("FEEDLINE_CHECK_CHILD", "1")
        .output()
        .unwrap();
    let (out, error) = (String::from_utf8_lossy(&child.stdout), String::from_utf8_lossy(&child.stderr));
    assert!(child.status.success() && out.contains("1 passed"), "{out}{error}");
    assert!(!error.contains("panicked"), "{error}");
}

#[test]
fn a_length_or_a_spec_that_changes_is_an_error() {
    struct Changing([Spec; 2], AtomicU64);
    impl Dataset for Changing {
        fn len(&self) -> u64 {
            9
        }
        fn spec(&self) -> &Spec {
            &self.0[usize::from(self.1.fetch_add(1, Ordering::Relaxed) > 0)]
        }
        fn read(&self, _: u64, row: &mut Row<'_, '_>, _: &mut Context) -> Result<(), ReadError> {
            row.bytes_mut(0).fill(0);
            Ok(())
        }
    }
    let spec = |width| Spec::new().field("x", DType::U8, [width]).unwrap();
    let changing = Changing([spec(4), spec(4000)], AtomicU64::new(0));
    let error = check_dataset(&changing, &CheckOptions::default()).unwrap_err();
    assert!(error.message().contains("must be the same for every call"), "{error}");
}

#[test]
fn a_read_many_that_differs_from_read_is_found() {
    for defect in [Defect::ReadMany, Defect::OtherDraws, Defect::OwnContext] {
        let report = check(defect);
        let differs = |finding: &Finding| finding.fault == Fault::ReadManyDiffers;
        assert!(!report.is_clean() && report.findings.iter().all(differs), "{report}");
    }
    let report = check(Defect::ReadMany);
    let finding = &report.findings[0];
    assert_eq!((finding.field.as_deref(), finding.byte), (Some("bytes"), Some(3)));
}

#[test]
fn only_the_listed_samples_are_checked() {
    let only = |ids: &[u64]| {
        let options = CheckOptions { samples: Samples::Ids(ids.to_vec()), ..CheckOptions::default() };
        check_dataset(&Set::new(Defect::Partial), &options)
    };
    assert!(only(&[0, 49]).unwrap().is_clean());
    let found = only(&[49, 50]).unwrap();
    assert!(found.findings.iter().all(|finding| finding.sample == 50) && !found.is_clean(), "{found}");
    assert_eq!(only(&[100]).unwrap_err().kind(), ErrorKind::Config);
}

#[test]
fn the_check_ends_early_when_every_sample_is_wrong() {
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
    assert_eq!((report.samples, report.findings.len()), (32, 32));
    assert!(report.findings.iter().all(|finding| finding.fault == Fault::NotWritten), "{report}");
}

/// Samples of `id % 4` bytes, and a number, with a defect of their own.
struct Letters(Spec, fn(u64, u64, &mut Row<'_, '_>) -> Result<(), ReadError>, AtomicU64);

impl Letters {
    fn checked(read: fn(u64, u64, &mut Row<'_, '_>) -> Result<(), ReadError>) -> Report {
        let spec =
            Spec::new().ragged("bytes", DType::U8, [], 3).unwrap().field("id", DType::I64, []).unwrap();
        check_dataset(&Self(spec, read, AtomicU64::new(0)), &CheckOptions::default()).unwrap()
    }
}

impl Dataset for Letters {
    fn len(&self) -> u64 {
        20
    }

    fn spec(&self) -> &Spec {
        &self.0
    }

    fn read(&self, id: u64, row: &mut Row<'_, '_>, _: &mut Context) -> Result<(), ReadError> {
        row.field_mut::<i64>(1)?[0] = id as i64;
        self.1(id, self.2.fetch_add(1, Ordering::Relaxed), row)
    }
}

#[test]
fn ragged_fields_are_checked() {
    let good = Letters::checked(|id, _, row| Ok(row.write_ragged(0, &[id as u8; 3][..id as usize % 4])?));
    assert!(good.is_clean() && good.samples == 20, "{good}");
    let partial = Letters::checked(|id, _, row| {
        row.ragged_mut::<u8>(0)?[..1].fill(7);
        Ok(row.set_ragged_len(0, 1 + usize::from(id == 9))?)
    });
    assert_eq!(partial.findings[0].to_string(), "sample 9: field \"bytes\": byte 1 was not written");
    let lengths = Letters::checked(|_, read, row| Ok(row.write_ragged(0, &[7u8; 3][..read as usize % 3])?));
    assert!(lengths.findings[0].to_string().contains("differs between two reads"), "{lengths}");
    let unwritten = Letters::checked(|id, _, row| match id {
        5 => Ok(()),
        _ => Ok(row.write_ragged(0, &[1u8])?),
    });
    let wanted = "sample 5: the read failed: ragged field \"bytes\" was not written, not even as empty";
    assert_eq!(unwritten.findings[0].to_string(), wanted);
    let too_long = Letters::checked(|id, _, row| Ok(row.write_ragged(0, &[1u8; 5][..id as usize % 5])?));
    assert!(too_long.findings[0].to_string().contains("at most 3 per sample"), "{too_long}");
}
