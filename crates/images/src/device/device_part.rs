//! The transforms that run on the device, for all samples of a batch.

use std::sync::Arc;

use feedline_core::{DType, Element, Error, ErrorKind, Random, Result};

use super::element::{Value, Written};
use super::mixing::Mixing;
use super::pixels::Pixels;
use super::record_words::{Mixed, Sample, WORDS};
use super::sample_record::{MAX_PLACE, Record};
use crate::decode::Settings;
use crate::transform::{Needs, name_of};
use crate::{ChannelOrder, Decoder, Moves, Size, Transform};

/// The transforms of a list that run on the device, from
/// [`Transforms::device_part`](crate::Transforms::device_part).
#[derive(Clone, Debug)]
pub struct DevicePart {
    pub(crate) steps: Vec<Arc<dyn Transform>>,
    /// The size of the copied pictures; `None` if sizes differ.
    pub(crate) source: Option<Size>,
    pub(crate) source_type: DType,
    pub(crate) source_order: ChannelOrder,
    pub(crate) channels: usize,
    pub(crate) size: Size,
    pub(crate) dtype: DType,
    pub(crate) order: ChannelOrder,
    /// Factor and offset of each channel.
    pub(crate) scale: [(f32, f32); 4],
    pub(crate) mixing: Option<Mixing>,
    pub(crate) needs: Needs,
    /// How pictures are decoded.
    pub(crate) decoding: Settings,
}

fn config(why: String) -> Error {
    Error::new(ErrorKind::Config, why)
}

/// Draws the record of a picture of `size`. `steps` must transform the picture to the size `wanted`.
pub(crate) fn draw(
    (steps, mixing): (&[Arc<dyn Transform>], Option<&Mixing>),
    size: Size,
    wanted: Size,
    random: &mut Random,
    parameters: &mut [u8],
) -> Result<()> {
    let mut record = empty_record(size)?;
    for step in steps {
        step.record(&mut record, random);
    }
    if let Some(mixing) = mixing {
        mixing.record(&mut record, random);
    }
    record.checked(wanted)?.write(parameters, wanted);
    Ok(())
}

/// As [`draw`]; also stores the picture's moves in `moves`, for its masks and boxes. The host moves the masks
/// and boxes, so the limit `max_pixels` applies to each transform as on the host.
pub(crate) fn draw_moves(
    steps: &[Arc<dyn Transform>],
    (size, wanted): (Size, Size),
    max_pixels: u64,
    random: &mut Random,
    parameters: &mut [u8],
    moves: &mut Moves,
) -> Result<()> {
    let mut record = empty_record(size)?;
    record.keep_moves(std::mem::take(moves));
    for step in steps {
        let first = record.moves().list().len();
        step.record(&mut record, random);
        let max = max_pixels.max(step.size(None).map_or(0, Size::pixels));
        record.moves().check_pixels(first, max).map_err(|why| {
            Error::new(ErrorKind::Sample, format!("{} makes a picture of {why}", name_of(&**step)))
        })?;
    }
    let record = record.checked(wanted)?;
    record.write(parameters, wanted);
    *moves = record.into_moves();
    Ok(())
}

/// A record without transforms.
fn empty_record(size: Size) -> Result<Record> {
    let max = MAX_PLACE as usize;
    if size.height > max || size.width > max {
        let why = format!("the picture is {size}: the device takes sides of up to {MAX_PLACE} pixels");
        return Err(Error::new(ErrorKind::Sample, why));
    }
    Ok(Record::new(size))
}

/// A batch in host memory, for [`DevicePart::run_on_host`].
#[derive(Clone, Copy, Debug)]
pub struct HostBatch<'a, I: Element> {
    /// The pixels of all pictures.
    pub pixels: &'a [I],
    /// Start of each picture in `pixels`, and then the end of the last picture; `None` if all have one size.
    pub offsets: Option<&'a [u32]>,
    /// The records: [`WORDS`] numbers per picture.
    pub parameters: &'a [u32],
}

/// The labels of a batch. Each label becomes a row of probabilities.
#[derive(Clone, Copy, Debug)]
pub struct Labels<'a> {
    /// The class of each sample.
    pub of: &'a [i64],
    /// Number of classes.
    pub classes: usize,
}

impl DevicePart {
    /// Sets the element type, the number of channels (1 to 4) and the channel order of the pictures, for
    /// pictures that are not decoded from files.
    ///
    /// # Errors
    /// `Config` if the device cannot apply a transform to them: only `u8` pictures of three channels can be
    /// resized, mixed or changed in colour.
    pub fn for_pictures(mut self, dtype: DType, channels: usize, order: ChannelOrder) -> Result<Self> {
        let white = match dtype {
            DType::U8 => u8::WHITE,
            DType::U16 => u16::WHITE,
            DType::F16 | DType::BF16 => 1.0,
            other => return Err(config(format!("pixels are {other}: give u8, u16, f16 or bf16"))),
        };
        if !(1..=4).contains(&channels) {
            return Err(config(format!("pixels have {channels} channels: give 1 to 4")));
        }
        if self.needs > Needs::Copy && (dtype, channels) != (DType::U8, 3) {
            let why = "only u8 pictures of three channels can be resized, mixed or changed in colour: remove \
                       such transforms from the list";
            return Err(config(why.into()));
        }
        if self.dtype == DType::U8 && dtype != DType::U8 {
            return Err(config(format!("{dtype} cannot become u8: add normalise or element")));
        }
        if self.scale != [(1.0, 0.0); 4] {
            self.scale = self.scale.map(|(by, add)| ((f64::from(by) * 255.0 / f64::from(white)) as f32, add));
        }
        Ok(Self { source_type: dtype, channels, source_order: order, ..self })
    }

    /// A decoder with the list's limits and chroma upsampling.
    pub fn decoder(&self) -> Decoder {
        Decoder::with(self.decoding)
    }

    /// The size of a finished picture.
    pub fn size(&self) -> Size {
        self.size
    }

    /// The shape of a finished picture.
    pub fn shape(&self) -> [usize; 3] {
        match self.order {
            ChannelOrder::Last => [self.size.height, self.size.width, self.channels],
            ChannelOrder::First => [self.channels, self.size.height, self.size.width],
        }
    }

    /// Number of elements of a finished picture.
    pub fn elements(&self) -> usize {
        self.shape().iter().product()
    }

    /// The element type of finished pictures.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The element type of the copied pictures.
    pub fn source_type(&self) -> DType {
        self.source_type
    }

    /// Number of elements of a copied picture; `None` if sizes differ.
    pub fn source_elements(&self) -> Option<usize> {
        self.source.map(|size| size.height * size.width * self.channels)
    }

    /// The work that the kernel has to do.
    pub fn needs(&self) -> Needs {
        self.needs
    }

    /// The parameters that all samples share, in the kernel's layout.
    pub fn words(&self) -> [u32; 16] {
        let mut words = [0; 16];
        words[0] = self.channels as u32;
        words[1] = u32::from(self.source_order == ChannelOrder::First);
        words[2] = self.size.height as u32;
        words[3] = self.size.width as u32;
        words[4] = u32::from(self.order == ChannelOrder::First);
        for (channel, (by, add)) in self.scale.into_iter().enumerate() {
            words[5 + channel] = by.to_bits();
            words[9 + channel] = add.to_bits();
        }
        words
    }

    /// Draws the record of a picture of `size`, and writes it to `parameters`. A record is [`WORDS`] numbers
    /// of type `u32`, in native byte order.
    ///
    /// # Errors
    /// `Config` if the device cannot apply the list in its order. `Sample` if the result does not have the
    /// size [`size`](Self::size), if the picture does not have the size of all others, or if it is too large
    /// for the device.
    ///
    /// # Panics
    /// If `parameters` has less than `4 * WORDS` bytes.
    pub fn draw(&self, size: Size, random: &mut Random, parameters: &mut [u8]) -> Result<()> {
        assert!(parameters.len() >= 4 * WORDS, "room for {WORDS} numbers");
        if let Some(wanted) = self.source.filter(|source| *source != size) {
            let why = format!("the picture is {size}, instead of {wanted}");
            return Err(Error::new(ErrorKind::Sample, why));
        }
        draw((&self.steps, self.mixing.as_ref()), size, self.size, random, parameters)
    }

    /// Checks that the device can apply the list.
    pub(crate) fn check(&self) -> Result<()> {
        let twice = Size::new(self.size.height.saturating_mul(2), self.size.width.saturating_mul(2));
        let size = self.source.unwrap_or(twice);
        let mut parameters = [0; 4 * WORDS];
        let mut drawn = (0..8).map(|key| self.draw(size, &mut Random::from_key(key), &mut parameters));
        drawn.find_map(Result::err).map_or(Ok(()), |error| Err(config(error.message().into())))
    }

    /// Applies the transforms of sample `row` on the host, with the same bits as the kernel. Writes the
    /// finished picture to `to`, and its row of probabilities if there are labels.
    ///
    /// A record that does not fit its picture yields the colour of the border; no read is out of bounds.
    ///
    /// # Panics
    /// If `to` does not have [`elements`](Self::elements) elements, or `batch` has no such row.
    pub fn run_on_host<I: Value, O: Written>(
        &self,
        batch: HostBatch<'_, I>,
        row: usize,
        to: &mut [O],
        labels: Option<(Labels<'_>, &mut [f32])>,
    ) {
        assert_eq!(to.len(), self.elements(), "a picture of {}", self.size);
        let rows = batch.parameters.len() / WORDS;
        let own = self.pixels(batch, row);
        let is_mixed = own.sample.mix.is_some() && self.needs >= Needs::Work;
        let other =
            if is_mixed { ((u64::from(own.sample.partner) * rows as u64) >> 32) as usize } else { row };
        if let Some((labels, probabilities)) = labels {
            let lambda = if is_mixed { own.sample.lambda } else { 1.0 };
            for (class, place) in (0..).zip(probabilities) {
                let is = |row: usize| if labels.of[row] == class { 1.0 } else { 0.0 };
                *place = is(row) * lambda + is(other) * (1.0 - lambda);
            }
        }
        let mut pair = [own, self.pixels(batch, other)];
        if self.needs >= Needs::Mean {
            pair.iter_mut().for_each(Pixels::find_mean);
        }
        let [own, other] = &pair;
        let (height, width) = (self.size.height, self.size.width);
        for y in 0..height {
            for x in 0..width {
                let mine = self.finished::<I, O>(own, y as i32, x as i32);
                let value = match own.sample.mix.filter(|_| is_mixed) {
                    None => mine,
                    Some(Mixed::Paste(part)) if !part.has(y as i32, x as i32) => mine,
                    Some(Mixed::Paste(_)) => self.finished::<I, O>(other, y as i32, x as i32),
                    Some(Mixed::Blend) => {
                        let theirs = self.finished::<I, O>(other, y as i32, x as i32);
                        let lambda = own.sample.lambda;
                        std::array::from_fn(|channel| {
                            mine[channel] * lambda + theirs[channel] * (1.0 - lambda)
                        })
                    }
                };
                for (channel, value) in value.into_iter().enumerate().take(self.channels) {
                    let place = match self.order {
                        ChannelOrder::Last => (y * width + x) * self.channels + channel,
                        ChannelOrder::First => (channel * height + y) * width + x,
                    };
                    to[place] = O::nearest(value);
                }
            }
        }
    }

    /// The pixels and the record of sample `row`.
    fn pixels<'a, I: Value>(&self, batch: HostBatch<'a, I>, row: usize) -> Pixels<'a, I> {
        let words = &batch.parameters[row * WORDS..][..WORDS];
        let source = match (batch.offsets, self.source_elements()) {
            (Some(offsets), _) => batch.pixels.get(offsets[row] as usize..offsets[row + 1] as usize),
            (None, Some(elements)) => batch.pixels.get(row * elements..(row + 1) * elements),
            (None, None) => None,
        };
        let source = source.unwrap_or_default();
        let mut sample = Sample::read(words, (source.len() / self.channels) as u64);
        sample.resized &= self.needs >= Needs::Work;
        let output = (self.size.height as i32, self.size.width as i32);
        Pixels { sample, source, order: self.source_order, channels: self.channels, output, mean: 0 }
    }

    /// The normalised values of a pixel before samples are mixed. They are levels if `O` is `u8`.
    fn finished<I: Value, O: Written>(&self, pixels: &Pixels<'_, I>, y: i32, x: i32) -> [f32; 4] {
        let mut values = [0.0; 4];
        let erased = pixels.sample.erased.filter(|(part, _)| part.has(y, x));
        if let Some((_, color)) = erased {
            for (channel, value) in values.iter_mut().enumerate().take(self.channels) {
                *value = I::of_level(color[channel.min(2)]).value();
            }
        } else if self.needs >= Needs::Work {
            let pixel = pixels.pixel(y, x);
            values[..3].copy_from_slice(&pixel.map(f32::from));
        } else {
            for (channel, value) in values.iter_mut().enumerate().take(self.channels) {
                *value = pixels.at(y, x, channel).value();
            }
        }
        if O::DTYPE == DType::U8 {
            return values;
        }
        for (value, (by, add)) in values.iter_mut().zip(self.scale) {
            *value = value.mul_add(by, add);
        }
        values
    }
}
