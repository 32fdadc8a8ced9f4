package cp

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"brine/internal/call/client/clienttest"
	"brine/internal/call/fn"
	"brine/internal/catalogue/modules/files"
	"brine/internal/cli/frame"
	"brine/internal/host"
	"brine/internal/py/value"
)

const recordings = "../../../testdata/golden/cli"

// functions are those of real minions.
var functions = sync.OnceValue(func() *fn.Registry {
	r, err := fn.NewRegistry(nil, files.Modules(&host.Machine{})...)
	if err != nil {
		panic(err)
	}
	return r
})

func minion(id string) clienttest.Minion {
	return clienttest.Minion{ID: id, Grains: value.DictOf("role", "web"), Run: func(fun string, args []any, pub *value.Dict) clienttest.Return {
		o := functions().Run(context.Background(), &fn.Call{ID: id, Log: slog.New(slog.DiscardHandler)}, fn.Job{Fun: fun, Arg: args, Pub: pub})
		return clienttest.Return{Value: o.Return, Retcode: int64(o.Retcode), Out: o.Out}
	}}
}

// fleet returns alpha and beta, reachable, and gamma, unreachable, as in the recordings.
func fleet() []clienttest.Minion {
	return []clienttest.Minion{minion("alpha"), minion("beta"), {ID: "gamma"}}
}

type result struct {
	code           int
	stdout, stderr string
}

func runCP(ctx context.Context, m *clienttest.Master, args ...string) result {
	var stdout, stderr bytes.Buffer
	env := &frame.Env{
		Stdin: strings.NewReader(""), Stdout: &stdout, Stderr: &stderr, IsTerminal: func(any) bool { return false },
		Getenv: func(name string) string {
			if name == "SALT_CONFIG_DIR" && m != nil {
				return m.Dir
			}
			return ""
		},
	}
	code := run(ctx, env, args)
	return result{code, stdout.String(), stderr.String()}
}

func write(t *testing.T, path, text string, mode os.FileMode) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
	return path
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestRecordings compares the program with recordings of Salt's.
func TestRecordings(t *testing.T) {
	for _, name := range []string{"cp_file", "cp_chunked", "cp_missing", "cp_nomatch"} {
		t.Run(name, func(t *testing.T) {
			rec, m, dir := clienttest.Read(t, recordings, name), clienttest.Start(t, clienttest.Options{Minions: fleet()}), t.TempDir()
			write(t, dir+"/cpfile", "hello\n", 0o644)
			if err := os.Mkdir(dir+"/golden-demo", 0o755); err != nil {
				t.Fatal(err)
			}
			for i, a := range rec.Args {
				rec.Args[i] = strings.Replace(a, "/tmp", dir, 1)
			}
			want := result{rec.Exit, strings.ReplaceAll(rec.Stdout, "/tmp", dir), rec.Stderr}
			if got := runCP(t.Context(), m, rec.Args...); got != want {
				t.Errorf("got %+v\nwant %+v", got, want)
			}
			if len(rec.Stdout) > 0 && strings.Contains(rec.Stdout, "True") && read(t, rec.Args[len(rec.Args)-1]) != "hello\n" {
				t.Error("the copy differs")
			}
		})
	}
	rec := clienttest.Read(t, recordings, "cp_no_args")
	first, _, _ := strings.Cut(rec.Stdout, "\n")
	got := runCP(t.Context(), nil, rec.Args...)
	mask := strings.NewReplacer("SOURCE...", "SOURCE") // our usage line shows that several sources are allowed
	if got.code != rec.Exit || mask.Replace(got.stderr) != rec.Stderr || !strings.HasPrefix(mask.Replace(got.stdout), first+"\n") {
		t.Errorf("got %+v", got)
	}
}

func TestDirectory(t *testing.T) {
	m, dir := clienttest.Start(t, clienttest.Options{Minions: []clienttest.Minion{minion("alpha")}}), t.TempDir()
	big := make([]byte, 250_000)
	rand.Read(big)
	write(t, dir+"/src/big", string(big), 0o600)
	write(t, dir+"/src/sub/run.sh", "#!/bin/sh\n", 0o755)
	write(t, dir+"/src/sub/none", "", 0o640)
	write(t, dir+"/src/98304", strings.Repeat("x", 98304), 0o644)
	if err := os.MkdirAll(dir+"/src/empty/er", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("..", dir+"/src/sub/up"); err != nil {
		t.Fatal(err)
	}
	for _, flags := range [][]string{{"-C"}, {"-C", "-n"}, {"--chunked", "--no-compression", "-G"}} {
		to := fmt.Sprintf("%s/to%d", dir, len(flags))
		target := "*"
		if len(flags) == 3 {
			target = "role:w*"
		}
		got := runCP(t.Context(), m, append(flags, target, dir+"/src", to, "--out=json")...)
		if got.code != 0 || strings.Count(got.stdout, "true") != 5 || !strings.Contains(got.stderr, "sub/up") {
			t.Errorf("%v: got %+v", flags, got)
		}
		for _, name := range []string{"big", "sub/run.sh", "sub/none", "98304"} {
			if read(t, dir+"/src/"+name) != read(t, to+"/src/"+name) {
				t.Errorf("%v: %s differs", flags, name)
			}
			a, _ := os.Stat(dir + "/src/" + name)
			b, _ := os.Stat(to + "/src/" + name)
			if a.Mode() != b.Mode() {
				t.Errorf("%v: %s has mode %v, want %v", flags, name, b.Mode(), a.Mode())
			}
		}
		if st, err := os.Stat(to + "/src/empty/er"); err != nil || !st.IsDir() {
			t.Error("no empty directory", err)
		}
	}
	chunks := 0
	for _, l := range m.Loads() {
		if l.Str("fun") == "cp.recv_chunked" {
			chunks++
		}
	}
	if want := 3 * (3 + 1 + 1 + 1 + 1); chunks != want {
		t.Errorf("%d jobs, want %d", chunks, want)
	}
}

// TestFailures: a minion that fails a chunk or does not return gets no further chunks of the file,
// and its error is reported.
func TestFailures(t *testing.T) {
	dir := t.TempDir()
	file := write(t, dir+"/f", "0123456789", 0o644)
	seen := map[string]int{}
	var mu sync.Mutex
	odd := func(id string, answer func(n int) any) clienttest.Minion {
		return clienttest.Minion{ID: id, Run: func(string, []any, *value.Dict) clienttest.Return {
			mu.Lock()
			seen[id]++
			n := seen[id]
			mu.Unlock()
			return clienttest.Return{Value: answer(n)}
		}}
	}
	m := clienttest.Start(t, clienttest.Options{Config: map[string]any{"salt_cp_chunk_size": 4}, Minions: []clienttest.Minion{
		odd("good", func(int) any { return true }),
		odd("full", func(n int) any {
			if n == 2 {
				return "[Errno 28] No space left on device"
			}
			return true
		}),
		{ID: "down"},
	}})
	got := runCP(t.Context(), m, "-C", "-L", "good,full,down", file, "/there")
	want := "full:\n    ----------\n    /there:\n        [Errno 28] No space left on device\ngood:\n    ----------\n    /there:\n        True\n"
	if got != (result{0, want, ""}) {
		t.Errorf("got %+v", got)
	}
	mu.Lock()
	defer mu.Unlock()
	if seen["good"] != 3 || seen["full"] != 2 {
		t.Errorf("jobs: %v", seen)
	}
	loads := m.Loads()
	if last := loads[len(loads)-1]; !value.Equal(last.At("tgt"), value.ListOf("good")) || last.Str("tgt_type") != "list" {
		t.Errorf("the last chunk went to %s", value.Repr(last.At("tgt")))
	}
}

func TestRefused(t *testing.T) {
	m, dir := clienttest.Start(t, clienttest.Options{Minions: fleet()}), t.TempDir()
	binary := write(t, dir+"/binary", "\xff\xfe", 0o644)
	large := write(t, dir+"/large", strings.Repeat("x", maxWhole+1), 0o644)
	for _, c := range []struct {
		args         string
		code         int
		where, whats string
	}{
		{"* " + binary + " /x", 42, "stderr", "binary is not UTF-8 text: send it with -C"},
		{"* " + large + " /x", 42, "stderr", "large is too large to send at once (8 MiB in total): send it in chunks with -C"},
		{"* " + dir + " /x", 1, "stdout", dir + " is a directory, only files are supported in non-chunked mode. Use \"--chunked\" command line argument."},
		{"-C * " + dir + "/nosuch /x", 42, "stderr", dir + "/nosuch does not exist"},
		{"-E -L * a b", 64, "stderr", "The options --pcre/--list are mutually exclusive. Please only choose one of them"},
		{"-H * a b", 64, "stderr", "--hosts is for salt-ssh"},
		{"-I x:y a b", 64, "stderr", "no such option: -I"},
		{"-N nosuch " + binary + " /x -C", 1, "stderr", "Node group nosuch unavailable in"},
		{"-C none* " + binary + " /x", 0, "stdout", "No minions matched the target. No command was sent, no jid was assigned.\n"},
	} {
		got := runCP(t.Context(), m, strings.Fields(c.args)...)
		text := map[string]string{"stdout": got.stdout, "stderr": got.stderr}[c.where]
		if got.code != c.code || !strings.Contains(text, c.whats) {
			t.Errorf("%s: got %+v", c.args, got)
		}
	}
	m.Conf.Set("salt_cp_chunk_size", 0)
	bad := clienttest.Start(t, clienttest.Options{Config: map[string]any{"salt_cp_chunk_size": 0}})
	if got := runCP(t.Context(), bad, "*", "a", "b"); got.code == 0 || !strings.Contains(got.stderr, "salt_cp_chunk_size") {
		t.Errorf("got %+v", got)
	}
}

func TestInterrupt(t *testing.T) {
	m := clienttest.Start(t, clienttest.Options{Minions: fleet(), Config: map[string]any{"timeout": 30}})
	file := write(t, t.TempDir()+"/f", "x", 0o644)
	ctx, cancel := context.WithCancel(t.Context())
	sub := m.Bus.Subscribe(10, "salt/job/")
	go func() { <-sub.C; sub.Close(); cancel() }()
	if got := runCP(ctx, m, "-C", "*", file, filepath.Join(t.TempDir(), "x")); got != (result{0, "", "\nExiting gracefully on Ctrl-c\n"}) {
		t.Errorf("got %+v", got)
	}
}
