package log

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// logTo opens a log whose console is the buffer.
func logTo(t *testing.T, o Options) (*Log, *bytes.Buffer) {
	t.Helper()
	var b bytes.Buffer
	l, err := Open(o, &b)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l, &b
}

func TestConsoleLines(t *testing.T) {
	l, b := logTo(t, Options{})
	l.Info("hidden")
	l.Error("Invalid outputter compact specified, fall back to nested")
	l.With("component", "salt.master").Warn("odd", "minion", "web 1", "n", 3, "err", errors.New("a\nb"))
	l.Log(t.Context(), LevelCritical, "esc \x1b[0m\u009b", "jid", "20260101000000000000")
	l.WithGroup("g").Warn("in", slog.Group("h", "k", ""))
	want := `[ERROR   ] Invalid outputter compact specified, fall back to nested
[WARNING ] odd minion="web 1" n=3 err="a\nb"
[CRITICAL] esc ?[0m? jid=20260101000000000000
[WARNING ] in g.h.k=""
`
	if b.String() != want {
		t.Errorf("got:\n%swant:\n%s", b, want)
	}
}

func TestLevels(t *testing.T) {
	for _, name := range LevelNames() {
		t.Run(name, func(t *testing.T) {
			l, b := logTo(t, Options{Level: name, Format: "%(levelname)s/%(levelno)d"})
			at, err := ParseLevel(name)
			if err != nil {
				t.Fatal(err)
			}
			if name == "quiet" {
				l.Log(t.Context(), LevelCritical, "x")
				l.Log(t.Context(), LevelQuiet, "x")
				if b.Len() != 0 {
					t.Errorf("quiet wrote %q", b)
				}
				return
			}
			l.Log(t.Context(), at, "x")
			if name == "all" {
				name = "garbage" // the lowest level that a record can have
			}
			if !strings.HasPrefix(b.String(), strings.ToUpper(name)+"/") {
				t.Errorf("got %q", b)
			}
			b.Reset()
			l.Log(t.Context(), at-1, "below")
			if b.Len() != 0 && name != "garbage" {
				t.Errorf("below the level: %q", b)
			}
		})
	}
	if _, err := ParseLevel("loud"); err == nil {
		t.Error("level loud was accepted")
	}
}

func TestFileFormatAndReopen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log", "master")
	l, b := logTo(t, Options{File: path, FileLevel: "debug", Level: "error"})
	l.With("component", "salt.master").Debug("one")
	l.Debug("two")
	if err := os.Rename(path, path+".1"); err != nil {
		t.Fatal(err)
	}
	if err := l.Reopen(); err != nil {
		t.Fatal(err)
	}
	l.Debug("three")
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	l.Debug("four") // after Close: dropped
	line := func(name, msg string) string {
		return `\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} \[` + name + ` *:\d+ *\]\[DEBUG   \]\[` + fmt.Sprint(os.Getpid()) + `\] ` + msg + "\n"
	}
	for file, want := range map[string]string{path + ".1": line("salt.master      ", "one") + line("salt             ", "two"), path: line("salt", "three")} {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !regexp.MustCompile("^" + want + "$").Match(data) {
			t.Errorf("%s: %q does not match %q", file, data, want)
		}
	}
	if b.Len() != 0 {
		t.Errorf("console: %q", b)
	}
	if st, err := os.Stat(path); err != nil || st.Mode().Perm()&0o007 != 0 {
		t.Errorf("mode %v, %v: others may read the log", st.Mode(), err)
	}
}

func TestOpenWithoutFile(t *testing.T) {
	dir := t.TempDir()
	var b bytes.Buffer
	l, err := Open(Options{File: dir}, &b) // a directory cannot be a log file
	if err == nil || l == nil {
		t.Fatalf("got %v, %v; want both a log and an error", l, err)
	}
	l.Error("still heard")
	if b.String() != "[ERROR   ] still heard\n" {
		t.Errorf("got %q", b.String())
	}
	if _, err := Open(Options{File: "udp://host:514/user"}, nil); err == nil {
		t.Error("a syslog URL was accepted as a path")
	}
}

func TestTemplates(t *testing.T) {
	at := time.Date(2026, 2, 3, 4, 5, 6, 7_000_000, time.UTC)
	r := record{time: at, level: "INFO", number: 20, name: "salt.x", message: "hi", jid: "123"}
	for _, tc := range []struct{ format, datefmt, want string }{
		{"%(message)s %%", "", "hi %\n"},
		{"%(asctime)s,%(msecs)03d", "%Y-%m-%dT%H:%M:%S %j %q%", "2026-02-03T04:05:06 034 %q%,007\n"},
		{"%(asctime)s", "%w %u %U %W %V %G %g %C %h %k %l %P %r %x %X %f%n|", "2 2 05 05 06 2026 26 20 Feb  4  4 am 04:05:06 AM 02/03/26 04:05:06 %f\n|\n"},
		{"%(msecs)03.0f|%(msecs)d|%(msecs)s|%(msecs)+.2e|%(msecs)g|%(msecs)05i|%(msecs)-5u|%(msecs)6.1F|%(msecs)ld", "",
			"007|7|7.0|+7.00e+00|7|00007|7    |   7.0|7\n"},
		{"%(levelno)d|%(levelno)05.1f|%(levelno)s|%(levelno)r|%(levelno)#x|%(levelno)X|%(levelno)o|%(levelno)#o|%(levelno)e|%(levelno)-4d|%(levelno).3d", "",
			"20|020.0|20|20|0x14|14|24|0o24|2.000000e+01|20  |020\n"},
		{"%(created)d %(created)g %(created)s", "", "1770091506 1.77009e+09 1770091506.007\n"},
		{"%(message)r %(message)a %(msg).1s %(message)05s", "", "'hi' 'hi' h    hi\n"},
		{"%(bracketlevel)s%(bracketname)s", "", "[INFO    ][salt.x           ]\n"},
		{"%(colorlevel)s %(colormsg)s", "", "\x1b[0;1;32m[INFO    ]\x1b[0;0m \x1b[0;32mhi\x1b[0;0m\n"},
		{"%(jid)s %(message)8s|", "", "[JID: 123]       hi|\n"},
		{"%(created).3f", "", "1770091506.007\n"},
	} {
		tmpl, err := NewTemplate(tc.format, tc.datefmt)
		if err != nil {
			t.Errorf("%s: %v", tc.format, err)
			continue
		}
		if got := string(tmpl.appendTo(nil, &r)); got != tc.want {
			t.Errorf("%s: got %q, want %q", tc.format, got, tc.want)
		}
	}
	for _, bad := range []string{"%", "%(", "%(nosuch)s", "%(message)", "%(message)d", "%(name)9999s", "%(created)x", "%x", "%(levelno)y", "%(msecs)",
		"%(msecs)c", "%(message)f"} {
		if _, err := NewTemplate(bad, ""); err == nil {
			t.Errorf("format %q was accepted", bad)
		}
	}
}

// TestTemplatesOfPython compares templates with Python's own formatting.
func TestTemplatesOfPython(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("python3 is not installed")
	}
	r := record{time: time.Date(2026, 2, 3, 4, 5, 6, 7_000_000, time.UTC), level: "INFO", number: 20, name: "salt.x", message: "hi"}
	values := "{'msecs': 7.0, 'created': 1770091506.007, 'levelno': 20, 'message': 'hi', 'levelname': 'INFO'}"
	var formats []string
	for _, f := range []string{"msecs", "created", "levelno", "message", "levelname"} {
		for _, flags := range []string{"", "0", "-", "+", " ", "#", "05", "-6", "+06", "010", "03.0", "8.2", ".3", "+.1", "#.0", "-07.1", " 5"} {
			for _, conv := range "diuoxXeEfFgGsra" {
				formats = append(formats, "%("+f+")"+flags+string(conv))
			}
		}
	}
	script := "import sys\nv = " + values + "\nfor f in sys.argv[1:]:\n  try: print('[' + f % v + ']')\n  except Exception: print('error')\n"
	out, err := exec.Command(python, append([]string{"-c", script}, formats...)...).Output()
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range strings.Split(strings.TrimSuffix(string(out), "\n"), "\n") {
		got := "error"
		if tmpl, err := NewTemplate("["+formats[i]+"]", ""); err == nil {
			got = strings.TrimSuffix(string(tmpl.appendTo(nil, &r)), "\n")
		}
		if got != want {
			t.Errorf("%s: got %q, want %q", formats[i], got, want)
		}
	}
}

// TestHeld checks that records are buffered with the attributes of their
// logger.
func TestHeld(t *testing.T) {
	var held Held
	early := held.Logger()
	early.With("a", 1).WithGroup("g").Warn("one", "b", 2)
	early.Debug("below the level")
	l, b := logTo(t, Options{})
	held.Release(l.Handler())
	early.Warn("two")
	early.Info("below the level")
	if want := "[WARNING ] one a=1 g.b=2\n[WARNING ] two\n"; b.String() != want {
		t.Errorf("got %q, want %q", b, want)
	}
}

// TestJIDFormat checks that log_fmt_jid is used and validated.
func TestJIDFormat(t *testing.T) {
	l, b := logTo(t, Options{Format: "%(jid)s%(message)s", JIDFormat: "<%(jid)s> "})
	l.Error("x", "jid", "7")
	if b.String() != "<7> x\n" {
		t.Errorf("got %q", b)
	}
	for _, bad := range []string{"", "x", "%s", "%(jid)s %(name)s"} {
		if CheckJIDFormat(bad) == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
}

func BenchmarkHandler(b *testing.B) {
	tmpl, err := NewTemplate(FileFormat, FileTime)
	if err != nil {
		b.Fatal(err)
	}
	l := slog.New(NewHandler(Sink{W: discard{}, Level: slog.LevelInfo, Template: tmpl})).With("component", "bench")
	b.ReportAllocs()
	for b.Loop() {
		l.Info("a message", "minion", "alpha")
	}
}

type discard struct{}

func (discard) Write(p []byte) (int, error) { return len(p), nil }

func TestSetLevels(t *testing.T) {
	var console bytes.Buffer
	o := Options{Level: "quiet", Format: "%(message)s", File: filepath.Join(t.TempDir(), "log"), FileLevel: "error", FileFormat: "%(message)s"}
	l, err := Open(o, &console)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	child := l.With("a", 1) // made before the change
	child.Warn("one")
	o.Level, o.FileLevel = "info", ""
	if err := l.SetLevels(o); err != nil {
		t.Fatal(err)
	}
	child.Info("two")
	child.Debug("three")
	o.Level = "loud"
	if l.SetLevels(o) == nil {
		t.Error("an unknown level is accepted")
	}
	child.Info("four")
	if b, _ := os.ReadFile(o.File); string(b) != "two a=1\nfour a=1\n" || console.String() != string(b) {
		t.Errorf("%q %q", b, &console)
	}
}

func TestLongValues(t *testing.T) {
	l, b := logTo(t, Options{Format: "%(message)s"})
	l.Warn("x", "peer", strings.Repeat("ä", 1<<20))
	if n := b.Len(); n > 5000 || !strings.Contains(b.String(), "ä... (2097152 bytes)") {
		t.Errorf("%d bytes: %.50s", n, b)
	}
}

// TestPasswordsAreMasked checks that URLs in messages and attributes do not show
// passwords.
func TestPasswordsAreMasked(t *testing.T) {
	var out strings.Builder
	tmpl, err := NewTemplate("%(message)s", "")
	if err != nil {
		t.Fatal(err)
	}
	l := slog.New(NewHandler(Sink{W: &out, Level: slog.LevelDebug, Template: tmpl}))
	l.With("of", "https://u:S3CRET@h/a").Error("cannot fetch https://u:S3CRET@h/x", "err", errors.New("ftp://u:S3CRET@h"),
		slog.Group("g", "url", "redis://:S3CRET@h"))
	if got, want := out.String(),
		"cannot fetch https://<redacted>@h/x of=https://<redacted>@h/a err=ftp://<redacted>@h g.url=redis://<redacted>@h\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestRotation moves and deletes the open log file, as logrotate does, without a signal.
func TestRotation(t *testing.T) {
	path := filepath.Join(t.TempDir(), "dir", "log")
	f, err := OpenFile(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	write := func(text string) {
		t.Helper()
		if _, err := f.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	read := func(path, want string) {
		t.Helper()
		if b, err := os.ReadFile(path); err != nil || string(b) != want {
			t.Errorf("%s: %q, %v, want %q", filepath.Base(path), b, err, want)
		}
	}
	write("one\n")
	if err := os.Rename(path, path+".1"); err != nil {
		t.Fatal(err)
	}
	write("two\n")
	read(path+".1", "one\n")
	read(path, "two\n")
	if err := os.RemoveAll(filepath.Dir(path)); err != nil {
		t.Fatal(err)
	}
	write("three\n")
	read(path, "three\n")
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o640 {
		t.Errorf("mode of %v, %v", st, err)
	}
	// If the directory's name is a file, no new log file can be created: logging
	// continues.
	if err := os.RemoveAll(filepath.Dir(path)); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Dir(path), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	write("four\n")
}
