//! The header of llm.c and modded-nanogpt. It has 256 numbers of 32 bits. The ids follow.

use feedline_core::{DType, Result};

use crate::error::data;

/// Bytes of the header.
pub(crate) const HEADER: u64 = 1024;

/// For GPT-2 and for Llama 3: the magic number, the version, the dtype of an id, and the token between texts.
const KINDS: [(u32, u32, DType, u32); 2] =
    [(20240520, 1, DType::U16, 50256), (20240801, 7, DType::U32, 128000)];

/// The content of the header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) dtype: DType,
    pub(crate) tokens: u64,
    /// The token with which each text begins.
    pub(crate) begin: u32,
}

/// Number `at` of the header.
fn number(start: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*start.get(4 * at..)?.first_chunk()?))
}

/// Whether a file of length `len` that begins with `start` is a file of llm.c. It may be cut short.
pub(crate) fn is_llm_c(start: &[u8], len: u64) -> bool {
    let kind = number(start, 0).and_then(|magic| KINDS.iter().find(|kind| kind.0 == magic));
    // The unused numbers must be zero. Bare ids will hardly have 250 zeros here.
    let rest = start.get(12..start.len().min(HEADER as usize));
    kind.is_some() && len >= HEADER && rest.is_some_and(|rest| rest.iter().all(|&byte| byte == 0))
}

impl Header {
    /// The header in `start`, for a file of `len` bytes. `None` for another kind of file.
    pub(crate) fn parsed(start: &[u8], len: u64) -> Result<Option<Self>> {
        if !is_llm_c(start, len) {
            return Ok(None);
        }
        let numbers = [0, 1, 2].map(|at| number(start, at).unwrap_or_default());
        let [magic, version, tokens] = numbers;
        let Some(&(_, known, dtype, begin)) = KINDS.iter().find(|kind| kind.0 == magic) else {
            return Ok(None);
        };
        if version != known {
            let why =
                format!("version {version} of llm.c's format is unknown, {known} is read: write it again");
            return Err(data(why).at_offset(4));
        }
        let (tokens, bytes) = (u64::from(tokens), len - HEADER);
        if bytes != tokens * dtype.size() as u64 {
            let why = format!(
                "the header says {tokens} ids of {dtype}, and {bytes} bytes follow: fetch the file again"
            );
            return Err(data(why).at_offset(8));
        }
        Ok(Some(Self { dtype, tokens, begin }))
    }
}
