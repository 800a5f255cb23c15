//! Run-length encoded palette indices.

use crate::Size;
use crate::decode::Why;

/// Decodes indices of 4 or 8 bits to one byte each, in the row order of the file.
///
/// Skipped pixels have index 0. Runs are clipped at the end of their row.
///
/// # Errors
/// If the data ends before the last row or the end marker.
pub(super) fn decode(bytes: &[u8], bits: usize, size: Size, indices: &mut Vec<u8>) -> Result<(), Why> {
    let Size { height, width } = size;
    indices.clear();
    indices.resize(height * width, 0);
    let mut rest = bytes;
    let (mut y, mut x) = (0, 0);
    // The marker after the last row is optional.
    while y < height && !(y + 1 == height && x >= width) {
        let [first, second] = take(&mut rest)?;
        let line = &mut indices[y * width..][..width];
        let mut put = |count: usize, index: &dyn Fn(usize) -> u8| {
            let places = line.iter_mut().skip(x).take(count).enumerate();
            places.for_each(|(at, place)| *place = index(at));
            x += count;
        };
        match (first, second) {
            (0, 0) => (y, x) = (y + 1, 0),
            (0, 1) => break,
            (0, 2) => {
                let [right, down] = take(&mut rest)?;
                (y, x) = (y + usize::from(down), x + usize::from(right));
            }
            (0, count) => {
                let count = usize::from(count);
                let len = (count * bits).div_ceil(8);
                let literal = rest.get(..len).ok_or("the file is cut short")?;
                // Literals are padded to an even length. The last literal of a file may lack the padding.
                rest = &rest[rest.len().min(len + len % 2)..];
                put(count, &|at| index(literal, bits, at));
            }
            (count, value) => put(usize::from(count), &|at| index(&[value; 1], bits, at % (8 / bits))),
        }
    }
    Ok(())
}

/// Index `at` of a literal.
fn index(bytes: &[u8], bits: usize, at: usize) -> u8 {
    match bits {
        4 if at.is_multiple_of(2) => bytes[at / 2] >> 4,
        4 => bytes[at / 2] & 15,
        _ => bytes[at],
    }
}

fn take(rest: &mut &[u8]) -> Result<[u8; 2], Why> {
    let (pair, behind) = rest.split_first_chunk().ok_or("the file is cut short")?;
    *rest = behind;
    Ok(*pair)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(bytes: &[u8], bits: usize) -> Result<Vec<u8>, String> {
        let mut indices = vec![9; 100];
        decode(bytes, bits, Size::new(3, 4), &mut indices).map_err(|Why(why)| why)?;
        Ok(indices)
    }

    #[test]
    fn rows_may_be_skipped_end_early_and_run_over() {
        let wanted = |rows: [[u8; 4]; 3]| Ok(rows.concat());
        // An empty row. Pillow drops it.
        let skipped = [4, 7, 0, 0, 0, 0, 2, 5, 0, 1];
        assert_eq!(decoded(&skipped, 8), wanted([[7; 4], [0; 4], [5, 5, 0, 0]]));
        assert_eq!(decoded(&[1, 7, 0, 2, 1, 2, 2, 5], 8), wanted([[7, 0, 0, 0], [0; 4], [0, 0, 5, 5]]));
        assert_eq!(decoded(&[0, 1], 8), wanted([[0; 4]; 3]));
        let over = [9, 7, 1, 8, 0, 0, 0, 5, 1, 2, 3, 4, 5, 0, 0, 0, 4, 6];
        assert_eq!(decoded(&over, 8), wanted([[7; 4], [1, 2, 3, 4], [6; 4]]));
        let nibbles = [4, 0xAB, 0, 0, 0, 3, 0x12, 0x30, 0, 0, 0, 4, 0x45, 0x67];
        assert_eq!(decoded(&nibbles, 4), wanted([[10, 11, 10, 11], [1, 2, 3, 0], [4, 5, 6, 7]]));
        assert_eq!(decoded(&[0, 2, 255, 255, 1, 1], 8), wanted([[0; 4]; 3]));
    }

    #[test]
    fn a_file_that_ends_early_is_refused() {
        for bytes in [&[][..], &[4], &[4, 7, 0, 0], &[0, 2, 1], &[0, 4, 1, 2, 3], &[4, 7, 0, 0, 4, 7, 3, 1]] {
            assert_eq!(decoded(bytes, 8), Err("the file is cut short".into()), "{bytes:?}");
        }
    }
}
