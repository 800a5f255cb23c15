#!/usr/bin/env bash
# The file map at the end of ARCHITECTURE.md: one line a file, the first sentence of the file itself.
# Without an argument it checks that the map is as the files say; with --write it makes it so.
set -euo pipefail
cd "$(dirname "$0")/.."

python3 - "${1:---check}" <<'PYTHON'
import pathlib, re, subprocess, sys

PAGE, BEGIN, END = pathlib.Path("ARCHITECTURE.md"), "<!-- map: by ci/map.sh --write -->\n", "<!-- end of map -->\n"
FOLDERS = ["crates/core", "crates/slots", "crates/device", "crates/decode", "crates/transfer", "crates/compute",
           "crates/feedline", "crates/testkit", "kernels", "datasets", "examples", "benches", "fuzz", "ci"]
# What stands in a folder of its own: data, cases, generated files.
CASES = {
    "crates/feedline/tests/compile_fail": "One misuse a file, and what the compiler says to it.",
    "fuzz/corpus": "The seeds of each target.",
    "fuzz/fuzz_targets": "Each target, handed to libFuzzer.",
    "kernels/ptx": "The PTX this crate carries.",
    "benches/runs": "Results, by date and machine.",
}

def files():
    asked = ["git", "ls-files", "--cached"]
    names = subprocess.run(asked, stdout=subprocess.PIPE, check=True, text=True).stdout.split("\n")
    return sorted(name for name in names if name and pathlib.Path(name).exists())

# A comment's lines, without its marks; the first paragraph of it, and of that the first sentence.
def first_sentence(name):
    text = pathlib.Path(name).read_text()
    text = re.sub(r"^#!.*\n", "", text)
    if name.endswith(".py"):
        found = re.match(r'"""(.*?)(?:\n\n|""")', text, re.S)
        paragraph = found.group(1) if found else ""
    else:
        mark = {".rs": r"//!", ".cu": r"//", ".cpp": r"//", ".c": r"//"}.get(pathlib.Path(name).suffix, r"#")
        lines = []
        for line in text.split("\n"):
            found = re.match(rf"{mark} ?(.*)", line)
            if not found or not found.group(1).strip():
                break
            lines.append(found.group(1))
        paragraph = " ".join(lines)
    paragraph = re.sub(r"\s+", " ", re.sub(r"\[(`[^`]*`)\](\([^)]*\))?", r"\1", paragraph)).strip()
    sentence = re.match(r"(.*?)(?<!\b[A-Z])\.+(?: |$)", paragraph)
    return sentence.group(1) if sentence else paragraph

def rows():
    names = files()
    for folder in FOLDERS:
        manifest = pathlib.Path(folder, "Cargo.toml")
        about = re.search(r'^description = "(.*)"', manifest.read_text(), re.M).group(1) if manifest.exists() else "One check a script."
        yield f"\n**{folder}**: {about}\n\n| file | what |\n| --- | --- |\n"
        for name in names:
            if name.startswith(folder + "/") and not any(name.startswith(case + "/") for case in CASES):
                if name.endswith((".rs", ".cu", ".cpp", ".c", ".py", ".sh")):
                    what = first_sentence(name)
                    if not what:
                        sys.exit(f"map: {name} does not begin with what it is")
                    yield f"| `{name[len(folder) + 1:]}` | {what} |\n"
        for case, what in CASES.items():
            if case.startswith(folder + "/") and any(name.startswith(case + "/") for name in names):
                yield f"| `{case[len(folder) + 1:]}/` | {what.rstrip('.')} |\n"

page = PAGE.read_text()
before, rest = page.split(BEGIN)
old, after = rest.split(END)
new = "".join(rows()) + "\n"
if sys.argv[1] == "--write":
    PAGE.write_text(before + BEGIN + new + END + after)
elif old != new:
    import difflib
    sys.stderr.writelines(difflib.unified_diff(old.splitlines(True), new.splitlines(True), "ARCHITECTURE.md", "the files", n=0))
    sys.exit("map: the file map is out of date: ci/map.sh --write")
print(f"map: {new.count(chr(10) + '| `')} lines, as the files say")
PYTHON
