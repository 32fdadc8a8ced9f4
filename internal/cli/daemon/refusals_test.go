package daemon

import (
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"brine/test/eventually"
)

// TestUnsupportedParts: a daemon does not start with a part of Salt's configuration that Brine
// lacks and that affects secrets, access or safety. The check and the start name each part, its
// place, and the option that overrides the refusal. With that option they only warn.
func TestUnsupportedParts(t *testing.T) {
	for _, c := range []struct{ kind, text, name, want string }{
		{"master", "ext_pillar: [{vault: x}, {cmd_yaml: 'true'}]", "ext_pillar.vault", `ext_pillar: there is no "vault"; use one of cmd_json, `},
		{"master", "external_auth: {django: {amy: [test.*]}}", "external_auth.django", `external_auth: there is no "django"; use one of auto, `},
		{"master", "fileserver_backend: [roots, svnfs]", "fileserver_backend.svnfs", `fileserver_backend: there is no "svnfs"; use one of git, `},
		{"master", "master_tops: {reclass: {}}", "master_tops.reclass", `master_tops: there is no "reclass"; use one of ext_nodes`},
		{"master", "event_return: elasticsearch", "event_return.elasticsearch", `event_return: there is no "elasticsearch"; use one of local, `},
		{"master", "event_return: [rawfile_json, kafka]", "event_return.kafka", `event_return: there is no "kafka"`},
		{"master", "engines: [{stalekey: {}}]", "engines.stalekey", `there is no engine "stalekey" among your own modules`},
		{"minion", "engines: [{mine: {engine_module: slack}}]", "engines.slack", `there is no engine "slack" among your own modules`},
		{"master", "fips_mode: true", "fips_mode", "Brine has no FIPS mode"},
		{"master", "eauth_acl_module: x", "eauth_acl_module", "permissions come from external_auth alone"},
		{"master", "git_pillar_password: sdb://vault/git", "git_pillar_password.sdb",
			"Brine cannot look up sdb://vault/git, so that the option would have this string as its value: no option is its profile"},
		{"master", "vault: {driver: vault}\nmysql.pass: sdb://vault/db", "mysql.pass.sdb",
			`there is no driver "vault"; use one of consul, env, etcd, redis, yaml`},
		{"master", "ext_pillar: [{sseapi: x}]", "ext_pillar.sseapi", "use salt-api with SaltGUI"},
		{"minion", "module_executors: [splay, docker]", "module_executors.docker", `module_executors: there is no "docker"; use one of direct_call, splay, sudo; `},
		{"minion", "fips_mode: true", "fips_mode", "Brine has no FIPS mode"},
		{"master", "fileserver_backend: [mine]", "fileserver_backend.mine", "fetch it with salt-run saltutil.sync_fileserver"},
		{"minion", "file_client: local\nfileserver_backend: [mine]", "fileserver_backend.mine", "name its directory in fileserver_dirs"},
		{"minion", "file_client: local\next_pillar: [{vault: x}]", "ext_pillar.vault", `ext_pillar: there is no "vault"`},
	} {
		t.Run(c.kind+" "+c.name, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t, "")
			file := filepath.Join(p.dir, c.kind)
			plain := p.read(c.kind)
			p.write(c.kind, plain+c.text+"\n")
			at := fmt.Sprintf("%s:%d: ", file, strings.Count(plain+c.text, "\n")+1)
			override := "ignore_unsupported: [" + c.name + "]"
			for _, args := range [][]string{{"--check-config"}, {}, {"-d"}} {
				d := p.start("salt-"+c.kind, args...)
				code := d.wait()
				out := d.stdout.String() + d.stderr.String()
				for _, want := range []string{at, c.want, "to start without it, set " + override} {
					if code != 1 || !strings.Contains(out, want) {
						t.Errorf("%v: exit code %d, no %q in\n%s", args, code, want, out)
					}
				}
			}
			p.write(c.kind, plain+c.text+"\n"+override+"\n")
			d := p.start("salt-"+c.kind, "--check-config")
			code, out := d.wait(), d.stdout.String()+d.stderr.String()
			_, why, found := strings.Cut(c.want, ": ")
			if !found {
				why = c.want
			}
			for _, want := range []string{"starting without it, as ignore_unsupported says: ", why} {
				if code != 0 || !strings.Contains(out, want) {
					t.Errorf("with %s: exit code %d, no %q in\n%s", override, code, want, out)
				}
			}
		})
	}
}

// TestStartWithoutUnsupported: with the override the daemon works.
func TestStartWithoutUnsupported(t *testing.T) {
	p := newPlace(t, "")
	p.write("master", p.read("master")+"engines: [{stalekey: {}}, reactor]\nignore_unsupported: [engines]\n")
	d := p.up("salt-master")
	if !strings.Contains(p.read("var/log/salt/master"), "starting without it, as ignore_unsupported says") {
		t.Error("the log of the start does not say what is missing")
	}
	// A reload with an unsupported part leaves the configuration unchanged.
	p.write("master", p.read("master")+"fips_mode: true\n")
	if err := d.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	eventually.True(t, "the log says that the configuration is not reloaded", func() bool {
		return strings.Contains(p.read("var/log/salt/master"), "cannot reload the configuration; keeping the old one")
	})
	d.end(syscall.SIGTERM)
}

// TestNamedUnits: other unknown names of units cause warnings with their place and the known names.
func TestNamedUnits(t *testing.T) {
	p := newPlace(t, "")
	p.write("master", p.read("master")+"output: nestd\n")
	p.write("minion", p.read("minion")+"engines: [watchdog]\nreturn: [mysql, kafka]\nbeacons:\n  enabled: true\n  lod: []\n  own: [{beacon_module: load}]\n")
	for program, wants := range map[string][]string{
		"salt-master": {`there is no "nestd"; did you mean nested?`},
		"salt-minion": {`there is no "lod"; did you mean load?`, `there is no "kafka"; use one of `,
			`there is no engine "watchdog"; if it is a module of your own, fetch it with salt-call --local saltutil.sync_engines`},
	} {
		d := p.start(program, "--check-config")
		code, out := d.wait(), d.stdout.String()+d.stderr.String()
		for _, want := range wants {
			if code != 0 || strings.Count(out, want) != 1 || strings.Count(out, "there is no ") != len(wants) {
				t.Errorf("%s: exit code %d, no %s in\n%s", program, code, want, out)
			}
		}
	}
}

// TestCheckIsTheStart: the check finds what would make a start fail, also in keys and files named
// by options.
func TestCheckIsTheStart(t *testing.T) {
	for _, c := range []struct{ program, text, want string }{
		{"salt-master", "cache: mongo\n", `unknown value "mongo" of the option cache`},
		{"salt-master", "master_job_cache: kafka\n", `there is no returner "kafka"`},
		{"salt-master", "master_job_cache: pgjsonb\nreturner.pgjsonb.port: abc\n", `the option port is "abc", not a number`},
		{"salt-master", "console_store: postgres\nreturner.postgres.port: abc\n", `console_store: the option port is "abc", not a number`},
		{"salt-master", "master_job_cache: redis\nredis.port: abc\n", `master_job_cache: redis: the option port is "abc", not a number`},
		{"salt-master", "master_job_cache: redis\nredis.port: 99999\n", "master_job_cache: redis: the option port is 99999, not a port"},
		{"salt-master", "master_job_cache: mysql\nmysql.ssl_ca: /none\n", "master_job_cache: mysql: cannot read the certificates to trust: open /none"},
		{"salt-master", "ext_job_cache: etcd\netcd.protocol: htp\n", `ext_job_cache: etcd: etcd.protocol is "htp"`},
		{"salt-master", "cache: redis\ncache.redis.port: abc\n", `cache: redis: the option port is "abc", not a number`},
		{"salt-master", "cache: consul\nconsul.scheme: htp\n", `cache: consul: consul.scheme is "htp"`},
		{"salt-master", "cache: mysql\nmysql.table_name: a b\n", `cache: mysql: "a b" is not the name of a table`},
		{"salt-master", "master_sign_pubkey: true\nmaster_use_pubkey_signature: true\n", "the signature cannot be read"},
		{"salt-master", "transport: tcp\nssl: {certfile: /none.crt, keyfile: /none.key}\n", "/none.crt"},
		{"salt-master", "reactor: x\n", "reactor"},
		{"salt-master", "transport: carrier_pigeon\n", "transport"},
		{"salt-master", "nodegroups: [a]\n", "nodegroups"},
		{"salt-master", "external_auth: {file: {amy: ['@role:ops']}}\n", `external_auth: file: amy: there is no role "ops" in permission_roles`},
		{"salt-master", "publisher_acl: {amy: ['@role:ops']}\n", `publisher_acl: amy: there is no role "ops" in permission_roles`},
		{"salt-master", "permission_roles: {ops: {permissions: ['@role:ops']}}\n", "permission_roles: ops: a role cannot contain a role"},
		{"salt-master", "permission_roles: {ops: {permissions: []}}\n", "permission_roles: ops has no permissions"},
		{"salt-master", "publisher_acl_blacklist: {user: [amy]}\n", `publisher_acl_blacklist: there is no key "user" that forbids something`},
		{"salt-master", "publisher_acl_blacklist: {modules: [{cmd: run}]}\n", "publisher_acl_blacklist: modules: expected a name or pattern"},
		{"salt-master", "peer: [a]\n", "peer: expected a mapping, got list"},
		{"salt-master", "publisher_acl: [amy]\n", "publisher_acl: expected a mapping, got list"},
		{"salt-master", "hot_masters: ['other:99999']\n", `hot_masters: "other:99999" is not host or host:port`},
		{"salt-minion", "verify_master_pubkey_sign: true\n", "verify_master_pubkey_sign needs the masters' signing key"},
		{"salt-minion", "transport: tcp\nssl: {certfile: /none.crt, keyfile: /none.key, ca_certs: /none.ca}\n", "/none"},
		{"salt-minion", "master_type: hot\n", "master_type"},
		{"salt-minion", "schedule: [a]\n", "schedule: expected a map of jobs, got list"},
		{"salt-minion", "beacons: [load]\n", "beacons: expected a map, got list"},
		{"salt-syndic", "syndic_master: a b\n", `syndic_master: master "a b" is not a host name or address`},
		{"salt-syndic", "syndic_master: 127.0.0.2\ntransport: tcp\nssl: {certfile: /none.crt, keyfile: /none.key}\n", "/none.crt"},
		{"salt-api", "", "rest_cherrypy"},
		{"salt-api", "rest_cherrypy: {host: 127.0.0.2, port: PORT, disable_ssl: true}\ntransport: tcp\nssl: {certfile: /none.crt, keyfile: /none.key}\n",
			"/none.crt"},
		{"salt-api", "rest_cherrypy: {host: 127.0.0.2, port: PORT, disable_ssl: true, webhook_disable_auth: 'no'}\n", "webhook_disable_auth: must be True or False"},
		{"salt-api", "rest_cherrypy: {host: 127.0.0.2, port: PORT, disable_ssl: true, api_acl: [amy]}\n", "api_acl: must be a map with users, and is list"},
		{"salt-api", "rest_cherrypy: {port: 1, ssl_crt: /none.crt, ssl_key: /none.key}\n", "/none.crt"},
		{"salt-api", "rest_cherrypy: {host: 127.0.0.2, port: PORT, ssl_crt: CRT, ssl_key: CRT}\n", "ssl_crt and ssl_key"},
		{"salt-api", "rest_cherrypy: {host: 127.0.0.2, port: PORT, disable_ssl: true, static: /none}\n", "static"},
		{"salt-api", "rest_cherrypy: {port: TAKEN, host: 127.0.0.1, disable_ssl: true}\n", "address already in use"},
	} {
		t.Run(c.program+" "+strings.TrimSpace(c.text), func(t *testing.T) {
			t.Parallel()
			p := newPlace(t, "")
			kind := configOf(c.program)
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			taken := l.Addr().(*net.TCPAddr).Port
			text := strings.NewReplacer("CRT", p.dir+"/crt", "PORT", fmt.Sprint(freePorts(t, 1)[0]), "TAKEN", fmt.Sprint(taken)).Replace(c.text)
			if err := os.WriteFile(p.dir+"/crt", []byte("no certificate"), 0o600); err != nil {
				t.Fatal(err)
			}
			p.write(kind, p.read(kind)+text)
			start := p.start(c.program, "-l", "critical")
			if code := start.wait(); code == 0 || !strings.Contains(start.stderr.String(), c.want) {
				t.Fatalf("the start: exit code %d, no %q in\n%s", code, c.want, &start.stderr)
			}
			check := p.start(c.program, "--check-config")
			if code, out := check.wait(), check.stdout.String()+check.stderr.String(); code == 0 || !strings.Contains(out, c.want) {
				t.Errorf("the check: exit code %d, no %q in\n%s", code, c.want, out)
			}
		})
	}
}

// TestCheckNamesParts: a daemon starts without parts that cannot work, and logs each as an error. The
// check logs the same, and nothing that the start does not log.
func TestCheckNamesParts(t *testing.T) {
	for _, c := range []struct {
		program string
		parts   []brokenPart
	}{
		{"salt-master", []brokenPart{
			{"event_return: [mysql, rawfile_json]\nmysql.port: abc\nrawfile_json.filename: /", `event_return=mysql err="the option port is \"abc\", not a number"`},
			{"", `event_return=rawfile_json err="rawfile_json.filename: / is a directory"`},
			{`external_auth:
  ldap: {amy: [test.*]}
  rest: {^url: ftp://x, amy: [test.*]}
  file: {^filename: /none, ^hashtpye: sha256, amy: [test.*]}
  pki: {ca_file: BAD, amy: [test.*]}
  oidc: {^issuer: 'https://x', ^client_id: y, ^ca_file: BAD, ^scope: [openid]}
auth.ldap.binddn: uid={{username}}
auth.ldap.port: 389x`, "auth.ldap.uri, or auth.ldap.server and auth.ldap.port, must make a URL"},
			{"", "external_auth: rest: ^url must be an http or https URL"},
			{"", "external_auth: file: no user can sign in: cannot read the file of users: open /none: no such file or directory"},
			{"", "external_auth: file: the setting ^hashtpye has no effect; there are ^field_separator, ^filename, ^filetype, ^hashtype"},
			{"", "external_auth: pki: no user can sign in: "},
			{"", "external_auth: oidc: ^ca_file: "},
			{"fileserver_backend: [roots, gitfs, s3fs, minionfs]\ngitfs_remotes: [{'https://127.0.0.1/y': [{rooot: a}]}]\ns3.buckets: x",
				"fileserver_backend=gitfs err=\"the git remote https://127.0.0.1/y has the parameter rooot"},
			{"", "fileserver_backend=s3fs err=\"s3.buckets is a str"},
			{"", "fileserver_backend=minionfs err=\"minions cannot push files"},
			{`ext_pillar:
  - git: [{'master https://127.0.0.1/y': [{rooot: a}]}]
  - cmd_yaml: {comand: x}
  - file_tree: {root_dir: /none}
  - http_json: [1]
  - postgres: {one: select 1}
  - stack: {grainz:role: {web: /x}}
  - [x]
  - nodegroups:
postgres.port: abc`, "the git remote master https://127.0.0.1/y has the parameter rooot"},
			{"", "ext_pillar: cmd_yaml: ext_pillar() got an unexpected keyword argument 'comand'"},
			{"", "ext_pillar: file_tree: root_dir: stat /none: no such file or directory"},
			{"", "ext_pillar: http_json: url must be a string, not int"},
			{"", `ext_pillar: postgres: the option port is \"abc\", not a number`},
			{"", `ext_pillar: stack: Unknown traverse option \"grainz\"`},
			{"", "ext_pillar: expected a list of maps, got list in it"},
			{"master_tops: {ext_nodes: [a]}", "ext_nodes is a list, not a command"},
			{"reactor: [{a/b: [/none.sls, 'salt://x.sls']}, {c: /etc}]", "events with this tag have no reaction"},
			{"", "/etc is not a file"},
			{`autosign_file: /none
autoreject_file: /
autosign_grains_dir: BAD`, "/none; it has no effect until there is one"},
			{"", "autoreject_file: "},
			{"", "autosign_grains_dir: "},
			{"peer: {'[': [test.ping], web: test.ping}", `the regular expression "[" is malformed`},
			{"", `web: expected a list of functions, got the string "test.ping"`},
			{"publisher_acl: {amy: [{'web*': [test.*], 'db*': [test.*]}]}", "amy[0]: expected one target with its functions, got a map of 2"},
			{"nodegroups: {web: 'web* and (G@os:Debian', all: N@nosuch}", `all: nodegroup "nosuch" is not defined`},
			{"", "web: "},
			{"file_roots: {base: /srv, dev: [/none]}\npillar_roots: {base: [BAD]}", "base: expected a list of directories, got the string"},
			{"", "dev[0]: there is no directory /none"},
			{"", "is not a directory option=pillar_roots"},
			{"runner_dirs: [/none]", "there is no directory /none option=runner_dirs"},
			{"jinja_env: {trim_block: true}", `there is no setting "trim_block"; did you mean trim_blocks?`},
			{"extmod_blacklist: {module: [x]}", "did you mean modules?"},
			{"ignore_unsupported: [engine]", `"engine" has no effect`},
			{"token_expire_user_override: [amy]", "token_expire_user_override: expected True, False or a map"},
		}},
		{"salt-minion", []brokenPart{
			{"return: 'redis,mysql'\nredis.port: abc", `returner=redis err="the option port is \"abc\", not a number"`},
			{"renderer: jinja|yamll\nstartup_states: slss", `there is no "yamll"; did you mean yaml?`},
			{"", `startup_states: expected highstate, sls or top, got \"slss\"`},
			{"schedule_returner: etcd\netcd.protocol: htp", "returner=etcd err=\"etcd.protocol is"},
			{`schedule:
  interval: {function: test.ping, secondss: 3}
  number: {function: test.ping, seconds: abc}
  cron: {function: test.ping, cron: x y}
  none: {seconds: 3}
  fine: {function: test.ping, when: [teatime, 5pm]}`, `job=interval err="no time is given`},
			{"", `job=number err="seconds: expected a number`},
			{"", `interval: there is no setting of jobs "secondss"; did you mean seconds?`},
			{"", `job=cron err="cron: \"x y\" has 2 fields`},
			{"", `job=none err="no function is named"`},
			{`beacons:
  load: x
  diskusage: [{/: abc}]
  memusage: [{percent: 63%, intervall: 5}]`, `beacon=load err="expected a list of maps`},
			{"", "beacon=diskusage err="},
			{"", `memusage: there is no setting of this beacon "intervall"; did you mean interval?`},
			{"mine_functions: {test.ping: '', disk.usage: []}", "test.ping: expected a list or a map of arguments"},
			{"state_aggregate: pkg\nstate_queue: many", `expected true, false or a list of state modules, got the string "pkg"`},
			{"", "option=state_queue"},
		}},
		{"salt-minion", []brokenPart{
			{"file_client: local\nmaster_type: disable\nfileserver_backend: [gitfs]\ngitfs_remotes: x", `fileserver_backend=gitfs err="gitfs_remotes is a str`},
			{"ext_pillar: [{cmd_json: {comand: x}}, {git: [{'master https://127.0.0.1/y': [{rooot: a}]}]}]", "keyword argument 'comand'"},
			{"", "the git remote master https://127.0.0.1/y has the parameter rooot"},
		}},
		{"salt-api", []brokenPart{
			{"rest_cherrypy: {host: 127.0.0.2, port: PORT, disable_ssl: true, app: /none, favicon: BAD/x}",
				"rest_cherrypy: app: stat /none: no such file or directory"},
			{"", "rest_cherrypy: favicon: "},
			{"netapi_enable_clients: [local, locall]", `netapi_enable_clients: there is no client "locall"`},
		}},
	} {
		t.Run(c.program+" "+strings.TrimSpace(c.parts[0].text), func(t *testing.T) {
			t.Parallel()
			p := newPlace(t, "")
			kind := configOf(c.program)
			p.write("bad", "no certificate")
			text := p.read(kind)
			for _, part := range c.parts {
				text += strings.NewReplacer("BAD", p.dir+"/bad", "PORT", fmt.Sprint(freePorts(t, 1)[0])).Replace(part.text) + "\n"
			}
			p.write(kind, text)

			before := filesBelow(t, p.dir)
			check := p.start(c.program, "--check-config")
			code := check.wait()
			if after := filesBelow(t, p.dir); !slices.Equal(before, after) {
				t.Errorf("the check changed files: %q is now %q", before, after)
			}
			checked := problems(check.stdout.String() + check.stderr.String())
			if code != 0 {
				t.Errorf("the check: exit code %d\n%s", code, strings.Join(checked, "\n"))
			}
			d := p.up(c.program, "-l", "warning")
			d.end(syscall.SIGTERM)
			started := problems(d.stderr.String())
			_, noGit := exec.LookPath("git")
			for _, part := range c.parts {
				if noGit != nil && strings.Contains(part.want, "the git remote") {
					continue // both say that there is no git
				}
				has := func(line string) bool { return strings.Contains(line, part.want) }
				if !slices.ContainsFunc(started, has) || !slices.ContainsFunc(checked, has) {
					t.Errorf("%q is not named by both the start and the check", part.want)
				}
			}
			for _, line := range checked {
				if !slices.Contains(started, line) {
					t.Errorf("the check says, and the start does not: %s", line)
				}
			}
			if t.Failed() {
				t.Logf("the start:\n%s", strings.Join(started, "\n"))
			}
			broken := strings.Count(strings.Join(checked, "\n"), "[ERROR ")
			if out := check.stdout.String(); broken > 0 && !strings.Contains(out, fmt.Sprintf("but %d of its parts would not work", broken)) {
				t.Errorf("the check ends with %s", out)
			}
		})
	}
}

// configOf returns the kind of the configuration of a program.
func configOf(program string) string {
	if program == "salt-minion" {
		return "minion"
	}
	return "master"
}

// brokenPart is a text of a configuration, and what the start logs about it.
type brokenPart struct{ text, want string }

// problems returns the lines of log records and of the check that report errors and warnings.
func problems(out string) []string {
	return slices.DeleteFunc(strings.Split(out, "\n"), func(line string) bool {
		return !strings.Contains(line, "[ERROR ") && !strings.Contains(line, "[WARNING") && !strings.HasPrefix(line, "error: ") &&
			!strings.HasPrefix(line, "warning: ")
	})
}

// filesBelow returns the names of all files below a directory.
func filesBelow(t *testing.T, dir string) (names []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		names = append(names, path)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}
