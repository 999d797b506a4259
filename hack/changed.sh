#!/usr/bin/env bash
# Prints `-p PACKAGE` for each package of the workspace with files that differ from the commit $1 (default HEAD), for cargo.
set -euo pipefail
cd "$(dirname "$0")/.."

{ git diff --name-only "${1:-HEAD}" && git ls-files --others --exclude-standard; } | while read -r file; do
    folder=$(dirname "$file")
    while [ ! -f "$folder/Cargo.toml" ] && [ "$folder" != . ]; do folder=$(dirname "$folder"); done
    # The workspace itself and what is excluded from it are no packages of it.
    [ "$folder" = . ] || [ "$folder" = fuzz/libfuzzer ] || sed -n '/^name = /{s/name = "\(.*\)"/-p \1/p;q}' "$folder/Cargo.toml"
done | sort -u
