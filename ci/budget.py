#!/usr/bin/env python3
"""Holds the code to ci/budget.toml: lines of code per room, long files, folders at the top, the way of a batch, names.

    ci/budget.py           fails if a number is above its limit, or a limit was raised without a reason
    ci/budget.py --lower   lowers each limit to what is there; it raises none

A limit is raised by hand, and its line says why: `code = 900 # 850 before: the reason`. The script compares the file
with its last commit, or with the one before that if it has not changed since, so the number before must stand there.
Tests have no limit. Public names and methods (`api`) are counted by `ci/public-api.py`, which needs the documentation.
Of the way (`way`), files and types are those of the list here; `ci/way.sh` counts all four numbers of what runs, and
they are lowered by hand.
"""

import pathlib
import re
import runpy
import subprocess
import sys
import tomllib

import way

ROOT = pathlib.Path(__file__).resolve().parent.parent
FILE = "ci/budget.toml"
#: A file of more lines, with comments, is long.
LONG = 400
#: Limits that only `ci/way.sh` knows the numbers of.
RAN = {("way", "functions"), ("way", "lines")}
#: Limits of lines are multiples of it, so that a small mending needs no new limit.
STEP = 50
LIMIT = re.compile(r'^(?P<name>[\w"/.-]+) = (?P<number>[\d_]+)(?P<why> *#.*)?$')


def limits(text):
    """Each limit of a text, by table and name, with its comment."""
    found, table = {}, ""
    for line in text.splitlines():
        if line.startswith("["):
            table = line.strip("[]")
        elif match := LIMIT.match(line):
            found[table, match["name"].strip('"')] = (int(match["number"]), match["why"] or "")
    return found


def there():
    """What is there, by table and name as in the file."""
    lines = runpy.run_path(str(ROOT / "ci/code-lines.py"))
    texts = lines["files"](None)
    code, _ = lines["count"](texts)
    long = [path for path, text in texts.items() if not lines["is_test"](path, texts) and text.count("\n") > LONG]
    found = {("code", room): number for room, number in code.items()}
    found["whole", "code"] = sum(code.values())
    found["whole", "long_files"] = len(long)
    listed = subprocess.run(["git", "ls-files", "-z"], stdout=subprocess.PIPE, check=True).stdout.decode().split("\0")
    tops = {name.split("/")[0] for name in listed if "/" in name and (ROOT / name).is_file()}
    found["whole", "folders"] = sum(not top.startswith(".") for top in tops)
    found["whole", "crates"] = sum(
        name.count("/") == 2 and name.startswith("crates/") and name.endswith("/Cargo.toml") for name in listed
    )
    _, found["way", "files"], found["way", "types"] = way.check()
    return found


def committed():
    """The file at its last commit, or at the one before that if it has not changed since; None without a history."""
    log = ["git", "log", "-2", "--format=%H", "--", FILE]
    versions = subprocess.run(log, stdout=subprocess.PIPE, check=True).stdout.decode().split()
    texts = [subprocess.run(["git", "show", f"{one}:{FILE}"], stdout=subprocess.PIPE) for one in versions]
    known = [text.stdout.decode() for text in texts if text.returncode == 0]
    return next((text for text in known if text != (ROOT / FILE).read_text()), None)


def raised_in_silence(now, before):
    """The limits that are higher than before and do not name the number before and a reason."""
    for key, (number, why) in now.items():
        old = before.get(key, (number, ""))[0]
        if number > old and not re.match(rf" *# {old:_} before: \w", why):
            yield f"{'.'.join(key)} was {old:_} and is {number:_}: write `# {old:_} before: ` and the reason behind it"


def lowered(text, found):
    lines, table = [], ""
    for line in text.splitlines():
        if line.startswith("["):
            table = line.strip("[]")
        elif match := LIMIT.match(line):
            key = (table, match["name"].strip('"'))
            fits = -(-found.get(key, 0) // STEP) * STEP if key[-1] == "code" or table == "code" else found.get(key, 0)
            if key in found and table != "way" and fits < int(match["number"]):
                line = f"{match['name']} = {fits:_}"
        lines.append(line)
    return "".join(f"{line}\n" for line in lines)


def main(arguments):
    path = ROOT / FILE
    found, text = there(), path.read_text()
    if "--lower" in arguments:
        text = lowered(text, found)
        path.write_text(text)
    tomllib.loads(text)
    allowed, wrong = limits(text), []
    for (table, name), number in sorted(found.items()):
        if (table, name) not in allowed:
            wrong.append(f"{table}.{name} = {number:_} has no limit: add one")
        elif number > (limit := allowed[table, name][0]):
            wrong.append(f"{table}.{name} is {number:,}, at most {limit:,}: merge or delete, or raise it with the reason")
    gone = [key for key in allowed if key not in found and key[0] != "api" and key not in RAN]
    wrong += [f"{'.'.join(key)} is nowhere in the tree: delete its limit" for key in gone]
    before = committed()
    if before is None:
        print("not run: the comparison of budgets (no earlier commit of the file)")
    else:
        wrong += raised_in_silence(allowed, limits(before))
    for line in wrong:
        print(f"budget: {line}", file=sys.stderr)
    print(f"budget: {found['whole', 'code']:,} lines of code in {sum(t == 'code' for t, _ in found)} rooms, "
          f"{found['whole', 'long_files']} files above {LONG} lines, {found['whole', 'folders']} folders")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
