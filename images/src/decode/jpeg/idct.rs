//! From coefficients to samples: the inverse discrete cosine transform in whole numbers.
//!
//! Loeffler, Ligtenberg and Moschytz 1989, with the precision and the rounding of libjpeg's accurate integer
//! method, so that samples are the same as those of libjpeg-turbo.

/// Bits behind the point of a constant.
const POINT: u32 = 13;
/// Bits that the first pass keeps for the second.
const KEPT: u32 = 2;

/// `constant` with [`POINT`] bits behind the point.
const fn fix(constant: f64) -> i32 {
    (constant * (1 << POINT) as f64 + 0.5) as i32
}

/// Transforms eight numbers; results are shifted down by `shift`, rounded.
///
/// Sums that have 16 bits in libjpeg-turbo's vectors have them here: they overflow in damaged pictures alone.
#[inline(always)]
fn transform(x: [i16; 8], shift: u32) -> [i16; 8] {
    let wide = i32::from;
    let times = |x: i32, constant: i32| x.wrapping_mul(constant);
    let sum = |x: i32, y: i32| x.wrapping_add(y);
    let difference = |x: i32, y: i32| x.wrapping_sub(y);

    let both = times(sum(wide(x[2]), wide(x[6])), const { fix(0.541196100) });
    let even2 = difference(both, times(wide(x[6]), const { fix(1.847759065) }));
    let even3 = sum(both, times(wide(x[2]), const { fix(0.765366865) }));
    let even0 = wide(x[0].wrapping_add(x[4])) << POINT;
    let even1 = wide(x[0].wrapping_sub(x[4])) << POINT;
    let even = [sum(even0, even3), sum(even1, even2), difference(even1, even2), difference(even0, even3)];

    let (z1, z2) = (sum(wide(x[7]), wide(x[1])), sum(wide(x[5]), wide(x[3])));
    let (z3, z4) = (wide(x[7].wrapping_add(x[3])), wide(x[5].wrapping_add(x[1])));
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
    let down = |x: i32| (x.wrapping_add(half) >> shift).clamp(i16::MIN.into(), i16::MAX.into()) as i16;
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

/// Writes the 8 x 8 samples of `block` to `to`, whose rows are `stride` apart.
#[inline(always)]
pub(super) fn samples(block: &[i16; 64], quantisation: &[u16; 64], to: &mut [u8], stride: usize) {
    let any = |coefficients: &[i16]| coefficients.iter().fold(0, |any, &coefficient| any | coefficient) != 0;
    let has_rows = any(&block[8..]);
    if !has_rows && !any(&block[1..8]) {
        let level = block[0].wrapping_mul(quantisation[0] as i16) << KEPT;
        let level = (((i32::from(level) + 16) >> 5) + 128).clamp(0, 255) as u8;
        for row in to.chunks_mut(stride).take(8) {
            row[..8].fill(level);
        }
        return;
    }
    // Every loop over `lane` is one of independent numbers, which the compiler does eight at a time.
    let mut columns = [[0i16; 8]; 8];
    if has_rows {
        for lane in 0..8 {
            let value = |row: usize| block[8 * row + lane].wrapping_mul(quantisation[8 * row + lane] as i16);
            let x = std::array::from_fn(value);
            let y = transform(x, POINT - KEPT);
            for (row, y) in y.into_iter().enumerate() {
                columns[row][lane] = y;
            }
        }
    } else {
        let row = std::array::from_fn(|lane| block[lane].wrapping_mul(quantisation[lane] as i16) << KEPT);
        columns = [row; 8];
    }
    let mut turned = [[0i16; 8]; 8];
    for row in 0..8 {
        for column in 0..8 {
            turned[column][row] = columns[row][column];
        }
    }
    let mut levels = [[0u8; 8]; 8];
    for lane in 0..8 {
        let x = std::array::from_fn(|column| turned[column][lane]);
        let y = transform(x, POINT + KEPT + 3);
        for (column, y) in y.into_iter().enumerate() {
            levels[column][lane] = (y.saturating_add(128)).clamp(0, 255) as u8;
        }
    }
    let rows = transposed(levels.map(u64::from_le_bytes));
    for (line, row) in to.chunks_mut(stride).zip(rows) {
        line[..8].copy_from_slice(&row.to_le_bytes());
    }
}

/// An 8 x 8 matrix of bytes with rows and columns changed: swaps halves, then quarters, then bytes.
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
