#!/usr/bin/env python3
"""Counts the public methods in the documentation of the crates feedline and feedline-datasets together, and fails above
the limits in ci/budget.toml. Compares all public items of feedline with ci/public-api.txt, so that no change of its API
goes unnoticed.

Counted are also the names at the root of feedline, modules left out. No signature may name a type that the facade does not
export: rustdoc has no link for it.

Counted are the functions that a user sees on the pages that rustdoc writes: inherent methods and associated
functions of every type, also of types of other crates that feedline exports; methods of its traits; free functions.
Not counted: implementations of traits such as Debug or Iterator, hidden items, and the crate cudarc, which is
exported whole. Blocks of methods whose first heading is `For loaders` are counted by themselves, and are not in
ci/public-api.txt: they may change in any release.

    ci/public-api.py            builds the documentation and prints the number
    ci/public-api.py --list     also prints the number for each type, the largest first
    ci/public-api.py --bless    writes ci/public-api.txt; CHANGELOG.md says what broke

The text holds the declaration of each item, with public fields and variants, and the signature of each
method, as rustdoc writes them. It does not hold implementations of traits.
"""

import difflib
import html
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tomllib

ROOT = pathlib.Path(__file__).resolve().parent.parent
SAVED = ROOT / "ci/public-api.txt"
BUDGET = tomllib.loads((ROOT / "ci/budget.toml").read_text())["api"]
METHOD = re.compile(r'<section id="(?:ty)?method\.[^"]*" class="method">')
SIGNATURE = re.compile(METHOD.pattern + r'.*?<h4 class="code-header">(.*?)</h4>', re.DOTALL)
DECLARATION = re.compile(r'<pre class="rust item-decl"><code>(.*?)</code></pre>', re.DOTALL)
COUNTED = ("struct", "enum", "union", "trait", "fn")
# Modules with what other crates of feedline read: `record::file`, `report::waits`, `trace::content`.
FORMATS = ("file", "waits", "content")
# An `impl` with its methods, whose doc begins with the heading.
FOR_LOADERS = re.compile(
    r'<details class="toggle implementors-toggle" open><summary><section id="impl-[^"]*" class="impl">'
    r'(?:(?!</section>).)*<div class="docblock"><h\d id="for-loaders.*?'
    r'(?=<details class="toggle implementors-toggle"|<h2 id="|$)',
    re.DOTALL,
)
# What follows on the page of a type, or of a trait, are methods of the type that it derefs to, which are
# counted there, and implementations of traits.
END = re.compile(r'<h2 id="(?:deref-methods[^"]*|trait-implementations|synthetic-implementations|implementors|foreign-impls)"')


def pages(folder):
    """The page of each item by its kind and name. A re-export in a module is the item
    itself; of two items of one name, those beyond the first have the name of their module too, as `check::Report`."""
    found = {}
    for page in sorted(folder.rglob("*.html"), key=lambda page: (len(page.parts), page)):
        kind, _, name = page.stem.partition(".")
        # cudarc is exported whole; the page of a private module leads to the public one.
        is_item = kind in (*COUNTED, "constant", "type", "macro")
        if "cudarc" in page.parts or page.parent.name in FORMATS or not is_item or leads_on(page):
            continue
        first = found.setdefault((kind, name), page)
        if declaration(first) != declaration(page):
            found[kind, "::".join((*page.relative_to(folder).parent.parts, name))] = page
    return found


def leads_on(page):
    return 'http-equiv="refresh"' in page.read_text()[:400]


def declaration(page):
    found = DECLARATION.search(own_part(page))
    return plain(found.group(1)) if found else ""


def count(kind, page):
    if kind == "fn":
        return 1
    return len(METHOD.findall(own_part(page)))


def own_part(page):
    """The page without the implementations of traits."""
    text = page.read_text()
    end = END.search(text)
    return FOR_LOADERS.sub("", text[: end.start() if end else len(text)])


def count_for_loaders(page):
    """The methods of the blocks for loaders."""
    return sum(len(METHOD.findall(block)) for block in FOR_LOADERS.findall(page.read_text()))


def plain(code):
    """The text of a piece of a page, in one line."""
    text = html.unescape(re.sub(r"<[^>]*>", "", code.replace("<div", " <div"))).replace("\u24d8", "")
    text = re.sub(r"Show \d+ (?:methods|fields|variants)|\s+", " ", text)
    text = re.sub(r" +", " ", text).strip()
    return re.sub(r"([(\[]) |,? (?=[)\]])", r"\1", text)


def items(found):
    """One line for each item and each of its methods."""
    lines = set()
    for (kind, name), page in found.items():
        # The methods of a trait stand in its declaration too.
        lines.add(f"{kind} {name}: {declaration(page)}")
        if kind != "trait":
            lines.update(f"{kind} {name}: {plain(found)}" for found in SIGNATURE.findall(own_part(page)))
    return sorted(lines)


def not_exported(found):
    """The types that signatures name, and that have no page: without a link, and no type parameter."""
    wrong = set()
    for (kind, name), page in found.items():
        if kind not in COUNTED:
            continue
        for signature in SIGNATURE.findall(own_part(page)):
            unlinked = plain(re.sub(r"<a [^>]*>.*?</a>", "", signature))
            for word in re.findall(r"\b[A-Z][A-Za-z]+\b", unlinked):
                # Not associated types, nor cudarc, which is exported whole.
                if word not in ("Self", "Item") and not word.isupper() and not word.startswith("Cuda"):
                    wrong.add(f"{name}: {plain(signature)} names {word}")
    return sorted(wrong)


def compare(lines, bless):
    """Fails if the items are not those of the saved text."""
    if bless:
        SAVED.write_text("".join(f"{line}\n" for line in lines))
    saved = SAVED.read_text().splitlines()
    changes = [line for line in difflib.unified_diff(saved, lines, "saved", "now", lineterm="", n=0)]
    for line in changes:
        print(line)
    if changes:
        sys.exit("public-api: the API has changed: ci/public-api.py --bless writes it down")
    print(f"public-api: the {len(lines)} lines of {SAVED.relative_to(ROOT)}")


def main(arguments):
    # Pages of items that are gone would be counted.
    for crate in ("feedline", "feedline_datasets"):
        shutil.rmtree(ROOT / "target/doc" / crate, ignore_errors=True)
    # As the step `docs` of .ci/run, which leaves these two to build again.
    build = ["cargo", "doc", "--quiet", "--locked", "--workspace", "--no-deps", "--target-dir", "target"]
    if subprocess.run(build, cwd=ROOT, env={**os.environ, "RUSTDOCFLAGS": "-Dwarnings"}).returncode != 0:
        sys.exit("public-api: the documentation does not build")
    found, readers = pages(ROOT / "target/doc/feedline"), pages(ROOT / "target/doc/feedline_datasets")
    compare(items(found), "--bless" in arguments)
    counts = {key: count(key[0], page) for key, page in found.items() if key[0] in COUNTED}
    if "--list" in arguments:
        for (kind, name), number in sorted(counts.items(), key=lambda row: (-row[1], row[0])):
            print(f"{number:4} {kind} {name}")
    unknown = not_exported(found)
    for line in unknown:
        print(f"public-api: {line}", file=sys.stderr)
    root = [page for (kind, _), page in found.items() if page.parent == ROOT / "target/doc/feedline"]
    print(f"public-api: {len(root)} names at the root, at most {BUDGET['names']}")
    if unknown or len(root) > BUDGET["names"]:
        sys.exit("public-api: see above")
    total = sum(counts.values())
    # Only items of feedline itself link to its source.
    own = sum(number for key, number in counts.items() if "src/feedline/" in found[key].read_text())
    print(f"public-api: {own} of feedline itself, {total - own} of the crates whose items it exports")
    print(f"public-api: {total} public methods and functions on {len(counts)} items, at most {BUDGET['methods']}")
    # What feedline exports too is counted once.
    others = {key: count(key[0], page) for key, page in readers.items() if key[0] in COUNTED and key not in counts}
    of_both = total + sum(others.values())
    for_loaders = sum(map(count_for_loaders, [*found.values(), *readers.values()]))
    print(f"public-api: {of_both} with feedline-datasets, at most {BUDGET['of_both']}; "
          f"{for_loaders} methods for loaders beside them, at most {BUDGET['for_loaders']}")
    fits = total <= BUDGET["methods"] and of_both <= BUDGET["of_both"] and for_loaders <= BUDGET["for_loaders"]
    sys.exit(0 if fits else "public-api: too many: delete or merge what no user needs")


if __name__ == "__main__":
    main(sys.argv[1:])
