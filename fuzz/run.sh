#!/bin/sh
# Builds every fuzz target and runs each for SECONDS (default 10), as many at a time as there are processors; a PATTERN picks targets by name.
#
#   fuzz/run.sh [SECONDS] [PATTERN]
#
# Needs neither cargo-fuzz nor nightly: the coverage that libFuzzer steers by is a plain compiler pass. Each run begins with the committed
# seeds of fuzz/seeds/TARGET. Inputs that were found useful are added to fuzz/corpus/TARGET, which is not committed; `fuzz/seeds.sh` picks new
# seeds from them. An input that fails is left in fuzz/artifacts/TARGET; the target's binary with the input as argument shows the failure again.
# FUZZ_JOBS is the number of targets at a time.
set -eu

cd "$(dirname "$0")"
target_dir=${CARGO_TARGET_DIR:-$PWD/target}/fuzz

# Runs one target: `fuzz/run.sh --one TARGET SECONDS BINARIES`.
if [ "${1:-}" = --one ]; then
    target=$2 seconds=$3 binaries=$4
    mkdir -p "corpus/$target" "artifacts/$target"
    log=$(mktemp)
    status=0
    dictionary=
    [ ! -f "fuzz_targets/$target.dict" ] || dictionary=-dict=fuzz_targets/$target.dict
    "$binaries/$target" -max_total_time="$seconds" -timeout=5 -rss_limit_mb=2048 -print_final_stats=1 \
        $dictionary -artifact_prefix="artifacts/$target/" "corpus/$target" "seeds/$target" >"$log" 2>&1 || status=1
    runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
    echo "== $target: ${runs:-0} inputs in $seconds s"
    if [ "$status" != 0 ]; then
        tail -40 "$log"
        : >"artifacts/$target/failed"
    fi
    rm -f "$log"
    exit 0
fi

seconds=${1:-10}
pattern=${2:-}
chosen=
ran=0
for source in fuzz_targets/*.rs; do
    target=$(basename "$source" .rs)
    if ! grep -q "^path = \"fuzz_targets/$target.rs\"$" Cargo.toml; then
        echo "fuzz: $source has no [[bin]] in fuzz/Cargo.toml" >&2
        exit 2
    fi
    if ! [ -d "seeds/$target" ]; then
        echo "fuzz: there is no directory fuzz/seeds/$target; put at least one input there" >&2
        exit 2
    fi
    case $target in
        *"$pattern"*) chosen="$chosen $target"; ran=$((ran + 1)); rm -f "artifacts/$target/failed" ;;
    esac
done
if [ "$ran" = 0 ]; then
    echo "fuzz: no target matches '$pattern'; see fuzz/fuzz_targets" >&2
    exit 2
fi

RUSTFLAGS="--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
-Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
-Cllvm-args=-sanitizer-coverage-trace-compares -Ccodegen-units=1" \
    cargo build --locked --release --target "$(rustc -vV | sed -n 's/^host: //p')" --target-dir "$target_dir"
binaries=$(echo "$target_dir"/*/release)

printf '%s\n' $chosen | xargs -P "${FUZZ_JOBS:-$(nproc)}" -I TARGET ./run.sh --one TARGET "$seconds" "$binaries"

failed=
count=0
for target in $chosen; do
    [ ! -e "artifacts/$target/failed" ] || { failed="$failed $target"; count=$((count + 1)); }
done
if [ "$count" != 0 ]; then
    echo "fuzz: $ran targets, $seconds s each, $count failed:$failed (inputs in fuzz/artifacts)"
    exit 1
fi
echo "fuzz: $ran targets, $seconds s each, 0 failed"
