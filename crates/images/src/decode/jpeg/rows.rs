//! Rows of pixels: upsampling, then colour conversion. Both give the same bits as libjpeg-turbo.
//!
//! With [`Chroma::Interpolated`](crate::Chroma::Interpolated), chroma at half the size is interpolated
//! ("fancy upsampling"). At any other fraction, samples are repeated.

use super::header::Colors;
use super::plan::{Plan, Sampling};
use crate::Region;

/// Rows of upsampled samples, one per component, reused from row to row.
#[derive(Debug, Default)]
pub(super) struct Rows {
    full: [Vec<u8>; 4],
    sums: Vec<u16>,
}

/// Writes the pixels of `region` to `to`.
#[inline(always)]
pub(super) fn write(
    plans: &[Plan],
    colors: Colors,
    planes: &[Vec<u8>; 4],
    region: Region,
    rows: &mut Rows,
    to: &mut [u8],
) {
    let Region { top, left, size } = region;
    for (y, line) in (top..).zip(to.chunks_exact_mut(3 * size.width)) {
        let Rows { full, sums } = &mut *rows;
        let mut samples: [&[u8]; 4] = [&[]; 4];
        let places = samples.iter_mut().zip(full);
        for ((plan, plane), (samples, full)) in plans.iter().zip(planes).zip(places) {
            *samples = row(plan, plane, (y, left, size.width), sums, full);
        }
        color(colors, samples, line);
    }
}

/// `width` upsampled samples of a component, in row `y` of the picture from `left` on.
#[inline(always)]
fn row<'a>(
    plan: &Plan,
    plane: &'a [u8],
    (y, left, width): (usize, usize, usize),
    sums: &mut Vec<u16>,
    full: &'a mut Vec<u8>,
) -> &'a [u8] {
    let &Plan { stride, samples: ref range, .. } = plan;
    let line = |row: usize| &plane[row * stride..][range.clone()];
    // The second nearest row. It is above `y / 2` for even rows, and below it for odd rows.
    let nearest = || match y % 2 {
        0 => (y / 2).saturating_sub(1),
        _ => (y / 2 + 1).min(plan.height - 1),
    };
    match plan.sampling {
        Sampling::Full => &plane[y * stride + left..][..width],
        Sampling::Across => {
            full.resize(2 * range.len(), 0);
            across(line(y), full);
            &full[left - 2 * range.start..][..width]
        }
        Sampling::Down => {
            full.resize(range.len(), 0);
            let bias = 1 + (y % 2) as u16;
            let pairs = line(y / 2).iter().zip(line(nearest()));
            for (place, (&near, &far)) in full.iter_mut().zip(pairs) {
                *place = ((3 * u16::from(near) + u16::from(far) + bias) >> 2) as u8;
            }
            &full[left - range.start..][..width]
        }
        Sampling::Both => {
            sums.resize(range.len(), 0);
            full.resize(2 * range.len(), 0);
            let pairs = line(y / 2).iter().zip(line(nearest()));
            for (sum, (&near, &far)) in sums.iter_mut().zip(pairs) {
                *sum = 3 * u16::from(near) + u16::from(far);
            }
            both(sums, full);
            &full[left - 2 * range.start..][..width]
        }
        Sampling::Repeated(1, down) => &plane[y / down * stride + left..][..width],
        Sampling::Repeated(2, down) => {
            full.resize(2 * range.len(), 0);
            for (place, &sample) in full.as_chunks_mut::<2>().0.iter_mut().zip(line(y / down)) {
                *place = [sample; 2];
            }
            &full[left - 2 * range.start..][..width]
        }
        Sampling::Repeated(across, down) => {
            full.clear();
            let line = &plane[y / down * stride..];
            full.extend((left..left + width).map(|x| line[x / across]));
            full
        }
    }
}

/// Doubles the width. Each sample is 3/4 of the nearest sample and 1/4 of the second nearest.
#[inline(always)]
fn across(samples: &[u8], to: &mut [u8]) {
    let &[first, .., last] = samples else {
        to.fill(samples.first().copied().unwrap_or_default());
        return;
    };
    let places = to.as_chunks_mut::<2>().0;
    let wide = |x: u8| u16::from(x);
    for (place, near) in places[1..].iter_mut().zip(samples.windows(3)) {
        let middle = 3 * wide(near[1]);
        *place = [((middle + wide(near[0]) + 1) >> 2) as u8, ((middle + wide(near[2]) + 2) >> 2) as u8];
    }
    let end = samples.len() - 1;
    places[0] = [first, ((3 * wide(first) + wide(samples[1]) + 2) >> 2) as u8];
    places[end] = [((3 * wide(last) + wide(samples[end - 1]) + 1) >> 2) as u8, last];
}

/// As [`across`], from sums of two rows weighted 3 to 1.
#[inline(always)]
fn both(sums: &[u16], to: &mut [u8]) {
    let &[first, .., last] = sums else {
        to.fill(sums.first().map_or(0, |sum| (sum >> 2) as u8));
        return;
    };
    let places = to.as_chunks_mut::<2>().0;
    for (place, near) in places[1..].iter_mut().zip(sums.windows(3)) {
        let middle = 3 * near[1];
        *place = [((middle + near[0] + 8) >> 4) as u8, ((middle + near[2] + 7) >> 4) as u8];
    }
    let end = sums.len() - 1;
    places[0] = [((4 * first + 8) >> 4) as u8, ((3 * first + sums[1] + 7) >> 4) as u8];
    places[end] = [((3 * last + sums[end - 1] + 8) >> 4) as u8, ((4 * last + 7) >> 4) as u8];
}

/// Converts a row of samples to pixels.
#[inline(always)]
fn color(colors: Colors, [a, b, c, k]: [&[u8]; 4], to: &mut [u8]) {
    let places = to.as_chunks_mut::<3>().0;
    match colors {
        Colors::Gray => places.iter_mut().zip(a).for_each(|(place, &level)| *place = [level; 3]),
        Colors::YCbCr => {
            for (place, ((&y, &cb), &cr)) in places.iter_mut().zip(a.iter().zip(b).zip(c)) {
                *place = rgb(y, cb, cr);
            }
        }
        Colors::Rgb => {
            for (place, ((&r, &g), &b)) in places.iter_mut().zip(a.iter().zip(b).zip(c)) {
                *place = [r, g, b];
            }
        }
        // CMYK is stored inverted: each level is the light that the ink lets through.
        Colors::Cmyk => {
            for (place, (((&c, &m), &y), &k)) in places.iter_mut().zip(a.iter().zip(b).zip(c).zip(k)) {
                *place = [c, m, y].map(|light| under_black(light, k));
            }
        }
        Colors::Ycck => {
            for (place, (((&y, &cb), &cr), &k)) in places.iter_mut().zip(a.iter().zip(b).zip(c).zip(k)) {
                *place = rgb(y, cb, cr).map(|ink| under_black(255 - ink, k));
            }
        }
    }
}

/// Converts YCbCr of BT.601 to RGB, with 16 fractional bits.
#[inline(always)]
fn rgb(y: u8, cb: u8, cr: u8) -> [u8; 3] {
    let (y, cb, cr) = (i32::from(y), i32::from(cb) - 128, i32::from(cr) - 128);
    let half = 1 << 15;
    let r = y + ((91_881 * cr + half) >> 16);
    let g = y + ((-22_554 * cb - 46_802 * cr + half) >> 16);
    let b = y + ((116_130 * cb + half) >> 16);
    [r.clamp(0, 255) as u8, g.clamp(0, 255) as u8, b.clamp(0, 255) as u8]
}

/// `light` times `k`, the light that black ink lets through, rounded as in Pillow.
#[inline(always)]
fn under_black(light: u8, k: u8) -> u8 {
    let (ink, k) = (255 - i32::from(light), i32::from(k));
    let product = ink * k + 128;
    (k - ((product + (product >> 8)) >> 8)).clamp(0, 255) as u8
}
