package interop

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"brine/test/daemontest"
	"brine/test/eventually"
)

// TestStockSyndic: minions below a stock syndic answer an upper Brine master. The lower masters, a
// stock one, and a Brine one beside a stock syndic, check the permissions of its limited users
// (CVE-2022-22941).
func TestStockSyndic(t *testing.T) {
	stockTree(t)
	for _, k := range []kind{stock, brine} {
		t.Run(string(k), func(t *testing.T) {
			t.Parallel()
			up, down := daemontest.Host(), daemontest.Host()
			above := newMaster(t, brine, "above", up, "auto_accept: true\norder_masters: true\nsharedsecret: s3\nsyndic_wait: 5\n"+
				"external_auth: {sharedsecret: {limited: [{'m1': ['test.*']}], all: ['.*']}}\n").Start()
			below := newMaster(t, k, "below", down, "auto_accept: true\n").Start()
			for _, id := range []string{"m1", "m2"} {
				newMinion(t, brine, id, []string{down}, "").Start()
			}
			eventually.Nil(t, stockLimit, "the minions answer the master below", func() error { return below.PingAll(k, "m1", "m2") })
			daemontest.NewSyndic(stock, below, "", up).Start()
			// The syndic has an accepted key, so a target of all minions waits for it, too.
			eventually.Nil(t, stockLimit, "the minions answer the master above", func() error { return above.PingOnly(brine, "m1", "m2") })

			answers := func(user string, target ...string) string {
				rets, err := above.SaltJSON(brine, append([]string{"-a", "sharedsecret", "--username=" + user, "--password=s3"}, append(target, "test.ping")...)...)
				var ids []string
				for _, id := range slices.Sorted(maps.Keys(rets)) {
					if rets[id] == true {
						ids = append(ids, id)
					}
				}
				return fmt.Sprint(ids, err != nil)
			}
			for _, c := range []struct {
				user   string
				target []string
				want   string
			}{
				{"limited", []string{"m1"}, "[m1] false"},
				{"all", []string{"m*"}, "[m1 m2] false"},
			} {
				if got := answers(c.user, c.target...); got != c.want {
					t.Errorf("%s commands %v: %s, want %s", c.user, c.target, got, c.want)
				}
			}
			for _, target := range [][]string{{"m2"}, {"m*"}, {"-L", "m1,m2"}} {
				if got := answers("limited", target...); got != "[] false" && got != "[] true" {
					t.Errorf("a user who is limited to m1 commands %v: %s", target, got)
				}
			}
		})
	}
}
