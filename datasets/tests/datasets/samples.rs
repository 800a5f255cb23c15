//! Sets whose samples are files, lines, records or windows: WebDataset, folders, text, CIFAR, tokens, shards.

use crate::made::{gz, npy, read, tar, write};
use feedline_core::{Dataset, ErrorKind, Values};
use feedline_datasets::{Bounded, Folder, OpenOptions, Split, cifar, open, open_with};
use tempfile::tempdir;

#[test]
fn members_with_one_key_are_a_sample() {
    let dir = tempdir().unwrap();
    let long = format!("{}/000.txt", "folder".repeat(10));
    let archive = tar(&[
        ("./a/000.JPG", b"one"),
        ("./a/000.seg.png", b"two"),
        ("__note__", b"left out"),
        ("./a/001.jpg", b""),
        ("no-extension", b"left out"),
        (&long, b"three"),
    ]);
    let plain = write(dir.path(), "x.tar", &archive);
    let inflated = write(dir.path(), "x.tgz", &gz(&archive));
    for path in [plain, inflated] {
        // A member that is missing is not an empty one, unless asked for.
        let error = open(&path).unwrap_err();
        for part in ["3 of 3 samples lack a member", "\"./a/000\" without \".txt\"", "empty_members"] {
            assert!(error.to_string().contains(part), "{error}");
        }
        assert_eq!((error.kind(), error.path(), error.offset()), (ErrorKind::Data, Some(&*path), Some(512)));
        let options = OpenOptions { empty_members: true, ..Default::default() };
        let reader = open_with(&path, &options).unwrap();
        assert_eq!((reader.about().format, reader.len()), ("webdataset", 3));
        assert_eq!(reader.spec().to_string(), "jpg bytes [?], seg.png bytes [?], txt bytes [?]");
        assert_eq!(read(&*reader, 0), [&b"one"[..], b"two", b""]);
        assert_eq!(read(&*reader, 1), [&b""[..], b"", b""]);
        assert_eq!(read(&*reader, 2), [&b""[..], b"", b"three"]);
        assert_eq!(reader.path(2), Some(path.as_path()));
        // Reading into the same buffers leaves nothing of the sample before.
        let mut values = Values::new();
        for (sample, sizes) in [(0, [3, 3, 0]), (2, [0, 0, 5]), (1, [0, 0, 0])] {
            values.read(&*reader, sample).unwrap();
            assert_eq!(values.fields().iter().map(|value| value.bytes.len()).collect::<Vec<_>>(), sizes);
            assert!(values.fields().iter().all(|value| value.shape == [value.bytes.len()]));
        }
    }
}

#[test]
fn damaged_archives_are_refused_with_the_member_and_the_byte() {
    let dir = tempdir().unwrap();
    let archive = tar(&[("a.x", &[1; 600]), ("b.x", &[2; 600])]);
    let mut checksum = archive.clone();
    checksum[1536] ^= 1;
    let cases: [(&str, Vec<u8>, &str); 7] = [
        ("cut.tar", archive[..archive.len() - 1500].to_vec(), "member \"b.x\" claims 600 bytes"),
        // Cut behind a member, and two archives in one file.
        ("whole.tar", archive[..archive.len() - 1024].to_vec(), "no end follows the last member"),
        ("two.tar", [&archive[..], &archive].concat(), "bytes follow the end of the archive"),
        ("checksum.tar", checksum, "the archive is damaged"),
        ("twice.tar", tar(&[("a.x", b"1"), ("a.X", b"2")]), "the second of its key and extension"),
        ("none.tar", tar(&[("a", b"1")]), "holds no samples"),
        ("cut.tgz", gz(&archive)[..40].to_vec(), "gzip stream is"),
    ];
    for (name, bytes, why) in cases {
        let path = write(dir.path(), name, &bytes);
        let error = open(&path).unwrap_err();
        assert!(error.to_string().contains(why), "{name}: {error}");
        assert_eq!((error.kind(), error.path()), (ErrorKind::Data, Some(path.as_path())));
    }
}

/// Records of CIFAR-10 with these labels; every pixel is the label, too.
fn batch(labels: &[u8]) -> Vec<u8> {
    labels.iter().flat_map(|&label| vec![label; 3073]).collect()
}

#[test]
fn cifar_is_read_from_a_file_a_folder_and_an_archive() {
    let dir = tempdir().unwrap();
    let (one, ten, test) = (batch(&[1, 2]), batch(&[3]), batch(&[9]));
    let files = [("data_batch_2.bin", &ten), ("data_batch_1.bin", &one), ("test_batch.bin", &test)];
    for (name, bytes) in files {
        write(dir.path(), &format!("folder/{name}"), bytes);
    }
    write(dir.path(), "folder/batches.meta.txt", b"airplane\n");
    let members = files.map(|(name, bytes)| (format!("cifar-10-batches-bin/{name}"), bytes));
    let members = members.each_ref().map(|(name, bytes)| (name.as_str(), bytes.as_slice()));
    let archive = write(dir.path(), "cifar.tar.gz", &gz(&tar(&members)));
    for path in [dir.path().join("folder"), archive] {
        let reader = open(&path).unwrap();
        assert_eq!((reader.about().format, reader.len()), ("cifar10", 3));
        assert_eq!(read(&*reader, 2), [vec![3], vec![3; 3072]]);
        assert_eq!(read(&cifar::open_test(&path).unwrap(), 0), [vec![9], vec![9; 3072]]);
        let data = Bounded::new(reader).unwrap();
        assert_eq!(data.storage().column(1).unwrap().row(1), Some(&[2; 3072][..]));
    }
    for path in [dir.path().join("folder"), dir.path().join("cifar.tar.gz")] {
        let options = OpenOptions { split: Some(Split::Test), ..Default::default() };
        assert_eq!(read(&*open_with(path, &options).unwrap(), 0), [vec![9], vec![9; 3072]]);
    }
    // The test set is not taken for a training set, and a missing batch is an error.
    write(dir.path(), "test/test_batch.bin", &test);
    write(dir.path(), "gap/data_batch_1.bin", &one);
    write(dir.path(), "gap/data_batch_3.bin", &one);
    for (name, why) in [("test", "only the test set is there"), ("gap", "no data_batch_2.bin")] {
        let path = dir.path().join(name);
        for error in [open(&path).unwrap_err(), cifar::open(&path).unwrap_err()] {
            assert!(error.to_string().contains(why) && error.path() == Some(&path), "{error}");
        }
    }
    // A folder that holds nothing but records, whatever their names.
    write(dir.path(), "gzip/first.bin.gz", &gz(&one));
    let folder = open(dir.path().join("gzip")).unwrap();
    assert_eq!((folder.about().format, folder.len()), ("cifar10", 2));
    let gzip = open(write(dir.path(), "x", &gz(&one))).unwrap();
    assert_eq!((gzip.about().format, gzip.len()), ("cifar10", 2));
    // Coarse label 19 and fine label 99 are the last classes of CIFAR-100.
    let hundred = [vec![19, 99], vec![7; 3072], vec![0, 0], vec![8; 3072]].concat();
    let reader = open(write(dir.path(), "y", &hundred)).unwrap();
    assert_eq!(reader.spec().to_string(), "coarse_label u8 [], fine_label u8 [], image u8 [3, 32, 32]");
    assert_eq!(read(&*reader, 0), [vec![19], vec![99], vec![7; 3072]]);
    for (name, bytes) in [("label", batch(&[1, 10])), ("cut", one[1..].to_vec())] {
        let error = cifar::open(write(dir.path(), name, &bytes)).unwrap_err();
        assert!(error.to_string().contains("not CIFAR's binary version"), "{error}");
    }
}

#[test]
fn the_folder_of_a_file_is_its_class() {
    let dir = tempdir().unwrap();
    for (name, bytes) in
        [("dogs/2.jpg", "d2"), ("cats/more/1.jpg", "c1"), ("dogs/.hidden", ""), ("dogs/1.jpg", "")]
    {
        write(dir.path(), &format!("set/{name}"), bytes.as_bytes());
    }
    let root = dir.path().join("set");
    let folder = Folder::open(&root).unwrap();
    assert_eq!(folder.classes(), ["cats", "dogs"]);
    let reader = open(&root).unwrap();
    assert_eq!((reader.about().format, reader.len()), ("folder", 3));
    assert_eq!(reader.spec().to_string(), "data bytes [?], label i64 []");
    assert_eq!(read(&*reader, 0), [b"c1".to_vec(), 0i64.to_le_bytes().to_vec()]);
    assert_eq!(read(&*reader, 1), [b"".to_vec(), 1i64.to_le_bytes().to_vec()]);
    assert_eq!(read(&*reader, 2), [b"d2".to_vec(), 1i64.to_le_bytes().to_vec()]);
    assert_eq!(reader.path(2), Some(root.join("dogs/2.jpg").as_path()));

    let before = reader.fingerprint();
    write(&root, "dogs/2.jpg", b"longer");
    assert_ne!(reader.fingerprint(), before);
    std::fs::remove_file(root.join("dogs/2.jpg")).unwrap();
    let error = Values::new().read(&*reader, 2).unwrap_err();
    assert!(error.to_string().contains("dogs/2.jpg") && error.sample() == Some(2), "{error}");

    write(&root, "README", b"beside");
    assert!(open(&root).unwrap_err().to_string().contains("files (README) beside class folders (cats)"));
    std::fs::create_dir(dir.path().join("empty")).unwrap();
    assert!(open(dir.path().join("empty")).unwrap_err().to_string().contains("no file in the folder"));
}

#[test]
fn folders_of_a_pair_have_the_same_labels_or_are_refused() {
    let dir = tempdir().unwrap();
    for name in
        ["train/ant/1", "train/bee/1", "train/cat/1", "val/ant/1", "val/cat/1", "odd/ant/1", "odd/dog/1"]
    {
        write(dir.path(), name, b"x");
    }
    let at = |name: &str| dir.path().join(name);
    let train = Folder::open(at("train")).unwrap();
    // Without the bee, cat would be class 1.
    let error = open(at("val")).unwrap_err();
    assert!(
        error.to_string().contains("\"bee\" is only there") && error.path() == Some(&at("val")),
        "{error}"
    );
    let classes = |names: &[&str]| OpenOptions {
        classes: Some(names.iter().map(|name| name.to_string()).collect()),
        ..Default::default()
    };
    let options = OpenOptions { classes: Some(train.classes().to_vec()), ..Default::default() };
    let val = open_with(at("val"), &options).unwrap();
    let labels: Vec<_> = (0..val.len()).map(|sample| read(&*val, sample)[1][0]).collect();
    assert_eq!(labels, [0, 2]);
    for (name, options, why) in [
        ("odd", options, "\"dog\" is none of the 3 stated classes"),
        ("train", classes(&["cat", "bee"]), "\"ant\" is none of the 2"),
        ("odd", classes(&["dog", "ant", "dog"]), "\"dog\" is stated twice"),
        // A folder above sets has no classes.
        ("sets", OpenOptions::default(), "test, train are sets, not classes"),
    ] {
        write(dir.path(), "sets/train/ant/1", b"x");
        write(dir.path(), "sets/test/ant/1", b"x");
        let error = open_with(at(name), &options).unwrap_err();
        assert!(error.to_string().contains(why) && error.path() == Some(&at(name)), "{error}");
    }
    write(dir.path(), "sets/test/cow/1", b"x");
    let error = open(at("sets/test")).unwrap_err();
    assert!(error.to_string().contains("\"cow\" is only here"), "{error}");
    write(dir.path(), "sets/train/cow/1", b"x");
    assert_eq!(Folder::open(at("sets/test")).unwrap().classes(), ["ant", "cow"]);
}

#[test]
fn a_class_that_is_missing_in_the_validation_folder_does_not_shift_labels() {
    let dir = tempdir().unwrap();
    for name in ["train/ant/1", "train/bee/1", "train/cat/1", "val/ant/1", "val/cat/1"] {
        write(dir.path(), name, name.as_bytes());
    }
    let train = open(dir.path().join("train")).unwrap();
    assert_eq!(train.about().classes.unwrap(), ["ant", "bee", "cat"]);
    let classes = train.about().classes.map(<[String]>::to_vec);
    let val = open_with(dir.path().join("val"), &OpenOptions { classes, ..Default::default() }).unwrap();
    assert_eq!(val.about().classes, train.about().classes);
    assert_eq!(read(&*val, 1), [b"val/cat/1".to_vec(), 2i64.to_le_bytes().to_vec()]);
    // Without the classes, the pair is refused.
    assert!(open(dir.path().join("val")).unwrap_err().to_string().contains("\"bee\" is only there"));

    // Files in no class folder are not samples of the first class.
    let classes = Some(vec!["ant".to_owned()]);
    let options = OpenOptions { classes, ..Default::default() };
    let error = Folder::open_with(dir.path().join("train/ant"), &options).unwrap_err().to_string();
    assert!(error.contains("the file 1 is in no class folder"), "{error}");

    let cifar = [&[9][..], &[0; 3072]].concat();
    let path = write(dir.path(), "cifar.bin", &cifar);
    let cifar = open(&path).unwrap();
    assert_eq!(
        (cifar.about().classes.unwrap().len(), cifar.about().classes.unwrap()[9].as_str()),
        (10, "truck")
    );
    let options = OpenOptions { classes: Some(vec!["airplane".into(), "car".into()]), ..Default::default() };
    let error = open_with(&path, &options).unwrap_err().to_string();
    assert!(error.contains("class 1 is \"automobile\" here, but \"car\" in OpenOptions::classes"), "{error}");
    let fine = [&[1, 99][..], &[0; 3072]].concat();
    let fine = open(write(dir.path(), "cifar100.bin", &fine)).unwrap();
    assert_eq!(
        (fine.about().classes.unwrap().len(), fine.about().classes.unwrap()[99].as_str()),
        (100, "worm")
    );
    assert_eq!(open(write(dir.path(), "a.txt", b"a")).unwrap().about().classes, None);
}

#[test]
fn shards_of_a_test_set_are_not_read_with_those_to_train_on() {
    let dir = tempdir().unwrap();
    let names = ["train-00000.tar", "train-00001.tar", "test-00000.tar"];
    for (name, bytes) in names.into_iter().zip([b"1", b"2", b"3"]) {
        write(dir.path(), name, &tar(&[("a.x", bytes)]));
    }
    let error = open(dir.path()).unwrap_err();
    assert!(error.to_string().contains("train-00000.tar and test-00000.tar"), "{error}");
    for (split, samples) in [(Split::Train, &[b"1", b"2"][..]), (Split::Test, &[b"3"])] {
        let reader =
            open_with(dir.path(), &OpenOptions { split: Some(split), ..Default::default() }).unwrap();
        let read: Vec<_> = (0..reader.len()).map(|sample| read(&*reader, sample).concat()).collect();
        assert_eq!(read, samples);
    }
}

#[test]
fn files_of_one_format_in_a_folder_are_shards() {
    let dir = tempdir().unwrap();
    write(dir.path(), "set/00.tar", &tar(&[("a.x", b"1"), ("b.x", b"2")]));
    write(dir.path(), "set/01.tar", &tar(&[("c.x", b"3")]));
    let reader = open(dir.path().join("set")).unwrap();
    assert_eq!((reader.about().format, reader.len()), ("webdataset", 3));
    assert_eq!([0, 1, 2].map(|sample| read(&*reader, sample).concat()), [b"1", b"2", b"3"]);
    assert_eq!(reader.path(2), Some(dir.path().join("set/01.tar").as_path()));
    write(dir.path(), "gzip/00.x", &gz(&tar(&[("a.x", b"1")])));
    assert_eq!(open(dir.path().join("gzip")).unwrap().about().format, "webdataset");
    write(dir.path(), "set/02.npy", &npy("|u1", false, "(1,)", &[1]));
    let error = open(dir.path().join("set")).unwrap_err();
    assert!(
        error.to_string().contains("the shards differ: this one is npy, the first is webdataset")
            && error.to_string().contains("02.npy"),
        "{error}"
    );
    for (name, other, how) in [
        ("types", npy("<f4", false, "(1,)", &[0; 4]), "the type of"),
        ("shapes", npy("|u1", false, "(1, 2)", &[1, 2]), "the shape of"),
    ] {
        write(dir.path(), &format!("{name}/0.npy"), &npy("|u1", false, "(1,)", &[1]));
        write(dir.path(), &format!("{name}/1.npy"), &other);
        let error = open(dir.path().join(name)).unwrap_err().to_string();
        assert!(error.contains(&format!("the shards differ: {how}")) && error.contains("1.npy"), "{error}");
    }
}

#[test]
fn lines_are_samples_without_their_breaks() {
    let dir = tempdir().unwrap();
    // A code point that lies across the border of two blocks.
    let long = format!("{}é", "x".repeat((1 << 16) - 7));
    let text = format!("one\r\n\n{long}");
    for (name, text, lines) in [("a", text.clone(), 3), ("b", format!("{text}\n"), 3), ("c", "\n".into(), 1)]
    {
        let reader = open(write(dir.path(), name, text.as_bytes())).unwrap();
        assert_eq!((reader.about().format, reader.len()), ("text", lines));
        let expected: Vec<_> = text.lines().map(|line| vec![line.as_bytes().to_vec()]).collect();
        assert_eq!((0..lines).map(|line| read(&*reader, line)).collect::<Vec<_>>(), expected);
    }
    let error = open(write(dir.path(), "d", &[&[b'a'; 600][..], &[0xFF]].concat())).unwrap_err();
    assert!(error.to_string().contains("not UTF-8") && error.offset() == Some(600), "{error}");
}

#[test]
fn text_may_begin_with_any_sign_that_texts_have() {
    let dir = tempdir().unwrap();
    let signs = "\u{2028} \u{2029} \u{85} \u{0B} \u{0C} \u{07} \u{08} \u{1B} \u{1C} \u{1D} \u{1E} \u{1F} \
                 \u{7F} \u{9F} \u{A0} \u{AD} \u{200B} \u{200E} \u{202E} \u{2060} \u{FFFC} \u{FFFD} \u{FFFE} \
                 \u{E000} \u{1F600} \u{10FFFF} \u{FEFF}\u{FEFF}";
    for sign in signs.split(' ') {
        for (name, text) in [
            ("alone", sign.to_owned()),
            ("line", format!("{sign}first\nsecond\n")),
            ("middle", format!("a{sign}b\n{sign}\n")),
            ("long", format!("{sign}{}\n", "x".repeat(2000))),
        ] {
            let reader = open(write(dir.path(), name, text.as_bytes()));
            let reader = reader.unwrap_or_else(|error| panic!("{name}, {sign:?}: {error}"));
            let body = text.strip_prefix('\u{FEFF}').unwrap_or(&text);
            let expected: Vec<_> =
                body.split_terminator('\n').map(|line| vec![line.as_bytes().to_vec()]).collect();
            let lines: Vec<_> = (0..reader.len()).map(|line| read(&*reader, line)).collect();
            assert_eq!((reader.about().format, lines), ("text", expected), "{name}, {sign:?}");
        }
    }
    // The name says that it is a text, even if its bytes do not look like one; the error says where they are
    // not text.
    let odd = "\u{0}\u{1}\u{2}a\nb\n";
    assert!(open(write(dir.path(), "odd", odd.as_bytes())).is_err());
    for name in ["odd.txt", "odd.txt.gz"] {
        let bytes = if name.ends_with("gz") { gz(odd.as_bytes()) } else { odd.as_bytes().to_vec() };
        let reader = open(write(dir.path(), name, &bytes)).unwrap();
        assert_eq!((reader.about().format, reader.len()), ("text", 2));
    }
    // Other files are recognized by their content, as before.
    #[cfg(all(feature = "jsonl", feature = "csv"))]
    for (text, format) in [("{\"a\": 1}\n{\"a\": 2}\n", "jsonl"), ("a,b\n1,2\n3,4\n", "csv")] {
        assert_eq!(open(write(dir.path(), "table.txt", text.as_bytes())).unwrap().about().format, format);
    }
    let error = open(write(dir.path(), "latin.txt", b"caf\xE9\nb\n")).unwrap_err();
    assert!(error.message().contains("not UTF-8") && error.offset() == Some(3), "{error}");
}

#[test]
fn the_kind_is_seen_from_the_content_and_others_are_refused_by_name() {
    let dir = tempdir().unwrap();
    let named_wrongly = open(write(dir.path(), "x.tar", &npy("|u1", false, "(1,)", &[1]))).unwrap();
    assert_eq!(named_wrongly.about().format, "npy");
    for (bytes, why) in [
        (&b"PAR1...."[..], if cfg!(feature = "parquet") { "does not end with PAR1" } else { "Parquet" }),
        (b"\x80\x04pickle", "pickle"),
        (b"\x28\xB5\x2F\xFD", "zstd"),
        (&[1, 2, 3, 0xFF], "begins with 01 02 03 ff"),
        (b"", "the file is empty"),
    ] {
        let path = write(dir.path(), "x", bytes);
        let error = open(&path).unwrap_err();
        assert!(error.to_string().contains(why) && error.path() == Some(&path), "{error}");
    }
    assert!(open(dir.path().join("none")).unwrap_err().to_string().contains("no such file"));
}
