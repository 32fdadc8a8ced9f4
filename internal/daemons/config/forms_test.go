package config

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestForms: parts of options that are not what the option expects are named, and right ones are not.
func TestForms(t *testing.T) {
	for _, c := range []struct {
		kind       Kind
		text, want string // "": no remark
	}{
		{MasterKind, "file_roots: {base: [/srv], __env__: ['/srv/__env__']}", ""},
		{MasterKind, "file_roots: {base: /srv}", "base: expected a list of directories, got the string \"/srv\""},
		{MasterKind, "file_roots: [/srv]", "expected a map of environments, got list"},
		{MasterKind, "external_auth: {ldap: {^filter: x, amy: ['@runner', 'web*': [test.*, {cmd.run: {args: [ls, null], kwargs: {cwd: /}}}]], 'ops%': []}}", ""},
		{MasterKind, "external_auth: {ldap: {amy: test.*}}", "ldap.amy: expected a list of permissions"},
		{MasterKind, "external_auth: {ldap: {amy: [{a: [x], b: [x]}]}}", "ldap.amy[0]: expected one target with its functions, got a map of 2"},
		{MasterKind, "external_auth: {ldap: {amy: [{a: [{cmd.run: {arg: [x]}}]}]}}", `ldap.amy[0].a[0].cmd.run.arg: there is no condition "arg"; did you mean args?`},
		{MasterKind, "external_auth: {pki: {ca_file: /x, amy: [test.*]}}", ""},
		{MasterKind, "peer: {'web.*': [test.ping, {'db*': test.*}], web: []}", ""},
		{MasterKind, "peer_run: {'web(': [test.ping]}", "web(: the regular expression \"web(\" is malformed"},
		{MasterKind, "nodegroups: {a: 'web* or N@b', b: [web1, or, G@os:Debian], c: web1}", ""},
		{MasterKind, "nodegroups: {a: N@c}", `a: nodegroup "c" is not defined`},
		{MasterKind, "nodegroups: {a: N@b, b: N@a}", "a: "},
		{MasterKind, "extmod_whitelist: {modules: [x], state: y}", `state: there is no kind of modules "state"; did you mean states?`},
		{MasterKind, "fileserver_backend: roots,git\ngitfs_remotes: [https://x/y, {https://x/z: [{root: a}]}]", ""},
		{MasterKind, "gitfs_remotes: [https://x/y]", "fileserver_backend does not name gitfs"},
		{MasterKind, "state_output: mixed_id\ntop_file_merging_strategy: same", ""},
		{MasterKind, "top_file_merging_strategy: mrge", "did you mean merge?"},
		{MinionKind, "schedule: {enabled: true, a: {function: test.ping, seconds: 5, args: [x], splay: {start: 1, end: 2}, returner: mysql, _seconds: 5}}", ""},
		{MinionKind, "schedule: {a: {function: test.ping, secnods: 5}}", `a: there is no setting of jobs "secnods"; did you mean seconds?`},
		{MinionKind, "schedule: {a: {function: test.ping, seconds: 5, range: {strat: 8am}}}", `a.range.strat: there is no setting "strat"`},
		{MinionKind, "schedule: {a: {function: test.ping, seconds: 5, args: x}}", "a.args: expected a list of arguments"},
		{MinionKind, "schedule: {a: {function: test.ping, seconds: 5, returner: mysq}}", `there is no returner "mysq"`},
		{MinionKind, "beacons: {enabled: true, diskusage: [{/: 80%, interval: 5}], own: [{beacon_module: load, averages: {}}], theirs: [{x: y}]}", ""},
		{MinionKind, "beacons: {own: [{beacon_module: load, average: {}}]}", `own: there is no setting of this beacon "average"; did you mean averages?`},
		{MinionKind, "x509_signing_policies: {www: [{minions: 'web*'}, {CN: x}, {basicConstraints: 'CA:true'}], b: {O: x}}", ""},
		{MinionKind, "x509_signing_policies: {www: [{mionions: 'web*'}]}", `www[0].mionions: there is no setting "mionions"; did you mean minions?`},
		{MinionKind, "jinja_env: {TRIM_BLOCKS: true}\nmine_functions: {a: , b: [x], c: {mine_function: test.ping}}\nstate_queue: 2\nstate_aggregate: [pkg]", ""},
		{MinionKind, "jinja_sls_env: {trim_blocks: true, variable_start_string: [a]}", "variable_start_string: expected a string, got list"},
		{MinionKind, "ssl: {certfil: x}", `certfil: there is no setting "certfil"; did you mean certfile?`},
		{MinionKind, "decrypt_pillar: ['a:b', 'c:d': gpg]", ""},
		{MinionKind, "decrypt_pillar: ['a:b': gpgg]", `a:b: there is no renderer "gpgg"; did you mean gpg?`},
		{MinionKind, "id_function: {a.b: }\nid: x", "id is set"},
	} {
		dir := t.TempDir()
		write(t, dir, string(c.kind), c.text+"\n")
		tree, err := Load(filepath.Join(dir, string(c.kind)), c.kind, quiet())
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, r := range tree.Remarks(&Master{}, &Minion{}) {
			got = append(got, r.Text)
		}
		if (len(got) == 0) != (c.want == "") || c.want != "" && !slices.ContainsFunc(got, func(s string) bool { return strings.Contains(s, c.want) }) {
			t.Errorf("%s:\ngot  %q\nwant %q", c.text, got, c.want)
		}
	}
}

// TestFormerEnvironment: the former name of saltenv counts, as in Salt.
func TestFormerEnvironment(t *testing.T) {
	for text, want := range map[string]string{"environment: dev\n": "dev", "environment: dev\nsaltenv: prod\n": "prod"} {
		dir := t.TempDir()
		write(t, dir, "minion", text)
		_, tree, err := LoadMinion(filepath.Join(dir, "minion"), false, quiet())
		if err != nil || tree.Values.Str("saltenv") != want {
			t.Errorf("%s: %v, %v", text, tree.Values.Str("saltenv"), err)
		}
	}
}

// TestListAsID: a list is no id. Its text would be one.
func TestListAsID(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "minion", "id: [a]\n")
	if _, _, err := LoadMinion(filepath.Join(dir, "minion"), false, quiet()); err == nil || !strings.Contains(err.Error(), "id: expected a string, got list") {
		t.Error(err)
	}
}
