#!/usr/bin/env python3
"""Counts the lines of code per room, without comments, docs, blanks and tests: `ci/code-lines.py BEFORE AFTER`.

Prints a row per folder of the repository, and per crate, with the lines at each revision (default: HEAD) and the
difference; lines of tests follow as a table of their own. Tests are the files below a folder `tests` or called
`tests.rs`, and what stands in a file behind `#[cfg(test)] mod`.
"""

import ast
import pathlib
import re
import subprocess
import sys

CODE = {".rs", ".py", ".cu", ".cuh", ".sh"}
MODULE = re.compile(r"^#\[cfg\([^\n]*\btest\b[^\n]*\)\]\n(?:#\[[^\n]*\]\n)*mod \w+ \{", re.M)


def files(revision):
    """Every file of code at a revision, with its text."""
    listed = subprocess.run(["git", "ls-tree", "-r", "-z", revision], stdout=subprocess.PIPE, check=True).stdout
    entries = [entry.split("\t") for entry in listed.decode().split("\0") if entry]
    entries = [(path, head.split()[2]) for head, path in entries if pathlib.PurePosixPath(path).suffix in CODE]
    objects = "".join(f"{number}\n" for _, number in entries).encode()
    content = subprocess.run(["git", "cat-file", "--batch"], input=objects, stdout=subprocess.PIPE, check=True).stdout
    at = 0
    for path, _ in entries:
        line = content.index(b"\n", at)
        length = int(content[at:line].split()[2])
        yield path, content[line + 1 : line + 1 + length].decode(errors="replace")
        at = line + 1 + length + 1


def docstrings(text):
    """The numbers of the lines of docstrings."""
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return set()
    lines = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            lines.update(range(node.lineno, node.end_lineno + 1))
    return lines


def code(suffix, text):
    """The number of lines that are neither blank nor a comment."""
    docs = docstrings(text) if suffix == ".py" else set()
    mark = "#" if suffix in (".py", ".sh") else "//"
    lines = ((number, line.strip()) for number, line in enumerate(text.splitlines(), 1))
    return sum(1 for number, line in lines if line and not line.startswith(mark) and number not in docs)


def count(revision):
    """Lines of code and of tests per room."""
    counts = ({}, {})
    for path, text in files(revision):
        parts = pathlib.PurePosixPath(path)
        room = "/".join(parts.parts[:2]) if parts.parts[0] in ("crates", "bridges") else parts.parts[0]
        is_test = "tests" in parts.parts[:-1] or parts.name == "tests.rs" or "testkit" in parts.parts
        before, *behind = MODULE.split(text, maxsplit=1) if parts.suffix == ".rs" else [text]
        for place, part in [(is_test, before), *((True, part) for part in behind)]:
            counts[place][room] = counts[place].get(room, 0) + code(parts.suffix, part)
    return counts


def table(title, columns):
    rooms = sorted({room for column in columns for room in column})
    rows = [(room, [column.get(room, 0) for column in columns]) for room in rooms]
    rows.append(("sum", [sum(column.values()) for column in columns]))
    print(f"{title:<24}" + "".join(f"{name:>12}" for name in revisions) + ("  difference" if len(columns) > 1 else ""))
    for room, numbers in rows:
        last = f"{numbers[-1] - numbers[0]:>+12,}" if len(numbers) > 1 else ""
        print(f"{room:<24}" + "".join(f"{number:>12,}" for number in numbers) + last)


revisions = sys.argv[1:] or ["HEAD"]
counted = [count(revision) for revision in revisions]
table("code", [code for code, _ in counted])
print()
table("tests", [tests for _, tests in counted])
