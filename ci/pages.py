#!/usr/bin/env python3
"""Checks that what the pages name exists: links, and in `code` files, types, functions, modules and tests.

Pages are the tracked .md files. A path is a tracked file or folder: from the page, from the root, or the end of one,
as `decode/batch.rs`. Every part of another name, as `Loader` and `epoch` of `Loader::epoch`, occurs in the code. Names
of others that the code lacks are listed below. Blocks of code are tested elsewhere. The list of rooms.md is checked by
`way.py`. A page that lists a folder lists all of it. Every script of ci/ is called by another, or named by a page.
"""

import itertools
import pathlib
import re
import subprocess
import sys

import way

CODE = {".rs", ".py", ".pyi", ".cu", ".sh", ".toml", ".c", ".h", ".yml", ".txt"}
FILE = re.compile(r"\.(?:rs|py|pyi|cu|sh|md|toml)$")
COMMENT = re.compile(r"\s*(?://[/!]?|#:?)\s(.*)")
NAME = re.compile(r"^[A-Za-z_][\w.:]*(?:\(.*\))?$")
# Names of PyTorch, CUDA and others that the code does not use.
OTHERS = set(
    """
    NCCL_SOCKET_IFNAME PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES b136fd0c9912a5fe external_source from_generator
    get_worker_info jax_enable_x64 last_batch_policy num_parallel_calls padded_batch par_iter prefetch_to_device
    sample_from_datasets shard_id
    """.split()
)

# Parts of every crate or folder, which a page need not name.
USUAL = {"README.md", "Cargo.toml", "Cargo.lock", "src", "tests", "lib", "main", "mod", ".gitignore"}

ROOT = pathlib.Path(__file__).resolve().parent.parent


def tracked():
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, stdout=subprocess.PIPE, check=True).stdout
    return [name for name in listed.decode().split("\0") if name and (ROOT / name).is_file()]


def expanded(name):
    """`a/{b,c}.rs` is two names."""
    parts = re.split(r"\{([^{}]*)\}", name)
    choices = [part.split(",") if at % 2 else [part] for at, part in enumerate(parts)]
    return ["".join(choice) for choice in itertools.product(*([one.strip() for one in choice] for choice in choices))]


def left_out(page, names):
    """The files and folders beside a page that it does not name, if its tables or lists name three or more."""
    folder = pathlib.PurePosixPath(page).parent
    entries = {
        pathlib.PurePosixPath(name).relative_to(folder).parts[0].removesuffix(".rs").removesuffix(".py")
        for name in names
        if pathlib.PurePosixPath(name).is_relative_to(folder)
    }
    lines = (ROOT / page).read_text().splitlines()

    def named(lines):
        spans = [span for line in lines for span in re.findall(r"`([^`]+)`|\]\(([^)#\s]+)", line)]
        words = (word.rstrip("/") for span in spans for one in filter(None, span) for word in expanded(one))
        return {word.removesuffix(".rs").removesuffix(".py") for word in words} & entries

    rows = [line for line in lines if re.match(r"\s*[|*-] ", line)]
    return sorted(entries - named(lines) - USUAL) if len(named(rows)) >= 3 else []


def main():
    names = tracked()
    folders = {parent.as_posix() for name in names for parent in pathlib.PurePosixPath(name).parents}
    places = {*names, *folders}
    ends = {place[at + 1 :] for place in places for at, sign in enumerate(place) if sign == "/"} | places
    words = set()
    for name in names:
        words.update(re.findall(r"\w+", name))
        if pathlib.PurePosixPath(name).suffix in CODE:
            words.update(re.findall(r"\w+", (ROOT / name).read_text(errors="replace")))

    wrong = []

    def check_path(page, line, path):
        near = (pathlib.PurePosixPath(page).parent / path).as_posix()
        if not {path, near} & places and re.sub(r"^(\.\.?/)+", "", path) not in ends:
            wrong.append(f"{page}:{line}: there is no {path}")

    def check_name(page, line, name):
        for word in re.findall(r"\w+", name.partition("(")[0]):
            if word not in words and word not in OTHERS and not word.isdigit():
                wrong.append(f"{page}:{line}: the code has no {word}, as in {name}")

    def check(page, line, span):
        is_command = " " in re.sub(r"\{[^{}]*\}|\(.*\)", "", span)
        for word in span.split() if is_command else expanded(span):
            is_path = FILE.search(word) or "/" in word and word.split("/")[0] in tops
            # A pattern, a URL, a place that the reader fills in, another's package.
            if re.search(r"[*<>$=?]|//|NAME|^package\.", word):
                continue
            if is_path:
                check_path(page, line, word.rstrip("/"))
            elif NAME.match(word) and not is_command and not re.search(r"(^|[:.])x(_|$)|_x$", word):
                check_name(page, line, word)

    tops = {name.split("/")[0] for name in names if "/" in name}
    for page in names:
        if not page.endswith(".md") or page.startswith("benches/runs/"):
            continue
        is_code = False
        for line, text in enumerate((ROOT / page).read_text().splitlines(), 1):
            if text.lstrip().startswith("```"):
                is_code = not is_code
            elif not is_code:
                for span in re.findall(r"`([^`]+)`", text):
                    check(page, line, span)
                for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text):
                    near = ROOT / pathlib.PurePosixPath(page).parent / target
                    if "://" not in target and not near.exists():
                        wrong.append(f"{page}:{line}: the link {target} leads nowhere")
    for name in names:
        suffix = pathlib.PurePosixPath(name).suffix
        if suffix not in {".rs", ".py", ".sh", ".cu"}:
            continue
        for line, text in enumerate((ROOT / name).read_text(errors="replace").splitlines(), 1):
            comment = COMMENT.match(text)
            for path in re.findall(r"`([\w./{},-]+\.(?:rs|py|pyi|cu|sh|md))`", comment[1]) if comment else []:
                for one in expanded(path):
                    check_path(name, line, one)
    for page in names:
        if pathlib.PurePosixPath(page).name == "README.md" and not page.startswith("benches/runs/"):
            wrong += [f"{page}: lists its folder without {entry}" for entry in left_out(page, names)]
    # A script of ci/ is called by another, or a page says when to call it.
    callers = [name for name in names if name == ".ci/run" or name.startswith(("ci/", ".github/")) or name.endswith(".md")]
    texts = {name: (ROOT / name).read_text() for name in callers if not name.startswith("benches/runs/")}
    for name in names:
        script = pathlib.PurePosixPath(name).name
        is_script = name.startswith("ci/") and name.endswith((".sh", ".py"))
        if is_script and not any(
            re.search(rf"\b{re.escape(script)}\b|^import {script[:-3]}$", text, re.M)
            for caller, text in texts.items()
            if caller != name
        ):
            wrong.append(f"{name}: no script calls it, and no page names it")
    listed, files, types = way.check()
    wrong += listed
    print("\n".join(wrong))
    print(f"way: {files} files, {types} types")
    print(f"pages: {len(wrong)} names that do not exist")
    sys.exit(1 if wrong else 0)


main()
