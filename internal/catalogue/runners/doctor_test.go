package runners

import (
	"fmt"
	"reflect"
	"testing"
	"time"

	"brine/internal/ha/cluster"
	"brine/internal/py/value"
)

// TestFindings covers what real masters in a test cannot produce: clocks,
// certificates, disks, lag, and masters of several versions.
func TestFindings(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	well := func() patient {
		p := patient{self: "a", isolated: true, now: now, health: map[string]*value.Dict{}}
		for _, id := range []string{"a", "b"} {
			says := value.DictOf("version", "1", "secret", "s", "files", "f", "certificate", "2027-01-01T00:00:00Z")
			p.status = append(p.status, cluster.Status{Member: cluster.Member{ID: id, Kind: "brine", Up: true}, Self: id == "a", Says: says})
			other := map[string]string{"a": "b", "b": "a"}[id]
			p.health[id] = value.DictOf("own", "key of "+id, "cluster", "c", "peers", value.DictOf(other, "key of "+other), "voters",
				value.Strings([]string{"a", "b", "w"}),
				"sees", value.DictOf(other, value.DictOf("up", true, "problem", "", "behind", value.DictOf("jobs", int64(1000)))),
				"disks", value.ListOf(value.DictOf("path", "/x", "free", int64(50<<30), "size", int64(100<<30))), "few", value.NewDict(0))
		}
		p.voters = []cluster.Voter{{ID: "a", Votes: true}, {ID: "b", Votes: true}, {ID: "w", Witness: true, Votes: true, Secret: true}}
		return p
	}
	for name, c := range map[string]struct {
		ill  func(p *patient)
		want []string
	}{
		"nothing":     {func(*patient) {}, nil},
		"clock":       {func(p *patient) { p.status[1].Offset = -time.Second }, []string{"clock b"}},
		"certificate": {func(p *patient) { p.status[0].Says.Set("certificate", "2026-01-20T00:00:00Z") }, []string{"certificate a"}},
		"disk": {func(p *patient) {
			p.health["b"].Set("disks", value.ListOf(value.DictOf("path", "/x", "free", int64(1<<30), "size", int64(100<<30)),
				value.DictOf("path", "/y", "free", int64(1<<30), "size", int64(100<<30))))
		}, []string{"disk b"}},
		"lag": {func(p *patient) {
			p.health["a"].Dict("sees").Dict("b").Set("behind", value.DictOf("jobs", int64(900), "records", int64(101)))
		}, []string{"lag b"}},
		"version": {func(p *patient) { p.status[1].Says.Set("version", "2") }, []string{"version "}},
		"release": {func(p *patient) { p.status[1].Says.Set("brine", "0.2.0") }, []string{"version "}},
		"secret":  {func(p *patient) { p.status[1].Says.Set("secret", "t") }, []string{"secret "}},
		"empty":   {func(p *patient) { p.status[1].Says.Set("secret", "") }, []string{"secret b"}},
		"files":   {func(p *patient) { p.status[1].Says.Set("files", nil) }, []string{"files "}},
		"away": {func(p *patient) {
			p.status[1].Up, p.status[1].Says = false, nil
			delete(p.health, "b")
		}, []string{"members b"}},
		"silent":                    {func(p *patient) { p.status[1].Says = nil; p.health["b"] = value.NewDict(0) }, []string{"members b"}},
		"one way":                   {func(p *patient) { p.health["b"].Dict("sees").Dict("a").Set("up", false) }, []string{"members a"}},
		"stranger":                  {func(p *patient) { p.health["b"].Set("peers", value.DictOf("a", "another")) }, []string{"identity a"}},
		"unknown":                   {func(p *patient) { p.health["b"].Set("peers", value.NewDict(0)) }, []string{"identity a"}},
		"two":                       {func(p *patient) { p.health["b"].Set("cluster", "d") }, []string{"identity b"}},
		"witness":                   {func(p *patient) { p.voters[2].Votes = false }, []string{"voters w"}},
		"majority":                  {func(p *patient) { p.voters[2].Votes, p.voters[1].Votes = false, false }, []string{"voters b", "voters w", "voters "}},
		"old secret of the witness": {func(p *patient) { p.voters[2].Secret = false }, []string{"voters w"}},
		"lists":                     {func(p *patient) { p.health["b"].Set("voters", value.Strings(nil)) }, []string{"voters "}},
		"minion":                    {func(p *patient) { p.health["b"].Set("few", value.DictOf("m", value.Strings([]string{"a"}))) }, []string{"minions b"}},
		"a partial list": {func(p *patient) {
			p.isolated = false
			p.health["a"].Dict("sees").Set("c", value.DictOf("up", true, "problem", "", "behind", value.NewDict(0)))
		}, []string{"members b"}},
		"the key of a master that nobody names": {func(p *patient) {
			p.isolated = false
			p.health["b"].Dict("peers").Set("c", "key of c")
			p.health["a"].Dict("peers").Set("c", "key of c")
		}, []string{"members a", "members b"}},
		"options": {func(p *patient) {
			p.isolated = false
			p.health["a"].Set("options", value.DictOf("file_roots", "1", "reactor", "2"))
			p.health["b"].Set("options", value.DictOf("file_roots", "3", "reactor", "2"))
		}, []string{"files "}},
		"older version": {func(p *patient) { p.health["b"] = value.NewDict(0) }, nil},
	} {
		p := well()
		c.ill(&p)
		var got []string
		for _, f := range p.findings() {
			got = append(got, fmt.Sprint(f.check, " ", f.master))
			if f.fix == "" || f.text == "" {
				t.Errorf("%s: %+v", name, f)
			}
		}
		if !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
