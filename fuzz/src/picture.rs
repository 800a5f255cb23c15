//! Any bytes are a picture, or an error on one line.

use feedline_core::{ErrorKind, Random};
use feedline_images::{Decoder, Limits, Scratch, Transforms};

/// Larger pictures are refused, so that an input takes little time.
const PIXELS: u64 = 1 << 16;

/// Decodes `data`, whole and in part.
pub fn check(data: &[u8]) {
    let limits = Limits { pixels: PIXELS };
    let mut decoder = Decoder::with_limits(limits);
    let size = decoder.size(data);
    match decoder.decode(data) {
        Ok(picture) => {
            assert_eq!(size.ok(), Some(picture.size));
            assert_eq!(picture.pixels.len(), picture.size.bytes());
        }
        Err(error) => {
            let message = error.to_string();
            assert_eq!(error.kind(), ErrorKind::Data, "{message}");
            assert!(!message.contains('\n'), "more than a line: {message}");
            assert!(!message.contains("the decoder panicked: "), "{message}");
        }
    }
    let transforms = Transforms::new().limits(limits).random_resized_crop(8);
    let mut image = [0; 8 * 8 * 3];
    // The check above covers errors; decoding a part must not panic.
    let _ = transforms.read(data, &mut Random::from_key(1), &mut Scratch::default(), &mut image);
}
