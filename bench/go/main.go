// SPDX-License-Identifier: MIT

// The Go side of the benchmarks: the work of bench/weft_*.c, with the same names and the same output. This file is the
// program with the bare goroutines, as weft_bench.c; chan.go, crowd.go, tree.go and so on do what weft_chan.c and so on do.
package main

import (
	"flag"
	"fmt"
	"log"
	"os"
	"runtime"
	"sort"
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
	{"pipeline_warm", 2, pipeline, 0},
	{"parked_10k", 0, parked, 10_000},
	{"parked_1m", 0, parked, 1_000_000},
	{"sleepers_1m", 0, sleepers, 1_000_000},
	{"timers_100k", 0, timers, 100_000},
	{"preempt", 2, preempt, 0},
	{"blocking", 2, blocking, 0},
	{"echo_2p", 2, echo, 0},
	{"http_raw", 2, httpRaw, 0},
	{"mixed", 2, mixed, 0},
	{"files_hot", 0, files, 0},
	{"files_direct", 0, files, direct},
	{"chameneos", 0, chameneos, 0},
	{"chained_spawn", 0, chainedSpawn, 0},
	{"ping_pong", 0, pingPongMany, 0},
	{"spawn_many", 0, spawnMany, 0},
	{"yield_many", 0, yieldMany, 0},
	{"matmul", 0, matmul, 0},
	{"create_goroutines", 0, createGoroutines, 0},
	{"pingpong_hog", 1, pingPongHog, 0},
	{"chan_prodcons", 0, chanProdCons, 0},
	{"select_prodcons", 0, selectProdCons, 0},
	{"wakeup_parallel", 2, wakeupParallel, 0},
	{"matmult", 0, matmult, 0},
	{"scale_spawn", 2, scaleSpawn, 10_000},
	{"scale_pairs", 2, scalePairs, 10_000},
	{"scale_mpmc", 2, scaleMPMC, 10_000},
	{"scale_skynet", 2, scaleSkynet, 10_000},
}

func main() {
	log.SetFlags(0)
	list := flag.Bool("l", false, "list the workloads")
	procs := flag.Int("p", 0, "processors")
	size := flag.Int("n", 0, "size")
	flag.Parse()
	if *list {
		for _, w := range workloads {
			fmt.Println(w.name)
		}
		return
	}
	if flag.NArg() != 1 || *procs < 0 || *size < 0 {
		log.Fatalf("usage: %s -l | [-p PROCS] [-n SIZE] NAME", os.Args[0])
	}
	for _, w := range workloads {
		if w.name == flag.Arg(0) {
			start(w.with(*procs, *size))
			return
		}
	}
	log.Fatalf("%s: no workload '%s'; -l lists them", os.Args[0], flag.Arg(0))
}

// with gives it other processors or another size, where they are not 0.
func (w workload) with(procs, size int) workload {
	if procs > 0 {
		w.procs = procs
	}
	if size > 0 {
		w.size = size
	}
	return w
}

func start(w workload) {
	if w.procs > 0 {
		runtime.GOMAXPROCS(w.procs)
	}
	w.run(w)
}

// ---- measuring and reporting ----

// quick is what QUICK=1 asks for: smaller and shorter, where a workload would take long.
var quick = os.Getenv("QUICK") != "" && os.Getenv("QUICK") != "0"

const quicker = 5

// measure is for how long timed passes are repeated.
func measure() time.Duration {
	const full = 750 * time.Millisecond
	if quick {
		return full / quicker
	}
	return full
}

// perOpIn gives the nanoseconds per operation, when one pass makes ops of them and passes are repeated for that long. The
// first pass warms up and is not counted.
func perOpIn(d time.Duration, pass func(), ops int) float64 {
	pass()
	passes := 0
	begin := time.Now()
	for time.Since(begin) < d {
		pass()
		passes++
	}
	return float64(time.Since(begin)) / float64(passes*ops)
}

func perOp(pass func(), ops int) float64 {
	return perOpIn(measure(), pass, ops)
}

func report(w workload, value float64, unit string) {
	fmt.Printf("%s %.2f %s\n", w.name, value, unit)
}

func reportPart(w workload, part string, value float64, unit string) {
	fmt.Printf("%s.%s %.2f %s\n", w.name, part, value, unit)
}

// reportSpread gives the parts .p50, .p99 and .max of times, which end up sorted.
func reportSpread(w workload, times []time.Duration) {
	sort.Slice(times, func(i, j int) bool { return times[i] < times[j] })
	microseconds := func(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
	reportPart(w, "p50", microseconds(times[len(times)/2]), "us")
	reportPart(w, "p99", microseconds(times[len(times)*99/100]), "us")
	reportPart(w, "max", microseconds(times[len(times)-1]), "us")
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
