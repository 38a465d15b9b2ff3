#!/bin/sh
# SPDX-License-Identifier: MIT
# Checks the models with spin: the right one in several sizes, that it always comes to rest where that is not plain, and
# each broken variant. Two at a time.
# One line a check, "ok MODEL/NAME" or "FAIL MODEL/NAME"; the last line is "N passed, M failed".
set -u
here=$(cd "$(dirname "$0")" && pwd)
dir=$(mktemp -d) || exit 1
lanes=
trap '[ -z "$lanes" ] || kill $lanes 2>/dev/null; rm -rf "$dir"' EXIT
trap 'exit 1' HUP INT TERM
cc=${CC:-cc}
quick=$(command -v tcc || echo "$cc") # what it makes is as fast as without optimisation, and it takes a hundredth of the time

# build FLAGS_FOR_CC FLAGS_FOR_SPIN...
build() {
    cflags=$1
    shift
    case $cflags in
    -O0*) compiler=$quick ;;
    *) compiler=$cc ;;
    esac
    rm -f pan pan.* ./*.trail
    spin -a "$@" "$here/$model.pml" >out 2>&1 && $compiler -w -DMEMLIM=4000 $cflags -o pan pan.c >>out 2>&1
}

# verdict NAME GOOD
verdict() {
    if [ "$2" = yes ]; then
        echo "ok $model/$1 (states:$(sed -n 's/^ *\([0-9]*\) states, stored.*/ \1/p' out))"
    else
        echo "FAIL $model/$1"
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

# caught VARIANT FLAGS_FOR_SPIN...: with -DBROKEN_VARIANT
caught() {
    variant=$1
    shift
    build '-O0 -DSAFETY' "-DBROKEN_$variant" "$@" && ./pan -m100000 >out 2>&1
    grep -q 'assertion violated' out && grep -q 'errors: 1' out && good=yes || good=no
    verdict "catches_$(echo "$variant" | tr '[:upper:]' '[:lower:]')" $good
}

wake() {
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

    caught NO_LOOK_AGAIN $three -DSPAWNS=1 -DFOREIGN=1
    caught NO_LOOK_IN_FOUND $three -DSPAWNS=1 -DFOREIGN=1
    caught CHECK_BEFORE_PUBLISH $three -DSPAWNS=1 -DFOREIGN=1
    caught LOWER_OUTSIDE_LOCK $two -DSPAWNS=1 -DFOREIGN=2
    caught NO_RESCUE $two -DHIDING -DSPAWNS=2 -DFOREIGN=0
    caught NO_BELL $two -DHIDING -DSPAWNS=2 -DFOREIGN=0
    caught NO_LAST_LOOK $two -DHIDING -DSPAWNS=2 -DFOREIGN=0
    caught BATCH_IN_FLIGHT $two -DSPAWNS=0 -DFOREIGN=3
}

wait_() {
    all="-DSENDS=1 -DCLOSES -DCANCELS -DTIMED" once=-DWAITS=1
    holds -O0 a_select_that_a_value_ends $once -DSENDS=1
    holds -O0 a_select_that_the_scope_ends $once -DCANCELS
    holds -O0 a_select_that_all_want_to_end $all
    holds -O1 a_receiver_that_waits_behind_it -DSENDS=2 -DRIVAL -DCLOSES -DCANCELS -DTIMED
    holds -O0 channels_are_freed_at_once $all -DFREES
    holds -O0 nothing_but_the_scope $once -DALONE -DCANCELS
    holds -O0 nothing_but_scope_and_time -DALONE -DCANCELS -DTIMED
    holds -O0 a_foreign_thread -DFOREIGN -DENDS -DSENDS=1 -DCLOSES -DTIMED
    holds -O0 a_foreign_thread_in_a_scope -DFOREIGN -DENDS -DSENDS=1 -DCANCELS
    holds -O1 a_foreign_thread_that_all_want_to_end $once $all -DFOREIGN -DENDS -DFREES

    caught NO_FENCE_WAITER $once -DCANCELS
    caught NO_FENCE_SCOPE $once -DCANCELS
    caught NO_LOOK $once -DCANCELS
    caught OPEN_ON_STACK $all
    caught OPEN_AFTER_GUARDS $once -DSENDS=1
    caught OPEN_UNGUARDED $once -DALONE -DCANCELS
    caught READ_AFTER_GUARDS $all
    caught READ_AFTER_HEAP $once -DALONE -DTIMED
    caught CLAIM_WITHOUT_SWAP $all
    caught CLAIM_UNGUARDED $all
    caught NODE_LEFT $all
    caught TOUCH_AFTER_WAKE $all
    caught WAKE_UNDER_GUARD $all -DFREES
    caught GIVE_UP $all -DRIVAL
    caught CUT_STAYS $all
    caught PEEK $all
    caught EARLY_TIMER $once -DALONE -DTIMED
    caught LATE_TIMER $all
    caught TIMER_RUNS_ON $all
    caught LEAVE_UNLOCKED $all
    caught NO_LOOK_AT_END $once -DFOREIGN -DENDS
    caught WOKEN_LATE $once -DFOREIGN -DCANCELS
    caught END_UNLOCKED $once -DFOREIGN -DENDS -DSENDS=1 -DTIMED
    caught NO_WAIT_AT_END $once -DFOREIGN -DENDS -DSENDS=1 -DTIMED
}

wg() {
    holds -O0 a_waiter_that_is_cut -DWS=1
    holds -O0 a_waiter_that_is_cut_and_waits_again -DWS=1 -DDONES=2 -DAGAIN
    holds -O0 two_waiters_one_is_cut
    holds -O0 two_waiters_both_are_cut -DCUTS=2 -DDONES=2

    for variant in NO_HANDSHAKE CUT_AT_ONCE CUT_STAYS CLEAR_AT_ZERO LIST_NULL WAKE_FIRST CLAIM_UNLOCKED ZERO_COUNT \
        FREE_BESIDE_CUT; do
        caught $variant
    done
    caught RETURN_AT_ZERO -DWS=1 -DAGAIN
}

runs() {
    holds -O0 two_runs -DFS=1
    holds -O0 two_threads_and_a_goroutine -DRUNS=1

    for variant in EVEN_RUN STALE_HEAD NO_RUN FREE_FIRST; do
        caught $variant -DFS=1 -DGOS=1
    done
}

mutex() {
    holds -O0 two_goroutines -DNS=2 -DROUNDS=3
    holds -O0 two_goroutines_both_are_cut -DNS=2 -DROUNDS=3 -DCUTS=2
    holds -O0 three_goroutines_two_are_cut -DCUTS=2
    holds -O1 three_goroutines_that_come_again -DROUNDS=2 -DCUTS=1

    for variant in NO_MEMBARRIER LOOK_FIRST LATE_LIGHT UNLISTED LIGHT_AT_ONCE LOOK_AFTER CUT_STAYS; do
        caught $variant -DCUTS=1
    done
    caught WOKEN_STAYS -DROUNDS=2 -DCUTS=1
    caught NOT_PASSED_ON -DROUNDS=2 -DCUTS=1

    holds -O0 owners_two_goroutines -DOWNERS -DNS=2 -DROUNDS=3 -DCUTS=1
    holds -O0 owners_three_goroutines -DOWNERS -DCUTS=1
    holds -O0 owners_three_goroutines_that_come_again -DOWNERS -DROUNDS=2
    caught HANDED_OPEN -DOWNERS -DROUNDS=2
}

netpoll() {
    once=-DREADS=1 one="-DRS=1 -DDATA=1"
    holds -O0 two_readers $once
    holds -O0 two_readers_that_come_again -DDATA=2 -DPOLLERS=2
    holds -O0 a_reader_and_the_end -DRS=1 -DREADS=3 -DFINS -DPOLLERS=2
    holds -O0 two_readers_and_the_end $once -DDATA=2 -DFINS
    holds -O0 two_readers_one_is_cut $once -DDATA=2 -DCUTS=1
    holds -O0 a_read_that_fails $once -DDATA=2 -DFAILS=1
    holds -O0 a_watcher_of_both_sides $once $one -DWATCHES
    holds -O0 a_watcher_and_a_writer $once $one -DWATCHES -DWRITES
    holds -O0 a_close $once -DDATA=0 -DCLOSES
    holds -O1 a_close_and_data $once -DDATA=1 -DCLOSES
    holds -O0 a_close_behind_our_back -DBACK

    caught NO_READY $once -DDATA=1
    caught READY_ALONE $once
    caught NO_PASS $once
    caught NO_PASS_ON_ERROR -DFAILS=1 -DDATA=1
    caught CUT_TAKES_EVENT $once -DCUTS=1 -DDATA=1
    caught EMPTY_FOR_EVER -DRS=1 -DDATA=2
    caught EPOCH_AFTER_READ -DRS=1 -DDATA=2
    caught NO_SHUT $one -DFINS
    caught SHUT_LATE $one -DFINS
    caught ASK_LATE $one
    caught WATCHED_LATE $once $one -DWATCHES
    caught WATCHERS_FIRST $once $one -DWATCHES
    caught NO_LIFE_ON_EVENT $once -DDATA=2 -DCLOSES
    caught NO_LIFE_ON_RESUME $once -DDATA=1 -DCLOSES
    for variant in CALLS_NOT_AWAITED WAITS_LEFT OPEN_LATE OPEN_EARLY; do
        caught $variant $once -DDATA=0 -DCLOSES
    done
    caught NO_DOUBT $once -DBACK
    caught DOUBT_DROPPED $once -DBACK
    caught DOUBT_LATE $once -DBACK
}

poller() {
    holds -O0 two_threads
    holds -O0 two_threads_two_ps -DPS=2 -DEVENTS=1 -DFOREIGN=2
    holds -O0 three_threads_two_ps -DMS=3 -DPS=2 -DEVENTS=1
    holds -O0 a_blocking_goroutine -DEVENTS=1 -DBLOCKS=1
    holds -O0 superfluous_threads -DMS=3 -DEVENTS=1 -DFOREIGN=0 -DNOBODYS=1 -DKEEP=1
    holds -O0 the_end_of_the_run -DEVENTS=1 -DSTOPS

    for variant in NOT_CLEARED FUTEX_ONLY WAKE_UNLOCKED LOOK_UNLOCKED PICKED_POLLS NO_WAKE; do
        caught $variant -DEVENTS=1
    done
    caught EVENTFD_EDGE -DPS=2 -DMS=3 -DEVENTS=0
    caught CLEARED_OUTSIDE_LOCK -DPS=2 -DEVENTS=0 -DFOREIGN=2
    caught ROLE_KEPT -DBLOCKS=1
    caught RELEASE_UNPOLLED -DEVENTS=1 -DBLOCKS=1
    caught POLLER_LEAVES -DEVENTS=1 -DNOBODYS=1 -DKEEP=1
}

take() {
    two_ps="-DPS=2 -DMS=3 -DOPS=1 -DLOOKS=1" stop="-DSTOPS -DOPS=1"
    holds -O0 one_p -DLOOKS=1
    holds -O0 a_monitor_that_looks_again -DOPS=1
    holds -O1 two_ps $two_ps -DGS=0
    holds -O0 the_end_of_the_run $stop -DLOOKS=1

    for variant in NO_MEMBARRIER GATE_LATE BLOCKED_LATE REGION_UNMARKED MARKED_EARLY GATE_NOT_LOOKED_AT TAKE_UNLOCKED \
        LOST_LATE; do
        caught $variant -DLOOKS=1
    done
    caught LOST_STAYS -DGS=0
    caught RETAKE_WITHOUT_SWAP -DOPS=1 -DGS=0
    caught BACK_WITHOUT_SWAP -DOPS=1 -DGS=0
    caught HOLDER_NOT_LOOKED_AT $two_ps
    caught BLOCKED_TAKEN_UNLOCKED
    for variant in NO_FENCE_AT_GATE STOP_UNSEEN BLOCKED_P_STAYS LEFT_UNLOOKED_AT LEFT_UNFENCED LEFT_UNSEEN; do
        caught $variant $stop -DLOOKS=0
    done
}

lend() {
    holds -O0 two_goroutines -DROUNDS=3
    holds -O0 three_goroutines -DNS=3

    for variant in LENT_LOOKED_AT_FIRST OWNER_LOOKED_AT_FIRST WAITERS_LOOKED_AT_FIRST LENT_BEFORE_WAITING COUNTED_TWICE; do
        caught $variant -DNS=3
    done
}

chain() {
    holds -O0 two_owners -DLENGTH=2
    holds -O0 three_owners

    for variant in NOT_LATE FIRST_ONLY STATE_FIRST; do
        caught $variant
    done
}

# lane FUNCTION...: one after the other, in a folder of their own
lane() {
    mkdir "$dir/$1" && cd "$dir/$1" || exit 1
    for checks in "$@"; do
        model=${checks%_}
        $checks
    done >"$dir/$1.lines"
}

(lane wake runs mutex take lend chain) &
lanes=$!
(lane wait_ wg netpoll poller) &
lanes="$lanes $!"
wait
lanes=
cat "$dir"/*.lines
passed=$(cat "$dir"/*.lines | grep -c '^ok ')
failed=$(cat "$dir"/*.lines | grep -c '^FAIL ')
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
