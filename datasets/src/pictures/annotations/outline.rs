//! The outlines of COCO's objects (polygons and run lengths), and the masks drawn from them.

use std::io::Write;

use feedline_core::{Fingerprint, Result};
use flate2::{Compression, Crc, write::ZlibEncoder};
use serde::Deserialize;

use crate::error::data;

/// The value of a pixel where objects overlap.
const SEVERAL: u8 = 255;

/// The largest label that a pixel can have.
pub(super) const MAX_LABEL: i64 = SEVERAL as i64 - 1;

/// Max pixels of a picture, as in [`Limits`](feedline_images::Limits).
const MAX_PIXELS: u64 = 1 << 27;

/// The edge of a polygon is sampled at this many points per pixel.
const STEPS: f64 = 5.0;

/// The field `segmentation` of an annotation.
#[derive(Deserialize)]
#[serde(untagged)]
pub(super) enum Segmentation {
    /// The points of each polygon: x, y, x, y and so on.
    Polygons(Vec<Vec<Option<f64>>>),
    Runs {
        counts: Counts,
        /// Height and width.
        size: [usize; 2],
    },
}

#[derive(Deserialize)]
#[serde(untagged)]
pub(super) enum Counts {
    Numbers(Vec<u32>),
    /// The text in which pycocotools compresses run lengths.
    Text(String),
}

/// The checked outline of an object.
#[derive(Clone, Debug)]
pub(super) enum Outline {
    Polygons(Vec<Vec<f64>>),
    /// The lengths of runs of pixels, column by column: outside, inside, outside and so on.
    Runs(Vec<u32>),
}

/// Height and width of a picture.
pub(super) type Sides = [usize; 2];

impl Outline {
    /// Checks the outline of an object in a picture with the given sides. The error says what is wrong with
    /// it.
    pub(super) fn new(given: Segmentation, [height, width]: Sides) -> Result<Self, String> {
        match given {
            Segmentation::Polygons(polygons) => {
                let points = |polygon: Vec<Option<f64>>| {
                    if polygon.len() < 6 || !polygon.len().is_multiple_of(2) {
                        return Err(format!(
                            "has a polygon of {} numbers: give x and y of three points or more",
                            polygon.len()
                        ));
                    }
                    // The edge to a far point would take too many steps.
                    let is_near = |(at, number): (usize, &Option<f64>)| {
                        let side = if at.is_multiple_of(2) { width } else { height } as f64;
                        number.is_some_and(|number| (-side..=2.0 * side).contains(&number))
                    };
                    if !polygon.iter().enumerate().all(is_near) {
                        return Err(format!(
                            "has a polygon with a point that is not finite, or far outside of its picture of \
                             {width} x {height}"
                        ));
                    }
                    Ok(polygon.into_iter().flatten().collect())
                };
                Ok(Self::Polygons(polygons.into_iter().map(points).collect::<Result<_, _>>()?))
            }
            Segmentation::Runs { counts, size } => {
                if size != [height, width] {
                    return Err(format!(
                        "has a mask of {} x {}, and its picture is {width} x {height}",
                        size[1], size[0]
                    ));
                }
                let runs = match counts {
                    Counts::Numbers(runs) => Some(runs),
                    Counts::Text(text) => expanded(&text),
                };
                let runs = runs.ok_or("has run lengths that cannot be read")?;
                let pixels: u64 = runs.iter().map(|&run| u64::from(run)).sum();
                if pixels != (height * width) as u64 {
                    return Err(format!(
                        "has run lengths of {pixels} pixels, and its picture {}",
                        height * width
                    ));
                }
                Ok(Self::Runs(runs))
            }
        }
    }

    /// Adds the outline to a fingerprint.
    pub(super) fn fingerprint(&self, state: Fingerprint) -> Fingerprint {
        match self {
            Self::Polygons(polygons) => polygons.iter().fold(state, |state, polygon| {
                let state = state.number(polygon.len() as u64);
                polygon.iter().fold(state, |state, place| state.number(place.to_bits()))
            }),
            Self::Runs(runs) => runs.iter().fold(state, |state, run| state.number(u64::from(*run))),
        }
    }

    /// Calls `inside` with each run of the object's pixels. Pixels are numbered column by column. If polygons
    /// overlap, a pixel comes several times.
    fn each_run(&self, sides: Sides, inside: &mut impl FnMut(std::ops::Range<usize>)) {
        match self {
            Self::Runs(runs) => {
                let mut at = 0;
                for (number, &run) in runs.iter().enumerate() {
                    let end = at + run as usize;
                    if number % 2 == 1 {
                        inside(at..end);
                    }
                    at = end;
                }
            }
            Self::Polygons(polygons) => {
                for polygon in polygons {
                    let mut ends = crossings(polygon, sides);
                    if ends.len() % 2 == 1 {
                        ends.push(sides[0] * sides[1]);
                    }
                    ends.as_chunks::<2>().0.iter().for_each(|&[start, end]| inside(start..end));
                }
            }
        }
    }
}

/// Checks that a picture is small enough for a mask.
pub(super) fn is_small([height, width]: Sides) -> bool {
    (height as u64).checked_mul(width as u64).is_some_and(|pixels| (1..=MAX_PIXELS).contains(&pixels))
}

/// The pixels at which a column enters or leaves a polygon. They are sorted, and numbered column by column.
/// The edge is drawn as by pycocotools, in steps of a fifth of a pixel.
fn crossings(polygon: &[f64], [height, width]: Sides) -> Vec<usize> {
    let scaled: Vec<[i32; 2]> = polygon
        .as_chunks::<2>()
        .0
        .iter()
        .map(|point| point.map(|place| (STEPS * place + 0.5) as i32))
        .collect();
    let mut ends = Vec::new();
    let mut last: Option<[i32; 2]> = None;
    let mut step = |[u, v]: [i32; 2]| {
        if let Some([before, above]) = last.filter(|[before, _]| *before != u) {
            let x = (f64::from(if u < before { u } else { u - 1 }) + 0.5) / STEPS - 0.5;
            if x.floor() == x && (0.0..=width as f64 - 1.0).contains(&x) {
                let y = (f64::from(v.min(above)) + 0.5) / STEPS - 0.5;
                ends.push(x as usize * height + y.clamp(0.0, height as f64).ceil() as usize);
            }
        }
        last = Some([u, v]);
    };
    for (at, &from) in scaled.iter().enumerate() {
        let to = scaled[(at + 1) % scaled.len()];
        let (dx, dy) = (from[0].abs_diff(to[0]) as i32, from[1].abs_diff(to[1]) as i32);
        // The longer side, and the other side.
        let (long, short, length) = if dx >= dy { (0, 1, dx) } else { (1, 0, dy) };
        let is_back = from[long] > to[long];
        let [start, end] = if is_back { [to, from] } else { [from, to] };
        let slope = f64::from(end[short] - start[short]) / f64::from(length);
        for walked in 0..=length {
            let t = if is_back { length - walked } else { walked };
            let mut place = [0; 2];
            place[long] = start[long] + t;
            place[short] = (f64::from(start[short]) + slope * f64::from(t) + 0.5) as i32;
            step(place);
        }
    }
    ends.sort_unstable();
    ends
}

/// The run lengths in the text of pycocotools. Each letter holds five bits. A number is the difference to the
/// last run but one.
fn expanded(text: &str) -> Option<Vec<u32>> {
    let (mut runs, mut bytes) = (Vec::<u32>::new(), text.bytes());
    while bytes.len() > 0 {
        let (mut number, mut shift) = (0_i64, 0);
        loop {
            let bits = i64::from(bytes.next()?.checked_sub(48).filter(|bits| *bits < 64)?);
            number |= (bits & 31) << shift;
            shift += 5;
            if bits & 32 == 0 {
                if bits & 16 != 0 {
                    number |= -1 << shift;
                }
                break;
            }
            if shift > 35 {
                return None;
            }
        }
        if runs.len() > 2 {
            number += i64::from(runs[runs.len() - 2]);
        }
        runs.push(u32::try_from(number).ok()?);
    }
    Some(runs)
}

/// The mask of a picture as a gray PNG. A pixel is the label of its object, 0 where there is no object, and
/// [`SEVERAL`] where objects overlap, as in torchvision's reference for segmentation.
pub(super) fn mask<'a>(objects: impl Iterator<Item = (i64, &'a Outline)>, sides: Sides) -> Result<Vec<u8>> {
    let [height, width] = sides;
    // The rows of a PNG. Each row begins with the number of its filter.
    let line = width + 1;
    let mut rows = vec![0_u8; height * line];
    let mut owners = vec![0_u32; height * width];
    for ((label, outline), owner) in objects.zip(1..) {
        outline.each_run(sides, &mut |run| {
            for place in run {
                let pixel = &mut rows[place % height * line + place / height + 1];
                match owners[place] {
                    0 => *pixel = label as u8,
                    other if other != owner => *pixel = SEVERAL,
                    _ => {}
                }
                owners[place] = owner;
            }
        });
    }
    png(sides, &rows).map_err(|error| data("cannot make a mask").with_source(error))
}

/// An uncompressed gray PNG.
fn png([height, width]: Sides, rows: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut file = b"\x89PNG\r\n\x1A\n".to_vec();
    let mut chunk = |name: &[u8; 4], content: &[u8]| {
        let mut sum = Crc::new();
        sum.update(name);
        sum.update(content);
        file.extend((content.len() as u32).to_be_bytes());
        file.extend_from_slice(name);
        file.extend_from_slice(content);
        file.extend(sum.sum().to_be_bytes());
    };
    let sides = [(width as u32).to_be_bytes(), (height as u32).to_be_bytes()].concat();
    chunk(b"IHDR", &[&sides[..], &[8, 0, 0, 0, 0]].concat());
    let mut pixels = ZlibEncoder::new(Vec::new(), Compression::none());
    pixels.write_all(rows)?;
    chunk(b"IDAT", &pixels.finish()?);
    chunk(b"IEND", b"");
    Ok(file)
}
