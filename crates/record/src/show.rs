//! A row in a few words, and as a picture.

use std::fmt::Write as _;

use feedline::DType;

use crate::FieldValues;

/// Max characters of a text to show.
const TEXT: usize = 60;
/// Max numbers of a vector to show.
const NUMBERS: usize = 6;
/// Max pixels of the longer side of a picture. Of a larger picture, only pixels at equal distances are shown.
const SIDE: usize = 96;

/// The row in a few words: a number, the beginning of a text or of a vector, or the size of a picture.
pub fn row_text(field: &FieldValues<'_>, row: usize) -> String {
    let bytes = field.row(row);
    if let Some((width, height, _)) = picture_size(field, bytes) {
        return format!("picture of {width} x {height}");
    }
    if field.dtype == DType::U8
        && field.is_ragged() | (field.shape.len() == 1)
        && let Some(text) = as_text(bytes)
    {
        return text;
    }
    let elements = bytes.len() / field.dtype.size();
    let mut text = String::new();
    for (index, number) in field.numbers_of(row, NUMBERS).into_iter().enumerate() {
        // Writing to a string does not fail.
        let _ = write!(text, "{}{number}", if index > 0 { ", " } else { "" });
    }
    if elements > NUMBERS {
        format!("[{text}, ... {elements} in all]")
    } else if elements == 1 {
        text
    } else {
        format!("[{text}]")
    }
}

fn as_text(bytes: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(bytes).ok()?.trim_end_matches('\0');
    let is_text = |char: char| !char.is_control() || char.is_whitespace();
    if text.is_empty() || !text.chars().all(is_text) {
        return None;
    }
    let short: String = text.chars().take(TEXT).collect();
    let dots = if short.len() < text.len() { "..." } else { "" };
    Some(format!("{:?}", format!("{short}{dots}")))
}

/// Width, height and colours of a row that is a picture. A picture is `u8` and has two dimensions, or three
/// dimensions of which one has length 1 or 3.
fn picture_size(field: &FieldValues<'_>, bytes: &[u8]) -> Option<(usize, usize, usize)> {
    if field.dtype != DType::U8 || field.is_ragged() || bytes.is_empty() {
        return None;
    }
    let (height, width, colors) = match *field.shape {
        [height, width] => (height, width, 1),
        [height, width, 1 | 3] | [1 | 3, height, width] => (height, width, bytes.len() / (height * width)),
        _ => return None,
    };
    (height >= 4 && width >= 4).then_some((width, height, colors))
}

/// The row as a bitmap in a `data:` URL, if it is a picture.
pub fn row_picture(field: &FieldValues<'_>, row: usize) -> Option<String> {
    let bytes = field.row(row);
    let (width, height, colors) = picture_size(field, bytes)?;
    let is_planar = field.shape.len() == 3 && matches!(field.shape[0], 1 | 3) && field.shape[2] > 3;
    let pixel = |x: usize, y: usize, color: usize| {
        let color = color.min(colors - 1);
        bytes[if is_planar { (color * height + y) * width + x } else { (y * width + x) * colors + color }]
    };
    let every = width.max(height).div_ceil(SIDE);
    let (shown_width, shown_height) = (width.div_ceil(every), height.div_ceil(every));
    let line = (3 * shown_width).next_multiple_of(4);
    let mut file = Vec::with_capacity(54 + line * shown_height);
    file.extend(b"BM");
    for number in [54 + line * shown_height, 0, 54, 40, shown_width, shown_height] {
        file.extend((number as u32).to_le_bytes());
    }
    file.extend([1, 0, 24, 0]);
    file.resize(54, 0);
    // A bitmap begins with its lowest row, and stores blue first.
    for y in (0..shown_height).rev() {
        let first = file.len();
        for x in 0..shown_width {
            file.extend([2, 1, 0].map(|color| pixel(x * every, y * every, color)));
        }
        file.resize(first + line, 0);
    }
    Some(format!("data:image/bmp;base64,{}", base64(&file)))
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for three in bytes.chunks(3) {
        let number = three.iter().fold(0_u32, |number, byte| number << 8 | u32::from(*byte))
            << (8 * (3 - three.len()));
        for digit in 0..4 {
            let is_padding = digit > three.len();
            let index = (number >> (18 - 6 * digit)) as usize & 63;
            text.push(if is_padding { '=' } else { char::from(DIGITS[index]) });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::base64;

    #[test]
    fn base64_is_that_of_rfc_4648() {
        let texts = ["", "f", "fo", "foo", "foob", "fooba", "foobar"];
        let coded = ["", "Zg==", "Zm8=", "Zm9v", "Zm9vYg==", "Zm9vYmE=", "Zm9vYmFy"];
        assert_eq!(texts.map(|text| base64(text.as_bytes())), coded);
    }
}
