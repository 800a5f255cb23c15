//! The frames of a record: each has a kind, and a checksum at its end.
//!
//! | kind | frame | bytes |
//! | --- | --- | --- |
//! | 1 | step: number of substitutes, order hash, content | 32 |
//! | 2 | header: the options of the run, as JSON | 12 + JSON |
//! | 3 | begin: the number of the next step, and the cursor before it | 148 |
//! | 4 | name of a value | 12 + name |
//! | 5 | note: the step, the name's number, the value | 30 |
//! | 6 | substitute of the next step: row, the id that was read, the id that was not | 32 |
//! | 7 | place: where a source was after the steps so far | 28 |
//!
//! Numbers are little-endian. A frame that a kill has cut is the last one, and has a wrong checksum, so it is
//! not read.

use feedline_core::{BatchContent, Cursor, SourcePosition};
use twox_hash::XxHash3_64;

/// The first bytes of a record.
pub const MAGIC: &[u8] = b"feedline record 1\n";

/// Bytes of a step's frame.
pub const STEP_BYTES: usize = 32;
/// Bytes before the payload of every other frame.
const HEAD: usize = 8;
const CHECK: usize = 4;

const STEP: u8 = 1;
const HEADER: u8 = 2;
const BEGIN: u8 = 3;
const NAME: u8 = 4;
const NOTE: u8 = 5;
const SUBSTITUTE: u8 = 6;
const PLACE: u8 = 7;

const HAS_CONTENT: u8 = 1;

/// One frame.
#[derive(Clone, Debug, PartialEq)]
pub enum Frame<'a> {
    /// The next step.
    Step {
        /// The order hash of the batch alone.
        order: u64,
        /// The hash of its rows, if it was computed.
        content: Option<BatchContent>,
        /// Number of rows with a substitute.
        substitutes: u16,
    },
    /// The options of the steps that follow, as JSON.
    Header(&'a [u8]),
    /// The steps that follow are numbered from `number` on. They replace earlier steps with these numbers.
    Begin {
        /// The number of the next step.
        number: u64,
        /// The position before it.
        cursor: Cursor,
    },
    /// The name of a value; names are numbered from 0.
    Name(&'a str),
    /// A value of the user.
    Note {
        /// The number of the step.
        step: u64,
        /// The number of its name.
        name: u16,
        /// The value.
        value: f64,
    },
    /// A substitute in the batch of the next step.
    Substitute(Substitute),
    /// The position of a source after the steps so far.
    Place(SourcePosition),
}

/// A row of a batch whose sample could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Substitute {
    /// The row.
    pub row: u32,
    /// The sample that was read.
    pub substitute: u64,
    /// The sample that could not be read.
    pub sample: u64,
}

impl<'a> Frame<'a> {
    /// Appends the frame to `to`.
    pub fn write(&self, to: &mut Vec<u8>) {
        let first = to.len();
        match self {
            Self::Step { order, content, substitutes } => {
                to.extend([STEP, if content.is_some() { HAS_CONTENT } else { 0 }]);
                to.extend(substitutes.to_le_bytes());
                to.extend(order.to_le_bytes());
                content.unwrap_or_default().parts().iter().for_each(|part| to.extend(part.to_le_bytes()));
            }
            Self::Header(json) => payload(to, HEADER, &[json]),
            Self::Begin { number, cursor } => {
                payload(to, BEGIN, &[&number.to_le_bytes(), &cursor.to_bytes()])
            }
            Self::Name(name) => payload(to, NAME, &[name.as_bytes()]),
            Self::Note { step, name, value } => {
                payload(to, NOTE, &[&step.to_le_bytes(), &name.to_le_bytes(), &value.to_le_bytes()]);
            }
            Self::Substitute(Substitute { row, substitute, sample }) => payload(
                to,
                SUBSTITUTE,
                &[&row.to_le_bytes(), &substitute.to_le_bytes(), &sample.to_le_bytes()],
            ),
            Self::Place(SourcePosition { position, offset, taken }) => {
                payload(to, PLACE, &[&position.to_le_bytes(), &offset.to_le_bytes(), &taken.to_le_bytes()])
            }
        }
        let check = check(&to[first..]);
        to.extend(check);
    }

    /// The frame at the beginning of `bytes`, and its length; `None` if it is not whole.
    pub fn read(bytes: &'a [u8]) -> Option<(Self, usize)> {
        let kind = *bytes.first()?;
        let len =
            if kind == STEP { STEP_BYTES } else { (u32_at(bytes, 4)? as usize).checked_add(HEAD + CHECK)? };
        let (body, found) = bytes.get(..len)?.split_at(len - CHECK);
        if check(body) != *found {
            return None;
        }
        let rest = &body[HEAD.min(body.len())..];
        let frame = match kind {
            STEP => Self::Step {
                order: u64_at(body, 4)?,
                content: (body[1] & HAS_CONTENT != 0)
                    .then_some(BatchContent::from_parts([u64_at(body, 12)?, u64_at(body, 20)?])),
                substitutes: u16::from_le_bytes([body[2], body[3]]),
            },
            HEADER => Self::Header(rest),
            BEGIN => {
                Self::Begin { number: u64_at(rest, 0)?, cursor: Cursor::from_bytes(rest.get(8..)?).ok()? }
            }
            NAME => Self::Name(std::str::from_utf8(rest).ok()?),
            NOTE => Self::Note {
                step: u64_at(rest, 0)?,
                name: u16::from_le_bytes(*rest.get(8..)?.first_chunk()?),
                value: f64::from_bits(u64_at(rest, 10)?),
            },
            SUBSTITUTE => Self::Substitute(Substitute {
                row: u32_at(rest, 0)?,
                substitute: u64_at(rest, 4)?,
                sample: u64_at(rest, 12)?,
            }),
            PLACE => Self::Place(SourcePosition {
                position: u64_at(rest, 0)?,
                offset: u64_at(rest, 8)?,
                taken: u64_at(rest, 16)?,
            }),
            _ => return None,
        };
        Some((frame, len))
    }
}

/// A crash may leave zeros in unwritten parts of the file. No frame ends with this many zeros.
const ZEROS: usize = 16;

/// Whether `bytes` are the beginning of a frame that a kill has cut. They do not begin with a whole frame. If
/// a readable frame follows, nothing was cut: the bytes are damaged.
pub(super) fn is_cut(bytes: &[u8]) -> bool {
    let zeros = bytes.iter().rev().take_while(|byte| **byte == 0).count();
    let written = if zeros >= ZEROS || zeros == bytes.len() { bytes.len() - zeros } else { bytes.len() };
    let written = &bytes[..written];
    is_beginning(written)
        && (1..written.len()).all(|at| Frame::read(&written[at..]).is_none())
        && !is_whole_but_for_its_head(bytes)
}

/// Whether `bytes` would be a whole frame with another kind or length.
fn is_whole_but_for_its_head(bytes: &[u8]) -> bool {
    let mut frame = bytes.to_vec();
    let is_whole = |frame: &[u8]| Frame::read(frame).is_some_and(|(_, len)| len == frame.len());
    (STEP..=PLACE).any(|kind| {
        frame[..1.min(bytes.len())].fill(kind);
        is_whole(&frame)
    }) || {
        frame.clear();
        frame.extend_from_slice(bytes);
        let len = bytes.len().saturating_sub(HEAD + CHECK) as u32;
        if let Some(place) = frame.get_mut(4..HEAD) {
            place.copy_from_slice(&len.to_le_bytes());
        }
        is_whole(&frame)
    }
}

/// Whether `bytes` are the proper beginning of a frame.
fn is_beginning(bytes: &[u8]) -> bool {
    let payload = match bytes.first() {
        None => return true,
        Some(&STEP) => {
            return bytes.len() < STEP_BYTES && bytes.get(1).is_none_or(|flags| *flags <= HAS_CONTENT);
        }
        Some(&HEADER | &NAME) => None,
        Some(&BEGIN) => Some(8 + Cursor::BYTES),
        Some(&NOTE) => Some(18),
        Some(&SUBSTITUTE) => Some(20),
        Some(&PLACE) => Some(24),
        Some(_) => return false,
    };
    let has_head = bytes.iter().skip(1).take(3).all(|byte| *byte == 0);
    let Some(len) = u32_at(bytes, 4) else { return has_head };
    let len = len as usize;
    has_head && payload.is_none_or(|payload| payload == len) && bytes.len() < len.saturating_add(HEAD + CHECK)
}

fn payload(to: &mut Vec<u8>, kind: u8, parts: &[&[u8]]) {
    let len: usize = parts.iter().map(|part| part.len()).sum();
    to.extend([kind, 0, 0, 0]);
    to.extend((len as u32).to_le_bytes());
    parts.iter().for_each(|part| to.extend_from_slice(part));
}

fn check(bytes: &[u8]) -> [u8; CHECK] {
    (XxHash3_64::oneshot(bytes) as u32).to_le_bytes()
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}
