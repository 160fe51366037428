#!/bin/sh
# Picks the seeds of fuzz targets anew: the smallest inputs of fuzz/corpus and fuzz/seeds that together cover what all of them cover, at
# most 16 of each target and none above 1 KiB. Run it behind a long fuzz/run.sh; a PATTERN picks targets by name.
set -eu

cd "$(dirname "$0")"
binaries=$(echo "${CARGO_TARGET_DIR:-$PWD/target}"/fuzz/*/release)
for source in fuzz_targets/*.rs; do
    target=$(basename "$source" .rs)
    case $target in
        *"${1:-}"*) ;;
        *) continue ;;
    esac
    picked=$(mktemp -d)
    mkdir -p "seeds/$target" "corpus/$target"
    "$binaries/$target" -merge=1 -max_len=1024 "$picked" "seeds/$target" "corpus/$target" >/dev/null 2>&1
    if [ -n "$(ls "$picked")" ]; then
        rm -rf "seeds/$target"
        mkdir "seeds/$target"
        # The largest say most.
        find "$picked" -type f -size -1024c -printf '%s %p\n' | sort -rn | head -16 | while read -r _ file; do
            cp "$file" "seeds/$target/"
        done
    fi
    rm -rf "$picked"
    echo "$target: $(find "seeds/$target" -type f | wc -l) seeds"
done
