package fleet

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"brine/internal/call/auth"
	"brine/internal/daemons/master"
	"brine/internal/net/crypt"
	"brine/internal/net/event"
	"brine/internal/net/transport"
	"brine/internal/py/value"
	"brine/internal/py/yaml"
	"brine/internal/store/keystore"
)

// asker sends requests in clear to a master, as programs of users do.
type asker struct {
	t   testing.TB
	req transport.Requester
}

func (m *theMaster) asker() *asker { return m.askerBy("zeromq") }

func (m *theMaster) askerBy(name string) *asker {
	l, _ := newLog(m.t, "client")
	r := transportOf(m.t, name, l).NewRequester(m.req, transport.DialOptions{})
	m.t.Cleanup(func() { r.Close() })
	return &asker{m.t, r}
}

func (c *asker) ask(load *value.Dict) any {
	c.t.Helper()
	return clear(c.t, c.req, load)
}

// verdict returns the result of a request: "ok", "no match", or the name of the error.
func (c *asker) verdict(load *value.Dict) string {
	c.t.Helper()
	d, _ := c.ask(load).(*value.Dict)
	switch e := d.At("error").(type) {
	case *value.Dict:
		return e.Str("name")
	case nil:
	default:
		return value.Str(e)
	}
	if l := d.Dict("load"); l != nil && l.At("jid") == nil {
		return "no match"
	}
	if d.Len() == 0 {
		return "nothing"
	}
	return "ok"
}

const rights = `
sharedsecret:
  admin: ['.*', '@runner', '@wheel', '@jobs']
  limited:
    - 'alpha*':
        - test.ping
        - cmd.run: {args: ['echo.*'], kwargs: {cwd: '/tmp'}}
    - '@runner': [jobs.list_jobs]
    - '@wheel': [{'key.finger': {kwargs: {match: alpha}}}]
  ops: ['test.*']
`

func yamlDict(t testing.TB, text string) *value.Dict {
	t.Helper()
	v, err := yaml.Load([]byte(text), "test")
	if err != nil {
		t.Fatal(err)
	}
	return v.(*value.Dict)
}

// eauthMaster has two minions with accepted keys, which are unreachable.
func eauthMaster(t *testing.T, change func(*master.Config)) *theMaster {
	m := startMaster(t, "m", "zeromq", func(cfg *master.Config) {
		cfg.Auth = auth.Options{SharedSecret: "s3cret", TokenExpire: time.Hour, External: yamlDict(t, rights)}
		if change != nil {
			change(cfg)
		}
	})
	k, err := crypt.GenerateKey(2048)
	if err != nil {
		t.Fatal(err)
	}
	pub := string(k.Public().PEM())
	for _, id := range []string{"alpha", "beta"} {
		if err := m.keys.Put(keystore.Accepted, id, pub); err != nil {
			t.Fatal(err)
		}
	}
	return m
}

func (c *asker) token(name string) string {
	c.t.Helper()
	d, _ := c.ask(value.DictOf("cmd", "mk_token", "eauth", "sharedsecret", "username", name, "password", "s3cret")).(*value.Dict)
	if d.Str("token") == "" {
		c.t.Fatalf("no token for %s", name)
	}
	return d.Str("token")
}

func publication(tgt string, fun any, arg *value.List, creds ...any) *value.Dict {
	return value.DictOf("cmd", "publish", "tgt", tgt, "tgt_type", "glob", "fun", fun, "arg", arg, "ret", "", "jid", "", "user", "root",
		"kwargs", value.DictOf(creds...))
}

// TestRightsToPublish checks which jobs each user may publish.
func TestRightsToPublish(t *testing.T) {
	m := eauthMaster(t, nil)
	c := m.asker()
	tok := map[string]string{"admin": c.token("admin"), "limited": c.token("limited"), "stranger": c.token("stranger"), "ops": c.token("ops"),
		"bad": strings.Repeat("0", 64), "path": "../.root_key"}
	l := value.ListOf
	kw := func(pairs ...any) *value.Dict { return value.DictOf(append([]any{"__kwarg__", true}, pairs...)...) }
	for _, x := range []struct {
		who, tgt string
		fun      any
		arg      *value.List
		want     string
	}{
		{"admin", "*", "test.ping", l(), "ok"},
		{"admin", "nobody", "test.ping", l(), "no match"},
		{"admin", "*", l("test.ping", "cmd.run"), l(l(), l("id")), "ok"},
		{"limited", "alpha", "test.ping", l(), "ok"},
		{"limited", "*", "test.ping", l(), "AuthorizationError"},
		{"limited", "beta", "test.ping", l(), "AuthorizationError"},
		{"limited", "alpha", "test.version", l(), "AuthorizationError"},
		{"limited", "alpha", "cmd.run", l("echo a", kw("cwd", "/tmp")), "ok"},
		{"limited", "alpha", "cmd.run", l("echo a", "cwd=/tmp"), "ok"},
		{"limited", "alpha", "cmd.run", l("echo a", kw("cwd", "/tmp"), "cwd=/etc"), "AuthorizationError"},
		{"limited", "alpha", "cmd.run", l("echo a"), "AuthorizationError"},
		{"limited", "alpha", "cmd.run", l("id", kw("cwd", "/tmp")), "AuthorizationError"},
		{"limited", "alpha", "cmd.run", l("cmd=id", "echo a", kw("cwd", "/tmp")), "ok"}, // cmd twice fails on the minion
		{"limited", "alpha", l("test.ping", "test.version"), l(l(), l()), "AuthorizationError"},
		{"limited", "alpha", l("saltutil.find_job", "cmd.run"), l(l("1"), l("id")), "AuthorizationError"},
		{"limited", "alpha", l("test.ping"), l(), "AuthorizationError"},
		{"limited", "alpha", l(), l(), "AuthorizationError"},
		{"limited", "*", "saltutil.find_job", l("20261121000000000000"), "ok"},
		{"limited", "alpha", value.DictOf("a", 1), l(), "AuthorizationError"},
		{"ops", "*", "test.arg", l(1), "ok"},
		{"ops", "*", "cmd.run", l("id"), "AuthorizationError"},
		{"stranger", "alpha", "test.ping", l(), "AuthorizationError"},
		{"bad", "alpha", "test.ping", l(), "AuthenticationError"},
		{"path", "alpha", "test.ping", l(), "AuthenticationError"},
	} {
		if got := c.verdict(publication(x.tgt, x.fun, x.arg, "token", tok[x.who])); got != x.want {
			t.Errorf("%s, %s %s %s: %s, want %s", x.who, x.tgt, value.Repr(x.fun), value.Repr(x.arg), got, x.want)
		}
	}
	// A name and password work like a token; a local key in addition is ignored.
	key, err := os.ReadFile(filepath.Join(m.cfg.CacheDir, ".root_key"))
	if err != nil {
		t.Fatal(err)
	}
	login := func(password string) *value.Dict {
		d := publication("*", "test.ping", l(), "eauth", "sharedsecret", "username", "admin", "password", password)
		d.Set("key", string(key))
		return d
	}
	if got := c.verdict(login("s3cret")); got != "ok" {
		t.Errorf("a right password: %s", got)
	}
	if got := c.verdict(login("wrong")); got != "AuthenticationError" {
		t.Errorf("a wrong password: %s", got)
	}
}

// TestJobsHoldNoSecrets: a job contains the name of its user, but no credentials.
func TestJobsHoldNoSecrets(t *testing.T) {
	m := eauthMaster(t, nil)
	heard := m.events("salt/job/")
	c := m.asker()
	tok := c.token("admin")
	reply, _ := c.ask(publication("alpha", "test.ping", value.ListOf(), "token", tok, "metadata", "m")).(*value.Dict)
	jid := reply.Dict("load").Str("jid")
	var e *event.Event
	for e == nil || e.Tag != "salt/job/"+jid+"/publish" {
		select {
		case e = <-heard:
			if strings.Contains(value.Repr(e.Data), tok) {
				t.Errorf("%s: %s", e.Tag, value.Repr(e.Data))
			}
		case <-time.After(time.Minute):
			t.Fatal("no event of the job")
		}
	}
	if e.Data.Str("user") != "admin" || e.Data.Str("metadata") != "m" {
		t.Errorf("published %s", value.Repr(e.Data))
	}
	err := filepath.WalkDir(m.cfg.CacheDir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || strings.Contains(path, "/tokens/") {
			return err
		}
		b, err := os.ReadFile(path)
		if strings.Contains(string(b), tok) {
			t.Errorf("%s holds the token", path)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	if strings.Contains(m.log.String(), tok) || strings.Contains(m.log.String(), "s3cret") {
		t.Error("the log holds a secret")
	}
}

// TestRightsOnTheMaster checks which functions of the master each user may call.
func TestRightsOnTheMaster(t *testing.T) {
	m := eauthMaster(t, nil)
	c := m.asker()
	tok := map[string]string{"admin": c.token("admin"), "limited": c.token("limited"), "stranger": c.token("stranger"), "bad": "00"}
	runner := func(who, fun string) *value.Dict {
		return value.DictOf("cmd", "runner", "fun", fun, "kwarg", value.NewDict(0), "token", tok[who])
	}
	wheel := func(who, fun string, more ...any) *value.Dict {
		d := value.DictOf("cmd", "wheel", "fun", fun, "token", tok[who])
		d.Update(value.DictOf(more...))
		return d
	}
	for _, x := range []struct {
		load *value.Dict
		want string
	}{
		{runner("admin", "test.arg"), "ok"},
		{runner("admin", "test"), "SaltInvocationError"},
		{runner("limited", "jobs.list_jobs"), "ok"},
		{runner("limited", "manage.up"), "TokenAuthenticationError"},
		{runner("stranger", "jobs.list_jobs"), "TokenAuthenticationError"},
		{runner("bad", "jobs.list_jobs"), "TokenAuthenticationError"},
		{wheel("admin", "key.list_all"), "ok"},
		{wheel("limited", "key.list_all"), "TokenAuthenticationError"},
		{wheel("limited", "key.finger", "match", "alpha"), "ok"},
		{wheel("limited", "key.finger", "match", "*"), "TokenAuthenticationError"},
		{wheel("limited", "key.finger", "kwarg", value.DictOf("match", "alpha")), "ok"},
		{wheel("limited", "key.finger", "match", "alpha", "kwarg", value.DictOf("match", "*")), "TokenAuthenticationError"},
		{wheel("stranger", "key.list_all"), "TokenAuthenticationError"},
		{value.DictOf("cmd", "wheel", "fun", "key.list_all"), "UserAuthenticationError"},
		{value.DictOf("cmd", "wheel", "fun", "key.list_all", "key", "", "user", "root"), "UserAuthenticationError"},
		{value.DictOf("cmd", "_brine_wheel", "fun", "key.list_all", "token", tok["limited"]), "TokenAuthenticationError"},
		{value.DictOf("cmd", "_brine_wheel", "fun", "key.list_all", "token", tok["admin"]), "ok"},
		{value.DictOf("cmd", "runner", "fun", "test.arg", "key", "x", "user", "sudo_root"), "UserAuthenticationError"},
		{value.DictOf("cmd", "wheel", "fun", "key.list_all", "eauth", "sharedsecret", "username", "admin", "password", "x"), "EauthAuthenticationError"},
	} {
		if got := c.verdict(x.load); got != x.want {
			t.Errorf("%s: %s, want %s", value.Repr(x.load), got, x.want)
		}
	}
	d, _ := c.ask(wheel("admin", "key.list_all")).(*value.Dict)
	data := d.Dict("data")
	if got := value.Repr(data.Dict("return").At("minions")); got != "['alpha', 'beta']" || data.Str("user") != "admin" || data.At("success") != true {
		t.Errorf("key.list_all: %s", value.Repr(d))
	}
	d, _ = c.ask(wheel("admin", "nosuch.fun")).(*value.Dict)
	if text := d.Dict("data").Str("return"); d.Dict("data").At("success") != false ||
		text != "Exception occurred in wheel nosuch.fun: 'nosuch.fun' is not available." {
		t.Errorf("an unknown function: %s", value.Repr(d))
	}
}

// TestAudit: the audit log records who requested what, without secrets and arguments.
func TestAudit(t *testing.T) {
	m := eauthMaster(t, nil)
	c := m.asker()
	tok := c.token("limited")
	c.ask(publication("alpha", "test.ping", value.ListOf(), "token", tok))
	c.ask(publication("alpha", "cmd.run", value.ListOf("a secret"), "token", tok))
	c.ask(publication("alpha", "test.ping", value.ListOf(), "token", strings.Repeat("0", 64)))
	c.ask(value.DictOf("cmd", "wheel", "fun", "key.list_all", "token", tok))
	c.ask(value.DictOf("cmd", "mk_token", "eauth", "sharedsecret", "username", "eve", "password", "guess"))
	root, err := os.ReadFile(filepath.Join(m.cfg.CacheDir, ".root_key"))
	if err != nil {
		t.Fatal(err)
	}
	heard := m.events("salt/run/")
	c.ask(value.DictOf("cmd", "runner", "fun", "audit.list", "tgt", nil, "kwarg", value.NewDict(0), "key", string(root), "user", "root"))
	for {
		select {
		case e := <-heard:
			if !strings.HasSuffix(e.Tag, "/ret") {
				continue
			}
			var got []string
			for _, v := range e.Data.List("return") {
				d, ok := v.(*value.Dict)
				if !ok || d.Str("time") == "" || !strings.HasPrefix(d.Str("from"), "127.0.0.1") {
					t.Errorf("record %s", value.Repr(v))
				}
				got = append(got, strings.Join([]string{d.Str("user"), d.Str("auth"), d.Str("cmd"), d.Str("fun"), d.Str("tgt"), d.Str("result")}, " "))
			}
			want := []string{"root user runner audit.list  done", "eve eauth mk_token   refused", "limited token wheel key.list_all  denied",
				" token publish test.ping alpha refused", "limited token publish cmd.run alpha denied", "limited token publish test.ping alpha done",
				"limited eauth mk_token   done"}
			if !slices.Equal(got, want) {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
			if text := value.Repr(e.Data); strings.Contains(text, tok) || strings.Contains(text, "secret'") || strings.Contains(text, "guess") {
				t.Errorf("a secret is on record: %s", text)
			}
			return
		case <-time.After(time.Minute):
			t.Fatal("no answer")
		}
	}
}

func TestTokensOfTheMaster(t *testing.T) {
	m := eauthMaster(t, nil)
	c := m.asker()
	tok := c.token("limited")
	if d, _ := c.ask(value.DictOf("cmd", "get_token", "token", tok)).(*value.Dict); d.Str("name") != "limited" || d.Str("eauth") != "sharedsecret" {
		t.Errorf("get_token: %s", value.Repr(d))
	}
	for want, load := range map[string]*value.Dict{
		"False": value.DictOf("cmd", "get_token"),
		"{}":    value.DictOf("cmd", "get_token", "token", "../tokens/"+tok),
		"''":    value.DictOf("cmd", "mk_token", "eauth", "sharedsecret", "username", "admin", "password", "no"),
	} {
		if got := value.Repr(c.ask(load)); got != want {
			t.Errorf("%s: %s, want %s", value.Repr(load), got, want)
		}
	}
	c.ask(value.DictOf("cmd", "_brine_logout", "token", tok))
	if got := value.Repr(c.ask(value.DictOf("cmd", "get_token", "token", tok))); got != "{}" {
		t.Errorf("after the end of it: %s", got)
	}
}

// TestPublisherACL: each user of publisher_acl has a key; the user name in a request is ignored.
func TestPublisherACL(t *testing.T) {
	m := eauthMaster(t, func(cfg *master.Config) {
		cfg.Options.PublisherACL = yamlDict(t, "{daemon: ['test.*', {'beta': ['cmd.*']}], 'bi*': [test.ping]}")
		cfg.Options.PublisherACLBlacklist = yamlDict(t, "{users: [eve], modules: [test.arg]}")
		cfg.Options.SudoACL = true
	})
	c := m.asker()
	key := func(name string) string {
		b, err := os.ReadFile(filepath.Join(m.cfg.CacheDir, "."+name+"_key"))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	root, daemon, bin := key("root"), key("daemon"), key("bin")
	if root == daemon || daemon == bin {
		t.Fatal("users share a key")
	}
	for _, x := range []struct{ key, user, tgt, fun, want string }{
		{root, "root", "*", "cmd.run", "ok"},
		{root, "root", "*", "test.arg", "AuthorizationError"},
		{root, "eve", "*", "test.ping", "AuthorizationError"},
		{root, "sudo_daemon", "*", "test.ping", "ok"},
		{root, "sudo_daemon", "*", "cmd.run", "AuthorizationError"},
		{root, "sudo_stranger", "*", "test.ping", "AuthenticationError"},
		{daemon, "daemon", "*", "test.ping", "ok"},
		{daemon, "daemon", "*", "cmd.run", "AuthorizationError"},
		{daemon, "daemon", "beta", "cmd.run", "ok"},
		{daemon, "daemon", "*", "test.arg", "AuthorizationError"},
		{daemon, "root", "*", "test.ping", "AuthenticationError"},
		{daemon, "sudo_root", "*", "test.ping", "AuthenticationError"},
		{bin, "bin", "*", "test.ping", "ok"},
		{bin, "bin", "*", "test.version", "AuthorizationError"},
		{bin, "daemon", "*", "test.ping", "AuthenticationError"},
		{"", "root", "*", "test.ping", "AuthenticationError"},
	} {
		load := publication(x.tgt, x.fun, value.ListOf())
		load.Set("key", x.key)
		load.Set("user", x.user)
		if got := c.verdict(load); got != x.want {
			t.Errorf("%s: %s %s: %s, want %s", x.user, x.tgt, x.fun, got, x.want)
		}
	}
	for _, cmd := range []string{"runner", "wheel"} {
		if got := c.verdict(value.DictOf("cmd", cmd, "fun", "test.arg", "key", daemon, "user", "daemon")); got != "UserAuthenticationError" {
			t.Errorf("%s: %s", cmd, got)
		}
	}
}

// TestUnlistedCommands: methods of Salt's ClearFuncs that were callable without permission, and
// invalid names, have no effect here.
func TestUnlistedCommands(t *testing.T) {
	c := eauthMaster(t, nil).asker()
	for _, cmd := range []string{"_prep_auth_info", "_send_pub", "_prep_pub", "_prep_jid", "_auth_user", "__init__", "destroy", "connect", "ssh_client",
		"_pillar", "_return", "_mine", "_file_recv", "minion_runner", "pub_ret", ""} {
		if got := value.Repr(c.ask(value.DictOf("cmd", cmd, "fun", "test.ping", "tgt", "*", "key", "x"))); got != "{}" {
			t.Errorf("%s: %s", cmd, got)
		}
	}
	for _, cmd := range []string{"publish", "runner", "wheel", "_brine_wheel", "_brine_states"} {
		if got := c.verdict(value.DictOf("cmd", cmd, "fun", "test.ping", "tgt", "*", "arg", value.ListOf())); !strings.HasSuffix(got, "AuthenticationError") {
			t.Errorf("%s without anything: %s", cmd, got)
		}
	}
}

// TestLimitedUsersOnAMasterOfSyndics: a master of syndics sends a job on although
// it does not know all of its minions, so the job has the permissions of a
// limited user, which the masters below check (CVE-2022-22941).
func TestLimitedUsersOnAMasterOfSyndics(t *testing.T) {
	m := eauthMaster(t, func(cfg *master.Config) { cfg.Options.OrderMasters = true })
	c := m.asker()
	limited, ops := c.token("limited"), c.token("ops")
	events := m.events("salt/job/")
	list := func(d *value.Dict, ids ...any) *value.Dict {
		d.Set("tgt", value.ListOf(ids...))
		d.Set("tgt_type", "list")
		return d
	}
	none := value.ListOf
	forged := publication("alpha", "test.ping", none(), "token", limited, "auth_list", value.ListOf(".*"))
	forged.Set("auth_list", value.ListOf(".*"))
	for _, x := range []struct {
		what, want string // the last entry of the permissions in the job
		load       *value.Dict
	}{
		{"limited, a known and an unknown minion", "@wheel", list(publication("", "test.ping", none(), "token", limited), "alpha", "below")},
		{"limited, an unknown minion", "@wheel", publication("below", "test.ping", none(), "token", limited)},
		{"limited, with other permissions in the request", "@wheel", forged},
		{"ops", "test.*", publication("below", "test.ping", none(), "token", ops)},
	} {
		if got := c.verdict(x.load); got != "ok" {
			t.Fatalf("%s: %s", x.what, got)
		}
		job := awaitJob(t, events)
		granted := job.List("auth_list")
		if len(granted) == 0 || !strings.Contains(value.Repr(granted[len(granted)-1]), x.want) {
			t.Errorf("%s: the job for syndics has the permissions %s", x.what, value.Repr(job.At("auth_list")))
		}
	}
	if got := c.verdict(list(publication("", "test.ping", none(), "token", limited), "beta", "below")); got != "AuthorizationError" {
		t.Errorf("limited, with a known minion of others: %s", got)
	}
}

// awaitJob returns the next job of a master's bus, as minions get it.
func awaitJob(t *testing.T, events <-chan *event.Event) *value.Dict {
	t.Helper()
	for {
		select {
		case e := <-events:
			if strings.HasSuffix(e.Tag, "/publish") {
				return e.Data
			}
		case <-time.After(time.Minute):
			t.Fatal("no job was published")
		}
	}
}

// TestRequestsOfSyndics: a stock syndic publishes with the key of the machine, and with the
// permissions of the user of the upper master.
func TestRequestsOfSyndics(t *testing.T) {
	m := eauthMaster(t, nil)
	c := m.asker()
	key, err := os.ReadFile(filepath.Join(m.cfg.CacheDir, ".root_key"))
	if err != nil {
		t.Fatal(err)
	}
	entry := value.DictOf("alpha*", value.ListOf("test.*"))
	for _, x := range []struct {
		tgt, fun string
		granted  any
		want     string
	}{
		{"alpha", "test.ping", value.ListOf(entry), "ok"},
		{"*", "test.ping", value.ListOf(entry), "AuthorizationError"},
		{"alpha", "cmd.run", value.ListOf(entry), "AuthorizationError"},
		{"*", "test.ping", value.ListOf("test.*"), "ok"},
		{"*", "cmd.run", value.ListOf(), "ok"}, // root above
		{"*", "cmd.run", nil, "ok"},
		{"*", "cmd.run", "not a list", "AuthorizationError"},
		{"*", "cmd.run", value.DictOf("a", "b"), "AuthorizationError"},
	} {
		d := publication(x.tgt, x.fun, value.ListOf(), "auth_list", x.granted)
		d.Set("key", strings.TrimSpace(string(key)))
		if got := c.verdict(d); got != x.want {
			t.Errorf("%s %s with %s: %s, want %s", x.tgt, x.fun, value.Repr(x.granted), got, x.want)
		}
	}
}

// TestJobIDsOfOthers: a limited user cannot replace the record of another user's job by publishing
// with its id. A user may reuse the own id, as batches do; a user with all permissions is not
// limited.
func TestJobIDsOfOthers(t *testing.T) {
	m := eauthMaster(t, nil)
	c := m.asker()
	const jid, own = "20260101000000000000", "20260101000000000001"
	m.publish("glob", "alpha", "cmd.run", jid, "id")
	publish := func(user, jid string) string {
		t.Helper()
		d := publication("*", "test.ping", &value.List{}, "eauth", "sharedsecret", "username", user, "password", "s3cret")
		d.Set("jid", jid)
		return c.verdict(d)
	}
	for _, x := range []struct{ user, jid, want string }{
		{"ops", jid, "SaltInvocationError"}, {"ops", own, "ok"}, {"ops", own, "ok"},
	} {
		if got := publish(x.user, x.jid); got != x.want {
			t.Errorf("%s publishes with the id %s: %s, want %s", x.user, x.jid, got, x.want)
		}
	}
	load, err := m.Job(jid)
	if err != nil || load.Str("fun") != "cmd.run" {
		t.Errorf("the record of the job is %v, %v", value.Repr(load), err)
	}
}
