#!/usr/bin/env python3
"""Counts the lines of code per room, without comments, docs, blanks and tests: `ci/code-lines.py BEFORE AFTER`.

Prints a row per folder of the repository, and per crate, with the lines at each revision (default: HEAD) and the
difference; lines of tests follow as a table of their own. Tests are the files below a folder `tests`, modules in
files of their own behind `#[cfg(test)]`, what stands in a file behind `#[cfg(test)] mod`, and the planted bugs.
Manifests and settings in TOML are not counted. `ci/budget.py` uses the numbers.
"""

import ast
import pathlib
import re
import subprocess
import sys

CODE = {".rs", ".py", ".cu", ".cuh", ".cpp", ".c", ".h", ".sh"}
PLANTED = "ci/planted.toml"
TESTS_FILE = re.compile(r"^#\[cfg\([^\n]*\btest\b[^\n]*\)\]\n(?:#\[[^\n]*\]\n)*mod tests;", re.M)
MODULE = re.compile(r"^#\[cfg\([^\n]*\btest\b[^\n]*\)\]\n(?:#\[[^\n]*\]\n)*mod \w+ \{", re.M)


def is_counted(path):
    return path == PLANTED or pathlib.PurePosixPath(path).suffix in CODE


def files(revision):
    """Every file of code at a revision, with its text; without a revision those of the working tree."""
    if revision is None:
        listed = subprocess.run(["git", "ls-files", "-z"], stdout=subprocess.PIPE, check=True).stdout.decode()
        paths = [pathlib.Path(name) for name in listed.split("\0") if name and is_counted(name)]
        return {path.as_posix(): path.read_text(errors="replace") for path in paths if path.is_file() and not path.is_symlink()}
    listed = subprocess.run(["git", "ls-tree", "-r", "-z", revision], stdout=subprocess.PIPE, check=True).stdout
    entries = [entry.split("\t") for entry in listed.decode().split("\0") if entry]
    entries = [(path, head.split()[2]) for head, path in entries if is_counted(path)]
    objects = "".join(f"{number}\n" for _, number in entries).encode()
    content = subprocess.run(["git", "cat-file", "--batch"], input=objects, stdout=subprocess.PIPE, check=True).stdout
    at, texts = 0, {}
    for path, _ in entries:
        line = content.index(b"\n", at)
        length = int(content[at:line].split()[2])
        texts[path] = content[line + 1 : line + 1 + length].decode(errors="replace")
        at = line + 1 + length + 1
    return texts


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
    mark = "#" if suffix in (".py", ".sh", ".toml") else "//"
    lines = ((number, line.strip()) for number, line in enumerate(text.splitlines(), 1))
    return sum(1 for number, line in lines if line and not line.startswith(mark) and number not in docs)


def is_test(path, texts):
    """Whether a file has tests alone. `tests.rs` may also be a module of the product."""
    parts = pathlib.PurePosixPath(path)
    if path == PLANTED or "tests" in parts.parts[:-1] or "testkit" in parts.parts:
        return True
    if parts.name != "tests.rs":
        return False
    folder = parts.parent
    above = [f"{folder}.rs", *(f"{folder}/{name}.rs" for name in ("mod", "lib"))]
    return any(TESTS_FILE.search(texts[one]) for one in above if one in texts)


def room(path):
    parts = pathlib.PurePosixPath(path).parts
    return "/".join(parts[:2]) if parts[0] == "crates" else parts[0]


def count(texts):
    """Lines of code and of tests per room."""
    counts = ({}, {})
    for path, text in texts.items():
        suffix = pathlib.PurePosixPath(path).suffix
        before, *behind = MODULE.split(text, maxsplit=1) if suffix == ".rs" else [text]
        for place, part in [(is_test(path, texts), before), *((True, part) for part in behind)]:
            counts[place][room(path)] = counts[place].get(room(path), 0) + code(suffix, part)
    return counts


def table(title, revisions, columns):
    rooms = sorted({room for column in columns for room in column})
    rows = [(room, [column.get(room, 0) for column in columns]) for room in rooms]
    rows.append(("sum", [sum(column.values()) for column in columns]))
    print(f"{title:<24}" + "".join(f"{name:>12}" for name in revisions) + ("  difference" if len(columns) > 1 else ""))
    for room, numbers in rows:
        last = f"{numbers[-1] - numbers[0]:>+12,}" if len(numbers) > 1 else ""
        print(f"{room:<24}" + "".join(f"{number:>12,}" for number in numbers) + last)


if __name__ == "__main__":
    revisions = sys.argv[1:] or ["HEAD"]
    counted = [count(files(revision)) for revision in revisions]
    table("code", revisions, [code for code, _ in counted])
    print()
    table("tests", revisions, [tests for _, tests in counted])
