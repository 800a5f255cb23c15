//! Fields of concatenated documents: ids, labels, weights.

use std::ops::Range;

use crate::lengths::ReadRow;
use crate::{DType, Element, Error, ErrorKind, Field, Result, Spec};

/// The label of an item that is not learnt.
const IGNORED: i64 = -100;

/// A requested field.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    /// Its name, the same as in the documents, or the documents' field that it is made from.
    pub(crate) name: String,
    pub(crate) of: String,
    /// The bytes of a padding element; `None` for zero, or -100 for labels.
    fill: Option<Vec<u8>>,
    /// Whether the field is labels: the first item of each document is then not learnt.
    is_label: bool,
}

impl Asked {
    pub(crate) fn new(name: &str) -> Self {
        Self { name: name.to_owned(), of: name.to_owned(), fill: None, is_label: false }
    }

    pub(crate) fn filled<T: Element>(name: &str, fill: T) -> Self {
        Self { fill: Some(bytemuck::bytes_of(&fill).to_vec()), ..Self::new(name) }
    }

    pub(crate) fn labels(name: &str, of: &str) -> Self {
        Self { of: of.to_owned(), is_label: true, ..Self::new(name) }
    }
}

/// A field of documents, and its layout.
#[derive(Clone, Debug)]
pub(crate) struct Items {
    pub(crate) name: String,
    pub(crate) dtype: DType,
    /// The field of the documents.
    field: usize,
    /// Whether a document has one element, repeated for all of its items.
    is_single: bool,
    fill: Vec<u8>,
    is_label: bool,
    /// Max items of a document.
    pub(crate) max: usize,
}

impl Items {
    /// The fields `asked` of documents of this spec; the first one determines the number of items of a
    /// document.
    pub(crate) fn of(spec: &Spec, asked: &[Asked]) -> Result<Vec<Self>> {
        if asked.is_empty() {
            return Err(config("there is no field to lay out: name one, such as \"ids\""));
        }
        let items: Vec<Self> = asked.iter().map(|asked| Self::one(spec, asked)).collect::<Result<_>>()?;
        if items[0].is_single {
            let why =
                format!("field \"{}\" cannot be packed: it must be ragged, of single elements", asked[0].of);
            return Err(config(why));
        }
        Ok(items)
    }

    fn one(spec: &Spec, asked: &Asked) -> Result<Self> {
        let field = spec.index_of(&asked.of)?;
        let of: &Field = &spec.fields()[field];
        if !of.shape().is_empty() {
            let why = format!(
                "field \"{}\" cannot be packed: its items have the shape {:?}, and it must be of single \
                 elements",
                asked.of,
                of.shape()
            );
            return Err(config(why));
        }
        let (dtype, size) = (of.dtype(), of.dtype().size());
        let fill = match (&asked.fill, asked.is_label) {
            (Some(fill), _) if fill.len() != size || !dtype.accepts(fill) => {
                let why = format!("field \"{}\" is {dtype}, and the element of its padding is not", asked.of);
                return Err(config(why));
            }
            (Some(fill), _) => fill.clone(),
            (None, false) => vec![0; size],
            (None, true) => match dtype {
                DType::I64 => IGNORED.to_ne_bytes().to_vec(),
                DType::I32 => (IGNORED as i32).to_ne_bytes().to_vec(),
                DType::I16 => (IGNORED as i16).to_ne_bytes().to_vec(),
                _ => {
                    let why =
                        format!("labels are i64 or i32, to hold -100, and field \"{}\" is {dtype}", asked.of);
                    return Err(config(why));
                }
            },
        };
        let (is_single, max) = match of.as_ragged() {
            Some(ragged) => (false, ragged.max_per_sample()),
            None => (true, 0),
        };
        let (name, is_label) = (asked.name.clone(), asked.is_label);
        Ok(Self { name, dtype, field, is_single, fill, is_label, max })
    }

    /// Checks that a document has `items` items in this field, as in the field `first`.
    pub(crate) fn check(&self, document: &ReadRow<'_>, items: usize, first: &str) -> Result<()> {
        let found = self.count(document);
        if self.is_single || found == items {
            return Ok(());
        }
        let why = format!("its field \"{}\" has {found} items, \"{first}\" has {items}", self.name);
        Err(Error::new(ErrorKind::Sample, why))
    }

    /// The items of a document.
    pub(crate) fn count(&self, document: &ReadRow<'_>) -> usize {
        document.values(self.field).len() / self.dtype.size()
    }

    /// Writes the items `items` of a document to `to`, which has their size.
    pub(crate) fn write(&self, document: &ReadRow<'_>, items: Range<usize>, to: &mut [u8]) {
        self.write_values(self.values(document), items, to);
    }

    /// The bytes of the field of a document.
    pub(crate) fn values<'a>(&self, document: &ReadRow<'a>) -> &'a [u8] {
        document.values(self.field)
    }

    /// As [`write`](Self::write), from the [`values`](Self::values) of a document.
    pub(crate) fn write_values(&self, values: &[u8], items: Range<usize>, to: &mut [u8]) {
        let size = self.dtype.size();
        if self.is_single {
            to.chunks_exact_mut(size).for_each(|item| item.copy_from_slice(values));
        } else {
            to.copy_from_slice(&values[items.start * size..items.end * size]);
        }
        if self.is_label && !to.is_empty() {
            to[..size].copy_from_slice(&self.fill);
        }
    }

    /// Writes padding.
    pub(crate) fn pad(&self, to: &mut [u8]) {
        to.chunks_exact_mut(self.fill.len()).for_each(|item| item.copy_from_slice(&self.fill));
    }

    /// The properties of the field, for a fingerprint.
    pub(crate) fn key(&self) -> (u64, &[u8], u64) {
        (self.field as u64, &self.fill, u64::from(self.is_label))
    }
}

fn config(why: impl Into<String>) -> Error {
    Error::new(ErrorKind::Config, why)
}
