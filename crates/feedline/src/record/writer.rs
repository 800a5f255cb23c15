//! Writes the record of one rank, through a small buffer.

use std::fs::{File, TryLockError};
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use feedline_core::{BatchInfo, Cursor, Error, ErrorKind, Result, SourcePosition};
use serde_json::Value;

use super::frame::{Frame, MAGIC, Substitute};
use super::header::same_run;
use super::read::{RankRecord, Segment, step_at};

/// Bytes of the buffer. It is written when it is full.
pub(super) const BUFFER: usize = 32 << 10;

/// The buffer is written with the first step after this time, so a kill loses the steps of a tenth of a
/// second.
const FLUSH: Duration = Duration::from_millis(100);

/// Attempts to lock the file, and the time between two.
const TRIES: u32 = 20;
const TRY: Duration = Duration::from_millis(10);

/// Steps between two recorded positions of a source.
const PLACES: u64 = 64;

/// Writes the record of one rank.
pub(crate) struct Writer {
    path: PathBuf,
    file: File,
    /// A forked child writes nothing.
    process: u32,
    /// Bytes of the file written so far.
    written: u64,
    buffer: Vec<u8>,
    flushed: Instant,
    /// The reason why nothing more can be written.
    error: Option<Error>,
    names: Vec<String>,
    header: Arc<Value>,
    /// The start of each recorded stretch: its first step's number, its cursor, and the header of its
    /// options.
    begins: Vec<(u64, Cursor, Arc<Value>)>,
    /// The epoch of the last recorded step of an earlier process, and the number of the step after it.
    end: Option<(u64, u64)>,
    /// The number of the next step.
    next: u64,
    /// The position after the last step of this process.
    last: Option<Cursor>,
    is_resumed: bool,
    is_source: bool,
}

impl Writer {
    /// Opens or continues the record at `path`, of a run with the options `header`; `first` is the record of
    /// the first rank, which knows the steps if this rank is new.
    ///
    /// # Errors
    /// `Data` if the file cannot be written or is damaged, or another process writes it; `Cursor` if it, or
    /// the first rank's file, is the record of another run. A damaged file is left unchanged.
    pub(super) fn open(path: &Path, header: Value, first: Option<RankRecord>) -> Result<Self> {
        let cannot = |error: std::io::Error| cannot(path, error);
        let file = File::options().create(true).read(true).write(true).truncate(false).open(path);
        let mut file = file.map_err(cannot)?;
        lock(&file, path)?;
        let found = RankRecord::read(path)?.unwrap_or_default();
        if let Some(before) = found.headers.last() {
            same_run(before, &header).map_err(|error| error.at_path(path))?;
        }
        if let Some(of_first) = first.as_ref().and_then(|first| first.headers.last()) {
            same_run(of_first, &header).map_err(|error| error.at_path(path))?;
        }
        // Removes the tail left by a kill.
        file.set_len(found.bytes).map_err(cannot)?;
        file.seek(SeekFrom::Start(found.bytes)).map_err(cannot)?;
        let known = if found.segments.is_empty() { first.unwrap_or_default() } else { found.clone() };
        let headers: Vec<Arc<Value>> = known.headers.into_iter().map(Arc::new).collect();
        let begin = |of: &Segment| Some((of.number, of.cursor, headers.get(of.header)?.clone()));
        let mut writer = Self {
            path: path.to_owned(),
            written: found.bytes,
            file,
            process: std::process::id(),
            buffer: Vec::with_capacity(2 * BUFFER),
            flushed: Instant::now(),
            error: None,
            names: found.names,
            begins: known.segments.iter().filter_map(begin).collect(),
            end: known.segments.last().map(|last| (last.cursor.epoch(), last.numbers().end)),
            next: 0,
            last: None,
            is_resumed: true,
            is_source: header["samples"].is_null(),
            header: Arc::new(header),
        };
        if found.bytes == 0 {
            writer.buffer.extend_from_slice(MAGIC);
        }
        if found.headers.last().map(without_time) != Some(without_time(&writer.header)) {
            Frame::Header(writer.header.to_string().as_bytes()).write(&mut writer.buffer);
        }
        writer.flush()?;
        Ok(writer)
    }

    /// Call this when the next step begins at a saved cursor: the step may have been recorded before.
    pub(crate) fn resume(&mut self) {
        self.is_resumed = true;
    }

    /// The number of the next step.
    pub(super) fn next(&self) -> u64 {
        self.next
    }

    /// Records the batch of `info`, between the positions `before` and `after`.
    ///
    /// # Errors
    /// `Data` if the file cannot be written.
    pub(crate) fn step(&mut self, before: &Cursor, info: &BatchInfo, after: &Cursor) -> Result<()> {
        let place = |cursor: &Cursor| (cursor.epoch(), cursor.position(), cursor.offset());
        if self.is_resumed || self.last.as_ref().map(place) != Some(place(before)) {
            self.begin(before);
        }
        for row in &info.substituted {
            let sample = row.failures.first().map_or(row.substitute, |failure| failure.sample);
            let (row, substitute) = (row.row as u32, row.substitute);
            Frame::Substitute(Substitute { row, substitute, sample }).write(&mut self.buffer);
        }
        let substitutes = info.substituted.len().min(usize::from(u16::MAX)) as u16;
        Frame::Step { order: info.proof.order(), content: info.content, substitutes }.write(&mut self.buffer);
        self.next += 1;
        if let Some(place) = info.source_position.filter(|_| self.next.is_multiple_of(PLACES)) {
            Frame::Place(place).write(&mut self.buffer);
        }
        self.last = Some(*after);
        if self.buffer.len() >= BUFFER || self.flushed.elapsed() >= FLUSH {
            return self.flush();
        }
        Ok(())
    }

    /// Begins a stretch of steps at `cursor`.
    fn begin(&mut self, cursor: &Cursor) {
        if self.is_resumed {
            let found =
                |(number, start, header): &(u64, Cursor, Arc<Value>)| step_at(*number, start, cursor, header);
            let found = self.begins.iter().rev().find_map(found);
            let follows =
                |(epoch, _): &(u64, u64)| (cursor.epoch(), cursor.position()) == (epoch.saturating_add(1), 0);
            let end = self.end.filter(follows).map(|(_, number)| number);
            self.next = found.or(end).unwrap_or_else(|| self.steps_before(cursor));
        }
        self.is_resumed = false;
        self.begins.retain(|(number, ..)| *number < self.next);
        self.begins.push((self.next, *cursor, self.header.clone()));
        Frame::Begin { number: self.next, cursor: *cursor }.write(&mut self.buffer);
    }

    /// The number of steps before `cursor` in a run with these options that has no record of them.
    fn steps_before(&self, cursor: &Cursor) -> u64 {
        if self.is_source {
            return 0;
        }
        let per_epoch = self.header["steps_per_epoch"].as_u64().unwrap_or(0);
        let epoch = (*cursor).at(cursor.epoch(), SourcePosition::default());
        let before = cursor.epoch().saturating_mul(per_epoch);
        before.saturating_add(step_at(0, &epoch, cursor, &self.header).unwrap_or(0))
    }

    /// Records a value of step `step`.
    ///
    /// # Errors
    /// `Data` if the file cannot be written; `Config` for more than 65,536 names.
    pub(super) fn note(&mut self, step: u64, name: &str, value: f64) -> Result<()> {
        let index = match self.names.iter().position(|known| known == name) {
            Some(index) => index,
            None => {
                Frame::Name(name).write(&mut self.buffer);
                self.names.push(name.to_owned());
                self.names.len() - 1
            }
        };
        let Ok(name) = u16::try_from(index) else {
            let why = "a record has at most 65,536 names of values: use one name for values of one kind";
            return Err(Error::new(ErrorKind::Config, why));
        };
        Frame::Note { step, name, value }.write(&mut self.buffer);
        if self.buffer.len() >= BUFFER { self.flush() } else { Ok(()) }
    }

    /// Writes the buffer, so that a kill of this process does not lose it.
    ///
    /// # Errors
    /// `Data` if the file cannot be written, at this call and at all later ones.
    pub(crate) fn flush(&mut self) -> Result<()> {
        if let Some(error) = &self.error {
            return Err(error.clone());
        }
        if std::process::id() != self.process {
            self.buffer.clear();
            return Ok(());
        }
        let wrote = self.file.write_all(&self.buffer);
        self.flushed = Instant::now();
        if let Err(error) = wrote {
            // Removes a frame that was written in part: later frames must not follow it.
            let _ = self.file.set_len(self.written);
            let error = cannot(&self.path, error);
            self.error = Some(error.clone());
            return Err(error);
        }
        self.written += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // `Loader::stop` has returned the error, if there was one.
        let _ = self.flush();
    }
}

/// Locks the file of a record for this process.
fn lock(file: &File, path: &Path) -> Result<()> {
    for _ in 0..TRIES {
        match file.try_lock() {
            // A child that is being started holds the files of this process, and their locks, for a moment.
            Err(TryLockError::WouldBlock) => std::thread::sleep(TRY),
            // Some file systems have no locks.
            Ok(()) | Err(TryLockError::Error(_)) => return Ok(()),
        }
    }
    let why = "another loader writes this record: record into another folder, or end that run and drop its \
               recorder";
    Err(Error::new(ErrorKind::Data, why).at_path(path))
}

fn without_time(header: &Value) -> Value {
    let mut header = header.clone();
    if let Some(header) = header.as_object_mut() {
        header.remove("started");
    }
    header
}

fn cannot(path: &Path, error: std::io::Error) -> Error {
    let why = "cannot write the record of the run: free space, or record into another folder";
    Error::new(ErrorKind::Data, why).with_source(error).at_path(path)
}
