#!/usr/bin/env bash
# Checks the Python package python/: lints, a wheel, and its tests in an environment of their own. Its first
# build takes ten minutes on two cores.
#
#   ci/python.sh           lints, builds and tests; NumPy always, other libraries where they can be installed
#   ci/python.sh wheel     builds the wheel for other machines into target/ci/wheels (glibc 2.17; needs zig)
#
# FEEDLINE_PYTHON names an interpreter that has the libraries of the tests; by default they are installed.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD environment=$PWD/target/ci/python

if [ ! -x "$environment/bin/python" ]; then
    "${FEEDLINE_PYTHON:-python3}" -m venv --system-site-packages "$environment"
fi
python=$environment/bin/python
"$python" -m pip install --quiet 'maturin>=1.8,<2' 'numpy>=2.1' pytest

if [ "${1:-}" = wheel ]; then
    "$python" -m pip install --quiet ziglang
    cd python
    time "$python" -m maturin build --locked --release --zig --compatibility manylinux2014 --out "$root/target/ci/wheels"
    ls -l "$root/target/ci/wheels"
    exit
fi

# One at a time: what cannot be installed is said by the tests.
for library in pyarrow pillow ml_dtypes safetensors webdataset mosaicml-streaming datasets tqdm mypy pyright jax torch; do
    "$python" -m pip install --quiet "$library" || echo "no $library: is there a network?"
done

cd python
cargo fmt --check
cargo clippy --locked --all-targets -- -D warnings
time "$python" -m maturin build --locked --out "$root/target/ci/wheels-test"
"$python" -m pip install --quiet --force-reinstall --no-deps "$root"/target/ci/wheels-test/feedline-*.whl
"$python" -m mypy --strict feedline || exit 1
# From another folder: the package that is installed is tested, not the one that lies here.
cd "$root/target/ci"
"$python" -m pytest -q -rs "$root/python/tests"
