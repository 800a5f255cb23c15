//! Memory for the content of a file.

use std::fmt;

use feedline_core::{Error, Result};
use memmap2::MmapMut;

use crate::error::data;

/// Private memory in whole pages. So a device can pin it without pinning other data.
pub(crate) struct Memory {
    pages: MmapMut,
    len: usize,
}

impl Memory {
    /// Allocates `len` bytes, at least 1. The system provides a page when the page is first written.
    pub(crate) fn new(len: u64) -> Result<Self> {
        let len = usize::try_from(len).map_err(|_| no_memory(len))?;
        let pages = MmapMut::map_anon(len).map_err(|error| no_memory(len as u64).with_source(error))?;
        // This is a hint: huge pages cause fewer page faults and TLB misses.
        #[cfg(target_os = "linux")]
        let _ = pages.advise(memmap2::Advice::HugePage);
        Ok(Self { pages, len })
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.pages[..self.len]
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.pages[..self.len]
    }

    /// Keeps only the first `len` bytes.
    pub(crate) fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Memory({} bytes)", self.len)
    }
}

pub(crate) fn no_memory(bytes: u64) -> Error {
    data(format!("not enough memory for the file's {bytes} bytes: open it with a lower limit"))
}
