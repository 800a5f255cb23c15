//! Charges a wait of the consumer along the timeline of the batch that ended it.
//!
//! The batch that is delivered next is always the oldest one on its way, so nothing but its own way delays
//! it: each moment of the wait belongs to the part of the way that the batch was on.

use std::ops::Range;

use feedline_core::Timeline;

use super::cause::{Cause, Causes};

/// Charges the wait `wait` for the batch of `timeline` to `causes`. The parts sum to the whole.
pub(super) fn charge(wait: Range<u64>, timeline: &Timeline, causes: &mut Causes) {
    let mut at = wait.start;
    // Stamps of different threads may be a little out of order: a part that would be negative is empty.
    let until = |end: u64, at: &mut u64| {
        let part = end.min(wait.end).saturating_sub(*at);
        *at += part;
        part
    };
    let Timeline { no_slot, held_by_copies, copy_ns, readers_ns, .. } = *timeline;
    if no_slot > 0 {
        causes.add(Cause::HandOff, until(no_slot, &mut at));
        let held = until(timeline.handed_out, &mut at);
        if held_by_copies {
            // A copy holds its host slot while it waits for the readers of its device slot, too. Only
            // timed copies tell how long, so the last one speaks for the others.
            let readers = share(held, readers_ns, copy_ns);
            causes.add(Cause::NoDeviceSlot, readers);
            causes.add(Cause::Copy, held - readers);
        } else {
            causes.add(Cause::NoHostSlot, held);
        }
    }
    causes.add(Cause::HandOff, until(timeline.handed_out, &mut at));
    causes.add(Cause::Decode, until(timeline.begun, &mut at));
    causes.add(Cause::SourceRead, until(timeline.read, &mut at));
    if timeline.overtaken > 0 {
        causes.add(Cause::Decode, until(timeline.overtaken.min(timeline.decoded), &mut at));
        causes.add(Cause::OrderWait, until(timeline.decoded, &mut at));
    }
    causes.add(Cause::Decode, until(timeline.decoded, &mut at));
    causes.add(Cause::HandOff, until(timeline.ordered, &mut at));
    causes.add(Cause::NoDeviceSlot, until(timeline.device_slot, &mut at));
    causes.add(Cause::Copy, until(timeline.sent, &mut at));
    causes.add(Cause::HandOff, until(wait.end, &mut at));
}

/// `whole` times `part / (part + rest)`.
fn share(whole: u64, part: u64, rest: u64) -> u64 {
    let all = u128::from(part) + u128::from(rest);
    if all == 0 { 0 } else { (u128::from(whole) * u128::from(part) / all) as u64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A batch whose parts take 1, 2, 4, ... nanoseconds, from 100 on.
    fn timeline() -> Timeline {
        Timeline {
            no_slot: 101,
            held_by_copies: true,
            handed_out: 103,
            begun: 107,
            read: 115,
            overtaken: 131,
            decoded: 163,
            ordered: 227,
            device_slot: 355,
            sent: 611,
            ..Timeline::default()
        }
    }

    fn charged(wait: Range<u64>, timeline: &Timeline) -> [u64; 8] {
        let mut causes = Causes::default();
        charge(wait, timeline, &mut causes);
        Cause::ALL.map(|cause| causes.ns(cause))
    }

    #[test]
    fn every_part_of_a_wait_goes_to_its_cause() {
        // read, decode, order, no host slot, copy, no device slot, hand-off, consumer
        let whole = charged(100..1123, &timeline());
        assert_eq!(whole, [8, 4 + 16, 32, 0, 2 + 256, 128, 1 + 64 + 512, 0]);
        assert_eq!(whole.iter().sum::<u64>(), 1023);
        assert_eq!(charged(120..140, &timeline()), [0, 11, 9, 0, 0, 0, 0, 0]);
        let older = Timeline { held_by_copies: false, ..timeline() };
        assert_eq!(charged(100..104, &older), [0, 1, 0, 2, 0, 0, 1, 0]);
    }

    #[test]
    fn a_host_slot_held_by_a_copy_that_waits_for_readers_is_charged_to_them() {
        let slow = Timeline { copy_ns: 100, readers_ns: 300, no_slot: 1, handed_out: 1001, ..timeline() };
        assert_eq!(charged(1..1001, &slow), [0, 0, 0, 0, 250, 750, 0, 0]);
    }

    #[test]
    fn a_wait_sums_to_its_length_for_stamps_in_any_order() {
        let mut random = feedline_core::Random::for_sample(7, 0, 0);
        for _ in 0..10_000 {
            let mut stamp = || random.below(1000);
            let timeline = Timeline {
                no_slot: stamp(),
                held_by_copies: stamp() > 500,
                handed_out: stamp(),
                begun: stamp(),
                read: stamp(),
                overtaken: stamp(),
                decoded: stamp(),
                ordered: stamp(),
                device_slot: stamp(),
                sent: stamp(),
                decode_ns: 0,
                worker: 0,
                copy_ns: stamp(),
                readers_ns: stamp(),
            };
            let (from, length) = (stamp(), stamp());
            assert_eq!(charged(from..from + length, &timeline).iter().sum::<u64>(), length);
        }
    }
}
