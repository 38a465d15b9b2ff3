// SPDX-License-Identifier: MIT

package main

import (
	"sync"
	"sync/atomic"
	"time"
)

// crowd is goroutines that stand at a gate until all have arrived.
type crowd struct {
	arrived, left sync.WaitGroup
	gate          chan struct{}
}

func newCrowd(n int) *crowd {
	c := &crowd{gate: make(chan struct{})}
	c.arrived.Add(n)
	c.left.Add(n)
	return c
}

func (c *crowd) standAtGate() {
	c.arrived.Done()
	<-c.gate
}

// letGo returns how long it took from the opening of the gate until the last had left.
func (c *crowd) letGo() time.Duration {
	begin := time.Now()
	close(c.gate)
	c.left.Wait()
	return time.Since(begin)
}

// ---- parked: goroutines blocked on one channel, then let go all at once ----

func parked(w workload) {
	spawnBatch(batch) // warm-up: threads and code, hardly any memory

	before, begin := memoryBytes(), time.Now()
	c := newCrowd(w.size)
	for i := 0; i < w.size; i++ {
		go func() {
			c.standAtGate()
			c.left.Done()
		}()
	}
	c.arrived.Wait()
	reportPart(w, "create", milliseconds(time.Since(begin)), "ms")
	reportPart(w, "bytes", float64(memoryBytes()-before)/float64(w.size), "B")
	reportPart(w, "wake", milliseconds(c.letGo()), "ms")
}

// ---- sleepers: goroutines that all sleep; the end of the program ends them ----

func sleepers(w workload) {
	spawnBatch(batch)

	before, begin := memoryBytes(), time.Now()
	var aboutToSleep sync.WaitGroup
	aboutToSleep.Add(w.size)
	for i := 0; i < w.size; i++ {
		go func() {
			aboutToSleep.Done()
			time.Sleep(10 * time.Minute)
		}()
	}
	aboutToSleep.Wait()
	reportPart(w, "create", milliseconds(time.Since(begin)), "ms")
	reportPart(w, "bytes", float64(memoryBytes()-before)/float64(w.size), "B")
}

// ---- scale_spawn: all are started, end at once, and are waited for ----

const scalePart = 4 // of the usual time: there are many points

func scaleSpawn(w workload) {
	report(w, perOpIn(measure()/scalePart, func() { spawnBatch(w.size) }, w.size), "ns/spawn")
}

// ---- scale_pairs: each two play ping-pong ----

// share says how many operations there are in all and for each of the n that are half of the goroutines.
func share(goroutines int) (n, all, each int) {
	if n = goroutines / 2; n == 0 {
		n = 1
	}
	all = 1_000_000
	if quick {
		all /= quicker
	}
	each = (all + n - 1) / n
	return n, each * n, each
}

func scalePairs(w workload) {
	n, all, each := share(w.size)
	c := newCrowd(n)
	c.left.Add(n) // the other half does not come to the gate
	for i := 0; i < n; i++ {
		ping, pong := make(chan int64), make(chan int64)
		go func() {
			for v := range ping {
				pong <- v
			}
			c.left.Done()
		}()
		go func() {
			c.standAtGate()
			for i := int64(0); i < int64(each); i++ {
				ping <- i
				expect("what came back", <-pong, i)
			}
			close(ping)
			c.left.Done()
		}()
	}
	c.arrived.Wait()
	report(w, float64(c.letGo())/float64(all), "ns/round trip")
}

// ---- scale_mpmc: one half sends, the other receives, by one channel with a buffer ----

func scaleMPMC(w workload) {
	n, all, each := share(w.size)
	c := newCrowd(2 * n)
	items := make(chan int64, streamCapacity)
	var producers sync.WaitGroup
	var received atomic.Int64
	producers.Add(n)
	for i := 0; i < n; i++ {
		go func() {
			c.standAtGate()
			for v := int64(0); v < int64(each); v++ {
				items <- v
			}
			producers.Done()
			c.left.Done()
		}()
		go func() {
			c.standAtGate()
			n := int64(0)
			for range items {
				n++
			}
			received.Add(n)
			c.left.Done()
		}()
	}
	go func() {
		producers.Wait()
		close(items)
	}()
	c.arrived.Wait()
	report(w, float64(c.letGo())/float64(all), "ns/item")
	expect("the number of items", received.Load(), int64(all))
}

// ---- scale_skynet: a tree with so many leaves, rounded up to a power of ten ----

func scaleSkynet(w workload) {
	leaves := 1
	for leaves < w.size {
		leaves *= 10
	}
	report(w, perOpIn(measure()/scalePart, func() { skynetPass(int64(leaves)) }, leaves), "ns/leaf")
}
