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

// finding is a problem. Check is the name of the check, Master the affected
// master, "" for all.
type finding struct{ check, master, text, fix string }

// patient is the cluster under examination.
type patient struct {
	self     string
	isolated bool
	status   []cluster.Status
	// health is the report of each master (master.health), by id.
	health map[string]*value.Dict
	voters []cluster.Voter
	// differs lists the sections in which the replicated data of masters differs.
	differs []string
	now     time.Time
}

// Bounds of healthy values.
const (
	maxOffset    = 500 * time.Millisecond
	maxBehind    = 1000 // number of changes
	leastDays    = 30   // remaining validity of a certificate
	leastFree    = 5    // percent of the disk
	leastFreeAbs = 256 << 20
)

// checked lists the names of the checks in order.
var checked = []string{"members", "identity", "secret", "version", "clock", "lag", "store", "voters", "certificate", "files", "data", "copies",
	"minions", "disk", "drain"}

// doctor diagnoses the cluster.
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
			found = append(found, finding{"drain", id, "the master is drained", "when its maintenance is done: brine cluster undrain " + id})
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

// healthTime bounds the wait for the reports of other masters.
const healthTime = 10 * time.Second

func (p *patient) findings() (out []finding) {
	for _, check := range []func() []finding{p.members, p.lists, p.options, p.identity, p.same, p.clocks, p.lag, p.stores, p.votes, p.certificates,
		p.data, p.copies, p.minions, p.disks} {
		out = append(out, check()...)
	}
	return out
}

// there calls fn for each master that answered, in order.
func (p *patient) there(fn func(id string, d *value.Dict)) {
	for _, id := range slices.Sorted(maps.Keys(p.health)) {
		if d := p.health[id]; d.Has("own") {
			fn(id, d)
		}
	}
}

// members finds unreachable members, as seen from here or from another one.
func (p *patient) members() (out []finding) {
	up := map[string]bool{}
	for _, s := range p.status {
		switch {
		case s.Self:
			up[s.ID] = true
		case s.Problem != "":
			out = append(out, finding{"members", s.ID, s.Problem, "fix the reported error and restart that master"})
		case !s.Up:
			out = append(out, finding{"members", s.ID, "it cannot be reached from " + p.self,
				"start it, and open its cluster_pool_port to the masters; if it is gone for good, remove it from cluster_peers of all masters and " +
					"run brine cluster remove " + s.ID})
		case s.Says == nil && s.Kind != "salt":
			out = append(out, finding{"members", s.ID, "it is running and does not answer",
				"check its log and its load; kill and restart a process that hangs"})
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
				cmp.Or(seen.Str("problem"), "no connection"), "open the port from " + from + " to cluster_pool_port of " + id})
		}
	})
	return out
}

// lists finds members of a cluster with a shared directory whose cluster_peers is incomplete. A refused link is not
// reported for the master that has the complete list.
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
				"add all other masters to it and restart it; if one is gone for good, remove its file from peers in cluster_pki_dir"})
		}
	})
	return out
}

// options finds differing options in a cluster with a shared directory, as far as they decide what
// minions get.
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
		out = append(out, finding{"files", "", "the option " + name + " differs between " + strings.Join(parts, " and "),
			"set the same value on all masters and restart them: otherwise a minion's result depends on the master that the balancer chooses"})
	}
	return out
}

// identity finds masters with an unexpected key, and members that some masters
// do not know.
func (p *patient) identity() (out []finding) {
	if !p.isolated {
		return nil // all use the same directory
	}
	own, shared := map[string]string{}, map[string]string{}
	p.there(func(id string, d *value.Dict) { own[id], shared[id] = d.Str("own"), d.Str("cluster") })
	p.there(func(from string, d *value.Dict) {
		for entry, why := range d.Dict("foreign").All() {
			out = append(out, finding{"identity", from, "its cluster_peers names " + value.Str(entry) + ": " + value.Str(why), cluster.ForeignFix})
		}
		if shared[from] != shared[p.self] {
			out = append(out, finding{"identity", from, "its cluster key differs from that of " + p.self + ": " + shared[from],
				"two clusters were created: stop it, remove its cluster_pki_dir and cachedir, and let it join"})
		}
		for id, finger := range own {
			switch seen := d.Dict("peers").Str(id); {
			case id == from:
			case seen == "":
				out = append(out, finding{"identity", id, from + " does not know it as a member",
					"wait until it has the missing changes (lag); if the finding stays, let " + id + " join again"})
			case seen != finger:
				out = append(out, finding{"identity", id, "its key is " + finger + ", and " + from + " knows it by " + seen,
					"if its key was replaced, remove it (brine cluster remove " + id + ") and let it join again; if not, another machine uses its id"})
			}
		}
	})
	return out
}

// stores finds masters whose store of record does not work, or that use none or another one than the others.
func (p *patient) stores() (out []finding) {
	by := map[string][]string{}
	for _, s := range p.status {
		if s.Says == nil || !p.isolated {
			continue
		}
		st := s.Says.Dict("store")
		engine := cmp.Or(st.Str("engine"), "none")
		by[engine] = append(by[engine], s.ID)
		if why := st.Str("problem"); why != "" {
			out = append(out, finding{"store", s.ID, fmt.Sprintf("it cannot use the store of record, %d of its changes wait: %s", st.Int("waiting"), why),
				"fix the reported error; until then its changes are on its own disk only"})
		} else if n := st.Int("waiting") + st.Int("lacking"); n > maxBehind {
			out = append(out, finding{"store", s.ID, fmt.Sprintf("%d changes wait for the store of record, or are missing here", n),
				"wait; if the number does not fall, check the load of the server"})
		}
		if n := st.Int("unreadable"); n > 0 {
			out = append(out, finding{"store", s.ID, fmt.Sprintf("%d rows of the store of record cannot be read", n),
				"start the master that wrote them (its log and that of " + s.ID + " name them), which writes them again; if it is lost, delete the rows"})
		}
	}
	if len(by) > 1 {
		var parts []string
		for _, engine := range slices.Sorted(maps.Keys(by)) {
			parts = append(parts, engine+" on "+strings.Join(by[engine], ", "))
		}
		out = append(out, finding{"store", "", "store_of_record differs: " + strings.Join(parts, "; "), "set the same on all masters and restart them"})
	}
	return out
}

// same finds values that must be equal on all masters and differ.
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
				parts = append(parts, strings.Join(by[v], ", ")) // show not even a hash of the secret
			} else {
				parts = append(parts, v+" on "+strings.Join(by[v], ", "))
			}
		}
		out = append(out, finding{check, "", what + ": " + strings.Join(parts, "; "), fix})
	}
	say("version", "the versions differ", "install the same version on all masters, one after the other",
		func(s *cluster.Status) string {
			return fmt.Sprintf("%s (Brine %s)", s.Says.Str("version"), cmp.Or(s.Says.Str("brine"), "unknown"))
		})
	if !p.isolated {
		return out
	}
	say("secret", "the masters have different joining secrets", "run brine cluster rotate-secret on any master",
		func(s *cluster.Status) string { return s.Says.Str("secret") })
	for _, s := range p.status {
		if s.Says != nil && s.Says.Has("secret") && s.Says.Str("secret") == "" {
			out = append(out, finding{"secret", s.ID, "it has no joining secret",
				"set cluster_secret as on the others, or run brine cluster rotate-secret on one of them"})
		}
	}
	say("files", "they serve different revisions of file_roots and pillar_roots",
		"brine cluster status shows which master is behind; if that does not change, run salt-run cluster.sync_roots on the master whose directories are right",
		func(s *cluster.Status) string {
			return cmp.Or(s.Says.Str("files"), "their own directories")
		})
	return out
}

func (p *patient) clocks() (out []finding) {
	for _, s := range p.status {
		if s.Says != nil && s.Offset.Abs() > maxOffset {
			out = append(out, finding{"clock", s.ID, fmt.Sprintf("its clock differs by %v from that of %s", s.Offset.Round(10*time.Millisecond), p.self),
				"synchronize the clocks of all masters by NTP; from 5 s on they refuse each other"})
		}
	}
	return out
}

// lag finds members that lack many changes.
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
				out = append(out, finding{"lag", value.Str(k), fmt.Sprintf("it lacks %d changes of %s", n, from),
					"check again in a minute; if the number does not fall, check its log, its disk and the network between them"})
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
	joined := func(l []any) string {
		var all []string
		for _, v := range l {
			all = append(all, value.Str(v))
		}
		return strings.Join(all, ", ")
	}
	p.there(func(id string, d *value.Dict) {
		now := joined(d.List("voters"))
		lists[now] = append(lists[now], id)
		if d.Has("configured") && joined(d.List("configured")) != now {
			out = append(out, finding{"voters", id, "cluster_voters in its configuration does not count, since a command has changed the voters: " +
				cmp.Or(joined(d.List("configured")), "none") + "; the voters are " + now, "set cluster_voters: [" + now + "] there"})
		}
	})
	if len(lists) > 1 {
		var parts []string
		for _, l := range slices.Sorted(maps.Keys(lists)) {
			parts = append(parts, cmp.Or(l, "none")+" on "+strings.Join(lists[l], ", "))
		}
		out = append(out, finding{"voters", "", "cluster_voters differs: " + strings.Join(parts, "; "),
			"set the same list everywhere, and restart one master after the other"})
	}
	good := 0
	for _, v := range p.voters {
		switch {
		case v.Votes:
			good++
		case v.Witness:
			out = append(out, finding{"voters", v.ID, "the witness cannot vote: " + v.Why,
				"start brine witness there, and open its cluster_pool_port to the masters"})
		default:
			out = append(out, finding{"voters", v.ID, "it cannot vote: " + v.Why, "see its findings as a member"})
		}
		if v.Votes && v.Witness && !v.Secret {
			out = append(out, finding{"voters", v.ID, "the witness does not have the current secret of the cluster",
				"copy the secret that brine cluster witness-secret shows into its configuration, and restart it"})
		}
	}
	if n := len(p.voters); n > 0 && 2*good <= n {
		out = append(out, finding{"voters", "", fmt.Sprintf("%d of %d voters can vote: no master runs the tasks that run once", good, n),
			"repair the voters named here; if they are lost for good: brine cluster recover"})
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
			out = append(out, finding{"certificate", s.ID, "its certificate expires on " + text,
				"it is renewed every month while the clock is right: set the clock, and restart that master"})
		}
	}
	return out
}

func (p *patient) data() (out []finding) {
	names := slices.Clone(p.differs)
	slices.Sort(names)
	if len(names) > 0 {
		out = append(out, finding{"data", "", "the data of the masters differs: " + strings.Join(names, ", "),
			"brine cluster check shows the differences; while minions return there may be short ones. For directories of files (tree) run salt-run cluster.sync_roots " +
				"on the master whose directories are right"})
	}
	p.there(func(from string, d *value.Dict) {
		for kind, why := range d.Dict("unwritten").All() {
			out = append(out, finding{"data", from, "its files of the kind " + value.Str(kind) + " are not what is recorded: " + value.Str(why),
				"let the user of the master read and write them; decisions of other masters have no effect there until then"})
		}
	})
	for _, s := range p.status {
		if n := s.Says.Int("differs"); n > 0 {
			out = append(out, finding{"data", s.ID, fmt.Sprintf("%d replicated records differ from those of other masters, and cannot be repaired safely", n),
				"the log of that master names them; decide again on the master that is right, for example with salt-key"})
		}
	}
	return out
}

// copies finds returns of which there are too few copies.
func (p *patient) copies() (out []finding) {
	few, oldest, senseless := int64(0), "", ""
	for _, s := range p.status {
		r := s.Says.Dict("returns")
		if n := r.Int("missing"); n > 0 && r.Str("lost") != "" {
			out = append(out, finding{"copies", s.ID, fmt.Sprintf("it lacks %d returns that it has to store, and no reachable master has some of them, the "+
				"oldest of job %s", n, r.Str("lost")), "start the unreachable masters, or restore their disks; if they are lost, so are these returns, until " +
				"their jobs expire"})
		}
		if n := r.Int("few"); n > 0 {
			if jid := r.Str("oldest"); oldest == "" || jid < oldest {
				oldest = jid
			}
			few += n
		}
		senseless = cmp.Or(senseless, r.Str("senseless"))
	}
	if few > 0 {
		out = append(out, finding{"copies", "", fmt.Sprintf("%d returns have fewer copies on reachable masters than cluster_return_copies, the oldest of job %s",
			few, oldest), "start the unreachable masters, and repair the disks of those that cannot store changes; after ten minutes, or when they are removed " +
			"(brine cluster remove), others make the missing copies"})
	}
	if senseless != "" {
		out = append(out, finding{"copies", "", senseless, "set the same cluster_return_copies on all masters, not more than there are, and restart them"})
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
				len(p.status)), "name all of them in its option master, or set master_type: cluster"})
		}
	})
	return out
}

func (p *patient) disks() (out []finding) {
	for _, s := range p.status {
		if s.Says.Str("unstored") != "" {
			out = append(out, finding{"disk", s.ID, "it " + unstored(s.Says), "free some space on its disk, or make it writable again; meanwhile the others keep " +
				"what it lacks, and after ten minutes they store the copies of returns that it should have"})
		}
	}
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
				"free some space, or keep jobs for a shorter time (keep_jobs_seconds); a full disk stores no returns"})
		}
	})
	return out
}
