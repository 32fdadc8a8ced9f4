package channel

import (
	"bytes"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"brine/internal/base/salt"
	"brine/internal/net/crypt"
	"brine/internal/net/handshake"
	"brine/internal/net/transport"
	"brine/internal/py/msgpack"
	"brine/internal/py/value"
)

// sealer creates valid requests of the recorded minion, which tests then
// modify.
type sealer struct {
	session *crypt.Crypticle
	tok     []byte
	n       int
}

func newSealer(t testing.TB, session, key string) *sealer {
	t.Helper()
	c, err := crypt.NewCrypticle(session)
	if err != nil {
		t.Fatal(err)
	}
	tok, err := private(t, key).SignX931([]byte("salt"))
	if err != nil {
		t.Fatal(err)
	}
	return &sealer{session: c, tok: tok}
}

// load returns a load with all fields that the master checks.
func (s *sealer) load(pairs ...any) *value.Dict {
	s.n++
	d := value.DictOf("cmd", "echo", "nonce", fmt.Sprintf("%032x", s.n), "ts", time.Now().Unix(), "tok", s.tok, "id", vecID)
	d.Update(value.DictOf(pairs...))
	return d
}

func (s *sealer) envelope(t testing.TB, load any) *value.Dict {
	return value.DictOf("enc", "aes", "load", s.session.Seal(encode(t, load), ""), "version", 3, "id", vecID,
		"enc_algo", crypt.OAEPSHA1, "sig_algo", crypt.PKCS1v15SHA1)
}

func (s *sealer) request(t testing.TB, load any) []byte { return encode(t, s.envelope(t, load)) }

// answerOf returns the reply as the minion reads it: decrypted, or the plain
// string.
func (s *sealer) answerOf(t testing.TB, reply []byte, nonce string) any {
	t.Helper()
	text, ok := msgpack.Text(reply)
	if !ok {
		return decode(t, reply)
	}
	plain, err := s.session.OpenNonce(text, nonce)
	if err != nil {
		return string(text)
	}
	return decode(t, plain)
}

func TestBadRequests(t *testing.T) {
	seal := newSealer(t, vecSession, "minion")
	other := newSealer(t, vecSession, "minion_other")
	deep := any(int64(1))
	for range 490 {
		deep = &value.List{Items: []any{deep}}
	}
	deeper := []byte(strings.Repeat("\x91", 2000) + "\x01")
	set := func(k string, v any) func(*value.Dict) { return func(d *value.Dict) { d.Set(k, value.From(v)) } }
	drop := func(k string) func(*value.Dict) { return func(d *value.Dict) { d.Delete(k) } }
	for name, c := range map[string]struct {
		env, load func(*value.Dict)
		want      string // "" for a normal answer
	}{
		"good":                      {},
		"depth that is taken":       {load: set("x", deep)},
		"enc missing":               {env: drop("enc"), want: badLoad},
		"enc unknown":               {env: set("enc", "pub"), want: badLoad},
		"enc is a number":           {env: set("enc", 1), want: badLoad},
		"load missing":              {env: drop("load"), want: badLoad},
		"load is a map":             {env: set("load", value.DictOf("cmd", "echo")), want: badLoad},
		"load is nil":               {env: set("load", nil), want: badLoad},
		"load is short":             {env: set("load", "x"), want: badLoad},
		"version missing":           {env: drop("version"), want: badLoad},
		"version 2":                 {env: set("version", 2), want: badLoad},
		"version as text":           {env: set("version", "3")},
		"version is no number":      {env: set("version", "x"), want: badLoad},
		"version 4":                 {env: set("version", 4)},
		"envelope id missing":       {env: drop("id"), want: badLoad},
		"envelope id is a number":   {env: set("id", 5), want: badLoad},
		"envelope id is not UTF-8":  {env: set("id", []byte{0xff}), want: badLoad},
		"envelope id of another":    {env: set("id", "friend"), want: badLoad},
		"unknown id":                {env: set("id", "ghost"), load: set("id", "ghost"), want: badLoad},
		"id with a slash":           {env: set("id", "../"+vecID), load: set("id", "../"+vecID), want: badLoad},
		"id with a backslash":       {env: set("id", `a\b`), want: badLoad},
		"id with a NUL":             {env: set("id", "a\x00b"), want: badLoad},
		"id is ..":                  {env: set("id", ".."), load: set("id", ".."), want: badLoad},
		"id is empty":               {env: set("id", ""), load: set("id", ""), want: badLoad},
		"id is very long":           {env: set("id", strings.Repeat("a", 5000)), want: badLoad},
		"load id of another":        {load: set("id", "friend"), want: badLoad},
		"load id missing":           {load: drop("id"), want: badLoad},
		"load id is a number":       {load: set("id", 5), want: badLoad},
		"tok missing":               {load: drop("tok"), want: badLoad},
		"tok of another":            {load: set("tok", other.tok), want: badLoad},
		"tok is a number":           {load: set("tok", 5), want: badLoad},
		"tok is empty":              {load: set("tok", ""), want: badLoad},
		"tok is huge":               {load: set("tok", bytes.Repeat([]byte{0xff}, 1<<20)), want: badLoad},
		"nonce is long":             {load: set("nonce", strings.Repeat("n", 65)), want: badLoad},
		"cmd missing":               {load: drop("cmd"), want: badMinion},
		"cmd is a number":           {load: set("cmd", 5)},
		"bytes in the place of cmd": {load: set("cmd", []byte{0xff})},
		"deeper than msgpack reads": {env: set("load", seal.session.Seal(deeper, "")), want: badDict},
		"load is a list":            {env: set("load", seal.session.Seal([]byte{0x90}, "")), want: badDict},
		"load is nothing":           {env: set("load", seal.session.Seal(nil, "")), want: badDict},
		"trailing bytes":            {env: set("load", seal.session.Seal([]byte{0x80, 0x80}, "")), want: badDict},
	} {
		t.Run(name, func(t *testing.T) {
			s := newVecServer(t, func(c *Call) { c.Reply("served") })
			s.book.accept("friend", private(t, "minion_other").Public())
			load := seal.load()
			if c.load != nil {
				c.load(load)
			}
			env := seal.envelope(t, load)
			if c.env != nil {
				c.env(env)
			}
			if c.want == "" {
				c.want = "served"
			}
			if got := seal.answerOf(t, s.ask(t, encode(t, env), false), load.Str("nonce")); got != c.want {
				t.Errorf("answer %v, want %q", value.Repr(got), c.want)
			}
		})
	}
}

func TestBadClearRequests(t *testing.T) {
	clear := func(load any) []byte { return encode(t, value.DictOf("enc", "clear", "load", load, "version", 3)) }
	deep := any(int64(1))
	for range 70 {
		deep = &value.List{Items: []any{deep}}
	}
	wide := &value.List{Items: make([]any, unauthenticatedLimits.Items+1)}
	for name, c := range map[string]struct {
		body []byte
		want any
	}{
		"good":                {clear(value.DictOf("cmd", "ping", "id", "x")), "served"},
		"cmd is a number":     {clear(value.DictOf("cmd", 5)), "served"},
		"no cmd":              {clear(value.DictOf("x", 1)), badMinion},
		"load is a text":      {clear("x"), badDict},
		"load is nil":         {clear(nil), badDict},
		"too deep":            {clear(value.DictOf("cmd", "ping", "x", deep)), badDict},
		"too wide":            {clear(value.DictOf("cmd", "ping", "x", wide)), badDict},
		"id is a number":      {clear(value.DictOf("cmd", "ping", "id", 5)), badLoadIDStr},
		"id is nil":           {clear(value.DictOf("cmd", "_auth", "id", nil)), badLoadIDStr},
		"id with a NUL":       {clear(value.DictOf("cmd", "_auth", "id", "a\x00b")), badLoadID},
		"sign-in without key": {clear(value.DictOf("cmd", "_auth", "id", "x", "nonce", "n")), badLoad},
		"sign-in without id":  {clear(value.DictOf("cmd", "_auth", "pub", "k", "nonce", "n")), badLoad},
		"sign-in too large":   {clear(value.DictOf("cmd", "_auth", "id", "x", "autosign_grains", strings.Repeat("x", 1<<20))), badDict},
		"empty":               {nil, nil},
		"not msgpack":         {[]byte{0xc1}, nil},
		"a number":            {[]byte{5}, badLoad},
		"a list":              {[]byte{0x90}, badLoad},
		"an empty map":        {[]byte{0x80}, badLoad},
	} {
		s := newVecServer(t, func(c *Call) { c.Reply("served") })
		got := decode(t, s.ask(t, c.body, false))
		if c.want == nil {
			if value.Repr(got) != "{'msg': 'bad load'}" {
				t.Errorf("%s: answer %s", name, value.Repr(got))
			}
		} else if got != c.want {
			t.Errorf("%s: answer %s, want %q", name, value.Repr(got), c.want)
		}
	}
}

// TestMinimumAuthVersion: peers older than session keys can be allowed to sign
// in, but not to send requests.
func TestMinimumAuthVersion(t *testing.T) {
	seal := newSealer(t, vecSession, "minion")
	s := newVecServer(t, func(c *Call) { c.Reply("served") })
	s.opts.MinimumAuthVersion = 0
	ping := encode(t, value.DictOf("enc", "clear", "load", value.DictOf("cmd", "ping")))
	if got := decode(t, s.ask(t, ping, false)); got != "served" {
		t.Errorf("clear without version: %v", got)
	}
	load := seal.load()
	env := seal.envelope(t, load)
	env.Set("version", int64(2))
	if got := seal.answerOf(t, s.ask(t, encode(t, env), false), load.Str("nonce")); got != badLoad {
		t.Errorf("sealed with version 2: %v", got)
	}
	s.opts.MinimumAuthVersion = 4
	if got := decode(t, s.ask(t, ping, false)); got != badLoad {
		t.Errorf("below the minimum: %v", got)
	}
}

func TestReplayedRequest(t *testing.T) {
	seal := newSealer(t, vecSession, "minion")
	now := time.Now()
	s := newVecServer(t, func(c *Call) { c.Reply("served") })
	s.now = func() time.Time { return now }
	ask := func(load *value.Dict) any {
		return seal.answerOf(t, s.ask(t, seal.request(t, load), false), load.Str("nonce"))
	}
	first := seal.load()
	if got := ask(first); got != "served" {
		t.Fatal(got)
	}
	for range nonceWindow - 1 {
		if got := ask(first); got != badLoad {
			t.Fatalf("a replay is answered %v", got)
		}
		if got := ask(seal.load()); got != "served" {
			t.Fatal(got)
		}
	}
	if got := ask(first); got != badLoad {
		t.Errorf("a replay at the end of the window is answered %v", got)
	}
	v, _ := s.table.m.Load(vecID)
	if n := cap(v.(*minionState).nonces.hashes); n > nonceWindow {
		t.Errorf("room for %d nonces", n)
	}
	for range 5 {
		if got := ask(seal.load("nonce", nil)); got != "served" {
			t.Errorf("without nonce: %v", got)
		}
	}

	// A stock minion repeats its request for the pillar when the answer does not
	// arrive: the same bytes, or at least the same nonce.
	pillar := seal.load("cmd", "_pillar")
	same := seal.request(t, pillar)
	for range 3 {
		if got := seal.answerOf(t, s.ask(t, same, false), pillar.Str("nonce")); got != "served" {
			t.Errorf("pillar asked again: %v", got)
		}
		now = now.Add(time.Minute)
	}
	now = now.Add(repeatTime)
	if got := seal.answerOf(t, s.ask(t, same, false), pillar.Str("nonce")); got != badLoad {
		t.Errorf("pillar asked much later: %v", got)
	}
}

// TestOldReplay: a request whose nonce is forgotten is refused anyway. A minion
// whose clock was set back is served after one sign-in, which makes all earlier
// recordings useless.
func TestOldReplay(t *testing.T) {
	seal := newSealer(t, vecSession, "minion")
	now := time.Now()
	ahead := time.Hour // by the minion's clock
	s := newVecServer(t, func(c *Call) { c.Reply("served") })
	s.now = func() time.Time { return now }
	ask := func(seal *sealer) (request []byte, answer any) {
		load := seal.load("ts", now.Add(ahead).Unix())
		request = seal.request(t, load)
		return request, seal.answerOf(t, s.ask(t, request, false), load.Str("nonce"))
	}
	var recorded [][]byte
	for range 1 + 2*nonceWindow {
		request, answer := ask(seal)
		if answer != "served" {
			t.Fatal(answer)
		}
		recorded = append(recorded, request)
		now = now.Add(2 * replayTime / nonceWindow)
	}
	for i, request := range recorded { // includes the latest forgotten one
		if answer := decode(t, s.ask(t, request, false)); answer != badLoad {
			t.Fatalf("a replay of request %d of %d is answered %v", i, len(recorded), answer)
		}
	}
	if _, answer := ask(seal); answer != "served" {
		t.Errorf("the minion after the replay: %v", answer)
	}

	ahead = 0
	if _, answer := ask(seal); answer != badLoad {
		t.Errorf("with the clock set back: %v", answer)
	}
	r, err := signer(t, vecID, private(t, "minion"), nil).Begin("0123456789abcdef0123456789abcdef", nil, false)
	if err != nil {
		t.Fatal(err)
	}
	s.ask(t, encode(t, value.DictOf("enc", "clear", "load", r.Load, "version", 3)), false)
	b, err := os.ReadFile(filepath.Join(s.sessions.dir, vecID))
	if err != nil || string(b) == vecSession {
		t.Fatalf("the session key is still the same: %v", err)
	}
	next := newSealer(t, string(b), "minion")
	for range 2 * nonceWindow {
		if _, answer := ask(next); answer != "served" {
			t.Fatalf("after the sign-in: %v", answer)
		}
	}
}

// TestBusyMinion: a minion sends more requests in one second of its clock than are remembered for a
// quiet minion. It is served, and none of the requests can be replayed, even when they are
// forgotten.
func TestBusyMinion(t *testing.T) {
	seal := newSealer(t, vecSession, "minion")
	now := time.Now()
	s := newVecServer(t, func(c *Call) { c.Reply("served") })
	s.now = func() time.Time { return now }
	ask := func() (request []byte, answer any) {
		load := seal.load("ts", now.Unix())
		request = seal.request(t, load)
		return request, seal.answerOf(t, s.ask(t, request, false), load.Str("nonce"))
	}
	first, _ := ask()
	for i := range 2 * nonceBurst {
		if _, answer := ask(); answer != "served" {
			t.Fatalf("request %d: %v", i, answer)
		}
	}
	replay := func(when string) {
		t.Helper()
		if answer := decode(t, s.ask(t, first, false)); answer != badLoad {
			t.Errorf("a replay %s is answered %v", when, answer)
		}
	}
	replay("at once")
	m, _ := s.table.m.Load(vecID)
	now = now.Add(2 * burstTime)
	s.Prune()
	if r := &m.(*minionState).nonces; len(r.hashes)-r.next != nonceBurst || cap(r.hashes) > 2*nonceBurst {
		t.Errorf("of a minion that is quiet again %d requests are remembered, with room for %d", len(r.hashes)-r.next, cap(r.hashes))
	}
	replay("later")
	if _, answer := ask(); answer != "served" {
		t.Errorf("the minion later: %v", answer)
	}
}

// TestRequestServerTTL: a request that is too old or from the future is
// refused; without the option the clocks do not matter.
func TestRequestServerTTL(t *testing.T) {
	seal := newSealer(t, vecSession, "minion")
	now := time.Now().Truncate(time.Second)
	var log bytes.Buffer
	s := newVecServer(t, func(c *Call) { c.Reply("served") })
	s.log = slog.New(slog.NewTextHandler(&log, nil))
	s.now = func() time.Time { return now }
	ask := func(ts any) any {
		load := seal.load("ts", ts)
		return seal.answerOf(t, s.ask(t, seal.request(t, load), false), load.Str("nonce"))
	}
	for _, ts := range []any{0, -1, 1 << 62, nil, "x"} {
		if got := ask(ts); got != "served" {
			t.Errorf("ts %v without the option: %v", ts, got)
		}
	}
	s.opts.RequestServerTTL = 30 * time.Second
	for off, want := range map[int64]string{0: "served", -30: "served", 30: "served", -31: badLoad, 31: badLoad, -1 << 40: badLoad, 1 << 40: badLoad} {
		if got := ask(now.Unix() + off); got != want {
			t.Errorf("off by %d s: %v", off, got)
		}
	}
	for _, ts := range []any{nil, "x", int64(-1 << 63), int64(1<<63 - 1), 0} {
		if got := ask(ts); got != badLoad {
			t.Errorf("ts %v: %v", ts, got)
		}
	}
	if n := strings.Count(log.String(), "request_server_ttl"); n != 1 || !strings.Contains(log.String(), "clocks") {
		t.Errorf("%d warnings in a minute:\n%s", n, log.String())
	}
	now = now.Add(2 * time.Minute)
	ask(0)
	if n := strings.Count(log.String(), "request_server_ttl"); n != 2 {
		t.Errorf("%d warnings after two minutes", n)
	}
}

// TestKeyChange: when a minion's key is deleted or replaced, the old key and
// the old session are invalid.
func TestKeyChange(t *testing.T) {
	seal := newSealer(t, vecSession, "minion")
	s := newVecServer(t, func(c *Call) { c.Reply("served") })
	ask := func() any {
		load := seal.load()
		return seal.answerOf(t, s.ask(t, seal.request(t, load), false), load.Str("nonce"))
	}
	if got := ask(); got != "served" {
		t.Fatal(got)
	}
	path := filepath.Join(s.sessions.dir, vecID)
	s.book.remove(vecID)
	if got := ask(); got != badLoad {
		t.Errorf("with a deleted key: %v", got)
	}
	if _, err := os.Stat(path); err == nil {
		t.Error("the session key of a deleted minion is still there")
	}
	s.book.accept(vecID, private(t, "minion_other").Public())
	if got := ask(); got != badLoad {
		t.Errorf("with the key of another: %v", got)
	}
	// The next minion with this id has a session key of its own.
	b, err := os.ReadFile(path)
	if err != nil || string(b) == vecSession {
		t.Errorf("session key %q, %v", b, err)
	}
	next := newSealer(t, string(b), "minion_other")
	load := next.load()
	if got := next.answerOf(t, s.ask(t, next.request(t, load), false), load.Str("nonce")); got != "served" {
		t.Errorf("the new minion: %v", got)
	}
	// A key that changes between two requests.
	s.book.accept(vecID, private(t, "minion").Public())
	load = next.load()
	if got := next.answerOf(t, s.ask(t, next.request(t, load), false), load.Str("nonce")); got != badLoad {
		t.Errorf("after the change: %v", got)
	}
	if again, _ := os.ReadFile(path); bytes.Equal(again, b) {
		t.Error("the session key outlived the change")
	}
	s.Forget(vecID)
	if _, err := os.Stat(path); err == nil {
		t.Error("Forget leaves the session key")
	}
	s.book.set(func(b *book) { b.err = errors.New("disk is on fire") })
	if got := ask(); got != badLoad {
		t.Errorf("without a store of keys: %v", got)
	}
}

// TestSessionReplacedByAnotherMaster: two masters share the directory. What the
// other one writes takes effect at once, even within the same tick of the
// clock.
func TestSessionReplacedByAnotherMaster(t *testing.T) {
	seal := newSealer(t, vecSession, "minion")
	s := newVecServer(t, func(c *Call) { c.Reply("served") })
	now := time.Now()
	s.now = func() time.Time { return now }
	ask := func(seal *sealer) any {
		load := seal.load()
		return seal.answerOf(t, s.ask(t, seal.request(t, load), false), load.Str("nonce"))
	}
	if got := ask(seal); got != "served" {
		t.Fatal(got)
	}
	path := filepath.Join(s.sessions.dir, vecID)
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	key := crypt.NewKey()
	if err := os.WriteFile(path, []byte(key+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(path, info.ModTime(), info.ModTime()); err != nil {
		t.Fatal(err)
	}
	next := newSealer(t, key, "minion")
	next.n = 1 << 20
	if got := ask(next); got != "served" {
		t.Errorf("the new key: %v", got)
	}
	if got := ask(seal); got != badLoad {
		t.Errorf("the old key: %v", got)
	}
	// The clock is set back: nothing stops working.
	now = now.Add(-24 * time.Hour)
	if got := ask(next); got != "served" {
		t.Errorf("with the clock set back: %v", got)
	}
}

// TestDistrustOld: keys of another process are not used, and if no file can be
// written, minions get keys anyway, which end with time and with Forget.
func TestDistrustOld(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "sessions")
	start := func() *Sessions {
		s, err := NewSessions(dir, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		s.DistrustOld()
		return s
	}
	get := func(s *Sessions) string {
		t.Helper()
		key, st, err := s.Get("one")
		if err != nil {
			t.Fatal(err)
		}
		if again, err := s.stat("one"); err != nil || again != st {
			t.Errorf("state %v, then %v, %v", st, again, err)
		}
		return key
	}
	s := start()
	first := get(s)
	if get(s) != first {
		t.Error("the key changes at each look")
	}
	s = start()
	second := get(s)
	if second == first || get(s) != second {
		t.Error("the key of before the restart is used")
	}

	// Without the directory nothing can be written.
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	s.now = func() time.Time { return now }
	third := get(s)
	if third == second || get(s) != third {
		t.Error("no lasting key without a disk")
	}
	now = now.Add(2 * time.Hour)
	if get(s) == third {
		t.Error("a key in memory outlives its time")
	}
	fourth := get(s)
	if err := s.Forget("one"); err != nil {
		t.Error(err)
	}
	if get(s) == fourth {
		t.Error("a key in memory is not forgotten")
	}
}

func TestSessions(t *testing.T) {
	s, err := NewSessions(filepath.Join(t.TempDir(), "a", "b"), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(s.dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("directory: %v", info.Mode())
	}
	keys := make([]string, 20)
	var wg sync.WaitGroup
	for i := range keys {
		wg.Go(func() { keys[i], _, _ = s.Get("one") })
	}
	wg.Wait()
	for _, k := range keys {
		if k != keys[0] || k == "" {
			t.Fatalf("keys %q", keys)
		}
	}
	if left, _ := os.ReadDir(s.dir); len(left) != 1 {
		t.Errorf("files: %v", left)
	}
	for _, id := range []string{"", ".", "..", "a/b", "a\x00b", `a\b`, strings.Repeat("x", 300)} {
		if _, _, err := s.Get(id); err == nil {
			t.Errorf("a session for %q", id)
		}
		if err := s.Forget(id); err == nil {
			t.Errorf("forgot %q", id)
		}
	}
	// A key is not discarded if reading it fails for another reason than age or
	// damage.
	if err := os.Mkdir(filepath.Join(s.dir, "folder"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.Get("folder"); err == nil || !strings.Contains(err.Error(), "folder") {
		t.Errorf("a directory as key: %v", err)
	}
	// The age limits, and the clock.
	for _, c := range []struct {
		age  time.Duration
		kept bool
	}{{0, true}, {59 * time.Minute, true}, {61 * time.Minute, false}, {-59 * time.Minute, true}, {-61 * time.Minute, false}} {
		before, _, err := s.Get("one")
		if err != nil {
			t.Fatal(err)
		}
		when := time.Now().Add(-c.age)
		if err := os.Chtimes(filepath.Join(s.dir, "one"), when, when); err != nil {
			t.Fatal(err)
		}
		after, _, err := s.Get("one")
		if err != nil || (after == before) != c.kept {
			t.Errorf("age %v: kept %t, %v", c.age, after == before, err)
		}
	}
	if _, err := NewSessions(filepath.Join(s.dir, "one", "x"), 0); err == nil {
		t.Error("a directory within a file")
	}
}

// signInBody is a sign-in with the given key.
func signInBody(t testing.TB, id, key string) []byte {
	t.Helper()
	a, err := signer(t, id, private(t, key), nil).Begin(newNonce(), nil, false)
	if err != nil {
		t.Fatal(err)
	}
	return encode(t, value.DictOf("enc", "clear", "load", a.Load, "version", 3))
}

// verdictOf reads ret of a signed refusal, or "accepted".
func verdictOf(t testing.TB, reply []byte) any {
	t.Helper()
	d, ok := decode(t, reply).(*value.Dict)
	if !ok {
		return decode(t, reply)
	}
	in := decode(t, d.Bytes("load")).(*value.Dict)
	if err := private(t, "master").Public().Verify(crypt.PKCS1v15SHA1, d.Bytes("load"), d.Bytes("sig")); err != nil {
		t.Error(err)
	}
	if in.Has("pub_key") {
		return "accepted"
	}
	return in.At("ret")
}

func TestSignInDecisions(t *testing.T) {
	pem := func(name string) string { return string(private(t, name).Public().PEM()) }
	for _, c := range []struct {
		name  string
		set   func(*book)
		want  any
		act   string // of the event; "none" for no event
		check func(*book) bool
	}{
		{"new", func(*book) {}, true, "pend", func(b *book) bool { return b.pending["one"] != "" }},
		{"new with autosign", func(b *book) { b.auto = true }, "accepted", "accept", func(b *book) bool { return b.accepted["one"] != nil }},
		{"open", func(b *book) { b.open = true; b.accept("one", private(t, "cluster").Public()) }, "accepted", "accept",
			func(b *book) bool { return b.accepted["one"].Equal(private(t, "minion").Public()) }},
		{"accepted", func(b *book) { b.accept("one", private(t, "minion").Public()) }, "accepted", "accept", nil},
		{"another key", func(b *book) { b.accept("one", private(t, "cluster").Public()) }, false, "denied",
			func(b *book) bool {
				return b.denied["one"] != "" && b.accepted["one"].Equal(private(t, "cluster").Public())
			}},
		{"pending with autosign", func(b *book) { b.pending["one"], b.auto = pem("minion"), true }, "accepted", "accept",
			func(b *book) bool { return len(b.pending) == 0 }},
		{"pending, another key", func(b *book) { b.pending["one"] = pem("cluster") }, false, "denied",
			func(b *book) bool { return b.pending["one"] == pem("cluster") }},
		{"rejected", func(b *book) { b.rejected["one"] = pem("minion") }, false, "", nil},
		{"full", func(b *book) { b.full = true }, "full", "full", func(b *book) bool { return len(b.pending) == 0 }},
		{"broken store", func(b *book) { b.err = errors.New("no disk") }, badMinion, "none", nil},
		{"an id that the store refuses", func(b *book) { b.err = salt.Errorf(salt.Invalid, "no such id") }, false, "none", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newServer(t, echo)
			c.set(s.book)
			if got := verdictOf(t, s.ask(t, signInBody(t, "one", "minion"), false)); got != c.want {
				t.Errorf("answer %v, want %v", value.Repr(got), c.want)
			}
			switch {
			case c.act == "none":
				if len(s.events) > 0 {
					t.Errorf("events %v", s.events)
				}
			case len(s.events) != 1 || s.events[0].Act != c.act || s.events[0].ID != "one" || s.events[0].Result != (c.want == true || c.want == "accepted"):
				t.Errorf("events %v", s.events)
			}
			if c.check != nil && !c.check(s.book) {
				t.Error("the store of keys is not as it should be")
			}
		})
	}
}

// TestSmallKeys: a key with fewer bits than the option requires is refused. One
// that the operator has accepted is used.
func TestSmallKeys(t *testing.T) {
	k, err := rsa.GenerateKey(rand.Reader, 1024)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKIXPublicKey(&k.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
	small, err := crypt.ParsePublic(text)
	if err != nil {
		t.Fatal(err)
	}
	env := decode(t, signInBody(t, "one", "minion")).(*value.Dict)
	env.Dict("load").Set("pub", string(text))
	for _, c := range []struct {
		bits int
		set  func(*book)
		want any
	}{
		{2048, func(*book) {}, false},
		{2048, func(b *book) { b.auto = true }, false},
		{2048, func(b *book) { b.open = true }, false},
		{2048, func(b *book) { b.accept("one", small) }, "accepted"},
		{1024, func(*book) {}, true},
	} {
		s := newServer(t, echo)
		s.opts.MinMinionKey = c.bits
		c.set(s.book)
		if got := verdictOf(t, s.ask(t, encode(t, env), false)); got != c.want {
			t.Errorf("1024 bits, at least %d: %v, want %v", c.bits, got, c.want)
		}
		if c.want == false && len(s.book.accepted)+len(s.book.pending)+len(s.book.denied) > 0 {
			t.Errorf("at least %d: the key was stored", c.bits)
		}
	}
	s := newServer(t, echo)
	s.opts.MinMinionKey = 2048
	if got := verdictOf(t, s.ask(t, signInBody(t, "one", "minion"), false)); got != true {
		t.Errorf("2048 bits: %v", got)
	}
}

// TestRefuseSHA1: with the option neither a sign-in nor a request may use
// SHA-1, nor omit the algorithm, which means SHA-1.
func TestRefuseSHA1(t *testing.T) {
	seal := newSealer(t, vecSession, "minion")
	s := newVecServer(t, func(c *Call) { c.Reply("served") })
	s.book.auto = true
	s.opts.RefuseSHA1 = true
	for _, c := range []struct {
		enc, sig any
		want     string
	}{
		{crypt.OAEPSHA224, crypt.PKCS1v15SHA224, ""},
		{crypt.OAEPSHA1, crypt.PKCS1v15SHA224, "bad enc algo"},
		{crypt.OAEPSHA224, crypt.PKCS1v15SHA1, "bad sig algo"},
		{nil, crypt.PKCS1v15SHA224, "bad enc algo"},
		{crypt.OAEPSHA224, nil, "bad sig algo"},
	} {
		set := func(d *value.Dict) {
			for k, v := range map[string]any{"enc_algo": c.enc, "sig_algo": c.sig} {
				if d.Delete(k); v != nil {
					d.Set(k, v)
				}
			}
		}
		env := decode(t, signInBody(t, "one", "minion")).(*value.Dict)
		set(env.Dict("load"))
		reply := decode(t, s.ask(t, encode(t, env), false)).(*value.Dict)
		if l, _ := reply.At("load").(*value.Dict); l.Str("ret") != c.want {
			t.Errorf("sign-in with %v, %v: %s", c.enc, c.sig, value.Repr(reply))
		}
		load := seal.load()
		request := seal.envelope(t, load)
		set(request)
		want := "served"
		if c.want != "" {
			want = badLoad
		}
		if got := seal.answerOf(t, s.ask(t, encode(t, request), false), load.Str("nonce")); got != want {
			t.Errorf("request with %v, %v: %v", c.enc, c.sig, got)
		}
	}
}

func TestBadSignIns(t *testing.T) {
	s := newServer(t, echo)
	s.book.auto = true
	spoil := func(k string, v any) []byte {
		env := decode(t, signInBody(t, "one", "minion")).(*value.Dict)
		env.Dict("load").Set(k, value.From(v))
		return encode(t, env)
	}
	for _, id := range []string{"", ".", "..", "a/b", `a\b`, "../x", strings.Repeat("x", 300), "a\nb"} {
		want := any(false)
		if id == "" {
			want = badLoad
		}
		if got := verdictOf(t, s.ask(t, spoil("id", id), false)); got != want {
			t.Errorf("id %q: %v", id, value.Repr(got))
		}
	}
	for _, pub := range []string{"junk", "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----"} {
		if got := verdictOf(t, s.ask(t, spoil("pub", pub), false)); got != false {
			t.Errorf("key %q: %v", pub, value.Repr(got))
		}
	}
	if got := decode(t, s.ask(t, spoil("enc_algo", "none"), false)); value.Repr(got) != "{'enc': 'clear', 'load': {'ret': 'bad enc algo'}}" {
		t.Error(value.Repr(got))
	}
	if got := decode(t, s.ask(t, spoil("sig_algo", "none"), false)); value.Repr(got) != "{'enc': 'clear', 'load': {'ret': 'bad sig algo'}}" {
		t.Error(value.Repr(got))
	}
	if len(s.book.accepted)+len(s.book.pending)+len(s.book.denied) > 0 || len(s.events) > 0 {
		t.Errorf("something was stored, or told: %v", s.events)
	}
	if got := verdictOf(t, s.ask(t, spoil("token", "junk"), false)); got != "accepted" {
		t.Errorf("with a token for another master: %v", value.Repr(got))
	}
}

// TestSignInRace: of many keys that arrive for one new id at the same moment,
// one is stored and all others are denied.
func TestSignInRace(t *testing.T) {
	s := newServer(t, echo)
	s.book.auto = true
	keys := []string{"minion", "minion_other", "cluster", "peer1", "master_sign"}
	for n := range 5 {
		id := fmt.Sprintf("new-%d", n)
		var accepted atomic.Int64
		var wg sync.WaitGroup
		for _, k := range keys {
			body := signInBody(t, id, k)
			wg.Go(func() {
				reply := make(chan []byte, 1)
				s.Handle(&transport.Request{Body: body, Reply: func(b []byte) { reply <- b }})
				if verdictOf(t, <-reply) == "accepted" {
					accepted.Add(1)
				}
			})
		}
		wg.Wait()
		if accepted.Load() != 1 {
			t.Errorf("%d keys were accepted for one id", accepted.Load())
		}
	}
}

// TestNewKeyNewSession: a key that takes over an id does not get the session
// that the former owner knows.
func TestNewKeyNewSession(t *testing.T) {
	s := newVecServer(t, echo)
	s.book.open = true
	if got := verdictOf(t, s.ask(t, signInBody(t, vecID, "minion"), false)); got != "accepted" {
		t.Fatal(got)
	}
	if key, _, _ := s.sessions.Get(vecID); key != vecSession {
		t.Error("the same key, another session")
	}
	if got := verdictOf(t, s.ask(t, signInBody(t, vecID, "minion_other"), false)); got != "accepted" {
		t.Fatal(got)
	}
	if key, _, _ := s.sessions.Get(vecID); key == vecSession {
		t.Error("the new key has got the old session")
	}
}

// TestFirstSessionOfNewOwner: the session of a minion whose key replaced another
// accepted one is valid at once, also if the server has seen only the old key so
// far.
func TestFirstSessionOfNewOwner(t *testing.T) {
	s := newVecServer(t, func(c *Call) { c.Reply("served") })
	ask := func(seal *sealer) any {
		load := seal.load()
		return seal.answerOf(t, s.ask(t, seal.request(t, load), false), load.Str("nonce"))
	}
	if got := ask(newSealer(t, vecSession, "minion")); got != "served" {
		t.Fatal(got)
	}
	if err := s.sessions.Forget(vecID); err != nil { // as when a key is deleted
		t.Fatal(err)
	}
	s.book.accept(vecID, private(t, "minion_other").Public())
	if got := verdictOf(t, s.ask(t, signInBody(t, vecID, "minion_other"), false)); got != "accepted" {
		t.Fatal(got)
	}
	key, _, err := s.sessions.Get(vecID)
	if err != nil {
		t.Fatal(err)
	}
	if got := ask(newSealer(t, key, "minion_other")); got != "served" {
		t.Errorf("the first request of the new owner: %v", got)
	}
	if got := ask(newSealer(t, vecSession, "minion")); got != badLoad {
		t.Errorf("the old owner: %v", got)
	}
}

// TestFullSignInQueue: while unauthenticated peers occupy all their slots,
// accepted minions sign in; a peer whose turn does not come is answered long
// after its timeout.
func TestFullSignInQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, echo)
		s.book.accept("one", private(t, "minion").Public())
		for range s.unauthenticatedQueue.places {
			s.unauthenticatedQueue.acquire()
		}
		if got := verdictOf(t, s.ask(t, signInBody(t, "one", "minion"), false)); got != "accepted" {
			t.Errorf("an accepted minion: %v", got)
		}
		for name, body := range map[string][]byte{"a new id": signInBody(t, "two", "minion"), "a known id, another key": signInBody(t, "one", "cluster"),
			"an impossible id": signInBody(t, "a/b", "minion")} {
			start := time.Now()
			reply := make(chan []byte, 1)
			s.Handle(&transport.Request{Body: body, Peer: &net.TCPAddr{}, Reply: func(b []byte) { reply <- b }})
			if since := time.Since(start); since != queueTimeout {
				t.Errorf("%s held its connection for %v", name, since)
			}
			if got := decode(t, <-reply); got != badLoad {
				t.Errorf("%s: %v", name, got)
			}
			if since := time.Since(start); since != queueTimeout+silence {
				t.Errorf("%s was answered after %v", name, since)
			}
		}
		s.unauthenticatedQueue.release(time.Now())
		if got := verdictOf(t, s.ask(t, signInBody(t, "two", "minion"), false)); got != true {
			t.Errorf("with a free place: %v", got)
		}
	})
}

// TestSignInOfOneWhoLeft: a peer that timed out in the queue costs nothing and changes nothing.
func TestSignInOfOneWhoLeft(t *testing.T) {
	s := newServer(t, echo)
	for _, gone := range []bool{true, false} {
		reply := make(chan []byte, 1)
		s.Handle(&transport.Request{Body: signInBody(t, "new", "minion"), Peer: &net.TCPAddr{},
			Reply: func(b []byte) { reply <- b }, Gone: func() bool { return gone }})
		<-reply
		if known, _, _ := s.book.Known("new"); (known == handshake.Unknown) != gone {
			t.Errorf("gone %v: the key is known as %v", gone, known)
		}
	}
}

// TestReplies: the answers that a router may send.
func TestReplies(t *testing.T) {
	seal := newSealer(t, vecSession, "minion")
	for _, v := range []any{nil, true, "", "text", int64(5), []byte{0xff}, value.DictOf("serial", 1), &value.List{}} {
		s := newVecServer(t, func(c *Call) { c.Reply(v) })
		load := seal.load()
		if got := seal.answerOf(t, s.ask(t, seal.request(t, load), true), load.Str("nonce")); value.Repr(got) != value.Repr(v) {
			t.Errorf("%s arrives as %s", value.Repr(v), value.Repr(got))
		}
	}
	endless := &value.List{}
	endless.Items = []any{endless}
	s := newVecServer(t, func(c *Call) {
		if err := c.ReplyPrivate(endless); err == nil {
			t.Error("a value without end was sent")
		}
		c.Reply(endless)
	})
	load := seal.load()
	if got := seal.answerOf(t, s.ask(t, seal.request(t, load), false), load.Str("nonce")); got != "" {
		t.Errorf("a value without end arrives as %s", value.Repr(got))
	}
	// Algorithms that do not exist, or do not fit the minion's key.
	for _, field := range []string{"enc_algo", "sig_algo"} {
		s := newVecServer(t, func(c *Call) {
			if err := c.ReplyPrivate("x"); !errors.Is(err, crypt.ErrUnsupportedAlgorithm) {
				t.Errorf("error %v", err)
			}
			c.Reply("")
		})
		env := seal.envelope(t, seal.load())
		env.Set(field, "none")
		s.ask(t, encode(t, env), false)
	}
	s = newVecServer(t, func(c *Call) {
		if c.ReplyPrivate("x") == nil {
			t.Error("a private reply to nobody")
		}
		c.Reply(c.Peer().Network())
	})
	if got := decode(t, s.ask(t, encode(t, value.DictOf("enc", "clear", "load", value.DictOf("cmd", "x"), "version", 3)), false)); got != "tcp" {
		t.Error(got)
	}
}

// TestConcurrentRequests is for the race detector.
func TestConcurrentRequests(t *testing.T) {
	s := newVecServer(t, func(c *Call) { c.Reply(c.Load.At("x")) })
	seal := newSealer(t, vecSession, "minion")
	bodies := make([][]byte, 200)
	nonces := make([]string, len(bodies))
	for i := range bodies {
		load := seal.load("x", i)
		bodies[i], nonces[i] = seal.request(t, load), load.Str("nonce")
	}
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for i := w; i < len(bodies); i += 4 {
				if got := seal.answerOf(t, s.ask(t, bodies[i], false), nonces[i]); got != int64(i) {
					t.Errorf("request %d: %v", i, got)
				}
				if i%10 == 0 {
					s.table.drop(vecID)
				}
			}
		})
	}
	wg.Wait()
}

var _ handshake.Trust = (*FileTrust)(nil)

// TestPrune: a minion whose key is deleted leaves no memory and no session key.
func TestPrune(t *testing.T) {
	seal := newSealer(t, vecSession, "minion")
	s := newVecServer(t, func(c *Call) { c.Reply("served") })
	s.ask(t, seal.request(t, seal.load()), false)
	remembered := func() (n int) {
		s.table.m.Range(func(any, any) bool { n++; return true })
		return n
	}
	s.Prune()
	if n := remembered(); n != 1 {
		t.Errorf("%d minions, one is accepted", n)
	}
	s.book.remove(vecID)
	s.Prune()
	if _, err := os.Stat(filepath.Join(s.sessions.dir, vecID)); remembered() != 0 || err == nil {
		t.Errorf("%d minions, none is accepted; the session key is there: %t", remembered(), err == nil)
	}
}

// TestDeniedSignInsInLog: an unauthenticated peer that knows an accepted id cannot
// fill the log with denied sign-ins.
func TestDeniedSignInsInLog(t *testing.T) {
	var log bytes.Buffer
	s := newServer(t, echo)
	s.book.accept("one", private(t, "cluster").Public())
	a := NewAuthenticator(handshake.NewIdentity(private(t, "master"), nil), s.book, s.book, s.sessions,
		func() Publications { return Publications{} }, nil, slog.New(slog.NewTextHandler(&log, nil)))
	load := decode(t, signInBody(t, "one", "minion")).(*value.Dict).Dict("load")
	in, err := handshake.ParseRequest(load, 3)
	if err != nil {
		t.Fatal(err)
	}
	const n = 200
	for range n {
		if _, changed := a.signIn(in, nil); changed {
			t.Fatal("the key was accepted")
		}
	}
	if lines := strings.Count(log.String(), "sign-in denied"); lines == 0 || lines > n/2 {
		t.Errorf("%d lines for %d sign-ins", lines, n)
	}
}
