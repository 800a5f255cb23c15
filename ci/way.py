#!/usr/bin/env python3
"""Checks the list of docs/decisions/rooms.md: the files and types on the way of a staged batch, and their numbers.

Each row of the table names a file, its types on the way, and its other types. Every type of the file, but those of
its tests, is in one of the two, so a type that is added is counted or left out by somebody, never forgotten.
`ci/pages.py` calls this; by itself it prints the numbers.
"""

import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE = "docs/decisions/rooms.md"
HEAD = "## The way of a staged batch"
TYPE = re.compile(r"^(?:pub(?:\([a-z]+\))? )?(?:unsafe )?(?:struct|enum|trait|type|union) (\w+)", re.M)
TESTS = re.compile(r"^#\[cfg\([^\n]*\btest\b[^\n]*\)\]\nmod \w+ \{", re.M)


def types_of(path):
    return TYPE.findall(TESTS.split(path.read_text())[0])


def check():
    """What is wrong, each with file and line; and the numbers of files and types on the way."""
    text = (ROOT / PAGE).read_text()
    before, head, part = text.partition(HEAD)
    part = part.partition("\n## ")[0]
    first = before.count("\n") + 1
    wrong, files, types = [], set(), 0
    for line, row in enumerate(part.splitlines(), first):
        cells = [cell.strip() for cell in row.strip("|").split("|")]
        if len(cells) != 4 or not cells[1].startswith("`"):
            continue
        name, listed, other = cells[1].strip("`"), *(re.findall(r"`(\w+)`", cell) for cell in cells[2:])
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
    said = re.search(r"\*\*(\d+) files and (\d+) types\*\*", part)
    if not said or (int(said[1]), int(said[2])) != (len(files), types):
        wrong.append(f"{PAGE}:{first}: the list has **{len(files)} files and {types} types**: say so below {HEAD}")
    return wrong, len(files), types


if __name__ == "__main__":
    wrong, files, types = check()
    print("\n".join([*wrong, f"way: {files} files, {types} types"]))
    raise SystemExit(bool(wrong))
