//! A set of encoded pictures, and the expected output of a stage.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use feedline::{Context, DType, Dataset, Device, Loader, LoaderBuilder, ReadError, Row, Spec};
use feedline_images::device::HostBatch;
use feedline_images::{DevicePart, Scratch, Transforms};
use feedline_pictures::{Decode, PictureStage};

/// Files, each with its number as a label.
#[derive(Clone)]
pub struct Files {
    pub files: Arc<Vec<Vec<u8>>>,
    transforms: Transforms,
    spec: Spec,
}

pub fn crops() -> Transforms {
    Transforms::new().on_device().random_resized_crop(24).flip(0.5).color_jitter(0.3, 0.3, 0.3, 0.1)
}

pub fn golden(name: &str) -> Vec<u8> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../crates/images/tests/golden/pictures");
    std::fs::read(folder.join(name)).unwrap()
}

/// All pictures of `crates/images/tests/golden`, by name.
pub fn all() -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../crates/images/tests/golden/pictures");
    let mut paths: Vec<PathBuf> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths.iter().map(|path| std::fs::read(path).unwrap()).collect()
}

impl Files {
    pub fn new(files: Vec<Vec<u8>>, transforms: Transforms) -> Self {
        let max = files.iter().map(Vec::len).max().unwrap_or(1);
        let spec = transforms.add_encoded_fields(Spec::new(), "image", max).unwrap();
        let spec = spec.field("label", DType::I64, []).unwrap();
        Self { files: Arc::new(files), transforms, spec }
    }

    pub fn part(&self) -> DevicePart {
        self.transforms.device_part().unwrap()
    }

    /// A loader of these files whose lanes decode.
    pub fn builder(&self, decode: Decode) -> LoaderBuilder {
        PictureStage::new(&self.transforms, decode).unwrap().builder(self.clone()).unwrap()
    }

    /// The ids and the finished pictures of each batch of `epochs` epochs, made on the host: `plain` is a
    /// loader of the files themselves.
    pub fn wanted(&self, plain: LoaderBuilder, epochs: u64) -> Vec<Made> {
        let (part, mut made) = (self.part(), Vec::new());
        let mut loader = plain.build_host().unwrap();
        for epoch in 0..epochs {
            for batch in loader.epoch(epoch).unwrap() {
                let batch = batch.unwrap();
                let (bytes, offsets) = batch.ragged::<u8>("image").unwrap();
                let (mut pixels, mut firsts) = (Vec::new(), vec![0]);
                for pair in offsets.windows(2) {
                    let mut decoder = part.decoder();
                    let picture = decoder.decode(&bytes[pair[0] as usize..pair[1] as usize]).unwrap();
                    pixels.extend_from_slice(picture.pixels);
                    firsts.push(pixels.len() as u32);
                }
                let parameters = batch.field::<u32>("image.parameters").unwrap();
                let host = HostBatch { pixels: &pixels, offsets: Some(&firsts), parameters };
                let mut finished = vec![0_u8; batch.len() * part.elements()];
                for (row, to) in finished.chunks_exact_mut(part.elements()).enumerate() {
                    part.run_on_host(host, row, to, None);
                }
                made.push(Made { epoch, ids: batch.ids().to_vec(), pixels: finished });
            }
        }
        made
    }
}

/// A finished batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Made {
    pub epoch: u64,
    pub ids: Vec<u64>,
    pub pixels: Vec<u8>,
}

/// The batches of `epochs` epochs on `device`.
pub fn run(builder: LoaderBuilder, device: &Device, epochs: u64) -> Vec<Made> {
    let (compute, mut made) = (device.stream().unwrap(), Vec::new());
    let mut loader = builder.build(device).unwrap();
    for epoch in 0..epochs {
        for batch in loader.epoch(epoch).unwrap() {
            made.push(taken(&batch.unwrap().wait_on(&compute).unwrap()));
        }
    }
    made
}

/// A batch that arrived; its labels are the numbers of its files.
pub fn taken(batch: &feedline::Ready) -> Made {
    let labels = batch.to_vec::<i64>("label").unwrap();
    assert!(labels.iter().map(|&label| label as u64).eq(batch.ids().iter().copied()), "{labels:?}");
    Made { epoch: batch.epoch(), ids: batch.ids().to_vec(), pixels: batch.to_vec::<u8>("image").unwrap() }
}

/// A loader of the files themselves.
pub fn plain(files: &Files) -> LoaderBuilder {
    Loader::builder(files.clone())
}

impl Dataset for Files {
    fn len(&self) -> u64 {
        self.files.len() as u64
    }

    fn spec(&self) -> &Spec {
        &self.spec
    }

    fn read(&self, id: u64, row: &mut Row<'_, '_>, context: &mut Context) -> Result<(), ReadError> {
        let file = &self.files[id as usize];
        context.scoped_scratch(|scratch: &mut Scratch, context| {
            let next = self.transforms.write_encoded(file, context.random(), scratch, row, 0)?;
            row.write(next, &(id as i64).to_le_bytes());
            Ok(())
        })
    }
}
