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

// ---- ring: w.size goroutines in a ring of unbuffered channels pass a token ----

const ringHops = 500_000

func ring(w workload) {
	first, ended := make(chan int64), make(chan int64)
	in := first
	for i := 0; i < w.size; i++ {
		out := first
		if i < w.size-1 {
			out = make(chan int64)
		}
		go func(in, out chan int64) {
			for hops := range in {
				if hops > 1 {
					out <- hops - 1
				} else {
					ended <- 0
				}
			}
		}(in, out)
		in = out
	}
	pass := func() {
		first <- ringHops
		<-ended
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
