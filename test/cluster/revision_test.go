package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"brine/test/daemontest"
	"brine/test/eventually"
	"brine/test/netns"
)

// withRoots gives a master separate directories.
func withRoots(t *testing.T, m *node) {
	t.Helper()
	text := m.Read("master") + fmt.Sprintf("file_roots: {base: [%s], prod: [%s]}\npillar_roots: {base: [%s]}\n", m.Path("states"), m.Path("prod"),
		m.Path("pillar"))
	for _, d := range []string{"states", "prod", "pillar"} {
		if err := os.MkdirAll(m.Path(d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	m.Write("master", text)
	m.Write("pillar/top.sls", "base: {'*': [words]}\n")
}

// text returns a file of a master as received by a minion.
func text(m *node, minion, url string) (string, error) {
	out, errs, _ := m.Run(brine, "salt", "--out=json", "--static", minion, "cp.get_file_str", url)
	var d map[string]any
	if err := json.Unmarshal([]byte(out), &d); err != nil {
		return "", fmt.Errorf("%w: %s%s", err, out, errs)
	}
	s, ok := d[minion].(string)
	if !ok {
		return "", fmt.Errorf("%s: %s%s", url, out, errs)
	}
	return s, nil
}

// pillarWord returns the word in the pillar of a minion.
func pillarWord(m *node, minion string) (string, error) {
	out, errs, _ := m.Run(brine, "salt", "--out=json", "--static", minion, "pillar.items")
	var d map[string]map[string]any
	if err := json.Unmarshal([]byte(out), &d); err != nil {
		return "", fmt.Errorf("%w: %s%s", err, out, errs)
	}
	return fmt.Sprint(d[minion]["word"]), nil
}

type agreement struct {
	Agreed  string            `json:"agreed"`
	Members map[string]string `json:"members"`
	History []struct {
		Revision string `json:"revision"`
		How      string `json:"how"`
	} `json:"history"`
}

type choice struct {
	Revision string            `json:"revision"`
	Previous string            `json:"previous"`
	Added    int               `json:"added"`
	Changed  int               `json:"changed"`
	Removed  int               `json:"removed"`
	Members  map[string]string `json:"members"`
}

// ask runs a runner that returns a map.
func ask[T any](t *testing.T, m *node, args ...string) (v T) {
	t.Helper()
	out, errs, code := m.Run(brine, "salt-run", append([]string{"--out=json"}, args...)...)
	if err := json.Unmarshal([]byte(out), &v); err != nil || code != 0 {
		t.Fatalf("%q: exit code %d, %v: %s%s", args, code, err, out, errs)
	}
	return v
}

// TestAgreedFiles: three masters whose directories differ agree on those of one. Minions of each
// get the same files and pillars, and deleted files are gone. A master that was unreachable serves
// nothing outdated when it is back, a frozen one catches up, and one that joins serves the same.
// The agreement can be undone. Jobs record the revision that they used.
func TestAgreedFiles(t *testing.T) {
	t.Parallel()
	a := newApart(t, 3, "auto_accept: true\n")
	for i, m := range a.masters {
		withRoots(t, m)
		m.Write("states/word", fmt.Sprint("master ", i))
		m.Write("pillar/words.sls", fmt.Sprint("word: master ", i, "\n"))
	}
	one, two, three := a.masters[0], a.masters[1], a.masters[2]
	two.Write("states/only-there", "two")
	a.start()
	ids := []string{"m0", "m1", "m2"}
	for i, m := range a.masters {
		a.minion(ids[i], m)
	}
	for _, m := range a.masters {
		eventually.Nil(t, soon, "all answer to "+m.Name, func() error { return m.PingAll(brine, ids...) })
	}
	if g := ask[agreement](t, two, "cluster.revision"); g.Agreed != "" {
		t.Errorf("agreed on something: %+v", g)
	}
	eventually.Nil(t, soon, "it is told that directories differ", func() error {
		if r, err := check(one); err != nil || len(r.Masters) != 3 || len(r.Differences["tree"]) != 1 {
			return fmt.Errorf("%+v %w", r, err)
		}
		return nil
	})
	if s, err := text(one, "m1", "salt://word"); s != "master 1" {
		t.Errorf("before: %q %v", s, err)
	}
	// each expects a word from the minion of every master.
	each := func(what, word string) {
		t.Helper()
		for _, id := range ids {
			eventually.Nil(t, soon, id+" gets "+word+" "+what, func() error {
				s, err := text(one, id, "salt://word")
				if err != nil || s != word {
					return fmt.Errorf("%q %w", s, err)
				}
				if s, err := pillarWord(one, id); err != nil || s != word {
					return fmt.Errorf("pillar: %q %w", s, err)
				}
				return nil
			})
		}
	}
	large := make([]byte, 3<<20)
	for i := range large {
		large[i] = 'a' + byte(rand.UintN(26))
	}
	two.Write("prod/large", string(large))
	if c := ask[choice](t, two, "cluster.sync_roots", "test=True"); c.Added == 0 || ask[agreement](t, two, "cluster.revision").Agreed != "" {
		t.Errorf("a test: %+v", c)
	}
	first := ask[choice](t, two, "cluster.sync_roots")
	all := func(what, revision string, masters ...*node) {
		t.Helper()
		eventually.Nil(t, soon, "all serve "+revision+" "+what, func() error {
			g := ask[agreement](t, two, "cluster.revision")
			for _, m := range masters {
				if g.Agreed != revision || g.Members[m.Name] != "serves it" {
					return fmt.Errorf("%+v", g)
				}
			}
			return nil
		})
	}
	all("after sync_roots", first.Revision, a.masters...)
	each("when all have agreed", "master 1")
	dest := filepath.Join(t.TempDir(), "large")
	out, errs, _ := one.Run(brine, "salt", "m2", "cp.get_file", "salt://large", dest, "saltenv=prod")
	if b, err := os.ReadFile(dest); err != nil || string(b) != string(large) {
		t.Errorf("a large file is not the same: %d bytes, %v: %s%s", len(b), err, out, errs)
	}
	a.equal(one, 3, nil)
	out, errs, _ = one.Run(brine, "salt", "--async", "m0", "test.ping")
	jid := jidIn(out + errs)
	eventually.Nil(t, soon, "another master tells what the job was given with", func() error {
		out, errs, _ := three.Run(brine, "salt-run", "--out=json", "jobs.print_job", jid)
		if !strings.Contains(out, first.Revision) {
			return errors.New(out + errs)
		}
		return nil
	})
	if d := ask[map[string]string](t, three, "cluster.revision", "jid="+jid); d["revision"] != first.Revision {
		t.Errorf("of the job: %v", d)
	}

	// One master is unreachable during a change and a deletion.
	three.Kill()
	two.Write("states/word", "changed")
	two.Write("pillar/words.sls", "word: changed\n")
	if err := os.Remove(two.Path("states/only-there")); err != nil {
		t.Fatal(err)
	}
	second := ask[choice](t, two, "cluster.sync_roots")
	if second.Changed != 2 || second.Removed != 1 || second.Previous != first.Revision {
		t.Errorf("with one away: %+v", second)
	}
	all("with one away", second.Revision, one, two)
	said := len(three.Log())
	three.Start()
	eventually.Nil(t, soon, "the master that was unreachable serves files again", func() error {
		s, err := text(three, "m2", "salt://word")
		if err == nil && s != "changed" {
			// Retry only if the others were silent for as long as it waits.
			if err = fmt.Errorf("what is old by now: %q", s); !strings.Contains(three.Log()[said:], "did not answer in time; serving") {
				t.Fatal(err)
			}
		}
		return err
	})
	each("when the master that was unreachable is back", "changed")
	for _, id := range ids {
		if s, err := text(one, id, "salt://only-there"); err == nil && s != "" {
			t.Errorf("%s gets what was deleted: %q", id, s)
		}
	}

	// One master is frozen: the others wait only until they notice it.
	one.Signal(syscall.SIGSTOP)
	two.Write("states/word", "frozen")
	two.Write("pillar/words.sls", "word: frozen\n")
	ask[choice](t, two, "cluster.sync_roots")
	one.Signal(syscall.SIGCONT)
	each("when the frozen master goes on", "frozen")

	back := ask[choice](t, three, "cluster.rollback", first.Revision[:12])
	if back.Revision != first.Revision {
		t.Errorf("back to %+v", back)
	}
	each("after the way back", "master 1")
	if s, err := text(one, "m0", "salt://only-there"); s != "two" {
		t.Errorf("what was deleted is not back: %q %v", s, err)
	}
	g := ask[agreement](t, one, "cluster.revision")
	if g.Agreed != first.Revision || len(g.History) != 4 || g.History[0].How != "rollback" {
		t.Errorf("%+v", g)
	}

	late := a.add(daemontest.Host(), two.Host)
	withRoots(t, late)
	late.Write("states/word", "late")
	late.Start()
	all("with one that has joined", first.Revision, append(a.masters, late)...)
	a.equal(late, 4, nil)
}

// TestAgreedBeforeServing: a master that has lost the agreed files, and cannot get them, serves no
// file and no pillar, but everything else. Once its peers are back it serves them.
func TestAgreedBeforeServing(t *testing.T) {
	t.Parallel()
	a := newApart(t, 2, "auto_accept: true\n")
	for _, m := range a.masters {
		withRoots(t, m)
		m.Write("states/word", "own")
		m.Write("pillar/words.sls", "word: own\n")
	}
	one, two := a.masters[0], a.masters[1]
	a.start()
	a.minion("m0", two)
	eventually.Nil(t, soon, "it answers", func() error { return one.PingAll(brine, "m0") })
	one.Write("states/word", "agreed")
	one.Write("pillar/words.sls", "word: agreed\n")
	trees := two.Path(filepath.Join("var/cache/salt/master/brine/masters", two.Name, "revisions"))
	work := filepath.Join(trees, "work")
	if err := errors.Join(os.RemoveAll(work), os.WriteFile(work, nil, 0o600)); err != nil { // it can store nothing
		t.Fatal(err)
	}
	out, errs, code := one.Run(brine, "salt-run", "cluster.sync_roots", "timeout=2")
	if code == 0 && strings.Contains(out, "cannot be reached") {
		t.Log("the other was silent right then, and so not waited for")
	} else if code == 0 || !strings.Contains(out+errs, "nothing was changed") || !strings.Contains(out+errs, two.Name) {
		t.Errorf("a master that can store nothing: %d %s%s", code, out, errs)
	} else if g := ask[agreement](t, one, "cluster.revision"); g.Agreed != "" {
		t.Errorf("agreed all the same: %+v", g)
	}
	if err := errors.Join(os.Remove(work), os.Mkdir(work, 0o700)); err != nil {
		t.Fatal(err)
	}
	c := ask[choice](t, one, "cluster.sync_roots")
	eventually.Nil(t, soon, "the other has it", func() error {
		_, err := os.Stat(filepath.Join(trees, "trees", c.Revision))
		return err
	})
	two.Kill()
	one.Kill()
	if err := os.RemoveAll(trees); err != nil {
		t.Fatal(err)
	}
	two.Start()
	eventually.Nil(t, soon, "it commands", func() error { return two.PingAll(brine, "m0") })
	if s, err := text(two, "m0", "salt://word"); err == nil && s != "" {
		t.Errorf("it serves %q", s)
	}
	if s, err := pillarWord(two, "m0"); err == nil && s == "own" {
		t.Error("it gives an old pillar")
	}
	one.Start()
	eventually.Nil(t, soon, "it serves what was agreed", func() error {
		s, err := text(two, "m0", "salt://word")
		if err == nil && s != "agreed" {
			err = fmt.Errorf("%q", s)
		}
		return err
	})
}

// TestAgreedInTwo: two masters that the network separates choose independently. When they are
// connected again both serve what was chosen later, and both know both choices.
func TestAgreedInTwo(t *testing.T) {
	t.Parallel()
	net := netns.New(t)
	a := &apart{t: t, more: "auto_accept: true\n"}
	left, right := net.Machine(1), net.Machine(2)
	one, two := a.add(left.Addr, right.Addr), a.add(right.Addr, left.Addr)
	one.Within, two.Within = left.Within(), right.Within()
	for i, m := range a.masters {
		withRoots(t, m)
		m.Write("states/word", fmt.Sprint("master ", i))
	}
	a.start()
	a.equalPeers(2)
	net.Part(left, right)
	for _, m := range a.masters {
		eventually.Nil(t, soon, m.Name+" hears nothing of the other", func() error {
			d := ask[map[string]struct{ Up, Self bool }](t, m, "cluster.members")
			for id, x := range d {
				if x.Up && !x.Self {
					return errors.New(id)
				}
			}
			return nil
		})
	}
	first := ask[choice](t, two, "cluster.sync_roots")
	later := ask[choice](t, one, "cluster.sync_roots")
	if first.Revision == later.Revision {
		t.Fatal("there is nothing to choose")
	}
	net.Join(left, right)
	for _, m := range a.masters {
		eventually.Nil(t, soon, m.Name+" serves what was chosen later", func() error {
			g := ask[agreement](t, m, "cluster.revision")
			if g.Agreed != later.Revision || len(g.History) != 2 || g.Members[one.Name] != "serves it" || g.Members[two.Name] != "serves it" {
				return fmt.Errorf("%+v", g)
			}
			return nil
		})
	}
}

// equalPeers waits until all masters know each other.
func (a *apart) equalPeers(n int) {
	a.t.Helper()
	for _, m := range a.masters {
		eventually.Nil(a.t, soon, "the masters know each other", func() error {
			r, err := check(m)
			delete(r.Differences, "tree") // they have different directories
			if err != nil || len(r.Masters) != n || len(r.Differences) > 0 {
				return fmt.Errorf("%+v %w", r, err)
			}
			return nil
		})
	}
}

// TestAgreedFigures logs how long three masters take to agree on BRINE_CLUSTER_FILES files of 10 kB
// each, and on a change of one.
func TestAgreedFigures(t *testing.T) {
	n, err := strconv.Atoi(os.Getenv("BRINE_CLUSTER_FILES"))
	if err != nil {
		t.Skip("BRINE_CLUSTER_FILES does not say how many")
	}
	a := newApart(t, 3, "")
	for _, m := range a.masters {
		withRoots(t, m)
	}
	one := a.masters[0]
	for i := range n {
		one.Write(fmt.Sprintf("states/%d/%d", i/100, i), strings.Repeat(fmt.Sprintf("%9d\n", i), 1000))
	}
	a.start()
	a.equalPeers(3)
	for _, what := range []string{"all", "nothing new", "one file"} {
		if what == "one file" {
			one.Write("states/0/0", "other")
		}
		from := time.Now()
		c := ask[choice](t, one, "cluster.sync_roots")
		t.Logf("%s: %v, %+v", what, time.Since(from).Round(time.Millisecond), c)
	}
	three := a.masters[2]
	three.Kill()
	one.Write("states/0/0", "third")
	ask[choice](t, one, "cluster.sync_roots")
	from := time.Now()
	three.Start()
	g := ask[agreement](t, three, "cluster.revision") // it answers when it has caught up
	t.Logf("one that was unreachable, %v after its start: %q", time.Since(from).Round(time.Millisecond), g.Members[three.Name])
}
