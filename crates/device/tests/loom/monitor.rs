//! Every interleaving of the waits in a monitor.

use feedline_device::slots::{Mailbox, Monitor};
use loom::sync::Arc;
use loom::thread;

/// Each thread takes one item that is added. Threads sleep; in the second model they spin first.
#[test]
fn each_item_of_a_monitor_ends_one_wait() {
    for monitor in [Monitor::new, Monitor::spinning] {
        loom::model(move || {
            let items = Arc::new(monitor(Vec::new()));
            let waiters = [(); 2].map(|()| {
                let items = items.clone();
                thread::spawn(move || items.wait(None, Vec::pop))
            });
            for item in [1, 2] {
                items.add(1, |all| {
                    all.push(item);
                    ((), all.len())
                });
            }
            let mut taken = waiters.map(|waiter| waiter.join().unwrap().expect("no limit"));
            taken.sort_unstable();
            assert_eq!(taken, [1, 2]);
        });
    }
}

/// Two items at once, for a thread that spins and one that sleeps.
#[test]
fn items_that_are_added_at_once_end_as_many_waits() {
    loom::model(|| {
        let items = Arc::new(Monitor::spinning(0));
        let take = |left: &mut u32| left.checked_sub(1).map(|rest| *left = rest);
        let waiters = [(); 2].map(|()| {
            let items = items.clone();
            thread::spawn(move || items.wait(None, take))
        });
        items.add(2, |left| {
            *left += 2;
            ((), *left as usize)
        });
        waiters.into_iter().for_each(|waiter| waiter.join().unwrap().expect("no limit"));
        assert_eq!(items.with(|left| *left), 0);
    });
}

#[test]
fn a_change_of_a_monitor_ends_every_wait() {
    for monitor in [Monitor::new, Monitor::spinning] {
        loom::model(move || {
            let is_closed = Arc::new(monitor(false));
            let waiters = [(); 2].map(|()| {
                let is_closed = is_closed.clone();
                thread::spawn(move || is_closed.wait(None, |is_closed| is_closed.then_some(())))
            });
            is_closed.change(|is_closed| *is_closed = true);
            waiters.into_iter().for_each(|waiter| waiter.join().unwrap().expect("no limit"));
        });
    }
}

/// Messages sent without a wake-up are received once their sender or another one wakes the receiver.
#[test]
fn messages_that_wake_nobody_are_received_after_a_wake_up() {
    loom::model(|| {
        let mailbox = Arc::new(Mailbox::new(2));
        let receiver = thread::spawn({
            let mailbox = mailbox.clone();
            move || [(); 2].map(|()| mailbox.recv(None).expect("no limit"))
        });
        let other = thread::spawn({
            let mailbox = mailbox.clone();
            move || {
                mailbox.send(1, false);
                mailbox.wake();
            }
        });
        mailbox.send(2, false);
        mailbox.wake();
        other.join().unwrap();
        let mut received = receiver.join().unwrap();
        received.sort_unstable();
        assert_eq!(received, [1, 2]);
        assert!(mailbox.is_empty() && mailbox.try_recv().is_none());
    });
}
