package packages_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"brine/internal/base/salt"
	"brine/test/eventually"
	"brine/test/tools"
)

// machine is a Debian in a directory, with systemd as its first process.
type machine struct {
	t      *testing.T
	root   string
	leader string // pid of its first process
}

// boot starts a copy of the Debian that BRINE_PACKAGE_ROOT names, and skips without it. An
// empty or missing directory is filled by debootstrap.
func boot(t *testing.T) *machine {
	t.Helper()
	base := os.Getenv("BRINE_PACKAGE_ROOT")
	if base == "" || os.Geteuid() != 0 {
		t.Skip("it needs root, and in BRINE_PACKAGE_ROOT a directory with a Debian that has systemd, or for one")
	}
	nspawn := tools.Need(t, "systemd-container", "systemd-nspawn")
	tools.Need(t, "util-linux", "nsenter")
	if _, err := os.Stat(filepath.Join(base, "etc/debian_version")); err != nil {
		run(t, tools.Need(t, "debootstrap", "debootstrap"), "--variant=minbase", "--include=systemd,systemd-sysv,logrotate", "bookworm", base)
	}
	m := &machine{t: t, root: filepath.Join(t.TempDir(), "root")}
	run(t, "cp", "-a", base, m.root)
	// Without a network of the host's its ports are free.
	cmd := exec.Command(nspawn, "--register=no", "--keep-unit", "--private-network", "--quiet", "--machine=brinetest", "--boot", "--directory="+m.root)
	var console bytes.Buffer
	cmd.Stdout, cmd.Stderr = &console, &console
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("journal:\n%s", tail(m.try("journalctl -n 200 --no-pager -o cat")))
			t.Logf("console:\n%s", tail(console.String()))
		}
		if m.leader != "" {
			_ = exec.Command("kill", "-KILL", m.leader).Run()
		}
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	children := fmt.Sprintf("/proc/%d/task/%d/children", cmd.Process.Pid, cmd.Process.Pid)
	eventually.True(t, "systemd", func() bool {
		m.leader = ""
		b, err := os.ReadFile(children)
		if err != nil {
			return false
		}
		for pid := range strings.FieldsSeq(string(b)) { // the first process, and those that set the machine up
			if status, err := os.ReadFile("/proc/" + pid + "/status"); err == nil && inNamespace.Match(status) {
				m.leader = pid
			}
		}
		if m.leader == "" {
			return false
		}
		s := m.try("systemctl is-system-running")
		return strings.Contains(s, "running") || strings.Contains(s, "degraded")
	})
	return m
}

// inNamespace matches the status of a process that is the first in its namespace.
var inNamespace = regexp.MustCompile(`(?m)^NSpid:.*\t1$`)

func tail(s string) string { return s[max(0, len(s)-20000):] }

func (m *machine) command(script string) *exec.Cmd {
	cmd := exec.Command("nsenter", "--target", m.leader, "--mount", "--uts", "--ipc", "--net", "--pid", "--cgroup", "--root", "--wd", "sh", "-c", script)
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LC_ALL=C.UTF-8", "DEBIAN_FRONTEND=noninteractive"}
	return cmd
}

// try returns what a script prints, whether or not it succeeds.
func (m *machine) try(script string) string {
	out, err := m.command(script).CombinedOutput()
	if err != nil {
		return strings.TrimSpace(string(out)) + "\n" + err.Error()
	}
	return strings.TrimSpace(string(out))
}

// do runs a script that must succeed, and returns what it prints.
func (m *machine) do(script string) string {
	m.t.Helper()
	out, err := m.command(script).CombinedOutput()
	if err != nil {
		m.t.Fatalf("%s: %v\n%s", script, err, out)
	}
	return strings.TrimSpace(string(out))
}

// want checks what a script prints.
func (m *machine) want(script, want string) {
	m.t.Helper()
	if got := m.try(script); got != want {
		m.t.Errorf("%s: %q instead of %q", script, got, want)
	}
}

// waitFor waits until a script prints something.
func (m *machine) waitFor(script, want string) {
	m.t.Helper()
	last := ""
	eventually.True(m.t, want+" by "+script, func() bool {
		if next := m.try(script); next != last {
			last = next
			m.t.Logf("%s: %s", script, last)
		}
		return strings.Contains(last, want)
	})
}

// install installs packages by apt, without an answer to any question.
func (m *machine) install(dir string, options string) {
	m.t.Helper()
	m.do("apt-get install -y " + options + " " + dir + "/*.deb </dev/null")
}

// copies puts files into a directory of the machine.
func (m *machine) copies(from, to string) {
	m.t.Helper()
	if err := os.CopyFS(filepath.Join(m.root, to), os.DirFS(from)); err != nil {
		m.t.Fatal(err)
	}
}

// newer makes packages of the next version from those in a directory.
func newer(t *testing.T, dir, version string) string {
	t.Helper()
	out := t.TempDir()
	for _, name := range built("deb") {
		tree := filepath.Join(t.TempDir(), "tree")
		run(t, "dpkg-deb", "-R", filepath.Join(dir, file("deb", name)), tree)
		control := filepath.Join(tree, "DEBIAN/control")
		b, err := os.ReadFile(control)
		if err != nil {
			t.Fatal(err)
		}
		b = bytes.ReplaceAll(b, []byte("Version: "+salt.BrineVersion), []byte("Version: "+version))
		b = bytes.ReplaceAll(b, []byte("(= "+salt.BrineVersion+")"), []byte("(= "+version+")"))
		if err := os.WriteFile(control, b, 0o644); err != nil {
			t.Fatal(err)
		}
		run(t, "dpkg-deb", "-Znone", "-b", tree, filepath.Join(out, name+".deb"))
	}
	return out
}

// ping waits until the minion answers.
func (m *machine) ping() {
	m.t.Helper()
	m.waitFor("salt --out=txt -t 5 '*' test.ping", "web1: True")
}

// TestDebian installs the packages on a new Debian, upgrades and downgrades them while a
// job runs, rotates the logs, and removes them.
func TestDebian(t *testing.T) {
	m := boot(t)
	debs := build(t, "deb")
	m.copies(debs, "/debs")
	m.copies(newer(t, debs, salt.BrineVersion+"+1"), "/newer")

	m.install("/debs", "")
	for _, name := range []string{"master", "minion", "api"} {
		m.want("systemctl is-enabled salt-"+name, "enabled")
		m.want("systemctl is-active salt-"+name, "inactive\nexit status 3") // one line is to be edited first
	}
	m.do("echo web1 >/etc/salt/minion_id; sed -i 's/^#master: salt$/master: 127.0.0.1/' /etc/salt/minion")
	start := time.Now()
	m.do("systemctl start salt-master salt-minion")
	m.waitFor("salt-key -l pre --out=txt", "web1")
	m.do("salt-key -y -a web1")
	m.ping()
	t.Logf("first ping %v after the start", time.Since(start).Round(time.Millisecond))

	m.want("stat -c %U /proc/$(systemctl show -P MainPID salt-master) /etc/salt/pki/master /etc/salt/pki/master/master.pem", "salt\nsalt\nsalt")
	m.want("stat -c %U /proc/$(systemctl show -P MainPID salt-minion)", "root")
	m.do("printf 'rest_cherrypy: {port: 8000, disable_ssl: true}\n' >/etc/salt/master.d/api.conf; systemctl restart salt-master; systemctl start salt-api")
	m.want("stat -c %U /proc/$(systemctl show -P MainPID salt-api)", "salt")
	m.want("grep CapEff /proc/$(systemctl show -P MainPID salt-api)/status", "CapEff:\t0000000000000000")
	for _, name := range []string{"master", "minion", "api"} {
		m.want("systemctl show -P WatchdogUSec salt-"+name, "2min")
	}
	m.ping()
	if s := m.try("brine self-check"); !strings.HasPrefix(s, "OK: ") {
		t.Errorf("self-check: %s", s)
	}
	m.do("logrotate -f /etc/logrotate.conf")
	for _, name := range []string{"master", "minion"} { // they write to the new file
		m.waitFor("ls -l /proc/$(systemctl show -P MainPID salt-"+name+")/fd | grep -c '/var/log/salt/"+name+"$'", "1")
	}
	m.want("stat -c %U /var/log/salt/master", "salt")
	m.want("ls -d /var/log/salt/minion.1", "/var/log/salt/minion.1")

	// A job that upgrades its own minion goes on to its end.
	restarted := func(before string) {
		t.Helper()
		eventually.True(t, "a restart of the minion", func() bool {
			now := m.try("systemctl show -P MainPID salt-minion")
			return now != before && now != "0"
		})
	}
	pid := "systemctl show -P MainPID salt-minion"
	before := m.do(pid)
	m.do("echo 'export DEBIAN_FRONTEND=noninteractive; apt-get install -y /newer/*.deb && echo upgraded' >/upgrade")
	job := m.do("salt --async --out=txt web1 cmd.run 'sh /upgrade'")
	m.waitFor("salt-run --out=txt jobs.lookup_jid "+job[strings.LastIndex(job, " ")+1:], "upgraded")
	m.want("dpkg-query -f '${Version} ${db:Status-Status} ' -W brine brine-salt-minion", strings.TrimSpace(strings.Repeat(salt.BrineVersion+"+1 installed ", 2)))
	restarted(before)
	m.ping()

	// Another upgrade, and a downgrade, restart it at once. A job that runs then is reported.
	job = m.do("salt --async --out=txt web1 cmd.run 'touch /begun; sleep 1000'")
	m.waitFor("ls /begun", "/begun")
	before = m.do(pid)
	m.install("/debs", "--allow-downgrades")
	m.want("dpkg-query -f '${Version} ${db:Status-Status} ' -W brine brine-salt-minion", strings.TrimSpace(strings.Repeat(salt.BrineVersion+" installed ", 2)))
	restarted(before)
	m.waitFor("salt-run --out=txt jobs.lookup_jid "+job[strings.LastIndex(job, " ")+1:], "web1: ")
	m.ping()

	// A service that was stopped stays so.
	m.do("systemctl stop salt-api")
	m.install("/newer", "")
	m.want("systemctl is-active salt-api", "inactive\nexit status 3")

	keys := "sha256sum /etc/salt/pki/minion/minion.pem /etc/salt/pki/master/master.pem /etc/salt/pki/master/minions/web1 /etc/salt/minion"
	had := m.do(keys)
	m.do("apt-get remove -y brine brine-salt-common </dev/null")
	m.want("systemctl is-active salt-minion", "inactive\nexit status 3")
	m.want(keys, had)
	m.do("apt-get purge -y " + strings.Join(built("deb"), " ") + " </dev/null")
	m.want(keys, had)
	m.want("ls /usr/bin/brine /usr/bin/salt* /lib/systemd/system/salt-* /usr/share/brine /etc/logrotate.d/salt-common 2>/dev/null", "\nexit status 2")
	m.install("/debs", "")
	m.ping()
}

// stockPackages makes packages with the names, files, conffiles and maintainer scripts of
// stock ones, whose daemons do nothing.
func stockPackages(t *testing.T) string {
	t.Helper()
	out := t.TempDir()
	pack := func(name, depends string, files, scripts map[string]string) {
		tree := filepath.Join(t.TempDir(), name)
		conffiles := ""
		put := func(path, text string, mode os.FileMode) {
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(text), mode); err != nil {
				t.Fatal(err)
			}
		}
		for path, text := range files {
			mode := os.FileMode(0o644)
			if strings.HasPrefix(path, "/usr/bin/") {
				mode = 0o755
			}
			if strings.HasPrefix(path, "/etc/") {
				conffiles += path + "\n"
			}
			put(tree+path, text, mode)
		}
		for name, text := range scripts {
			put(tree+"/DEBIAN/"+name, "#!/bin/sh\nset -e\n"+text, 0o755)
		}
		put(tree+"/DEBIAN/conffiles", conffiles, 0o644)
		put(tree+"/DEBIAN/control", fmt.Sprintf("Package: %s\nVersion: 3007.10\nArchitecture: all\nMaintainer: none <none@example.com>\nDepends: %s\n"+
			"Description: model of a stock package\n", name, depends), 0o644)
		run(t, "dpkg-deb", "-b", tree, filepath.Join(out, name+".deb"))
	}
	pack("salt-common", "passwd", map[string]string{"/etc/logrotate.d/salt-common": "/var/log/salt/minion {\n\tweekly\n}\n", "/usr/share/doc/salt-common/x": ""},
		map[string]string{"preinst": "getent group salt || groupadd --system salt\ngetent passwd salt || useradd --system -g salt -d /opt/saltstack/salt salt\n"})
	for name, conf := range map[string]string{"master": "# The user to run as.\nuser: salt\n", "minion": "# The master.\n#master: salt\n"} {
		unit := "salt-" + name + ".service"
		files := map[string]string{
			"/usr/bin/salt-" + name: "#!/bin/sh\nexec sleep infinity\n", "/etc/salt/" + name: conf,
			"/lib/systemd/system/" + unit: "[Service]\nExecStart=/usr/bin/salt-" + name + "\n[Install]\nWantedBy=multi-user.target\n",
		}
		if name == "master" {
			files["/usr/bin/salt"], files["/usr/bin/salt-key"] = "#!/bin/sh\n", "#!/bin/sh\n"
		} else {
			files["/usr/bin/salt-call"] = "#!/bin/sh\n"
		}
		pack("salt-"+name, "salt-common (= 3007.10)", files, map[string]string{
			"postinst": "deb-systemd-helper unmask " + unit + "\ndeb-systemd-helper enable " + unit +
				"\nsystemctl daemon-reload\ndeb-systemd-invoke start " + unit + "\n",
			"prerm": "if [ $1 = remove ]; then deb-systemd-invoke stop " + unit + "; fi\n",
			"postrm": "systemctl daemon-reload\nif [ $1 = remove ]; then deb-systemd-helper mask " + unit + "; fi\n" +
				"if [ $1 = purge ]; then deb-systemd-helper purge " + unit + "; deb-systemd-helper unmask " + unit + "; fi\n",
		})
	}
	return out
}

// TestDebianTakeover installs the packages over those of a stock layout, whose keys and
// edited configuration they take over, and goes back.
func TestDebianTakeover(t *testing.T) {
	m := boot(t)
	m.copies(build(t, "deb"), "/debs")
	m.copies(stockPackages(t), "/stock")
	m.install("/stock", "")
	m.want("systemctl is-active salt-master salt-minion", "active\nactive")
	m.do("echo web1 >/etc/salt/minion_id; echo 'master: 127.0.0.1' >>/etc/salt/minion; echo '# edited' >>/etc/salt/master")
	// Keys as a stock fleet has them, here of the root user.
	run(t, "cp", "-a", keys(t)+"/.", filepath.Join(m.root, "etc/salt/pki"))
	state := "sha256sum /etc/salt/master /etc/salt/minion $(find /etc/salt/pki -name '*.pem' -o -name web1)"
	had := m.do(state)

	m.do("rm /debs/brine-salt-api*")
	m.install("/debs", "")
	m.want(state, had)
	m.want("dpkg-query -f '${db:Status-Status} ' -W salt-common salt-master salt-minion", "config-files config-files config-files")
	m.want("systemctl is-enabled salt-master salt-minion", "enabled\nenabled")
	m.ping()
	m.want("find /etc/salt/pki/master ! -user salt", "")
	if s := m.try("brine self-check"); !strings.HasPrefix(s, "OK: ") {
		t.Errorf("self-check: %s", s)
	}
	m.do("logrotate -f /etc/logrotate.conf") // which refuses a log that two files have
	m.do("salt web1 cmd.run 'touch /ran'")

	m.install("/stock", "-o Dpkg::Options::=--force-confold")
	m.want(state, had)
	m.want("systemctl is-active salt-master salt-minion", "active\nactive")
	m.want("readlink -f /proc/$(systemctl show -P MainPID salt-minion)/exe", "/usr/bin/sleep")
	m.install("/debs", "")
	m.want(state, had)
	m.ping()
}

// keys makes the pki directories of a master and of a minion that it has accepted.
func keys(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, d := range []string{"minion", "master/minions"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"master", "minion"} {
		key := filepath.Join(dir, name, name+".pem")
		run(t, "openssl", "genrsa", "-traditional", "-out", key, "2048")
		run(t, "openssl", "rsa", "-in", key, "-pubout", "-out", strings.TrimSuffix(key, "pem")+"pub")
	}
	b, err := os.ReadFile(filepath.Join(dir, "minion/minion.pub"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "master/minions/web1"), b, 0o644); err != nil {
		t.Fatal(err)
	}
	return dir
}
