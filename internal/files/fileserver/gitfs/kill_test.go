package gitfs

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"brine/internal/py/value"
	"brine/test/gittest"
)

// TestMain turns this program into a master's file server if the environment
// requests it; see serveForTest.
func TestMain(m *testing.M) {
	if url := os.Getenv("BRINE_TEST_GITFS"); url != "" {
		serveForTest(url, os.Getenv("BRINE_TEST_CACHE"))
		return
	}
	os.Exit(m.Run())
}

// filesOfState is the number of files in each commit of the test. All files
// hold the number of the commit.
const filesOfState = 12

// serveForTest updates gitfs continuously, and reads all files for each line of
// input. It prints the number that all files hold, or an error.
func serveForTest(url, cache string) {
	fs, err := New(Options{Remotes: value.ListOf(url), Base: "main", RefTypes: []string{"branch"}, SSLVerify: true, Interval: 20 * time.Millisecond,
		GlobalLock: true},
		Config{Name: "gitfs", CacheDir: cache, HashType: "sha256"})
	if err != nil {
		fmt.Println("fault:", err)
		return
	}
	go func() {
		for {
			if _, err := fs.update(context.Background(), fs.remotes, 0); err != nil {
				fmt.Println("fault:", err)
			}
		}
	}()
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		n, err := readState(fs)
		if err != nil {
			fmt.Println("broken:", err)
			continue
		}
		fmt.Println("serves:", n)
	}
}

// readState reads all files from one snapshot of the repository, and retries if
// the commit changes meanwhile.
func readState(fs *FS) (string, error) {
	for {
		before := fs.remotes[0].clone.Snapshot()
		if before == nil {
			return "0", nil
		}
		l, err := fs.Lists(context.Background(), "base")
		if err != nil {
			return "", err
		}
		number, mixed := "", false
		for _, name := range l.Files {
			f, ok := fs.Find("base", name, nil)
			if !ok {
				if fs.remotes[0].clone.Snapshot() != before {
					break
				}
				return "", fmt.Errorf("%s is listed and cannot be had", name)
			}
			b, err := os.ReadFile(f.Path)
			if err != nil {
				return "", err
			}
			n, _, _ := strings.Cut(string(b), "\n")
			mixed = mixed || number != "" && n != number
			number = n
		}
		if fs.remotes[0].clone.Snapshot() != before {
			continue
		}
		if mixed || len(l.Files) != filesOfState {
			return "", fmt.Errorf("%d files, of several commits: %v", len(l.Files), mixed)
		}
		return number, nil
	}
}

// process is a process that serves files.
type process struct {
	t    *testing.T
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  chan string
	once sync.Once
}

func startProcess(t *testing.T, url, cache string) *process {
	t.Helper()
	p := &process{t: t, cmd: exec.Command(os.Args[0]), out: make(chan string, 100)}
	p.cmd.Env = append(os.Environ(), "BRINE_TEST_GITFS="+url, "BRINE_TEST_CACHE="+cache)
	p.cmd.Stderr = os.Stderr
	var err error
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			p.out <- lines.Text()
		}
		close(p.out)
	}()
	t.Cleanup(p.kill)
	return p
}

func (p *process) kill() {
	p.once.Do(func() {
		_ = p.cmd.Process.Kill()
		for range p.out {
		}
		_ = p.cmd.Wait()
	})
}

// serves returns the number of the commit that the process serves.
func (p *process) serves() int {
	p.t.Helper()
	if _, err := io.WriteString(p.in, "\n"); err != nil {
		p.t.Fatal(err)
	}
	line, ok := <-p.out
	if !ok {
		p.t.Fatal("the process has ended")
	}
	text, ok := strings.CutPrefix(line, "serves: ")
	if !ok {
		p.t.Fatal(line)
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		p.t.Fatal(err)
	}
	return n
}

// TestOneOfTwoIsKilled runs the file servers of two masters with one cachedir,
// and kills one of them at random moments, repeatedly, while commits arrive.
// Served files must always be complete, of one commit, and the same for both,
// and no kill may block updates. BRINE_GIT_KILLS is the number of kills, 10 by
// default.
func TestOneOfTwoIsKilled(t *testing.T) {
	t.Parallel()
	kills := 10
	if n, err := strconv.Atoi(os.Getenv("BRINE_GIT_KILLS")); err == nil {
		kills = n
	}
	base, cache := t.TempDir(), t.TempDir()
	dir := base + "/work"
	gittest.Run(t, base, "init", "--quiet", "--initial-branch=main", dir)
	next := 0
	push := func() {
		next++
		files := map[string]string{}
		for i := range filesOfState {
			files[fmt.Sprintf("d%d/f%d", i%5, i)] = fmt.Sprintf("%d\nfile %d\n", next, i)
		}
		gittest.Write(t, dir, files)
		gittest.Run(t, dir, "add", "-A")
		gittest.Run(t, dir, "commit", "--quiet", "-m", strconv.Itoa(next))
	}
	push()
	url := "file://" + dir
	both := []*process{startProcess(t, url, cache), startProcess(t, url, cache)}
	waitLimit := time.Now().Add(5 * time.Minute)
	for range kills {
		push()
		time.Sleep(time.Duration(rand.N(150)) * time.Millisecond) // kills it during any step of an update
		i := rand.N(2)
		both[i].kill()
		// The surviving process must reach the newest commit, whatever lock the
		// dead one held.
		for both[1-i].serves() != next {
			if time.Now().After(waitLimit) {
				t.Fatalf("commit %d is not served", next)
			}
		}
		// A new process must serve the same immediately, before it updates.
		both[i] = startProcess(t, url, cache)
		if got := both[i].serves(); got != next {
			t.Fatalf("one serves commit %d, the other %d", next, got)
		}
	}
	for _, p := range both {
		p.kill()
	}
	// In the end, the copy must be intact.
	fs, err := New(Options{Remotes: value.ListOf(url), Base: "main", RefTypes: []string{"branch"}, SSLVerify: true, GlobalLock: true},
		Config{Name: "gitfs", CacheDir: cache, HashType: "sha256"})
	if err != nil {
		t.Fatal(err)
	}
	defer fs.close()
	if _, err := fs.Update(t.Context()); err != nil {
		t.Error(err)
	}
	if d := fs.Remotes().Dict(url); d.At("error") != nil || d.At("locked_by") != nil {
		t.Error(value.Repr(d))
	}
	if n, err := readState(fs); err != nil || n != strconv.Itoa(next) {
		t.Error(n, err)
	}
}
