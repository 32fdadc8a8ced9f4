package cluster

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"

	"brine/test/daemontest"
	"brine/test/eventually"
)

// TestMoveIntoACluster copies all data of a master into a cluster's directories while it publishes
// jobs, minions return, and a key is accepted. The copy does not fail, and after a second copy
// nothing is missing.
func TestMoveIntoACluster(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "", brine, brine)
	old := daemontest.NewMaster(t, brine, "old", daemontest.Host(), "").Start()
	ids := []string{"m0", "m1"}
	for _, id := range ids {
		f.minion(brine, id, old.Host, "")
	}
	old.Accept(ids...)
	f.minion(brine, "m2", old.Host, "")
	eventually.Nil(t, soon, "all have come", func() error {
		keys, err := old.Keys()
		if err == nil && !slices.Contains(keys["minions_pre"], "m2") {
			err = fmt.Errorf("%v", keys)
		}
		return errors.Join(err, old.PingAll(brine, ids...))
	})
	var jids []string
	publish := func() {
		t.Helper()
		jids = append(jids, f.publish(old, "m[01]", "test.echo", fmt.Sprint(len(jids))))
	}
	for range 5 {
		publish()
	}

	migrate := func(meanwhile func()) {
		t.Helper()
		c := brine.Command(t.Context(), t, "migrate", "-c", old.Dir, "keys", "jobs", "cache", "--from-config", old.Dir, "--to-config", f.masters[0].Dir,
			"--key-pair", "cluster", "--out=json")
		var out, errs bytes.Buffer
		c.Stdout, c.Stderr = &out, &errs
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- c.Wait() }()
		meanwhile()
		for {
			select {
			case err := <-ended:
				var got map[string]struct{ Found, Failed, Verified int }
				if err = errors.Join(err, json.Unmarshal(out.Bytes(), &got)); err != nil {
					t.Fatalf("%v: %s%s", err, out.String(), errs.String())
				}
				for what, r := range got {
					if r.Failed != 0 || r.Verified != r.Found {
						t.Errorf("%s: %+v\n%s", what, r, out.String())
					}
				}
				return
			default:
				meanwhile()
			}
		}
	}
	accept := true
	migrate(func() {
		publish()
		if accept {
			accept = false
			old.Accept("m2")
		}
	})
	publish()
	for _, jid := range jids {
		eventually.Nil(t, soon, "all have returned", func() error {
			out, errs, _ := old.Run(brine, "salt-run", "--out=json", "jobs.lookup_jid", jid)
			var d map[string]any
			if err := json.Unmarshal([]byte(out), &d); err != nil || len(d) != 2 {
				return fmt.Errorf("%w %s%s", err, out, errs)
			}
			return nil
		})
	}
	old.Kill()
	migrate(func() {})

	f.start()
	keys, err := f.masters[1].Keys()
	if got := slices.Sorted(slices.Values(keys["minions"])); err != nil || !slices.Equal(got, []string{"m0", "m1", "m2"}) {
		t.Errorf("keys: %v %v", keys, err)
	}
	for i, jid := range jids {
		for _, id := range ids {
			if !f.returned(jid, id) {
				t.Errorf("the return of %s for job %d of %d is missing", id, i, len(jids))
			}
		}
	}
	eventually.Nil(t, soon, "the jobs are listed", func() error {
		out, errs, _ := f.masters[1].Run(brine, "salt-run", "--out=json", "jobs.list_jobs", "search_function=test.echo")
		var d map[string]any
		if err := json.Unmarshal([]byte(out), &d); err != nil || len(d) != len(jids) {
			return fmt.Errorf("%d of %d: %w %s", len(d), len(jids), err, errs)
		}
		return nil
	})
	out, errs, _ := f.masters[1].Run(brine, "salt-run", "--out=json", "cache.grains", "m1")
	if !bytes.Contains([]byte(out), []byte("osrelease")) {
		t.Errorf("the grains of m1 are not known: %s%s", out, errs)
	}
}
