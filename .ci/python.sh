#!/bin/sh
# Print the first interpreter of Python 3.11 or newer that can make virtual environments. PYTHON names another.
for candidate in ${PYTHON:-} python3 python3.14 python3.13 python3.12 python3.11; do
  if "$candidate" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then
    command -v "$candidate"
    exit 0
  fi
done
echo "no Python 3.11 or newer with the venv module was found (looked for python3, python3.14 ... python3.11)." >&2
echo "Install one (Debian: apt-get install python3 python3-venv), or name it: make PYTHON=/path/to/python3 ..." >&2
exit 1
