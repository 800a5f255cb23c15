"""Plants one bug at a time in a copy of the repository, and looks whether the test that is named for it turns red.

A bug is a list of edits: in a file, a text that stands there exactly once, and what takes its place. A bug that does not
compile is not caught, it is a defect of this table. A test that hangs is caught when its watchdog names it, or at the
time limit below; the row says which.
"""

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
# Seconds a test may run; the watchdogs of the tests bite before.
LIMIT = 150


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


SLOTS, DEVICE, SIM = "feedline-slots", "feedline-device", "feedline-sim"
FEEDLINE, TESTKIT = "feedline", "feedline-testkit"
HOST_RING, HOST_LEASE = "crates/slots/src/ring.rs", "crates/slots/src/lease.rs"
HOST_ACQUIRE = "crates/slots/src/acquire.rs"
DEVICE_RING, DEVICE_LEASE = "crates/device/src/slot/ring.rs", "crates/device/src/slot/lease.rs"
PINNED, DECODE, DECODE_SET = "crates/device/src/pinned.rs", "crates/decode/src/batch.rs", "crates/decode/src/dataset.rs"
DELIVERY, MAKER = "crates/decode/src/delivery.rs", "crates/decode/src/maker.rs"
CAPTURE, MARK = "crates/device/src/capture.rs", "crates/device/src/mark.rs"
LOADER, SHUTDOWN = "crates/feedline/src/loader.rs", "crates/feedline/src/shutdown.rs"
CHECKPOINT = "crates/feedline/src/checkpoint.rs"

HAND_OFF = Test(SIM, "sim_seeds", "a_whole_hand_off_has_no_race")
ALL_READERS = Test(DEVICE, "contract", "slots::a_slot_is_overwritten_after_all_its_readers")
PIPELINE = Test(FEEDLINE, "simulated", "a_training_loop_over_a_whole_pipeline_has_no_race_in_any_schedule")

NO_HOST_GATE = [
    (HOST_ACQUIRE, 'if cfg!(not(planted = "host_gate")) && state', "if cfg!(any()) && state"),
    (HOST_ACQUIRE, 'in_flight = cfg!(not(planted = "host_gate")) &&', "in_flight = cfg!(any()) &&"),
]
NO_CONSUMED_WAIT = [(DEVICE_LEASE, '#[cfg(not(planted = "consumed_wait"))]', "#[cfg(any())]")]
NO_COPIED_WAIT = [(DEVICE_LEASE, '#[cfg(not(planted = "copied_wait"))]', "#[cfg(any())]")]

# By package, so that few crates are built again from one row to the next.
BUGS = [
    Bug(
        "host_gate",
        "the host does not wait for the copy before it fills a slot again",
        Test(SLOTS, "lease", "no_slot_is_acquired_while_its_copy_runs"),
        NO_HOST_GATE,
    ),
    Bug(
        "double_release",
        "a host slot is released twice",
        Test(SLOTS, "lease", "a_dropped_lease_is_released_once_from_every_state"),
        [(HOST_RING, '        #[cfg(planted = "double_release")]\n', "")],
    ),
    Bug(
        "close_no_notify",
        "close does not wake waiting threads",
        Test(SLOTS, "ring", "close_wakes_a_blocked_acquirer_within_100_ms"),
        [(HOST_RING, '#[cfg(not(planted = "close_no_notify"))]', "#[cfg(any())]")],
    ),
    Bug(
        "failed_submit_releases_the_slot",
        "a slot whose submit failed is acquired again, although its copy may run",
        Test(SLOTS, "lease", "a_failed_submit_loses_the_slot"),
        [(HOST_LEASE, "if result.is_ok() {\n            hold.release();", "{\n            hold.release();")],
    ),
    Bug(
        "freed_in_flight",
        "the memory of a slot is freed while its copy runs",
        Test(SLOTS, "lease", "memory_is_freed_once_after_its_copy_has_ended"),
        [(HOST_RING, "State::InFlight | State::Lost => slot.memory.wait_drained(),",
          "State::InFlight | State::Lost => Ok(()),")],
    ),
    Bug(
        "writes_outside_a_row_are_not_checked",
        "the data-set check ignores bytes written outside a row",
        Test("feedline-core", "lib", "check::tests::every_write_outside_the_rows_is_found"),
        [("crates/core/src/check.rs", "bytes.iter().any(|&byte| byte != self.background)", "bytes.iter().any(|_| false)")],
    ),
    Bug(
        "nobody_woken_for_a_host_slot",
        "a released host slot does not wake a sleeping thread",
        Test(SLOTS, "ring", "acquire_blocks_until_a_lease_is_released"),
        [(HOST_RING, "let asleep = free_list.sleepers > 0;", "let asleep = free_list.sleepers > 1;")],
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
        Test(DEVICE, "graph", "memory_lives_as_long_as_the_graphs_that_use_it"),
        [(CAPTURE, "let is_used = state.used.iter().any(|used| used.overlaps(&buffer));", "let is_used = false;")],
    ),
    Bug(
        "any_batch_in_a_recording",
        "a recorded step may read another batch than its own",
        Test(DEVICE, "graph", "what_cannot_be_replayed_is_refused"),
        [(CAPTURE, "if own != Some(slot) => {", "if own != Some(slot) && cfg!(any()) => {")],
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
        Test(DEVICE, "contract", "tables::a_slot_is_gathered_into_after_all_its_readers"),
        [(DEVICE_LEASE, '#[cfg(not(planted = "consumed_wait"))]', "#[cfg(any())]")],
    ),
    Bug(
        "ids_marked_before_the_gather",
        "ids are overwritten before they were read",
        Test(DEVICE, "contract", "tables::ids_are_not_overwritten_before_they_were_read"),
        [(PINNED, "work(self.ptr)?;\n        stream.record(mark)?;",
          "stream.record(mark)?;\n        work(self.ptr)?;")],
    ),
    Bug(
        "rows_in_the_order_of_their_visits",
        "the rows of a long set are put down as they are visited, not in their places",
        Test(DEVICE, "contract", "tables::rows_of_a_set_that_lies_far_apart_arrive_in_their_places"),
        [("crates/device/src/zero_copy/tables.rs", "self.visits.places(ids.len()).map(at)", "None.map(at)")],
    ),
    Bug(
        "unregistered_in_use",
        "memory is unregistered while a gather that failed late may still read it",
        Test(DEVICE, "contract", "tables::memory_stays_registered_under_a_gather_that_failed_late"),
        [
            ("crates/device/src/zero_copy/registered.rs", "self.reader.get().map_or(Ok(()), |stream| stream.synchronize());",
             "Ok::<(), Error>(());"),
            (DEVICE_RING, "let drained = self.copier.get().map_or(Ok(()), |stream| stream.synchronize());",
             "let drained = Ok::<(), Error>(());"),
        ],
    ),
    Bug(
        "foreign_device",
        "a stream of another device is accepted",
        Test(DEVICE, "contract", "mismatch::everything_of_another_device_is_refused"),
        [("crates/device/src/device_core.rs", "if Arc::ptr_eq(self, other) {", "if true {")],
    ),
    Bug(
        "foreign_stream",
        "a view of another stream is accepted",
        Test(DEVICE, "contract", "mismatch::arguments_of_another_stream_are_refused"),
        [("crates/device/src/submit.rs", "if Arc::ptr_eq(stream, self.core()) {", "if true {")],
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
        [("crates/device/src/stream.rs", "if event.query()? { Ok(()) }", "if event.query()? || cfg!(not(any())) { Ok(()) }")],
    ),
    Bug(
        "last_reader_only",
        "only the last reader of a device slot is waited for",
        ALL_READERS,
        [(DEVICE_LEASE, "in &slot.consumed[..joined]", "in &slot.consumed[joined.saturating_sub(1)..joined]")],
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
        Test(DEVICE, "shared_event", "readers_of_two_slots_on_two_streams_do_not_hide_each_other"),
        [
            (DEVICE_LEASE, "record(&slot.consumed[self.number])", "record(&self.shared.slots[0].consumed[self.number])"),
            (DEVICE_LEASE, "in &slot.consumed[..joined]", "in &shared.slots[0].consumed[..joined]"),
        ],
    ),
    Bug(
        "marked_before_the_copy",
        "the mark of a copy is recorded before the copy is queued",
        HAND_OFF,
        [(PINNED, "work(self.ptr)?;\n        stream.record(mark)?;",
          "stream.record(mark)?;\n        work(self.ptr)?;")],
    ),
    Bug(
        "mark_recorded_again",
        "a copy takes a mark that a block or a lease still refers to",
        Test(DEVICE, "contract", "slots::a_block_and_a_slot_wait_for_their_own_copy_and_none_after_it"),
        [(MARK, "(*next..count).chain(0..*next)", "0..count"),
         (MARK, "Arc::get_mut(&mut all[at]).is_some()", "count > 0")],
    ),
    Bug("host_gate_of_a_pipeline", "the same as host_gate, under a user's training loop", PIPELINE, NO_HOST_GATE),
    Bug("consumed_wait_of_a_pipeline", "the same as consumed_wait, under a user's training loop", PIPELINE, NO_CONSUMED_WAIT),
    Bug("copied_wait_of_a_pipeline", "the same as copied_wait, under a user's training loop", PIPELINE, NO_COPIED_WAIT),
    Bug(
        "copy_error_ignored",
        "a copy that the device refuses is taken for done",
        Test(FEEDLINE, "faults", "every_device_call_can_fail_once"),
        [(DEVICE_LEASE, "|at| work(copier, at, slot.address))",
          "|at| {\n                let _ = work(copier, at, slot.address);\n                Ok(())\n            })")],
    ),
    Bug(
        "last_slot_lost_in_silence",
        "the loss of the last device slot wakes nobody",
        Test(FEEDLINE, "faults", "every_device_call_can_fail_once"),
        [(DEVICE_RING, "+ 1 == self.slots.len() {", "+ 1 > self.slots.len() {")],
    ),
    Bug(
        "leak_kept_in_the_ledger",
        "memory that is leaked after a failed drain keeps its event and its stream",
        Test(FEEDLINE, "faults", "every_device_call_can_lose_the_device"),
        [(HOST_RING, "Err(error) => memory.leak(error),",
          "Err(error) => {\n                    drop(error);\n                    std::mem::forget(memory);\n                }")],
    ),
    Bug(
        "panic_swallowed",
        "a batch whose data set panicked is delivered all the same",
        Test(FEEDLINE, "failures", "a_bad_sample_ends_the_epoch_with_its_name_after_the_batches_before_it"),
        [(DECODE, "            Err(self.panicked(context.current().map_or(ids[0], |(_, id)| id), &*panic))",
          "            drop(panic);\n            Ok(())")],
    ),
    Bug(
        "substitute_by_worker",
        "what stands in for a bad sample depends on the thread that met it",
        Test(FEEDLINE, "faults", "what_stands_in_for_a_bad_file_is_the_same_for_any_workers"),
        [(DECODE_SET, "plan.substitute(run.epoch, position, attempt)",
          "plan.substitute(run.epoch, position + rayon::current_thread_index().unwrap_or(0) as u64, attempt)")],
    ),
    Bug(
        "one_row_off",
        "decode reads each sample of the first half into the row before its own",
        Test(FEEDLINE, "order", "every_sample_is_read_and_delivered_once_an_epoch"),
        [(DECODE, "self.split(&ids[..mid], left)", "self.split(&ids[1..=mid], left)")],
    ),
    Bug(
        "step_off_by_one",
        "decode makes each batch of the step before its own",
        Test(FEEDLINE, "order", "every_sample_is_read_and_delivered_once_an_epoch"),
        [(DECODE_SET, "self.plan.batch(epoch, start, ticket.step, ",
          "self.plan.batch(epoch, start, ticket.step.saturating_sub(1), ")],
    ),
    Bug(
        "nobody_woken_for_a_device_slot",
        "a device slot that comes home wakes nobody when one sleeps",
        Test(FEEDLINE, "order", "every_sample_is_read_and_delivered_once_an_epoch"),
        [("crates/device/src/slot/line.rs", "let asleep = state.sleepers > 0;", "let asleep = state.sleepers > 1;")],
    ),
    Bug(
        "nobody_watches",
        "no maker that sleeps looks whether the turn was left to nobody",
        Test("feedline-decode", "together", "a_read_that_takes_unexpectedly_long_leaves_no_maker_asleep"),
        [("crates/decode/src/turn.rs", "WATCH: Duration = Duration::from_millis(100)", "WATCH: Duration = Duration::from_secs(36_000)")],
    ),
    Bug(
        "delivered_as_done",
        "decode sends batches on in the order in which they are done",
        Test("feedline-decode", "together", "batches_that_are_done_in_another_order_leave_in_theirs"),
        [(DELIVERY, "let index = (number - self.next) as usize;", "let _ = number;\n        let index = self.places.len();")],
    ),
    Bug(
        "later_pieces_only",
        "a batch that failed takes the pieces of those before it with it",
        Test("feedline-decode", "together", "batches_before_the_one_that_failed_are_delivered_and_none_after_it"),
        [(DECODE, "decoder.failed.load(Ordering::Relaxed) < self.number",
          "decoder.failed.load(Ordering::Relaxed) < u64::MAX")],
    ),
    Bug(
        "cursor_counts_prefetched",
        "the cursor counts one batch that was read ahead and not delivered",
        Test(FEEDLINE, "resume", "every_data_set_goes_on"),
        [(LOADER, "None => self.cursor.deliver(&self.plan, &batch.ids()[..batch.due()]),",
          "None => (0..=u8::from(batch.step() == 0))\n"
          "                .for_each(|_| self.cursor.deliver(&self.plan, &batch.ids()[..batch.due()])),")],
    ),
    Bug(
        "checkpoint_wait",
        "a checkpoint does not wait for the work queued so far",
        Test(FEEDLINE, "checkpoint", "a_checkpoint_matches_the_model_when_the_device_is_ten_steps_behind"),
        [(CHECKPOINT, "        compute.synchronize()?;\n", "")],
    ),
    Bug(
        "checkpoint_held",
        "a checkpoint is taken while a batch is held",
        Test(FEEDLINE, "checkpoint", "a_batch_that_is_held_is_a_clear_error"),
        [(CHECKPOINT, "let held = self.batches_in_hand();", "let held = 0 * self.batches_in_hand();")],
    ),
    Bug(
        "cause_after_the_end",
        "a stage closes its channels before it tells why",
        Test(FEEDLINE, "failures", "the_first_cause_is_told_however_the_threads_race"),
        [
            (MAKER, "        if let Some(over) = self.over.take() {\n",
             "        self.filled = bounded(0).0;\n        std::thread::sleep(std::time::Duration::from_millis(20));\n"
             "        if let Some(over) = self.over.take() {\n"),
        ],
    ),
    Bug(
        "stop_leaves_the_device_slots_open",
        "stop does not wake a transfer that waits for a device slot",
        Test(FEEDLINE, "shutdown", "a_consumer_that_stops_reading_stops_the_pipeline_at_its_slots"),
        [(SHUTDOWN, "        self.slots.close();\n", "")],
    ),
    Bug(
        "stop_does_not_wait_for_the_device",
        "stop succeeds while the device still reads a batch",
        Test(FEEDLINE, "limits", "stop_reports_work_on_the_device_that_does_not_end"),
        [(SHUTDOWN, "self.drain(left()).map_err(", "self.drain(left()).or(Ok(())).map_err(")],
    ),
    Bug(
        "batches_of_an_epoch_that_was_left",
        "batches that were read ahead for an epoch that was left are delivered in the next one",
        Test(FEEDLINE, "random_loaders", "every_row_of_a_random_loader_is_that_of_the_reference"),
        [(LOADER, "if run != at.run.number {", "if run > at.run.number {")],
    ),
    Bug(
        "ranks_overlap_in_a_short_step",
        "two ranks get the same samples of a last step that is not full",
        Test(FEEDLINE, "random_resume", "every_sample_arrives_once_however_a_run_goes_on"),
        [("crates/core/src/batch_sampler.rs", "first: first + rank * each + rank.min(over)", "first: first + rank * each")],
    ),
    Bug(
        "another_fuzz_target",
        "a fuzz target runs another one",
        Test("feedline-fuzz", "replay", "every_target_is_built_and_has_seeds"),
        [("fuzz/fuzz_targets/idx_bytes.rs", "target!(idx_bytes)", "target!(cursor_bytes)")],
    ),
]


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text)


def copy_tracked():
    """Brings the copy to the state of the tracked files; what has not changed keeps its time, and its build."""
    listed = subprocess.run(["git", "ls-files", "-z"], stdout=subprocess.PIPE, check=True).stdout
    names = [name for name in listed.decode().split("\0") if name and pathlib.Path(name).is_file()]
    for name in names:
        to, text = COPY / name, pathlib.Path(name).read_bytes()
        if not to.is_file() or to.read_bytes() != text:
            write(to, text)
    for path in COPY.rglob("*.rs"):
        if path.relative_to(COPY).as_posix() not in names and "target" not in path.relative_to(COPY).parts:
            path.unlink()


def cargo(package, targets):
    """The command that builds the tests `targets` of `package`."""
    command = ["cargo", "test", "--locked", "--no-default-features", "--no-run", "--message-format=json"]
    if package == "feedline-fuzz":
        command += ["--manifest-path", "fuzz/Cargo.toml"]  # a workspace of its own
    else:
        command += ["--package", package]
    for target in targets:
        command += ["--lib"] if target == "lib" else ["--test", target]
    return command


def build(package, targets):
    """Builds tests; returns the program of each target and the compiler's errors, if any."""
    environment = {**os.environ, "CARGO_TARGET_DIR": str(BUILD.resolve())}
    done = subprocess.run(cargo(package, targets), cwd=COPY, env=environment, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True)
    programs, errors = {}, []
    for line in done.stdout.splitlines():
        message = json.loads(line) if line.startswith("{") else {}
        if message.get("reason") == "compiler-message" and message["message"]["level"] == "error":
            errors.append(message["message"]["rendered"])
        if message.get("executable") and message["profile"]["test"]:
            kind, target = message["target"]["kind"][0], message["target"]
            # The directory of the manifest is where cargo runs a test.
            where = pathlib.Path(message["manifest_path"]).parent
            programs["lib" if kind == "lib" else target["name"]] = (message["executable"], where)
    if done.returncode != 0:
        return {}, "\n".join(errors) or done.stderr
    return programs, None


def run(program, test):
    """Runs one test; returns "ok", "failed", "named by the watchdog", "stopped at ..." or what else came of it."""
    executable, where = program
    command = [executable, "--exact", test.name, "--test-threads", "1", "--include-ignored"]
    environment = {**os.environ, "CARGO_MANIFEST_DIR": str(where), "RUST_BACKTRACE": "0"}
    try:
        done = subprocess.run(command, cwd=where, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              timeout=LIMIT, errors="replace", text=True)
    except subprocess.TimeoutExpired as late:
        return f"hung: stopped at the limit of {LIMIT} s", str(late.stdout)
    output = done.stdout
    if "running 1 test" not in output:
        return "no such test", output
    if done.returncode == 0 and re.search(r"^test result: ok\. 1 passed", output, re.M):
        return "ok", output
    # The summary's list of failures: what a test writes can stand between its name and its result.
    if re.search(r"^test result: FAILED\. 0 passed; 1 failed", output, re.M) and f"\n    {test.name}\n" in output:
        return "failed", output
    if done.returncode < 0 and "watchdog: \"" in output:
        return "hung: named by its watchdog", output
    return f"ended with {done.returncode}", output


CAUGHT = ("failed", "hung: ")


def edited(bug):
    """The files of a bug: their text before and after; or why it cannot be planted."""
    before, after = {}, {}
    for name, old, new in bug.edits:
        if name not in after:
            before[name] = after[name] = (COPY / name).read_text()
        count = after[name].count(old)
        if count != 1:
            raise LookupError(f"{name} has this text {count} times, not once: {old!r}")
        after[name] = after[name].replace(old, new)
    return before, after


def plant(bug):
    """Plants a bug, runs its test, and takes the bug away again; returns the outcome and what there is to read."""
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
        return run(programs[bug.test.target], bug.test)
    finally:
        for name, text in before.items():
            write(COPY / name, text.encode())


def all_green(bugs):
    """Runs every named test without a bug: a test that is red anyway catches nothing."""
    red = 0
    tests = {bug.test for bug in bugs}
    for package in dict.fromkeys(bug.test.package for bug in bugs):
        targets = sorted({test.target for test in tests if test.package == package})
        programs, errors = build(package, targets)
        if errors:
            print(f"planted: the tests of {package} do not compile without a bug\n{errors}", file=sys.stderr)
            return False
        for test in sorted(test for test in tests if test.package == package):
            outcome, output = run(programs[test.target], test)
            if outcome != "ok":
                red += 1
                print(f"planted: without a bug, {test}: {outcome}\n{output[-4000:]}", file=sys.stderr)
    return red == 0


def main(names):
    unknown = set(names) - {bug.name for bug in BUGS}
    if unknown:
        sys.exit(f"planted: no such bug: {', '.join(sorted(unknown))}; there are: {', '.join(bug.name for bug in BUGS)}")
    bugs = [bug for bug in BUGS if not names or bug.name in names]
    copy_tracked()
    start = time.monotonic()
    if not all_green(bugs):
        sys.exit("planted: a named test is red without a bug")
    tests = len({bug.test for bug in bugs})
    print(f"planted: {tests} tests are green without a bug, {time.monotonic() - start:.0f} s", flush=True)
    caught = 0
    for bug in bugs:
        start = time.monotonic()
        outcome, output = plant(bug)
        is_caught = outcome.startswith(CAUGHT)
        caught += is_caught
        row = f"{bug.test} ({outcome})" if is_caught else f"NOT CAUGHT: {bug.test} ({outcome})"
        print(f"{bug.name} | {row} | {time.monotonic() - start:.0f}", flush=True)
        if not is_caught:
            print(output[-4000:], file=sys.stderr, flush=True)
    print(f"planted {len(bugs)}, caught {caught}")
    sys.exit(0 if caught == len(bugs) else 1)


if __name__ == "__main__":
    main(sys.argv[1:])
