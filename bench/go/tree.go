// SPDX-License-Identifier: MIT

package main

import (
	"sync"
	"time"
)

// ---- skynet: 10 goroutines below each, and 1,000,000 leaves that send their numbers up to be summed ----

const (
	branches = 10
	leaves   = 1_000_000
)

func skynetNode(up chan int64, first, size int64) {
	if size == 1 {
		up <- first
		return
	}
	below := make(chan int64)
	part := size / branches
	for i := int64(0); i < branches; i++ {
		go skynetNode(below, first+i*part, part)
	}
	sum := int64(0)
	for i := 0; i < branches; i++ {
		sum += <-below
	}
	up <- sum
}

func skynet(w workload) {
	pass := func() {
		top := make(chan int64)
		go skynetNode(top, 0, leaves)
		expect("the sum of skynet", <-top, leaves*(leaves-1)/2)
	}
	begin := time.Now()
	pass()
	report(w, milliseconds(time.Since(begin)), "ms")
	reportPart(w, "warm", perOp(pass, 1)/1e6, "ms")
}

// ---- fib: fork and join, a goroutine for each call ----

const (
	fibOf     = 27
	fibResult = 196_418
	fibCalls  = 635_621
)

func fibCall(n int) int64 {
	if n < 2 {
		return int64(n)
	}
	var a, b int64
	var both sync.WaitGroup
	both.Add(2)
	go func() {
		a = fibCall(n - 1)
		both.Done()
	}()
	go func() {
		b = fibCall(n - 2)
		both.Done()
	}()
	both.Wait()
	return a + b
}

func fib(w workload) {
	pass := func() {
		expect("the result of fib", fibCall(fibOf), fibResult)
	}
	report(w, perOp(pass, fibCalls), "ns/goroutine")
}
