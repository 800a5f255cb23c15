//! The picture of a sample: written to a file, or drawn in the terminal.

use std::io::{BufWriter, IsTerminal as _};
use std::path::Path;

use feedline_core::{DType, Dataset, ElementType, Error, ErrorKind, Result, Values};
use feedline_images::{Decoder, Format};

/// Columns of a picture in the terminal.
const COLUMNS: usize = 64;

/// Pixels in RGB.
struct Pixels {
    width: usize,
    height: usize,
    rgb: Vec<u8>,
}

/// The first field of the sample that holds an encoded picture.
pub(super) fn encoded<'a>(reader: &dyn Dataset, values: &'a Values) -> Option<&'a [u8]> {
    let mut fields = reader.spec().fields().iter().zip(values.fields());
    let is_picture = |bytes: &[u8]| Format::detect(bytes).is_some();
    fields
        .find(|(field, value)| field.element() == ElementType::Bytes && is_picture(&value.bytes))
        .map(|(_, value)| value.bytes.as_slice())
}

/// Writes the picture: as it is stored, or as PNG.
pub(super) fn save(reader: &dyn Dataset, values: &Values, path: &Path) -> Result<()> {
    let cannot = |error: &dyn std::fmt::Display| {
        Error::new(ErrorKind::Data, format!("cannot write the picture: {error}")).at_path(path)
    };
    if let Some(bytes) = encoded(reader, values) {
        return std::fs::write(path, bytes).map_err(|error| cannot(&error));
    }
    let Some(pixels) = pixels(reader, values) else {
        let why = "the sample has no picture: none of its fields is an encoded picture, or u8 of a shape \
                   such as [28, 28] or [32, 32, 3]";
        return Err(Error::new(ErrorKind::Config, why));
    };
    let file = std::fs::File::create(path).map_err(|error| cannot(&error))?;
    let size = |pixels: usize| u32::try_from(pixels).unwrap_or(u32::MAX);
    let mut encoder = png::Encoder::new(BufWriter::new(file), size(pixels.width), size(pixels.height));
    encoder.set_color(png::ColorType::Rgb);
    let written = encoder.write_header().and_then(|mut writer| {
        writer.write_image_data(&pixels.rgb)?;
        writer.finish()
    });
    written.map_err(|error| cannot(&error))
}

/// The picture in two rows of pixels per line of text; nothing if standard output is not a terminal.
pub(super) fn for_terminal(reader: &dyn Dataset, values: &Values) -> String {
    if !std::io::stdout().is_terminal() {
        return String::new();
    }
    let decoded = encoded(reader, values).map_or_else(|| pixels(reader, values), decode);
    decoded.map(|pixels| draw(&pixels)).unwrap_or_default()
}

fn decode(bytes: &[u8]) -> Option<Pixels> {
    let mut decoder = Decoder::new();
    let picture = decoder.decode(bytes).ok()?;
    Some(Pixels { width: picture.size.width, height: picture.size.height, rgb: picture.pixels.to_vec() })
}

/// The first field of `u8` that has the shape of a picture: `[height, width]` or with 1, 3 or 4 channels,
/// first or last.
fn pixels(reader: &dyn Dataset, values: &Values) -> Option<Pixels> {
    let fields = reader.spec().fields().iter().zip(values.fields());
    let bytes = fields.filter(|(field, _)| field.element() == ElementType::Number(DType::U8));
    bytes.map(|(_, value)| value).find_map(|value| {
        let is_channels = |count: usize| [1, 3, 4].contains(&count);
        // The distances between pixels of a row, between rows, and between channels.
        let (height, width, channels, column, row, channel) = match *value.shape.as_slice() {
            [height, width] => (height, width, 1, 1, width, 0),
            [height, width, channels] if is_channels(channels) => {
                (height, width, channels, channels, channels * width, 1)
            }
            [channels, height, width] if is_channels(channels) => {
                (height, width, channels, 1, width, height * width)
            }
            _ => return None,
        };
        if height < 4 || width < 4 {
            return None;
        }
        let at =
            |y: usize, x: usize, c: usize| value.bytes[y * row + x * column + c.min(channels - 1) * channel];
        let places = (0..height).flat_map(|y| (0..width).map(move |x| (y, x)));
        let rgb = places.flat_map(|(y, x)| [0, 1, 2].map(|c| at(y, x, if channels == 1 { 0 } else { c })));
        Some(Pixels { width, height, rgb: rgb.collect() })
    })
}

/// Two pixels, one above the other, per character; larger pictures are sampled.
fn draw(picture: &Pixels) -> String {
    let columns = picture.width.min(COLUMNS);
    let rows = (picture.height * columns / picture.width).max(2);
    let pixel = |row: usize, column: usize| {
        let (y, x) = (row * picture.height / rows, column * picture.width / columns);
        let at = 3 * (y.min(picture.height - 1) * picture.width + x);
        [picture.rgb[at], picture.rgb[at + 1], picture.rgb[at + 2]]
    };
    let mut text = String::from("\n");
    for row in (0..rows).step_by(2) {
        for column in 0..columns {
            let [[r, g, b], [r2, g2, b2]] = [pixel(row, column), pixel((row + 1).min(rows - 1), column)];
            text += &format!("\x1b[38;2;{r};{g};{b}m\x1b[48;2;{r2};{g2};{b2}m\u{2580}");
        }
        text += "\x1b[0m\n";
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_picture_is_drawn_in_its_colours() {
        let rgb: Vec<u8> = (0..4 * 4).flat_map(|pixel| [pixel, 0, 255]).collect();
        let text = draw(&Pixels { width: 4, height: 4, rgb });
        assert_eq!(text.matches('\u{2580}').count(), 8);
        assert!(text.contains("\x1b[38;2;0;0;255m\x1b[48;2;4;0;255m"), "the first pixel over that below");
        let wide = Pixels { width: 1000, height: 10, rgb: vec![9; 3 * 10_000] };
        assert_eq!(draw(&wide).lines().nth(1).map(|line| line.matches('\u{2580}').count()), Some(COLUMNS));
    }
}
