//! Samples that are read one at a time, outside of a loader.

use crate::{Context, Dataset, Error, ErrorKind, Layout, OneRow, ReadError, Result, Row, Rows, Sink};

/// One field of one sample.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Value {
    /// The elements: little-endian, in row-major order.
    pub bytes: Vec<u8>,
    /// The actual shape.
    pub shape: Vec<usize>,
}

/// One sample of any data set, even of one whose fields have no limit. The next sample reuses its memory.
///
/// ```
/// use feedline_core::{Context, Dataset, ElementType, Field, ReadError, Row, Spec, Values};
///
/// struct Words(Spec, [&'static str; 2]);
///
/// impl Dataset for Words {
///     fn len(&self) -> u64 { 2 }
///     fn spec(&self) -> &Spec { &self.0 }
///     fn read(&self, id: u64, row: &mut Row<'_, '_>, _: &mut Context) -> Result<(), ReadError> {
///         Ok(row.put(0, self.1[id as usize].as_bytes())?)
///     }
/// }
///
/// let spec = Spec::of_fields([Field::variable("word", ElementType::Text)]);
/// let (words, mut values) = (Words(spec, ["to", "be"]), Values::new());
/// values.read(&words, 1)?;
/// assert_eq!(values.fields()[0].bytes, b"be");
/// # Ok::<(), feedline_core::Error>(())
/// ```
#[derive(Debug)]
pub struct Values {
    values: Vec<Value>,
    context: Context,
}

impl Values {
    /// Makes a sample without values. The first read adds them.
    pub fn new() -> Self {
        Self { values: Vec::new(), context: Context::new(0, 0) }
    }

    /// The values of the last sample read, one per field.
    pub fn fields(&self) -> &[Value] {
        &self.values
    }

    /// Copies sample `id` of `data`: one value per field of its spec, in order.
    ///
    /// # Errors
    /// As [`Dataset::read`]; `Sample` if it puts fewer fields than the spec has.
    pub fn read(&mut self, data: &dyn Dataset, id: u64) -> Result<()> {
        let Self { values, context } = self;
        data.copy(id, values, context)
    }
}

impl Default for Values {
    fn default() -> Self {
        Self::new()
    }
}

/// # For loaders and readers
///
/// What loaders, bridges and sets that read other sets call. It may change in any release.
impl dyn Dataset {
    /// Reads sample `id`, and gives its fields to `sink`.
    ///
    /// # Errors
    /// As [`read`](crate::Dataset::read), and those of `sink`.
    pub fn visit(&self, id: u64, sink: &mut Sink<'_>, context: &mut Context) -> Result<()> {
        let mut rows = Rows::into_sink(self.spec(), sink.part(0));
        self.read_into(id, &mut rows.row(0), context).map_err(Error::of_read)
    }

    /// As [`read`](crate::Dataset::read), for a row that may be in no batch, even of a set whose fields have
    /// limits: they are written in a batch of one, and then given.
    ///
    /// # Errors
    /// As [`read`](crate::Dataset::read).
    pub fn read_into(&self, id: u64, row: &mut Row<'_, '_>, context: &mut Context) -> Result<(), ReadError> {
        let Some(sink) = row.sink().filter(|_| !self.spec().is_open()) else {
            return self.read(id, row, context);
        };
        let layout = Layout::new(self.spec(), 1)?;
        context.scoped_scratch(|one: &mut OneRow, context| {
            let row = one.read(self, &layout, id, context)?;
            let mut fields = 0..layout.spec().fields().len();
            Ok(fields.try_for_each(|index| sink.put(index, row.values(index), None))?)
        })
    }

    /// Copies sample `id` into `values`: one per field of the spec, in order.
    ///
    /// # Errors
    /// As `visit`; `Sample` if the read puts fewer fields than the spec has.
    pub fn copy(&self, id: u64, values: &mut Vec<Value>, context: &mut Context) -> Result<()> {
        let fields = self.spec().fields();
        values.resize_with(fields.len(), Value::default);
        let mut given = 0;
        let mut copy = |field: usize, bytes: &[u8], shape: Option<&[usize]>| {
            let (Some(value), Some(field)) = (values.get_mut(field), fields.get(field)) else {
                return Ok(());
            };
            given += 1;
            value.bytes.clear();
            value.bytes.extend_from_slice(bytes);
            value.shape.clear();
            value.shape.extend(field.shape_of(bytes.len(), shape));
            Ok(())
        };
        self.visit(id, &mut Sink::new(&mut copy), context)?;
        self.check_given(id, given)
    }

    /// Refuses sample `id` of a set that gave fewer fields than its spec has: the others would be those of an
    /// earlier sample.
    ///
    /// # Errors
    /// `Sample`.
    pub fn check_given(&self, id: u64, given: usize) -> Result<()> {
        let fields = self.spec().fields().len();
        if given >= fields {
            return Ok(());
        }
        let why =
            format!("the reader gave {given} of the {fields} fields of its schema: give all in each sample");
        Err(Error::new(ErrorKind::Sample, why).at_sample(id))
    }
}

impl std::fmt::Debug for dyn Dataset {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Dataset({} samples of {})", self.len(), self.spec())
    }
}
