//! Charges the consumer's time to causes. A wait is split along the timeline of the batch that ended it.
//!
//! The next batch to deliver is always the oldest one in the pipeline, so only its own stages delay it: each
//! moment of the wait is charged to the stage that the batch was in.
//!
//! There is one exception. If copies hold every host slot, a batch is handed out late to an idle worker. It
//! is then decoded while the consumer waits, but quicker decoding would gain nothing, because the next slot
//! would come no sooner. So decode time is charged to the earlier delay, up to its length: to the copies, or
//! to the source that is read in sequence. Slots are released several at a time, so the idle time before one
//! batch counts for the following ones too.

use std::ops::Range;

use feedline_core::Timeline;
use serde::{Deserialize, Serialize};

use super::account::Account;

/// The cause of a moment between two deliveries. Each moment has exactly one cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// A worker read records of a [`Source`](crate::Source), or the source had none yet. Reads within `read`
    /// of a [`Dataset`](crate::Dataset) count as decoding.
    SourceRead,
    /// Workers decoded the batch, or it waited for a worker.
    Decode,
    /// Later batches were decoded, but this one was not.
    OrderWait,
    /// Every host slot was taken by batches of an earlier request.
    NoHostSlot,
    /// A copy to the device was queued, or running copies held every host slot.
    Copy,
    /// The device map ran on the device or was queued, or the batch waited for a free lane. For pictures that
    /// lanes decode, this is their decoding.
    DeviceMap,
    /// The consumer held every device slot: batches not dropped, or work on them not finished.
    NoDeviceSlot,
    /// The batch was ready, and threads handed it on.
    HandOff,
    /// The consumer did not ask for a batch: it was busy itself.
    Consumer,
}

impl Cause {
    /// All causes, in the order of the stages.
    pub const ALL: [Self; 9] = [
        Self::SourceRead,
        Self::Decode,
        Self::OrderWait,
        Self::NoHostSlot,
        Self::Copy,
        Self::DeviceMap,
        Self::NoDeviceSlot,
        Self::HandOff,
        Self::Consumer,
    ];

    /// The name in reports, which `Display` writes too.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::SourceRead => "source read",
            Self::Decode => "decode",
            Self::OrderWait => "order wait",
            Self::NoHostSlot => "no free host slot",
            Self::Copy => "host-to-device copy",
            Self::DeviceMap => "device map",
            Self::NoDeviceSlot => "no free device slot",
            Self::HandOff => "hand-off",
            Self::Consumer => "consumer",
        }
    }

    /// Whether the consumer waits for data. It does not while it is busy, or while its own work on the device
    /// holds every slot.
    pub(crate) fn is_wait_for_data(self) -> bool {
        !matches!(self, Self::Consumer | Self::NoDeviceSlot)
    }
}

impl std::fmt::Display for Cause {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

/// Charges the waits of one consumer, batch by batch.
#[derive(Debug, Default)]
pub struct Charger {
    /// The time at which the last batch was handed out. Batches that were handed out together waited for
    /// slots only once.
    handed_out: u64,
    /// Idle time of workers that waited for slots, less the decode time that was already charged to it.
    idle: u64,
}

impl Charger {
    /// Announces the batch of `timeline` as the next one.
    pub fn next(&mut self, timeline: &Timeline) {
        let Timeline { no_slot, handed_out, idle_since, .. } = *timeline;
        if std::mem::replace(&mut self.handed_out, handed_out) == handed_out {
            return;
        }
        let idle = if no_slot > 0 { handed_out.saturating_sub(no_slot.max(idle_since)) } else { 0 };
        // Halves the older time: it belongs to an earlier part of the run.
        self.idle = self.idle / 2 + idle;
    }

    /// Charges the wait `wait` for the batch of `timeline`, announced by [`next`](Self::next), to `account`.
    /// The parts sum to the whole.
    pub fn charge(&mut self, wait: Range<u64>, timeline: &Timeline, account: &mut Account) {
        charge(wait, timeline, &mut self.idle, account);
    }
}

fn charge(wait: Range<u64>, timeline: &Timeline, idle: &mut u64, account: &mut Account) {
    let Timeline { no_slot, handed_out, begun, read, overtaken, decoded, idle_since, .. } = *timeline;
    let mut at = wait.start;
    // Stamps of different threads may be slightly out of order: a part that would be negative is empty.
    let until = |end: u64, at: &mut u64| {
        let part = end.min(wait.end).saturating_sub(*at);
        *at += part;
        part
    };
    let mut held = 0;
    if no_slot > 0 {
        account.charge(Cause::HandOff, until(no_slot, &mut at));
        held = until(handed_out, &mut at);
    }
    account.charge(Cause::HandOff, until(handed_out, &mut at));
    let mut decoding = until(begun, &mut at);
    let mut reading = until(read, &mut at);
    let end = if overtaken > 0 { overtaken.min(decoded) } else { decoded };
    decoding += until(end, &mut at);
    let order = until(decoded, &mut at);

    // The cause that delayed the batch before the wait began.
    let set_off = take(&mut decoding, *idle);
    *idle -= set_off;
    held += set_off;
    if read > 0 && idle_since <= handed_out {
        let before = read.saturating_sub(begun).saturating_sub(reading);
        reading += take(&mut decoding, before);
    }
    charge_slot(held, timeline, account);
    account.charge(Cause::Decode, decoding);
    account.charge(Cause::SourceRead, reading);
    account.charge(Cause::OrderWait, order);
    account.charge(Cause::HandOff, until(timeline.ordered, &mut at));
    account.charge(Cause::NoDeviceSlot, until(timeline.device_slot, &mut at));
    account.charge(Cause::Copy, until(timeline.sent, &mut at));
    // The batches before this one are delivered, so a lane that was busy had work for this one or a later
    // one.
    account.charge(Cause::DeviceMap, until(timeline.map_taken, &mut at));
    account.charge(Cause::NoDeviceSlot, until(timeline.map_slot, &mut at));
    account.charge(Cause::DeviceMap, until(timeline.mapped, &mut at));
    account.charge(Cause::HandOff, until(wait.end, &mut at));
}

/// Charges `held` nanoseconds without a free host slot to the holders of the slots.
fn charge_slot(held: u64, timeline: &Timeline, account: &mut Account) {
    if !timeline.held_by_copies {
        account.charge(Cause::NoHostSlot, held);
        return;
    }
    // A copy also holds its host slot while it waits for the readers of its device slot. Only timed copies
    // measure that wait, so the last one stands for the others.
    let readers = share(held, timeline.readers_ns, timeline.copy_ns);
    account.charge(Cause::Copy, held - readers);
    // The readers of a device map's input are its lanes, which wait for the readers of their output.
    let Timeline { map_ns, map_readers_ns, mapped, .. } = *timeline;
    let mapping = if mapped > 0 { share(readers, map_ns, map_readers_ns) } else { 0 };
    account.charge(Cause::DeviceMap, mapping);
    account.charge(Cause::NoDeviceSlot, readers - mapping);
}

/// Takes up to `max` from `time`.
fn take(time: &mut u64, max: u64) -> u64 {
    let taken = max.min(*time);
    *time -= taken;
    taken
}

/// `whole` times `part / (part + rest)`.
pub(super) fn share(whole: u64, part: u64, rest: u64) -> u64 {
    let all = u128::from(part) + u128::from(rest);
    (u128::from(whole) * u128::from(part)).checked_div(all).unwrap_or(0) as u64
}

#[cfg(test)]
mod tests {

    use super::*;

    /// A batch whose parts take 1, 2, 4, ... nanoseconds, from 100 on.
    fn timeline() -> Timeline {
        Timeline {
            no_slot: 101,
            // The worker was busy until this time.
            idle_since: 107,
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

    fn charged(wait: Range<u64>, timeline: &Timeline) -> [u64; 9] {
        let (mut charger, mut account) = (Charger::default(), Account::default());
        charger.next(timeline);
        charger.charge(wait, timeline, &mut account);
        Cause::ALL.map(|cause| account.ns(cause))
    }

    #[test]
    fn every_part_of_a_wait_goes_to_its_cause() {
        // read, decode, order, no host slot, copy, device map, no device slot, hand-off, consumer
        let whole = charged(100..1123, &timeline());
        assert_eq!(whole, [8, 4 + 16, 32, 0, 2 + 256, 0, 128, 1 + 64 + 512, 0]);
        assert_eq!(whole.iter().sum::<u64>(), 1023);
        assert_eq!(charged(120..140, &timeline()), [0, 11, 9, 0, 0, 0, 0, 0, 0]);
        let older = Timeline { held_by_copies: false, ..timeline() };
        assert_eq!(charged(100..104, &older), [0, 1, 0, 2, 0, 0, 0, 1, 0]);
    }

    #[test]
    fn a_host_slot_held_by_a_copy_that_waits_for_readers_is_charged_to_them() {
        let slow = Timeline { copy_ns: 100, readers_ns: 300, no_slot: 1, handed_out: 1001, ..timeline() };
        assert_eq!(charged(1..1001, &slow), [0, 0, 0, 0, 250, 0, 750, 0, 0]);
    }

    #[test]
    fn a_device_map_is_charged_on_its_lane_and_where_its_input_holds_up_the_copies() {
        let mapped = Timeline { map_taken: 615, map_slot: 623, mapped: 639, ..timeline() };
        assert_eq!(charged(600..700, &mapped), [0, 0, 0, 0, 11, 4 + 16, 8, 61, 0]);
        let slow = Timeline { copy_ns: 100, readers_ns: 300, no_slot: 1, handed_out: 1001, ..mapped };
        let slow = Timeline { map_ns: 400, map_readers_ns: 200, ..slow };
        assert_eq!(charged(1..1001, &slow), [0, 0, 0, 0, 250, 500, 250, 0, 0]);
    }

    #[test]
    fn decoding_is_charged_to_what_held_up_the_batch_while_its_worker_was_idle() {
        // The batch is handed out 30 ns late, while the worker is idle for 20 ns. It is then decoded in 50
        // ns.
        let late = Timeline {
            no_slot: 70,
            held_by_copies: true,
            idle_since: 80,
            handed_out: 100,
            begun: 100,
            decoded: 150,
            ordered: 150,
            device_slot: 150,
            sent: 150,
            ..Timeline::default()
        };
        assert_eq!(charged(100..150, &late), [0, 30, 0, 0, 20, 0, 0, 0, 0]);
        assert_eq!(charged(90..150, &late), [0, 30, 0, 0, 30, 0, 0, 0, 0]);
        // The second of two batches that were handed out together.
        let (mut charger, mut account) = (Charger::default(), Account::default());
        for wait in [140..150, 130..150] {
            charger.next(&late);
            charger.charge(wait, &late, &mut account);
        }
        assert_eq!((account.ns(Cause::Decode), account.ns(Cause::Copy)), (10, 20));
        let busy = Timeline { idle_since: 120, begun: 120, ..late };
        assert_eq!(charged(100..150, &busy), [0, 50, 0, 0, 0, 0, 0, 0, 0]);
        // A source whose records took 30 ns to read first.
        let source = Timeline { no_slot: 0, begun: 100, read: 130, ..late };
        assert_eq!(charged(130..150, &source), [20, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(charged(100..150, &source), [30, 20, 0, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn a_wait_sums_to_its_length_for_stamps_in_any_order() {
        let mut random = feedline_core::Random::for_draw(7, 0, 0);
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
                number: 0,
                decode_ns: 0,
                worker: 0,
                idle_since: stamp(),
                copy_ns: stamp(),
                readers_ns: stamp(),
                map_taken: stamp(),
                map_slot: stamp(),
                mapped: stamp(),
                map_lane: 0,
                map_ns: stamp(),
                map_readers_ns: stamp(),
            };
            let (from, length) = (stamp(), stamp());
            assert_eq!(charged(from..from + length, &timeline).iter().sum::<u64>(), length);
        }
    }
}
