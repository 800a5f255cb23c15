//! One of the two lanes to a worker process. A lane has a socket for requests, and a block for the rows that
//! the worker writes. `feedline/_workers/worker.py` is the other end.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::block::{Block, begun};

/// How long a lane waits for an answer until it checks that the worker is alive.
const LOOK: Duration = Duration::from_secs(1);

/// The kinds of requests.
const HELLO: u32 = 0;
const READ: u32 = 1;
const MAP: u32 = 2;

/// The statuses of answers.
const DONE: u32 = 0;
const FAILED: u32 = 1;
const LONGER: u32 = 3;

/// The number of the next request.
static NEXT: AtomicU64 = AtomicU64::new(1);

/// Max bytes of an answer. An answer may be an exception: `_workers/faults.py` has its limits.
const LONGEST: usize = 64 << 20;

/// Size in bytes of the head of an answer: four numbers after the length, and the number of the request.
const HEAD: usize = 28;

pub(super) struct Lane {
    /// The number of the worker, counted over all workers ever started.
    pub(super) worker: u64,
    pub(super) process: u32,
    pub(super) end: Arc<End>,
    pub(super) block: Block,
    message: Vec<u8>,
    /// The number of the last request. Numbers grow over all lanes, so that a worker knows the first of two.
    request: u64,
}

/// The part of a lane that other threads may use while one thread waits for its answer.
pub(super) struct End {
    pub(super) socket: UnixStream,
    pub(super) block: Arc<File>,
    /// The number of the last request, and its description.
    asked: Mutex<(u64, String)>,
    /// Whether the worker has answered a request, so that it has loaded the data.
    has_answered: AtomicBool,
}

impl End {
    /// Whether the worker has answered a request of this lane.
    pub(super) fn has_answered(&self) -> bool {
        self.has_answered.load(Ordering::Relaxed)
    }

    /// A description of the request that the worker is working on, even after the worker died; `None` if it
    /// had not begun this request.
    pub(super) fn does(&self) -> Option<String> {
        let asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        (asked.0 > 0 && begun(&self.block) == asked.0).then(|| asked.1.clone())
    }

    fn set_asked(&self, number: u64, ids: &[u64]) {
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        let what = match ids {
            [] => "ran map_batch".to_owned(),
            [one] => format!("read sample {one}"),
            [first, ..] => format!("read {} samples, sample {first} first", ids.len()),
        };
        *asked = (number, what);
    }

    /// Shuts down both directions of the socket, which ends all waits for it.
    pub(super) fn shut(&self) {
        let _ = self.socket.shutdown(Shutdown::Both);
    }
}

/// A request to a worker.
pub(super) struct Request<'a> {
    /// The number of the data set, or the number of the function of a batch.
    pub(super) set: u32,
    /// Number of rows.
    pub(super) count: usize,
    /// The sample of each row. It is empty for a function of a batch.
    pub(super) ids: &'a [u64],
    /// The key of random numbers of each sample, or the key of the batch.
    pub(super) keys: &'a [u64],
    /// The room for a sample in each field of varying length.
    pub(super) room: &'a [u64],
    pub(super) epoch: u64,
    /// Whether the global generators are seeded.
    pub(super) is_seeded: bool,
    /// Size of the block in bytes: the worker maps all of it.
    pub(super) bytes: u64,
}

/// A worker's answer.
pub(super) struct Answer {
    /// Number of samples that were read, from the first on.
    pub(super) read: usize,
    /// Whether the data set uses global random generators.
    pub(super) is_random: bool,
    /// Nanoseconds that the worker took.
    pub(super) ns: u64,
    pub(super) failed: Option<Failed>,
}

/// An exception of a worker, packed by `_workers/faults.py`.
pub(super) enum Failed {
    /// The exception of the first sample that was not read.
    Sample(Vec<u8>),
    /// The first sample that was not read is longer than its field has room for: the place of the field among
    /// the columns, and the number of items.
    Longer(usize, usize),
    /// The worker cannot load the data set.
    Unusable(Vec<u8>),
}

/// The reason for a missing answer.
pub(super) enum Lost {
    /// The worker has ended.
    Ended,
    /// Something has stopped the worker, such as SIGSTOP.
    Stopped,
    /// The worker has answered another request than the last one, so its rows may be those of another.
    Confused,
}

impl Lane {
    /// A new lane, and the socket end for the worker.
    pub(super) fn new(worker: u64) -> io::Result<(Self, UnixStream)> {
        let (own, its) = UnixStream::pair()?;
        own.set_read_timeout(Some(LOOK))?;
        own.set_write_timeout(Some(LOOK))?;
        let block = Block::new()?;
        let (asked, has_answered) = (Mutex::default(), AtomicBool::new(false));
        let end = End { socket: own, block: block.file.clone(), asked, has_answered };
        Ok((Self { worker, process: 0, end: Arc::new(end), block, message: Vec::new(), request: 0 }, its))
    }

    /// Asks whether the worker has loaded the data set.
    pub(super) fn hello(&mut self) -> Result<Answer, Lost> {
        let (ids, keys, room) = (&[], &[], &[]);
        self.send(
            HELLO,
            &Request { set: 0, count: 0, ids, keys, room, epoch: 0, is_seeded: false, bytes: 0 },
        )?;
        self.receive()
    }

    /// Lets the worker read samples into the block.
    pub(super) fn read(&mut self, request: &Request<'_>) -> Result<Answer, Lost> {
        self.send(READ, request)?;
        self.receive()
    }

    /// Lets the worker call its function on the rows in the block.
    pub(super) fn map(&mut self, request: &Request<'_>) -> Result<Answer, Lost> {
        self.send(MAP, request)?;
        self.receive()
    }

    fn send(&mut self, kind: u32, request: &Request<'_>) -> Result<(), Lost> {
        let mut message = std::mem::take(&mut self.message);
        message.clear();
        message.extend([0; 4]);
        self.request = NEXT.fetch_add(1, Ordering::Relaxed);
        self.end.set_asked(self.request, request.ids);
        let head = [kind, request.set, request.count as u32, u32::from(request.is_seeded)];
        head.iter().for_each(|number| message.extend(number.to_le_bytes()));
        let numbers =
            [self.request, request.epoch, request.bytes].into_iter().chain(request.ids.iter().copied());
        let numbers = numbers.chain(request.keys.iter().copied()).chain(request.room.iter().copied());
        numbers.for_each(|number| message.extend(number.to_le_bytes()));
        let length = (message.len() - 4) as u32;
        message[..4].copy_from_slice(&length.to_le_bytes());
        let sent = self.transfer(message.len(), |at| (&self.end.socket).write(&message[at..]));
        self.message = message;
        sent
    }

    fn receive(&mut self) -> Result<Answer, Lost> {
        let mut head = [0; HEAD];
        self.fill(&mut head)?;
        let [length, status, read, is_random, us, low, high] =
            bytemuck::cast::<_, [u32; HEAD / 4]>(head).map(u32::from_le);
        // A process that the worker has forked may answer too, and each answer after it would then be that of
        // the request before.
        if u64::from(low) | u64::from(high) << 32 != self.request {
            return Err(Lost::Confused);
        }
        let rest = (length as usize).checked_sub(HEAD - 4).filter(|rest| *rest <= LONGEST);
        let mut payload = vec![0; rest.ok_or(Lost::Confused)?];
        self.fill(&mut payload)?;
        self.end.set_asked(0, &[]);
        self.end.has_answered.store(true, Ordering::Relaxed);
        let failed = match status {
            DONE => None,
            FAILED => Some(Failed::Sample(payload)),
            LONGER => match (payload.first_chunk(), payload.last_chunk()) {
                (Some(place), Some(items)) => {
                    let [place, items] = [place, items].map(|bytes| u64::from_le_bytes(*bytes) as usize);
                    Some(Failed::Longer(place, items))
                }
                _ => return Err(Lost::Confused),
            },
            _ => Some(Failed::Unusable(payload)),
        };
        Ok(Answer { read: read as usize, is_random: is_random != 0, ns: u64::from(us) * 1000, failed })
    }

    fn fill(&self, to: &mut [u8]) -> Result<(), Lost> {
        self.transfer(to.len(), |at| (&self.end.socket).read(&mut to[at..]))
    }

    /// Calls `part` with the bytes done so far until it has done `all`. Checks the worker every second,
    /// because the socket does not show that the worker was stopped, or that only a child of the worker still
    /// holds the socket.
    fn transfer(&self, all: usize, mut part: impl FnMut(usize) -> io::Result<usize>) -> Result<(), Lost> {
        let (mut at, mut stopped) = (0, 0);
        while at < all {
            match part(at) {
                Ok(0) => return Err(Lost::Ended),
                Ok(count) => at += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                    match state_of(self.process) {
                        // The worker was stopped at two checks in a row. Ctrl-Z stops the workers and this
                        // process together, so one check after it may see a worker that is still stopped.
                        Some('T') if stopped > 0 => return Err(Lost::Stopped),
                        Some('T') => stopped += 1,
                        None | Some('Z' | 'X') => return Err(Lost::Ended),
                        Some(_) => stopped = 0,
                    }
                }
                Err(_) => return Err(Lost::Ended),
            }
        }
        Ok(())
    }
}

/// The letter of a process's state; `None` if there is no such process.
fn state_of(process: u32) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    stat.rsplit_once(')')?.1.trim_start().chars().next()
}
