//! Files that a table lists, and files that a pattern matches.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::made::{read, tar, write};
use arrow_array::{Int32Array, RecordBatch, StringArray};
use feedline_core::{Context, Dataset, ErrorKind, Layout, Values};
use feedline_datasets::{Manifest, ManifestOptions, OpenOptions, Pictures, open, open_pictures, open_with};
use feedline_images::Transforms;
use tempfile::{TempDir, tempdir};

/// Four rows: two with the path of a picture, one whose file does not exist, and one without a path.
const ROWS: [(&str, &str, i32); 4] =
    [("ant/1.jpg", "bee", 3), ("./b 2.jpg", "ant", 5), ("gone.jpg", "bee", 7), ("ant/1.jpg", "cat", 9)];

fn picture(name: &str) -> Vec<u8> {
    fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/images/tests/golden/pictures").join(name))
        .unwrap()
}

/// A folder with the pictures, and the manifest as each format.
fn made() -> (TempDir, [PathBuf; 4]) {
    let dir = tempdir().unwrap();
    fs::create_dir_all(dir.path().join("ant")).unwrap();
    write(dir.path(), "ant/1.jpg", &picture("420.jpg"));
    write(dir.path(), "b 2.jpg", &picture("gray.jpg"));
    let (mut csv, mut jsonl) = ("file,species,size\n".to_owned(), String::new());
    for (file, species, size) in ROWS {
        csv += &format!("{file},{species},{size}\n");
        jsonl += &format!("{{\"file\": \"{file}\", \"species\": \"{species}\", \"size\": {size}}}\n");
    }
    let columns = [
        ("file", Arc::new(StringArray::from_iter_values(ROWS.map(|row| row.0))) as arrow_array::ArrayRef),
        ("species", Arc::new(StringArray::from_iter_values(ROWS.map(|row| row.1)))),
        ("size", Arc::new(Int32Array::from_iter_values(ROWS.map(|row| row.2)))),
    ];
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let mut parquet = parquet::arrow::ArrowWriter::try_new(Vec::new(), batch.schema(), None).unwrap();
    parquet.write(&batch).unwrap();
    let mut arrow = arrow_ipc::writer::FileWriter::try_new(Vec::new(), &batch.schema()).unwrap();
    arrow.write(&batch).unwrap();
    let files = [
        write(dir.path(), "a.csv", csv.as_bytes()),
        write(dir.path(), "a.jsonl", jsonl.as_bytes()),
        write(dir.path(), "a.parquet", &parquet.into_inner().unwrap()),
        write(dir.path(), "a.arrow", &arrow.into_inner().unwrap()),
    ];
    (dir, files)
}

fn labelled(label: &str) -> ManifestOptions {
    ManifestOptions { label: Some(label.into()), ..Default::default() }
}

#[test]
fn the_files_that_a_table_names_are_read_in_their_place() {
    let (_dir, manifests) = made();
    for path in manifests {
        let set = Manifest::open(&path, &labelled("species")).unwrap();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        assert_eq!(
            (set.len(), set.about().classes.unwrap()),
            (4, &["ant", "bee", "cat"].map(String::from)[..])
        );
        assert!(set.spec().to_string().starts_with("file bytes [?], species i64 [], size i"), "{name}");
        for (row, picture_of, class, size) in
            [(0, "420.jpg", 1, 3), (1, "gray.jpg", 0, 5), (3, "420.jpg", 2, 9)]
        {
            let values = read(&set, row);
            assert_eq!(values[0], picture(picture_of), "{name}");
            assert_eq!((values[1][0], values[2][0]), (class, size), "{name}");
        }
        let error = Values::new().read(&set, 2).unwrap_err();
        assert_eq!((error.kind(), error.sample()), (ErrorKind::Data, Some(2)), "{name}");
        let text = error.to_string();
        assert!(
            text.contains("column \"file\" names in row 2") && text.contains("gone.jpg"),
            "{name}: {text}"
        );
        assert!(set.path(2).unwrap().ends_with("gone.jpg") && Values::new().read(&set, 4).is_err());
    }
}

#[test]
fn pictures_of_a_manifest_are_decoded_and_a_missing_one_is_an_error_of_its_row() {
    let (dir, [csv, ..]) = made();
    let set =
        Pictures::new(open_pictures(&csv, &labelled("species")).unwrap(), Transforms::new().center_crop(8));
    let set = set.unwrap();
    let names: Vec<_> = set.spec().fields().iter().map(|field| field.name()).collect();
    assert_eq!(names, ["image", "species", "size"]);
    let layout = Layout::new(set.spec(), 2).unwrap();
    let mut slab = vec![0; layout.bytes()];
    let mut rows = feedline_core::Rows::new(&layout, &mut slab, 2);
    set.read_many(&[1, 3], &mut rows, &mut Context::new(0, 0)).unwrap();
    assert_eq!(rows.column_mut(1).to_vec()[..], [0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0]);
    let (at, error) = set.read_many(&[0, 2], &mut rows, &mut Context::new(0, 0)).unwrap_err();
    assert!(at == 1 && error.to_string().contains("row 2"), "{error:?}");
    // Another root, and absolute paths, which need none.
    let elsewhere = tempdir().unwrap();
    let whole = dir.path().join("b 2.jpg");
    let text = format!("file,label\nant/1.jpg,4\n{},2\n", whole.display());
    let csv = write(elsewhere.path(), "b.csv", text.as_bytes());
    let options = ManifestOptions { root: Some(dir.path().into()), ..Default::default() };
    let rooted = open_pictures(&csv, &options).unwrap();
    assert_eq!(
        (read(&*rooted, 0), rooted.about().classes),
        (vec![picture("420.jpg"), vec![4, 0, 0, 0, 0, 0, 0, 0]], None)
    );
    assert_eq!(read(&*rooted, 1)[0], picture("gray.jpg"));
    assert!(Values::new().read(&*open_pictures(&csv, &ManifestOptions::default()).unwrap(), 0).is_err());
}

#[test]
fn columns_are_found_by_their_values_or_named() {
    let dir = tempdir().unwrap();
    write(dir.path(), "1.png", b"one");
    write(dir.path(), "1.wav", b"sound");
    let open = |text: &str, options: &ManifestOptions| {
        Manifest::open(write(dir.path(), "a.csv", text.as_bytes()), options)
    };
    let schema = |text: &str, options: &ManifestOptions| open(text, options).unwrap().spec().to_string();
    let plain = ManifestOptions::default();
    // The only other column is the label. A column with another ending in some row is not a column of files.
    assert_eq!(schema("f,what\n1.png,x\n", &plain), "f bytes [?], what i64 []");
    assert_eq!(
        schema("f,mask,note,n\n1.png,2.PNG,1.txt,4\n", &plain),
        "f bytes [?], mask bytes [?], note text [?], n i64 []"
    );
    assert_eq!(
        schema("id,f,class,note\n3,1.png,x,y\n", &plain),
        "id i64 [], f bytes [?], class i64 [], note text [?]"
    );
    assert_eq!(
        schema("f,odd,n\n1.png,2.png,1\n1.png,see below,2\n", &plain),
        "f bytes [?], odd text [?], n i64 []"
    );
    let clips = ManifestOptions { files: vec!["clip".into()], ..Default::default() };
    assert_eq!(schema("clip,word\n1.wav,no\n", &clips), "clip bytes [?], word i64 []");
    for (text, options, why) in [
        ("clip,word\n1.wav,no\n", &plain, "ManifestOptions::files"),
        ("f,n\n1.png,x\n", &clips, "no column \"clip\""),
        ("f,n\n1.png,x\n", &labelled("m"), "no column \"m\" of labels; the columns are \"f\", \"n\""),
        ("f,n\n1.png,x\n", &labelled("f"), "name two"),
        ("f,clip\n1.png,3\n", &clips, "holds no paths"),
    ] {
        let error = open(text, options).unwrap_err();
        assert!(error.kind() == ErrorKind::Config && error.message().contains(why), "{error}");
    }
    write(dir.path(), "a.tar", &tar(&[("0.jpg", b"x")]));
    assert!(Manifest::open(dir.path().join("a.tar"), &plain).unwrap_err().message().contains("is a table"));
    let options = ManifestOptions { root: Some("p".into()), ..Default::default() };
    let error = open_pictures(dir.path().join("a.tar"), &options).unwrap_err();
    assert!(error.message().starts_with("ManifestOptions::root is for a manifest"), "{error}");
}

#[test]
fn rows_without_a_path_or_a_class_are_errors_of_their_own() {
    let dir = tempdir().unwrap();
    for name in ["1.png", "2.png", "3.png"] {
        write(dir.path(), name, name.as_bytes());
    }
    let csv = write(dir.path(), "a.csv", b"f,label,n\n1.png,b,1\n,a,2\n2.png,a,\n3.png,,4\n3.png,c,5\n");
    let set = Manifest::open(&csv, &ManifestOptions::default()).unwrap();
    let fails = |set: &Manifest| -> Vec<u64> {
        (0..set.len()).filter(|&row| Values::new().read(&*set, row).is_err()).collect()
    };
    assert_eq!((fails(&set), set.about().classes.unwrap().len()), (vec![1, 2, 3], 3));
    let error = Values::new().read(&set, 1).unwrap_err().to_string();
    assert!(error.contains("column \"f\" in row 1 is empty"), "{error}");
    let open = OpenOptions { classes: Some(vec!["b".into(), "a".into()]), ..Default::default() };
    let stated = Manifest::open(&csv, &ManifestOptions { open, ..Default::default() }).unwrap();
    assert_eq!(read(&stated, 0)[1][0], 0);
    assert_eq!(fails(&stated), [1, 2, 3, 4]);
    let error = Values::new().read(&stated, 4).unwrap_err().to_string();
    assert!(error.contains("none of the stated classes") && error.contains("a.csv"), "{error}");
}

#[test]
fn the_fingerprint_of_a_manifest_covers_its_files_and_a_copy_fits() {
    let (first, [one, ..]) = made();
    let (second, [two, ..]) = made();
    let of = |path: &Path| Manifest::open(path, &labelled("species")).unwrap().fingerprint();
    assert_eq!(of(&one), of(&two));
    write(second.path(), "b 2.jpg", b"other");
    assert_ne!(of(&one), of(&two));
    write(first.path(), "a.csv", b"file,species,size\nant/1.jpg,bee,3\n");
    assert_ne!(of(&one), of(&made().1[0]));
}

/// The last byte and the label of each file of a pattern below `dir`.
#[test]
fn a_manifest_without_a_header_is_refused() {
    let dir = tempdir().unwrap();
    write(dir.path(), "a.png", &picture("gray.jpg"));
    for (text, name) in [
        ("a.png,x\nb.png,y\n", "a.png"),
        ("x,a.png\ny,b.png\n", "a.png"),
        ("a.png,x\nb.png,x\n", "a.png"),
        ("a.png\nb.png\na.png\n", "a.png"),
        ("a.png,x\nb.png,\n", "a.png"),
        ("a.png,\nb.png,x\n", "a.png"),
        ("a.png,b.png\nc.png,d.png\n", "a.png"),
        ("https://h/a.jpg?sig=1,x\nhttps://h/b.jpg,y\n", "https://h/a.jpg?sig=1"),
    ] {
        let path = write(dir.path(), "a.csv", text.as_bytes());
        for opened in [
            Manifest::open(&path, &ManifestOptions::default()).map(drop),
            open_pictures(&path, &ManifestOptions::default()).map(drop),
            Manifest::open(&path, &ManifestOptions { files: vec![name.into()], ..Default::default() })
                .map(drop),
        ] {
            let error = opened.unwrap_err();
            let why = format!("should name its columns, and \"{name}\" is a file");
            assert!(error.kind() == ErrorKind::Config && error.message().contains(&why), "{error}");
        }
    }
    // A first row with a number or an empty cell is a row, not names.
    let path = write(dir.path(), "a.csv", b"a.png,3\na.png,4\n");
    assert_eq!(open_pictures(&path, &ManifestOptions::default()).unwrap().len(), 2);
}

#[test]
fn labels_with_leading_zeros_are_classes_of_their_own() {
    let dir = tempdir().unwrap();
    write(dir.path(), "a.png", &picture("gray.jpg"));
    let set = |name: &str, labels: &[&str], options: &ManifestOptions| {
        let rows: String = labels.iter().map(|label| format!("a.png,{label}\n")).collect();
        let path = write(dir.path(), "a.csv", format!("path,{name}\n{rows}").as_bytes());
        open_pictures(&path, options).unwrap()
    };
    let read_all = |reader: &dyn Dataset| {
        let label = |row| i64::from_le_bytes(read(reader, row)[1][..8].try_into().unwrap());
        (0..reader.len()).map(label).collect::<Vec<_>>()
    };
    let none = ManifestOptions::default();
    for name in ["label", "species"] {
        let codes = set(name, &["01", "1", "10", "1"], &none);
        assert_eq!(read_all(&*codes), [0, 1, 2, 1], "{name}");
        assert_eq!(codes.about().classes.unwrap(), ["01", "1", "10"], "{name}");
        // Whole numbers stay numbers.
        let numbers = set(name, &["7", "5", "0", "-1"], &none);
        assert_eq!((read_all(&*numbers), numbers.about().classes), (vec![7, 5, 0, -1], None), "{name}");
        // A validation set whose labels have no zero in front has the classes of its training set.
        let open =
            OpenOptions { classes: codes.about().classes.map(<[String]>::to_vec), ..Default::default() };
        let stated = ManifestOptions { open, ..Default::default() };
        assert_eq!(read_all(&*set(name, &["10", "1"], &stated)), [2, 1], "{name}");
        let unknown = Values::new().read(&*set(name, &["10", "2"], &stated), 1).unwrap_err();
        assert!(unknown.to_string().contains("none of the stated classes"), "{unknown}");
    }
    let named = set("species", &["+1", "1"], &labelled("species"));
    assert_eq!(read_all(&*named), [0, 1]);
}

#[test]
fn folders_whose_names_have_braces_or_stars_are_read() {
    let dir = tempdir().unwrap();
    let jpeg = |last: u8| [&b"\xFF\xD8\xFF\xE0"[..], &[last]].concat();
    let names = [
        "p{1}/ant/{1}.jpg",
        "p{1}/bee/2*.jpg",
        "p1/ant/9.jpg",
        "{a,b}*/x{0..1}.jpg",
        "{a,b}*/x0.jpg",
        "a/x0.jpg",
    ];
    for (number, name) in (0..).zip(names) {
        write(dir.path(), name, &jpeg(number));
    }
    let plain = OpenOptions::default();
    let none = |files: &[u8]| files.iter().map(|&file| (file, None)).collect::<Vec<_>>();
    assert_eq!(listed(dir.path(), "p{1}/*/*.jpg", &plain), [(0, Some(0)), (1, Some(1))]);
    assert_eq!(listed(dir.path(), "p{1}/ant/*.jpg", &plain), none(&[0]));
    assert_eq!(listed(dir.path(), "{a,b}*/x{0..0}.jpg", &plain), none(&[4]));
    let folder = open(dir.path().join("p{1}")).unwrap();
    assert_eq!((folder.len(), folder.about().classes.unwrap().len()), (2, 2));
    let file = open(dir.path().join("{a,b}*/x{0..1}.jpg")).unwrap_err();
    assert!(!file.message().contains("pattern"), "the file itself is opened, and is no whole JPEG: {file}");
}

fn listed(dir: &Path, pattern: &str, options: &OpenOptions) -> Vec<(u8, Option<u8>)> {
    let reader = open_with(dir.join(pattern), options).unwrap_or_else(|error| panic!("{pattern}: {error}"));
    assert_eq!(reader.about().format, "files");
    let rows = (0..reader.len()).map(|row| read(&*reader, row));
    rows.map(|row| (*row[0].last().unwrap(), row.get(1).map(|label| label[0]))).collect()
}

#[test]
fn a_pattern_of_pictures_is_a_list_of_files_sorted_part_by_part() {
    let dir = tempdir().unwrap();
    let jpeg = |last: u8| [&b"\xFF\xD8\xFF\xE0"[..], &[last]].concat();
    let names = ["bee/10.jpg", "bee/9.jpg", "ant/9.jpg", "ant/x/1.jpg", "3.jpg", "20.jpg", "bee/notes.txt"];
    for (number, name) in (0..).zip(names) {
        fs::create_dir_all(dir.path().join(name).parent().unwrap()).unwrap();
        write(dir.path(), name, &jpeg(number));
    }
    let plain = OpenOptions::default();
    let none = |files: &[u8]| files.iter().map(|&file| (file, None)).collect::<Vec<_>>();
    assert_eq!(listed(dir.path(), "*.jpg", &plain), none(&[5, 4]));
    assert_eq!(listed(dir.path(), "{3,20}.jpg", &plain), none(&[4, 5]));
    assert_eq!(listed(dir.path(), "bee/{9..10}.jpg", &plain), none(&[1, 0]));
    assert_eq!(listed(dir.path(), "bee/*.jpg", &plain), none(&[0, 1]));
    assert_eq!(listed(dir.path(), "*/x/1.jpg", &plain), [(3, Some(0))]);
    let (one, other) = (dir.path().join("*.jpg"), dir.path().join("bee/*.jpg"));
    assert_ne!(open(&one).unwrap().fingerprint(), open(&other).unwrap().fingerprint());
    assert!(open(dir.path().join("*/*.gif")).unwrap_err().message().contains("no file fits"));
}

#[test]
fn the_class_of_a_file_is_the_open_folder_or_the_one_that_is_named() {
    let dir = tempdir().unwrap();
    let jpeg = |last: u8| [&b"\xFF\xD8\xFF\xE0"[..], &[last]].concat();
    for (number, name) in
        (0..).zip(["bee/a/10.jpg", "bee/a/9.jpg", "ant/a/9.jpg", "ant/b/1.jpg", "bee/c.png"])
    {
        fs::create_dir_all(dir.path().join(name).parent().unwrap()).unwrap();
        write(dir.path(), name, &jpeg(number));
    }
    let at = |class_from| OpenOptions { class_from: Some(class_from), ..Default::default() };
    let plain = OpenOptions::default();
    let some =
        |files: &[(u8, u8)]| files.iter().map(|&(file, class)| (file, Some(class))).collect::<Vec<_>>();
    assert_eq!(listed(dir.path(), "*/a/*.jpg", &plain), some(&[(2, 0), (0, 1), (1, 1)]));
    assert_eq!(listed(dir.path(), "{bee,ant}/a/9.jpg", &plain), some(&[(1, 1), (2, 0)]));
    assert_eq!(listed(dir.path(), "ant/*/*.jpg", &plain), some(&[(2, 0), (3, 1)]));
    assert_eq!(listed(dir.path(), "*/*/*.jpg", &at(2)), some(&[(2, 0), (3, 0), (0, 1), (1, 1)]));
    assert_eq!(listed(dir.path(), "*/*/*.jpg", &at(1)), some(&[(2, 0), (3, 1), (0, 0), (1, 0)]));
    let deep = listed(dir.path(), "**/*.{jpg,png}", &OpenOptions { classes: None, ..at(1) });
    assert_eq!(deep.len(), 5, "any number of folders");
    let error = open(dir.path().join("*/*/*.jpg")).unwrap_err();
    assert!(
        error.kind() == ErrorKind::Config && error.message().contains("OpenOptions::class_from"),
        "{error}"
    );
    // Stated classes number the folders; a folder that they lack is an error.
    let classes = |names: &[&str]| OpenOptions {
        classes: Some(names.iter().map(|name| (*name).to_owned()).collect()),
        ..Default::default()
    };
    let stated = listed(dir.path(), "*/a/*.jpg", &classes(&["bee", "cow", "ant"]));
    assert_eq!(stated, some(&[(2, 2), (0, 0), (1, 0)]));
    assert!(open_with(dir.path().join("*/a/*.jpg"), &classes(&["bee"])).is_err());
    let error = open_with(dir.path().join("ant"), &at(1)).unwrap_err();
    assert!(error.kind() == ErrorKind::Config && error.message().contains("leave it out"), "{error}");
}

#[test]
fn a_missing_file_of_a_list_is_an_error_of_its_sample() {
    let dir = tempdir().unwrap();
    for number in [1, 3] {
        write(dir.path(), &format!("{number}.png"), &picture("P-4.png"));
    }
    let reader = open(dir.path().join("{0..3}.png")).unwrap();
    let set = Pictures::new(reader, Transforms::new().center_crop(8)).unwrap();
    assert_eq!(set.len(), 4);
    let layout = Layout::new(set.spec(), 1).unwrap();
    let mut slab = vec![0; layout.bytes()];
    let mut read = |id| {
        set.read_many(&[id], &mut feedline_core::Rows::new(&layout, &mut slab, 1), &mut Context::new(0, 0))
            .is_ok()
    };
    assert_eq!([0, 1, 2, 3].map(&mut read), [false, true, false, true]);
    // A missing shard is an error of the set.
    assert!(open(dir.path().join("{0..2}.npy")).is_err());
}
