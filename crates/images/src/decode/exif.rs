//! The orientation in EXIF data.

/// The tag of the orientation.
const ORIENTATION: u16 = 0x0112;
/// The type of a 16-bit number.
const SHORT: u16 = 3;

/// The orientation in `exif`, 1 to 8. It is 1 if `exif` has none or is damaged.
///
/// `exif` begins with a TIFF header, with or without `Exif\0\0` before it.
pub(super) fn orientation(exif: &[u8]) -> u16 {
    let tiff = exif.strip_prefix(b"Exif\0\0").unwrap_or(exif);
    stated(tiff).filter(|orientation| (1..=8).contains(orientation)).unwrap_or(1)
}

/// The orientation in the first directory of `tiff`.
fn stated(tiff: &[u8]) -> Option<u16> {
    let little = match tiff.get(..4)? {
        b"II*\0" => true,
        b"MM\0*" => false,
        _ => return None,
    };
    let short = |at: usize| {
        let bytes = *tiff.get(at..)?.first_chunk()?;
        Some(if little { u16::from_le_bytes(bytes) } else { u16::from_be_bytes(bytes) })
    };
    let long = |at: usize| {
        let bytes = *tiff.get(at..)?.first_chunk()?;
        Some(if little { u32::from_le_bytes(bytes) } else { u32::from_be_bytes(bytes) })
    };
    let directory = usize::try_from(long(4)?).ok()?;
    let entries = usize::from(short(directory)?);
    let mut entries = (0..entries).map_while(|entry| directory.checked_add(2 + 12 * entry));
    let entry = entries.find(|&at| short(at) == Some(ORIENTATION))?;
    (short(entry + 2)? == SHORT).then(|| short(entry + 8))?
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exif(little: bool, entries: &[(u16, u16, u16)]) -> Vec<u8> {
        let short = |number: u16| if little { number.to_le_bytes() } else { number.to_be_bytes() };
        let long = |number: u32| if little { number.to_le_bytes() } else { number.to_be_bytes() };
        let mut bytes = if little { b"II*\0" } else { b"MM\0*" }.to_vec();
        bytes.extend(long(8));
        bytes.extend(short(entries.len() as u16));
        for &(tag, kind, value) in entries {
            bytes.extend(short(tag));
            bytes.extend(short(kind));
            bytes.extend(long(1));
            bytes.extend(short(value));
            bytes.extend(short(0));
        }
        bytes
    }

    #[test]
    fn the_orientation_is_found_in_both_byte_orders() {
        for little in [true, false] {
            let bytes = exif(little, &[(0x010F, 3, 9), (0x0112, 3, 6)]);
            assert_eq!(orientation(&bytes), 6);
            assert_eq!(orientation(&[&b"Exif\0\0"[..], &bytes].concat()), 6);
            // Data that is cut short has no orientation.
            for len in 0..bytes.len() - 4 {
                assert_eq!(orientation(&bytes[..len]), 1, "{len}");
            }
        }
    }

    #[test]
    fn what_is_no_orientation_is_none() {
        for entry in [(0x0112, 3, 0), (0x0112, 3, 9), (0x0112, 4, 6), (0x0113, 3, 6)] {
            assert_eq!(orientation(&exif(true, &[entry])), 1, "{entry:?}");
        }
        let mut far = exif(false, &[(0x0112, 3, 6)]);
        far[4..8].fill(0xFF);
        assert_eq!(orientation(&far), 1);
    }
}
