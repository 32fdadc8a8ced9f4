// Package flushed proves by system calls that data reported as stored survives a loss of power: file
// contents and directory entries are flushed before the report.
package flushed

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"brine/internal/call/auth"
	"brine/internal/daemons/minion/outbox"
	"brine/internal/files/revision"
	"brine/internal/ha/replica"
	"brine/internal/py/value"
	"brine/internal/store/job"
	"brine/internal/store/journal"
	"brine/internal/store/keystore"
	"brine/test/tools"
)

var quiet = slog.New(slog.DiscardHandler)

const jid = "20260101120000000001"

// classes are the kinds of data that must survive. Each function stores something in a new directory, and
// returns when it is stored.
var classes = map[string]func(dir string) error{
	"files of jobs": func(dir string) error {
		s, err := job.OpenShared(dir, "m1", "sha256", job.Options{JobCache: true, KeepJobsSeconds: 86400}, quiet)
		if err == nil {
			err = s.NewJobUntil(value.DictOf("jid", jid, "fun", "test.ping"), []string{"w1"}, time.Now().Add(time.Hour))
		}
		if err != nil {
			return err
		}
		return stored(s.ReturnAsync, jid)
	},
	"files of jobs that minions start": func(dir string) error {
		s, err := job.OpenShared(dir, "m1", "sha256", job.Options{JobCache: true, KeepJobsSeconds: 86400}, quiet)
		if err != nil {
			return err
		}
		return stored(s.ReturnAsync, jid)
	},
	"files of whole jobs": func(dir string) error {
		c, err := job.NewLocalCache(dir, "sha256")
		if err != nil {
			return err
		}
		return c.Put(&job.Whole{
			Job:     job.Job{JID: jid, Load: value.DictOf("jid", jid, "fun", "test.ping"), Minions: []string{"w1"}},
			Returns: map[string]*value.Dict{"w1": value.DictOf("return", true)},
		})
	},
	"database of jobs": func(dir string) error {
		s, err := job.Open(filepath.Join(dir, "brine"), job.Options{JobCache: true}, quiet)
		if err != nil {
			return err
		}
		return s.NewJob(value.DictOf("jid", jid, "fun", "test.ping"), []string{"w1"})
	},
	"replicated records": func(dir string) error {
		_, err := replica.Open(dir, "m1", nil, quiet)
		return err
	},
	"keys of minions": func(dir string) error {
		s, err := keystore.Open(filepath.Join(dir, "pki"), quiet)
		if err == nil {
			err = s.Add(keystore.Pending, "w1", "key")
		}
		if err != nil {
			return err
		}
		return s.Move("w1", keystore.Pending, keystore.Accepted)
	},
	"tokens": func(dir string) error {
		s, err := auth.OpenTokens(filepath.Join(dir, "tokens"))
		if err != nil {
			return err
		}
		return s.Add(value.DictOf("name", "anna"))
	},
	"journal": func(dir string) error {
		j, _, err := journal.Open(filepath.Join(dir, "brine/outbox"), func(journal.Record) error { return nil })
		if err == nil {
			_, err = j.Append('a', []byte("data"))
		}
		if err != nil {
			return err
		}
		return j.Sync()
	},
	"outbox of a minion": func(dir string) error {
		o := outbox.New(outbox.Config{Dir: filepath.Join(dir, "brine"), Options: outbox.Options{Outbox: true, PubRet: true, OutboxSize: 1 << 20}, Log: quiet,
			Fire: func(string, any) {}})
		o.Recall(func(*value.Dict, string) *value.Dict { return nil })
		o.GiveBack(value.DictOf("jid", jid, "return", true, "fun", "test.ping"),
			[]*outbox.Queue{o.NewQueue("192.0.2.1:4506", nil, func() bool { return false }, quiet)}, true)
		return nil
	},
	"revision of files": func(dir string) error {
		from := filepath.Join(os.Getenv(sourceKey))
		s, err := revision.Open(filepath.Join(dir, "revisions"))
		if err == nil {
			_, err = s.Take(context.Background(), []revision.Tree{{Kind: "file_roots", Env: "base", Dirs: []string{from}}})
		}
		return err
	},
}

// stored stores the return of a job and waits for the report.
func stored(put func(*value.Dict, func(bool, error)), jid string) error {
	done := make(chan error, 1)
	put(value.DictOf("jid", jid, "id", "w1", "return", true, "fun", "test.ping"), func(_ bool, err error) { done <- err })
	return <-done
}

// Names of environment variables of the traced process.
const (
	classKey  = "BRINE_FLUSHED_CLASS"
	dirKey    = "BRINE_FLUSHED_DIR"
	sourceKey = "BRINE_FLUSHED_SOURCE"
	reported  = "@@reported as stored@@"
)

func TestMain(m *testing.M) {
	do := classes[os.Getenv(classKey)]
	if do == nil {
		os.Exit(m.Run())
	}
	err := do(os.Getenv(dirKey))
	os.Stdout.WriteString(reported)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// TestFlushedBeforeReported traces a process that stores something of each class.
func TestFlushedBeforeReported(t *testing.T) {
	strace := tools.Need(t, "strace", "strace")
	for name := range classes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, source := filepath.Join(t.TempDir(), "data"), t.TempDir()
			if err := errors.Join(os.Mkdir(dir, 0o700), os.WriteFile(filepath.Join(source, "f"), []byte("text"), 0o600)); err != nil {
				t.Fatal(err)
			}
			trace := filepath.Join(t.TempDir(), "trace")
			c := exec.Command(strace, "-f", "-y", "-s", "300", "-o", trace, "-e",
				"trace=mkdirat,mkdir,openat,renameat,renameat2,rename,linkat,link,symlinkat,"+
					"unlinkat,unlink,rmdir,fsync,fdatasync,syncfs,write", os.Args[0])
			c.Env = append(os.Environ(), classKey+"="+name, dirKey+"="+dir, sourceKey+"="+source)
			if out, err := c.CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			b, err := os.ReadFile(trace)
			if err != nil {
				t.Fatal(err)
			}
			faults, names := unflushed(string(b), dir)
			for _, f := range faults {
				t.Error(f)
			}
			if names == 0 {
				t.Errorf("no new name was seen below %s:\n%s", dir, b)
			}
		})
	}
}

// TestUnflushedIsFound: the check of traces detects a missing flush.
func TestUnflushedIsFound(t *testing.T) {
	const good = `1 mkdirat(AT_FDCWD</>, "/d/a", 0700) = 0
1 fsync(3</d>) = 0
1 openat(AT_FDCWD</>, "/d/a/.t", O_RDWR|O_CREAT|O_EXCL|O_CLOEXEC, 0600) = 4</d/a/.t>
1 fsync(4</d/a/.t> <unfinished ...>
2 openat(AT_FDCWD</>, "/d/a/f.lock", O_RDWR|O_CREAT, 0600) = 5</d/a/f.lock>
1 <... fsync resumed>) = 0
1 renameat(AT_FDCWD</>, "/d/a/.t", AT_FDCWD</>, "/d/a/f") = 0
1 fsync(6</d/a>) = 0
1 write(1</dev/null>, "@@reported as stored@@", 22) = 22
`
	for _, c := range []struct{ name, without, with string }{
		{"all", "", ""},
		{"the directory's name", "1 fsync(3</d>) = 0\n", ""},
		{"the file's name", "1 fsync(6</d/a>) = 0\n", ""},
		{"the content", "1 fsync(4</d/a/.t> <unfinished ...>\n", ""},
		{"a flush that failed", "1 fsync(6</d/a>) = 0\n", "1 fsync(6</d/a>) = -1 EIO (Input/output error)\n"},
	} {
		faults, _ := unflushed(strings.Replace(good, c.without, c.with, 1), "/d")
		if want := min(len(c.without), 1); len(faults) != want {
			t.Errorf("without %s: %q", c.name, faults)
		}
	}
}

var (
	call   = regexp.MustCompile(`^(\w+)\((.*)\) += (-?\d+)`)
	quoted = regexp.MustCompile(`"([^"]*)"`)
	ofFile = regexp.MustCompile(`^\d+<([^>]*)>`)
)

// unflushed reads a trace. It returns the names below dir that are not on disk when the report is made, and
// the number of all names.
func unflushed(trace, dir string) (faults []string, names int) {
	begun := map[string]string{} // by process
	starts := map[string]int{}   // of begun
	created := map[string]int{}  // when a name was made
	onDisk := map[string]int{}   // when a flush of a path began
	content := map[string]bool{} // files that need a flush, and whether they had one
	everything, report := -1, -1 // the last syncfs, and the report
	lines := strings.Split(trace, "\n")
	for i, line := range lines {
		pid, text, _ := strings.Cut(strings.TrimSpace(line), " ")
		text = strings.TrimSpace(text)
		start := i
		if head, ok := strings.CutSuffix(text, "<unfinished ...>"); ok {
			begun[pid], starts[pid] = strings.TrimSpace(head), i
			if strings.Contains(head, reported) {
				report = i
				break
			}
			continue
		}
		if strings.HasPrefix(text, "<... ") {
			_, rest, _ := strings.Cut(text, "resumed>")
			if begun[pid] == "" {
				continue
			}
			text, start = begun[pid]+rest, starts[pid]
			delete(begun, pid)
		}
		m := call.FindStringSubmatch(text)
		if m == nil {
			continue
		}
		if m[1] == "write" && strings.Contains(m[2], reported) {
			report = i
			break
		}
		if n, err := strconv.Atoi(m[3]); err != nil || n < 0 {
			continue
		}
		var paths []string
		for _, q := range quoted.FindAllStringSubmatch(m[2], -1) {
			paths = append(paths, q[1])
		}
		if len(paths) == 0 && !strings.Contains(m[1], "sync") {
			continue
		}
		switch m[1] {
		case "mkdir", "mkdirat", "symlinkat":
			created[paths[len(paths)-1]] = i
		case "openat":
			if strings.Contains(m[2], "O_CREAT") {
				if _, known := created[paths[0]]; !known {
					created[paths[0]], content[paths[0]] = i, false
				}
			}
		case "rename", "renameat", "renameat2":
			move(created, content, paths[0], paths[1], i)
		case "link", "linkat":
			created[paths[1]] = i
			if flushed, ok := content[paths[0]]; ok {
				content[paths[1]] = flushed
			}
		case "unlink", "unlinkat", "rmdir":
			forget(created, content, paths[0])
		case "fsync", "fdatasync":
			if f := ofFile.FindStringSubmatch(m[2]); f != nil {
				onDisk[f[1]] = start
				if _, ok := content[f[1]]; ok {
					content[f[1]] = true
				}
			}
		case "syncfs":
			everything = start
			for f := range content {
				content[f] = true
			}
		}
	}
	if report < 0 {
		return []string{"it reports nothing"}, 0
	}
	for path, at := range created {
		if !strings.HasPrefix(path, dir+"/") || strings.HasSuffix(path, ".lock") {
			continue // a lock has no content
		}
		names++
		if flush, ok := onDisk[filepath.Dir(path)]; (!ok || flush < at) && everything < at {
			faults = append(faults, "the name is not flushed: "+path)
		}
		if flushed, is := content[path]; is && !flushed {
			faults = append(faults, "the content is not flushed: "+path)
		}
	}
	slices.Sort(faults)
	return faults, names
}

// move renames a path and all below it.
func move(created map[string]int, content map[string]bool, from, to string, at int) {
	for path, when := range created {
		rest, below := strings.CutPrefix(path, from+"/")
		switch {
		case below:
			delete(created, path)
			created[to+"/"+rest] = when
		case path == from:
			delete(created, path)
		default:
			continue
		}
		if flushed, ok := content[path]; ok {
			delete(content, path)
			if below {
				content[to+"/"+rest] = flushed
			} else {
				content[to] = flushed
			}
		}
	}
	created[to] = at
}

func forget(created map[string]int, content map[string]bool, path string) {
	for p := range created {
		if p == path || strings.HasPrefix(p, path+"/") {
			delete(created, p)
			delete(content, p)
		}
	}
}
