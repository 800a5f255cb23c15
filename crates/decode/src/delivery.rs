//! Batches leave in the order in which they were taken, whoever is done first.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use feedline_core::Result;

/// What became of a number.
pub(crate) enum Outcome<T> {
    /// A batch, to be delivered.
    Batch(T),
    /// The end of the stage, and why: nothing after it is delivered.
    Over(Result<()>),
}

/// The place of each number from the next to be delivered on. Room for all is taken once.
///
/// Whoever puts the next one in its place delivers it, and those that stand ready behind it. One at a time does so, and not
/// under the lock: others put theirs down and go.
///
/// At the end the way to the receiver is dropped at once: who receives hears of it, though others still fill batches that
/// nobody will see.
pub(crate) struct Delivery<T, W> {
    line: Mutex<Line<T, W>>,
}

/// The way of batches to who receives them.
pub(crate) trait Way<T> {
    /// Delivers one; whether anybody takes it still.
    fn send(&mut self, batch: T) -> bool;

    /// Tells how it ended, right before this is dropped.
    fn end(&mut self, end: Result<()>);
}

struct Line<T, W> {
    /// The next number to be delivered, that of the place in front.
    next: u64,
    places: VecDeque<Option<Outcome<T>>>,
    /// `None` while somebody delivers, and after the end.
    way: Option<W>,
    over: bool,
}

impl<T, W: Way<T>> Delivery<T, W> {
    /// Room for the numbers from 0 on, `ahead` of them at a time.
    pub(crate) fn new(ahead: usize, way: W) -> Self {
        let places = VecDeque::with_capacity(ahead);
        Self { line: Mutex::new(Line { next: 0, places, way: Some(way), over: false }) }
    }

    /// Puts the outcome of `number` in its place, and delivers what can be; returns whether the end was reached.
    pub(crate) fn put(&self, number: u64, outcome: Outcome<T>) -> bool {
        let mut line = self.line();
        line.put(number, outcome);
        // Who delivers looks again before it goes.
        let Some(mut way) = line.way.take() else { return line.over };
        while let Some(outcome) = line.take() {
            let end = match outcome {
                Outcome::Over(end) => Some(end),
                Outcome::Batch(batch) => {
                    drop(line);
                    let taken = way.send(batch);
                    line = self.line();
                    (!taken).then_some(Ok(()))
                }
            };
            if let Some(end) = end {
                line.over = true;
                let late = std::mem::take(&mut line.places);
                drop(line);
                way.end(end);
                drop((way, late));
                return true;
            }
        }
        line.way = Some(way);
        false
    }

    /// Ends it with `end`, unless it has ended; what stands in the line is not delivered.
    pub(crate) fn close(&self, end: Result<()>) {
        let mut line = self.line();
        line.over = true;
        let (way, late) = (line.way.take(), std::mem::take(&mut line.places));
        drop(line);
        if let Some(mut way) = way {
            way.end(end);
        }
        drop(late);
    }

    fn line(&self) -> MutexGuard<'_, Line<T, W>> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T, W> Line<T, W> {
    fn put(&mut self, number: u64, outcome: Outcome<T>) {
        if self.over {
            return;
        }
        let index = (number - self.next) as usize;
        while self.places.len() <= index {
            self.places.push_back(None);
        }
        self.places[index] = Some(outcome);
    }

    /// The next one, when it is there.
    fn take(&mut self) -> Option<Outcome<T>> {
        let outcome = self.places.front_mut()?.take()?;
        self.places.pop_front();
        self.next += 1;
        Some(outcome)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::sync::{Arc, mpsc};

    use feedline_core::{Error, ErrorKind};
    use feedline_testkit::{watchdog::LIMIT, with_watchdog};

    use super::*;

    fn error(number: u64) -> Outcome<u64> {
        Outcome::Over(Err(Error::new(ErrorKind::Sample, number.to_string())))
    }

    /// What was sent, and how it ended.
    #[derive(Default)]
    struct Seen {
        sent: Vec<u64>,
        end: Option<Result<()>>,
        dropped: bool,
    }

    /// A way that notes what goes over it, and may be held up.
    struct Noted {
        seen: Arc<Mutex<Seen>>,
        on_send: Box<dyn FnMut(u64) -> bool + Send>,
    }

    impl Way<u64> for Noted {
        fn send(&mut self, number: u64) -> bool {
            let taken = (self.on_send)(number);
            self.seen.lock().unwrap().sent.push(number);
            taken
        }

        fn end(&mut self, end: Result<()>) {
            assert!(self.seen.lock().unwrap().end.replace(end).is_none(), "it ends once");
        }
    }

    impl Drop for Noted {
        fn drop(&mut self) {
            self.seen.lock().unwrap().dropped = true;
        }
    }

    fn noted(
        ahead: usize,
        on_send: impl FnMut(u64) -> bool + Send + 'static,
    ) -> (Delivery<u64, Noted>, Arc<Mutex<Seen>>) {
        let seen = Arc::<Mutex<Seen>>::default();
        (Delivery::new(ahead, Noted { seen: seen.clone(), on_send: Box::new(on_send) }), seen)
    }

    #[test]
    fn whoever_is_done_first_the_line_leaves_in_order_up_to_its_end() {
        const LAST: u64 = 200;
        for round in 0..50 {
            let (delivery, seen) = noted(8, |_| true);
            let taken = AtomicU64::new(0);
            std::thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| {
                        loop {
                            let number = taken.fetch_add(1, Ordering::Relaxed);
                            if number > LAST + 20 {
                                return;
                            }
                            // Two ends, of which the second may be put down first.
                            let outcome =
                                if number % LAST == round { error(number) } else { Outcome::Batch(number) };
                            let outcome = if number == 0 && round == 0 { Outcome::Batch(0) } else { outcome };
                            delivery.put(number, outcome);
                        }
                    });
                }
            });
            let end = if round == 0 { LAST } else { round };
            let seen = seen.lock().unwrap();
            assert!(seen.sent.iter().copied().eq(0..end));
            assert_eq!(seen.end.clone().unwrap().unwrap_err().message(), end.to_string());
            assert!(seen.dropped);
        }
    }

    #[test]
    fn who_puts_down_another_does_not_wait_for_the_delivery() {
        with_watchdog(LIMIT, || {
            let ((begin, begun), (go, gone)) = (mpsc::channel(), mpsc::channel::<()>());
            let (delivery, seen) = noted(2, move |_| {
                begin.send(()).unwrap();
                gone.recv().is_ok()
            });
            std::thread::scope(|scope| {
                scope.spawn(|| delivery.put(0, Outcome::Batch(0)));
                begun.recv().unwrap();
                // The first is under way: the second is put down all the same, and left to who delivers.
                assert!(!delivery.put(1, Outcome::Batch(1)));
                assert!(seen.lock().unwrap().sent.is_empty());
                go.send(()).unwrap();
                go.send(()).unwrap();
                begun.recv().unwrap();
            });
            assert_eq!(seen.lock().unwrap().sent, [0, 1]);
        });
    }

    #[test]
    fn nothing_is_delivered_when_nobody_takes_it() {
        let (delivery, seen) = noted(2, |number| number != 0);
        assert!(!delivery.put(1, error(1)));
        assert!(delivery.put(0, Outcome::Batch(0)));
        assert!(delivery.put(2, Outcome::Batch(2)));
        let seen = seen.lock().unwrap();
        assert_eq!((&seen.sent[..], seen.end.clone().unwrap().is_ok(), seen.dropped), (&[0][..], true, true));
    }

    #[test]
    fn closed_it_ends_once_and_delivers_no_more() {
        let (delivery, seen) = noted(2, |_| true);
        assert!(!delivery.put(1, Outcome::Batch(1)));
        delivery.close(Ok(()));
        delivery.close(Err(Error::new(ErrorKind::Panic, "late")));
        assert!(delivery.put(0, Outcome::Batch(0)));
        let seen = seen.lock().unwrap();
        assert_eq!((seen.sent.len(), seen.end.clone().unwrap().is_ok(), seen.dropped), (0, true, true));
    }
}
