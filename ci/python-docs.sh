#!/usr/bin/env bash
# Renders the documentation of the Python package, a page per module with every class, into
# target/ci/python-docs, by pdoc; fails on a warning, such as a type that is not found, and on a public name
# without a docstring.
#
#   ci/python-docs.sh              with the package that `python3` has
#   FEEDLINE_PYTHON=... ci/python-docs.sh
set -euo pipefail
cd "$(dirname "$0")/.."
python=${FEEDLINE_PYTHON:-python3}
out=$PWD/target/ci/python-docs
if ! "$python" -c 'import pdoc' 2>/dev/null; then
    echo "not run: pages of the Python package (pip install pdoc)"
    exit 0
fi
"$python" - <<'PYTHON'
import inspect
import sys

import feedline

modules = {feedline.__name__: feedline, feedline.transforms.__name__: feedline.transforms}
bare = []
for module, of in modules.items():
    for name in of.__all__:
        value = getattr(of, name)
        if not (inspect.isclass(value) or inspect.isfunction(value)):
            continue
        if not inspect.getdoc(value):
            bare.append(f"{module}.{name}")
        for member, function in vars(value).items() if inspect.isclass(value) else ():
            function = getattr(function, "__func__", function)
            is_public = not member.startswith("_") and (callable(function) or isinstance(function, property))
            if is_public and not inspect.getdoc(function):
                bare.append(f"{module}.{name}.{member}")
sys.exit("".join(f"python-docs: {name} has no docstring\n" for name in bare) or 0)
PYTHON
rm -rf "$out"
# A NamedTuple's types lie in the module `typing` for pdoc, which lacks our names.
"$python" -W error -W "ignore:Error parsing type annotation ForwardRef" -m pdoc --docformat google --output-directory "$out" feedline
# A page has every public name.
"$python" - "$out" <<'PYTHON'
import pathlib
import sys

import feedline

page = pathlib.Path(sys.argv[1], "feedline.html").read_text()
missing = [name for name in feedline.__all__ if f'id="{name}"' not in page and name not in ("__version__", "transforms")]
sys.exit(f"python-docs: the page has no {missing}" if missing else 0)
PYTHON
echo "python-docs: $(find "$out" -name '*.html' | wc -l) pages in $out"
