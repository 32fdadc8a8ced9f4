package returner

import (
	"context"
	"path"
	"strings"
	"time"

	"brine/internal/base/salt"
	"brine/internal/net/remote"
	client "brine/internal/net/remote/etcd"
	"brine/internal/py/json"
	"brine/internal/py/msgpack"
	"brine/internal/py/value"
)

// etcd stores JSON below etcd.returner_root (/salt/return):
//
//	jobs/JID/.load.p        the published load
//	jobs/JID/MINION/FIELD   each field of a return
//	minions/MINION          the last job
//
// With version 3 each string is also encoded as msgpack, unless etcd.encode_values is false.
type etcd struct {
	read, write *client.Client
	root        string
	ttl         time.Duration
	pack        bool
	history     bool
}

func init() {
	kinds.Register("etcd", kind{
		doc:  "Jobs and returns in etcd, in the layout of Salt's returner.",
		open: newEtcd,
	})
}

func newEtcd(c Config) (Returner, error) {
	src := func(profile string) remote.Source {
		if profile == "" {
			return c.Source
		}
		d, _ := c.Source(profile).(*value.Dict)
		return remote.Options(d)
	}
	top := c.settings("etcd")
	usual := top.Text("returner", "")
	e := &etcd{history: c.History, root: "/" + strings.Trim(top.Text("returner_root", "/salt/return"), "/")}
	readers, writers := src(top.Text("returner_read_profile", usual)).Under("etcd"), src(top.Text("returner_write_profile", usual)).Under("etcd")
	var err error
	if e.read, err = client.New(readers, c.Timeout); err != nil {
		return nil, err
	}
	if e.write, err = client.New(writers, c.Timeout); err != nil {
		return nil, err
	}
	ttl, err := writers.Int("ttl", 0)
	if top.Text("returner_write_profile", "") == "" {
		ttl, err = top.Int("ttl", 0)
	}
	e.ttl = time.Duration(ttl) * time.Second
	e.pack = e.write.V3() && writers.Bool("encode_values", true)
	return e, err
}

func (e *etcd) put(ctx context.Context, p string, v any, asJSON bool) error {
	t := value.Str(v)
	if asJSON {
		var err error
		if t, err = dump(v, false); err != nil {
			return err
		}
	}
	if e.pack {
		b, err := msgpack.Marshal(t, msgpack.NewSpec)
		if err != nil {
			return err
		}
		t = string(b)
	}
	return e.write.Put(ctx, p, t, e.ttl)
}

func (e *etcd) decode(t string) (any, error) {
	if e.pack {
		v, err := msgpack.UnmarshalTyped([]byte(t))
		if err != nil {
			return nil, salt.Errorf(salt.Invalid, "the value in etcd does not match etcd.encode_values: %w", err)
		}
		t = value.Str(v)
	}
	return json.Load(t)
}

func (e *etcd) Return(ctx context.Context, ret *value.Dict) error {
	id, jid := ret.Str("id"), ret.Str("jid")
	if err := e.last(ctx, e.root+"/minions/"+id, jid); err != nil {
		return err
	}
	for k, v := range ret.All() {
		name := value.Str(k)
		if name == "" || strings.Contains(name, "/") {
			continue
		}
		if err := e.put(ctx, e.job(jid)+"/"+id+"/"+name, v, true); err != nil {
			return err
		}
	}
	return nil
}

// last stores a minion's last job.
func (e *etcd) last(ctx context.Context, p, jid string) error {
	if e.history {
		if _, ok, err := e.read.Get(ctx, p); ok || err != nil {
			return err
		}
	}
	return e.put(ctx, p, jid, false)
}

const loadName = ".load.p"

func (e *etcd) job(jid string) string { return e.root + "/jobs/" + jid }

func (e *etcd) SaveLoad(ctx context.Context, jid string, load *value.Dict) error {
	return e.put(ctx, e.job(jid)+"/"+loadName, load, true)
}

func (e *etcd) Load(ctx context.Context, jid string) (*value.Dict, error) {
	n, ok, err := e.read.Get(ctx, e.job(jid)+"/"+loadName)
	if !ok || err != nil {
		return nil, err
	}
	v, err := e.decode(n.Value)
	d, _ := v.(*value.Dict)
	return d, err
}

func (e *etcd) Returns(ctx context.Context, jid string) (map[string]*value.Dict, error) {
	nodes, err := e.read.Tree(ctx, e.job(jid), true)
	out := map[string]*value.Dict{}
	for _, n := range nodes {
		id, field, ok := strings.Cut(strings.TrimPrefix(n.Path, e.job(jid)+"/"), "/")
		if !ok || strings.Contains(field, "/") {
			continue
		}
		v, err := e.decode(n.Value)
		if err != nil {
			continue
		}
		if out[id] == nil {
			out[id] = value.NewDict(8)
		}
		out[id].Set(field, v)
	}
	for id, d := range out {
		if !d.Has("return") { // it is being written
			delete(out, id)
		}
	}
	return out, err
}

func (e *etcd) Jobs(ctx context.Context) (map[string]*value.Dict, error) {
	nodes, err := e.read.Tree(ctx, e.root+"/jobs", true)
	out := map[string]*value.Dict{}
	for _, n := range nodes {
		jid := path.Base(path.Dir(n.Path))
		if path.Base(n.Path) != loadName || n.Path != e.job(jid)+"/"+loadName {
			continue
		}
		if v, err := e.decode(n.Value); err == nil {
			out[jid], _ = v.(*value.Dict)
		}
	}
	return out, err
}

func (e *etcd) Events(context.Context, []Event) error { return ErrNoEvents }

// Clean does nothing: entries expire by etcd.ttl, as in Salt.
func (e *etcd) Clean(context.Context, time.Duration, bool) error { return nil }

func (e *etcd) Close() error {
	e.write.Close()
	return e.read.Close()
}
