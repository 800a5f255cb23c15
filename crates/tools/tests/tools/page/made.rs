//! Small files of every kind.

use std::path::Path;

use crate::made::{npy, safetensors, tar, write, zip};
use feedline_datasets::{PackOptions, open, pack};

/// Eight days of two shops, out of order; one day of B is missing.
fn sales() -> String {
    let days = [5, 0, 7, 2, 1, 6, 4, 3].map(|day| (day, if day < 6 { day + 1 } else { 100 }));
    let rows = ["B", "A"].into_iter().flat_map(|shop| days.map(|(day, sold)| (shop, day, sold)));
    let rows = rows.filter(|(shop, day, _)| (*shop, *day) != ("B", 2));
    let lines = rows.map(|(shop, day, sold)| format!("{shop},{day},{sold},0.5\n"));
    "shop,day,sold,price\n".to_owned() + &lines.collect::<String>()
}

/// Writes all files that the page names.
pub(super) fn files(dir: &Path) {
    for (name, text) in [
        ("flowers.csv", "length,width,kind,count\n1.5,2.5,0,3\n3,4,1,5\n5.25,6,2,8\n"),
        (
            "flowers.jsonl",
            "{\"length\": 1.5, \"width\": 2.5, \"kind\": 0}\n{\"length\": 3, \"width\": 4, \"kind\": 1}\n\
             {\"length\": 5.25, \"width\": 6, \"kind\": 2}\n",
        ),
        ("train.csv", "age,income,city\n30,1,Rome\n,3,Oslo\n50,,\n"),
        ("val.csv", "age,income,city\n45,2,Rome\n"),
        ("sales.csv", &sales()),
        (
            "sessions.jsonl",
            "{\"history\": [5, 7, 2, 3], \"next\": 4}\n{\"history\": [], \"next\": 0}\n{\"history\": [9], \
             \"next\": 9}\n",
        ),
        ("shards/0.csv", "code,rare\n7,\n12,2.5\n"),
        ("shards/1.csv", "code,rare\nA7,\n"),
        ("corpus.txt", "a rose is\na rose is a rose\n"),
        ("corpus.jsonl", "{\"text\": \"a rose is\"}\n{\"text\": \"a rose is a rose\"}\n"),
        (
            "tokenizer.json",
            r#"{"model": {"type": "WordLevel", "unk_token": "?", "vocab":
            {"?": 0, "a": 1, "rose": 2, "is": 3}}, "pre_tokenizer": {"type": "Whitespace"}}"#,
        ),
        ("pictures.csv", "file,species\ntrain/bee/1.bmp,bee\ntrain/bee/2.bmp,an ant\nval/cat/1.bmp,bee\n"),
        (
            "pictures.jsonl",
            "{\"file\": \"train/bee/1.bmp\", \"species\": \"bee\"}\n{\"file\": \"train/bee/2.bmp\", \
             \"species\": \"an ant\"}\n{\"file\": \"val/cat/1.bmp\", \"species\": \"bee\"}\n",
        ),
        ("clips.csv", "clip,word\n1.wav,yes\n2.wav,no\n"),
        ("1.wav", "yes"),
        ("2.wav", "no"),
        ("repository/README.md", "# A set\n"),
        ("saved/dataset_dict.json", r#"{"splits": ["train", "test"]}"#),
        ("saved/train/state.json", r#"{"_data_files": [{"filename": "data-00000-of-00001.arrow"}]}"#),
    ] {
        write(dir, name, text.as_bytes());
    }
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../datasets/tests/golden");
    let parquet = std::fs::read(golden.join("tables/snappy.parquet")).unwrap();
    for name in ["flowers.parquet", "flowers.arrow", "pictures.parquet"] {
        write(dir, name, &std::fs::read(golden.join("page").join(name)).unwrap());
    }
    for shard in 0..2 {
        write(dir, &format!("repository/data/train-0000{shard}-of-00002.parquet"), &parquet);
        write(
            dir,
            &format!("train-0000{shard}.tfrecord"),
            &[record(b"one", shard), record(b"three", 7)].concat(),
        );
    }
    pictures(dir);
    tokens(dir);
    chats(dir);
    arrays(dir);
    for (name, frames) in [("speech/1.wav", 1600), ("speech/2.wav", 4000), ("words/no/1.wav", 1600)] {
        write(dir, name, &sound(frames));
    }
    write(dir, "words/yes/1.wav", &sound(9000));
    write(dir, "speech.csv", b"path,sentence\nspeech/1.wav,a rose is\nspeech/2.wav,a rose is a rose\n");
    write(dir, "records.bin", &[1, 2, 3, 7, 4, 5, 6, 8]);
    mds(dir);
    for shard in 0..3 {
        let line = |row| format!("{},{}\n", 100 * shard + row, f64::from(100 * shard + row) / 2.0);
        write(dir, &format!("stream/{shard}.csv"), (0..20).map(line).collect::<String>().as_bytes());
    }
}

/// A sawtooth of 8,000 frames a second, as WAV.
fn sound(frames: u32) -> Vec<u8> {
    let mut bytes =
        [b"RIFF", &(36 + 2 * frames).to_le_bytes()[..], b"WAVEfmt \x10\0\0\0\x01\0\x01\0"].concat();
    bytes.extend([&8000u32.to_le_bytes()[..], &16_000u32.to_le_bytes(), b"\x02\0\x10\0data"].concat());
    bytes.extend((2 * frames).to_le_bytes());
    bytes.extend((0..frames).flat_map(|at| (300 * (at % 41) as i16).to_le_bytes()));
    bytes
}

/// A picture of 8 x 8 pixels of one colour.
pub(super) fn bitmap(blue: u8) -> Vec<u8> {
    bitmap_of([blue, 2, 3])
}

fn bitmap_of(color: [u8; 3]) -> Vec<u8> {
    let mut bytes = b"BM".to_vec();
    for number in [246u32, 0, 54, 40, 8, 8, 1 | 24 << 16, 0, 192, 0, 0, 0, 0] {
        bytes.extend(number.to_le_bytes());
    }
    bytes.extend(color.repeat(64));
    bytes
}

fn pictures(dir: &Path) {
    for (number, name) in ["train/ant", "train/bee", "train/cat", "val/ant", "val/cat"].iter().enumerate() {
        write(dir, &format!("pictures/{name}/1.bmp"), &bitmap(number as u8));
    }
    for number in 4..7 {
        write(dir, &format!("photographs/{number}.bmp"), &bitmap(number));
        write(dir, &format!("masks/{number}.bmp"), &bitmap_of([number; 3]));
    }
    let boxes = r#"{"images": [{"id": 4, "file_name": "4.bmp"}, {"id": 5, "file_name": "5.bmp"}, {"id": 6,
        "file_name": "6.bmp"}], "categories": [{"id": 1, "name": "bee"}, {"id": 2, "name": "ant"}],
        "annotations": [{"image_id": 6, "category_id": 1, "bbox": [0, 0, 8, 8]},
        {"image_id": 4, "category_id": 2, "bbox": [1, 1, 3, 4]}]}"#;
    write(dir, "instances.json", boxes.as_bytes());
    let train = open(dir.join("pictures/train")).unwrap();
    let saved = dir.join("saved/train/data-00000-of-00001.arrow");
    pack(&*train, saved, PackOptions::default(), |_| ()).unwrap();
    for (shard, bytes) in archives().into_iter().enumerate() {
        write(dir, &format!("pictures-{shard:03}.tar"), &bytes);
    }
    for (set, pixels, labels) in
        [("train", [1, 2, 3, 4].as_slice(), [7, 9].as_slice()), ("t10k", &[9, 8, 7, 6], &[3, 4])]
    {
        let images = [&[0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 2], pixels].concat();
        write(dir, &format!("mnist/{set}-images-idx3-ubyte"), &images);
        write(dir, &format!("mnist/{set}-labels-idx1-ubyte"), &[&[0, 0, 8, 1, 0, 0, 0, 2], labels].concat());
    }
    for label in 1..=6 {
        let name = if label == 6 { "test_batch.bin".into() } else { format!("data_batch_{label}.bin") };
        let sample = [&[label][..], &[label; 3072]].concat();
        write(dir, &format!("cifar-10-batches-bin/{name}"), &sample);
    }
}

/// Two archives of two pictures, with their classes.
pub(super) fn archives() -> [Vec<u8>; 2] {
    [0, 5].map(|first| {
        let (picture, labels) = (bitmap(first), [first, first + 1].map(|label| label.to_string()));
        let [a, b] = &labels;
        tar(&[("0.jpg", &picture), ("0.cls", a.as_bytes()), ("1.jpg", &picture), ("1.cls", b.as_bytes())])
    })
}

fn tokens(dir: &Path) {
    let bytes = |ids: &[u16]| Vec::from_iter(ids.iter().flat_map(|id| id.to_le_bytes()));
    write(dir, "books.bin", &bytes(&[1, 2, 3, 4, 5, 0, 1, 2, 0]));
    write(dir, "code.bin", &bytes(&[5, 6, 7, 8, 9, 0]));
}

/// Conversations, pairs of answers, a tokenizer with a chat template, and three pairs of Megatron.
fn chats(dir: &Path) {
    let words = ["?", "<s>", "</s>", "user", "assistant", ":", "Hi", "there"];
    let vocab: serde_json::Map<_, _> =
        words.iter().enumerate().map(|(id, word)| (word.to_string(), id.into())).collect();
    let tokenizer = serde_json::json!({
        "model": {"type": "WordLevel", "unk_token": "?", "vocab": vocab},
        "pre_tokenizer": {"type": "WhitespaceSplit"},
    });
    let template = "{% for m in messages %}{{ m.role }} : {% if m.role == 'assistant' %}{% generation %}\
        {{ m.content }} {{ eos_token }} {% endgeneration %}{% endif %}{% endfor %}\
        {% if add_generation_prompt %}assistant : {% endif %}";
    let config = serde_json::json!({"eos_token": "</s>", "chat_template": template});
    write(dir, "tokenizer/tokenizer.json", tokenizer.to_string().as_bytes());
    write(dir, "tokenizer/tokenizer_config.json", config.to_string().as_bytes());
    let said = |role: &str, content: &str| serde_json::json!({"role": role, "content": content});
    let lines =
        |lines: &[serde_json::Value]| lines.iter().map(|line| format!("{line}\n")).collect::<String>();
    let chat =
        |answer: &str| serde_json::json!({"messages": [said("user", "Hi"), said("assistant", answer)]});
    write(dir, "chats.jsonl", lines(&[chat("Hi"), chat("Hi there")]).as_bytes());
    let pair = |chosen: &str, rejected: &str| {
        let (prompt, [chosen, rejected]) =
            (said("user", "Hi"), [chosen, rejected].map(|text| said("assistant", text)));
        serde_json::json!({"prompt": [prompt], "chosen": [chosen], "rejected": [rejected]})
    };
    write(dir, "pairs.jsonl", lines(&[pair("Hi there", "Hi"), pair("Hi", "there")]).as_bytes());
    for (name, first, ids) in [("web", 100_u16, 20_u16), ("wiki", 200, 12), ("math", 300, 8)] {
        write(dir, &format!("{name}.bin"), &Vec::from_iter((first..first + ids).flat_map(u16::to_le_bytes)));
        let mut index = b"MMIDIDX\0\0\x01\0\0\0\0\0\0\0\x08".to_vec();
        index.extend([2_u64, 3].iter().flat_map(|number| number.to_le_bytes()));
        index.extend([3, i32::from(ids) - 3].iter().flat_map(|number| number.to_le_bytes()));
        index.extend([0_u64, 6, 0, 1, 2].iter().flat_map(|number| number.to_le_bytes()));
        write(dir, &format!("{name}.idx"), &index);
    }
}

fn arrays(dir: &Path) {
    let numbers = |all: &[i16]| Vec::from_iter(all.iter().flat_map(|number| number.to_le_bytes()));
    let x = npy("<i2", false, "(2, 3)", &numbers(&[1, 2, 3, 4, 5, 6]));
    write(dir, "x.npy", &x);
    let [x, y] = [[1, 2, 3], [7, 8, 9]].map(|all| npy("<i2", false, "(3,)", &numbers(&all)));
    write(dir, "xy.npz", &zip(&[("x.npy", &x), ("y.npy", &y)], None));
    let header = r#"{"x":{"dtype":"I32","shape":[2],"data_offsets":[0,8]}}"#;
    let data = Vec::from_iter([10i32, 20].iter().flat_map(|number| number.to_le_bytes()));
    write(dir, "x.safetensors", &safetensors(header, &data));
    write(dir, "web.npy", &npy("|u1", false, "(6,)", &[1, 2, 3, 4, 5, 6]));
    write(dir, "books.npy", &npy("|u1", false, "(2,)", &[100, 101]));
}

/// A record of TFRecord, with its checksums: a `tf.train.Example` of the features `image` and `label`.
fn record(image: &[u8], label: u8) -> Vec<u8> {
    let part = |number: u8, content: &[u8]| [&[number << 3 | 2, content.len() as u8], content].concat();
    let entry = |name: &[u8], feature: &[u8]| part(1, &[part(1, name), part(2, feature)].concat());
    let images = entry(b"image", &part(1, &part(1, image)));
    let labels = entry(b"label", &part(3, &part(1, &[label])));
    let bytes = &part(1, &[images, labels].concat())[..];
    let masked = |part: &[u8]| crc32c::crc32c(part).rotate_right(15).wrapping_add(0xA282_EAD8).to_le_bytes();
    let length = (bytes.len() as u64).to_le_bytes();
    [&length[..], &masked(&length), bytes, &masked(bytes)].concat()
}

/// A shard of the texts "ab" and "cdef", and its index.
fn mds(dir: &Path) {
    let columns = r#""column_names":["a"],"column_encodings":["str"],"column_sizes":[null]"#;
    let json = format!("{{{columns}}}");
    let first = 4 + 3 * 4 + json.len() as u32;
    let mut shard =
        Vec::from_iter([2, first, first + 6, first + 14].iter().flat_map(|n: &u32| n.to_le_bytes()));
    shard.extend(json.as_bytes());
    for text in ["ab", "cdef"] {
        shard.extend((text.len() as u32).to_le_bytes());
        shard.extend(text.as_bytes());
    }
    write(dir, "mds/0.mds", &shard);
    let index = format!(
        r#"{{"version":2,"shards":[{{{columns},"raw_data":{{"basename":"0.mds","bytes":{}}},"samples":2,
        "format":"mds","compression":null,"zip_data":null}}]}}"#,
        shard.len()
    );
    write(dir, "mds/index.json", index.as_bytes());
}
