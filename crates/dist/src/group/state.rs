//! What a rank knows of the others: exchanges in progress, signs of life, and the first failure.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::AtomicU64;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use feedline_core::{Error, ErrorKind, Result, World};

use super::frame::Frame;

/// How long a rank waits for the hub's verdict after a connection broke, before it judges itself.
const VERDICT: Duration = Duration::from_secs(2);

pub(crate) struct Shared {
    pub(crate) world: World,
    pub(crate) limit: Duration,
    /// How far this rank has come.
    pub(crate) progress: AtomicU64,
    /// On the hub those of all other ranks, elsewhere that of the hub.
    pub(super) controls: Vec<Control>,
    /// For collectives of the host: rank and connection, by rank.
    data: Vec<(u32, TcpStream)>,
    state: Mutex<State>,
    changed: Condvar,
    /// Held while a failure is passed on: one after the other, and before the connections are closed.
    failing: Mutex<()>,
}

/// The connection for messages about the run.
pub(super) struct Control {
    pub(super) rank: u32,
    writer: Mutex<TcpStream>,
    /// To shut it down while another thread writes.
    raw: TcpStream,
}

impl Control {
    pub(super) fn new(rank: u32, connection: TcpStream) -> io::Result<Self> {
        Ok(Self { rank, raw: connection.try_clone()?, writer: Mutex::new(connection) })
    }
}

type Callback = Box<dyn FnOnce(&Error) + Send>;

pub(super) struct State {
    failed: Option<Error>,
    callbacks: Vec<Callback>,
    /// Whether this rank has said goodbye.
    left: bool,
    /// By rank.
    pub(super) peers: Vec<Peer>,
    next: u64,
    /// On the hub: exchanges to which some ranks have not come.
    pub(super) open: BTreeMap<u64, Open>,
    /// Exchanges that are complete, until they are collected.
    whole: HashMap<u64, Vec<Vec<u8>>>,
}

/// What is known of a rank.
pub(super) struct Peer {
    pub(super) heard: Instant,
    pub(super) progress: u64,
    pub(super) moved: Instant,
    pub(super) left: bool,
}

pub(super) struct Open {
    pub(super) since: Instant,
    pub(super) parts: Vec<Option<Vec<u8>>>,
}

impl Shared {
    pub(super) fn new(
        world: World,
        limit: Duration,
        controls: Vec<Control>,
        data: Vec<(u32, TcpStream)>,
    ) -> Self {
        let now = Instant::now();
        let peers =
            (0..world.size()).map(|_| Peer { heard: now, progress: 0, moved: now, left: false }).collect();
        let state = State {
            failed: None,
            callbacks: Vec::new(),
            left: false,
            peers,
            next: 0,
            open: BTreeMap::new(),
            whole: HashMap::new(),
        };
        let progress = AtomicU64::new(0);
        let (state, changed, failing) = (Mutex::new(state), Condvar::new(), Mutex::new(()));
        Self { world, limit, progress, controls, data, state, changed, failing }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn is_hub(&self) -> bool {
        self.world.rank() == 0
    }

    /// Connections for collectives of the host, by rank.
    pub(crate) fn data(&self) -> &[(u32, TcpStream)] {
        &self.data
    }

    pub(crate) fn error(&self) -> Option<Error> {
        self.lock().failed.clone()
    }

    /// Begins an exchange with this rank's part; returns its number.
    pub(super) fn post(&self, part: &[u8]) -> Result<u64> {
        let mut state = self.lock();
        if let Some(error) = &state.failed {
            return Err(error.clone());
        }
        let number = state.next;
        state.next += 1;
        if self.controls.is_empty() {
            state.whole.insert(number, vec![part.to_vec()]);
            return Ok(number);
        }
        drop(state);
        if self.is_hub() {
            self.add(0, number, part.to_vec());
        } else {
            self.tell(&self.controls[0], &Frame::Part(number, part.to_vec()).to_bytes());
        }
        Ok(number)
    }

    /// Waits for the other parts of an exchange.
    pub(super) fn collect(&self, number: u64) -> Result<Vec<Vec<u8>>> {
        // The hub finds who is missing; this is for a hub that finds nothing.
        let deadline = Instant::now() + 2 * self.limit + VERDICT;
        let mut state = self.lock();
        loop {
            if let Some(whole) = state.whole.remove(&number) {
                return Ok(whole);
            }
            if let Some(error) = &state.failed {
                return Err(error.clone());
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                drop(state);
                let why =
                    format!("rank 0 has not ended an exchange between the ranks for {:?}", 2 * self.limit);
                let error = Error::new(ErrorKind::Rank, why);
                self.fail(error.clone(), error.message(), None);
                return Err(self.error().unwrap_or(error));
            }
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// On the hub: `rank` has come to exchange `number`. The last one completes it for all.
    fn add(&self, rank: u32, number: u64, part: Vec<u8>) {
        let mut state = self.lock();
        let size = self.world.size() as usize;
        let open = state
            .open
            .entry(number)
            .or_insert_with(|| Open { since: Instant::now(), parts: (0..size).map(|_| None).collect() });
        open.parts[rank as usize] = Some(part);
        if open.parts.iter().any(Option::is_none) {
            return;
        }
        let whole: Vec<Vec<u8>> =
            state.open.remove(&number).into_iter().flat_map(|open| open.parts).flatten().collect();
        let bytes = Frame::Whole(number, whole.clone()).to_bytes();
        state.whole.insert(number, whole);
        drop(state);
        self.changed.notify_all();
        self.tell_all(&bytes, None);
    }

    /// A message of `rank` has arrived.
    pub(super) fn heard(&self, rank: u32, frame: Frame) {
        let now = Instant::now();
        let mut state = self.lock();
        let Some(peer) = state.peers.get_mut(rank as usize) else { return };
        peer.heard = now;
        match frame {
            Frame::Beat(progress) => {
                if progress != peer.progress {
                    (peer.progress, peer.moved) = (progress, now);
                }
            }
            Frame::Bye => {
                peer.left = true;
                drop(state);
                self.changed.notify_all();
            }
            Frame::Failed(why) => {
                drop(state);
                self.fail(Error::new(ErrorKind::Rank, why.clone()), &why, Some(rank));
            }
            Frame::Part(number, part) => {
                drop(state);
                if self.is_hub() {
                    self.add(rank, number, part);
                }
            }
            Frame::Whole(number, whole) => {
                state.whole.insert(number, whole);
                drop(state);
                self.changed.notify_all();
            }
            Frame::Welcome => {}
        }
    }

    /// The connection with `rank` has broken.
    pub(super) fn lost(&self, rank: u32) {
        let mut state = self.lock();
        let was_due = state.left || state.peers[rank as usize].left;
        state.peers[rank as usize].left = true;
        drop(state);
        self.changed.notify_all();
        if !was_due {
            let error = ended(rank);
            self.fail(error.clone(), error.message(), Some(rank));
        }
    }

    /// The run fails: `error` is what this rank gets, `why` what the others get, except `from`, who said it.
    pub(crate) fn fail(&self, error: Error, why: &str, from: Option<u32>) {
        let failing = self.failing.lock().unwrap_or_else(PoisonError::into_inner);
        {
            let state = self.lock();
            if state.failed.is_some() || state.left {
                return;
            }
        }
        // Before any caller of this rank gets the error: it may end the process at once, and the others would
        // see a broken connection without a reason.
        self.tell_all(&Frame::Failed(why.to_owned()).to_bytes(), from);
        let callbacks = {
            let mut state = self.lock();
            state.failed = Some(error.clone());
            std::mem::take(&mut state.callbacks)
        };
        drop(failing);
        self.changed.notify_all();
        // Ends collectives of the host that wait for another rank.
        for (_, connection) in &self.data {
            let _ = connection.shutdown(Shutdown::Both);
        }
        for callback in callbacks {
            call(callback, error.clone());
        }
    }

    /// The failure of the run after the connection with `rank` has broken: the hub may know more.
    pub(crate) fn verdict_on(&self, rank: u32) -> Error {
        let deadline = Instant::now() + VERDICT;
        let mut state = self.lock();
        loop {
            if let Some(error) = &state.failed {
                return error.clone();
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return ended(rank);
            }
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    pub(super) fn on_failure(&self, callback: Callback) {
        let mut state = self.lock();
        match state.failed.clone() {
            None => state.callbacks.push(callback),
            Some(error) => {
                drop(state);
                call(callback, error);
            }
        }
    }

    /// Says goodbye: the hub waits for all others first, they wait for the hub.
    pub(super) fn leave(&self) {
        if self.controls.is_empty() {
            self.lock().left = true;
            return;
        }
        let bye = Frame::Bye.to_bytes();
        self.lock().left = true;
        if !self.is_hub() {
            self.tell_all(&bye, None);
        }
        let deadline = Instant::now() + self.limit.min(VERDICT);
        let mut state = self.lock();
        while self.controls.iter().any(|control| !state.peers[control.rank as usize].left) {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        drop(state);
        if self.is_hub() {
            self.tell_all(&bye, None);
        }
    }

    /// Whether the threads of the group should end.
    pub(super) fn is_over(&self) -> bool {
        let state = self.lock();
        state.left || state.failed.is_some()
    }

    /// Sleeps for `pause`, or until the run is over.
    pub(super) fn pause(&self, pause: Duration) {
        let is_on = |state: &mut State| !state.left && state.failed.is_none();
        let slept = self.changed.wait_timeout_while(self.lock(), pause, is_on);
        drop(slept.unwrap_or_else(PoisonError::into_inner));
    }

    /// Closes all connections; the threads that listen to them end.
    pub(super) fn close(&self) {
        let failing = self.failing.lock().unwrap_or_else(PoisonError::into_inner);
        self.lock().left = true;
        drop(failing);
        self.changed.notify_all();
        for control in &self.controls {
            // What was said last is still sent.
            let _ = control.raw.shutdown(Shutdown::Both);
        }
        for (_, connection) in &self.data {
            let _ = connection.shutdown(Shutdown::Both);
        }
    }

    pub(super) fn tell_all(&self, bytes: &[u8], except: Option<u32>) {
        for control in self.controls.iter().filter(|control| Some(control.rank) != except) {
            self.tell(control, bytes);
        }
    }

    /// A write that fails needs no answer here: whoever listens to the connection finds its end too.
    fn tell(&self, control: &Control, bytes: &[u8]) {
        use std::io::Write;
        let mut writer = control.writer.lock().unwrap_or_else(PoisonError::into_inner);
        if writer.write_all(bytes).is_err() {
            // Part of a message may have been sent: nothing can follow it.
            let _ = control.raw.shutdown(Shutdown::Both);
        }
    }
}

/// Calls on a thread of its own: the caller may be needed to end what the callback waits for.
fn call(callback: Callback, error: Error) {
    let started =
        std::thread::Builder::new().name("fl-dist-failed".to_owned()).spawn(move || callback(&error));
    // Without a thread the callback is lost; the error is still returned by every call.
    drop(started);
}

fn ended(rank: u32) -> Error {
    let why = format!(
        "rank {rank} ended before the run did: see its output, and continue from the last checkpoint"
    );
    Error::new(ErrorKind::Rank, why)
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "rank {} of {}", self.world.rank(), self.world.size())
    }
}
