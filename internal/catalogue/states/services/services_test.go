package services

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"brine/internal/call/fn"
	"brine/internal/catalogue/modules/services"
	"brine/internal/catalogue/modules/shell"
	"brine/internal/catalogue/states/core"
	"brine/internal/catalogue/states/statetest"
	"brine/internal/host"
	"brine/test/servertest"
	"brine/test/tools"
)

func table(name string) statetest.Table {
	return statetest.Table{Name: "testdata/" + name, States: append(Modules(), core.Modules()...), Functions: []fn.Module(services.Modules(&host.Machine{}))}
}

// TestSystemd runs the states on a machine with a fake systemctl, a script
// with units that can fail.
func TestSystemd(t *testing.T) { statetest.Run(t, table("systemd")) }

func TestSystemdRecordingIsTrue(t *testing.T) { statetest.Verify(t, "testdata/systemd") }

// TestOdd covers odd arguments of states of systemd's units.
func TestOdd(t *testing.T) { statetest.Run(t, table("odd")) }

func TestOddRecordingIsTrue(t *testing.T) { statetest.Verify(t, "testdata/odd") }

// TestScripts runs the states on a machine with System V init.
func TestScripts(t *testing.T) {
	statetest.Needs(t, "service")
	statetest.Run(t, table("sysv"))
}

func TestScriptsRecordingIsTrue(t *testing.T) { statetest.Verify(t, "testdata/sysv") }

// TestApache enables and disables parts of Debian's Apache.
func TestApache(t *testing.T) {
	tools.Need(t, "apache2", "a2ensite")
	statetest.Run(t, table("apache"))
}

func TestApacheRecordingIsTrue(t *testing.T) { statetest.Verify(t, "testdata/apache") }

// supervisordTable returns the supervisord test table with a daemon.
func supervisordTable(t *testing.T) statetest.Table {
	t.Helper()
	tab := table("supervisord")
	tab.Functions = append(tab.Functions, shell.Modules()...)
	if statetest.Inside() {
		return tab
	}
	if os.Geteuid() != 0 {
		t.Skip("namespaces are for root")
	}
	program := tools.Need(t, "supervisor", "supervisord")
	dir, err := os.MkdirTemp("", "supervisor")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	socket := filepath.Join(dir, "s")
	conf := "[unix_http_server]\nfile=" + socket + "\n[supervisord]\nuser=root\nnodaemon=true\nlogfile=" + dir + "/log\npidfile=" + dir +
		"/pid\nchildlogdir=" + dir +
		"\n[rpcinterface:supervisor]\nsupervisor.rpcinterface_factory = supervisor.rpcinterface:make_main_rpcinterface\n[supervisorctl]\nserverurl=unix://" +
		socket +
		"\n[include]\nfiles = " + dir + "/conf.d/*.conf\n"
	err = errors.Join(os.Mkdir(filepath.Join(dir, "conf.d"), 0o755), os.WriteFile(filepath.Join(dir, "supervisord.conf"), []byte(conf), 0o644))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, "-c", filepath.Join(dir, "supervisord.conf"))
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() { // supervisord stops its programs first
		err := errors.Join(cmd.Process.Signal(syscall.SIGTERM), <-ended)
		// It may not handle signals yet when it listens.
		if state := cmd.ProcessState; err != nil && (state == nil || state.Sys().(syscall.WaitStatus).Signal() != syscall.SIGTERM) {
			t.Error(err)
		}
	})
	for {
		if c, err := net.Dial("unix", socket); err == nil {
			_ = c.Close()
			break
		}
		select {
		case err := <-ended:
			ended <- err
			t.Fatalf("supervisord has ended: %v", err)
		case <-time.After(20 * time.Millisecond):
		}
	}
	tab.Env = []string{"BRINE_SUPERVISOR=" + dir}
	return tab
}

// TestSupervisord controls a real supervisord.
func TestSupervisord(t *testing.T) {
	tools.Slow(t)
	statetest.Run(t, supervisordTable(t))
}

func TestSupervisordRecordingIsTrue(t *testing.T) { statetest.VerifyTable(t, supervisordTable) }

// rabbitmqTable returns the RabbitMQ test table with a server.
func rabbitmqTable(t *testing.T) statetest.Table {
	t.Helper()
	tab := table("rabbitmq")
	tab.Functions = append(tab.Functions, shell.Modules()...)
	if !statetest.Inside() {
		if os.Geteuid() != 0 {
			t.Skip("namespaces are for root")
		}
		s, env := servertest.Rabbit(t)
		t.Cleanup(s.Remove)
		for _, e := range env {
			tab.Env = append(tab.Env, "RABBIT_"+e)
		}
	}
	return tab
}

// TestRabbitMQ changes a real broker.
func TestRabbitMQ(t *testing.T) {
	t.Parallel()
	tools.Slow(t)
	statetest.Run(t, rabbitmqTable(t))
}

func TestRabbitMQRecordingIsTrue(t *testing.T) { statetest.VerifyTable(t, rabbitmqTable) }

// TestWebutil changes user files with htpasswd.
func TestWebutil(t *testing.T) {
	tools.Need(t, "apache2", "htpasswd")
	tab := table("webutil")
	tab.Functions = append(tab.Functions, shell.Modules()...)
	statetest.Run(t, tab)
}

func TestWebutilRecordingIsTrue(t *testing.T) { statetest.Verify(t, "testdata/webutil") }

// TestWebUserWithoutFile checks that a missing file counts as one without
// users.
func TestWebUserWithoutFile(t *testing.T) {
	if _, err := webUserAbsent(t.Context(), nil, webUserAbsentArgs{Name: "joe"}); err == nil || !strings.Contains(err.Error(), "htpasswd_file is needed") {
		t.Errorf("%v", err)
	}
}
