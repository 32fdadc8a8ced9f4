package stores

import (
	"strings"
	"testing"

	"brine/internal/call/fn"
	"brine/internal/catalogue/actions/sdb"
	"brine/internal/py/value"
	"brine/test/servertest"
)

// sdbProfiles are profiles of drivers with a server. value is what a driver returns for a text.
var sdbProfiles = map[string]func(t *testing.T) (profile *value.Dict, value func(text string) any){
	"redis": func(t *testing.T) (*value.Dict, func(string) any) {
		s := redisServer.get(t)
		return value.DictOf("driver", "redis", "host", s.Host, "port", s.Port, "db", 9), func(text string) any { return []byte(text) }
	},
	"redis, decoded": func(t *testing.T) (*value.Dict, func(string) any) {
		s := redisServer.get(t)
		return value.DictOf("driver", "redis", "host", s.Host, "port", s.Port, "db", 10, "decode_responses", true), func(text string) any { return text }
	},
	"etcd 2": func(t *testing.T) (*value.Dict, func(string) any) {
		s := etcdServer.get(t)
		return value.DictOf("driver", "etcd", "etcd.host", s.Host, "etcd.port", s.Port), func(text string) any { return text }
	},
	"etcd 3": func(t *testing.T) (*value.Dict, func(string) any) {
		s := etcdServer.get(t)
		return value.DictOf("driver", "etcd", "etcd.host", s.Host, "etcd.port", s.Port, "etcd.require_v2", false), func(text string) any { return text }
	},
	"etcd 3, plain": func(t *testing.T) (*value.Dict, func(string) any) {
		s := etcdServer.get(t)
		return value.DictOf("driver", "etcd", "etcd.host", s.Host, "etcd.port", s.Port, "etcd.require_v2", false, "etcd.encode_values", false),
			func(text string) any { return text }
	},
}

// TestSDB stores, reads and deletes values by sdb:// references to real servers.
func TestSDB(t *testing.T) {
	for name, open := range sdbProfiles {
		t.Run(name, func(t *testing.T) {
			profile, want := open(t)
			c := (&fn.Call{Config: fn.Tree{Dict: value.DictOf("store", profile)}}).Prepare()
			check := func(what string, got any, err error, want any) {
				t.Helper()
				if err != nil || !value.Equal(got, want) {
					t.Errorf("%s: %s, %v, want %s", what, value.Repr(got), err, value.Repr(want))
				}
			}
			const uri = "sdb://store/a/secret"
			got, err := sdb.Get(t.Context(), c, uri, true)
			check("before it is set", got, err, nil)
			made, err := sdb.GetOrSet(t.Context(), c, uri, 3, "z")
			check("get_or_set_hash", made, err, "zzz")
			got, err = sdb.Get(t.Context(), c, uri, true)
			check("get", got, err, want("zzz"))
			got, err = sdb.Set(t.Context(), c, uri, "ü 2")
			if err != nil || got != true && got != "ü 2" {
				t.Errorf("set: %v, %v", got, err)
			}
			got, err = sdb.Get(t.Context(), c, uri, true)
			check("get", got, err, want("ü 2"))
			got, err = sdb.Delete(t.Context(), c, uri)
			if err != nil || got != true && got != int64(1) {
				t.Errorf("delete: %v, %v", got, err)
			}
			got, err = sdb.Get(t.Context(), c, uri, true)
			check("deleted", got, err, nil)
		})
	}
}

// TestSDBOfStockRedis reads values that Salt's driver has stored, and Salt reads Brine's.
func TestSDBOfStockRedis(t *testing.T) {
	profile, want := sdbProfiles["redis"](t)
	const script = `
import sys
import salt.sdb.redis_sdb as driver

profile = {"driver": "redis", "host": sys.argv[1], "port": int(sys.argv[2]), "db": 9}
print(driver.get("of_brine", profile=profile), driver.set_("of_salt", "theirs", profile=profile), driver.delete("of_brine", profile=profile))
`
	c := (&fn.Call{Config: fn.Tree{Dict: value.DictOf("store", profile)}}).Prepare()
	if got, err := sdb.Set(t.Context(), c, "sdb://store/of_brine", "ours"); got != true || err != nil {
		t.Fatal(got, err)
	}
	out := servertest.StockPython(t.Context(), t, script, map[string]string{"redis": "python3-redis"}, profile.Str("host"), value.Str(profile.At("port")))
	if got := strings.TrimSpace(out); got != "b'ours' True 1" {
		t.Errorf("Salt: %s", got)
	}
	if got, err := sdb.Get(t.Context(), c, "sdb://store/of_salt", true); err != nil || !value.Equal(got, want("theirs")) {
		t.Errorf("%s, %v", value.Repr(got), err)
	}
}
