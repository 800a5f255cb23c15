//! Files of every format; each set has [`LEN`] samples.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use feedline::{DType, Loader, LoaderBuilder, Source, Spec, source};
use feedline_audio::{Crop, Sounds};
use feedline_core::Dataset;
use feedline_datasets::{
    Annotated, ArrowFile, ArrowTable, Bounded, ChatOptions, Chats, Manifest, ManifestOptions, OpenOptions,
    PackOptions, Paired, ParquetFile, Parts, Pictures, SoundDataset, Table, TableOptions, Tokenized,
    TokenizedSource, Views, open, open_sounds, open_with, pack,
};
use feedline_images::Transforms;

use crate::entry::{Entry, LEN};
use crate::made::{gz, npy, png, safetensors, write, zip};

/// The most items of a field that varies in size.
const MOST: usize = 2000;

/// Every format that is not in the zoo of the default build, each by its type and its kind.
pub fn formats(root: &Path, dir: &Path) -> Vec<Entry> {
    let golden = root.join("datasets/tests/golden/tables");
    let arrow = |name: &str| {
        let path = golden.join(name);
        some(move || Arc::new(ArrowFile::open_with(&path, columns()).unwrap()))
    };
    let parquet = golden.join("zstd.parquet");
    let csv = write(dir, "a.csv", &lines(|id| format!("{id},{}.5,\"{}\"", id * 3, text(id))));
    let json = write(dir, "a.jsonl", &lines(|id| format!("{{\"a\": {id}, \"b\": \"{}\"}}", text(id))));
    let parts = PackOptions { shard_bytes: Some(600) };
    pack(&*open(&csv).unwrap(), dir.join("packed.arrow"), PackOptions::default(), |_| ()).unwrap();
    pack(&*open(&csv).unwrap(), dir.join("packed"), parts, |_| ()).unwrap();
    vec![
        Entry::new("Arrays Npy", opened(write(dir, "a.npy", &array()))),
        Entry::new("Arrays Npz", opened(write(dir, "a.npz", &zip(&[("a.npy", &array())], None)))),
        Entry::new("Arrays Safetensors", opened(tensors(dir))),
        Entry::new("Arrays cifar", opened(cifar(dir))),
        Entry::new("ArrowFile Arrow packed", opened(dir.join("packed.arrow"))),
        Entry::new("ArrowFile Arrow compressed", arrow("zstd.arrow")),
        Entry::new("ArrowFile Arrow stream", arrow("plain.stream")),
        Entry::new("RowsInMemory of a table", in_memory()),
        Entry::new("Rows of a saved set", opened(listed(dir, &csv))),
        Entry::new("Concat PackIndex", opened(dir.join("packed/_index.json"))),
        Entry::new(
            "ParquetFile Parquet",
            some(move || Arc::new(ParquetFile::open_with(&parquet, columns()).unwrap())),
        ),
        Entry::new("TableRows of a table", table(csv.clone())),
        Entry::new("Bounded of a table", categories(json.clone())),
        Entry::new("TableWindows of a table", windows(csv.clone(), 512 << 20)),
        Entry::new("TableWindows beyond the budget", windows(csv.clone(), 1)),
        Entry::new("Tokenized of a table", tokenized(dir, json.clone())),
        Entry::new("Chats of JSON Lines", chats(dir)),
        Entry::new("TokenDocuments TokenIndex", opened(documents(dir))),
        Entry::new("TokenDocuments LlmC", opened(llm_c(dir))),
        Entry::new("Csv Csv", opened(csv)),
        Entry::new("JsonLines JsonLines", opened(json)),
        Entry::new("TfRecord TfRecord", opened(records(dir))),
        Entry::new("Mds Mds", opened(write(dir, "a.mds", &shard()))),
        Entry::new("Zipped MdsIndex", opened(shards(dir).join("index.json"))),
        Entry::new("Zarr of a folder", opened(zarr(dir))),
        Entry::new("ImageFile Image", picture(dir)),
        Entry::new("Pictures of a folder", pictures(dir)),
        Entry::new("SoundDataset of a folder", sounds(dir)),
        Entry::new("Manifest of a table", manifest(dir)),
        Entry::new("Annotated of COCO", annotated(dir)),
        Entry::new("Paired of folders", build(paired(dir, |pairs| Bounded::limited(pairs, MOST).unwrap()))),
        Entry::new("Pictures of folders, with masks", build(paired(dir, joint))),
        Entry::new("Pictures of folders, in views", build(paired(dir, views))),
    ]
}

type Build = Box<dyn Fn() -> feedline::LoaderBuilder>;

fn build<D: Dataset>(make: impl Fn() -> D + 'static) -> Build {
    Box::new(move || Loader::builder(make()))
}

/// The samples of a file, of any size.
pub fn opened(path: PathBuf) -> Build {
    build(move || Bounded::limited(open(&path).unwrap_or_else(|error| panic!("{error}")), MOST).unwrap())
}

/// Every fourth of 90 samples.
fn some(open: impl Fn() -> Arc<dyn Dataset> + 'static) -> Build {
    let ids = Vec::from_iter((0..90).step_by(4));
    build(move || Bounded::limited(open(), MOST).unwrap().subset(ids.clone()).unwrap())
}

/// Numbers and texts in two record batches.
fn in_memory() -> Build {
    use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray};
    some(|| {
        let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(0..90));
        let texts: ArrayRef = Arc::new(StringArray::from_iter_values((0..90).map(text)));
        let batch = RecordBatch::try_from_iter([("number", numbers), ("text", texts)]).unwrap();
        let parts = vec![batch.slice(0, 50), batch.slice(50, 40)];
        open_with(ArrowTable::new(batch.schema(), parts).unwrap(), &OpenOptions::default()).unwrap()
    })
}

fn table(path: PathBuf) -> Build {
    build(move || Bounded::limited(Table::open(&path).rows().unwrap(), MOST).unwrap())
}

fn categories(path: PathBuf) -> Build {
    build(move || Table::open(&path).category("b").build().unwrap())
}

/// A window of one row for each row, sorted by the second column.
fn windows(path: PathBuf, cache_bytes: u64) -> Build {
    build(move || {
        let options = OpenOptions { cache_bytes, ..Default::default() };
        let rows = Table::open_with(&path, options).windows(1, 0, 1);
        rows.order_by("c1").x(["c0", "c1"]).build().unwrap()
    })
}

/// Texts of digits and colons. The tokenizer drops colons.
fn tokenized(dir: &Path, path: PathBuf) -> Build {
    let tokenizer = tokenizer(dir);
    build(move || {
        Bounded::limited(Arc::new(Tokenized::new(open(&path).unwrap(), "b", &tokenizer).unwrap()), MOST)
            .unwrap()
    })
}

fn tokenizer(dir: &Path) -> PathBuf {
    let digits = r#"{"model": {"type": "BPE", "merges": [["1", "2"]], "vocab":
        {"0": 0, "1": 1, "2": 2, "3": 3, "4": 4, "5": 5, "6": 6, "7": 7, "8": 8, "9": 9, "12": 10}},
        "pre_tokenizer": {"type": "CharDelimiterSplit", "delimiter": ":"}}"#;
    write(dir, "tokenizer.json", digits.as_bytes())
}

/// Numbers in five shards of a source, tokenized.
pub fn tokenized_source(dir: &Path) -> impl Fn() -> LoaderBuilder<dyn Source> + Sync + use<> {
    let tokenizer = tokenizer(dir);
    move || {
        let spec = Spec::new().ragged("text", DType::U8, [], MOST).unwrap();
        let texts = source::from_iter(
            5,
            spec,
            |epoch, shard| Ok((0..9).map(move |at| Ok(text(100 * epoch + 10 * shard + at).into_bytes()))),
            |text, row, _| Ok(row.write_ragged(0, text)?),
        );
        Loader::source_builder(TokenizedSource::new(texts, "text", &tokenizer).unwrap())
    }
}

/// Conversations of numbers.
fn chats(dir: &Path) -> Build {
    let message = |id| format!("{{\"role\": \"user\", \"content\": \"{}\"}}", text(id));
    let path = write(dir, "chats.jsonl", &lines(|id| format!("{{\"messages\": [{}]}}", message(id))));
    let digits = r#"{"model": {"type": "BPE", "merges": [], "vocab":
        {"0": 0, "1": 1, "2": 2, "3": 3, "4": 4, "5": 5, "6": 6, "7": 7, "8": 8, "9": 9}},
        "pre_tokenizer": {"type": "CharDelimiterSplit", "delimiter": ":"}}"#;
    let tokenizer = write(dir, "chats/tokenizer.json", digits.as_bytes());
    let template = "{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}{% endfor %}";
    build(move || {
        let options = ChatOptions { template: Some(template.into()), ..Default::default() };
        Bounded::limited(Arc::new(Chats::open(&path, &tokenizer, options).unwrap()), MOST).unwrap()
    })
}

/// The index of documents of up to three ids, as Megatron writes them.
pub fn documents(dir: &Path) -> PathBuf {
    let start = |id: u64| (0..id).map(|id| 2 * (1 + id % 3)).sum::<u64>();
    let mut index = b"MMIDIDX\0\0\x01\0\0\0\0\0\0\0\x08".to_vec();
    index.extend([LEN, LEN + 1].map(u64::to_le_bytes).concat());
    index.extend((0..LEN).flat_map(|id| (1 + (id % 3) as i32).to_le_bytes()));
    index.extend((0..LEN).flat_map(|id| start(id).to_le_bytes()));
    index.extend((0..=LEN).flat_map(u64::to_le_bytes));
    write(dir, "pair.bin", &Vec::from_iter((0..start(LEN) as u16 / 2).flat_map(u16::to_le_bytes)));
    write(dir, "pair.idx", &index)
}

/// A file of llm.c of documents of two ids.
fn llm_c(dir: &Path) -> PathBuf {
    let header = [20240520, 1, 2 * LEN as u32].map(u32::to_le_bytes).concat();
    let ids = Vec::from_iter((0..LEN as u16).flat_map(|id| [50256, id]).flat_map(u16::to_le_bytes));
    write(dir, "llm.bin", &[&header[..], &[0; 1012], &ids].concat())
}

/// Columns of each kind; all together are more fields than a batch can have.
pub fn columns() -> TableOptions {
    let columns = ["price", "large", "pair", "points", "words"].map(str::to_owned);
    TableOptions { columns: Some(columns.into()), ..Default::default() }
}

/// Text of a sample; lengths differ.
fn text(id: u64) -> String {
    format!("{id}:").repeat(1 + id as usize * 7 % 30)
}

fn lines(line: impl Fn(u64) -> String) -> Vec<u8> {
    (0..LEN).map(|id| line(id) + "\n").collect::<String>().into_bytes()
}

/// An array of five bytes per sample.
fn array() -> Vec<u8> {
    npy("|u1", false, &format!("({LEN}, 5)"), &Vec::from_iter((0..5 * LEN as usize).map(|at| (at * 7) as u8)))
}

/// An array in chunks of four samples.
fn zarr(dir: &Path) -> PathBuf {
    let array = format!(
        r#"{{"zarr_format": 2, "shape": [{LEN}], "chunks": [4], "dtype": "<i4", "fill_value": 0,
        "compressor": null, "filters": null, "order": "C"}}"#
    );
    write(dir, "a.zarr/.zarray", array.as_bytes());
    for chunk in 0..LEN.div_ceil(4) as i32 {
        let numbers = Vec::from_iter((4 * chunk..4 * chunk + 4).flat_map(|id| (id * id).to_le_bytes()));
        write(dir, &format!("a.zarr/{chunk}"), &numbers);
    }
    dir.join("a.zarr")
}

fn tensors(dir: &Path) -> PathBuf {
    let header = format!(r#"{{"a":{{"dtype":"I32","shape":[{LEN}],"data_offsets":[0,{}]}}}}"#, 4 * LEN);
    let numbers = Vec::from_iter((0..LEN as i32).flat_map(|id| (id * id).to_le_bytes()));
    write(dir, "a.safetensors", &safetensors(&header, &numbers))
}

/// A folder of `save_to_disk` with a list of rows: the rows of `table` in reverse order.
fn listed(dir: &Path, table: &Path) -> PathBuf {
    let rows = Vec::from_iter((0..LEN).rev().flat_map(u64::to_le_bytes));
    let rows = npy("<u8", false, &format!("({LEN},)"), &rows);
    let rows = open(write(dir, "rows.npz", &zip(&[("indices.npy", &rows)], None))).unwrap();
    write(dir, "listed/dataset_info.json", b"{}");
    pack(&*rows, dir.join("listed/indices.arrow"), PackOptions::default(), |_| ()).unwrap();
    pack(&*open(table).unwrap(), dir.join("listed/a.arrow"), PackOptions::default(), |_| ()).unwrap();
    let files = r#""_data_files": [{"filename": "a.arrow"}]"#;
    let state = format!(r#"{{{files}, "_indices_data_files": [{{"filename": "indices.arrow"}}]}}"#);
    write(dir, "listed/state.json", state.as_bytes());
    dir.join("listed")
}

/// Pictures of 3 x 32 x 32 pixels, each after its class.
fn cifar(dir: &Path) -> PathBuf {
    let sample = |id: u64| std::iter::once((id % 10) as u8).chain((0..3072).map(move |at| (at * id) as u8));
    write(dir, "data_batch_1.bin", &Vec::from_iter((0..LEN).flat_map(sample)))
}

/// Records with their checksums.
fn records(dir: &Path) -> PathBuf {
    let masked =
        |bytes: &[u8]| crc32c::crc32c(bytes).rotate_right(15).wrapping_add(0xA282_EAD8).to_le_bytes();
    let record = |id: u64| {
        let (text, length) = (text(id), (text(id).len() as u64).to_le_bytes());
        [&length[..], &masked(&length), text.as_bytes(), &masked(text.as_bytes())].concat()
    };
    write(dir, "a.tfrecord", &Vec::from_iter((0..LEN).flat_map(record)))
}

const COLUMNS: &str = r#""column_names":["a"],"column_encodings":["str"],"column_sizes":[null]"#;

/// A shard of texts, with the description of its columns.
pub fn shard() -> Vec<u8> {
    let json = format!("{{{COLUMNS}}}");
    let sample = |id| [&(text(id).len() as u32).to_le_bytes()[..], text(id).as_bytes()].concat();
    let mut at = 4 + 4 * (LEN as usize + 1) + json.len();
    let mut bytes = (LEN as u32).to_le_bytes().to_vec();
    for id in 0..=LEN {
        bytes.extend((at as u32).to_le_bytes());
        at += sample(id).len();
    }
    bytes.extend(json.into_bytes());
    bytes.extend((0..LEN).flat_map(sample));
    bytes
}

/// A folder of a compressed shard.
pub fn shards(dir: &Path) -> PathBuf {
    let index = format!(
        r#"{{"version":2,"shards":[{{{COLUMNS},"raw_data":{{"basename":"0.mds","bytes":{}}},"samples":{LEN},
        "compression":"gz","zip_data":{{"basename":"0.mds.gz"}}}}]}}"#,
        shard().len()
    );
    write(dir, "zipped/index.json", index.as_bytes());
    write(dir, "zipped/0.mds.gz", &gz(&shard()));
    dir.join("zipped")
}

/// A picture of 2 x 1 pixels, of its own colours.
fn bitmap(id: u8) -> Vec<u8> {
    let mut bytes = b"BM".to_vec();
    for number in [62u32, 0, 54, 40, 2, 1, 1 | 24 << 16, 0, 8, 0, 0, 0, 0] {
        bytes.extend(number.to_le_bytes());
    }
    bytes.extend([id, 2, 3, 4, 5, 255 - id, 0, 0]);
    bytes
}

/// A file of one picture, which is [`LEN`] samples of an epoch.
fn picture(dir: &Path) -> Build {
    let path = write(dir, "a.bmp", &bitmap(1));
    build(move || Bounded::new(open(&path).unwrap()).unwrap().repeat(LEN).unwrap())
}

/// A table that names a picture for each class.
fn manifest(dir: &Path) -> Build {
    for id in 0..LEN as u8 {
        write(dir, &format!("named/{id:02}.bmp"), &bitmap(id));
    }
    let path = write(
        dir,
        "named/list.csv",
        &[b"path,label\n".into(), lines(|id| format!("{id:02}.bmp,{}", ["ants", "bees"][id as usize % 2]))]
            .concat(),
    );
    build(move || {
        Bounded::limited(Arc::new(Manifest::open(&path, &ManifestOptions::default()).unwrap()), MOST).unwrap()
    })
}

/// The set that `make` makes from pictures of 4 x 4 with masks.
fn paired<D: Dataset>(dir: &Path, make: fn(Arc<dyn Dataset>) -> D) -> impl Fn() -> D + use<D> {
    for id in 0..LEN as u8 {
        let levels = |count: u8| Vec::from_iter((0..count).map(|at| at.wrapping_mul(id)));
        write(dir, &format!("paired/images/{id:02}.png"), &png(4, 8, 2, &levels(48)));
        write(dir, &format!("paired/masks/{id:02}.png"), &png(4, 8, 0, &levels(16)));
    }
    let (images, masks) = (dir.join("paired/images"), dir.join("paired/masks"));
    move || make(Arc::new(Paired::open(&images, &masks).unwrap()))
}

fn joint(pairs: Arc<dyn Dataset>) -> Pictures {
    let transforms = Transforms::new().random_resized_crop(3).flip(0.5);
    Pictures::new(pairs, Parts::new().mask("mask").with(transforms)).unwrap()
}

fn views(pairs: Arc<dyn Dataset>) -> Pictures {
    let list = Transforms::new().random_resized_crop(3).flip(0.5);
    Pictures::with_field(pairs, "image", Views::new().add(2, list)).unwrap()
}

/// Pictures with a box each.
fn annotated(dir: &Path) -> Build {
    let all = |one: fn(u64) -> String| Vec::from_iter((0..LEN).map(one)).join(", ");
    for id in 0..LEN as u8 {
        write(dir, &format!("boxed/{id:02}.bmp"), &bitmap(id));
    }
    let pictures =
        all(|id| format!(r#"{{"id": {id}, "file_name": "{id:02}.bmp", "width": 4, "height": 3}}"#));
    let boxes =
        all(|id| format!(r#"{{"id": {id}, "image_id": {id}, "category_id": 1, "bbox": [0, 0, 2, 1]}}"#));
    let json = format!(
        r#"{{"images": [{pictures}], "annotations": [{boxes}], "categories": [{{"id": 1, "name": "ant"}}]}}"#
    );
    let (folder, path) = (dir.join("boxed"), write(dir, "boxes.json", json.as_bytes()));
    build(move || Bounded::limited(Arc::new(Annotated::open(&folder, &path).unwrap()), MOST).unwrap())
}

/// Pictures in two classes, flipped at random.
fn sounds(dir: &Path) -> Build {
    for id in 0..LEN as u32 {
        let frames = 400 + 10 * id;
        let mut wav =
            [b"RIFF", &(36 + 2 * frames).to_le_bytes()[..], b"WAVEfmt \x10\0\0\0\x01\0\x01\0"].concat();
        wav.extend([&8000u32.to_le_bytes()[..], &16_000u32.to_le_bytes(), b"\x02\0\x10\0data"].concat());
        wav.extend((2 * frames).to_le_bytes());
        wav.extend((0..frames).flat_map(|at| (300 * ((at + id) % 41) as i16).to_le_bytes()));
        write(dir, &format!("sounds/{}/{id:02}.wav", ["no", "yes"][id as usize % 2]), &wav);
    }
    let folder = dir.join("sounds");
    build(move || {
        let reader = open_sounds(&folder, &ManifestOptions::default()).unwrap();
        SoundDataset::new(reader, Sounds::new().rate(4000).crop(150, Crop::Random)).unwrap()
    })
}

fn pictures(dir: &Path) -> Build {
    for id in 0..LEN as u8 {
        write(dir, &format!("pictures/{}/{id:02}.bmp", ["ants", "bees"][id as usize % 2]), &bitmap(id));
    }
    let folder = dir.join("pictures");
    build(move || {
        let transforms = Transforms::new().flip(0.5).resize(3);
        Pictures::new(open(&folder).unwrap(), transforms).unwrap()
    })
}
