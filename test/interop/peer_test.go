package interop

import (
	"encoding/json"
	"fmt"
	"testing"

	"brine/test/daemontest"
	"brine/test/eventually"
)

// TestPublishFromMinions: minions of both kinds command each other through masters of both kinds,
// as far as the options peer and peer_run allow.
func TestPublishFromMinions(t *testing.T) {
	stockTree(t)
	for _, mk := range []kind{brine, stock} {
		t.Run(fmt.Sprintf("%s-master", mk), func(t *testing.T) { testPeers(t, mk) })
	}
}

const peerGrants = `
peer:
  asker.*: [test.*, grains.get]
peer_run:
  asker.*: [test.arg]
`

func testPeers(t *testing.T, mk kind) {
	host := daemontest.Host()
	master := newMaster(t, mk, "boss", host, peerGrants)
	master.Start()
	kinds := map[string]kind{"asker-brine": brine, "asker-stock": stock, "mute": brine}
	for id, k := range kinds {
		newMinion(t, k, id, []string{host}, "grains: {role: "+id+"}\n").Start()
	}
	master.Accept("asker-brine", "asker-stock", "mute")
	eventually.Nil(t, stockLimit, "the minions answer", func() error { return master.PingAll(mk, "asker-brine", "asker-stock", "mute") })
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"publish.publish", "*", "grains.get", "role"}, `{"asker-brine":"asker-brine","asker-stock":"asker-stock","mute":"mute"}`},
		{[]string{"publish.publish", "mute", "test.echo", "äö ü"}, `{"mute":"äö ü"}`},
		{[]string{"publish.publish", "L@mute,asker-stock and not asker*", "test.echo", "arg=[1]", "tgt_type=compound"}, `{"mute":1}`},
		{[]string{"publish.full_data", "mute", "test.ping"}, `{"mute":{"ret":true}}`},
		{[]string{"publish.publish", "mute", "cmd.run", "id"}, `{}`},
		{[]string{"publish.publish", "mute", "publish.publish", "[mute, test.ping]"}, `{}`},
		{[]string{"publish.publish", "nobody", "test.ping"}, `{}`},
		{[]string{"publish.runner", "test.arg", "[one, a=b]"}, `{"args":["one"],"kwargs":{"a":"b"}}`},
		{[]string{"publish.runner", "manage.up"}, `{}`},
	} {
		for id, k := range kinds {
			if id == "mute" || mk == stock && k == stock {
				continue // the former asks below, the latter is not ours
			}
			rets, err := master.SaltJSON(mk, append([]string{"-t", "120", id}, c.args...)...)
			got, _ := json.Marshal(rets[id])
			if err != nil || string(got) != c.want {
				t.Errorf("%s %q: got %s (%v), want %s", id, c.args, got, err, c.want)
			}
		}
	}
	rets, err := master.SaltJSON(mk, "-t", "30", "mute", "publish.publish", "*", "test.ping")
	if got, _ := json.Marshal(rets["mute"]); err != nil || string(got) != `{}` {
		t.Errorf("a minion without grant got %s (%v)", got, err)
	}
}
