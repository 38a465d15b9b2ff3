/* SPDX-License-Identifier: MIT */
/*
 * Taking the P of an M that blocks, with a word or without (src/block.c; w_m_outside and w_enter_slow in src/sched.c; the end
 * of a run in src/run.c) as a model for spin: MS threads, PS Ps, the monitor, and somebody who stops the run (STOPS).
 *
 * A goroutine leaves the runtime and comes back, enters blocking regions, in which it may call the runtime, and ends; OPS such
 * deeds all in all. Between two steps a thread may sleep for any time. When the run was stopped the monitor waits for the
 * threads, leaves those behind that are outside, and then everything is gone; and another run begins.
 *
 * The stores of an M to in_runtime, gate, blocked_p and blocked_by lie in a store buffer, first in, first out (TSO), which is
 * emptied at any time; a swap, a lock and a fence of the M wait until it is empty, and so does membarrier, for each M.
 *
 * What must hold:
 *   - nobody uses a P (its queues, its counters) while another does: use, unuse; nobody does when the run is gone;
 *   - an M that is inside, and past the gate, holds a P;
 *   - when nothing can happen any more every goroutine has ended, every P is idle, once, every M sleeps as an idle one, and
 *     nobody is counted as one whose P was taken; after a stop, every M has ended.
 * Broken on purpose, with -D:
 *   BROKEN_NO_MEMBARRIER        the gate is closed and in_runtime looked at without a fence on the side of the M
 *   BROKEN_GATE_LATE            in_runtime is looked at first, then the gate is closed
 *   BROKEN_BLOCKED_LATE         in_runtime is looked at first, then whether the M is in a blocking region
 *   BROKEN_REGION_UNMARKED      one that is on its way into a region closes its gate as the monitor does
 *   BROKEN_MARKED_EARLY         it marks it before it says blocked_by, and the monitor may have closed it over the mark
 *   BROKEN_GATE_NOT_LOOKED_AT   the gate is closed, and may have been opened again by one that was in a region
 *   BROKEN_HOLDER_NOT_LOOKED_AT nor is it looked at whether the M has another P by now
 *   BROKEN_TAKE_UNLOCKED        the lock is not held
 *   BROKEN_LOST_LATE            that the P is lost is said when the lock is open
 *   BROKEN_LOST_STAYS           it is not forgotten when the M has another P
 *   BROKEN_RETAKE_WITHOUT_SWAP  the monitor looks at blocked_by, then writes it
 *   BROKEN_BACK_WITHOUT_SWAP    likewise the M that comes back
 *   BROKEN_BLOCKED_TAKEN_UNLOCKED one M takes the P of another out of its region, and the monitor may be looking at it
 *   BROKEN_NO_FENCE_AT_GATE     [ST-1]: the gate is opened and `stopping` looked at without a fence between
 *   BROKEN_STOP_UNSEEN          [ST-1]: who opens its gate does not look at it at all
 *   BROKEN_BLOCKED_P_STAYS      the end of a run does not take away the P of those that it leaves behind in a region
 *   BROKEN_LEFT_UNLOOKED_AT     it does, but an M that was just on its way into a region has set it again
 *   BROKEN_LEFT_UNFENCED        it does, but without a membarrier
 *   BROKEN_LEFT_UNSEEN          one that was left behind looks at `stopping` alone
 */
#ifndef PS
#define PS 1
#endif
#ifndef MS
#define MS 2
#endif
#ifndef OPS
#define OPS 2
#endif
#ifndef GS
#define GS 1 /* goroutines that wait, beside the first */
#endif
#ifndef LOOKS
#define LOOKS 2 /* of the monitor */
#endif
#define NONE 255
#define MONITOR 254
#define REGION 253 /* what the gate is in a region; as NONE, it is closed */

#define IN_RUNTIME 0
#define GATE 1
#define BLOCKED_P 2
#define BLOCKED_BY 3 /* plus the number of the P */

byte in_runtime[MS] = 1, gate[MS] = NONE, blocked_p[MS] = NONE, blocked_by[PS] = NONE;
chan buffer[MS] = [6] of { byte, byte };
byte gates[MS], gate_last[MS], bps[MS], bp_last[MS]; /* in the buffer: how many, and the newest, which is what the M sees */

byte m_p[MS] = NONE, p_m[PS] = NONE, next_p[MS] = NONE;
bool lost[MS], abandoned[MS], idle_m[MS], wake[MS], ended[MS];
bool idle_p[PS];
byte user[PS] = NONE;
byte idle_ms, ms_left = MS, glob = GS, ops = OPS, looks = LOOKS;
short retaken;
bool locked, stopping, stopped, gone;

#define LOCK atomic { !locked -> locked = true }
#define UNLOCK locked = false

#define use(p, who) d_step { assert(user[p] == NONE && !gone); user[p] = who }
#define unuse(p) user[p] = NONE

/* ---- store buffers ---- */

inline set_gate(x) { d_step { buffer[me] ! GATE, x; gates[me]++; gate_last[me] = x } }
inline set_blocked_p(x) { d_step { buffer[me] ! BLOCKED_P, x; bps[me]++; bp_last[me] = x } }
#define MY_GATE (gates[me] > 0 -> gate_last[me] : gate[me])
#define MY_BLOCKED_P (bps[me] > 0 -> bp_last[me] : blocked_p[me])
#define FENCE empty(buffer[me])

proctype store_buffer(byte me)
{
    byte v, x;
end:
    do
    :: atomic {
            buffer[me] ? v, x ->
            if
            :: v == IN_RUNTIME -> in_runtime[me] = x
            :: v == GATE -> gate[me] = x; gates[me]--
            :: v == BLOCKED_P -> blocked_p[me] = x; bps[me]--
            :: else -> assert(!gone); blocked_by[v - BLOCKED_BY] = x
            fi;
            v = 0;
            x = 0
        }
    od
}

/* ---- giving Ps away ---- */

inline get_idle_p(to)
{
    to = 0;
    do
    :: to < PS && idle_p[to] -> idle_p[to] = false; break
    :: to < PS && !idle_p[to] -> to++
    :: to == PS -> to = NONE; break
    od
}

/* Under the lock; one of the idle Ms is there. */
inline wake_m(p)
{
    k = 0;
    do
    :: idle_m[k] -> break
    :: else -> k++
    od;
    idle_m[k] = false;
    idle_ms--;
    next_p[k] = p;
    wake[k] = true;
    k = 0
}

/* A P that has lost its M, used by us. */
inline w_p_release(p)
{
    atomic {
        !locked && (glob == 0 || idle_ms > 0 || stopping) ->
        unuse(p);
        if
        :: stopping
        :: !stopping && glob > 0 -> wake_m(p)
        :: !stopping && glob == 0 -> assert(!idle_p[p]); idle_p[p] = true
        fi
    }
}

inline w_look_again()
{
    atomic {
        !locked;
        if
        :: stopping || glob == 0 -> k = NONE
        :: else -> get_idle_p(k)
        fi;
        x = k;
        k = 0
    }
    if
    :: x != NONE -> atomic {
            !locked && (idle_ms > 0 || stopping) ->
            if
            :: stopping
            :: else -> wake_m(x)
            fi
        }
    :: else
    fi;
    x = 0
}

/* ---- the M ---- */

inline w_m_acquire(x)
{
    d_step { m_p[me] = x; p_m[x] = me }
    set_gate(x);
    FENCE
}

/* Sets done. */
inline take_back(x)
{
    FENCE;
#ifdef BROKEN_BACK_WITHOUT_SWAP
    done = blocked_by[x] == me;
    if
    :: done -> blocked_by[x] = NONE; m_p[me] = x
    :: else
    fi;
#else
    d_step {
        assert(!gone);
        done = blocked_by[x] == me;
        if
        :: done -> blocked_by[x] = NONE; m_p[me] = x
        :: else
        fi
    }
#endif
}

/* The P of another who blocks, whose goroutine is where ours was: nobody is counted. */
inline take_blocked()
{
    atomic {
#ifndef BROKEN_BLOCKED_TAKEN_UNLOCKED
        !locked && FENCE;
#endif
        assert(!gone);
        k = 0;
        do
        :: k < PS && blocked_by[k] == NONE -> k++
        :: else -> break
        od;
        if
        :: k < PS ->
            blocked_by[k] = NONE;
            p = k;
#ifndef BROKEN_BLOCKED_TAKEN_UNLOCKED
            p_m[p] = NONE
#endif
        :: else
        fi;
        k = 0
    }
}

inline wait_for_p()
{
    atomic {
        !locked && FENCE;
        assert(!gone);
        if
        :: stopping -> p = NONE
        :: else -> get_idle_p(p)
        fi;
        if
        :: p != NONE -> retaken--
        :: else
        fi
    }
    if
    :: p == NONE && !stopping -> take_blocked()
    :: else
    fi;
    if
    :: p != NONE -> w_m_acquire(p)
    :: else ->
        atomic { !locked && FENCE; assert(!gone); retaken--; glob++ }
        w_look_again();
        goto stop
    fi
}

/* Ends with a P, or at quit or stop. */
inline w_enter_slow()
{
    atomic { !locked && FENCE -> locked = true }
#ifdef BROKEN_LEFT_UNSEEN
    d_step { over = stopping; l = lost[me] }
#else
    d_step { over = stopping || abandoned[me]; l = lost[me] }
#endif
    UNLOCK;
    if
    :: over -> goto quit
    :: else
    fi;
    x = MY_BLOCKED_P;
    if
    :: x != NONE ->
        set_blocked_p(NONE);
        take_back(x);
        l = !done;
        done = false
#ifndef BROKEN_LOST_STAYS
    :: x == NONE && l -> lost[me] = false
#endif
    :: else
    fi;
    x = 0;
    if
    :: l -> l = false; wait_for_p()
    :: else
    fi;
    set_gate(m_p[me]);
#ifndef BROKEN_NO_FENCE_AT_GATE
    FENCE;
#endif
#ifndef BROKEN_STOP_UNSEEN
    if
    :: stopping -> goto quit
    :: else
    fi
#endif
}

inline w_leave()
{
    buffer[me] ! IN_RUNTIME, 0
}

inline begin()
{
    set_blocked_p(p);
    m_p[me] = NONE;
#ifdef BROKEN_REGION_UNMARKED
    set_gate(NONE);
#elif defined(BROKEN_MARKED_EARLY)
    set_gate(REGION);
#endif
    if
    :: glob > 0 -> /* it gives its P away at once */
        p_m[p] = NONE;
        atomic { !locked && FENCE; retaken++ }
        w_p_release(p)
    :: true -> unuse(p); buffer[me] ! BLOCKED_BY + p, me
    fi;
#if !defined(BROKEN_REGION_UNMARKED) && !defined(BROKEN_MARKED_EARLY)
    set_gate(REGION);
#endif
    skip
}

proctype M(byte me)
{
    byte p = NONE, k, x;
    bool done, over, l, in_region;
    goto stop;

find:
    p = m_p[me];
    if
    :: stopping -> unuse(p); goto quit
    :: else
    fi;
    atomic {
        !locked && FENCE;
        if
        :: glob > 0 -> glob--
        :: else ->
            m_p[me] = NONE;
            set_gate(NONE);
            unuse(p);
            p_m[p] = NONE;
            assert(!idle_p[p]);
            idle_p[p] = true;
            p = NONE
        fi
    }
    if
    :: p == NONE -> goto stop
    :: else
    fi;

running:
    if
    :: atomic { ops > 0 -> ops--; unuse(p) } /* a call that nobody announced */
        w_leave();
        goto w_enter
    :: atomic { ops > 0 -> ops-- } /* a region */
        begin();
        w_leave();
        if
        :: goto leave
        :: in_region = true; goto w_enter /* a runtime call in it */
        fi;
in_it:
        in_region = false;
        unuse(p);
        w_leave();
leave:
        buffer[me] ! IN_RUNTIME, 1;
        x = MY_BLOCKED_P;
        done = false;
        if
        :: x != NONE -> take_back(x)
        :: else
        fi;
        if
        :: done ->
            done = false;
            p = x;
            x = 0;
            use(p, me);
            set_blocked_p(NONE);
            set_gate(p);
#ifndef BROKEN_NO_FENCE_AT_GATE
            FENCE;
#endif
#ifndef BROKEN_STOP_UNSEEN
            if
            :: stopping -> unuse(p); goto quit
            :: else
            fi
#endif
        :: else -> x = 0; goto w_enter
        fi;
        goto running
    :: true -> goto find
    fi;

w_enter:
    buffer[me] ! IN_RUNTIME, 1;
    if
    :: MY_GATE == NONE || MY_GATE == REGION -> w_enter_slow()
    :: else
    fi;
    atomic { p = m_p[me]; assert(p != NONE) }
    use(p, me);
    if
    :: in_region -> goto in_it
    :: else -> goto running
    fi;

stop:
    atomic {
        !locked && FENCE;
        p = NONE;
        in_region = false;
        if
        :: stopping -> goto quit
        :: else -> idle_m[me] = true; idle_ms++
        fi
    }
end_asleep:
    atomic { wake[me] -> wake[me] = false; p = next_p[me]; next_p[me] = NONE }
    if
    :: p == NONE -> goto quit
    :: else
    fi;
    use(p, me);
    w_m_acquire(p);
    goto find;

quit:
    atomic {
        !locked && FENCE;
        if
        :: abandoned[me]
        :: else -> assert(!gone); ms_left--
        fi;
        ended[me] = true
    }
}

/* ---- the monitor ---- */

inline membarrier()
{
    empty(buffer[0]);
#if MS > 2
    empty(buffer[2]);
#endif
    empty(buffer[1])
}

/* Of m, which holds p. */
inline w_p_take(p, m)
{
#ifndef BROKEN_TAKE_UNLOCKED
    LOCK;
#endif
#ifndef BROKEN_GATE_LATE
    gate[m] = NONE;
#endif
#ifndef BROKEN_NO_MEMBARRIER
    empty(buffer[m]);
#endif
#ifdef BROKEN_BLOCKED_LATE
    ok = in_runtime[m] == 0;
    ok = ok && blocked_by[p] == NONE;
#else
    ok = blocked_by[p] == NONE;
    ok = ok && in_runtime[m] == 0;
#endif
#ifdef BROKEN_GATE_LATE
    gate[m] = NONE;
#elif !defined(BROKEN_GATE_NOT_LOOKED_AT)
    ok = ok && gate[m] == NONE;
#endif
#ifndef BROKEN_HOLDER_NOT_LOOKED_AT
    ok = ok && p_m[p] == m;
#endif
    if
    :: ok ->
        use(p, MONITOR);
        m_p[m] = NONE;
#ifndef BROKEN_LOST_LATE
        lost[m] = true;
#endif
        d_step { p_m[p] = NONE; retaken++ }
    :: else
    fi;
    UNLOCK;
    if
    :: ok ->
#ifdef BROKEN_LOST_LATE
        lost[m] = true;
#endif
        w_p_release(p)
    :: else
    fi;
    ok = false
}

inline w_p_retake(p, m)
{
#ifdef BROKEN_RETAKE_WITHOUT_SWAP
    ok = blocked_by[p] == m;
    if
    :: ok -> blocked_by[p] = NONE
    :: else
    fi;
#else
    d_step {
        ok = blocked_by[p] == m;
        if
        :: ok -> blocked_by[p] = NONE
        :: else
        fi
    }
#endif
    if
    :: ok ->
        use(p, MONITOR);
        p_m[p] = NONE;
        atomic { !locked; retaken++ }
        w_p_release(p)
    :: else
    fi;
    ok = false
}

/* M by M: those that are outside are left behind. */
inline abandon()
{
    LOCK;
#ifndef BROKEN_BLOCKED_P_STAYS
    d_step {
        for (i : 0 .. MS - 1) {
            blocked_p[i] = NONE
        }
        i = 0
    }
#endif
#ifndef BROKEN_LEFT_UNFENCED
    membarrier();
#endif
    d_step {
        for (i : 0 .. MS - 1) {
            if
#if defined(BROKEN_LEFT_UNLOOKED_AT) || defined(BROKEN_BLOCKED_P_STAYS)
            :: !ended[i] && !abandoned[i] && in_runtime[i] == 0 -> abandoned[i] = true; ms_left--
#else
            :: !ended[i] && !abandoned[i] && in_runtime[i] == 0 && blocked_p[i] == NONE -> abandoned[i] = true; ms_left--
#endif
            :: else
            fi
        }
        i = 0
    }
    UNLOCK
}

proctype monitor()
{
    byte i, k, h, b;
    bool ok;
end:
    do
    :: looks > 0 && !stopped ->
        looks--;
        if
        :: i = 0
#if PS > 1
        :: i = 1
#endif
        fi;
        b = blocked_by[i];
        h = p_m[i];
        if
        :: b != NONE -> w_p_retake(i, b)
        :: b == NONE && h != NONE -> w_p_take(i, h)
        :: else
        fi;
        atomic { i = 0; b = 0; h = 0 }
#ifdef STOPS
    :: stopped && ms_left > 0 -> abandon()
    :: stopped && ms_left == 0 -> gone = true; stopping = false; break
#endif
    od
}

#ifdef STOPS
proctype stop()
{
    byte i;
    LOCK;
    stopping = true;
    d_step {
        for (i : 0 .. MS - 1) {
            gate[i] = NONE;
            wake[i] = true; /* with what P it was given already */
            idle_m[i] = false
        }
        idle_ms = 0;
        i = 0
    }
    d_step { stopped = true; locked = false }
}
#endif

init
{
    byte i;
    atomic {
        for (i : 0 .. MS - 1) {
            run store_buffer(i);
            run M(i)
        }
        glob++;
        i = PS
    }
    atomic {
        idle_ms == MS;
        do
        :: i > 0 -> i--; idle_m[i] = false; idle_ms--; next_p[i] = i; wake[i] = true
        :: else -> break
        od;
        run monitor();
#ifdef STOPS
        run stop();
#endif
    }
    timeout;
#ifdef STOPS
    do
    :: i < MS -> assert(ended[i]); i++
    :: else -> break
    od;
    assert(gone)
#else
    do
    :: i < PS -> assert(idle_p[i] && p_m[i] == NONE && blocked_by[i] == NONE && user[i] == NONE); i++
    :: else -> break
    od;
    assert(idle_ms == MS && glob == 0 && retaken == 0 && !locked)
#endif
}
