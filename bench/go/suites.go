// SPDX-License-Identifier: MIT

package main

import (
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// ---- chameneos: creatures meet in pairs at one place and change their colours ----

const meetings = 100_000

type colour int

const (
	blue colour = iota
	red
	yellow
)

type creature struct {
	colour   colour
	meetings int64
	met      chan struct{} // who came first waits for the other one
}

type place struct {
	mu     sync.Mutex
	left   int       // mu: meetings
	waiter *creature // mu: who came first
}

func afterMeeting(a, b colour) colour {
	if a == b {
		return a
	}
	return blue + red + yellow - a - b
}

// live goes from one meeting to the next. Who comes second makes the change for both.
func (p *place) live(self *creature) {
	for {
		p.mu.Lock()
		if p.left == 0 {
			p.mu.Unlock()
			return
		}
		other := p.waiter
		if other == nil {
			p.waiter = self
			p.mu.Unlock()
			<-self.met
			continue
		}
		p.waiter = nil
		p.left--
		p.mu.Unlock()
		self.colour = afterMeeting(self.colour, other.colour)
		other.colour = self.colour
		self.meetings++
		other.meetings++
		other.met <- struct{}{}
	}
}

func chameneosPass(n int) {
	colours := [...]colour{blue, red, yellow, red, yellow, blue, red, yellow, red, blue}
	p := place{left: meetings}
	creatures := make([]creature, n)
	var done sync.WaitGroup
	done.Add(n)
	for i := range creatures {
		creatures[i] = creature{colour: colours[i], met: make(chan struct{}, 1)}
		go func(c *creature) {
			p.live(c)
			done.Done()
		}(&creatures[i])
	}
	done.Wait()
	met := int64(0)
	for i := range creatures {
		met += creatures[i].meetings
	}
	expect("the number of those who met", met, 2*meetings)
}

func chameneos(w workload) {
	reportPart(w, "3", perOpIn(measure()/2, func() { chameneosPass(3) }, meetings), "ns/meeting")
	reportPart(w, "10", perOpIn(measure()/2, func() { chameneosPass(10) }, meetings), "ns/meeting")
}

// ---- chained_spawn: each of 1,000 goroutines starts the next ----

func chainLink(left int, done chan struct{}) {
	if left == 0 {
		done <- struct{}{}
		return
	}
	go chainLink(left-1, done)
}

// runChains makes so many chains of that length at once.
func runChains(chains, length int) {
	done := make(chan struct{}, 1)
	for i := 0; i < chains; i++ {
		go chainLink(length, done)
	}
	for i := 0; i < chains; i++ {
		<-done
	}
}

func chainedSpawn(w workload) {
	report(w, perOp(func() { runChains(1, 1000) }, 1)/1e3, "us")
}

// ---- ping_pong: 1,000 goroutines, each of which starts another one, asks it and is answered ----

const pings = 1000

func pingPongMany(w workload) {
	pass := func() {
		var left atomic.Int32
		left.Store(pings)
		done := make(chan struct{}, 1)
		askOne := func() {
			question, answer := make(chan struct{}, 1), make(chan struct{}, 1)
			go func() {
				<-question
				answer <- struct{}{}
			}()
			question <- struct{}{}
			<-answer
			if left.Add(-1) == 0 {
				done <- struct{}{}
			}
		}
		go func() {
			for i := 0; i < pings; i++ {
				go askOne()
			}
		}()
		<-done
	}
	report(w, perOp(pass, 1)/1e3, "us")
}

// ---- spawn_many: 10,000 goroutines, the last of which tells ----

const many = 10_000

func spawnMany(w workload) {
	pass := func() {
		var left atomic.Int32
		left.Store(many)
		done := make(chan struct{}, 1)
		for i := 0; i < many; i++ {
			go func() {
				if left.Add(-1) == 0 {
					done <- struct{}{}
				}
			}()
		}
		<-done
	}
	report(w, perOp(pass, 1)/1e3, "us")
}

// ---- yield_many: 200 goroutines yield 1,000 times each ----

func yieldMany(w workload) {
	const yielders, yieldsEach = 200, 1000
	pass := func() {
		done := make(chan struct{}, yielders)
		for i := 0; i < yielders; i++ {
			go func() {
				for i := 0; i < yieldsEach; i++ {
					runtime.Gosched()
				}
				done <- struct{}{}
			}()
		}
		for i := 0; i < yielders; i++ {
			<-done
		}
	}
	report(w, perOp(pass, 1)/1e3, "us")
}

// ---- create_goroutines: each starts the next, in one chain, and in one for each P ----

func createGoroutines(w workload) {
	const created = 200_000
	procs := runtime.GOMAXPROCS(0)
	report(w, perOpIn(measure()/2, func() { runChains(1, created) }, created), "ns")
	reportPart(w, "parallel", perOpIn(measure()/2, func() { runChains(procs, created/procs) }, created), "ns")
}

// ---- pingpong_hog: two play ping-pong on one P beside one who never stops looking at a channel ----

func pingPongHog(w workload) {
	const trips = 200_000
	pass := func() {
		ping, pong, stop := make(chan int64), make(chan int64), make(chan struct{})
		var done sync.WaitGroup
		done.Add(2)
		go func() {
			defer done.Done()
			for {
				select {
				case <-stop:
					return
				default:
				}
			}
		}()
		go func() {
			for i := 0; i < trips; i++ {
				pong <- <-ping
			}
			done.Done()
		}()
		for i := int64(0); i < trips; i++ {
			ping <- i
			<-pong
		}
		close(stop)
		done.Wait()
	}
	report(w, perOp(pass, trips), "ns/round trip")
}

// ---- chan_prodcons, select_prodcons: for each P a producer and a consumer, all on one channel ----

const (
	prodConsCalls = 200_000
	callsAtOnce   = 1000
)

func localWork(n int) (x int) {
	for i := 0; i < n; i++ {
		x *= 2
		x /= 2
	}
	return x
}

// prodCons is one pass; send and receive move an item, and a 0 says that it was the last.
func prodCons(work int, send func(int64), receive func() int64) {
	procs := runtime.GOMAXPROCS(0)
	var batches atomic.Int32
	batches.Store(prodConsCalls / callsAtOnce)
	var done sync.WaitGroup
	done.Add(2 * procs)
	for i := 0; i < procs; i++ {
		go func() {
			for batches.Add(-1) >= 0 {
				for i := 0; i < callsAtOnce; i++ {
					localWork(work)
					send(1)
				}
			}
			send(0)
			done.Done()
		}()
		go func() {
			for receive() != 0 {
				localWork(work)
			}
			done.Done()
		}()
	}
	done.Wait()
}

func chanProdCons(w workload) {
	part := func(name string, capacity, work int) {
		pass := func() {
			items := make(chan int64, capacity)
			prodCons(work, func(v int64) { items <- v }, func() int64 { return <-items })
		}
		reportPart(w, name, perOpIn(measure()/4, pass, prodConsCalls), "ns/item")
	}
	part("0", 0, 0)
	part("10", 10, 0)
	part("100", 100, 0)
	part("work100", 100, 100)
}

func selectProdCons(w workload) {
	pass := func() {
		items, closed := make(chan int64, 128), make(chan struct{})
		never := time.After(time.Hour)
		send := func(v int64) {
			select {
			case items <- v:
			case <-never:
			case <-closed:
			}
		}
		receive := func() (v int64) {
			select {
			case v = <-items:
			case <-never:
			case <-closed:
			}
			return v
		}
		prodCons(100, send, receive)
	}
	report(w, perOp(pass, prodConsCalls), "ns/item")
}

// ---- wakeup_parallel: two wake each other after some work: does it go on in parallel? ----

func spinFor(d time.Duration) {
	for begin := time.Now(); time.Since(begin) < d; {
	}
}

func sleepInKernel(d time.Duration) {
	t := syscall.NsecToTimespec(int64(d))
	check(syscall.Nanosleep(&t, nil))
}

func wakeupParallel(w workload) {
	const wakeUps, wakeDelay = 1000, 5 * time.Microsecond
	part := func(name string, work func(time.Duration), delay time.Duration) {
		pass := func() {
			ping, pong := make(chan struct{}), make(chan struct{})
			// The sender works a little longer, so that the receiver waits for it when both run at once.
			wakeOther := func(c chan struct{}) {
				work(delay + wakeDelay)
				c <- struct{}{}
			}
			beWoken := func(c chan struct{}) {
				work(delay)
				<-c
			}
			go func() {
				for i := 0; i < wakeUps; i++ {
					beWoken(ping)
					wakeOther(pong)
				}
			}()
			for i := 0; i < wakeUps; i++ {
				wakeOther(ping)
				beWoken(pong)
			}
		}
		reportPart(w, name, perOpIn(measure()/5, pass, wakeUps)/1e3, "us")
	}
	part("spin0", spinFor, 0)
	part("spin1", spinFor, time.Microsecond)
	part("spin10", spinFor, 10*time.Microsecond)
	part("spin100", spinFor, 100*time.Microsecond)
	part("syscall10", sleepInKernel, 10*time.Microsecond)
}
