//! Pictures with masks, depth, boxes and points. All parts of a sample are moved together.

use feedline_core::{DType, Dataset, Error, ErrorKind, Random, Result, Row, Spec, named};
use feedline_images::{Decoder, Level, Moves, Plane, Sampling, Size, Transforms};

use super::boxes::{Buffers, Lists};
use super::dataset::Memory;
use super::encoded::{Encoded, one_picture};
use super::parts::{Depth, Found, Parts};
use crate::over::field_path;

/// Pictures with their masks, boxes and other parts. One list of transforms, drawn once, moves all parts of a
/// sample.
#[derive(Debug)]
pub(super) struct Joint {
    transforms: Transforms,
    parts: Parts,
    found: Found,
    /// The index of the first field of a mask or depth.
    first_plane: usize,
    lists: Lists,
    size: Size,
}

/// A worker's memory for the parts beside a picture.
#[derive(Default)]
pub(super) struct PartsMemory {
    mask: Plane<u8>,
    depth: Plane<u16>,
    buffers: Buffers,
}

impl Joint {
    /// Refuses a list that runs elsewhere than the pictures are decoded, or that moves them in unknown ways.
    pub(super) fn check(transforms: &Transforms, on_lanes: bool) -> Result<()> {
        let why = match (transforms.is_on_device(), on_lanes) {
            (true, false) => format!(
                "the list runs on the device, and the workers decode: {}",
                named("make the set by Pictures::encoded, or leave out on_device()", "give decode=\"auto\"")
            ),
            (false, true) => {
                "the lanes of a loader transform the pictures that they decode: put on_device() first".into()
            }
            _ => return transforms.check_moves(),
        };
        Err(Error::new(ErrorKind::Config, why))
    }

    /// The parts, and the fields of a sample: the picture first, which lanes decode if `on_lanes` is given,
    /// with the most bytes of one if that is stated.
    pub(super) fn new(
        inner: &dyn Dataset,
        parts: Parts,
        transforms: Transforms,
        on_lanes: Option<Option<usize>>,
    ) -> Result<(Self, Option<Encoded>, Spec)> {
        let found = parts.find(inner)?;
        let (encoded, mut spec) = one_picture(inner, found.image, &transforms, on_lanes)?;
        let size = match &encoded {
            Some(_) => transforms.device_part()?.size(),
            None => transforms.size().unwrap_or_default(),
        };
        let first_plane = spec.fields().len();
        if let Some((name, _)) = parts.planes.first().filter(|_| transforms.has_own_sizes()) {
            let why = format!("mask or depth \"{name}\" has one size, and pictures keep their own");
            let how = named("leave out own_sizes()", "leave out own_sizes=");
            return Err(Error::new(ErrorKind::Config, format!("{why}: {how}")));
        }
        for (name, depth) in &parts.planes {
            let dtype = if *depth == Depth::U8 { DType::U8 } else { DType::U16 };
            spec = spec.field(name, dtype, [size.height, size.width])?;
        }
        let (lists, spec) = Lists::add(inner, &parts, &found, spec)?;
        Ok((Self { transforms, parts, found, first_plane, lists, size }, encoded, spec))
    }

    pub(super) fn transforms(&self) -> &Transforms {
        &self.transforms
    }

    /// Whether the inner set's field `index` is a part.
    pub(super) fn has(&self, index: usize) -> bool {
        self.found.has(index)
    }

    /// Writes the parts of the sample in the memory.
    pub(super) fn write(
        &self,
        inner: &dyn Dataset,
        encoded: Option<&Encoded>,
        id: u64,
        row: &mut Row<'_, '_>,
        memory: &mut Memory,
        random: &mut Random,
    ) -> Result<()> {
        let Memory { values, scratch, decoder, parts: PartsMemory { mask, depth, buffers } } = memory;
        let image = &values[self.found.image].bytes;
        match encoded {
            None => drop(self.transforms.read_row(image, random, scratch, row, 0)?),
            Some(files) => {
                files.check(id, || self.transforms.check(image, scratch))?;
                self.transforms.write_moving(image, random, scratch, row, 0)?;
            }
        }
        let size = if self.transforms.has_own_sizes() { scratch.size() } else { self.size };
        let moves = scratch.moves();
        if !moves.lead_to(size) {
            let why =
                "a transform has moved the picture in a way that it did not record: correct its effect()";
            return Err(Error::new(ErrorKind::Config, why));
        }
        let schema = inner.spec().fields();
        self.found.check_size(schema, &self.parts, values, moves.source())?;
        for (place, (index, (name, kind))) in self.found.planes.iter().zip(&self.parts.planes).enumerate() {
            let (bytes, to) = (&values[*index].bytes, row.bytes_mut(self.first_plane + place));
            let written = match kind {
                Depth::U8 => write_plane(decoder, bytes, moves, mask, to),
                Depth::U16 => write_plane(decoder, bytes, moves, depth, to),
            };
            written.map_err(|error| {
                let error = Error::new(error.kind(), format!("field \"{name}\": {}", error.message()));
                field_path(inner, id, *index).map_or(error.clone(), |path| error.at_path(path))
            })?;
        }
        self.lists.write(schema, &self.parts, values, moves, (row, buffers))
    }
}

/// Decodes a mask or depth, moves it with its picture, and writes it.
fn write_plane<T: Level + From<u8>>(
    decoder: &mut Decoder,
    bytes: &[u8],
    moves: &Moves,
    plane: &mut Plane<T>,
    to: &mut [u8],
) -> Result<()> {
    decoder.decode_plane(bytes, plane)?;
    if plane.size() != moves.source() {
        let why = format!("the mask is {}, and its picture is {}", plane.size(), moves.source());
        return Err(Error::new(ErrorKind::Sample, why));
    }
    plane.apply(moves, Sampling::Nearest);
    plane.write(to);
    Ok(())
}
