// SPDX-License-Identifier: MIT

package main

import "sync"

// ---- pingpong: a value goes to and fro between two goroutines ----

const roundTrips = 200_000

func pingPong(w workload) {
	pass := func() {
		ping, pong := make(chan int64), make(chan int64)
		go func() {
			for v := range ping {
				pong <- v
			}
			close(pong)
		}()
		for i := int64(0); i < roundTrips; i++ {
			ping <- i
			<-pong
		}
		close(ping)
		<-pong
	}
	report(w, perOp(pass, roundTrips), "ns/round trip")
}

// ---- buffered, mpmc: w.size producers, as many consumers, one channel with a buffer ----

const (
	streamItems    = 800_000
	streamCapacity = 128
)

func stream(w workload) {
	pass := func() {
		items := make(chan int64, streamCapacity)
		var producers, consumers sync.WaitGroup
		producers.Add(w.size)
		consumers.Add(w.size)
		for i := 0; i < w.size; i++ {
			go func() {
				for v := 0; v < streamItems/w.size; v++ {
					items <- int64(v)
				}
				producers.Done()
			}()
			go func() {
				for range items {
				}
				consumers.Done()
			}()
		}
		producers.Wait()
		close(items)
		consumers.Wait()
	}
	report(w, perOp(pass, streamItems), "ns/item")
}

// ---- select4: one consumer selects over 4 unbuffered channels with a producer each ----

const selectEach = 50_000

func select4(w workload) {
	producer := func() chan int64 {
		c := make(chan int64)
		go func() {
			for v := int64(0); v < selectEach; v++ {
				c <- v
			}
		}()
		return c
	}
	pass := func() {
		c0, c1, c2, c3 := producer(), producer(), producer(), producer()
		sum := int64(0)
		for i := 0; i < 4*selectEach; i++ {
			select {
			case v := <-c0:
				sum += v
			case v := <-c1:
				sum += v
			case v := <-c2:
				sum += v
			case v := <-c3:
				sum += v
			}
		}
		expect("the sum of select4", sum, 4*selectEach*(selectEach-1)/2)
	}
	report(w, perOp(pass, 4*selectEach), "ns/item")
}

// ---- ring: w.size goroutines in a ring of unbuffered channels pass a token, as in the thread-ring of the Game ----

const ringHops = 500_000

func ring(w workload) {
	first, ended := make(chan int64), make(chan int64)
	in := first
	for i := 0; i < w.size; i++ {
		out := first
		if i < w.size-1 {
			out = make(chan int64)
		}
		go func(number int, in, out chan int64) {
			for hops := range in {
				if hops > 1 {
					out <- hops - 1
				} else {
					ended <- int64(number)
				}
			}
		}(i, in, out)
		in = out
	}
	pass := func() {
		first <- ringHops
		expect("the one who got the last hop", <-ended, int64((ringHops-1)%w.size))
	}
	report(w, perOp(pass, ringHops), "ns/hop")
}

// ---- sieve: the first 2,000 primes through a chain of filters, each of which takes out the multiples of one ----

const (
	primes    = 2_000
	lastPrime = 17_389
)

func sieve(w workload) {
	filter := func(prime int64, in, out chan int64) {
		for v := range in {
			if v%prime != 0 {
				out <- v
			}
		}
		close(out)
	}
	pass := func() {
		c := make(chan int64)
		go func(c chan int64) {
			for v := int64(2); v <= lastPrime; v++ {
				c <- v
			}
			close(c)
		}(c)
		found := int64(0)
		for {
			prime, ok := <-c
			if !ok {
				break
			}
			found++
			out := make(chan int64)
			go filter(prime, c, out)
			c = out
		}
		expect("the number of primes", found, primes)
	}
	report(w, perOp(pass, 1)/1e6, "ms")
}

// ---- pipeline: 64 chains of 4 stages, in each of which a buffer goes round; every stage reads and writes it ----

const (
	chains       = 64
	stages       = 4
	pipelineHops = 2_000 // of each buffer in a pass
	lines        = 16 << 10 / 64
)

type message struct {
	hops  int64 // that are left, this one included
	lines [lines]struct {
		changes int64
		_       [56]byte
	}
}

// startChain returns where the chain takes its message.
func startChain(done *sync.WaitGroup) chan *message {
	first := make(chan *message)
	in := first
	for i := 0; i < stages; i++ {
		out := first
		if i < stages-1 {
			out = make(chan *message)
		}
		go func(in, out chan *message) {
			for m := range in {
				for i := range m.lines {
					m.lines[i].changes++
				}
				if m.hops--; m.hops > 0 {
					out <- m
				} else {
					done.Done()
				}
			}
		}(in, out)
		in = out
	}
	return first
}

func pipeline(w workload) {
	var done sync.WaitGroup
	var first [chains]chan *message
	var messages [chains]*message
	for i := range first {
		first[i], messages[i] = startChain(&done), new(message)
	}
	pass := func() {
		done.Add(chains)
		for i, m := range messages {
			m.hops = pipelineHops
			first[i] <- m
		}
		done.Wait()
	}
	report(w, perOp(pass, chains*pipelineHops), "ns/hop")
	last := messages[chains-1]
	expect("a buffer's changes", last.lines[lines-1].changes, last.lines[0].changes)
}
