//! Every piece of Rust in `docs/data.md` stands word for word in a function of this folder, which runs it on
//! small files and checks the values.
//!
//! The pieces name files of the current folder, so they run in a process of their own.

use std::process::Command;

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::{error::Error, sync::Arc};

use feedline::bad_samples::Budget;
use feedline::dataset::{
    Cost, Long, Packed, PackedSource, Prefetched, RowError, Rows, Sink, Storage, Unpadded,
};
use feedline::{BadSamples, Checkpoint, Context, DType, Dataset, Loader, Mix, Pad, ReadError, Row, Sampler};
use feedline::{Spec, WorkerPool, Workers, World, check::CheckOptions, check_dataset, source};
use feedline_audio::{Crop, Log, MelSpectrogram, Sounds};
use feedline_datasets::*;
use feedline_images::Transforms;

mod files;
mod loading;
mod made;
mod pictures;
mod sampling;
mod sounds;
mod tables;
mod text;

type Done = Result<(), Box<dyn Error>>;

type Piece = (&'static str, fn() -> Done);

/// Each piece by the name of its function.
const PIECES: [Piece; 48] = [
    ("table", tables::table),
    ("columns", tables::columns),
    ("in memory", tables::in_memory),
    ("beyond memory", tables::beyond_memory),
    ("forecasting", tables::forecasting),
    ("missing", tables::missing),
    ("shards", tables::shards),
    ("windows", text::windows),
    ("buckets", text::buckets),
    ("tokens", text::tokens),
    ("tokenized_once", text::tokenized_once),
    ("bins", text::bins),
    ("chats", text::chats),
    ("unpadded", text::unpadded),
    ("budget", text::budget),
    ("preferences", text::preferences),
    ("streams", text::streams),
    ("classes", pictures::classes),
    ("masks", pictures::masks),
    ("boxes", pictures::boxes),
    ("views", pictures::views),
    ("list", pictures::list),
    ("manifest", pictures::manifest),
    ("clips", pictures::clips),
    ("saved", pictures::saved),
    ("hub", pictures::hub),
    ("webdataset", pictures::webdataset),
    ("mnist", pictures::mnist),
    ("cifar", pictures::cifar),
    ("speech", sounds::speech),
    ("words", sounds::words),
    ("arrays", files::arrays),
    ("tfrecord_and_mds", files::tfrecord_and_mds),
    ("records", files::records),
    ("weighted", sampling::weighted),
    ("folds", sampling::folds),
    ("repeated", sampling::repeated),
    ("curriculum", sampling::curriculum),
    ("own order", sampling::own_order),
    ("own batches", sampling::own_batches),
    ("hard examples", sampling::hard_examples),
    ("predictions", sampling::predictions),
    ("own set over another", sampling::own_over_another),
    ("lists", tables::lists),
    ("stream", loading::stream),
    ("own", loading::own),
    ("mix", loading::mix),
    ("resume", loading::resume),
];

#[test]
fn every_piece_of_the_page_runs_and_gives_the_right_values() {
    let program = std::env::current_exe().unwrap();
    let mut command = Command::new(program);
    command.args(["--ignored", "--exact", "page::pieces", "--nocapture"]);
    #[cfg(feature = "object-store")]
    let _served = loading::serve(&mut command);
    let output = command.output().unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{printed}{}", String::from_utf8_lossy(&output.stderr));
    assert!(printed.contains(&format!("{} pieces ran", PIECES.len())), "{printed}");
}

#[test]
#[ignore = "started as a process, because it changes the current folder"]
fn pieces() {
    let dir = tempfile::tempdir().unwrap();
    made::files(dir.path());
    std::env::set_current_dir(dir.path()).unwrap();
    for (name, piece) in PIECES {
        piece().unwrap_or_else(|error| panic!("{name}: {error}"));
    }
    #[cfg(feature = "object-store")]
    for (name, piece) in [("store", loading::store as fn() -> Done), ("bucket", loading::bucket)] {
        piece().unwrap_or_else(|error| panic!("{name}: {error}"));
    }
    println!("{} pieces ran", PIECES.len());
}

/// The pieces of Rust in the page.
fn blocks(page: &str) -> Vec<&str> {
    page.split("```rust\n").skip(1).map(|block| block.split("```").next().unwrap()).collect()
}

#[test]
fn the_page_shows_the_code_that_runs_in_at_most_fifteen_lines_each() {
    let page = include_str!("../../../../../docs/data.md");
    let sources = [
        include_str!("mod.rs"),
        include_str!("tables.rs"),
        include_str!("text.rs"),
        include_str!("pictures.rs"),
        include_str!("sounds.rs"),
        include_str!("files.rs"),
        include_str!("loading.rs"),
        include_str!("sampling.rs"),
    ];
    let blocks = blocks(page);
    for block in &blocks {
        let indented: String = block.lines().map(|line| format!("    {line}\n")).collect();
        let indented = indented.replace("    \n", "\n");
        let runs = sources.iter().any(|source| source.contains(block) || source.contains(&indented));
        assert!(runs, "no function of this test has this piece:\n{block}");
        assert!(block.lines().count() <= 15, "more than 15 lines:\n{block}");
    }
    // The imports, the store and the bucket are not entries of the table, and the own set has four
    // pieces.
    assert_eq!(blocks.len(), PIECES.len() + 6, "a piece of the table is not on the page");
}

/// Parts of the pieces that open files.
const SETS: [&str; 17] = [
    "stack(\"x\", [\"length\", \"width\"]).select",
    "flowers.arrow",
    "cache_bytes: 8 << 30",
    "let at_once = Sampler::Shuffle",
    "books.bin",
    "pictures/val",
    "class_from: Some(1)",
    "pictures.csv",
    "clips.csv",
    "open(\"pictures-{000..001}.tar\")",
    "Idx::open_train",
    "cifar-10-batches-bin",
    "xy.npz",
    "open(\"mds\")",
    "records.bin",
    "s3://bucket/pictures-",
    "listing_age",
];

#[test]
fn the_page_opens_each_set_in_at_most_five_lines() {
    let blocks = blocks(include_str!("../../../../../docs/data.md"));
    for part in SETS {
        let [block] = blocks.iter().filter(|block| block.contains(part)).collect::<Vec<_>>()[..] else {
            panic!("not one piece of the page has {part}");
        };
        let opens = block.lines().take_while(|line| !line.contains("Loader::builder")).count();
        assert!(opens <= 5, "{opens} lines open it:\n{block}");
    }
}

/// All batches of epoch 0.
fn delivered(loader: &mut feedline::HostLoader) -> feedline::Result<Vec<feedline::HostBatch>> {
    loader.epoch(0)?.collect()
}

/// Field `name` of every sample, in order.
fn column<T: feedline::dataset::Element>(data: impl Dataset, name: &str) -> feedline::Result<Vec<T>> {
    let mut loader = Loader::builder(data).batch_size(1).build_host()?;
    let mut all = Vec::new();
    for batch in loader.epoch(0)? {
        all.extend_from_slice(batch?.field::<T>(name)?);
    }
    Ok(all)
}
