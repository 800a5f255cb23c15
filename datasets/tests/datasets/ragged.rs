//! Readers of samples that differ in size, as data sets of ragged fields: every value equals the reader's.

use crate::made;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use feedline_core::{
    About, CheckOptions, Context, DType, Dataset, ElementType, Error, ErrorKind, Field, Layout, ReadError,
    Result, Row, Spec, StridedColumn, Values, check_dataset, lengths,
};
use feedline_datasets::{Bounded, open};

/// Compares every sample with the reader's, and checks the contract of data sets.
fn check(data: &Bounded) {
    let layout = Layout::new(data.spec(), 1).unwrap();
    let mut slab = vec![0; layout.bytes()];
    let (mut values, mut context) = (Values::new(), Context::new(0, 0));
    for id in 0..data.len() {
        let mut rows = feedline_core::Rows::new(&layout, &mut slab, 1);
        data.read(id, &mut rows.row(0), &mut context).unwrap();
        drop(rows);
        values.read(data.inner(), id).unwrap();
        for (field, value) in data.inner().spec().fields().iter().zip(values.fields()) {
            let index = data.spec().index_of(field.name()).unwrap();
            let bytes = match data.spec().fields()[index].as_ragged() {
                Some(_) => layout.row_values(&slab, index, 0),
                None => &slab[layout.offset(index)..][..value.bytes.len()],
            };
            assert_eq!(bytes, value.bytes, "sample {id}, {field}");
            if let Ok(shape) = data.spec().index_of(&format!("{}.shape", field.name())) {
                let dims = slab[layout.offset(shape)..].chunks(8).take(value.shape.len());
                let dims: Vec<i64> = dims.map(|dim| i64::from_ne_bytes(dim.try_into().unwrap())).collect();
                assert!(dims.iter().map(|&dim| dim as usize).eq(value.shape.iter().copied()), "sample {id}");
            }
        }
    }
    let report = check_dataset(data, &CheckOptions::default()).unwrap();
    assert!(report.is_clean(), "{report}");
}

#[test]
fn lines_folders_and_archives_are_ragged() {
    let dir = tempfile::tempdir().unwrap();
    let text = made::write(dir.path(), "lines.txt", "To be, or not to be\n\nthat is\n".as_bytes());
    let lines = Bounded::limited(open(&text).unwrap(), 40).unwrap();
    check(&lines);
    assert_eq!(lengths(&lines, "text").unwrap(), [19, 0, 7]);

    for (class, name, bytes) in [("a", "1.bin", &[1u8, 2][..]), ("a", "2.bin", &[]), ("b", "3.bin", &[3; 50])]
    {
        made::write(dir.path(), &format!("folder/{class}/{name}"), bytes);
    }
    let folder = Bounded::limited(open(dir.path().join("folder")).unwrap(), 50).unwrap();
    check(&folder);
    assert_eq!(lengths(&folder, "data").unwrap(), [2, 0, 50]);
    assert_eq!(folder.spec().fields()[1].as_ragged(), None, "the label has one size");

    let tar = made::tar(&[("0.jpg", &[9; 700]), ("0.cls", b"3"), ("1.jpg", &[8; 20]), ("1.cls", b"12")]);
    let tar = made::write(dir.path(), "set.tar", &tar);
    let archive = Bounded::limited(open(&tar).unwrap(), 2).unwrap().limit("jpg", 1000).unwrap();
    check(&archive);
}

#[test]
fn a_reader_of_one_size_is_as_before_with_its_column() {
    let dir = tempfile::tempdir().unwrap();
    let idx = made::write(dir.path(), "a.idx", &[0, 0, 8, 2, 0, 0, 0, 2, 0, 0, 0, 3, 1, 2, 3, 7, 8, 9]);
    let data = Bounded::limited(open(&idx).unwrap(), 1).unwrap();
    check(&data);
    assert!(!data.spec().is_ragged());
    assert_eq!(
        data.storage().column(0).map(|column: StridedColumn<'_>| column.row(1)),
        Some(Some(&[7, 8, 9][..]))
    );
}

/// Pictures of `id` x 2 pixels, complex numbers, and a number.
#[derive(Debug)]
struct Pictures(Spec);

impl Pictures {
    fn new() -> Self {
        let picture = Field::open("picture", ElementType::Number(DType::U16), [None, None, Some(3)]);
        let points = Field::open("points", ElementType::Complex64, [None, Some(2)]);
        Self(Spec::of_fields([picture, Field::fixed("n", ElementType::Bool, &[]), points]))
    }
}

impl Dataset for Pictures {
    fn spec(&self) -> &Spec {
        &self.0
    }

    fn len(&self) -> u64 {
        5
    }

    fn read(&self, sample: u64, row: &mut Row<'_, '_>, _: &mut Context) -> Result<(), ReadError> {
        let n = sample as usize;
        row.put_shaped(0, &vec![sample as u8; n * 2 * 3 * 2], Some(&[n, 2, 3]))?;
        row.put(1, &[1])?;
        Ok(row.put(2, &vec![7; n * 2 * 8])?)
    }
}

#[test]
fn several_dimensions_that_vary_come_with_their_shape() {
    let data = Bounded::limited(Arc::new(Pictures::new()), 100).unwrap();
    let fields: Vec<_> =
        data.spec().fields().iter().map(|field| (field.name(), field.shape().to_vec())).collect();
    let wanted = [("picture", vec![]), ("picture.shape", vec![3]), ("n", vec![]), ("points", vec![2, 2])];
    assert_eq!(fields, wanted);
    check(&data);

    let data = Bounded::measured(Arc::new(Pictures::new())).unwrap();
    assert_eq!(data.lengths("picture").unwrap(), [0, 6, 12, 18, 24], "single elements");
    assert_eq!(data.lengths("points").unwrap(), [0, 1, 2, 3, 4]);
    assert_eq!(data.max_per_batch("picture", 2).unwrap(), 24 + 18);
    check(&data);
}

#[test]
fn limits_are_named_in_errors() {
    let data = Bounded::limited(Arc::new(Pictures::new()), 17).unwrap();
    let error = lengths(&data, "picture").unwrap_err();
    assert_eq!((error.kind(), error.sample()), (ErrorKind::Sample, Some(3)));
    assert!(error.to_string().contains("\"picture\" has 18 items in this sample, but at most 17"), "{error}");
    let data = data.limit("picture", 100).unwrap();
    check(&data);
    let refused = |result: Result<Bounded>| -> Error { result.map(drop).unwrap_err() };
    let data = || Bounded::limited(Arc::new(Pictures::new()), 17).unwrap();
    assert!(refused(data().limit("n", 3)).message().contains("is not ragged"));
    assert!(refused(data().limit("nothing", 3)).message().contains("no field"));
    assert!(refused(data().limit("points", 0)).message().contains("the limit must be from 1"));
}

/// Frames of three channels, as many as the number of the sample, put without their shape.
#[test]
fn a_shape_that_the_bytes_determine_need_not_be_put() {
    let frames = Field::open("frames", ElementType::Number(DType::U8), [Some(3), None]);
    let spec = Spec::of_fields([frames, Field::fixed("n", ElementType::Bool, &[])]);
    let inner = feedline_core::from_fn(5, spec, |id, row, _| {
        row.put(0, &vec![id as u8; 3 * id as usize])?;
        Ok(row.put(1, &[1])?)
    });
    let data = Bounded::limited(Arc::new(inner), 12).unwrap();
    check(&data);
    let mut values = Values::new();
    values.read(&data, 4).unwrap();
    let shape = [3_i64, 4].map(i64::to_le_bytes).concat();
    assert_eq!((values.fields()[0].bytes.len(), &values.fields()[1].bytes), (12, &shape));
}

/// Another reader, with a count of the samples that are read.
#[derive(Debug)]
struct Counted {
    reader: Arc<dyn Dataset>,
    visits: Arc<AtomicU64>,
}

impl Dataset for Counted {
    fn spec(&self) -> &Spec {
        self.reader.spec()
    }

    fn len(&self) -> u64 {
        self.reader.len()
    }

    fn read(&self, sample: u64, row: &mut Row<'_, '_>, context: &mut Context) -> Result<(), ReadError> {
        self.visits.fetch_add(1, Ordering::Relaxed);
        self.reader.read(sample, row, context)
    }

    fn about(&self) -> About<'_> {
        self.reader.about()
    }

    fn path(&self, sample: u64) -> Option<&Path> {
        self.reader.path(sample)
    }

    fn fingerprint(&self) -> u64 {
        self.reader.fingerprint()
    }
}

#[test]
fn a_set_whose_fields_have_limits_is_read_as_it_is() {
    let spec = Spec::new().field("n", DType::I64, []).unwrap().ragged("x", DType::U16, [], 9).unwrap();
    let inner = feedline_core::from_fn(30, spec.clone(), |id, row, context| {
        row.field_mut::<i64>(0)?[0] = context.random().below(1 << 40) as i64;
        Ok(row.write_ragged(1, &vec![id as u16; id as usize % 5])?)
    });
    let inner: Arc<dyn Dataset> = Arc::new(inner);
    let [same, limited] =
        [Bounded::new(inner.clone()), Bounded::limited(inner.clone(), 3)].map(Result::unwrap);
    assert_eq!((same.spec(), limited.spec()), (&spec, &spec), "its own limit is kept");
    let measured =
        Bounded::measured_at(inner.clone(), tempfile::tempdir().unwrap().path().join("x")).unwrap();
    assert_eq!(measured.spec().fields()[1].as_ragged().unwrap().max_per_sample(), 4);
    assert_eq!(measured.lengths("x").unwrap()[..6], [0, 1, 2, 3, 4, 0]);
    let sample = |set: &dyn Dataset, id| {
        let (mut values, mut context) = (Vec::new(), Context::new(7, 3));
        context.begin(0, id);
        set.copy(id, &mut values, &mut context).unwrap();
        values
    };
    for set in [&same, &limited, &measured] {
        assert!((0..30).all(|id| sample(set, id) == sample(&*inner, id)), "the numbers drawn are the same");
        assert!(check_dataset(set, &CheckOptions::default()).unwrap().is_clean());
    }
    let error = Bounded::new(inner).unwrap().limit("x", 2).unwrap();
    let mut values = Values::new();
    assert!(values.read(&error, 2).is_ok());
    assert!(values.read(&error, 3).unwrap_err().to_string().contains("\"x\""));
}

/// The measured set of `path`, and the number of samples that were read to measure it.
fn measured(path: &Path, cache: Option<&Path>) -> Result<(Bounded, u64)> {
    let visits = Arc::new(AtomicU64::new(0));
    let reader = Arc::new(Counted { reader: open(path).unwrap(), visits: visits.clone() });
    let data = match cache {
        Some(cache) => Bounded::measured_at(reader, cache),
        None => Bounded::measured(reader),
    };
    data.map(|data| (data, visits.load(Ordering::Relaxed)))
}

#[test]
fn limits_are_found_by_one_pass_that_is_kept_in_a_file() {
    let dir = tempfile::tempdir().unwrap();
    let lines: Vec<String> = (0..3000usize).map(|line| "x".repeat(line * 7919 % 541)).collect();
    let text = made::write(dir.path(), "set/lines.txt", (lines.join("\n") + "\n").as_bytes());
    let expected: Vec<u32> = lines.iter().map(|line| line.len() as u32).collect();

    let cache = dir.path().join("kept");
    let (data, visits) = measured(&text, Some(&cache)).unwrap();
    assert_eq!((data.lengths("text").unwrap(), visits), (&expected[..], 3000));
    assert_eq!(lengths(&data, "text").unwrap(), expected);
    assert_eq!(data.spec().fields()[0].as_ragged().unwrap().max_per_sample(), 540);
    let mut longest = expected.clone();
    longest.sort_unstable();
    let largest: u32 = longest.iter().rev().take(7).sum();
    assert_eq!(data.max_per_batch("text", 7).unwrap(), largest as usize);
    assert_eq!(data.max_per_batch("text", 3000).unwrap(), expected.iter().sum::<u32>() as usize);
    check(&data);

    let (again, visits) = measured(&text, Some(&cache)).unwrap();
    assert_eq!((again.lengths("text").unwrap(), visits), (&expected[..], 0));
    assert_eq!(again.fingerprint(), data.fingerprint());

    // If the cache is damaged, cut short or of other data, the samples are counted anew and the cache is
    // repaired.
    let good = std::fs::read(&cache).unwrap();
    for at in [0, 8, 16, 24, 32, 40, good.len() / 2, good.len() - 1] {
        let mut bad = good.clone();
        bad[at] ^= 1;
        std::fs::write(&cache, &bad).unwrap();
        assert_eq!(measured(&text, Some(&cache)).unwrap().1, 3000, "byte {at}");
        assert_eq!(std::fs::read(&cache).unwrap(), good);
    }
    std::fs::write(&cache, &good[..good.len() - 4]).unwrap();
    assert_eq!(measured(&text, Some(&cache)).unwrap().1, 3000);
    // As many samples of another file: the kept counts have a valid checksum, but are not these.
    std::fs::write(&text, "x\n".repeat(3000)).unwrap();
    let (other, visits) = measured(&text, Some(&cache)).unwrap();
    assert_eq!((other.lengths("text").unwrap(), visits), (&[1; 3000][..], 3000));
    std::fs::write(&text, "one\nfour\n").unwrap();
    let (other, visits) = measured(&text, Some(&cache)).unwrap();
    assert_eq!((other.lengths("text").unwrap(), visits), (&[3, 4][..], 2));
}

/// Run by the test below, with a cache of its own.
#[test]
#[ignore = "a process of another test"]
fn measures_the_set_that_a_variable_names() {
    let Some(text) = std::env::var_os("FEEDLINE_TEST_LINES") else { return };
    let (data, visits) = measured(Path::new(&text), None).unwrap();
    println!("lengths {:?}, {visits} read", data.lengths("text").unwrap());
}

#[test]
fn lengths_are_kept_in_the_users_cache_and_nothing_beside_the_data() {
    let dir = tempfile::tempdir().unwrap();
    let text = made::write(dir.path(), "set/lines.txt", b"one\n\nfour\n");
    let measure = |variable: &str, value: &Path, text: &Path| {
        let mut this = std::process::Command::new(std::env::current_exe().unwrap());
        this.args(["--exact", "ragged::measures_the_set_that_a_variable_names", "--ignored", "--nocapture"]);
        this.env_remove("FEEDLINE_CACHE").env_remove("XDG_CACHE_HOME").env("HOME", dir.path().join("home"));
        let ran = this.env(variable, value).env("FEEDLINE_TEST_LINES", text).output().unwrap();
        let said = String::from_utf8(ran.stdout).unwrap();
        assert!(ran.status.success(), "{said}");
        said.lines().find_map(|line| Some(line.split_once("lengths ")?.1.to_owned())).unwrap()
    };
    let names = |folder: &Path| -> Vec<String> {
        let Ok(files) = std::fs::read_dir(folder) else { return Vec::new() };
        files.map(|file| file.unwrap().file_name().into_string().unwrap()).collect()
    };
    let counted = "[3, 0, 4], 3 read";
    let kept = "[3, 0, 4], 0 read";
    for (variable, folder, below) in [
        ("FEEDLINE_CACHE", "stated", "stated/lengths"),
        ("XDG_CACHE_HOME", "xdg", "xdg/feedline/lengths"),
        ("FEEDLINE_TEST_NOTHING", "", "home/.cache/feedline/lengths"),
    ] {
        let folder = dir.path().join(folder);
        assert_eq!(measure(variable, &folder, &text), counted, "{variable}");
        assert_eq!(names(&dir.path().join(below)).len(), 1, "{variable}");
        assert_eq!(measure(variable, &folder, &text), kept, "{variable}");
    }
    // A copy of the data elsewhere has its own file; so has other data at the same place.
    let stated = dir.path().join("stated");
    let copy = made::write(dir.path(), "copy/lines.txt", b"one\n\nfour\n");
    assert_eq!(measure("FEEDLINE_CACHE", &stated, &copy), counted);
    made::write(dir.path(), "copy/lines.txt", b"1\n22\n333\n");
    assert_eq!(measure("FEEDLINE_CACHE", &stated, &copy), "[1, 2, 3], 3 read");
    assert_eq!(names(&stated.join("lengths")).len(), 3);
    // Without a folder, or with one that cannot be made, each call counts.
    let file = made::write(dir.path(), "file", b"");
    for no_folder in [Path::new("off"), Path::new(""), &file] {
        for _ in 0..2 {
            assert_eq!(measure("FEEDLINE_CACHE", no_folder, &text), counted);
        }
    }
    for folder in ["set", "copy"] {
        assert_eq!(names(&dir.path().join(folder)), ["lines.txt"], "nothing is written beside the data");
    }
    // A file of an earlier version is read.
    let beside = dir.path().join("set/.lines.txt.lengths");
    measured(&text, Some(&beside)).unwrap();
    assert_eq!(measure("FEEDLINE_CACHE", Path::new("off"), &text), kept);
    assert_eq!(open(dir.path().join("set")).unwrap().len(), 3, "it is not a sample");
}

#[test]
fn the_file_of_lengths_may_be_elsewhere() {
    let dir = tempfile::tempdir().unwrap();
    let text = made::write(dir.path(), "lines.txt", b"a\n\nabc\n");
    let cache = dir.path().join("kept");
    assert_eq!(measured(&text, Some(&cache)).unwrap().1, 3);
    assert_eq!(measured(&text, Some(&cache)).unwrap().1, 0);
    let names: Vec<_> =
        std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names.len(), 2, "{names:?}");
    // A stated place that cannot be written to is an error, and so is a folder there.
    for cache in [dir.path().join("none/kept"), dir.path().to_path_buf()] {
        let error = measured(&text, Some(&cache)).unwrap_err();
        assert_eq!((error.kind(), error.path()), (ErrorKind::Data, Some(cache.as_path())), "{error}");
    }
    // Fields of several dimensions that vary, and samples without items.
    let folder = dir.path().join("folder");
    made::write(&folder, "a/1.bin", b"");
    made::write(&folder, "a/2.bin", b"");
    let (empty, _) = measured(&folder, None).unwrap();
    assert_eq!(empty.lengths("data").unwrap(), [0, 0]);
    assert_eq!(empty.max_per_batch("data", 2).unwrap(), 1);
    check(&empty);
    for (error, word) in [
        (empty.lengths("label").unwrap_err(), "not ragged"),
        (empty.lengths("x").unwrap_err(), "\"x\""),
        (
            Bounded::limited(open(&text).unwrap(), 9).unwrap().lengths("text").unwrap_err(),
            "Bounded::measured",
        ),
    ] {
        assert!(error.kind() == ErrorKind::Config && error.to_string().contains(word), "{error}");
    }
}

/// Samples of a text and a number, of which a read puts the first `given`, and one more if there are three.
#[derive(Debug)]
struct Given {
    spec: Spec,
    given: usize,
    nesting: usize,
}

impl Given {
    fn new(given: usize, nesting: usize) -> Arc<Self> {
        let number = Field::fixed("number", ElementType::Number(DType::U8), &[]);
        let spec = Spec::of_fields([number, Field::variable("text", ElementType::Bytes)]);
        Arc::new(Self { spec, given, nesting })
    }
}

impl Dataset for Given {
    fn spec(&self) -> &Spec {
        &self.spec
    }

    fn len(&self) -> u64 {
        4
    }

    fn read(&self, sample: u64, row: &mut Row<'_, '_>, _: &mut Context) -> Result<(), ReadError> {
        (0..self.given).try_for_each(|field| row.put(field, &[sample as u8]))?;
        Ok(())
    }

    fn about(&self) -> About<'_> {
        About { nesting: self.nesting, ..About::default() }
    }
}

/// A field that a read leaves out would be that of an earlier sample. Files are read in place, and composed
/// sets through a sink.
#[test]
fn a_reader_that_gives_fewer_fields_is_an_error_and_more_are_ignored() {
    for nesting in [0, 1] {
        let read = |given| {
            let data = Bounded::limited(Given::new(given, nesting), 3).unwrap();
            let layout = Layout::new(data.spec(), 3).unwrap();
            let mut slab = vec![9; layout.bytes()];
            let mut rows = feedline_core::Rows::new(&layout, &mut slab, 3);
            let read = data.read_many(&[1, 3, 2], &mut rows, &mut Context::new(0, 0));
            drop(rows);
            read.map(|()| slab[layout.offset(0)..][..3].to_vec())
        };
        for given in [0, 1] {
            let (index, error) = read(given).unwrap_err();
            let why = error.to_string();
            assert!(index == 0 && why.contains(&format!("gave {given} of the 2 fields")), "{why}");
            assert!(why.ends_with("(sample 1)"), "{why}");
        }
        for given in [2, 3] {
            assert_eq!(read(given).unwrap(), [1, 3, 2], "{given} given, nesting {nesting}");
        }
    }
}
