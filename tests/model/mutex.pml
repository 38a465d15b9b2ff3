/* SPDX-License-Identifier: MIT */
/*
 * The mutex (src/mutex.c) as a model for spin: NS goroutines on threads of their own lock and unlock one mutex, ROUNDS
 * times each; the waits of the first CUTS of them may be cut.
 *
 * A step is one access to shared memory. The store of a light unlock goes into the store buffer of its thread, and from there
 * to memory whenever the hardware likes, at the thread's next locked instruction, or when a membarrier makes the thread
 * execute a fence; a membarrier meets the threads one after the other. All other stores are parts of locked instructions or
 * are ordered by the guard. How often an unlock is counted before the bucket becomes light is left to chance, as is who has
 * waited long enough to be handed the lock. Inlines have the names of the functions they stand for.
 *
 * It is checked that one is inside at a time; that the owner that finds itself the last user may free the mutex when its unlock
 * has returned (`freed`: nobody touches it any more); and when nothing can happen any more, that nobody waits.
 * Broken on purpose, with -D:
 *   BROKEN_NO_MEMBARRIER    the first waiter does without
 *   BROKEN_LOOK_FIRST       a light unlock looks at the bucket before its store, and not after it
 *   BROKEN_LATE_LIGHT       the bucket becomes heavy after the membarrier
 *   BROKEN_UNLISTED         a late unlock touches the mutex though it is not listed
 *   BROKEN_LIGHT_AT_ONCE    a bucket becomes light although it lists a mutex
 *   BROKEN_LOOK_AFTER       a heavy unlock opens the lock and then looks for waiters in the mutex
 *   BROKEN_WOKEN_STAYS      whoever was woken and may not wait any more leaves WOKEN set
 *   BROKEN_NOT_PASSED_ON    or clears it, and leaves the lock to chance
 *   BROKEN_CUT_STAYS        the last waiter was cut, and WAITERS stays set
 *   BROKEN_HANDED_OPEN      the lock is handed over, past one that was woken, and opened
 * With -DOWNERS there are priorities: no unlock is light, each looks at the queue, and who is more urgent than whom is left to chance.
 */
#ifndef NS
#define NS 3
#endif
#ifndef ROUNDS
#define ROUNDS 1
#endif
#ifndef CUTS
#define CUTS 0
#endif
#define NONE 255

mtype = { running, asleep, claimed, awake, owning, cut };

/* The mutex. */
bool lock_byte, waiters, woken;
byte q[NS], q_len;
bool freed;
/* The bucket. */
bool light, listed, guard;
/* The goroutines. */
mtype state[NS] = running;
bool starved[NS];
bool buffer[NS]; /* a store of 0 to the byte */
byte inside = NONE, left = NS, done;

inline touch() {
    assert(!freed)
}

inline drain(n) {
    if
    :: buffer[n] -> buffer[n] = false; lock_byte = false
    :: else
    fi
}

active proctype hardware() {
end:
    do
    :: atomic { buffer[0] -> drain(0) }
    :: atomic { buffer[1] -> drain(1) }
#if NS > 2
    :: atomic { buffer[2] -> drain(2) }
#endif
    od
}

/* A locked instruction. */
inline lock_bucket(me) {
    atomic { !guard -> drain(me); guard = true }
}

inline open_bucket() {
    guard = false
}

inline membarrier() {
#ifdef BROKEN_NO_MEMBARRIER
    skip
#else
    i = 0;
    do
    :: atomic { i < NS -> drain(i); i++ }
    :: i == NS -> break
    od;
    i = 0
#endif
}

inline list_locked() {
    listed = true;
    if
    :: light ->
#ifndef BROKEN_LATE_LIGHT
        light = false;
#endif
        membarrier();
#ifdef BROKEN_LATE_LIGHT
        light = false
#endif
    :: else
    fi
}

/* Under the guard: a step of its own is not seen. */
inline remove(n) {
    d_step {
        i = 0;
        do
        :: i < q_len && q[i] != n -> i++
        :: else -> break
        od;
        if
        :: i < q_len ->
            q_len--;
            do
            :: i < q_len -> q[i] = q[i + 1]; i++
            :: else -> break
            od
        :: else
        fi;
        q[q_len] = 0;
        i = 0
    }
}

inline settle_locked() {
    if
    :: q_len == 0 -> listed = false; waiters = false
    :: else
    fi
}

/* The caller has lock and guard. */
inline pass_on_locked() {
    touch();
    w = NONE;
    outranks = false;
#ifdef OWNERS
    if
    :: woken && q_len > 0 -> outranks = true
    :: true
    fi;
#endif
    do
    :: q_len > 0 && w == NONE && (!woken || outranks) ->
        w = q[0];
        remove(w);
        atomic {
            if
            :: state[w] == asleep -> state[w] = claimed
            :: else -> w = NONE
            fi
        }
    :: else -> break
    od;
    settle_locked();
    touch();
    if
    :: w != NONE && (starved[w] || outranks) -> next = owning;
#ifdef BROKEN_HANDED_OPEN
        lock_byte = !outranks
#endif
#ifdef OWNERS
    :: w != NONE -> next = owning /* somebody behind it is more urgent */
#endif
    :: w != NONE && !starved[w] && !outranks -> next = awake; atomic { woken = true; lock_byte = false }
    :: w == NONE -> lock_byte = false
    fi;
    open_bucket();
    if
    :: w != NONE -> state[w] = next
    :: else
    fi;
    w = 0;
    outranks = false;
    next = running
}

inline see_to_locked() {
    touch();
    atomic {
        if
        :: !woken && !lock_byte -> lock_byte = true; got = true
        :: else -> got = false
        fi
    };
    if
    :: got -> got = false; pass_on_locked()
    :: else -> open_bucket()
    fi
}

inline unlocked_late(me) {
    lock_bucket(me);
    if
#ifdef BROKEN_UNLISTED
    :: true -> see_to_locked()
#else
    :: listed -> see_to_locked()
    :: else -> open_bucket()
#endif
    fi
}

inline become_light(me) {
    lock_bucket(me);
    if
#ifdef BROKEN_LIGHT_AT_ONCE
    :: true -> light = true
#else
    :: !listed -> light = true
    :: else
#endif
    fi;
    open_bucket()
}

inline unlock_slow(me) {
#ifdef BROKEN_LOOK_AFTER
    atomic { touch(); lock_byte = false };
    if
    :: atomic { waiters && !woken -> touch() }; lock_bucket(me); see_to_locked()
    :: else -> touch()
    fi
#else
    atomic {
        touch();
        if
#ifdef OWNERS
        :: waiters -> got = true
#else
        :: waiters && !woken -> got = true
#endif
        :: else -> lock_byte = false; calm = !waiters
        fi
    };
    if
    :: got -> got = false; lock_bucket(me); pass_on_locked()
    :: !got && calm -> calm = false;
        if
        :: become_light(me)
        :: true
        fi
    :: else
    fi
#endif
}

/* As weft_unlock, inline. */
inline unlock(me) {
#ifdef OWNERS
    got = false;
#else
    atomic { touch(); got = !waiters && !woken };
#endif
    if
    :: got && light -> got = false;
        buffer[me] = true;
#ifndef BROKEN_LOOK_FIRST
        if
        :: !light -> unlocked_late(me)
        :: else
        fi
#endif
    :: else -> got = false; unlock_slow(me)
    fi
}

/* One locked instruction on the word: true if the lock was free. */
inline take(me) {
    atomic {
        drain(me);
        touch();
        got = !lock_byte;
        lock_byte = true;
        if
        :: got && was_woken -> woken = false; was_woken = false
        :: else
        fi
    }
}

inline give_up(me) {
    if
    :: was_woken ->
        was_woken = false;
#ifndef BROKEN_WOKEN_STAYS
        lock_bucket(me);
        touch();
        woken = false;
        if
#ifndef BROKEN_NOT_PASSED_ON
        :: waiters -> see_to_locked()
#endif
        :: else -> open_bucket()
        fi
#endif
    :: else
    fi
}

/* The guard is held; it is opened when we are asleep. */
inline queue_up(me) {
    d_step {
        if
        :: was_woken ->
            i = q_len;
            do
            :: i > 0 -> q[i] = q[i - 1]; i--
            :: else -> break
            od;
            q[0] = me
        :: else -> q[q_len] = me
        fi;
        q_len++;
        was_woken = false;
        i = 0
    };
    state[me] = asleep;
    open_bucket();
    do
    :: me < CUTS && state[me] == asleep -> atomic {
            if
            :: state[me] == asleep -> state[me] = cut
            :: else
            fi
        }
    :: state[me] == awake || state[me] == owning || state[me] == cut -> break
    od
}

proctype goroutine(byte me) {
    byte i, w, rounds;
    bool got, calm, was_woken, listed_before, last, outranks;
    mtype next = running;
    do
    :: rounds == ROUNDS -> break
    :: else ->
        rounds++;
        take(me);
        if
        :: got -> goto owns
        :: else
        fi;
again:  take(me); /* the end of its spinning */
        if
        :: got -> goto owns
        :: else
        fi;
        if
        :: me < CUTS -> give_up(me); goto returns
        :: true
        fi;
        lock_bucket(me);
        touch();
        listed_before = waiters;
        if
        :: !listed_before -> list_locked()
        :: else
        fi;
        atomic { /* the loop of swaps in announce_locked */
            touch();
            got = !lock_byte;
            if
            :: got -> lock_byte = true
            :: else -> waiters = true
            fi;
            if
            :: was_woken -> woken = false
            :: else
            fi
        };
        if
        :: got ->
            was_woken = false;
            if
            :: !listed_before -> listed = false
            :: else
            fi;
            open_bucket();
            goto owns
        :: else
        fi;
        queue_up(me);
        if
        :: state[me] == cut ->
            lock_bucket(me);
            touch();
            remove(me);
#ifndef BROKEN_CUT_STAYS
            settle_locked();
#else
            if
            :: q_len == 0 -> listed = false
            :: else
            fi;
#endif
            open_bucket();
            state[me] = running;
            goto returns
        :: state[me] == owning -> state[me] = running; starved[me] = false; got = true; goto owns
        :: state[me] == awake ->
            state[me] = running;
            was_woken = true;
            if
            :: starved[me] = true
            :: true
            fi;
            goto again
        fi;
owns:   atomic {
            assert(inside == NONE);
            touch();
            inside = me;
            got = false;
            starved[me] = false;
            listed_before = false
        };
        atomic {
            inside = NONE;
            if
            :: rounds == ROUNDS -> left--; last = left == 0
            :: else
            fi
        };
        unlock(me);
        if
        :: last -> freed = true
        :: else
        fi;
        goto next_round;
returns: atomic { /* without the lock */
            got = false;
            starved[me] = false;
            listed_before = false;
            if
            :: rounds == ROUNDS -> left--
            :: else
            fi
        };
next_round: skip
    od;
    done++
}

init {
    atomic {
        light = true;
        run goroutine(0);
        run goroutine(1);
#if NS > 2
        run goroutine(2)
#endif
    };
    do
    :: timeout -> assert(done == NS); break
    od
}
