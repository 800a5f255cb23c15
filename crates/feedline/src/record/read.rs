//! The record of one rank, read from its file.

use std::io::ErrorKind as Io;
use std::ops::Range;
use std::path::Path;

use feedline_core::{BatchContent, Cursor, Error, ErrorKind, Result, SourcePosition, named};
use serde_json::Value;

use super::frame::{Frame, MAGIC, Substitute, is_cut};

/// The record of one rank, up to the last whole step in its file.
#[derive(Clone, Debug, Default)]
pub struct RankRecord {
    /// The options, in the order in which they were written.
    pub headers: Vec<Value>,
    /// The steps, in ascending order of their numbers; repeated steps replace earlier ones.
    pub segments: Vec<Segment>,
    /// The user's values.
    pub notes: Vec<Note>,
    /// The names of the values.
    pub names: Vec<String>,
    /// The length of the part that was read, in bytes.
    pub bytes: u64,
    /// Bytes after it, left by a kill.
    pub cut: u64,
}

/// Consecutive steps of one epoch.
#[derive(Clone, Debug)]
pub struct Segment {
    /// The index of the header of these steps.
    pub header: usize,
    /// The number of the first step.
    pub number: u64,
    /// The position before the first step.
    pub cursor: Cursor,
    /// The steps.
    pub steps: Vec<Step>,
    /// The substitutes, each with the index of its step.
    pub substitutes: Vec<(usize, Substitute)>,
    /// The positions of a source, each after this many steps.
    pub places: Vec<(usize, SourcePosition)>,
}

/// A recorded step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// The order hash of the batch alone.
    pub order: u64,
    /// The hash of its rows.
    pub content: Option<BatchContent>,
}

/// A value of the user.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Note {
    /// The number of the step.
    pub step: u64,
    /// The index of its name.
    pub name: usize,
    /// The value.
    pub value: f64,
}

impl RankRecord {
    /// Reads the file at `path`; `None` if there is none.
    ///
    /// # Errors
    /// `Data` if it cannot be read, is not a record, or is damaged; names the step of the damage.
    pub fn read(path: &Path) -> Result<Option<Self>> {
        match std::fs::read(path) {
            Ok(bytes) => Self::parse(&bytes).map(Some).map_err(|error| error.at_path(path)),
            Err(error) if error.kind() == Io::NotFound => Ok(None),
            Err(error) => {
                let why = "cannot read the record, check the path";
                Err(Error::new(ErrorKind::Data, why).with_source(error).at_path(path))
            }
        }
    }

    /// Reads the frames in `bytes`.
    fn parse(bytes: &[u8]) -> Result<Self> {
        let mut record = Self::default();
        if !bytes.starts_with(MAGIC) {
            if MAGIC.starts_with(bytes) {
                record.cut = bytes.len() as u64;
                return Ok(record);
            }
            let why = format!(
                "this is not the record of a run: give the folder that was passed to {}",
                named("Recorder::new", "Loader(record=)")
            );
            return Err(Error::new(ErrorKind::Data, why));
        }
        let (mut at, mut whole, mut open) = (MAGIC.len(), MAGIC.len(), Vec::new());
        while let Some((frame, len)) = Frame::read(&bytes[at..]) {
            if let Frame::Substitute(substitute) = frame {
                // A substitute counts only once its step has been read.
                open.push(substitute);
                at += len;
                continue;
            }
            if !record.add(frame, &mut open) {
                return Err(record.damaged(at));
            }
            at += len;
            whole = at;
        }
        if !is_cut(&bytes[at..]) {
            return Err(record.damaged(at));
        }
        (record.bytes, record.cut) = (whole as u64, (bytes.len() - whole) as u64);
        Ok(record)
    }

    /// The error for damage at byte `offset`.
    fn damaged(&self, offset: usize) -> Error {
        let place = match self.segments.last() {
            Some(last) => format!("at step {}", last.numbers().end),
            None => "before its first step".to_owned(),
        };
        let why = format!(
            "the record is damaged {place}: restore the file from a copy, or record into another folder; it \
             is left as it is"
        );
        Error::new(ErrorKind::Data, why).at_offset(offset as u64)
    }

    /// Adds a frame; `open` has the substitutes before it. Returns false if an earlier frame is missing.
    fn add(&mut self, frame: Frame<'_>, open: &mut Vec<Substitute>) -> bool {
        let is_step = matches!(frame, Frame::Step { .. });
        if !open.is_empty() && !is_step {
            return false;
        }
        match frame {
            Frame::Header(json) => {
                let Ok(header) = serde_json::from_slice(json) else { return false };
                self.headers.push(header);
            }
            Frame::Begin { number, cursor } => {
                let Some(header) = self.headers.len().checked_sub(1) else { return false };
                self.forget_from(number);
                let (steps, substitutes, places) = Default::default();
                self.segments.push(Segment { header, number, cursor, steps, substitutes, places });
            }
            Frame::Step { order, content, substitutes } => {
                let Some(segment) = self.segments.last_mut() else { return false };
                if open.len().min(usize::from(u16::MAX)) != usize::from(substitutes) {
                    return false;
                }
                let index = segment.steps.len();
                segment.substitutes.extend(open.drain(..).map(|substitute| (index, substitute)));
                segment.steps.push(Step { order, content });
            }
            Frame::Name(name) => self.names.push(name.to_owned()),
            Frame::Note { step, name, value } => {
                if usize::from(name) >= self.names.len() {
                    return false;
                }
                self.notes.push(Note { step, name: usize::from(name), value });
            }
            Frame::Place(place) => {
                let Some(segment) = self.segments.last_mut() else { return false };
                segment.places.push((segment.steps.len(), place));
            }
            Frame::Substitute(_) => {}
        }
        true
    }

    /// Forgets the steps from `number` on, which will be repeated.
    fn forget_from(&mut self, number: u64) {
        self.segments.retain(|segment| segment.number < number);
        if let Some(last) = self.segments.last_mut() {
            let keep = (number - last.number).min(last.steps.len() as u64) as usize;
            last.steps.truncate(keep);
            last.substitutes.retain(|(step, _)| *step < keep);
            last.places.retain(|(steps, _)| *steps <= keep);
        }
        self.notes.retain(|note| note.step < number);
    }
}

impl Segment {
    /// The numbers of the steps.
    pub fn numbers(&self) -> Range<u64> {
        self.number..self.number.saturating_add(self.steps.len() as u64)
    }
}

/// The number of the step at `cursor`, where step `number` begins at `start` and `header` has the options.
pub(super) fn step_at(number: u64, start: &Cursor, cursor: &Cursor, header: &Value) -> Option<u64> {
    let get = |name: &str| header[name].as_u64();
    let batch = get("batch")?.max(1);
    if cursor.epoch() != start.epoch() {
        return None;
    }
    if header["samples"].is_null() {
        // For a source the position does not determine the step, but the number of this rank's samples does.
        let samples = cursor.proof().count().checked_sub(start.proof().count())?;
        return number.checked_add(samples.div_ceil(batch));
    }
    let global = batch.checked_mul(get("world")?.max(1))?;
    let positions = start.position()..cursor.position();
    let mut live = positions.end.checked_sub(positions.start)?;
    for skip in header["skips"].as_array().into_iter().flatten() {
        let [Some(epoch), Some(first), Some(end)] = [0, 1, 2].map(|part| skip[part].as_u64()) else {
            continue;
        };
        if epoch == start.epoch() {
            let end = end.saturating_mul(global).min(positions.end);
            live -= end.saturating_sub(first.saturating_mul(global).max(positions.start)).min(live);
        }
    }
    number.checked_add(live.div_ceil(global))
}
