//! Applies the list of transforms to a sample.

use feedline_core::{Error, ErrorKind, Random, Result};

use super::output::Output;
use super::{Mode, Scratch, Transform, Transforms, name_of};
use crate::canvas::crop;
use crate::{Canvas, Level, Plane, Reduction, Region, Sampling, Size};

impl Transforms {
    /// Decodes a picture, applies the transforms, and writes the bytes of the field to `image`.
    ///
    /// Of a JPEG, only the region that the first transform needs is decoded.
    ///
    /// # Errors
    /// `Data` if the picture cannot be decoded, see [`Decoder::decode`](crate::Decoder::decode); `Sample` if
    /// a transform makes a picture beyond [`Limits::pixels`](crate::Limits::pixels), or if `image` does not
    /// have the length of the result; with [`own_sizes`](Self::own_sizes), if it is shorter.
    pub fn read(
        &self,
        encoded: &[u8],
        random: &mut Random,
        scratch: &mut Scratch,
        image: &mut [u8],
    ) -> Result<()> {
        let Scratch { decoder, canvas, alpha, wide } = scratch;
        decoder.set(self.settings);
        match self.output.mode {
            Mode::Rgb | Mode::Gray => {}
            Mode::RgbAlpha => decoder.decode_alpha(encoded, alpha)?,
            Mode::U16 => {
                decoder.decode_plane(encoded, wide)?;
                self.move_plane(random, canvas, wide, Sampling::Filtered)?;
                self.output.write_wide(wide.pixels(), self.place(canvas.size(), image)?);
                return Ok(());
            }
            Mode::Index => {
                decoder.decode_plane(encoded, alpha)?;
                self.move_plane(random, canvas, alpha, Sampling::Nearest)?;
                self.place(canvas.size(), image)?.copy_from_slice(alpha.pixels());
                return Ok(());
            }
        }
        let first = self.host_steps().first();
        canvas.fill(|pixels| {
            decoder.decode_region(encoded, pixels, |size| {
                let region = first.map_or(Region::whole(size), |step| step.region(size, random));
                let scaled = first.filter(|_| self.scaled_decode).and_then(|step| step.scaled_to());
                let reduction = scaled.map_or(Reduction::None, |to| Reduction::strongest(region.size, to));
                (region, reduction)
            })
        })?;
        if let Some(first) = first {
            self.apply_step(&**first, random, canvas)?;
        }
        self.finish(1, random, (canvas, alpha), image)
    }

    /// Draws the moves of a picture of one channel, and applies them.
    fn move_plane<T: Level>(
        &self,
        random: &mut Random,
        canvas: &mut Canvas,
        plane: &mut Plane<T>,
        sampling: Sampling,
    ) -> Result<()> {
        canvas.set_blank(plane.size());
        self.apply_steps(0, random, canvas)?;
        plane.apply(canvas.moves(), sampling);
        Ok(())
    }

    /// Applies the transforms to decoded pixels, and writes the bytes of the field to `image`.
    ///
    /// # Errors
    /// `Sample` if a transform makes a picture beyond [`Limits::pixels`](crate::Limits::pixels), or if
    /// `image` does not have the length of the result.
    ///
    /// # Panics
    /// If `pixels` does not have `size.bytes()` bytes.
    pub fn apply(
        &self,
        size: Size,
        pixels: &[u8],
        random: &mut Random,
        scratch: &mut Scratch,
        image: &mut [u8],
    ) -> Result<()> {
        if self.output.mode.is_plane() {
            let why =
                format!("pictures of mode {} are decoded from files: call read", self.output.mode.name());
            return Err(Error::new(ErrorKind::Config, why));
        }
        assert_eq!(pixels.len(), size.bytes(), "pixels of a picture of {size}");
        let Scratch { canvas, alpha, .. } = scratch;
        alpha.resized(size).resize(size.height * size.width, 255);
        let Some(first) = self.host_steps().first() else {
            canvas.set(size, pixels);
            return self.finish(0, random, (canvas, alpha), image);
        };
        // Copies only the region that the first transform needs.
        let region = first.region(size, random);
        canvas.fill(|to| {
            to.resize(region.size.bytes(), 0);
            crop(size, pixels, region, to);
            Ok::<_, Error>((size, region, region.size))
        })?;
        self.apply_step(&**first, random, canvas)?;
        self.finish(1, random, (canvas, alpha), image)
    }

    /// Applies a transform. The picture may grow to the limit or to the transform's fixed size.
    fn apply_step(&self, step: &dyn Transform, random: &mut Random, canvas: &mut Canvas) -> Result<()> {
        let fixed = step.size(None).map_or(0, Size::pixels);
        canvas.set_max_pixels(self.settings.limits.pixels.max(fixed).max(canvas.size().pixels()));
        step.apply(canvas, random);
        let Some(why) = canvas.take_refusal() else { return Ok(()) };
        Err(Error::new(ErrorKind::Sample, format!("{} makes a picture of {why}", name_of(step))))
    }

    /// Applies the host's steps from number `from` on.
    fn apply_steps(&self, from: usize, random: &mut Random, canvas: &mut Canvas) -> Result<()> {
        for step in self.host_steps().iter().skip(from) {
            let region = step.region(canvas.size(), random);
            canvas.crop(region);
            self.apply_step(&**step, random, canvas)?;
        }
        Ok(())
    }

    /// The place of a picture of `size` in `image`, the bytes of the field: all of them, unless pictures have
    /// sizes of their own.
    fn place<'a>(&self, size: Size, image: &'a mut [u8]) -> Result<&'a mut [u8]> {
        let (bytes, room) = (self.written().bytes(size), image.len());
        if let Some(most) = self.own_sizes {
            return image.get_mut(..bytes).filter(|_| size.pixels() <= most as u64).ok_or_else(|| {
                let why = format!("the picture is {size} after the transforms, more than {most} pixels");
                Error::new(ErrorKind::Sample, why)
            });
        }
        if bytes == room {
            return Ok(image);
        }
        let why = format!(
            "the picture is {size} after the transforms, {bytes} bytes instead of {}: end the list with one \
             size",
            room
        );
        Err(Error::new(ErrorKind::Sample, why))
    }

    /// How the host writes the picture.
    fn written(&self) -> &Output {
        static AS_IT_IS: Output = Output::as_it_is();
        if self.host.is_some() { &AS_IT_IS } else { &self.output }
    }

    /// Applies the host's steps from number `from` on, and writes the result to `image`.
    fn finish(
        &self,
        from: usize,
        random: &mut Random,
        (canvas, alpha): (&mut Canvas, &mut Plane<u8>),
        image: &mut [u8],
    ) -> Result<()> {
        self.apply_steps(from, random, canvas)?;
        let image = self.place(canvas.size(), image)?;
        if self.output.mode == Mode::RgbAlpha {
            alpha.apply(canvas.moves(), Sampling::Filtered);
        }
        self.written().write(canvas, alpha, image);
        Ok(())
    }
}
