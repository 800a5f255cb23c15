//! Every format, as a reader.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use feedline_core::{DType, Dataset, Result, Spec};
use feedline_datasets::{
    Annotated, Folder, Manifest, ManifestOptions, Nulls, OpenOptions, PackOptions, Paired, Records, Split,
    TokenOptions, Tokens, cifar, npy, open, open_with, pack, shards,
};

use crate::files::{
    SAMPLES, archive, array, bitmap, example, fairseq, golden, gray, lines, llm_c, mds, megatron, npz,
    numbers, record, stored, tensors, text, zipped,
};
use crate::made::{npy as array_of, write, zip};

/// The readers that were made so far, by name.
struct Readers<'a> {
    dir: &'a Path,
    all: Vec<(String, Arc<dyn Dataset>)>,
}

impl Readers<'_> {
    fn add(&mut self, name: &str, reader: Result<Arc<dyn Dataset>>) {
        let reader = reader.unwrap_or_else(|error| panic!("{name}: {error}"));
        self.all.push((name.to_owned(), reader));
    }

    /// Writes a file, and opens it.
    fn file(&mut self, name: &str, file: &str, bytes: &[u8]) -> PathBuf {
        let path = write(self.dir, file, bytes);
        self.add(name, open(&path));
        path
    }

    fn with(&mut self, name: &str, path: impl AsRef<Path>, options: OpenOptions) {
        self.add(name, open_with(path, &options));
    }
}

/// Every format.
pub(crate) fn readers(dir: &Path) -> Vec<(String, Arc<dyn Dataset>)> {
    let mut readers = Readers { dir, all: Vec::new() };
    arrays(&mut readers);
    untyped_tables(&mut readers);
    typed_tables(&mut readers);
    records(&mut readers);
    texts_and_tokens(&mut readers);
    files(&mut readers);
    annotations(&mut readers);
    readers.all
}

fn on_disk() -> OpenOptions {
    OpenOptions::with_memory_limit(0)
}

fn arrays(readers: &mut Readers<'_>) {
    let dir = readers.dir;
    let images = [&[0, 0, 8, 3, 0, 0, 0, 3, 0, 0, 0, 1, 0, 0, 0, 2][..], &[1, 2, 3, 4, 5, 6]].concat();
    let idx = readers.file("idx", "idx/images", &images);
    readers.with("idx on disk", idx, on_disk());
    let path = readers.file("npy", "a.npy", &array(SAMPLES));
    readers.with("npy on disk", &path, on_disk());
    readers.file("npy gzip", "a.npy.gz", &stored(&array(SAMPLES)));
    let floats = Vec::from_iter((0..6).flat_map(|at| (at as f32 / 4.0).to_be_bytes()));
    readers.file("npy in Fortran's order", "fortran.npy", &array_of(">f4", true, "(3, 2)", &floats));
    readers.file("npy of u64", "u64.npy", &numbers("<u8", [1, u64::MAX]));
    readers.file("npz", "a.npz", &npz());
    readers.file("safetensors", "a.safetensors", &tensors());
    let of = |first: u8| {
        Vec::from_iter((0..2 * 3073).map(|at| if at % 3073 == 0 { first } else { (at % 251) as u8 }))
    };
    for (name, first) in [("data_batch_1.bin", 3), ("data_batch_2.bin", 4), ("test_batch.bin", 5)] {
        write(dir, &format!("cifar/{name}"), &of(first));
    }
    readers.add("cifar10", open(dir.join("cifar")));
    let test = OpenOptions { split: Some(Split::Test), ..Default::default() };
    readers.with("cifar10 test", dir.join("cifar"), test);
    write(dir, "cifar100/train.bin", &[7; 2 * 3074]);
    readers.add("cifar100", cifar::open(dir.join("cifar100")).map(|arrays| Arc::new(arrays) as _));
    for part in ["shards/0.npy", "shards/1.npy"] {
        write(dir, part, &array(SAMPLES / 2));
    }
    readers.add("shards of npy", open(dir.join("shards")));
    let parts = || {
        ["shards/0.npy", "shards/1.npy"].map(|part| npy::open(dir.join(part)).map(|part| Arc::new(part) as _))
    };
    let parts = parts().into_iter().collect::<Result<Vec<_>>>();
    readers.add("Shards", parts.and_then(shards).map(|shards| Arc::new(shards) as _));
}

fn untyped_tables(readers: &mut Readers<'_>) {
    let csv =
        lines(|id| format!("{id},{}.5,\"{}\",{}", id * 3, text(id), if id % 4 == 0 { "" } else { "true" }));
    let csv = [b"id,x,text,on\n", &csv[..]].concat();
    let path = write(readers.dir, "a.csv", &csv);
    let fill = OpenOptions { nulls: Nulls::Fill, ..Default::default() };
    readers.with("csv", &path, fill.clone());
    readers.with("csv with a mask", &path, OpenOptions { masks: vec!["on".into()], ..Default::default() });
    let of = |columns: &[&str]| Some(columns.iter().map(|&column| column.to_owned()).collect::<Vec<_>>());
    let small = OpenOptions { cache_bytes: 1 << 10, columns: of(&["id", "x"]), ..Default::default() };
    readers.with("csv of numbers", &path, small);
    let types = OpenOptions {
        types: vec![("id".into(), DType::F64.into())],
        columns: of(&["id"]),
        ..Default::default()
    };
    readers.with("csv with a type", &path, types);
    let codes = OpenOptions { codes: vec!["id".into()], columns: of(&["id"]), ..Default::default() };
    readers.with("csv with codes", &path, codes);
    readers.with("csv gzip", write(readers.dir, "a.csv.gz", &stored(&csv)), fill.clone());
    let rows = lines(|id| {
        format!(
            "{{\"a\": {id}, \"b\": \"{}\", \"c\": {:?}, \"d\": {{\"e\": 1}}}}",
            text(id),
            vec![id; id % 3]
        )
    });
    readers.file("jsonl", "a.jsonl", &rows);
    readers.file("jsonl gzip", "a.jsonl.gz", &stored(&rows));
    for shard in 0..2 {
        let rows = lines(|id| format!("{id},{}", id + shard * SAMPLES));
        write(readers.dir, &format!("csv/{shard}.csv"), &[b"a,b\n", &rows[..]].concat());
    }
    readers.add("shards of csv", open(readers.dir.join("csv")));
    readers.add("a pattern of csv", open(readers.dir.join("csv/*.csv")));
}

fn typed_tables(readers: &mut Readers<'_>) {
    let dir = readers.dir;
    // A set has up to 16 fields.
    let columns = ["f16", "time", "date", "large", "three", "pair", "flags", "points", "words", "at.in.y"];
    let columns = Some(columns.map(str::to_owned).to_vec());
    let fill = OpenOptions { columns: columns.clone(), nulls: Nulls::Fill, ..Default::default() };
    for (name, file) in [
        ("arrow", "tables/plain.arrow"),
        ("arrow lz4", "tables/lz4.arrow"),
        ("arrow stream", "tables/zstd.stream"),
        ("parquet", "tables/snappy.parquet"),
        ("parquet delta", "tables/delta.parquet"),
    ] {
        let path = golden(dir, file);
        readers.with(name, &path, fill.clone());
        readers.with(
            &format!("{name}, a small cache"),
            &path,
            OpenOptions { cache_bytes: 4000, ..fill.clone() },
        );
        let masked = OpenOptions {
            masks: vec!["date".into()],
            columns: Some(vec!["date".into()]),
            ..Default::default()
        };
        readers.with(&format!("{name}, with a mask"), &path, masked);
        readers.with(
            &format!("{name}, all columns"),
            &path,
            OpenOptions { nulls: Nulls::Fill, ..Default::default() },
        );
    }
    for file in ["page/flowers.arrow", "page/flowers.parquet"] {
        let path = golden(dir, file);
        readers.add(file, open(&path));
        readers.with(
            &format!("{file}, no cache"),
            &path,
            OpenOptions { cache_bytes: 0, ..Default::default() },
        );
    }
    readers.add("arrow, few rows", open(golden(dir, "tiny.arrow")));
    let source = open(dir.join("a.jsonl")).unwrap();
    pack(&*source, dir.join("packed.arrow"), PackOptions::default(), |_| ()).unwrap();
    readers.add("packed", open(dir.join("packed.arrow")));
    pack(&*source, dir.join("packed"), PackOptions { shard_bytes: Some(1000) }, |_| ()).unwrap();
    readers.add("packed shards", open(dir.join("packed")));
    let classes = Folder::open(class_folder(dir)).unwrap();
    pack(&classes, dir.join("classes.arrow"), PackOptions::default(), |_| ()).unwrap();
    readers.add("packed with classes", open(dir.join("classes.arrow")));
    // A folder of `save_to_disk` with a list of rows.
    let list =
        write(dir, "list.npz", &zip(&[("indices.npy", &numbers("<u8", (0..SAMPLES as u64).rev()))], None));
    write(dir, "listed/dataset_info.json", b"{}");
    pack(&*open(list).unwrap(), dir.join("listed/indices.arrow"), PackOptions::default(), |_| ()).unwrap();
    std::fs::copy(dir.join("packed.arrow"), dir.join("listed/a.arrow")).unwrap();
    let files = r#""_data_files": [{"filename": "a.arrow"}]"#;
    let files = format!(r#"{{{files}, "_indices_data_files": [{{"filename": "indices.arrow"}}]}}"#);
    write(dir, "listed/state.json", files.as_bytes());
    readers.add("saved with a list of rows", open(dir.join("listed")));
}

fn records(readers: &mut Readers<'_>) {
    let dir = readers.dir;
    readers.file("webdataset", "a.tar", &archive());
    readers.file("webdataset gzip", "a.tar.gz", &stored(&archive()));
    let path = write(dir, "empty.tar", &crate::made::tar(&[("1.a", b"1"), ("1.b", b"2"), ("2.a", b"3")]));
    readers.with("webdataset, members lack", path, OpenOptions { empty_members: true, ..Default::default() });
    let texts = Vec::from_iter((0..SAMPLES).flat_map(|id| record(text(id).as_bytes())));
    readers.file("tfrecord", "a.tfrecord", &texts);
    readers.file("tfrecord gzip", "a.tfrecord.gz", &stored(&texts));
    let examples = Vec::from_iter((0..SAMPLES).flat_map(|id| record(&example(id))));
    readers.file("tfrecord of examples", "examples.tfrecord", &examples);
    let (columns, shard) = mds();
    readers.file("mds", "a.mds", &shard);
    let listed = |at| {
        write(dir, &format!("mds/{at}.mds"), &shard);
        format!(r#"{{{columns},"raw_data":{{"basename":"{at}.mds"}},"samples":{SAMPLES},"zip_data":null}}"#)
    };
    let index = format!(r#"{{"version":2,"shards":[{},{}]}}"#, listed(0), listed(1));
    write(dir, "mds/index.json", index.as_bytes());
    readers.add("mds folder", open(dir.join("mds")));
    readers.add("mds compressed", open(zipped(dir, 2)));
    for name in ["two", "three", "one"] {
        let store = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/golden/zarr/{name}.zarr"));
        copy(&store, &dir.join(format!("zarr/{name}.zarr")));
        readers.add(&format!("zarr {name}"), open(dir.join(format!("zarr/{name}.zarr"))));
    }
    let spec =
        Spec::new().field("id", DType::U32, []).and_then(|spec| spec.field("x", DType::I16, [2])).unwrap();
    let path = write(dir, "records", &Vec::from_iter((0..2 * SAMPLES as u32).flat_map(u32::to_le_bytes)));
    readers.add(
        "records",
        Records::open(&path, spec.clone()).map(|records| Arc::new(records) as Arc<dyn Dataset>),
    );
    readers.add(
        "records on disk",
        Records::open_with(path, spec, &on_disk()).map(|records| Arc::new(records) as Arc<dyn Dataset>),
    );
}

fn texts_and_tokens(readers: &mut Readers<'_>) {
    let dir = readers.dir;
    let path = readers.file("text", "a.txt", &lines(text));
    readers.with("text on disk", path, on_disk());
    readers.file("text gzip", "a.txt.gz", &stored(&lines(text)));
    let ids = Vec::from_iter((0..SAMPLES as u16 * 4 + 1).flat_map(u16::to_le_bytes));
    let tokens = [(write(dir, "tokens", &ids), 1.0)];
    let whole = TokenOptions::new(DType::U16, 8);
    let of =
        |files: &[(PathBuf, f64)], options| Tokens::open(files, options).map(|tokens| Arc::new(tokens) as _);
    readers.add("tokens", of(&tokens, whole));
    readers.add("tokens on disk", of(&tokens, TokenOptions { memory_limit: 0, ..whole }));
    let cut = TokenOptions { stride: 3, separator: Some(40), ..whole };
    readers.add("tokens in documents", of(&tokens, cut));
    let more = [tokens[0].clone(), (write(dir, "more", &ids[40..]), 0.5)];
    readers.add("tokens of two files", of(&more, whole));
    readers.add("megatron", open(megatron(dir)));
    readers.add("tokens of megatron", of(&[(dir.join("megatron.bin"), 1.0)], TokenOptions::stated(5)));
    readers.add("fairseq", open(fairseq(dir)));
    let path = readers.file("llm.c", "llm_c.bin", &llm_c(1));
    readers.add("tokens of llm.c", of(&[(path, 1.0)], TokenOptions::stated(3)));
    readers.file("npy of ids", "ids.npy", &array_of("<u2", false, "(9,)", &llm_c(1)[1024..]));
}

/// Copies a folder.
fn copy(from: &Path, to: &Path) {
    for entry in std::fs::read_dir(from).unwrap() {
        let (from, to) = entry.map(|entry| (entry.path(), to.join(entry.file_name()))).unwrap();
        if from.is_dir() {
            copy(&from, &to);
        } else {
            std::fs::create_dir_all(to.parent().unwrap()).unwrap();
            std::fs::copy(from, to).unwrap();
        }
    }
}

/// A folder of each class.
fn class_folder(dir: &Path) -> PathBuf {
    for id in 0..SAMPLES {
        write(dir, &format!("classes/{}/{id:02}.dat", ["ant", "bee", "cat"][id % 3]), text(id).as_bytes());
    }
    dir.join("classes")
}

fn files(readers: &mut Readers<'_>) {
    let dir = readers.dir;
    let folder = class_folder(dir);
    readers.add("folder of classes", open(&folder));
    let classes = ["cat", "dog", "bee", "ant"].map(str::to_owned).to_vec();
    readers.with(
        "folder of stated classes",
        &folder,
        OpenOptions { classes: Some(classes), ..Default::default() },
    );
    for id in 0..SAMPLES {
        // Not a text: a folder of texts is one of lines.
        write(dir, &format!("flat/{id:02}.dat"), &[&[0, 255], text(id).as_bytes()].concat());
    }
    readers.add("folder", open(dir.join("flat")));
    for id in 0..SAMPLES {
        let picture = bitmap([2, 1 + id], |x, y| [x as u8, y as u8, id as u8]);
        write(dir, &format!("seen/{}/{id:02}.bmp", ["ant", "bee", "cat"][id % 3]), &picture);
    }
    readers.add("files of a pattern", open(dir.join("seen/*/*.bmp")));
    let above = OpenOptions { class_from: Some(2), ..Default::default() };
    readers.with("files of a pattern, classes above", dir.join("seen/bee/*.bmp"), above);
    let rows = lines(|id| {
        format!("classes/{}/{id:02}.dat,{},{id}", ["ant", "bee", "cat"][id % 3], ["y", "x"][id % 2])
    });
    let path = write(dir, "manifest.csv", &[b"file,kind,size\n", &rows[..]].concat());
    let options =
        ManifestOptions { files: vec!["file".into()], label: Some("kind".into()), ..Default::default() };
    readers.add("manifest", Manifest::open(path, &options).map(|manifest| Arc::new(manifest) as _));
    readers.file("picture", "a.bmp", &bitmap([2, 1], |x, _| [x as u8, 7, 9]));
}

const COCO: &str = r#"{"images": [{"id": 9, "file_name": "c.bmp", "width": 12, "height": 10},
        {"id": 2, "file_name": "a.bmp", "width": 12, "height": 10}],
    "categories": [{"id": 3, "name": "cat"}, {"id": 1, "name": "ant"}],
    "annotations": [
        {"id": 70, "image_id": 9, "category_id": 3, "bbox": [1, 2, 3.5, 4], "area": 9.5, "iscrowd": 1,
         "segmentation": {"size": [10, 12], "counts": [3, 20, 97]}},
        {"id": 72, "image_id": 9, "category_id": 1, "bbox": [5, 6, 2, 3],
         "segmentation": [[1, 2, 3, 4, 5, 9]]}]}"#;

const VOC: &str = "<annotation><filename>a.bmp</filename><size><width>12</width><height>10</height></size>
    <object><name>dog</name><difficult>1</difficult><bndbox><xmin>2</xmin><ymin>3</ymin><xmax>10.5</xmax>
    <ymax>9</ymax></bndbox></object></annotation>";

fn annotations(readers: &mut Readers<'_>) {
    let dir = readers.dir;
    let sides = [12, 10];
    for (at, name) in ["a", "b", "c"].into_iter().enumerate() {
        write(dir, &format!("pictures/{name}.bmp"), &bitmap(sides, |x, y| [x as u8 * 9, y as u8, at as u8]));
        write(dir, &format!("masks/{name}.png"), &gray(sides, |x, y| (x * y + at) as u8));
    }
    let pictures = dir.join("pictures");
    readers.add("pictures", open(&pictures));
    readers.add(
        "pictures and masks",
        Paired::open(&pictures, dir.join("masks")).map(|pairs| Arc::new(pairs) as _),
    );
    write(dir, "coco.json", COCO.as_bytes());
    write(dir, "voc/a.xml", VOC.as_bytes());
    write(dir, "yolo/b.txt", b"2 0.5 0.25 0.5 0.5\n0 0.5 0.5 0.25 0.25\n");
    write(dir, "yolo/classes.txt", b"bird\ncat\ndog\n");
    for (name, path) in [("coco", "coco.json"), ("voc", "voc"), ("yolo", "yolo")] {
        let annotated = Annotated::open(&pictures, dir.join(path));
        readers.add(name, annotated.map(|annotated| Arc::new(annotated) as _));
    }
    let one_based = Annotated::open(&pictures, dir.join("voc")).and_then(Annotated::one_based);
    readers.add("voc from 1", one_based.map(|annotated| Arc::new(annotated) as _));
    let segmented = Annotated::open_segmented(&pictures, dir.join("coco.json"), None);
    readers.add("coco with masks", segmented.map(|annotated| Arc::new(annotated) as _));
}
