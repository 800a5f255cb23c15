//! Writes token ids as Megatron's pairs of files.

use std::sync::Arc;
use std::sync::{Mutex, PoisonError};

use feedline::{DType, Error, ErrorKind};
use feedline_core::Dataset;
use feedline_datasets::{TokenPackOptions, Tokenized, open_with};
use pyo3::prelude::*;

use crate::dataset::detached;
use crate::error::{Raised, raise};
use crate::interpreter::attach;
use crate::opening::Opening;
use crate::own::dtype_named;

/// The options of `pack_tokens`.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct TokenPacking {
    tokenizer: Option<String>,
    field: Option<String>,
    end: Option<String>,
    dtype: Option<String>,
    threads: usize,
}

/// Writes the `.bin` file at `to` and the `.idx` file beside it. Returns the number of documents, the number
/// of their ids, and the number of documents of an earlier run.
#[pyfunction]
pub(crate) fn pack_tokens(
    py: Python<'_>,
    opening: Opening,
    to: &str,
    packing: TokenPacking,
    progress: Option<Py<PyAny>>,
) -> PyResult<(u64, u64, u64)> {
    let TokenPacking { tokenizer, field, end, dtype, threads } = packing;
    let dtype = dtype.as_deref().map(dtype_named).transpose().map_err(raise)?;
    let (from, opened) = opening.options()?;
    // If `progress` raises an exception, it is raised again after the files are written.
    let raised = Mutex::new(None);
    let packed = detached(py, || {
        let reader = open_with(from, &opened.open)?;
        let mut options = TokenPackOptions { threads, ..TokenPackOptions::new(dtype.unwrap_or(DType::I32)) };
        let reader: Arc<dyn Dataset> = match tokenizer {
            None => {
                options.field = field.unwrap_or(options.field);
                reader
            }
            Some(tokenizer) => {
                let ids = Tokenized::new(reader, field.as_deref().unwrap_or("text"), tokenizer)?;
                options.dtype = dtype.unwrap_or(TokenPackOptions::of_vocabulary(ids.vocabulary()).dtype);
                if let Some(end) = &end {
                    let missing = || {
                        let why = format!("end is {end:?}: the tokenizer has no such token");
                        Error::new(ErrorKind::Config, why)
                    };
                    options.end = Some(ids.token_id(end).ok_or_else(missing)?);
                }
                Arc::new(ids)
            }
        };
        feedline_datasets::pack_tokens(&*reader, to, &options, |documents| {
            let Some(progress) = &progress else { return };
            let called = attach(|py| {
                progress.call1(py, (documents,)).map(drop).map_err(|error| Raised::new(py, error).into())
            });
            if let Err(error) = called {
                raised.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
            }
        })
    })?;
    match raised.into_inner().unwrap_or_else(PoisonError::into_inner) {
        Some(error) => Err(raise(Error::new(ErrorKind::Config, "progress failed").with_source(error))),
        None => Ok((packed.documents, packed.tokens, packed.kept)),
    }
}
