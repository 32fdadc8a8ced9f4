package runners

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"brine/internal/call/fn"
	"brine/internal/ha/cluster"
	"brine/internal/py/value"
)

// finding is something that is not as it should be. Check is what was looked at,
// in one word; Master whom it is about, "" for all.
type finding struct{ check, master, text, fix string }

// patient is a cluster as its doctor finds it.
type patient struct {
	self     string
	isolated bool
	status   []cluster.Status
	// health is what each master says (master.health), by id.
	health map[string]*value.Dict
	voters []cluster.Voter
	// differs are the sections in which what masters have differs.
	differs []string
	now     time.Time
}

// Bounds of what is healthy.
const (
	maxOffset    = 500 * time.Millisecond
	maxBehind    = 1000 // changes
	leastDays    = 30   // that a certificate is good yet
	leastFree    = 5    // percent of a disk
	leastFreeAbs = 256 << 20
)

// checked are the names of the checks, in their order.
var checked = []string{"members", "identity", "secret", "version", "clock", "lag", "voters", "certificate", "files", "data", "minions", "disk", "drain"}

// doctor looks for what is wrong with the cluster.
func (c clusters) doctor(ctx context.Context, call *fn.Call, _ struct{}) (*value.Dict, error) {
	if c.Cluster == nil {
		return nil, errNoCluster
	}
	ctx, cancel := context.WithTimeout(ctx, checkTime)
	defer cancel()
	p := patient{self: c.ID, isolated: c.Cluster.Isolated(), status: c.Cluster.Status(ctx), now: time.Now()}
	asked, stop := context.WithTimeout(ctx, healthTime)
	p.health = c.Records.Health(asked)
	stop()
	if p.isolated {
		p.voters = c.Voting.Voters(ctx)
		d, err := c.Records.Check(ctx)
		if err != nil {
			return nil, err
		}
		for k := range d.Dict("differences").All() {
			p.differs = append(p.differs, value.Str(k))
		}
	}
	found := p.findings()
	for id, st := range c.Cluster.Stations() {
		if st.Draining {
			found = append(found, finding{"drain", id, "minions are to use other masters", "when the work on it is done: brine cluster undrain " + id})
		}
	}
	slices.SortStableFunc(found, func(a, b finding) int {
		return cmp.Or(slices.Index(checked, a.check)-slices.Index(checked, b.check), strings.Compare(a.master, b.master), strings.Compare(a.text, b.text))
	})
	list := &value.List{}
	for _, f := range found {
		list.Append(value.DictOf("check", f.check, "master", f.master, "finding", f.text, "fix", f.fix))
	}
	if len(found) > 0 {
		call.SetRetcode(1)
	}
	var masters []string
	for _, s := range p.status {
		masters = append(masters, s.ID)
	}
	return value.DictOf("masters", value.Strings(masters), "checked", value.Strings(checked), "findings", list), nil
}

// healthTime bounds the wait for what others find.
const healthTime = 10 * time.Second

func (p *patient) findings() (out []finding) {
	for _, check := range []func() []finding{p.members, p.lists, p.options, p.identity, p.same, p.clocks, p.lag, p.votes, p.certificates, p.data, p.minions,
		p.disks} {
		out = append(out, check()...)
	}
	return out
}

// there calls fn for the masters that have answered, in their order.
func (p *patient) there(fn func(id string, d *value.Dict)) {
	for _, id := range slices.Sorted(maps.Keys(p.health)) {
		if d := p.health[id]; d.Has("own") {
			fn(id, d)
		}
	}
}

// members finds those that cannot be reached, from here or from another one.
func (p *patient) members() (out []finding) {
	up := map[string]bool{}
	for _, s := range p.status {
		switch {
		case s.Self:
			up[s.ID] = true
		case s.Problem != "":
			out = append(out, finding{"members", s.ID, s.Problem, "put right what it says, and restart that master"})
		case !s.Up:
			out = append(out, finding{"members", s.ID, "it cannot be reached from " + p.self,
				"start it, and let masters through to its cluster_pool_port; if it is gone for good, take it out of cluster_peers of all masters and " +
					"run brine cluster remove " + s.ID})
		case s.Says == nil && s.Kind != "salt":
			out = append(out, finding{"members", s.ID, "it is there and does not answer",
				"look at its log and its load; a process that stands still is to be killed and started"})
		default:
			up[s.ID] = true
		}
	}
	p.there(func(from string, d *value.Dict) {
		for k, v := range d.Dict("sees").All() {
			id := value.Str(k)
			seen, _ := v.(*value.Dict)
			if from == p.self || !up[id] || seen.Bool("up") && seen.Str("problem") == "" {
				continue
			}
			out = append(out, finding{"members", id, "it cannot be reached from " + from + ", but from " + p.self + ": " +
				cmp.Or(seen.Str("problem"), "no connection"), "let masters through from " + from + " to cluster_pool_port of " + id})
		}
	})
	return out
}

// lists finds, where masters share a directory, those whose cluster_peers lacks another one. Links that are refused are no fault of the
// master that has the complete list.
func (p *patient) lists() (out []finding) {
	if p.isolated {
		return nil
	}
	all := map[string]bool{}
	p.there(func(id string, d *value.Dict) {
		all[id] = true
		for _, of := range []string{"sees", "peers"} {
			for _, name := range d.Dict(of).Keys() {
				all[value.Str(name)] = true
			}
		}
	})
	p.there(func(id string, d *value.Dict) {
		var lacks []string
		for _, other := range slices.Sorted(maps.Keys(all)) {
			if other != id && !d.Dict("sees").Has(other) {
				lacks = append(lacks, other)
			}
		}
		if len(lacks) > 0 {
			out = append(out, finding{"members", id, "its cluster_peers does not name " + strings.Join(lacks, ", "),
				"name all other masters there and restart it; if one is gone for good, remove its file from peers in cluster_pki_dir"})
		}
	})
	return out
}

// options finds, where masters share a directory, options that decide what minions get and that differ.
func (p *patient) options() (out []finding) {
	if p.isolated {
		return nil
	}
	by := map[string]map[string][]string{} // by option and value
	p.there(func(id string, d *value.Dict) {
		for name, v := range d.Dict("options").All() {
			n := value.Str(name)
			if by[n] == nil {
				by[n] = map[string][]string{}
			}
			by[n][value.Str(v)] = append(by[n][value.Str(v)], id)
		}
	})
	for _, name := range slices.Sorted(maps.Keys(by)) {
		if len(by[name]) < 2 {
			continue
		}
		var parts []string
		for _, v := range slices.Sorted(maps.Keys(by[name])) {
			parts = append(parts, strings.Join(by[name][v], ", "))
		}
		slices.Sort(parts)
		out = append(out, finding{"files", "", "the option " + name + " is not the same on " + strings.Join(parts, " as on "),
			"give all masters the same and restart them: what a minion gets depends on the master that the balancer chooses"})
	}
	return out
}

// identity finds masters that are not who others think, and members that not all
// know.
func (p *patient) identity() (out []finding) {
	if !p.isolated {
		return nil // there is one directory
	}
	own, cluster := map[string]string{}, map[string]string{}
	p.there(func(id string, d *value.Dict) { own[id], cluster[id] = d.Str("own"), d.Str("cluster") })
	p.there(func(from string, d *value.Dict) {
		if cluster[from] != cluster[p.self] {
			out = append(out, finding{"identity", from, "its cluster has another key than that of " + p.self + ": " + cluster[from],
				"two clusters were founded: stop it, remove its cluster_pki_dir and cachedir, and have it join"})
		}
		for id, finger := range own {
			switch seen := d.Dict("peers").Str(id); {
			case id == from:
			case seen == "":
				out = append(out, finding{"identity", id, from + " does not know it as a member",
					"wait until what it lacks has come (lag); if it stays so, have " + id + " join again"})
			case seen != finger:
				out = append(out, finding{"identity", id, "its key is " + finger + ", and " + from + " knows it by " + seen,
					"if its key was replaced, take it out (brine cluster remove " + id + ") and have it join again; if not, another machine uses its id"})
			}
		}
	})
	return out
}

// same finds values that should be one and are not.
func (p *patient) same() (out []finding) {
	say := func(check, what, fix string, value func(s *cluster.Status) string) {
		by := map[string][]string{}
		for i := range p.status {
			if s := &p.status[i]; s.Says != nil {
				if v := value(s); v != "" {
					by[v] = append(by[v], s.ID)
				}
			}
		}
		if len(by) < 2 {
			return
		}
		var parts []string
		for _, v := range slices.Sorted(maps.Keys(by)) {
			if check == "secret" {
				parts = append(parts, strings.Join(by[v], ", ")) // not even a trace of it
			} else {
				parts = append(parts, v+" on "+strings.Join(by[v], ", "))
			}
		}
		out = append(out, finding{check, "", what + ": " + strings.Join(parts, "; "), fix})
	}
	say("version", "the versions differ", "install the same version on all masters, one after the other",
		func(s *cluster.Status) string { return s.Says.Str("version") })
	if !p.isolated {
		return out
	}
	say("secret", "not all have the same secret for joining", "brine cluster rotate-secret on any",
		func(s *cluster.Status) string { return s.Says.Str("secret") })
	for _, s := range p.status {
		if s.Says != nil && s.Says.Has("secret") && s.Says.Str("secret") == "" {
			out = append(out, finding{"secret", s.ID, "it has no secret that others must know to join",
				"set cluster_secret as on the others, or brine cluster rotate-secret on one of them"})
		}
	}
	say("files", "they serve different states of file_roots and pillar_roots",
		"brine cluster status shows who is behind; if it stays so, salt-run cluster.sync_roots on the master whose directories are right",
		func(s *cluster.Status) string {
			return cmp.Or(s.Says.Str("files"), "their own directories")
		})
	return out
}

func (p *patient) clocks() (out []finding) {
	for _, s := range p.status {
		if s.Says != nil && s.Offset.Abs() > maxOffset {
			out = append(out, finding{"clock", s.ID, fmt.Sprintf("its clock differs by %v from that of %s", s.Offset.Round(10*time.Millisecond), p.self),
				"let all masters set their clocks by NTP; from 5 s on they do not work with each other"})
		}
	}
	return out
}

// lag finds members that others have much for which they have not got.
func (p *patient) lag() (out []finding) {
	p.there(func(from string, d *value.Dict) {
		for k, v := range d.Dict("sees").All() {
			seen, _ := v.(*value.Dict)
			n := int64(0)
			for _, x := range seen.Dict("behind").All() {
				i, _ := x.(int64)
				n += i
			}
			if n > maxBehind {
				out = append(out, finding{"lag", value.Str(k), fmt.Sprintf("it has not got %d changes yet that %s has", n, from),
					"look again in a minute; if there are not fewer, look at its log, its disk and the network between them"})
			}
		}
	})
	return out
}

func (p *patient) votes() (out []finding) {
	if !p.isolated {
		return nil
	}
	lists := map[string][]string{}
	p.there(func(id string, d *value.Dict) {
		var all []string
		for _, v := range d.List("voters") {
			all = append(all, value.Str(v))
		}
		lists[strings.Join(all, ", ")] = append(lists[strings.Join(all, ", ")], id)
	})
	if len(lists) > 1 {
		var parts []string
		for _, l := range slices.Sorted(maps.Keys(lists)) {
			parts = append(parts, cmp.Or(l, "none")+" on "+strings.Join(lists[l], ", "))
		}
		out = append(out, finding{"voters", "", "cluster_voters is not the same on all: " + strings.Join(parts, "; "),
			"set it to one list everywhere, and restart one master after the other"})
	}
	good := 0
	for _, v := range p.voters {
		switch {
		case v.Votes:
			good++
		case v.Witness:
			out = append(out, finding{"voters", v.ID, "the witness cannot vote: " + v.Why,
				"start brine witness there, and let masters through to its cluster_pool_port"})
		default:
			out = append(out, finding{"voters", v.ID, "it cannot vote: " + v.Why, "see what is said of it as a member"})
		}
		if v.Votes && v.Witness && !v.Secret {
			out = append(out, finding{"voters", v.ID, "the witness has not the secret of the cluster as it is now",
				"put the secret that brine cluster witness-secret shows into its configuration, and restart it"})
		}
	}
	if n := len(p.voters); n > 0 && 2*good <= n {
		out = append(out, finding{"voters", "", fmt.Sprintf("%d of %d voters can vote: no master does the work that runs once", good, n),
			"bring the voters back that are named here; if they are lost for good: brine cluster recover"})
	}
	return out
}

func (p *patient) certificates() (out []finding) {
	for _, s := range p.status {
		text := ""
		if s.Says != nil {
			text = s.Says.Str("certificate")
		}
		ends, err := time.Parse(time.RFC3339, text)
		if err == nil && ends.Before(p.now.Add(leastDays*24*time.Hour)) {
			out = append(out, finding{"certificate", s.ID, "its certificate ends on " + text,
				"it is renewed every month while the clock is right: set the clock, and restart that master"})
		}
	}
	return out
}

func (p *patient) data() (out []finding) {
	names := slices.Clone(p.differs)
	slices.Sort(names)
	if len(names) > 0 {
		out = append(out, finding{"data", "", "what the masters have differs: " + strings.Join(names, ", "),
			"brine cluster check shows what; while minions return it differs for a moment. Directories of files (tree): salt-run cluster.sync_roots " +
				"on the master whose directories are right"})
	}
	return out
}

func (p *patient) minions() (out []finding) {
	p.there(func(from string, d *value.Dict) {
		for k, v := range d.Dict("few").All() {
			var names []string
			if l, ok := v.(*value.List); ok {
				for _, it := range l.Items {
					names = append(names, value.Str(it))
				}
			}
			out = append(out, finding{"minions", from, fmt.Sprintf("the minion %s knows only %s of %d masters", value.Str(k), strings.Join(names, ", "),
				len(p.status)), "in its configuration name all of them in master, or set master_type: cluster, by which it learns of them"})
		}
	})
	return out
}

func (p *patient) disks() (out []finding) {
	p.there(func(id string, d *value.Dict) {
		told := map[string]bool{}
		for _, it := range d.List("disks") {
			x, _ := it.(*value.Dict)
			free, size := x.Int("free"), x.Int("size")
			if x == nil || size <= 0 || free*100 >= size*leastFree && free >= leastFreeAbs || told[fmt.Sprint(free, size)] {
				continue
			}
			told[fmt.Sprint(free, size)] = true
			out = append(out, finding{"disk", id, fmt.Sprintf("%d MiB of %d are free for %s", free>>20, size>>20, x.Str("path")),
				"make room there, or keep jobs for a shorter time (keep_jobs_seconds); a full disk stores no returns"})
		}
	})
	return out
}
