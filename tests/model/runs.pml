/* SPDX-License-Identifier: MIT */
/*
 * A queue that outlives runs (src/waiter.h, src/foreign.c) as a model for spin: foreign threads that wait in it, a
 * goroutine that was discarded in it with its run, runs that end and begin, somebody who lets waiters go meanwhile.
 *
 * The number of the run is odd while it is up. At its end it is made even, the foreign threads that sleep are cut, their
 * calls are waited for, then the stacks of goroutines go. The queue is a list with both links, as in the code: a node is
 * a waiter's number, and whoever reads or writes a node says touch(). That a wait is claimed or cut but once is shown in
 * wait.pml: here it is one step.
 *
 * What must hold:
 *   - nobody touches the frame of a waiter that has returned or was discarded;
 *   - when the guard is open, a head that promises a waiter in this run has one: who peeks at it, and then finds nobody
 *     there under the guard, does not find it promised again (select.c looks again until nothing is promised);
 *   - when nothing can happen any more, every call has returned.
 * Broken on purpose, with -D:
 *   BROKEN_EVEN_RUN     the queue counts as empty only if another run filled it, be this one up or not
 *   BROKEN_STALE_HEAD   who finds that the queue is another run's leaves its head as it is
 *   BROKEN_NO_RUN       a queue does not know which run filled it
 *   BROKEN_FREE_FIRST   the stacks go before the calls of foreign threads have ended
 */
#ifndef FS
#define FS 2 /* foreign threads */
#endif
#define G (FS + 1) /* the goroutine */
#ifndef RUNS
#define RUNS 2
#endif
#ifndef GOS
#define GOS 2 /* so often somebody lets a waiter go */
#endif

byte run_number = 1;
byte calls; /* w_sched.foreign */

bool guard;
byte head, tail, queue_run;
byte next[FS + 2], prev[FS + 2];
bool linked[FS + 2], frame[FS + 2];
byte returned;
bool parked; /* the goroutine */

bool listed[FS + 2], open[FS + 2], woken[FS + 2];

#define UP (run_number % 2 == 1)
#define touch(i) assert(frame[i])
#define LOCK() atomic { !guard -> guard = true }
#define UNLOCK() guard = false

#if defined(BROKEN_NO_RUN)
#define STALE false
#elif defined(BROKEN_EVEN_RUN)
#define STALE (queue_run != run_number)
#else
#define STALE (queue_run != run_number || !UP)
#endif

/* The guard is held by who does these; run_number changes meanwhile, so each look at it is a step. */
inline w_waitq_first(x)
{
    d_step {
        x = (STALE -> 0 : head);
        if
        :: x == 0 && head != 0 ->
#ifdef BROKEN_STALE_HEAD
            skip
#else
            head = 0
#endif
        :: else
        fi
    }
}

inline w_waitq_put(i)
{
    w_waitq_first(first);
    d_step {
        touch(i);
        next[i] = 0;
        prev[i] = (first != 0 -> tail : 0);
        linked[i] = true;
        if
        :: first != 0 -> touch(tail); next[tail] = i
        :: else -> head = i
        fi;
        tail = i;
        first = 0
    }
    queue_run = run_number
}

inline w_waitq_remove(i)
{
    d_step {
        touch(i);
        if
        :: linked[i] && !STALE ->
            linked[i] = false;
            if
            :: prev[i] != 0 -> touch(prev[i]); next[prev[i]] = next[i]
            :: else -> head = next[i]
            fi;
            if
            :: next[i] != 0 -> touch(next[i]); prev[next[i]] = prev[i]
            :: else -> tail = prev[i]
            fi
        :: else
        fi
    }
}

/* Waits in as many runs as there are, unless none is up when it comes. */
proctype foreign(byte i)
{
    byte first, n;
    do
    :: n < RUNS ->
        d_step { n++; calls++ }
        if
        :: UP ->
            atomic { !guard -> guard = true; frame[i] = true; woken[i] = false; linked[i] = false }
            w_waitq_put(i);
            d_step { open[i] = true; guard = false }
            d_step {
                listed[i] = true; /* under the list's lock, as the end's look at it */
                if
                :: !UP && open[i] -> open[i] = false; woken[i] = true
                :: else
                fi
            }
            d_step { woken[i] -> listed[i] = false }
            LOCK();
            w_waitq_remove(i);
            d_step { guard = false; frame[i] = false }
        :: else
        fi;
        calls--
    :: else -> break
    od;
    returned++
}

/* Lets the first in turn go; from a thread that needs no runtime for it. */
proctype release()
{
    byte w, times;
    bool promised, got;
    do
    :: times < GOS ->
        d_step { times++; calls++ }
        atomic { !guard -> guard = true; promised = head != 0 }
        w_waitq_first(w);
        if
        :: w != 0 ->
            w_waitq_remove(w);
            d_step {
                touch(w);
                got = open[w];
                open[w] = false
            }
        :: else -> assert(!promised || head == 0)
        fi;
        UNLOCK();
        if
        :: got -> woken[w] = true
        :: else
        fi;
        d_step { w = 0; got = false; promised = false }
        calls--
    :: else -> break
    od;
    returned++
}

/* It waits during the first run, and is discarded with it. */
proctype goroutine()
{
    byte first;
    atomic { !guard -> guard = true; frame[G] = true }
    w_waitq_put(G);
    d_step { open[G] = true; guard = false; parked = true }
}

proctype runs()
{
    byte i, n;
    do
    :: n < RUNS ->
        n++;
        if
        :: n == 1 -> parked /* it is off its stack before the run ends */
        :: else
        fi;
        run_number++;
        i = 1;
        do
        :: i <= FS ->
            d_step {
                if
                :: listed[i] && open[i] -> open[i] = false; woken[i] = true
                :: else
                fi;
                i++
            }
        :: else -> break
        od;
#ifdef BROKEN_FREE_FIRST
        frame[G] = false;
#endif
        calls == 0;
        frame[G] = false;
        if
        :: n < RUNS -> run_number++
        :: else
        fi
    :: else -> break
    od
}

init
{
    byte i;
    atomic {
        for (i : 1 .. FS) {
            run foreign(i)
        }
        run goroutine();
        run release();
        run runs();
        i = 0
    }
    timeout;
    assert(returned == FS + 1)
}
