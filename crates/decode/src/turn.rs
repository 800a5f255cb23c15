//! Whose turn it is to take the next batch; and what makers do whose turn it is not.

use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crossbeam_channel::Sender;
use feedline_core::Ticket;
use feedline_slots::{Counts, Moves};

use crate::Run;
use crate::feed::Feed;
use crate::pace::{Pace, stay_awake};
use crate::patience::Patience;

/// What is done by one maker at a time: where the stage is. It goes from hand to hand.
pub(crate) struct Head {
    pub(crate) feed: Box<dyn Feed>,
    /// The run that is going on; none before the first and after the last epoch of one.
    pub(crate) run: Option<Run>,
    /// Batches of its epoch that were taken.
    pub(crate) steps: u64,
    /// The number of the next batch, over all runs.
    pub(crate) number: u64,
    pub(crate) patience: Patience,
    /// Of the last batches, about how many were taken while slots lay empty.
    behind: u32,
    /// Whether makers wait awake.
    hurry: bool,
}

/// So many batches taken while slots lay empty are no accident.
const BEHIND: u32 = 8;

/// What it takes to pass the turn on to a maker that is awake, about: batches that are done sooner are one's alone.
const TURN: Duration = Duration::from_micros(2);

/// A turn that took longer has waited for something.
const WAITED: Duration = Duration::from_micros(10);

impl Head {
    pub(crate) fn new(feed: Box<dyn Feed>, patience: Patience) -> Self {
        Self { feed, run: None, steps: 0, number: 0, patience, behind: 0, hurry: false }
    }

    /// Decides whether there is a hurry: whether decoding is what the pipeline waits for. Told once a batch, when its slot was just
    /// taken: how long the turn took for that, of `slots` slots in all, and how long the batch will take.
    ///
    /// Where the device is slower, a slot is waited for, or the copy out of it, or every other slot holds a batch that is done when
    /// one comes home. At the beginning of a run the slots are empty too: it takes some batches more to be sure.
    pub(crate) fn judge(&mut self, turn: Duration, slots: usize, counts: Counts, batch: Duration) {
        let behind = turn < WAITED && counts.ready + counts.lost + 1 < slots;
        self.behind = if behind { (self.behind + 1).min(2 * BEHIND) } else { self.behind / 2 };
        self.hurry = self.behind >= BEHIND && batch > TURN;
    }

    /// Goes to the beginning of `run`.
    pub(crate) fn begin(&mut self, run: Run) {
        self.feed.begin(run);
        self.patience.forget();
        (self.run, self.steps) = (Some(run), 0);
    }

    /// Goes on to the epoch after one that is over, when the run has another.
    pub(crate) fn begin_next_epoch(&mut self, run: Run) {
        if run.epoch < run.end.saturating_sub(1) {
            self.begin(Run { epoch: run.epoch + 1, start: 0, offset: 0, ..run });
        } else {
            self.run = None;
        }
    }

    /// Writes into `ticket` which batch is next.
    pub(crate) fn name(&self, run: Run, ticket: &mut Ticket) {
        (ticket.run, ticket.epoch, ticket.step, ticket.reached) = (run.number, run.epoch, self.steps, None);
    }
}

/// The makers' queue for the head.
///
/// A maker that waits is a worker that does not read. So, as long as a batch is in pieces, no maker waits without a limit: it
/// reads pieces of that batch, and asks again. When there are no pieces it sleeps until it is woken.
///
/// To sleep and be woken takes longer than to make a small batch. So where decoding is what the pipeline waits for, a maker
/// stays awake for a moment before it sleeps, and takes its turn as soon as there is one; given that there are cores enough.
///
/// For the same reason nobody is woken for a batch that is expected to be done sooner. It may not be: a read may take as long as
/// it likes. So of the makers that sleep one is the watch, and looks from time to time whether the head was left alone.
pub(crate) struct Turn {
    state: Mutex<State>,
    free: Condvar,
    /// Counts when there is something to take or to end; for those who stay awake, that they need not lock to look.
    news: Moves,
    /// Whether there are cores for makers who stay awake.
    has_cores: bool,
    /// Batches in pieces. Only who has the head adds one.
    split: AtomicUsize,
}

struct State {
    /// `None` while a maker has it.
    head: Option<Head>,
    /// Makers that sleep, or help with pieces meanwhile.
    waiting: usize,
    /// Those among them that sleep until they are woken.
    asleep: usize,
    /// Whether one of them is the watch.
    watched: bool,
    /// Makers that wait awake.
    awake: usize,
    /// Whether to wait awake.
    hurry: bool,
    /// Open until the stage is over.
    open: Option<Sender<Infallible>>,
}

/// A batch in pieces, until it is dropped.
pub(crate) struct InPieces<'a>(&'a Turn);

impl Turn {
    /// How long a maker stays awake for what it waits for: about as long as it takes to wake it.
    const AWAKE: Duration = Duration::from_micros(20);
    /// How often the watch looks: so long a read that takes unexpectedly long keeps the others asleep. A look costs some 20 us, also
    /// where all wait for the device.
    const WATCH: Duration = Duration::from_millis(100);

    /// `open` is dropped when the stage is over.
    pub(crate) fn new(head: Head, open: Sender<Infallible>, cores: usize) -> Self {
        let state = State {
            head: Some(head),
            waiting: 0,
            asleep: 0,
            watched: false,
            awake: 0,
            hurry: false,
            open: Some(open),
        };
        Self {
            state: Mutex::new(state),
            free: Condvar::new(),
            news: Moves::default(),
            // The consumer, the transfer thread and the maker at work have one each.
            has_cores: cores > 3,
            split: AtomicUsize::new(0),
        }
    }

    /// Takes the head, waiting for it; `None` when the stage is over.
    pub(crate) fn take(&self, pace: &mut Pace) -> Option<Head> {
        let mut asleep_from = None;
        let mut state = self.state();
        loop {
            state.open.as_ref()?;
            if let Some(head) = state.head.take() {
                let is_unwatched = state.asleep > 0 && !state.watched;
                drop(state);
                if is_unwatched {
                    self.free.notify_one();
                }
                return Some(head);
            }
            if state.hurry && self.limit(pace).is_none() {
                let until = *asleep_from.get_or_insert_with(|| Instant::now() + Self::AWAKE);
                if Instant::now() < until {
                    state.awake += 1;
                    let before = self.news.now();
                    drop(state);
                    stay_awake(until, || self.news.now() != before);
                    state = self.state();
                    state.awake -= 1;
                    continue;
                }
            }
            state.waiting += 1;
            state = match self.limit(pace) {
                None => self.sleep(state),
                Some(Duration::ZERO) => state,
                Some(limit) => self.free.wait_timeout(state, limit).unwrap_or_else(PoisonError::into_inner).0,
            };
            state.waiting -= 1;
            if state.head.is_none() && self.limit(pace).is_some() {
                drop(state);
                pace.help();
                state = self.state();
            }
        }
    }

    /// Sleeps until woken; or, as the watch, for a while.
    fn sleep<'a>(&self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        if state.watched {
            state.asleep += 1;
            state = self.free.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.asleep -= 1;
        } else {
            state.watched = true;
            state = self.free.wait_timeout(state, Self::WATCH).unwrap_or_else(PoisonError::into_inner).0;
            state.watched = false;
        }
        state
    }

    /// How long who has the head, or waits for it, may wait before it is to [`help`](Self::help); no limit when there is
    /// nothing to help with, and for who has the head there will not be.
    pub(crate) fn limit(&self, pace: &Pace) -> Option<Duration> {
        (self.split.load(Ordering::Relaxed) > 0).then_some(pace.wait())
    }

    /// Gives the head back, after a wait that came to its limit, and reads pieces.
    pub(crate) fn help(&self, head: Head, pace: &mut Pace) {
        self.give(head, false);
        pace.help_and_look();
    }

    /// Counts the batch that was just taken as one in pieces; before the head is given back.
    pub(crate) fn in_pieces(&self) -> InPieces<'_> {
        self.split.fetch_add(1, Ordering::Relaxed);
        InPieces(self)
    }

    /// Gives the head back; when `wake`, to makers that sleep: one to take it, all when there are pieces to read. In a hurry one is
    /// woken for any batch, unless another is awake.
    pub(crate) fn give(&self, head: Head, wake: bool) {
        let mut state = self.state();
        if state.open.is_none() {
            drop(state);
            return; // `head` is dropped outside of the lock: it holds what users wrote
        }
        state.hurry = head.hurry && self.has_cores;
        state.head = Some(head);
        self.news.count();
        let State { waiting, awake, hurry, .. } = *state;
        drop(state);
        // Not under the lock: who is woken takes it first.
        let in_pieces = self.split.load(Ordering::Relaxed) > 0;
        if waiting > 0 && wake && in_pieces {
            self.free.notify_all();
        } else if waiting > 0 && (wake || hurry) && awake == 0 && !in_pieces {
            self.free.notify_one();
        }
    }

    /// Ends all turns, and all waits for one. Calling it again does nothing.
    pub(crate) fn close(&self) {
        let mut state = self.state();
        let (head, open) = (state.head.take(), state.open.take());
        self.news.count();
        drop(state);
        self.free.notify_all();
        drop((head, open));
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for InPieces<'_> {
    fn drop(&mut self) {
        self.0.split.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crossbeam_channel::bounded;
    use feedline_core::Result;
    use feedline_testkit::{watchdog::LIMIT, with_watchdog};

    use super::*;
    use crate::feed::{Calls, Next, Records};

    /// A feed of which nothing is asked.
    struct Unused;

    impl Feed for Unused {
        fn begin(&mut self, _: Run) {}

        fn is_over(&self, _: u64) -> bool {
            true
        }

        fn take(&mut self, _: &mut Ticket, _: &mut Records, _: &Calls) -> Result<Next> {
            Ok(Next::End)
        }
    }

    fn turn(cores: usize) -> Arc<Turn> {
        Arc::new(Turn::new(Head::new(Box::new(Unused), Patience::new(1)), bounded(0).0, cores))
    }

    fn counts(filling: usize, ready: usize, free: usize) -> Counts {
        Counts { filling, ready, free, ..Counts::default() }
    }

    #[test]
    fn only_a_line_of_batches_taken_beside_empty_slots_is_behind() {
        let mut head = Head::new(Box::new(Unused), Patience::new(4));
        let mut ask = |turn, counts| {
            head.judge(turn, 4, counts, 2 * TURN);
            head.hurry
        };
        let at_once = Duration::ZERO;
        // A run begins: all slots are filled, one after the other.
        assert!((0..4).all(|ready| !ask(at_once, counts(1, ready, 3 - ready))));
        // A slower device: one slot comes home at a time; now and then two.
        let slow = |at| if at % 2 == 0 { counts(1, 3, 0) } else { counts(1, 2, 1) };
        assert!((0..100).all(|at| !ask(at_once, slow(at))));
        // The same, where copies wait for the device and batches for nobody; of two copies a wait is for the second.
        assert!((0..100).all(|at| !ask(WAITED * (at % 2), counts(1, 0, 0))));
        // A faster one.
        let first = (0..100).position(|_| ask(at_once, counts(1, 0, 3)));
        assert!(first.is_some_and(|first| (4..BEHIND as usize).contains(&first)), "{first:?}");
        // Now and then all others are done, and wait for nobody but the first of them.
        assert!((0..100).all(|at| ask(at_once, counts(1, if at % 9 == 8 { 3 } else { 1 }, 2))));
        // Not any more.
        ask(WAITED, counts(1, 0, 3));
        assert!(!ask(WAITED, counts(1, 0, 3)));
    }

    #[test]
    fn with_one_slot_or_for_batches_shorter_than_a_turn_nobody_hurries() {
        for (slots, free, time, hurry) in
            [(1, 0, 2 * TURN, false), (4, 3, TURN, false), (4, 3, 2 * TURN, true)]
        {
            let mut head = Head::new(Box::new(Unused), Patience::new(4));
            (0..100).for_each(|_| head.judge(Duration::ZERO, slots, counts(1, 0, free), time));
            assert_eq!(head.hurry, hurry);
        }
    }

    /// Makers that wait asleep for the head that the caller has.
    fn asleep(turn: &Arc<Turn>, makers: usize) -> Vec<std::thread::JoinHandle<()>> {
        let spawn = |turn: Arc<Turn>| {
            std::thread::spawn(move || {
                let head = turn.take(&mut Pace::new()).expect("the head");
                turn.give(head, false);
            })
        };
        let threads = (0..makers).map(|_| spawn(turn.clone())).collect();
        while turn.state().waiting < makers {
            std::thread::yield_now();
        }
        threads
    }

    #[test]
    fn in_a_hurry_who_sleeps_is_woken_for_any_batch() {
        with_watchdog(LIMIT, || {
            let turn = turn(8);
            let mut head = turn.take(&mut Pace::new()).unwrap();
            let makers = asleep(&turn, 3);
            // One after the other: each wakes the next.
            head.hurry = true;
            turn.give(head, false);
            makers.into_iter().for_each(|maker| maker.join().unwrap());
        });
    }

    #[test]
    fn without_cores_or_a_hurry_small_batches_wake_nobody_but_the_watch_finds_a_head_that_is_left_alone() {
        with_watchdog(LIMIT, || {
            for (cores, hurry) in [(3, true), (8, false)] {
                // A machine that pauses lets the watch look: then once more.
                while !sleeps_until_the_watch_looks(cores, hurry) {}
            }
        });
    }

    /// Gives the head many times without a word, before the watch has looked; false when that took too long to tell.
    fn sleeps_until_the_watch_looks(cores: usize, hurry: bool) -> bool {
        let turn = turn(cores);
        let mut head = turn.take(&mut Pace::new()).unwrap();
        let start = Instant::now();
        let makers = asleep(&turn, 8);
        head.hurry = hurry;
        let mut is_woken = false;
        for _ in 0..5000 {
            turn.give(head, false);
            head = turn.take(&mut Pace::new()).unwrap();
            is_woken |= turn.state().waiting < makers.len();
        }
        let is_told = start.elapsed() < Turn::WATCH;
        assert!(!is_woken || !is_told, "one was woken");
        // All of them find it, one after the other: when the watch goes, another is.
        turn.give(head, false);
        makers.into_iter().for_each(|maker| maker.join().unwrap());
        is_told
    }

    /// Makers that stay awake, or sleep and are woken, or both by turns: each number is one's, and the end finds all of them.
    #[test]
    fn in_a_hurry_or_not_the_head_is_one_makers_at_a_time() {
        const TURNS: u64 = 20_000;
        for (cores, hurries) in [(2, 1), (8, 1), (8, 50), (8, TURNS)] {
            with_watchdog(LIMIT, move || {
                let turn = turn(cores);
                let make = || {
                    let mut mine = Vec::new();
                    while let Some(mut head) = turn.take(&mut Pace::new()) {
                        let number = head.number;
                        head.number += 1;
                        mine.push(number);
                        // Passed on to who is awake, or to one who sleeps, or to nobody.
                        head.hurry = (number / hurries) % 2 == 0;
                        turn.give(head, number % 3 == 0);
                        if number == TURNS {
                            turn.close();
                        }
                        (0..number % 50).for_each(|_| std::hint::spin_loop());
                    }
                    mine
                };
                let mut all = std::thread::scope(|scope| {
                    let makers = [(); 4].map(|()| scope.spawn(make));
                    makers.into_iter().flat_map(|maker| maker.join().unwrap()).collect::<Vec<_>>()
                });
                all.sort_unstable();
                assert!(all.iter().copied().eq(0..all.len() as u64) && all.len() as u64 > TURNS);
                let state = turn.state();
                assert_eq!((state.awake, state.waiting), (0, 0));
            });
        }
    }
}
