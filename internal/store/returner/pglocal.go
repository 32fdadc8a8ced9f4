package returner

import (
	"context"
	"time"

	"brine/internal/base/salt"
	"brine/internal/net/remote"
	"brine/internal/py/json"
	"brine/internal/py/value"
)

// pgLocal uses the tables of Salt's returner postgres_local_cache, a job cache for masters. They have columns
// for the parts of a load, and results as Python prints them, so that only strings are returned unchanged.
type pgLocal struct {
	db       *remote.SQL
	masterID string
	keep     time.Duration
}

func init() {
	kinds.Register("postgres_local_cache", kind{
		doc:  "Jobs, returns and events in the tables of PostgreSQL that Salt's returner of this name has. Results are stored as Python prints them.",
		open: newPostgresLocalCache, events: true, onlyTexts: true,
	})
}

func newPostgresLocalCache(c Config) (Returner, error) {
	db, err := openPostgres("postgres_local_cache", c.Source.Under, c.Timeout)
	return &pgLocal{db, c.MasterID, c.Keep}, err
}

func (p *pgLocal) Return(ctx context.Context, ret *value.Dict) error {
	d := value.DictOf("return", value.Str(ret.At("return")))
	for _, k := range []string{"retcode", "success"} {
		if v, ok := ret.Get(k); ok {
			d.Set(k, v)
		}
	}
	t, err := dump(d, false)
	if err != nil {
		return err
	}
	var success any
	if v, ok := ret.At("success").(bool); ok {
		success = v
	}
	jid, id := text(ret.Str("jid"), 20), ret.Str("id")
	_, err = p.db.Do(ctx, `INSERT INTO salt_returns (fun, jid, "return", id, success)
		SELECT $1::text, $2::text, $3::text, $4::text, $5::boolean
		WHERE NOT EXISTS (SELECT 1 FROM salt_returns WHERE jid = $6 AND id = $7)`, value.Str(ret.At("fun")), jid, t, id, success, jid, id)
	return prepared(err)
}

func (p *pgLocal) SaveLoad(ctx context.Context, jid string, load *value.Dict) error {
	arg, err := dump(load.At("arg"), false)
	if err != nil {
		return err
	}
	started, err := salt.JIDTime(jid)
	if err != nil {
		started = time.Now()
	}
	s := func(k string) string { return value.Str(load.At(k)) }
	_, err = p.db.Do(ctx, `INSERT INTO jids (jid, started, tgt_type, cmd, tgt, kwargs, ret, username, arg, fun)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) ON CONFLICT (jid) DO NOTHING`,
		text(jid, 20), started, s("tgt_type"), s("cmd"), s("tgt"), s("kwargs"), s("ret"), s("user"), arg, s("fun"))
	return prepared(err)
}

const pgLocalLoad = `SELECT jid, tgt_type, cmd, tgt, kwargs, ret, username, arg, fun FROM jids`

func (p *pgLocal) loads(ctx context.Context, where string, args ...any) (map[string]*value.Dict, error) {
	out := map[string]*value.Dict{}
	err := p.db.Rows(ctx, pgLocalLoad+where, args, func(scan func(...any) error) error {
		var c [9]string
		if err := scan(&c[0], &c[1], &c[2], &c[3], &c[4], &c[5], &c[6], &c[7], &c[8]); err != nil {
			return err
		}
		arg, err := json.Load(c[7])
		if err != nil {
			arg = c[7]
		}
		out[c[0]] = value.DictOf("jid", c[0], "tgt_type", c[1], "cmd", c[2], "tgt", c[3], "kwargs", c[4], "ret", c[5], "user", c[6], "arg", arg, "fun", c[8])
		return nil
	})
	return out, err
}

func (p *pgLocal) Load(ctx context.Context, jid string) (*value.Dict, error) {
	all, err := p.loads(ctx, ` WHERE jid = $1`, jid)
	return all[jid], err
}

func (p *pgLocal) Jobs(ctx context.Context) (map[string]*value.Dict, error) {
	if p.keep <= 0 {
		return p.loads(ctx, "")
	}
	return p.loads(ctx, ` WHERE started > $1`, time.Now().Add(-p.keep))
}

func (p *pgLocal) Returns(ctx context.Context, jid string) (map[string]*value.Dict, error) {
	out := map[string]*value.Dict{}
	err := p.db.Rows(ctx, `SELECT id, "return" FROM salt_returns WHERE jid = $1`, []any{jid}, func(scan func(...any) error) error {
		var id, t string
		if err := scan(&id, &t); err != nil {
			return err
		}
		v, err := json.Load(t)
		d, ok := v.(*value.Dict)
		if err != nil || !ok || !d.Has("return") {
			d = value.DictOf("return", v)
		}
		out[id] = d
		return nil
	})
	return out, err
}

func (p *pgLocal) Events(ctx context.Context, events []Event) error {
	tx, err := p.db.Begin(ctx)
	if err != nil {
		return err
	}
	defer tx.End()
	for _, e := range events {
		t, err := dump(e.Data, false)
		if err != nil {
			return err
		}
		if _, err := tx.Do(ctx, `INSERT INTO salt_events (tag, data, master_id) VALUES ($1, $2, $3)`, e.Tag, t, p.masterID); err != nil {
			return err
		}
	}
	return tx.Commit()
}

// Clean does nothing, as in Salt: these tables are meant to keep jobs.
func (p *pgLocal) Clean(context.Context, time.Duration, bool) error { return nil }

func (p *pgLocal) Close() error { return p.db.Close() }
