package runners

import (
	"strings"
	"testing"

	"brine/internal/py/value"
)

func TestCmd(t *testing.T) {
	h := newHouse(t)
	h.want("salt.cmd test.ping", "True")
	h.want("salt.cmd test.arg 1 2 a=1 __x=2", "{'args': (1, 2), 'kwargs': {'a': 1}}")
	h.want("salt.cmd test.false", "False")
	h.want("salt.cmd config.get interface", "'127.0.0.1'")
	h.want("salt.cmd grains.get kernel", "'Linux'")
	h.want("salt.cmd grains.get id", "'vm_master'")
	for _, f := range []string{"no.such", "grains.setval", "environ.setval", "data.update", "cmd.run", "log.error"} { // change the master or its machine
		if got := h.call("salt.cmd " + f + " a b").Return; !strings.HasPrefix(value.Str(got),
			"'"+f+"' is not available. On a master salt.cmd allows only ") {
			t.Errorf("%s: %s", f, value.Repr(got))
		}
	}
	if o := h.call("salt.cmd test.ping with_pillar=True"); o.Err == nil {
		t.Error("with_pillar is ignored")
	}
	h.want("salt.cmd test.ping with_pillar=False", "True")
	if o := h.call("salt.cmd test.echo"); o.Retcode != 0 ||
		!strings.HasPrefix(value.Str(o.Return), "\nPassed invalid arguments: echo() missing 1 required positional argument: 'text'\n\nUsage:\n") {
		t.Errorf("wrong arguments: %d, %v", o.Retcode, o.Return)
	}
}

func TestExecute(t *testing.T) {
	h := newHouse(t)
	h.want("salt.execute '*' test.ping timeout=.1 gather_job_timeout=.1", "{'alpha': True, 'beta': True}")
	h.want("salt.execute alpha,beta test.version arg='[]' kwarg='{a: 1}' tgt_type=list", "{'alpha': '3007.10+0.g3b3728bd2b', 'beta': '3006.9'}")
	h.want("salt.execute nobody test.ping", "{}")
}

func TestMasterJobs(t *testing.T) {
	h := newHouse(t)
	h.want("jobs.master", "[]")
	h.runs = []*value.Dict{value.DictOf("fun", "runner.test.sleep", "jid", "1"), value.DictOf("fun", "runner.jobs.master", "jid", "")} // "" means this master
	h.want("jobs.master", "[{'fun': 'runner.test.sleep', 'jid': '1'}]")
}
