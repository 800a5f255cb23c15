//! Splits a list between the workers and the device.

use std::sync::Arc;

use feedline_core::{DType, Error, ErrorKind, Random, Result, Row, Spec, named};

use super::{ChannelOrder, Needs, Scratch, Transform, Transforms, name_of};
use crate::device::{self, DevicePart, WORDS};
use crate::{Decoder, Size};

impl Transforms {
    /// Runs the transforms that are added after this call on the device. Normalising, mixing and the channel
    /// order then run there too, wherever they are called.
    ///
    /// Pictures are copied to the device as bytes. A second field, `NAME.parameters`, has the parameters of
    /// each picture's transforms. The worker draws these parameters, so the pictures are the same as on the
    /// host. `Augment` of the crate `feedline-pictures` applies the transforms.
    ///
    /// ```
    /// use feedline_core::DType;
    /// use feedline_images::{IMAGENET_MEAN, IMAGENET_STD, Transforms};
    ///
    /// let transforms = Transforms::new()
    ///     .random_resized_crop(224)
    ///     .on_device()
    ///     .flip(0.5)
    ///     .color_jitter(0.4, 0.4, 0.4, 0.1)
    ///     .normalise(IMAGENET_MEAN, IMAGENET_STD)
    ///     .channels_first()
    ///     .element(DType::BF16);
    /// let spec = transforms.field("image")?;
    /// let names: Vec<_> = spec.fields().iter().map(|field| field.name()).collect();
    /// assert_eq!(names, ["image", "image.parameters"]);
    /// let part = transforms.device_part()?;
    /// assert_eq!((part.dtype(), part.shape()), (DType::BF16, [3, 224, 224]));
    /// # Ok::<(), feedline_core::Error>(())
    /// ```
    pub fn on_device(self) -> Self {
        Self { host: Some(self.host.unwrap_or(self.steps.len())), ..self }
    }

    /// Mixes each picture with another one of its batch (mixup), on the device. The weight of the picture is
    /// drawn from a beta distribution with both parameters `alpha`, from 0.01 to 4.
    ///
    /// The other picture depends on the batch, so it changes with the size of the world. With
    /// [`cutmix`](Self::cutmix) too, each sample gets one of the two.
    pub fn mixup(mut self, alpha: f64) -> Self {
        self.mixing.get_or_insert_default().blend = Some(alpha);
        self
    }

    /// Pastes a rectangle of another picture of the batch into each picture (cutmix), on the device; see
    /// [`mixup`](Self::mixup).
    pub fn cutmix(mut self, alpha: f64) -> Self {
        self.mixing.get_or_insert_default().paste = Some(alpha);
        self
    }

    /// The element type of the pixels that the device writes: `f32`, `f16`, `bf16` or `u8`. Default: `f32` if
    /// pictures are normalised, else `u8`.
    pub fn element(self, dtype: DType) -> Self {
        Self { element: Some(dtype), ..self }
    }

    /// The transforms that run on the device.
    ///
    /// # Errors
    /// `Config` if there are none, if one of them runs on the host only, or if they are not in the device's
    /// order: crops, borders, flips and up to one resize, then colours, then erasing, then mixing.
    pub fn device_part(&self) -> Result<DevicePart> {
        let refuse = |why: String| Err(Error::new(ErrorKind::Config, why));
        let Some(host) = self.host else {
            return refuse("no transform runs on the device: add on_device()".into());
        };
        self.check_mode()?;
        let steps = self.steps[host..].to_vec();
        let mut needs = if self.mixing.is_some() { Needs::Work } else { Needs::Copy };
        for step in &steps {
            let Some(of_step) = step.on_device() else {
                let how = named("put it before on_device()", "use decode=\"cpu\"");
                return refuse(format!("{} runs on the host only: {how}", name_of(&**step)));
            };
            needs = needs.max(of_step);
        }
        let alphas = self.mixing.iter().flat_map(|mixing| [mixing.blend, mixing.paste]).flatten();
        if let Some(alpha) = alphas.into_iter().find(|alpha| !(0.01..=4.0).contains(alpha)) {
            return refuse(format!("the alpha of mixup or cutmix is {alpha}: give one from 0.01 to 4"));
        }
        let source = self.host_size();
        let Some(size) = steps.iter().fold(source, |size, step| step.size(size)) else {
            let how = named("add resize", "end with one size, such as CenterCrop(224)");
            return refuse(format!("the transforms leave pictures in sizes of their own: {how}"));
        };
        let usual = if self.output.normal.is_some() { DType::F32 } else { DType::U8 };
        let dtype = self.element.unwrap_or(usual);
        if !matches!(dtype, DType::U8 | DType::F16 | DType::BF16 | DType::F32) {
            return refuse(format!("element cannot be {dtype}: give f32, f16, bf16 or u8"));
        }
        let is_blended = self.mixing.is_some_and(|mixing| mixing.blend.is_some());
        if dtype == DType::U8 && (self.output.normal.is_some() || is_blended) {
            return refuse("normalised or mixed pixels cannot be u8: give element f32, f16 or bf16".into());
        }
        let scale = std::array::from_fn(|channel| match self.output.normal {
            None => (1.0, 0.0),
            Some((mean, std)) => {
                let (mean, std) = (f64::from(mean[channel.min(2)]), f64::from(std[channel.min(2)]));
                ((1.0 / (255.0 * std)) as f32, (-mean / std) as f32)
            }
        });
        let part = DevicePart {
            steps,
            source,
            source_type: DType::U8,
            source_order: ChannelOrder::Last,
            channels: 3,
            size,
            dtype,
            order: self.output.order,
            scale,
            mixing: self.mixing,
            needs,
            decoding: self.settings,
        };
        part.check()?;
        Ok(part)
    }

    /// The transforms that run on the host.
    pub(super) fn host_steps(&self) -> &[Arc<dyn Transform>] {
        &self.steps[..self.host.unwrap_or(self.steps.len())]
    }

    /// The size of all pictures after the host's transforms; `None` if sizes differ.
    pub(super) fn host_size(&self) -> Option<Size> {
        self.host_steps().iter().fold(None, |size, step| step.size(size))
    }

    /// Decodes a picture and writes the fields of [`add_field`](Self::add_field) to the row, from field
    /// `first` on. Returns the number of the next field.
    ///
    /// # Errors
    /// As [`read`](Self::read), and as [`DevicePart::draw`].
    pub fn read_row(
        &self,
        encoded: &[u8],
        random: &mut Random,
        scratch: &mut Scratch,
        row: &mut Row<'_, '_>,
        first: usize,
    ) -> Result<usize> {
        if self.has_own_sizes() {
            return self.read_own_size(encoded, random, scratch, row, first);
        }
        self.read(encoded, random, scratch, row.bytes_mut(first))?;
        if self.host.is_none() {
            return Ok(first + 1);
        }
        self.draw(scratch.canvas.size(), random, row.bytes_mut(first + 1))?;
        Ok(first + 2)
    }

    fn read_own_size(
        &self,
        encoded: &[u8],
        random: &mut Random,
        scratch: &mut Scratch,
        row: &mut Row<'_, '_>,
        first: usize,
    ) -> Result<usize> {
        let dtype = self.output.dtype();
        let room = match dtype {
            DType::F32 => bytemuck::cast_slice_mut(row.ragged_mut::<f32>(first)?),
            DType::U16 => bytemuck::cast_slice_mut(row.ragged_mut::<u16>(first)?),
            _ => row.ragged_mut::<u8>(first)?,
        };
        self.read(encoded, random, scratch, room)?;
        let size = scratch.canvas.size();
        row.set_ragged_len(first, self.output.bytes(size) / dtype.size())?;
        row.field_mut::<i64>(first + 1)?.copy_from_slice(&[size.height as i64, size.width as i64]);
        Ok(first + 2)
    }

    /// Adds the fields for pictures that are decoded on the device. These are the ragged field `name` of up
    /// to `max_bytes` encoded bytes, and `NAME.parameters`.
    ///
    /// # Errors
    /// `Config` if the list has transforms before [`on_device`](Self::on_device); as
    /// [`device_part`](Self::device_part) and [`Spec::ragged`].
    pub fn add_encoded_fields(&self, spec: Spec, name: &str, max_bytes: usize) -> Result<Spec> {
        self.device_part()?;
        if !self.host_steps().is_empty() {
            let why = "the list has transforms on the host, but pictures are decoded on the device: put \
                       on_device() first";
            return Err(Error::new(ErrorKind::Config, why));
        }
        let spec = spec.ragged(name, DType::U8, [], max_bytes)?;
        spec.field(&format!("{name}.parameters"), DType::U32, [WORDS])
    }

    /// Writes the fields of [`add_encoded_fields`](Self::add_encoded_fields) to the row, from field `first`
    /// on. Returns the number of the next field.
    ///
    /// Checks that the picture can be decoded ([`Decoder::check`]). So the bytes alone determine whether a
    /// sample is bad, not the processor that decodes it. The check of a JPEG is quick. A picture of another
    /// format is decoded for the check, so call [`check`](Self::check) once and then
    /// [`write_checked`](Self::write_checked).
    ///
    /// # Errors
    /// `Data` if the picture cannot be decoded; `Sample` if it has more bytes than the field; as
    /// [`DevicePart::draw`].
    pub fn write_encoded(
        &self,
        encoded: &[u8],
        random: &mut Random,
        scratch: &mut Scratch,
        row: &mut Row<'_, '_>,
        first: usize,
    ) -> Result<usize> {
        self.check(encoded, scratch)?;
        self.write_checked(encoded, random, row, first)
    }

    /// Checks that a picture can be decoded.
    ///
    /// # Errors
    /// As [`Decoder::check`].
    pub fn check(&self, encoded: &[u8], scratch: &mut Scratch) -> Result<Size> {
        scratch.decoder.set(self.settings);
        scratch.decoder.check(encoded)
    }

    /// As [`write_encoded`](Self::write_encoded), for a picture that was checked before. Reads only its
    /// header. A picture that cannot be decoded ends the run.
    ///
    /// # Errors
    /// As [`write_encoded`](Self::write_encoded).
    pub fn write_checked(
        &self,
        encoded: &[u8],
        random: &mut Random,
        row: &mut Row<'_, '_>,
        first: usize,
    ) -> Result<usize> {
        let size = Decoder::with(self.settings).size(encoded)?;
        row.write_ragged(first, encoded)?;
        self.draw(size, random, row.bytes_mut(first + 1))?;
        Ok(first + 2)
    }

    /// As [`write_checked`](Self::write_checked), for a picture with masks, boxes or points. The worker moves
    /// these, and [`Scratch::moves`] then has the drawn moves, as after [`read`](Self::read).
    ///
    /// # Errors
    /// As [`write_encoded`](Self::write_encoded); `Sample` if a transform makes a picture beyond
    /// [`Limits::pixels`](crate::Limits).
    pub fn write_moving(
        &self,
        encoded: &[u8],
        random: &mut Random,
        scratch: &mut Scratch,
        row: &mut Row<'_, '_>,
        first: usize,
    ) -> Result<usize> {
        let size = Decoder::with(self.settings).size(encoded)?;
        row.write_ragged(first, encoded)?;
        let (steps, wanted) = self.of_device(size);
        let (max, moves) = (self.settings.limits.pixels, scratch.canvas.moves_mut());
        device::draw_moves(steps, (size, wanted), max, random, row.bytes_mut(first + 1), moves)?;
        Ok(first + 2)
    }

    /// Draws the record of a picture that has size `size` after the host's transforms.
    fn draw(&self, size: Size, random: &mut Random, parameters: &mut [u8]) -> Result<()> {
        let (steps, wanted) = self.of_device(size);
        device::draw((steps, self.mixing.as_ref()), size, wanted, random, parameters)
    }

    /// The transforms on the device, and the size of their result for a picture of `size`.
    fn of_device(&self, size: Size) -> (&[Arc<dyn Transform>], Size) {
        let steps = &self.steps[self.host_steps().len()..];
        (steps, steps.iter().try_fold(size, |size, step| step.size(Some(size))).unwrap_or(size))
    }
}
