#!/bin/sh
# SPDX-License-Identifier: MIT
# Checks wake.pml with spin: the right model in several sizes, that it always comes to rest, and each broken variant.
# One line a check, "ok NAME" or "FAIL NAME"; the last line is "N passed, M failed".
set -u
model=$(cd "$(dirname "$0")" && pwd)/wake.pml
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
trap 'exit 1' HUP INT TERM
cd "$dir" || exit 1
passed=0
failed=0
cc=${CC:-cc}

# build FLAGS_FOR_CC FLAGS_FOR_SPIN...
build() {
    cflags=$1
    shift
    rm -f pan pan.* ./*.trail
    spin -a "$@" "$model" >out 2>&1 && $cc -w -DCOLLAPSE -DMEMLIM=4000 $cflags -o pan pan.c >>out 2>&1
}

# verdict NAME GOOD
verdict() {
    if [ "$2" = yes ]; then
        passed=$((passed + 1))
        echo "ok $1 (states:$(sed -n 's/^ *\([0-9]*\) states, stored.*/ \1/p' out))"
    else
        failed=$((failed + 1))
        echo "FAIL $1"
        sed 's/^/# /' out | head -20
    fi
}

complete() {
    grep -q 'errors: 0' out && ! grep -Eq 'max search depth too small|out of memory|Search not completed' out
}

# holds HOW_TO_COMPILE NAME FLAGS_FOR_SPIN...: compiling for speed takes longer than most checks do
holds() {
    how=$1 name=$2
    shift 2
    build "$how -DSAFETY" "$@" && ./pan -m100000 >out 2>&1 && complete && verdict "$name" yes || verdict "$name" no
}

rests() {
    name=$1
    shift
    build '-O0 -DNP -DNOFAIR' "$@" && ./pan -l -m100000 >out 2>&1 && complete &&
        verdict "$name" yes || verdict "$name" no
}

caught() {
    name=$1
    shift
    build '-O0 -DSAFETY' "$@" && ./pan -m100000 >out 2>&1
    grep -q 'assertion violated' out && grep -q 'errors: 1' out && verdict "$name" yes || verdict "$name" no
}

two="-DPS=2 -DMS=2" three="-DPS=2 -DMS=3"

holds -O0 two_ps_three_threads $three -DSPAWNS=1 -DFOREIGN=1
holds -O0 two_ps_and_a_busy_foreign_thread $two -DSPAWNS=1 -DFOREIGN=3
holds -O0 half_of_a_queue_is_stolen $three -DSPAWNS=3 -DFOREIGN=0
holds -O1 three_ps -DPS=3 -DMS=3 -DSPAWNS=1 -DFOREIGN=1
holds -O0 a_blocking_goroutine $three -DSPAWNS=1 -DFOREIGN=0 -DBLOCKS=1
holds -O0 lone_goroutines_two_ps $two -DHIDING -DSPAWNS=2 -DFOREIGN=0
holds -O0 lone_goroutines_three_ps -DPS=3 -DMS=3 -DHIDING -DSPAWNS=1 -DFOREIGN=0
holds -O1 lone_goroutines_and_a_foreign_thread $two -DHIDING -DSPAWNS=1 -DFOREIGN=1
holds -O0 a_batch_that_is_looked_at_afterwards $two -DBATCH_IN_FLIGHT -DSPAWNS=0 -DFOREIGN=3
rests it_comes_to_rest $two -DSPAWNS=1 -DFOREIGN=1
rests it_comes_to_rest_with_lone_goroutines $two -DHIDING -DSPAWNS=1 -DFOREIGN=0

caught catches_no_look_again $three -DBROKEN_NO_LOOK_AGAIN -DSPAWNS=1 -DFOREIGN=1
caught catches_no_look_in_found $three -DBROKEN_NO_LOOK_IN_FOUND -DSPAWNS=1 -DFOREIGN=1
caught catches_check_before_publish $three -DBROKEN_CHECK_BEFORE_PUBLISH -DSPAWNS=1 -DFOREIGN=1
caught catches_lower_outside_lock $two -DBROKEN_LOWER_OUTSIDE_LOCK -DSPAWNS=1 -DFOREIGN=2
caught catches_no_rescue $two -DBROKEN_NO_RESCUE -DHIDING -DSPAWNS=2 -DFOREIGN=0
caught catches_no_bell $two -DBROKEN_NO_BELL -DHIDING -DSPAWNS=2 -DFOREIGN=0
caught catches_no_last_look $two -DBROKEN_NO_LAST_LOOK -DHIDING -DSPAWNS=2 -DFOREIGN=0
caught catches_a_batch_in_flight $two -DBROKEN_BATCH_IN_FLIGHT -DSPAWNS=0 -DFOREIGN=3

echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
