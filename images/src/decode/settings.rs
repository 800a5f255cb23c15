//! What is asked of a decoder: limits, and how finely chroma is decoded.

/// What a picture may cost. Checked on its header, before memory is allocated for its pixels, and after each
/// transform of a list: a border or a resize in proportion may make a small picture large.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Max pixels of a picture. A transform to a size that it states itself may make a picture of that size.
    pub pixels: u64,
}

impl Default for Limits {
    /// 2^27 pixels, such as 11,585 x 11,585: 384 MiB when decoded.
    fn default() -> Self {
        Self { pixels: 1 << 27 }
    }
}

/// How the colours of a JPEG become as fine as its brightness. Most files store them at half the height and
/// width.
///
/// ```
/// use feedline_images::{Chroma, Decoder, Transforms};
///
/// let decoder = Decoder::new().with_chroma(Chroma::Nearest);
/// let training = Transforms::new().random_resized_crop(224).chroma(Chroma::Nearest);
/// # let _ = (decoder, training);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Chroma {
    /// Interpolated between the stored samples: the pixels of Pillow, and of libjpeg-turbo's default.
    #[default]
    Interpolated,
    /// The nearest stored sample, repeated: the pixels of libjpeg-turbo's fast upsampling. They differ where
    /// colours have edges. A GPU decodes three times as many pictures per second this way; a CPU gains 7 % of
    /// photographs of 500 pixels that are cropped, 30 % of large ones that are not.
    Nearest,
}

/// Both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Settings {
    pub(crate) limits: Limits,
    pub(crate) chroma: Chroma,
}
