//! The inverse transform at reduced size: a block becomes 4 x 4 samples, 2 x 2 samples or one sample.
//!
//! It is the method of `idct.rs` without the terms of the finer samples. Constants and rounding are those of
//! libjpeg's reduced transforms.

use super::idct::{KEPT, Lanes, POINT, both, each, fix, level, value};

/// The sum of numbers times constants, per lane.
#[inline(always)]
fn sum<const N: usize>(terms: [(Lanes<i16>, i32); N]) -> Lanes<i32> {
    terms.into_iter().fold([0; 8], |sum, (x, constant)| {
        both(sum, x, |sum, x| sum.wrapping_add(i32::from(x).wrapping_mul(constant)))
    })
}

#[inline(always)]
fn down(x: Lanes<i32>, shift: u32) -> Lanes<i16> {
    let half = 1 << (shift - 1);
    each(x, |x| (x.wrapping_add(half) >> shift).clamp(i16::MIN.into(), i16::MAX.into()) as i16)
}

/// Transforms eight numbers to four, per lane. Results are shifted down by `shift`. Number 4 is ignored.
#[inline(always)]
fn four(x: [Lanes<i16>; 8], shift: u32) -> [Lanes<i16>; 4] {
    let first = each(x[0], |x| i32::from(x) << (POINT + 1));
    let even = sum([(x[2], const { fix(1.847759065) }), (x[6], const { -fix(0.765366865) })]);
    let inner = sum([
        (x[7], const { -fix(0.211164243) }),
        (x[5], const { fix(1.451774981) }),
        (x[3], const { -fix(2.172734803) }),
        (x[1], const { fix(1.061594337) }),
    ]);
    let outer = sum([
        (x[7], const { -fix(0.509795579) }),
        (x[5], const { -fix(0.601344887) }),
        (x[3], const { fix(0.899976223) }),
        (x[1], const { fix(2.562915447) }),
    ]);
    let (high, low) = (both(first, even, i32::wrapping_add), both(first, even, i32::wrapping_sub));
    [
        down(both(high, outer, i32::wrapping_add), shift + 1),
        down(both(low, inner, i32::wrapping_add), shift + 1),
        down(both(low, inner, i32::wrapping_sub), shift + 1),
        down(both(high, outer, i32::wrapping_sub), shift + 1),
    ]
}

/// Transforms eight numbers to two, as [`four`]. Uses only number 0 and the odd numbers.
#[inline(always)]
fn two(x: [Lanes<i16>; 8], shift: u32) -> [Lanes<i16>; 2] {
    let first = each(x[0], |x| i32::from(x) << (POINT + 2));
    let odd = sum([
        (x[7], const { -fix(0.720959822) }),
        (x[5], const { fix(0.850430095) }),
        (x[3], const { -fix(1.272758580) }),
        (x[1], const { fix(3.624509785) }),
    ]);
    [
        down(both(first, odd, i32::wrapping_add), shift + 2),
        down(both(first, odd, i32::wrapping_sub), shift + 2),
    ]
}

/// Writes the `EDGE` x `EDGE` samples of `block` to `to`, with rows `stride` apart. `transform` turns eight
/// numbers into `EDGE` numbers.
#[inline(always)]
fn samples<const EDGE: usize>(
    block: &[i16; 64],
    quantisation: &[u16; 64],
    to: &mut [u8],
    stride: usize,
    transform: impl Fn([Lanes<i16>; 8], u32) -> [Lanes<i16>; EDGE],
) {
    if block[1..].iter().fold(0, |any, &coefficient| any | coefficient) == 0 {
        let level = level(block, quantisation);
        to.chunks_mut(stride).take(EDGE).for_each(|row| row[..EDGE].fill(level));
        return;
    }
    let mut values = [[0; 8]; 8];
    for (row, values) in values.iter_mut().enumerate() {
        *values = value(block, quantisation, row);
    }
    let rows = transform(values, POINT - KEPT);
    let mut turned = [[0; 8]; 8];
    for (column, turned) in turned.iter_mut().enumerate() {
        for (place, row) in turned.iter_mut().zip(rows) {
            *place = row[column];
        }
    }
    let columns = transform(turned, POINT + KEPT + 3);
    for (y, line) in to.chunks_mut(stride).take(EDGE).enumerate() {
        for (place, column) in line.iter_mut().zip(columns) {
            *place = column[y].saturating_add(128).clamp(0, 255) as u8;
        }
    }
}

/// Writes the 4 x 4 samples of a block.
#[inline(always)]
pub(super) fn quarters(block: &[i16; 64], quantisation: &[u16; 64], to: &mut [u8], stride: usize) {
    samples(block, quantisation, to, stride, four);
}

/// Writes the 2 x 2 samples of a block.
#[inline(always)]
pub(super) fn halves(block: &[i16; 64], quantisation: &[u16; 64], to: &mut [u8], stride: usize) {
    samples(block, quantisation, to, stride, two);
}

/// Writes the single sample of a block, its mean.
#[inline(always)]
pub(super) fn mean(block: &[i16; 64], quantisation: &[u16; 64], to: &mut [u8]) {
    to[0] = level(block, quantisation);
}
