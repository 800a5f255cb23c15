//! Any bytes are a token stream under any options, or an error; windows lie within the stream.

use std::sync::Arc;

use feedline_core::{DType, Dataset};
use feedline_datasets::{TokenOptions, Tokens};

/// The first four bytes are the options, the others the stream.
pub fn check(data: &[u8]) {
    let Some((&[window, stride, separator, weight], stream)) = data.split_first_chunk() else { return };
    let dtype = if weight & 1 == 0 { DType::U16 } else { DType::U32 };
    let separator = (separator > 0).then(|| u32::from(separator));
    let whole = TokenOptions::new(dtype, window.into());
    let options = TokenOptions { stride: stride.into(), separator, skip_short: true, ..whole };
    crate::reader::check("x.tokens", stream, |path| {
        let tokens = Tokens::open(&[(path, f64::from(weight) / 64.0)], options)?;
        Ok(Arc::new(tokens) as Arc<dyn Dataset>)
    });
}
