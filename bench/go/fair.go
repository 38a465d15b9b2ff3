// SPDX-License-Identifier: MIT

package main

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"
)

// ---- arithmetic that calls nobody, as in burn.h ----

const (
	hogs       = 4
	burnAtOnce = 1_000 // some 2 us between two looks at the flag
)

// burn makes n steps, each of which needs the one before.
func burn(n int64) uint64 {
	x := uint64(1)
	for ; n > 0; n-- {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
	}
	return x
}

// burnsIn is how many steps take that long when nothing disturbs them.
func burnsIn(d time.Duration) int64 {
	const trials, steps = 20, 1_000_000
	best := time.Hour
	for i := 0; i < trials; i++ {
		begin := time.Now()
		burn(steps)
		if took := time.Since(begin); took < best {
			best = took
		}
	}
	return int64(d) * steps / int64(best)
}

// ---- preempt: how late does a sleeper wake while others compute? ----

const (
	samples      = 500
	quickSamples = 100
	period       = time.Millisecond
)

func preempt(w workload) {
	var stop atomic.Bool
	var hogging sync.WaitGroup
	hogging.Add(hogs)
	for i := 0; i < hogs; i++ {
		go func() {
			for !stop.Load() {
				burn(burnAtOnce)
			}
			hogging.Done()
		}()
	}
	n := samples
	if quick {
		n = quickSamples
	}
	times := make([]time.Duration, n)
	for i := range times {
		begin := time.Now()
		time.Sleep(period)
		times[i] = time.Since(begin) - period
	}
	stop.Store(true)
	hogging.Wait()
	reportSpread(w, times)
}

// ---- mixed: mixed_client asks the server of http_raw, which computes for some of the requests ----

const heavyTime = 30 * time.Millisecond

var heavySteps int64

func askMixed(w workload, address *net.TCPAddr) {
	self, err := os.Executable()
	check(err)
	client := exec.Command(filepath.Join(filepath.Dir(self), "mixed_client"), w.name, fmt.Sprint(address.Port))
	client.Stdout, client.Stderr = os.Stdout, os.Stderr
	check(client.Run())
}

func mixed(w workload) {
	heavySteps = burnsIn(heavyTime)
	askMixed(w, serve())
}
