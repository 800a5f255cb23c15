//! What is made of a component for a part of the picture: which blocks, how many samples of each, and how
//! these become as many as there are pixels.

use std::ops::Range;

use arrayvec::ArrayVec;

use super::header::{Component, Frame};
use crate::Region;
use crate::decode::{Chroma, Reduction};

/// What is needed of a component.
#[derive(Clone, Debug)]
pub(super) struct Part {
    /// Rows of blocks, and blocks of a row.
    pub(super) rows: Range<usize>,
    pub(super) columns: Range<usize>,
    /// Samples of a block, across and down: 8, or fewer in a reduced picture.
    pub(super) edge: usize,
    /// Samples of a row that are needed, of the `stride` that there are.
    pub(super) samples: Range<usize>,
    pub(super) stride: usize,
    /// Rows of samples that belong to the picture.
    pub(super) height: usize,
    pub(super) sampling: Sampling,
}

/// How the samples of a component become as many as there are pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sampling {
    Full,
    /// Half as many across, interpolated.
    Across,
    /// Half as many down, interpolated.
    Down,
    /// Both.
    Both,
    /// Each sample stands for so many across and down.
    Repeated(usize, usize),
}

/// The parts of all components for `region` of the reduced picture.
pub(super) fn parts(
    frame: &Frame,
    region: Region,
    reduction: Reduction,
    chroma: Chroma,
) -> ArrayVec<Part, 4> {
    let least = 8 / reduction.divisor();
    let of = |component| part(frame, component, region, least, chroma);
    frame.components.iter().map(of).collect()
}

/// `least` is the number of samples of a block in the components that have the most.
fn part(frame: &Frame, component: &Component, region: Region, least: usize, chroma: Chroma) -> Part {
    let &Frame { h_max, v_max, size, .. } = frame;
    let &Component { h, v, blocks, .. } = component;
    // As libjpeg does it: chroma of half the size is not reduced to half and then enlarged again.
    let mut edge = least;
    let fits = |max: usize, own: usize, edge: usize| (max * least).is_multiple_of(2 * edge * own);
    while edge < 8 && fits(h_max, h, edge) && fits(v_max, v, edge) {
        edge *= 2;
    }
    let (across, down) = (h_max * least / (h * edge), v_max * least / (v * edge));
    let width = (size.width * h * edge).div_ceil(8 * h_max);
    let height = (size.height * v * edge).div_ceil(8 * v_max);
    let is_interpolated = chroma == Chroma::Interpolated && least > 1;
    let is_wide = width > 2;
    let sampling = match (across, down) {
        (1, 1) => Sampling::Full,
        (2, 1) if is_interpolated && is_wide => Sampling::Across,
        (1, 2) if is_interpolated => Sampling::Down,
        (2, 2) if is_interpolated && is_wide => Sampling::Both,
        _ => Sampling::Repeated(across, down),
    };
    let blocks_of = |samples: &Range<usize>| samples.start / edge..samples.end.div_ceil(edge);
    let lines = needed(region.top, region.size.height, down, height);
    let samples = needed(region.left, region.size.width, across, width);
    Part {
        rows: blocks_of(&lines),
        columns: blocks_of(&samples),
        edge,
        samples,
        stride: edge * blocks.width,
        height,
        sampling,
    }
}

/// The samples that `count` pixels from `start` on need, of the `len` that there are in that direction: each
/// stands for `pixels`. Between samples, the next ones are needed too.
fn needed(start: usize, count: usize, pixels: usize, len: usize) -> Range<usize> {
    let (first, last) = (start / pixels, (start + count - 1) / pixels);
    first.saturating_sub(1)..(last + 2).min(len)
}
