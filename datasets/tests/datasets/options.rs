//! Every option with every kind of data: it is used, or refused.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use feedline_core::{DType, ElementType, ErrorKind, Result, Spec};
use feedline_datasets::{
    Folder, IdxFile, Manifest, ManifestOptions, Nulls, OpenOptions, PackOptions, Paired, Records, Split,
    Table, WebDataset, npy, open, open_with, pack, safetensors,
};
use tempfile::tempdir;

use crate::made::{gz, npy as array, png, read, safetensors as tensors, tar, write, zip};

/// A value of each option that no default has, with the option's name.
fn options() -> Vec<(&'static str, OpenOptions)> {
    let default = OpenOptions::default();
    // A new option does not compile until it is listed here. `memory_limit` is a limit, which any data keep.
    let OpenOptions {
        memory_limit: _,
        split: _,
        classes: _,
        class_from: _,
        empty_members: _,
        columns: _,
        types: _,
        masks: _,
        nulls: _,
        header: _,
        cache_bytes: _,
        codes: _,
        listing_age: _,
    } = default.clone();
    let a = || vec!["a".to_owned()];
    vec![
        ("split", OpenOptions { split: Some(Split::Train), ..default.clone() }),
        ("split", OpenOptions { split: Some(Split::Test), ..default.clone() }),
        ("split", OpenOptions { split: Some(Split::Validation), ..default.clone() }),
        ("classes", OpenOptions { classes: Some(vec!["x".into(), "y".into()]), ..default.clone() }),
        ("class_from", OpenOptions { class_from: Some(1), ..default.clone() }),
        ("empty_members", OpenOptions { empty_members: true, ..default.clone() }),
        ("columns", OpenOptions { columns: Some(a()), ..default.clone() }),
        ("types", OpenOptions { types: vec![("a".into(), ElementType::Text)], ..default.clone() }),
        ("masks", OpenOptions { masks: a(), ..default.clone() }),
        ("nulls", OpenOptions { nulls: Nulls::Fill, ..default.clone() }),
        ("header", OpenOptions { header: Some(true), ..default.clone() }),
        ("cache_bytes", OpenOptions { cache_bytes: 1 << 20, ..default.clone() }),
        ("codes", OpenOptions { codes: a(), ..default.clone() }),
        ("listing_age", OpenOptions { listing_age: Duration::from_secs(60), ..default }),
    ]
}

/// A function that opens a kind of data.
type Opens = Box<dyn Fn(&OpenOptions) -> Result<()>>;

/// Each kind of data: its name, how it is opened, and the options that it uses.
fn kinds(dir: &Path) -> Vec<(&'static str, Opens, &'static [&'static str])> {
    let set: &[&str] = &["columns", "masks", "nulls", "cache_bytes"];
    let jsonl: &[&str] = &["columns", "types", "masks", "nulls", "cache_bytes", "codes"];
    let csv: &[&str] = &["columns", "types", "masks", "nulls", "header", "cache_bytes", "codes"];
    let shards: &[&str] = &["split", "columns", "types", "masks", "nulls", "header", "cache_bytes", "codes"];
    let with = |path: PathBuf| -> Opens { Box::new(move |options| open_with(&path, options).map(drop)) };
    let put = |name: &str, bytes: &[u8]| write(dir, name, bytes);
    let (table, lines) = (&b"a,b\n1,2\n3,4\n"[..], &b"{\"a\": 1}\n{\"a\": 2}\n"[..]);
    let numbers = array("|u1", false, "(3, 2)", &[0; 6]);
    let named = tensors(r#"{"a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]}}"#, &[1, 2, 3]);
    let archive = tar(&[("1.x", b"1"), ("2.x", b"2")]);
    let picture = png(1, 8, 0, &[0, 7]);
    let a_csv = put("a.csv", table);
    pack(&*open(&a_csv).unwrap(), dir.join("a.arrow"), PackOptions::default(), |_| ()).unwrap();
    let options = PackOptions { shard_bytes: Some(1 << 20) };
    pack(&*open(&a_csv).unwrap(), dir.join("packed"), options, |_| ()).unwrap();
    let parquet = dir.join("a.parquet");
    crate::wide_tables::parquet(&parquet, &["a"], 2);
    for set in ["train", "test", "validation"] {
        put(&format!("shards/{set}-0.csv"), table);
        put(&format!("cifar/{}_batch.bin", if set == "train" { "data" } else { set }), &[0; 3073]);
        put(&format!("saved/{set}/state.json"), br#"{"_data_files": [{"filename": "a.arrow"}]}"#);
        std::fs::copy(dir.join("a.arrow"), dir.join("saved").join(set).join("a.arrow")).unwrap();
    }
    std::fs::rename(dir.join("cifar/data_batch.bin"), dir.join("cifar/data_batch_1.bin")).unwrap();
    std::fs::remove_file(dir.join("cifar/validation_batch.bin")).unwrap();
    put("saved/dataset_dict.json", br#"{"splits": ["train", "validation", "test"]}"#);
    for (name, bytes) in [("plain/0.csv", table), ("plain/1.csv", table), ("flat/1", b"1"), ("flat/2", b"2")]
    {
        put(name, bytes);
    }
    for class in ["x", "y"] {
        put(&format!("classes/{class}/1.png"), &picture);
    }
    let cifar: Vec<_> = ["data_batch_1.bin", "test_batch.bin"].map(|name| (name, &[0; 3073][..])).into();
    let ids = [1, 0, 2, 0, 3, 0].map(|byte| byte);
    let mut index = b"MMIDIDX\0\0\x01\0\0\0\0\0\0\0\x08".to_vec();
    index.extend([1usize, 2].map(usize::to_le_bytes).concat());
    index.extend(3i32.to_le_bytes());
    index.extend([0usize, 0, 1].map(usize::to_le_bytes).concat());
    put("pair.idx", &index);
    let manifest = put("manifest.csv", b"file,label\n1.png,x\n2.png,y\n");
    let bytes = put("records", &[0; 8]);
    put("masks/x/1.png", &picture);
    put("masks/y/1.png", &picture);
    let of_manifest = ManifestOptions { files: vec!["file".into()], ..Default::default() };
    let spec = Spec::new().field("x", DType::U8, [4]).unwrap();
    let (folder, masks) = (dir.join("classes"), dir.join("masks"));
    let (npy_file, tensor_file, tar_file) =
        (put("a.npy", &numbers), put("a.safetensors", &named), put("a.tar", &archive));
    let idx_file = put("a-idx", &[0, 0, 8, 2, 0, 0, 0, 1, 0, 0, 0, 3, 7, 8, 9]);
    let of = |path: &PathBuf| path.clone();
    let direct: Vec<(&str, Opens, &[&str])> = vec![
        (
            "npy::open_with",
            {
                let file = of(&npy_file);
                Box::new(move |o| npy::open_with(&file, o).map(drop))
            },
            &[],
        ),
        (
            "safetensors::open_with",
            {
                let file = of(&tensor_file);
                Box::new(move |o| safetensors::open_with(&file, o).map(drop))
            },
            &[],
        ),
        (
            "IdxFile::open_with",
            {
                let file = of(&idx_file);
                Box::new(move |o| IdxFile::open_with(&file, o).map(drop))
            },
            &[],
        ),
        (
            "WebDataset::open_with",
            {
                let file = of(&tar_file);
                Box::new(move |o| WebDataset::open_with(&file, o).map(drop))
            },
            &["empty_members"],
        ),
        (
            "Folder::open_with",
            {
                let folder = of(&folder);
                Box::new(move |o| Folder::open_with(&folder, o).map(drop))
            },
            &["classes"],
        ),
        (
            "Paired::open_with",
            Box::new(move |o| Paired::open_with(&folder, &masks, o).map(drop)),
            &["classes"],
        ),
        ("Records::open_with", Box::new(move |o| Records::open_with(&bytes, spec.clone(), o).map(drop)), &[]),
        (
            "Manifest::open",
            Box::new(move |o| {
                Manifest::open(&manifest, &ManifestOptions { open: o.clone(), ..of_manifest.clone() })
                    .map(drop)
            }),
            &["classes", "columns", "types", "masks", "nulls", "header", "cache_bytes", "codes"],
        ),
        (
            "Table::open_with",
            {
                let file = of(&npy_file);
                Box::new(move |o| Table::open_with(&file, o.clone()).build().map(drop))
            },
            &[],
        ),
    ];
    // A folder of several sets: one must be chosen.
    let of_sets = |path: PathBuf| -> Opens {
        Box::new(move |options| {
            let split = options.split.or(Some(feedline_datasets::Split::Train));
            open_with(&path, &OpenOptions { split, ..options.clone() }).map(drop)
        })
    };
    let opened: Vec<(&str, Opens, &[&str])> = vec![
        ("csv", with(a_csv), csv),
        ("csv", with(put("a.tsv", b"a\tb\n1\t2\n")), csv),
        ("csv", with(put("a.csv.gz", &gz(table))), csv),
        ("csv", with(put("table", table)), csv),
        ("jsonl", with(put("a.jsonl", lines)), jsonl),
        ("arrow", with(dir.join("a.arrow")), set),
        ("arrow", with(dir.join("packed")), set),
        ("arrow", with(dir.join("packed/_index.json")), set),
        ("parquet", with(parquet), set),
        ("arrow", of_sets(dir.join("saved")), &["split", "columns", "masks", "nulls", "cache_bytes"]),
        ("arrow", with(dir.join("saved/train")), set),
        ("npy", with(npy_file), &[]),
        ("npz", with(put("a.npz", &zip(&[("a.npy", &numbers)], None))), &[]),
        ("safetensors", with(tensor_file), &[]),
        ("idx", with(idx_file), &[]),
        ("text", with(put("a.txt", b"one\ntwo\n")), &[]),
        ("webdataset", with(tar_file), &["empty_members"]),
        ("cifar10", with(put("cifar.tar", &tar(&cifar))), &["split", "classes"]),
        ("cifar10", with(dir.join("cifar")), &["split", "classes"]),
        ("png", with(put("1.png", &picture)), &[]),
        ("megatron", with(put("pair.bin", &ids)), &[]),
        ("folder", with(dir.join("classes")), &["classes"]),
        ("folder", with(dir.join("flat")), &[]),
        ("files", with(dir.join("classes/*/*.png")), &["classes", "class_from"]),
        ("csv", of_sets(dir.join("shards")), shards),
        ("csv", with(dir.join("plain")), csv),
        ("csv", with(dir.join("plain/*.csv")), csv),
        ("csv", with(dir.join("shards/train-*.csv")), csv),
    ];
    direct.into_iter().chain(opened).collect()
}

#[test]
fn an_option_is_used_or_refused_by_every_kind_of_data() {
    let dir = tempdir().unwrap();
    let (mut refused, mut wrong) = (0, Vec::new());
    for (kind, opens, used) in kinds(dir.path()) {
        for (name, options) in options() {
            let opened = opens(&options);
            if used.contains(&name) {
                if let Err(error) = &opened {
                    let of_classes = name == "classes" && error.to_string().contains("class");
                    let of_split = name == "split" && error.to_string().contains("set");
                    let of_columns = error.to_string().contains("\"a\"");
                    assert!(of_classes || of_split || of_columns, "{kind}, {name}: {error}");
                }
                continue;
            }
            let Err(error) = opened else { panic!("{kind} takes {name} and does not use it") };
            let states = error.to_string().contains(&format!("OpenOptions::{name}"));
            if error.kind() != ErrorKind::Config || !(states || name == "types") {
                wrong.push(format!("{kind}, {name}: {error}"));
            }
            refused += 1;
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(refused > 300, "{refused}");
}

/// A split chooses files by their names, so a set is never another one.
#[test]
fn a_split_that_no_name_states_is_refused() {
    let dir = tempdir().unwrap();
    for name in ["a/0.csv", "a/1.csv"] {
        write(dir.path(), name, b"a,b\n1,2\n3,4\n");
    }
    let of = |split| open_with(dir.path().join("a"), &OpenOptions { split, ..Default::default() });
    assert_eq!(of(None).unwrap().len(), 4);
    for split in [Split::Train, Split::Test, Split::Validation] {
        let error = of(Some(split)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config);
        assert!(error.to_string().starts_with("no name states a set, such as train"), "{error}");
    }
}

/// Each format that `open` reads is in the table.
#[test]
fn no_format_is_missing_in_the_table_of_options() {
    let dir = tempdir().unwrap();
    let listed: BTreeSet<_> = kinds(dir.path()).into_iter().map(|(kind, ..)| kind.to_owned()).collect();
    let source = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("src/open/kind.rs"));
    let source = source.unwrap();
    let (_, kinds) = source.split_once("enum Kind {").unwrap();
    let (kinds, _) = kinds.split_once('}').unwrap();
    let kinds = kinds.lines().map(str::trim).filter_map(|line| line.strip_suffix(','));
    for kind in kinds.filter(|kind| !kind.starts_with("Refused") && *kind != "Unknown") {
        let format = match kind {
            "Tar" => "webdataset".into(),
            "JsonLines" => "jsonl".into(),
            "Image" => "png".into(),
            "PackIndex" => "arrow".into(),
            "TokenIndex" => "megatron".into(),
            // They have no option that differs from those of the others, and samples that are long to make.
            "LlmC" | "TfRecord" | "Mds" | "MdsIndex" => continue,
            kind => kind.to_lowercase(),
        };
        assert!(listed.contains(&format), "{kind}");
    }
    let first = open(dir.path().join("a.csv")).unwrap();
    assert_eq!(read(&*first, 0).len(), 2);
}
