package interop

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"brine/test/daemontest"
	"brine/test/eventually"
)

// TestSaltCallAndDaemon: salt-call makes changes that the running minion must learn of, for each
// pair of programs.
func TestSaltCallAndDaemon(t *testing.T) {
	for _, p := range []struct{ daemon, call kind }{{brine, brine}, {brine, stock}, {stock, brine}} {
		t.Run(fmt.Sprintf("%s-daemon/%s-call", p.daemon, p.call), func(t *testing.T) {
			if p.daemon == stock || p.call == stock {
				stockTree(t)
			}
			testSaltCall(t, p.daemon, p.call)
		})
	}
}

// told is one call of salt-call: the events that it fires or that answer it, each a tag and a part
// of its data, and the daemon's answer afterwards.
type told struct {
	call   string
	events []string
	ask    string
	want   string
}

const (
	pillarDone  = `/salt/minion/minion_pillar_refresh_complete	"complete": true`
	modulesDone = `/salt/minion/minion_mod_refresh_complete	"complete": true`
	diskBeacon  = `[{"/": "1%"}, {"interval": 3600}]`
)

var tellings = []told{
	{"grains.setval foo x", []string{`pillar_refresh	"clean_cache": false`, pillarDone}, "grains.get foo", `"x"`},
	{"grains.setval foo y refresh_pillar=False", []string{"module_refresh\t"}, "grains.get foo", `"y"`},
	{"grains.append list a", []string{`pillar_refresh	"clean_cache": false`, pillarDone}, "grains.get list", `["a"]`},
	{"grains.delval foo", []string{"pillar_refresh\t", pillarDone}, "grains.get foo default=none", "null"},
	{"grains.delkey list force=True", []string{"pillar_refresh\t", pillarDone}, "grains.get list default=none", `"none"`},
	{"saltutil.refresh_grains", []string{`pillar_refresh	"clean_cache": false`, pillarDone}, "", ""},
	{"saltutil.refresh_grains refresh_pillar=False", []string{"module_refresh\t"}, "", ""},
	{"saltutil.refresh_modules", []string{"module_refresh\t"}, "", ""},
	{"saltutil.refresh_modules async=False", []string{`module_refresh	"notify": true`, modulesDone}, "", ""},
	{"saltutil.refresh_beacons", []string{"beacons_refresh\t"}, "", ""},
	{"saltutil.refresh_matchers", []string{"matchers_refresh\t"}, "", ""},
	{"saltutil.sync_modules", []string{"module_refresh\t"}, "", ""},
	{"saltutil.sync_beacons", []string{"beacons_refresh\t"}, "", ""},
	{"saltutil.sync_grains", []string{`pillar_refresh	"clean_cache": false`, pillarDone}, "", ""},
	{"saltutil.sync_all", []string{"pillar_refresh\t", pillarDone}, "", ""},
	{"beacons.add diskusage|" + diskBeacon, []string{
		`manage_beacons	"func": "list"`, `/salt/minion/minion_beacons_list_complete	"complete": true`,
		`/salt/minion/minion_beacons_list_available_complete	"diskusage"`, `/salt/minion/minion_beacon_validation_complete	"valid": true`,
		`manage_beacons	"func": "add"`, `/salt/minion/minion_beacon_add_complete	"Added new beacon item: diskusage"`,
	}, "beacons.list return_yaml=False", `{"diskusage":[{"/":"1%"},{"interval":3600}]}`},
	{`beacons.modify diskusage|[{"/": "2%"}]`, []string{`/salt/minion/minion_beacon_modify_complete	"Updating settings for beacon item: diskusage"`},
		"beacons.list return_yaml=False", `{"diskusage":[{"/":"2%"}]}`},
	{"beacons.disable_beacon diskusage", []string{`/salt/minion/minion_beacon_disabled_complete	"Disabling beacon item diskusage"`},
		"beacons.list return_yaml=False", `{"diskusage":[{"/":"2%"},{"enabled":false}]}`},
	{"beacons.enable_beacon diskusage", []string{`/salt/minion/minion_beacon_enabled_complete	"Enabling beacon item diskusage"`}, "", ""},
	{"beacons.save", []string{"/salt/minion/minion_beacons_list_complete\t"}, "", ""},
	{"beacons.disable", []string{"/salt/minion/minion_beacons_disabled_complete\t"}, "", ""},
	{"beacons.enable", []string{"/salt/minion/minion_beacons_enabled_complete\t"}, "", ""},
	{"beacons.delete diskusage", []string{`/salt/minion/minion_beacon_delete_complete	"Deleting beacon item: diskusage"`}, "", ""},
	{"beacons.reset", []string{`/salt/minion/minion_beacon_reset_complete	"Beacons have been reset"`}, "", ""},
	{"schedule.add j function=test.ping seconds=3600", []string{"/salt/minion/minion_schedule_add_complete\t"}, "schedule.is_enabled j", `"seconds":3600`},
	{"schedule.modify j function=test.ping seconds=1800", []string{`manage_schedule	"func": "modify"`}, "schedule.is_enabled j", `"seconds":1800`},
	{"schedule.run_job j", []string{`manage_schedule	"func": "run_job"`}, "", ""},
	{"schedule.disable_job j", []string{"/salt/minion/minion_schedule_disabled_job_complete\t"}, "schedule.is_enabled j", `"enabled":false`},
	{"schedule.delete j", []string{"/salt/minion/minion_schedule_delete_complete\t"}, "schedule.is_enabled j", `{}`},
	{`environ.setenv|{"BRINE_SEEN": "yes"}|update_minion=True`, []string{`environ_setenv	"BRINE_SEEN": "yes"`}, "environ.get BRINE_SEEN", `"yes"`},
}

func testSaltCall(t *testing.T, daemon, call kind) {
	host := daemontest.Host()
	tree := daemontest.ShortDir(t)
	write := func(file, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(tree, file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	master := newMaster(t, brine, "boss", host, "auto_accept: true\ntimeout: 15\nfile_roots: {base: ["+tree+"]}\npillar_roots: {base: ["+tree+"]}\n")
	write("g.sls", "g: {grains.present: [{name: role}, {value: web}]}\n")
	write("top.sls", "base: {'*': [p]}\n")
	write("p.sls", "pk: old\n")
	master.Start()
	minion := newMinion(t, daemon, "mi", []string{host}, "")
	minion.Write("minion.d/none.conf", "") // Salt's beacons.save does not make the directory
	minion.Start()
	eventually.Nil(t, stockLimit, "the minion answers", func() error { return master.PingAll(brine, "mi") })

	run := func(args ...string) {
		t.Helper()
		if out, errs, code := minion.Run(call, "salt-call", append([]string{"-l", "error"}, args...)...); code != 0 {
			t.Errorf("salt-call %q: exit code %d, %s %s", args, code, out, errs)
		}
	}
	// Changes by Brine's salt-call are effective when it ends. Stock's does not wait.
	check := func(what string, ok func() error) {
		t.Helper()
		if call == brine {
			if err := ok(); err != nil {
				t.Errorf("%s: %v", what, err)
			}
			return
		}
		eventually.Nil(t, stockLimit, what, ok)
	}

	run("state.apply", "g")
	check("the minion is found by its new role", func() error {
		out, errs, code := master.Run(brine, "salt", "-G", "role:web", "test.ping", "--out=json", "--static")
		if code != 0 || !strings.Contains(out, `"mi": true`) {
			return fmt.Errorf("%d %s %s", code, out, errs)
		}
		return nil
	})

	write("p.sls", "pk: new\n")
	run("saltutil.refresh_pillar", "wait=True")
	if got, err := asked(master, "pillar.get pk"); err != nil || got != `"new"` {
		t.Errorf("pillar after refresh_pillar wait=True: %s %v", got, err)
	}

	for _, c := range tellings {
		t.Run(strings.Fields(c.call)[0], func(t *testing.T) {
			heard := minion.Tagged("")
			args := strings.Split(c.call, "|")
			run(append(strings.Fields(args[0]), args[1:]...)...)
			for _, want := range c.events {
				eventually.Nil(t, stockLimit, want, func() error { return event(heard(), want) })
			}
			if c.ask == "" {
				return
			}
			check(c.ask, func() error {
				if got, err := asked(master, c.ask); err != nil || !strings.Contains(got, c.want) {
					return fmt.Errorf("after %s: %s %v, want %s", c.call, got, err, c.want)
				}
				return nil
			})
		})
	}
}

// event looks for a tag and a part of its data.
func event(heard, want string) error {
	tag, data, _ := strings.Cut(want, "\t")
	for line := range strings.Lines(heard) {
		if t, d, _ := strings.Cut(line, "\t"); t == tag && strings.Contains(d, data) {
			return nil
		}
	}
	return fmt.Errorf("not among %q", heard)
}

// asked returns the answer of the minion's daemon, as JSON without blanks.
func asked(master *node, call string) (string, error) {
	rets, err := master.SaltJSON(brine, append([]string{"mi"}, strings.Fields(call)...)...)
	if err != nil {
		return "", err
	}
	b, err := json.Marshal(rets["mi"])
	return string(b), err
}

// TestSaltCallTellsAllMasters: salt-call, which signs in to one master, stores data in the mines of
// both masters of a minion.
func TestSaltCallTellsAllMasters(t *testing.T) {
	one, two, minion := hotPair(t, "")
	if out, errs, code := minion.Run(brine, "salt-call", "mine.send", "test.echo", "left"); code != 0 {
		t.Fatalf("salt-call mine.send: %d %s %s", code, out, errs)
	}
	for _, m := range []*node{one, two} {
		eventually.Nil(t, stockLimit, m.Name+" has the data", func() error {
			out, errs, _ := minion.Run(brine, "salt-call", "--master="+m.Host, "mine.get", "mi", "test.echo", "--out=json")
			if !strings.Contains(out, `"mi": "left"`) {
				return fmt.Errorf("%s %s", out, errs)
			}
			return nil
		})
	}
}

// hotPair starts two masters of one key and a minion of both.
func hotPair(t *testing.T, more string) (one, two, minion *node) {
	hosts := []string{daemontest.Host(), daemontest.Host()}
	one = newMaster(t, brine, "one", hosts[0], "auto_accept: true\n"+more).Start()
	one.Kill() // it has created the key
	two = newMaster(t, brine, "two", hosts[1], "auto_accept: true\n"+more)
	two.Write("etc/salt/pki/master/master.pem", one.Read("etc/salt/pki/master/master.pem"))
	two.Write("etc/salt/pki/master/master.pub", one.Read("etc/salt/pki/master/master.pub"))
	one.Start()
	two.Start()
	minion = newMinion(t, brine, "mi", hosts, "").Start()
	for _, m := range []*node{one, two} {
		eventually.Nil(t, stockLimit, "the minion answers "+m.Name, func() error { return m.PingAll(brine, "mi") })
	}
	return one, two, minion
}

// TestMasterIsOneName queries a minion of two masters for its master in all ways: the answer is the
// name of the asking master, never a list.
func TestMasterIsOneName(t *testing.T) {
	tree := daemontest.ShortDir(t)
	for file, text := range map[string]string{"top.sls": "base: {'*': [p]}\n", "p.sls": "from: {{ grains.master }}\n"} {
		if err := os.WriteFile(filepath.Join(tree, file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	one, two, minion := hotPair(t, "pillar_roots: {base: ["+tree+"]}\n")
	for _, m := range []*node{one, two} {
		for _, call := range []string{"grains.get master", "config.get master", "config.option master",
			"slsutil.renderer string={{grains.master}} default_renderer=jinja",
			"slsutil.renderer string={{opts.master}} default_renderer=jinja"} {
			if got, err := asked(m, call); err != nil || got != fmt.Sprintf("%q", m.Host) {
				t.Errorf("%s asks for %s: %s %v", m.Name, call, got, err)
			}
		}
		// All masters get the same data.
		if got, err := asked(m, "pillar.get from"); err != nil || got != fmt.Sprintf("%q", one.Host) {
			t.Errorf("the pillar of %s says %s %v", m.Name, got, err)
		}
	}
	out, errs, _ := minion.Run(brine, "salt-call", "--out=json", "grains.get", "master")
	if !strings.Contains(out, `"local": "`+one.Host+`"`) && !strings.Contains(out, `"local": "`+two.Host+`"`) {
		t.Errorf("salt-call: %s %s", out, errs)
	}
	if out, errs, _ = minion.Run(brine, "salt-call", "--local", "--out=json", "grains.get", "master"); !strings.Contains(out, `"local": "`+one.Host+`"`) {
		t.Errorf("salt-call --local: %s %s", out, errs)
	}
}

// TestWhatMinionsAnswer requests data that Salt's clients read.
func TestWhatMinionsAnswer(t *testing.T) {
	host := daemontest.Host()
	master := newMaster(t, brine, "boss", host, "auto_accept: true\n").Start()
	newMinion(t, brine, "mi", []string{host}, "schedule: {j: {function: test.ping, seconds: 3600}}\n").Start()
	eventually.Nil(t, stockLimit, "the minion answers", func() error { return master.PingAll(brine, "mi") })
	for call, want := range map[string]string{
		"schedule.list return_yaml=False":       `"name":"j"`,
		"sys.list_runners":                      `"jobs"`,
		"sys.list_runner_functions jobs":        `"jobs.lookup_jid"`,
		"sys.runner_doc jobs.lookup_jid":        `"jobs.lookup_jid":"`,
		"sys.runner_argspec jobs.lookup_jid":    `"args":["jid"`,
		"sys.list_state_functions test":         `"test.nop"`,
		"beacons.list_available return_yaml=no": `"memusage"`,
	} {
		if got, err := asked(master, call); err != nil || !strings.Contains(got, want) {
			t.Errorf("%s: %s %v, want %s", call, got, err, want)
		}
	}
	heard := master.Tagged("my/tag")
	if got, err := asked(master, "event.send my/tag"); err != nil || got != "true" {
		t.Errorf("event.send: %s %v", got, err)
	}
	eventually.Nil(t, stockLimit, "the event", func() error { return event(heard(), `my/tag	"pretag": null`) })
}

// TestPillarTimesOut: a pillar takes longer than request_channel_timeout.
func TestPillarTimesOut(t *testing.T) {
	host := daemontest.Host()
	newMaster(t, brine, "boss", host, "auto_accept: true\next_pillar: [cmd_yaml: 'sleep 5; echo \"{a: 1}\"']\n").Start()
	minion := newMinion(t, brine, "mi", []string{host}, "request_channel_timeout: 1\n")
	eventually.Nil(t, stockLimit, "salt-call says so", func() error {
		_, errs, _ := minion.Run(brine, "salt-call", "test.ping")
		if !strings.Contains(errs, "Pillar timed out after 1 seconds") {
			return fmt.Errorf("%s", errs)
		}
		return nil
	})
}
