#!/usr/bin/env bash
# Makes .venv-mxnet, a Python with MXNet 1.9.1 for comparison with ringreel.recordio. Fails with a reason if that is not
# possible: MXNet's last version dates from 2022, needs a NumPy of that time, and exists only for x86-64 Linux.
#
# PYTHON names the interpreter; it must have a wheel of NumPy 1.23: 3.8 to 3.11.
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}
venv=.venv-mxnet

works() {
    "$venv/bin/python" -c 'import mxnet; assert mxnet.__version__ == "1.9.1", mxnet.__version__'
}

give_up() {
    echo "MXNet 1.9.1 is not available: $1" >&2
    exit 1
}

if [ -x "$venv/bin/python" ] && works 2>/dev/null; then
    exit 0
fi
[ "$(uname -sm)" = "Linux x86_64" ] || give_up "no wheel for $(uname -sm)"
"$python" -c 'import sys; sys.exit(not (3, 8) <= sys.version_info < (3, 12))' ||
    give_up "$("$python" --version) has no NumPy before 1.24; set PYTHON to a version from 3.8 to 3.11"
rm -rf "$venv"
"$python" -m venv "$venv" || give_up "$python cannot make a venv; on Debian, install python3-venv"
echo '*' >"$venv/.gitignore"
"$venv/bin/pip" install --quiet --disable-pip-version-check 'mxnet==1.9.1' 'numpy<1.24' 'opencv-python-headless<4.8' ||
    give_up "pip could not install it"

# Its library is linked to these two, which the wheel does not contain.
missing() {
    "$venv/bin/python" - <<'END'
import ctypes, ctypes.util
needed = {"libgomp1": "libgomp.so.1", "libquadmath0": "libquadmath.so.0"}
for package, name in needed.items():
    try:
        ctypes.CDLL(name)
    except OSError:
        print(package)
END
}
packages=$(missing)
if [ -n "$packages" ]; then
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        # shellcheck disable=SC2086 # a list
        { apt-get update && apt-get install --yes $packages; } >/dev/null 2>&1 || true
    fi
    packages=$(missing)
    [ -z "$packages" ] || give_up "install these packages: $(echo $packages)"
fi
works || give_up "installed, but cannot be imported"
