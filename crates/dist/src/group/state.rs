//! The state of a group on one rank: exchanges in progress, the last heartbeat of each peer, the first
//! failure.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::AtomicU64;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use feedline_core::{Error, ErrorKind, Result, World, deadline};

use super::message::Message;

/// How long a rank waits for the cause from rank 0 after a connection broke, before it reports its own.
const CAUSE_LIMIT: Duration = Duration::from_secs(2);

pub(crate) struct Shared {
    pub(crate) world: World,
    pub(crate) limit: Duration,
    /// The step of this rank.
    pub(crate) progress: AtomicU64,
    /// Rank 0's connections with all other ranks; another rank's connection with rank 0.
    pub(super) controls: Vec<Control>,
    /// For collectives of host devices: rank and connection, by rank.
    data: Vec<(u32, TcpStream)>,
    /// Held during a collective of host devices, so that its bytes are not interleaved with others.
    pub(crate) collective: Mutex<()>,
    state: Mutex<State>,
    changed: Condvar,
    /// Held while a complete exchange or a failure is sent to the others, and before the connections are
    /// closed.
    sending: Mutex<()>,
}

/// The connection for messages about the run.
pub(super) struct Control {
    pub(super) rank: u32,
    writer: Mutex<TcpStream>,
    /// For closing the connection while another thread writes.
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
    /// Whether this rank has finished the run.
    left: bool,
    /// State of each rank, by rank.
    pub(super) peers: Vec<Peer>,
    next: u64,
    /// On rank 0: exchanges that lack the parts of some ranks.
    pub(super) open: BTreeMap<u64, OpenExchange>,
    /// Complete exchanges, until they are collected.
    gathered: HashMap<u64, Vec<Vec<u8>>>,
}

/// The facts that this rank has about another one, or about itself.
pub(super) struct Peer {
    /// Arrival of its last message.
    pub(super) last_message: Instant,
    pub(super) progress: u64,
    /// Time of its last progress.
    pub(super) last_progress: Instant,
    pub(super) left: bool,
}

/// An exchange that lacks the parts of some ranks.
pub(super) struct OpenExchange {
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
        let peer = |_| Peer { last_message: now, progress: 0, last_progress: now, left: false };
        let peers = (0..world.size()).map(peer).collect();
        let state = State {
            failed: None,
            callbacks: Vec::new(),
            left: false,
            peers,
            next: 0,
            open: BTreeMap::new(),
            gathered: HashMap::new(),
        };
        let progress = AtomicU64::new(0);
        let (state, changed) = (Mutex::new(state), Condvar::new());
        let (collective, sending) = (Mutex::new(()), Mutex::new(()));
        Self { world, limit, progress, controls, data, collective, state, changed, sending }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether this is rank 0, which is connected with all others.
    pub(super) fn is_hub(&self) -> bool {
        self.world.rank() == 0
    }

    /// Connections for collectives of host devices, by rank.
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
            state.gathered.insert(number, vec![part.to_vec()]);
            return Ok(number);
        }
        drop(state);
        if self.is_hub() {
            self.add(0, number, part.to_vec());
        } else {
            self.send(&self.controls[0], &Message::Part(number, part.to_vec()).to_bytes());
        }
        Ok(number)
    }

    /// Waits for the other parts of an exchange.
    pub(super) fn collect(&self, number: u64) -> Result<Vec<Vec<u8>>> {
        // Rank 0 finds and reports a missing rank after one limit. This limit is for a rank 0 that is stuck
        // itself.
        let limit = self.limit.saturating_mul(2);
        let until = deadline(limit.saturating_add(CAUSE_LIMIT));
        let mut state = self.lock();
        loop {
            if let Some(parts) = state.gathered.remove(&number) {
                return Ok(parts);
            }
            if let Some(error) = &state.failed {
                return Err(error.clone());
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                drop(state);
                let why = format!("rank 0 has not ended an exchange between the ranks within {limit:?}");
                let error = Error::new(ErrorKind::Rank, why);
                self.fail(error.clone(), error.message(), None);
                return Err(self.error().unwrap_or(error));
            }
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// On rank 0: adds the part of `rank` to exchange `number`. The last part completes it for all ranks.
    fn add(&self, rank: u32, number: u64, part: Vec<u8>) {
        let mut state = self.lock();
        let size = self.world.size() as usize;
        let open = state
            .open
            .entry(number)
            .or_insert_with(|| OpenExchange { since: Instant::now(), parts: vec![None; size] });
        open.parts[rank as usize] = Some(part);
        if open.parts.iter().any(Option::is_none) {
            return;
        }
        let parts: Vec<Vec<u8>> =
            state.open.remove(&number).into_iter().flat_map(|open| open.parts).flatten().collect();
        let bytes = Message::Gathered(number, parts.clone()).to_bytes();
        drop(state);
        // Sends the parts before this rank's own caller gets them, and before any failure. Otherwise a rank
        // could leave the run because of the parts, and others would learn of that first.
        let sending = self.sending.lock().unwrap_or_else(PoisonError::into_inner);
        self.send_all(&bytes, None);
        self.lock().gathered.insert(number, parts);
        drop(sending);
        self.changed.notify_all();
    }

    /// Handles a message of `rank`.
    pub(super) fn receive(&self, rank: u32, message: Message) {
        let now = Instant::now();
        let mut state = self.lock();
        let Some(peer) = state.peers.get_mut(rank as usize) else { return };
        peer.last_message = now;
        match message {
            Message::Heartbeat(progress) => {
                if progress != peer.progress {
                    (peer.progress, peer.last_progress) = (progress, now);
                }
            }
            Message::Leave => {
                peer.left = true;
                drop(state);
                self.changed.notify_all();
            }
            Message::Failed(why) => {
                drop(state);
                self.fail(Error::new(ErrorKind::Rank, why.clone()), &why, Some(rank));
            }
            Message::Part(number, part) => {
                drop(state);
                if self.is_hub() {
                    self.add(rank, number, part);
                }
            }
            Message::Gathered(number, parts) => {
                state.gathered.insert(number, parts);
                drop(state);
                self.changed.notify_all();
            }
            Message::Welcome => {}
        }
    }

    /// Handles the end of the connection with `rank`.
    pub(super) fn lose(&self, rank: u32) {
        let mut state = self.lock();
        let was_expected = state.left || state.peers[rank as usize].left;
        state.peers[rank as usize].left = true;
        drop(state);
        self.changed.notify_all();
        if !was_expected {
            let error = ended(rank);
            self.fail(error.clone(), error.message(), Some(rank));
        }
    }

    /// Fails the run: this rank gets `error`, the others get `why`, except `from`, which sent it.
    pub(crate) fn fail(&self, error: Error, why: &str, from: Option<u32>) {
        let sending = self.sending.lock().unwrap_or_else(PoisonError::into_inner);
        {
            let state = self.lock();
            if state.failed.is_some() || state.left {
                return;
            }
        }
        // Sends the failure first. A caller of this rank that gets the error may end the process at once, and
        // the other ranks would see a broken connection without a cause.
        self.send_all(&Message::Failed(why.to_owned()).to_bytes(), from);
        let callbacks = {
            let mut state = self.lock();
            state.failed = Some(error.clone());
            std::mem::take(&mut state.callbacks)
        };
        drop(sending);
        self.changed.notify_all();
        // Ends collectives of host devices that wait for another rank.
        for (_, connection) in &self.data {
            let _ = connection.shutdown(Shutdown::Both);
        }
        for callback in callbacks {
            call(callback, error.clone());
        }
    }

    /// The error of the run after the connection with `rank` has broken. Blocks until rank 0 has sent the
    /// cause, for at most two seconds.
    pub(crate) fn cause_of_loss(&self, rank: u32) -> Error {
        let until = deadline(CAUSE_LIMIT);
        let mut state = self.lock();
        loop {
            if let Some(error) = &state.failed {
                return error.clone();
            }
            let left = until.saturating_duration_since(Instant::now());
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

    /// Leaves the run: rank 0 waits until all others have left, they wait until rank 0 has.
    pub(super) fn leave(&self) {
        if self.controls.is_empty() {
            self.lock().left = true;
            return;
        }
        let leave = Message::Leave.to_bytes();
        self.lock().left = true;
        if !self.is_hub() {
            self.send_all(&leave, None);
        }
        let until = deadline(self.limit.min(CAUSE_LIMIT));
        let mut state = self.lock();
        while self.controls.iter().any(|control| !state.peers[control.rank as usize].left) {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        drop(state);
        if self.is_hub() {
            self.send_all(&leave, None);
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
        let sending = self.sending.lock().unwrap_or_else(PoisonError::into_inner);
        self.lock().left = true;
        drop(sending);
        self.changed.notify_all();
        for control in &self.controls {
            // The system still sends the bytes that are already written.
            let _ = control.raw.shutdown(Shutdown::Both);
        }
        for (_, connection) in &self.data {
            let _ = connection.shutdown(Shutdown::Both);
        }
    }

    pub(super) fn send_all(&self, bytes: &[u8], except: Option<u32>) {
        for control in self.controls.iter().filter(|control| Some(control.rank) != except) {
            self.send(control, bytes);
        }
    }

    /// Sends bytes to a rank. A failure is handled by the thread that listens to the connection.
    fn send(&self, control: &Control, bytes: &[u8]) {
        use std::io::Write;
        let mut writer = control.writer.lock().unwrap_or_else(PoisonError::into_inner);
        if writer.write_all(bytes).is_err() {
            // Part of a message may have been sent, so nothing can follow it.
            let _ = control.raw.shutdown(Shutdown::Both);
        }
    }
}

/// Runs a callback on a thread of its own, since it may wait for the caller.
fn call(callback: Callback, error: Error) {
    let started =
        std::thread::Builder::new().name("fl-dist-failed".to_owned()).spawn(move || callback(&error));
    // Without a thread the callback is lost. Every call still returns the error.
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

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::sync::mpsc::channel;

    use feedline_testkit::{watchdog::LIMIT, with_watchdog};

    use super::*;

    /// The state of rank 0, and the other ends of its control connections, by rank.
    fn hub(ranks: u32) -> (Shared, Vec<TcpStream>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (mut controls, mut peers) = (Vec::new(), Vec::new());
        for rank in 1..ranks {
            peers.push(TcpStream::connect(address).unwrap());
            controls.push(Control::new(rank, listener.accept().unwrap().0).unwrap());
        }
        (Shared::new(World::new(0, ranks).unwrap(), LIMIT, controls, Vec::new()), peers)
    }

    /// Rank 0 sends a complete exchange to rank 2, which does not read yet. Meanwhile rank 2 fails.
    #[test]
    fn a_failure_is_sent_after_an_exchange_that_is_complete() {
        with_watchdog(LIMIT, || {
            let (hub, peers) = hub(3);
            // More than a socket holds.
            let number = hub.post(&vec![7; 32 << 20]).unwrap();
            hub.receive(1, Message::Part(number, vec![1]));
            let (first, read) = channel();
            let [to_first, to_second] = &peers[..] else { unreachable!("two peers") };
            let next = |mut peer: &TcpStream| Message::read(&mut peer).unwrap();
            std::thread::scope(|scope| {
                scope.spawn(|| hub.receive(2, Message::Part(number, vec![2])));
                let of_first = scope.spawn(|| {
                    let gathered = next(to_first);
                    first.send(()).unwrap();
                    (gathered, next(to_first))
                });
                read.recv().unwrap();
                let failure = scope.spawn(|| hub.receive(2, Message::Failed("rank 2 left".to_owned())));
                // If the order were wrong, the failure would arrive now.
                std::thread::sleep(Duration::from_millis(100));
                let is_early = hub.error().is_some();
                let of_second = scope.spawn(|| next(to_second));
                let parts = hub.collect(number);
                failure.join().unwrap();
                assert!(matches!(of_first.join().unwrap(), (Message::Gathered(..), Message::Failed(..))));
                assert!(matches!(of_second.join().unwrap(), Message::Gathered(..)));
                assert!(!is_early, "the failure came before the parts");
                assert_eq!(parts.unwrap()[1..], [[1], [2]]);
                assert!(hub.error().is_some());
            });
        });
    }
}
