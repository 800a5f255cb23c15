"""Mutation tests: plants one bug at a time in a copy of the repository and checks that the test named for it
fails.

ci/planted.toml has the bugs. A bug that does not compile is an error of that table. A test that hangs counts as
caught; the row says whether its watchdog ended it or the limit of `limit`.
"""

import functools
import json
import os
import pathlib
import re
import resource
import signal
import subprocess
import sys
import time
import tomllib
from typing import NamedTuple

COPY = pathlib.Path("target/planted/src")
BUILD = pathlib.Path("target/planted/build")
# The most seconds that a test may run, with a bug or without.
LIMIT = 150
# The most address space of a test, in bytes: a bug that takes away a limit of memory must not end other programs.
MEMORY = 16 << 30
PICTURES, DATASETS = "feedline-pictures", "feedline-datasets"
# Without optimisation, tests of these packages would take minutes.
OPTIMISED = ("feedline-images", "feedline-kernels", PICTURES)


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


def table():
    """The bugs of ci/planted.toml. `main` runs those of a package one after the other."""
    rows = tomllib.loads(pathlib.Path("ci/planted.toml").read_text())["bug"]
    return [
        Bug(row["name"], row["what"], Test(*row["test"].split()), [tuple(edit.values()) for edit in row["edit"]])
        for row in rows
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
    # What is gone, with its folders: `crates/*` are members of the workspace.
    for path in sorted(COPY.rglob("*"), reverse=True):
        if path.is_file() and path.relative_to(COPY).as_posix() not in names:
            path.unlink()
        elif path.is_dir() and not any(path.iterdir()):
            path.rmdir()


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
    if package not in ("feedline-device", PICTURES):  # their rows need a version of CUDA
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
            preexec_fn=functools.partial(resource.setrlimit, resource.RLIMIT_AS, (MEMORY, MEMORY)),
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
    if done.returncode == -signal.SIGABRT and "has overflowed its stack" in output:
        return "overflowed the stack", output
    if done.returncode == -signal.SIGABRT and "memory allocation of" in output:
        return "ran out of memory", output
    return f"ended with {done.returncode}", output


CAUGHT = ("failed", "hung: ", "overflowed the stack", "ran out of memory")


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


def module(file, roots):
    """The module that a source file is, as the names on the way to it."""
    root = next(root for root in roots if file.is_relative_to(root.parent))
    return [] if file == root else [name for name in file.relative_to(root.parent).with_suffix("").parts if name != "mod"]


def check(bugs):
    """Finds rows that cannot run: a text that is gone, a test that is gone or lies elsewhere. Builds nothing."""
    known, wrong = {**packages("Cargo.toml"), **packages("fuzz/Cargo.toml")}, 0
    for bug in bugs:
        package, (target, path) = known[bug.test.package], (bug.test.target, bug.test.name.split("::"))
        kinds = ("test",) if target != "lib" else ("lib", "rlib")
        targets = [one for one in package["targets"] if one["kind"][0] in kinds and target in ("lib", one["name"])]
        roots = [pathlib.Path(one["src_path"]) for one in targets]
        sources = [file for root in roots for file in [root, *root.parent.rglob("*.rs")]]
        modules = [module(file, roots) for file in sources if re.search(rf"\bfn {path[-1]}\(", file.read_text())]
        why = None
        try:
            edited(bug, pathlib.Path("."))
        except LookupError as error:
            why = str(error)
        if not roots:
            why = f"{bug.test.package} has no test target {target}"
        elif not modules:
            why = f"there is no test {path[-1]}"
        elif not any(path[: len(place)] == place and len(path) > len(place) for place in modules):
            why = f"{bug.test} lies in {', '.join('::'.join(place) or 'the root' for place in modules)}"
        if why:
            wrong += 1
            print(f"planted: {bug.name}: {why}", file=sys.stderr)
    print(f"planted: {len(bugs)} rows, {len(bugs) - wrong} can be planted")
    return wrong == 0


def main(names):
    bugs = table()
    if names == ["--check"]:
        sys.exit(0 if check(bugs) else 1)
    unknown = set(names) - {bug.name for bug in bugs}
    if unknown:
        sys.exit(
            f"planted: no such bug: {', '.join(sorted(unknown))}; there are: {', '.join(bug.name for bug in bugs)}"
        )
    bugs = [bug for bug in bugs if not names or bug.name in names]
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
