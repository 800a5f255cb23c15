//! What happens to every sample of a batch on the device, and what is before and after it.

use std::sync::Arc;

use feedline_core::{DType, Element, Error, ErrorKind, Random, Result};

use super::element::{Value, Written};
use super::mixing::Mixing;
use super::pixels::Pixels;
use super::record_words::{Mixed, Sample, WORDS};
use super::sample_record::{MAX_PLACE, Record};
use crate::decode::Settings;
use crate::transform::Needs;
use crate::{ChannelOrder, Decoder, Size, Transform};

/// The part of a list of transforms that runs on the device; from
/// [`Transforms::device_part`](crate::Transforms::device_part).
#[derive(Clone, Debug)]
pub struct DevicePart {
    pub(crate) steps: Vec<Arc<dyn Transform>>,
    /// The size of the pictures that cross; `None` where each has its own.
    pub(crate) source: Option<Size>,
    pub(crate) source_type: DType,
    pub(crate) source_order: ChannelOrder,
    pub(crate) channels: usize,
    pub(crate) size: Size,
    pub(crate) dtype: DType,
    pub(crate) order: ChannelOrder,
    /// Each value is multiplied by the first number of its channel, then the second one is added.
    pub(crate) scale: [(f32, f32); 4],
    pub(crate) mixing: Option<Mixing>,
    pub(crate) needs: Needs,
    /// How its pictures are decoded.
    pub(crate) decoding: Settings,
}

fn config(why: String) -> Error {
    Error::new(ErrorKind::Config, why)
}

/// Draws what `steps` and mixing do to a picture of size `size`, which must become one of size `wanted`.
pub(crate) fn draw(
    (steps, mixing): (&[Arc<dyn Transform>], Option<&Mixing>),
    size: Size,
    wanted: Size,
    random: &mut Random,
    parameters: &mut [u8],
) -> Result<()> {
    let max = MAX_PLACE as usize;
    if size.height > max || size.width > max {
        let why = format!("the picture is {size}: the device takes sides of up to {MAX_PLACE} pixels");
        return Err(Error::new(ErrorKind::Sample, why));
    }
    let mut record = Record::new(size);
    for step in steps {
        step.record(&mut record, random);
    }
    if let Some(mixing) = mixing {
        mixing.record(&mut record, random);
    }
    record.checked(wanted)?.write(parameters, wanted);
    Ok(())
}

/// A batch in memory of the host, for [`DevicePart::run_on_host`].
#[derive(Clone, Copy, Debug)]
pub struct HostBatch<'a, I: Element> {
    /// The pixels of all pictures.
    pub pixels: &'a [I],
    /// Where each picture begins in `pixels`, and where the last one ends; `None` where all have one size.
    pub offsets: Option<&'a [u32]>,
    /// The records: [`WORDS`] numbers for each picture.
    pub parameters: &'a [u32],
}

/// The labels of a batch, which become a row of probabilities each.
#[derive(Clone, Copy, Debug)]
pub struct Labels<'a> {
    /// The class of each sample.
    pub of: &'a [i64],
    /// Length of a row.
    pub classes: usize,
}

impl DevicePart {
    /// The part for pictures that do not come from files of pictures: `channels` (1 to 4) values of type
    /// `dtype` per pixel. Colours can be changed of `u8` pictures of three channels, channels last.
    ///
    /// # Errors
    /// `Config` for what the device cannot do with such pictures.
    pub fn of(mut self, dtype: DType, channels: usize, order: ChannelOrder) -> Result<Self> {
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
            let why = "only u8 pictures of three channels are scaled, mixed or changed in colour: take such \
                       transforms out of the list";
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

    /// A decoder with the limits and the chroma of the list.
    pub fn decoder(&self) -> Decoder {
        Decoder::with(self.decoding)
    }

    /// Height and width of the finished pictures.
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

    /// Elements of a finished picture.
    pub fn elements(&self) -> usize {
        self.shape().iter().product()
    }

    /// The element type of the finished pictures.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The element type of the pictures that cross.
    pub fn source_type(&self) -> DType {
        self.source_type
    }

    /// Elements of a picture that crosses; `None` where each has its own size.
    pub fn source_elements(&self) -> Option<usize> {
        self.source.map(|size| size.height * size.width * self.channels)
    }

    /// How much the kernel has to do.
    #[doc(hidden)] // For the crate that launches it.
    pub fn needs(&self) -> Needs {
        self.needs
    }

    /// What is the same for every sample, as the kernel reads it.
    #[doc(hidden)] // For the crate that launches it.
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

    /// Draws what happens to a picture of size `size`, and writes it to `parameters`: [`WORDS`] numbers of
    /// `u32`, in the byte order of the machine.
    ///
    /// # Errors
    /// `Config` for a list in an order that the device does not keep; `Sample` for a picture that does not
    /// become one of [`size`](Self::size), or has another size than all others.
    ///
    /// # Panics
    /// If `parameters` is shorter.
    pub fn draw(&self, size: Size, random: &mut Random, parameters: &mut [u8]) -> Result<()> {
        assert!(parameters.len() >= 4 * WORDS, "room for {WORDS} numbers");
        if let Some(wanted) = self.source.filter(|source| *source != size) {
            let why = format!("the picture is {size}, instead of {wanted}");
            return Err(Error::new(ErrorKind::Sample, why));
        }
        draw((&self.steps, self.mixing.as_ref()), size, self.size, random, parameters)
    }

    /// Whether the list can be drawn in this order.
    pub(crate) fn check(&self) -> Result<()> {
        let twice = Size::new(self.size.height.saturating_mul(2), self.size.width.saturating_mul(2));
        let size = self.source.unwrap_or(twice);
        let mut parameters = [0; 4 * WORDS];
        let mut drawn = (0..8).map(|key| self.draw(size, &mut Random::from_key(key), &mut parameters));
        drawn.find_map(Result::err).map_or(Ok(()), |error| Err(config(error.message().into())))
    }

    /// Does on the host what the kernel does: the same bits. `row` is the number of the sample, `to` its
    /// finished picture, and `probabilities` its row of probabilities, where there are labels.
    ///
    /// A record that does not fit its picture gives the colour of the border, never a place outside.
    ///
    /// # Panics
    /// If `to` has not [`elements`](Self::elements) elements, or `batch` no such row.
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

    /// The source of sample `row`.
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

    /// The values of a pixel before samples are mixed, as numbers that the type `O` may be made of.
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
