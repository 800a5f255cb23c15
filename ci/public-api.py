#!/usr/bin/env python3
"""Counts the public methods in the documentation of the crate feedline, and fails above the limit.

Counted are the functions that a user sees on the pages that rustdoc writes: inherent methods and associated
functions of every type, also of types of other crates that feedline exports; methods of its traits; free functions.
Not counted: implementations of traits such as Debug or Iterator, hidden items, and the crate cudarc, which is
exported whole.

    ci/public-api.py            builds the documentation and prints the number
    ci/public-api.py --list     also prints the number for each type, the largest first
"""

import pathlib
import re
import shutil
import subprocess
import sys

# Raise it only for what a user would miss.
LIMIT = 460

ROOT = pathlib.Path(__file__).resolve().parent.parent
METHOD = re.compile(r'<section id="(?:ty)?method\.[^"]*" class="method">')
# What follows on the page of a type, or of a trait, are implementations of traits.
END = re.compile(r'<h2 id="(?:trait-implementations|synthetic-implementations|implementors|foreign-impls)"')


def pages(folder):
    """The page of each item by the item's name; a re-export in a module is the item itself."""
    found = {}
    for page in sorted(folder.rglob("*.html"), key=lambda page: len(page.parts)):
        kind, _, name = page.stem.partition(".")
        if "cudarc" in page.parts:  # exported whole
            continue
        if kind in ("struct", "enum", "union", "trait", "fn"):
            found.setdefault((kind, name), page)
    return found


def count(kind, page):
    if kind == "fn":
        return 1
    text = page.read_text()
    end = END.search(text)
    return len(METHOD.findall(text[: end.start() if end else len(text)]))


def main(arguments):
    # Pages of items that are gone would be counted.
    shutil.rmtree(ROOT / "target/doc/feedline", ignore_errors=True)
    build = [
        "cargo",
        "doc",
        "--quiet",
        "--locked",
        "--package",
        "feedline",
        "--no-deps",
        "--target-dir",
        "target",
    ]
    if subprocess.run(build, cwd=ROOT).returncode != 0:
        sys.exit("public-api: the documentation does not build")
    found = pages(ROOT / "target/doc/feedline")
    counts = {key: count(key[0], page) for key, page in found.items()}
    if "--list" in arguments:
        for (kind, name), number in sorted(counts.items(), key=lambda row: (-row[1], row[0])):
            print(f"{number:4} {kind} {name}")
    total = sum(counts.values())
    # Only what is written in feedline itself has a link to its source.
    own = sum(counts[key] for key, page in found.items() if "src/feedline/" in page.read_text())
    print(f"public-api: {own} of feedline itself, {total - own} of the crates whose items it exports")
    print(f"public-api: {total} public methods and functions on {len(counts)} items, at most {LIMIT}")
    sys.exit(0 if total <= LIMIT else f"public-api: {total} are more than {LIMIT}: hide what no user needs")


if __name__ == "__main__":
    main(sys.argv[1:])
