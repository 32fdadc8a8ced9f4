package daemon

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
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
		{"master", "engines: [{stalekey: {}}]", "engines", "Brine runs no engines"},
		{"master", "fips_mode: true", "fips_mode", "Brine has no FIPS mode"},
		{"master", "eauth_acl_module: x", "eauth_acl_module", "permissions come from external_auth alone"},
		{"master", "git_pillar_password: sdb://vault/git", "git_pillar_password.sdb", "Brine does not look up sdb://vault/git"},
		{"master", "mysql.pass: sdb://vault/db", "mysql.pass.sdb", "Brine does not look up sdb://vault/db"},
		{"master", "ext_pillar: [{sseapi: x}]", "ext_pillar.sseapi", "use salt-api with SaltGUI"},
		{"minion", "module_executors: [splay, docker]", "module_executors.docker", `module_executors: there is no "docker"; use one of direct_call, splay, sudo; `},
		{"minion", "fips_mode: true", "fips_mode", "Brine has no FIPS mode"},
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
	p.write("master", p.read("master")+"engines: [{stalekey: {}}]\nignore_unsupported: [engines]\n")
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
	p.write("minion", p.read("minion")+"return: [mysql, kafka]\nbeacons:\n  enabled: true\n  lod: []\n  own: [{beacon_module: load}]\n")
	for program, wants := range map[string][]string{
		"salt-master": {`there is no "nestd"; use one of highstate, `},
		"salt-minion": {`there is no "lod"; use one of btmp, `, `there is no "kafka"; use one of `},
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
		{"salt-master", "master_sign_pubkey: true\nmaster_use_pubkey_signature: true\n", "the signature cannot be read"},
		{"salt-master", "transport: tcp\nssl: {certfile: /none.crt, keyfile: /none.key}\n", "/none.crt"},
		{"salt-master", "reactor: x\n", "reactor"},
		{"salt-master", "transport: carrier_pigeon\n", "transport"},
		{"salt-master", "nodegroups: [a]\n", "nodegroups"},
		{"salt-minion", "verify_master_pubkey_sign: true\n", "verify_master_pubkey_sign needs the masters' signing key"},
		{"salt-minion", "transport: tcp\nssl: {certfile: /none.crt, keyfile: /none.key, ca_certs: /none.ca}\n", "/none"},
		{"salt-minion", "master_type: hot\n", "master_type"},
		{"salt-api", "", "rest_cherrypy"},
		{"salt-api", "rest_cherrypy: {port: 1, ssl_crt: /none.crt, ssl_key: /none.key}\n", "/none.crt"},
		{"salt-api", "rest_cherrypy: {host: 127.0.0.2, port: PORT, ssl_crt: CRT, ssl_key: CRT}\n", "ssl_crt and ssl_key"},
		{"salt-api", "rest_cherrypy: {host: 127.0.0.2, port: PORT, disable_ssl: true, static: /none}\n", "static"},
		{"salt-api", "rest_cherrypy: {port: TAKEN, host: 127.0.0.1, disable_ssl: true}\n", "address already in use"},
	} {
		t.Run(c.program+" "+strings.TrimSpace(c.text), func(t *testing.T) {
			t.Parallel()
			p := newPlace(t, "")
			kind := strings.TrimPrefix(strings.Replace(c.program, "-api", "-master", 1), "salt-")
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
