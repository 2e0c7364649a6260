#!/usr/bin/env bash
# Runs pytest with the interpreter and arguments given. Many tests race real processes against the clock, and a machine
# that was busy for a moment should not fail them: what failed runs once more, alone, and has to pass then.
set -uo pipefail
python=$1
shift
"$python" -m pytest --numprocesses "${TEST_WORKERS:-3}" --dist loadfile "$@"
status=$?
[ $status -eq 1 ] || exit $status
echo "==> running the tests that failed once more, alone; a test that fails again is broken, one that passes was slow"
exec "$python" -m pytest "$@" --numprocesses 0 --last-failed --last-failed-no-failures none
