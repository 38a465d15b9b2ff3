/* SPDX-License-Identifier: MIT */
/*
 * The netpoller (src/netpoll.c, src/fd.c, and the calls of src/io.c) as a model for spin: one number, RS readers, and
 *
 *      kernel    data and room come, and the peer closes (FINS); an edge is left with epoll for each, if it was asked to tell
 *      poller    takes what edges there are (then they are gone), and tells what is ready now; two of them
 *      cutter    the scope of a reader ends (CUTS)
 *      writer    waits for room (WRITES)
 *      watcher   weft_wait_fd for either side (WATCHES)
 *      closer    weft_close_fd, then another file gets the number (CLOSES)
 *      behind    plain close(), and another file gets the number (BACK)
 *      prover    proves a registration that is doubted
 *
 * What is done under a guard is one step; so is a system call. How a wait is ended once is in wait.pml. A read takes up to two
 * bytes, so that it is short, or leaves something; it may fail and leave all (FAILS). What stops a waiter from sleeping
 * beside an event that it did not see: the epoch of its side, taken before its try (or before it left the try out, NP3).
 *
 * What must hold:
 *   - when nothing can happen any more, nobody sleeps while there is something for it, or while its descriptor is closed;
 *   - a call never touches a file that got the number when the life of the call was over;
 *   - an event wakes those alone who wait in the life that it is about;
 *   - who has got the number from the kernel does not find it closing.
 * Broken on purpose, with -D:
 *   BROKEN_NO_READY             an event that nobody waits for leaves nothing behind
 *   BROKEN_READY_ALONE          it leaves a flag, which one takes, where several may be on their way to the queue
 *   BROKEN_NO_PASS              who has read leaves the others in the queue asleep
 *   BROKEN_NO_PASS_ON_ERROR     likewise if it has failed
 *   BROKEN_CUT_TAKES_EVENT      an event is spent on a waiter that was cut
 *   BROKEN_EMPTY_FOR_EVER       NP3: "it was empty" is believed in a later epoch
 *   BROKEN_EPOCH_AFTER_READ     NP3: the epoch is taken after the read
 *   BROKEN_NO_SHUT              NP3: a short read is believed to have come to the end after the peer has closed
 *   BROKEN_SHUT_LATE            NP3: `shut` is set after the epoch has changed
 *   BROKEN_ASK_LATE             NP2: the kernel is asked to tell when the waiter is in the queue; the edge of then is lost
 *   BROKEN_WATCHED_LATE         NP4: `watched` is set when the watcher is in the queue
 *   BROKEN_WATCHERS_FIRST       an event wakes those who watch before it changes the epochs
 *   BROKEN_NO_LIFE_ON_EVENT     the life of an event is not looked at
 *   BROKEN_NO_LIFE_ON_RESUME    nor that of a call which has waited
 *   BROKEN_CALLS_NOT_AWAITED    the number is given away while calls are under way
 *   BROKEN_WAITS_LEFT           a close wakes nobody
 *   BROKEN_OPEN_LATE            while the kernel closes it, and may give it away, the number counts as closed
 *   BROKEN_OPEN_EARLY           the number is open to calls before the kernel has closed it
 *   BROKEN_NO_DOUBT             nobody doubts one that was made earlier
 *   BROKEN_DOUBT_DROPPED        nobody waits yet: there is no doubt
 *   BROKEN_DOUBT_LATE           the doubt ends after the look whether anybody waits
 */
#ifndef RS
#define RS 2
#endif
#ifndef READS
#define READS 2 /* of each reader, at the most */
#endif
#ifndef DATA
#define DATA 3
#endif
#ifndef CUTS
#define CUTS 0
#endif
#ifndef FAILS
#define FAILS 0
#endif
#ifndef POLLERS
#define POLLERS 1
#endif
#if defined(CLOSES) || defined(BACK)
#define LIVES
#endif
#define SIZE 2 /* of a buffer */

#define R 0
#define W 1
#define WATCHERS 2

#define WRITER RS /* who waits; the readers are below */
#define WATCHER (RS + 1)
#define ALL (RS + 2)

#define OPEN 1 /* a wait */
#define CLAIMED 2
#define CUT 3
#define EBADF 1 /* a result */
#define AGAIN 2
#define ECANCELED 3

/* The kernel's: the file that has the number; the file that epoll knows, and the data that it was given with it. */
byte file = 1, known, known_life;
byte data, to_come = DATA;
bool fin, room, edge[2];
#define READABLE (data > 0 || fin)

/* The entry. */
byte life, calls;
bool closing, in_kernel, asked, shut, doubted, watched;
byte epoch[2], drained;
bool ready[2];
chan q[3] = [ALL] of { byte }; /* of the sides, and who watches */

byte state[ALL], result[ALL], lives[ALL]; /* the waits */
byte cuts = CUTS, fails = FAILS;
byte finished; /* readers */

/* ---- under the guard ---- */

/* The first, or all. */
inline wake_locked(s, everybody, what)
{
    k = len(q[s]);
    turn = false;
    do
    :: k > 0 ->
        k--;
        q[s] ? x;
        if
        :: turn && !everybody -> q[s] ! x
        :: else ->
            if
            :: state[x] == OPEN ->
                state[x] = CLAIMED;
                result[x] = what;
                woke = true;
                turn = true
#ifdef BROKEN_CUT_TAKES_EVENT
            :: state[x] == CUT -> woke = true; turn = true
#else
            :: state[x] == CUT
#endif
            fi
        fi
    :: else -> break
    od;
    x = 0;
    turn = false
}

inline end_waits(what)
{
    atomic { wake_locked(R, true, what); woke = false } /* nobody waits for anything else where this is used */
}

/* ---- kernel ---- */

inline tell(s)
{
    if
    :: known == file -> edge[s] = true
    :: else
    fi
}

inline epoll_ctl(l)
{
    known = file;
    known_life = l;
    edge[R] = edge[R] || READABLE;
    edge[W] = edge[W] || room
}

inline lose_file(next)
{
    file = next;
    known = 0;
    data = 0;
    fin = false;
    edge[R] = false;
    edge[W] = false
}

proctype kernel()
{
end:
    do
    :: atomic { to_come > 0 && file != 0 && !fin -> to_come--; data++; tell(R) }
#ifdef FINS
    :: atomic { !fin && to_come == 0 -> fin = true; tell(R) }
#endif
#if defined(WATCHES) || defined(WRITES)
    :: atomic { !room -> room = true; tell(W) } break
#endif
    :: to_come == 0 -> break
    od
}

/* ---- events ---- */

inline take_event(s, all)
{
    atomic {
        if
#ifdef BROKEN_NO_LIFE_ON_EVENT
        :: true ->
            assert(empty(q[s]) || l == life);
#else
        :: l == life ->
#endif
            epoch[s]++;
            wake_locked(s, all, 0);
#ifdef BROKEN_READY_ALONE
            ready[s] = ready[s] || !woke;
#endif
            woke = false
        :: else
        fi
    }
}

inline wake_watchers()
{
    if
    :: watched -> atomic { wake_locked(WATCHERS, true, 0); woke = false }
    :: else
    fi
}

proctype poller()
{
    byte x, k, l;
    bool turn, woke, in, out, over;
end:
    do
    :: atomic {
            edge[R] || edge[W] ->
            edge[R] = false;
            edge[W] = false;
            in = READABLE;
            out = room;
            over = fin;
            l = known_life
        }
#ifndef BROKEN_SHUT_LATE
        if
        :: over -> shut = true
        :: else
        fi;
#endif
#if defined(WATCHES) && defined(BROKEN_WATCHERS_FIRST)
        wake_watchers();
#endif
        if
        :: in -> take_event(R, over)
        :: else
        fi;
        if
        :: out -> take_event(W, false)
        :: else
        fi;
#if defined(WATCHES) && !defined(BROKEN_WATCHERS_FIRST)
        wake_watchers();
#endif
#ifdef BROKEN_SHUT_LATE
        if
        :: over -> shut = true
        :: else
        fi;
#endif
        atomic { in = false; out = false; over = false; l = 0 }
    od
}

/* ---- doubts ---- */

inline prove()
{
    atomic {
        if
        :: closing || !asked
        :: else ->
            calls++;
            l = life;
            b = file == 0;
            if
            :: !b -> epoll_ctl(l)
            :: else
            fi;
            in = true
        fi
    }
    if
    :: b -> end_waits(0)
    :: else
    fi;
    atomic {
        if
        :: in -> calls--
        :: else
        fi;
        in = false;
        b = false;
        l = 0
    }
}

#ifdef LIVES
proctype prover()
{
    byte x, k, l;
    bool turn, woke, in, b;
end:
    do
#ifdef BROKEN_DOUBT_DROPPED
    :: atomic { doubted -> doubted = false; b = nempty(q[R]) }
#elif defined(BROKEN_DOUBT_LATE)
    :: atomic { doubted -> b = nempty(q[R]) || calls > 0 }
        doubted = false;
#else
    :: atomic { doubted -> doubted = false }
        b = nempty(q[R]) || calls > 0;
#endif
        if
        :: b -> b = false; prove()
        :: else
        fi
    od
}
#endif

/* ---- calls ---- */

inline use_begin()
{
#ifdef LIVES
    atomic {
        if
#ifdef BROKEN_OPEN_LATE
        :: closing -> assert(!mine); r = EBADF
#else
        :: closing && !in_kernel -> assert(!mine); r = EBADF
#endif
        :: !closing -> u = life; calls++
        fi
    }
#else
    skip
#endif
}

inline use_end()
{
#ifdef LIVES
    calls--
#else
    skip
#endif
}

#define SAME(s) (s == WATCHERS -> epoch[R] == e && epoch[W] == ew : epoch[s] == e)
#define FLAG(s) (s == WATCHERS -> ready[R] || ready[W] : ready[s])

/* Sets r, if it is not to be tried again. */
inline wait(s)
{
    ask();
    atomic {
        if
        :: r != 0
        :: r == 0 && life != u -> r = EBADF
#if defined(BROKEN_READY_ALONE)
        :: r == 0 && life == u && FLAG(s) -> ready[s % 2] = false; r = AGAIN
        :: r == 0 && life == u && !FLAG(s) ->
#elif defined(BROKEN_NO_READY)
        :: r == 0 && life == u ->
#else
        :: r == 0 && life == u && !SAME(s) -> r = AGAIN
        :: r == 0 && life == u && SAME(s) ->
#endif
            q[s] ! me;
            state[me] = OPEN;
#ifdef LIVES
            calls--;
#endif
            lives[me] = u
        fi
    }
#ifdef BROKEN_WATCHED_LATE
    if
    :: me == WATCHER -> watched = true
    :: else
    fi;
#endif
#ifdef BROKEN_ASK_LATE
    if
    :: state[me] != 0 && !asked -> atomic { known = file; known_life = u; asked = true }
    :: else
    fi;
#endif
    if
    :: r != 0
    :: else ->
end_asleep:
        atomic {
            state[me] == CLAIMED || state[me] == CUT ->
            if
            :: state[me] == CLAIMED -> r = result[me]
            :: else ->
                r = ECANCELED;
                if
                :: q[s] ?? [eval(me)] -> q[s] ?? eval(me)
                :: else
                fi
            fi;
            state[me] = 0;
            result[me] = 0
        }
#ifdef LIVES
        atomic { /* w_use_resume */
            if
#ifdef BROKEN_NO_LIFE_ON_RESUME
            :: true -> calls++
#else
            :: closing || life != u -> r = (r == 0 -> EBADF : r); gone = true
            :: else -> calls++
#endif
            fi
        }
#endif
    fi;
    if
    :: r == AGAIN -> r = 0
    :: else
    fi
}

inline ask()
{
    atomic {
        if
#ifdef BROKEN_ASK_LATE
        :: !asked
#else
        :: !asked && file == 0 -> r = EBADF
        :: !asked && file != 0 -> epoll_ctl(u); asked = true
#endif
#if !defined(LIVES) || defined(BROKEN_NO_DOUBT)
        :: asked
#else
        :: asked -> doubted = true
#endif
        fi
    }
}

inline use_pass(s)
{
#ifndef BROKEN_NO_PASS
    if
    :: empty(q[s])
    :: nempty(q[s]) -> atomic { wake_locked(s, false, 0); woke = false }
    fi
#else
    skip
#endif
}

#define TOUCH assert(file != 2 || u > 0 || mine)

/* mine: it has got the number from the kernel, and the file is its own. */
proctype reader(byte me; bool mine)
{
    byte x, k, e, ew, u, n, r, i;
    bool turn, woke, vain, done, gone, waited;
    do
    :: i < READS && r == 0 ->
        i++;
        use_begin();
        if
        :: r != 0 -> break
        :: else
        fi;
        e = epoch[R];
#ifdef BROKEN_EMPTY_FOR_EVER
        vain = drained != 0;
#else
        vain = drained == e + 1;
#endif
        done = false;
        do
        :: r == 0 && !done ->
            if
            :: vain -> vain = false
            :: else ->
#ifndef BROKEN_EPOCH_AFTER_READ
                e = epoch[R];
#endif
                atomic {
                    TOUCH;
                    if
                    :: file == 0 -> r = EBADF
                    :: file != 0 && READABLE && fails > 0 -> fails--; done = true; n = 0
                    :: file != 0 && READABLE ->
                        n = (data < SIZE -> data : SIZE);
                        data = data - n;
                        done = true
                    :: file != 0 && !READABLE
                    fi
                }
#ifdef BROKEN_EPOCH_AFTER_READ
                e = epoch[R];
#endif
            fi;
            if
            :: r == 0 && !done -> waited = true; wait(R)
            :: else
            fi
        :: else -> break
        od;
        if
        :: done && n > 0 ->
            if
#ifdef BROKEN_NO_SHUT
            :: n < SIZE -> drained = e + 1
#else
            :: n < SIZE && !shut -> drained = e + 1
#endif
            :: else
            fi
        :: done && n == 0 ->
            i = READS;
#ifdef BROKEN_NO_PASS_ON_ERROR
            done = false
#else
            done = waited || fin
#endif
        :: else
        fi;
        if
        :: done -> use_pass(R)
        :: else
        fi;
        if
        :: !gone -> use_end()
        :: else
        fi;
        atomic { n = 0; e = 0; waited = false }
    :: else -> break
    od;
    finished++
}

#ifdef WRITES
proctype writer(byte me)
{
    byte x, k, e, ew, u, r;
    bool turn, woke, done, mine, gone;
    use_begin();
    do
    :: !done ->
        e = epoch[W];
        atomic { done = room; room = false }
        if
        :: !done -> wait(W)
        :: else
        fi
    :: else -> break
    od;
    use_pass(W);
    use_end()
}
#endif

#ifdef WATCHES
proctype watcher(byte me)
{
    byte x, k, e, ew, u, r;
    bool turn, woke, done, mine, gone;
    use_begin();
#ifndef BROKEN_WATCHED_LATE
    watched = true;
#endif
    do
    :: !done ->
        e = epoch[R];
        ew = epoch[W];
        done = READABLE || room;
        if
        :: !done -> wait(WATCHERS)
        :: else
        fi
    :: else -> break
    od;
    use_end()
}
#endif

#if CUTS > 0
proctype cutter()
{
    byte i;
    do
    :: atomic { cuts > 0 && i < RS && state[i] == OPEN -> state[i] = CUT; cuts-- }
    :: i < RS -> i++
    :: else -> break
    od
}
#endif

/* ---- the ends of lives ---- */

inline forget()
{
    end_waits(EBADF);
    d_step { drained = 0; ready[R] = false; asked = false; shut = false }
}

#ifdef CLOSES
proctype closer()
{
    byte x, k;
    bool turn, woke;
    byte last;
    atomic { closing = true; life++; last = life }
#ifndef BROKEN_WAITS_LEFT
    end_waits(EBADF);
#endif
#ifndef BROKEN_CALLS_NOT_AWAITED
    calls == 0;
#endif
    atomic { known = 0; edge[R] = false; edge[W] = false }
#ifdef BROKEN_WAITS_LEFT
    asked = false;
#else
    forget();
#endif
#ifdef BROKEN_OPEN_EARLY
    closing = false;
#endif
    in_kernel = true;
    atomic { lose_file(0) }
    d_step {
        if
        :: life == last -> closing = false; in_kernel = false
        :: else
        fi
    }
}

/* The kernel gives the number to somebody who knows (w_fd_fresh), or does not. */
proctype opener()
{
    byte x, k;
    bool turn, woke;
    if
    :: atomic { file == 0 -> file = 2 }
        atomic { !closing || in_kernel -> life++; closing = false; in_kernel = false }
        forget()
    :: atomic { file == 0 -> file = 2 }
    :: goto done /* nobody gets it */
    fi;
    run reader(0, true);
done:
    skip
}
#endif

#ifdef BACK
/* Nobody uses the old one any more. */
proctype behind()
{
end:
    atomic { finished == RS - 1 -> lose_file(2) }
    run reader(0, true)
}
#endif

init
{
    byte i;
    atomic {
        run kernel();
        for (i : 1 .. POLLERS) {
            run poller()
        }
#ifdef LIVES
        run prover();
        for (i : 1 .. RS - 1) {
            run reader(i, false)
        }
#else
        for (i : 0 .. RS - 1) {
            run reader(i, false)
        }
#endif
#ifdef WRITES
        run writer(WRITER);
#endif
#ifdef WATCHES
        run watcher(WATCHER);
#endif
#ifdef CLOSES
        run closer();
        run opener();
#endif
#ifdef BACK
        run behind();
#endif
#if CUTS > 0
        run cutter();
#endif
        i = 0
    }
    timeout;
    do
    :: i < RS ->
        assert(state[i] == 0 || (state[i] == OPEN && file != 0 && !READABLE));
        assert(state[i] == 0 || lives[i] == life);
        i++
    :: else -> break
    od;
    assert(state[WRITER] == 0 || !room);
    assert(state[WATCHER] == 0 || !(READABLE || room))
}
