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

func skynetPass(leaves int64) {
	top := make(chan int64)
	go skynetNode(top, 0, leaves)
	expect("the sum of skynet", <-top, leaves*(leaves-1)/2)
}

func skynet(w workload) {
	pass := func() { skynetPass(leaves) }
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

// ---- matmul: products of quarters, four at a time, twice ----

const (
	matmulSide = 512
	matmulLeaf = 32
)

type matrix []float64

func newMatrix(side int, value float64) matrix {
	m := make(matrix, side*side)
	for i := range m {
		m[i] = value
	}
	return m
}

func (m matrix) clear() {
	for i := range m {
		m[i] = 0
	}
}

func (m matrix) check(side int) {
	for _, v := range m {
		expect("an element of the product", int64(v), int64(2*side))
	}
}

func multiplyLeaf(a, b, c matrix) {
	for i := 0; i < matmulLeaf; i++ {
		row := c[i*matmulSide : i*matmulSide+matmulLeaf]
		for k := 0; k < matmulLeaf; k++ {
			factor, other := a[i*matmulSide+k], b[k*matmulSide:k*matmulSide+matmulLeaf]
			for j := range row {
				row[j] += factor * other[j]
			}
		}
	}
}

// multiply adds the product of the squares at the start of a and b to the one of c.
func multiply(side int, a, b, c matrix) {
	if side == matmulLeaf {
		multiplyLeaf(a, b, c)
		return
	}
	right, down := side/2, side/2*matmulSide
	for half := 0; half < 2; half++ {
		var done sync.WaitGroup
		done.Add(4)
		for quarter := 0; quarter < 4; quarter++ {
			row, column := quarter/2*down, quarter%2*right
			go func() {
				multiply(side/2, a[row+half*right:], b[half*down+column:], c[row+column:])
				done.Done()
			}()
		}
		done.Wait()
	}
}

func matmul(w workload) {
	a, b, c := newMatrix(matmulSide, 1), newMatrix(matmulSide, 2), newMatrix(matmulSide, 0)
	pass := func() {
		c.clear()
		multiply(matmulSide, a, b, c)
	}
	report(w, perOp(pass, 1)/1e6, "ms")
	c.check(matmulSide)
}

// ---- matmult: of Go's runtime: halves the longest side, down to less than 8; who waits does the other half ----

const (
	matmultSide      = 200
	matmultThreshold = 8
)

type span struct{ from, to int }

func (s span) len() int { return s.to - s.from }

func (s span) halves() (span, span) {
	middle := s.from + s.len()/2
	return span{s.from, middle}, span{middle, s.to}
}

type product struct{ a, b, c matrix }

// both runs one half beside the caller, who does the other.
func both(low, high func()) {
	done := make(chan struct{}, 1)
	go func() {
		low()
		done <- struct{}{}
	}()
	high()
	<-done
}

func (p product) box(i, j, k span) {
	switch {
	case i.len() >= j.len() && i.len() >= k.len() && i.len() >= matmultThreshold:
		low, high := i.halves()
		both(func() { p.box(low, j, k) }, func() { p.box(high, j, k) })
	case j.len() >= k.len() && j.len() >= matmultThreshold:
		low, high := j.halves()
		both(func() { p.box(i, low, k) }, func() { p.box(i, high, k) })
	case k.len() >= matmultThreshold: // both halves write to the same places
		low, high := k.halves()
		p.box(i, j, low)
		p.box(i, j, high)
	default:
		p.leaf(i, j, k)
	}
}

func (p product) leaf(is, js, ks span) {
	for i := is.from; i < is.to; i++ {
		for j := js.from; j < js.to; j++ {
			for k := ks.from; k < ks.to; k++ {
				p.c[i*matmultSide+j] += p.a[i*matmultSide+k] * p.b[k*matmultSide+j]
			}
		}
	}
}

func matmult(w workload) {
	p := product{newMatrix(matmultSide, 1), newMatrix(matmultSide, 2), newMatrix(matmultSide, 0)}
	whole := span{0, matmultSide}
	pass := func() {
		p.c.clear()
		p.box(whole, whole, whole)
	}
	report(w, perOp(pass, matmultSide*matmultSide*matmultSide), "ns/product")
	p.c.check(matmultSide)
}
