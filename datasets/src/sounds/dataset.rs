//! Sounds of any data set, decoded and cropped into rows.

use std::io::{Cursor, Read, Seek};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use feedline_audio::{Scratch, SoundField, SoundFile, Sounds};
use feedline_core::{
    About, Context, Dataset, Error, ErrorKind, Fingerprint, Prefetched, Result, Row, Sink, Spec, Storage,
};

use super::lengths;
use crate::error::{at_file, check_not_empty};
use crate::over::{about, draw_beside, field_path, samples_over};
use crate::pictures::others::{Others, file_field, find_files};

/// Names of fields with encoded sounds. The first field in the schema with such a name is decoded.
const NAMES: [&str; 14] = [
    "sound",
    "audio",
    "data",
    "wav",
    "flac",
    "mp3",
    "ogg",
    "m4a",
    "aac",
    "clip",
    "speech",
    "path",
    "audio_bytes",
    "bytes",
];

/// The sounds in a field of any data set, decoded and cropped. The inner set may be a folder, a tar archive,
/// a table or a manifest.
///
/// A sample has the field `sound`, as the [`Sounds`] make it. If sounds are cropped, it has `sound.length`.
/// It also has every other field of the inner set that has one size, such as `label`. WebDataset's `cls`, a
/// number as text, becomes the field `label` (`i64`). Fields that vary in size are left out, unless you name
/// them in [`beside`](Self::beside).
///
/// Of a file on disk or in a plain archive, only the part of the crop is read. [`Context::random`] draws
/// random crops. So workers, ranks and a resume do not change the sounds of an epoch. A sound that comes
/// several times in an epoch gets a new crop each time. When a sound is first read, its frames are counted,
/// see [`SoundFile::frames`].
///
/// A sound that was cut short or is damaged is a bad sample.
///
/// ```no_run
/// use feedline_audio::{Crop, Sounds};
/// use feedline_datasets::{ManifestOptions, SoundDataset, open_sounds};
///
/// let clips = open_sounds("clips.csv", &ManifestOptions::default())?;
/// let sounds = Sounds::new().rate(16_000).crop(32_000, Crop::Random);
/// let data = SoundDataset::new(clips, sounds)?.beside(["sentence"])?;
/// # Ok::<(), feedline_core::Error>(())
/// ```
#[derive(Debug)]
pub struct SoundDataset {
    inner: Arc<dyn Dataset>,
    /// The inner set's field that holds the sound.
    sound: usize,
    field: SoundField,
    /// For each sound, 1 plus its number of frames. 0 until the frames are counted.
    frames: Vec<AtomicU64>,
    /// If sounds are not cropped, the number of items of each sound. 0 for a sound that cannot be read.
    lengths: Vec<u32>,
    /// The fields of one size that follow the fields of the sound.
    others: Others,
    /// The inner set's fields of varying size, and their indices in the data set.
    varying: Vec<(usize, usize)>,
    spec: Spec,
}

impl SoundDataset {
    /// The sounds in the inner set's field called `sound`, `audio`, `data`, `wav` or the like. If there is
    /// none, the sounds in its only field of bytes.
    ///
    /// If sounds are not cropped, all cores open each file once to find the length of the longest sound. The
    /// loader reports files that cannot be read. If no rate is set, the rate of the first file is used.
    ///
    /// # Errors
    /// `Config` if no field of bytes has such a name, and as [`Sounds::field`]. `Data` if no sound can be
    /// read.
    pub fn new(inner: Arc<dyn Dataset>, sounds: Sounds) -> Result<Self> {
        let name = file_field(&*inner, &NAMES, "sounds")?;
        Self::with_field(inner, &name, sounds)
    }

    /// The sounds in the inner set's field called `name`.
    ///
    /// # Errors
    /// As [`new`](Self::new). `Config` if there is no such field, or it does not hold bytes.
    pub fn with_field(inner: Arc<dyn Dataset>, name: &str, sounds: Sounds) -> Result<Self> {
        let sound = find_files(&*inner, name)?;
        check_not_empty(&*inner)?;
        let rate = match sounds.stated_rate() {
            Some(rate) => rate,
            None => with_sound(&*inner, sound, 0, &mut Context::new(0, 0), |sound| Ok(sound.rate()))
                .map_err(|error| at_file(&*inner, 0, error.at_sample(0)))?,
        };
        let field = sounds.field(rate)?;
        let frames = (0..inner.len()).map(|_| AtomicU64::new(0)).collect();
        let (others, spec) = Others::add(&*inner, Spec::new(), |index| index == sound)?;
        let varying = Vec::new();
        let mut data = Self { inner, sound, field, frames, lengths: Vec::new(), others, varying, spec };
        let mut max = 0;
        if !sounds.is_cropped() {
            let found = lengths::measure(data.inner.len(), |id, context| data.measure(id, context))?;
            max = lengths::max(&found);
            data.lengths = found.into_iter().map(Option::unwrap_or_default).collect();
        }
        let spec = data.field.add(Spec::new(), "sound", max)?;
        (data.others, data.spec) = Others::add(&*data.inner, spec, |index| index == sound)?;
        Ok(data)
    }

    /// Adds fields of the inner set that vary in size as ragged fields, such as the spoken sentence. They are
    /// read once to find the longest value. Sounds are not read for it.
    ///
    /// # Errors
    /// `Config` for a field that does not exist or has one size, and for a type that batches do not have. As
    /// [`Dataset::read`](feedline_core::Dataset::read) if no sample can be read.
    pub fn beside<S: AsRef<str>>(mut self, fields: impl IntoIterator<Item = S>) -> Result<Self> {
        for name in fields {
            let name = name.as_ref();
            let found = self.inner.spec().fields().iter().position(|field| field.name() == name);
            let at = |why: String| Err(at_file(&*self.inner, 0, Error::new(ErrorKind::Config, why)));
            let Some(index) = found else {
                return at(format!("no field \"{name}\" to go beside the sounds, in {}", self.inner.spec()));
            };
            let field = &self.inner.spec().fields()[index];
            if field.dims() != [None] || index == self.sound {
                return at(format!(
                    "{field} cannot go beside the sounds: name fields that vary in one dimension; those of \
                     one size are there already"
                ));
            }
            let (dtype, parts) = field.batch_type()?;
            let (parts, bytes) = (parts.to_vec(), field.element().size());
            let found = lengths::measure(self.inner.len(), |id, context| {
                let mut length = 0;
                let mut count = |_: usize, value: &[u8], _: Option<&[usize]>| {
                    length = u32::try_from(value.len() / bytes.max(1)).unwrap_or(u32::MAX);
                    Ok(())
                };
                let is_it = |other| other == index;
                self.inner.visit(id, &mut Sink::some(&is_it, &mut count), context)?;
                Ok(length)
            })?;
            self.varying.push((index, self.spec.fields().len()));
            self.spec = self.spec.ragged(name, dtype, parts, lengths::max(&found))?;
        }
        Ok(self)
    }

    /// The names of the inner set's fields that are left out because they vary in length, such as
    /// transcripts. [`beside`](Self::beside) adds them.
    pub fn left_out(&self) -> Vec<&str> {
        let fields = self.inner.spec().fields();
        let is_beside = |name: &&str| self.varying.iter().any(|(index, _)| fields[*index].name() == *name);
        self.others.left_out().iter().map(String::as_str).filter(|name| !is_beside(name)).collect()
    }

    /// The inner set.
    pub fn inner(&self) -> &dyn Dataset {
        &*self.inner
    }

    /// The number of frames of each sound in a batch, or of windows of its spectrogram.
    /// [`Sampler::bucketed`](feedline_core::Sampler::bucketed) takes it. 0 for a sound that cannot be read.
    /// Empty if sounds are cropped.
    pub fn lengths(&self) -> &[u32] {
        &self.lengths
    }

    /// Frames per second in a batch.
    pub fn rate(&self) -> u32 {
        self.field.rate()
    }

    fn measure(&self, id: u64, context: &mut Context) -> Result<u32> {
        let length = with_sound(&*self.inner, self.sound, id, context, |sound| {
            let frames = self.count(id, sound)?;
            let items = self.field.items_of(frames, sound.rate()).and_then(|items| u32::try_from(items).ok());
            items
                .ok_or_else(|| Error::new(ErrorKind::Sample, "the sound is too long: crop it, or allow more"))
        });
        length.map_err(|error| at_file(&*self.inner, id, error.at_sample(id)))
    }

    /// The number of frames of a sound. The first read counts them.
    fn count(&self, id: u64, sound: &mut SoundFile<'_>) -> Result<u64> {
        let counted = &self.frames[id as usize];
        match counted.load(Ordering::Relaxed) {
            0 => {
                let frames = sound.frames()?;
                counted.store(frames.saturating_add(1), Ordering::Relaxed);
                Ok(frames)
            }
            counted => Ok(counted - 1),
        }
    }

    fn write(
        &self,
        id: u64,
        row: &mut Row<'_, '_>,
        scratch: &mut Scratch,
        context: &mut Context,
    ) -> Result<()> {
        let written = draw_beside(context, |random, context| {
            with_sound(&*self.inner, self.sound, id, context, |sound| {
                let frames = self.count(id, sound)?;
                self.field.write(sound, frames, random, scratch, row, 0)
            })
        });
        written.map_err(|error| match field_path(&*self.inner, id, self.sound) {
            Some(path) if error.path().is_none() => error.at_path(path),
            _ => error,
        })?;
        let mut write = |index: usize, bytes: &[u8], _: Option<&[usize]>| match self
            .varying
            .iter()
            .find(|(varying, _)| *varying == index)
        {
            Some((_, place)) => row.write_ragged_bytes(*place, bytes),
            None => self.others.write(&*self.inner, index, bytes, row),
        };
        let is_beside = |index| index != self.sound;
        let beside = &mut Sink::some(&is_beside, &mut write);
        context.with_stream(0, |context| self.inner.visit(id, beside, context))
    }
}

/// Opens the sound of sample `id`, and calls `work` with it.
fn with_sound<T>(
    inner: &dyn Dataset,
    field: usize,
    id: u64,
    context: &mut Context,
    work: impl FnOnce(&mut SoundFile<'_>) -> Result<T>,
) -> Result<T> {
    fn open<'a>(source: impl Read + Seek + Send + Sync + 'a, len: u64) -> Result<SoundFile<'a>> {
        SoundFile::open(source, len)
    }
    if let Some(stream) = inner.storage().stream(id, field)? {
        let len = stream.len();
        return work(&mut open(stream, len)?);
    }
    let (mut work, mut done) = (Some(work), None);
    let mut open_it = |_: usize, bytes: &[u8], _: Option<&[usize]>| {
        if let Some(work) = work.take() {
            done = Some(work(&mut open(Cursor::new(bytes), bytes.len() as u64)?)?);
        }
        Ok(())
    };
    inner.visit(id, &mut Sink::some(&|index| index == field, &mut open_it), context)?;
    done.ok_or_else(|| Error::new(ErrorKind::Data, "the sample has no sound"))
}

impl Dataset for SoundDataset {
    samples_over!(self => About { has_random_geometry: self.field.is_random(), ..about(&*self.inner) });

    fn fingerprint(&self) -> u64 {
        Fingerprint::new().spec(&self.spec).number(self.len()).number(self.inner.fingerprint()).value()
    }
}

impl Storage for SoundDataset {
    fn prefetch(&self, ids: &[u64], context: &mut Context) -> Prefetched {
        self.inner.storage().prefetch(ids, context)
    }
}
