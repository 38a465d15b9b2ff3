// SPDX-License-Identifier: MIT

// The Go side of the benchmarks: the work of bench/weft_*.c, with the same names and the same output. This file is the
// program with the bare goroutines, as weft_bench.c; chan.go, tree.go, sync.go and io.go do what weft_chan.c and so on do.
package main

import (
	"fmt"
	"log"
	"os"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

type workload struct {
	name  string
	procs int // GOMAXPROCS; 0 = as many as the process may use
	run   func(w workload)
	size  int // what the workload makes of it; 0 where it has one size only
}

var workloads = []workload{
	{"yield_1p", 1, yield, 0},
	{"spawn_1p", 1, spawn, 0},
	{"spawn_2p", 2, spawn, 0},
	{"spawnjoin", 0, spawnJoin, 0},
	{"pingpong_1p", 1, pingPong, 0},
	{"pingpong_2p", 2, pingPong, 0},
	{"buffered_1p", 1, stream, 1},
	{"buffered_2p", 2, stream, 1},
	{"mpmc_2p", 2, stream, 8},
	{"select4_2p", 2, select4, 0},
	{"mutex_uncontended", 0, mutex, 1},
	{"mutex_contended", 2, mutex, 8},
	{"ring_1p", 1, ring, 503},
	{"ring_2p", 2, ring, 503},
	{"skynet_2p", 2, skynet, 0},
	{"fib_2p", 2, fib, 0},
	{"sieve_2p", 2, sieve, 0},
	{"parked_10k", 0, parked, 10_000},
	{"parked_1m", 0, parked, 1_000_000},
	{"timers_100k", 0, timers, 100_000},
	{"blocking", 2, blocking, 0},
	{"echo_2p", 2, echo, 0},
	{"http_raw", 2, httpRaw, 0},
	{"files_hot", 0, files, 0},
	{"files_direct", 0, files, direct},
}

func main() {
	log.SetFlags(0)
	if len(os.Args) != 2 {
		log.Fatalf("usage: %s -l | NAME", os.Args[0])
	}
	if os.Args[1] == "-l" {
		for _, w := range workloads {
			fmt.Println(w.name)
		}
		return
	}
	for _, w := range workloads {
		if w.name == os.Args[1] {
			start(w)
			return
		}
	}
	log.Fatalf("%s: no workload '%s'; -l lists them", os.Args[0], os.Args[1])
}

func start(w workload) {
	if w.procs > 0 {
		runtime.GOMAXPROCS(w.procs)
	}
	w.run(w)
}

// ---- measuring and reporting ----

const measure = time.Second // timed passes are repeated until this much time has passed

// perOp gives the nanoseconds per operation, when one pass makes ops of them. The first pass warms up and is not
// counted.
func perOp(pass func(), ops int) float64 {
	pass()
	passes := 0
	begin := time.Now()
	for time.Since(begin) < measure {
		pass()
		passes++
	}
	return float64(time.Since(begin)) / float64(passes*ops)
}

func report(w workload, value float64, unit string) {
	fmt.Printf("%s %.2f %s\n", w.name, value, unit)
}

func reportPart(w workload, part string, value float64, unit string) {
	fmt.Printf("%s.%s %.2f %s\n", w.name, part, value, unit)
}

func milliseconds(d time.Duration) float64 {
	return float64(d) / float64(time.Millisecond)
}

// expect guards against figures of work that was not done.
func expect(what string, got, want int64) {
	if got != want {
		log.Fatalf("bench: %s is %d instead of %d", what, got, want)
	}
}

// cpuTime is what this process has used so far, in user mode and in the kernel.
func cpuTime() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		log.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// memoryBytes is the resident memory and the page tables of this process.
func memoryBytes() int64 {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		log.Fatal(err)
	}
	var total int64
	for _, line := range strings.Split(string(status), "\n") {
		var kib int64
		if strings.HasPrefix(line, "VmRSS:") || strings.HasPrefix(line, "VmPTE:") {
			fmt.Sscan(line[len("VmRSS:"):], &kib)
			total += kib * 1024
		}
	}
	return total
}

// ---- yield: two goroutines yield in turn ----

const yields = 1_000_000

func yield(w workload) {
	pass := func() {
		var done sync.WaitGroup
		done.Add(2)
		for i := 0; i < 2; i++ {
			go func() {
				for j := 0; j < yields/2; j++ {
					runtime.Gosched()
				}
				done.Done()
			}()
		}
		done.Wait()
	}
	report(w, perOp(pass, yields), "ns/switch")
}

// ---- spawn: empty goroutines in batches, a wait group for each batch ----

const (
	spawns = 1_000_000
	batch  = 1_000
)

func spawnBatch(n int) {
	var done sync.WaitGroup
	done.Add(n)
	for i := 0; i < n; i++ {
		go func() {
			done.Done()
		}()
	}
	done.Wait()
}

func spawn(w workload) {
	pass := func() {
		for i := 0; i < spawns/batch; i++ {
			spawnBatch(batch)
		}
	}
	report(w, perOp(pass, spawns), "ns/spawn")
}

// ---- spawnjoin: start one and wait for it ----

const joins = 100_000

func spawnJoin(w workload) {
	pass := func() {
		for i := 0; i < joins; i++ {
			spawnBatch(1)
		}
	}
	report(w, perOp(pass, joins), "ns")
}

// ---- parked: many goroutines blocked on one channel, then let go all at once ----

func parked(w workload) {
	spawnBatch(batch) // warm-up: threads and code, hardly any memory

	var arrived, left sync.WaitGroup
	gate := make(chan struct{})
	before, begin := memoryBytes(), time.Now()
	arrived.Add(w.size)
	left.Add(w.size)
	for i := 0; i < w.size; i++ {
		go func() {
			arrived.Done()
			<-gate
			left.Done()
		}()
	}
	arrived.Wait()
	reportPart(w, "create", milliseconds(time.Since(begin)), "ms")
	reportPart(w, "bytes", float64(memoryBytes()-before)/float64(w.size), "B")

	begin = time.Now()
	close(gate)
	left.Wait()
	reportPart(w, "wake", milliseconds(time.Since(begin)), "ms")
}
