package packages_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"brine/internal/py/value"
	"brine/internal/py/yaml"
	"brine/test/daemontest"
	"brine/test/eventually"
)

const containerDir = "../../packaging/container"

// image is the root directory of the container image.
type image struct {
	t    *testing.T
	root string
}

// newImage makes the root directory of the image, and skips without root, which chroot needs.
func newImage(t *testing.T) *image {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("it needs root, to change the root directory")
	}
	dir := t.TempDir()
	run(t, filepath.Join(containerDir, "build"), dir)
	return &image{t, filepath.Join(dir, "root")}
}

// command is a program in the image, with the fleet's master and minion in /etc/salt.
func (i *image) command(args ...string) *exec.Cmd {
	c := exec.Command("/usr/bin/brine", args...)
	c.SysProcAttr = &syscall.SysProcAttr{Chroot: i.root}
	c.Dir, c.Env = "/", []string{"PATH=/usr/bin"}
	return c
}

// start starts a daemon until the end of the test.
func (i *image) start(args ...string) {
	i.t.Helper()
	c := i.command(args...)
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, &out
	if err := c.Start(); err != nil {
		i.t.Fatal(err)
	}
	i.t.Cleanup(func() {
		_ = c.Process.Signal(syscall.SIGTERM)
		_ = c.Wait()
		if i.t.Failed() {
			i.t.Logf("%v:\n%s", args, tail(out.String()))
		}
	})
}

func (i *image) write(path, text string) {
	i.t.Helper()
	path = filepath.Join(i.root, path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		i.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		i.t.Fatal(err)
	}
}

// TestContainerImage runs a fleet with nothing but what is in the image.
func TestContainerImage(t *testing.T) {
	i, host := newImage(t), daemontest.Host()
	read := func(name string) string {
		b, err := os.ReadFile(filepath.Join(containerDir, "fleet", name))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	for _, name := range []string{"master", "minion"} {
		i.write("/etc/salt/"+name, read(name))
		if out, err := i.command("salt-"+name, "--check-config").CombinedOutput(); err != nil || !strings.Contains(string(out), "OK: ") {
			t.Errorf("the %s of the fleet: %v %s", name, err, out)
		}
	}
	// The same on this machine's ports, which other tests use as well.
	i.write("/etc/salt/master", read("master")+fmt.Sprintf("\ninterface: %s\npublish_port: %d\nret_port: %d\n",
		host, daemontest.PublishPort, daemontest.RetPort))
	i.write("/etc/salt/minion", fmt.Sprintf("user: root\nid: web1\nmaster: %s\npublish_port: %d\nmaster_port: %d\n",
		host, daemontest.PublishPort, daemontest.RetPort))
	i.write("/srv/salt/hello.sls", read("states/hello.sls"))
	i.start("salt-master")
	i.start("salt-minion")
	eventually.True(t, "web1 answers", func() bool {
		out, err := i.command("salt", "web1", "test.ping", "--timeout=5").CombinedOutput()
		return err == nil && strings.Contains(string(out), "True")
	})
	if out, err := i.command("salt", "web1", "state.apply", "hello").CombinedOutput(); err != nil {
		t.Errorf("%v %s", err, out)
	}
	if b, err := os.ReadFile(filepath.Join(i.root, "tmp/hello")); err != nil || string(b) != "hello from web1\n" {
		t.Errorf("%q %v", b, err)
	}
}

// TestComposeFile: what the compose file names exists.
func TestComposeFile(t *testing.T) {
	b, err := os.ReadFile(filepath.Join(containerDir, "compose.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	v, err := yaml.Load(b, "compose.yaml")
	if err != nil {
		t.Fatal(err)
	}
	d, _ := v.(*value.Dict)
	services, volumes := d.Dict("services"), d.Dict("volumes")
	roles := map[string]int{}
	for name, s := range services.All() {
		s := s.(*value.Dict)
		program := s.List("command")
		if len(program) != 1 || !slices.Contains([]any{"salt-master", "salt-minion", "salt-api"}, program[0]) {
			t.Errorf("%s runs %v", name, program)
			continue
		}
		roles[program[0].(string)]++
		for _, on := range s.List("depends_on") {
			if !services.Has(on) {
				t.Errorf("%s depends on %s", name, on)
			}
		}
		for _, m := range s.List("volumes") {
			from, _, _ := strings.Cut(m.(string), ":")
			if _, err := os.Stat(filepath.Join(containerDir, from)); err != nil && !volumes.Has(from) {
				t.Errorf("%s mounts %s", name, from)
			}
		}
	}
	if roles["salt-master"] != 2 || roles["salt-minion"] != 3 || roles["salt-api"] != 1 {
		t.Errorf("%v", roles)
	}
}
