// Package servertest runs third-party servers for tests: redis, etcd, MariaDB and PostgreSQL from
// Debian packages, each with its own directory and loopback address, so that nothing else on the
// machine is touched and ports do not conflict.
//
// A server that is not installed skips the test, unless BRINE_REQUIRE_TOOLS is
// 1: then the test fails.
package servertest

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"brine/internal/host/freeport"
	"brine/test/tools"
)

// Server is one running server.
type Server struct {
	// Name is the name of its Debian package.
	Name string
	// Host and Port are the address, User, Password and Database the login, as far as the server
	// requires one.
	Host                     string
	Port                     int
	User, Password, Database string
	// Dir contains its data.
	Dir string
	// Files are the files for a client of a server with TLS.
	Files Certificates

	start func() *exec.Cmd
	// end is the signal that ends the server at once, with its children.
	end   syscall.Signal
	ready func() error
	admin func(db string) *exec.Cmd
	cmd   *exec.Cmd
	out   string
	gone  chan struct{}
}

// giveUp is the timeout for the start of a server: far more than any machine should need.
const giveUp = 2 * time.Minute

// address returns a loopback address that no other process uses.
func address() string {
	return fmt.Sprintf("127.%d.%d.%d", 100+rand.IntN(100), rand.IntN(250), 2+rand.IntN(250))
}

// directory makes a directory that an account may enter and write to.
func directory(t testing.TB, owner *syscall.Credential) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "brine-server-")
	if err == nil {
		err = os.Chmod(dir, 0o755)
	}
	if err == nil && owner != nil {
		err = os.Chown(dir, int(owner.Uid), int(owner.Gid))
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// credential returns the credential of an account, nil if this process is not root.
func credential(t testing.TB, account string) *syscall.Credential {
	t.Helper()
	if os.Geteuid() != 0 {
		return nil
	}
	u, err := user.Lookup(account)
	if err != nil {
		u, err = user.Lookup("nobody")
	}
	if err != nil {
		t.Fatal(err)
	}
	uid, _ := strconv.Atoi(u.Uid)
	gid, _ := strconv.Atoi(u.Gid)
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
}

func as(c *exec.Cmd, who *syscall.Credential, dir string) *exec.Cmd {
	c.Dir = dir
	c.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "LC_ALL=C.UTF-8", "ETCD_UNSUPPORTED_ARCH=" + os.Getenv("ETCD_UNSUPPORTED_ARCH")}
	// The server must not get signals for the test's process group, but must be killed with the
	// tests.
	c.SysProcAttr = &syscall.SysProcAttr{Credential: who, Setpgid: true}
	endWithParent(c.SysProcAttr)
	return c
}

// prepare runs the command that creates the data of a new server.
func (s *Server) prepare(t testing.TB, c *exec.Cmd) {
	t.Helper()
	if out, err := c.CombinedOutput(); err != nil {
		s.Remove()
		t.Fatalf("%s: %v\n%s", c.Path, err, out)
	}
}

// run starts the server for the first time.
func (s *Server) run(t testing.TB) *Server {
	t.Helper()
	s.out = filepath.Join(s.Dir, "out")
	if err := s.Start(); err != nil {
		s.Remove()
		t.Fatal(err)
	}
	return s
}

// Start restarts the server after Stop, and waits until it serves.
func (s *Server) Start() error {
	out, err := os.OpenFile(s.out, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o666)
	if err != nil {
		return err
	}
	defer out.Close()
	s.cmd = s.start()
	s.cmd.Stdout, s.cmd.Stderr = out, out
	if err := s.cmd.Start(); err != nil {
		return err
	}
	s.gone = make(chan struct{})
	go func(c *exec.Cmd, gone chan struct{}) { c.Wait(); close(gone) }(s.cmd, s.gone)
	end := time.Now().Add(giveUp)
	for {
		err := s.ready()
		if err == nil {
			return nil
		}
		select {
		case <-s.gone:
			err = fmt.Errorf("it has ended: %w", err)
		case <-time.After(20 * time.Millisecond):
			if time.Now().Before(end) {
				continue
			}
		}
		text, _ := os.ReadFile(s.out)
		s.Stop()
		return fmt.Errorf("%s does not start: %w\n%s", s.Name, err, text)
	}
}

// Stop kills the server. Its data stays.
func (s *Server) Stop() {
	if s.cmd == nil {
		return
	}
	end := s.end
	if end == 0 {
		end = syscall.SIGKILL
	}
	s.cmd.Process.Signal(end)
	s.cmd.Process.Signal(syscall.SIGCONT) // it may be frozen
	<-s.gone
	s.cmd = nil
}

// Freeze stops the server from answering, with its connections open, until the returned function is
// called. It waits until the server has stopped, since a signal may take effect late on a busy
// machine.
func (s *Server) Freeze() (thaw func()) {
	p := s.cmd.Process
	p.Signal(syscall.SIGSTOP)
	for end := time.Now().Add(time.Minute); !stopped(p.Pid) && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	return func() { p.Signal(syscall.SIGCONT) }
}

// stopped reports whether all threads of a process are stopped, as far as the system shows.
func stopped(pid int) bool {
	stats, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	for _, path := range stats {
		b, err := os.ReadFile(path)
		if err != nil {
			continue // the thread has ended
		}
		_, after, _ := strings.Cut(string(b), ") ")
		if !strings.HasPrefix(after, "T") {
			return false
		}
	}
	return true
}

// Remove stops the server and deletes its data.
func (s *Server) Remove() {
	s.Stop()
	for range 100 {
		if os.RemoveAll(s.Dir) == nil {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// Addr returns host:port.
func (s *Server) Addr() string { return net.JoinHostPort(s.Host, strconv.Itoa(s.Port)) }

// Exec runs statements as the administrator of a database server, in database
// db, and returns what they print.
func (s *Server) Exec(t testing.TB, db, sql string) string {
	t.Helper()
	c := s.admin(db)
	c.Stdin = strings.NewReader(sql)
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v: %s\n%s", s.Name, err, out, sql)
	}
	return string(out)
}

// answers checks that the administrator can query a database.
func (s *Server) answers() error {
	c := s.admin("")
	c.Stdin = strings.NewReader("SELECT 1")
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

// speaks sends a request to a server and checks the beginning of its answer.
func (s *Server) speaks(question, answer string) error {
	c, err := s.dial()
	if err != nil {
		return err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(time.Minute))
	if _, err := io.WriteString(c, question); err != nil {
		return err
	}
	got := make([]byte, len(answer))
	if _, err := io.ReadFull(c, got); err != nil {
		return err
	}
	if string(got) != answer {
		return fmt.Errorf("it answers %q", got)
	}
	return nil
}

// Redis starts a redis server.
func Redis(t testing.TB) *Server {
	t.Helper()
	return runRedis(t, false)
}

func runRedis(t testing.TB, secure bool) *Server {
	t.Helper()
	bin := tools.Need(t, "redis-server", "redis-server")
	who := credential(t, "redis")
	s := &Server{Name: "redis-server", Host: address(), Port: 6379, Dir: directory(t, who)}
	port := []string{"--port", strconv.Itoa(s.Port)}
	question, answer := "PING\r\n", "+PONG"
	if secure {
		s.certify(t, who)
		s.Password = "p@ss/w:rd"
		port = []string{"--port", "0", "--tls-port", strconv.Itoa(s.Port), "--tls-cert-file", s.Files.ServerCert, "--tls-key-file", s.Files.ServerKey,
			"--tls-ca-cert-file", s.Files.CA, "--tls-auth-clients", "yes", "--requirepass", s.Password}
		question, answer = "AUTH "+s.Password+"\r\n", "+OK"
	}
	s.start = func() *exec.Cmd {
		return as(exec.Command(bin, append(port, "--bind", s.Host, "--dir", s.Dir, "--save", "", "--appendonly", "yes",
			"--unixsocket", filepath.Join(s.Dir, "sock"), "--unixsocketperm", "777")...), who, s.Dir)
	}
	s.ready = func() error { return s.speaks(question, answer) }
	return s.run(t)
}

// Etcd starts an etcd server with both of its interfaces.
func Etcd(t testing.TB) *Server {
	t.Helper()
	return runEtcd(t, false)
}

func runEtcd(t testing.TB, secure bool) *Server {
	t.Helper()
	bin := tools.Need(t, "etcd-server", "etcd")
	who := credential(t, "etcd")
	s := &Server{Name: "etcd-server", Host: address(), Port: 2379, Dir: directory(t, who)}
	peer, client := "http://"+s.Host+":2380", "http://"+s.Addr()
	var tls []string
	if secure {
		s.certify(t, who)
		client = "https://" + s.Addr()
		tls = []string{"--cert-file", s.Files.ServerCert, "--key-file", s.Files.ServerKey, "--trusted-ca-file", s.Files.CA, "--client-cert-auth"}
	}
	s.start = func() *exec.Cmd {
		return as(exec.Command(bin, append(tls, "--name", "t", "--data-dir", filepath.Join(s.Dir, "data"), "--enable-v2=true", "--listen-client-urls", client,
			"--advertise-client-urls", client, "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", "t="+peer,
			"--unsafe-no-fsync")...), who, s.Dir)
	}
	s.ready = func() error {
		return s.speaks("GET /health HTTP/1.0\r\n\r\n", "HTTP/1.0 200 OK")
	}
	return s.run(t)
}

// EtcdCluster starts three etcd servers that form a cluster.
func EtcdCluster(t testing.TB) []*Server {
	t.Helper()
	bin := tools.Need(t, "etcd-server", "etcd")
	who := credential(t, "etcd")
	var all []*Server
	var members []string
	for i := range 3 {
		s := &Server{Name: "etcd-server", Host: address(), Port: 2379, Dir: directory(t, who)}
		t.Cleanup(s.Remove)
		all, members = append(all, s), append(members, fmt.Sprintf("t%d=http://%s:2380", i, s.Host))
	}
	started := make(chan error, len(all))
	for i, s := range all {
		peer, client := "http://"+s.Host+":2380", "http://"+s.Addr()
		s.out = filepath.Join(s.Dir, "out")
		s.start = func() *exec.Cmd {
			return as(exec.Command(bin, "--name", fmt.Sprintf("t%d", i), "--data-dir", filepath.Join(s.Dir, "data"), "--listen-client-urls", client,
				"--advertise-client-urls", client, "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster",
				strings.Join(members, ","), "--heartbeat-interval", "200", "--election-timeout", "2000", "--unsafe-no-fsync"), who, s.Dir)
		}
		s.ready = func() error { return s.speaks("GET /health HTTP/1.0\r\n\r\n", "HTTP/1.0 200 OK") }
		go func() { started <- s.Start() }()
	}
	for range all {
		if err := <-started; err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// MySQL starts a MariaDB server, with a user salt who has all privileges.
func MySQL(t testing.TB) *Server {
	t.Helper()
	return runMySQL(t, false)
}

func runMySQL(t testing.TB, secure bool) *Server {
	t.Helper()
	const pkg = "mariadb-server"
	bin, install, client := tools.Need(t, pkg, "mariadbd", "mysqld"), tools.Need(t, pkg, "mariadb-install-db"), tools.Need(t, pkg, "mariadb")
	who := credential(t, "mysql")
	s := &Server{Name: "mariadb-server", Host: address(), Port: 3306, Dir: directory(t, who), User: "salt", Password: "p@ss/w:rd", Database: "salt"}
	data, sock := filepath.Join(s.Dir, "data"), filepath.Join(s.Dir, "sock")
	quick := []string{"--innodb-log-file-size=4M", "--innodb-buffer-pool-size=16M", "--innodb-flush-log-at-trx-commit=0", "--innodb-use-native-aio=0"}
	s.prepare(t, as(exec.Command(install, append([]string{"--no-defaults", "--auth-root-authentication-method=normal", "--skip-test-db", "--datadir=" + data},
		quick...)...), who, s.Dir))
	var tls []string
	access := "'" + s.Password + "'"
	if secure {
		s.certify(t, who)
		tls = []string{"--ssl-ca=" + s.Files.CA, "--ssl-cert=" + s.Files.ServerCert, "--ssl-key=" + s.Files.ServerKey}
		access += " REQUIRE X509"
	}
	s.start = func() *exec.Cmd {
		return as(exec.Command(bin, append([]string{"--no-defaults", "--datadir=" + data, "--socket=" + sock, "--bind-address=" + s.Host,
			"--port=" + strconv.Itoa(s.Port), "--pid-file=" + filepath.Join(s.Dir, "pid"), "--skip-name-resolve"}, append(tls, quick...)...)...), who, s.Dir)
	}
	s.admin = func(db string) *exec.Cmd {
		return as(exec.Command(client, "--no-defaults", "--socket="+sock, "--user=root", "--batch", "--skip-column-names", db), who, s.Dir)
	}
	s.ready = s.answers
	s.run(t)
	s.Exec(t, "", "CREATE USER salt@'%' IDENTIFIED BY "+access+"; GRANT ALL ON *.* TO salt@'%'; CREATE DATABASE salt_cache;")
	return s
}

// Postgres starts a PostgreSQL server, with a user salt who owns the database
// salt.
func Postgres(t testing.TB) *Server {
	t.Helper()
	return runPostgres(t, false)
}

func runPostgres(t testing.TB, secure bool) *Server {
	t.Helper()
	bin := tools.Need(t, "postgresql", "/usr/lib/postgresql/*/bin/postgres", "postgres")
	tools.NeedAccount(t, "initdb")
	tool := func(name string) string { return filepath.Join(filepath.Dir(bin), name) }
	who := credential(t, "postgres")
	s := &Server{Name: "postgresql", Host: address(), Port: 5432, Dir: directory(t, who), User: "salt", Password: "p@ss/w:rd", Database: "salt"}
	data := filepath.Join(s.Dir, "data")
	s.prepare(t, as(exec.Command(tool("initdb"), "-D", data, "-U", "admin", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"), who, s.Dir))
	hba := "local all admin trust\nhost all all all scram-sha-256\n"
	var tls []string
	if secure {
		s.certify(t, who)
		hba = "local all admin trust\nhostssl all all all scram-sha-256 clientcert=verify-ca\n"
		tls = []string{"-c", "ssl=on", "-c", "ssl_ca_file=" + s.Files.CA, "-c", "ssl_cert_file=" + s.Files.ServerCert, "-c",
			"ssl_key_file=" + s.Files.ServerKey}
	}
	if err := os.WriteFile(filepath.Join(data, "pg_hba.conf"), []byte(hba), 0o600); err != nil {
		t.Fatal(err)
	}
	// If it were killed, its other processes, which lock the data, would remain.
	s.end = syscall.SIGQUIT
	s.start = func() *exec.Cmd {
		return as(exec.Command(bin, append([]string{"-D", data, "-k", s.Dir, "-h", s.Host, "-p", strconv.Itoa(s.Port), "-c", "fsync=off", "-c",
			"shared_buffers=16MB"}, tls...)...), who, s.Dir)
	}
	s.admin = func(db string) *exec.Cmd {
		if db == "" {
			db = "postgres"
		}
		return as(exec.Command(tool("psql"), "-h", s.Dir, "-p", strconv.Itoa(s.Port), "-U", "admin", "-qAtX", "-v", "ON_ERROR_STOP=1", db), who, s.Dir)
	}
	s.ready = s.answers
	s.run(t)
	s.Exec(t, "", "CREATE ROLE salt LOGIN PASSWORD '"+s.Password+"';")
	s.Exec(t, "", "CREATE DATABASE salt OWNER salt;")
	return s
}

// Rabbit starts a RabbitMQ server in a PID namespace that ends with it. env are the variables with
// which its tools find it. It needs root.
func Rabbit(t testing.TB) (s *Server, env []string) {
	t.Helper()
	const bin = "/usr/lib/rabbitmq/bin/"
	tools.Need(t, "rabbitmq-server", bin+"rabbitmq-server")
	s = &Server{Name: "rabbitmq-server", Host: address(), Port: 5672, Dir: directory(t, nil)}
	ports, err := freeport.TCP(2)
	if err != nil {
		t.Fatal(err)
	}
	env = []string{"HOME=" + s.Dir, "ERL_EPMD_PORT=" + strconv.Itoa(ports[0]), "RABBITMQ_DIST_PORT=" + strconv.Itoa(ports[1]), "RABBITMQ_NODENAME=test" +
		strconv.Itoa(ports[0]) + "@localhost",
		"RABBITMQ_NODE_IP_ADDRESS=" + s.Host, "RABBITMQ_NODE_PORT=" + strconv.Itoa(s.Port), "RABBITMQ_MNESIA_BASE=" + s.Dir + "/data", "RABBITMQ_LOG_BASE=" +
			s.Dir + "/log",
		"RABBITMQ_ENABLED_PLUGINS_FILE=" + s.Dir + "/plugins", "RABBITMQ_CONFIG_FILE=" + s.Dir + "/none", "LC_ALL=C.UTF-8",
		// In a PID namespace it must not look for its process id in /proc, where it belongs to another process.
		"RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS=+S 1:1 +sbwt none +sbwtdcpu none +sbwtdio none -rabbit vm_memory_calculation_strategy erlang",
		"RABBITMQ_CTL_ERL_ARGS=+S 1:1 +sbwt none +sbwtdcpu none +sbwtdio none"}
	s.start = func() *exec.Cmd {
		c := as(exec.Command("unshare", "--pid", "--fork", "--kill-child", "sh", "-c", "epmd -address 127.0.0.1 & "+bin+"rabbitmq-server"), nil, s.Dir)
		c.Env = append(c.Env, env...)
		return c
	}
	s.ready = func() error {
		c := as(exec.Command(bin+"rabbitmqctl", "await_startup"), nil, s.Dir)
		c.Env = append(c.Env, env...)
		if out, err := c.CombinedOutput(); err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	}
	return s.run(t), env
}

// StockPython runs a script with stock Salt's modules, whose source tree is BRINE_STOCK_SALT. It
// skips the test without that variable, or without one of the Python modules that the script needs
// (it fails if tools are required).
func StockPython(ctx context.Context, t testing.TB, script string, needs map[string]string, args ...string) string {
	t.Helper()
	tree, python := tools.StockSalt(t)
	for module, pkg := range needs {
		if exec.CommandContext(ctx, python, "-c", "import "+module).Run() != nil {
			tools.Missing(t, pkg)
		}
	}
	c := exec.CommandContext(ctx, python, append([]string{"-W", "ignore", "-c", script}, args...)...)
	c.Env = append(os.Environ(), "PYTHONPATH="+tree)
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("stock Salt: %v\n%s", err, out)
	}
	return string(out)
}
