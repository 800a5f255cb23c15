//! Tables: columns chosen, cast and stacked, and lists of files.

#[cfg(feature = "table")]
pub(crate) mod features;
#[cfg(feature = "table")]
pub(crate) mod in_memory;
pub(crate) mod manifest;
pub(crate) mod nulls;
#[cfg(feature = "table")]
pub(crate) mod table;
#[cfg(feature = "tabular")]
pub(crate) mod tabular;
