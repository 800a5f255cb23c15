//! JPEG by libjpeg-turbo, through the safe API of the crate `turbojpeg` (feature `turbojpeg`).
//!
//! The pixels are those of `jpeg/`, which decodes every file that libjpeg-turbo refuses or warns about. So
//! errors and the pixels of damaged files are the same, with two exceptions. libjpeg-turbo reads some files
//! without a warning that `jpeg/` refuses, such as a picture with a missing quantisation table. And reduced
//! pictures may differ if they have blocks far outside of the range.

use std::sync::{Mutex, PoisonError};

use turbojpeg::{Colorspace, Decompressor, Image, PixelFormat, ScalingFactor};

use super::jpeg::MAX_SCANS;
use super::{Chroma, Reduction};
use crate::canvas::crop;
use crate::{Region, Size};

/// A decompressor and its memory, reused from picture to picture.
#[derive(Debug, Default)]
pub(super) struct Turbo {
    /// Created for the first picture. The `Mutex` is never contended. It makes `Decoder` `Sync`, as it is
    /// without the feature.
    decompressor: Mutex<Option<Decompressor>>,
    /// The whole picture, if only a region is wanted.
    whole: Vec<u8>,
}

/// Whether decoding the whole picture of `size` is faster than decoding `region` with the built-in decoder.
/// The built-in decoder does not transform blocks outside of the region, and stops below it.
fn is_quicker(size: Size, region: Region) -> bool {
    5 * region.size.pixels() >= 2 * size.pixels()
}

impl Turbo {
    /// Decodes `region` of the picture to `to`. The reduced picture has size `size`. Returns `false` if the
    /// built-in decoder must decode it; `to` then holds any bytes.
    pub(super) fn decode(
        &mut self,
        bytes: &[u8],
        size: Size,
        (region, reduction): (Region, Reduction),
        chroma: Chroma,
        to: &mut [u8],
    ) -> bool {
        if !is_quicker(size, region) {
            return false;
        }
        let decoded = self.try_decode(bytes, size, (region, reduction), chroma, to);
        decoded.unwrap_or_else(|_| {
            // After a damaged header, a decompressor refuses every later file.
            self.decompressor = Mutex::default();
            false
        })
    }

    /// As [`decode`](Self::decode). A warning is an error too: the built-in decoder reads such files.
    fn try_decode(
        &mut self,
        bytes: &[u8],
        size: Size,
        (region, reduction): (Region, Reduction),
        chroma: Chroma,
        to: &mut [u8],
    ) -> Result<bool, turbojpeg::Error> {
        let Self { decompressor, whole } = self;
        let decompressor = decompressor.get_mut().unwrap_or_else(PoisonError::into_inner);
        let decompressor = match decompressor {
            Some(decompressor) => decompressor,
            None => decompressor.insert(Decompressor::new()?),
        };
        let header = decompressor.read_header(bytes)?;
        let is_taken = matches!(header.colorspace, Colorspace::Gray | Colorspace::YCbCr | Colorspace::RGB)
            && !header.is_arithmetic
            && !header.is_lossless
            && reduction.size(Size::new(header.height, header.width)) == size;
        if !is_taken {
            return Ok(false);
        }
        decompressor.set_scan_limit(MAX_SCANS as u32)?;
        decompressor.set_fast_upsample(chroma == Chroma::Nearest)?;
        decompressor.set_scaling_factor(ScalingFactor::new(1, reduction.divisor()))?;
        let mut decompress = |pixels: &mut [u8]| {
            let Size { height, width } = size;
            let image = Image { pixels, width, pitch: 3 * width, height, format: PixelFormat::RGB };
            decompressor.decompress(bytes, image)
        };
        if region == Region::whole(size) {
            decompress(to)?;
        } else {
            whole.resize(size.bytes(), 0);
            decompress(whole)?;
            crop(size, whole, region, to);
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::{Path, PathBuf};

    use feedline_core::Random;

    use super::super::jpeg::{self, Jpeg};
    use super::*;

    const CHROMAS: [Chroma; 2] = [Chroma::Interpolated, Chroma::Nearest];
    const REDUCTIONS: [Reduction; 4] =
        [Reduction::None, Reduction::Half, Reduction::Quarter, Reduction::Eighth];

    fn files(folder: &Path) -> Vec<(String, Vec<u8>)> {
        let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        let is_jpeg = |path: &PathBuf| {
            let extension = path.extension().unwrap_or_default().to_ascii_lowercase();
            extension == "jpg" || extension == "jpeg"
        };
        let mut paths: Vec<_> = entries.filter(is_jpeg).collect();
        paths.sort();
        paths.iter().map(|path| (path.display().to_string(), fs::read(path).unwrap())).collect()
    }

    fn golden() -> Vec<(String, Vec<u8>)> {
        files(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/pictures"))
    }

    /// Both decoders.
    #[derive(Default)]
    struct Both {
        turbo: Turbo,
        own: Jpeg,
    }

    impl Both {
        /// Decodes with both decoders, and compares the pixels if libjpeg-turbo read the file. Returns
        /// whether it did.
        fn compare(&mut self, name: &str, bytes: &[u8], reduction: Reduction, chroma: Chroma) -> bool {
            let Ok(header) = jpeg::header(bytes) else { return false };
            let size = reduction.size(header.size);
            // The whole picture, and a region that begins and ends within blocks.
            let inner = Size::new(size.height.div_ceil(3) * 2, size.width.div_ceil(4) * 3);
            let part = Region {
                top: size.height.saturating_sub(inner.height) / 2,
                left: size.width.saturating_sub(inner.width),
                size: Size::new(inner.height.min(size.height), inner.width.min(size.width)),
            };
            let mut taken = [false; 2];
            for (region, taken) in [Region::whole(size), part].into_iter().zip(&mut taken) {
                // Neither decoder may rely on the content of the memory.
                let mut found = vec![0xEE; region.size.bytes()];
                let mut wanted = vec![0x11; region.size.bytes()];
                *taken = self.turbo.decode(bytes, size, (region, reduction), chroma, &mut found);
                if *taken {
                    let case = format!("{name}, {reduction:?}, {chroma:?}, {region:?}");
                    let own = self.own.decode(bytes, (region, reduction), chroma, &mut wanted);
                    assert!(own.is_ok(), "{case}: {own:?}");
                    assert!(found == wanted, "{case}");
                }
            }
            assert_eq!(taken[0], taken[1], "{name}, {reduction:?}, the whole and a part");
            taken[0]
        }
    }

    #[test]
    fn libjpeg_turbo_takes_every_kind_of_picture_but_cmyk_and_gives_the_own_decoders_pixels() {
        let mut both = Both::default();
        for (name, bytes) in golden() {
            for chroma in CHROMAS {
                for reduction in REDUCTIONS {
                    let taken = both.compare(&name, &bytes, reduction, chroma);
                    let is_cmyk = name.ends_with("cmyk.jpg") || name.ends_with("ycck.jpg");
                    assert_eq!(taken, !is_cmyk, "{name}");
                }
            }
        }
    }

    #[test]
    fn photographs_and_awkward_files_have_the_same_pixels_by_both_decoders() {
        let shared = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data");
        if !shared.join("jpeg-awkward").is_dir() {
            return feedline_testkit::not_run("both JPEG decoders on ../shared/data", "it is not there");
        }
        let mut both = Both::default();
        for (name, bytes) in files(&shared.join("imagenet-sample")) {
            for reduction in REDUCTIONS {
                assert!(both.compare(&name, &bytes, reduction, Chroma::Interpolated), "{name}");
            }
        }
        let mut taken = 0;
        for (name, bytes) in files(&shared.join("jpeg-awkward")) {
            for reduction in REDUCTIONS {
                taken += usize::from(both.compare(&name, &bytes, reduction, Chroma::Interpolated));
            }
        }
        assert!(taken > 4 * 20, "{taken}");
    }

    #[test]
    fn damaged_files_are_left_to_the_own_decoder_or_have_its_pixels() {
        let mut both = Both::default();
        let mut random = Random::from_key(17);
        let mut counts = [0; 2];
        let all = golden();
        let (sound_name, sound) = all.iter().find(|(name, _)| name.ends_with("420.jpg")).unwrap();
        for (name, bytes) in &all {
            for case in 0..40 {
                let mut damaged = bytes.clone();
                let at = random.below(bytes.len() as u64) as usize;
                match case % 4 {
                    0 => damaged.truncate(at),
                    _ => damaged[at] = random.below(256) as u8,
                }
                let name = format!("{name}, case {case}");
                let is_taken = both.compare(&name, &damaged, Reduction::None, Chroma::Interpolated);
                counts[usize::from(is_taken)] += 1;
            }
            // A sound file is decoded even after a damaged one.
            assert!(both.compare(sound_name, sound, Reduction::None, Chroma::Interpolated), "{name}");
        }
        assert!(counts.iter().all(|&count| count > 100), "{counts:?}");
    }

    #[test]
    fn small_parts_are_left_to_the_own_decoder() {
        let size = Size::new(10, 100);
        let part = |height, width| Region { top: 0, left: 0, size: Size::new(height, width) };
        assert!(is_quicker(size, part(4, 100)) && is_quicker(size, part(10, 40)));
        assert!(!is_quicker(size, part(10, 39)) && !is_quicker(size, part(3, 100)));
    }

    #[test]
    fn a_decoder_can_be_sent_and_shared_as_without_the_feature() {
        fn check<T: Send + Sync + std::panic::UnwindSafe>() {}
        check::<crate::Decoder>();
    }
}
