package stores

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"brine/internal/base/salt"
	"brine/internal/py/value"
	"brine/internal/store/returner"
	"brine/test/servertest"
)

// Tables as declared in the documentation of Salt's returners, as far as the types of columns
// matter.
const (
	mysqlTables = `CREATE TABLE jids (jid varchar(255) NOT NULL, ` + "`load`" +
		` mediumtext NOT NULL, UNIQUE KEY jid (jid)) ENGINE=InnoDB DEFAULT CHARSET=utf8;
CREATE TABLE salt_returns (fun varchar(50) NOT NULL, jid varchar(255) NOT NULL, ` + "`return`" +
		` mediumtext NOT NULL, id varchar(255) NOT NULL, success varchar(10) NOT NULL,
  full_ret mediumtext NOT NULL, alter_time TIMESTAMP DEFAULT CURRENT_TIMESTAMP, KEY id (id), KEY jid (jid), KEY fun (fun)) ENGINE=InnoDB DEFAULT CHARSET=utf8;
CREATE TABLE salt_events (id BIGINT NOT NULL AUTO_INCREMENT, tag varchar(255) NOT NULL, data mediumtext NOT NULL, alter_time TIMESTAMP DEFAULT CURRENT_TIMESTAMP,
  master_id varchar(255) NOT NULL, PRIMARY KEY (id), KEY tag (tag)) ENGINE=InnoDB DEFAULT CHARSET=utf8;`
	pgTables = `CREATE TABLE jids (jid varchar(255) NOT NULL PRIMARY KEY, load JSONTYPE NOT NULL);
CREATE TABLE salt_returns (fun varchar(50) NOT NULL, jid varchar(255) NOT NULL, return JSONTYPE NOT NULL, full_ret JSONTYPE, id varchar(255) NOT NULL, success varchar(10) NOT NULL,
  alter_time TIMESTAMP WITH TIME ZONE DEFAULT now());
CREATE SEQUENCE seq_salt_events_id;
CREATE TABLE salt_events (id BIGINT NOT NULL UNIQUE DEFAULT nextval('seq_salt_events_id'), tag varchar(255) NOT NULL, data JSONTYPE NOT NULL,
  alter_time TIMESTAMP WITH TIME ZONE DEFAULT NOW(), master_id varchar(255) NOT NULL);`
	pgLocalTables = `CREATE TABLE jids (jid varchar(20) PRIMARY KEY, started TIMESTAMP WITH TIME ZONE DEFAULT now(), tgt_type text NOT NULL, cmd text NOT NULL, tgt text NOT NULL,
  kwargs text NOT NULL, ret text NOT NULL, username text NOT NULL, arg text NOT NULL, fun text NOT NULL);
CREATE TABLE salt_returns (added TIMESTAMP WITH TIME ZONE DEFAULT now(), fun text NOT NULL, jid varchar(20) NOT NULL, return text NOT NULL, id text NOT NULL, success boolean);
CREATE TABLE salt_events (id SERIAL, tag text NOT NULL, data text NOT NULL, alter_time TIMESTAMP WITH TIME ZONE DEFAULT now(), master_id text NOT NULL);`
)

type returnerCase struct {
	name    string
	options *value.Dict
	needs   map[string]string
	// texts means that results are returned in Python's notation.
	texts, events bool
	sql           func(q string) string // runs a statement as administrator
}

// databases counts the databases created for tests.
var databases atomic.Int32

// postgresDB creates a database that no other test uses.
func postgresDB(t *testing.T, name, tables, jsonType string) (s *servertest.Server, db string) {
	s = postgresServer.get(t)
	db = fmt.Sprint(name, databases.Add(1))
	s.Exec(t, "", "CREATE DATABASE "+db+" OWNER salt;")
	s.Exec(t, db, "SET ROLE salt;\n"+strings.ReplaceAll(tables, "JSONTYPE", jsonType))
	return s, db
}

// returnerCases prepare each returner, with a separate database.
var returnerCases = map[string]func(t *testing.T) returnerCase{
	"redis": func(t *testing.T) returnerCase {
		s := redisServer.get(t)
		return returnerCase{"redis", value.DictOf("redis.host", s.Host, "redis.port", s.Port, "redis.db", "7"), map[string]string{"redis": "python3-redis"},
			false, false, nil}
	},
	"etcd 2": func(t *testing.T) returnerCase {
		s := etcdServer.get(t)
		return returnerCase{"etcd", value.DictOf("etcd.returner", "prof", "prof", value.DictOf("etcd.host", s.Host, "etcd.port", s.Port)),
			map[string]string{"etcd": "python3-etcd"}, false, false, nil}
	},
	"etcd 3": func(t *testing.T) returnerCase {
		s := etcdServer.get(t)
		return returnerCase{"etcd", value.DictOf("etcd.host", s.Host, "etcd.port", s.Port, "etcd.require_v2", false), nil, false, false, nil}
	},
	"mysql": func(t *testing.T) returnerCase {
		s := mysqlServer.get(t)
		db := fmt.Sprint("returns", databases.Add(1))
		s.Exec(t, "", "CREATE DATABASE "+db+" DEFAULT CHARACTER SET utf8;")
		s.Exec(t, db, mysqlTables)
		return returnerCase{"mysql", value.DictOf("mysql.host", s.Host, "mysql.port", s.Port, "mysql.user", s.User, "mysql.pass", s.Password, "mysql.db", db),
			map[string]string{"pymysql": "python3-pymysql"}, false, true, func(q string) string { return s.Exec(t, db, q) }}
	},
	"pgjsonb": func(t *testing.T) returnerCase {
		s, db := postgresDB(t, "pgjsonb", pgTables, "jsonb")
		return returnerCase{"pgjsonb", value.DictOf("returner.pgjsonb.host", s.Host, "returner.pgjsonb.port", s.Port, "returner.pgjsonb.pass", s.Password,
			"returner.pgjsonb.db", db),
			map[string]string{"psycopg2": "python3-psycopg2"}, false, true, func(q string) string { return s.Exec(t, db, q) }}
	},
	"postgres": func(t *testing.T) returnerCase {
		s, db := postgresDB(t, "pgtext", pgTables, "text")
		return returnerCase{"postgres", value.DictOf("returner.postgres.host", s.Host, "returner.postgres.port", s.Port, "returner.postgres.passwd",
			s.Password, "returner.postgres.db", db),
			map[string]string{"psycopg2": "python3-psycopg2"}, false, true, func(q string) string { return s.Exec(t, db, q) }}
	},
	"postgres_local_cache": func(t *testing.T) returnerCase {
		s, db := postgresDB(t, "pglocal", pgLocalTables, "")
		p := "master_job_cache.postgres."
		return returnerCase{"postgres_local_cache", value.DictOf(p+"host", s.Host, p+"port", s.Port, p+"user", s.User, p+"passwd", s.Password, p+"db", db),
			map[string]string{"psycopg2": "python3-psycopg2"}, true, true, nil}
	},
}

// jidOurs and jidTheirs are new for each returner and each run of the tests, because redis and etcd
// keep old data.
var jidOurs, jidTheirs string

func newJIDs() {
	n := databases.Add(1)
	jidOurs, jidTheirs = fmt.Sprintf("20261122010203%06d", 100+2*n), fmt.Sprintf("20261122010203%06d", 101+2*n)
}

func aLoad(jid string) *value.Dict {
	return value.DictOf("cmd", "publish", "fun", "test.ping", "arg", value.ListOf("é", 1), "tgt", "*", "tgt_type", "glob", "jid", jid, "user", "root", "ret",
		"", "kwargs", value.NewDict(0), "Minions", value.ListOf("m1", "m2"))
}

func aReturn(jid, id string, v any) *value.Dict {
	return value.DictOf("cmd", "_return", "id", id, "success", true, "return", v, "retcode", 0, "jid", jid, "fun", "test.ping", "fun_args", &value.List{})
}

const stockReturner = `
import sys, json, importlib, salt.config
import salt.returners
name, opts = sys.argv[1], json.loads(sys.argv[2])
files = {"redis": "redis_return", "etcd": "etcd_return"}
m = importlib.import_module("salt.returners." + files.get(name, name))
base = dict(salt.config.DEFAULT_MASTER_OPTS); base.update(opts); base["id"] = "stock"
base["keep_jobs_seconds"] = 86400
m.__opts__ = base
m.__context__ = {}
def option(n, default="", **kw):
    return base.get(n, default)
m.__salt__ = {"config.option": option}
ours, theirs, text = sys.argv[3], sys.argv[4], sys.argv[5] == "True"
load = m.get_load(ours)
assert load["fun"] == "test.ping" and load["tgt"] == "*" and load["jid"] == ours, load
ret = m.get_jid(ours)
want = {"a": [1, None, "é"]}
got = ret["m1"]["return"]
assert got == (str(want) if text else want), ret
assert ret["m2"]["return"] == "x", ret
assert ours in m.get_jids(), m.get_jids()
m.save_load(theirs, {"fun": "cmd.run", "arg": ["ls"], "tgt": "a*", "tgt_type": "glob", "jid": theirs, "user": "u", "cmd": "publish", "ret": "", "kwargs": {}})
m.returner({"id": "s1", "jid": theirs, "fun": "cmd.run", "return": {"b": 2}, "success": True, "retcode": 3, "fun_args": []})
if hasattr(m, "event_return"):
    m.event_return([{"tag": "salt/x", "data": {"k": 1}}])
`

// TestReturnersSharedWithSalt tests each returner against the interface, while stock Salt's
// returner uses the same server.
func TestReturnersSharedWithSalt(t *testing.T) {
	for name, make := range returnerCases {
		t.Run(name, func(t *testing.T) {
			ctx := t.Context()
			newJIDs()
			c := make(t)
			r, err := returner.Open(c.name, returner.Config{Source: options(pairs(c.options)...), Keep: 24 * time.Hour, Timeout: 30 * time.Second,
				MasterID: "ours"})
			must(t, err)
			defer r.Close()
			if l, err := r.Load(ctx, jidOurs); l != nil || err != nil {
				t.Error(l, err)
			}
			if rets, err := r.Returns(ctx, jidOurs); len(rets) != 0 || err != nil {
				t.Error(rets, err)
			}
			result := value.DictOf("a", value.ListOf(1, nil, "é"))
			for range 2 { // a duplicate is stored once
				must(t, r.SaveLoad(ctx, jidOurs, aLoad(jidOurs)))
				must(t, r.Return(ctx, aReturn(jidOurs, "m1", result)))
				must(t, r.Return(ctx, aReturn(jidOurs, "m2", "x")))
			}
			odd := value.DictOf("nul", "a\x00b", "bytes", []byte{0xff, 'x'}, "four", "𝄞", "quote", `'"\u0000`)
			must(t, r.Return(ctx, aReturn("20261122010203000009", "odd", odd)))
			load, err := r.Load(ctx, jidOurs)
			if err != nil || load.Str("fun") != "test.ping" || !value.Equal(load.At("arg"), value.ListOf("é", 1)) {
				t.Error(value.Repr(load), err)
			}
			rets, err := r.Returns(ctx, jidOurs)
			must(t, err)
			var want any = result
			if c.texts {
				want = value.Str(result)
			}
			if len(rets) != 2 || !value.Equal(rets["m1"].At("return"), want) || rets["m2"].Str("return") != "x" || !rets["m1"].Bool("success") ||
				rets["m1"].At("retcode") == nil {
				t.Error(rets)
			}
			events := []returner.Event{{Tag: "salt/job/1", Data: value.DictOf("a", "\x00")}, {Tag: "b", Data: value.DictOf("n", 2)}}
			if err := r.Events(ctx, events); c.events && err != nil || !c.events && !errors.Is(err, returner.ErrNoEvents) {
				t.Error(err)
			}
			if c.sql != nil {
				if n := c.sql("SELECT COUNT(*) FROM salt_returns WHERE jid = '" + jidOurs + "'"); n != "2\n" {
					t.Errorf("%q rows for two returns", n)
				}
				if n := c.sql("SELECT COUNT(*) FROM salt_events WHERE master_id = 'ours'"); n != "2\n" {
					t.Errorf("%q events", n)
				}
			}
			if c.needs != nil {
				stockShares(t, c, r)
			}
			if c.sql != nil {
				cleans(t, c, r)
			}
		})
	}
}

func stockShares(t *testing.T, c returnerCase, r returner.Returner) {
	t.Helper()
	t.Run("stock", func(t *testing.T) {
		opts := map[string]any{}
		for k, v := range c.options.All() {
			if d, ok := v.(*value.Dict); ok {
				sub := map[string]any{}
				for k, v := range d.All() {
					sub[k.(string)] = v
				}
				v = sub
			}
			opts[k.(string)] = v
		}
		b, err := json.Marshal(opts)
		must(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		texts := "False"
		if c.texts {
			texts = "True"
		}
		servertest.StockPython(ctx, t, stockReturner, c.needs, c.name, string(b), jidOurs, jidTheirs, texts)
		load, err := r.Load(ctx, jidTheirs)
		if err != nil || load.Str("fun") != "cmd.run" || load.Str("user") != "u" || !value.Equal(load.At("arg"), value.ListOf("ls")) {
			t.Error(value.Repr(load), err)
		}
		rets, err := r.Returns(ctx, jidTheirs)
		var want any = value.DictOf("b", 2)
		if c.texts {
			want = "{'b': 2}"
		}
		if err != nil || len(rets) != 1 || !value.Equal(rets["s1"].At("return"), want) || rets["s1"].Int("retcode") != 3 {
			t.Error(rets, err)
		}
		jobs, err := r.Jobs(ctx)
		if err != nil || jobs[jidOurs].Str("fun") != "test.ping" || jobs[jidTheirs].Str("fun") != "cmd.run" {
			t.Error(jobs, err)
		}
	})
}

// cleans tests the removal and the archiving of old rows.
func cleans(t *testing.T, c returnerCase, r returner.Returner) {
	t.Helper()
	ctx := t.Context()
	count := func(table string) string { return c.sql("SELECT COUNT(*) FROM " + table) }
	old := func(jid string) {
		must(t, r.SaveLoad(ctx, jid, aLoad(jid)))
		must(t, r.Return(ctx, aReturn(jid, "m1", 1)))
		c.sql("UPDATE salt_returns SET alter_time = '2001-01-01 00:00:00' WHERE jid = '" + jid + "'")
	}
	young := salt.NewJID(time.Now())
	c.sql("DELETE FROM jids; DELETE FROM salt_returns; DELETE FROM salt_events;")
	must(t, r.SaveLoad(ctx, young, aLoad(young)))
	must(t, r.Return(ctx, aReturn(young, "m1", 1)))
	old("20010101000000000001")
	must(t, r.SaveLoad(ctx, "20010101000000000009", aLoad("20010101000000000009"))) // no minion returned
	must(t, r.Clean(ctx, time.Hour, false))
	if count("jids") != "1\n" || count("salt_returns") != "1\n" {
		t.Error("after cleaning:", count("jids"), count("salt_returns"))
	}
	old("20010101000000000002")
	for range 2 {
		must(t, r.Clean(ctx, time.Hour, true))
	}
	if count("jids") != "1\n" || count("salt_returns_archive") != "1\n" || count("jids_archive") != "1\n" || count("salt_events_archive") != "0\n" {
		t.Error("after archiving:", count("jids"), count("salt_returns_archive"), count("jids_archive"))
	}
	if l, err := r.Load(ctx, young); l == nil || err != nil {
		t.Error("a young job is gone", err)
	}
}

// TestAlternative reads options as Salt does for --return_config and --return_kwargs.
func TestAlternative(t *testing.T) {
	s := redisServer.get(t)
	src := options("redis", value.DictOf("host", s.Host, "port", 1), "other.redis.port", s.Port, "redis.db", 8)
	open := func(config string, kw *value.Dict) error {
		r, err := returner.Open("redis", returner.Config{Source: src, Alternative: config, Keywords: kw, Timeout: 20 * time.Second})
		must(t, err)
		defer r.Close()
		_, err = r.Load(t.Context(), "1")
		return err
	}
	if err := open("", nil); salt.KindOf(err) != salt.Unavailable {
		t.Error(err)
	}
	must(t, open("other", nil))
	must(t, open("", value.DictOf("port", s.Port)))
}
