package master

import "testing"

// TestEventTags: a minion may use tags of its own, but none of the master,
// salt-api, a syndic or another minion.
func TestEventTags(t *testing.T) {
	const jid = "20260101000000000000"
	own := []string{
		"salt/minion/me/start", "minion_start", "salt/beacon/me/load/", "salt/job/" + jid + "/prog/me/0", "myco/custom/event",
		"salt/state_result/" + jid + "/me/x", "salt", "salt/custom",
	}
	foreign := []string{
		"", "a\nb", "salt/minion/other/start", "salt/minion/me2/start", "salt/minion/me", "salt/beacon/other/load/", "salt/job/" + jid + "/prog/other/0",
		"salt/job/" + jid + "/x", "salt/job/" + jid + "/new", "salt/job/" + jid + "/ret/me", "salt/job/" + jid + "/ret/other", "salt/job/" + jid, "salt/job/",
		"salt/job/" + jid + "/state/me", "salt/job/" + jid + "/prog/", "salt/auth", "salt/key", "key", "salt/run/" + jid + "/ret", "salt/wheel/" + jid + "/new",
		"salt/presence/change", "salt/cloud/x/creating", "salt/netapi/hook/deploy", "salt/fileserver/gitfs/update", "salt/batch/" + jid + "/done",
		"salt/token", "minion/refresh/me", "minion/refresh/other", "syndic/s1/" + jid, jid, "cluster/peer", "salt/cluster/x", "rotate_cluster_aes_key",
	}
	for _, tag := range own {
		if !(tagRules{}).allowed("me", tag) {
			t.Errorf("a minion may not fire its own %q", tag)
		}
	}
	for _, tag := range foreign {
		if (tagRules{}).allowed("me", tag) {
			t.Errorf("a minion may fire %q", tag)
		}
	}
	for _, tag := range []string{"syndic/s1/" + jid, "salt/beacon/other/load/", "salt/job/" + jid + "/prog/other/0"} {
		if !(tagRules{syndic: true}).allowed("s1", tag) {
			t.Errorf("a syndic may not forward %q", tag)
		}
	}
	if (tagRules{syndic: true}).allowed("s1", "salt/job/"+jid+"/new") {
		t.Error("a syndic may announce jobs as the master")
	}
}
