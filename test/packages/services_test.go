package packages_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"brine/internal/base/salt"
	"brine/test/eventually"
)

// TestDebianServices runs the services of all packages on one machine under systemd: logins by PAM,
// a site below a hub, and daemons that hang.
func TestDebianServices(t *testing.T) {
	m := boot(t)
	debs := build(t, "deb")
	m.copies(debs, "/debs")
	m.copies(newer(t, debs, salt.BrineVersion+"+1"), "/newer")
	withPAM := len(built("deb")) > len(packages)
	if withPAM {
		m.do("mkdir /pam; mv /debs/brine-pam* /pam")
	}
	m.install("/debs", "--no-install-recommends")
	m.do("echo web1 >/etc/salt/minion_id; echo 'master: 127.0.0.1' >>/etc/salt/minion")
	m.write("/etc/salt/master.d/test.conf", "auto_accept: true\nrest_cherrypy: {port: 8000, disable_ssl: true}\nnetapi_enable_clients: [local]\n"+
		"external_auth: {pam: {alice: ['test.*'], bob: ['test.*']}}\n")
	m.do("useradd alice; useradd bob; echo 'alice:right word\nbob:right word' | chpasswd; chage -E 1 bob")
	m.do("systemctl start salt-master salt-minion salt-api")
	m.ping()

	t.Run("pam", func(t *testing.T) { m.at(t).pam(withPAM) })
	t.Run("hub", func(t *testing.T) { m.at(t).hub() })
	t.Run("watchdog", func(t *testing.T) { m.at(t).hang() })
}

// at returns the machine for a subtest.
func (m *machine) at(t *testing.T) *machine { return &machine{t, m.root, m.leader} }

func (m *machine) write(path, text string) {
	m.t.Helper()
	path = filepath.Join(m.root, path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		m.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		m.t.Fatal(err)
	}
}

// post returns what salt-api answers to a form, headers included.
func (m *machine) post(path, form string) string {
	m.t.Helper()
	m.write("/request", fmt.Sprintf("POST %s HTTP/1.0\r\nContent-Type: application/x-www-form-urlencoded\r\nAccept: application/json\r\n"+
		"Content-Length: %d\r\n\r\n%s", path, len(form), form))
	return m.try("bash -c 'exec 3<>/dev/tcp/127.0.0.1/8000; cat /request >&3; cat <&3'")
}

// pam logs in by salt-api: without the package, which the log names, and with it. The master runs
// as the user salt, who cannot read the passwords.
func (m *machine) pam(packaged bool) {
	const login = "eauth=pam&username="
	if s := m.post("/login", login+"alice&password=right+word"); !strings.Contains(s, " 401 ") {
		m.t.Errorf("a login without brine-pam: %s", s)
	}
	if s := m.do("cat /var/log/salt/master"); !strings.Contains(s, "install the package brine-pam") {
		m.t.Errorf("the master's log does not say what to install:\n%s", tail(s))
	}
	if !packaged {
		m.t.Log("this machine has no C compiler for brine-pam")
		return
	}
	m.install("/pam", "")
	m.want("stat -c '%a %U %G' /usr/lib/brine/brine-pam", "4754 root salt")
	if s := m.try("brine self-check"); !strings.HasPrefix(s, "OK: ") {
		m.t.Errorf("self-check: %s", s)
	}
	m.do("systemctl restart salt-master")
	m.ping()
	m.want("stat -c %U /proc/$(systemctl show -P MainPID salt-master)", "salt")
	if s := m.post("/login", login+"alice&password=right+word"); !strings.Contains(s, " 200 ") || !strings.Contains(s, `"token"`) {
		m.t.Errorf("a login of alice: %s", s)
	}
	if s := m.post("/run", "client=local&tgt=web1&fun=test.ping&"+login+"alice&password=right+word"); !strings.Contains(s, `"web1": true`) {
		m.t.Errorf("a command of alice: %s", s)
	}
	for what, form := range map[string]string{"a wrong password": "alice&password=wrong", "an expired account": "bob&password=right+word",
		"a user without entry": "root&password=x"} {
		if s := m.post("/login", login+form); !strings.Contains(s, " 401 ") {
			m.t.Errorf("%s: %s", what, s)
		}
	}
	// Other users cannot use the helper to try passwords.
	m.want(`su -s /bin/sh -c 'printf "login\0alice\0right word\0" | /usr/lib/brine/brine-pam' nobody 2>/dev/null; echo $?`, "126")
}

// hub makes the machine's master a site below another one, which its own minion obeys, and upgrades
// and installs brine-hub again.
func (m *machine) hub() {
	t := m.t
	const hub = "systemctl show -P MainPID brine-hub"
	m.write("/etc/above/master", "interface: 127.0.0.1\npublish_port: 14505\nret_port: 14506\nroot_dir: /above\npki_dir: /above/pki\nuser: root\n"+
		"federation_hub: true\nfederation_urls: ['tls://127.0.0.1:4515']\nfederation_ca: /etc/salt/hub.crt\n")
	m.do("mkdir -p /above; systemd-run --unit=above --setenv=HOME=/root /usr/bin/salt-master -c /etc/above")
	m.waitFor("ls /above/pki", "master.pub")
	finger := m.do("salt-key -c /etc/above -F 2>/dev/null | grep 'master.pub' | grep -oE '([0-9a-f]{2}:)+[0-9a-f]{2}'")

	m.want("systemctl is-enabled brine-hub", "enabled")
	m.want("systemctl is-active brine-hub", "inactive\nexit status 3") // masters is to be edited first
	m.want("stat -c '%a %U' /etc/salt/hub", "600 root")
	m.do("printf \"masters: ['" + finger + "']\\ntls_names: [127.0.0.1]\\n\" >>/etc/salt/hub; systemctl start brine-hub")
	m.want("systemctl show -P WatchdogUSec brine-hub", "2min")
	m.want("grep CapEff /proc/$("+hub+")/status", "CapEff:\t0000000000000400")
	m.want("grep -c 'NoNewPrivs:\t1' /proc/$("+hub+")/status", "1")
	m.want("nsenter -m -t $("+hub+") touch /etc/salt/x 2>&1", "touch: cannot touch '/etc/salt/x': Read-only file system\nexit status 1")
	if s := m.try("systemd-analyze --no-pager security --threshold=30 brine-hub"); strings.Contains(s, "exit status") {
		t.Errorf("the unit of brine-hub is open: %s", s[strings.LastIndex(s, "\n→")+1:])
	}

	m.do("cp /var/lib/brine-hub/hub.crt /etc/salt/hub.crt; chmod 644 /etc/salt/hub.crt")
	m.write("/etc/salt/master.d/site.conf", "federation_site: eu\nfederation_urls: ['tls://127.0.0.1:4515']\nfederation_ca: /etc/salt/hub.crt\n"+
		"federation_finger: ['"+finger+"']\n")
	m.do("systemctl restart above salt-master")
	m.waitFor("salt-run -c /etc/above --out=json federation.keys 2>/dev/null", `"eu"`)
	m.do("salt-run -c /etc/above federation.accept eu")
	above := "salt -c /etc/above --out=txt -t 5 '*' test.ping"
	m.waitFor(above, "web1: True")

	// A command that the hub has for a site that is down survives an upgrade, a removal and a new
	// installation of the hub.
	state := "sha256sum /etc/salt/hub /var/lib/brine-hub/hub.crt /var/lib/brine-hub/hub.key"
	had := m.do(state)
	m.do("systemctl stop salt-master")
	job := m.do("salt -c /etc/above --async --expire 10m --out=txt '*' cmd.run 'echo ran >>/once; echo kept'")
	before := m.do(hub)
	m.do("apt-get install -y /newer/brine-hub*.deb </dev/null")
	eventually.True(t, "a restart of the hub", func() bool {
		now := m.try(hub)
		return now != before && now != "0"
	})
	m.do("apt-get remove -y brine-hub </dev/null")
	m.want("systemctl is-active brine-hub", "inactive\nexit status 3")
	m.want(state, had)
	m.do("apt-get purge -y brine-hub </dev/null")
	m.want(state, had)
	m.want("ls /usr/bin/brine-hub /lib/systemd/system/brine-hub.service 2>/dev/null", "\nexit status 2")
	m.do("apt-get install -y /debs/brine-hub*.deb </dev/null")
	m.want("systemctl is-active brine-hub", "active")
	m.do("systemctl start salt-master")
	m.waitFor("salt-run -c /etc/above --out=txt jobs.lookup_jid "+job[strings.LastIndex(job, " ")+1:], "kept")
	m.want("cat /once", "ran")
	m.waitFor(above, "web1: True")
}

// hang stops each daemon's work, so that its watchdog is not fed: systemd ends it and starts it
// again. A job that runs meanwhile is not lost.
func (m *machine) hang() {
	t := m.t
	daemons := []string{"salt-master", "salt-minion", "salt-api", "brine-hub"}
	for _, name := range daemons {
		m.write("/etc/systemd/system/"+name+".service.d/watchdog.conf", "[Service]\nWatchdogSec=6s\n")
	}
	m.do("systemctl daemon-reload; systemctl restart " + strings.Join(daemons, " "))
	m.ping()
	job := m.do("salt --async --out=txt web1 cmd.run 'touch /working; while [ ! -e /go ]; do sleep 0.1; done; echo worked'")
	m.waitFor("ls /working", "/working")
	for _, name := range daemons {
		pid := "systemctl show -P MainPID " + name
		before := m.do(pid)
		start := time.Now()
		m.do("kill -STOP " + before)
		if name == "salt-master" {
			m.do("touch /go") // the minion returns to a master that hangs
		}
		eventually.True(t, "a new process of "+name, func() bool {
			now := m.try(pid)
			return now != before && now != "0"
		})
		m.waitFor("systemctl is-active "+name, "active")
		t.Logf("%s hung, and ran again after %v", name, time.Since(start).Round(time.Millisecond))
		m.want("systemctl show -P NRestarts "+name, "1")
		if s := m.do("journalctl -u " + name + " -o cat"); !strings.Contains(s, "Watchdog timeout") {
			t.Errorf("the journal of %s names no watchdog:\n%s", name, tail(s))
		}
	}
	m.waitFor("salt-run --out=txt jobs.lookup_jid "+job[strings.LastIndex(job, " ")+1:], "worked")
	m.ping()
}
