package daemon

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"brine/test/eventually"
	"brine/test/tools"
)

// TestStockEngine: a minion runs an engine of stock Salt, with the functions of Brine.
func TestStockEngine(t *testing.T) {
	tree, python := tools.StockSalt(t)
	t.Setenv("PYTHONPATH", tree)
	p := newPlace(t, "")
	p.write("master", strings.ReplaceAll(p.read("master")+"auto_accept: true\nengines: [{keeps: {to: DIR/got}}]\n", "DIR", p.dir))
	p.write("minion", strings.ReplaceAll(p.read("minion")+"python: "+python+"\npython_fallback: salt\n"+
		"engines: [{script: {cmd: DIR/says, output: json, interval: 1}}]\n", "DIR", p.dir))
	p.write("says", "#!/bin/sh\necho '{\"tag\": \"said/it\", \"data\": {\"a\": 1}}'\n")
	if err := os.Chmod(filepath.Join(p.dir, "says"), 0o755); err != nil {
		t.Fatal(err)
	}
	p.write("var/cache/salt/master/extmods/engines/keeps.py", `import json
import os
import salt.utils.event


def start(to):
    with salt.utils.event.get_event("master", opts=__opts__, sock_dir=__opts__["sock_dir"]) as bus:
        while True:
            event = bus.get_event(tag="said/", wait=5)
            if event:
                with open(to + ".new", "w") as file:
                    json.dump([event["id"], event["data"]], file)
                os.rename(to + ".new", to)
`)
	master, minion := p.up("salt-master"), p.up("salt-minion")
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(p.read("var/log/salt/master"), p.read("var/log/salt/minion"))
		}
	})
	var got string
	eventually.True(t, "the master has the event of the engine", func() bool {
		text, err := os.ReadFile(filepath.Join(p.dir, "got"))
		got = string(text)
		return err == nil
	})
	if got != `["one", {"a": 1, "id": "one"}]` {
		t.Errorf("got %s", got)
	}
	if code := minion.end(syscall.SIGTERM) + master.end(syscall.SIGTERM); code != 0 {
		t.Error(code)
	}
}

// TestEnginesOfStock runs the engines of TestEngines on a stock master and a stock minion.
func TestEnginesOfStock(t *testing.T) {
	tree, python := tools.StockSalt(t)
	p := enginesPlace(t)
	p.write("master", p.read("master")+"user: root\n")
	p.write("minion", p.read("minion")+"user: root\n")
	for _, program := range []string{"salt-master", "salt-minion"} {
		cmd := exec.CommandContext(t.Context(), python, "-W", "ignore", tree+"/scripts/"+program, "-c", p.dir, "-l", "error")
		cmd.Env = append(os.Environ(), "PYTHONPATH="+tree)
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(p.read("var/log/salt/master"), p.read("var/log/salt/minion"))
		}
	})
	checkEngines(t, p, false)
}
