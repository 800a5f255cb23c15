//! Plain text in UTF-8. Every line is a sample.

use std::path::{Path, PathBuf};

use feedline_core::{About, Context, Dataset, ElementType, Field, Fingerprint, ReadError, Result, Row, Spec};

use crate::Buffers;
use crate::error::{data, inside};
use crate::io::bytes::Content;
use crate::io::of_one_file;

/// The number of bytes that are searched for line breaks at a time.
const BLOCK: usize = 1 << 16;
/// The byte order mark of UTF-8.
const BOM: &[u8] = b"\xEF\xBB\xBF";

/// A text without a byte order mark at its start.
pub(crate) fn without_mark(text: &[u8]) -> &[u8] {
    text.strip_prefix(BOM).unwrap_or(text)
}

/// The lines of a text file, plain or gzip. The field `text` holds a line without its line break.
///
/// A plain file stays on disk. It takes 8 bytes of memory per line. Lines may be empty. The last line need
/// not end with a line break. A byte order mark at the start of the file is not part of the first line.
#[derive(Debug)]
pub struct Lines {
    path: PathBuf,
    content: Content,
    /// The start of each line, and the offset of the byte after the line break of the last line.
    starts: Vec<u64>,
    schema: Spec,
    fingerprint: u64,
}

impl Lines {
    /// Opens a text file, and reads it once to find its lines.
    ///
    /// # Errors
    /// `Data` if the file is missing, empty or not UTF-8. The error names the file and the byte.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let content = Content::open_unclaimed(path);
        content.and_then(|content| Self::of_content(path, content)).map_err(|error| error.at_path(path))
    }

    pub(crate) fn of_content(path: &Path, content: Content) -> Result<Self> {
        let mut mark = [0; BOM.len()];
        let has_mark = content.len() >= BOM.len() as u64 && {
            content.read_at(0, &mut mark)?;
            mark == BOM
        };
        let mut at = if has_mark { BOM.len() as u64 } else { 0 };
        if at == content.len() {
            return Err(data("the text is a byte order mark and nothing else: fetch the file again"));
        }
        let (mut starts, mut block) = (vec![at], vec![0; BLOCK]);
        while at < content.len() {
            let part = (content.len() - at).min(BLOCK as u64) as usize;
            content.read_at(at, &mut block[..part])?;
            let text = match std::str::from_utf8(&block[..part]) {
                Ok(text) => text.as_bytes(),
                // The last code point continues in the next block.
                Err(error)
                    if error.error_len().is_none()
                        && error.valid_up_to() > 0
                        && at + (part as u64) < content.len() =>
                {
                    &block[..error.valid_up_to()]
                }
                Err(error) => {
                    let offset = at + error.valid_up_to() as u64;
                    return Err(data("the text is not UTF-8: convert it first").at_offset(offset));
                }
            };
            let breaks = text.iter().enumerate().filter(|(_, byte)| **byte == b'\n');
            starts.extend(breaks.map(|(index, _)| at + index as u64 + 1));
            at += text.len() as u64;
        }
        content.check_unchanged()?;
        if starts.last() != Some(&content.len()) {
            // The last line has no line break.
            starts.push(content.len() + 1);
        }
        let state = Fingerprint::new().number(starts.len() as u64);
        let state = content.fingerprint_sampled(state)?;
        let schema = Spec::of_fields([Field::variable("text", ElementType::Text)]);
        Ok(Self { path: path.to_path_buf(), content, starts, schema, fingerprint: state.value() })
    }

    /// Line `line`, without its line break.
    pub(crate) fn line<'b>(&'b self, line: u64, buffers: &'b mut Buffers) -> Result<&'b [u8]> {
        inside(line, self.len(), &self.path)?;
        let at = |error: feedline_core::Error| error.at_path(&self.path).at_sample(line);
        let (start, end) = (self.starts[line as usize], self.starts[line as usize + 1] - 1);
        let len = usize::try_from(end - start).map_err(|_| at(data("the line is too long")))?;
        let text = buffers.ahead.read(&self.content, start, len).map_err(at)?;
        Ok(text.strip_suffix(b"\r").unwrap_or(text))
    }
}

#[cfg(feature = "jsonl")]
impl Lines {
    /// The offset of the first byte of line `line`.
    pub(crate) fn start(&self, line: u64) -> u64 {
        self.starts[line as usize]
    }
}

impl Dataset for Lines {
    of_one_file! { self => self.schema, self.path; }

    fn len(&self) -> u64 {
        self.starts.len() as u64 - 1
    }

    fn read(&self, sample: u64, row: &mut Row<'_, '_>, context: &mut Context) -> Result<(), ReadError> {
        Ok(row.put(0, self.line(sample, context.scratch())?)?)
    }

    fn about(&self) -> About<'_> {
        About { format: "text", ..About::default() }
    }
}
