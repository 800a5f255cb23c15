//! Makes the files that are read, without the code under test and without a compressor, whose next version
//! could write other bytes.

use std::io::Write;
use std::path::{Path, PathBuf};

use flate2::{Compression, write::GzEncoder};

use crate::made::{npy, safetensors, tar, write, zip};

/// Samples of a file.
pub(crate) const SAMPLES: usize = 20;

/// A tokenizer of pairs of bytes.
pub(crate) const DIGITS: &str = r#"{"model": {"type": "BPE", "merges": [["1", "2"]], "vocab":
    {"0": 0, "1": 1, "2": 2, "3": 3, "4": 4, "5": 5, "6": 6, "7": 7, "8": 8, "9": 9, "12": 10}},
    "pre_tokenizer": {"type": "CharDelimiterSplit", "delimiter": ":"}}"#;

/// Text of a sample; lengths differ.
pub(crate) fn text(id: usize) -> String {
    format!("{id}:").repeat(1 + id * 37 % 23)
}

pub(crate) fn lines(line: impl Fn(usize) -> String) -> Vec<u8> {
    (0..SAMPLES).map(|id| line(id) + "\n").collect::<String>().into_bytes()
}

/// Gzip that stores its content.
pub(crate) fn stored(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::none());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// A record of TFRecord, with its checksums.
pub(crate) fn record(bytes: &[u8]) -> Vec<u8> {
    let masked =
        |bytes: &[u8]| crc32c::crc32c(bytes).rotate_right(15).wrapping_add(0xA282_EAD8).to_le_bytes();
    let length = (bytes.len() as u64).to_le_bytes();
    [&length[..], &masked(&length), bytes, &masked(bytes)].concat()
}

/// A record of an example: its id, a list of numbers, and texts.
pub(crate) fn example(id: usize) -> Vec<u8> {
    let field = |number: u8, bytes: &[u8]| [&[number << 3 | 2, bytes.len() as u8], bytes].concat();
    let feature = |name: &str, kind: u8, list: &[u8]| {
        field(1, &[field(1, name.as_bytes()), field(2, &field(kind, list))].concat())
    };
    let numbers = field(1, &vec![id as u8; 1 + id % 3]);
    let texts = vec![field(1, b"a"); id % 3].concat();
    let features = [
        feature("id", 3, &[8, id as u8]),
        feature("numbers", 3, &numbers),
        feature("x", 2, &field(1, &(id as f32).to_le_bytes())),
        feature("words", 1, &texts),
    ];
    field(1, &features.concat())
}

/// The columns of a shard of texts, and the shard.
pub(crate) fn mds() -> (&'static str, Vec<u8>) {
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
    (columns, bytes)
}

/// A folder of compressed shards.
pub(crate) fn zipped(dir: &Path, shards: usize) -> PathBuf {
    let (columns, shard) = mds();
    let listed = |at: usize| {
        write(dir, &format!("zipped/{at}.mds.gz"), &stored(&shard));
        let bytes = shard.len();
        format!(
            r#"{{{columns},"raw_data":{{"basename":"{at}.mds","bytes":{bytes}}},"samples":{SAMPLES},
            "compression":"gz","zip_data":{{"basename":"{at}.mds.gz"}}}}"#
        )
    };
    let index = (0..shards).map(listed).collect::<Vec<_>>().join(",");
    write(dir, "zipped/index.json", format!(r#"{{"version":2,"shards":[{index}]}}"#).as_bytes());
    dir.join("zipped")
}

/// An array of rows of 5 bytes.
pub(crate) fn array(rows: usize) -> Vec<u8> {
    let data = Vec::from_iter((0..rows * 5).map(|at| ((at * at) >> 3) as u8));
    npy("|u1", false, &format!("({rows}, 5)"), &data)
}

/// A column of whole numbers of 64 bits.
pub(crate) fn numbers(descr: &str, numbers: impl IntoIterator<Item = u64>) -> Vec<u8> {
    let data = Vec::from_iter(numbers.into_iter().map(u64::to_le_bytes));
    npy(descr, false, &format!("({},)", data.len()), &data.concat())
}

/// Two named arrays, of the formats that have names.
pub(crate) fn npz() -> Vec<u8> {
    let labels = numbers("<i8", (0..SAMPLES as u64).map(|id| id % 3));
    zip(&[("x.npy", &array(SAMPLES)), ("label.npy", &labels)], None)
}

pub(crate) fn tensors() -> Vec<u8> {
    let header = r#"{"a":{"dtype":"U8","shape":[3,2],"data_offsets":[0,6]},
        "b":{"dtype":"BF16","shape":[3],"data_offsets":[6,12]}}"#;
    safetensors(header, &[1, 2, 3, 4, 5, 6, 0, 63, 0, 64, 128, 64])
}

/// Samples of a text and of a class as text.
pub(crate) fn archive() -> Vec<u8> {
    let member = |id: usize, extension: &str, text: String| (format!("{id:04}.{extension}"), text);
    let members =
        (0..SAMPLES).flat_map(|id| [member(id, "txt", text(id)), member(id, "cls", (id % 3).to_string())]);
    let members: Vec<_> = members.collect();
    tar(&Vec::from_iter(members.iter().map(|(name, text)| (name.as_str(), text.as_bytes()))))
}

/// The number of ids in document `id`.
fn len(id: usize) -> u64 {
    (id * 37 % 23) as u64
}

fn start(id: usize) -> u64 {
    (0..id).map(len).sum()
}

fn ids() -> Vec<u8> {
    Vec::from_iter((0..start(SAMPLES)).flat_map(|id| (id as u16).to_le_bytes()))
}

/// A pair of Megatron: documents of one sequence each.
pub(crate) fn megatron(dir: &Path) -> PathBuf {
    let mut index = b"MMIDIDX\0\0\x01\0\0\0\0\0\0\0\x08".to_vec();
    index.extend([SAMPLES, SAMPLES + 1].map(usize::to_le_bytes).concat());
    index.extend((0..SAMPLES).flat_map(|id| (len(id) as i32).to_le_bytes()));
    index.extend((0..SAMPLES).flat_map(|id| (2 * start(id)).to_le_bytes()));
    index.extend((0..=SAMPLES).flat_map(usize::to_le_bytes));
    write(dir, "megatron.idx", &index);
    write(dir, "megatron.bin", &ids())
}

/// A pair of fairseq.
pub(crate) fn fairseq(dir: &Path) -> PathBuf {
    let count = SAMPLES as u64;
    let mut index = b"TNTIDX\0\0".to_vec();
    index.extend([1, 8, 2, count, count].map(u64::to_le_bytes).concat());
    index.extend((0..=count).flat_map(u64::to_le_bytes));
    index.extend((0..=SAMPLES).flat_map(|id| start(id).to_le_bytes()));
    index.extend((0..SAMPLES).flat_map(|id| len(id).to_le_bytes()));
    write(dir, "fairseq.idx", &index);
    write(dir, "fairseq.bin", &ids())
}

/// A file of llm.c, of `version` 1: texts begin with token 50256.
pub(crate) fn llm_c(version: u32) -> Vec<u8> {
    let ids = [50256u16, 1, 2, 50256, 3, 50256, 4, 5, 6];
    let mut header = [20240520, version, ids.len() as u32].map(u32::to_le_bytes).concat();
    header.resize(1024, 0);
    [header, ids.map(u16::to_le_bytes).concat()].concat()
}

/// A picture of `sides`, 24 bits per pixel.
pub(crate) fn bitmap([width, height]: [usize; 2], pixel: impl Fn(usize, usize) -> [u8; 3]) -> Vec<u8> {
    let mut pixels = Vec::new();
    for y in 0..height {
        pixels.extend((0..width).flat_map(|x| pixel(x, y)));
        pixels.resize(pixels.len().next_multiple_of(4), 0);
    }
    let mut bytes = b"BM".to_vec();
    let (width, height, len) = (width as u32, height as u32, pixels.len() as u32);
    for number in [54 + len, 0, 54, 40, width, height, 1 | 24 << 16, 0, len, 0, 0, 0, 0] {
        bytes.extend(number.to_le_bytes());
    }
    bytes.extend(pixels);
    bytes
}

/// A grey picture in PNG, whose pixels are stored.
pub(crate) fn gray([width, height]: [usize; 2], pixel: impl Fn(usize, usize) -> u8) -> Vec<u8> {
    let chunk = |name: &[u8; 4], content: &[u8]| {
        let body = [name, content].concat();
        let mut crc = flate2::Crc::new();
        crc.update(&body);
        [&(content.len() as u32).to_be_bytes()[..], &body, &crc.sum().to_be_bytes()].concat()
    };
    let sides = [width, height].map(|side| (side as u32).to_be_bytes()).concat();
    let rows = (0..height).flat_map(|y| {
        [0].into_iter().chain((0..width).map(move |x| (x, y)).map(|(x, y)| pixel(x, y)).collect::<Vec<_>>())
    });
    let rows: Vec<u8> = rows.collect();
    let len = (rows.len() as u16).to_le_bytes();
    let sums = rows.iter().fold((1u32, 0u32), |(a, b), &byte| {
        let a = (a + u32::from(byte)) % 65521;
        (a, (b + a) % 65521)
    });
    let sum = (sums.1 << 16 | sums.0).to_be_bytes();
    let data = [&[0x78, 1, 1], &len[..], &len.map(|byte| !byte), &rows, &sum].concat();
    let header = chunk(b"IHDR", &[&sides[..], &[8, 0, 0, 0, 0]].concat());
    [&b"\x89PNG\r\n\x1A\n"[..], &header, &chunk(b"IDAT", &data), &chunk(b"IEND", b"")].concat()
}

/// A sound of `frames` frames of 16 bits, mono, at 8 kHz.
pub(crate) fn wav(frames: usize) -> Vec<u8> {
    let data = Vec::from_iter((0..frames).flat_map(|at| ((at * at * 7) as i16).to_le_bytes()));
    let mut bytes = b"RIFF".to_vec();
    bytes.extend((36 + data.len() as u32).to_le_bytes());
    bytes.extend(b"WAVEfmt \x10\0\0\0\x01\0\x01\0");
    bytes.extend([8000u32, 16000].map(u32::to_le_bytes).concat());
    bytes.extend(b"\x02\0\x10\0data");
    bytes.extend((data.len() as u32).to_le_bytes());
    bytes.extend(data);
    bytes
}

/// Copies a file of `tests/golden`, which another program wrote.
pub(crate) fn golden(dir: &Path, name: &str) -> PathBuf {
    let bytes = std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name)).unwrap();
    write(dir, name, &bytes)
}
