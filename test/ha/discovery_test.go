package ha

import (
	"fmt"
	"net"
	"testing"

	"brine/test/daemontest"
	"brine/test/eventually"
)

// TestDiscovery: a minion without a configured master finds one by broadcast: one that is running,
// and one that is started later. It ignores a master that does not match.
func TestDiscovery(t *testing.T) {
	for name, late := range map[string]bool{"there": false, "later": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, err := net.ListenUDP("udp4", nil)
			if err != nil {
				t.Fatal(err)
			}
			port := c.LocalAddr().(*net.UDPAddr).Port
			c.Close()
			about := func(site string) string {
				return fmt.Sprintf("discovery: {port: %d, mapping: {site: %s}}\n", port, site)
			}
			other := daemontest.NewMaster(t, daemontest.Brine, "m1", daemontest.Host(), "auto_accept: True\n"+about("elsewhere")).Start()
			m := daemontest.NewMaster(t, daemontest.Brine, "m2", daemontest.Host(), "auto_accept: True\n"+about("here"))
			w := daemontest.NewMinion(t, daemontest.Brine, "w1", []string{"salt"},
				fmt.Sprintf("discovery: {attempts: 1, pause: 0, port: %d, match: all, mapping: {site: here}}\n", port))
			if late {
				w.Start()
				w.Logged("no master answered the search")
				m.Start()
			} else {
				m.Start()
				w.Start()
			}
			eventually.Nil(t, within, "w1 answers the master that it has found", func() error {
				return m.PingAll(daemontest.Brine, "w1")
			})
			if out, errs, code := w.Run(daemontest.Brine, "salt-call", "test.ping"); code != 0 {
				t.Errorf("salt-call: %d %s %s", code, out, errs)
			}
			if keys, err := other.Keys(); err != nil || len(keys["minions"])+len(keys["minions_pre"]) != 0 {
				t.Errorf("the other master knows %v, %v", keys, err)
			}
		})
	}
}
