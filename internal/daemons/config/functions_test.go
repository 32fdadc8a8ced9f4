package config

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestMissingFunctions: functions that options name and that do not exist are reported with the nearest name.
// Existing ones and those of the user's own modules are not.
func TestMissingFunctions(t *testing.T) {
	for _, c := range []struct {
		kind       Kind
		text, want string // "": no remark
	}{
		{MinionKind, "schedule: {enabled: true, a: {function: state.highstate}, b: {func: own.run}, c: {fun: claimed.run}, d: {seconds: 5}}", ""},
		{MinionKind, "schedule: {a: {function: state.highstat}}", `a.function: there is no function "state.highstat"; did you mean state.highstate?`},
		{MinionKind, "schedule: {a: {func: state}}", `a.func: there is no function "state"; expected the name of a module, a dot and the name`},
		{MinionKind, "schedule: {a: {function: state.frobnicate}}", `there is no function "state.frobnicate" in the module state`},
		{MinionKind, "schedule: {a: {function: frobnicator.run}}", `if its module is one of your own, fetch it with salt-call saltutil.sync_modules`},
		{MinionKind, "file_client: local\nfile_roots: {base: [DIR/srv]}\nschedule: {a: {function: served.run}}", ""},
		{MinionKind, "file_roots: {base: [DIR/srv]}\nschedule: {a: {function: served.run}}", "if its module is one of your own"},
		{MinionKind, "python_fallback: salt\nschedule: {a: {function: frobnicator.run}}", ""},
		{MinionKind, "mine_functions: {test.ping: [], a: [{mine_function: network.ip_addrs}, eth0], b: {mine_function: own.run}}", ""},
		{MinionKind, "mine_functions: {network.ip_adrs: []}", `network.ip_adrs: there is no function "network.ip_adrs"; did you mean network.ip_addrs?`},
		{MinionKind, "mine_functions: {a: [{mine_function: grains.itmes}]}", `a: there is no function "grains.itmes"; did you mean grains.items?`},
		{MinionKind, "mine_functions: {a: {mine_function: grains.itmes}}", "did you mean grains.items?"},
		{MinionKind, "state_aggregate: [pgk]", `there is no state module "pgk"; did you mean pkg?`},
		{MinionKind, "state_aggregate: [pkg, frobnicator]", ""},
		{MasterKind, "schedule: {a: {function: manage.stauts}}", ""}, // the option has no effect
		{MasterKind, "peer: {'.*': [test.ping, 'test.*', network.ip, '.*', own.run, frobnicator.run, 'pkg\\.list_pkgs', {'db*': [test.echo]}]}", ""},
		{MasterKind, "peer: {'.*': [tset.ping]}", `.*[0]: "tset.ping" permits no function; did you mean test.ping?`},
		{MasterKind, "peer: {'.*': ['tset.*']}", `"tset.*" permits no function; did you mean test?`},
		{MasterKind, "peer_run: {'.*': [manage.status, 'jobs.*']}", ""},
		{MasterKind, "peer_run: {'.*': [manage.stauts]}", "did you mean manage.status?"},
		{MasterKind, "publisher_acl: {amy: [{'web*': [tset.ping]}]}", `amy[0].web*[0]: "tset.ping" permits no function; did you mean test.ping?`},
		{MasterKind, "external_auth: {ldap: {^filter: x, amy: ['@runner', {'@wheel': [key.accept]}, {'@jobs': [list_jobs]}]}}", ""},
		{MasterKind, "external_auth: {ldap: {amy: [{'@wheel': [key.accpt]}]}}", `ldap.amy[0].@wheel[0]: "key.accpt" permits no function; did you mean key.accept?`},
		{MasterKind, "external_auth: {ldap: {amy: [{'web*': [{cmd.rnu: {args: [ls]}}]}]}}", "did you mean cmd.run?"},
		{MasterKind, "permission_roles: {ops: {permissions: [{'web*': [cmd.rnu]}]}}",
			`ops.permissions[0].web*[0]: "cmd.rnu" permits no function; did you mean cmd.run?`},
		{MasterKind, "permission_roles: {run: {permissions: ['@jobs']}}\nexternal_auth: {ldap: {amy: ['@role:run']}}", ""},
		{MasterKind, "external_auth: {ldap: {amy: ['@runnr']}}", `there is no permission "@runnr"; did you mean @runner?`},
		{MasterKind, "external_auth: {ldap: {amy: [{'@jbos': [list_jobs]}, '@mine_of_my_own']}}", "did you mean @jobs?"},
	} {
		dir := t.TempDir()
		for name, text := range map[string]string{
			"var/cache/salt/minion/extmods/modules/own.py":   "",
			"var/cache/salt/minion/extmods/modules/other.py": "__virtualname__ = 'claimed'\n",
			"var/cache/salt/master/extmods/modules/own.py":   "",
			"srv/_modules/served.py":                         "",
		} {
			if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
				t.Fatal(err)
			}
			write(t, dir, name, text)
		}
		write(t, dir, string(c.kind), "root_dir: "+dir+"\n"+strings.ReplaceAll(c.text, "DIR", dir)+"\n")
		tree, err := Load(filepath.Join(dir, string(c.kind)), c.kind, quiet())
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		declared := declaredNames([]any{&Minion{}})
		if c.kind == MasterKind {
			declared = declaredNames([]any{&Master{}})
		}
		for _, key := range []string{"state_aggregate", "external_auth"} {
			for _, r := range formRemarks(key, tree.Values.At(key)) {
				got = append(got, r.Text)
			}
		}
		for _, r := range tree.missingFunctions(func(f NamedFunction) bool { return declared[f.Key] }) {
			got = append(got, r.Text)
		}
		if (len(got) == 0) != (c.want == "") || c.want != "" && !slices.ContainsFunc(got, func(s string) bool { return strings.Contains(s, c.want) }) {
			t.Errorf("%s:\ngot  %q\nwant %q", c.text, got, c.want)
		}
	}
}
