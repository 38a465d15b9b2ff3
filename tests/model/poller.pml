/* SPDX-License-Identifier: MIT */
/*
 * The M that sleeps in the netpoller (src/m.c) as a model for spin: MS threads, PS Ps, and
 *
 *      kernel    EVENTS that a goroutine waits for each, and NOBODYS that nobody does (or signals)
 *      foreign   a thread that makes goroutines ready (FOREIGN), and for that wakes an M
 *      stop      the end of the run (STOPS)
 *
 * A section under the scheduler's lock is one step, and so is a system call. The netpoller returns if there are events or the
 * eventfd is not 0; who polls without waiting takes the events and leaves the eventfd alone. A goroutine ends, or blocks
 * (BLOCKS), perhaps for ever. Whether somebody spins is in wake.pml; here everybody who makes work wakes an M if a P is idle.
 * A thread that has ended is made again when one is needed.
 *
 * What must hold:
 *   - when nothing can happen any more, no event is left with the kernel, nobody can run and does not, no M sleeps with a P in
 *     its hand or is woken and does not know; after a stop, every M has ended, unless it blocks;
 *   - who returns from the netpoller because of the eventfd was woken: it is 0 for the next;
 *   - who takes an idle P by itself is in the list of idle Ms.
 * Broken on purpose, with -D:
 *   BROKEN_EVENTFD_EDGE         the eventfd is edge-triggered: whoever polls takes the edge
 *   BROKEN_CLEARED_OUTSIDE_LOCK it is cleared when the lock is open, and the next may sleep there already
 *   BROKEN_NOT_CLEARED          it is not cleared
 *   BROKEN_FUTEX_ONLY           the poller is woken as all others are
 *   BROKEN_WAKE_UNLOCKED        who wakes an M looks for the poller when the lock is open
 *   BROKEN_LOOK_UNLOCKED        whether it was woken, the poller looks before it has the lock
 *   BROKEN_PICKED_POLLS         an M that was picked already becomes the poller
 *   BROKEN_ROLE_KEPT            who leaves the netpoller with a P remains the poller
 *   BROKEN_NO_WAKE              who finds no P for what is ready puts it into the global queue, and wakes nobody
 *   BROKEN_POLLER_LEAVES        the poller may leave as superfluous, and nobody polls
 *   BROKEN_RELEASE_UNPOLLED     a P that goes idle because its M blocks wakes nobody to poll
 */
#ifndef PS
#define PS 1
#endif
#ifndef MS
#define MS 2
#endif
#ifndef EVENTS
#define EVENTS 2
#endif
#ifndef NOBODYS
#define NOBODYS 0
#endif
#ifndef FOREIGN
#define FOREIGN 1
#endif
#ifndef BLOCKS
#define BLOCKS 0
#endif
#ifndef KEEP
#define KEEP MS /* idle Ms that stay for good */
#endif
#define NONE 255

byte idle_ps = PS - 1;
byte glob = 1;
byte events, nobodys, eventfd; /* in the kernel */
byte poller = NONE;
bool idle[MS], ended[MS], blocked[MS];
byte idle_count, ended_count;
bool wake[MS], next_p[MS];
bool stopping, asleep; /* asleep: an M is in the netpoller, a hint */
byte blocks = BLOCKS, events_left = EVENTS;

/* ---- waking ---- */

/* Under the lock. */
inline w_m_wake(m)
{
    wake[m] = true;
#if !defined(BROKEN_FUTEX_ONLY) && !defined(BROKEN_WAKE_UNLOCKED)
    if
    :: m == poller -> eventfd = 1
    :: else
    fi
#endif
}

/* With a P. The poller is the last to be disturbed; one that has ended stands for one that is made. */
inline w_m_start()
{
    atomic {
        idle_count + ended_count > 0 || stopping -> /* else one of them will be free soon */
        d = NONE;
        k = 0;
        do
        :: k < MS && idle[k] && (d == NONE || d == poller) -> d = k; k++
        :: k < MS && !(idle[k] && (d == NONE || d == poller)) -> k++
        :: else -> break
        od;
        k = 0;
        do
        :: d == NONE && k < MS && ended[k] -> d = k
        :: d == NONE && k < MS && !ended[k] -> k++
        :: else -> break
        od;
        k = 0;
        if
        :: stopping
        :: !stopping && idle[d] ->
            idle[d] = false;
            idle_count--;
            next_p[d] = true;
            w_m_wake(d)
        :: !stopping && !idle[d] -> ended[d] = false; ended_count--; next_p[d] = true; wake[d] = true
        fi
    }
#ifdef BROKEN_WAKE_UNLOCKED
    if
    :: d != NONE && d == poller -> eventfd = 1
    :: else
    fi;
#endif
    d = 0
}

inline w_wake_one()
{
    atomic {
        done = idle_ps > 0 && !stopping;
        if
        :: done -> idle_ps--
        :: else
        fi
    }
    if
    :: done -> done = false; w_m_start()
    :: else
    fi
}

/* ---- polling ---- */

#ifdef BROKEN_EVENTFD_EDGE
#define PENDING (events > 0 || nobodys > 0 || eventfd > 0)
#else
#define PENDING (events > 0 || nobodys > 0)
#endif

inline harvest(to)
{
    to = events;
    events = 0;
    nobodys = 0;
#ifdef BROKEN_EVENTFD_EDGE
    eventfd = 0
#endif
}

inline sleep_in_poller()
{
    asleep = true;
end_polling:
    atomic { PENDING || eventfd > 0 -> harvest(got) }
    asleep = false;
#ifdef BROKEN_LOOK_UNLOCKED
    woken = wake[me];
#endif
    atomic {
#ifndef BROKEN_LOOK_UNLOCKED
        woken = wake[me];
#endif
#ifndef BROKEN_CLEARED_OUTSIDE_LOCK
        assert(eventfd == 0 || wake[me]);
#endif
#if !defined(BROKEN_CLEARED_OUTSIDE_LOCK) && !defined(BROKEN_NOT_CLEARED)
        if
        :: woken -> eventfd = 0
        :: else
        fi;
#endif
        poller = NONE;
        if
        :: !woken && got > 0 && idle_ps > 0 && !stopping ->
            assert(idle[me]);
            idle_ps--;
            idle[me] = false;
            idle_count--;
            p = true
        :: else
        fi
#ifdef BROKEN_ROLE_KEPT
        poller = (p || woken -> me : NONE)
#endif
    }
    if
    :: woken ->
#ifdef BROKEN_CLEARED_OUTSIDE_LOCK
        eventfd = 0;
#endif
        atomic { wake[me] = false; p = next_p[me]; next_p[me] = false }
    :: else
    fi;
    if
    :: got > 0 && p -> own = true; got = 0
    :: got > 0 && !p ->
        atomic { glob = glob + got; got = 0 }
#ifndef BROKEN_NO_WAKE
        w_wake_one()
#endif
    :: else
    fi
}

/* ---- threads ---- */

proctype M(byte me; bool p)
{
    byte got, k, d;
    bool own, polls, superfluous, woken, done;
    if
    :: p
    :: else -> goto stop
    fi;

find:
    do
    :: stopping || !p -> break
    :: !stopping && p ->
        if
        :: own -> own = false
        :: !own && glob > 0 -> atomic { done = glob > 0; glob = (glob > 0 -> glob - 1 : 0) }
        :: !own && glob == 0 ->
            atomic {
                if
                :: PENDING -> harvest(got)
                :: else
                fi
                own = got > 0;
                done = own
            }
            got = 0;
            if
            :: own
            :: else -> goto go_idle
            fi
        fi;
        if
        :: atomic { blocks > 0 -> blocks--; done = false } goto block
        :: true
        fi;
        done = false
    od;
    goto ends;

go_idle:
    atomic {
        if
        :: glob > 0
        :: else -> idle_ps++; p = false
        fi
    }
    if
    :: !p && glob > 0 ->
        atomic {
            if
            :: idle_ps > 0 && !stopping -> idle_ps--; p = true
            :: else
            fi
        }
    :: else
    fi;
    if
    :: p -> goto find
    :: else
    fi;

stop:
    atomic {
        if
        :: stopping -> goto ends
        :: else -> idle[me] = true; idle_count++
        fi
    }
    do
    :: atomic {
            if
#ifdef BROKEN_PICKED_POLLS
            :: poller == NONE -> poller = me
#else
            :: poller == NONE && idle[me] -> poller = me
#endif
            :: else
            fi;
            polls = poller == me;
            superfluous = !polls && idle_count > KEEP;
            woken = false
        }
        if
        :: polls ->
            sleep_in_poller();
            if
            :: woken || p -> break
            :: else
            fi
        :: else ->
end_asleep:
            if
            :: atomic { wake[me] -> wake[me] = false; p = next_p[me]; next_p[me] = false } break
            :: superfluous
            fi
        fi;
        atomic { /* leave_idle */
            if
#ifdef BROKEN_POLLER_LEAVES
            :: idle[me] && idle_count > KEEP ->
#else
            :: idle[me] && idle_count > KEEP && !polls ->
#endif
                idle[me] = false;
                idle_count--;
                goto ends
            :: else
            fi
        }
    od;
    if
    :: p -> goto find
    :: else -> goto ends
    fi;

block:
    own = false;
    p = false;
    if
    :: glob > 0 -> w_m_start()
    :: else ->
        idle_ps++;
        done = !asleep;
#ifndef BROKEN_RELEASE_UNPOLLED
        if
        :: done -> w_wake_one()
        :: else
        fi;
#endif
        done = false;
        if
        :: glob > 0 -> w_wake_one()
        :: else
        fi
    fi;
    blocked[me] = true;
    if
    :: blocked[me] = false
    :: true ->
end_blocked:
        false
    fi;
    atomic {
        if
        :: idle_ps > 0 && !stopping -> idle_ps--; p = true
        :: else -> glob++
        fi
    }
    if
    :: p -> goto find
    :: else -> w_wake_one(); goto stop
    fi;

ends:
    atomic { ended[me] = true; ended_count++; p = false; own = false; wake[me] = wake[me] && !stopping; done = false }
end_ended:
    atomic { !ended[me] && wake[me] -> wake[me] = false; p = next_p[me]; next_p[me] = false }
    goto find
}

proctype kernel()
{
    byte n = NOBODYS;
    do
    :: atomic { events_left > 0 -> events_left--; events++ }
    :: atomic { n > 0 -> n--; nobodys++ }
    :: events_left == 0 && n == 0 -> break
    od
}

proctype foreign()
{
    byte n = FOREIGN, k, d;
    bool done;
    do
    :: n > 0 -> n--; glob++; w_wake_one()
    :: else -> break
    od
}

#ifdef STOPS
proctype stop()
{
    byte i;
    atomic {
        stopping = true;
        for (i : 0 .. MS - 1) {
            if
            :: !ended[i] -> idle[i] = false; w_m_wake(i)
            :: else
            fi
        }
        idle_count = 0;
        i = 0
    }
}
#endif

init
{
    byte i;
    atomic {
        run M(0, true);
        for (i : 1 .. MS - 1) {
            run M(i, false)
        }
        run kernel();
        run foreign();
#ifdef STOPS
        run stop();
#endif
        i = 0
    }
    timeout;
    if
    :: stopping ->
        do
        :: i < MS -> assert(ended[i] || blocked[i]); i++
        :: else -> break
        od
    :: else ->
        assert(glob == 0 || idle_ps == 0);
        assert(events == 0 || idle_ps == 0);
        do
        :: i < MS -> assert(!wake[i] && !next_p[i]); i++
        :: else -> break
        od
    fi
}
