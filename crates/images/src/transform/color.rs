//! Colour operations that several transforms share, with Pillow's arithmetic.

/// Luma of BT.601.
pub(crate) fn gray([r, g, b]: [u8; 3]) -> u8 {
    ((u32::from(r) * 19_595 + u32::from(g) * 38_470 + u32::from(b) * 7_471 + 0x8000) >> 16) as u8
}

/// Interpolates from `from` (factor 0) to `to` (factor 1), or extrapolates.
pub(crate) fn blend(from: u8, to: u8, factor: f32) -> u8 {
    let (from, to) = (f32::from(from), f32::from(to));
    // The cast saturates.
    (from + factor * (to - from)) as u8
}

/// Makes the picture brighter (factors above 1) or darker.
pub(super) fn brightness(pixels: &mut [u8], factor: f32) {
    let table: [u8; 256] = std::array::from_fn(|level| blend(0, level as u8, factor));
    look_up(pixels, &table);
}

/// Moves levels away from the mean gray level (factors above 1) or towards it.
pub(super) fn contrast(pixels: &mut [u8], factor: f32) {
    let places = pixels.as_chunks::<3>().0;
    let sum: u64 = places.iter().map(|pixel| u64::from(gray(*pixel))).sum();
    let mean = (sum as f64 / places.len().max(1) as f64 + 0.5) as u8;
    let table: [u8; 256] = std::array::from_fn(|level| blend(mean, level as u8, factor));
    look_up(pixels, &table);
}

/// Moves colours away from gray (factors above 1) or towards it; 0 gives gray.
pub(super) fn saturation(pixels: &mut [u8], factor: f32) {
    for pixel in pixels.as_chunks_mut::<3>().0 {
        let gray = gray(*pixel);
        *pixel = pixel.map(|level| blend(gray, level, factor));
    }
}

/// Rotates hues by `turn`, in turns of the colour wheel.
pub(super) fn hue(pixels: &mut [u8], turn: f32) {
    let by = steps(turn);
    for pixel in pixels.as_chunks_mut::<3>().0 {
        *pixel = turned(*pixel, by);
    }
}

/// Converts turns to 8-bit hue steps.
pub(crate) fn steps(turn: f32) -> u8 {
    ((turn * 255.0) as i32) as u8
}

/// The pixel with its hue rotated by `by` steps.
pub(crate) fn turned(pixel: [u8; 3], by: u8) -> [u8; 3] {
    let [h, s, v] = hsv(pixel);
    rgb([h.wrapping_add(by), s, v])
}

pub(super) fn look_up(pixels: &mut [u8], table: &[u8; 256]) {
    pixels.iter_mut().for_each(|level| *level = table[usize::from(*level)]);
}

/// Hue, saturation and value, each from 0 to 255.
fn hsv([r, g, b]: [u8; 3]) -> [u8; 3] {
    let (high, low) = (r.max(g).max(b), r.min(g).min(b));
    if high == low {
        return [0, 0, high];
    }
    // Single and double precision are as in Pillow, so that hues at a rounding border are equal.
    let range = f32::from(high - low);
    let part = |level: u8| f64::from(f32::from(high - level) / range);
    let hue = if r == high {
        part(b) - part(g)
    } else if g == high {
        2.0 + part(r) - part(b)
    } else {
        4.0 + part(g) - part(r)
    };
    let hue = (f64::from(hue as f32) / 6.0 + 1.0).fract() as f32;
    let saturation = range / f32::from(high);
    [(f64::from(hue) * 255.0) as u8, (f64::from(saturation) * 255.0) as u8, high]
}

fn rgb([h, s, v]: [u8; 3]) -> [u8; 3] {
    if s == 0 {
        return [v; 3];
    }
    let (hue, s, value) = (f64::from(h) * 6.0 / 255.0, f64::from(f32::from(s) / 255.0), f64::from(v));
    let (sector, part) = (hue.floor(), f64::from((hue - hue.floor()) as f32));
    let round = |level: f64| level.round() as u8;
    let p = round(value * (1.0 - s));
    let q = round(value * (1.0 - s * part));
    let t = round(value * (1.0 - s * (1.0 - part)));
    match sector as u8 % 6 {
        0 => [v, t, p],
        1 => [q, v, p],
        2 => [p, v, t],
        3 => [p, q, v],
        4 => [t, p, v],
        _ => [v, p, q],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Decoder;

    #[test]
    fn hue_is_pillows_within_a_level() {
        let golden = |name: &str| {
            let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
            Decoder::new().decode(&std::fs::read(path).unwrap()).unwrap().pixels.to_vec()
        };
        for turn in ["-0.3", "0.1", "0.5"] {
            let mut pixels = golden("pictures/RGB.png");
            hue(&mut pixels, turn.parse().unwrap());
            let wanted = golden(&format!("transformed/hue{turn}.png"));
            let far = pixels.iter().zip(wanted).map(|(found, wanted)| found.abs_diff(wanted)).max();
            assert!(far <= Some(1), "{turn}: {far:?}");
        }
    }
}
