//! Packed sets: every type is read back unchanged, and damage is found.

use std::fs;
use std::path::Path;

use crate::made::{read, write};
use feedline_core::{Context, DType, Dataset, ElementType, Field, ReadError, Result, Row, Spec, Values};
use feedline_datasets::{ArrowFile, OpenOptions, PackOptions, open, open_with, pack};
use tempfile::tempdir;

/// Samples that are functions of their number.
#[derive(Debug)]
struct Made {
    schema: Spec,
    len: u64,
    fingerprint: u64,
}

impl Dataset for Made {
    fn spec(&self) -> &Spec {
        &self.schema
    }

    fn len(&self) -> u64 {
        self.len
    }

    fn read(&self, sample: u64, row: &mut Row<'_, '_>, _: &mut Context) -> Result<(), ReadError> {
        let fields = self.schema.fields();
        for (index, field) in fields.iter().enumerate() {
            let varying = (sample % 5) as usize;
            let shape: Vec<usize> = field.dims().iter().map(|dim| dim.unwrap_or(varying)).collect();
            let bytes = shape.iter().product::<usize>() * field.element().size();
            // Small bytes, which are valid as text and as a truth value.
            let most = if field.element() == ElementType::Bool { 2 } else { 100 };
            let bytes = (0..bytes as u64).map(|at| ((at * 7 + sample) % most) as u8);
            row.put_shaped(index, &Vec::from_iter(bytes), Some(&shape))?;
        }
        Ok(())
    }

    fn fingerprint(&self) -> u64 {
        self.fingerprint
    }
}

/// A field of each type and shape.
fn fields(varying: bool) -> Vec<Field> {
    let others = [ElementType::U64, ElementType::Complex64, ElementType::Complex128];
    let elements = DType::ALL.map(ElementType::from).into_iter().chain(others);
    let elements = elements.chain([ElementType::Bytes, ElementType::Text]);
    let shapes: &[&[Option<usize>]] =
        if varying { &[&[None], &[None, Some(3)]] } else { &[&[], &[Some(5)], &[Some(2), Some(3)]] };
    let field = |element: ElementType| {
        shapes.iter().map(move |shape| {
            let name = format!("{element} {}{}", shape.len(), if varying { " varying" } else { "" });
            Field::open(name, element, shape.to_vec())
        })
    };
    elements.flat_map(field).collect()
}

fn made(fields: Vec<Field>, len: u64) -> Made {
    Made { schema: Spec::of_fields(fields), len, fingerprint: 7 }
}

fn assert_same(one: &dyn Dataset, two: &dyn Dataset) {
    assert_eq!((one.spec(), one.len()), (two.spec(), two.len()));
    let (mut a, mut b) = (Values::new(), Values::new());
    for sample in 0..one.len() {
        a.read(one, sample).unwrap();
        b.read(two, sample).unwrap();
        assert_eq!(a.fields(), b.fields(), "sample {sample}");
    }
}

#[test]
fn every_type_and_shape_comes_back_as_it_was() {
    let dir = tempdir().unwrap();
    let one = PackOptions::default();
    for (name, fields) in [
        ("fixed", fields(false)),
        ("varying", fields(true)),
        ("both", [fields(true), fields(false)].concat()),
    ] {
        let source = made(fields, 100);
        let path = dir.path().join(name);
        let mut seen = 0;
        let packed = pack(&source, &path, one, |samples| seen = samples).unwrap();
        assert_eq!((packed.samples, packed.files, seen), (100, 1, 100));
        assert_eq!(packed.bytes, fs::metadata(&path).unwrap().len());
        for limit in [u64::MAX, 0] {
            assert_same(&source, &*open_with(&path, &OpenOptions::with_memory_limit(limit)).unwrap());
        }
        assert!(ArrowFile::open(&path).unwrap().verify().unwrap());
    }
}

#[test]
fn columns_of_one_size_are_ready_for_zero_copy_and_aligned() {
    let dir = tempdir().unwrap();
    let source = made(fields(false), 77);
    let path = dir.path().join("set");
    pack(&source, &path, PackOptions::default(), |_| {}).unwrap();
    let data = open(&path).unwrap();
    for field in 0..source.schema.fields().len() {
        let column = data.storage().column(field).unwrap();
        assert!(column.first().is_multiple_of(64), "{field}: {}", column.first());
        for sample in [0, 76] {
            assert_eq!(column.row(sample).unwrap(), read(&source, sample)[field]);
        }
    }
}

#[test]
fn a_changed_byte_and_a_cut_are_refused() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("set");
    pack(&made(fields(false), 20), &path, PackOptions::default(), |_| {}).unwrap();
    let bytes = fs::read(&path).unwrap();
    let covered = ArrowFile::open(&path).unwrap().metadata()["feedline.crc32c"].clone();
    let covered: usize = covered.split_once(':').unwrap().1.parse().unwrap();
    for at in (0..covered).step_by(97).chain([covered - 1]) {
        let mut changed = bytes.clone();
        changed[at] ^= 4;
        let error = open(write(dir.path(), "changed.arrow", &changed)).unwrap_err();
        assert!(error.path().is_some(), "{at}: {error}");
    }
    for cut in (0..bytes.len()).step_by(101).chain([bytes.len() - 1]) {
        let error = open(write(dir.path(), "cut.arrow", &bytes[..cut])).unwrap_err();
        assert!(error.path().is_some() && !error.to_string().contains('\n'), "{cut}: {error}");
    }
}

#[test]
fn shards_have_an_index_which_is_compared_with_them() {
    let dir = tempdir().unwrap();
    let shards = PackOptions { shard_bytes: Some(4000) };
    for (name, fields) in [("fixed", fields(false)), ("varying", fields(true))] {
        let source = made(fields, 90);
        let folder = dir.path().join(name);
        let packed = pack(&source, &folder, shards, |_| {}).unwrap();
        assert!(packed.files > 5 && packed.kept == 0, "{packed:?}");
        assert_same(&source, &*open(&folder).unwrap());
        assert_same(&source, &*open(folder.join("_index.json")).unwrap());
        // A removed shard is written again, with all shards after it; so is a shard of another length.
        fs::remove_file(folder.join("000002.arrow")).unwrap();
        assert!(open(&folder).unwrap_err().to_string().contains("no such file"));
        let again = pack(&source, &folder, shards, |_| {}).unwrap();
        assert_eq!((again.kept, again.files), (2, packed.files));
        assert_same(&source, &*open(&folder).unwrap());
        let first = fs::read(folder.join("000000.arrow")).unwrap();
        fs::write(folder.join("000000.arrow"), &first[..first.len() - 1]).unwrap();
        assert!(open(&folder).unwrap_err().to_string().contains("the index says"));
        // The index names a file outside of the folder.
        fs::write(folder.join("000000.arrow"), &first).unwrap();
        let text = fs::read_to_string(folder.join("_index.json")).unwrap();
        fs::write(folder.join("_index.json"), text.replace("000000.arrow", "../x")).unwrap();
        assert!(open(&folder).unwrap_err().to_string().contains("outside of its folder"));
    }
}

#[test]
fn what_cannot_be_packed_is_refused_before_anything_is_written() {
    let dir = tempdir().unwrap();
    let folder = dir.path().join("set");
    let shards = PackOptions { shard_bytes: Some(1000) };
    let label = || vec![Field::fixed("x", ElementType::Number(DType::I64), &[])];
    let two = Field::open("y", ElementType::Bytes, [None, None]);
    pack(&made(label(), 10), &folder, shards, |_| {}).unwrap();
    write(dir.path(), "other/file", b"1");
    for (source, name, options, why) in [
        (made(label(), 0), "new", shards, "no samples"),
        (made(vec![two], 1), "new", shards, "field \"y\" has more than one dimension that varies"),
        (made(label(), 1), "new", PackOptions { shard_bytes: Some(0) }, "of no bytes"),
        (made(label(), 1), "other/file", PackOptions::default(), "exists already"),
        (made(label(), 1), "other", shards, "holds other files"),
        (made(label(), 11), "set", shards, "another source"),
        (Made { fingerprint: 8, ..made(label(), 10) }, "set", shards, "another source"),
    ] {
        let error = pack(&source, dir.path().join(name), options, |_| {}).unwrap_err();
        assert!(error.to_string().contains(why), "{why}: {error}");
    }
    assert!(!dir.path().join("new/000000.arrow").exists());
    assert_eq!(open(&folder).unwrap().len(), 10);
}

#[test]
fn a_packed_set_keeps_the_names_of_its_classes() {
    let dir = tempdir().unwrap();
    for name in ["set/\"ant\"/1", "set/bee/1", "set/雪/1"] {
        write(dir.path(), name, name.as_bytes());
    }
    let folder = open(dir.path().join("set")).unwrap();
    let names = ["\"ant\"", "bee", "雪"];
    for shard_bytes in [None, Some(1)] {
        let to = dir.path().join(format!("{shard_bytes:?}.arrow"));
        let options = PackOptions { shard_bytes };
        pack(&*folder, &to, options, |_| {}).unwrap();
        let packed = open(&to).unwrap();
        assert_eq!((packed.len(), packed.about().classes.unwrap()), (3, &names.map(String::from)[..]));
        // They are checked against the training set's classes.
        let classes = Some(vec!["bee".to_owned()]);
        let error = open_with(&to, &OpenOptions { classes, ..Default::default() }).unwrap_err();
        assert!(error.to_string().contains("class 0 is \"\"ant\"\" here"), "{error}");
    }
}

#[cfg(feature = "jsonl")]
#[test]
fn a_long_list_of_classes_is_written_once() {
    use feedline_datasets::Table;

    let dir = tempdir().unwrap();
    let value = |row: u64| format!("value number {row:06} of a long list of them");
    let rows: String = (0..4000).map(|row| format!("{{\"x\": \"{}\"}}\n", value(row))).collect();
    let source = write(dir.path(), "a.jsonl", rows.as_bytes());
    let table = || Table::open(&source).category("x").rows().unwrap();
    let list = value(0).len() as u64 * 4000;
    let expected: Vec<String> = (0..4000).map(value).collect();
    let size = |path: &Path| std::fs::metadata(path).unwrap().len();

    let file = dir.path().join("one.arrow");
    pack(&*table(), &file, PackOptions::default(), |_| {}).unwrap();
    assert!((list..list + list / 2).contains(&(size(&file) - 4000 * 8)), "{} bytes", size(&file));
    assert_eq!(open(&file).unwrap().about().classes.unwrap(), expected);

    let folder = dir.path().join("set");
    let options = PackOptions { shard_bytes: Some(8 * 1000) };
    let packed = pack(&*table(), &folder, options, |_| {}).unwrap();
    assert_eq!(packed.files, 4);
    assert!(packed.bytes < 4000 * 8 + 4 * 4096, "{} bytes of shards", packed.bytes);
    let classes = folder.join("_classes.json");
    assert!(size(&classes) >= list && size(&folder.join("_index.json")) < 4096);
    let reader = open(&folder).unwrap();
    assert_eq!((reader.len(), reader.about().classes.unwrap()), (4000, &expected[..]));
    for row in [0, 999, 1000, 3999] {
        assert_eq!(read(&*reader, row), [row.to_le_bytes()]);
    }
    // A new run keeps a complete set as it is, and writes a missing list of classes again.
    std::fs::remove_file(&classes).unwrap();
    assert_eq!(pack(&*table(), &folder, options, |_| {}).unwrap().kept, 4);
    assert_eq!(open(&folder).unwrap().about().classes.unwrap(), expected);
    // A list that is missing, cut or changed is an error that names it.
    let good = std::fs::read(&classes).unwrap();
    let other = String::from_utf8(good.clone()).unwrap().replace("000000", "900000");
    for bad in [Some(&good[..good.len() - 1]), Some(other.as_bytes()), None] {
        match bad {
            Some(bytes) => std::fs::write(&classes, bytes).unwrap(),
            None => std::fs::remove_file(&classes).unwrap(),
        }
        let error = open(&folder).unwrap_err();
        assert_eq!(error.path(), Some(classes.as_path()), "{error}");
    }
}
