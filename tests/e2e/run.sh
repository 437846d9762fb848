#!/bin/sh
# Runs the end-to-end tests in build/venv, which it makes once. Without pip's index they are skipped.
set -eu
cd "$(dirname "$0")/../.."
venv=build/venv wanted=tests/e2e/requirements.txt
if ! cmp -s "$wanted" "$venv/requirements.txt"; then
  echo "e2e: installing $wanted into $venv" >&2
  if ! { python3 -m venv "$venv" && "$venv/bin/pip" install -q --disable-pip-version-check -r "$wanted"; }; then
    echo "e2e: skipped: $wanted cannot be installed (is pip offline?)"
    exit 0
  fi
  cp "$wanted" "$venv/requirements.txt"
fi
exec "$venv/bin/python" -m pytest -q -p no:cacheprovider tests/e2e "$@"
