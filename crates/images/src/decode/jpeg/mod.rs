//! JPEG: baseline, extended and progressive, 8 bits per sample, coded by Huffman.
//!
//! feedline has its own decoder because no crate without C does one of these three things: give the samples
//! of libjpeg-turbo and Pillow, decode a region of a picture, or decode without allocating. The samples are
//! equal to those of libjpeg-turbo with its accurate transform, with both kinds of chroma upsampling, and of
//! reduced pictures.
//!
//! | file | what |
//! | --- | --- |
//! | `header.rs` | markers and segments: sizes, tables, colours |
//! | `huffman.rs`, `standard.rs` | Huffman codes and bits; the default tables of Motion JPEG |
//! | `blocks.rs` | the coefficients of a block |
//! | `plan.rs` | the blocks that a region needs of each component, and their upsampling |
//! | `idct.rs`, `reduced.rs` | the inverse transform, at full and at reduced size |
//! | `rows.rs` | upsampling and colour conversion |

mod blocks;
mod header;
mod huffman;
mod idct;
mod plan;
mod reduced;
mod rows;
mod standard;

use std::ops::Range;

use pulp::Arch;

use self::header::{Component, Frame, Header, Scan, Segment};
use self::huffman::Bits;
use self::plan::Plan;
use self::rows::Rows;
use super::{Chroma, Reduction, Why};
use crate::orientation::Orientation;
use crate::{Region, Size};

/// Max scans of a picture. Each scan takes time, even a short one.
pub(super) const MAX_SCANS: usize = 200;

/// Max pixels per byte. A block of 64 pixels takes at least one bit.
const MAX_PIXELS_PER_BYTE: u64 = 8 * 64;

pub(super) fn header(bytes: &[u8]) -> Result<super::Header, Why> {
    let (size, orientation) = header::outline(bytes)?;
    if size.pixels() / MAX_PIXELS_PER_BYTE > bytes.len() as u64 {
        return Err(Why(format!("{} bytes are too few for a picture of {size}", bytes.len())));
    }
    Ok(super::Header { size, orientation: Orientation::from_exif(orientation) })
}

/// Whether decoding can fail. The headers and the end of the data decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outlook {
    /// Decoding cannot fail: the data of the only scan ends at a marker.
    Sound,
    /// The data of the only scan ends with the file, so it may be cut short.
    Open,
    /// The picture has several scans.
    Scans,
}

impl Outlook {
    /// Classifies a picture by its first scan. The data of `scan` begins at `at`.
    fn new(frame: &Frame, scan: &Scan, bytes: &[u8], at: usize) -> Self {
        if frame.is_progressive || scan.components.len() != frame.components.len() {
            Self::Scans
        } else if has_end(bytes, at) {
            Self::Sound
        } else {
            Self::Open
        }
    }
}

/// Whether the data from `at` on ends at a marker. Restart markers and reserved markers do not count.
fn has_end(bytes: &[u8], at: usize) -> bool {
    if bytes.get(at..).is_some_and(|data| data.ends_with(b"\xFF\xD9")) {
        return true;
    }
    let mut markers = std::iter::successors(header::next_marker(bytes, at), |&(_, after)| {
        header::next_marker(bytes, after)
    });
    markers.any(|(marker, _)| marker >= 0xC0 && !matches!(marker, 0xD0..=0xD7))
}

/// The buffers of a decoder, reused from picture to picture.
#[derive(Debug, Default)]
pub(super) struct Jpeg {
    header: Header,
    /// The samples of each component, with the padding of its last blocks.
    planes: [Vec<u8>; 4],
    /// Coefficients of each component. They are those of the whole picture if it is progressive, and
    /// otherwise those of one row of units.
    coefficients: [Vec<i16>; 4],
    rows: Rows,
}

impl Jpeg {
    /// Reads the headers up to the first scan, and looks for the end of its data.
    pub(super) fn outlook(&mut self, bytes: &[u8]) -> Result<Outlook, Why> {
        self.header.reset();
        let (first, at) = self.header.read(bytes, 2)?;
        let Segment::Scan(scan) = first else {
            return Err("the file ends before its first scan".into());
        };
        // `outlook` refused a scan without a frame above.
        let Some(frame) = &self.header.frame else { return Ok(Outlook::Sound) };
        Ok(Outlook::new(frame, &scan, bytes, at))
    }

    /// Decodes `region` of the reduced picture to `to`. Whether it fails depends on the file alone, not on
    /// the region: it reads all data of a file that may be cut short.
    pub(super) fn decode(
        &mut self,
        bytes: &[u8],
        (region, reduction): (Region, Reduction),
        chroma: Chroma,
        to: &mut [u8],
    ) -> Result<(), Why> {
        let Self { header, planes, coefficients, rows } = self;
        header.reset();
        let (first, mut at) = header.read(bytes, 2)?;
        let Segment::Scan(mut scan) = first else {
            return Err("the file ends before its first scan".into());
        };
        // A scan without a frame was refused above.
        let Some(frame) = header.frame.clone() else { return Ok(()) };
        let plans = plan::plans(&frame, region, reduction, chroma);
        prepare(&frame, &plans, planes, coefficients);
        let mut seen = [false; 4];
        let outlook = Outlook::new(&frame, &scan, bytes, at);
        for number in 0.. {
            if number == MAX_SCANS {
                return Err(Why(format!("the picture has more than {MAX_SCANS} scans")));
            }
            scan.components.iter().for_each(|&(index, ..)| seen[index] = true);
            let mut bits = Bits::new(bytes, at);
            let ended = Reading { header, scan: &scan, plans: &plans, outlook }.run(
                &mut bits,
                planes,
                coefficients,
            )?;
            if outlook != Outlook::Scans || ended {
                break;
            }
            match header.read(bytes, bits.position())? {
                (Segment::Scan(next), after) => (scan, at) = (next, after),
                (Segment::End, _) => break,
            }
        }
        let Some(frame) = &header.frame else { return Ok(()) };
        for (index, component) in frame.components.iter().enumerate() {
            if !seen[index] {
                planes[index].fill(128);
            } else if frame.is_progressive {
                let (blocks, plane) = (&coefficients[index], &mut planes[index]);
                transform(component, blocks, 0..plans[index].rows.end, &plans[index], plane);
            }
        }
        let colors = header.colors(frame);
        Arch::new().dispatch(
            #[inline(always)]
            || rows::write(&plans, colors, planes, region, rows, to),
        );
        Ok(())
    }
}

/// Grows the buffers to the size that `frame` needs.
fn prepare(frame: &Frame, plans: &[Plan], planes: &mut [Vec<u8>; 4], coefficients: &mut [Vec<i16>; 4]) {
    for (index, component) in frame.components.iter().enumerate() {
        let blocks = component.blocks.height * component.blocks.width;
        planes[index].resize(plans[index].edge.pow(2) * blocks, 0);
        if frame.is_progressive {
            coefficients[index].clear();
            coefficients[index].resize(64 * blocks, 0);
        } else {
            coefficients[index].resize(64 * component.blocks.width * component.v, 0);
        }
    }
}

/// Transforms the blocks that the plan needs. `blocks` holds the block rows `rows` of the component.
fn transform(component: &Component, blocks: &[i16], rows: Range<usize>, plan: &Plan, plane: &mut [u8]) {
    let &Plan { edge, stride, .. } = plan;
    let quantisation = component.quantisation.unwrap_or([1; 64]);
    Arch::new().dispatch(
        #[inline(always)]
        || {
            for (row, blocks) in rows.zip(blocks.chunks_exact(64 * component.blocks.width)) {
                if !plan.rows.contains(&row) {
                    continue;
                }
                let (blocks, _) = blocks.as_chunks::<64>();
                for column in plan.columns.clone() {
                    let (block, to) = (&blocks[column], &mut plane[edge * (row * stride + column)..]);
                    match edge {
                        8 => idct::samples(block, &quantisation, to, stride),
                        4 => reduced::quarters(block, &quantisation, to, stride),
                        2 => reduced::halves(block, &quantisation, to, stride),
                        _ => reduced::mean(block, &quantisation, to),
                    }
                }
            }
        },
    );
}

/// The reading of one scan.
struct Reading<'a> {
    header: &'a Header,
    scan: &'a Scan,
    plans: &'a [Plan],
    outlook: Outlook,
}

impl Reading<'_> {
    /// Reads the scan. Returns true if the rest of the file is not needed.
    fn run(
        &self,
        bits: &mut Bits<'_>,
        planes: &mut [Vec<u8>; 4],
        coefficients: &mut [Vec<i16>; 4],
    ) -> Result<bool, Why> {
        let Self { header, scan, plans, outlook } = self;
        let Some(frame) = &header.frame else { return Ok(true) };
        let alone = scan.components.len() == 1;
        // A scan of one component has no padding blocks.
        let units = match &scan.components[..] {
            &[(index, ..)] => {
                let Size { height, width } = frame.components[index].size;
                Size::new(height.div_ceil(8), width.div_ceil(8))
            }
            _ => frame.units,
        };
        let (mut last_dc, mut empty, mut lost) = ([0; 4], 0, false);
        let (mut left, mut restart) = (header.restart_interval, 0);
        for row in 0..units.height {
            if !frame.is_progressive {
                for &(index, ..) in &scan.components {
                    coefficients[index].fill(0);
                }
            }
            for column in 0..units.width {
                if header.restart_interval > 0 {
                    if left == 0 {
                        lost = !bits.restart(restart);
                        restart = (restart + 1) % 8;
                        left = header.restart_interval;
                        (last_dc, empty) = ([0; 4], 0);
                        if lost && bits.at_end_of_file() {
                            return Err("the file is cut short".into());
                        }
                    }
                    left -= 1;
                }
                if lost {
                    continue;
                }
                for &(index, dc, ac) in &scan.components {
                    let component = &frame.components[index];
                    let (tables, width) = (header.tables(dc, ac), component.blocks.width);
                    let (h, v) = if alone { (1, 1) } else { (component.h, component.v) };
                    let (blocks, _) = coefficients[index].as_chunks_mut::<64>();
                    // A sequential picture has only this row of units in memory.
                    let first = if frame.is_progressive { row * v } else { 0 };
                    for y in first..first + v {
                        for x in column * h..column * h + h {
                            let Some(block) = blocks.get_mut(y * width + x) else { continue };
                            self.block(bits, tables, &mut last_dc[index], &mut empty, block);
                        }
                    }
                }
                if bits.ran_out() {
                    if bits.at_end_of_file() {
                        return Err("the file is cut short".into());
                    }
                    // The data ends before the marker. The missing blocks stay gray, as in other decoders.
                    lost = true;
                }
            }
            if frame.is_progressive {
                continue;
            }
            let mut is_done = true;
            for &(index, ..) in &scan.components {
                let component = &frame.components[index];
                let v = if alone { 1 } else { component.v };
                let rows = row * v..(row + 1) * v;
                is_done &= rows.end >= plans[index].rows.end;
                transform(component, &coefficients[index], rows, &plans[index], &mut planes[index]);
            }
            if is_done && *outlook == Outlook::Sound {
                return Ok(true);
            }
        }
        Ok(false)
    }

    #[inline(always)]
    fn block(
        &self,
        bits: &mut Bits<'_>,
        (dc, ac): (&huffman::Table, &huffman::Table),
        last_dc: &mut i32,
        empty: &mut u32,
        block: &mut blocks::Block,
    ) {
        let &Scan { band, high, low, .. } = self.scan;
        let is_progressive = self.header.frame.as_ref().is_some_and(|frame| frame.is_progressive);
        match (is_progressive, band.0, high) {
            (false, ..) => blocks::sequential(bits, dc, ac, last_dc, block),
            (_, 0, 0) => blocks::first_dc(bits, dc, last_dc, low, block),
            (_, 0, _) => blocks::more_dc(bits, low, block),
            (_, _, 0) => blocks::first_ac(bits, ac, band, low, empty, block),
            _ => blocks::more_ac(bits, ac, band, low, empty, block),
        }
    }
}
