//! The plan for a component: which of its blocks a region needs, and how its samples are upsampled.

use std::ops::Range;

use arrayvec::ArrayVec;

use super::header::{Component, Frame};
use crate::Region;
use crate::decode::{Chroma, Reduction};

/// Upsampling plan for one component.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    /// The rows of blocks that the region needs.
    pub(super) rows: Range<usize>,
    /// The blocks of each row that the region needs.
    pub(super) columns: Range<usize>,
    /// Width and height of a block in samples: 8, or fewer in a reduced picture.
    pub(super) edge: usize,
    /// The samples of each row that the region needs.
    pub(super) samples: Range<usize>,
    /// Samples from one row to the next.
    pub(super) stride: usize,
    /// Rows of samples that belong to the picture.
    pub(super) height: usize,
    pub(super) sampling: Sampling,
}

/// How a component is upsampled to the picture's size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sampling {
    /// The component has one sample per pixel.
    Full,
    /// Interpolated to twice the width.
    Across,
    /// Interpolated to twice the height.
    Down,
    /// Interpolated to twice the width and height.
    Both,
    /// Each sample repeated, across and down.
    Repeated(usize, usize),
}

/// The plans of all components for `region` of the reduced picture.
pub(super) fn plans(
    frame: &Frame,
    region: Region,
    reduction: Reduction,
    chroma: Chroma,
) -> ArrayVec<Plan, 4> {
    let min_edge = 8 / reduction.divisor();
    frame.components.iter().map(|component| plan(frame, component, region, min_edge, chroma)).collect()
}

/// `min_edge` is the edge of a block in the components with the finest sampling.
fn plan(frame: &Frame, component: &Component, region: Region, min_edge: usize, chroma: Chroma) -> Plan {
    let &Frame { h_max, v_max, size, .. } = frame;
    let &Component { h, v, blocks, .. } = component;
    // As in libjpeg, chroma of half the size is not reduced, so that it need not be enlarged again.
    let mut edge = min_edge;
    let fits = |max: usize, own: usize, edge: usize| (max * min_edge).is_multiple_of(2 * edge * own);
    while edge < 8 && fits(h_max, h, edge) && fits(v_max, v, edge) {
        edge *= 2;
    }
    let (across, down) = (h_max * min_edge / (h * edge), v_max * min_edge / (v * edge));
    let width = (size.width * h * edge).div_ceil(8 * h_max);
    let height = (size.height * v * edge).div_ceil(8 * v_max);
    let is_interpolated = chroma == Chroma::Interpolated && min_edge > 1;
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
    Plan {
        rows: blocks_of(&lines),
        columns: blocks_of(&samples),
        edge,
        samples,
        stride: edge * blocks.width,
        height,
        sampling,
    }
}

/// The samples that `count` pixels from `start` on need. There are `len` samples, each for `pixels` pixels.
/// Interpolation also reads the neighbour on each side.
fn needed(start: usize, count: usize, pixels: usize, len: usize) -> Range<usize> {
    let (first, last) = (start / pixels, (start + count - 1) / pixels);
    first.saturating_sub(1)..(last + 2).min(len)
}
