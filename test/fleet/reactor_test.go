package fleet

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"brine/internal/daemons/master"
	"brine/internal/py/value"
	"brine/internal/py/yaml"
	"brine/test/eventually"
)

// TestReactor: the reactor reacts to a minion's events with jobs, runners, wheel functions and
// functions on the master's machine; and events are written to a file.
func TestReactor(t *testing.T) {
	dir := shortDir(t)
	write(t, filepath.Join(dir, "all.sls"), fmt.Sprintf(`{%% set who = data['id'] %%}
ask:
  local.test.arg:
    - tgt: {{ who }}
    - args: {said: {{ data['data']['what'] | json }}, tag: {{ tag }}, sum: {{ salt['test.echo'](3) }}}
note:
  runner.test.arg:
    - args: {from: {{ who }}}
look:
  wheel.key.list_all: []
here:
  caller.file.write:
    - args: [%s/here, {{ who }}]
`, dir))
	conf, err := yaml.Load([]byte(fmt.Sprintf("- my/*: [%s/all.sls]", dir)), "reactor")
	if err != nil {
		t.Fatal(err)
	}
	kept := filepath.Join(dir, "sub", "events")
	m := startMaster(t, "one", "tcp", func(cfg *master.Config) {
		cfg.Keys.AutoAccept = true
		cfg.Reactor.Reactor, cfg.Reactor.Threads, cfg.Reactor.Queue = conf, 2, 100
		cfg.EventReturn.Returners, cfg.EventReturn.RawFile = value.ListOf("rawfile_json", "nosuch"), kept
		cfg.EventReturn.Whitelist, cfg.EventReturn.Blacklist = value.ListOf("my/*", "salt/run/*", "salt/wheel/*"), "*/new"
	})
	starts := m.events("salt/minion/")
	startMinion(t, "w1", "tcp", []*theMaster{m}, nil)
	m.awaitStart(starts, "w1")
	events := m.events("salt/")
	m.command("glob", "w1", "event.send", 1, "my/tag", value.DictOf("__kwarg__", true, "what", "a \"word\""))
	want := map[string]string{
		"job":    `{'args': [], 'kwargs': {'said': 'a "word"', 'tag': 'my/tag', 'sum': 3}}`,
		"runner": "{'args': [], 'kwargs': {'from': 'w1'}}",
		"wheel":  "['w1']",
	}
	for len(want) > 0 {
		e := <-events
		switch {
		case strings.HasPrefix(e.Tag, "salt/job/") && strings.HasSuffix(e.Tag, "/ret/w1") && e.Data.Str("fun") == "test.arg":
			ret := e.Data.Dict("return")
			kw := ret.Dict("kwargs")
			for _, k := range kw.Keys() {
				if strings.HasPrefix(value.Str(k), "__pub_") {
					kw.Delete(k)
				}
			}
			if got := value.Repr(ret); got != want["job"] {
				t.Errorf("the minion was asked: %s", got)
			}
			delete(want, "job")
		case strings.HasPrefix(e.Tag, "salt/run/") && strings.HasSuffix(e.Tag, "/ret"):
			if got := value.Repr(e.Data.At("return")); got != want["runner"] || e.Data.Str("user") != "Reactor" {
				t.Errorf("the runner returned %s for %s", got, e.Data.Str("user"))
			}
			delete(want, "runner")
		case strings.HasPrefix(e.Tag, "salt/wheel/") && strings.HasSuffix(e.Tag, "/ret"):
			if got := value.Repr(e.Data.Dict("return").At("minions")); got != want["wheel"] || e.Data.Str("user") != "Reactor" {
				t.Errorf("the wheel function returned %s for %s", got, e.Data.Str("user"))
			}
			delete(want, "wheel")
		}
	}
	eventually.Nil(t, eventually.Limit, "the function of the master's machine", func() error {
		b, err := os.ReadFile(filepath.Join(dir, "here"))
		if err == nil && strings.TrimSpace(string(b)) != "w1" {
			err = fmt.Errorf("it wrote %q", b)
		}
		return err
	})
	eventually.Nil(t, eventually.Limit, "the events are kept", func() error {
		b, err := os.ReadFile(kept)
		if err != nil {
			return err
		}
		var tags []string
		for line := range strings.Lines(string(b)) {
			var e struct {
				Tag  string
				Data map[string]any
			}
			if err := json.Unmarshal([]byte(line), &e); err != nil || e.Data["_stamp"] == nil {
				t.Fatalf("%v: %s", err, line)
			}
			if strings.HasSuffix(e.Tag, "/new") || strings.HasPrefix(e.Tag, "salt/job/") {
				t.Fatalf("%s is kept", e.Tag)
			}
			tags = append(tags, e.Tag)
		}
		if s := strings.Join(tags, " "); !strings.Contains(s, "my/tag") || !strings.Contains(s, "salt/run/") || !strings.Contains(s, "salt/wheel/") {
			return fmt.Errorf("kept: %s", s)
		}
		return nil
	})
	if fi, err := os.Stat(kept); err != nil || fi.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", fi.Mode(), err)
	}
	if log := m.log.String(); !strings.Contains(log, "cannot use a returner of event_return") {
		t.Error("the log does not say that a keeper is not known")
	}
}
