package master

import (
	"slices"
	"strings"
	"testing"
	"time"

	"brine/internal/base/salt"
	"brine/internal/py/value"
)

// commands builds the handler of publish requests.
func (p *parts) commands() *commands {
	return &commands{access: p.access, recorder: p.recorder, jobs: p.jobs, publisher: p.publisher, log: discard, rateLimitedLog: p.limited}
}

// command is a request of a user with a key.
func command(user, fun, tgt string) *value.Dict {
	return value.DictOf("key", user+"'s key", "user", user, "fun", fun, "tgt", tgt, "tgt_type", "glob", "arg", value.ListOf("x"), "ret", "",
		"kwargs", value.DictOf("metadata", value.DictOf("a", int64(1)), "password", "secret"))
}

// TestPublish: a job is stored, announced and published to the targeted minions,
// with its sender but without credentials, and is recorded.
func TestPublish(t *testing.T) {
	p := newParts(t, []string{"web1", "web2", "db1"}, func(c *Config) {
		c.Options.PublisherACL = value.DictOf("ann", value.ListOf("test.*"))
	})
	reply := answer(t, p.commands().publish, "", "publish", command("root", "test.ping", "web*"))
	load := reply.Dict("load")
	jid := load.Str("jid")
	if !salt.ValidJID(jid) || !value.Equal(load.At("minions"), value.ListOf("web1", "web2")) {
		t.Fatalf("the answer is %s", value.Repr(reply))
	}
	if sent := p.sent.take(); len(sent) != 1 || !slices.Equal(sent[0], []string{"web1", "web2"}) {
		t.Errorf("published to %v", sent)
	}
	if tags := p.tags(); !slices.Equal(tags, []string{jid, salt.Tag("job", jid, "new"), salt.Tag("job", jid, "publish")}) {
		t.Errorf("events %v", tags)
	}
	stored, err := p.jobs.Load(jid)
	if err != nil || stored.Str("fun") != "test.ping" || stored.Has("key") || stored.Dict("kwargs").Has("password") ||
		!stored.Dict("kwargs").Has("metadata") {
		t.Errorf("stored %s, %v", value.Repr(stored), err)
	}
	if records, err := p.audit.Recent(10, func(*value.Dict) bool { return true }); err != nil || len(records) != 1 ||
		records[0].Str("result") != resultDone || records[0].Str("jid") != jid {
		t.Errorf("on record: %v, %v", records, err)
	}
	for _, c := range []struct {
		name string
		load *value.Dict
		want string
	}{
		{"a wrong key", command("nemo", "test.ping", "*"), "AuthenticationError"},
		{"a function that is not granted", command("ann", "cmd.run", "*"), "AuthorizationError"},
		{"no job id", command("root", "test.ping", "*"), "SaltInvocationError"},
		{"the job id of another user", command("ann", "test.ping", "*"), "SaltInvocationError"},
	} {
		switch c.name {
		case "no job id":
			c.load.Set("jid", "../x")
		case "the job id of another user":
			c.load.Set("jid", jid)
		}
		if got := answer(t, p.commands().publish, "", "publish", c.load).Dict("error").Str("name"); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
	for _, tgt := range []string{"nosuch*", "[", ""} {
		if d := answer(t, p.commands().publish, "", "publish", command("root", "test.ping", tgt)).Dict("load"); d.Str("error") == "" || d.At("jid") != nil {
			t.Errorf("target %q: %s", tgt, value.Repr(d))
		}
	}
	if sent := p.sent.take(); len(sent) > 0 {
		t.Errorf("refused jobs are published to %v", sent)
	}
}

// TestExpiry: a job is queued for the time that its sender requests, at most a year and at most
// as long as jobs are kept; queries of the command line are not queued.
func TestExpiry(t *testing.T) {
	p := newParts(t, nil, func(c *Config) { c.Options.Timeout, c.Options.GatherJobTimeout = 5*time.Second, 10*time.Second })
	p.publisher.keep = 24 * time.Hour
	now := time.Now()
	for _, c := range []struct {
		fun    string
		expire any
		want   time.Duration
	}{
		{"test.ping", nil, 15 * time.Second}, {"test.ping", int64(60), time.Minute}, {"test.ping", 1.5, 1500 * time.Millisecond},
		{"test.ping", int64(-1), 0}, {"test.ping", int64(1 << 40), 24 * time.Hour}, {"saltutil.find_job", int64(60), 0},
	} {
		load := value.DictOf("fun", c.fun, "kwargs", value.DictOf("expire", c.expire))
		if got := p.publisher.expiry(readOrder(load), now).Sub(now); got != c.want {
			t.Errorf("%s, expire %v: %v, want %v", c.fun, c.expire, got, c.want)
		}
	}
}

// TestJobsOfMinions: the job map has the fields of Salt's jobs.
func TestJobsOfMinions(t *testing.T) {
	job := jobMap(value.DictOf("fun", "test.ping", "tgt", "a:b", "tgt_type", "grain", "to", int64(5), "user", "root", "kwargs",
		value.DictOf("delimiter", "|", "metadata", int64(1), "ret_config", "x", "other", "y")), "1", "m1")
	want := value.DictOf("fun", "test.ping", "arg", &value.List{}, "tgt", "a:b", "jid", "1", "ret", "", "master_id", "m1", "delimiter", "|",
		"tgt_type", "grain", "to", int64(5), "ret_config", "x", "metadata", int64(1), "user", "root")
	if !value.Equal(job, want) {
		t.Errorf("got %s", value.Repr(job))
	}
	if ids := receivers("grain", "os:x", []string{"a"}); ids != nil {
		t.Errorf("a target by grains is sent to %v alone", ids)
	}
	if ids := receivers("list", value.ListOf("a", "b"), []string{"a"}); !slices.Equal(ids, []string{"a", "b"}) {
		t.Errorf("a list is sent to %v", ids)
	}
}

// TestMissedJobs: a minion that was unreachable gets a job when it asks, until it reports that
// it runs it, and the state of the job changes accordingly.
func TestMissedJobs(t *testing.T) {
	p := newParts(t, []string{"web1", "web2"}, nil)
	q := &queueRequests{id: "boss", states: p.states, access: p.access}
	jid := p.publisher.publish(value.DictOf("fun", "test.ping", "tgt", "*", "tgt_type", "glob", "kwargs",
		value.DictOf("expire", int64(600)))).Dict("load").Str("jid")
	p.tags()
	d := answer(t, q.missed, "web1", "_brine_missed", value.DictOf("after", int64(0)))
	jobs := d.List("jobs")
	if len(jobs) != 1 || jobs[0].(*value.Dict).Str("jid") != jid {
		t.Fatalf("web1 has missed %s", value.Repr(d))
	}
	if tags := p.tags(); !slices.Equal(tags, []string{salt.Tag("job", jid, "state", "web1")}) {
		t.Errorf("events %v", tags)
	}
	if again := answer(t, q.missed, "web1", "_brine_missed", value.DictOf("after", d.At("after"))); len(again.List("jobs")) != 0 {
		t.Errorf("behind the last number there is %s", value.Repr(again))
	}
	ask(t, q.running, "web1", "_brine_running", value.DictOf("jids", value.ListOf(jid, int64(1), "nosuch")))
	if again := answer(t, q.missed, "web1", "_brine_missed", value.DictOf("after", int64(0))); len(again.List("jobs")) != 0 {
		t.Errorf("a job that runs is handed out: %s", value.Repr(again))
	}
	load := value.DictOf("jid", jid, "key", "root's key", "user", "root")
	if states := answer(t, q.report, "", "_brine_states", load).Dict("states"); states.Str("web1") != stateRunning || states.Str("web2") != stateQueued {
		t.Errorf("states %s", value.Repr(states))
	}
	load.Set("jid", "nosuch")
	if d := answer(t, q.report, "", "_brine_states", load); d.Len() != 0 {
		t.Errorf("an unknown job: %s", value.Repr(d))
	}
	load.Set("key", "x")
	if d := answer(t, q.report, "", "_brine_states", load); !d.Has("error") {
		t.Errorf("a wrong key: %s", value.Repr(d))
	}
	if d := answer(t, q.about, "web1", "_brine_about", value.NewDict(0)); d.Str("id") != "boss" || !d.Bool("brine") {
		t.Errorf("about: %s", value.Repr(d))
	}
}

// TestExpiredJobs: minions that certainly never received a job are listed when it expires.
func TestExpiredJobs(t *testing.T) {
	p := newParts(t, []string{"web1"}, nil)
	p.queue.missed("web1", 0, 1) // it is a Brine minion
	jid := p.publisher.publish(value.DictOf("fun", "test.ping", "tgt", "*")).Dict("load").Str("jid")
	p.tags()
	p.queue.now = func() time.Time { return time.Now().Add(time.Hour) }
	p.states.expire()
	if tags := p.tags(); !slices.Equal(tags, []string{salt.Tag("job", jid, "expired")}) {
		t.Errorf("events %v", tags)
	}
}

// fullStore fails to store any job.
type fullStore struct{ jobStore }

func (fullStore) NewJobUntil(*value.Dict, []string, time.Time) error {
	return salt.Errorf(salt.Unavailable, "cannot use the job database /x/jobs.db: no space left on device")
}

// TestUnrecordedJob: a job that cannot be recorded reaches no minion, and its sender gets the
// reason. Functions that query or end jobs are published nevertheless.
func TestUnrecordedJob(t *testing.T) {
	p := newParts(t, []string{"web1"}, nil)
	p.publisher.jobs = fullStore{p.jobs}
	reply := answer(t, p.commands().publish, "", "publish", command("root", "test.ping", "*"))
	e := reply.Dict("error")
	if e.Str("name") != "SaltMasterError" || !strings.Contains(e.Str("message"), "/x/jobs.db: no space left on device") {
		t.Errorf("the answer is %s", value.Repr(reply))
	}
	if sent, tags := p.sent.take(), p.tags(); len(sent) > 0 || len(tags) > 0 {
		t.Errorf("published to %v, events %v", sent, tags)
	}
	if records, err := p.audit.Recent(10, func(*value.Dict) bool { return true }); err != nil || len(records) != 1 ||
		records[0].Str("result") != resultFailed {
		t.Errorf("on record: %v, %v", records, err)
	}
	for _, fun := range []string{"saltutil.find_job", "saltutil.kill_job", "saltutil.term_all_jobs"} {
		reply := answer(t, p.commands().publish, "", "publish", command("root", fun, "*"))
		if sent := p.sent.take(); len(sent) != 1 || reply.Has("error") {
			t.Errorf("%s: published to %v; the answer is %s", fun, sent, value.Repr(reply))
		}
	}
}

// TestFreshJobID: a new job never gets the id of another one, even if the clock was
// set back.
func TestFreshJobID(t *testing.T) {
	p := newParts(t, []string{"web1"}, nil)
	old, fresh := "20260101000000000001", "20260101000000000003"
	if err := p.store.NewJob(value.DictOf("jid", old, "fun", "test.ping"), []string{"web1"}); err != nil {
		t.Fatal(err)
	}
	minted := []string{old, old, fresh}
	p.publisher.mint = func(time.Time) string {
		jid := minted[0]
		minted = minted[1:]
		return jid
	}
	reply := answer(t, p.commands().publish, "", "publish", command("root", "test.ping", "*"))
	if jid := reply.Dict("load").Str("jid"); jid != fresh {
		t.Errorf("the job got the id %s: %s", jid, value.Repr(reply))
	}
}
