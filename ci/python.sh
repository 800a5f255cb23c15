#!/usr/bin/env bash
# Checks the Python package python/: lints, a wheel, and its tests in an environment of their own. Its first
# build takes ten minutes on two cores.
#
#   ci/python.sh           lints, builds and tests; NumPy always, other libraries where they can be installed
#   ci/python.sh free      builds and tests the wheel for a free-threaded interpreter: FEEDLINE_PYTHON
#
# FEEDLINE_PYTHON names an interpreter that has the libraries of the tests; by default they are installed. The wheels of a
# release: ci/wheels.sh.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD environment=$PWD/target/ci/python features=() prebuilt=()
wheels=target/ci/wheels-test libraries="pyarrow pillow ml_dtypes safetensors webdataset mosaicml-streaming datasets"
libraries+=" tqdm rich pdoc ruff mypy pyright jax torch lightning accelerate transformers keras flax optax"
if [ "${1:-}" = free ]; then
    "${FEEDLINE_PYTHON:?name a free-threaded interpreter}" -c 'import sys; sys.exit(sys._is_gil_enabled())'
    # A stable ABI of both kinds of interpreters begins with 3.15.
    environment+=-free wheels+=-free features=(--no-default-features) libraries="pillow pyarrow"
    # Few libraries have wheels for it, and to build them takes longer than to build this.
    prebuilt=(--only-binary :all:)
fi

if [ ! -x "$environment/bin/python" ]; then
    "${FEEDLINE_PYTHON:-python3}" -m venv --system-site-packages "$environment"
fi
python=$environment/bin/python
"$python" -m pip install --quiet 'maturin>=1.8,<2' 'numpy>=2.1' pytest

# One at a time: what cannot be installed is said by the tests.
for library in $libraries; do
    "$python" -m pip install --quiet "${prebuilt[@]}" "$library" || echo "no $library: is there a network?"
done

cd python
cargo fmt --check
cargo clippy --locked --all-targets -- -D warnings
time "$python" -m maturin build --locked "${features[@]}" -i "$python" --out "$root/$wheels"
"$python" -m pip install --quiet --force-reinstall --no-deps "$root/$wheels"/feedline-*.whl
if [ "${1:-}" != free ]; then
    "$python" -m ruff check .
    "$python" -m mypy --strict feedline
    (cd examples && "$python" -m mypy --strict --config-file ../pyproject.toml .)
    "$python" -m pyright --pythonpath "$python" feedline
    FEEDLINE_PYTHON=$python "$root/ci/python-docs.sh"
fi
# From another folder: the package that is installed is tested, not the one that lies here.
cd "$root/target/ci"
"$python" -m pytest -q -rs "$root/python/tests"
