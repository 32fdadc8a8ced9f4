package cluster

import (
	"context"
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"brine/internal/ha/cluster/clustertest"
)

// TestSlowPeerIsHeard: a peer that accepts connections but answers late may still refuse this
// master, which then does not start.
func TestSlowPeerIsHeard(t *testing.T) {
	t.Parallel()
	s := newSet(t, 2)
	slow, err := New(s.cfgs[0], clustertest.Quiet())
	if err != nil {
		t.Fatal(err)
	}
	// It accepts connections at once, but answers only after Run.
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		time.Sleep(agreeTime + time.Second)
		if err := slow.Run(ctx, &host{}); err != nil {
			t.Error(err)
		}
	}()
	defer func() { cancel(); <-ended }()
	s.cfgs[1].CacheDir = filepath.Join(s.dir, "other")
	c, err := New(s.cfgs[1], clustertest.Quiet())
	if err == nil {
		c.Close()
		t.Fatal("it starts before the peer has answered")
	}
	if !strings.Contains(err.Error(), "cachedir of "+s.cfgs[1].ID) {
		t.Error(err)
	}
}

// TestNoClusterBesideSilentMember: a master that may create the cluster does not do so while a peer
// accepts connections without answering, since the peer may be a member.
func TestNoClusterBesideSilentMember(t *testing.T) {
	t.Parallel()
	s := newSet(t, 2)
	if s.cfgs[1].ID < s.cfgs[0].ID {
		s.cfgs[0], s.cfgs[1] = s.cfgs[1], s.cfgs[0]
	}
	cfg := s.cfgs[0]
	cfg.Options.Isolated, cfg.Options.Secret = true, strings.Repeat("0", joinSecret)
	l, err := net.Listen("tcp", net.JoinHostPort(s.cfgs[1].ID, strconv.Itoa(cfg.Options.Port)))
	if err != nil {
		t.Fatal(err)
	}
	var gone atomic.Bool
	late := time.AfterFunc(foundTime+2*time.Second, func() { gone.Store(true); l.Close() })
	defer late.Stop()
	defer l.Close()
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			conn.Close()
		}
	}()
	c, err := New(cfg, clustertest.Quiet())
	if !gone.Load() {
		t.Error("it created a cluster beside a peer that takes connections")
	}
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
}
