// Package freeport chooses ports for servers of tests, benchmarks and demos.
package freeport

import (
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
)

// The range lies below the ports that Linux and the BSDs give to outgoing connections and to
// listeners on port 0. Otherwise a server that restarts could find its port taken by a connection.
const first, end = 15000, 30000

var (
	mu     sync.Mutex
	chosen = map[int]bool{} // not given a second time in this process
)

// TCP returns n different TCP ports that are free on 127.0.0.1. They are not reserved: another
// process can take them.
func TCP(n int) ([]int, error) {
	return choose(n, "TCP", func(address string) error {
		l, err := net.Listen("tcp", address)
		if err != nil {
			return err
		}
		return l.Close()
	})
}

// UDP returns n different UDP ports that are free on 127.0.0.1, like [TCP].
func UDP(n int) ([]int, error) {
	return choose(n, "UDP", func(address string) error {
		c, err := net.ListenPacket("udp", address)
		if err != nil {
			return err
		}
		return c.Close()
	})
}

func choose(n int, kind string, try func(address string) error) ([]int, error) {
	mu.Lock()
	defer mu.Unlock()
	var ports []int
	var last error
	for range 1000 * n {
		if len(ports) == n {
			break
		}
		port := first + rand.IntN(end-first)
		if chosen[port] {
			continue
		}
		if last = try(fmt.Sprintf("127.0.0.1:%d", port)); last == nil {
			chosen[port] = true
			ports = append(ports, port)
		}
	}
	if len(ports) < n {
		return nil, fmt.Errorf("found %d of %d free %s ports from %d to %d: %w", len(ports), n, kind, first, end-1, last)
	}
	return ports, nil
}
