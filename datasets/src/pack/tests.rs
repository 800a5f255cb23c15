//! Interrupted runs resume at the right place, and never with bytes of another source.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use feedline_core::{DType, Result};
use tempfile::tempdir;

use super::{PackOptions, Packed, data, pack};
use crate::{ElementType, Reader, Schema, SchemaField, Values, open};

const LEN: u64 = 60;

/// Samples computed from their numbers; one of them fails.
#[derive(Debug)]
struct Source {
    schema: Schema,
    fails_at: u64,
    fingerprint: u64,
    reads: AtomicU64,
}

impl Source {
    fn new(varies: bool, fails_at: u64) -> Self {
        let first = if varies { vec![None] } else { vec![Some(37)] };
        let field = |name: &str, element, shape| SchemaField { name: name.into(), element, shape };
        let fields = [
            field("bytes", ElementType::Bytes, first),
            field("number", ElementType::Number(DType::I64), vec![]),
        ];
        Self { schema: Schema::new(fields), fails_at, fingerprint: 7, reads: AtomicU64::new(0) }
    }
}

impl Reader for Source {
    fn format(&self) -> &'static str {
        "made"
    }

    fn schema(&self) -> &Schema {
        &self.schema
    }

    fn len(&self) -> u64 {
        LEN
    }

    fn read(&self, sample: u64, values: &mut Values) -> Result<()> {
        if sample == self.fails_at {
            return Err(data("planned failure"));
        }
        self.reads.fetch_add(1, Ordering::Relaxed);
        let varies = self.schema.fields()[0].shape == [None];
        let len = if varies { sample % 50 } else { 37 };
        let bytes = (0..len).map(|at| (at * 7 + sample * 13) as u8).collect::<Vec<_>>();
        if let [first, number] = values.begin(2) {
            first.set_bytes(&bytes);
            number.set_bytes(&sample.to_le_bytes());
            number.set_shape([]);
        }
        Ok(())
    }

    fn path(&self, _: u64) -> Option<&Path> {
        None
    }

    fn fingerprint(&self) -> u64 {
        self.fingerprint
    }
}

/// Packs into one file; returns the number of samples read, and the result.
fn run(source: &Source, to: &Path) -> (u64, Result<Packed>) {
    let packed = pack(source, to, PackOptions::default(), |_| ());
    (source.reads.load(Ordering::Relaxed), packed)
}

/// The file of an uninterrupted run.
fn whole(varies: bool) -> Vec<u8> {
    let dir = tempdir().unwrap();
    run(&Source::new(varies, LEN), &dir.path().join("set")).1.unwrap();
    let bytes = fs::read(dir.path().join("set")).unwrap();
    assert_eq!(open(dir.path().join("set")).unwrap().len(), LEN);
    bytes
}

#[test]
fn one_file_goes_on_wherever_a_run_was_ended() {
    for varies in [false, true] {
        let whole = whole(varies);
        let mut most_kept = 0;
        for ended in [0, 3, 17, 36, 50, LEN - 1] {
            let dir = tempdir().unwrap();
            let to = dir.path().join("set");
            let (_, failed) = run(&Source::new(varies, ended), &to);
            assert!(failed.unwrap_err().to_string().contains("planned failure"));
            assert!(!to.exists());
            // Interrupted once more, then not.
            run(&Source::new(varies, (ended + 5).min(LEN - 1)), &to).1.unwrap_err();
            let (reads, packed) = run(&Source::new(varies, LEN), &to);
            let packed = packed.unwrap();
            assert_eq!((packed.samples, packed.kept_samples + reads), (LEN, LEN));
            // The journal gets an entry about every 300 bytes, which are at least five samples.
            assert!(packed.kept_samples + 20 > ended, "{} of {ended}", packed.kept_samples);
            most_kept = most_kept.max(packed.kept_samples);
            assert!(fs::read(&to).unwrap() == whole, "ended at {ended}, varying: {varies}");
            let names = fs::read_dir(dir.path()).unwrap().count();
            assert_eq!(names, 1, "nothing else is left");
        }
        assert!(most_kept > 40, "{most_kept}");
    }
}

#[test]
fn what_is_damaged_or_of_another_source_is_never_continued() {
    for varies in [false, true] {
        let (whole, dir) = (whole(varies), tempdir().unwrap());
        let to = dir.path().join("set");
        let [partial, progress] = ["set.partial", "set.progress"].map(|name| dir.path().join(name));
        run(&Source::new(varies, 50), &to).1.unwrap_err();
        let [bytes, journal] = [&partial, &progress].map(|path| fs::read(path).unwrap());
        // With samples of one size, the columns have gaps that are not written yet.
        let written: Vec<usize> = {
            let text = std::str::from_utf8(&journal).unwrap().lines().nth(1).unwrap();
            let entry: serde_json::Value = serde_json::from_str(text).unwrap();
            let parts = entry["written"]["parts"].as_array().unwrap();
            let number = |part: &serde_json::Value, name: &str| part[name].as_u64().unwrap() as usize;
            let part = |part| {
                let (at, bytes) = (number(part, "at"), number(part, "bytes"));
                [at, at + bytes / 2, at + bytes - 1]
            };
            parts.iter().flat_map(part).collect()
        };
        let put = |bytes: &[u8], journal: &[u8]| {
            let _ = fs::remove_file(&to);
            fs::write(&partial, bytes).unwrap();
            fs::write(&progress, journal).unwrap();
        };
        let starts_over = |what: String, source: Source| {
            let (reads, packed) = run(&source, &to);
            assert_eq!((reads, packed.unwrap().kept_samples), (LEN, 0), "{what}");
            assert!(fs::read(&to).unwrap() == whole, "{what}");
        };
        let source = || Source::new(varies, LEN);
        put(&bytes, &journal);
        assert!(run(&source(), &to).0 < 20, "what is whole is continued");
        for at in written {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            put(&damaged, &journal);
            starts_over(format!("byte {at} of the file"), source());
            put(&bytes[..at], &journal);
            starts_over(format!("cut at {at}"), source());
        }
        for at in (0..journal.len()).step_by(41) {
            let mut damaged = journal.clone();
            damaged[at] ^= 1;
            put(&bytes, &damaged);
            starts_over(format!("byte {at} of the journal"), source());
            put(&bytes, &journal[..at]);
            starts_over(format!("a journal of {at} bytes"), source());
        }
        put(&bytes, &journal);
        starts_over("another source".into(), Source { fingerprint: 8, ..source() });
        put(&bytes, &journal);
        fs::remove_file(&progress).unwrap();
        starts_over("without a journal".into(), source());
        put(&bytes, &journal);
        fs::remove_file(&partial).unwrap();
        starts_over("without a file".into(), source());
        // The other form of file, with other columns.
        put(&bytes, &journal);
        let (reads, _) = run(&Source::new(!varies, LEN), &to);
        assert_eq!(reads, LEN);
    }
}
