#!/bin/sh
# Builds every fuzz target and runs each for SECONDS (default 10); a PATTERN picks targets by name.
#
#   fuzz/run.sh [SECONDS] [PATTERN]
#
# Needs neither cargo-fuzz nor nightly: the coverage that libFuzzer steers by is a plain compiler pass. Inputs that were
# found useful stay in fuzz/corpus/TARGET; an input that fails is left in fuzz/artifacts/TARGET, and running the
# target's binary with it as argument shows the failure again.
set -eu

seconds=${1:-10}
pattern=${2:-}
cd "$(dirname "$0")"
target_dir=${CARGO_TARGET_DIR:-$PWD/target}/fuzz

RUSTFLAGS="--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
-Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
-Cllvm-args=-sanitizer-coverage-trace-compares -Ccodegen-units=1" \
    cargo build --release --target "$(rustc -vV | sed -n 's/^host: //p')" --target-dir "$target_dir"
binaries=$(echo "$target_dir"/*/release)

failed=
ran=0
for source in fuzz_targets/*.rs; do
    target=$(basename "$source" .rs)
    case $target in
        *"$pattern"*) ;;
        *) continue ;;
    esac
    mkdir -p "corpus/$target" "artifacts/$target"
    echo "== $target, $seconds s"
    ran=$((ran + 1))
    log=$(mktemp)
    dictionary=
    [ ! -f "fuzz_targets/$target.dict" ] || dictionary=-dict=fuzz_targets/$target.dict
    if "$binaries/$target" -max_total_time="$seconds" -timeout=5 -rss_limit_mb=2048 -print_final_stats=1 \
        $dictionary -artifact_prefix="artifacts/$target/" "corpus/$target" >"$log" 2>&1; then
        grep -E 'number_of_executed_units|Done ' "$log" || true
    else
        tail -40 "$log"
        failed="$failed $target"
    fi
    rm -f "$log"
done

if [ "$ran" = 0 ]; then
    echo "fuzz: no target matches '$pattern'; see fuzz/fuzz_targets" >&2
    exit 2
fi
if [ -n "$failed" ]; then
    echo "fuzz: failed:$failed (inputs in fuzz/artifacts)" >&2
    exit 1
fi
echo "fuzz: $ran targets, $seconds s each, no failure"
