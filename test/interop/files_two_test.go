package interop

import (
	"fmt"
	"os"
	"sync"
	"testing"

	"brine/test/daemontest"
	"brine/test/eventually"
)

// TestFilesAreOfTheMasterThatAsks: two hot masters with different trees and pillars start runs at
// the same time: each run uses the data of its master.
func TestFilesAreOfTheMasterThatAsks(t *testing.T) {
	hosts := []string{daemontest.Host(), daemontest.Host()}
	var masters []*node
	for i, host := range hosts {
		dir := daemontest.ShortDir(t)
		for name, text := range map[string]string{"same": fmt.Sprintf("of %d\n", i), "top.sls": "base: {'*': [p]}\n", "p.sls": fmt.Sprintf("of: %d\n", i)} {
			if err := os.WriteFile(dir+"/"+name, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		m := newMaster(t, brine, fmt.Sprintf("m%d", i), host, fmt.Sprintf("file_roots: {base: [%[1]s]}\npillar_roots: {base: [%[1]s]}\n", dir))
		if i > 0 {
			copyKeys(t, masters[0], m)
		}
		masters = append(masters, m.Start())
	}
	newMinion(t, brine, "both", hosts, "").Start()
	for _, m := range masters {
		m.Accept("both")
		eventually.Nil(t, stockLimit, "the minion answers "+m.Name, func() error { return m.PingAll(brine, "both") })
	}
	var wg sync.WaitGroup
	for i, m := range masters {
		wg.Go(func() {
			for range 5 {
				for fun, want := range map[string]any{"cp.get_file_str salt://same": fmt.Sprintf("of %d\n", i), "pillar.get of": float64(i)} {
					var name, arg string
					fmt.Sscan(fun, &name, &arg)
					rets, err := m.SaltJSON(brine, "-t", "120", "both", name, arg)
					if err != nil || rets["both"] != want {
						t.Errorf("%s of %s: %v %v, want %v", fun, m.Name, rets["both"], err, want)
					}
				}
			}
		})
	}
	wg.Wait()
}
