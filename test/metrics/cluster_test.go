package metrics

import (
	"fmt"
	"slices"
	"syscall"
	"testing"

	"brine/internal/ha/cluster/witness"
	"brine/test/daemontest"
	"brine/test/eventually"
)

const (
	poolPort = 24520
	secret   = "7ef7697a5ec2e70f7e5755ecd0123456"
)

// TestCluster changes the metrics of two masters without a shared directory, and of
// their witness.
func TestCluster(t *testing.T) {
	hosts := []string{daemontest.Host(), daemontest.Host()}
	slices.Sort(hosts) // the first one creates the cluster
	third := daemontest.Host()
	voters := fmt.Sprintf("cluster_voters: [%s, %s, %s]\n", hosts[0], hosts[1], third)
	var masters []*node
	for i, h := range hosts {
		m := daemontest.NewMaster(t, brine, h, h, "")
		m.Write("master", m.Read("master")+fmt.Sprintf("keysize: 2048\ncluster_id: test\ncluster_isolated_filesystem: True\ncluster_secret: %s\n"+
			"cluster_peers: [%s]\ncluster_pki_dir: %s\ncluster_pool_port: %d\nauto_accept: True\nmetrics_address: %s:%d\n%s",
			secret, hosts[1-i], m.Path("cluster"), poolPort, h, port, voters))
		masters = append(masters, m)
	}
	w := daemontest.NewMaster(t, brine, "witness", third, "")
	w.Program, w.Level = "witness", ""
	w.Write("witness", fmt.Sprintf("id: %[1]s\ninterface: %[1]s\ncluster_id: test\ncluster_secret: %[2]s\ncluster_pool_port: %[3]d\ncachedir: %[4]s\n"+
		"metrics_address: %[1]s:%[5]d\n%[6]s", third, secret, poolPort, w.Path("state"), port, voters))
	w.Launch()
	one, two, third3 := reader(hosts[0]), reader(hosts[1]), reader(third)
	third3.health(t, "a witness without masters", "/readyz", 503, "no master is connected")
	third3.health(t, "a witness without masters", "/livez", 200, "ok")
	for _, m := range masters {
		m.Launch()
	}
	for _, m := range masters {
		m.Await()
	}
	witnessRows := []row{
		{`brine_witness_masters_connected`, nil, is(2)},
		{`brine_witness_leader_known`, nil, is(1)},
		{`brine_witness_term`, nil, positive},
		{`brine_witness_leads`, nil, is(0)},
		{`brine_certificate_expiry_timestamp_seconds{certificate="witness:` + third + `"}`, nil, later},
	}
	third3.change(t, witnessRows)
	third3.health(t, "a witness with masters", "/readyz", 200, "ok")
	ofWitness, err := third3.page()
	if err != nil {
		t.Fatal(err)
	}
	complete(t, witness.Families(), ofWitness.families(), witnessRows, nil)

	// One of them holds the lease, and the other one gets it when that one ends.
	for _, r := range []reader{one, two} {
		r.change(t, []row{
			{`brine_cluster_peer_up{peer="` + hosts[slices.Index([]reader{two, one}, r)] + `"}`, nil, is(1)},
			{`brine_certificate_expiry_timestamp_seconds{certificate="member:` + hosts[0] + `"}`, nil, later},
			{`brine_certificate_expiry_timestamp_seconds{certificate="member:` + hosts[1] + `"}`, nil, later},
		})
	}
	// A frozen master lacks the keys that the other one accepts.
	masters[1].Signal(syscall.SIGSTOP)
	one.change(t, []row{{`brine_cluster_behind_changes{peer="` + hosts[1] + `",stream="records"}`, func() {
		daemontest.NewMinion(t, brine, "w1", hosts[:1], "").Start()
	}, nil}})
	masters[1].Signal(syscall.SIGCONT)
	one.change(t, []row{{`brine_cluster_behind_changes{peer="` + hosts[1] + `",stream="records"}`, nil, is(0)}})
	holder := -1
	eventually.Nil(t, soon, "one of them leads", func() error {
		n := 0
		for i, r := range []reader{one, two} {
			p, err := r.page()
			if err != nil {
				return err
			}
			if p["brine_cluster_leads"] == 1 && p["brine_cluster_lease_token"] > 0 {
				holder, n = i, n+1
			}
		}
		if n != 1 {
			return fmt.Errorf("%d lead", n)
		}
		return nil
	})
	other := 1 - holder
	left := []reader{one, two}[other]
	left.health(t, "a member", "/readyz", 200, "ok")
	left.change(t, []row{
		{`brine_cluster_leads`, masters[holder].Kill, is(1)},
		{`brine_cluster_lease_token`, nil, positive},
		{`brine_cluster_peer_up{peer="` + hosts[holder] + `"}`, nil, is(0)},
	})
	left.health(t, "a member whose peer is dead", "/readyz", 200, "ok")
	masters[other].Kill()
	third3.health(t, "a witness whose masters are dead", "/readyz", 503, "no master is connected")
}
