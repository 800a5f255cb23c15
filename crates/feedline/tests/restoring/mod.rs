//! A loader as the restore tests drive it: every byte of every batch is read back, with the cursor after it.
#![allow(dead_code, reason = "each test binary uses its own part")]

use std::collections::BTreeSet;
use std::path::Path;

use feedline::{Cursor, DType, Device, Loader, LoaderBuilder, Ready, Spec, Stream, Workers};
use feedline_testkit::restore::{From, Mix, Pipeline, Step};
use half::{bf16, f16};

use crate::common::elements;

/// A loader on the host.
pub struct Restored {
    /// The loader.
    pub loader: Loader,
    compute: Stream,
}

impl Restored {
    /// Builds it in `mix`.
    #[track_caller]
    pub fn new(builder: LoaderBuilder, mix: Mix) -> Self {
        let device = Device::host();
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

/// Every byte of every field of a batch, field after field.
pub fn bytes(spec: &Spec, batch: &Ready) -> Vec<u8> {
    let mut all = Vec::new();
    for (index, field) in spec.fields().iter().enumerate() {
        macro_rules! read {
            ($type:ty) => {{
                let view = batch.field_at::<$type>(index).expect("a field");
                all.extend(elements(batch.stream(), view).into_iter().flat_map(<$type>::to_le_bytes));
            }};
        }
        match field.dtype() {
            DType::U8 => read!(u8),
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
    all
}

/// The types that implement the trait `name` in the folders where data sets stand.
pub fn implementors(name: &str) -> BTreeSet<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut folders = vec![root.join("datasets/src"), root.join("crates/testkit/src/zoo")];
    let mut found = BTreeSet::new();
    while let Some(folder) = folders.pop() {
        for entry in
            std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
        {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let text = std::fs::read_to_string(&path).unwrap();
            for line in text.lines().filter(|line| line.starts_with("impl")) {
                let implemented = line.split_once(&format!(" {name} for ")).map(|(_, after)| after);
                found.extend(implemented.map(|after| {
                    after.split(|c: char| !c.is_alphanumeric()).next().unwrap_or(after).to_owned()
                }));
            }
        }
    }
    found
}
