//! Messages from many threads to one.

use std::collections::VecDeque;
use std::time::Duration;

use crate::monitor::Monitor;
use crate::sync::{AtomicUsize, Ordering};

/// Messages from many threads to one, in their order.
///
/// A wake-up costs both threads more than a short piece of work. So a sender may leave the receiver asleep,
/// send more, and wake it once.
///
/// ```
/// use feedline_slots::Mailbox;
/// let mailbox = Mailbox::new(2);
/// std::thread::scope(|scope| {
///     let received = scope.spawn(|| [mailbox.recv(None), mailbox.recv(None)]);
///     mailbox.send("a", false);
///     mailbox.send("b", true);
///     assert_eq!(received.join().unwrap(), [Some("a"), Some("b")]);
/// });
/// ```
#[derive(Debug)]
pub struct Mailbox<T> {
    messages: Monitor<VecDeque<T>>,
    /// The number of messages, for a look without the lock. Changes under the lock.
    len: AtomicUsize,
}

impl<T> Mailbox<T> {
    /// An empty mailbox; `capacity` messages need no further memory.
    pub fn new(capacity: usize) -> Self {
        let messages = Monitor::sleeping(VecDeque::with_capacity(capacity));
        Self { messages, len: AtomicUsize::new(0) }
    }

    /// Adds a message. Without `wake`, a receiver that sleeps goes on sleeping: the caller wakes it later, by
    /// [`wake`](Self::wake) or with another message.
    pub fn send(&self, message: T, wake: bool) {
        self.messages.add(usize::from(wake), |messages| {
            messages.push_back(message);
            self.len.store(messages.len(), Ordering::Release);
            ((), messages.len())
        });
    }

    /// Wakes the receiver if it sleeps and there is a message.
    pub fn wake(&self) {
        if !self.is_empty() {
            self.messages.add(1, |messages| ((), messages.len()));
        }
    }

    /// Whether there is no message. Does not lock: a message that is being sent may be missed.
    pub fn is_empty(&self) -> bool {
        self.len.load(Ordering::Acquire) == 0
    }

    /// The next message, if there is one; never sleeps. As for [`is_empty`](Self::is_empty), a message that
    /// is being sent may be missed.
    pub fn try_recv(&self) -> Option<T> {
        if self.is_empty() { None } else { self.recv(Some(Duration::ZERO)) }
    }

    /// The next message. Sleeps until there is one, for at most `limit`.
    pub fn recv(&self, limit: Option<Duration>) -> Option<T> {
        self.messages.wait(limit, |messages| {
            let message = messages.pop_front()?;
            self.len.store(messages.len(), Ordering::Release);
            Some(message)
        })
    }
}
