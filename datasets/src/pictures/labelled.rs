//! Labelled images of any format, for the example trainer and decode servers. Finds the field of images and
//! the field of labels in a data set. Writes pixels and class as bytes. `labelled/sets.rs` opens the training
//! set and the test set of a path.

use std::sync::Arc;

use feedline_core::{
    About, Context, DType, Dataset, ElementType, Error, ErrorKind, Field, Fingerprint, Prefetched, Result,
    Row, Spec, Storage, StridedColumn, Value,
};

use crate::error::at_file;
use crate::over::{about, samples_over};

mod pictures;
mod sets;

use pictures::{Pictures, Scratch};
pub use sets::{LabelledSets, parts};

/// Names of fields that are likely to hold images. The likeliest come first.
const INPUTS: [&str; 12] =
    ["image", "input", "data", "jpg", "jpeg", "png", "webp", "img", "pixels", "image/encoded", "x", "bytes"];
/// Names of fields that are likely to hold classes.
const LABELS: [&str; 8] =
    ["label", "labels", "cls", "class", "target", "fine_label", "image/class/label", "y"];

/// The fields and classes of labelled images.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabelledOptions {
    /// The name of the field of images. If `None`, the content tells the field.
    pub input: Option<String>,
    /// The name of the field of classes. If `None`, the content tells the field.
    pub label: Option<String>,
    /// Number of classes, 1 to 256.
    pub classes: usize,
}

/// A data set with the fields "image" (`u8`) and "label" (`u8`, a scalar).
pub struct Labelled {
    inner: Arc<dyn Dataset>,
    /// The inner set's field that holds the image, and its decoder.
    input: (usize, Option<Pictures>),
    /// The inner set's field that holds the class.
    label: usize,
    classes: usize,
    spec: Spec,
}

/// A worker's memory.
#[derive(Default)]
struct Memory {
    values: Vec<Value>,
    scratch: Scratch,
}

impl Labelled {
    /// The samples of `inner`. If the options do not name a field, its content tells it.
    ///
    /// # Errors
    /// `Config` if there is no such field, or if several fields are possible. `Data` for a class that is not
    /// below `classes`.
    pub fn new(inner: Arc<dyn Dataset>, options: &LabelledOptions) -> Result<Self> {
        let (input, label) = (options.input.as_deref(), options.label.as_deref());
        let at = |error: Error| at_file(&*inner, 0, error);
        let fields = inner.spec().fields();
        let label = choose(fields, "label", label, &LABELS, is_label).map_err(at)?;
        let is_input = |field: &Field| is_input(field) && field.name() != fields[label].name();
        let input = choose(fields, "input", input, &INPUTS, is_input).map_err(at)?;
        let (pictures, spec) = match pixels(&fields[input]) {
            Some(shape) => (None, Spec::new().field("image", DType::U8, shape).map_err(at)?),
            None => {
                let (pictures, spec) = Pictures::new("image").map_err(at)?;
                (Some(pictures), spec)
            }
        };
        let spec = spec.field("label", DType::U8, [])?;
        let set = Self { input: (input, pictures), label, classes: options.classes, spec, inner };
        set.check_labels()?;
        Ok(set)
    }

    /// The number of values of an image, over all colours.
    pub fn pixels(&self) -> usize {
        self.spec.fields()[0].row_bytes()
    }

    /// Checks classes that are in memory, because the device may read them without a call of `read`.
    fn check_labels(&self) -> Result<()> {
        let Some(column) = self.storage().column(1) else { return Ok(()) };
        for id in 0..self.len() {
            let class = column.row(id).and_then(|row| row.first()).copied().unwrap_or_default();
            self.class(i64::from(class)).map_err(|error| self.located(id, error))?;
        }
        Ok(())
    }

    /// `label` as a class of the model.
    fn class(&self, label: i64) -> Result<u8> {
        // There are at most 256 classes.
        usize::try_from(label).ok().filter(|&label| label < self.classes).map(|label| label as u8).ok_or_else(
            || {
                let why = format!(
                    "label {label} is outside the {} classes: give the right number with --classes, or \
                     another field with --label",
                    self.classes
                );
                Error::new(ErrorKind::Data, why)
            },
        )
    }

    fn located(&self, id: u64, error: Error) -> Error {
        at_file(&*self.inner, id, error.at_sample(id))
    }

    fn write(
        &self,
        id: u64,
        row: &mut Row<'_, '_>,
        memory: &mut Memory,
        context: &mut Context,
    ) -> Result<()> {
        let Memory { values, scratch } = memory;
        context.with_stream(0, |context| self.inner.copy(id, values, context))?;
        let (input, label) = (&values[self.input.0], &values[self.label]);
        match &self.input.1 {
            Some(pictures) => pictures.read(&input.bytes, context, scratch, row.bytes_mut(0))?,
            None if input.bytes.len() == self.pixels() => row.write(0, &input.bytes),
            None => {
                let why = format!("the image has {} bytes instead of {}", input.bytes.len(), self.pixels());
                return Err(Error::new(ErrorKind::Sample, why));
            }
        }
        let label = number(&self.inner.spec().fields()[self.label], label)?;
        row.write(1, &[self.class(label)?]);
        Ok(())
    }
}

impl Dataset for Labelled {
    samples_over!(self => About { has_random_geometry: false, ..about(&*self.inner) });

    fn fingerprint(&self) -> u64 {
        let fields = [self.input.0, self.label].map(|field| field as u64);
        let state = Fingerprint::new().spec(&self.spec).number(self.len()).number(fields[0]);
        state.number(fields[1]).number(self.inner.fingerprint()).value()
    }
}

impl Storage for Labelled {
    fn prefetch(&self, ids: &[u64], context: &mut Context) -> Prefetched {
        self.inner.storage().prefetch(ids, context)
    }

    fn column(&self, field: usize) -> Option<StridedColumn<'_>> {
        let field = match (field, &self.input) {
            (0, (input, None)) => *input,
            (1, _) => self.label,
            _ => return None,
        };
        let is_byte = self.inner.spec().fields()[field].element() == ElementType::Number(DType::U8);
        is_byte.then(|| self.inner.storage().column(field)).flatten()
    }
}

/// The field that `--{option}` names. By default, the first of `names` that fits, or else the only field that
/// fits.
fn choose(
    fields: &[Field],
    option: &str,
    name: Option<&str>,
    names: &[&str],
    fits: impl Fn(&Field) -> bool,
) -> Result<usize> {
    let refuse = |why: String| {
        let all: Vec<_> = fields.iter().map(ToString::to_string).collect();
        Err(Error::new(ErrorKind::Config, format!("{why}, there are: {}", all.join(", "))))
    };
    let named = |name: &str| fields.iter().position(|field| field.name() == name && fits(field));
    if let Some(name) = name {
        let found = named(name).map_or_else(|| refuse(format!("--{option} {name} is not a field")), Ok);
        return found;
    }
    if let Some(found) = names.iter().find_map(|name| named(name)) {
        return Ok(found);
    }
    let mut fitting = (0..fields.len()).filter(|&field| fits(&fields[field]));
    match (fitting.next(), fitting.next()) {
        (Some(only), None) => Ok(only),
        (Some(_), Some(_)) => {
            refuse(format!("several fields could be the {option}: name one with --{option}"))
        }
        (None, _) => refuse(format!("no field looks like the {option}: give other data")),
    }
}

/// The shape of an image of pixels. `None` for an encoded image.
fn pixels(field: &Field) -> Option<Vec<usize>> {
    field.dims().iter().copied().collect()
}

/// Whether a field can be the image. It can be bytes of one size, or encoded pictures.
fn is_input(field: &Field) -> bool {
    match (field.element(), field.dims()) {
        (ElementType::Bytes, [None]) => true,
        (ElementType::Number(DType::U8) | ElementType::Bool | ElementType::Bytes, shape) => {
            !shape.is_empty() && shape.iter().all(Option::is_some)
        }
        _ => false,
    }
}

/// Whether a field can be the class. It can be a whole number, or a number as text, such as WebDataset's
/// `cls`.
fn is_label(field: &Field) -> bool {
    use DType::{I8, I16, I32, I64, U8, U16, U32};
    match (field.element(), field.dims()) {
        (ElementType::Number(U8 | U16 | U32 | I8 | I16 | I32 | I64), shape) => {
            shape.iter().all(|dim| *dim == Some(1))
        }
        (ElementType::U64 | ElementType::Bool, []) => true,
        (ElementType::Bytes | ElementType::Text, [None]) => ["cls", "label", "class"].contains(&field.name()),
        _ => false,
    }
}

/// The whole number that `value` holds.
fn number(field: &Field, value: &Value) -> Result<i64> {
    if let ElementType::Bytes | ElementType::Text = field.element() {
        let text = String::from_utf8_lossy(&value.bytes);
        return text.trim().parse().map_err(|error| {
            let (class, name) = (text.trim(), field.name());
            let why = format!("the class {class:?} in field \"{name}\" is not a whole number");
            Error::new(ErrorKind::Sample, why).with_source(error)
        });
    }
    let is_signed =
        matches!(field.element(), ElementType::Number(DType::I8 | DType::I16 | DType::I32 | DType::I64));
    let is_negative = is_signed && value.bytes.last().is_some_and(|&last| last >= 0x80);
    // Little-endian, sign-extended.
    let mut bytes = [if is_negative { 0xFF } else { 0 }; 8];
    match bytes.get_mut(..value.bytes.len()) {
        Some(low) if !low.is_empty() => low.copy_from_slice(&value.bytes),
        _ => {
            let (name, len) = (field.name(), value.bytes.len());
            let why = format!("field \"{name}\" has {len} bytes, which is not a number");
            return Err(Error::new(ErrorKind::Sample, why));
        }
    }
    Ok(i64::from_le_bytes(bytes))
}
