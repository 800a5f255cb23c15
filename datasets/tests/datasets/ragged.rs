//! Readers of samples that differ in size as data sets of ragged fields: every value is that of the reader.

use crate::made;

use std::path::Path;

use feedline_core::{
    CheckOptions, Context, DType, Dataset, Error, ErrorKind, Layout, Result, Rows, StridedColumn,
    check_dataset, lengths,
};
use feedline_datasets::{ElementType, Ragged, Reader, Schema, SchemaField, Values, open};

/// Compares every sample with what the reader gives, and checks the contract of data sets.
fn check(data: &Ragged) {
    let layout = Layout::new(data.spec(), 1).unwrap();
    let mut slab = vec![0; layout.bytes()];
    let (mut values, mut context) = (Values::new(), Context::new(0, 0));
    for id in 0..data.len() {
        let mut rows = Rows::new(&layout, &mut slab, 1);
        data.read(id, &mut rows.row(0), &mut context).unwrap();
        drop(rows);
        data.reader().read(id, &mut values).unwrap();
        for (field, value) in data.reader().schema().fields().iter().zip(values.fields()) {
            let index = data.spec().index_of(&field.name).unwrap();
            let bytes = match data.spec().fields()[index].as_ragged() {
                Some(_) => layout.row_values(&slab, index, 0),
                None => &slab[layout.offset(index)..][..value.bytes.len()],
            };
            assert_eq!(bytes, value.bytes, "sample {id}, {field}");
            if let Ok(shape) = data.spec().index_of(&format!("{}.shape", field.name)) {
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
    let lines = Ragged::new(open(&text).unwrap(), 40).unwrap();
    check(&lines);
    assert_eq!(lengths(&lines, "text").unwrap(), [19, 0, 7]);

    for (class, name, bytes) in [("a", "1.bin", &[1u8, 2][..]), ("a", "2.bin", &[]), ("b", "3.bin", &[3; 50])]
    {
        made::write(dir.path(), &format!("folder/{class}/{name}"), bytes);
    }
    let folder = Ragged::new(open(dir.path().join("folder")).unwrap(), 50).unwrap();
    check(&folder);
    assert_eq!(lengths(&folder, "data").unwrap(), [2, 0, 50]);
    assert_eq!(folder.spec().fields()[1].as_ragged(), None, "the label has one size");

    let tar = made::tar(&[("0.jpg", &[9; 700]), ("0.cls", b"3"), ("1.jpg", &[8; 20]), ("1.cls", b"12")]);
    let tar = made::write(dir.path(), "set.tar", &tar);
    let archive = Ragged::new(open(&tar).unwrap(), 2).unwrap().limit("jpg", 1000).unwrap();
    check(&archive);
}

#[test]
fn a_reader_of_one_size_is_as_before_with_its_column() {
    let dir = tempfile::tempdir().unwrap();
    let idx = made::write(dir.path(), "a.idx", &[0, 0, 8, 2, 0, 0, 0, 2, 0, 0, 0, 3, 1, 2, 3, 7, 8, 9]);
    let data = Ragged::new(open(&idx).unwrap(), 1).unwrap();
    check(&data);
    assert!(!data.spec().is_ragged());
    assert_eq!(data.column(0).map(|column: StridedColumn<'_>| column.row(1)), Some(Some(&[7, 8, 9][..])));
}

/// Pictures of `id` x 2 pixels, complex numbers, and a number.
#[derive(Debug)]
struct Pictures(Schema);

impl Pictures {
    fn new() -> Self {
        let picture = SchemaField {
            name: "picture".to_owned(),
            element: ElementType::Number(DType::U16),
            shape: vec![None, None, Some(3)],
        };
        let points = SchemaField {
            name: "points".to_owned(),
            element: ElementType::Complex64,
            shape: vec![None, Some(2)],
        };
        Self(Schema::new([picture, SchemaField::fixed("n", ElementType::Bool, &[]), points]))
    }
}

impl Reader for Pictures {
    fn format(&self) -> &'static str {
        "pictures"
    }

    fn schema(&self) -> &Schema {
        &self.0
    }

    fn len(&self) -> u64 {
        5
    }

    fn read(&self, sample: u64, values: &mut Values) -> Result<()> {
        let (n, values) = (sample as usize, values.begin(3));
        values[0].set_shape([n, 2, 3]);
        values[0].resize(n * 2 * 3 * 2).fill(sample as u8);
        values[1].set_shape([]);
        values[1].resize(1).fill(1);
        values[2].set_shape([n, 2]);
        values[2].resize(n * 2 * 8).fill(7);
        Ok(())
    }

    fn path(&self, _: u64) -> Option<&Path> {
        None
    }

    fn fingerprint(&self) -> u64 {
        1
    }
}

#[test]
fn several_dimensions_that_vary_come_with_their_shape() {
    let data = Ragged::new(Box::new(Pictures::new()), 100).unwrap();
    let fields: Vec<_> =
        data.spec().fields().iter().map(|field| (field.name(), field.shape().to_vec())).collect();
    let wanted = [("picture", vec![]), ("picture.shape", vec![3]), ("n", vec![]), ("points", vec![2, 2])];
    assert_eq!(fields, wanted);
    check(&data);
}

#[test]
fn limits_are_named_in_errors() {
    let data = Ragged::new(Box::new(Pictures::new()), 17).unwrap();
    let error = lengths(&data, "picture").unwrap_err();
    assert_eq!((error.kind(), error.sample()), (ErrorKind::Sample, Some(3)));
    assert!(error.to_string().contains("\"picture\" has 18 items in this sample, but at most 17"), "{error}");
    let data = data.limit("picture", 100).unwrap();
    check(&data);
    let refused = |result: Result<Ragged>| -> Error { result.map(drop).unwrap_err() };
    let data = || Ragged::new(Box::new(Pictures::new()), 17).unwrap();
    assert!(refused(data().limit("n", 3)).message().contains("is not ragged"));
    assert!(refused(data().limit("nothing", 3)).message().contains("no field"));
    assert!(refused(data().limit("points", 0)).message().contains("the limit must be from 1"));
}
