//! Pictures that lanes of the loader decode, on the GPU or on GPU and CPU together.

use std::sync::Arc;

use feedline::{Dataset, Error, ErrorKind, LoaderBuilder, Result};
use feedline_datasets::{Form, Pictures};
use feedline_images::Transforms;
use feedline_pictures::{Decode, PictureStage};

/// The field of the pictures.
const IMAGE: &str = "image";

/// Where lanes of the loader decode; `None` if the workers decode.
pub(crate) fn decode_named(name: &str) -> Result<Option<Decode>> {
    match name {
        "cpu" => Ok(None),
        "gpu" => Ok(Some(Decode::Gpu)),
        "auto" => Ok(Some(Decode::Auto)),
        other => {
            let why = format!("decode {other:?}: use \"cpu\", \"gpu\" or \"auto\"");
            Err(Error::new(ErrorKind::Config, why))
        }
    }
}

/// Encoded pictures that lanes may decode instead of the workers.
#[derive(Clone)]
pub(crate) struct Encoded {
    /// The encoded files, with the parameters of their transforms.
    pub(crate) files: Arc<dyn Dataset>,
    /// The list of transforms, or one list per view.
    lists: Vec<Transforms>,
    pub(crate) decode: Decode,
    /// The bytes of each file, with the largest file first.
    sizes: Arc<[u32]>,
    /// Max times that a file may occur in an epoch.
    copies: usize,
}

impl Encoded {
    /// The pictures of `reader`, whose lists of transforms begin with `on_device`. Reads every file once to
    /// find the longest file, unless a listing has the lengths. Keeps the lengths in the user's cache.
    pub(crate) fn new(reader: &Arc<dyn Dataset>, form: Form, decode: Decode) -> Result<Self> {
        let lists = form.lists().to_vec();
        let files = Pictures::encoded(Arc::new(reader.clone()), form)?;
        let mut sizes = files.picture_bytes().to_vec();
        sizes.sort_unstable_by(|a, b| b.cmp(a));
        Ok(Self { files: Arc::new(files), lists, decode, sizes: sizes.into(), copies: 1 })
    }

    /// These pictures with a selection of the files. A file may occur `copies` times in it.
    pub(crate) fn with(&self, files: Arc<dyn Dataset>, copies: usize) -> Self {
        Self { files, copies: self.copies.saturating_mul(copies), ..self.clone() }
    }

    /// A builder of loaders whose lanes decode, and the picture stage. `is_bounded` says that the sampler
    /// draws no sample more than once in an epoch. `rows` is the batch size.
    pub(crate) fn builder(&self, rows: usize, is_bounded: bool) -> Result<(LoaderBuilder, PictureStage)> {
        let stage = PictureStage::views(&self.lists, self.decode)?;
        let builder = stage.builder(self.files.clone())?;
        let builder = if is_bounded {
            let each = self.sizes.iter().flat_map(|&bytes| std::iter::repeat_n(bytes as usize, self.copies));
            builder.max_per_batch(IMAGE, each.take(rows).sum::<usize>().max(1))
        } else {
            builder
        };
        Ok((builder, stage))
    }
}
