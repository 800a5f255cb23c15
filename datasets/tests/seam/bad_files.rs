//! Bad files of each format: cut, empty, with a wrong header or of another type; and wrong ids.

use std::path::Path;
use std::sync::Arc;

use feedline_core::{DType, Dataset, Error, Result, Spec, Values};
use feedline_datasets::{
    Annotated, Bounded, Folder, Idx, IdxFile, Manifest, ManifestOptions, Paired, Records, TokenDocuments,
    TokenOptions, Tokens, WebDataset, cifar, mds, npy, npz, open, safetensors,
};

use crate::facts::{MOST, read};
use crate::files::{
    archive, array, bitmap, gray, lines, llm_c, mds as shard, npz as zipped, record, stored, tensors, text,
};
use crate::golden::Found;
use crate::made::{npy as npy_of, npy_header, tar, tar_header, write, zip};

/// Opens a file and reads its samples: the first error.
fn opened(path: &Path) -> Result<()> {
    let reader = open(path)?;
    let mut values = Values::new();
    (0..reader.len()).try_for_each(|sample| values.read(&*reader, sample))
}

/// What each reader refuses: ids that it does not have, and what a set of it cannot be.
pub(crate) fn wrong_ids(found: &mut Found, name: &str, reader: &Arc<dyn Dataset>) {
    let len = reader.len();
    let mut values = Values::new();
    found.refused(&format!("{name}: a sample beyond the last"), values.read(reader, len));
    match Bounded::new(Arc::new(reader.clone())) {
        Ok(set) => {
            found.refused(&format!("{name}, Fixed: an id beyond the last"), read(&set, &[len]));
            found.refused(&format!("{name}, Fixed: a batch beyond the last"), read(&set, &[0, u64::MAX]));
        }
        Err(error) => found.refused(&format!("{name}, Fixed"), Err::<(), _>(error)),
    }
    match Bounded::limited(Arc::new(reader.clone()), MOST) {
        Ok(set) => {
            found.refused(&format!("{name}, Ragged: an id beyond the last"), read(&set, &[len]));
            found.refused(&format!("{name}, Ragged: a batch beyond the last"), read(&set, &[0, u64::MAX]));
        }
        Err(error) => found.refused(&format!("{name}, Ragged"), Err::<(), _>(error)),
    }
    let Ok(set) = Bounded::limited(Arc::new(reader.clone()), 1) else { return };
    if set.spec().is_ragged() {
        let ids = Vec::from_iter(0..len);
        found.refused(&format!("{name}, Ragged of one item"), read(&set, &ids));
    }
}

/// Files that are found by their content or their name.
fn by_content() -> Vec<(&'static str, Vec<u8>)> {
    let npy = array(3);
    let (_, shard) = shard();
    let records = record(b"one");
    let cut = |bytes: &[u8], by: usize| bytes[..bytes.len() - by].to_vec();
    let with = |bytes: &[u8], at: usize, byte: u8| {
        let mut bytes = bytes.to_vec();
        bytes[at] = byte;
        bytes
    };
    vec![
        ("nothing.csv", Vec::new()),
        ("nothing.npy", Vec::new()),
        ("nothing.txt", Vec::new()),
        ("zeros", vec![0; 100]),
        ("bad.gz", cut(&stored(&lines(text)), 9)),
        ("bad.idx", [&[0, 0, 8, 1, 0, 0, 0, 9][..], &[1, 2]].concat()),
        ("long.idx", vec![0, 0, 8, 1, 0, 0, 0, 1, 1, 2]),
        ("type.idx", vec![0, 0, 10, 1, 0, 0, 0, 1, 1]),
        ("cut.npy", cut(&npy, 1)),
        ("long.npy", [&npy[..], &[0]].concat()),
        ("header.npy", npy_header("{'descr': '|u1', 'shape': (3,)}", &[1, 2, 3])),
        ("objects.npy", npy_of("|O", false, "(1,)", &[0; 8])),
        ("version.npy", with(&npy, 6, 9)),
        ("cut.npz", cut(&zipped(), 30)),
        ("other.npz", zip(&[("a.txt", b"1")], None)),
        ("cut.safetensors", cut(&tensors(), 1)),
        ("header.safetensors", with(&tensors(), 8, b'[')),
        ("cut.arrow", b"ARROW1\0\0cut".to_vec()),
        ("cut.parquet", b"PAR1\0\0\0\0PAR1".to_vec()),
        ("widths.csv", b"a,b\n1,2\n3\n".to_vec()),
        ("quotes.csv", b"a,b\n1,\"2\n".to_vec()),
        ("null.csv", b"a,b\n1,2\n,3\n".to_vec()),
        ("names.csv", b"a,a\n1,2\n".to_vec()),
        ("json.jsonl", b"{\"a\": 1}\n{\"a\": \n".to_vec()),
        ("lacks.jsonl", b"{\"a\": 1, \"b\": 2}\n{\"a\": 1}\n".to_vec()),
        ("cut.tar", archive()[..700].to_vec()),
        ("claims.tar", tar_header("1.a", "77777777777")),
        ("lacks.tar", tar(&[("1.a", b"1"), ("1.b", b"2"), ("2.a", b"3")])),
        ("twice.tar", tar(&[("1.a", b"1"), ("1.a", b"2")])),
        ("cut.tfrecord", cut(&records, 5)),
        ("sum.tfrecord", with(&records, 12, b'O')),
        ("length.tfrecord", [&records[..], &with(&records, 8, 1)].concat()),
        ("cut.mds", cut(&shard, 1)),
        ("header.mds", with(&shard, 100, b'}')),
        ("version.bin", llm_c(2)),
        ("cut.bin", cut(&llm_c(1), 1)),
        ("cut.bmp", cut(&bitmap([4, 4], |_, _| [1, 2, 3]), 9)),
        ("cut.png", cut(&gray([4, 4], |x, y| (x + y) as u8), 30)),
        ("pickle.pkl", b"\x80\x04K\x01.".to_vec()),
        ("hdf5.h5", b"\x89HDF\r\n\x1A\n".to_vec()),
        ("index/index.json", br#"{"version":2}"#.to_vec()),
        ("names/index.json", br#"{"version":2,"shards":[{"raw_data":{},"samples":1}]}"#.to_vec()),
        (
            "gone/index.json",
            br#"{"version":2,"shards":[{"raw_data":{"basename":"0.mds"},"samples":1,"zip_data":null}]}"#
                .to_vec(),
        ),
        ("packed/_index.json", b"{}".to_vec()),
        ("json.zarr/zarr.json", b"{".to_vec()),
        ("none.zarr/.zgroup", br#"{"zarr_format": 2}"#.to_vec()),
        ("array.zarr/.zarray", br#"{"zarr_format": 2}"#.to_vec()),
        ("saved/state.json", br#"{"_data_files": [{"filename": "gone.arrow"}]}"#.to_vec()),
        ("bytes", (128..=255).collect()),
    ]
}

/// Each format by its own `open`, for a file of another type and for none.
fn by_format(found: &mut Found) {
    let dir = found.dir.join("bad");
    let picture = write(&dir, "a picture.bmp", &bitmap([2, 2], |_, _| [1, 2, 3]));
    let spec = || Spec::new().field("x", DType::U16, [2]).unwrap();
    let options = ManifestOptions::default();
    type Opens<'a> = Box<dyn Fn(&Path) -> Result<()> + 'a>;
    let opens: Vec<(&str, Opens<'_>)> = vec![
        ("IdxFile", Box::new(|path| IdxFile::open(path).map(drop))),
        ("Idx", Box::new(|path| Idx::open(path, path).map(drop))),
        ("npy", Box::new(|path| npy::open(path).map(drop))),
        ("npz", Box::new(|path| npz::open(path).map(drop))),
        ("safetensors", Box::new(|path| safetensors::open(path).map(drop))),
        ("cifar", Box::new(|path| cifar::open(path).map(drop))),
        ("WebDataset", Box::new(|path| WebDataset::open(path).map(drop))),
        ("mds folder", Box::new(|path| mds::open_folder(path).map(drop))),
        ("Records", Box::new(|path| Records::open(path, spec()).map(drop))),
        ("Records without fields", Box::new(|path| Records::open(path, Spec::new()).map(drop))),
        ("Tokens", Box::new(|path| Tokens::open(&[(path, 1.0)], TokenOptions::new(DType::U16, 4)).map(drop))),
        ("Tokens, stated", Box::new(|path| Tokens::open(&[(path, 1.0)], TokenOptions::stated(4)).map(drop))),
        ("TokenDocuments", Box::new(|path| TokenDocuments::open(path).map(drop))),
        ("Folder", Box::new(|path| Folder::open(path).map(drop))),
        ("Manifest", Box::new(|path| Manifest::open(path, &options).map(drop))),
        ("Paired", Box::new(|path| Paired::open(path, path).map(drop))),
        ("Annotated", Box::new(|path| Annotated::open(path, path).map(drop))),
        ("open", Box::new(opened)),
    ];
    std::fs::create_dir_all(dir.join("an empty folder")).unwrap();
    for (name, opens) in opens {
        found.refused(&format!("{name}: another type"), opens(&picture));
        found.refused(&format!("{name}: no file"), opens(&dir.join("none")));
        found.refused(&format!("{name}: an empty folder"), opens(&dir.join("an empty folder")));
    }
}

pub(crate) fn errors(found: &mut Found) {
    let dir = found.dir.join("bad");
    for (name, bytes) in by_content() {
        let path = write(&dir, name, &bytes);
        let name_of = path.file_name().unwrap_or_default().to_string_lossy();
        let is_index = name_of.ends_with("index.json") || name_of == "state.json" || name.contains(".zarr/");
        let path = match is_index {
            true => path.parent().unwrap().to_path_buf(),
            false => path,
        };
        found.refused(&format!("open: {name}"), opened(&path));
    }
    by_format(found);
    tokens(found);
    pictures(found);
}

fn tokens(found: &mut Found) {
    let dir = found.dir.join("bad");
    let ids = write(&dir, "ids", &[1, 0, 2, 0, 3, 0, 4, 0, 5, 0]);
    let whole = TokenOptions::new(DType::U16, 2);
    let of = |weight: f64, options| Tokens::open(&[(&ids, weight)], options);
    found.refused("Tokens: no files", Tokens::open(&[] as &[(&str, f64)], whole));
    found.refused("Tokens: weight 0", of(0.0, whole));
    found.refused("Tokens: windows of 0", of(1.0, TokenOptions { window: 0, ..whole }));
    found.refused("Tokens: stride 0", of(1.0, TokenOptions { stride: 0, ..whole }));
    found.refused("Tokens: too short", of(1.0, TokenOptions { window: 9, ..whole }));
    found.refused("Tokens: short documents", of(1.0, TokenOptions { separator: Some(2), ..whole }));
    found.refused(
        "Tokens: a separator beyond the type",
        of(1.0, TokenOptions { separator: Some(70_000), ..whole }),
    );
    found.refused("Tokens: ids of f32", of(1.0, TokenOptions { dtype: Some(DType::F32), ..whole }));
    found.refused("Tokens: whole ids of u32", of(1.0, TokenOptions { dtype: Some(DType::U32), ..whole }));
    write(&dir, "alone.bin", &[1, 0]);
    let mut index = std::fs::read(found.dir.join("megatron.idx")).unwrap();
    index[9] = 9;
    write(&dir, "alone.idx", &index);
    found.refused("TokenDocuments: an unknown version", TokenDocuments::open(dir.join("alone.bin")));
    found.refused("TokenDocuments: the index", TokenDocuments::open(dir.join("alone.idx")));
}

fn pictures(found: &mut Found) {
    let dir = found.dir.join("bad");
    let picture = bitmap([4, 4], |_, _| [1, 2, 3]);
    for name in ["one/a.bmp", "one/b.bmp", "two/a.bmp"] {
        write(&dir, name, &picture);
    }
    let pair = |images: &str, masks: &str| Paired::open(dir.join(images), dir.join(masks));
    found.refused("Paired: no mask", pair("one", "two"));
    found.refused("Paired: no picture", pair("two", "one"));
    let annotated = |name: &str, text: &str| {
        let path = write(&dir, name, text.as_bytes());
        let path = if name.ends_with("json") { path } else { path.parent().unwrap().to_path_buf() };
        Annotated::open(dir.join("one"), path)
    };
    let gone = r#"{"images": [{"id": 1, "file_name": "gone.bmp"}], "annotations": [], "categories": []}"#;
    let read = |set: Annotated| Values::new().read(&set, 0);
    found.refused("coco: no such picture", annotated("gone.json", gone).and_then(read));
    found.refused("coco: cut", annotated("cut.json", &gone[..30]));
    found.refused(
        "coco: no pictures",
        annotated("none.json", r#"{"images": [], "annotations": [], "categories": []}"#),
    );
    found.refused("voc: cut", annotated("voc/a.xml", "<annotation><object>"));
    found.refused(
        "voc: not a number",
        annotated(
            "voc2/a.xml",
            "<annotation><object><name>a</name><bndbox><xmin>x</xmin></bndbox></object></annotation>",
        ),
    );
    found.refused("yolo: four numbers", annotated("yolo/a.txt", "1 0.5 0.5 0.25\n"));
    found.refused("yolo: not a class", annotated("yolo2/a.txt", "x 0.5 0.5 0.25 0.25\n"));
    let one_based = annotated("yolo3/a.txt", "1 0.5 0.5 0.25 0.25\n").and_then(Annotated::one_based);
    found.refused("yolo: from 1", one_based);
    let segmented = Annotated::open_segmented(dir.join("one"), dir.join("yolo3"), None);
    found.refused("yolo: masks", segmented);
    let rows = write(&dir, "manifest.csv", b"file,label\none/a.bmp,x\none/gone.bmp,y\n,x\n");
    let options = ManifestOptions { files: vec!["file".into()], ..Default::default() };
    let read =
        |sample| -> Result<(), Error> { Values::new().read(&Manifest::open(&rows, &options)?, sample) };
    found.refused("manifest: a file that is gone", read(1));
    found.refused("manifest: no path", read(2));
    let other = ManifestOptions { files: vec!["path".into()], ..Default::default() };
    found.refused("manifest: no such column", Manifest::open(&rows, &other));
    let other = ManifestOptions { label: Some("kind".into()), ..options.clone() };
    found.refused("manifest: no such label", Manifest::open(&rows, &other));
}
