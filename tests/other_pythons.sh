#!/usr/bin/env bash
# Runs the tests that need no torch on every other supported Python found here, each in an environment of its own. Those
# that start fleets of processes are left out, for time; MARKS="not torch" brings them back.
# PYTHONS="python3.13 /opt/python3.14/bin/python3" chooses them by name.
set -euo pipefail
cd "$(dirname "$0")/.."

# A name on PATH may be a shim that stands for no interpreter, so each one is asked.
works() { "$1" -c 'import sys, venv; sys.exit(sys.version_info[:2] != tuple(map(int, sys.argv[1].split("."))))' "$2" 2>/dev/null; }

find_python() {
  local version=$1 candidate
  for candidate in "python$version" "$HOME"/.pyenv/versions/"$version".*/bin/python; do
    if works "$candidate" "$version"; then
      echo "$candidate"
      return
    fi
  done
}

found=(${PYTHONS:-})
if [ ${#found[@]} -eq 0 ]; then
  own=$("${PYTHON:-python3}" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
  for version in 3.11 3.12 3.13 3.14; do
    [ "$version" = "$own" ] || found+=($(find_python "$version"))
  done
fi
if [ ${#found[@]} -eq 0 ]; then
  echo "==> no other Python from 3.11 to 3.14 was found; set PYTHONS to name one"
  exit 0
fi

marks=${MARKS:-not torch and not fleet}

environments=()
for python in "${found[@]}"; do
  version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
  env=.venv-$version
  stamp=$env/.installed
  if [ ! -e "$stamp" ] || [ requirements/dev.txt -nt "$stamp" ] || [ pyproject.toml -nt "$stamp" ]; then
    echo "==> installing the packages for Python $version"
    "$python" -m venv "$env"
    "$env/bin/python" -m pip --quiet --disable-pip-version-check install ${PIP_ARGS:-} -r requirements/dev.txt
    "$env/bin/python" -m pip --quiet --disable-pip-version-check install --no-deps --no-build-isolation -e .
    touch "$stamp"
  fi
  environments+=("$env")
done

# Side by side, since most of these tests wait more than they compute.
running=()
trap 'kill "${running[@]}" 2>/dev/null || true' EXIT
for env in "${environments[@]}"; do
  echo "==> tests that are $marks, on $("$env/bin/python" --version); a failure's output follows at the end"
  TEST_WORKERS=2 bash tests/run.sh "$env/bin/python" -m "$marks" --ignore tests/torch ${PYTEST_ARGS:-} >"$env/tests.log" 2>&1 &
  running+=($!)
done
failed=()
for number in "${!running[@]}"; do
  if wait "${running[$number]}"; then
    echo "==> ${environments[$number]}: $(tail -1 "${environments[$number]}/tests.log")"
  else
    failed+=("${environments[$number]}")
  fi
done
for env in "${failed[@]}"; do
  cat "$env/tests.log"
  echo "==> $env: these tests failed; all of their output is in $env/tests.log"
done
running=()
[ ${#failed[@]} -eq 0 ]
