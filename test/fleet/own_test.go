package fleet

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"brine/internal/call/auth"
	"brine/internal/daemons/master"
	"brine/internal/files/fileserver"
	"brine/internal/net/channel"
	"brine/internal/py/value"
	"brine/internal/store/keystore"
)

// minionCommands reads the commands of minions from the master's source, so that a new one is not
// forgotten here.
func minionCommands(t *testing.T) []string {
	t.Helper()
	src, err := os.ReadFile("../../internal/daemons/master/routes.go")
	if err != nil {
		t.Fatal(err)
	}
	_, table, ok := strings.Cut(string(src), "encrypted: map[string]route{")
	table, _, ok2 := strings.Cut(table, "clear: map[string]route{")
	if !ok || !ok2 {
		t.Fatal("the table of commands is not where it was")
	}
	cmds := fileserver.Commands()
	for _, m := range regexp.MustCompile(`(?m)^\s+"(\w+)":`).FindAllStringSubmatch(table, -1) {
		cmds = append(cmds, m[1])
	}
	if len(cmds) < 25 {
		t.Fatalf("only %v", cmds)
	}
	return cmds
}

// folderSum returns a checksum of all files below some directories.
func folderSum(t testing.TB, dirs ...string) string {
	t.Helper()
	h := sha256.New()
	for _, dir := range dirs {
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			b, err := os.ReadFile(path)
			fmt.Fprintf(h, "%s %d %s\n", path, len(b), b)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return fmt.Sprintf("%x", h.Sum(nil))
}

// TestMinionsHaveTheirOwnAlone sends each command that a minion may send, as a minion that requests
// another's data or claims to be another. It gets and changes nothing of the other one.
func TestMinionsHaveTheirOwnAlone(t *testing.T) {
	dir := shortDir(t)
	const secret = "only for the victim"
	write(t, filepath.Join(dir, "top.sls"), "base: {victim: [hidden]}\n")
	write(t, filepath.Join(dir, "hidden.sls"), "word: "+secret+"\n")
	m := startMaster(t, "one", "zeromq", func(cfg *master.Config) {
		cfg.Keys.AutoAccept = true
		cfg.Options.FileRecv = true
		cfg.Options.PillarVersion = 1 // the form that this client can read
		cfg.Options.MinionDataEvents = false
		defaults(t, &cfg.Pillar, &cfg.Top, &cfg.Files)
		cfg.Pillar.Roots = value.DictOf("base", value.ListOf(dir))
		cfg.Auth = auth.Options{SharedSecret: "s3cret", External: yamlDict(t, rights)}
	})
	victim, evil := signedIn(t, m, "victim"), signedIn(t, m, "evil")
	must := func(load ...any) any {
		t.Helper()
		v, err := victim.Request(t.Context(), value.DictOf(load...))
		if err != nil {
			t.Fatalf("%v: %v", load, err)
		}
		return v
	}
	grains := value.DictOf("id", "victim", "os", "x")
	if got := value.Repr(must("cmd", "_pillar", "grains", grains, "saltenv", "base")); got != "{'word': '"+secret+"'}" {
		t.Fatalf("the victim's pillar: %s", got)
	}
	must("cmd", "_mine", "data", value.DictOf("hidden", value.DictOf("__saltmine_acl__", 1, "__data__", secret, "allow_tgt", "victim", "allow_tgt_type",
		"glob")))
	if got := value.Repr(must("cmd", "_mine_get", "tgt", "*", "fun", "hidden")); !strings.Contains(got, secret) {
		t.Fatalf("the victim's mine: %s", got)
	}
	must("cmd", "_file_recv", "path", value.ListOf("pushed"), "loc", 0, "size", 4, "data", "mine")
	jid := m.publish("glob", "victim", "test.echo", "", secret)
	must("cmd", "_return", "jid", jid, "return", secret, "fun", "test.echo", "fun_args", value.ListOf(secret), "retcode", 0, "success", true)

	own := filepath.Join(m.cfg.CacheDir, "minions", "victim")
	before := folderSum(t, own)
	// Possible loads of the requests: all of them name the victim.
	loads := map[string][]*value.Dict{
		"_pillar": {value.DictOf("grains", grains, "saltenv", "base"), value.DictOf("grains", grains, "pillarenv", "base", "pillar_override",
			value.DictOf("id", "victim")), value.DictOf("minion_id", "victim", "grains", grains)},
		"_mine": {value.DictOf("data", value.DictOf("hidden", "x"), "minion_id", "victim"),
			value.DictOf("data", value.DictOf("hidden", "x"), "clear", true, "minion", "victim")},
		"_mine_get": {value.DictOf("tgt", "victim", "fun", "hidden"), value.DictOf("tgt", "*", "fun", value.ListOf("hidden")),
			value.DictOf("tgt", "word:only*", "tgt_type", "pillar", "fun", "hidden")},
		"_mine_delete": {value.DictOf("fun", "hidden", "minion", "victim")},
		"_mine_flush":  {value.DictOf("minion", "victim")},
		"_file_recv": {value.DictOf("path", value.ListOf("..", "..", "victim", "files", "pushed"), "loc", 0, "size", 4, "data", "evil"),
			value.DictOf("path", "../../victim/files/pushed", "loc", 0, "size", 4, "data", "evil")},
		"_return":          {value.DictOf("jid", jid, "return", "forged", "fun", "test.echo", "minion_id", "victim", "success", true)},
		"_syndic_return":   {value.DictOf("jid", jid, "load", value.DictOf(), "return", value.DictOf("victim", value.DictOf("return", "forged")))},
		"_minion_event":    {value.DictOf("tag", "salt/minion/victim/start", "data", "x")},
		"pub_ret":          {value.DictOf("jid", jid)},
		"minion_pub":       {value.DictOf("fun", "test.ping", "arg", value.ListOf(), "tgt", "victim", "ret", "")},
		"minion_publish":   {value.DictOf("fun", "test.ping", "arg", value.ListOf(), "tgt", "victim", "ret", "", "tmo", 1)},
		"minion_runner":    {value.DictOf("fun", "cache.pillar", "arg", value.ListOf("victim"))},
		"_brine_missed":    {value.DictOf("since", 0)},
		"_brine_record":    {value.DictOf("jid", jid)},
		"_brine_published": {value.DictOf("jid", jid)},
		"_brine_about":     {value.DictOf("jid", jid), value.DictOf("jids", value.ListOf(jid))},
	}
	// Any minion may read all files; these contain no data of minions.
	files := fileserver.Commands()
	nothing := map[string]bool{"_brine_members": true, "_brine_running": true, "_brine_standing": true, "_master_opts": true, "_master_tops": true}
	for _, cmd := range minionCommands(t) {
		if cmd == "revoke_auth" {
			continue // ends evil's permissions; see below
		}
		if _, ok := loads[cmd]; !ok && !slices.Contains(files, cmd) && !nothing[cmd] {
			t.Errorf("%s: missing in the table of what it could reveal", cmd)
		}
		for _, load := range append(loads[cmd], value.NewDict(0)) {
			load.Set("cmd", cmd)
			for _, id := range []string{"", "victim"} {
				x := load.Clone()
				if id != "" {
					x.Set("id", id)
				}
				got, err := evil.Request(t.Context(), x)
				if text := value.Repr(got); err == nil && strings.Contains(text, secret) {
					t.Errorf("%s gave another's data: %s", value.Repr(x), text)
				}
			}
		}
	}
	if after := folderSum(t, own); after != before {
		t.Error("what the master keeps of the victim has changed")
	}
	if st, _, err := m.keys.Lookup("victim"); st != keystore.Accepted || err != nil {
		t.Errorf("the victim's key: %v %v", st, err)
	}
	out := value.Repr(must("cmd", "_mine_get", "tgt", "*", "fun", "hidden"))
	if !strings.Contains(out, secret) || strings.Contains(out, "evil") && strings.Contains(out, "victim': 'x") {
		t.Errorf("the victim's mine: %s", out)
	}
	// A minion can revoke only its own key.
	evil.Request(t.Context(), value.DictOf("cmd", "revoke_auth", "minion", "victim"))
	if st, _, _ := m.keys.Lookup("victim"); st != keystore.Accepted {
		t.Error("one minion revoked the key of another")
	}
	if err := m.returned(jid, "victim", secret); err != nil {
		t.Errorf("the victim's return: %v", err)
	}
}

// TestReturnsOfOtherMinions: a minion that was not a target of a job cannot add itself to its
// results, and one whose returns belong to no job cannot fill the disk.
func TestReturnsOfOtherMinions(t *testing.T) {
	m := startMaster(t, "one", "zeromq", func(cfg *master.Config) {
		cfg.Keys.AutoAccept = true
		cfg.Options.MinionReturnQuota = 1
	})
	victim, evil := signedIn(t, m, "victim"), signedIn(t, m, "evil")
	ret := func(jid, text string) *value.Dict {
		return value.DictOf("cmd", "_return", "jid", jid, "return", text, "fun", "test.echo", "fun_args", value.ListOf(), "retcode", 0, "success", true)
	}
	send := func(c *channel.Client, load *value.Dict) any {
		t.Helper()
		v, err := c.Request(t.Context(), load)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	jid := m.publish("glob", "victim", "test.echo", "", "x")
	send(evil, ret(jid, "forged"))
	send(victim, ret(jid, "x"))
	if err := m.returned(jid, "victim", "x"); err != nil {
		t.Error(err)
	}
	if rets, err := m.JobReturns(jid); err != nil || rets["evil"] != nil {
		t.Errorf("the job has the result of a minion that it was not for: %v %v", rets, err)
	}
	// Only the minion knows whether its grains match: they may have changed.
	byGrain := m.publish("compound", "victim or G@os:x", "test.echo", "", "x")
	send(evil, ret(byGrain, "mine"))
	if err := m.returned(byGrain, "evil", "mine"); err != nil {
		t.Error(err)
	}
	text := strings.Repeat("x", 300<<10)
	kept := 0
	for i := range 5 {
		unknown := fmt.Sprintf("2026010100000000000%d", i)
		send(evil, ret(unknown, text))
		if rets, err := m.JobReturns(unknown); err == nil && rets["evil"] != nil {
			kept++
		}
	}
	if kept != 3 {
		t.Errorf("%d returns of 300 KB for invented jobs were stored; the quota of 1 MB has room for 3", kept)
	}
	if d, ok := send(evil, ret("req", text)).(*value.Dict); !ok || d.Len() == 0 {
		t.Error("the minion is not asked to keep a return above its quota")
	}
}
