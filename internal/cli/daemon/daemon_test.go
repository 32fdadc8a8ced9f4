package daemon

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"brine/internal/cli/frame"
	"brine/internal/host/freeport"
)

// programEnv makes the test binary run as the named program.
const programEnv = "BRINE_TEST_PROGRAM"

func TestMain(m *testing.M) {
	name := os.Getenv(programEnv)
	for _, a := range []frame.Applet{MasterApplet(), MinionApplet(), APIApplet(), SyndicApplet()} {
		if a.Name == name {
			ctx, stop := frame.Signals(context.Background())
			defer stop()
			os.Exit(a.Run(ctx, frame.OSEnv(), os.Args[1:]))
		}
	}
	os.Exit(m.Run())
}

// place is a directory with the configuration of a master and a minion.
type place struct {
	t      *testing.T
	dir    string
	notify *net.UnixConn
}

func newPlace(t *testing.T, more string) *place {
	t.Helper()
	dir, err := os.MkdirTemp("", "brine") // t.TempDir may be too long for sockets, and other users cannot enter it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	p := &place{t: t, dir: dir}
	ports := freePorts(t, 2)
	common := fmt.Sprintf("root_dir: %s\nenable_fqdns_grains: false\n%s", dir, more)
	p.write("master", fmt.Sprintf("%sinterface: 127.0.0.1\npublish_port: %d\nret_port: %d\n", common, ports[0], ports[1]))
	p.write("minion", fmt.Sprintf("%sid: one\nmaster: 127.0.0.1\nmaster_port: %d\n", common, ports[1]))
	p.notify, err = net.ListenUnixgram("unixgram", &net.UnixAddr{Name: dir + "/notify", Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.notify.Close() })
	if err := os.Chmod(dir+"/notify", 0o777); err != nil {
		t.Fatal(err)
	}
	return p
}

func freePorts(t *testing.T, n int) []int {
	t.Helper()
	ports, err := freeport.TCP(n)
	if err != nil {
		t.Fatal(err)
	}
	return ports
}

func (p *place) write(name, text string) {
	p.t.Helper()
	path := filepath.Join(p.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		p.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		p.t.Fatal(err)
	}
}

func (p *place) read(name string) string {
	p.t.Helper()
	b, err := os.ReadFile(filepath.Join(p.dir, name))
	if err != nil {
		p.t.Fatal(err)
	}
	return string(b)
}

// heard returns the next message to the service manager.
func (p *place) heard() string {
	p.t.Helper()
	buf := make([]byte, 1000)
	p.notify.SetReadDeadline(time.Now().Add(2 * time.Minute))
	n, err := p.notify.Read(buf)
	if err != nil {
		p.t.Fatal("no message to the service manager: ", err)
	}
	return string(buf[:n])
}

// process is a running daemon.
type process struct {
	*exec.Cmd
	t              *testing.T
	stdout, stderr bytes.Buffer
}

func (p *place) start(program string, args ...string) *process {
	p.t.Helper()
	self, err := os.Executable()
	if err != nil {
		p.t.Fatal(err)
	}
	d := &process{Cmd: exec.CommandContext(p.t.Context(), self, append([]string{"-c", p.dir}, args...)...), t: p.t}
	d.Args[0], d.Dir = program, p.dir
	d.Env = append(os.Environ(), programEnv+"="+program, "NOTIFY_SOCKET="+p.dir+"/notify")
	d.Stdout, d.Stderr = &d.stdout, &d.stderr
	if err := d.Start(); err != nil {
		p.t.Fatal(err)
	}
	return d
}

// up starts a daemon and waits until it is ready.
func (p *place) up(program string, args ...string) *process {
	p.t.Helper()
	d := p.start(program, args...)
	if got := p.heard(); got != "READY=1" {
		p.t.Fatalf("%s says %q", program, got)
	}
	return d
}

func (d *process) end(sig syscall.Signal) (code int) {
	d.t.Helper()
	if err := d.Process.Signal(sig); err != nil {
		d.t.Fatal(err)
	}
	return d.wait()
}

func (d *process) wait() (code int) {
	d.Wait()
	return d.ProcessState.ExitCode()
}

func TestSignals(t *testing.T) {
	for _, c := range []struct {
		program, pid string
		sig          syscall.Signal
		want         string
	}{
		{"salt-master", "var/run/salt-master.pid", syscall.SIGTERM,
			"[WARNING ] Master received a SIGTERM. Exiting.\nThe salt master is shutdown. Master received a SIGTERM. Exited.\n"},
		{"salt-master", "var/run/salt-master.pid", syscall.SIGINT,
			"[WARNING ] Master received a SIGINT. Exiting.\nThe salt master is shutdown. Master received a SIGINT. Exited.\n"},
		{"salt-minion", "var/run/salt-minion.pid", syscall.SIGTERM,
			"[WARNING ] Minion received a SIGTERM. Exiting.\nThe Salt Minion is shutdown. Minion received a SIGTERM. Exited.\n"},
	} {
		t.Run(c.program+" "+c.sig.String(), func(t *testing.T) {
			t.Parallel()
			p := newPlace(t, "")
			d := p.up(c.program)
			if got := p.read(c.pid); got != strconv.Itoa(d.Process.Pid) {
				t.Errorf("the pid file holds %q, want %d", got, d.Process.Pid)
			}
			if code := d.end(c.sig); code != 0 || !strings.HasSuffix(d.stderr.String(), c.want) || d.stdout.Len() > 0 {
				t.Errorf("code %d, stdout %q, stderr:\n%s", code, &d.stdout, &d.stderr)
			}
			if got := p.heard(); got != "STOPPING=1" {
				t.Errorf("the service manager was told %q", got)
			}
			if _, err := os.Stat(filepath.Join(p.dir, c.pid)); err == nil {
				t.Error("the pid file is still there")
			}
		})
	}
}

func TestAlreadyRunning(t *testing.T) {
	p := newPlace(t, "")
	master, minion := p.up("salt-master"), p.up("salt-minion")
	again := p.start("salt-minion")
	want := fmt.Sprintf("salt-minion: an instance is already running: process %d, says %s/var/run/salt-minion.pid\n", minion.Process.Pid, p.dir)
	if code := again.wait(); code != 1 || !strings.HasSuffix(again.stderr.String(), want) {
		t.Errorf("minion: code %d, stderr:\n%s", code, &again.stderr)
	}
	again = p.start("salt-master")
	want = fmt.Sprintf("an instance is already running: process %d", master.Process.Pid)
	if code := again.wait(); code != 4 || !strings.Contains(again.stderr.String(), want) {
		t.Errorf("master: code %d, stderr:\n%s", code, &again.stderr)
	}
	if got := p.read("var/run/salt-master.pid"); got != strconv.Itoa(master.Process.Pid) {
		t.Errorf("the pid file of the first one now holds %q", got)
	}
	check := p.start("salt-master", "--check-config")
	if code := check.wait(); code != 0 {
		t.Errorf("the ports of the running instance are held against it: %s", &check.stdout)
	}
	minion.end(syscall.SIGTERM)
	p.heard()
	// A pid file of an ended process or of another program does not prevent a start.
	for _, left := range []string{"999999999", "1", "junk", ""} {
		p.write("var/run/salt-minion.pid", left)
		p.up("salt-minion").end(syscall.SIGTERM)
		p.heard()
	}
	master.end(syscall.SIGTERM)
}

// TestAddressInUse: salt-api prints its name once, the option and the address.
func TestAddressInUse(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	p := newPlace(t, fmt.Sprintf("rest_cherrypy: {host: 127.0.0.1, port: %d, disable_ssl: true}\n", l.Addr().(*net.TCPAddr).Port))
	d := p.start("salt-api", "-l", "error")
	want := "salt-api: rest_cherrypy: port: listen tcp " + l.Addr().String() + ": bind: address already in use\n"
	if code := d.wait(); code != 4 || d.stderr.String() != want {
		t.Errorf("code %d, stderr %q, want %q", code, &d.stderr, want)
	}
}

var status = regexp.MustCompile(`(?m)^(Uid|Umask):\s+(\S+)`)

func procStatus(t *testing.T, pid string) map[string]string {
	t.Helper()
	text, err := os.ReadFile("/proc/" + pid + "/status")
	if err != nil {
		t.Skip("no /proc here: ", err)
	}
	out := map[string]string{}
	for _, m := range status.FindAllStringSubmatch(string(text), -1) {
		out[m[1]] = m[2]
	}
	return out
}

func TestBackground(t *testing.T) {
	p := newPlace(t, "")
	old := syscall.Umask(0o000)
	d := p.start("salt-master", "-d", "--pid-file=relative.pid", "--log-file=relative.log", "--log-file-level=info")
	syscall.Umask(old)
	if code := d.wait(); code != 0 {
		t.Fatalf("code %d, %s", code, &d.stderr)
	}
	if got := p.heard(); got != "READY=1" { // sent before the parent ended
		t.Fatalf("got %q", got)
	}
	pid := p.read("relative.pid")
	n, err := strconv.Atoi(pid)
	if err != nil || n == d.Process.Pid {
		t.Fatalf("the pid file holds %q", pid)
	}
	if got := procStatus(t, pid)["Umask"]; got != "0022" {
		t.Errorf("umask %s", got)
	}
	if cwd, _ := os.Readlink("/proc/" + pid + "/cwd"); cwd != "/" {
		t.Errorf("it is in the directory %s", cwd)
	}
	again := p.start("salt-master", "-d", "--pid-file=relative.pid")
	if code := again.wait(); code != 4 || !strings.Contains(again.stderr.String(), "an instance is already running: process "+pid) {
		t.Errorf("again: code %d, %s", code, &again.stderr)
	}
	if err := syscall.Kill(n, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if got := p.heard(); got != "STOPPING=1" {
		t.Errorf("got %q", got)
	}
	if log := p.read("relative.log"); !strings.Contains(log, "salt-master is up") {
		t.Errorf("log: %s", log)
	}
}

func TestLogging(t *testing.T) {
	for _, c := range []struct {
		conf, args  string
		file        string
		want, wants string // patterns for the file and stderr
	}{
		{"", "", "var/log/salt/minion", `(?m)^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} \[\S+ *:\d* *\]\[WARNING *\]\[\d+\] Minion received`,
			`(?m)^\[WARNING \] Minion received`},
		{"", "--log-file=other -l quiet --log-file-level=info", "other", `\]\[INFO *\]\[\d+\] salt-minion is up`, `^The Salt Minion is shutdown`},
		{"", "--log-level=info", "var/log/salt/minion", `\]\[WARNING *\]\[\d+\] Minion received`, `(?m)^\[INFO    \] salt-minion is up`},
		{"log_file: /logs/mine\nlog_fmt_logfile: '<%(levelname)s> %(message)s'\nlog_level_logfile: info\nlog_fmt_console: '%(levelname)s|%(message)s'\n", "",
			"logs/mine", `(?m)^<INFO> salt-minion is up`, `(?m)^WARNING\|Minion received`},
	} {
		t.Run(c.args, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t, c.conf)
			d := p.up("salt-minion", strings.Fields(c.args)...)
			d.end(syscall.SIGTERM)
			if got := p.read(c.file); !regexp.MustCompile(c.want).MatchString(got) {
				t.Errorf("the file holds\n%s\nwant %s", got, c.want)
			}
			if got := d.stderr.String(); !regexp.MustCompile(c.wants).MatchString(got) {
				t.Errorf("stderr:\n%s\nwant %s", got, c.wants)
			}
		})
	}
}

func TestUser(t *testing.T) {
	p := newPlace(t, "")
	d := p.start("salt-master", "-u", "nosuchuser")
	if code := d.wait(); code != 67 ||
		!strings.HasSuffix(d.stderr.String(), "Failed to prepare the Salt environment for user nosuchuser. The user is not available.\n") {
		t.Errorf("code %d, %s", code, &d.stderr)
	}
	nobody, err := user.Lookup("nobody")
	if err != nil || os.Getuid() != 0 {
		t.Skip("only root can become nobody")
	}
	p.write("var/cache/salt/master/old", "made by root")
	d = p.up("salt-master", "--user=nobody", "--log-file="+p.dir+"/log")
	if got := procStatus(t, strconv.Itoa(d.Process.Pid))["Uid"]; got != nobody.Uid {
		t.Errorf("it runs as %s", got)
	}
	for _, path := range []string{"etc/salt/pki/master/master.pem", "var/cache/salt/master/old", "var/run/salt/master", "log", "var/run/salt-master.pid"} {
		st, err := os.Stat(filepath.Join(p.dir, path))
		if err != nil {
			t.Error(err)
		} else if got := strconv.Itoa(int(st.Sys().(*syscall.Stat_t).Uid)); got != nobody.Uid {
			t.Errorf("%s belongs to %s", path, got)
		}
	}
	if code := d.end(syscall.SIGTERM); code != 0 {
		t.Errorf("code %d, %s", code, &d.stderr)
	}
	p.heard()
	d = p.start("salt-minion", "-u", "nobody", "--check-config")
	if code := d.wait(); code != 0 {
		t.Errorf("code %d, %s", code, &d.stdout)
	}
}

// TestHardLinksStay: the owner of a file with further hard links does not change.
func TestHardLinksStay(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can give files away")
	}
	dir := t.TempDir()
	secret := filepath.Join(dir, "secret")
	directory := filepath.Join(dir, "cache")
	if err := os.Mkdir(directory, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, f := range []string{secret, filepath.Join(directory, "own")} {
		if err := os.WriteFile(f, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Link(secret, filepath.Join(directory, "link")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(secret, filepath.Join(directory, "symlink")); err != nil {
		t.Fatal(err)
	}
	if err := handOver(12345, 12345, []string{directory}, nil); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]uint32{secret: 0, filepath.Join(directory, "own"): 12345, directory: 12345} {
		st, _ := os.Stat(path)
		if got := st.Sys().(*syscall.Stat_t).Uid; got != want {
			t.Errorf("%s belongs to %d, want %d", path, got, want)
		}
	}
}

func TestCheckConfig(t *testing.T) {
	p := newPlace(t, "log_levle: info\n")
	d := p.start("salt-master", "--check-config")
	if code := d.wait(); code != 0 || d.stdout.String() != "OK: the configuration in "+p.dir+"/master is fine.\n" ||
		!strings.Contains(d.stderr.String(), "did you mean log_level?") {
		t.Errorf("code %d, %s, stderr %s", code, &d.stdout, &d.stderr)
	}
	if _, err := os.Stat(p.dir + "/etc/salt/pki"); err == nil {
		t.Error("the check made directories")
	}
	for _, args := range [][]string{{"--check-config", "-l", "quiet"}, {"--check-config", "-l", "error"}} {
		if d := p.start("salt-master", args...); d.wait() != 0 || d.stderr.Len() > 0 {
			t.Errorf("%v: %s", args, &d.stderr)
		}
	}
	empty := t.TempDir()
	d = p.start("salt-master", "-c", empty, "--check-config")
	if d.wait(); !strings.Contains(d.stdout.String(), "warning: there is no "+empty+"/master: all options have their defaults\n") ||
		strings.Contains(d.stdout.String(), "fine") {
		t.Errorf("without a file: %s", &d.stdout)
	}
	l, err := net.Listen("tcp", "127.0.0.1:"+regexp.MustCompile(`ret_port: (\d+)`).FindStringSubmatch(p.read("master"))[1])
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	p.write("etc/salt/pki/master/master.pem", "junk")
	p.write("var/cache", "a file")
	d = p.start("salt-master", "--check-config")
	code := d.wait()
	for _, want := range []string{"error: the private key cannot be used: ", "cannot be bound for zeromq", "salt-master: 3 fault(s) in "} {
		if code != 1 || !strings.Contains(d.stdout.String(), want) {
			t.Errorf("code %d, no %q in %s", code, want, &d.stdout)
		}
	}
	p.write("minion", "root_dir: "+p.dir+"/other\nid: one\nuser: nosuchuser\nmaster: [nosuch.invalid, '127.0.0.1:4506']\n")
	d = p.start("salt-minion", "--check-config")
	if code := d.wait(); code != 1 || !strings.Contains(d.stdout.String(), "error: user: ") ||
		!strings.Contains(d.stdout.String(), "warning: the master nosuch.invalid has no address") {
		t.Errorf("code %d, %s", code, &d.stdout)
	}
	p.write("master", "root_dir: "+p.dir+"/other\nsyndic_user: nosuchuser\nsyndic_master: 127.0.0.1\n")
	d = p.start("salt-syndic", "--check-config")
	if code := d.wait(); code != 1 || !strings.Contains(d.stdout.String(), "error: syndic_user: ") {
		t.Errorf("code %d, %s", code, &d.stdout)
	}
}

// Every option of Salt's programs is accepted.
func TestOptions(t *testing.T) {
	for _, c := range []struct {
		args string
		code int
		want string
	}{
		{"--disable-keepalive --check-config", 0, "OK: "},
		{"stray", 64, "unexpected argument \"stray\""},
		{"-V", 0, "Salt Version:"},
		{"--saltfile=/nonexistent", 64, "file does not exist"},
		{"--log-level=loud", 64, "invalid choice: 'loud'"},
	} {
		p := newPlace(t, "")
		d := p.start("salt-minion", strings.Fields(c.args)...)
		if code := d.wait(); code != c.code || !strings.Contains(d.stdout.String()+d.stderr.String(), c.want) {
			t.Errorf("%s: code %d, %s%s", c.args, code, &d.stdout, &d.stderr)
		}
	}
}

// TestConfigurationWarnings: messages about the configuration go to the log once, at the configured
// levels. An invalid log format does not prevent the start.
func TestConfigurationWarnings(t *testing.T) {
	const unknown, format = "option=no_such_thing", "invalid log format; using the default option=log_fmt_console"
	conf := "no_such_thing: 1\nengines_dirs: [/x]\nlog_handlers_dirs: [/x]\ncmd_blacklist_glob: [x]\nsaltgui_motd: hi\nsharedsecret: s\n" +
		"log_fmt_console: '%(nothing)s'\nlog_fmt_logfile: '%(asctime)s,%(msecs)03.0f [%(levelname)-8s] %(message)s'\nlog_datefmt_logfile: '%H:%M:%S'\n"
	for _, program := range []string{"salt-master", "salt-minion"} {
		for args, shown := range map[string]bool{"": true, "-l info": true, "-l quiet": false, "-l critical": false} {
			t.Run(program+" "+args, func(t *testing.T) {
				t.Parallel()
				p := newPlace(t, conf)
				d := p.up(program, append(strings.Fields(args), "--log-file-level=info")...)
				d.end(syscall.SIGTERM)
				stderr, file := d.stderr.String(), p.read("var/log/salt/"+strings.TrimPrefix(program, "salt-"))
				for _, want := range []string{unknown, format} {
					if n := strings.Count(file, want); n != 1 {
						t.Errorf("%q is %d times in the log:\n%s", want, n, file)
					}
					if n := strings.Count(stderr, want); shown != (n == 1) {
						t.Errorf("%q is %d times on stderr:\n%s", want, n, stderr)
					}
				}
				if strings.Count(file, "unknown option") != 1 {
					t.Errorf("options of Salt's are unknown:\n%s", file)
				}
				if !regexp.MustCompile(`(?m)^\d\d:\d\d:\d\d,\d{3} \[INFO    \] ` + program + ` is up`).MatchString(file) {
					t.Errorf("no line in the form of log_fmt_logfile:\n%s", file)
				}
			})
		}
	}
}

// TestQuietBackground: -d prints nothing; warnings are in the log.
func TestQuietBackground(t *testing.T) {
	p := newPlace(t, "no_such_thing: 1\n")
	d := p.start("salt-minion", "-d")
	if code := d.wait(); code != 0 || d.stdout.Len()+d.stderr.Len() > 0 {
		t.Errorf("code %d, %s%s", code, &d.stdout, &d.stderr)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(p.read("var/run/salt-minion.pid")))
	if err != nil {
		t.Fatal(err)
	}
	syscall.Kill(pid, syscall.SIGTERM)
	if log := p.read("var/log/salt/minion"); strings.Count(log, "option=no_such_thing") != 1 {
		t.Errorf("log: %s", log)
	}
}

// TestStacks: at SIGUSR1 a daemon writes its stacks and continues.
func TestStacks(t *testing.T) {
	for _, program := range []string{"salt-master", "salt-minion"} {
		t.Run(program, func(t *testing.T) {
			p := newPlace(t, "")
			tmp := t.TempDir()
			t.Setenv("TMPDIR", tmp)
			d := p.up(program)
			if err := d.Process.Signal(syscall.SIGUSR1); err != nil {
				t.Fatal(err)
			}
			log := ""
			for begin := time.Now(); !strings.Contains(log, "received SIGUSR1") && time.Since(begin) < 2*time.Minute; time.Sleep(20 * time.Millisecond) {
				log = p.read("var/log/salt/" + strings.TrimPrefix(program, "salt-"))
			}
			found, err := filepath.Glob(tmp + "/salt-debug-*.log")
			if err != nil || len(found) != 1 || !strings.Contains(log, "path="+found[0]) {
				t.Fatalf("%v, %v, log:\n%s", found, err, log)
			}
			text, err := os.ReadFile(found[0])
			if err != nil || !strings.Contains(string(text), "goroutine ") || !strings.Contains(string(text), "daemon.(*blueprint).serve") {
				t.Errorf("%.500s, %v", text, err)
			}
			if code := d.end(syscall.SIGTERM); code != 0 {
				t.Errorf("code %d: %s", code, &d.stderr)
			}
		})
	}
}

// TestProcessName: ps -e and pgrep -x show the name of the program.
func TestProcessName(t *testing.T) {
	if _, err := os.Stat("/proc/self/comm"); err != nil {
		t.Skip("names of processes are in /proc/PID/comm only on Linux")
	}
	for _, program := range []string{"salt-master", "salt-minion"} {
		p := newPlace(t, "")
		d := p.up(program)
		if got, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", d.Process.Pid)); err != nil || string(got) != program+"\n" {
			t.Errorf("%q, %v", got, err)
		}
		d.end(syscall.SIGTERM)
		if d := p.start(program, "-d"); d.wait() != 0 {
			t.Fatalf("%s", &d.stderr)
		}
		pid, err := strconv.Atoi(strings.TrimSpace(p.read("var/run/" + program + ".pid")))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid)); err != nil || string(got) != program+"\n" {
			t.Errorf("in the background: %q, %v", got, err)
		}
		syscall.Kill(pid, syscall.SIGTERM)
	}
}
