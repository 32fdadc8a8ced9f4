package guides

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"brine/test/daemontest"
	"brine/test/eventually"
	"brine/test/netns"
	"brine/test/tools"
)

func TestMain(m *testing.M) { daemontest.Main(m) }

// machine is one of the machines of a page.
type machine struct {
	t    *testing.T
	name string
	dir  string // what is at /etc, /run, /srv and /var there
	init string // process that holds its namespaces
}

// private are the directories that each machine has for itself. /etc begins as a copy.
var private = []string{"etc", "run", "srv", "var", "usr/local/bin"}

// boots makes the namespaces a machine: $1 is its name, $2 the directory of what it has for itself,
// $3 the directory of what all machines share. Then it reaps daemons, as the first process has to.
const boots = `
hostname "$1"
mount --make-rprivate /
for d in etc run srv var usr/local/bin; do mount --bind "$2/$d" "/$d"; done
mount --bind "$3" /srv/shared
touch /run/booted
while sleep 1; do :; done`

// systemctl stands for that of systemd, which cannot run in a namespace without a tree of a whole
// system (test/packages has that): it starts and stops the daemons that the pages name.
const systemctl = `#!/bin/sh
# As Debian: the configuration is in /etc, and the data are made at the installation.
postgresql() (
	bin=$(ls -d /usr/lib/postgresql/*/bin | tail -n 1)
	data=/var/lib/postgresql/15/main
	if [ ! -e $data ]; then
		mkdir -p $data /run/postgresql
		chown postgres: $data /run/postgresql
		chmod 700 $data
		runuser -u postgres -- $bin/initdb -A peer -D $data >/dev/null || exit
		echo "include_dir '/etc/postgresql/15/main/conf.d'" >>$data/postgresql.conf
	fi
	cd /
	setsid runuser -u postgres -- $bin/postgres -D $data -c hba_file=/etc/postgresql/15/main/pg_hba.conf \
		-c external_pid_file=/run/postgresql/main.pid -c unix_socket_directories=/run/postgresql >/var/log/postgresql.log 2>&1 &
	until $bin/pg_isready -q -h /run/postgresql; do sleep 0.1; done
)
action=$1
shift
failed=0
for unit; do
	case $unit in -*) continue ;; esac
	unit=${unit%.service}
	pidfile=/run/$unit.pid
	[ $unit != postgresql ] || pidfile=/run/postgresql/main.pid
	running() { [ -s $pidfile ] && kill -0 "$(cat $pidfile)" 2>/dev/null; }
	stop() {
		running || return 0
		# PostgreSQL would wait for its clients.
		if [ $unit = postgresql ]; then kill -INT "$(cat $pidfile)"; else kill "$(cat $pidfile)"; fi
		while running; do sleep 0.05; done
	}
	start() {
		running && return 0
		case $unit in
		salt-*) $unit -d --pid-file $pidfile ;;
		haproxy) haproxy -D -p $pidfile -f /etc/haproxy/haproxy.cfg ;;
		postgresql) postgresql ;;
		*) echo "no unit $unit" >&2; false ;;
		esac
	}
	case $action in
	start | enable) start || failed=1 ;;
	stop) stop ;;
	restart) stop; start || failed=1 ;;
	is-active) running || failed=1 ;;
	*) echo "systemctl $action is not known here" >&2; failed=1 ;;
	esac
done
exit $failed
`

// scp stands for that of OpenSSH, which would need keys: it copies files between the directories of
// machines.
const scp = `#!/bin/sh
for a; do
	shift
	case $a in *:*) a=%s/${a%%%%:*}${a#*:} ;; esac
	set -- "$@" $a
done
exec cp -p "$@"
`

// boot starts the machines with these names, which find each other by them.
func boot(t *testing.T, names []string) map[string]*machine {
	t.Helper()
	network := netns.New(t)
	if slices.Contains(names, "lb") {
		tools.Need(t, "haproxy", "haproxy")
	}
	if slices.Contains(names, "db") {
		tools.Need(t, "postgresql", "/usr/lib/postgresql/*/bin/postgres")
	}
	unshare := tools.Need(t, "util-linux", "unshare")
	base, shared := daemontest.ShortDir(t), daemontest.ShortDir(t)
	nets := map[string]*netns.Machine{}
	hosts := "127.0.0.1 localhost\n"
	for i, name := range names {
		nets[name] = network.Machine(i + 1)
		hosts += nets[name].Addr + " " + name + "." + domain + " " + name + "\n"
	}
	machines := map[string]*machine{}
	for _, name := range names {
		m := &machine{t: t, name: name, dir: filepath.Join(base, name)}
		m.furnish(hosts, base)
		within := nets[name].Within()
		args := append(within[1:], unshare, "--mount", "--uts", "--ipc", "--pid", "--fork", "--kill-child", "--mount-proc",
			"sh", "-ec", boots, "sh", name, m.dir, shared)
		cmd := exec.Command(within[0], args...)
		var out bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan struct{})
		var failed error
		go func() { failed = cmd.Wait(); close(ended) }()
		t.Cleanup(func() { _ = cmd.Process.Kill(); <-ended })
		eventually.Nil(t, eventually.Limit, "the machine "+name, func() error {
			select {
			case <-ended:
				tools.Without(t, fmt.Sprintf("no machine can be made here: %v: %s", failed, out.String()))
			default:
			}
			_, err := os.Stat(filepath.Join(m.dir, "run/booted"))
			return err
		})
		children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", cmd.Process.Pid))
		if m.init = strings.TrimSpace(string(children)); err != nil || strings.ContainsAny(m.init, " ") || m.init == "" {
			t.Fatalf("the first process of %s: %q, %v", name, m.init, err)
		}
		machines[name] = m
	}
	return machines
}

// domain is that of the machines.
const domain = "example.com"

// furnish fills the directories that a machine has for itself.
func (m *machine) furnish(hosts, base string) {
	m.t.Helper()
	must(m.t, os.Mkdir(m.dir, 0o755))
	if out, err := exec.Command("cp", "-a", "/etc", m.dir+"/etc").CombinedOutput(); err != nil {
		m.t.Fatalf("%v: %s", err, out)
	}
	for _, dir := range append(private, "etc/salt", "etc/haproxy", "run/haproxy", "srv/shared", "var/cache", "var/lib", "var/log", "var/tmp") {
		must(m.t, os.MkdirAll(filepath.Join(m.dir, dir), 0o755))
	}
	must(m.t, os.RemoveAll(m.dir+"/etc/salt"))
	must(m.t, os.Mkdir(m.dir+"/etc/salt", 0o755))
	must(m.t, os.WriteFile(m.dir+"/etc/hosts", []byte(hosts), 0o644))
	must(m.t, os.WriteFile(m.dir+"/etc/hostname", []byte(m.name+"\n"), 0o644))
	must(m.t, os.Symlink("/run", m.dir+"/var/run"))
	bin := m.dir + "/usr/local/bin/"
	must(m.t, os.WriteFile(bin+"systemctl", []byte(systemctl), 0o755))
	must(m.t, os.WriteFile(bin+"scp", []byte(fmt.Sprintf(scp, base)), 0o755))
	brine := daemontest.Brine.Command(m.t.Context(), m.t, "brine").Path
	for _, name := range []string{"brine", "salt", "salt-master", "salt-minion", "salt-key", "salt-call", "salt-run", "salt-cp", "salt-api"} {
		must(m.t, os.Symlink(brine, bin+name))
	}
}

// run runs a command as the page has it, by the shell, and returns its outputs.
func (m *machine) run(line string) (string, error) {
	// A daemon keeps the outputs, so Wait would wait for its end.
	out, err := os.CreateTemp(m.dir, "out")
	if err != nil {
		return "", err
	}
	defer out.Close()
	ctx, cancel := context.WithTimeout(m.t.Context(), eventually.Limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, "nsenter", "--target", m.init, "--mount", "--uts", "--ipc", "--net", "--pid", "sh", "-c", "cd /root && "+line)
	cmd.Env = []string{"PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:" + os.Getenv("PATH"), "HOME=/root", "LANG=C.UTF-8", "SHELL=/bin/sh"}
	cmd.Stdout, cmd.Stderr = out, out
	failed := cmd.Run()
	text, err := os.ReadFile(out.Name())
	if err != nil {
		return "", err
	}
	return string(text), failed
}

// asks are the beginnings of commands that a user repeats until the fleet is as the page says.
var asks = []string{"salt ", "salt-run ", "salt-call ", "salt-key ", "brine ha ", "brine cluster ", "curl "}

// do runs a command of a page, and again while it asks for what is not so yet.
func (m *machine) do(where string, c command) {
	m.t.Helper()
	try := func() error {
		out, err := m.run(c.text)
		if err != nil {
			return fmt.Errorf("%s: on %s: %s: %w\n%s", where, m.name, c.text, err, out)
		}
		for _, want := range c.answer {
			if !strings.Contains(out, want) {
				return fmt.Errorf("%s: on %s: %s: the output lacks %q:\n%s", where, m.name, c.text, want, out)
			}
		}
		return nil
	}
	m.awaitKey(c.text)
	for _, begin := range asks {
		if strings.HasPrefix(c.text, begin) {
			eventually.Nil(m.t, 2*time.Minute, c.text, try)
			return
		}
	}
	if err := try(); err != nil {
		m.t.Fatal(err)
	}
}

// awaitKey waits until the key that a command accepts is there.
func (m *machine) awaitKey(line string) {
	m.t.Helper()
	words := strings.Fields(line)
	for i, w := range words {
		if words[0] == "salt-key" && w == "-a" && i+1 < len(words) {
			m.do("awaitKey", command{text: "salt-key -l unaccepted", answer: []string{strings.Trim(words[i+1], "'")}})
		}
	}
}

// put writes a file of a page.
func (m *machine) put(path, text string) {
	m.t.Helper()
	out, err := m.run("mkdir -p " + filepath.Dir(path) + " && cat > " + path + " <<'END-OF-FILE'\n" + text + "END-OF-FILE")
	if err != nil {
		m.t.Fatalf("%s: %v: %s", path, err, out)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// walk does what a page says.
func walk(t *testing.T, p page, machines map[string]*machine) {
	t.Helper()
	for _, b := range p.blocks {
		for _, name := range b.hosts {
			m := machines[name]
			if b.file != "" {
				m.put(b.file, b.text)
			}
			for _, c := range b.commands {
				m.do(p.path+":"+strconv.Itoa(c.line), c)
			}
		}
	}
}

// TestGuides does what each page says, on new machines.
func TestGuides(t *testing.T) {
	tools.Slow(t)
	for _, p := range pages(t) {
		t.Run(strings.TrimSuffix(filepath.Base(p.path), ".md"), func(t *testing.T) {
			machines := boot(t, p.machines())
			walk(t, p, machines)
		})
	}
}
