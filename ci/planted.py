"""Mutation tests: plants one bug at a time in a copy of the repository and checks that the test named for it
fails.

A bug is a list of edits: a file, a text that occurs in it exactly once, and its replacement. A bug that does
not compile is an error of this table. A test that hangs counts as caught; the row says whether its watchdog
ended it or the limit of `limit`.
"""

import functools
import json
import os
import pathlib
import re
import subprocess
import sys
import time
from typing import NamedTuple

COPY = pathlib.Path("target/planted/src")
BUILD = pathlib.Path("target/planted/build")
# The most seconds that a test may run, with a bug or without.
LIMIT = 150
# What tests of these packages compute would take minutes without optimisation.
OPTIMISED = ("feedline-images", "feedline-kernels", "feedline-pictures")


class Test(NamedTuple):
    package: str
    target: str  # of tests/, or "lib"
    name: str

    def __str__(self):
        return f"{self.package} {self.target}: {self.name}"


class Bug(NamedTuple):
    name: str
    what: str
    test: Test
    edits: list  # of (file, old text, new text)


CORE, SLOTS, DEVICE, SIM = "feedline-core", "feedline-slots", "feedline-device", "feedline-sim"
FEEDLINE, TESTKIT, DATASETS = "feedline", "feedline-testkit", "feedline-datasets"
RECORD = "feedline-record"
HOST_RING, HOST_LEASE = "crates/slots/src/ring.rs", "crates/slots/src/lease.rs"
MONITOR = "crates/slots/src/monitor.rs"
DEVICE_RING, DEVICE_LEASE = "crates/device/src/slot/ring.rs", "crates/device/src/slot/lease.rs"
PINNED, SHARED_FILL = "crates/device/src/pinned.rs", "crates/slots/src/shared.rs"
BATCH = "crates/feedline/src/decode/batch.rs"
DECODER, DECODE_ROWS = "crates/feedline/src/decode/decoder.rs", "crates/feedline/src/decode/rows.rs"
FILL = "crates/feedline/src/decode/fill.rs"
QUEUE, POOL = "crates/feedline/src/decode/queue.rs", "crates/feedline/src/decode/pool.rs"
PREFETCH, CACHE = "crates/feedline/src/decode/prefetch.rs", "datasets/src/cache.rs"
TRANSFER, SCHEDULE = "crates/feedline/src/transfer/mod.rs", "crates/feedline/src/transfer/schedule.rs"
CAPTURE, EVENT_POOL = "crates/device/src/capture.rs", "crates/device/src/event.rs"
START, RECEIVE = "crates/feedline/src/loader/start.rs", "crates/feedline/src/loader/receive.rs"
SHUTDOWN = "crates/feedline/src/shutdown.rs"
PROGRESS, HOST = "crates/feedline/src/progress.rs", "crates/feedline/src/compute/host.rs"

LANE = "crates/feedline/src/device_map/lane.rs"
PRODUCE = "crates/device/src/slot/produce.rs"
LAYOUT, REGION = "crates/core/src/layout.rs", "crates/core/src/region.rs"
BUCKETED, PACKED = "crates/core/src/sampler/bucketed.rs", "crates/core/src/packed.rs"

HAND_OFF = Test(SIM, "sim_seeds", "a_complete_hand_off_has_no_race")
ALL_READERS = Test(DEVICE, "device", "contract::slots::a_slot_is_overwritten_after_all_its_readers")
PIPELINE = Test(FEEDLINE, "simulated", "a_training_loop_has_no_race_in_any_schedule")

MAPPED = Test(FEEDLINE, "simulated", "a_device_map_has_no_race_in_any_schedule")
PRODUCED = Test(FEEDLINE, "simulated", "lanes_that_read_host_slots_have_no_race_in_any_schedule")

DIST, GROUP, HOSTS = "feedline-dist", "crates/dist/src/group", "crates/dist/src/collectives"
STORE = "crates/dist/src/store"

IMAGES, KERNELS, PICTURES = "feedline-images", "feedline-kernels", "feedline-pictures"
PILLOW = Test(IMAGES, "images", "pillow::every_kind_of_picture_has_pillows_pixels")
BOMBS = Test(IMAGES, "images", "bounds::bombs_are_answered_in_under_100_ms_and_64_mib")
BOUNDS = "bounds_formats::lies_and_bombs_of_all_formats_are_answered_within_a_second_and_64_mib"

NO_HOST_GATE = [
    (HOST_RING, 'if cfg!(not(planted = "host_gate")) && state', "if cfg!(any()) && state"),
    (HOST_RING, 'in_flight = cfg!(not(planted = "host_gate")) &&', "in_flight = cfg!(any()) &&"),
]
NO_CONSUMED_WAIT = [(DEVICE_LEASE, '#[cfg(not(planted = "consumed_wait"))]', "#[cfg(any())]")]
NO_COPIED_WAIT = [(DEVICE_LEASE, '#[cfg(not(planted = "copied_wait"))]', "#[cfg(any())]")]

# `main` runs the rows of a package one after the other.
BUGS = [
    Bug(
        "shared_buffer_wait",
        "a stream reads a shared buffer without a wait for its last write",
        Test(DEVICE, "device", "contract::shared::a_reader_waits_for_the_last_write_and_the_host_does_not"),
        [("crates/device/src/shared.rs", "            stream.wait(&self.written)?;\n", "")],
    ),
    Bug(
        "shared_buffer_join",
        "a shared buffer is written without a wait for its readers",
        Test(DEVICE, "device", "contract::shared::a_write_waits_for_every_reader_and_the_host_does_not"),
        [("crates/device/src/shared.rs", "            self.buffer.stream().wait(&self.read)?;\n", "")],
    ),
    Bug(
        "serve_drain",
        "the server ends without waiting for the answers of its connections",
        Test("feedline-serve", "serve", "server::a_drain_answers_what_waits_in_the_queue"),
        [
            (
                "examples/serve/src/server.rs",
                "            connections.shutdown().await;\n            while tasks.join_next().await.is_some() {}\n",
                "            drop(connections);\n",
            )
        ],
    ),
    Bug(
        "serve_drain_limit",
        "a client that reads no answers holds the drain for ever",
        Test("feedline-serve", "serve", "server::a_drain_ends_although_a_client_reads_no_answers"),
        [
            (
                "examples/serve/src/server.rs",
                "tokio::time::timeout(drain_limit, ended).await",
                "tokio::time::timeout(Duration::MAX, ended).await",
            )
        ],
    ),
    Bug(
        "serve_queue",
        "a request that finds the queue full is counted and forgotten",
        Test("feedline-serve", "serve", "server::a_full_queue_refuses_with_429_and_answers_what_it_took"),
        [("examples/serve/src/pool.rs", "                Err(Refused::Full)\n", "                Ok(receiver)\n")],
    ),
    Bug(
        "device_ranks",
        "every device of a process gets the batches of the first",
        Test(FEEDLINE, "threads", "devices::an_epoch_over_several_devices_reads_every_sample_once_in_a_fixed_order"),
        [("crates/feedline/src/builder/devices.rs", "rank() * count + number, size", "rank() * count, size")],
    ),
    Bug(
        "host_gate",
        "the host does not wait for the copy before it fills a slot again",
        Test(SLOTS, "slots", "lease::no_slot_is_acquired_while_its_copy_runs"),
        NO_HOST_GATE,
    ),
    Bug(
        "double_release",
        "a host slot is released twice",
        Test(SLOTS, "slots", "lease::a_dropped_lease_is_released_once_from_every_state"),
        [(HOST_RING, '        #[cfg(planted = "double_release")]\n', "")],
    ),
    Bug(
        "close_no_notify",
        "close does not wake waiting threads",
        Test(SLOTS, "slots", "ring::close_wakes_a_blocked_acquirer_within_100_ms"),
        [(MONITOR, '#[cfg(not(planted = "close_no_notify"))]', "#[cfg(any())]")],
    ),
    Bug(
        "failed_submit_goes_home",
        "a slot whose copy may run although it was refused is handed out again",
        Test(SLOTS, "slots", "lease::a_failed_submit_loses_the_slot"),
        [(HOST_LEASE, "if result.is_ok() {\n            lease.release();", "{\n            lease.release();")],
    ),
    Bug(
        "freed_in_flight",
        "the memory of a slot is freed while its copy runs",
        Test(SLOTS, "slots", "lease::memory_is_freed_once_after_its_copy_has_ended"),
        [
            (
                HOST_RING,
                "State::InFlight | State::Lost => slot.memory.wait_drained(),",
                "State::InFlight | State::Lost => Ok(()),",
            )
        ],
    ),
    Bug(
        "canary_off",
        "bytes written outside a row are not looked for",
        Test("feedline-core", "lib", "check::slab::tests::every_write_outside_the_rows_is_found"),
        [
            (
                "crates/core/src/check/slab.rs",
                "bytes.iter().any(|&byte| byte != self.background)",
                "bytes.is_empty() && self.rows == 0",
            )
        ],
    ),
    Bug(
        "error_drop_panics",
        "a panic in the drop of a user's error ends the thread that drops it",
        Test("feedline-core", "lib", "error::tests::a_panic_in_the_drop_of_a_source_is_caught"),
        [
            (
                "crates/core/src/error.rs",
                'let _ = catch_panic("the drop of an error panicked", || drop(source));',
                "drop(source);",
            )
        ],
    ),
    Bug(
        "row_claimed_twice",
        "two workers get the same row of a slot that they fill together",
        Test(SLOTS, "slots", "shared_fill::workers_fill_all_rows_between_them_and_one_of_them_finishes"),
        [
            (
                SHARED_FILL,
                "(start < end(start)).then(|| end(start));",
                "(start < end(start)).then(|| (start + count.div_ceil(2)).min(self.rows));",
            )
        ],
    ),
    Bug(
        "shared_fill_of_ragged_rows",
        "workers share the rows of a ragged field, whose columns lie beyond the slot",
        Test(SLOTS, "slots", "shared_fill::rows_of_a_ragged_field_cannot_be_shared"),
        [(SHARED_FILL, "if layout.is_ragged() {", "if false {")],
    ),
    Bug(
        "claims_that_wrap",
        "a huge claim wraps the counter of rows, and two workers get one row",
        Test(SLOTS, "slots", "shared_fill::claims_of_any_size_end_with_the_last_row"),
        [(SHARED_FILL, "start.saturating_add(count).min(self.rows)", "start.wrapping_add(count)")],
    ),
    Bug(
        "rows_given_up_and_claimed",
        "rows that were given up can still be claimed",
        Test(SLOTS, "slots", "shared_fill::rows_that_are_given_up_count_as_finished_once"),
        [
            (
                SHARED_FILL,
                "let start = self.next.swap(self.rows, Ordering::Relaxed)",
                "let start = self.next.load(Ordering::Relaxed)",
            )
        ],
    ),
    Bug(
        "nobody_woken_for_a_host_slot",
        "the release of a host slot wakes nobody when one sleeps",
        Test(SLOTS, "slots", "ring::acquire_blocks_until_a_lease_is_released"),
        [(HOST_RING, "self.free_list.add(1, |", "self.free_list.add(0, |")],
    ),
    Bug(
        "census_by_name",
        "a thread that gets its name after the first census counts as leaked",
        Test(TESTKIT, "leaks", "leaked_threads_and_files_are_reported"),
        [("crates/testkit/src/leaks.rs", "one.identity == thread.identity", "one.name == thread.name")],
    ),
    Bug(
        "gpu_skipped_in_silence",
        "a GPU test without a GPU says nothing",
        Test(TESTKIT, "gpu", "a_gpu_test_is_counted_with_and_without_a_gpu"),
        [("crates/testkit/src/gpu.rs", ".inspect_err(|error| not_run(&what, error))", "")],
    ),
    Bug(
        "freed_under_a_graph",
        "a buffer that a recorded step uses is freed when it is dropped",
        Test(DEVICE, "device", "graph::graphs_keep_the_memory_that_they_use"),
        [
            (
                CAPTURE,
                "let is_used = state.used.iter().any(|used| used.overlaps(&buffer));",
                "let is_used = false;",
            )
        ],
    ),
    Bug(
        "host_bytes_before_the_copy",
        "a slot of the host device is read in place before its copy has ended",
        Test(DEVICE, "device", "host::in_place::the_bytes_of_a_slot_are_read_after_its_copy"),
        [(DEVICE_LEASE, "let waited = self.copied.synchronize();", "let waited = Ok(());")],
    ),
    Bug(
        "any_batch_in_a_recording",
        "a recorded step may read another batch than its own",
        Test(DEVICE, "device", "graph::calls_that_cannot_be_recorded_are_rejected"),
        [(CAPTURE, "if own != Some(slot) => {", "if own != Some(slot) && cfg!(any()) => {")],
    ),
    Bug(
        "idle_is_stuck",
        "a host without queued work is reported as stuck",
        Test(SIM, "sim", "device::a_host_without_queued_work_is_not_stuck"),
        [("crates/sim/src/watch.rs", "|| !state.is_idle()", "")],
    ),
    Bug(
        "consumed_wait",
        "the copy stream does not wait for the readers of a device slot",
        HAND_OFF,
        NO_CONSUMED_WAIT,
    ),
    Bug(
        "consumed_wait_of_a_gather",
        "the gather does not wait for the readers of a device slot",
        Test(DEVICE, "device", "contract::columns::a_slot_is_gathered_into_after_all_its_readers"),
        [(DEVICE_LEASE, '#[cfg(not(planted = "consumed_wait"))]', "#[cfg(any())]")],
    ),
    Bug(
        "ids_marked_before_the_gather",
        "ids are overwritten before they were read",
        Test(DEVICE, "device", "contract::columns::ids_are_not_overwritten_before_the_gather_has_read_them"),
        [
            (
                PINNED,
                "work(self.ptr)?;\n        stream.record(copied)?;",
                "stream.record(copied)?;\n        work(self.ptr)?;",
            )
        ],
    ),
    Bug(
        "rows_in_the_order_of_their_visits",
        "the rows of a long set are put down as they are visited, not in their places",
        Test(DEVICE, "device", "contract::columns::rows_of_a_reordered_batch_arrive_in_their_places"),
        [
            (
                "crates/device/src/zero_copy/columns.rs",
                "self.gather_order.places(ids.len()).map(at)",
                "None.map(at)",
            )
        ],
    ),
    Bug(
        "last_rows_in_no_block",
        "a gather from device memory leaves out the rows behind the last whole block",
        Test("feedline-cuda", "lib", "pieces::tests::every_byte_is_in_one_part"),
        [
            (
                "crates/cuda/src/pieces.rs",
                "rows.checked_mul(parts)?.div_ceil(THREADS as usize >> lanes)",
                "rows.checked_mul(parts)? / (THREADS as usize >> lanes)",
            )
        ],
    ),
    Bug(
        "large_ids_cut_to_32_bits",
        "an id outside a resident set is read as one inside",
        Test("feedline-backend", "lib", "gather::tests::ids_of_64_bits_outside_the_source_stay_outside_as_numbers_of_32_bits"),
        [("crates/backend/src/gather.rs", "u32::try_from(id).unwrap_or(u32::MAX)", "id as u32")],
    ),
    Bug(
        "unregistered_in_use",
        "memory is unregistered while a gather that failed late may still read it",
        Test(DEVICE, "device", "contract::registration::memory_stays_registered_under_a_gather_that_failed_late"),
        [
            (
                "crates/device/src/zero_copy/registered.rs",
                "self.reader.get().map_or(Ok(()), |stream| stream.synchronize());",
                "Ok::<(), feedline_core::Error>(());",
            ),
            (
                DEVICE_RING,
                "let drained = writers.try_for_each(|writer| writer.synchronize());",
                "let drained = writers.try_for_each(|_| Ok::<(), feedline_core::Error>(()));",
            ),
        ],
    ),
    Bug(
        "spec_asked_twice",
        "the spec of a data set is asked for again after memory was sized by it",
        Test(FEEDLINE, "batches", "resident::a_set_that_changes_its_length_or_spec_is_read_by_its_first_answers"),
        [("crates/core/src/stable.rs", "        &self.spec\n", "        self.inner.spec()\n")],
    ),
    Bug(
        "length_asked_twice",
        "the length of a data set is asked for again after the order was made for it",
        Test(FEEDLINE, "batches", "resident::a_set_that_changes_its_length_or_spec_is_read_by_its_first_answers"),
        [("crates/core/src/stable.rs", "        self.len\n", "        self.inner.len()\n")],
    ),
    Bug(
        "stored_spec_unchecked",
        "a stored spec has other bytes per sample than its shape",
        Test(CORE, "lib", "spec::tests::a_stored_spec_passes_the_checks_of_its_constructors_again"),
        [("crates/core/src/spec.rs", "if field.row_bytes != row_bytes {", "if false {")],
    ),
    Bug(
        "stored_padding_unchecked",
        "stored padding to a multiple of 0 divides by zero",
        Test(CORE, "lib", "spec::tests::a_stored_spec_passes_the_checks_of_its_constructors_again"),
        [("crates/core/src/ragged.rs", "if multiple == 0 {\n                return", "if false {\n                return")],
    ),
    Bug(
        "stored_report_unchecked",
        "a stored bad-sample report lists a sample twice",
        Test(CORE, "lib", "bad_samples::tests::an_edited_report_is_rejected"),
        [("crates/core/src/bad_samples.rs", "if !samples.is_sorted_by(|a, b| a.sample < b.sample) {", "if false {")],
    ),
    Bug(
        "tensor_bytes_unchecked",
        "a tensor is exported with a shape beyond its bytes",
        Test("feedline-dlpack", "lib", "export::tests::a_tensor_covers_exactly_the_bytes_of_its_field"),
        [("crates/dlpack/src/export.rs", "if wanted == Some(bytes) {", "if true {")],
    ),
    Bug(
        "foreign_device",
        "a stream of another device is accepted",
        Test(DEVICE, "device", "contract::mismatch::arguments_of_another_device_are_rejected"),
        [("crates/device/src/device_core.rs", "if Arc::ptr_eq(self, other) {", "if true {")],
    ),
    Bug(
        "foreign_stream",
        "a view of another stream is accepted",
        Test(DEVICE, "device", "contract::mismatch::arguments_of_another_stream_are_rejected"),
        [("crates/device/src/submit.rs", "if Arc::ptr_eq(stream, self) {", "if true {")],
    ),
    Bug(
        "copied_wait",
        "a reader does not wait for the copy",
        HAND_OFF,
        NO_COPIED_WAIT,
    ),
    Bug(
        "copied_taken_for_done",
        "a reader asks whether the copy is done, and does not wait when it is not",
        HAND_OFF,
        [
            (
                "crates/device/src/stream.rs",
                "if event.query()? { Ok(()) }",
                "if event.query()? || cfg!(not(any())) { Ok(()) }",
            )
        ],
    ),
    Bug(
        "last_reader_only",
        "only the last reader of a device slot is waited for",
        ALL_READERS,
        [
            (
                DEVICE_LEASE,
                "in &slot.consumed[..joined]",
                "in &slot.consumed[joined.saturating_sub(1)..joined]",
            )
        ],
    ),
    Bug(
        "end_not_recorded",
        "a reader that is dropped does not record its end",
        HAND_OFF,
        [(DEVICE_LEASE, "= self.stream.core().record(&slot.consumed[self.number])", "= Ok::<(), Error>(())")],
    ),
    Bug(
        "readers_share_an_event",
        "all readers of a device slot record their end in one event: the last one wins",
        ALL_READERS,
        [(DEVICE_LEASE, "record(&slot.consumed[self.number])", "record(&slot.consumed[0])")],
    ),
    Bug(
        "slots_share_an_event",
        "two device slots have one event for the end of their readers",
        Test(DEVICE, "device", "shared_event::readers_of_two_slots_on_two_streams_are_both_waited_for"),
        [
            (
                DEVICE_LEASE,
                "record(&slot.consumed[self.number])",
                "record(&self.ring.slots[0].consumed[self.number])",
            ),
            (DEVICE_LEASE, "in &slot.consumed[..joined]", "in &ring.slots[0].consumed[..joined]"),
        ],
    ),
    Bug(
        "marked_before_the_copy",
        "the mark of a copy is recorded before the copy is queued",
        HAND_OFF,
        [
            (
                PINNED,
                "work(self.ptr)?;\n        stream.record(copied)?;",
                "stream.record(copied)?;\n        work(self.ptr)?;",
            )
        ],
    ),
    Bug(
        "mark_recorded_again",
        "a copy takes a mark that a block or a lease still refers to",
        Test(DEVICE, "device", "contract::slots::a_block_and_a_slot_wait_only_for_their_own_copy"),
        [
            (EVENT_POOL, "Arc::get_mut(event).is_some()", "Arc::strong_count(event) > 0"),
            (EVENT_POOL, "events.rotate_left(free + 1)", "drop(free)"),
        ],
    ),
    Bug(
        "host_gate_of_a_pipeline",
        "the same as host_gate, under a user's training loop",
        PIPELINE,
        NO_HOST_GATE,
    ),
    Bug(
        "consumed_wait_of_a_pipeline",
        "the same as consumed_wait, under a user's training loop",
        PIPELINE,
        NO_CONSUMED_WAIT,
    ),
    Bug(
        "copied_wait_of_a_pipeline",
        "the same as copied_wait, under a user's training loop",
        PIPELINE,
        NO_COPIED_WAIT,
    ),
    Bug(
        "consumed_wait_of_a_device_map",
        "a device map writes a slot without a wait for the readers of its last batch",
        MAPPED,
        NO_CONSUMED_WAIT,
    ),
    Bug(
        "copied_wait_of_a_device_map",
        "a device map reads a batch without a wait for its copy",
        MAPPED,
        NO_COPIED_WAIT,
    ),
    Bug(
        "consumed_wait_of_a_produced_slot",
        "a lane that reads host slots writes a slot without a wait for the readers of its last batch",
        PRODUCED,
        [(PRODUCE, "            self.lease.order(self.writer)?;\n", "")],
    ),
    Bug(
        "host_slot_refilled_while_a_lane_reads_it",
        "a host slot that a lane has read is filled again before the lane's copies have ended",
        PRODUCED,
        [(PINNED, ".replace(copied.clone())", ".take()")],
    ),
    Bug(
        "unread_batch_not_waited_for",
        "a slot is written while another stream still writes its last batch, which nobody has read",
        Test(DEVICE, "device", "contract::produce::a_batch_that_is_dropped_unread_is_written_to_its_end_before_the_next"),
        [(DEVICE_LEASE, "                writer.wait(last)?;\n", "                let _ = last;\n")],
    ),
    Bug(
        "device_slot_given_out_twice",
        "a device slot stays in the free list while a lease of it lives",
        MAPPED,
        [(DEVICE_RING, "free.pop_front().map(Ok)", "free.front().copied().map(Ok)")],
    ),
    Bug(
        "slot_released_by_a_panic",
        "a panic of the call that submits work releases the slot that the work writes",
        Test(DEVICE, "device", "contract::produce::a_slot_whose_work_panics_is_never_handed_out_again"),
        [
            (
                PRODUCE,
                "        self.on_drop = OnDrop::Lose;\n        let is_open = Cell::new(false);\n"
                "        let slot = SlotMut { lease: &self, writer, is_open: &is_open };\n        let done = slot",
                "        self.on_drop = OnDrop::Release;\n        let is_open = Cell::new(false);\n"
                "        let slot = SlotMut { lease: &self, writer, is_open: &is_open };\n        let done = slot",
            )
        ],
    ),
    Bug(
        "late_error_of_a_lane_lost",
        "the outcome of the transfer thread does not wait for the batches that it has sent to the lanes",
        Test(FEEDLINE, "device_map", "errors::a_late_error_of_a_lane_comes_before_an_early_one_of_a_later_batch"),
        [(LANE, "Box::new(move |result| drop(upstream.set(result)))", "Box::new(running.outcome())")],
    ),
    Bug(
        "mapped_batches_out_of_order",
        "a lane sends its batch to the consumer at once",
        Test(
            FEEDLINE,
            "device_map",
            "outputs::lanes_run_beside_each_other_and_an_overtaken_batch_is_still_delivered_first",
        ),
        [
            (
                "crates/feedline/src/device_map/outbox.rs",
                "        state.reorder.put(number, item);\n        while let Some(next) = state.reorder.take() {",
                "        let mut item = Some(item);\n        let _ = number;\n        while let Some(next) = item.take() {",
            )
        ],
    ),
    Bug(
        "map_slots_out_of_order",
        "a lane takes its output slot after another lane could take a later batch",
        Test(
            FEEDLINE,
            "device_map",
            "outputs::batches_get_their_slots_in_the_order_of_their_delivery",
        ),
        [(LANE, "            let taken = now();\n", "            let taken = now();\n            drop(intake);\n")],
    ),
    Bug(
        "unwritten_field_delivered",
        "a device map that does not write a field delivers that of an earlier batch",
        Test(FEEDLINE, "device_map", "errors::wrong_uses_of_the_fields_are_refused_by_name"),
        [
            (
                LANE,
                "map(&mut batch)).and_then(|mapped| mapped)?;\n            batch.check_written()\n",
                "map(&mut batch)).and_then(|mapped| mapped)?;\n            Ok(())\n",
            )
        ],
    ),
    Bug(
        "copy_error_ignored",
        "a copy that the device refuses is taken for done",
        Test(FEEDLINE, "failing", "faults::every_device_call_can_fail_once"),
        [
            (
                DEVICE_LEASE,
                "|at| work(copier, at, address))",
                "|at| {\n                let _ = work(copier, at, address);\n                Ok(())\n            })",
            )
        ],
    ),
    Bug(
        "last_slot_lost_in_silence",
        "the loss of the last device slot wakes nobody",
        Test(FEEDLINE, "failing", "faults::every_device_call_can_fail_once"),
        [(DEVICE_RING, "+ 1 == self.slots.len() {", "+ 1 > self.slots.len() {")],
    ),
    Bug(
        "leak_kept_in_the_ledger",
        "memory that is leaked after a failed drain keeps its event and its stream",
        Test(FEEDLINE, "failing", "faults::every_device_call_can_lose_the_device"),
        [
            (
                HOST_RING,
                "Err(error) => memory.leak(error),",
                "Err(error) => {\n                    drop(error);\n                    std::mem::forget(memory);\n                }",
            )
        ],
    ),
    Bug(
        "panic_swallowed",
        "a batch whose data set panicked is delivered all the same",
        Test(FEEDLINE, "failing", "failures::a_bad_sample_ends_the_epoch_after_the_batches_before_it"),
        [
            (
                DECODE_ROWS,
                "            Err(self.locate(Error::new(ErrorKind::Panic, why), id))",
                "            drop((why, id));\n            Ok(())",
            )
        ],
    ),
    Bug(
        "substitute_by_worker",
        "what stands in for a bad sample depends on the thread that met it",
        Test(FEEDLINE, "failing", "faults::substitutes_are_the_same_for_any_number_of_workers"),
        [
            (
                DECODE_ROWS,
                "(batch_sampler.substitute(info.epoch, position, attempt), row)",
                "{\n                    let thread = std::thread::current();\n"
                "                    let index = thread.name().and_then(|name| name.bytes().last()).map_or(0, u64::from);\n"
                "                    (batch_sampler.substitute(info.epoch, position + index, attempt), row)\n                }",
            )
        ],
    ),
    Bug(
        "pieces_by_the_wait",
        "decode splits a batch that another process reads by the time of the read, most of which is waiting",
        Test(
            FEEDLINE,
            "lib",
            "decode::batch::tests::pieces_that_another_process_reads_are_ten_times_as_long_and_do_not_depend_on_the_wait",
        ),
        [(BATCH, "if elsewhere == 0 { busy } else { elsewhere / 10 }", "if elsewhere == 0 { busy } else { busy }")],
    ),
    Bug(
        "one_row_off",
        "decode reads each sample of a later piece of a batch into the row behind its own",
        Test(FEEDLINE, "batches", "order::every_sample_is_read_and_delivered_once_per_epoch"),
        [
            (
                DECODE_ROWS,
                "host_info.batch.ids[rows.first()..][..rows.len()]",
                "host_info.batch.ids[rows.first().saturating_sub(1)..][..rows.len()]",
            )
        ],
    ),
    Bug(
        "step_off_by_one",
        "decode makes each batch of the step before its own",
        Test(FEEDLINE, "batches", "order::every_sample_is_read_and_delivered_once_per_epoch"),
        [
            (
                BATCH,
                "batch_sampler.batch(epoch, start, step, &mut info.ids)",
                "batch_sampler.batch(epoch, start, step.saturating_sub(1), &mut info.ids)",
            )
        ],
    ),
    Bug(
        "nobody_woken_for_a_device_slot",
        "the release of a device slot wakes nobody when one sleeps",
        Test(FEEDLINE, "batches", "order::every_sample_is_read_and_delivered_once_per_epoch"),
        [(DEVICE_RING, "self.free.add(1, |", "self.free.add(0, |")],
    ),
    Bug(
        "nobody_woken_for_a_batch",
        "a batch to decode wakes no worker that sleeps",
        Test(FEEDLINE, "lib", "decode::queue::tests::a_worker_that_sleeps_is_woken_at_once"),
        [(QUEUE, "self.work.add(usize::from(wake), |", "self.work.add(0, |")],
    ),
    Bug(
        "nobody_woken_to_join",
        "a batch that is split wakes no worker to join it",
        Test(FEEDLINE, "lib", "decode::queue::tests::a_worker_that_sleeps_is_woken_at_once"),
        [(QUEUE, "self.work.add(workers, |", "self.work.add(0, |")],
    ),
    Bug(
        "no_look",
        "a worker that sleeps does not look for work that nobody was woken for",
        Test(
            FEEDLINE, "lib", "decode::queue::tests::a_batch_that_nobody_was_woken_for_is_begun_all_the_same"
        ),
        [
            (
                QUEUE,
                "LOOK: Duration = Duration::from_millis(100)",
                "LOOK: Duration = Duration::from_secs(36_000)",
            )
        ],
    ),
    Bug(
        "close_of_the_queue_wakes_nobody",
        "workers that sleep do not hear that their queue is closed",
        Test(FEEDLINE, "lib", "decode::queue::tests::a_worker_that_sleeps_is_woken_at_once"),
        [(QUEUE, "let left = self.work.change(|", "let left = self.work.with(|")],
    ),
    Bug(
        "joined_without_end",
        "a batch can be joined by more workers than it was offered to",
        Test(
            FEEDLINE,
            "lib",
            "decode::queue::tests::batches_to_join_come_before_batches_to_begin_and_in_their_order",
        ),
        [(QUEUE, "            *workers -= 1;\n", "            *workers = (*workers - 1).max(1);\n")],
    ),
    Bug(
        "begun_before_joined",
        "a new batch is begun before one that is there to be joined",
        Test(
            FEEDLINE,
            "lib",
            "decode::queue::tests::batches_to_join_come_before_batches_to_begin_and_in_their_order",
        ),
        [
            (
                QUEUE,
                "        if let Some((batch, workers)) = self.shares.front_mut() {",
                "        if self.jobs.is_empty() && let Some((batch, workers)) = self.shares.front_mut() {",
            )
        ],
    ),
    Bug(
        "dropped_under_the_lock",
        "work that nobody wants any more is dropped under the lock of the queue",
        Test(FEEDLINE, "lib", "decode::queue::tests::work_is_dropped_without_the_lock"),
        [
            (
                QUEUE,
                "            (remove(jobs, &is_job), remove(returned, &is_job), remove(shares, |(share, _)| is_share(share)))\n",
                "            drop((remove(jobs, &is_job), remove(returned, &is_job), remove(shares, |(share, _)| is_share(share))))\n",
            )
        ],
    ),
    Bug(
        "share_not_finished",
        "a worker that finishes the last rows of a batch does not send it",
        Test(FEEDLINE, "lib", "decode::tests::rows_are_decoded_in_place_with_any_number_of_workers"),
        [(BATCH, "is_finished |= piece.finish();", "is_finished &= piece.finish();")],
    ),
    Bug(
        "rows_given_up_not_counted",
        "rows that a failed batch gives up are not counted: it has no end",
        Test(SLOTS, "slots", "shared_fill::rows_that_are_given_up_count_as_finished_once"),
        [(SHARED_FILL, "        self.finish(self.rows - start)", "        let _ = start;\n        false")],
    ),
    Bug(
        "later_error_wins",
        "of two errors in a batch the one of the later row is told",
        Test(FEEDLINE, "lib", "decode::tests::the_error_of_the_first_failed_row_is_reported"),
        [(BATCH, "first < *row", "first > *row")],
    ),
    Bug(
        "stale_batches_are_read",
        "batches of a request that was given up are read all the same",
        Test(FEEDLINE, "lib", "decode::tests::a_stale_batch_is_not_read"),
        [(BATCH, "requests.is_stale(self.request.number) || requests", "requests")],
    ),
    Bug(
        "stop_taken_back",
        "a request that is taken up late undoes a stop",
        Test(FEEDLINE, "lib", "decode::tests::a_stop_is_final"),
        [(SCHEDULE, "        if self.is_stopped() {", "        if cfg!(any()) && self.is_stopped() {")],
    ),
    Bug(
        "stale_batches_delivered",
        "batches of a request that was given up are copied and delivered",
        Test(
            FEEDLINE,
            "lib",
            "transfer::tests::order::a_new_request_is_begun_while_a_batch_of_the_old_one_is_read",
        ),
        [
            (
                TRANSFER,
                "if self.with.decoder.requests.is_stale(batch.request) {",
                "if cfg!(any()) && self.with.decoder.requests.is_stale(batch.request) {",
            )
        ],
    ),
    Bug(
        "reader_of_a_source_twice",
        "a batch of a source is handed out while another worker has the reader",
        Test(
            FEEDLINE,
            "lib",
            "transfer::tests::order::records_are_read_in_sequence_while_batches_are_decoded_in_parallel",
        ),
        [(SCHEDULE, "None if self.is_source => return false,", "None if self.is_source => false,")],
    ),
    Bug(
        "reader_of_a_source_left_in_the_inbox",
        "the reader of a source is not taken back while every device slot is taken",
        Test(
            FEEDLINE,
            "lib",
            "transfer::tests::order::the_workers_fill_every_slot_of_a_source_while_the_consumer_takes_nothing",
        ),
        [
            (
                TRANSFER,
                "limit.or(self.schedule.is_reader_away().then_some(SOURCE_POLL))",
                "limit.or((cfg!(any()) && self.schedule.is_reader_away()).then_some(SOURCE_POLL))",
            )
        ],
    ),
    Bug(
        "block_from_its_start",
        "a resume delivers the records of its block that were delivered before",
        Test(FEEDLINE, "batches", "shuffled_sources::a_shuffled_source_resumes_at_every_step"),
        [
            (
                "crates/feedline/src/decode/shuffle_buffer.rs",
                "(self.epoch, self.taken, self.resume) = (epoch, 0, at.taken);",
                "(self.epoch, self.taken, self.resume) = (epoch, 0, 0);",
            )
        ],
    ),
    Bug(
        "split_shard_without_its_neighbours",
        "a rank that resumes in a split shard takes the next record, which is that of another rank",
        Test(FEEDLINE, "batches", "shuffled_sources::a_shuffled_source_resumes_at_every_step"),
        [("crates/feedline/src/decode/source.rs", "if offset > 0 { ranks - 1 }", "if offset > 0 { 0 }")],
    ),
    Bug(
        "any_order_of_records",
        "a cursor fits a source with another shuffle buffer",
        Test(FEEDLINE, "batches", "shuffled_sources::a_cursor_of_another_order_of_records_is_refused"),
        [("crates/core/src/source.rs", "if self == Self::default() {", "if true {")],
    ),
    Bug(
        "checkpoint_without_checksum",
        "a damaged checkpoint is loaded",
        Test(FEEDLINE, "resuming", "checkpoint::a_damaged_or_foreign_checkpoint_is_one_error_that_names_the_file"),
        [
            (
                "crates/feedline/src/checkpoint/file.rs",
                "if Fingerprint::new().bytes(content).value() != u64::from_le_bytes(*checksum) {",
                "if false && u64::from_le_bytes(*checksum) == 0 {",
            )
        ],
    ),
    Bug(
        "checkpoint_written_in_place",
        "a checkpoint that is saved replaces the old one byte by byte",
        Test(FEEDLINE, "resuming", "checkpoint::a_checkpoint_is_replaced_as_a_whole"),
        [
            (
                "crates/feedline/src/checkpoint/file.rs",
                "    file.write_all(bytes)?;",
                "    File::create(path)?.write_all(bytes)?;",
            ),
            (
                "crates/feedline/src/checkpoint/file.rs",
                "fs::rename(temporary, path)",
                "fs::remove_file(temporary)",
            ),
        ],
    ),
    Bug(
        "temporary_of_others",
        "a checkpoint is written into the temporary file of another process",
        Test(FEEDLINE, "lib", "checkpoint::file::tests::a_temporary_file_is_never_one_that_is_there"),
        [
            (
                "crates/feedline/src/checkpoint/file.rs",
                "File::options().write(true).create_new(true).open(&path)",
                "File::create(&path)",
            )
        ],
    ),
    Bug(
        "vouched_for_ever",
        "a cursor that the user vouched for once fits any data from then on",
        Test(
            "feedline-core",
            "logic",
            "cursor::a_cursor_that_the_user_vouches_for_resumes_with_another_fingerprint_only",
        ),
        [("crates/core/src/cursor/mod.rs", "fingerprint, vouched: false, ..self };", "fingerprint, ..self };")],
    ),
    Bug(
        "fingerprint_without_the_end",
        "the fingerprint of a large file does not cover its end",
        Test(
            "feedline-core", "logic", "fingerprint::file_sampled_covers_the_length_and_the_content_but_not_name_and_time"
        ),
        [
            (
                "crates/core/src/fingerprint.rs",
                "[0].into_iter().chain(places).chain([len - SAMPLED_PART])",
                "[0].into_iter().chain(places)",
            )
        ],
    ),
    Bug(
        "shards_in_any_order",
        "the shards of a pattern come in the order in which they were opened",
        Test(DATASETS, "object_store", "patterns::ranges_and_lists_open_shards_in_their_order"),
        [("datasets/src/at_once.rs", "done.sort_by_key(|(number, _)| *number);", "done.reverse();")],
    ),
    Bug(
        "types_of_one_shard",
        "each CSV shard by URL has types of its own",
        Test(DATASETS, "object_store", "patterns::tables_by_url_have_the_types_of_all_shards_together"),
        [("datasets/src/open/remote.rs", "if all(is_csv)? {", "if cfg!(any()) && all(is_csv)? {")],
    ),
    Bug(
        "shard_drop_panics",
        "a panic in the drop of a shard ends the thread that drops its reader",
        Test(FEEDLINE, "lib", "transfer::tests::ends::the_thread_ends_although_a_shard_panics_when_dropped"),
        [
            (
                "crates/feedline/src/decode/source.rs",
                'let _ = catch_panic("the drop of a shard panicked", || drop(open));',
                "drop(open);",
            )
        ],
    ),
    Bug(
        "batch_info_copied",
        "what is known of a batch is copied from the host slot to the device slot, and takes memory each time",
        Test(FEEDLINE, "bounded", "a_steady_pipeline_allocates_nothing_on_the_heap"),
        [
            (
                TRANSFER,
                "std::mem::swap(slot.info_mut(), &mut filled.info_mut().batch);",
                "*slot.info_mut() = filled.info_mut().batch.clone();",
            )
        ],
    ),
    Bug(
        "wakes_fill_the_inbox",
        "each request takes a place in the inbox, which grows",
        Test(FEEDLINE, "lib", "decode::tests::any_number_of_requests_takes_one_place_in_the_inbox"),
        [
            (
                SCHEDULE,
                "            self.send(Message::Wake);",
                "            self.send(Message::Wake);\n            self.woken();",
            )
        ],
    ),
    Bug(
        "slot_of_another_loader",
        "a worker swaps the slots of batches of two loaders",
        Test(FEEDLINE, "lib", "decode::tests::a_worker_decodes_the_first_batch_into_the_slot_that_it_filled_last"),
        [(BATCH, "Arc::ptr_eq(other, decoder) && is_own(batch)", "!cfg!(any()) && is_own(batch)")],
    ),
    Bug(
        "posted_batches_are_kept_back",
        "short batches wait for the next read of their worker",
        Test(
            FEEDLINE,
            "lib",
            "transfer::tests::order::a_message_that_wakes_nobody_is_received_while_a_read_does_not_return",
        ),
        [
            (
                TRANSFER,
                "self.interval(waited).unwrap_or(waited.clamp(LOOK.0, LOOK.1))",
                "self.interval(waited).unwrap_or(Duration::MAX)",
            )
        ],
    ),
    Bug(
        "messages_outlive_the_thread",
        "a batch in the inbox keeps its slot when the transfer thread has ended",
        Test(
            FEEDLINE,
            "lib",
            "decode::tests::a_batch_that_nobody_received_is_dropped_when_the_transfer_thread_ends",
        ),
        [(SCHEDULE, "Ordering::SeqCst);\n        self.drop_messages();", "Ordering::SeqCst);")],
    ),
    Bug(
        "messages_after_the_end",
        "a batch that is sent after the end of the transfer thread keeps its slot",
        Test(FEEDLINE, "lib", "decode::tests::the_data_is_dropped_once_no_worker_reads"),
        [(SCHEDULE, "if self.is_closed.load(Ordering::SeqCst) {", "if cfg!(any()) {")],
    ),
    Bug(
        "queued_batches_outlive_their_loader",
        "a loader that stops waits for the reads of another loader of its pool",
        Test(FEEDLINE, "threads", "shared_pool::a_stop_does_not_wait_for_the_reads_of_another_loader"),
        [(TRANSFER, "            self.pool.remove(&self.decoder);\n", "")],
    ),
    Bug(
        "threads_not_joined",
        "a loader that was stopped does not wait for the end of its threads",
        Test(FEEDLINE, "threads", "worker_threads::stop_and_the_drop_return_after_every_thread_has_exited"),
        [
            (
                SHUTDOWN,
                "if let Err(panic) = thread.join() {\n                panic_text(panic);\n            }",
                "drop(thread);",
            )
        ],
    ),
    Bug(
        "advice_under_one_lock",
        "the report advises more workers where samples are read under one lock",
        Test("feedline-report", "lib", "diagnosis::tests::samples_under_one_lock_do_not_get_more_workers"),
        [("crates/report/src/diagnosis.rs", "Bound::Decode if setup.is_under_one_lock =>", "Bound::Decode if cfg!(any()) =>")],
    ),
    Bug(
        "own_worker",
        "a loader waits on a worker of its own pool",
        Test(FEEDLINE, "threads", "shared_pool::a_loader_that_a_worker_of_its_pool_drives_is_refused"),
        [(POOL, "        POOL.get() == address(&self.queue)", "        false")],
    ),
    Bug(
        "drop_on_own_worker",
        "the drop of a loader waits on a worker of its own pool",
        Test(FEEDLINE, "threads", "shared_pool::a_loader_that_a_worker_of_its_pool_drives_is_refused"),
        [("crates/feedline/src/loader/mod.rs", "if self.running.check_process().is_ok() && self.running.is_on_own_worker() {", "if false {")],
    ),
    Bug(
        "worker_limit",
        "a worker beyond the limit takes work",
        Test(
            FEEDLINE,
            "lib",
            "decode::queue::tests::a_worker_beyond_the_limit_takes_no_work_until_the_limit_is_raised",
        ),
        [(QUEUE, "state.closed || worker >= state.limit {", "state.closed || worker > state.limit {")],
    ),
    Bug(
        "tuner_keeps_few",
        "the tuner keeps a number of workers that is too small",
        Test(FEEDLINE, "lib", "tune::tests::a_number_that_is_too_small_is_undone"),
        [("crates/feedline/src/tune.rs", "const ENOUGH: f64 = 0.98;", "const ENOUGH: f64 = 0.5;")],
    ),
    Bug(
        "refused_between_connections",
        "a rank that is refused before its second connection says that rank 0 is missing",
        Test(DIST, "lib", "group::rendezvous::tests::a_rank_that_is_refused_between_its_connections_has_the_reason"),
        [
            (
                "crates/dist/src/group/rendezvous.rs",
                "open(DATA).map_err(|error| reason(&control).unwrap_or_else(|| lost(error)))?",
                "open(DATA).map_err(lost)?",
            )
        ],
    ),
    Bug(
        "refused_on_the_second_connection",
        "a rank that is refused on its second connection does not say why",
        Test(DIST, "lib", "group::rendezvous::tests::a_rank_that_is_refused_between_its_connections_has_the_reason"),
        [
            (
                "crates/dist/src/group/rendezvous.rs",
                "Err(error) => Err(reason(&data).unwrap_or_else(|| {",
                "Err(error) => Err(None.unwrap_or_else(|| {",
            )
        ],
    ),
    Bug(
        "cpu_hinders_gpu",
        "the CPU decodes beside the GPU although its cores are needed to read",
        Test(
            PICTURES,
            "lib",
            "decoder::picture_queue::tests::the_cpu_stops_helping_when_it_is_needed_elsewhere",
        ),
        [
            (
                "kernels/pictures/src/decoder/picture_queue.rs",
                "left.pictures.len() <= left.for_gpu && !(self.helps)()",
                "left.pictures.is_empty()",
            )
        ],
    ),
    Bug(
        "crop_above_a_cut",
        "a picture that is cut short is good where the crop ends above the cut",
        Test(IMAGES, "images", "verdicts::the_verdict_on_a_damaged_picture_is_that_of_decoding_it_whole"),
        [
            (
                "images/src/decode/jpeg/mod.rs",
                "if is_done && *outlook == Outlook::Sound {",
                "if is_done && *outlook != Outlook::Scans {",
            )
        ],
    ),
    Bug(
        "unchecked_picture",
        "a lane gets a picture that cannot be decoded, which ends the run whatever the budget says",
        Test(
            PICTURES,
            "stage",
            "bad::damaged_pictures_get_the_same_substitutes_whoever_decodes_on_any_number_of_ranks",
        ),
        [("images/src/transform/placement.rs", "        self.check(encoded, scratch)?;\n", "")],
    ),
    Bug(
        "produced_batch_charged_to_the_copy",
        "a batch that is not copied has no time of its device slot, and the report names the copy",
        Test(
            FEEDLINE,
            "device_map",
            "seen::the_report_of_lanes_that_read_host_slots_has_their_time_and_no_copy",
        ),
        [
            (
                TRANSFER,
                "(timeline.device_slot, timeline.sent) = (self.at, self.at);",
                "timeline.sent = self.at;",
            )
        ],
    ),
    Bug(
        "prefetch_own_batch",
        "a worker reads samples that the set has not prepared",
        Test(FEEDLINE, "batches", "prefetch::every_sample_is_prepared_before_it_is_read"),
        [(BATCH, "if decoder.prefetch.is_on() {", "if false {")],
    ),
    Bug(
        "prefetch_later_batches",
        "a worker without work prepares no samples of later batches",
        Test(
            FEEDLINE,
            "batches",
            "prefetch::samples_of_later_batches_are_prepared_in_their_order_before_a_batch_is_taken",
        ),
        [(POOL, "at_once.is_none() && decoder.prefetch.is_on()", "false")],
    ),
    Bug(
        "prefetch_without_end",
        "samples of all later epochs are prepared",
        Test(
            FEEDLINE,
            "batches",
            "prefetch::samples_of_later_batches_are_prepared_in_their_order_before_a_batch_is_taken",
        ),
        [(PREFETCH, "later.epoch > begun.saturating_add(1)", "false")],
    ),
    Bug(
        "prefetch_of_an_earlier_request",
        "the samples of a new request count as prepared because an earlier one prepared its own",
        Test(FEEDLINE, "batches", "prefetch::a_new_request_is_prepared_from_its_own_position"),
        [
            (PREFETCH, "(request.number, request.epoch, request.step)", "(request.epoch, request.step)"),
            (
                PREFETCH,
                "(next.number, next.epoch) != (request.number, request.epoch)",
                "next.epoch != request.epoch",
            ),
        ],
    ),
    Bug(
        "prefetch_out_of_order",
        "the samples of a batch count as prepared because a worker has begun the next batch before it",
        Test(FEEDLINE, "lib", "decode::prefetch::tests::only_steps_that_were_prepared_count_as_prepared"),
        [(PREFETCH, "unsure: next.step, calls: 0, begun: request.epoch", "unsure: 0, calls: 0, begun: request.epoch")],
    ),
    Bug(
        "prefetch_without_bound",
        "a set that claims to prepare something at every call keeps a worker forever",
        Test(FEEDLINE, "batches", "prefetch::whatever_a_set_answers_every_batch_arrives"),
        [(PREFETCH, "for _ in 0..=ids.len() {", "loop {")],
    ),
    Bug(
        "prefetch_calls_on",
        "a set that has nothing to prepare is called for every batch",
        Test(FEEDLINE, "batches", "prefetch::whatever_a_set_answers_every_batch_arrives"),
        [(PREFETCH, "if outcome == Prefetched::Never {", "if false {")],
    ),
    Bug(
        "prefetch_of_parts",
        "a composed set does not pass on which samples to prepare",
        Test(FEEDLINE, "batches", "prefetch::compositions_pass_the_ids_on"),
        [
            (
                "crates/core/src/compose/mod.rs",
                "self.sets[run[0].0].prefetch(inner, context)",
                "Prefetched::Ready",
            ),
        ],
    ),
    Bug(
        "in_place_of_another_batch",
        "a view is read in place whichever batch it is of",
        Test(FEEDLINE, "batches", "host::a_view_is_read_in_place_from_its_own_batch_only"),
        [
            (
                "crates/feedline/src/compute/host.rs",
                "view.address().0.checked_sub(bytes.as_ptr().addr() as u64)",
                "(view.address().0 % bytes.len() as u64).checked_sub(0)",
            ),
        ],
    ),
    Bug(
        "cache_returns_memory",
        "the memory of evicted row groups goes back to the system, which clears it again for the next ones",
        Test(DATASETS, "lib", "cache::tests::the_memory_of_evicted_parts_is_used_again"),
        [(CACHE, "keep_freed_memory();", "")],
    ),
    Bug(
        "prefetch_draws_once",
        "the ids of one step are prepared for all later ones",
        Test(
            FEEDLINE,
            "batches",
            "prefetch::samples_of_later_batches_are_prepared_in_their_order_before_a_batch_is_taken",
        ),
        [(PREFETCH, "if *of != request {", "if of.number != request.number {")],
    ),
    Bug(
        "cache_waits_ahead",
        "prefetching waits for a row group that another worker decodes",
        Test(DATASETS, "lib", "cache::tests::a_part_that_another_thread_decodes_is_not_waited_for"),
        [(CACHE, "None => outcome = Prefetched::Pending,", "None => drop(part.value.read()),")],
    ),
    Bug(
        "cache_without_room",
        "row groups are prefetched although those that are being read then leave the cache",
        Test(DATASETS, "lib", "cache::tests::parts_ahead_leave_room_for_those_that_are_being_read"),
        [(CACHE, "self.limit.saturating_sub(being_read).max(self.limit / 4)", "self.limit")],
    ),
    Bug(
        "cache_evicts_ahead",
        "row groups that were prefetched leave the cache before those that were read",
        Test(DATASETS, "lib", "cache::tests::parts_ahead_are_evicted_last_and_make_room_when_they_are_used"),
        [(CACHE, "(self.is_ahead(&held, part), self.parts", "(false, self.parts")],
    ),
    Bug(
        "cache_keeps_ahead",
        "row groups that were prefetched for an order that was given up stay in the cache",
        Test(DATASETS, "lib", "cache::tests::parts_of_an_order_that_was_given_up_are_not_kept"),
        [(CACHE, "ahead != USED && held.decoded - ahead <= 2 * held.parts.len() as u64", "ahead != USED")],
    ),
    Bug(
        "tuner_counts_decoded_ahead",
        "the tuner takes the rate of batches that were decoded ahead for the rate of its workers",
        Test(FEEDLINE, "lib", "tune::tests::batches_that_were_decoded_ahead_do_not_hide_that_one_worker_is_too_few"),
        [("crates/feedline/src/tune.rs", ".min(window.max_rate(self.tuning.workers));", ";")],
    ),
    Bug(
        "tuner_counts_older_batches",
        "the tuner blames its workers for batches that were begun before the last change",
        Test(FEEDLINE, "lib", "tune::tests::batches_that_were_decoded_ahead_do_not_hide_that_one_worker_is_too_few"),
        [("crates/feedline/src/tune.rs", "if timeline.begun >= window.opened {", "if true {")],
    ),
    Bug(
        "tuner_sleeps_on",
        "workers stay asleep when the rate falls",
        Test(FEEDLINE, "lib", "tune::tests::all_workers_wake_up_when_the_rate_falls_and_not_without_end"),
        [("crates/feedline/src/tune.rs", "if has_fallen && self.searches < SEARCHES {", "if false {")],
    ),
    Bug(
        "sync_does_not_wait",
        "FEEDLINE_SYNC does not wait for the work of a call",
        Test(FEEDLINE, "threads", "synchronous::a_failed_task_is_returned_by_its_own_call_with_line_stage_and_batch"),
        [
            (
                "crates/backend/src/synchronous.rs",
                "Ordering::Acquire) > 0 {",
                "Ordering::Acquire) < usize::MAX {",
            )
        ],
    ),
    Bug(
        "any_number_of_workers",
        "a worker count has no upper limit",
        Test(FEEDLINE, "lib", "decode::tests::worker_counts_outside_the_limits_are_refused"),
        [
            (
                POOL,
                "Self::Count(count) if count > MAX_WORKERS =>",
                "Self::Count(count) if count > 2 * MAX_WORKERS =>",
            )
        ],
    ),
    Bug(
        "delivered_as_done",
        "batches are sent on in the order in which they are decoded",
        Test(FEEDLINE, "lib", "transfer::tests::order::batches_decoded_out_of_order_are_delivered_in_order"),
        [
            (
                SCHEDULE,
                "let index = index as usize;",
                "let _ = index;\n        let index = self.places.len();",
            )
        ],
    ),
    Bug(
        "later_pieces_only",
        "a batch that failed takes the pieces of those before it with it",
        Test(FEEDLINE, "lib", "decode::tests::a_batch_before_a_failed_one_is_read_to_its_end"),
        [(BATCH, "if !decoder.requests.is_after_failure(self.number)", "if !decoder.requests.is_after_failure(u64::MAX)")],
    ),
    Bug(
        "proof_without_substitutes",
        "the proof of a batch is that of the samples that were to be read, not of their substitutes",
        Test(FEEDLINE, "failing", "bad_samples::a_bad_sample_changes_only_its_own_row_for_any_workers_and_depth"),
        [
            (DECODER, "        info.prove();\n", ""),
            (
                DECODER,
                "        info.substituted = substituted;",
                "        info.prove();\n        info.substituted = substituted;",
            ),
        ],
    ),
    Bug(
        "coherent_link",
        "a GPU beside a Grace CPU is treated as one behind PCIe",
        Test(FEEDLINE, "batches", "transfer_modes::auto_gathers_over_a_coherent_link_whatever_the_order_and_the_workers"),
        [("crates/feedline/src/transfer_mode.rs", "if device.has_coherent_host_memory() {", "if false {")],
    ),
    Bug(
        "synchronous_attributes",
        "with FEEDLINE_SYNC=1 the device's link is not known",
        Test(FEEDLINE, "batches", "transfer_modes::auto_gathers_over_a_coherent_link_whatever_the_order_and_the_workers"),
        [("crates/backend/src/synchronous.rs", "        fn has_coherent_host_memory() -> bool;\n", "")],
    ),
    Bug(
        "proof_of_resident",
        "a batch that the device gathers adds nothing to the proof",
        Test(FEEDLINE, "batches", "resident::batches_are_those_of_staged_mode"),
        [(BATCH, "                info.prove();\n", "")],
    ),
    Bug(
        "cursor_counts_prefetched",
        "the cursor counts one batch that was read ahead and not delivered",
        Test(FEEDLINE, "zoo", "every_data_set_resumes"),
        [
            (
                PROGRESS,
                "None => cursor.deliver(batch_sampler, &info.proof),",
                "None => (0..=u8::from(info.step == 0))\n"
                "                .for_each(|_| cursor.deliver(batch_sampler, &info.proof)),",
            )
        ],
    ),
    Bug(
        "checkpoint_wait",
        "a checkpoint does not wait for the work queued so far",
        Test(FEEDLINE, "resuming", "checkpoint::a_checkpoint_matches_the_model_when_the_device_is_ten_steps_behind"),
        [(PROGRESS, "        compute.synchronize()?;\n", "")],
    ),
    Bug(
        "checkpoint_wait_of_a_killed_process",
        "a process that is killed resumes from a cursor that is ahead of its model",
        Test(FEEDLINE, "failing", "killed::killed_at_random_moments_while_the_device_is_ten_steps_behind_it_ends_with_the_same_losses",
        ),
        [(PROGRESS, "        compute.synchronize()?;\n", "")],
    ),
    Bug(
        "lengths_of_a_padded_field",
        "the lengths of a padded field are read from its values",
        Test(FEEDLINE, "batches", "ragged_loaders::every_value_of_a_ragged_loader_matches_its_sample"),
        [
            (
                "crates/feedline/src/compute/batch.rs",
                "        self.reader.view(self.layout.offset(index), self.len())\n",
                "        self.reader.view(self.layout.values(index).start, self.len())\n",
            )
        ],
    ),
    Bug(
        "batches_elsewhere",
        "a batch that another thread opens counts as held by the thread that took it",
        Test(FEEDLINE, "failing", "held_slots::a_thread_that_opens_batches_may_hold_them_for_longer_than_the_limit"),
        [
            (
                DEVICE_RING,
                "slot.is_used_elsewhere.store(true, Ordering::Relaxed);",
                "slot.is_used_elsewhere.store(false, Ordering::Relaxed);",
            )
        ],
    ),
    Bug(
        "held_after_a_drop",
        "a thread that drops one batch and keeps the others is waited for without a limit",
        Test(FEEDLINE, "failing", "held_slots::a_thread_that_drops_batches_and_keeps_the_others_ends_the_wait"),
        [(RECEIVE, "Held::Idle => Some(self.held_timeout),", "Held::Idle => None,")],
    ),
    Bug(
        "held_in_use",
        "a thread that works with one batch of several is not waited for any longer",
        Test(FEEDLINE, "failing", "held_slots::a_thread_that_reads_host_batches_may_hold_them_for_longer_than_the_limit"),
        [(RECEIVE, "Some(self.held_timeout.saturating_mul(OTHER_THREADS))", "Some(self.held_timeout)")],
    ),
    Bug(
        "held_waits_forgotten",
        "waits with limits of their own do not add up",
        Test(FEEDLINE, "failing", "held_slots::waits_with_limits_of_their_own_add_up_and_a_look_without_a_wait_never_fails"),
        [(RECEIVE, "self.held.1 = self.held.1.saturating_add(wait);", "self.held.1 = wait;")],
    ),
    Bug(
        "held_by_others",
        "a caller that looks for held slots does not see those that other threads hold",
        Test(FEEDLINE, "failing", "held_slots::a_loader_moved_to_another_thread_does_not_fail_for_batches_that_the_first_thread_holds"),
        [
            (
                "crates/feedline/src/loader/receive.rs",
                "held == Held::Idle || (on_any_thread && held == Held::InUse)",
                "held == Held::Idle",
            )
        ],
    ),
    Bug(
        "held_in_silence",
        "a thread that holds every slot waits for a minute before it is told",
        Test(FEEDLINE, "failing", "held_slots::a_thread_that_holds_every_slot_is_told_soon_without_a_limit_of_the_builder",
        ),
        [
            (
                "crates/feedline/src/builder/mod.rs",
                "const HELD_LIMIT: Duration = Duration::from_secs(1);",
                "const HELD_LIMIT: Duration = Duration::from_secs(60);",
            )
        ],
    ),
    Bug(
        "checkpoint_held",
        "a checkpoint is taken while a batch is held",
        Test(FEEDLINE, "resuming", "checkpoint::a_checkpoint_is_refused_while_a_batch_is_held"),
        [(PROGRESS, "let held = self.unreleased.load(", "let held = 0 * self.unreleased.load(")],
    ),
    Bug(
        "checkpoint_during_a_delivery",
        "a checkpoint does not see that another thread took a batch while it waited",
        Test(FEEDLINE, "resuming", "progress::a_checkpoint_during_which_a_batch_is_delivered_is_refused"),
        [(PROGRESS, "if saved.cursor != after.cursor {", "if false && saved.cursor != after.cursor {")],
    ),
    Bug(
        "record_not_flushed",
        "a checkpoint does not write the steps before it into the record",
        Test(RECORD, "record", "written::a_checkpoint_finds_every_step_before_it_in_the_file"),
        [(PROGRESS, "        self.recorder.upgrade().map_or(Ok(()), |writer| lock(&writer).flush())?;\n", "")],
    ),
    Bug(
        "record_without_the_last_row",
        "the last row of a batch is not hashed",
        Test(RECORD, "record", "written::the_content_of_a_batch_is_that_of_xxh3"),
        [(DECODER, "hash.of_slab(&self.layout, bytes, info.ids.len())", "hash.of_slab(&self.layout, bytes, info.ids.len() - 1)")],
    ),
    Bug(
        "filler_content_unchecked",
        "the bytes that a filler has written are not compared with their hash",
        Test(FEEDLINE, "failing", "fillers::what_a_filler_does_wrong_is_found_and_decoded_by_the_workers"),
        [(FILL, " && outcome.content == content", "")],
    ),
    Bug(
        "filler_order_unchecked",
        "a filler that has read other samples is believed",
        Test(FEEDLINE, "failing", "fillers::what_a_filler_does_wrong_is_found_and_decoded_by_the_workers"),
        [(FILL, "outcome.order == BatchProof::of(info.epoch, &info.ids).order()", "true")],
    ),
    Bug(
        "record_of_other_data",
        "the record of a run is continued although its data has changed",
        Test(RECORD, "record", "changed::a_run_is_not_continued_on_data_that_has_changed"),
        [("crates/feedline/src/record/header.rs", 'before["fingerprint"] != now["fingerprint"]', "false")],
    ),
    Bug(
        "record_unchecked",
        "a damaged frame of a record is believed",
        Test(RECORD, "record", "killed::damage_before_the_end_is_an_error_that_names_the_byte"),
        [("crates/feedline/src/record/frame.rs", "check(body) != *found", "false")],
    ),
    Bug(
        "record_doubled",
        "steps that a resumed run does again are recorded as further ones",
        Test(RECORD, "record", "replayed::steps_that_are_done_again_in_another_way_replace_the_former_ones"),
        [("crates/feedline/src/record/read.rs", "                self.forget_from(number);\n", "")],
    ),
    Bug(
        "resumed_report_too_long",
        "a run that continues from its record counts the bad samples of the next step twice",
        Test("feedline-record", "record", "replayed::a_run_continues_from_its_record_with_its_bad_samples"),
        [("crates/record/src/run.rs", "segment.number + (*step as u64) < number", "segment.number + (*step as u64) <= number")],
    ),
    Bug(
        "source_replayed_from_another_step",
        "the steps of a source between the recorded position and the asked one are not read again",
        Test("feedline-record", "record", "replayed::runs_over_a_source_are_replayed_from_any_step"),
        [("crates/record/src/replay.rs", "batches.by_ref().take(again)", "batches.by_ref().take(again / 2)")],
    ),
    Bug(
        "record_row_unlocated",
        "the row that has changed is not located by the sums of a batch",
        Test(CORE, "lib", "content::tests::a_single_changed_row_is_located_whatever_its_hashes"),
        [("crates/core/src/content.rs", "times(hash, (row as u64 + 1) % PRIME)", "hash")],
    ),
    Bug(
        "stop_handle_closes_nothing",
        "a stop from another thread does not end a next that blocks",
        Test(FEEDLINE, "resuming", "progress::a_stop_handle_ends_a_next_that_blocks"),
        [(SHUTDOWN, "            closers.close();\n        }\n    }\n}\n\nimpl std::fmt::Debug for StopHandle", "        }\n    }\n}\n\nimpl std::fmt::Debug for StopHandle")],
    ),
    Bug(
        "batches_after_a_stop",
        "batches that were read ahead are delivered after a stop",
        Test(FEEDLINE, "resuming", "progress::a_stop_drops_the_batches_that_were_read_ahead"),
        [(RECEIVE, "        self.running.check_stopped()?;\n", "")],
    ),
    Bug(
        "with_host_before_earlier_work",
        "code on the host reads a batch before the earlier work of the stream has run",
        Test(FEEDLINE, "batches", "host::into_host_waits_for_the_work_queued_before_it"),
        [(HOST, "        batch.ready.stream().synchronize()?;\n", "")],
    ),
    Bug(
        "over_taken_for_not_yet",
        "the end of an epoch is reported as a batch that is not there yet",
        Test(FEEDLINE, "batches", "iterable::the_loader_finds_the_end_of_an_epoch_and_starts_the_next"),
        [
            (
                RECEIVE,
                "                    return Ok(TryNext::Over);",
                "                    return Ok(TryNext::NotYet);",
            )
        ],
    ),
    Bug(
        "cause_after_the_end",
        "a stage closes its channels before it tells why",
        Test(FEEDLINE, "failing", "failures::the_first_cause_is_reported_however_the_threads_race"),
        [
            (START, "        outcome(result);\n", ""),
            (
                START,
                "        drop(transfer);\n",
                "        drop(transfer);\n        std::thread::sleep(std::time::Duration::from_millis(20));\n"
                "        outcome(result);\n",
            ),
        ],
    ),
    Bug(
        "stop_leaves_the_device_slots_open",
        "stop does not wake a transfer that waits for a device slot",
        Test(FEEDLINE, "failing", "shutdown::a_consumer_that_stops_taking_batches_stops_the_pipeline_when_all_slots_are_full",
        ),
        [(SHUTDOWN, "        self.device_slots.iter().for_each(|slots| slots.close());\n", "")],
    ),
    Bug(
        "stop_does_not_wait_for_the_device",
        "stop succeeds while the device still reads a batch",
        Test(FEEDLINE, "failing", "limits::stop_reports_work_on_the_device_that_does_not_end"),
        [(SHUTDOWN, "self.drain(left()).map_err(", "self.drain(left()).or(Ok::<(), Error>(())).map_err(")],
    ),
    Bug(
        "batches_of_an_epoch_that_was_left",
        "batches that were read ahead for an epoch that was left are delivered in the next one",
        Test(FEEDLINE, "batches", "random_loaders::every_row_of_a_random_loader_matches_the_reference"),
        [
            (
                RECEIVE,
                "if loaded.info().request != at.number",
                "if loaded.info().request > at.number",
            )
        ],
    ),
    Bug(
        "ranks_overlap_in_a_short_step",
        "two ranks get the same samples of a last step that is not full",
        Test(FEEDLINE, "resuming", "random_resume::every_sample_arrives_once_however_a_run_is_resumed"),
        [
            (
                "crates/core/src/batch_sampler.rs",
                "first: first + rank * each + rank.min(over)",
                "first: first + rank * each",
            )
        ],
    ),
    Bug(
        "dlpack_batch",
        "a DLPack tensor does not keep its batch",
        Test("feedline-dlpack", "tensors", "lifetimes::a_tensor_keeps_its_batch_and_its_drop_releases_it"),
        [
            (
                "crates/dlpack/src/export.rs",
                "_owner: owner }",
                "_owner: { drop(owner); Arc::new(()) } }",
            )
        ],
    ),
    Bug(
        "dlpack_unversioned",
        "a DLPack tensor without a version does not keep its batch",
        Test("feedline-dlpack", "tensors", "lifetimes::an_unversioned_tensor_is_the_same_and_keeps_its_batch"),
        [
            (
                "crates/dlpack/src/export.rs",
                "Box::into_raw(Box::new(Unversioned { managed, _exported: self })).cast()",
                "Box::into_raw(Box::new(managed))",
            )
        ],
    ),
    Bug(
        "dlpack_deleter",
        "a DLPack tensor that is refused is not given back",
        Test("feedline-dlpack", "tensors", "lifetimes::what_cannot_be_read_is_refused_and_given_back"),
        [
            (
                "crates/dlpack/src/import.rs",
                "let owned = Owned(raw);",
                "let owned = std::mem::ManuallyDrop::new(Owned(raw));",
            )
        ],
    ),
    Bug(
        "last_wakes",
        "the last of the batches that are handed out wakes no worker",
        Test(FEEDLINE, "lib", "transfer::tests::order::a_worker_is_woken_for_a_batch_that_is_handed_out_alone"),
        [
            (
                TRANSFER,
                "            self.give(batch, true);\n        }\n        if count > 0",
                "            self.give(batch, false);\n        }\n        if count > 0",
            )
        ],
    ),
    Bug(
        "copies_untimed",
        "the wait for a slot's readers counts as part of the copy",
        Test(FEEDLINE, "lib", "transfer::tests::copies::a_timed_copy_starts_after_the_wait_for_the_readers_of_its_slot"),
        [
            (
                "crates/feedline/src/transfer/timed.rs",
                "slot.record_copy_start(&sample.started);",
                "stream.record(&sample.started)?;\n        let _ = &slot;",
            )
        ],
    ),
    Bug(
        "last_copies_undrawn",
        "a copy is drawn when the next one begins",
        Test(FEEDLINE, "threads", "trace::every_lane_is_drawn_and_the_spans_of_a_batch_are_linked"),
        [
            (
                "crates/feedline/src/transfer/timed.rs",
                "if self.has_undrawn() { self.collect() } else { Ok(()) }",
                "Ok(())",
            )
        ],
    ),
    Bug(
        "trace_grows",
        "a trace keeps every span",
        Test(FEEDLINE, "threads", "trace::a_long_run_keeps_whole_batches_within_the_limit"),
        [("crates/feedline/src/trace/mod.rs", "if state.spans.len() < self.limit {", "if true {")],
    ),
    Bug(
        "trace_share_of_overlaps",
        "spans that overlap count twice in the table of a trace",
        Test("feedline-report", "lib", "table::tests::a_share_is_the_part_of_the_run_that_the_spans_cover"),
        [
            (
                "crates/report/src/table.rs",
                "covered += end.saturating_sub(at.max(span.start));",
                "covered += end.saturating_sub(span.start);",
            )
        ],
    ),
    Bug(
        "wait_for_a_copy_is_own_time",
        "what the host waits for a copy counts as the consumer's own time",
        Test(FEEDLINE, "threads", "ledger::the_waits_are_those_of_a_stopwatch_for_every_loader"),
        [
            (
                "crates/device/src/slot/lease.rs",
                "host_waits.fetch_add(now() - start,",
                "host_waits.fetch_add(0 * start,",
            )
        ],
    ),
    Bug(
        "name_in_the_page",
        "a name of a user changes the program of the report page",
        Test("feedline-report", "lib", "page::tests::a_page_holds_its_data_and_no_name_changes_its_program"),
        [("crates/report/src/page.rs", "data.replace('<', \"\\\\u003c\")", "data.replace(\"</\", \"<\\\\/\")")],
    ),
    Bug(
        "what_if_of_any_size",
        "a what-if allocates for as many workers as it is asked for",
        Test("feedline-report", "lib", "model::tests::numbers_from_outside_are_bounded"),
        [("crates/report/src/profile.rs", "workers.clamp(1, MAX_WORKERS)", "workers.max(1)")],
    ),
    Bug(
        "seed_beside_shuffle",
        "the builder ignores a seed beside shuffle",
        Test(FEEDLINE, "failing", "failures::calls_that_contradict_each_other_are_refused"),
        [("crates/feedline/src/builder/calls.rs", "seed.filter(|&seed| seed != shuffle)", "seed.filter(|_| false)")],
    ),
    Bug(
        "rank_without_shards",
        "a source may have fewer shards than there are ranks",
        Test(FEEDLINE, "failing", "failures::calls_that_contradict_each_other_are_refused"),
        [("crates/feedline/src/builder/plan.rs", "if shards < u64::from(ranks) && !self.records.split {", "if false {")],
    ),
    Bug(
        "another_fuzz_target",
        "a fuzz target runs another one",
        Test("feedline-fuzz", "replay", "every_target_is_built_and_has_seeds"),
        [("fuzz/fuzz_targets/idx_bytes.rs", "target!(idx_bytes)", "target!(cursor_bytes)")],
    ),
    Bug(
        "picture_limit",
        "a picture of any size is decoded",
        BOMBS,
        [
            (
                "images/src/decode/mod.rs",
                "if header.size.pixels() > self.settings.limits.pixels {",
                "if false {",
            )
        ],
    ),
    Bug(
        "picture_limit_between",
        "a picture grows to any size between two transforms",
        Test(IMAGES, "images", "bounds::the_limit_of_pixels_holds_after_each_transform_but_for_sizes_that_it_states"),
        [("images/src/transform/transforms.rs", "canvas.set_max_pixels(self.settings", "let _ = (self.settings")],
    ),
    Bug(
        "device_places",
        "a picture with places that a device cuts off gets a record",
        Test(IMAGES, "images", "bounds::a_device_refuses_places_that_its_records_cannot_hold_for_the_sample_alone"),
        [("images/src/device/device_part.rs", "if size.height > max || size.width > max {", "if false {")],
    ),
    Bug(
        "bmp_few_bytes",
        "the size of a BMP is believed whatever the file's length",
        BOMBS,
        [("images/src/decode/bmp/header.rs", "if min > pixels.len() as u64 {", "if false {")],
    ),
    Bug(
        "bmp_low_bits_first",
        "the first pixel of a byte is taken from its lowest bits",
        Test(IMAGES, "images", "pillow::every_variant_of_bmp_png_gif_and_webp_has_pillows_pixels"),
        [("images/src/decode/bmp/mod.rs", "byte >> (8 - bits * (at + 1))", "byte >> (bits * at)")],
    ),
    Bug(
        "picture_orientation",
        "EXIF's orientation of a JPEG is ignored",
        PILLOW,
        [("images/src/decode/jpeg/mod.rs", "Orientation::from_exif(orientation)", "Orientation::from_exif(1)")],
    ),
    Bug(
        "chroma_repeated",
        "chroma of half the size is repeated instead of interpolated",
        PILLOW,
        [("images/src/decode/jpeg/plan.rs", "(2, 2) if is_interpolated && is_wide => Sampling::Both,", "")],
    ),
    Bug(
        "chroma_always_interpolated",
        "chroma is interpolated whatever was asked for",
        Test(IMAGES, "images", "pillow::chroma_that_is_repeated_gives_libjpeg_turbos_pixels"),
        [("images/src/decode/jpeg/plan.rs", "chroma == Chroma::Interpolated && min_edge > 1", "min_edge > 1")],
    ),
    Bug(
        "reduced_chroma_enlarged",
        "a reduced picture's chroma is reduced like its brightness, then enlarged",
        Test(IMAGES, "images", "pillow::reduced_pictures_have_pillows_pixels"),
        [("images/src/decode/jpeg/plan.rs", "while edge < 8 &&", "while edge < 0 &&")],
    ),
    Bug(
        "bias_unchecked",
        "an operator takes a bias of any length",
        Test(KERNELS, "ops", "lengths::an_error_names_the_argument_its_length_and_the_length_that_it_needs"),
        [("kernels/src/ops/linear.rs", '("bias", bias.len(), ', '("bias", shape.outputs, ')],
    ),
    Bug(
        "gpu_queue_deaf",
        "a batch that the CPU has decoded waits for the GPU all the same",
        Test(PICTURES, "lib", "decoder::gpu_queue::tests::a_batch_that_is_done_leaves_the_queue_early"),
        [("kernels/pictures/src/decoder/gpu_queue.rs", "!= Some(&number) && !is_done()", "!= Some(&number)")],
    ),
    Bug(
        "reduced_too_far",
        "a crop is decoded in fewer pixels than it is scaled to",
        Test(IMAGES, "images", "scaled::a_crop_is_decoded_in_the_reduction_that_leaves_enough_pixels"),
        [("images/src/decode/reduction.rs", "part.height >= divisor * to.height &&", "")],
    ),
    Bug(
        "random_of_the_worker",
        "random numbers of a picture belong to the worker, not to the sample",
        Test(IMAGES, "images", "epochs::an_epoch_is_the_same_whatever_the_workers_the_ranks_and_a_resume"),
        [
            (
                "datasets/src/images/dataset.rs",
                "self.transforms.read_row(bytes, context.random(), scratch, row, 0)?,",
                "self.transforms.read_row(bytes, worker.get_or_insert_with(|| context.random().clone()), scratch, "
                "row, 0)?,",
            ),
            (
                "datasets/src/images/dataset.rs",
                "    scratch: Scratch,\n}",
                "    scratch: Scratch,\n" "    worker: Option<feedline_core::Random>,\n}",
            ),
            (
                "datasets/src/images/dataset.rs",
                "let Memory { values, scratch } = memory;",
                "let Memory { values, scratch, worker } = memory;",
            ),
        ],
    ),
    Bug(
        "arrow_sizes_believed",
        "compressed buffers of an Arrow file are inflated to whatever they claim",
        Test(DATASETS, "datasets", BOUNDS),
        [
            (
                "datasets/src/arrow/messages.rs",
                "if stored > length || inflated > max {",
                "if stored > length {",
            )
        ],
    ),
    Bug(
        "parquet_sizes_believed",
        "a Parquet row group is decoded to whatever its pages claim",
        Test(DATASETS, "datasets", BOUNDS),
        [("datasets/src/parquet/bounds.rs", "if claimed > max {", "if claimed == u64::MAX {")],
    ),
    Bug(
        "resident_rest_misplaced",
        "a row that workers have read is gathered from another place than it was copied to",
        Test(FEEDLINE, "batches", "resident::batches_of_a_set_of_which_a_part_fits_are_those_of_staged_mode"),
        [("crates/device/src/zero_copy/rest.rs", "(self.kept + missing as u64)", "(self.kept + row as u64)")],
    ),
    Bug(
        "resident_ids_not_copied",
        "the ids of a large batch of a resident set stay on the host",
        Test(DEVICE, "device", "contract::resident::a_large_batch_of_a_resident_set_is_gathered_in_pieces"),
        [("crates/device/src/zero_copy/columns.rs", "if let Some(room) = room {", "if let Some(room) = None {")],
    ),
    Bug(
        "resident_beyond_budget",
        "the rows of a batch take device memory beyond the budget",
        Test(FEEDLINE, "batches", "resident::samples_on_the_device_are_read_once_and_the_others_in_every_epoch"),
        [
            (
                "crates/device/src/zero_copy/resident.rs",
                "place(spec, kept.saturating_add(batch), batch)",
                "place(spec, kept, batch)",
            )
        ],
    ),
    Bug(
        "pack_believes_the_disk",
        "a damaged partial file is packed further",
        Test(DATASETS, "lib", "pack::tests::what_is_damaged_or_of_another_source_is_never_continued"),
        [("datasets/src/pack/journal.rs", "crc == self.crc32c", "true")],
    ),
    Bug(
        "ragged_cache_believed",
        "a row in a cache file is used though its checksum does not fit",
        Test(CORE, "logic", "compose::ragged::a_damaged_byte_anywhere_is_seen_and_the_row_is_read_again"),
        [
            (
                "crates/core/src/compose/cache/ragged_file.rs",
                "checksum == self.checksum(id, offset, bytes) && decode(bytes, row)",
                "decode(bytes, row)",
            )
        ],
    ),
    Bug(
        "ragged_cache_unbounded",
        "a cache of ragged fields grows beyond its budget",
        Test(CORE, "logic", "compose::ragged::a_file_keeps_its_budget_and_changes_while_it_is_used"),
        [("crates/core/src/compose/cache/ragged_file.rs", "if left < min {", "if false {")],
    ),
    Bug(
        "map_batch_leaves_rows",
        "a hook may leave ragged rows unwritten",
        Test(FEEDLINE, "batches", "ragged_compositions::what_a_hook_cannot_do_to_a_ragged_field_ends_the_run_with_its_batch",
        ),
        [
            (
                "crates/feedline/src/decode/map_batch.rs",
                "batch.rows.check_written().map_err(|(_, error)| error.into())",
                "Ok(())",
            )
        ],
    ),
    Bug(
        "bool_of_any_byte",
        "a sample may have any byte in a bool field",
        Test(CORE, "lib", "rows::tests::a_bool_field_has_no_byte_but_0_and_1"),
        [("crates/core/src/rows/mod.rs", "self.check_bools(written).and(unwritten)", "unwritten")],
    ),
    Bug(
        "bool_column_unchecked",
        "a device gathers any byte of a bool column",
        Test(DEVICE, "device", "host::resident::a_bool_that_no_worker_looks_at_is_checked_once"),
        [("crates/device/src/zero_copy/columns.rs", "if field.dtype() == DType::Bool\n", "if false\n")],
    ),
    Bug(
        "bool_padded_by_two",
        "a bool field may be padded with any byte",
        Test(CORE, "lib", "spec::tests::invalid_fields_are_rejected_by_name"),
        [("crates/core/src/ragged.rs", "if !dtype.accepts(&pad.element.0[..pad.element.1])", "if false")],
    ),
    Bug(
        "cache_keeps_all",
        "decoded row groups are never given up",
        Test(DATASETS, "lib", "cache::tests::the_part_that_was_used_longest_ago_goes_first"),
        [(CACHE, "while held.parts.len() > 1 &&", "while held.parts.len() > 100 &&")],
    ),
    Bug(
        "block_of_another_place",
        "a block shuffle takes a block that it has looked up for another one",
        Test(CORE, "logic", "samplers::many_blocks_in_one_call_are_those_of_single_positions"),
        [("crates/core/src/sampler/block.rs", "if known.0 != place {", "if known.0 == u64::MAX {")],
    ),
    Bug(
        "block_shuffle",
        "a file that fits its cache asks for a block shuffle",
        Test(DATASETS, "datasets", "tables::a_file_that_does_not_fit_its_cache_says_how_to_shuffle_it"),
        [(CACHE, ".filter(|_| bytes > cache_bytes)", ".filter(|_| bytes > 0)")],
    ),
    Bug(
        "shards_unit",
        "times of shards with other units are mixed",
        Test(DATASETS, "datasets", "tables::shards_of_other_units_of_time_are_refused"),
        [("datasets/src/concat.rs", "ticks(&***reader) != ticks(&**first)", "ticks(&***reader) == Some(0)")],
    ),
    Bug(
        "decoded_held",
        "a worker holds every part that a batch is read from, not four at a time",
        Test(DATASETS, "lib", "decoded::tests::a_worker_holds_four_parts_at_a_time_and_none_after_a_batch"),
        [("datasets/src/decoded.rs", "if held.len() == MAX_HELD {", "if held.len() == 1000 {")],
    ),
    Bug(
        "parquet_room",
        "a small row group takes the room of a large one",
        Test(DATASETS, "lib", "parquet::tests::a_row_group_takes_the_memory_of_its_own_rows"),
        [("datasets/src/parquet.rs", ".with_batch_size(at_once)", ".with_batch_size(bounds.rows.max(at_once))")],
    ),
    Bug(
        "int96_wraps",
        "a time of 96 bits beyond 64-bit nanoseconds is read as another time",
        Test(DATASETS, "lib", "parquet::tests::a_time_that_64_bits_cannot_hold_is_an_error_of_its_row"),
        [("datasets/src/parquet/times.rs", "i64::try_from(units).is_ok()", "units < i128::MAX")],
    ),
    Bug(
        "int96_copied",
        "a batch gets a wrapped time, because its row is copied and not visited",
        Test(DATASETS, "lib", "parquet::tests::a_time_that_64_bits_cannot_hold_is_an_error_of_its_row"),
        [("datasets/src/parquet.rs", "if self.too_large.contains_key(&row) {", "if self.rows == 0 {")],
    ),
    Bug(
        "parquet_codec",
        "a codec that is not read is found at the first sample, as damage",
        Test(
            DATASETS, "lib", "parquet::tests::a_codec_that_is_not_read_is_refused_at_the_opening_with_its_name"
        ),
        [("datasets/src/parquet.rs", "Compression::BROTLI(_) | Compression::LZO", "Compression::LZO")],
    ),
    Bug(
        "parquet_cause",
        "a file that cannot be read is reported as damaged",
        Test(DATASETS, "lib", "parquet::tests::a_file_that_is_cut_while_it_is_open_is_not_a_damaged_page"),
        [
            (
                "datasets/src/parquet/input.rs",
                "failed.or_else(|| self.content.check_unchanged().err()).unwrap_or_else(damaged)",
                "failed.filter(|_| false).unwrap_or_else(damaged)",
            )
        ],
    ),
    Bug(
        "names_twice",
        "two columns of one name are opened, and one hides the other",
        Test(DATASETS, "datasets", "tables::two_columns_of_one_name_are_refused_unless_others_are_chosen"),
        [
            (
                "datasets/src/schema.rs",
                "find(|field| !names.insert(&field.name))",
                "find(|field| !names.insert(&field.name) && names.is_empty())",
            )
        ],
    ),
    Bug(
        "npz_twice",
        "of two arrays with one name in an archive the first is lost",
        Test(DATASETS, "datasets", "arrays::damaged_archives_and_tensors_are_refused_with_their_name"),
        [
            (
                "datasets/src/npz.rs",
                "check_names(file, archive.central_directory_start())?;",
                "let _ = check_names(file, archive.central_directory_start());",
            )
        ],
    ),
    Bug(
        "json_floats",
        "floats of JSON Lines are off by the last bit",
        Test(DATASETS, "datasets", "jsonl::floats_are_the_doubles_that_their_text_is_nearest_to"),
        [
            (
                "datasets/src/jsonl/types.rs",
                "is_number.then(|| json.parse().ok())?",
                "is_number.then(|| serde_json::from_str(json).ok())?",
            )
        ],
    ),
    Bug(
        "json_key_twice",
        "of two values with one key in a line one is lost",
        Test(DATASETS, "datasets", "jsonl::lines_that_are_no_objects_are_refused_with_their_byte"),
        [
            (
                "datasets/src/jsonl/types.rs",
                "if std::mem::replace(&mut self.last, line) == line {",
                "if std::mem::replace(&mut self.last, line) == u64::MAX {",
            )
        ],
    ),
    Bug(
        "json_gap_filled",
        "a key that a line lacks is filled without being asked for",
        Test(DATASETS, "datasets", "jsonl::a_missing_value_is_an_error_of_its_row_or_filled"),
        [("datasets/src/jsonl.rs", "(Nulls::Refuse, _) =>", "(Nulls::Refuse, ColumnType::Uint) =>")],
    ),
    Bug(
        "csv_gap_filled",
        "an empty cell is filled without being asked for",
        Test(DATASETS, "datasets", "csv::an_empty_cell_is_an_error_of_its_row_or_filled"),
        [
            (
                "datasets/src/csv.rs",
                "Nulls::Fill if is_missing && kind == ColumnType::Float",
                "_ if is_missing && kind == ColumnType::Float",
            ),
            (
                "datasets/src/csv.rs",
                "Nulls::Refuse if is_missing =>",
                "Nulls::Refuse if is_missing && kind != ColumnType::Float =>",
            ),
        ],
    ),
    Bug(
        "shards_rounded",
        "whole numbers of one shard are rounded because another one has fractions",
        Test(
            DATASETS,
            "datasets",
            "tabular::shards_agree_only_on_types_that_lose_nothing",
        ),
        [
            (
                "datasets/src/csv/types.rs",
                "!self.exact && kind == ColumnType::Float",
                "!self.any && kind == ColumnType::Float",
            )
        ],
    ),
    Bug(
        "table_cast",
        "a cast to a floating-point type rounds whole numbers",
        Test(
            DATASETS,
            "datasets",
            "tabular::values_that_are_lost_missing_or_unknown_are_errors_of_their_row",
        ),
        [
            (
                "datasets/src/tabular/cast.rs",
                "back.is_finite() && back as i128 == whole",
                "back.is_finite() && whole != 0",
            )
        ],
    ),
    Bug(
        "table_missing",
        "a missing value that nothing fills is zero",
        Test(
            DATASETS,
            "datasets",
            "tabular::values_that_are_lost_missing_or_unknown_are_errors_of_their_row",
        ),
        [
            (
                "datasets/src/tabular/cell.rs",
                "to.copy_from_slice(self.fill.as_ref().ok_or_else(|| missing(&self.name, row))?);",
                "self.fill.iter().for_each(|fill| to.copy_from_slice(fill));",
            )
        ],
    ),
    Bug(
        "table_unknown",
        "a value that the list of a category lacks has the number 0",
        Test(
            DATASETS,
            "datasets",
            "tabular::values_that_are_lost_missing_or_unknown_are_errors_of_their_row",
        ),
        [
            (
                "datasets/src/tabular/vocabulary.rs",
                "copied().or(unknown)",
                "copied().or(unknown).or(Some(0))",
            )
        ],
    ),
    Bug(
        "table_saved_steps",
        "a saved table of other steps is taken",
        Test(DATASETS, "datasets", "saved_tables::the_saved_description_is_used_and_checked"),
        [("datasets/src/tabular/description.rs", "saved[*step] != **now", "saved[*step].is_null() && now.is_null()")],
    ),
    Bug(
        "table_saved_texts",
        "codes of the validation set are numbers, where those of the training set are texts",
        Test(
            DATASETS,
            "datasets",
            "saved_tables::the_saved_description_is_used_and_checked",
        ),
        [
            (
                "datasets/src/tabular/mod.rs",
                "flat_map(Description::texts)",
                "flat_map(Description::texts).take(0)",
            )
        ],
    ),
    Bug(
        "csv_rounded",
        "whole numbers of CSV beside fractions are rounded",
        Test(DATASETS, "datasets", "whole_numbers::a_column_that_f64_would_round_is_named_with_file_line_and_what_to_do"),
        [("datasets/src/csv/types.rs", "self.any && !self.exact", "self.any && self.is_whole() && !self.exact")],
    ),
    Bug(
        "json_rounded",
        "whole numbers of JSON Lines beside fractions are rounded",
        Test(DATASETS, "datasets", "whole_numbers::a_column_that_f64_would_round_is_named_with_file_line_and_what_to_do"),
        [("datasets/src/jsonl/types.rs", "self.values > 0 && !self.exact", "self.values > 0 && self.is_whole() && !self.exact")],
    ),
    Bug(
        "csv_beyond_f64",
        "1e999 of CSV is infinite",
        Test(DATASETS, "datasets", "whole_numbers::every_value_is_that_of_its_cell_or_refused"),
        [("datasets/src/csv/types.rs", "number.is_finite() || is_word()", "!number.is_nan() || is_word()")],
    ),
    Bug(
        "decimal_rounded",
        "whole decimals that f64 does not hold are rounded",
        Test(DATASETS, "datasets", "whole_numbers::decimals_that_f64_does_not_hold_are_errors_of_their_row"),
        [("datasets/src/table/column.rs", "(whole as f64 as i128 != whole).then_some(whole)", "(whole as f64).is_nan().then_some(whole)")],
    ),
    Bug(
        "csv_open_quote",
        "a quote that never closes takes the rest of the file",
        Test(DATASETS, "datasets", "csv::a_quote_that_never_closes_is_refused_with_its_line"),
        [("datasets/src/csv/scan.rs", "if let Some(fault) = fault {", "if let Some(fault) = fault.filter(|fault| fault.offset == u64::MAX) {")],
    ),
    Bug(
        "csv_misplaced_quote",
        "a quote that another cell's quote closes takes the rows between",
        Test(DATASETS, "datasets", "csv::a_quote_that_never_closes_is_refused_with_its_line"),
        [("datasets/src/csv/quotes.rs", "if has_break && !self.ends_cell(next) {", "if has_break && next == 0 {")],
    ),
    Bug(
        "csv_index_header",
        "the header that pandas writes is a row",
        Test(DATASETS, "datasets", "csv::the_header_of_pandas_has_an_index_without_a_name"),
        [("datasets/src/csv/sniff.rs", "(are_names || are_places)", "(are_names && names.len() == cells.len())")],
    ),
    Bug(
        "table_codes",
        "codes with zeros before them are numbers in a category",
        Test(DATASETS, "datasets", "category::codes_of_csv_with_zeros_before_them_are_categories_of_their_own"),
        [("datasets/src/tabular/mod.rs", "options.codes = steps.codes();", "options.codes = Vec::new();")],
    ),
    Bug(
        "table_class_type",
        "a list of categories has names that the column's type does not have",
        Test(DATASETS, "datasets", "category::a_stated_list_has_values_of_the_columns_type_each_once"),
        [("datasets/src/tabular/vocabulary.rs", "        if !is_of_type {", "        if !is_of_type && classes.is_empty() {")],
    ),
    Bug(
        "table_class_twice",
        "two names of one value are in the list of a category",
        Test(DATASETS, "datasets", "category::a_stated_list_has_values_of_the_columns_type_each_once"),
        [("datasets/src/tabular/vocabulary.rs", "    match twice(&names) {", "    match twice(&names).filter(|name| name.is_empty()) {")],
    ),
    Bug(
        "table_category_of_lists",
        "lists of texts are joined to categories",
        Test(DATASETS, "datasets", "category::a_column_of_lists_is_not_a_category"),
        [("datasets/src/tabular/vocabulary.rs", "is_text(element) && !is_list;", "is_text(element) && (!is_list || shape.len() == 1);")],
    ),
    Bug(
        "table_saved_data",
        "a saved table of other training data is taken",
        Test(DATASETS, "datasets", "saved_tables::a_saved_description_of_other_training_data_is_refused"),
        [("datasets/src/tabular/description.rs", "if (self.rows, self.data) == (reader.len(), reader.fingerprint()) {", "if self.rows == reader.len() {")],
    ),
    Bug(
        "table_saved_unit",
        "a saved table has another unit of time",
        Test(DATASETS, "datasets", "saved_tables::a_saved_description_of_another_unit_of_time_is_refused"),
        [("datasets/src/tabular/plan.rs", "match before.filter(|before| before.ticks != self.ticks) {", "match before.filter(|before| before.ticks == Some(0)) {")],
    ),
    Bug(
        "table_saved_deviation",
        "a saved deviation is negative",
        Test(DATASETS, "datasets", "saved_tables::the_saved_description_is_used_and_checked"),
        [("datasets/src/tabular/description.rs", "if std >= 0.0 && high + low == high", "if !std.is_nan() && high + low == high")],
    ),
    Bug(
        "list_unit",
        "shards join lists of times of differing units",
        Test(DATASETS, "datasets", "tables::shards_of_other_units_of_time_are_refused"),
        [("datasets/src/table/ticks.rs", "DataType::Dictionary(_, values) => values,", "DataType::Dictionary(_, values) => values,\n                DataType::FixedSizeList(..) => break,")],
    ),
    Bug(
        "standardized_digits",
        "a column far from zero loses its digits",
        Test(DATASETS, "datasets", "standardized::whole_numbers_far_from_zero_keep_their_digits"),
        [("datasets/src/tabular/double.rs", "low: (whole - high as i128) as f64", "low: 0.0")],
    ),
    Bug(
        "standardized_far",
        "a value that is too far from the mean is infinite",
        Test(DATASETS, "datasets", "standardized::a_mean_or_a_deviation_that_f64_does_not_hold_is_an_error"),
        [("datasets/src/tabular/moments.rs", "standardized.is_finite().then_some(standardized)", "Some(standardized)")],
    ),
    Bug(
        "csv_byte_order_mark",
        "a byte order mark within a table is part of the type and not of the value",
        Test(DATASETS, "datasets", "csv::a_byte_order_mark_is_skipped_at_the_start_and_refused_elsewhere"),
        [("datasets/src/csv/scan.rs", "cell.starts_with(BOM)", "cell.starts_with(\"\\n\\n\")")],
    ),
    Bug(
        "ahead_check",
        "files that are read in groups are not checked",
        Test(DATASETS, "lib", "read_ahead::tests::a_group_of_reads_is_checked_at_its_end"),
        [("datasets/src/read_ahead.rs", "if !std::mem::take(&mut self.is_unchecked) {", "if true {")],
    ),
    Bug(
        "slices_of_one_row",
        "every row of a batch is copied from the place of its first sample",
        Test(DATASETS, "datasets", "arrays::rows_of_several_shards_are_copied_in_any_order"),
        [
            (
                "datasets/src/fixed.rs",
                "map_while(|&id| self.reader.slice(id, index))",
                "map_while(|_| self.reader.slice(ids[0], index))",
            )
        ],
    ),
    Bug(
        "lacking_features",
        "a feature that a record lacks keeps what another record had",
        Test(DATASETS, "datasets", "tfrecord::features_are_fields_by_name"),
        [("datasets/src/tfrecord.rs", "lacking.try_for_each(", "lacking.by_ref().take(0).try_for_each(")],
    ),
    Bug(
        "ahead_place",
        "bytes that were read ahead are handed out from another place",
        Test(DATASETS, "lib", "read_ahead::tests::every_read_has_the_bytes_of_its_place_in_any_order"),
        [("datasets/src/read_ahead.rs", "self.is_of(file) && self.start <= offset &&", "self.is_of(file) &&")],
    ),
    Bug(
        "packed_not_compared",
        "a packed file is not compared with its checksum",
        Test(DATASETS, "datasets", "pack::a_changed_byte_and_a_cut_are_refused"),
        [("datasets/src/arrow.rs", "if file.content.len() <= VERIFIED &&", "if file.content.len() == 0 &&")],
    ),
    Bug(
        "pack_of_another_source",
        "a run of pack goes on with the shards of another source",
        Test(DATASETS, "datasets", "pack::what_cannot_be_packed_is_refused_before_anything_is_written"),
        [
            (
                "datasets/src/pack/index.rs",
                "if same != (&new.source, new.source_samples, new.shard_bytes) {",
                "if same.2 != new.shard_bytes {",
            )
        ],
    ),
    Bug(
        "remote_version_ignored",
        "an object that changes in a run goes on being read",
        Test(
            DATASETS,
            "object_store",
            "versions::an_object_that_changes_in_a_run_is_one_error_with_place_and_both_versions",
        ),
        [
            (
                "datasets/src/remote/fetch.rs",
                "Some(pinned) if !pinned.is_same(now) => {",
                "Some(pinned) if pinned.len == 0 => {",
            )
        ],
    ),
    Bug(
        "remote_second",
        "an object that was just written is opened at once, though its version stands for two contents",
        Test(
            DATASETS,
            "object_store",
            "versions::an_object_that_is_written_twice_in_a_second_is_never_read_half_and_half",
        ),
        [
            (
                "datasets/src/remote/tag.rs",
                "settled.duration_since(now).ok().filter(|wait| *wait <= 2 * SETTLED)",
                "settled.duration_since(now).ok().filter(|_| false)",
            )
        ],
    ),
    Bug(
        "remote_if_match",
        "requests do not name the version that is pinned",
        Test(DATASETS, "object_store", "versions::requests_name_the_pinned_version"),
        [("datasets/src/remote/fetch.rs", "self.pinned.and_then(Tag::strong)", "None")],
    ),
    Bug(
        "own_errors_lost",
        "a server that fails is reported as a damaged file",
        Test(DATASETS, "object_store", "faults::a_server_that_fails_is_the_error_of_every_parser"),
        [
            (
                "datasets/src/error.rs",
                "if let Some(own) = own(&error) {",
                "if let Some(own) = own(&error).filter(|_| false) {",
            )
        ],
    ),
    Bug(
        "planted_links",
        "files of the library are written through links",
        Test(DATASETS, "object_store", "cache::links_planted_in_a_folder_of_the_library_are_not_written_through"),
        [("datasets/src/own_file.rs", "if there.is_file() && is_own {", "if is_own || there.is_symlink() {")],
    ),
    Bug(
        "remote_memory_unbounded",
        "blocks of object stores are never given up",
        Test(DATASETS, "object_store", "blocks::blocks_are_fetched_ahead_within_their_bytes_and_once"),
        [
            (
                "datasets/src/remote/blocks.rs",
                "while self.bytes.saturating_add(bytes) > limit {",
                "while self.bytes.saturating_add(bytes) > limit * 100 {",
            )
        ],
    ),
    Bug(
        "remote_cache_believed",
        "blocks on disk are not compared with their checksum",
        Test(DATASETS, "object_store", "cache::the_cache_on_disk_serves_later_runs_and_sees_damage"),
        [
            (
                "datasets/src/remote/disk_cache.rs",
                "u32::from_le_bytes(*expected) == checksum(key, content);",
                "u32::from_le_bytes(*expected) != 1;",
            )
        ],
    ),
    Bug(
        "remote_cache_unbounded",
        "the cache on disk grows beyond its limit",
        Test(DATASETS, "object_store", "cache::the_cache_on_disk_keeps_its_limit_and_what_was_used_last"),
        [
            (
                "datasets/src/remote/disk_cache.rs",
                "if total.saturating_add(bytes) > self.bytes {",
                "if total == u64::MAX {",
            )
        ],
    ),
    Bug(
        "ragged_split",
        "a batch with a ragged field is split over workers",
        Test(FEEDLINE, "failing", "ragged_errors::a_sample_beyond_its_limit_is_named_with_field_and_limit"),
        [(BATCH, "if is_split && !decoder.layout.is_ragged() {", "if is_split {")],
    ),
    Bug(
        "ragged_bytes",
        "the last item of a ragged field is not copied",
        Test(FEEDLINE, "failing", "ragged_errors::nothing_of_a_bad_sample_stays_in_its_batch"),
        [(LAYOUT, "values.start + extent.items *", "values.start + extent.items.saturating_sub(1) *")],
    ),
    Bug(
        "ragged_forget",
        "what a bad sample wrote counts as written by its substitute",
        Test(FEEDLINE, "failing", "ragged_errors::a_substitute_that_writes_nothing_is_bad_too"),
        [(DECODE_ROWS, "row.poison();\n        context.sample", "context.sample")],
    ),
    Bug(
        "ragged_budget",
        "a good sample is replaced because its batch is full",
        Test(FEEDLINE, "failing", "ragged_errors::a_batch_beyond_its_limit_ends_the_run_whatever_the_policy"),
        [(DECODE_ROWS, "error.kind() == ErrorKind::Budget || ", "error.kind() == ErrorKind::Cursor || ")],
    ),
    Bug(
        "padded_forwards",
        "padded rows are moved from the first on, over rows that are still to be moved",
        Test("feedline-core", "lib", "rows::tests::padded_rows_have_one_width_and_their_lengths"),
        [(REGION, "for row in (0..rows).rev() {", "for row in 0..rows {")],
    ),
    Bug(
        "bucket_doubled",
        "samples of the short batch of a bucketed epoch come twice",
        Test(CORE, "logic", "samplers::a_permutation_yields_every_sample_once"),
        [(BUCKETED, "if at < self.short.start { 0 }", "if at <= self.short.end { 0 }")],
    ),
    Bug(
        "packed_class",
        "documents change places with longer ones",
        Test(CORE, "logic", "packed::every_item_is_in_one_window_of_an_epoch_and_no_document_is_split"),
        [
            (
                PACKED,
                "partition_point(|piece| piece.len >= len)",
                "partition_point(|piece| piece.len > len + 1)",
            )
        ],
    ),
    Bug(
        "packed_in_order",
        "a window in order begins where the one before it did not end",
        Test("feedline-core", "logic", "packed::documents_in_order_fill_every_window_but_the_last"),
        [("crates/core/src/packed/fit.rs", "if used == window || end", "if used >= window - 1 || end")],
    ),
    Bug(
        "bucket_multiple",
        "a loader whose batch size only divides that of its bucketed sampler is started",
        Test(FEEDLINE, "failing", "failures::calls_that_contradict_each_other_are_refused"),
        [
            (
                "crates/feedline/src/builder/calls.rs",
                "[batch, step].contains(&bucketed)",
                "bucketed.is_multiple_of(batch)",
            )
        ],
    ),
    Bug(
        "lengths_of_other_data",
        "lengths that were kept for other data are taken for these",
        Test(DATASETS, "datasets", "ragged::limits_are_found_by_one_pass_that_is_kept_in_a_file"),
        [("datasets/src/lengths.rs", "head != self::head(key, len, fields) || ", "")],
    ),
    Bug(
        "lengths_checksum",
        "a damaged file of lengths is read",
        Test(DATASETS, "datasets", "ragged::limits_are_found_by_one_pass_that_is_kept_in_a_file"),
        [("datasets/src/lengths.rs", " || checksum != sum.to_le_bytes()", "")],
    ),
    Bug(
        "tokenizer_fingerprint",
        "another tokenizer goes on with the cursor of the first",
        Test(DATASETS, "datasets", "tokenized::a_fingerprint_covers_the_tokenizer_and_its_options"),
        [("datasets/src/tokenized.rs", ".number(self.content);", ".number(0);")],
    ),
    Bug(
        "regex_gives_up",
        "a text whose regular expression gives up is one piece from there on",
        Test(
            DATASETS,
            "datasets",
            "tokenized_steps::a_text_on_which_a_regular_expression_gives_up_is_a_bad_sample",
        ),
        [
            (
                "datasets/src/tokenized/checked.rs",
                "in self.0.find_iter(inside) {",
                "in self.0.find_iter(inside).take_while(|found| found.is_ok()) {",
            )
        ],
    ),
    Bug(
        "normalizer_gives_up",
        "the error of a normalizer is dropped",
        Test(
            DATASETS,
            "datasets",
            "tokenized_steps::a_text_on_which_a_regular_expression_gives_up_is_a_bad_sample",
        ),
        [
            (
                "datasets/src/tokenized/checked.rs",
                "match DROPPED.take() {",
                "match DROPPED.take().filter(|_| false) {",
            )
        ],
    ),
    Bug(
        "special_tokens_have_room",
        "texts are cut to fewer tokens than the special ones",
        Test(DATASETS, "datasets", "tokenized::fewer_tokens_than_the_special_ones_are_refused"),
        [("datasets/src/tokenized.rs", "if special <= max {", "if special <= max + 1 {")],
    ),
    Bug(
        "text_of_control_signs",
        "a text with a separator of files is of an unknown kind",
        Test(DATASETS, "datasets", "samples::text_may_begin_with_any_sign_that_texts_have"),
        [("datasets/src/open/kind.rs", "| '\\x1B'..='\\x1F' |", "|")],
    ),
    Bug(
        "headers_are_tokens",
        "the header of a file is read as tokens",
        Test(DATASETS, "datasets", "tokens::files_with_a_known_header_are_no_tokens_and_no_records"),
        [("datasets/src/tokens.rs", "check_tokens(&content)?;", "")],
    ),
    Bug(
        "headers_are_records",
        "the header of a file is read as records",
        Test(DATASETS, "datasets", "tokens::files_with_a_known_header_are_no_tokens_and_no_records"),
        [("datasets/src/records.rs", "check_records(&content)?;", "")],
    ),
    Bug(
        "best_fit_newest",
        "of windows with equal room the last one is filled, unlike TRL's",
        Test(CORE, "logic", "packed::of_windows_with_equal_room_the_one_that_has_had_it_longest_is_filled"),
        [("crates/core/src/packed/fit.rs", "at.pop_front()?", "at.pop_back()?")],
    ),
    Bug(
        "first_label_learnt",
        "the first item of a document is learnt from the document before it",
        Test(CORE, "logic", "packed::several_fields_are_packed_together_each_with_its_own_padding"),
        [("crates/core/src/items.rs", "self.is_label && !to.is_empty()", "self.is_label && to.is_empty()")],
    ),
    Bug(
        "fields_of_other_length",
        "fields with another number of items are packed",
        Test(CORE, "logic", "packed::fields_that_do_not_go_together_are_refused_by_name"),
        [("crates/core/src/items.rs", "self.is_single || found == items", "self.is_single || found >= items")],
    ),
    Bug(
        "cut_uncounted",
        "items of documents that are cut are not counted",
        Test(CORE, "logic", "packed::the_fate_of_every_document_is_counted"),
        [
            (
                "crates/core/src/packed/builder.rs",
                "fate.left_out += u64::from(length - kept(length));",
                "fate.left_out += u64::from(kept(length) == 0);",
            )
        ],
    ),
    Bug(
        "group_shuffle",
        "documents change places with those of other groups",
        Test(CORE, "logic", "packed::documents_change_places_within_their_group"),
        [(PACKED, "(group as u64) << 32 | u64::from(len)", "u64::from(len)"), (PACKED, "self.groups[group + 1]", "self.pieces.len()")],
    ),
    Bug(
        "index_of_ids",
        "a document reaches beyond its .bin",
        Test(DATASETS, "datasets", "token_files::a_damaged_pair_is_an_error_that_names_file_and_place"),
        [("datasets/src/token_files/index.rs", "(end <= ids).then_some", "(end <= ids + 4000).then_some")],
    ),
    Bug(
        "other_type_of_ids",
        "a .bin is read as another type than the .idx beside it says",
        Test(DATASETS, "datasets", "token_files::windows_take_the_type_that_the_file_states"),
        [("datasets/src/tokens.rs", "filter(|stated| *stated != dtype) {\n        let how", "filter(|_| false) {\n        let how")],
    ),
    Bug(
        "mark_by_template",
        "a template without marks learns nothing, in silence",
        Test(DATASETS, "datasets", "chats::labels_are_the_ids_of_what_the_assistant_writes_and_minus_100_elsewhere"),
        [("datasets/src/chats.rs", "&& !template.has_generation()", "&& template.has_generation()")],
    ),
    Bug(
        "prompt_of_answer",
        "an answer whose prompt is written differently has labels at other places",
        Test(DATASETS, "datasets", "chats::completions_and_preferences_learn_the_answer"),
        [("datasets/src/chats.rs", "if same < before.len() {", "if same > before.len() {")],
    ),
    Bug(
        "jinja_strip",
        "strip leaves the separators that Python's takes",
        Test(DATASETS, "datasets", "chats::expressions_give_what_python_gives_or_an_error_that_names_them"),
        [("datasets/src/template/value.rs", " || ('\\x1C'..='\\x1F').contains(&char)", "")],
    ),
    Bug(
        "longest_sequence",
        "max_seqlen is that of the last document",
        Test(CORE, "lib", "rows::tests::cumulative_values_are_the_sums_of_all_rows"),
        [("crates/core/src/region.rs", "longest = longest.max(read(value, 0) as usize);", "longest = read(value, 0) as usize;")],
    ),
    Bug(
        "short_documents",
        "documents shorter than a window are left out unasked",
        Test(DATASETS, "datasets", "tokens::short_documents_are_refused_or_left_out_and_counted"),
        [
            (
                "datasets/src/tokens.rs",
                "left_out.documents > 0 && !options.skip_short",
                "left_out.documents == u64::MAX",
            )
        ],
    ),
    Bug(
        "tfrecord_lists",
        "of two lists of a feature the last one counts",
        Test(DATASETS, "datasets", "tfrecord::what_occurs_twice_is_merged_as_protocol_buffers_do"),
        [
            (
                "datasets/src/tfrecord/example.rs",
                "if of == kind => List::Several(kind",
                "if of == kind && number > 99 => List::Several(kind",
            )
        ],
    ),
    Bug(
        "tfrecord_learns_twice",
        "a feature that a record has twice counts as two records",
        Test(
            DATASETS,
            "datasets",
            "tfrecord::a_feature_that_a_record_has_twice_is_one_feature_of_one_record",
        ),
        [
            (
                "datasets/src/tfrecord.rs",
                "(seen.facts, *has_repeated) = (before, true)",
                "(_, *has_repeated) = (before, true)",
            )
        ],
    ),
    Bug(
        "tfrecord_first_of_two",
        "of two features of one name each is read",
        Test(
            DATASETS,
            "datasets",
            "tfrecord::a_feature_that_a_record_has_twice_is_one_feature_of_one_record",
        ),
        [("datasets/src/tfrecord.rs", ".is_none_or(|last| last[field] == number)", ".is_none_or(|_| true)")],
    ),
    Bug(
        "sequence_example",
        "a sequence example is read as an example without its lists",
        Test(DATASETS, "datasets", "tfrecord::other_records_are_bytes"),
        [("datasets/src/tfrecord/example.rs", "!matches!(field, (LISTS, Wire::Bytes(_)))", "field.0 > 0")],
    ),
    Bug(
        "rows_of_the_list",
        "the list of rows of an old save_to_disk is passed over",
        Test(DATASETS, "datasets", "saved::the_rows_that_an_old_save_to_disk_lists_are_read_in_their_order"),
        [("datasets/src/open/hub.rs", "Ok(Box::new(Rows::new(rows, list)))", "Ok(rows)")],
    ),
    Bug(
        "newer_sparse_files",
        "the list of a sparse file's parts is read as its content",
        Test(DATASETS, "datasets", "links::sparse_members_are_refused_in_every_form"),
        [
            (
                "datasets/src/tar.rs",
                "kind.is_gnu_sparse() || is_sparse(&mut entry).map_err(damaged)?",
                "kind.is_gnu_sparse()",
            )
        ],
    ),
    Bug(
        "npy_shape_of_a_number",
        "a number in brackets is a shape",
        Test(DATASETS, "datasets", "arrays::what_is_no_array_of_numbers_is_refused_with_the_byte"),
        [
            (
                "datasets/src/npy/literal.rs",
                "if end == \")\" && items.is_empty() {",
                "if end == \"}\" && items.is_empty() {",
            )
        ],
    ),
    Bug(
        "lengths_beside_the_data",
        "lengths are written beside the data",
        Test(DATASETS, "datasets", "ragged::lengths_are_kept_in_the_users_cache_and_nothing_beside_the_data"),
        [
            (
                "datasets/src/lengths.rs",
                "first.and_then(|first| in_the_users_cache(first, key))",
                "first.and_then(beside)",
            )
        ],
    ),
    Bug(
        "classes_in_every_shard",
        "a long list of classes is in every shard",
        Test(DATASETS, "datasets", "pack::a_long_list_of_classes_is_written_once"),
        [("datasets/src/pack/classes.rs", "if text.len() <= MAX_IN_SHARD {", "if text.len() < usize::MAX {")],
    ),
    Bug(
        "classes_twice",
        "a file has the list of its classes twice",
        Test(DATASETS, "datasets", "pack::a_long_list_of_classes_is_written_once"),
        [
            (
                "datasets/src/pack/fixed.rs",
                "footer::start(&columns.schema)",
                "footer::start(&columns.described)",
            )
        ],
    ),
    Bug(
        "classes_of_another_pack",
        "a changed list of classes is read",
        Test(DATASETS, "datasets", "pack::a_long_list_of_classes_is_written_once"),
        [("datasets/src/pack/classes.rs", "crc32c::crc32c(&text) != self.crc32c", "text.is_empty()")],
    ),
    Bug(
        "whole_budget",
        "an object is read whole, however large",
        Test(
            DATASETS,
            "object_store",
            "plain_servers::a_server_without_ranges_is_read_whole_within_the_budget",
        ),
        [
            (
                "datasets/src/remote/whole.rs",
                "if is_stated && tag.len > max {",
                "if is_stated && tag.len == u64::MAX {",
            )
        ],
    ),
    Bug(
        "body_without_an_end",
        "a body whose end is that of the connection is taken for whole",
        Test(
            DATASETS,
            "object_store",
            "plain_servers::a_server_without_ranges_is_read_whole_within_the_budget",
        ),
        [("datasets/src/remote/http.rs", ".is_some() || !is_framed {", ".is_some() || is_framed && false {")],
    ),
    Bug(
        "web_page",
        "a web page is read as the lines of a file",
        Test(DATASETS, "object_store", "plain_servers::a_page_in_place_of_a_file_is_named_as_such"),
        [("datasets/src/remote/whole.rs", "if is_page && !name", "if is_page && name.is_empty() && !name")],
    ),
    Bug(
        "compressed_answer",
        "a compressed answer is read as the file",
        Test(DATASETS, "object_store", "plain_servers::compressed_answers_are_inflated_or_refused"),
        [
            ("datasets/src/remote/fetch.rs", "check_encoding(&answer.attributes)?;", ""),
            ("datasets/src/remote/whole.rs", "    check_encoding(&answer.attributes)?;\n", ""),
        ],
    ),
    Bug(
        "saved_elsewhere",
        "a folder of save_to_disk opens files of other folders",
        Test(DATASETS, "datasets", "tables::a_folder_that_save_to_disk_wrote_is_one_set"),
        [
            (
                "datasets/src/open/hub.rs",
                "is_plain.then(|| name.to_owned())",
                "(is_plain || !name.is_empty()).then(|| name.to_owned())",
            )
        ],
    ),
    Bug(
        "split_replaced",
        "a set that is missing is replaced by another one",
        Test(
            DATASETS,
            "lib",
            "open::split::tests::the_shards_of_one_set_are_chosen_and_no_other_set_takes_its_place",
        ),
        [
            (
                "datasets/src/open/split.rs",
                "Some(split) if chosen.is_empty() =>",
                "Some(split) if names.is_empty() =>",
            )
        ],
    ),
    Bug(
        "classes_of_shards",
        "classes that are not the stated ones are taken",
        Test(
            DATASETS,
            "datasets",
            "samples::a_class_that_is_missing_in_the_validation_folder_does_not_shift_labels",
        ),
        [("datasets/src/open/mod.rs", "stated.get(at) != own.get(at)", "stated.len() > usize::MAX - at")],
    ),
    Bug(
        "cache_checksum",
        "a row of a cache file is read without a look at its checksum",
        Test(CORE, "logic", "compose::cached_file::a_damaged_row_is_read_again_and_repaired"),
        [("crates/core/src/compose/cache/file.rs", " && checksum == self.checksum(id, bytes)", "")],
    ),
    Bug(
        "cache_overwrites",
        "a file that is not a cache is overwritten",
        Test(CORE, "logic", "compose::cached_file::what_is_not_a_cache_is_left_alone"),
        [
            (
                "crates/core/src/compose/cache/disk.rs",
                "if !found.starts_with(",
                "if false && !found.starts_with(",
            )
        ],
    ),
    Bug(
        "inner_ids",
        "random numbers of a composed set are keyed by the ids of its parts",
        Test(CORE, "logic", "compose::concat::random_numbers_follow_the_loader_s_id_through_nested_parts"),
        [
            (
                "crates/core/src/context.rs",
                "Within::Delegate(first) => self.scratch.places.get(first + index).copied(),",
                "Within::Delegate(_) => None,",
            )
        ],
    ),
    Bug(
        "empty_last_batch",
        "a rank gets an empty batch where fewer samples than ranks are left",
        Test(
            CORE, "logic",
            "batch_sampler::no_rank_gets_an_empty_batch_and_every_sample_comes_once_in_equal_numbers_of_steps",
        ),
        [
            (
                "crates/core/src/batch_sampler.rs",
                "LastBatch::Keep if samples < self.size() => {",
                "LastBatch::Keep if samples < 0 => {",
            )
        ],
    ),
    Bug(
        "nothing_lent",
        "the last step gets no samples of the one before, but padding",
        Test(
            CORE, "logic",
            "batch_sampler::no_rank_gets_an_empty_batch_and_every_sample_comes_once_in_equal_numbers_of_steps",
        ),
        [
            (
                "crates/core/src/batch_sampler.rs",
                "(1..self.size()).contains(&rest) { self.size() - rest }",
                "(1..self.size()).contains(&rest) { 0 }",
            )
        ],
    ),
    Bug(
        "cursor_in_a_lending_step",
        "a cursor behind a step that lends samples to the last one is taken for one inside a step",
        Test(
            CORE, "logic",
            "cursor::a_run_whose_last_step_borrows_samples_resumes_after_every_step_on_any_world",
        ),
        [
            (
                "crates/core/src/cursor/mod.rs",
                "(self.start, self.skipped) = (after, 0);",
                "let _ = moved;",
            )
        ],
    ),
    Bug(
        "shard_of_padding",
        "a rank without a shard reads one of another rank",
        Test(FEEDLINE, "batches", "iterable::ranks_share_the_shards_and_read_every_record_once"),
        [("crates/feedline/src/decode/source.rs", "self.ids[..valid].first()", "self.ids[..valid.max(1)].first()")],
    ),
    Bug(
        "masks_apart",
        "an image and a mask are zipped that are cropped each in its own way",
        Test(
            CORE, "logic",
            "compose::zip::two_parts_that_crop_at_random_are_refused_by_their_fields_through_any_composition",
        ),
        [
            (
                "crates/core/src/compose/zip.rs",
                "filter(|(_, part, _)| StableDataset::has_random_geometry(part))",
                "filter(|_| false)",
            )
        ],
    ),
    Bug(
        "draws_of_samples",
        "a sample that comes again in an epoch gets the same random numbers",
        Test(FEEDLINE, "batches", "draws::a_sample_that_is_drawn_again_gets_other_random_numbers"),
        [(BATCH, ".with_scratch(worker.take_scratch()).with_draws(draws);", ".with_scratch(worker.take_scratch());")],
    ),
    Bug(
        "draws_of_the_rank",
        "draws are counted by each rank",
        Test(FEEDLINE, "batches", "draws::a_draw_has_the_same_numbers_for_any_ranks_batches_workers_and_resumes"),
        [
            (
                "crates/core/src/batch_sampler.rs",
                "let (mut at, has_skips) = (part.first % live,",
                "let (mut at, has_skips) = (step * part.rows,",
            )
        ],
    ),
    Bug(
        "draws_without_skips",
        "the draws of a batch across skipped steps do not skip them",
        Test(FEEDLINE, "batches", "draws::skipped_steps_leave_the_numbers_of_the_others"),
        [("crates/core/src/batch_sampler.rs", "if has_skips { self.nth_live(epoch, at) } else { at }", "at")],
    ),
    Bug(
        "draws_of_a_filler",
        "a filler gets the samples of a batch in place of their draws",
        Test(FEEDLINE, "batches", "draws::a_filler_gets_the_draws_of_its_rows"),
        [(FILL, "draws: host_info.draws(),", "draws: &info.ids,")],
    ),
    Bug(
        "parts_share_numbers",
        "samples of another set that are read for one sample get the same random numbers",
        Test(FEEDLINE, "batches", "draws::a_sample_that_is_drawn_again_gets_other_random_numbers"),
        [("crates/core/src/context.rs", "if is_own { *part } else { key(&[*part, *begun]) }", "*part")],
    ),
    Bug(
        "parts_take_other_draws",
        "a sample of another set that is read for one sample gets the draw of another row",
        Test(FEEDLINE, "batches", "draws::a_sample_that_is_drawn_again_gets_other_random_numbers"),
        [
            (
                "crates/core/src/context.rs",
                "std::mem::replace(&mut self.within, Within::Sample { part, begun: 0 });",
                "(self.within, part).0;",
            )
        ],
    ),
    Bug(
        "documents_share_numbers",
        "the documents of a packed window get the same random numbers",
        Test(CORE, "logic", "packed::each_document_of_a_window_has_random_numbers_of_its_own"),
        [("crates/core/src/packed.rs", ".with_stream(number, ", ".with_stream(number * 0, ")],
    ),
    Bug(
        "check_by_ids",
        "the check of a data set does not see that read_many mixes up its rows",
        Test(CORE, "logic", "check::a_read_many_that_differs_from_read_is_found"),
        [("crates/core/src/check/mod.rs", "map(|&id| splitmix64(id)).collect();", "copied().collect();")],
    ),
    Bug(
        "cursor_of_samples",
        "a cursor whose random numbers belong to samples continues with those of draws",
        Test(CORE, "logic", "cursor::a_cursor_whose_random_numbers_belong_to_samples_is_refused_by_its_version"),
        [("crates/core/src/cursor/mod.rs", "if self.version != VERSION {", "if false {")],
    ),
    Bug(
        "record_of_samples",
        "a record whose random numbers belong to samples is continued with those of draws",
        Test(
            RECORD,
            "record",
            "written::the_record_of_a_run_with_other_random_numbers_is_not_continued_and_not_taken_for_other_data",
        ),
        [
            (
                "crates/feedline/src/record/header.rs",
                'if before["draws_version"] != now["draws_version"] {',
                "if false {",
            )
        ],
    ),
    Bug(
        "unmapped_rows",
        "rows before a failure are left unmapped",
        Test(CORE, "logic", "compose::map::samples_before_a_failure_are_mapped"),
        [
            (
                "crates/core/src/compose/map.rs",
                "group[..good].iter()",
                "group[..good * usize::from(error.is_none())].iter()",
            )
        ],
    ),
    Bug(
        "scratch_after_panic",
        "a read finds the scratch memory that a panic has left",
        Test(FEEDLINE, "batches", "scratch::a_failed_read_keeps_the_scratch_and_a_panic_loses_it"),
        [(BATCH, "if !read.as_ref().is_err_and(|error| error.kind() == ErrorKind::Panic) {", "if true {")],
    ),
    Bug(
        "scratch_drop_unguarded",
        "a value of the scratch memory whose drop panics ends the thread, or the process",
        Test(CORE, "lib", "scratch::tests::a_value_whose_drop_panics_ends_neither_the_thread_nor_the_process"),
        [
            (
                "crates/core/src/scratch.rs",
                'let _ = catch_panic("the scratch memory panicked when it was dropped", || drop(value));',
                "drop(value);",
            )
        ],
    ),
    Bug(
        "unused_fill_unguarded",
        "the drop of a fill that is not used ends the thread of the filler",
        Test(FEEDLINE, "failing", "exchanged::a_filler_that_exchanges_rows_or_panics_in_drops_loses_no_batch"),
        [(FILL, 'let _ = catch_panic("the filler panicked", || drop(fill));', "drop(fill);")],
    ),
    Bug(
        "filler_of_any_size",
        "a filler may ask for any number of threads",
        Test(FEEDLINE, "failing", "exchanged::a_filler_of_too_many_threads_is_refused"),
        [("crates/feedline/src/builder/plan.rs", "if lanes > MAX_WORKERS {", "if false {")],
    ),
    Bug(
        "threads_must_start",
        "work on several threads panics where the system refuses one",
        Test(CORE, "lib", "on_threads::tests::this_thread_does_all_the_work_if_the_system_refuses_others"),
        [("crates/core/src/on_threads.rs", "spawn_scoped(scope, &work).ok();", "spawn_scoped(scope, &work).map(Some).expect(\"a thread\");")],
    ),
    Bug(
        "rows_exchanged",
        "a read in bulk may put other rows in the place of those that it is given",
        Test(CORE, "logic", "compose::exchanged::rows_that_were_exchanged_pass_no_composition"),
        [("crates/core/src/rows/mod.rs", "if given.place() != place {", "if false {")],
    ),
    Bug(
        "row_exchanged",
        "a read may put another row in the place of the one that it is given",
        Test(CORE, "logic", "compose::exchanged::rows_that_were_exchanged_pass_no_composition"),
        [
            (
                "crates/core/src/rows/row.rs",
                "if (std::ptr::from_ref(&*given.rows), given.index) == place {",
                "if true {",
            )
        ],
    ),
    Bug(
        "hook_exchanges_rows",
        "a hook may put other rows in the place of those of the batch",
        Test(FEEDLINE, "failing", "exchanged::exchanged_rows_are_refused_by_a_resident_loader_and_by_hooks"),
        [("crates/feedline/src/decode/map_batch.rs", "if batch.rows.place() != place {", "if false {")],
    ),
    Bug(
        "limits_of_all_parts",
        "a part of a composed set may write as much as the part with the largest limit",
        Test(CORE, "logic", "compose::widened::a_part_keeps_its_own_limit"),
        [
            (
                "crates/core/src/compose/mod.rs",
                "rows.part_of_fields(0..set.spec().fields().len(), set.spec())",
                "rows.part_of_fields(0..set.spec().fields().len(), rows.spec())",
            )
        ],
    ),
    Bug(
        "record_damage_is_a_cut",
        "a damaged record counts as one that a kill has cut there",
        Test(RECORD, "record", "damaged::every_flipped_bit_is_damage_with_its_step_and_the_file_stays"),
        [("crates/feedline/src/record/read.rs", "if !is_cut(&bytes[at..]) {", "if false {")],
    ),
    Bug(
        "record_without_a_frame",
        "the samples of a step are not held against its order hash",
        Test(RECORD, "record", "damaged::a_frame_that_is_cut_out_as_a_whole_is_noticed"),
        [("crates/record/src/run.rs", "if proof.order() == place.step().order {", "if true {")],
    ),
    Bug(
        "record_of_two_runs",
        "the files of ranks of different runs are read as one run",
        Test(RECORD, "record", "damaged::the_files_of_ranks_are_of_one_run"),
        [("crates/record/src/run.rs", "        run.check_ranks()?;\n", "")],
    ),
    Bug(
        "record_beside_another_run",
        "a rank writes beside the files of another run",
        Test(RECORD, "record", "damaged::the_files_of_ranks_are_of_one_run"),
        [
            (
                "crates/feedline/src/record/writer.rs",
                "same_run(of_first, &header).map_err(|error| error.at_path(path))?;",
                "let _ = of_first;",
            )
        ],
    ),
    Bug(
        "saved_over_a_field",
        "a tensor of a saved batch takes the name of a field",
        Test(RECORD, "record", "damaged::fields_with_the_names_of_the_saved_tensors_are_saved_beside_them"),
        [("crates/record/src/save.rs", "while !taken.insert(name.clone()) {", "while false {")],
    ),
    Bug(
        "map_batch_step",
        "map_batch draws by the step, which counts from where a run resumed",
        Test(FEEDLINE, "batches", "map_batch::a_resumed_run_and_every_rank_draw_the_same_numbers"),
        [
            (
                "crates/feedline/src/decode/map_batch.rs",
                "batch_sampler.position(info.epoch, info.start, info.step, 0).unwrap_or(0)",
                "info.step",
            )
        ],
    ),
    Bug(
        "resident_varies",
        "a set whose samples differ between epochs is kept on the device",
        Test(DEVICE, "device", "contract::resident::a_set_that_cannot_be_kept_is_refused_and_leaves_nothing_behind"),
        [("crates/device/src/zero_copy/resident.rs", "if context.varies() {", "if false {")],
    ),
    Bug(
        "change_time",
        "a file that is overwritten with its time put back is read on",
        Test(DATASETS, "datasets", "changed_files::a_set_on_disk_that_is_overwritten_with_its_time_put_back_is_an_error",
        ),
        [("datasets/src/system/unix.rs", "self.changed != now.changed", "self.id != now.id")],
    ),
    Bug(
        "zip_replaced",
        "a compressed shard that was replaced is read on",
        Test(DATASETS, "datasets", "mds::a_compressed_shard_that_is_replaced_is_an_error"),
        [("datasets/src/mds/zipped.rs", "                version.check(&file.version())?;\n", "")],
    ),
    Bug(
        "folder_pair",
        "a class that the validation folder lacks shifts its labels",
        Test(DATASETS, "datasets", "samples::folders_of_a_pair_have_the_same_labels_or_are_refused"),
        [
            (
                "datasets/src/folder.rs",
                "if is_stated { Ok(()) } else { check_pair(root, &names) }.map(|()| classes)",
                "Ok((is_stated, classes).1)",
            )
        ],
    ),
    Bug(
        "missing_members",
        "a member that a sample lacks is an empty one",
        Test(DATASETS, "datasets", "samples::members_with_one_key_are_a_sample"),
        [("datasets/src/tar.rs", "if !options.empty_members {", "if false {")],
    ),
    Bug(
        "folder_fingerprint",
        "the fingerprint of a folder leaves out its files",
        Test(FEEDLINE, "zoo", "a_run_over_files_that_have_changed_does_not_resume"),
        [
            (
                "datasets/src/folder.rs",
                "file.fingerprint(state, number % every == 0)",
                "{ let _ = (number, every, file); state }",
            )
        ],
    ),
    Bug(
        "rank_missing",
        "a rank that does not come to an exchange is not looked for",
        Test(DIST, "dist", "group::a_rank_that_does_not_come_to_an_exchange_is_named"),
        [(f"{GROUP}/heartbeat.rs", "open.since.elapsed() > limit)", "open.since.elapsed() > 100 * limit)")],
    ),
    Bug(
        "rank_killed",
        "a rank whose connection closes is not missed",
        Test(DIST, "dist", "group::a_process_that_is_killed_is_noticed_although_nobody_waits_for_it"),
        [(f"{GROUP}/state.rs", "        if !was_expected {", "        if !was_expected && rank > 99 {")],
    ),
    Bug(
        "rank_silent",
        "a rank that says nothing is not missed",
        Test(DIST, "dist", "group::a_process_that_says_nothing_is_noticed_although_nobody_waits_for_it"),
        [(f"{GROUP}/heartbeat.rs", "peer.last_message.elapsed() > limit", "peer.last_message.elapsed() > 100 * limit")],
    ),
    Bug(
        "rank_behind",
        "a rank that stays at one step is not looked for",
        Test(DIST, "dist", "group::a_rank_that_stays_behind_is_named"),
        [(f"{GROUP}/heartbeat.rs", "peer.progress < furthest && peer", "peer.progress > furthest && peer")],
    ),
    Bug(
        "rank_failure_untold",
        "the other ranks are not told of a failure",
        Test(DIST, "dist", "group::a_failure_reaches_every_rank_with_its_cause"),
        [
            (
                f"{GROUP}/state.rs",
                "self.send_all(&Message::Failed(why.to_owned()).to_bytes(), from);",
                "_ = (why, from);",
            )
        ],
    ),
    Bug(
        "store_late_answer",
        "a store goes on after a question without an answer",
        Test(DIST, "dist", "store::a_late_answer_is_not_taken_for_that_of_the_next_question"),
        [(f"{STORE}/client.rs", "            *connection = Err(error.clone());\n", "")],
    ),
    Bug(
        "store_hello",
        "connections that send no hello stay open",
        Test(DIST, "dist", "store::silent_connections_take_few_threads_and_are_closed"),
        [(f"{STORE}/server.rs", "HELLO_LIMIT: Duration = Duration::from_secs(2)", "HELLO_LIMIT: Duration = Duration::MAX")],
    ),
    Bug(
        "store_pending",
        "the number of connections without a hello has no bound",
        Test(DIST, "dist", "store::silent_connections_take_few_threads_and_are_closed"),
        [(f"{STORE}/server.rs", "clients.pending >= MAX_PENDING", "clients.pending > usize::MAX - 1")],
    ),
    Bug(
        "store_full",
        "a store takes entries without a bound",
        Test(DIST, "dist", "store::a_full_store_takes_nothing_more_and_keeps_what_it_has"),
        [(f"{STORE}/entries.rs", "if bytes > MAX_BYTES {", "if bytes > 100 * MAX_BYTES {")],
    ),
    Bug(
        "store_spin",
        "a store without file descriptors does not pause",
        Test(DIST, "dist", "store::without_file_descriptors_the_store_waits"),
        [(f"{STORE}/server.rs", "            shared.pause();\n", "")],
    ),
    Bug(
        "store_silent",
        "a wait for an answer has no limit",
        Test(DIST, "dist", "store::a_store_that_does_not_answer_is_given_up_after_the_limit"),
        [
            (
                "crates/dist/src/timed.rs",
                "        self.connection.set_read_timeout(self.left()?)?;\n",
                "        self.left()?;\n",
            )
        ],
    ),
    Bug(
        "rank_stranger",
        "a silent connection holds up the ranks behind it",
        Test(DIST, "dist", "group::connections_that_say_nothing_do_not_hold_up_the_ranks"),
        [
            (
                f"{GROUP}/rendezvous.rs",
                "                connection.set_nonblocking(true)?;\n",
                "                connection.set_read_timeout(Some(HELLO_LIMIT))?;\n",
            )
        ],
    ),
    Bug(
        "rank_other_set",
        "a collective takes the values of another set of collectives",
        Test(DIST, "dist", "collectives::two_sets_of_collectives_do_not_take_each_others_values"),
        [
            (
                f"{HOSTS}/host.rs",
                "let [set, kind, bytes] = words.map(u64::from_le_bytes);",
                "let [_, kind, bytes] = words.map(u64::from_le_bytes);\n        let set = own.set;",
            )
        ],
    ),
    Bug(
        "rank_sum_order",
        "the ranks' values are added in another order",
        Test(DIST, "dist", "collectives::a_sum_is_that_of_the_ranks_in_their_order"),
        [
            (
                f"{HOSTS}/host.rs",
                "    for peer in Peer::all(&hosts.shared) {\n        peer.expect_head(call)?;\n        for sums",
                "    for peer in Peer::all(&hosts.shared).collect::<Vec<_>>().into_iter().rev() {\n"
                "        peer.expect_head(call)?;\n        for sums",
            )
        ],
    ),
    Bug(
        "collective_no_join",
        "the compute stream does not wait for the collectives",
        Test(DIST, "dist", "collectives::the_compute_stream_waits_for_collectives_that_overlap_with_its_work"),
        [
            (
                f"{HOSTS}/mod.rs",
                "            inner.order(&inner.joined, StreamId::from(&inner.stream), submission.stream)\n",
                "            _ = submission;\n            Ok(())\n",
            )
        ],
    ),
    Bug(
        "collective_no_fork",
        "a collective does not wait for the work before it",
        Test(DIST, "dist", "collectives::the_compute_stream_waits_for_collectives_that_overlap_with_its_work"),
        [
            (
                f"{HOSTS}/mod.rs",
                "            inner.order(&inner.forked, submission.stream, StreamId::from(&inner.stream))?;\n",
                "            _ = submission;\n",
            )
        ],
    ),
    Bug(
        "rank_contradiction",
        "two launchers may contradict each other",
        Test(DIST, "lib", "launch::tests::contradictions_name_both_variables_and_values"),
        [
            (
                "crates/dist/src/launch/mod.rs",
                "            if !same {",
                "            if !same && name.is_empty() {",
            )
        ],
    ),
]


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text)


def copy_tracked():
    """Updates the copy to the tracked files; unchanged files keep their modification times, and so their
    builds."""
    listed = subprocess.run(["git", "ls-files", "-z"], stdout=subprocess.PIPE, check=True).stdout
    names = [name for name in listed.decode().split("\0") if name and pathlib.Path(name).is_file()]
    for name in names:
        to, text = COPY / name, pathlib.Path(name).read_bytes()
        if not to.is_file() or to.read_bytes() != text:
            write(to, text)
    for path in COPY.rglob("*.rs"):
        if path.relative_to(COPY).as_posix() not in names and "target" not in path.relative_to(COPY).parts:
            path.unlink()


@functools.cache
def profile():
    """Options of cargo for quick builds of our own packages. A row changes a few lines, so incremental builds of
    small units compile little; with the workspace's profile (few units, optimised) a row of `feedline` costs 30
    CPU seconds, with this one 3. Dependencies are built as for `cargo test`."""
    options = []
    for name in packages("Cargo.toml"):
        settings = {"codegen-units": "256", "debug": "false"}
        if name not in OPTIMISED:
            settings["opt-level"] = "0"
        for setting, value in settings.items():
            options += ["--config", f"profile.dev.package.{name}.{setting}={value}"]
    return options


def cargo(package, targets):
    """The command that builds the tests `targets` of `package`."""
    command = ["cargo", *profile(), "test", "--locked", "--no-run", "--message-format=json"]
    if package not in ("feedline-cuda", PICTURES):  # need a version of CUDA
        command += ["--no-default-features"]
    if package == PICTURES:
        command += ["--features", "nvjpeg"]
    command += ["--package", package]
    if package == DATASETS:
        command += ["--all-features"]  # a format each
    for target in targets:
        command += ["--lib"] if target == "lib" else ["--test", target]
    return command


def build(package, targets):
    """Builds tests; returns the program of each target, and the errors of the compiler, if any."""
    environment = {**os.environ, "CARGO_TARGET_DIR": str(BUILD.resolve()), "CARGO_INCREMENTAL": "1"}
    done = subprocess.run(
        cargo(package, targets),
        cwd=COPY,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    programs, errors = {}, []
    for line in done.stdout.splitlines():
        message = json.loads(line) if line.startswith("{") else {}
        if message.get("reason") == "compiler-message" and message["message"]["level"] == "error":
            errors.append(message["message"]["rendered"])
        if message.get("executable") and message["profile"]["test"]:
            kind, target = message["target"]["kind"][0], message["target"]
            # Cargo runs a test in the directory of its manifest.
            where = pathlib.Path(message["manifest_path"]).parent
            programs["lib" if kind == "lib" else target["name"]] = (message["executable"], where)
    if done.returncode != 0:
        return {}, "\n".join(errors) or done.stderr
    return programs, None


def limit(seconds):
    """The seconds that a test may run with a bug, if it takes `seconds` without one. A test that waits for what
    a bug prevents would otherwise wait for its watchdog, two minutes."""
    return min(LIMIT, 20 + 20 * seconds)


def run(program, test, limit):
    """Runs one test for at most `limit` seconds; returns "ok", "not run", "failed", "hung: ..." or another
    outcome, and the output."""
    executable, where = program
    command = [executable, "--exact", test.name, "--test-threads", "1", "--include-ignored"]
    environment = {**os.environ, "CARGO_MANIFEST_DIR": str(where), "RUST_BACKTRACE": "0"}
    try:
        done = subprocess.run(
            command,
            cwd=where,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=limit,
            errors="replace",
            text=True,
        )
    except subprocess.TimeoutExpired as late:
        return f"hung: stopped at the limit of {limit:.0f} s", str(late.stdout)
    output = done.stdout
    if "running 1 test" not in output:
        return "no such test", output
    if done.returncode == 0 and re.search(r"^test result: ok\. 1 passed", output, re.M):
        # Tests of times cannot run beside other work, and say so.
        return ("not run" if "not run: " in output else "ok"), output
    # Look in the summary's list of failures, because a test's output can separate its name from its result.
    if (
        re.search(r"^test result: FAILED\. 0 passed; 1 failed", output, re.M)
        and f"\n    {test.name}\n" in output
    ):
        return "failed", output
    if done.returncode < 0 and 'watchdog: "' in output:
        return "hung: named by its watchdog", output
    return f"ended with {done.returncode}", output


CAUGHT = ("failed", "hung: ")


def edited(bug, root=COPY):
    """The text of the bug's files before and after; raises LookupError if it cannot be planted."""
    before, after = {}, {}
    for name, old, new in bug.edits:
        if name not in after:
            if not (root / name).is_file():
                raise LookupError(f"there is no {name}")
            before[name] = after[name] = (root / name).read_text()
        count = after[name].count(old)
        if count != 1:
            raise LookupError(f"{name} has this text {count} times, not once: {old!r}")
        after[name] = after[name].replace(old, new)
    return before, after


def plant(bug, limit):
    """Plants a bug, runs its test and removes the bug; returns the outcome and the output."""
    try:
        before, after = edited(bug)
    except LookupError as why:
        return "cannot be planted", str(why)
    try:
        for name, text in after.items():
            write(COPY / name, text.encode())
        programs, errors = build(bug.test.package, [bug.test.target])
        if errors:
            return "does not compile", errors
        return run(programs[bug.test.target], bug.test, limit)
    finally:
        for name, text in before.items():
            write(COPY / name, text.encode())


def without_a_bug(package, tests):
    """Runs `tests` of `package` without a bug: a test that fails anyway catches nothing. Returns the seconds of
    each green test; says which are red."""
    programs, errors = build(package, sorted({test.target for test in tests}))
    if errors:
        print(f"planted: the tests of {package} do not compile without a bug\n{errors}", file=sys.stderr)
        return {}
    seconds = {}
    for test in sorted(tests):
        start = time.monotonic()
        outcome, output = run(programs[test.target], test, LIMIT)
        if outcome in ("ok", "not run"):
            seconds[test] = time.monotonic() - start
        else:
            print(f"planted: without a bug, {test}: {outcome}\n{output[-4000:]}", file=sys.stderr, flush=True)
    return seconds


def order(bug):
    """Rows in this order rebuild few crates from one to the next."""
    return sorted({name.rpartition("/src/")[0] for name, _, _ in bug.edits}), bug.test.target


def packages(manifest):
    """The packages of a workspace, by name."""
    command = ["cargo", "metadata", "--locked", "--no-deps", "--format-version=1", "--manifest-path", manifest]
    listed = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)["packages"]
    return {package["name"]: package for package in listed}


def check():
    """Finds rows that cannot run: a text that is gone, a test that is gone or lies elsewhere. Builds nothing."""
    known, wrong = {**packages("Cargo.toml"), **packages("fuzz/Cargo.toml")}, 0
    for bug in BUGS:
        package, (target, path) = known[bug.test.package], (bug.test.target, bug.test.name.split("::"))
        kinds = ("test",) if target != "lib" else ("lib", "rlib")
        roots = [
            pathlib.Path(one["src_path"])
            for one in package["targets"]
            if one["kind"][0] in kinds and target in ("lib", one["name"])
        ]
        # A module's file is named after it, or after one above it.
        sources = [file for root in roots for file in [root, *root.parent.rglob("*.rs")]]
        modules = {file.stem if file.stem != "mod" else file.parent.name for file in sources if file not in roots}
        why = None
        try:
            edited(bug, pathlib.Path("."))
        except LookupError as error:
            why = str(error)
        if not roots:
            why = f"{bug.test.package} has no test target {target}"
        elif not any(re.search(rf"\bfn {path[-1]}\(", file.read_text()) for file in sources):
            why = f"there is no test {path[-1]}"
        elif target != "lib" and len(path) > 1 and path[0] not in modules:
            why = f"{bug.test} lies in no module {path[0]}"
        elif len(path) == 1 and not any(re.search(rf"\bfn {path[0]}\(", root.read_text()) for root in roots):
            why = f"{path[0]} does not lie in {', '.join(map(str, roots))}: it needs the name of its module"
        if why:
            wrong += 1
            print(f"planted: {bug.name}: {why}", file=sys.stderr)
    print(f"planted: {len(BUGS)} rows, {len(BUGS) - wrong} can be planted")
    return wrong == 0


def main(names):
    if names == ["--check"]:
        sys.exit(0 if check() else 1)
    unknown = set(names) - {bug.name for bug in BUGS}
    if unknown:
        sys.exit(
            f"planted: no such bug: {', '.join(sorted(unknown))}; there are: {', '.join(bug.name for bug in BUGS)}"
        )
    bugs = [bug for bug in BUGS if not names or bug.name in names]
    copy_tracked()
    begin, caught = time.monotonic(), 0
    for package in dict.fromkeys(bug.test.package for bug in bugs):
        rows = sorted((bug for bug in bugs if bug.test.package == package), key=order)
        start = time.monotonic()
        green = without_a_bug(package, {bug.test for bug in rows})
        print(f"planted: {package}: {len(green)} tests are green without a bug, {time.monotonic() - start:.0f} s")
        for bug in rows:
            start = time.monotonic()
            outcome, output = "red without a bug", ""
            if bug.test in green:
                outcome, output = plant(bug, limit(green[bug.test]))
            is_caught = outcome.startswith(CAUGHT)
            caught += is_caught
            row = f"{bug.test} ({outcome})" if is_caught else f"NOT CAUGHT: {bug.test} ({outcome})"
            print(f"{bug.name} | {row} | {time.monotonic() - start:.0f}", flush=True)
            if not is_caught:
                print(output[-4000:], file=sys.stderr, flush=True)
    print(f"planted {len(bugs)}, caught {caught}, {time.monotonic() - begin:.0f} s")
    sys.exit(0 if caught == len(bugs) else 1)


if __name__ == "__main__":
    main(sys.argv[1:])
