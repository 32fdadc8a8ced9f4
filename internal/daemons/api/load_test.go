package api

import (
	"bufio"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"brine/internal/py/value"
)

// TestManyStreams: five hundred clients of /events get each of many events once and in
// order while other requests are answered. bench (-only ^api$) measures times and memory.
func TestManyStreams(t *testing.T) {
	const clients, events, requests, askers = 500, 300, 200, 20
	r := serve(t, settings(t, ""))
	id := r.login()
	dial := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: askers}}
	defer dial.CloseIdleConnections()
	var wg sync.WaitGroup
	for n := range clients {
		wg.Go(func() {
			resp, err := dial.Get(r.url + "/events?token=" + id)
			if err != nil {
				t.Error(err)
				return
			}
			defer resp.Body.Close()
			lines := bufio.NewScanner(resp.Body)
			next := 0
			for next < events && lines.Scan() {
				if nr, ok := strings.CutPrefix(lines.Text(), "tag: load/"); ok {
					if nr != fmt.Sprint(next) {
						t.Errorf("client %d: event %s in place of %d", n, nr, next)
						return
					}
					next++
				}
			}
			if next != events {
				t.Errorf("client %d: the stream ended after %d events: %v", n, next, lines.Err())
			}
		})
	}
	// Wait until all clients and the bus are connected before events are counted.
	probe := r.feed.open()
	await := func(ok func() bool) {
		t.Helper()
		for end := time.Now().Add(time.Minute); !ok(); runtime.Gosched() {
			if time.Now().After(end) {
				t.Fatal("not all streams are open")
			}
		}
	}
	await(func() bool {
		r.feed.mu.Lock()
		defer r.feed.mu.Unlock()
		return len(r.feed.readers) == clients+1
	})
	heard := func() bool {
		select {
		case <-probe.c:
			return true
		case <-time.After(10 * time.Millisecond):
			return false
		}
	}
	await(func() bool { r.events.Fire("begin", value.NewDict(0)); return heard() })
	r.feed.close(probe)
	wg.Go(func() {
		for n := range events {
			r.events.Fire(fmt.Sprint("load/", n), value.DictOf("text", strings.Repeat("x", 500)))
		}
	})
	for range askers {
		wg.Go(func() {
			for range requests / askers {
				req, err := http.NewRequest("POST", r.url+"/", strings.NewReader(`{"client":"local","tgt":"*","fun":"test.ping"}`))
				if err != nil {
					t.Error(err)
					return
				}
				req.Header.Set("Content-Type", "application/json")
				req.Header.Set("X-Auth-Token", id)
				resp, err := dial.Do(req)
				if err != nil {
					t.Error(err)
					return
				}
				resp.Body.Close()
				if resp.StatusCode != 200 {
					t.Errorf("status %d", resp.StatusCode)
				}
			}
		})
	}
	wg.Wait()
}
