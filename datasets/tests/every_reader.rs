//! Every reader of this crate, over ten epochs in random order with two workers: it always gives the bytes of
//! the first reading, and its memory does not grow from epoch to epoch. A new reader that is not listed here
//! makes the test fail.
//!
//! One test: it looks at the memory of the whole process.

mod made;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use feedline_core::{Context, DType, Dataset, Layout, Sampler, Scratch, Spec, Values};
use feedline_datasets::{
    Annotated, ArrowTable, Bounded, ChatOptions, Chats, Manifest, ManifestOptions, OpenOptions, PackOptions,
    Paired, Records, Table, TokenOptions, Tokenized, Tokens, open, open_with, pack,
};
use feedline_testkit::alloc::CountingAllocator;
use feedline_testkit::emulated;
use made::{gz, write};

#[global_allocator]
static HEAP: CountingAllocator = CountingAllocator::new();

/// Samples of the files that are made here.
const SAMPLES: usize = 200;
const EPOCHS: u64 = 10;
const WORKERS: usize = 2;
/// Rows of a batch.
const BATCH: usize = 16;
/// The most bytes of a value.
const MOST: usize = 8000;

/// A tokenizer of pairs of bytes.
const DIGITS: &str = r#"{"model": {"type": "BPE", "merges": [["1", "2"]], "vocab":
    {"0": 0, "1": 1, "2": 2, "3": 3, "4": 4, "5": 5, "6": 6, "7": 7, "8": 8, "9": 9, "12": 10}},
    "pre_tokenizer": {"type": "CharDelimiterSplit", "delimiter": ":"}}"#;

/// Text of a sample; lengths differ, up to a few kilobytes.
fn text(id: usize) -> String {
    format!("{id}:").repeat(1 + id * 37 % 700)
}

fn lines(line: impl Fn(usize) -> String) -> Vec<u8> {
    (0..SAMPLES).map(|id| line(id) + "\n").collect::<String>().into_bytes()
}

/// A record with its checksums.
fn record(bytes: &[u8]) -> Vec<u8> {
    let masked =
        |bytes: &[u8]| crc32c::crc32c(bytes).rotate_right(15).wrapping_add(0xA282_EAD8).to_le_bytes();
    let length = (bytes.len() as u64).to_le_bytes();
    [&length[..], &masked(&length), bytes, &masked(bytes)].concat()
}

/// A shard of texts, and its description of the columns.
fn mds() -> (Vec<u8>, &'static str) {
    let columns = r#""column_names":["a"],"column_encodings":["str"],"column_sizes":[null]"#;
    let json = format!("{{{columns}}}");
    let sample = |id| [&(text(id).len() as u32).to_le_bytes()[..], text(id).as_bytes()].concat();
    let mut at = 4 + 4 * (SAMPLES + 1) + json.len();
    let mut bytes = (SAMPLES as u32).to_le_bytes().to_vec();
    for id in 0..=SAMPLES {
        bytes.extend((at as u32).to_le_bytes());
        at += sample(id).len();
    }
    bytes.extend(json.into_bytes());
    bytes.extend((0..SAMPLES).flat_map(sample));
    (bytes, columns)
}

/// A picture of 2 x 1 pixels.
fn bitmap() -> Vec<u8> {
    let mut bytes = b"BM".to_vec();
    for number in [62u32, 0, 54, 40, 2, 1, 1 | 24 << 16, 0, 8, 0, 0, 0, 0] {
        bytes.extend(number.to_le_bytes());
    }
    bytes.extend([1, 2, 3, 4, 5, 6, 0, 0]);
    bytes
}

/// A compressed Arrow file, and a Parquet file: texts and numbers in batches and row groups of 32 rows. The
/// same in memory.
fn tables(dir: &Path) -> ([PathBuf; 2], ArrowTable) {
    use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray};
    let columns: [(&str, ArrayRef); 2] = [
        ("text", Arc::new(StringArray::from_iter_values((0..SAMPLES).map(text)))),
        ("number", Arc::new(Int64Array::from_iter_values((0..SAMPLES as i64).map(|id| id * id)))),
    ];
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let codec = Some(arrow_ipc::CompressionType::LZ4_FRAME);
    let options = arrow_ipc::writer::IpcWriteOptions::default().try_with_compression(codec).unwrap();
    let mut arrow =
        arrow_ipc::writer::FileWriter::try_new_with_options(Vec::new(), &batch.schema(), options).unwrap();
    let groups = parquet::file::properties::WriterProperties::builder();
    let groups = groups.set_max_row_group_row_count(Some(32)).build();
    let mut table = parquet::arrow::ArrowWriter::try_new(Vec::new(), batch.schema(), Some(groups)).unwrap();
    let parts = (0..SAMPLES).step_by(32).map(|first| batch.slice(first, 32.min(SAMPLES - first)));
    let parts = Vec::from_iter(parts);
    parts.iter().for_each(|part| arrow.write(part).unwrap());
    table.write(&batch).unwrap();
    let files = [("a.arrow", arrow.into_inner().unwrap()), ("a.parquet", table.into_inner().unwrap())];
    (files.map(|(name, bytes)| write(dir, name, &bytes)), ArrowTable::new(batch.schema(), parts).unwrap())
}

/// A pair of Megatron: documents of one sequence each.
fn documents(dir: &Path) -> PathBuf {
    let len = |id: usize| (id * 37 % 700) as i32;
    let mut index = b"MMIDIDX\0\0\x01\0\0\0\0\0\0\0\x08".to_vec();
    index.extend([SAMPLES, SAMPLES + 1].map(usize::to_le_bytes).concat());
    index.extend((0..SAMPLES).flat_map(|id| len(id).to_le_bytes()));
    let start = |id: usize| (0..id).map(|id| 2 * len(id) as u64).sum::<u64>();
    index.extend((0..SAMPLES).flat_map(|id| start(id).to_le_bytes()));
    index.extend((0..=SAMPLES).flat_map(usize::to_le_bytes));
    write(dir, "pair.idx", &index);
    write(dir, "pair.bin", &Vec::from_iter((0..start(SAMPLES) / 2).flat_map(|id| (id as u16).to_le_bytes())))
}

/// An array in chunks of 32 x 20, compressed by zlib.
fn zarr(dir: &Path) -> PathBuf {
    let array = r#"{"zarr_format": 2, "shape": [200, 50], "chunks": [32, 20], "dtype": "<u2", "fill_value": 7,
        "compressor": {"id": "gzip"}, "filters": null, "order": "C"}"#;
    write(dir, "a.zarr/.zarray", array.as_bytes());
    // The chunks of the third column are missing.
    for chunk in 0..14u16 {
        let values = Vec::from_iter((0..32 * 20).flat_map(|at| (chunk * 640 + at).to_le_bytes()));
        write(dir, &format!("a.zarr/{}.{}", chunk / 2, chunk % 2), &gz(&values));
    }
    dir.join("a.zarr")
}

/// Conversations of numbers.
fn chats(dir: &Path) -> Chats {
    let message =
        |id| format!("[{{\"role\": \"user\", \"content\": \"{}\"}}]", &text(id)[..text(id).len() / 8]);
    let path = write(dir, "chats.jsonl", &lines(|id| format!("{{\"messages\": {}}}", message(id))));
    let tokenizer = write(dir, "chats/tokenizer.json", DIGITS.as_bytes());
    let template = "{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}{% endfor %}";
    Chats::open(path, tokenizer, ChatOptions { template: Some(template.into()), ..Default::default() })
        .unwrap()
}

/// Every reader: the name of its type, and the files it reads.
fn readers(dir: &Path) -> Vec<(&'static str, &'static str, Arc<dyn Dataset>)> {
    let ([compressed, parquet], in_memory) = tables(dir);
    let of = |path: PathBuf| open(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let member = |id: usize, extension: &str, of: usize| (format!("{id:04}.{extension}"), text(of));
    let members = (0..SAMPLES).flat_map(|id| [member(id, "txt", id), member(id, "bin", id / 2)]);
    let members: Vec<_> = members.collect();
    let tar: Vec<_> = members.iter().map(|(name, text)| (name.as_str(), text.as_bytes())).collect();
    for id in 0..SAMPLES {
        write(dir, &format!("folder/{}/{id}", id % 3), text(id).as_bytes());
    }
    for id in 0..SAMPLES {
        write(dir, &format!("pictures/{id:04}.jpg"), text(id).as_bytes());
        write(dir, &format!("masks/{id:04}.png"), text(SAMPLES - id).as_bytes());
        write(dir, &format!("boxes/{id:04}.txt"), "1 0.5 0.5 0.25 0.25\n".repeat(id % 9).as_bytes());
    }
    let pictures = dir.join("pictures");
    let paired = Paired::open(&pictures, dir.join("masks")).unwrap();
    let annotated = Annotated::open(&pictures, dir.join("boxes")).unwrap();
    let csv = write(dir, "a.csv", &lines(|id| format!("{id},{}.5,\"{}\"", id * 3, text(id))));
    let json = lines(|id| format!("{{\"a\": {id}, \"b\": \"{}\"}}", text(id)));
    let (shard, columns) = mds();
    let zipped = format!(
        r#"{{"version":2,"shards":[{{{columns},"raw_data":{{"basename":"0.mds","bytes":{}}},"samples":
        {SAMPLES},
        "compression":"gz","zip_data":{{"basename":"0.mds.gz"}}}}]}}"#,
        shard.len()
    );
    write(dir, "zipped/index.json", zipped.as_bytes());
    write(dir, "zipped/0.mds.gz", &gz(&shard));
    let array = |rows: usize| {
        let data = Vec::from_iter((0..rows * 50).map(|at| ((at * at) >> 5) as u8));
        made::npy("|u1", false, &format!("({rows}, 50)"), &data)
    };
    for part in ["shards/0.npy", "shards/1.npy"] {
        write(dir, part, &array(SAMPLES / 2));
    }
    let manifest = lines(|id| format!("folder/{}/{id},{id}", id % 3));
    let manifest = write(dir, "manifest.csv", &[b"file,label\n", &manifest[..]].concat());
    let options = ManifestOptions { files: vec!["file".into()], ..Default::default() };
    let manifest = Manifest::open(manifest, &options).unwrap();
    let ids = Vec::from_iter((0..SAMPLES as u16 * 8 + 1).flat_map(u16::to_le_bytes));
    let tokens = write(dir, "tokens", &ids);
    pack(&*of(csv.clone()), dir.join("packed.arrow"), PackOptions::default(), |_| ()).unwrap();
    // A folder of `save_to_disk` with a list of rows.
    let list = Vec::from_iter((0..SAMPLES as u64).rev().flat_map(u64::to_le_bytes));
    let list = made::npy("<u8", false, &format!("({SAMPLES},)"), &list);
    let list = of(write(dir, "list.npz", &made::zip(&[("indices.npy", &list)], None)));
    write(dir, "listed/dataset_info.json", b"{}");
    pack(&*list, dir.join("listed/indices.arrow"), PackOptions::default(), |_| ()).unwrap();
    pack(&*of(csv.clone()), dir.join("listed/a.arrow"), PackOptions::default(), |_| ()).unwrap();
    let files = r#""_data_files": [{"filename": "a.arrow"}]"#;
    let files = format!(r#"{{{files}, "_indices_data_files": [{{"filename": "indices.arrow"}}]}}"#);
    write(dir, "listed/state.json", files.as_bytes());
    let documents = documents(dir);
    let records = Vec::from_iter((0..SAMPLES).flat_map(|id| record(text(id).as_bytes())));
    let tokens = Tokens::open(&[(tokens, 1.0)], TokenOptions::new(DType::U16, 8)).unwrap();
    let lines = write(dir, "a.txt", &lines(text));
    let digits = write(dir, "tokenizer.json", DIGITS.as_bytes());
    let tokenized = Tokenized::new(of(lines.clone()), "text", digits).unwrap();
    let bytes = Spec::new().field("bytes", DType::U8, [4]).unwrap();
    let numbers = write(dir, "records", &Vec::from_iter((0..SAMPLES as u32).flat_map(u32::to_le_bytes)));
    let fixed = Arc::new(Records::open(numbers, bytes).unwrap());
    let table = Table::open(csv.clone()).rows().unwrap();
    vec![
        ("Annotated", "", Arc::new(annotated)),
        ("Arrays", "in memory", of(write(dir, "a.npy", &array(SAMPLES)))),
        ("ArrowFile", "packed", of(dir.join("packed.arrow"))),
        ("ArrowFile", "compressed", of(compressed)),
        ("Chats", "", Arc::new(chats(dir))),
        ("Csv", "", of(csv)),
        ("Folder", "", of(dir.join("folder"))),
        ("ImageFile", "", of(write(dir, "a.bmp", &bitmap()))),
        ("JsonLines", "", of(write(dir, "a.jsonl", &json))),
        ("JsonLines", "gzip", of(write(dir, "a.jsonl.gz", &gz(&json)))),
        ("Lines", "", of(lines)),
        ("Manifest", "", Arc::new(manifest)),
        ("Mds", "", of(write(dir, "a.mds", &shard))),
        ("Paired", "", Arc::new(paired)),
        ("ParquetFile", "", of(parquet)),
        ("Records", "", fixed),
        ("Rows", "", of(dir.join("listed"))),
        ("Concat", "", of(dir.join("shards"))),
        ("RowsInMemory", "", open_with(in_memory, &OpenOptions::default()).unwrap()),
        ("TableRows", "", table),
        ("TokenDocuments", "", of(documents)),
        ("Tokenized", "", Arc::new(tokenized)),
        ("TfRecord", "", of(write(dir, "a.tfrecord", &records))),
        ("Tokens", "", Arc::new(tokens)),
        ("WebDataset", "", of(write(dir, "a.tar", &made::tar(&tar)))),
        ("Zarr", "", of(zarr(dir))),
        ("Zipped", "", of(dir.join("zipped"))),
    ]
}

/// Resident bytes of this process; 0 where the system does not say.
fn resident() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    pages.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).unwrap_or(0) * 4096
}

/// Reads one epoch with all workers, and compares every value.
fn read_epoch(data: &Bounded, epoch: u64, expected: &[Vec<Vec<u8>>], memory: &[Mutex<Scratch>], name: &str) {
    let mut ids = vec![0; data.len() as usize];
    // Runs of neighbours and jumps.
    let order = if epoch.is_multiple_of(2) { Sampler::Shuffle } else { Sampler::block(8, 8).unwrap() };
    order.fill(data.len(), 7, epoch, 0, &mut ids);
    let work = |worker: usize| {
        let mut scratch = memory[worker].lock().unwrap();
        let mut context = Context::new(7, epoch).with_scratch(std::mem::take(&mut scratch));
        let layout = Layout::new(data.spec(), BATCH).unwrap();
        let mut slab = vec![0; layout.bytes()];
        for ids in ids.chunks(BATCH).skip(worker).step_by(WORKERS) {
            let mut rows = feedline_core::Rows::new(&layout, &mut slab, ids.len());
            data.read_many(ids, &mut rows, &mut context)
                .unwrap_or_else(|(_, error)| panic!("{name}: {error}"));
            drop(rows);
            for (row, &id) in ids.iter().enumerate() {
                let fields = data.inner().spec().fields();
                for (field, bytes) in fields.iter().zip(&expected[id as usize]) {
                    let index = data.spec().index_of(field.name()).unwrap();
                    let found = match data.spec().fields()[index].as_ragged() {
                        Some(_) => layout.row_values(&slab, index, row),
                        None => &slab[layout.offset(index) + row * bytes.len()..][..bytes.len()],
                    };
                    assert!(found == bytes, "{name}: sample {id} in epoch {epoch}, {field}");
                }
            }
        }
        *scratch = context.into_scratch();
    };
    std::thread::scope(|scope| (0..WORKERS).for_each(|worker| drop(scope.spawn(move || work(worker)))));
}

#[test]
fn every_reader_gives_the_same_bytes_for_ten_epochs_in_the_same_memory() {
    let dir = tempfile::tempdir().unwrap();
    let mut tested = BTreeSet::new();
    for (kind, what, reader) in readers(dir.path()) {
        tested.insert(kind.to_owned());
        let name = format!("{kind} {what}");
        // Each with buffers of its own: nothing is left of another sample.
        let sample = |id| {
            let mut values = Values::new();
            values.read(&*reader, id).unwrap_or_else(|error| panic!("{name}: {error}"));
            values.fields().iter().map(|value| value.bytes.clone()).collect::<Vec<_>>()
        };
        let expected: Vec<_> = (0..reader.len()).map(sample).collect();
        let data = Bounded::limited(reader, MOST).unwrap_or_else(|error| panic!("{name}: {error}"));
        let memory = [const { Mutex::new(Scratch::new()) }; WORKERS];
        let mut after = Vec::new();
        let mut read = |epochs: std::ops::Range<u64>| {
            for epoch in epochs {
                read_epoch(&data, epoch, &expected, &memory, &name);
                after.push((HEAP.live(), resident()));
            }
            // Two epochs of each kind fill the buffers and caches.
            let (live, pages) = after[after.len() - EPOCHS as usize + 3];
            let last = &after[after.len() - EPOCHS as usize + 4..];
            let live = last.iter().map(|(later, _)| later.saturating_sub(live)).max().unwrap_or(0);
            // A worker's buffers grow until it has met the largest samples; 1,200 reads lie between the two.
            assert!(live < 64 << 10, "{name}: {live} bytes more in use than after four epochs: {after:?}");
            let grown = last.iter().map(|(_, later)| later.saturating_sub(pages)).max().unwrap_or(0);
            println!("{name}: {grown} bytes more resident: {after:?}");
            grown < 1 << 20
        };
        // Threads that end leave pages to the allocator's arenas, of which glibc has eight per core, and on a
        // busy machine a new one comes into use from time to time. A leak grows in each stretch of epochs.
        let is_level = (0..12).any(|stretch| read(stretch * EPOCHS..(stretch + 1) * EPOCHS));
        assert!(
            is_level || emulated("level resident memory"),
            "{name}: the resident memory grows in every stretch of {EPOCHS} epochs"
        );
    }
    let mut all = implementations();
    // It is the core's, and joins the files of one set.
    all.insert("Concat".to_owned());
    assert_eq!(Vec::from_iter(all.difference(&tested)), OVER_OTHERS);
    assert!(tested.is_subset(&all), "{tested:?}");
}

/// The sets that decode or gather samples of others, which have tests of their own. `Bounded` is around each.
const OVER_OTHERS: [&str; 6] = ["Bounded", "Idx", "Labelled", "Pictures", "SoundDataset", "TableWindows"];

/// The types of this crate that implement `Dataset`.
fn implementations() -> BTreeSet<String> {
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("src")];
    let mut found = BTreeSet::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            // Unit tests have readers of their own.
            if path.ends_with("tests.rs") {
                continue;
            }
            let text = std::fs::read_to_string(path).unwrap();
            let named = text.lines().filter_map(|line| line.strip_prefix("impl Dataset for "));
            found.extend(named.map(|rest| rest.split([' ', '<']).next().unwrap_or(rest).to_owned()));
        }
    }
    found
}
