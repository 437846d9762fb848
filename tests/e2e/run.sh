#!/bin/sh
# Runs the end-to-end tests in build/venv, which it makes once. Without pip's index they are skipped.
set -eu
cd "$(dirname "$0")/../.."
venv=build/venv
if ! "$venv/bin/python" -c 'import pytest, openai' 2>/dev/null; then
  echo "e2e: installing pytest and openai into $venv" >&2
  if ! { python3 -m venv "$venv" && "$venv/bin/pip" install -q --disable-pip-version-check 'pytest>=8,<9' 'openai>=1.50,<3'; }; then
    echo "e2e: skipped: pytest and openai cannot be installed (is pip offline?)"
    exit 0
  fi
fi
exec "$venv/bin/python" -m pytest -q -p no:cacheprovider tests/e2e "$@"
