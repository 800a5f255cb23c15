//! The fields of readers, which are open: they may vary in size without a limit, and have types that batches
//! lack. Batches take a field once it is closed.

use std::fmt;

use super::{ElementType, Field, Meaning, Spec};
use crate::{DType, Error, ErrorKind, Result, named};

/// # For loaders and readers
///
/// What loaders, bridges and sets that read other sets call. It may change in any release.
impl Spec {
    /// The fields of a reader, as they are: they may vary in size without a limit, and have types that
    /// batches lack. A set of them has a spec that is [closed](Self::closed).
    ///
    /// ```
    /// use feedline_core::{DType, Field, Spec, spec::ElementType};
    ///
    /// let label = Field::fixed("label", ElementType::Number(DType::I64), &[]);
    /// let spec = Spec::of_fields([Field::variable("jpg", ElementType::Bytes), label]);
    /// assert_eq!(spec.to_string(), "jpg bytes [?], label i64 []");
    /// assert!(spec.closed().unwrap_err().to_string().contains("\"jpg\""));
    /// ```
    pub fn of_fields(fields: impl IntoIterator<Item = Field>) -> Self {
        Self { fields: fields.into_iter().collect() }
    }

    /// Whether a field is open: samples have it, and batches do not until it is closed or has a limit.
    pub fn is_open(&self) -> bool {
        self.fields.iter().any(|field| field.row_bytes == 0)
    }

    /// Refuses a spec that [is open](Self::is_open), for a set that needs the size of a sample.
    ///
    /// # Errors
    /// `Config`. The error names the field.
    pub(crate) fn check_closed(&self) -> Result<()> {
        let Some(open) = self.fields.iter().find(|field| field.row_bytes == 0) else { return Ok(()) };
        let why = named(
            "has the type of a file, which no batch has: load the set by Bounded::new",
            "has the type of a file, which no batch has: open it by feedline.open",
        );
        let why = Error::new(ErrorKind::Config, format!("field \"{}\" {why}", open.name));
        Err(open.closed().err().unwrap_or(why))
    }

    /// The spec of batches of these samples: each field [closed](Field::closed).
    ///
    /// # Errors
    /// `Config` if a field varies in size or is of a type that batches lack, or if [`Spec::field`] refuses
    /// it. The error names the field.
    pub fn closed(&self) -> Result<Self> {
        self.fields.iter().try_fold(Self::new(), |spec, field| spec.add(field.closed()?))
    }
}

/// # For loaders and readers
///
/// What loaders, bridges and sets that read other sets call. It may change in any release.
impl Field {
    /// A field of a reader, of any type and size: `None` for a dimension that differs between samples.
    /// Batches take it once it is [closed](Self::closed), or has a limit; until then it has no bytes per
    /// sample.
    pub fn open(
        name: impl Into<String>,
        element: ElementType,
        dims: impl IntoIterator<Item = Option<usize>>,
    ) -> Self {
        Self {
            name: name.into(),
            dtype: DType::U8,
            shape: Vec::new(),
            row_bytes: 0,
            ragged: None,
            element,
            dims: dims.into_iter().collect(),
            meaning: Meaning::Plain,
        }
    }

    /// As [`open`](Self::open), for a field that has the shape `shape` in every sample. `[]` is a scalar.
    pub fn fixed(name: impl Into<String>, element: ElementType, shape: &[usize]) -> Self {
        Self::open(name, element, shape.iter().copied().map(Some))
    }

    /// As [`open`](Self::open), for a field with one dimension that varies, such as the bytes of an image.
    pub fn variable(name: impl Into<String>, element: ElementType) -> Self {
        Self::open(name, element, [None])
    }

    /// The same field, under another name.
    #[must_use]
    pub fn named(self, name: impl Into<String>) -> Self {
        Self { name: name.into(), ..self }
    }

    /// The same field, with what its values are.
    #[must_use]
    pub fn with_meaning(self, meaning: Meaning) -> Self {
        Self { meaning, ..self }
    }

    /// The type of an element, as the file has it.
    pub fn element(&self) -> ElementType {
        self.element
    }

    /// The shape in one sample: `None` for a dimension that differs between samples.
    pub fn dims(&self) -> &[Option<usize>] {
        &self.dims
    }

    /// What the values are, beyond their type.
    pub fn meaning(&self) -> Meaning {
        self.meaning
    }

    /// Units per day, if the field holds dates or times.
    pub fn ticks_per_day(&self) -> Option<u64> {
        match self.meaning {
            Meaning::Time { per_day } => Some(per_day),
            _ => None,
        }
    }

    /// The shape of a value of `bytes` bytes: `stated`, or what the bytes determine if at most one dimension
    /// varies.
    pub fn shape_of<'a>(
        &'a self,
        bytes: usize,
        stated: Option<&'a [usize]>,
    ) -> impl Iterator<Item = usize> + Clone + 'a {
        let item = self.dims.iter().flatten().product::<usize>() * self.element.size();
        let of_bytes = self.dims.iter().map(move |dim| dim.unwrap_or(bytes / item.max(1)));
        let of_bytes = of_bytes.take(if stated.is_some() { 0 } else { usize::MAX });
        stated.unwrap_or_default().iter().copied().chain(of_bytes)
    }

    /// The field of batches: bytes and texts become `u8`. A complex number becomes two floats, in an added
    /// last dimension. A field of a data set is closed already, and is returned as it is.
    ///
    /// # Errors
    /// `Config` if a dimension varies, an element is `u64`, or the shape has a zero or is too large. The
    /// error names the field.
    pub fn closed(&self) -> Result<Self> {
        if self.row_bytes > 0 {
            return Ok(self.clone());
        }
        let Some(mut shape) = self.dims.iter().copied().collect::<Option<Vec<usize>>>() else {
            let why = named(
                "varies in size from sample to sample: load it by Bounded::measured, or make it one size",
                "varies in size from sample to sample: open it by feedline.open, or make it one size",
            );
            return Err(Error::new(ErrorKind::Config, format!("field \"{}\" {why}", self.name)));
        };
        let (dtype, parts) = self.batch_type()?;
        shape.extend_from_slice(parts);
        Self::new(&self.name, dtype, shape, None)
    }

    /// The dtype in batches, and the dimensions that it adds. The two parts of a complex number add the
    /// dimension 2.
    ///
    /// # Errors
    /// `Config` for an element that batches do not have. The error names the field.
    pub fn batch_type(&self) -> Result<(DType, &'static [usize])> {
        self.element.batch_type().ok_or_else(|| {
            let why = format!("field \"{}\" is u64, which batches do not have: store it as i64", self.name);
            Error::new(ErrorKind::Config, why)
        })
    }
}

impl fmt::Display for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, field) in self.fields.iter().enumerate() {
            write!(f, "{}{field}", if index == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} [", self.name, self.element)?;
        for (index, dim) in self.dims.iter().enumerate() {
            let separator = if index == 0 { "" } else { ", " };
            match dim {
                Some(dim) => write!(f, "{separator}{dim}")?,
                None => write!(f, "{separator}?")?,
            }
        }
        f.write_str("]")
    }
}
