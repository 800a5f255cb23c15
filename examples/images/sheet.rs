//! A contact sheet: pictures on the left, and beside them the model's input in several epochs.

use std::fs::File;
use std::io::BufWriter;
use std::path::Path;

use feedline::{Context, Dataset, Error, ErrorKind, Result};
use feedline_core::Layout;
use feedline_images::{CenterCrop, Filter, Resize, Size, Transforms};

use crate::options::Options;
use crate::pictures::{Pictures, augmented};

/// Number of rows, and of pictures beside the first one of each row.
const ROWS: usize = 8;
const EPOCHS: usize = 9;
/// Pixels of a picture's side, between pictures, and between the first one and the others.
const SIDE: usize = 144;
const GAP: usize = 6;
const FIRST_GAP: usize = 18;
const PAPER: u8 = 245;

/// Writes the sheet to `path`.
pub fn write(options: &Options, path: &Path) -> Result<()> {
    let folder = Pictures::open(&options.folder)?;
    let whole = Transforms::new()
        .then(Resize::shorter_side(SIDE, Filter::Lanczos))
        .then(CenterCrop::new(Size::new(SIDE, SIDE)));
    let first = Pictures::part(&folder, false, whole)?;
    let others = Pictures::part(&folder, false, augmented(Transforms::new(), SIDE))?;
    let rows = ROWS.min(first.len() as usize);
    let width = GAP + SIDE + FIRST_GAP + EPOCHS * (SIDE + GAP);
    let height = GAP + rows * (SIDE + GAP);
    let mut sheet = vec![PAPER; height * width * 3];
    for row in 0..rows {
        // Spread over the folder, so that several classes appear.
        let id = row as u64 * first.len() / rows as u64;
        let top = GAP + row * (SIDE + GAP);
        let mut place = |left: usize, pixels: &[u8]| {
            let lines = sheet.chunks_exact_mut(3 * width).skip(top);
            for (line, pixels) in lines.zip(pixels.chunks_exact(3 * SIDE)) {
                line[3 * left..][..3 * SIDE].copy_from_slice(pixels);
            }
        };
        place(GAP, &pixels(&first, id, options.seed, 0)?);
        for epoch in 0..EPOCHS {
            let left = GAP + SIDE + FIRST_GAP + epoch * (SIDE + GAP);
            place(left, &pixels(&others, id, options.seed, epoch as u64)?);
        }
    }
    save(path, width as u32, height as u32, &sheet).map_err(|error| {
        Error::new(ErrorKind::Data, "cannot write the sheet").with_source(error).at_path(path)
    })
}

/// The pixels of sample `id` in `epoch`: the same as a loader with this seed delivers.
fn pixels(set: &Pictures, id: u64, seed: u64, epoch: u64) -> Result<Vec<u8>> {
    let layout = Layout::new(set.spec(), 1)?;
    let mut slab = vec![0; layout.bytes()];
    let mut rows = feedline_core::Rows::new(&layout, &mut slab, 1);
    let read = set.read_many(&[id], &mut rows, &mut Context::new(seed, epoch));
    read.map_err(|(_, error)| Error::new(ErrorKind::Sample, "cannot read a picture").with_source(error))?;
    Ok(rows.column_mut(0).to_vec())
}

fn save(path: &Path, width: u32, height: u32, pixels: &[u8]) -> std::result::Result<(), png::EncodingError> {
    let mut encoder = png::Encoder::new(BufWriter::new(File::create(path)?), width, height);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    let mut writer = encoder.write_header()?;
    writer.write_image_data(pixels)?;
    writer.finish()
}
