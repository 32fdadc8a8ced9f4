package freeport

import (
	"fmt"
	"net"
	"strings"
	"testing"
)

func TestPorts(t *testing.T) {
	given := map[int]bool{}
	for network, ports := range map[string]func(int) ([]int, error){"tcp": TCP, "udp": UDP} {
		got, err := ports(50)
		if err != nil || len(got) != 50 {
			t.Fatalf("%s: %d ports, %v", network, len(got), err)
		}
		for _, port := range got {
			if given[port] || port < first || port >= end {
				t.Errorf("%s: port %d is given twice, or out of range", network, port)
			}
			given[port] = true
		}
	}
	ports, err := TCP(1)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", ports[0]))
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
}

func TestNoneFree(t *testing.T) {
	refused := fmt.Errorf("refused")
	ports, err := choose(2, "TCP", func(string) error { return refused })
	if ports != nil || err == nil || !strings.Contains(err.Error(), "0 of 2 free TCP ports") {
		t.Errorf("%v, %v", ports, err)
	}
}
