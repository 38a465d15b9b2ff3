// SPDX-License-Identifier: MIT

package main

import (
	"math/rand"
	"sync"
	"time"
)

// ---- mutex: w.size goroutines count under one lock ----

const locks = 2_000_000

func mutex(w workload) {
	var mu sync.Mutex
	var counter int64
	count := func(n int) {
		for i := 0; i < n; i++ {
			mu.Lock()
			counter++
			mu.Unlock()
		}
	}
	pass := func() {
		counter = 0
		var done sync.WaitGroup
		done.Add(w.size)
		for i := 0; i < w.size; i++ {
			go func() {
				count(locks / w.size)
				done.Done()
			}()
		}
		done.Wait()
		expect("the count under the lock", counter, locks)
	}
	report(w, perOp(pass, locks), "ns")
}

// ---- timers: w.size goroutines sleep for random times; how late do they wake? ----

const (
	longestSleep = 200 * time.Millisecond
	timerRounds  = 3
)

// sleepAll starts a goroutine for each place in late, which gets how much longer than wanted its sleep was.
func sleepAll(late []time.Duration, random *rand.Rand) {
	var done sync.WaitGroup
	done.Add(len(late))
	for i := range late {
		want := time.Duration(random.Int63n(int64(longestSleep)))
		go func(late *time.Duration) {
			begin := time.Now()
			time.Sleep(want)
			*late = time.Since(begin) - want
			done.Done()
		}(&late[i])
	}
	done.Wait()
}

func timers(w workload) {
	late := make([]time.Duration, timerRounds*w.size)
	random := rand.New(rand.NewSource(1))
	sleepAll(late[:w.size], random) // warm-up
	before := cpuTime()
	for i := 0; i < timerRounds; i++ {
		sleepAll(late[i*w.size:(i+1)*w.size], random)
	}
	used := cpuTime() - before

	reportSpread(w, late)
	reportPart(w, "cpu", milliseconds(used)/timerRounds, "ms")
}
