package interop

import (
	"testing"

	"brine/test/daemontest"
	"brine/test/eventually"
)

// TestRefuseSHA1: a master requires SHA-224. Minions of both kinds with that configuration can be
// commanded; one with Salt's defaults is refused.
func TestRefuseSHA1(t *testing.T) {
	stockTree(t)
	host := daemontest.Host()
	master := newMaster(t, brine, "boss", host,
		"auto_accept: true\nrefuse_sha1: True\npublish_signing_algorithm: PKCS1v15-SHA224\npillar_roots: {base: []}\n").Start()
	const sha224 = "encryption_algorithm: OAEP-SHA224\nsigning_algorithm: PKCS1v15-SHA224\nsign_pub_messages: True\n"
	ids := []string{string(brine), string(stock)}
	for _, id := range ids {
		newMinion(t, kind(id), id, []string{host}, sha224).Start()
	}
	old := newMinion(t, stock, "sha1", []string{host}, "").Start()
	eventually.Nil(t, stockLimit, "minions with SHA-224 answer", func() error { return master.PingAll(brine, ids...) })
	for _, id := range ids {
		if rets, err := master.SaltJSON(brine, id, "saltutil.refresh_pillar", "wait=True"); err != nil || rets[id] != true {
			t.Errorf("pillar of %s: %v, %v", id, rets[id], err)
		}
	}
	old.Logged("not supported by it's Master")
	keys, err := master.Keys()
	if err != nil {
		t.Fatal(err)
	}
	for state, of := range keys {
		for _, id := range of {
			if id == "sha1" {
				t.Errorf("the minion with SHA-1 is among %s", state)
			}
		}
	}
}
