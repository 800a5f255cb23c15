//! The inverse discrete cosine transform, in integers.
//!
//! The method is that of Loeffler, Ligtenberg and Moschytz (1989). Precision and rounding are those of
//! libjpeg's accurate integer method, so the samples are equal to libjpeg-turbo's.

/// Fractional bits of a constant.
pub(super) const POINT: u32 = 13;
/// Fractional bits that the first pass keeps for the second.
pub(super) const KEPT: u32 = 2;

/// `constant` with [`POINT`] fractional bits.
pub(super) const fn fix(constant: f64) -> i32 {
    (constant * (1 << POINT) as f64 + 0.5) as i32
}

/// Eight numbers that get the same operations. The compiler turns them into one vector.
pub(super) type Lanes<T> = [T; 8];

// Plain loops, because the compiler does not always inline closures of `array::from_fn`, and then does not
// vectorise them.
#[inline(always)]
pub(super) fn each<T: Copy, U: Copy + Default>(x: Lanes<T>, f: impl Fn(T) -> U) -> Lanes<U> {
    let mut y = [U::default(); 8];
    for lane in 0..8 {
        y[lane] = f(x[lane]);
    }
    y
}

#[inline(always)]
pub(super) fn both<T: Copy, U: Copy, V: Copy + Default>(
    x: Lanes<T>,
    y: Lanes<U>,
    f: impl Fn(T, U) -> V,
) -> Lanes<V> {
    let mut z = [V::default(); 8];
    for lane in 0..8 {
        z[lane] = f(x[lane], y[lane]);
    }
    z
}

/// Transforms eight numbers, per lane. Results are shifted down by `shift` and rounded.
///
/// Sums have 16 bits where libjpeg-turbo's vectors have 16 bits. They overflow only in damaged pictures, and
/// in the same way.
#[inline(always)]
fn transform(x: [Lanes<i16>; 8], shift: u32) -> [Lanes<i16>; 8] {
    let wide = |x: Lanes<i16>| each(x, i32::from);
    let times = |x: Lanes<i32>, constant: i32| each(x, |x| x.wrapping_mul(constant));
    let sum = |x: Lanes<i32>, y: Lanes<i32>| both(x, y, i32::wrapping_add);
    let difference = |x: Lanes<i32>, y: Lanes<i32>| both(x, y, i32::wrapping_sub);
    let narrow_sum = |x: Lanes<i16>, y: Lanes<i16>| wide(both(x, y, i16::wrapping_add));
    let narrow_difference = |x: Lanes<i16>, y: Lanes<i16>| wide(both(x, y, i16::wrapping_sub));

    let even = sum(wide(x[2]), wide(x[6]));
    let even = times(even, const { fix(0.541196100) });
    let even2 = difference(even, times(wide(x[6]), const { fix(1.847759065) }));
    let even3 = sum(even, times(wide(x[2]), const { fix(0.765366865) }));
    let even0 = each(narrow_sum(x[0], x[4]), |x| x << POINT);
    let even1 = each(narrow_difference(x[0], x[4]), |x| x << POINT);
    let even = [sum(even0, even3), sum(even1, even2), difference(even1, even2), difference(even0, even3)];

    let (z1, z2) = (sum(wide(x[7]), wide(x[1])), sum(wide(x[5]), wide(x[3])));
    let (z3, z4) = (narrow_sum(x[7], x[3]), narrow_sum(x[5], x[1]));
    let z5 = times(sum(z3, z4), const { fix(1.175875602) });
    let z1 = times(z1, const { fix(0.899976223) });
    let z2 = times(z2, const { fix(2.562915447) });
    let z3 = difference(z5, times(z3, const { fix(1.961570560) }));
    let z4 = difference(z5, times(z4, const { fix(0.390180644) }));
    let odd = [
        sum(times(wide(x[1]), const { fix(1.501321110) }), difference(z4, z1)),
        sum(times(wide(x[3]), const { fix(3.072711026) }), difference(z3, z2)),
        sum(times(wide(x[5]), const { fix(2.053119869) }), difference(z4, z2)),
        sum(times(wide(x[7]), const { fix(0.298631336) }), difference(z3, z1)),
    ];
    let half = 1 << (shift - 1);
    let down = |x: Lanes<i32>| {
        each(x, |x| (x.wrapping_add(half) >> shift).clamp(i16::MIN.into(), i16::MAX.into()) as i16)
    };
    [
        down(sum(even[0], odd[0])),
        down(sum(even[1], odd[1])),
        down(sum(even[2], odd[2])),
        down(sum(even[3], odd[3])),
        down(difference(even[3], odd[3])),
        down(difference(even[2], odd[2])),
        down(difference(even[1], odd[1])),
        down(difference(even[0], odd[0])),
    ]
}

/// A row of dequantised coefficients.
#[inline(always)]
pub(super) fn value(block: &[i16; 64], quantisation: &[u16; 64], row: usize) -> Lanes<i16> {
    let (rows, _) = block.as_chunks::<8>();
    let (tables, _) = quantisation.as_chunks::<8>();
    both(rows[row], tables[row], |coefficient, step| coefficient.wrapping_mul(step as i16))
}

/// The mean of a block. If the other coefficients are zero, every sample has this value.
#[inline(always)]
pub(super) fn level(block: &[i16; 64], quantisation: &[u16; 64]) -> u8 {
    let level = block[0].wrapping_mul(quantisation[0] as i16) << KEPT;
    (((i32::from(level) + 16) >> 5) + 128).clamp(0, 255) as u8
}

/// Writes the 8 x 8 samples of `block` to `to`, with rows `stride` apart.
#[inline(always)]
pub(super) fn samples(block: &[i16; 64], quantisation: &[u16; 64], to: &mut [u8], stride: usize) {
    let any = |coefficients: &[i16]| coefficients.iter().fold(0, |any, &coefficient| any | coefficient) != 0;
    let has_rows = any(&block[8..]);
    if !has_rows && !any(&block[1..8]) {
        let level = level(block, quantisation);
        for row in to.chunks_mut(stride).take(8) {
            row[..8].fill(level);
        }
        return;
    }
    let columns = if has_rows {
        let mut values = [[0; 8]; 8];
        for (row, values) in values.iter_mut().enumerate() {
            *values = value(block, quantisation, row);
        }
        transform(values, POINT - KEPT)
    } else {
        [each(value(block, quantisation, 0), |value| value << KEPT); 8]
    };
    let mut turned = [[0; 8]; 8];
    for column in 0..8 {
        turned[column] = each(columns, |row| row[column]);
    }
    let columns = transform(turned, POINT + KEPT + 3);
    let mut levels = [0; 8];
    for column in 0..8 {
        let bytes = each(columns[column], |level| level.saturating_add(128).clamp(0, 255) as u8);
        levels[column] = u64::from_le_bytes(bytes);
    }
    let rows = transposed(levels);
    for (line, row) in to.chunks_mut(stride).zip(rows) {
        line[..8].copy_from_slice(&row.to_le_bytes());
    }
}

/// Transposes an 8 x 8 matrix of bytes: swaps halves, then quarters, then bytes.
#[inline(always)]
fn transposed(mut rows: [u64; 8]) -> [u64; 8] {
    for (distance, mask) in
        [(4, 0x0000_0000_FFFF_FFFF), (2, 0x0000_FFFF_0000_FFFF), (1, 0x00FF_00FF_00FF_00FF)]
    {
        for row in 0..8 {
            if row & distance == 0 {
                let shift = 8 * distance;
                let moved = (rows[row] >> shift ^ rows[row + distance]) & mask;
                rows[row + distance] ^= moved;
                rows[row] ^= moved << shift;
            }
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The transform by its definition, in floats.
    fn by_definition(block: &[i16; 64], quantisation: &[u16; 64]) -> [f64; 64] {
        let factor = |n: usize| if n == 0 { 0.5f64.sqrt() } else { 1.0 };
        let wave = |x: usize, n: usize| ((2 * x + 1) as f64 * n as f64 * std::f64::consts::PI / 16.0).cos();
        std::array::from_fn(|at| {
            let (y, x) = (at / 8, at % 8);
            let terms = (0..64).map(|at| {
                let (v, u) = (at / 8, at % 8);
                let value = f64::from(block[at]) * f64::from(quantisation[at]);
                factor(u) * factor(v) * value * wave(x, u) * wave(y, v)
            });
            (terms.sum::<f64>() / 4.0 + 128.0).clamp(0.0, 255.0)
        })
    }

    #[test]
    fn samples_are_those_of_the_definition_within_one_level() {
        let mut state = 1;
        for round in 0..200 {
            let mut draw = |below: u64| {
                state = feedline_core::random::splitmix64(state);
                state % below
            };
            let quantisation: [u16; 64] = std::array::from_fn(|_| 1 + draw(20) as u16);
            let mut block = [0i16; 64];
            block[0] = draw(200) as i16 - 100;
            for _ in 0..round % 12 {
                block[draw(64) as usize] = draw(31) as i16 - 15;
            }
            let mut found = [0; 8 * 11];
            samples(&block, &quantisation, &mut found, 11);
            for (at, wanted) in by_definition(&block, &quantisation).into_iter().enumerate() {
                let found = f64::from(found[at / 8 * 11 + at % 8]);
                assert!((found - wanted).abs() <= 1.0, "round {round}, {at}: {found} for {wanted}");
            }
        }
    }
}
