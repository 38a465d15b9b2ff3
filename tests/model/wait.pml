/* SPDX-License-Identifier: MIT */
/*
 * The wait protocol (WA1 to WA5 in src/waiter.h) as a model for spin: one waiter in a select of two channels, again and
 * again, and everybody who may end its wait.
 *
 *      sender    hands a value to the waiter in channel A, or puts it into A
 *      closer    closes channel B
 *      timer     is due as soon as it is started
 *      scope     is cancelled, and cuts the wait
 *      end       of the run, which cuts the wait of a foreign thread
 *
 * A wait has a number n, which stands for its frame: `frame` is n while the nodes, the wait and the timer of wait n may be
 * touched, and whoever touches them says touch(n). The waiter is its goroutine alone; what is done to it when it is off
 * its stack (w_after) is done by another process, landing, while the goroutine may have been woken already. A foreign
 * thread (FOREIGN) does that itself. Between two waits the waiter may leave its scope, or shield itself from it.
 *
 * A step is one access to memory that others look at. The two stores that a fence must push out, [SC-1], lie in a store
 * buffer each (TSO), which is emptied at any time; a swap, and here also the opening of a guard, waits until it is empty.
 *
 * What must hold:
 *   - a wait is ended once, and woken once, when it is off its stack; nobody touches its frame after it has returned;
 *   - a wait that was cut is one whose scope is over; the nodes are out of their queues when it returns;
 *   - every value sent is received or still in A; one that was handed over was received;
 *   - with FREES, the waiter frees A when it has the last value, and B when it sees the close: nobody touches them then;
 *   - when nothing can happen any more, the waiter has returned from its last wait.
 * Broken on purpose, with -D:
 *   BROKEN_NO_FENCE_WAITER      WA5: the ticket is opened and `over` looked at without a fence between
 *   BROKEN_NO_FENCE_SCOPE       WA5: `over` is set and the ticket looked at without a fence between
 *   BROKEN_NO_LOOK              WA5: the waiter does not look at `over` once its ticket is open
 *   BROKEN_OPEN_ON_STACK        the ticket is opened before the waiter is off its stack
 *   BROKEN_OPEN_AFTER_GUARDS    the ticket is opened when the guards are open again
 *   BROKEN_OPEN_UNGUARDED       a wait in no channel is opened with no lock held that the waiter needs to return
 *   BROKEN_READ_AFTER_GUARDS    who opens the guards reads the frame once more after the last of them
 *   BROKEN_READ_AFTER_HEAP      likewise after the heap's lock, where that was the only one
 *   BROKEN_CLAIM_WITHOUT_SWAP   WA3: a claim looks at the ticket, then writes it
 *   BROKEN_CLAIM_UNGUARDED      WA2: a node is taken under the guard, its wait claimed without
 *   BROKEN_NODE_LEFT            WA1: the closer ends the wait and leaves the node in the queue
 *   BROKEN_TOUCH_AFTER_WAKE     who has woken the waiter looks at its node again
 *   BROKEN_WAKE_UNDER_GUARD     the waiter is woken first, then the guard is opened
 *   BROKEN_GIVE_UP              a sender that could not claim the first waiter does not try the next
 *   BROKEN_CUT_STAYS            WA2: a waiter that was cut leaves its nodes in the queues
 *   BROKEN_PEEK                 WA2: a waiter looks at `linked` without the guard, to save taking it
 *   BROKEN_EARLY_TIMER          the timer is started under the heap's lock, the ticket opened after that
 *   BROKEN_LATE_TIMER           the ticket is opened, then the timer is started
 *   BROKEN_TIMER_RUNS_ON        the timer of a wait that something else ended is not stopped
 *   BROKEN_LEAVE_UNLOCKED       a goroutine leaves its scope without the lock under which the scope cuts
 *   BROKEN_NO_LOOK_AT_END       a foreign thread goes to sleep without a look whether the run has ended
 *   BROKEN_WOKEN_LATE           a foreign thread clears `woken` when its ticket is open already
 *   BROKEN_END_UNLOCKED         the end of the run cuts sleeping threads without the lock of their list
 *   BROKEN_NO_WAIT_AT_END       the end of the run does not wait for the calls of foreign threads
 */
#ifndef WAITS
#define WAITS 2
#endif
#ifndef SENDS
#define SENDS 0
#endif

#define A 0
#define B 1
#define TIMER 2 /* who has won a wait, beside A and B */
#define NOBODY 3

#define OPEN 1
#define SHIELDED 2
#define CLAIMED 3
#define CUT 4
#define TICKET(n, state) (8 * (n) + (state))
#define STATE(t) ((t) % 8)

byte ticket, ticket_buffer; /* in the G; in the store buffer of who opens it, 0: nothing is */
bool over, over_buffer;     /* of the scope */
bool left;                  /* the waiter is in another scope now, which is never over */
bool scope_lock;

byte frame; /* 0: there is none */
byte as_opened, won; /* in the frame: wait->ticket, wait->won */

bool guard[2], freed[2];
byte node[2]; /* the waiter's in the channel's queue; 0: none is linked */
byte in_a;    /* values in A */
bool closed;  /* B */
bool rival;   /* somebody else waits in A, behind the waiter */

bool heap_lock;
byte timer; /* in the heap; 0: none is */

bool on_stack = true, runnable;
byte landed; /* the wait whose waiter is off its stack now */

byte enders; /* of the present wait */
byte sent, received;
bool returned; /* from the last wait */

#ifdef FOREIGN
bool up = true, gone; /* the run; its memory is not there any more */
bool calling;         /* w_sched.foreign */
bool listed, list_lock, woken;
#endif

#define touch(n) assert(frame == (n))
#define LOCK(x) atomic { !x -> x = true }
#define UNLOCK(x) x = false
#define GUARD(c) atomic { !guard[c] -> assert(!freed[c]); guard[c] = true }
#define UNGUARD(c) d_step { assert(!freed[c]); guard[c] = false }

proctype store_buffers()
{
end:
    do
    :: d_step { ticket_buffer != 0 -> ticket = ticket_buffer; ticket_buffer = 0 }
    :: d_step { over_buffer -> over = true; over_buffer = false }
    od
}

/* ---- waking ---- */

inline w_wake_g()
{
#ifdef FOREIGN
    d_step { assert(!gone && calling); woken = true }
#else
    d_step { assert(!on_stack && !runnable); runnable = true }
#endif
}

inline w_wake(x)
{
    d_step { touch(x) } /* w->wait->g */
    w_wake_g();
#ifdef BROKEN_TOUCH_AFTER_WAKE
    touch(x)
#endif
}

/* ---- ending a wait ---- */

inline swap_ticket(from, to)
{
    d_step {
        done = ticket == from;
        if
        :: done -> ticket = to; enders++
        :: else
        fi
    }
}

/* Of wait x, in favour of `by`; sets done. */
inline w_claim(x, by)
{
    d_step { touch(x); t = as_opened }
#ifdef BROKEN_CLAIM_WITHOUT_SWAP
    done = ticket == t;
    if
    :: done -> d_step { ticket = t - STATE(t) + CLAIMED; enders++ }
    :: else
    fi;
#else
    swap_ticket(t, t - STATE(t) + CLAIMED);
#endif
    if
    :: done -> d_step { touch(x); won = by }
    :: else
    fi;
    t = 0
}

/* By the scope; sets done. */
inline w_cut()
{
    t = ticket;
    if
    :: STATE(t) == OPEN -> swap_ticket(t, t - OPEN + CUT)
    :: else
    fi;
    t = 0
}

/* ---- those who end it ---- */

inline hand_over(c)
{
    if
    :: n == 0
    :: else ->
        d_step { touch(n); node[c] = 0 }
#ifdef BROKEN_CLAIM_UNGUARDED
        UNGUARD(c);
        w_claim(n, c);
        GUARD(c)
#else
        w_claim(n, c)
#endif
    fi
}

inline wake_claimed(c)
{
#ifdef BROKEN_WAKE_UNDER_GUARD
    w_wake(n);
    UNGUARD(c)
#else
    UNGUARD(c);
    w_wake(n)
#endif
}

proctype sender()
{
    byte n, t;
    bool done;
    do
    :: sent < SENDS ->
        GUARD(A);
        n = node[A];
        hand_over(A);
        if
        :: done -> sent++; wake_claimed(A)
        :: else ->
            d_step {
                sent++;
                if
#ifdef BROKEN_GIVE_UP
                :: rival && n == 0 -> rival = false; received++
#else
                :: rival -> rival = false; received++
#endif
                :: else -> in_a++
                fi
            }
            UNGUARD(A)
        fi;
        d_step { n = 0; done = false }
    :: else -> break
    od
}

proctype closer()
{
    byte n, t;
    bool done;
    GUARD(B);
    d_step { closed = true; n = node[B] }
#ifdef BROKEN_NODE_LEFT
    if
    :: n != 0 -> w_claim(n, B)
    :: else
    fi;
#else
    hand_over(B);
#endif
    if
    :: done -> wake_claimed(B)
    :: else -> UNGUARD(B)
    fi
}

proctype timers()
{
    byte n, t;
    bool done;
end:
    do
    :: atomic { timer != 0 && !heap_lock -> heap_lock = true; n = timer }
        d_step { touch(n); timer = 0 }
        w_claim(n, TIMER);
        UNLOCK(heap_lock);
        if
        :: done -> w_wake(n)
        :: else
        fi;
        d_step { n = 0; done = false }
    od
}

proctype scope()
{
    byte t;
    bool done;
    LOCK(scope_lock);
    if
    :: !left ->
        over_buffer = true;
#ifndef BROKEN_NO_FENCE_SCOPE
        !over_buffer;
#endif
        w_cut()
    :: else
    fi;
    !over_buffer;
    UNLOCK(scope_lock);
    if
    :: done -> w_wake_g()
    :: else
    fi
}

#ifdef FOREIGN
inline cut_at_end()
{
    d_step { assert(calling); t = ticket } /* calling: what stands for the thread is there */
    if
    :: STATE(t) == OPEN || STATE(t) == SHIELDED -> swap_ticket(t, t - STATE(t) + CUT)
    :: else
    fi;
    t = 0
}

proctype end_of_run()
{
    byte t;
    bool done;
    up = false;
#ifndef BROKEN_END_UNLOCKED
    LOCK(list_lock);
#endif
    if
    :: listed ->
        cut_at_end();
        if
        :: done -> w_wake_g()
        :: else
        fi;
        assert(calling) /* the next in the list */
    :: else
    fi;
    UNLOCK(list_lock);
#ifndef BROKEN_NO_WAIT_AT_END
    !calling;
#endif
    gone = true
}
#endif

/* ---- the waiter ---- */

/* Sets done if the scope was over, and it was we who cut the wait. */
inline w_wait_open(x)
{
    d_step { touch(x); ticket_buffer = as_opened; t = as_opened }
    if
#ifndef BROKEN_NO_LOOK
    :: STATE(t) == OPEN ->
#ifndef BROKEN_NO_FENCE_WAITER
        ticket_buffer == 0;
#endif
        if
        :: d_step { over && !left -> touch(x) } /* g->scope: it is not left before the wait has returned */
            ticket_buffer == 0;
            w_cut()
        :: else -> touch(x)
        fi
#endif
    :: else
    fi;
    ticket_buffer == 0; /* before a guard is opened */
    t = 0
}

inline start_timer(x)
{
    if
    :: timed -> d_step { touch(x); timer = x }
    :: else
    fi
}

inline open_guards(x)
{
#ifndef ALONE
    d_step { touch(x) }
    UNGUARD(A);
    d_step { touch(x) }
    UNGUARD(B);
#endif
#ifdef BROKEN_READ_AFTER_GUARDS
    touch(x);
#endif
    skip
}

bool timed; /* the present wait; in the frame */

/* The w_after of the wait, in the context that came after it on its M. */
proctype landing()
{
    byte n, t;
    bool done, lock_heap;
end:
    do
    :: atomic { landed != 0 -> n = landed; landed = 0 }
#ifdef BROKEN_OPEN_AFTER_GUARDS
        open_guards(n);
        w_wait_open(n);
#else
        d_step { touch(n); lock_heap = timed }
#if defined(ALONE) && !defined(BROKEN_OPEN_UNGUARDED)
        lock_heap = true;
#endif
        if
        :: lock_heap -> LOCK(heap_lock)
        :: else
        fi;
#ifdef BROKEN_EARLY_TIMER
        start_timer(n);
        if
        :: lock_heap -> UNLOCK(heap_lock); lock_heap = false
        :: else
        fi;
#elif !defined(BROKEN_LATE_TIMER)
        start_timer(n);
#endif
#ifndef BROKEN_OPEN_ON_STACK
        w_wait_open(n);
#endif
        if
        :: lock_heap -> UNLOCK(heap_lock)
        :: else
        fi;
#ifdef BROKEN_READ_AFTER_HEAP
        touch(n);
#endif
        open_guards(n);
#ifdef BROKEN_LATE_TIMER
        if
        :: lock_heap -> LOCK(heap_lock); start_timer(n); UNLOCK(heap_lock)
        :: else
        fi;
#endif
#endif
        if
        :: done -> w_wake_g()
        :: else
        fi;
        d_step { n = 0; done = false; lock_heap = false }
    od
}

#ifdef FOREIGN
inline w_foreign_sleep(x)
{
#ifndef BROKEN_WOKEN_LATE
    woken = false;
#endif
    w_wait_open(x);
#ifdef BROKEN_WOKEN_LATE
    woken = false;
#endif
    open_guards(x);
    if
    :: done -> w_wake_g(); done = false
    :: else
    fi;
    LOCK(list_lock);
    listed = true;
#ifndef BROKEN_NO_LOOK_AT_END
    if
    :: !up -> cut_at_end()
    :: else
    fi;
#endif
    UNLOCK(list_lock);
    if
    :: done
    :: else ->
        if
        :: woken
        :: timed -> w_claim(x, TIMER); done || woken
        fi
    fi;
    LOCK(list_lock);
    d_step { listed = false; done = false }
    UNLOCK(list_lock)
}
#endif

inline take_out(c, x)
{
    if
#ifdef BROKEN_CUT_STAYS
    :: won == NOBODY
#endif
    :: won == c
#ifdef BROKEN_PEEK
    :: won != c && node[c] == 0
#endif
    :: else ->
        GUARD(c);
        d_step {
            if
            :: node[c] == x -> node[c] = 0
            :: else
            fi
        }
        UNGUARD(c)
    fi
}

inline w_timer_stop(x)
{
#ifndef FOREIGN
#ifdef ALONE
    if
    :: true ->
#else
    if
    :: timed && won != TIMER ->
#endif
        LOCK(heap_lock);
        d_step {
            if
            :: timer == x -> timer = 0
            :: else
            fi
        }
        UNLOCK(heap_lock)
    :: else
    fi
#else
    skip
#endif
}

/* Wait x: sleeps, and takes back what is its own. The guards are held, unless it waits in no channel. */
inline wait(x, state)
{
    atomic {
        if
#ifdef TIMED
        :: timed = true
#endif
#if !defined(TIMED) || !defined(ALONE)
        :: timed = false
#endif
        fi;
        frame = x;
        as_opened = TICKET(x, state);
        won = NOBODY;
        enders = 0;
#ifndef ALONE
        node[A] = x;
        node[B] = x
#endif
    }
#ifdef FOREIGN
    w_foreign_sleep(x);
#else
#ifdef BROKEN_OPEN_ON_STACK
    w_wait_open(x);
    assert(!done);
#endif
    d_step { on_stack = false; landed = x }
    atomic { runnable -> runnable = false; on_stack = true }
#endif
    d_step {
        assert(enders == 1);
#ifdef FOREIGN
        assert(won != NOBODY || (over && !left) || !up)
#else
        assert(won != NOBODY || (over && !left))
#endif
    }
#ifndef ALONE
    take_out(A, x);
    take_out(B, x);
#endif
#ifndef BROKEN_TIMER_RUNS_ON
    w_timer_stop(x);
#endif
    d_step {
        assert(node[A] != x && node[B] != x);
        frame = 0;
        if
        :: won == A -> received++
        :: else
        fi
    }
}

/* One select. `got` is what ended it. */
inline weft_select(x, state)
{
    if
#ifdef FOREIGN
    :: !up -> got = NOBODY
#endif
    :: state == OPEN && over && !left -> got = NOBODY
    :: else ->
#ifndef ALONE
        GUARD(A);
        GUARD(B);
#endif
        if
        :: in_a > 0 -> d_step { in_a--; received++; got = A } UNGUARD(A); UNGUARD(B)
        :: closed -> got = B; UNGUARD(A); UNGUARD(B)
        :: in_a == 0 && !closed -> wait(x, state); got = won
        fi
    fi
}

proctype waiter()
{
    byte x = 1, state = OPEN, got, t;
    bool done;
    do
    :: x <= WAITS ->
#ifdef FOREIGN
        calling = true;
#endif
        weft_select(x, state);
#ifdef FOREIGN
        calling = false;
#endif
#ifdef FREES
        if
        :: got == A && received == SENDS -> d_step { assert(!guard[A]); freed[A] = true } break
        :: got == B -> d_step { assert(!guard[B]); freed[B] = true } break
        :: else
        fi;
#endif
        x++;
        if
        :: state = OPEN
#if WAITS > 1
        :: state = SHIELDED
        :: !left ->
#ifndef BROKEN_LEAVE_UNLOCKED
            LOCK(scope_lock);
#endif
            left = true;
#ifndef BROKEN_LEAVE_UNLOCKED
            UNLOCK(scope_lock)
#endif
#endif
        fi
    :: else -> break
    od;
    returned = true
}

init
{
    atomic {
#ifdef RIVAL
        rival = true;
#endif
        run store_buffers();
        run waiter();
#if SENDS > 0
        run sender();
#endif
#ifdef CLOSES
        run closer();
#endif
#ifdef CANCELS
        run scope();
#endif
#ifdef FOREIGN
#ifdef ENDS
        run end_of_run();
#endif
#else
        run landing();
#ifdef TIMED
        run timers();
#endif
#endif
    }
    timeout;
    assert(returned);
    assert(sent == SENDS && sent == received + in_a);
    assert(!rival || in_a == 0)
}
