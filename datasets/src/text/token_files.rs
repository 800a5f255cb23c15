//! Files of token ids. Their header or index states the dtype and the position of the ids.
//!
//! | file | ids | documents |
//! | --- | --- | --- |
//! | `.bin` beside `.idx`, of Megatron and fairseq | `.bin` | listed in `.idx` |
//! | llm.c, modded-nanogpt | after a header of 1,024 bytes | each begins with the token that ends a text |
//! | `.npy` of one dimension | after its header | not marked |

use std::path::PathBuf;

use feedline_core::{DType, Result};

use crate::error::data;
use crate::formats::npy;
use crate::io::bytes::Content;

mod documents;
pub(crate) mod index;
pub(crate) mod llm_c;

pub use documents::TokenDocuments;

/// The ids of a file. They have one dtype.
#[derive(Debug)]
pub(crate) struct Ids {
    pub(crate) path: PathBuf,
    pub(crate) content: Content,
    pub(crate) dtype: DType,
    /// The offset of the first id in bytes, and the number of ids.
    pub(crate) first: u64,
    pub(crate) count: u64,
}

impl Ids {
    /// The ids in `content`. Its header or the index beside it states their dtype.
    pub(crate) fn stated(path: PathBuf, content: Content, index: Option<index::Index>) -> Result<Self> {
        if let Some(index) = index {
            let dtype = index.dtype();
            let count = index.ids(&content)?;
            return Ok(Self { path, content, dtype, first: 0, count });
        }
        let start = content.read(0, content.len().min(llm_c::HEADER) as usize)?;
        if let Some(header) = llm_c::Header::parsed(&start, content.len())? {
            let (dtype, count) = (header.dtype, header.tokens);
            return Ok(Self { path, content, dtype, first: llm_c::HEADER, count });
        }
        if start.starts_with(npy::header::MAGIC) {
            let (dtype, first, count) = npy::numbers(&content)?;
            return Ok(Self { path, content, dtype, first, count });
        }
        if index::is_index(&start) {
            return Err(data("this is an index of token ids: give the .bin file beside it").at_offset(0));
        }
        let how = feedline_core::named(
            "state it, TokenOptions::new(DType::U16, window)",
            "state it, dtype=\"u16\"",
        );
        Err(data(format!("the file has no header that states the type of its ids: {how}")))
    }
}

/// Checks that ids of type `dtype` can be token ids.
pub(crate) fn check_ids(dtype: DType) -> Result<()> {
    match dtype {
        DType::F16 | DType::BF16 | DType::F32 | DType::F64 | DType::Bool => {
            Err(data(format!("the file holds {dtype}, and token ids are whole numbers: read it by `open`")))
        }
        _ => Ok(()),
    }
}

/// Appends `ids` of type `dtype` as `i64`. Floating-point numbers are appended unchanged.
fn widen(dtype: DType, ids: &[u8], to: &mut Vec<u8>) {
    macro_rules! each {
        ($type:ty) => {
            ids.as_chunks::<{ size_of::<$type>() }>()
                .0
                .iter()
                .for_each(|id| to.extend(i64::from(<$type>::from_le_bytes(*id)).to_le_bytes()))
        };
    }
    match dtype {
        DType::U8 | DType::Bool => each!(u8),
        DType::I8 => each!(i8),
        DType::U16 => each!(u16),
        DType::I16 => each!(i16),
        DType::U32 => each!(u32),
        DType::I32 => each!(i32),
        DType::I64 | DType::F64 | DType::F32 | DType::F16 | DType::BF16 => to.extend_from_slice(ids),
    }
}

/// The dtype of the ids that [`widen`] appends.
fn widened(dtype: DType) -> DType {
    match dtype {
        DType::F64 | DType::F32 | DType::F16 | DType::BF16 => dtype,
        _ => DType::I64,
    }
}
