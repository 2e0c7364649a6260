#!/usr/bin/env bash
# Resolves requirements/*.in into requirements/*.txt with pip-tools, in an environment of its own.
set -euo pipefail
cd "$(dirname "$0")"
env=$(mktemp -d)
trap 'rm -rf "$env"' EXIT
"${PYTHON:-python3}" -m venv "$env"
"$env/bin/pip" --quiet install pip-tools
for name in dev torch; do
  echo "==> $name.txt"
  "$env/bin/pip-compile" --quiet --upgrade --no-header --strip-extras --allow-unsafe \
    --no-emit-index-url --no-emit-trusted-host --no-emit-find-links --no-emit-options \
    --output-file "$name.txt" "$name.in"
done
# A local build tag ("+cpu") names one machine's wheel; the version is what is pinned.
sed -i -E 's/^(torch==[0-9.]+)\+[a-z0-9]+/\1/' torch.txt
