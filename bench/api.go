package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"brine/bench/system"
	"brine/internal/call/client"
	"brine/internal/host/freeport"
	"brine/internal/net/event"
	"brine/internal/py/value"
)

// site is a running salt-api and its master.
type site struct {
	*master
	api   daemon
	url   string
	id    string // of a session
	token string // of the master, for commands without salt-api
	http  *http.Client
}

// apiClients is the number of programs that read the events.
const apiClients = 500

// runAPI measures the cost that salt-api adds to a command, and that of 500 readers of its events.
func runAPI(ctx context.Context, b *bench, k kind) error {
	ports, err := freeport.TCP(1)
	if err != nil {
		return err
	}
	m, err := b.newMaster(k, "zeromq", 1, fmt.Sprintf(`sharedsecret: bench
external_auth: {sharedsecret: {bench: ['.*', '@runner', '@wheel']}}
netapi_enable_clients: [runner]
api_logfile: api.log
rest_cherrypy: {port: %d, host: 127.0.0.1, disable_ssl: True}
`, ports[0]))
	if err != nil {
		return err
	}
	defer m.remove()
	if err := m.run(ctx, b); err != nil {
		return err
	}
	s := &site{master: m, api: daemon{programs: b.programs, kind: k, dir: m.dir}, url: fmt.Sprintf("http://127.0.0.1:%d", ports[0]),
		http: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 2000}}}
	defer s.http.CloseIdleConnections()
	if err := s.api.start(ctx, "salt-api"); err != nil {
		return err
	}
	defer s.api.stop()
	if err := s.signIn(ctx); err != nil {
		return err
	}
	if err := s.latency(ctx, b); err != nil {
		return err
	}
	return s.streams(ctx, b)
}

// ask sends a request of the API and returns the answer.
func (s *site) ask(ctx context.Context, path, body string) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url+path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("X-Auth-Token", s.id)
	resp, err := s.http.Do(r)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	out, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %d %.200s", path, resp.StatusCode, out)
	}
	if id := resp.Header.Get("X-Auth-Token"); id != "" {
		s.id = id
	}
	return out, err
}

func (s *site) signIn(ctx context.Context) error {
	const creds = `{"username": "bench", "password": "bench", "eauth": "sharedsecret"}`
	for from := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		_, err := s.ask(ctx, "/login", creds)
		if err == nil {
			break
		}
		if time.Since(from) > time.Minute {
			return err
		}
		if err := s.api.ended(); err != nil {
			return err
		}
	}
	out, err := s.ask(ctx, "/token", creds)
	var tokens []struct{ Token string }
	if err == nil {
		err = json.Unmarshal(out, &tokens)
	}
	if err != nil || len(tokens) != 1 {
		return fmt.Errorf("/token: %.200s: %w", out, err)
	}
	s.token = tokens[0].Token
	return nil
}

const apiChunk = `{"client": "runner", "fun": "test.arg", "arg": [1]}`

// command runs the command through the API.
func (s *site) command(ctx context.Context) error {
	_, err := s.ask(ctx, "/", apiChunk)
	return err
}

// latency runs a command through the API and without it in turns.
func (s *site) latency(ctx context.Context, b *bench) error {
	host, port, err := net.SplitHostPort(s.request)
	if err != nil {
		return err
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return err
	}
	log := slog.New(slog.DiscardHandler)
	local, err := client.NewLocal(client.Place{Interface: host, RetPort: uint16(n), Transport: "zeromq", CacheDir: s.cache(),
		Sockets: event.MasterOptions{SockDir: filepath.Join(s.dir, "var/run/salt/master")}.Sockets()}, "root", log)
	if err != nil {
		return err
	}
	defer local.Close()
	c := client.New(client.Options{Timeout: requestTimeout}, "", local, local, log)
	direct := func(ctx context.Context) error {
		_, err := c.Low(ctx, value.DictOf("client", "runner", "fun", "test.arg", "arg", value.ListOf(int64(1)), "token", s.token))
		return err
	}
	var through, without []float64
	for range 4 { // so that other load on the machine affects both
		for _, x := range []struct {
			do func(context.Context) error
			to *[]float64
		}{{direct, &without}, {s.command, &through}} {
			took, err := timed(ctx, 100, b.size(500), x.do)
			if err != nil {
				return err
			}
			*x.to = append(*x.to, took...)
		}
	}
	at := func(all []float64, percent int) float64 { slices.Sort(all); return all[len(all)*percent/100] }
	b.add("api-p50", s.kind, 0, at(through, 50))
	b.add("api-p99", s.kind, 0, at(through, 99))
	b.add("api-under-p50", s.kind, 0, at(without, 50))
	b.add("api-under-p99", s.kind, 0, at(without, 99))
	b.add("api-added-p99", s.kind, 0, at(through, 99)-at(without, 99))
	return nil
}

// timed calls do n times at a rate per second, and returns the duration of each call in ms.
func timed(ctx context.Context, rate, n int, do func(context.Context) error) ([]float64, error) {
	var mu sync.Mutex
	var took []float64
	var firstErr error
	var wg sync.WaitGroup
	tick := time.NewTicker(time.Second / time.Duration(rate))
	defer tick.Stop()
	for range n {
		<-tick.C
		wg.Go(func() {
			from := time.Now()
			err := do(ctx)
			mu.Lock()
			defer mu.Unlock()
			took = append(took, time.Since(from).Seconds()*1e3)
			if err != nil && firstErr == nil {
				firstErr = err
			}
		})
	}
	wg.Wait()
	return took, firstErr
}

// streams makes 500 programs read the events of 200 commands per second.
func (s *site) streams(ctx context.Context, b *bench) error {
	clients, commands := b.size(apiClients), b.size(2000)
	before, err := s.resting()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	var ends, open atomic.Int64
	follow := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for range clients {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+"/events?token="+s.id, nil)
		if err != nil {
			return err
		}
		resp, err := follow.Do(r)
		if err != nil {
			return err
		}
		open.Add(1)
		wg.Go(func() {
			defer open.Add(-1)
			defer resp.Body.Close()
			for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
				if l := lines.Text(); strings.HasPrefix(l, "tag: salt/run/") && strings.HasSuffix(l, "/ret") {
					ends.Add(1)
				}
			}
		})
	}
	idle, err := s.resting()
	if err != nil {
		return err
	}
	// The streams have started when all programs have received one command.
	for from := time.Now(); ends.Load() < int64(clients); time.Sleep(100 * time.Millisecond) {
		if err := s.command(ctx); err != nil || time.Since(from) > time.Minute {
			return fmt.Errorf("the streams are silent: %w", err)
		}
	}
	time.Sleep(time.Second)
	ends.Store(0)
	took, err := timed(ctx, 200, commands, s.command)
	if err != nil {
		return err
	}
	want := int64(clients * commands)
	for from := time.Now(); ends.Load() < want && time.Since(from) < 30*time.Second; {
		time.Sleep(20 * time.Millisecond)
	}
	busy, err := system.MemoryOf(s.api.pid())
	if err != nil {
		return err
	}
	slices.Sort(took)
	b.add("api-memory", s.kind, 0, float64(before.PSS)/1e6)
	b.add("api-memory-streams", s.kind, 0, float64(idle.PSS-before.PSS)/1e6)
	b.add("api-memory-busy", s.kind, 0, float64(busy.PSS)/1e6)
	b.add("api-streams-lost", s.kind, 0, float64(want-ends.Load()))
	b.add("api-streams-ended", s.kind, 0, float64(int64(clients)-open.Load()))
	b.add("api-streams-p99", s.kind, 0, took[len(took)*99/100])
	return nil
}

// resting returns the memory of the idle salt-api.
func (s *site) resting() (system.Memory, error) {
	time.Sleep(restTime)
	return system.MemoryOf(s.api.pid())
}
