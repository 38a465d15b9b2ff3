/* SPDX-License-Identifier: MIT */
/*
 * The wake rule (W1 to W4 in src/sched.c) as a model for spin: PS Ps, MS threads, a foreign thread, the monitor.
 *
 * Queues are numbers: slot[p] (private, with HIDING), q[p] (runq and fresh of p), glob. A step is one access to shared
 * memory; the fences of the rule make such interleavings enough. A section under the scheduler's lock is one step where
 * others see one change, else it sets `locked`. A goroutine does any mixture of: make another one ready, block (its P
 * goes away and it comes back for one), compute for ever, end. Inlines have the names of the functions they stand for.
 *
 * Nothing repairs here: that the monitor looks again on its own now and then is left out, and where the real one looks
 * within 10 ms though it has nothing to watch, this one sleeps until it is called. Looks that change nothing are left
 * out too, so every execution ends (run.sh checks that there is no cycle), and when nothing can happen any more:
 *   - no goroutine can run while a P is idle; if no goroutine computes for ever, none is left at all;
 *   - nobody is counted as spinning, and every thread sleeps or computes.
 * Broken on purpose, with -D:
 *   BROKEN_NO_LOOK_AGAIN        W2: who lowers spinning or gives up a P does not look again
 *   BROKEN_NO_LOOK_IN_FOUND     W2: only the last spinner that finds work does not
 *   BROKEN_CHECK_BEFORE_PUBLISH W1: who makes work looks at spinning and the idle list first, then publishes
 *   BROKEN_LOWER_OUTSIDE_LOCK   W3: w_wake_one found no P, and lowers spinning when it has let go of the lock
 *   BROKEN_NO_RESCUE            W4: the monitor leaves lone goroutines where they are
 *   BROKEN_NO_BELL              W4: whoever goes idle does not call the monitor for a lone goroutine
 *   BROKEN_NO_LAST_LOOK         W4: the monitor withdraws its attention and sleeps at once
 *   BROKEN_BATCH_IN_FLIGHT      what w_globq_get moves to a ring is in neither for a moment, and nobody looks again
 * The move from glob to a ring is one step for those who look without the lock (it is in the ring before it leaves
 * glob), or with BATCH_IN_FLIGHT it is in neither for a moment and its mover looks again: either will do.
 */
#ifdef BROKEN_BATCH_IN_FLIGHT
#define BATCH_IN_FLIGHT
#endif
#ifndef PS
#define PS 2
#endif
#ifndef MS
#define MS 3
#endif
#ifndef SPAWNS
#define SPAWNS 2 /* goroutines that others make ready */
#endif
#ifndef FOREIGN
#define FOREIGN 1 /* and that a foreign thread does */
#endif
#ifndef HOGS
#define HOGS 1 /* goroutines that compute for ever, at the most */
#endif
#ifndef BLOCKS
#define BLOCKS 0
#endif
#define NONE 255

byte slot[PS], q[PS], glob;
byte no_defer[PS];
bool p_idle[PS];
byte holder[PS] = NONE;
byte idle_p_count, busy_ps;
byte spinning;
bool locked;

bool m_idle[MS];
byte idle_m_count;
byte next_p[MS] = NONE;
bool next_spinning[MS], wake[MS];
bool outside[MS]; /* not in_runtime */

bool attentive, asleep, rung;
byte spawns = SPAWNS, hogs = HOGS, blocks = BLOCKS;

#if PS == 2
#define SHARED (glob + q[0] + q[1] > 0)
#define LONE   (slot[0] + slot[1] > 0)
#define STUCK  (LONELY(0) || LONELY(1))
#else
#define SHARED (glob + q[0] + q[1] + q[2] > 0)
#define LONE   (slot[0] + slot[1] + slot[2] > 0)
#define STUCK  (LONELY(0) || LONELY(1) || LONELY(2))
#endif
#ifdef BROKEN_NO_RESCUE
#define LONELY(i) false
#else
#define LONELY(i) (slot[i] > 0 && holder[i] != NONE && outside[holder[i]] && idle_p_count > 0)
#endif

/* ---- p.c: the idle list; the caller holds the lock ---- */

inline w_p_idle_locked(x)
{
    holder[x] = NONE;
    p_idle[x] = true;
    busy_ps--;
    idle_p_count++
}

inline w_p_get_idle_locked(x)
{
    x = 0;
    do
    :: x < PS && !p_idle[x] -> x++
    :: x == PS -> x = NONE; break
    :: x < PS && p_idle[x] ->
        p_idle[x] = false;
        idle_p_count--;
        if
        :: busy_ps == 0 && asleep -> rung = true
        :: else
        fi;
        busy_ps++;
        break
    od
}

/* ---- m.c ---- */

/* A thread that must be made first is one of the idle ones here; if all are about, one of them will be idle soon. */
inline w_m_start(x, spins)
{
    atomic {
        !locked && idle_m_count > 0;
        k = 0;
        do
        :: m_idle[k] -> break
        :: else -> k++
        od;
        m_idle[k] = false;
        idle_m_count--;
        next_p[k] = x;
        next_spinning[k] = spins;
        wake[k] = true; /* nobody else looks at what is in between */
        k = 0
    }
}

/* ---- sched.c: waking ---- */

inline w_wake_one()
{
    if
    :: idle_p_count == 0
    :: else ->
        if
        :: d_step { spinning == 0 -> spinning = 1 }
            atomic {
                !locked;
                w_p_get_idle_locked(n)
#ifndef BROKEN_LOWER_OUTSIDE_LOCK
                if
                :: n == NONE -> spinning--
                :: else
                fi
#endif
            }
            if
            :: n != NONE -> w_m_start(n, true)
            :: else ->
#ifdef BROKEN_LOWER_OUTSIDE_LOCK
                spinning--
#else
                skip
#endif
            fi
        :: else
        fi;
        n = 0
    fi
}

/* idle_p_count, spinning and the queues are looked at one after the other. */
inline w_look_again()
{
#ifdef BROKEN_NO_LOOK_AGAIN
    skip
#else
    if
    :: idle_p_count > 0 ->
        if
        :: spinning == 0 ->
            look_at_queues();
            if
            :: seen -> seen = false; w_wake_one()
            :: else
            fi
        :: else
        fi
    :: else
    fi
#endif
}

/* work_to_share: the global queue, then each P. */
inline look_at_queues()
{
    seen = glob > 0;
    do
    :: !seen && k < PS -> d_step { seen = q[k] > 0; k++ }
    :: else -> k = 0; break
    od
}

inline w_p_release(x)
{
    if
    :: slot[x] + q[x] > 0 || glob > 0 -> w_m_start(x, false)
    :: else ->
        atomic { !locked; w_p_idle_locked(x) }
        w_look_again()
    fi
}

/* ---- sched.c: making work ---- */

inline place()
{
    if
#ifdef HIDING
    :: slot[p] == 0 -> slot[p] = 1 /* a hand-off, or runq is empty */
    :: slot[p] > 0 || q[p] > 0 -> q[p]++
#else
    :: true -> q[p]++
#endif
    fi
}

/* Sets done if the lone goroutine may wait (defer); else makes it visible if somebody could take it. */
inline expose_or_defer()
{
    atomic {
        done = q[p] == 0 && attentive && no_defer[p] == 0;
        if
        :: q[p] == 0 && attentive && no_defer[p] > 0 -> no_defer[p]--
        :: else
        fi
    }
    d_step {
        if
        :: !done && idle_p_count > 0 && q[p] == 0 && slot[p] > 0 -> slot[p] = 0; q[p]++
        :: else
        fi
    }
}

inline announce_slow()
{
#ifdef HIDING
    expose_or_defer();
#endif
    if
    :: !done && idle_p_count > 0 ->
        if
        :: spinning == 0 -> w_wake_one()
        :: else
        fi
    :: else
    fi;
    done = false
}

/* enqueue, by a running goroutine. */
inline enqueue()
{
#ifdef BROKEN_CHECK_BEFORE_PUBLISH
    outside[me] = false;
    seen = idle_p_count > 0 && spinning == 0;
    q[p]++;
    if
    :: seen -> seen = false; w_wake_one()
    :: else
    fi
#else
    atomic { outside[me] = false; place() }
    announce_slow()
#endif
}

/* ---- find.c: the search ---- */

inline w_pick()
{
    d_step {
        if
        :: slot[p] > 0 -> slot[p] = 0; got = true
        :: else ->
            if
            :: q[p] > 0 -> q[p]--; got = true
            :: else
            fi
        fi
    }
}

/* One, and with share, if there are as many as Ps, one more into our ring; the caller holds the lock. */
inline w_globq_get_locked(share)
{
    glob--;
    got = true;
    if
    :: share && glob + 1 >= PS ->
        glob--;
#ifdef BATCH_IN_FLIGHT
        locked = true;
        done = true
#else
        q[p]++
#endif
    :: else
    fi
}

/* What was taken on top of the one lands in our ring. */
inline land()
{
#ifdef BATCH_IN_FLIGHT
    if
    :: done ->
        d_step { q[p]++; locked = false; done = false }
#ifndef BROKEN_BATCH_IN_FLIGHT
        w_look_again()
#endif
    :: else
    fi
#else
    skip
#endif
}

inline w_globq_get(share)
{
    if
    :: glob == 0
    :: atomic { glob > 0 && !locked -> w_globq_get_locked(share) }
        land()
    fi
}

/* One round; half of what the victim has, rounded up, of which the first is run and the others go into our ring. */
inline steal_work()
{
    if
    :: spin
    :: !spin && 2 * spinning < PS - idle_p_count -> spin = true; spinning++
    :: else -> goto idle
    fi;
    do
    :: !got && k < PS ->
        d_step {
            if
            :: k != p && q[k] > 0 ->
                n = q[k] - q[k] / 2 - 1;
                q[k] = q[k] / 2;
                got = true
            :: else
            fi;
            k++
        }
    :: else -> break
    od;
    k = 0;
    if
    :: n > 0 -> d_step { q[p] = q[p] + n; n = 0 }
    :: else
    fi;
    if
    :: !got -> w_globq_get(true)
    :: else
    fi
}

inline found()
{
    if
    :: spin ->
        spin = false;
        d_step { spinning--; seen = spinning == 0 }
        if
        :: seen -> seen = false;
#ifndef BROKEN_NO_LOOK_IN_FOUND
            w_look_again()
#endif
        :: else
        fi
    :: else
    fi
}

inline go_idle()
{
    atomic {
        !locked;
        if
        :: glob > 0 -> w_globq_get_locked(true)
        :: else -> w_p_idle_locked(p); p = NONE
        fi
    }
    if
    :: got -> land()
    :: else ->
        if
        :: spin -> spin = false; spinning--
        :: else
        fi;
#ifndef BROKEN_NO_LOOK_AGAIN
        look_at_queues();
        if
        :: seen ->
            seen = false;
            atomic {
                !locked;
                w_p_get_idle_locked(p);
                locked = p != NONE
            }
            if
            :: p != NONE ->
                spin = true;
                spinning++;
                holder[p] = me;
                locked = false
            :: else
            fi
        :: else ->
#ifndef BROKEN_NO_BELL
            if
            :: !attentive ->
                if
                :: LONE -> rung = true
                :: else
                fi
            :: else
            fi
#endif
        fi
#endif
    fi
}

proctype M(byte me; byte p)
{
    byte k, n;
    bool spin, got, seen, done;

find:
    if
    :: p == NONE ->
        atomic { !locked -> m_idle[me] = true; idle_m_count++ }
end_asleep:
        atomic {
            wake[me] -> wake[me] = false;
            p = next_p[me];
            next_p[me] = NONE;
            spin = next_spinning[me];
            next_spinning[me] = false;
            holder[p] = me
        }
    :: else
    fi;
    if
    :: w_globq_get(false) /* every 61st time */
    :: true
    fi;
    if
    :: !got -> w_pick()
    :: else
    fi;
    if
    :: !got -> w_globq_get(true)
    :: else
    fi;
    if
    :: !got -> steal_work()
    :: else
    fi;
idle:
    if
    :: !got -> go_idle()
    :: else
    fi;
    if
    :: !got -> goto find
    :: else -> got = false; found()
    fi;

running:
    outside[me] = true;
    if
    :: d_step { spawns > 0 -> spawns-- }
        enqueue();
        goto running
    :: d_step { blocks > 0 -> blocks-- }
        outside[me] = false;
        goto block
    :: d_step { hogs > 0 -> hogs-- }
end_computing:
        false
    :: outside[me] = false; goto find
    fi;

block:
    if
    :: slot[p] > 0 -> d_step { slot[p] = 0; q[p]++ } w_look_again()
    :: else
    fi;
    holder[p] = NONE;
    w_p_release(p);
    atomic { !locked; w_p_get_idle_locked(p) }
    if
    :: p != NONE -> holder[p] = me; goto running
    :: else ->
        atomic { !locked; glob++ }
        w_look_again();
        goto find
    fi
}

proctype foreign()
{
    byte i, k, n;
    bool seen;
    do
    :: i < FOREIGN ->
        i++;
#ifdef BROKEN_CHECK_BEFORE_PUBLISH
        seen = idle_p_count > 0 && spinning == 0;
        atomic { !locked; glob++ }
        if
        :: seen -> seen = false; w_wake_one()
        :: else
        fi
#else
        atomic { !locked; glob++ }
        w_wake_one()
#endif
    :: else -> break
    od
}

/* A look, if it changes something: takes out lone goroutines, then decides whether to go on watching. */
proctype monitor()
{
    byte i, k, n;
    bool seen, watching = true;
end_looked:
    do
    :: atomic { rung || (watching && (STUCK || !attentive || idle_p_count == 0 || busy_ps == 0)) -> rung = false }
        for (i : 0 .. PS - 1) {
            if
            :: d_step { !locked && LONELY(i) -> slot[i] = 0; glob++; no_defer[i] = 1 }
                w_look_again()
            :: else
            fi
        }
        i = 0;
        atomic { !locked -> asleep = busy_ps == 0 }
        seen = !asleep && idle_p_count > 0;
        d_step {
#ifdef BROKEN_NO_LAST_LOOK
            watching = seen;
#else
            watching = seen || attentive;
#endif
            attentive = seen;
            seen = false
        }
    od
}

init
{
    byte i;
    atomic {
        for (i : 1 .. PS - 1) {
            p_idle[i] = true
        }
        idle_p_count = PS - 1;
        busy_ps = 1;
        holder[0] = 0;
        q[0] = 1;
        run M(0, 0);
        for (i : 1 .. MS - 1) {
            run M(i, NONE)
        }
        run foreign();
#ifdef HIDING
        attentive = true;
        run monitor();
#endif
        i = 0
    }
    timeout;
    assert(idle_p_count == 0 || (!SHARED && !LONE));
    assert(hogs < HOGS || (!SHARED && !LONE));
    assert(spinning == 0 && !locked)
}
