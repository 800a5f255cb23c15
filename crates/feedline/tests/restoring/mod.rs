//! A loader for the restore tests: reads back every byte of every batch, and the cursor after each. Also
//! lists, from the source files, the types that the tests must cover.
#![allow(dead_code, reason = "each test binary uses its own part")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use feedline::{Cursor, DType, Device, Loader, LoaderBuilder, Ready, Spec, Stream, View, Workers};
use feedline_testkit::restore::{From, Mix, Pipeline, Step};
use half::{bf16, f16};

use crate::common::elements;

/// A loader on the host.
pub struct Restored {
    /// The loader.
    pub loader: Loader,
    /// The stream that reads the batches.
    pub compute: Stream,
}

impl Restored {
    /// Builds it with the workers and depth of `mix`.
    #[track_caller]
    pub fn new<T: ?Sized>(builder: LoaderBuilder<T>, mix: Mix) -> Self {
        let device = Device::new_host();
        let builder = builder.workers(Workers::Count(mix.workers)).depth(mix.depth);
        Self {
            loader: builder.build(&device).expect("a loader"),
            compute: device.stream().expect("a stream"),
        }
    }
}

impl Pipeline for Restored {
    fn cursor(&self) -> Cursor {
        self.loader.cursor()
    }

    fn run(&mut self, from: From, most: usize) -> Vec<Step> {
        let spec = self.loader.layout().spec().clone();
        let batches = match from {
            From::Epoch(epoch) => self.loader.epoch(epoch),
            From::Cursor(cursor) => self.loader.resume(cursor),
        };
        let mut batches = batches.expect("an epoch");
        let mut steps = Vec::new();
        while steps.len() < most {
            let Some(batch) = batches.next() else { break };
            let batch = batch.expect("a batch");
            let valid = batch.valid_rows();
            let batch = batch.wait_on(&self.compute).expect("a batch on its stream");
            let (epoch, ids, bytes) = (batch.epoch(), batch.ids().to_vec(), bytes(&spec, &batch));
            steps.push(Step { epoch, ids, valid, bytes, cursor: batches.cursor() });
        }
        steps
    }
}

/// The bytes of a batch, row after row.
pub fn bytes(spec: &Spec, batch: &Ready) -> Vec<u8> {
    rows(spec, batch).concat()
}

/// The bytes of each row of a batch, field after field. Before the bytes of a ragged field is their number.
pub fn rows(spec: &Spec, batch: &Ready) -> Vec<Vec<u8>> {
    let mut rows = vec![Vec::new(); batch.len()];
    for (index, field) in spec.fields().iter().enumerate() {
        macro_rules! read {
            ($type:ty) => {{
                let bytes = |view: View<'_, $type>| -> Vec<u8> {
                    let elements = if view.len() == 0 { Vec::new() } else { elements(batch.stream(), view) };
                    elements.into_iter().flat_map(<$type>::to_le_bytes).collect()
                };
                if field.as_ragged().is_none() {
                    let all = bytes(batch.field_at(index).expect("a field"));
                    rows.iter_mut()
                        .zip(all.chunks(field.row_bytes()))
                        .for_each(|(row, part)| row.extend(part));
                    continue;
                }
                let ragged = batch.ragged::<$type>(field.name()).expect("a ragged field");
                let offsets = elements(batch.stream(), ragged.offsets);
                let all = bytes(ragged.values);
                let items = offsets.last().map_or(0, |&items| items as usize);
                let item = all.len() / items.max(1);
                for (row, at) in rows.iter_mut().zip(offsets.windows(2)) {
                    row.extend((at[1] - at[0]).to_le_bytes());
                    row.extend(&all[at[0] as usize * item..at[1] as usize * item]);
                }
            }};
        }
        match field.dtype() {
            DType::U8 | DType::Bool => read!(u8),
            DType::I8 => read!(i8),
            DType::U16 => read!(u16),
            DType::I16 => read!(i16),
            DType::U32 => read!(u32),
            DType::I32 => read!(i32),
            DType::I64 => read!(i64),
            DType::F16 => read!(f16),
            DType::BF16 => read!(bf16),
            DType::F32 => read!(f32),
            DType::F64 => read!(f64),
        }
    }
    rows
}

/// The folder of this repository's sources, found at run time. `None` without the sources, for example if the
/// tests run in another folder; then prints that `test` did not run.
pub fn sources(test: &str) -> Option<PathBuf> {
    // Test runners set the variable; without it, tests run in the folder of their package.
    let package = std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| ".".into());
    // Packages lie in the root or in `crates`.
    let mut roots = ["..", "../.."].into_iter().map(|up| Path::new(&package).join(up));
    let root = roots.find(|root| root.join("crates/feedline/tests/restoring/mod.rs").is_file());
    if root.is_none() {
        feedline_testkit::not_run(test, format_args!("no sources above {}", Path::new(&package).display()));
    }
    root
}

/// The text of a source file.
#[track_caller]
pub fn read_source(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The types that implement the trait `name` in the compositions, the data sets and the fixtures below
/// `root`.
#[track_caller]
pub fn implementors(root: &Path, name: &str) -> BTreeSet<String> {
    implementations(root, name).into_keys().collect()
}

/// The types that implement the trait `name` as above, each with its file.
#[track_caller]
pub fn implementations(root: &Path, name: &str) -> BTreeMap<String, PathBuf> {
    let mut folders = Vec::from(
        ["crates/core/src/compose", "datasets/src", "crates/testkit/src/fixtures"]
            .map(|path| root.join(path)),
    );
    let mut found = BTreeMap::new();
    while let Some(folder) = folders.pop() {
        let entries =
            std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        for entry in entries {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            // Unit tests have readers of their own.
            if path.ends_with("tests.rs") {
                continue;
            }
            let text = read_source(&path);
            let after = format!(" {name} for ");
            for line in text.lines().filter(|line| line.starts_with("impl")) {
                let implementor = line.split_once(&after).map(|(_, implementor)| first_word(implementor));
                found.extend(implementor.map(|implementor| (implementor, path.clone())));
            }
        }
    }
    found
}

/// Whether the data sets have the module of `file` in a default build, and the modules that it is in.
pub fn is_on_by_default(root: &Path, file: &Path) -> bool {
    let mut folder = root.join("datasets/src");
    let Ok(inside) = file.strip_prefix(&folder) else { return true };
    let defaults = read_source(&root.join("datasets/Cargo.toml"));
    let defaults = defaults.lines().find(|line| line.starts_with("default = ")).expect("default features");
    let mut modules = folder.join("lib.rs");
    for part in inside {
        let module = Path::new(part).file_stem().and_then(|name| name.to_str()).expect("a name");
        let text = read_source(&modules);
        let found = text.split_once(&format!("mod {module};"));
        let (before, _) = found.unwrap_or_else(|| panic!("{}: not a module", file.display()));
        let above = before.rsplit_once('\n').and_then(|(before, _)| before.lines().last());
        let feature = above.and_then(|line| line.strip_prefix("#[cfg(feature = \""));
        if feature.is_some_and(|name| !defaults.contains(&format!("\"{}", name.trim_end_matches(")]")))) {
            return false;
        }
        folder.push(part);
        modules = folder.join("mod.rs");
        if !modules.is_file() {
            break;
        }
    }
    true
}

/// The variants of the enum `name` in the source `text`.
#[track_caller]
pub fn variants(text: &str, name: &str) -> BTreeSet<String> {
    let (_, body) = text.split_once(&format!("enum {name} {{\n")).expect("the enum");
    let (body, _) = body.split_once("\n}").expect("the end of the enum");
    body.lines().map(str::trim).filter(|line| line.starts_with(char::is_uppercase)).map(first_word).collect()
}

/// The letters and digits at the start of `text`.
fn first_word(text: &str) -> String {
    text.chars().take_while(|c| c.is_alphanumeric()).collect()
}
