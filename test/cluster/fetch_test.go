package cluster

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"brine/test/eventually"
	"brine/test/gittest"
)

// gitServer is git's own server for http, which counts fetches.
type gitServer struct {
	t       *testing.T
	root    string
	url     string
	fetches map[string]*atomic.Int64 // by repository
}

func newGitServer(t *testing.T, repos ...string) *gitServer {
	t.Helper()
	g := &gitServer{t: t, root: t.TempDir(), fetches: map[string]*atomic.Int64{}}
	for _, r := range repos {
		g.fetches[r] = new(atomic.Int64)
		gittest.Run(t, g.root, "init", "--quiet", "--initial-branch=main", filepath.Join(g.root, r))
		g.push(r, "at-first")
	}
	backend := &cgi.Handler{Path: filepath.Join(strings.TrimSpace(gittest.Run(t, g.root, "--exec-path")), "git-http-backend"),
		Env: []string{"GIT_PROJECT_ROOT=" + g.root, "GIT_HTTP_EXPORT_ALL=1", "GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*"}}
	if _, err := os.Stat(backend.Path); err != nil {
		if os.Getenv("BRINE_REQUIRE_TOOLS") != "" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if repo, ok := strings.CutSuffix(r.URL.Path, "/.git/info/refs"); ok { // each fetch begins with this request
			g.fetches[repo[1:]].Add(1)
		}
		backend.ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	g.url = s.URL
	return g
}

// push adds a file to a repository.
func (g *gitServer) push(repo, name string) {
	g.t.Helper()
	dir := filepath.Join(g.root, repo)
	gittest.Write(g.t, dir, map[string]string{name: "text\n"})
	gittest.Run(g.t, dir, "add", "-A")
	gittest.Run(g.t, dir, "commit", "--quiet", "-m", "x")
}

func (g *gitServer) head(repo string) string {
	g.t.Helper()
	return strings.TrimSpace(gittest.Run(g.t, filepath.Join(g.root, repo), "rev-parse", "HEAD"))
}

// options makes masters fetch one repository every two seconds, and another one and that of the
// pillar hardly ever.
func (g *gitServer) options() string {
	return fmt.Sprintf(`auto_accept: true
fileserver_backend: [gitfs]
gitfs_base: main
gitfs_remotes:
  - %[1]s/often/.git:
    - update_interval: 2
  - %[1]s/seldom/.git:
    - update_interval: 36000
git_pillar_base: main
git_pillar_update_interval: 36000
ext_pillar:
  - git:
    - main %[1]s/pillar/.git
`, g.url)
}

// serve waits until the masters serve a file.
func (g *gitServer) serve(name string, masters ...*node) {
	g.t.Helper()
	took := eventually.Nil(g.t, soon, "all serve "+name, func() error {
		for _, m := range masters {
			if out, errs, _ := m.Run(brine, "salt-run", "--out=json", "fileserver.file_list"); !strings.Contains(out, `"`+name+`"`) {
				return errors.New(m.Name + ": " + out + errs)
			}
		}
		return nil
	})
	g.t.Logf("%d masters serve %s after %v", len(masters), name, took.Round(time.Millisecond))
}

// pillar waits until masters use the commit of the pillar.
func (g *gitServer) pillar(masters ...*node) {
	g.t.Helper()
	head := g.head("pillar")
	eventually.Nil(g.t, soon, "all have the pillar", func() error {
		for _, m := range masters {
			if out, errs, _ := m.Run(brine, "salt-run", "--out=json", "git_pillar.remotes"); !strings.Contains(out, head) {
				return errors.New(m.Name + ": " + out + errs)
			}
		}
		return nil
	})
}

// count waits for some fetches, and reports the maximum number by one master in that time.
func (g *gitServer) count(what string, n int64) {
	g.t.Helper()
	const interval = 2 * time.Second
	from, before := time.Now(), g.fetches["often"].Load()
	eventually.Nil(g.t, soon, "some fetches", func() error {
		if now := g.fetches["often"].Load(); now < before+n {
			return fmt.Errorf("%d", now-before)
		}
		return nil
	})
	took := time.Since(from)
	g.t.Logf("%s: %d fetches in %v, one every %v", what, n, took.Round(time.Millisecond), (took / time.Duration(n)).Round(time.Millisecond))
	// Two masters that fetch separately would need little more than half of that.
	if took < time.Duration(n-2)*interval*9/10 {
		g.t.Errorf("%s: %d fetches in %v are those of several masters", what, n, took)
	}
}

// TestFetchedOnce: one master of a cluster fetches for all. The others soon have everything that it
// has fetched, or that another one has fetched by command. They continue when it is killed, and
// without a majority.
func TestFetchedOnce(t *testing.T) {
	t.Parallel()
	g := newGitServer(t, "often", "seldom", "pillar")
	a := newApart(t, 3, g.options())
	for _, m := range a.masters {
		m.Write("master", m.Read("master")+fmt.Sprintf("cluster_voters: [%s, %s, %s]\n", a.masters[0].Name, a.masters[1].Name, a.masters[2].Name))
	}
	a.start()
	first, token := holder(t, "at first", 0, a.masters...)
	g.serve("at-first", a.masters...)
	g.pillar(a.masters...)
	g.push("often", "pushed")
	g.serve("pushed", a.masters...)
	g.count("three masters", 10)

	// No master fetches these repositories without a command.
	others := but(a.masters, first)
	for i, m := range []*node{others[0], first} {
		name := fmt.Sprintf("told-%d", i)
		g.push("seldom", name)
		if out, errs, code := m.Run(brine, "salt-run", "fileserver.update"); code != 0 {
			t.Fatal(out, errs)
		}
		g.serve(name, a.masters...)
		g.push("pillar", name)
		if out, errs, code := m.Run(brine, "salt-run", "git_pillar.update"); code != 0 {
			t.Fatal(out, errs)
		}
		g.pillar(a.masters...)
	}

	first.Kill()
	second, _ := holder(t, "after a kill", token, others...)
	g.push("often", "after-a-kill")
	g.serve("after-a-kill", others...)
	g.count("two masters", 10)

	second.Kill()
	last := but(others, second)[0]
	g.push("often", "alone")
	g.serve("alone", last)
}

// TestFetchedOnceShared is the same for masters that share a directory: they need not fetch again.
func TestFetchedOnceShared(t *testing.T) {
	t.Parallel()
	g := newGitServer(t, "often", "seldom", "pillar")
	f := newFleet(t, g.options(), brine, brine, brine).start()
	g.serve("at-first", f.masters...)
	g.count("three masters", 10)
	for i, m := range f.masters {
		name := fmt.Sprintf("pushed-%d", i)
		g.push("often", name)
		g.serve(name, f.masters[i:]...)
		if m != f.masters[len(f.masters)-1] {
			m.Kill() // one of them leads
		}
	}
	g.count("the last master", 5)
}
