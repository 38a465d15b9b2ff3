// SPDX-License-Identifier: MIT

package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

const warmUp = 200 * time.Millisecond

// tally counts what one goroutine has done; alone on its cache lines.
type tally struct {
	n atomic.Int64
	_ [120]byte
}

type rates struct {
	done    float64 // operations
	elapsed time.Duration
	cpu     time.Duration
}

// measureRates lets the goroutines that count in tallies warm up, then looks at them for a second.
func measureRates(tallies []tally) rates {
	total := func() (sum int64) {
		for i := range tallies {
			sum += tallies[i].n.Load()
		}
		return sum
	}
	time.Sleep(warmUp)
	before, cpu, begin := total(), cpuTime(), time.Now()
	time.Sleep(measure())
	return rates{float64(total() - before), time.Since(begin), cpuTime() - cpu}
}

func check(err error) {
	if err != nil {
		log.Fatal("bench: ", err)
	}
}

// ---- blocking: goroutines sleep in the kernel while others count ----

const (
	blockers    = 64
	counters    = 2
	blocks      = 200
	countAtOnce = 100_000 // some 30 us
)

func threads() int64 {
	status, err := os.ReadFile("/proc/self/status")
	check(err)
	_, after, _ := strings.Cut(string(status), "Threads:")
	n, err := strconv.ParseInt(strings.Fields(after)[0], 10, 64)
	check(err)
	return n
}

func blockOften(mostThreads *atomic.Int64) {
	for i := 0; i < blocks; i++ {
		millisecond := syscall.Timespec{Nsec: 1_000_000}
		check(syscall.Nanosleep(&millisecond, nil))
		if i != blocks/2 {
			continue
		}
		now := threads()
		for most := mostThreads.Load(); most < now && !mostThreads.CompareAndSwap(most, now); {
			most = mostThreads.Load()
		}
	}
}

func count(stop *atomic.Bool) (n int64) {
	for ; !stop.Load(); runtime.Gosched() {
		for i := 0; i < countAtOnce; i++ {
			n++
		}
	}
	return n
}

func blocking(w workload) {
	var stop atomic.Bool
	var mostThreads, counted atomic.Int64
	var counting, done sync.WaitGroup
	counting.Add(counters)
	for i := 0; i < counters; i++ {
		go func() {
			counted.Add(count(&stop))
			counting.Done()
		}()
	}
	done.Add(blockers)
	begin := time.Now()
	for i := 0; i < blockers; i++ {
		go func() {
			blockOften(&mostThreads)
			done.Done()
		}()
	}
	done.Wait()
	elapsed := time.Since(begin)
	stop.Store(true)
	counting.Wait()
	reportPart(w, "total", milliseconds(elapsed), "ms")
	reportPart(w, "counted", float64(counted.Load())/1e6/elapsed.Seconds(), "M/s")
	reportPart(w, "threads", float64(mostThreads.Load()), "threads")
}

// ---- echo: 64 connections, each with a client and a server in this process ----

const (
	connections = 64
	messageSize = 64
	bufferSize  = 4096 // of a server, which does not know how long a message is
)

func listen() net.Listener {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	check(err)
	return l
}

func echoServer(conn net.Conn) {
	defer conn.Close()
	buffer := make([]byte, bufferSize)
	for {
		n, err := conn.Read(buffer)
		if err == io.EOF {
			return
		}
		check(err)
		_, err = conn.Write(buffer[:n])
		check(err)
	}
}

func echoClient(conn net.Conn, t *tally, stop *atomic.Bool) {
	defer conn.Close()
	message, answer := bytes.Repeat([]byte("m"), messageSize), make([]byte, messageSize)
	for !stop.Load() {
		_, err := conn.Write(message)
		check(err)
		_, err = io.ReadFull(conn, answer)
		check(err)
		t.n.Add(1)
	}
	if !bytes.Equal(answer, message) {
		log.Fatal("bench: the echo is another one")
	}
}

func echo(w workload) {
	l := listen()
	tallies := make([]tally, connections)
	var stop atomic.Bool
	var done sync.WaitGroup
	done.Add(2 * connections)
	for i := range tallies {
		client, err := net.Dial("tcp", l.Addr().String())
		check(err)
		server, err := l.Accept()
		check(err)
		go func() {
			echoServer(server)
			done.Done()
		}()
		go func(t *tally) {
			echoClient(client, t, &stop)
			done.Done()
		}(&tallies[i])
	}
	r := measureRates(tallies)
	stop.Store(true)
	done.Wait()
	report(w, r.done/r.elapsed.Seconds(), "rt/s")
	reportPart(w, "cpu_per_rt", float64(r.cpu.Microseconds())/r.done, "us")
}

// ---- http, mixed: another process asks, a hand-written loop answers ----

const answer = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 13\r\n\r\nHello, World!"

var (
	endOfHead = []byte("\r\n\r\n")
	heavy     = []byte("GET /heavy ")
)

// serveHTTP answers one request after the other; those that came together are answered together.
func serveHTTP(conn net.Conn) {
	defer conn.Close()
	buffer := make([]byte, bufferSize)
	var answers []byte
	have := 0
	for {
		n, err := conn.Read(buffer[have:])
		if err == io.EOF || errors.Is(err, syscall.ECONNRESET) {
			return
		}
		check(err)
		have += n
		rest := buffer[:have]
		answers = answers[:0]
		for end := bytes.Index(rest, endOfHead); end >= 0; end = bytes.Index(rest, endOfHead) {
			if bytes.HasPrefix(rest, heavy) {
				burn(heavySteps)
			}
			answers = append(answers, answer...)
			rest = rest[end+len(endOfHead):]
		}
		have = copy(buffer, rest)
		if _, err := conn.Write(answers); errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET) {
			return
		} else {
			check(err)
		}
	}
}

// serve answers whoever connects to the address that it returns.
func serve() *net.TCPAddr {
	l := listen()
	go func() {
		for {
			conn, err := l.Accept()
			check(err)
			go serveHTTP(conn)
		}
	}()
	return l.Addr().(*net.TCPAddr)
}

func runWrk(url, duration string) string {
	output, err := exec.Command("wrk", "-t1", "-c64", "-d"+duration, "--latency", url).CombinedOutput()
	if err != nil {
		log.Fatalf("bench: wrk: %v\n%s", err, output)
	}
	if bytes.Contains(output, []byte("Socket errors")) || bytes.Contains(output, []byte("Non-2xx")) {
		log.Fatalf("bench: wrk met errors\n%s", output)
	}
	return string(output)
}

func wrkField(output, pattern string) []string {
	found := regexp.MustCompile(pattern).FindStringSubmatch(output)
	if found == nil {
		log.Fatalf("bench: what wrk printed is new\n%s", output)
	}
	return found[1:]
}

// wrkMicroseconds finds one percentile, such as `99%    1.90ms`.
func wrkMicroseconds(output, percent string) float64 {
	f := wrkField(output, percent+`%\s+([0-9.]+)(us|ms|s)`)
	value, err := strconv.ParseFloat(f[0], 64)
	check(err)
	return value * map[string]float64{"us": 1, "ms": 1e3, "s": 1e6}[f[1]]
}

func httpRaw(w workload) {
	url := fmt.Sprintf("http://%s/", serve())
	runWrk(url, "1s")
	duration := "5s"
	if quick {
		duration = "1s"
	}
	cpu := cpuTime()
	output := runWrk(url, duration)
	cpu = cpuTime() - cpu

	rate, err := strconv.ParseFloat(wrkField(output, `Requests/sec:\s+([0-9.]+)`)[0], 64)
	check(err)
	requests, err := strconv.ParseFloat(wrkField(output, `(\d+) requests in`)[0], 64)
	check(err)
	report(w, rate, "req/s")
	reportPart(w, "p50", wrkMicroseconds(output, "50"), "us")
	reportPart(w, "p99", wrkMicroseconds(output, "99"), "us")
	reportPart(w, "cpu_per_req", float64(cpu.Microseconds())/requests, "us")
}

// ---- files: 32 goroutines read pages at random, from the page cache or (w.size == direct) from the device ----

const (
	readers  = 32
	pageSize = 4096
	direct   = 1
)

func filePages() int64 {
	if quick {
		return 32 << 20 / pageSize
	}
	return 256 << 20 / pageSize
}

// createIn makes the file, which has no name any more, with the page's number at the start of each page.
func createIn(folder string, flags int) (*os.File, error) {
	path := fmt.Sprintf("%s/weft_bench.%d", folder, os.Getpid())
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL|flags, 0o600)
	if err != nil {
		return nil, err
	}
	check(os.Remove(path))
	const chunk = 256 // pages
	buffer := pages(chunk)
	for page := int64(0); page < filePages(); page += chunk {
		for i := int64(0); i < chunk; i++ {
			binary.LittleEndian.PutUint64(buffer[i*pageSize:], uint64(page+i))
		}
		_, err := f.Write(buffer)
		check(err)
	}
	check(f.Sync())
	return f, nil
}

func pages(n int) []byte {
	memory, err := syscall.Mmap(-1, 0, n*pageSize, syscall.PROT_READ|syscall.PROT_WRITE,
		syscall.MAP_PRIVATE|syscall.MAP_ANON)
	check(err)
	return memory
}

func readPages(f *os.File, seed uint64, t *tally, stop *atomic.Bool) {
	buffer, count := pages(1), uint64(filePages())
	for x := seed; !stop.Load(); t.n.Add(1) {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		page := x % count
		if n, err := f.ReadAt(buffer, int64(page)*pageSize); n != pageSize {
			log.Fatal("bench: a page that is not whole: ", err)
		}
		expect("a page", int64(binary.LittleEndian.Uint64(buffer)), int64(page))
	}
}

func files(w workload) {
	flags := 0
	if w.size == direct {
		flags = syscall.O_DIRECT
	}
	f, err := createIn("/var/tmp", flags)
	if err != nil {
		f, err = createIn(".", flags)
	}
	if err != nil {
		log.Printf("bench: %s: no file for it in /var/tmp nor here: %v", w.name, err)
		return
	}
	tallies := make([]tally, readers)
	var stop atomic.Bool
	var done sync.WaitGroup
	done.Add(readers)
	for i := range tallies {
		go func(i int) {
			readPages(f, uint64(i)+1, &tallies[i], &stop)
			done.Done()
		}(i)
	}
	r := measureRates(tallies)
	stop.Store(true)
	done.Wait()
	report(w, float64(r.elapsed.Nanoseconds())/r.done, "ns")
	reportPart(w, "cpu", float64(r.cpu.Nanoseconds())/r.done, "ns")
}
