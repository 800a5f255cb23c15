//! The list of transforms; `applied.rs` applies it to a sample.

use std::sync::Arc;

use feedline_core::{DType, Error, ErrorKind, Result, Spec, named};

use super::output::Output;
use super::{
    CenterCrop, ChannelOrder, ColorJitter, Effect, Erase, Filter, FlipLeftRight, FlipTopBottom, GaussianBlur,
    Grayscale, Mode, Pad, QuarterTurn, RandAugment, RandomCrop, RandomResizedCrop, Resize, Transform,
    TrivialAugment, name_of,
};
use crate::decode::Settings;
use crate::device::{Mixing, WORDS};
use crate::{Canvas, Chroma, Decoder, Limits, Moves, Picture, Plane, Size};

/// A list of transforms, applied to each picture in order, and the format of the batch's field.
///
/// ```
/// use feedline_core::{DType, Random};
/// use feedline_images::{IMAGENET_MEAN, IMAGENET_STD, Scratch, Size, Transforms};
///
/// let training = Transforms::new()
///     .random_resized_crop(224)
///     .flip(0.5)
///     .color_jitter(0.4, 0.4, 0.4, 0.1)
///     .normalise(IMAGENET_MEAN, IMAGENET_STD)
///     .channels_first();
/// let spec = training.field("image")?;
/// let field = &spec.fields()[0];
/// assert_eq!((field.dtype(), field.shape()), (DType::F32, &[3, 224, 224][..]));
///
/// // Transforms a decoded picture; `read` takes an encoded one.
/// let (mut image, mut scratch) = (vec![0; field.row_bytes()], Scratch::default());
/// let pixels = vec![200; 300 * 400 * 3];
/// training.apply(Size::new(300, 400), &pixels, &mut Random::from_key(7), &mut scratch, &mut image)?;
/// # Ok::<(), feedline_core::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Transforms {
    pub(super) steps: Vec<Arc<dyn Transform>>,
    pub(super) output: Output,
    pub(super) settings: Settings,
    /// Whether the decoder may reduce a JPEG for a first transform that resizes.
    pub(super) scaled_decode: bool,
    /// Number of steps that run on the host; `None` for all.
    pub(super) host: Option<usize>,
    pub(super) mixing: Option<Mixing>,
    /// The element type of the finished pixels, if it is not the default.
    pub(super) element: Option<DType>,
    /// The most pixels of a picture, if pictures keep sizes of their own.
    pub(super) own_sizes: Option<usize>,
}

/// A worker's memory, reused from sample to sample: a decoder and a canvas.
#[derive(Debug, Default)]
pub struct Scratch {
    pub(super) decoder: Decoder,
    pub(super) canvas: Canvas,
    pub(super) alpha: Plane<u8>,
    pub(super) wide: Plane<u16>,
}

impl Scratch {
    /// The moves of the last picture read, for its masks, boxes and points.
    pub fn moves(&self) -> &Moves {
        self.canvas.moves()
    }

    /// The size of the last picture read, after its transforms.
    pub fn size(&self) -> Size {
        self.canvas.size()
    }
}

impl Transforms {
    /// An empty list: pictures keep their size, and are `u8` with channels last.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a transform.
    pub fn then(mut self, transform: impl Transform) -> Self {
        self.steps.push(Arc::new(transform));
        self
    }

    /// Resizes to `size` x `size`, bilinear with antialiasing.
    pub fn resize(self, size: usize) -> Self {
        self.then(Resize::exact(Size::new(size, size), Filter::Bilinear))
    }

    /// Resizes the shorter side to `length`, bilinear with antialiasing.
    pub fn resize_shorter_side(self, length: usize) -> Self {
        self.then(Resize::shorter_side(length, Filter::Bilinear))
    }

    /// Crops at random and resizes to `size` x `size`; see [`RandomResizedCrop`].
    pub fn random_resized_crop(self, size: usize) -> Self {
        self.then(RandomResizedCrop::new(Size::new(size, size)))
    }

    /// Crops `size` x `size` pixels at a random position; see [`RandomCrop`].
    pub fn random_crop(self, size: usize) -> Self {
        self.then(RandomCrop::new(Size::new(size, size)))
    }

    /// Crops `size` x `size` pixels from the centre; see [`CenterCrop`].
    pub fn center_crop(self, size: usize) -> Self {
        self.then(CenterCrop::new(Size::new(size, size)))
    }

    /// Adds a black border of `pixels` on every side.
    pub fn pad(self, pixels: usize) -> Self {
        self.then(Pad::new([pixels; 4], [0; 3]))
    }

    /// Flips left and right with this probability.
    pub fn flip(self, probability: f64) -> Self {
        self.then(FlipLeftRight { probability })
    }

    /// Flips top and bottom with this probability.
    pub fn flip_vertically(self, probability: f64) -> Self {
        self.then(FlipTopBottom { probability })
    }

    /// Rotates by a random multiple of 90 degrees.
    pub fn quarter_turn(self) -> Self {
        self.then(QuarterTurn)
    }

    /// Jitters brightness, contrast, saturation and hue; see [`ColorJitter`].
    pub fn color_jitter(self, brightness: f64, contrast: f64, saturation: f64, hue: f64) -> Self {
        self.then(ColorJitter { brightness, contrast, saturation, hue })
    }

    /// Converts to gray with this probability.
    pub fn grayscale(self, probability: f64) -> Self {
        self.then(Grayscale { probability })
    }

    /// Blurs with a kernel of `2 * radius + 1` pixels and a standard deviation from `low` to `high` pixels.
    pub fn gaussian_blur(self, radius: usize, low: f64, high: f64) -> Self {
        self.then(GaussianBlur { radius, sigma: (low, high) })
    }

    /// Applies `operations` random operations of a magnitude from 0 to 30; see [`RandAugment`].
    pub fn rand_augment(self, operations: usize, magnitude: u32) -> Self {
        self.then(RandAugment::new(operations, magnitude))
    }

    /// Applies one random operation of random magnitude; see [`TrivialAugment`].
    pub fn trivial_augment(self) -> Self {
        self.then(TrivialAugment)
    }

    /// Fills a random rectangle with one colour, with this probability; see [`Erase`].
    pub fn erase(self, probability: f64) -> Self {
        self.then(Erase::new(probability))
    }

    /// Normalises each channel to `f32`: `(level / 255 - mean) / std`. It runs last, wherever it is called.
    ///
    /// Without it the field is `u8`, a quarter of the size, and can be normalised on the device.
    pub fn normalise(mut self, mean: [f32; 3], std: [f32; 3]) -> Self {
        self.output.normalise(mean, std);
        self
    }

    /// Changes the field's shape from `[height, width, 3]` to `[3, height, width]`.
    pub fn channels_first(mut self) -> Self {
        self.output.order = ChannelOrder::First;
        self
    }

    /// Sets the channels and the type of the field. Default: [`Mode::Rgb`].
    ///
    /// For a picture of one channel, [`normalise`](Self::normalise) uses the first mean and deviation. Alpha
    /// becomes 0 to 1, and 16-bit levels are divided by 65535.
    ///
    /// ```
    /// use feedline_core::DType;
    /// use feedline_images::{Mode, Transforms};
    /// let depth = Transforms::new().center_crop(224).mode(Mode::U16);
    /// let spec = depth.field("depth")?;
    /// assert_eq!((spec.fields()[0].dtype(), spec.fields()[0].shape()), (DType::U16, &[224, 224, 1][..]));
    /// # Ok::<(), feedline_core::Error>(())
    /// ```
    pub fn mode(mut self, mode: Mode) -> Self {
        self.output.mode = mode;
        self
    }

    /// Limits the size of pictures, encoded and between transforms. Default: [`Limits::default`].
    pub fn limits(mut self, limits: Limits) -> Self {
        self.settings.limits = limits;
        self
    }

    /// Sets how chroma is upsampled, on workers and on a GPU. Default: [`Chroma::Interpolated`].
    pub fn chroma(mut self, chroma: Chroma) -> Self {
        self.settings.chroma = chroma;
        self
    }

    /// Lets the decoder reduce a JPEG if the first transform resizes to a fixed size. The decoder divides the
    /// size by 8, 4 or 2: the largest number that leaves at least the fixed size. Large photographs then take
    /// less than half the time.
    ///
    /// The pixels differ from those of a full decode, because the reduction has its own antialiasing, and a
    /// crop is rounded out to whole pixels of the reduced picture. Random numbers stay the same. Default:
    /// off.
    ///
    /// ```
    /// use feedline_images::Transforms;
    /// let training = Transforms::new().random_resized_crop(224).flip(0.5).scaled_decode();
    /// # let _ = training;
    /// ```
    pub fn scaled_decode(self) -> Self {
        Self { scaled_decode: true, ..self }
    }

    /// Lets pictures keep sizes of their own, of up to `max_pixels`: detection needs no one size. The field
    /// is ragged, with the values of a picture one after another, and `NAME.size` has height and width. A
    /// larger picture is a bad sample. Not for views, masks and transforms on the device.
    ///
    /// ```
    /// use feedline_images::{Filter, Resize, Transforms};
    /// let list = Transforms::new().then(Resize::sides(800, 1333, Filter::Bilinear)).own_sizes(1333 * 1333);
    /// let spec = list.channels_first().field("image")?;
    /// assert_eq!(spec.fields()[0].as_ragged().unwrap().max_per_sample(), 3 * 1333 * 1333);
    /// # Ok::<(), feedline_core::Error>(())
    /// ```
    pub fn own_sizes(self, max_pixels: usize) -> Self {
        Self { own_sizes: Some(max_pixels), ..self }
    }

    /// Whether pictures keep sizes of their own.
    pub fn has_own_sizes(&self) -> bool {
        self.own_sizes.is_some()
    }

    /// Whether the list crops, flips, turns or shifts pictures at random, or mixes them; see
    /// [`Transform::has_random_geometry`].
    pub fn has_random_geometry(&self) -> bool {
        self.mixing.is_some() || self.steps.iter().any(|step| step.has_random_geometry())
    }

    /// Checks that masks, boxes and points can move with the picture.
    ///
    /// # Errors
    /// `Config` for a transform whose moves are not known ([`Effect::Unknown`]), such as RandAugment, for
    /// [`scaled_decode`](Self::scaled_decode), which rounds crops, for [`mixup`](Self::mixup) and
    /// [`cutmix`](Self::cutmix), and for a list with a part on the device.
    pub fn check_moves(&self) -> Result<()> {
        self.check_effects("masks, boxes and points cannot follow", |effect| effect != Effect::Unknown)?;
        let refuse = |why: &str| Err(Error::new(ErrorKind::Config, why));
        if self.scaled_decode {
            let how = named("leave out scaled_decode()", "leave out scaled_decode=True");
            return refuse(&format!("a scaled decode rounds crops, and masks and boxes would be off: {how}"));
        }
        if self.mixing.is_some() {
            return refuse("masks, boxes and points cannot follow mixup and cutmix: leave these out");
        }
        if self.host.is_some_and(|steps| steps > 0) {
            return refuse(
                "masks, boxes and points follow a list that runs on one side: put on_device() first, or \
                 leave it out",
            );
        }
        Ok(())
    }

    /// Whether transforms run on the device.
    pub fn is_on_device(&self) -> bool {
        self.host.is_some()
    }

    fn check_effects(&self, why: &str, allows: impl Fn(Effect) -> bool) -> Result<()> {
        let Some(step) = self.steps.iter().find(|step| !allows(step.effect())) else { return Ok(()) };
        Err(Error::new(ErrorKind::Config, format!("{why} the transform {}: leave it out", name_of(&**step))))
    }

    /// Checks that the list suits the mode.
    pub(super) fn check_mode(&self) -> Result<()> {
        let mode = self.output.mode;
        let refuse =
            |why: &str| Err(Error::new(ErrorKind::Config, format!("pictures of mode {} {why}", mode.name())));
        if mode.is_plane() {
            let why = "a picture of numbers has no colours, so there is nothing to do for";
            self.check_effects(why, |effect| effect == Effect::Moves)?;
        }
        if mode == Mode::RgbAlpha {
            self.check_effects("alpha cannot follow", |effect| effect != Effect::Unknown)?;
        }
        if mode == Mode::Index && self.output.normal.is_some() {
            return refuse("are numbers of classes: leave out normalise");
        }
        if mode != Mode::Rgb && (self.host.is_some() || self.scaled_decode) {
            return refuse("are transformed on the host, and decoded whole: use mode rgb");
        }
        Ok(())
    }

    /// Checks that [`apply`](Self::apply) to the decoded picture has the same result as [`read`](Self::read).
    /// Several lists can then share one decoded picture.
    ///
    /// # Errors
    /// `Config` for pictures of numbers or with alpha, for [`scaled_decode`](Self::scaled_decode), and for
    /// transforms on the device.
    pub fn check_shared_decode(&self) -> Result<()> {
        let why = match self.output.mode {
            _ if self.host.is_some() => "its transforms run on the device: leave out on_device()",
            _ if self.has_own_sizes() => "pictures keep their own sizes: leave out own_sizes()",
            _ if self.scaled_decode => "the decode is scaled for it: leave out the scaled decode",
            Mode::Rgb | Mode::Gray => return Ok(()),
            Mode::RgbAlpha | Mode::U16 | Mode::Index => "its mode decodes in another way: use rgb or gray",
        };
        let why = format!("the list cannot share a decoded picture with others, since {why}");
        Err(Error::new(ErrorKind::Config, why))
    }

    /// Decodes a picture with the list's limits and chroma upsampling, and without its transforms.
    ///
    /// # Errors
    /// As [`Decoder::decode`].
    pub fn decode<'a>(&self, encoded: &[u8], decoder: &'a mut Decoder) -> Result<Picture<'a>> {
        decoder.set(self.settings);
        decoder.decode(encoded)
    }

    /// The size of all pictures that the host's part of the list makes; `None` if sizes differ.
    pub fn size(&self) -> Option<Size> {
        self.host_size()
    }

    /// A spec with one field, `name`, for the pictures that the list makes.
    ///
    /// # Errors
    /// `Config` if the list does not end with one size for all pictures.
    pub fn field(&self, name: &str) -> Result<Spec> {
        self.add_field(Spec::new(), name)
    }

    /// Adds the field `name` to `spec`.
    ///
    /// # Errors
    /// As [`field`](Self::field), and as [`Spec::field`].
    pub fn add_field(&self, spec: Spec, name: &str) -> Result<Spec> {
        self.check_mode()?;
        if let Some(pixels) = self.own_sizes {
            if self.host.is_some() {
                let why = "own_sizes is for pictures that the workers transform: leave out on_device()";
                return Err(Error::new(ErrorKind::Config, named(why, "own_sizes is for decode=\"cpu\"")));
            }
            let spec = self.output.own_field(spec, name, pixels)?;
            return spec.field(&format!("{name}.size"), DType::I64, [2]);
        }
        let Some(size) = self.host_size() else {
            let why = named(
                "the transforms leave pictures in sizes of their own: add resize, random_resized_crop or \
                 center_crop",
                "the transforms leave pictures in sizes of their own: end with one size, such as \
                 Resize((256, 256)), RandomResizedCrop(224) or CenterCrop(224); Resize(256) sets the shorter \
                 side only",
            );
            return Err(Error::new(ErrorKind::Config, why));
        };
        if self.host.is_none() {
            if self.mixing.is_some() || self.element.is_some() {
                let why = "mixup, cutmix and element run on the device: put on_device() before them";
                return Err(Error::new(ErrorKind::Config, why));
            }
            return self.output.field(spec, name, size);
        }
        self.device_part()?;
        let spec = spec.field(name, DType::U8, size.shape())?;
        spec.field(&format!("{name}.parameters"), DType::U32, [WORDS])
    }
}
