package main

import (
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"time"

	"brine/bench/report"
	"brine/internal/net/crypt"
)

// rusageThread selects the times of the calling thread.
const rusageThread = 1

// threadCPU returns the CPU time of the thread.
func threadCPU() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(rusageThread, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// ownCPU returns the CPU time of this process, including simulated minions, but not of the programs
// that it runs.
func ownCPU() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// cpuOf returns the CPU time in µs of one call of do.
func cpuOf(n int, do func()) float64 {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	do()
	from := threadCPU()
	for range n {
		do()
	}
	return float64(threadCPU()-from) / float64(n) / 1e3
}

// measureLimits measures lower bounds for any Go program on this machine.
func measureLimits(dir string) ([]report.Fact, error) {
	facts, err := cryptoLimits()
	if err != nil {
		return nil, err
	}
	trip, cpu, err := loopback(5000)
	if err != nil {
		return nil, err
	}
	send, err := sendToMany(1000)
	if err != nil {
		return nil, err
	}
	flush, err := fsync(filepath.Join(dir, "fsync"), 50)
	return append(facts,
		report.Fact{Name: "round trip of 1 KB on loopback", Value: trip, Unit: "µs"},
		report.Fact{Name: "the same, CPU of both ends", Value: cpu, Unit: "µs CPU"},
		report.Fact{Name: "1 KB to each of 1,000 connections, CPU of the sender", Value: send, Unit: "µs CPU"},
		report.Fact{Name: "fsync of a page", Value: flush, Unit: "µs"}), err
}

// signTime returns the duration of one private RSA operation in µs.
func signTime() (float64, error) {
	key, err := crypt.GenerateKey(2048)
	if err != nil {
		return 0, err
	}
	return cpuOf(300, func() { key.Sign(crypt.PKCS1v15SHA1, []byte("message")) }), nil
}

func cryptoLimits() ([]report.Fact, error) {
	key, err := crypt.GenerateKey(2048)
	if err != nil {
		return nil, err
	}
	pub, msg := key.Public(), make([]byte, 76)
	sealed, err := pub.Encrypt(crypt.OAEPSHA1, msg)
	if err != nil {
		return nil, err
	}
	sig, err := key.Sign(crypt.PKCS1v15SHA1, msg)
	if err != nil {
		return nil, err
	}
	c, err := crypt.NewCrypticle(crypt.NewKey())
	if err != nil {
		return nil, err
	}
	small, large := make([]byte, 1<<10), make([]byte, 25<<10)
	box := c.Seal(small, "")
	facts := []report.Fact{
		{Name: "RSA 2048: sign", Value: cpuOf(300, func() { key.Sign(crypt.PKCS1v15SHA1, msg) })},
		{Name: "RSA 2048: decrypt", Value: cpuOf(300, func() { key.Decrypt(crypt.OAEPSHA1, sealed) })},
		{Name: "RSA 2048: encrypt", Value: cpuOf(1000, func() { pub.Encrypt(crypt.OAEPSHA1, msg) })},
		{Name: "RSA 2048: verify", Value: cpuOf(1000, func() { pub.Verify(crypt.PKCS1v15SHA1, msg, sig) })},
		{Name: "AES-192-CBC and HMAC-SHA256: seal 1 KB", Value: cpuOf(5000, func() { c.Seal(small, "") })},
		{Name: "AES-192-CBC and HMAC-SHA256: open 1 KB", Value: cpuOf(5000, func() { c.Open(box) })},
		{Name: "AES-192-CBC and HMAC-SHA256: seal 25 KB", Value: cpuOf(500, func() { c.Seal(large, "") })},
	}
	for i := range facts {
		facts[i].Unit = "µs CPU"
	}
	return facts, nil
}

// loopback returns the duration of a round trip, and the CPU time of both ends for it, in µs.
func loopback(n int) (trip, cpu float64, err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, 0, err
	}
	defer l.Close()
	go func() {
		if c, err := l.Accept(); err == nil {
			defer c.Close()
			io.CopyBuffer(struct{ io.Writer }{c}, struct{ io.Reader }{c}, make([]byte, 1<<10))
		}
	}()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		return 0, 0, err
	}
	defer c.Close()
	before, from := ownCPU(), time.Now()
	buf := make([]byte, 1<<10)
	for range n {
		if _, err := c.Write(buf); err != nil {
			return 0, 0, err
		}
		if _, err := io.ReadFull(c, buf); err != nil {
			return 0, 0, err
		}
	}
	trip = float64(time.Since(from)) / float64(n) / 1e3
	return trip, float64(ownCPU()-before) / float64(n) / 1e3, nil
}

// sendToMany returns the CPU time in µs for sending 1 KB to one of n connections with waiting
// readers, as a publication does.
func sendToMany(n int) (float64, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	var conns []net.Conn
	defer func() {
		for _, c := range conns {
			c.Close()
		}
	}()
	var readers sync.WaitGroup
	for range n {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			return 0, err
		}
		conns = append(conns, c)
		far, err := l.Accept()
		if err != nil {
			return 0, err
		}
		readers.Go(func() {
			defer far.Close()
			io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{far}, make([]byte, 1<<10))
		})
	}
	buf := make([]byte, 1<<10)
	each := cpuOf(5, func() {
		for _, c := range conns {
			if _, e := c.Write(buf); e != nil {
				err = e
			}
		}
	}) / float64(n)
	for _, c := range conns {
		c.Close()
	}
	readers.Wait()
	return each, err
}

// fsync returns the time in µs to flush a page to disk.
func fsync(path string, n int) (float64, error) {
	f, err := os.Create(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	page := make([]byte, 4<<10)
	from := time.Now()
	for range n {
		if _, err := f.WriteAt(page, 0); err != nil {
			return 0, err
		}
		if err := f.Sync(); err != nil {
			return 0, err
		}
	}
	return float64(time.Since(from)) / float64(n) / 1e3, nil
}
