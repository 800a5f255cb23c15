#!/usr/bin/env python3
"""Checks the list of docs/decisions/rooms.md: the files and types on the way of a staged batch, and their numbers.

Each row of the table names a file, its types on the way, and its other types. Every type of the file, but those of
its tests, is in one of the two, so a type that is added is counted or left out by somebody, never forgotten.
`ci/pages.py` calls this; by itself it prints the numbers. `ci/way.sh` runs loaders whose code is counted, and calls

    ci/way.py --counted FOLDER   compares what ran with the table, and with [way] of ci/budget.toml
    ci/way.py --rows FOLDER      prints the rows that the table should have, new ones without a stage

What is counted, of the crates but testkit, over all runs:
- A function ran if any of its counters is above 0: the first one is not in a loop that was entered before the reset.
  A closure is a part of the function around it, and all that a generic function is compiled to are one function.
- A line ran if an expression on it did. Blank lines and comments are none.
- A file ran if a function of it did. Each needs a row with its types on the way, and each row a file that ran.
- A type is on the way if the text of a function that ran names it, with signature, body and the head of the `impl`
  around it; or if such a type, other than a trait, names it in its declaration, as the type of a field. A name is
  that of a type in the same file, or else of the type that its path, or the `use` of it, fits best.
- ERRORS and PRIMITIVES are no types on the way.
"""

import collections
import functools
import json
import pathlib
import re
import subprocess
import sys
import tomllib

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE = "docs/decisions/rooms.md"
BUDGET = "ci/budget.toml"
HEAD = "## The way of a staged batch"
TYPE = re.compile(r"^(?:pub(?:\([a-z]+\))? )?(?:unsafe )?(?:struct|enum|trait|type|union) (\w+)", re.M)
TESTS = re.compile(r"^#\[cfg\([^\n]*\btest\b[^\n]*\)\]\nmod \w+ \{", re.M)
# Comments, raw strings, strings and characters.
NOISE = re.compile(r"//[^\n]*|/\*.*?\*/|r(#*)\".*?\"\1|b?\"(?:\\.|[^\"\\])*\"|b?'(?:\\.[^']*|[^'\\])'", re.S)
FUNCTION = re.compile(r"(?:\bpub(?:\([a-z]+\))? )?(?:\b(?:const|async|unsafe) )*\bfn (\w+)")
BLOCK = re.compile(r"^(?:pub(?:\([a-z]+\))? )?(?:unsafe )?(?:impl|trait)\b", re.M)
USE = re.compile(r"^\s*(?:pub(?:\([a-z]+\))? )?use ([^;]+);", re.M)
# A name with its path. Behind another type, as in `Message::Wake`, it is a variant or a constant.
NAME = re.compile(r"(?<![\w:])((?:\w+::)*?)([A-Z]\w*)\b")
ERRORS = {"Error", "ErrorKind", "ReadError", "Result", "Stage"}
PRIMITIVES = {"Address", "EventId", "StreamId"}


def types_of(path):
    return TYPE.findall(TESTS.split(path.read_text())[0])


def rows():
    """Each row of the table: its line, stage and file, the types on the way, and the others."""
    before, _, part = (ROOT / PAGE).read_text().partition(HEAD)
    for line, row in enumerate(part.partition("\n## ")[0].splitlines(), before.count("\n") + 1):
        cells = [cell.strip() for cell in row.strip("|").split("|")]
        if len(cells) == 4 and cells[1].startswith("`"):
            yield line, cells[0], cells[1].strip("`"), *(re.findall(r"`(\w+)`", cell) for cell in cells[2:])


def check():
    """What is wrong, each with file and line; and the numbers of files and types on the way."""
    before, _, part = (ROOT / PAGE).read_text().partition(HEAD)
    wrong, files, types = [], set(), 0
    for line, _, name, listed, other in rows():
        if not (ROOT / name).is_file() or name in files:
            wrong.append(f"{PAGE}:{line}: {name} is not a file, or stands here twice")
            continue
        files.add(name)
        types += len(listed)
        there = types_of(ROOT / name)
        for missing in sorted({*listed, *other} - {*there}):
            wrong.append(f"{PAGE}:{line}: {name} has no type {missing}")
        for extra in sorted({*there} - {*listed, *other}):
            wrong.append(f"{PAGE}:{line}: {name} has a type {extra}: list it as one on the way, or beside it")
    said = re.search(r"\*\*(\d+) files and (\d+) types\*\*", part.partition("\n## ")[0])
    if not said or (int(said[1]), int(said[2])) != (len(files), types):
        first = before.count("\n") + 1
        wrong.append(f"{PAGE}:{first}: the list has **{len(files)} files and {types} types**: say so below {HEAD}")
    hidden = ["git", "grep", "-nE", r"\bcoverage *\( *off", "--", "*.rs"]
    for place in subprocess.run(hidden, cwd=ROOT, stdout=subprocess.PIPE, text=True).stdout.splitlines():
        wrong.append(f"{place}: `ci/way.sh` counts every function")
    return wrong, len(files), types


class Source:
    """A file of Rust: its functions, the types that it declares, and what it imports."""

    def __init__(self, name):
        text = (ROOT / name).read_text()
        # As long as the text, so that places are the same.
        self.code = NOISE.sub(lambda noise: re.sub(r"[^\n]", " ", noise.group()), text)
        self.starts = [0, *(found.end() for found in re.finditer("\n", self.code))]
        self.functions = [self.item(found.start()) for found in FUNCTION.finditer(self.code)]
        self.blocks = [self.item(found.start()) for found in BLOCK.finditer(self.code)]
        end = len(TESTS.split(text)[0])
        self.types = {found[1]: self.item(found.start()) for found in TYPE.finditer(self.code[:end])}
        self.imports = {}
        for path in (path for use in USE.findall(self.code) for path in paths(" ".join(use.split()))):
            path, _, name = path.partition(" as ")
            self.imports[name or path.rpartition("::")[2]] = path.split("::")[:-1]

    def item(self, start):
        """Where the item from `start` on begins, where its head ends, and where it ends."""
        depth, head = 0, None
        for found in re.finditer(r"[()\[\]{};]", self.code[start:]):
            at, sign = start + found.start(), found.group()
            if sign in "{;" and depth == 0:
                head = at
            depth += (sign in "([{") - (sign in ")]}")
            if head is not None and depth == 0:
                return start, head, at + 1
        return start, len(self.code), len(self.code)

    def function(self, line, column):
        return innermost(self.functions, self.starts[line - 1] + column - 1)

    def name_of(self, function):
        return FUNCTION.match(self.code, function[0])[1]

    def words_of(self, function):
        """The text of a function, and the head of the block around it."""
        start, head, _ = innermost(self.blocks, function[0]) or (0, 0, 0)
        return self.code[start:head] + "\n" + self.code[function[0] : function[2]]

    def fields_of(self, name):
        """The declaration of a type; nothing for a trait, whose methods count if they run."""
        start, head, end = self.types[name]
        return "" if re.search(r"\btrait\b", self.code[start:head]) else self.code[start:end]

    def lines(self, ranges):
        """The lines of some ranges that have code."""
        every = {line for first, last in ranges for line in range(first, last + 1)}
        return {line for line in every if self.code[self.starts[line - 1] : self.starts[line]].strip()}


def innermost(items, at):
    return max((item for item in items if item[0] <= at < item[2]), default=None)


def paths(use):
    """Each path of a `use`, whose braces may be nested."""
    head, brace, rest = use.partition("{")
    if not brace:
        return [use.strip()]
    parts, depth = [""], 0
    for sign in rest.rpartition("}")[0]:
        depth += (sign == "{") - (sign == "}")
        if sign == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += sign
    return [head.strip() + path for part in parts if part.strip() for path in paths(part)]


source = functools.cache(Source)


@functools.cache
def declared():
    """The files that declare each type."""
    found = collections.defaultdict(list)
    for path in sorted((ROOT / "crates").glob("*/src/**/*.rs")):
        name = path.relative_to(ROOT).as_posix()
        for one in source(name).types:
            found[one].append(name)
    return found


def named(name, text):
    """The types that a text of a file names, each with the file that declares it."""
    imports, folders = source(name).imports, name.split("/")[:-1]
    for path, one in NAME.findall(text):
        files = declared().get(one)
        if not files or one in ERRORS | PRIMITIVES:
            continue
        if not path and name in files:
            yield name, one
            continue
        first, *rest = path.split("::")[:-1] or [one]
        # A path in the text begins with what is imported, or is a whole one.
        way = [*imports.get(first, [] if path else [""]), *([first, *rest] if path else [])]
        crate = way[0].removeprefix("feedline_")
        if way[0] not in ("crate", "self", "super", "feedline") and crate == way[0]:
            continue
        # `feedline_device::slot::Loaded` is in crates/device/src/slot/.
        words = {*way[1:], *{"crate": folders[:2], "self": folders, "super": folders}.get(crate, [crate])}
        parts = {file: file.removesuffix(".rs").split("/") for file in files}
        # Of two that fit as well, the one nearer to the root: `crate::Event` is no type of a folder.
        yield max(files, key=lambda file: (len(words & {*parts[file]}), -len(parts[file]))), one


def types_in(functions):
    """The types on the way of some functions."""
    types = {one for name, function in functions for one in named(name, source(name).words_of(function))}
    return types | {field for name, one in types for field in named(name, source(name).fields_of(one))}


def ran(folder):
    """The functions that ran in each run, by file and place; and the lines of all runs, by file and number."""
    runs, places, lines = [], {}, set()
    for profile in sorted(folder.glob("*.proftext")):
        # In blocks: a name, a hash, the number of counters, and these.
        text = re.sub("^[#:].*\n", "", profile.read_text(), flags=re.M)
        blocks = [block.split() for block in text.split("\n\n") if block]
        runs.append({name for name, _, _, *counts in blocks if set(counts) != {"0"}})
    for function in json.loads((folder / "all.json").read_text())["data"][0]["functions"]:
        path = pathlib.Path(function["filenames"][0])
        if not path.is_relative_to(ROOT / "crates") or path.is_relative_to(ROOT / "crates/testkit"):
            continue
        name = path.relative_to(ROOT).as_posix()
        # Of a region: first line and column, last ones, count, number of its file, and a kind that is 0 for code. A
        # count that follows from others can be below 0.
        code = [region for region in function["regions"] if region[5] == region[7] == 0]
        places[function["name"]] = name, source(name).function(*code[0][:2])
        counted = source(name).lines([(region[0], region[2]) for region in code if region[4]])
        lines.update((name, line) for line in counted)
    return [{places[name] for name in run & places.keys()} for run in runs], lines


def counted(folder):
    """What is wrong with the table and the limits, and the numbers."""
    runs, lines = ran(folder)
    functions, times = set().union(*runs), collections.Counter()
    for run in runs:
        times.update({name for name, _ in run})
    listed, wrong = {name: line for line, _, name, _, _ in rows()}, []
    for name in sorted(times.keys() - listed):
        names = sorted({source(name).name_of(function) for other, function in functions if other == name})
        wrong.append(f"{PAGE}: {name} has no row, and ran in {times[name]} of {len(runs)} runs: {', '.join(names)}")
    for name in sorted(listed.keys() - times):
        wrong.append(f"{PAGE}:{listed[name]}: {name} never ran: it is not on the way")
    types = types_in(functions)
    for line, _, name, there, _ in rows():
        ours = {one for file, one in types if file == name}
        for what, ones in [("lacks", ours - {*there}), ("is not on the way with", {*there} - ours)]:
            wrong += [f"{PAGE}:{line}: {name} {what} the type {one}" for one in sorted(ones) if name in times]
    numbers = {"files": len(times), "types": len(types), "functions": len(functions), "lines": len(lines)}
    limits = tomllib.loads((ROOT / BUDGET).read_text())["way"]
    for name, number in numbers.items():
        if number > limits[name]:
            wrong.append(f"{BUDGET}: way.{name} is {number:,}, at most {limits[name]:,}: merge or delete, or raise it")
    said = ", ".join(f"{number:,} {name}" for name, number in numbers.items())
    files, always = sum(number == len(runs) for number in times.values()), len(set.intersection(*runs))
    return wrong, f"{said}; {files} files and {always} functions in each of {len(runs)} runs"


def table(folder):
    """The rows that the table should have, in its order; and the types on the way in other files."""
    functions = set().union(*ran(folder)[0])
    files, types = {name for name, _ in functions}, types_in(functions)
    listed = {name: stage for _, stage, name, _, _ in rows()}
    for name in [*(name for name in listed if name in files), *sorted(files - listed.keys())]:
        cells = [], []
        for one in types_of(ROOT / name):
            cells[(name, one) not in types].append(f"`{one}`")
        yield f"| {listed.get(name, '')} | `{name}` | {' '.join(cells[0])} | {' '.join(cells[1])} |"
    others = collections.defaultdict(list)
    for name, one in sorted(types):
        if name not in files:
            others[name].append(one)
    yield f"\n{sum(map(len, others.values()))} types on the way are declared in files without code on it:"
    yield from (f"{name}: {', '.join(names)}" for name, names in others.items())


def main(arguments):
    match arguments:
        case ["--rows", folder]:
            print("\n".join(table(pathlib.Path(folder))))
            return False
        case ["--counted", folder]:
            wrong, said = counted(pathlib.Path(folder))
        case _:
            wrong, files, types = check()
            said = f"{files} files, {types} types"
    print("\n".join([*wrong, f"way: {said}"]))
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
