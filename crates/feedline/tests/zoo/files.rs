//! Files of every format that the default build reads; each has [`LEN`] samples.

use std::path::Path;
use std::sync::Arc;

use feedline::{DType, Loader, Spec};
use feedline_core::Dataset;
use feedline_datasets::labelled::{Labelled, LabelledOptions};
use feedline_datasets::{
    Bounded, Folder, Idx, Lines, Records, TokenDocuments, TokenOptions, Tokens, WebDataset, open, shards,
};

use crate::entry::{Entry, LEN};

/// The most bytes of a field that varies in size.
const MOST: usize = 40;

/// The data sets of files.
pub fn data_sets(dir: &Path) -> Vec<Entry> {
    let dir = dir.to_path_buf();
    let of = |name, make: fn(&Path) -> Loaded| {
        let dir = dir.clone();
        Entry::new(name, move || make(&dir).0)
    };
    vec![
        of("Idx", |dir| Loaded::new(idx(dir))),
        of("Records", |dir| Loaded::new(records(dir))),
        of("Labelled", |dir| Loaded::new(labelled(dir))),
        of("Bounded of one size", |dir| Loaded::new(Bounded::new(array(dir, "array", LEN as u8)).unwrap())),
        of("Bounded of any size", |dir| Loaded::new(of_any_size(Arc::new(Lines::open(text(dir)).unwrap())))),
        of("Tokens", |dir| Loaded::new(tokens(dir))),
    ]
}

/// The formats, by the name of their type.
pub fn formats(dir: &Path) -> Vec<Entry> {
    let dir = dir.to_path_buf();
    let of = |name, open: fn(&Path) -> Arc<dyn Dataset>| {
        let dir = dir.clone();
        Entry::new(name, move || Loader::builder(of_any_size(open(&dir))))
    };
    vec![
        of("Arrays", |dir| array(dir, "array", LEN as u8)),
        of("Folder", |dir| Arc::new(Folder::open(folder(dir)).unwrap())),
        of("Lines", |dir| Arc::new(Lines::open(text(dir)).unwrap())),
        of("Concat of files", |dir| {
            Arc::new(shards(vec![array(dir, "first", 9), array(dir, "then", LEN as u8 - 9)]).unwrap())
        }),
        of("TokenDocuments", |dir| Arc::new(documents(dir))),
        of("WebDataset", |dir| Arc::new(WebDataset::open(archive(dir)).unwrap())),
    ]
}

/// A loader builder, so that sets of any type have one function type.
struct Loaded(feedline::LoaderBuilder);

impl Loaded {
    fn new(set: impl Dataset) -> Self {
        Self(Loader::builder(set))
    }
}

/// A set of samples of any size, with limits.
pub fn of_any_size(inner: Arc<dyn Dataset>) -> Bounded {
    Bounded::limited(inner, MOST).unwrap()
}

/// Writes a file once, so that its time stays the same.
fn write(path: &Path, bytes: impl AsRef<[u8]>) {
    if !path.exists() {
        std::fs::write(path, bytes).unwrap();
    }
}

/// Images of 2 x 3 pixels; all pixels differ.
fn idx(dir: &Path) -> Idx {
    let count = LEN as u8;
    let (images, labels) = (dir.join("images"), dir.join("labels"));
    let header = [0, 0, 8, 3, 0, 0, 0, count, 0, 0, 0, 2, 0, 0, 0, 3];
    write(&images, [&header[..], &Vec::from_iter(0..6 * count)].concat());
    write(&labels, [&[0, 0, 8, 1, 0, 0, 0, count][..], &Vec::from_iter(0..count)].concat());
    Idx::open(&images, &labels).unwrap()
}

/// An array of `rows` rows of five bytes, by the reader that `open` finds.
fn array(dir: &Path, name: &str, rows: u8) -> Arc<dyn Dataset> {
    let path = dir.join(name);
    let header = [0, 0, 8, 2, 0, 0, 0, rows, 0, 0, 0, 5];
    write(&path, [&header[..], &Vec::from_iter((0..5 * rows).map(|at| at.wrapping_mul(rows)))].concat());
    open(&path).unwrap()
}

/// [`LEN`] windows of four tokens; all tokens differ.
fn tokens(dir: &Path) -> Tokens {
    let path = dir.join("tokens");
    let ids = (0..4 * LEN as u16 + 1).flat_map(u16::to_le_bytes);
    write(&path, Vec::from_iter(ids));
    Tokens::open(&[(&path, 1.0)], TokenOptions::new(DType::U16, 4)).unwrap()
}

/// [`LEN`] documents of Megatron, of up to three ids; all ids differ.
fn documents(dir: &Path) -> TokenDocuments {
    let bin = dir.join("pair.bin");
    let len = |id: u64| 1 + (id % 3) as i32;
    let start = |id: u64| (0..id).map(|id| 2 * len(id) as u64).sum::<u64>();
    let mut index = b"MMIDIDX\0\0\x01\0\0\0\0\0\0\0\x08".to_vec();
    index.extend([LEN, LEN + 1].map(u64::to_le_bytes).concat());
    index.extend((0..LEN).flat_map(|id| len(id).to_le_bytes()));
    index.extend((0..LEN).flat_map(|id| start(id).to_le_bytes()));
    index.extend((0..=LEN).flat_map(u64::to_le_bytes));
    write(&dir.join("pair.idx"), index);
    write(&bin, Vec::from_iter((0..start(LEN) as u16 / 2).flat_map(u16::to_le_bytes)));
    TokenDocuments::open(&bin).unwrap()
}

/// Records of three bytes and a label; all bytes differ.
fn records(dir: &Path) -> Records {
    let path = dir.join("records");
    write(&path, Vec::from_iter(0..4 * LEN as u8));
    let spec = Spec::new().field("pixels", DType::U8, [3]).unwrap().field("label", DType::U8, []).unwrap();
    Records::open(&path, spec).unwrap()
}

/// The same records as images with a class.
fn labelled(dir: &Path) -> Labelled {
    let options = LabelledOptions { input: None, label: None, classes: 256 };
    Labelled::new(Arc::new(records(dir)), &options).unwrap()
}

/// Files of different sizes in three classes.
fn folder(dir: &Path) -> std::path::PathBuf {
    let root = dir.join("folder");
    for id in 0..LEN as usize {
        let class = root.join(["ants", "bees", "cats"][id % 3]);
        std::fs::create_dir_all(&class).unwrap();
        write(&class.join(format!("{id:03}")), vec![id as u8; 1 + id]);
    }
    root
}

/// Lines of different lengths.
fn text(dir: &Path) -> std::path::PathBuf {
    let path = dir.join("text.txt");
    let lines = (0..LEN as usize).map(|id| format!("line {id} {}\n", "x".repeat(id)));
    write(&path, lines.collect::<String>());
    path
}

/// A tar archive; sample `id` is the files `id.bin` and `id.cls`.
fn archive(dir: &Path) -> std::path::PathBuf {
    let path = dir.join("samples.tar");
    let mut bytes = Vec::new();
    let mut add = |name: String, content: &[u8]| {
        let mut header = [0_u8; 512];
        let mut put = |at: usize, text: &str| header[at..at + text.len()].copy_from_slice(text.as_bytes());
        put(0, &name);
        put(100, "0000644\0");
        put(108, "0000000\0");
        put(116, "0000000\0");
        put(124, &format!("{:011o}\0", content.len()));
        put(136, "00000000000\0");
        put(148, "        ");
        put(156, "0");
        put(257, "ustar\0");
        put(263, "00");
        let sum: u32 = header.iter().map(|&byte| u32::from(byte)).sum();
        header[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
        bytes.extend_from_slice(&header);
        bytes.extend_from_slice(content);
        bytes.resize(bytes.len().next_multiple_of(512), 0);
    };
    for id in 0..LEN {
        add(format!("{id:04}.bin"), &vec![id as u8; 1 + id as usize]);
        add(format!("{id:04}.cls"), id.to_string().as_bytes());
    }
    bytes.resize(bytes.len() + 1024, 0);
    write(&path, bytes);
    path
}
