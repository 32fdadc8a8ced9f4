package metrics

import (
	"fmt"
	"net"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"

	"brine/test/daemontest"
	"brine/test/eventually"
)

// TestServiceManager: all daemons tell the service manager that they are ready, and then, by its
// watchdog, that they live; also while their master is frozen or dead.
func TestServiceManager(t *testing.T) {
	t.Parallel()
	host, third := daemontest.Host(), daemontest.Host()
	m := daemontest.NewMaster(t, brine, "below", host, fmt.Sprintf("auto_accept: true\nrest_cherrypy: {port: %d, host: %s, disable_ssl: true}\n", port+2, host))
	w := daemontest.NewMaster(t, brine, "witness", third, "")
	w.Program, w.Level = "witness", ""
	w.Write("witness", fmt.Sprintf("id: %[1]s\ninterface: %[1]s\ncluster_id: test\ncluster_secret: %[2]s\ncluster_pool_port: %[3]d\ncachedir: %[4]s\n"+
		"cluster_voters: [%[1]s, %[5]s, %[6]s]\n", third, secret, poolPort, w.Path("state"), host, daemontest.Host()))
	heard := map[string]*atomic.Int64{}
	for name, d := range map[string]*node{
		"master": m, "minion": daemontest.NewMinion(t, brine, "w1", []string{host}, ""), "api": daemontest.NewAPI(m),
		"syndic": daemontest.NewSyndic(brine, m, "", third), "witness": w,
	} {
		path := filepath.Join(daemontest.ShortDir(t), "notify")
		conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		var ready, alive atomic.Int64
		heard[name] = &alive
		go func() {
			buf := make([]byte, 100)
			for {
				n, err := conn.Read(buf)
				if err != nil {
					return
				}
				switch string(buf[:n]) {
				case "READY=1":
					ready.Add(1)
				case "WATCHDOG=1":
					alive.Add(ready.Load())
				}
			}
		}()
		d.Within = []string{"env", "NOTIFY_SOCKET=" + path, "WATCHDOG_USEC=300000"}
		d.Launch()
		eventually.True(t, "messages of "+name+" to the service manager", func() bool { return ready.Load() == 1 && alive.Load() > 2 })
	}

	// A master that answers no more is no reason to restart the others.
	goesOn := func(about string, names ...string) {
		t.Helper()
		for _, name := range names {
			from := heard[name].Load()
			eventually.True(t, about+": messages of "+name, func() bool { return heard[name].Load() > from+2 })
		}
	}
	m.Signal(syscall.SIGSTOP)
	goesOn("with a frozen master", "minion", "api", "syndic", "witness")
	m.Signal(syscall.SIGCONT)
	goesOn("with a master", "master")
	m.Kill()
	goesOn("with a dead master", "minion", "api", "syndic", "witness")
}
