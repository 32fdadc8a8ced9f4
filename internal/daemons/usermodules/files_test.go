package usermodules

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"brine/internal/base/salt"
	"brine/internal/call/fn"
	"brine/internal/call/python"
	"brine/internal/files/fileserver"
	"brine/internal/net/crypt"
	"brine/internal/py/value"
	"brine/test/eventually"
	"brine/test/tools"
)

// faultyBackend does what a file asks for.
const faultyBackend = `
import hashlib, os, time
def _note(text):
    with open(__opts__["notes"], "a") as out:
        out.write(text + "\n")
def envs():
    return ["base"]
def find_file(path, saltenv, **kwargs):
    if path == "raises":
        raise ValueError("no way")
    if path == "hangs":
        time.sleep(3600)
    if path == "secret":
        return {"path": __opts__["secret"], "rel": path}
    if path in ("made", "exits", "liar", "long", "text"):
        return {"path": "made:" + path, "rel": path}
    return {"path": "", "rel": ""}
def file_hash(load, fnd):
    data = {"made": b"made", "exits": b"made", "liar": b"other", "long": b"ab" * 500000, "text": b"made"}.get(fnd["rel"], b"else")
    return {"hash_type": "sha256", "hsum": hashlib.sha256(data).hexdigest()}
def serve_file(load, fnd):
    _note("serve_file {} {} {}".format(fnd["rel"], load["loc"], fnd["back"]))
    if fnd["rel"] == "exits":
        os._exit(3)
    if fnd["rel"] == "text":
        return {"data": "made"[load["loc"]:], "dest": fnd["rel"]}
    data = b"ab" * 500000 if fnd["rel"] == "long" else b"made"
    return {"data": data[load["loc"]:load["loc"] + 400000], "dest": fnd["rel"]}
def file_list(load):
    if load["prefix"] == "many":
        return {"f%d" % n for n in range(100000)}
    if load["prefix"] == "raises":
        raise KeyError("list")
    return ["made", "made", "liar"]
def update():
    _note("update")
    while True:
        time.sleep(1)
`

// ownServer is a file server whose backends are a user's module "faulty" between two directories.
type ownServer struct {
	*fileserver.Server
	own *Files
	dir string
	log *strings.Builder
	mu  *sync.Mutex
}

func (o *ownServer) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.log.Write(p)
}

func (o *ownServer) logged() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.log.String()
}

// notes returns the lines that the module has written.
func (o *ownServer) notes(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(o.dir, "notes"))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
}

func newOwnServer(t *testing.T, source string, backends []string, change func(*python.Options)) *ownServer {
	t.Helper()
	tools.NeedPython(t, "python3", "marshal")
	dir := t.TempDir()
	for name, text := range map[string]string{"extmods/fileserver/faulty.py": source, "roots/plain": "plain", "roots/raises": "of roots", "secret": "else"} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	o := &ownServer{dir: dir, log: &strings.Builder{}, mu: &sync.Mutex{}}
	log := slog.New(slog.NewTextHandler(o, nil))
	opts := value.DictOf("notes", filepath.Join(dir, "notes"), "secret", filepath.Join(dir, "secret"), "id", "m")
	options := python.Options{Helper: true, Helpers: 2, Idle: time.Minute}
	if change != nil {
		change(&options)
	}
	o.own = NewFiles(Config{
		Options: options, CacheDir: filepath.Join(dir, "cache"), ExtensionModules: filepath.Join(dir, "extmods"), ID: "m", Opts: opts, Log: log,
		SaltFile: func(string) string { return "" },
		Call: func() *fn.Call {
			return &fn.Call{ID: "m", Log: log, Config: fn.Tree{Dict: opts}, Grains: fn.Tree{Dict: value.NewDict(0)}}
		}})
	t.Cleanup(o.own.Close)
	o.Server = fileserver.New(fileserver.Options{Backends: backends, FileRoots: value.DictOf("base", value.ListOf(filepath.Join(dir, "roots")))},
		fileserver.Config{CacheDir: filepath.Join(dir, "cache"), HashType: "sha256",
			Own: func(name string) func() (fileserver.Backend, error) { return o.own.Backend(name, false) }}, log)
	return o
}

func (o *ownServer) ask(t *testing.T, cmd, path string, pairs ...any) (any, error) {
	t.Helper()
	load := value.DictOf(pairs...)
	load.Set("cmd", cmd)
	load.Set("saltenv", "base")
	load.Set("path", path)
	return o.Request(t.Context(), load)
}

// content fetches a file as Brine minions do.
func (o *ownServer) content(t *testing.T, path, want string) (string, *value.Dict, error) {
	t.Helper()
	sum := sha256.Sum256([]byte(want))
	var text []byte
	for {
		d, shared, err := o.RequestShared(t.Context(), value.DictOf("cmd", "_brine_part", "saltenv", "base", "path", path, "hsum", hex.EncodeToString(sum[:]),
			"loc", int64(len(text))))
		if err != nil || shared == nil {
			return string(text), d, err
		}
		part, err := crypt.OpenShared(shared.Ticket(), bytes.Clone(shared.Sealed()))
		if err != nil {
			t.Fatal(err)
		}
		text = append(text, part...)
		if int64(len(text)) >= d.Int("size") {
			return string(text), d, nil
		}
	}
}

// TestFaultyBackend checks that failures of a user's backend end their own requests only, and are never
// covered by the file of a later backend.
func TestFaultyBackend(t *testing.T) {
	o := newOwnServer(t, faultyBackend, []string{"faulty", "roots"}, nil)
	for range 2 {
		if v, err := o.ask(t, "_file_hash", "raises"); err == nil || v != "" ||
			!strings.Contains(err.Error(), `faulty.find_file raised ValueError: no way (`+filepath.Join(o.dir, "extmods/fileserver/faulty.py")+", line 10)") {
			t.Errorf("an exception in find_file: %v, %v", v, err)
		}
	}
	if !strings.Contains(o.logged(), "Traceback (most recent call last)") {
		t.Errorf("the log has no traceback: %s", o.logged())
	}
	if v, err := o.ask(t, "_serve_file", "exits", "loc", int64(0)); err == nil || !strings.Contains(err.Error(), "exit status 3") {
		t.Errorf("a helper that ends: %v, %v", v, err)
	}
	if v, err := o.ask(t, "_serve_file", "plain", "loc", int64(0)); err != nil || string(v.(*value.Dict).Bytes("data")) != "plain" {
		t.Errorf("a file of the later backend: %v, %v", v, err)
	}
	if v, err := o.ask(t, "_file_list", "", "prefix", "raises"); err == nil {
		t.Errorf("a list without the files of a backend: %v", value.Repr(v))
	}
	if v, err := o.ask(t, "_file_list", "", "prefix", ""); err != nil || value.Repr(v) != "['liar', 'made', 'plain', 'raises']" {
		t.Errorf("a list: %v, %v", value.Repr(v), err)
	}
	if v, err := o.ask(t, "_file_list", "", "prefix", "many", "fsbackend", "faulty"); err != nil || v.(*value.List).Len() != 0 {
		t.Errorf("a list with a prefix that no name has: %v", err)
	}
	l, err := o.Lists(t.Context(), "base", "faulty")
	if err != nil || len(l.Files) != 2 {
		t.Errorf("%v, %v", l, err)
	}
}

// TestContentOfBackend checks that Brine minions get the content that a module makes, which it makes once.
func TestContentOfBackend(t *testing.T) {
	o := newOwnServer(t, faultyBackend, []string{"faulty"}, nil)
	long := strings.Repeat("ab", 500000)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			if text, d, err := o.content(t, "long", long); err != nil || text != long {
				t.Errorf("%d bytes, %v, %v", len(text), d, err)
			}
		})
	}
	all.Wait()
	if got := strings.Join(o.notes(t), "; "); got != "serve_file long 0 faulty; serve_file long 400000 faulty; "+
		"serve_file long 800000 faulty; serve_file long 1000000 faulty" {
		t.Errorf("calls of serve_file: %s", got)
	}
	if text, d, err := o.content(t, "text", "made"); err != nil || text != "made" {
		t.Errorf("a module that returns text: %q, %v, %v", text, d, err)
	}
	if text, d, err := o.content(t, "liar", "other"); err != nil || !d.Bool("changed") || text != "" || !strings.Contains(o.logged(), "another hash") {
		t.Errorf("content with another hash: %q, %v, %v", text, d, err)
	}
	if text, d, err := o.content(t, "made", "not asked for"); err != nil || !d.Bool("changed") {
		t.Errorf("another hash than that of file_hash: %q, %v, %v", text, d, err)
	}
	before := len(o.notes(t))
	if text, d, err := o.content(t, "secret", "else"); err != nil || text != "else" {
		t.Errorf("a file on disk that has the hash: %q, %v, %v", text, d, err)
	}
	if got := len(o.notes(t)); got != before {
		t.Errorf("serve_file was called for a file on disk")
	}
	// The stock protocol asks serve_file for each part, as Salt does, and cuts what is too large.
	load := value.DictOf("cmd", "_serve_file", "saltenv", "base", "path", "long", "loc", int64(0))
	if v, err := o.RequestPart(t.Context(), load, 1000); err != nil || len(v.(*value.Dict).Bytes("data")) != 1000 {
		t.Errorf("a part with a limit: %v", err)
	}
}

// TestEndlessBackend checks that a backend that hangs delays requests once, and that an endless update delays
// neither requests nor the updates of others.
func TestEndlessBackend(t *testing.T) {
	o := newOwnServer(t, faultyBackend, []string{"roots", "faulty"}, func(p *python.Options) { p.Timeout = 3 * time.Second })
	fetchers := o.Fetchers("faulty")
	if len(fetchers) != 1 {
		t.Fatal(fetchers)
	}
	if _, some, err := fetchers[0].Due(t.Context(), true); some || err != nil {
		t.Error(some, err)
	}
	eventually.Nil(t, time.Minute, "the update begins", func() error {
		if got := strings.Join(o.notes(t), "; "); got != "update" {
			return fmt.Errorf("notes: %s", got)
		}
		return nil
	})
	if v, err := o.ask(t, "_serve_file", "made", "loc", int64(0)); err != nil || string(v.(*value.Dict).Bytes("data")) != "made" {
		t.Errorf("a request during an endless update: %v, %v", v, err)
	}
	eventually.Nil(t, time.Minute, "the update is ended", func() error {
		if _, some, err := fetchers[0].Due(t.Context(), true); !some || salt.KindOf(err) != salt.Timeout {
			return fmt.Errorf("%v, %w", some, err)
		}
		return nil
	})
	if _, err := o.ask(t, "_file_hash", "hangs"); salt.KindOf(err) != salt.Timeout {
		t.Errorf("a request that hangs: %v", err)
	}
	if _, err := o.ask(t, "_file_hash", "made"); salt.KindOf(err) != salt.Unavailable || !strings.Contains(err.Error(), "is not asked until") {
		t.Errorf("a request after one that has hung: %v", err)
	}
	if v, err := o.ask(t, "_serve_file", "plain", "loc", int64(0)); err != nil || string(v.(*value.Dict).Bytes("data")) != "plain" {
		t.Errorf("a file of the backend before: %v, %v", v, err)
	}
	if got := o.Envs("faulty"); len(got) != 0 {
		t.Errorf("environments of a backend that never answered: %v", got)
	}
}

// TestManyFiles checks a backend with 100,000 files.
func TestManyFiles(t *testing.T) {
	o := newOwnServer(t, "def envs():\n    return ('base',)\ndef file_list(load):\n    return ['d/f%d' % n for n in range(100000)]\n", []string{"faulty"}, nil)
	v, err := o.ask(t, "_file_list", "")
	if err != nil || v.(*value.List).Len() != 100000 {
		t.Fatal(err)
	}
	d, shared, err := o.RequestShared(t.Context(), value.DictOf("cmd", "_brine_tree", "saltenv", "base"))
	if err != nil || shared != nil || d.Len() != 0 {
		t.Errorf("the tree of too many files: %v, %v", d, err)
	}
}

// TestUnusableBackend checks what the log says of a backend that cannot be used.
func TestUnusableBackend(t *testing.T) {
	for name, c := range map[string]struct {
		source, want string
		change       func(*python.Options)
	}{
		"off":        {faultyBackend, "python_helper is off", func(p *python.Options) { p.Helper = false }},
		"no python":  {faultyBackend, "the option python names /no/python3", func(p *python.Options) { p.Program = "/no/python3" }},
		"syntax":     {"x = 1\ndef envs(:\n", "SyntaxError in line 2", nil},
		"virtual":    {"def __virtual__():\n    return False, 'no library'\ndef envs():\n    return []\n", "no library", nil},
		"without":    {"def find_file(path, saltenv):\n    return {}\n", "it has no function envs", nil},
		"other type": {"def envs():\n    return ['base']\ndef find_file(path, saltenv):\n    return 7\n", "find_file returned a int, not a map", nil},
	} {
		t.Run(name, func(t *testing.T) {
			o := newOwnServer(t, c.source, []string{"roots", "faulty"}, c.change)
			_, err := o.ask(t, "_file_hash", "nosuch")
			if text := o.logged() + fmt.Sprint(err); !strings.Contains(text, c.want) {
				t.Errorf("%s\nlacks %s", text, c.want)
			}
			if v, err := o.ask(t, "_serve_file", "plain", "loc", int64(0)); err != nil || string(v.(*value.Dict).Bytes("data")) != "plain" {
				t.Errorf("a file of the backend before: %v, %v", v, err)
			}
		})
	}
}

// TestBackendInPlace checks that a user's file roots.py replaces the backend roots, as in Salt.
func TestBackendInPlace(t *testing.T) {
	o := newOwnServer(t, faultyBackend, []string{"roots"}, nil)
	if err := os.Rename(filepath.Join(o.dir, "extmods/fileserver/faulty.py"), filepath.Join(o.dir, "extmods/fileserver/roots.py")); err != nil { // rename: a test
		t.Fatal(err)
	}
	s := fileserver.New(fileserver.Options{Backends: []string{"roots"}}, fileserver.Config{CacheDir: o.dir, HashType: "sha256",
		Own: func(name string) func() (fileserver.Backend, error) { return o.own.Backend(name, false) }}, slog.New(slog.DiscardHandler))
	v, err := s.Request(context.Background(), value.DictOf("cmd", "_file_find", "saltenv", "base", "path", "made"))
	if err != nil || value.Repr(v) != "{'path': 'made:made', 'rel': 'made', 'back': 'roots'}" {
		t.Errorf("%v, %v", value.Repr(v), err)
	}
}
