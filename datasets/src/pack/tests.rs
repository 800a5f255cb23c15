//! An interrupted run resumes at the right place, and never with bytes of another source.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use feedline_core::{Context, DType, Dataset, ElementType, Field, ReadError, Result, Row, Spec};
use tempfile::tempdir;

use super::{PackOptions, PackSummary, TokenPackOptions, data, pack, pack_tokens};
use crate::open;

const LEN: u64 = 60;

/// Samples that are computed from their numbers. One sample fails.
#[derive(Debug)]
struct Source {
    schema: Spec,
    fails_at: u64,
    fingerprint: u64,
    reads: AtomicU64,
}

impl Source {
    fn new(varies: bool, fails_at: u64) -> Self {
        let first = if varies { vec![None] } else { vec![Some(37)] };
        let field = |name: &str, element, shape| Field::open(name, element, shape);
        let fields = [
            field("bytes", ElementType::Bytes, first),
            field("number", ElementType::Number(DType::I64), vec![]),
        ];
        Self { schema: Spec::of_fields(fields), fails_at, fingerprint: 7, reads: AtomicU64::new(0) }
    }
}

impl Dataset for Source {
    fn spec(&self) -> &Spec {
        &self.schema
    }

    fn len(&self) -> u64 {
        LEN
    }

    fn read(&self, sample: u64, row: &mut Row<'_, '_>, _: &mut Context) -> Result<(), ReadError> {
        if sample == self.fails_at {
            return Err(data("planned failure").into());
        }
        self.reads.fetch_add(1, Ordering::Relaxed);
        let varies = self.schema.fields()[0].dims() == [None];
        let len = if varies { sample % 50 } else { 37 };
        let bytes = (0..len).map(|at| (at * 7 + sample * 13) as u8).collect::<Vec<_>>();
        row.put(0, &bytes)?;
        Ok(row.put(1, &sample.to_le_bytes())?)
    }

    fn fingerprint(&self) -> u64 {
        self.fingerprint
    }
}

/// Packs into one file. Returns the number of samples read and the result.
fn run(source: &Source, to: &Path) -> (u64, Result<PackSummary>) {
    let packed = pack(source, to, PackOptions::default(), |_| ());
    (source.reads.load(Ordering::Relaxed), packed)
}

/// The file that an uninterrupted run writes.
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
            // Interrupt the run once more, then complete it.
            run(&Source::new(varies, (ended + 5).min(LEN - 1)), &to).1.unwrap_err();
            let (reads, packed) = run(&Source::new(varies, LEN), &to);
            let packed = packed.unwrap();
            assert_eq!((packed.samples, packed.kept_samples + reads), (LEN, LEN));
            // The journal gets an entry about every 300 bytes. That is at least five samples.
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
        // If samples have one size, the columns have gaps that are not written yet.
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
        // Replace the journal by one of a set with other columns.
        put(&bytes, &journal);
        let (reads, _) = run(&Source::new(!varies, LEN), &to);
        assert_eq!(reads, LEN);
    }
}

/// Lists of ids that are computed from their numbers. One list fails.
#[derive(Debug)]
struct Ids(Source);

impl Ids {
    fn new(fails_at: u64) -> Self {
        let schema = Spec::of_fields([Field::variable("ids", ElementType::Number(DType::I64))]);
        Self(Source { schema, ..Source::new(true, fails_at) })
    }
}

impl Dataset for Ids {
    fn spec(&self) -> &Spec {
        &self.0.schema
    }

    fn len(&self) -> u64 {
        5000
    }

    fn read(&self, sample: u64, row: &mut Row<'_, '_>, _: &mut Context) -> Result<(), ReadError> {
        if sample == self.0.fails_at {
            return Err(data("planned failure").into());
        }
        self.0.reads.fetch_add(1, Ordering::Relaxed);
        let ids: Vec<u8> =
            (0..sample % 7).flat_map(|at| (sample as i64 * 3 + at as i64).to_le_bytes()).collect();
        Ok(row.put(0, &ids)?)
    }

    fn fingerprint(&self) -> u64 {
        self.0.fingerprint
    }
}

#[test]
fn token_ids_resume_where_they_were_and_are_the_same_on_any_number_of_threads() {
    let dir = tempdir().unwrap();
    let pair = |name: &str| {
        let bin = dir.path().join(name);
        (fs::read(&bin).unwrap(), fs::read(bin.with_extension("idx")).unwrap())
    };
    let options =
        |threads: usize| TokenPackOptions { end: Some(9), threads, ..TokenPackOptions::new(DType::U16) };
    let pack = |source: &Ids, name: &str, threads: usize| {
        let mut last = 0;
        let packed = pack_tokens(source, dir.path().join(name), &options(threads), |count| {
            assert!(count > last, "progress goes on");
            last = count;
        });
        packed.map(|packed| (packed, last))
    };
    let (whole, last) = pack(&Ids::new(u64::MAX), "whole.bin", 1).unwrap();
    assert_eq!((whole.documents, whole.kept, last), (5000, 0, 5000));
    assert_eq!(whole.tokens, 5000 + (0..5000).map(|sample| sample % 7).sum::<u64>());
    let (many, _) = pack(&Ids::new(u64::MAX), "many.bin", 5).unwrap();
    assert_eq!((many, pair("many.bin")), (whole, pair("whole.bin")));

    // Interrupt the run several times, each time at a later sample or the same one.
    for fails_at in [1500, 1500, 3000, 4999] {
        let error = pack(&Ids::new(fails_at), "part.bin", 3).unwrap_err();
        assert_eq!((error.message(), error.sample()), ("planned failure", Some(fails_at)));
        assert!(!dir.path().join("part.bin").exists() && !dir.path().join("part.idx").exists());
    }
    let source = Ids::new(u64::MAX);
    let (rest, _) = pack(&source, "part.bin", 2).unwrap();
    let reads = source.0.reads.load(Ordering::Relaxed);
    assert!(rest.kept > 4000 && reads == 5000 - rest.kept, "{rest:?}, {reads} were read");
    assert_eq!(pair("part.bin"), pair("whole.bin"));

    // A run does not resume if bytes are damaged or options differ.
    assert!(pack(&Ids::new(4000), "other.bin", 2).is_err());
    let partial = dir.path().join("other.bin.partial");
    let mut bytes = fs::read(&partial).unwrap();
    bytes[100] ^= 1;
    fs::write(&partial, bytes).unwrap();
    assert_eq!(pack(&Ids::new(u64::MAX), "other.bin", 2).unwrap().0.kept, 0);
    assert_eq!(pair("other.bin"), pair("whole.bin"));
    assert!(pack(&Ids::new(4000), "end.bin", 2).is_err());
    let plain = TokenPackOptions::new(DType::U16);
    assert_eq!(pack_tokens(&Ids::new(u64::MAX), dir.path().join("end.bin"), &plain, |_| {}).unwrap().kept, 0);
    let left: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left.len(), 10, "only pairs are left: {left:?}");
}

#[test]
fn what_cannot_be_packed_as_token_ids_is_an_error_that_says_why() {
    let dir = tempdir().unwrap();
    let to = dir.path().join("x.bin");
    let refused = |source: &dyn Dataset, to: &Path, options: &TokenPackOptions| {
        pack_tokens(source, to, options, |_| {}).unwrap_err().to_string()
    };
    let ids = Ids::new(u64::MAX);
    for (options, why) in [
        (TokenPackOptions::new(DType::U8), "does not fit into u8: give a wider type"),
        (TokenPackOptions::new(DType::U32), "an .idx knows ids of the types"),
        (TokenPackOptions::new(DType::F32), "an .idx knows ids of the types"),
        (
            TokenPackOptions { field: "tokens".into(), ..TokenPackOptions::new(DType::I32) },
            "no field \"tokens\"",
        ),
        (
            TokenPackOptions { end: Some(70_000), ..TokenPackOptions::new(DType::U16) },
            "id 70000 does not fit",
        ),
    ] {
        let error = refused(&ids, &to, &options);
        assert!(error.contains(why), "{error}");
        assert!(!to.exists());
    }
    let options = TokenPackOptions::new(DType::I32);
    assert!(refused(&ids, &dir.path().join("x.arrow"), &options).contains("a file called .bin"));
    let bytes = Source::new(true, u64::MAX);
    let of_bytes = TokenPackOptions { field: "bytes".into(), ..options.clone() };
    assert!(refused(&bytes, &to, &of_bytes).contains("is no list of whole numbers"));
    pack_tokens(&ids, &to, &options, |_| {}).unwrap();
    assert!(refused(&ids, &to, &options).contains("exists already"));
}
