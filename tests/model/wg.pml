/* SPDX-License-Identifier: MIT */
/*
 * Wait groups (src/waitgroup.c) as a model for spin: waiters that enlist themselves when they are off their stacks, some of
 * which are cut, and those who bring the count to zero.
 *
 * The word is count, waiters, locked; what the code changes in one operation is changed in one step. The list is the
 * number of its first member, 0 while there is none, NOBODY where it ran empty at count zero. As in wait.pml the w_after of
 * a waiter is a process of its own, landing; that `over` and the ticket meet is shown there.
 *
 * What must hold:
 *   - a wait is ended and woken once, off its stack; nobody touches its frame after it has returned;
 *   - who waited and was not cut finds the work done, of the second round too (AGAIN: a waiter that was cut adds work to
 *     the same wait group, and waits for it);
 *   - who waited may free the wait group when nobody else waits or the others' waits are claimed: nobody touches it then;
 *   - when nothing can happen any more, every wait has returned.
 * Broken on purpose, with -D:
 *   BROKEN_NO_HANDSHAKE     a waiter that was claimed does not wait for the end of its landing
 *   BROKEN_CUT_AT_ONCE      a waiter that was cut does not either
 *   BROKEN_CUT_STAYS        a waiter that was cut stays in the list
 *   BROKEN_CLEAR_AT_ZERO    the last in the list was cut and clears WAITERS, though the count is zero
 *   BROKEN_LIST_NULL        WG1: the list ran empty at count zero, and nothing says so
 *   BROKEN_RETURN_AT_ZERO   WG2: the last in the list was cut at count zero, and does not wait for who is on his way to it
 *   BROKEN_WAKE_FIRST       waiters are woken, then the lock is opened
 *   BROKEN_CLAIM_UNLOCKED   the list is taken under the lock, its waits claimed without
 *   BROKEN_ZERO_COUNT       WG2: a waiter that sees the count at zero returns, though WAITERS is set
 *   BROKEN_FREE_BESIDE_CUT  who waited frees the wait group while a waiter that was cut has not returned (a user's fault)
 */
#ifndef WS
#define WS 2 /* waiters */
#endif
#ifndef DONES
#define DONES 1
#endif
#ifndef CUTS
#define CUTS 1 /* so many of the waiters can be cut */
#endif
#define NOBODY 255

#define PLAIN 0
#define OPEN 1
#define CLAIMED 2
#define CUT 3

#define IN_LIST 1
#define NOT_IN_LIST 2

byte count = DONES;
bool waiters, locked;
byte list;
bool freed;
byte work = DONES; /* that is still to be done */

/* Of waiter i, from 1 on. */
bool frame[WS + 1], linked[WS + 1], won[WS + 1];
byte next[WS + 1], ticket[WS + 1], enlisted[WS + 1];
bool landed[WS + 1], runnable[WS + 1], on_stack[WS + 1] = true;
bool over[WS + 1];
byte enders[WS + 1];
bool inside[WS + 1]; /* weft_wg_wait */
bool back[WS + 1];   /* from its last wait */
byte returned;

#define touch(i) assert(frame[i])
#define use() assert(!freed)

inline wake(i)
{
    d_step { assert(!on_stack[i] && !runnable[i]); runnable[i] = true }
}

/* Sets ok. */
inline w_claim(i)
{
    d_step {
        touch(i);
        ok = ticket[i] == PLAIN || ticket[i] == OPEN;
        if
        :: ok ->
            enders[i]++;
            won[i] = true;
            if
            :: ticket[i] == OPEN -> ticket[i] = CLAIMED
            :: else
            fi
        :: else
        fi
    }
}

/* Sets ok. */
inline w_cut(i)
{
    d_step {
        ok = ticket[i] == OPEN;
        if
        :: ok -> ticket[i] = CUT; enders[i]++
        :: else
        fi
    }
}

inline lock()
{
    atomic { !locked -> use(); locked = true }
}

inline unlock()
{
    d_step { use(); locked = false }
}

inline first_locked(x)
{
    atomic {
        list != 0 -> use();
        x = (list == NOBODY -> 0 : list)
    }
}

/* ---- those who are waited for ---- */

inline wake_claimed()
{
    do
    :: first != 0 ->
        d_step { touch(first); w = first; first = next[first] }
        wake(w)
    :: else -> w = 0; break
    od
}

inline wake_all_locked()
{
    first_locked(w);
#ifdef BROKEN_CLAIM_UNLOCKED
    d_step { list = 0; locked = false; waiters = false }
#endif
    do
    :: w != 0 ->
        d_step { touch(w); n = next[w]; linked[w] = false }
        w_claim(w);
        if
        :: ok -> d_step { touch(w); next[w] = first; first = w }
        :: else
        fi;
        d_step { w = n; n = 0; ok = false }
    :: else -> break
    od;
#ifdef BROKEN_WAKE_FIRST
    list = 0;
    wake_claimed();
    skip;
    d_step { use(); locked = false; waiters = false }
#else
#ifndef BROKEN_CLAIM_UNLOCKED
    list = 0;
    d_step { use(); locked = false; waiters = false }
#endif
    wake_claimed()
#endif
}

/* weft_wg_done. The slow way is right whatever the word was a moment ago. */
proctype done()
{
    byte w, n, first;
    bool ok;
    work--;
    if
    :: d_step { waiters && !locked && count == 1 -> use(); count = 0; locked = true } wake_all_locked()
    :: d_step { use(); count--; ok = count == 0 && waiters }
        if
        :: ok ->
            ok = false;
            lock();
            assert(waiters); /* else: used again before a wait has returned */
            wake_all_locked()
        :: else
        fi
    fi
}

proctype scope(byte i)
{
    bool ok;
    over[i] = true;
    w_cut(i);
    if
    :: ok -> wake(i)
    :: else
    fi
}

/* ---- waiters ---- */

/* Sets ok if it is in the list; if not, the count is zero. */
inline enlist(i)
{
    d_step { touch(i); linked[i] = true }
    if
#ifdef BROKEN_ZERO_COUNT
    :: d_step { count == 0 -> use() }
#else
    :: d_step { count == 0 && !waiters && !locked -> use() }
#endif
        d_step { touch(i); linked[i] = false }
    :: d_step { count != 0 && !waiters && !locked -> use(); waiters = true }
        d_step { touch(i); use(); next[i] = 0; list = i; ok = true }
    :: d_step { count != 0 && waiters && !locked -> use(); locked = true }
        first_locked(n);
        d_step { touch(i); next[i] = n; n = 0; use(); list = i }
        d_step { use(); locked = false; ok = true }
    fi
}

proctype landing(byte i)
{
    byte n;
    bool ok, ticketed, cut, in_list;
end:
    do
    :: atomic { landed[i] -> landed[i] = false; touch(i); ticketed = ticket[i] != PLAIN }
        if
        :: ticketed ->
            d_step { touch(i); ticket[i] = OPEN }
            if
            :: over[i] -> w_cut(i); d_step { touch(i); cut = ok; ok = false }
            :: else -> touch(i)
            fi
        :: else
        fi;
        if
        :: !cut -> enlist(i); d_step { in_list = ok; ok = false }
        :: else
        fi;
        if
        :: !cut && !in_list -> w_claim(i); d_step { cut = ok; ok = false }
        :: else
        fi;
        if
        :: ticketed -> d_step { touch(i); enlisted[i] = (in_list -> IN_LIST : NOT_IN_LIST) }
        :: else
        fi;
        if
        :: cut -> wake(i)
        :: else
        fi;
        d_step { ticketed = false; cut = false; in_list = false }
    od
}

inline unlock_empty()
{
    list = 0;
    if
#ifdef BROKEN_CLEAR_AT_ZERO
    :: d_step { true -> use(); waiters = false; locked = false }
#else
    :: d_step { count != 0 -> use(); waiters = false; locked = false }
    :: else ->
#ifndef BROKEN_LIST_NULL
        list = NOBODY;
#endif
        unlock();
#ifndef BROKEN_RETURN_AT_ZERO
        atomic { !waiters -> use() }
#endif
#endif
    fi
}

inline delist(i)
{
    lock();
    if
    :: linked[i] ->
        first_locked(first);
        d_step { /* the lock keeps everybody else out */
            if
            :: first == i -> first = next[i]
            :: else ->
                n = first;
                do
                :: next[n] == i -> break
                :: else -> n = next[n]
                od;
                next[n] = next[i];
                n = 0
            fi
        }
        if
        :: first == 0 -> unlock_empty()
        :: else -> list = first; first = 0; unlock()
        fi
    :: else -> unlock()
    fi
}

inline weft_wg_wait(i, t)
{
    inside[i] = true;
    atomic { use(); ok = count == 0 && !waiters && !locked }
    if
    :: ok -> ok = false; won[i] = true
    :: else ->
        d_step {
            frame[i] = true;
            ticket[i] = t;
            won[i] = false;
            enlisted[i] = 0;
            enders[i] = 0;
            on_stack[i] = false;
            landed[i] = true
        }
        atomic { runnable[i] -> runnable[i] = false; on_stack[i] = true; assert(enders[i] == 1) }
        if
#ifdef BROKEN_CUT_AT_ONCE
        :: t != PLAIN && won[i] -> enlisted[i] != 0
#elif defined(BROKEN_NO_HANDSHAKE)
        :: t != PLAIN && !won[i] -> enlisted[i] != 0
#else
        :: t != PLAIN -> enlisted[i] != 0
#endif
        :: else
        fi;
#ifndef BROKEN_CUT_STAYS
        if
        :: !won[i] && enlisted[i] != NOT_IN_LIST -> delist(i)
        :: else
        fi;
#endif
        frame[i] = false
    fi;
    inside[i] = false
}

/* Nobody else is in a wait that may still touch the wait group. */
#if WS == 1
#define OTHERS_ARE_DONE(i) true
#elif defined(BROKEN_FREE_BESIDE_CUT)
#define OTHERS_ARE_DONE(i) (back[WS + 1 - i] || inside[WS + 1 - i])
#else
#define OTHERS_ARE_DONE(i) (back[WS + 1 - i] || (frame[WS + 1 - i] && won[WS + 1 - i]))
#endif

proctype waiter(byte i)
{
    byte n, first;
    bool ok;
    if
    :: i <= CUTS -> weft_wg_wait(i, CUT) /* any ticket, not open yet */
    :: else -> weft_wg_wait(i, PLAIN)
    fi;
#ifdef AGAIN
    if
    :: !won[i] ->
        d_step { use(); count++; work++ }
        run done();
        weft_wg_wait(i, PLAIN)
    :: else
    fi;
#endif
    d_step {
        assert(!won[i] || work == 0);
        back[i] = true;
        returned++;
        if
        :: won[i] && OTHERS_ARE_DONE(i) -> freed = true
        :: else
        fi
    }
}

init
{
    byte i;
    atomic {
        for (i : 1 .. WS) {
            run waiter(i);
            run landing(i);
            if
            :: i <= CUTS -> run scope(i)
            :: else
            fi
        }
        for (i : 1 .. DONES) {
            run done()
        }
        i = 0
    }
    timeout;
    assert(returned == WS && count == 0 && !waiters && !locked)
}
