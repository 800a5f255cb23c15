//! Every option of `OpenOptions` that a kind of data refuses.

use std::path::{Path, PathBuf};
use std::time::Duration;

use feedline_core::{DType, ElementType, Result, Spec};
use feedline_datasets::{
    Folder, IdxFile, Manifest, ManifestOptions, Nulls, OpenOptions, Paired, Records, Split, Table,
    WebDataset, npy, open_with, safetensors,
};

use crate::golden::Found;

/// A value of each option that no default has, with the option's name.
fn options() -> Vec<(&'static str, OpenOptions)> {
    let default = OpenOptions::default();
    let a = || vec!["a".to_owned()];
    vec![
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

type Opens = Box<dyn Fn(&OpenOptions) -> Result<()>>;

/// Each kind of data, of the files of `formats::readers`.
fn kinds(dir: &Path) -> Vec<(&'static str, Opens)> {
    let opened = [
        ("csv", "a.csv"),
        ("jsonl", "a.jsonl"),
        ("arrow", "page/flowers.arrow"),
        ("packed shards", "packed"),
        ("saved", "listed"),
        ("parquet", "page/flowers.parquet"),
        ("npy", "a.npy"),
        ("npz", "a.npz"),
        ("safetensors", "a.safetensors"),
        ("idx", "idx/images"),
        ("text", "a.txt"),
        ("webdataset", "a.tar"),
        ("tfrecord", "a.tfrecord"),
        ("mds", "a.mds"),
        ("mds folder", "mds"),
        ("zarr", "zarr/two.zarr"),
        ("cifar10", "cifar"),
        ("picture", "a.bmp"),
        ("megatron", "megatron.bin"),
        ("llm.c", "llm_c.bin"),
        ("folder of classes", "classes"),
        ("folder", "flat"),
        ("files", "seen/*/*.bmp"),
        ("shards of csv", "csv"),
        ("shards of npy", "shards"),
    ];
    let opened = opened.map(|(kind, path)| {
        let path = dir.join(path);
        (kind, Box::new(move |options: &OpenOptions| open_with(&path, options).map(drop)) as Opens)
    });
    let of = |name: &str| -> PathBuf { dir.join(name) };
    let spec = Spec::new().field("x", DType::U8, [4]).unwrap();
    let (npy_file, tensors, idx, tar) = (of("a.npy"), of("a.safetensors"), of("idx/images"), of("a.tar"));
    let (folder, records, manifest) = (of("classes"), of("records"), of("manifest.csv"));
    let (pictures, masks, table) = (of("pictures"), of("masks"), of("a.npy"));
    let files = ManifestOptions { files: vec!["file".into()], ..Default::default() };
    let direct: [(&str, Opens); 9] = [
        ("npy::open_with", Box::new(move |options| npy::open_with(&npy_file, options).map(drop))),
        (
            "safetensors::open_with",
            Box::new(move |options| safetensors::open_with(&tensors, options).map(drop)),
        ),
        ("IdxFile::open_with", Box::new(move |options| IdxFile::open_with(&idx, options).map(drop))),
        ("WebDataset::open_with", Box::new(move |options| WebDataset::open_with(&tar, options).map(drop))),
        ("Folder::open_with", Box::new(move |options| Folder::open_with(&folder, options).map(drop))),
        (
            "Paired::open_with",
            Box::new(move |options| Paired::open_with(&pictures, &masks, options).map(drop)),
        ),
        (
            "Records::open_with",
            Box::new(move |options| Records::open_with(&records, spec.clone(), options).map(drop)),
        ),
        (
            "Manifest::open",
            Box::new(move |options| {
                Manifest::open(&manifest, &ManifestOptions { open: options.clone(), ..files.clone() })
                    .map(drop)
            }),
        ),
        (
            "Table::open_with",
            Box::new(move |options| Table::open_with(&table, options.clone()).build().map(drop)),
        ),
    ];
    opened.into_iter().chain(direct).collect()
}

pub(crate) fn errors(found: &mut Found) {
    for (kind, opens) in kinds(&found.dir.clone()) {
        for (name, options) in options() {
            if let Err(error) = opens(&options) {
                found.refused(&format!("{kind}: OpenOptions::{name}"), Err::<(), _>(error));
            }
        }
    }
}
