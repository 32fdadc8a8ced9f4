package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"brine/bench/simulate"
	"brine/internal/py/value"
)

// gitFiles is the number of files in the repository, runFiles the number that a state run fetches.
const (
	gitFiles = 10_000
	takes    = 20
)

// runGitfs runs a master with a repository of 10,000 files: 100 minions begin their first state run
// at once, then a commit is pushed, and the master's runner updates and lists all files.
func runGitfs(ctx context.Context, b *bench, k kind) error {
	minions := b.size(100)
	m, err := b.newMaster(k, "zeromq", minions, "")
	if err != nil {
		return err
	}
	defer m.remove()
	repo := filepath.Join(m.dir, "repo")
	content := func(i int) string { return strings.Repeat(fmt.Sprintf("line of file %d\n", i), 128) }
	name := func(i int) string { return fmt.Sprintf("d%02d/e%d/f%04d.sls", i%100, i%7, i) }
	for i := range gitFiles {
		p := filepath.Join(repo, name(i))
		if err := errors.Join(os.MkdirAll(filepath.Dir(p), 0o755), os.WriteFile(p, []byte(content(i)), 0o644)); err != nil {
			return err
		}
	}
	if err := gitIn(ctx, repo, "init", "--quiet", "--initial-branch=main"); err != nil {
		return err
	}
	if err := commit(ctx, repo); err != nil {
		return err
	}
	if err := m.option("fileserver_backend: [gitfs]\ngitfs_base: main\ngitfs_remotes: ['file://" + repo + "']\n"); err != nil {
		return err
	}
	if err := m.run(ctx, b); err != nil {
		return err
	}
	f := m.fleet(b, minions, 0)
	defer f.Close()
	if err := f.SignIn(ctx, 64); err != nil {
		return err
	}
	// A stock master updates by itself only after a minute.
	if out, err := b.command(ctx, k, "salt-run", "-c", m.dir, "fileserver.update").CombinedOutput(); err != nil {
		return fmt.Errorf("fileserver.update: %w: %s", err, out)
	}
	if err := waitFor(ctx, func() (bool, error) {
		names, err := f.Minions[0].List(ctx)
		if err == nil && len(names) != gitFiles {
			err = fmt.Errorf("it lists %d files", len(names))
		}
		return err == nil, err
	}); err != nil {
		return fmt.Errorf("the repository is not served: %w", err)
	}
	var wall time.Duration
	cost, err := m.cost(func() error {
		from := time.Now()
		err := f.Each(minions, func(mi *simulate.Minion) error { return firstRun(ctx, k, mi, name, content) })
		wall = time.Since(from)
		return err
	})
	if err != nil {
		return err
	}
	b.add("gitfs-run-cpu", k, 0, per(cost, minions))
	b.add("gitfs-run-wall", k, 0, wall.Seconds())
	return b.gitUpdate(ctx, m, repo)
}

// gitUpdate records the cost of an update with a changed file and of a list of all files, for the
// master and the runners together.
func (b *bench) gitUpdate(ctx context.Context, m *master, repo string) error {
	if err := os.WriteFile(filepath.Join(repo, "new.sls"), []byte("new: test.nop\n"), 0o644); err != nil {
		return err
	}
	if err := commit(ctx, repo); err != nil {
		return err
	}
	runner := 0.0
	cost, err := m.cost(func() error {
		for _, fun := range []string{"fileserver.update", "fileserver.file_list"} {
			cpu, out, err := cpuOfRuns(1, func() *exec.Cmd { return b.command(ctx, m.kind, "salt-run", "-c", m.dir, "--out=txt", fun) })
			if err != nil {
				return err
			}
			if fun == "fileserver.file_list" && !strings.Contains(out, "new.sls") {
				return fmt.Errorf("the list has not what was committed: %.100q", out)
			}
			runner += cpu
		}
		return nil
	})
	if err == nil {
		b.add("gitfs-update", m.kind, 0, cost.Seconds()+runner)
	}
	return err
}

// firstRun makes the requests of a state run: the list of all files, and some of them with their
// hashes.
func firstRun(ctx context.Context, k kind, mi *simulate.Minion, name func(int) string, content func(int) string) error {
	if k == brine {
		if err := mi.Tree(ctx); err != nil {
			return err
		}
	} else if names, err := mi.List(ctx); err != nil || len(names) != gitFiles {
		return fmt.Errorf("a list of %d files: %w", len(names), err)
	}
	for i := range takes {
		n := i * 37
		want := []byte(content(n))
		err := exactly(ctx, mi, func(ctx context.Context, mi *simulate.Minion, to io.Writer) error {
			if k == brine {
				sum := sha256.Sum256(want)
				return mi.FileOf(ctx, name(n), hex.EncodeToString(sum[:]), to)
			}
			if _, err := mi.Request(ctx, value.DictOf("cmd", "_file_hash_and_stat", "path", name(n), "saltenv", "base")); err != nil {
				return err
			}
			return mi.File(ctx, name(n), to)
		}, want)
		if err != nil {
			return err
		}
	}
	return nil
}

func commit(ctx context.Context, repo string) error {
	return errors.Join(gitIn(ctx, repo, "add", "-A"),
		gitIn(ctx, repo, "-c", "user.name=bench", "-c", "user.email=bench@example.com", "commit", "--quiet", "-m", "x"))
}

func gitIn(ctx context.Context, dir string, args ...string) error {
	c := exec.CommandContext(ctx, "git", append([]string{"-C", dir}, args...)...)
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("git %s: %w: %s", args[0], err, out)
	}
	return nil
}

// waitFor calls ok until it returns true, for at most two minutes.
func waitFor(ctx context.Context, ok func() (bool, error)) error {
	for until := time.Now().Add(2 * time.Minute); ; time.Sleep(100 * time.Millisecond) {
		yes, err := ok()
		if err == nil && yes {
			return nil
		}
		if time.Now().After(until) || ctx.Err() != nil {
			return errors.Join(errors.New("waited without effect"), err)
		}
	}
}
