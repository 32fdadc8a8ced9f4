package clienttest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"brine/internal/host/freeport"
	"brine/internal/net/event"
	"brine/internal/py/value"
	"brine/internal/py/yaml"
	"brine/test/tools"
)

// Stock is a real Salt master with one real minion.
type Stock struct {
	Dir    string // config_dir
	Minion string // id of the minion, whose grain role is web
	t      testing.TB
	python string
	source string
}

// StartStock starts a stock Salt master and a minion named stock1, and waits until the minion
// answers. It skips the test unless BRINE_STOCK_SALT names Salt's source tree.
func StartStock(t testing.TB) *Stock {
	t.Helper()
	s := &Stock{t: t, Minion: "stock1"}
	s.source, s.python = tools.StockSalt(t)
	dir, err := os.MkdirTemp("", "brine")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	s.Dir = dir
	ports, err := freeport.TCP(2)
	if err != nil {
		t.Fatal(err)
	}
	publish, ret := ports[0], ports[1]
	caller := os.Getenv("USER")
	if os.Getuid() == 0 || caller == "" {
		caller = "root"
	}
	common := value.DictOf("root_dir", dir, "user", caller, "sock_dir", dir+"/s", "log_level_logfile", "warning", "log_level", "warning",
		"publish_port", publish, "enable_fqdns_grains", false)
	master := common.Clone()
	master.Update(value.DictOf("interface", "127.0.0.1", "ret_port", ret, "pki_dir", dir+"/pkim", "cachedir", dir+"/cm", "pidfile", dir+"/m.pid",
		"log_file", dir+"/master.log", "auto_accept", true, "worker_threads", 2, "timeout", 2, "gather_job_timeout", 2,
		"nodegroups", value.DictOf("web", "G@role:web")))
	minion := common.Clone()
	minion.Update(value.DictOf("id", s.Minion, "master", "127.0.0.1", "master_port", ret, "pki_dir", dir+"/pkin", "cachedir", dir+"/cn",
		"sock_dir", dir+"/n", "pidfile", dir+"/n.pid", "log_file", dir+"/minion.log", "grains", value.DictOf("role", "web"), "acceptance_wait_time", 1))
	for name, conf := range map[string]*value.Dict{"master": master, "minion": minion} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(yaml.Dump(conf)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s.daemon("salt-master")
	events := s.events(dir)
	s.daemon("salt-minion")
	s.await(events, "salt/minion/"+s.Minion+"/start")
	return s
}

// daemon starts one of Salt's programs and stops it with the test.
func (s *Stock) daemon(name string) {
	cmd := exec.Command(s.python, "-W", "ignore", filepath.Join(s.source, "scripts", name), "-c", s.Dir)
	cmd.Env = append(os.Environ(), "PYTHONPATH="+s.source)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	log, err := os.Create(filepath.Join(s.Dir, name+".out"))
	if err != nil {
		s.t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		cmd.Wait()
		log.Close()
		if s.t.Failed() {
			for _, f := range []string{name + ".out", strings.TrimPrefix(name, "salt-") + ".log"} {
				text, _ := os.ReadFile(filepath.Join(s.Dir, f))
				s.t.Logf("%s:\n%.4000s", f, text)
			}
		}
	})
}

// startTime is the timeout for the start of Salt's programs.
const startTime = 90 * time.Second

// events connects to the master's bus as soon as it exists.
func (s *Stock) events(dir string) *event.Reader {
	at := event.MasterOptions{SockDir: dir + "/s"}.Sockets()
	for end := time.Now().Add(startTime); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if r, err := event.Dial(context.Background(), at); err == nil {
			s.t.Cleanup(func() { r.Close() })
			return r
		}
	}
	s.t.Fatal("Salt's master did not start")
	return nil
}

func (s *Stock) await(r *event.Reader, tag string) {
	s.t.Helper()
	r.SetDeadline(time.Now().Add(startTime))
	var seen []string
	for e, err := range r.Events() {
		if err != nil {
			s.t.Fatalf("no event %s: %v; seen: %s", tag, err, fmt.Sprint(seen))
		}
		if seen = append(seen, e.Tag); e.Tag == tag {
			return
		}
	}
}
