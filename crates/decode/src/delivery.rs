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
pub(crate) struct Delivery<T> {
    line: Mutex<Line<T>>,
}

struct Line<T> {
    /// The next number to be delivered, that of the place in front.
    next: u64,
    places: VecDeque<Option<Outcome<T>>>,
    /// Whether somebody delivers.
    delivering: bool,
    over: Option<Result<()>>,
}

impl<T> Delivery<T> {
    /// Room for the numbers from 0 on, `ahead` of them at a time.
    pub(crate) fn new(ahead: usize) -> Self {
        let places = VecDeque::with_capacity(ahead);
        Self { line: Mutex::new(Line { next: 0, places, delivering: false, over: None }) }
    }

    /// Puts the outcome of `number` in its place, and delivers what can be by `send`, which says whether anybody takes it
    /// still; returns whether the end was reached.
    pub(crate) fn put(&self, number: u64, outcome: Outcome<T>, send: impl Fn(T) -> bool) -> bool {
        let mut line = self.line();
        line.put(number, outcome);
        if line.delivering {
            return line.over.is_some(); // who delivers looks again before it goes
        }
        line.delivering = true;
        while let Some(outcome) = line.take() {
            let end = match outcome {
                Outcome::Over(end) => Some(end),
                Outcome::Batch(batch) => {
                    drop(line);
                    let taken = send(batch);
                    line = self.line();
                    (!taken).then_some(Ok(()))
                }
            };
            if let Some(end) = end {
                line.over = Some(end);
                line.places.clear();
            }
        }
        line.delivering = false;
        line.over.is_some()
    }

    /// How it ended, when it did.
    pub(crate) fn end(self) -> Option<Result<()>> {
        self.line.into_inner().unwrap_or_else(PoisonError::into_inner).over
    }

    fn line(&self) -> MutexGuard<'_, Line<T>> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Line<T> {
    fn put(&mut self, number: u64, outcome: Outcome<T>) {
        if self.over.is_some() {
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
    use std::sync::{Mutex, mpsc};

    use feedline_core::{Error, ErrorKind};
    use feedline_testkit::{watchdog::LIMIT, with_watchdog};

    use super::*;

    fn error(number: u64) -> Outcome<u64> {
        Outcome::Over(Err(Error::new(ErrorKind::Sample, number.to_string())))
    }

    #[test]
    fn whoever_is_done_first_the_line_leaves_in_order_up_to_its_end() {
        const LAST: u64 = 200;
        for round in 0..50 {
            let (delivery, taken, sent) = (Delivery::new(8), AtomicU64::new(0), Mutex::new(Vec::new()));
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
                            delivery.put(number, outcome, |number| {
                                let mut sent = sent.try_lock().expect("one delivers at a time");
                                sent.push(number);
                                true
                            });
                        }
                    });
                }
            });
            let end = if round == 0 { LAST } else { round };
            assert!(sent.into_inner().unwrap().into_iter().eq(0..end));
            assert_eq!(delivery.end().unwrap().unwrap_err().message(), end.to_string());
        }
    }

    #[test]
    fn who_puts_down_another_does_not_wait_for_the_delivery() {
        with_watchdog(LIMIT, || {
            let delivery = Delivery::new(2);
            let ((begin, begun), (go, gone)) = (mpsc::channel(), mpsc::channel());
            let sent = Mutex::new(Vec::new());
            std::thread::scope(|scope| {
                let gone = Mutex::new(gone);
                let (delivery, sent) = (&delivery, &sent);
                scope.spawn(move || {
                    delivery.put(0, Outcome::Batch(0), |number| {
                        begin.send(()).unwrap();
                        gone.lock().unwrap().recv().unwrap();
                        sent.lock().unwrap().push(number);
                        true
                    })
                });
                begun.recv().unwrap();
                // The first is under way: the second is put down all the same, and left to who delivers.
                assert!(!delivery.put(1, Outcome::Batch(1), |_| panic!("it is not this one's to deliver")));
                go.send(()).unwrap();
                go.send(()).unwrap();
                begun.recv().unwrap();
            });
            assert_eq!(sent.into_inner().unwrap(), [0, 1]);
        });
    }

    #[test]
    fn nothing_is_delivered_when_nobody_takes_it() {
        let delivery = Delivery::new(2);
        assert!(!delivery.put(1, error(1), |_| true));
        assert!(delivery.put(0, Outcome::Batch(0), |_| false));
        assert!(delivery.put(2, Outcome::Batch(2), |_| panic!("delivered after the end")));
        assert!(delivery.end().unwrap().is_ok());
    }
}
