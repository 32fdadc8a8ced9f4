package daemon

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"brine/test/eventually"
	"brine/test/tools"
)

const (
	// answering is an engine of a master: it answers events and says what it has.
	answering = `import json
import salt.utils.event


def start(to, word="none"):
    with salt.utils.event.get_master_event(__opts__, __opts__["sock_dir"], listen=True) as bus:
        try:
            for event in bus.iter_events(tag="ask/", full=True, match_type="startswith"):
                data = {
                    "word": word, "role": __opts__["__role"], "id": __opts__["id"], "tag": event["tag"], "number": event["data"]["data"]["number"],
                    "from": event["data"]["id"], "echo": __salt__["test.echo"]("x"), "os": __grains__.get("kernel", "Linux"),
                    "runner": __runners__["own.double"](4), "keys": "test.arg" in __runners__, "util": __utils__["helping.hi"](),
                }
                with open(to + "/master.new", "w") as file:
                    json.dump(data, file)
                import os
                os.rename(to + "/master.new", to + "/master.json")
                bus.fire_event({"done": True}, "answer/it")
        finally:
            __salt__["file.touch"](to + "/master.end")
`
	// asking is an engine of a minion: it asks until an event of its own arrives on the minion's bus.
	asking = `import json
import os
import time
import salt.utils.event


def start(to):
    with salt.utils.event.get_event("minion", opts=__opts__, sock_dir=__opts__["sock_dir"], listen=True) as bus:
        assert bus.fire_event({"n": 1}, "mine/one")
        got = bus.get_event(wait=20, tag="mine/")
        data = {"role": __opts__["__role"], "id": __grains__["id"], "local": got["n"], "runners": len(__runners__), "pillar": "",
                "own": __salt__["own.triple"](3)}
    number = 0
    try:
        while True:
            number += 1
            __salt__["event.send"]("ask/it", {"number": number})
            data["pillar"] = __salt__["pillar.get"]("from")
            with open(to + "/minion.new", "w") as file:
                json.dump(data, file)
            os.rename(to + "/minion.new", to + "/minion.json")
            time.sleep(0.1)
    finally:
        open(to + "/minion.end", "w").close()
`
)

// enginesPlace is the configuration of a master and a minion with these engines.
func enginesPlace(t *testing.T) *place {
	t.Helper()
	p := newPlace(t, "")
	p.write("master", p.read("master")+"auto_accept: true\npillar_roots: {base: [DIR/pillar]}\n"+
		"engines:\n- second:\n    engine_module: answers\n    to: DIR\n    word: hi\n")
	p.write("minion", p.read("minion")+"engines: {asks: {to: DIR}}\n")
	for _, name := range []string{"master", "minion"} {
		p.write(name, strings.ReplaceAll(p.read(name), "DIR", p.dir))
	}
	p.write("pillar/top.sls", "base: {'*': [a]}\n")
	p.write("pillar/a.sls", "from: the pillar\n")
	p.write("var/cache/salt/master/extmods/engines/answering.py", strings.Replace(answering, "\n\ndef", "def __virtual__():\n    return 'answers'\n\n\ndef", 1))
	p.write("var/cache/salt/master/extmods/runners/own.py", "def double(x):\n    return 2 * x\n")
	p.write("var/cache/salt/master/extmods/utils/helping.py", "def hi():\n    return 'hi ' + __opts__['id']\n")
	p.write("var/cache/salt/minion/extmods/modules/own.py", "def triple(x):\n    return 3 * x\n")
	p.write("var/cache/salt/minion/extmods/engines/asks.py", asking)
	return p
}

// checkEngines waits for what the engines write. A stock minion's engines do not get its pillar.
func checkEngines(t *testing.T, p *place, pillar bool) {
	t.Helper()
	result := func(name string) (data map[string]any) {
		text, err := os.ReadFile(filepath.Join(p.dir, name+".json"))
		if err != nil || json.Unmarshal(text, &data) != nil {
			return nil
		}
		return data
	}
	var onMaster, onMinion map[string]any
	eventually.True(t, "both engines have written what they have", func() bool {
		onMaster, onMinion = result("master"), result("minion")
		return onMaster != nil && onMinion != nil && (!pillar || onMinion["pillar"] == "the pillar")
	})
	delete(onMaster, "number")
	delete(onMinion, "pillar")
	id := fmt.Sprint(onMaster["id"])
	if !strings.HasSuffix(id, "_master") {
		t.Errorf("id of the master: %s", id)
	}
	want := map[string]any{"word": "hi", "role": "master", "id": id, "tag": "ask/it", "from": "one", "echo": "x", "os": "Linux", "runner": 8.0,
		"keys": true, "util": "hi " + id}
	if fmt.Sprint(onMaster) != fmt.Sprint(want) {
		t.Errorf("master: %v, want %v", onMaster, want)
	}
	want = map[string]any{"role": "minion", "id": "one", "local": 1.0, "runners": 0.0, "own": 9.0}
	if fmt.Sprint(onMinion) != fmt.Sprint(want) {
		t.Errorf("minion: %v, want %v", onMinion, want)
	}
}

// TestEngines: engines of a master and of a minion use the event buses, the functions and the
// runners. They end with their daemon, and their finally blocks run.
func TestEngines(t *testing.T) {
	tools.NeedPython(t, "python3", "marshal")
	p := enginesPlace(t)
	master, minion := p.up("salt-master"), p.up("salt-minion")
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(p.read("var/log/salt/master"), p.read("var/log/salt/minion"))
		}
	})
	checkEngines(t, p, true)
	if code := minion.end(syscall.SIGTERM) + master.end(syscall.SIGTERM); code != 0 {
		t.Error(code)
	}
	p.read("minion.end")
	p.read("master.end")
}

// TestFailingEngines: whatever an engine does, the daemon runs and stops, and the engine is started
// again, but not if its module is missing.
func TestFailingEngines(t *testing.T) {
	tools.NeedPython(t, "python3", "marshal")
	begin := "import os\nimport time\n\n\ndef start(to, **_):\n    with open(to, 'a') as file:\n        file.write(str(os.getpid()) + '\\n')\n    "
	for name, c := range map[string]struct {
		code   string
		option string // instead of {x: {to: DIR/began}}
		want   string // in the log
		starts int
	}{
		"raises":   {begin + "raise ValueError('no milk')\n", "", `an engine raised an exception; starting it again`, 2},
		"ends":     {begin + "return 1\n", "", "an engine has ended; starting it again", 2},
		"exits":    {begin + "os._exit(3)\n", "", "the Python helper ended while it ran the engine x: exit status 3", 2},
		"sys exit": {begin + "import sys; sys.exit(3)\n", "", "starting it again", 2},
		"prints":   {begin + "[print('y' * 1023) for _ in range(10000)]\n    time.sleep(1000)\n", "", "prints too much", 1},
		"forks":    {begin + "os.fork()\n", "", "starting it again", 2},
		"hangs": {begin + "while True:\n        try:\n            time.sleep(1000)\n        except BaseException:\n            pass\n",
			"", "starting an engine", 1},
		"thread":     {begin + "import threading; threading.Thread(target=time.sleep, args=(1000,)).start()\n", "", "starting an engine", 1},
		"syntax":     {"def start(\n", "", "SyntaxError in line 1", 0},
		"no start":   {"def begin():\n    pass\n", "", "has no function start", 0},
		"refuses":    {begin + "pass\n\n\ndef __virtual__():\n    return False, 'not on this machine'\n", "", "not on this machine", 0},
		"arguments":  {begin + "pass\n", "engines: [{x: {away: 1}}]\n", "missing 1 required positional argument: 'to'", 0},
		"no map":     {begin + "pass\n", "engines: [{x: [1]}]\n", "the arguments of an engine must be a map", 0},
		"missing":    {begin + "pass\n", "engines: [nothing]\n", "option engines: there is no module for an engine", 0},
		"no python":  {begin + "pass\n", "engines: [{x: {to: DIR/began}}]\npython: /no/python\n", "the option python names /no/python", 0},
		"python off": {begin + "pass\n", "engines: [{x: {to: DIR/began}}]\npython_helper: false\n", "the option python_helper is off", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t, "")
			if c.option == "" {
				c.option = "engines: [{x: {to: DIR/began}}]\n"
			}
			p.write("master", p.read("master")+"log_level_logfile: info\n"+strings.ReplaceAll(c.option, "DIR", p.dir))
			p.write("var/cache/salt/master/extmods/engines/x.py", c.code)
			d := p.up("salt-master")
			starts := func() []string {
				text, err := os.ReadFile(filepath.Join(p.dir, "began"))
				if err != nil {
					return nil
				}
				return strings.Fields(string(text))
			}
			t.Cleanup(func() {
				if t.Failed() {
					t.Logf("%d starts\n%.20000s", len(starts()), p.read("var/log/salt/master"))
				}
			})
			eventually.True(t, "the log has "+c.want, func() bool {
				return strings.Contains(p.read("var/log/salt/master"), c.want) && len(starts()) >= c.starts
			})
			if code := d.end(syscall.SIGTERM); code != 0 || c.starts == 0 && len(starts()) > 0 {
				t.Errorf("exit code %d, starts %d", code, len(starts()))
			}
			if size := len(p.read("var/log/salt/master")); size > 4<<20 {
				t.Errorf("%d bytes of log", size)
			}
			for _, pid := range starts() {
				n, err := strconv.Atoi(pid)
				if err != nil {
					t.Fatal(err)
				}
				eventually.True(t, "the process of the engine is gone", func() bool { return syscall.Kill(n, 0) != nil })
			}
		})
	}
}

// TestEngineAppears: an engine starts once its module exists and can be loaded.
func TestEngineAppears(t *testing.T) {
	tools.NeedPython(t, "python3", "marshal")
	p := newPlace(t, "")
	p.write("master", p.read("master")+"engines: [late]\n")
	d := p.up("salt-master")
	const module = "var/cache/salt/master/extmods/engines/late.py"
	logged := func(what string) {
		t.Helper()
		eventually.True(t, "the log has "+what, func() bool { return strings.Contains(p.read("var/log/salt/master"), what) })
	}
	logged("option engines: there is no module for an engine; if it is one of your own, fetch it with salt-run saltutil.sync_engines")
	p.write(module, "def start(:\n")
	logged("SyntaxError in line 1")
	p.write(module, "import time\n\n\ndef start():\n    open('"+p.dir+"/began', 'w').close()\n    time.sleep(1000)\n")
	eventually.True(t, "the engine has started", func() bool {
		_, err := os.Stat(filepath.Join(p.dir, "began"))
		return err == nil
	})
	if code := d.end(syscall.SIGTERM); code != 0 {
		t.Error(code)
	}
}
