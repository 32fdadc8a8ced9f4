package durable

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"brine/internal/net/crypt"
	"brine/test/daemontest"
	"brine/test/eventually"
	"brine/test/netns"
)

// keyState is the decision of masters about a key. keyStates is a set of such states.
type keyState uint8

type keyStates uint8

const (
	isPending keyState = 1 << iota
	isAccepted
	isRejected
	isDeleted
)

func (s keyState) String() string {
	return map[keyState]string{isPending: "pending", isAccepted: "accepted", isRejected: "rejected", isDeleted: "deleted"}[s]
}

// keyOp is a decision about a key after reading its state at the same master, or only such a read after all faults.
type keyOp struct {
	id, master string
	saw        keyState
	decides    keyState // 0: a read
	known      bool     // it was acknowledged; otherwise it may have been made or not
	// others says that several masters had rejected the key: a master that saw it rejected may not know all of these decisions.
	others bool
	// unseen says that another master had deleted the key: a master that saw it rejected, which wins over that deletion, may not know of it.
	unseen bool
}

func (o keyOp) String() string {
	if o.decides == 0 {
		return fmt.Sprintf("%s: %v after all", o.master, o.saw)
	}
	return fmt.Sprintf("%s: %v, saw %v, acknowledged %v", o.master, o.decides, o.saw, o.known)
}

// after returns the possible states of a key after a decision.
func (o keyOp) after(now keyState) keyStates {
	next := keyStates(o.decides)
	switch {
	case o.decides == isAccepted && now == isDeleted, o.decides == isAccepted && now == isRejected && o.saw != isRejected:
		next = keyStates(now) // the decision was made without knowledge of a stricter one, which stays
	case o.decides == isDeleted && now == isRejected && (o.saw != isRejected || o.others):
		next |= keyStates(isRejected) // a rejection wins over a deletion, unless it arrived between the read and the deletion
	case o.decides == isAccepted && now == isRejected:
		if o.others {
			next |= keyStates(isRejected)
		}
		if o.unseen {
			next |= keyStates(isDeleted) // the acceptance undoes the rejection that it has seen, and not the deletion
		}
	}
	if !o.known {
		next |= keyStates(now)
	}
	return next
}

// decisions is the part of the documented rule that masters can fulfil while they decide separately: an acknowledged rejection or deletion is
// undone only by an acceptance after a read that showed it. As a register: decisions take effect in some order that real time allows, and one
// made without knowledge of a stricter decision changes nothing. The state is the set of possible states of the key.
var decisions = porcupine.Model{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		by := map[string][]porcupine.Operation{}
		for _, o := range history {
			id := o.Input.(keyOp).id
			by[id] = append(by[id], o)
		}
		return slices.Collect(maps.Values(by))
	},
	Init: func() any { return keyStates(isPending) },
	Step: func(state, input, _ any) (bool, any) {
		o, now := input.(keyOp), state.(keyStates)
		if o.decides == 0 {
			return now&keyStates(o.saw) != 0, keyStates(o.saw)
		}
		var next keyStates
		for _, s := range []keyState{isPending, isAccepted, isRejected, isDeleted} {
			if now&keyStates(s) != 0 {
				next |= o.after(s)
			}
		}
		return true, next
	},
}

// history records operations.
type history struct {
	mu   sync.Mutex
	from time.Time
	ops  []porcupine.Operation
}

// do records an operation that fn performs.
func (h *history) do(client int, fn func() keyOp) {
	call := time.Since(h.from).Nanoseconds()
	o := fn()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ops = append(h.ops, porcupine.Operation{ClientId: client, Input: o, Call: call, Return: time.Since(h.from).Nanoseconds()})
}

// check returns the keys whose history violates the rule, with the history.
func (h *history) check() (broken []string) {
	end := time.Since(h.from).Nanoseconds()
	for _, part := range decisions.Partition(h.ops) {
		for i := range part {
			if o := part[i].Input.(keyOp); !o.known && o.decides != 0 {
				part[i].Return = end // it may take effect at any time
			}
		}
		for i := range part {
			o := part[i].Input.(keyOp)
			by := map[string]bool{}
			for _, other := range part {
				switch r := other.Input.(keyOp); {
				case other.Call >= part[i].Return:
				case r.decides == isRejected:
					by[r.master] = true
				case r.decides == isDeleted && r.master != o.master:
					o.unseen = true
				}
			}
			o.others = o.saw == isRejected && len(by) > 1
			part[i].Input = o
		}
		if porcupine.CheckOperations(porcupine.Model{Init: decisions.Init, Step: decisions.Step}, part) {
			continue
		}
		slices.SortFunc(part, func(a, b porcupine.Operation) int { return cmp.Compare(a.Call, b.Call) })
		text := part[0].Input.(keyOp).id
		for _, o := range part {
			text += fmt.Sprintf("\n  %8.3f s to %8.3f s  %v", float64(o.Call)/1e9, float64(o.Return)/1e9, o.Input)
		}
		broken = append(broken, text)
	}
	return broken
}

// TestDecisionModel: the rule allows what it should, and nothing else.
func TestDecisionModel(t *testing.T) {
	for name, c := range map[string]struct {
		ops  []string // FROM TO DECISION SAW [@MASTER], or FROM TO look STATE; "?" after a decision that was not acknowledged
		want bool
	}{
		"an acceptance":                               {[]string{"1 2 accepted pending", "9 9 look accepted"}, true},
		"an acceptance that is lost":                  {[]string{"1 2 accepted pending", "9 9 look pending"}, false},
		"one that was not acknowledged":               {[]string{"1 2 accepted? pending", "9 9 look pending"}, true},
		"a rejection beside an acceptance":            {[]string{"1 5 accepted pending", "2 4 rejected pending", "9 9 look rejected"}, true},
		"a rejection that an acceptance undoes":       {[]string{"1 5 accepted pending", "2 4 rejected pending", "9 9 look accepted"}, false},
		"a rejection that a later one has not seen":   {[]string{"1 2 rejected pending", "3 4 accepted pending", "9 9 look accepted"}, false},
		"a rejection that a later one has seen":       {[]string{"1 2 rejected pending", "3 4 accepted rejected", "9 9 look accepted"}, true},
		"a deletion that comes back":                  {[]string{"1 2 accepted pending", "3 4 deleted accepted", "9 9 look accepted"}, false},
		"a deletion that a later acceptance undoes":   {[]string{"1 2 deleted pending", "3 4 accepted pending", "9 9 look accepted"}, false},
		"a deletion beside a rejection":               {[]string{"1 2 deleted pending", "3 4 rejected pending", "9 9 look rejected"}, true},
		"a rejection beside a deletion":               {[]string{"1 2 rejected pending", "3 4 deleted pending", "9 9 look rejected"}, true},
		"a deletion that has seen the only rejection": {[]string{"1 2 rejected pending", "3 4 deleted rejected", "9 9 look rejected"}, false},
		"a deletion that has seen one of two rejections": {
			[]string{"1 2 rejected pending", "1 2 rejected pending", "3 4 deleted rejected", "9 9 look rejected"}, true},
		"an acceptance that has seen one of two rejections": {
			[]string{"1 2 rejected pending", "1 2 rejected pending", "3 4 accepted rejected", "9 9 look rejected"}, true},
		"an acceptance that has seen a rejection, and not a deletion": {
			[]string{"1 2 deleted pending", "3 4 rejected pending", "5 6 accepted rejected", "9 9 look deleted"}, true},
		"an acceptance after a rejection and before a deletion": {
			[]string{"1 2 rejected pending", "3 4 accepted rejected", "5 6 deleted accepted", "9 9 look accepted"}, false},
		"an acceptance that has seen a rejection, and the deletion of its own master": {
			[]string{"1 2 deleted pending @a", "3 4 rejected pending", "5 6 accepted rejected @a", "9 9 look deleted"}, false},
		"a later rejection is not among them": {[]string{"1 2 rejected pending", "3 4 deleted rejected", "5 6 rejected deleted", "9 9 look deleted"}, false},
		"a rejected key that is pending":      {[]string{"1 2 rejected pending", "9 9 look pending"}, false},
		// The decision may take effect between the reads.
		"masters that differ":                          {[]string{"1 2 rejected? pending", "8 9 look rejected", "8 9 look pending"}, true},
		"masters that differ, and know the decision":   {[]string{"1 2 rejected pending", "8 9 look rejected", "8 9 look pending"}, false},
		"a rejection after all, of an unknown outcome": {[]string{"1 2 accepted pending", "3 4 rejected? accepted", "9 9 look accepted"}, true},
	} {
		h := &history{from: time.Now().Add(-time.Minute)}
		for i, text := range c.ops {
			f := strings.Fields(text)
			call, _ := strconv.Atoi(f[0])
			end, _ := strconv.Atoi(f[1])
			word, unknown := strings.CutSuffix(f[2], "?")
			o := keyOp{id: "k", master: fmt.Sprint(i), known: !unknown}
			if len(f) > 4 {
				o.master = f[4]
			}
			for _, s := range []keyState{isPending, isAccepted, isRejected, isDeleted} {
				if s.String() == word {
					o.decides = s
				}
				if s.String() == f[3] {
					o.saw = s
				}
			}
			h.ops = append(h.ops, porcupine.Operation{ClientId: i, Input: o, Call: int64(call) * 1e9, Return: int64(end) * 1e9})
		}
		if got := len(h.check()) == 0; got != c.want {
			t.Errorf("%s: allowed %v, not %v", name, got, c.want)
		}
	}
}

// keysAt returns the state of each key at a master.
func keysAt(m *member, ids []string) (map[string]keyState, error) {
	keys, err := m.Keys()
	if err != nil {
		return nil, err
	}
	out := map[string]keyState{}
	for _, id := range ids {
		out[id] = isDeleted
	}
	for dir, s := range map[string]keyState{"minions_pre": isPending, "minions": isAccepted, "minions_rejected": isRejected} {
		for _, id := range keys[dir] {
			out[id] = s
		}
	}
	return out, nil
}

// decide makes a decision about a key at a master.
func decide(m *member, id string, saw, decision keyState) keyOp {
	args := map[keyState][]string{isAccepted: {"-a", id}, isRejected: {"-r", id}, isDeleted: {"-d", id}}[decision]
	switch {
	case saw == isRejected && decision == isAccepted:
		args = append(args, "--include-rejected")
	case saw == isAccepted && decision == isRejected:
		args = append(args, "--include-accepted")
	}
	out, _, code := m.Run(brine, "salt-key", append([]string{"-y"}, args...)...)
	done := map[keyState]string{isAccepted: "accepted", isRejected: "rejected", isDeleted: "deleted"}[decision]
	return keyOp{id: id, master: m.Name, saw: saw, decides: decision, known: code == 0 && strings.Contains(out, id+" "+done)}
}

// between causes a fault between masters, and ends it.
func (f *trouble) between() {
	i := f.rand.IntN(len(f.masters))
	m, other := f.masters[i], f.masters[(i+1)%len(f.masters)]
	const long = 4 * time.Second
	kind := []string{"part two masters", "cut one off from masters", "part all", "kill", "freeze", "kill all"}[f.rand.IntN(6)]
	f.counts[kind]++
	parts := [][2]*member{}
	switch kind {
	case "part two masters":
		parts = append(parts, [2]*member{m, other})
	case "cut one off from masters":
		parts = append(parts, [2]*member{m, other}, [2]*member{m, f.masters[(i+2)%len(f.masters)]})
	case "part all":
		for j := range f.masters {
			parts = append(parts, [2]*member{f.masters[j], f.masters[(j+1)%len(f.masters)]})
		}
	case "kill":
		m.Kill()
		f.nap(long)
		m.Launch()
	case "freeze":
		m.Signal(syscall.SIGSTOP)
		f.nap(long)
		m.Signal(syscall.SIGCONT)
	case "kill all":
		for _, b := range f.masters {
			b.Kill()
		}
		for _, b := range f.masters {
			b.Launch()
		}
	}
	for _, p := range parts {
		f.net.Part(p[0].on, p[1].on)
	}
	if len(parts) > 0 {
		f.nap(2 * long)
	}
	for _, p := range parts {
		f.net.Join(p[0].on, p[1].on)
	}
	f.nap(long / 2)
}

// TestKeyDecisionsHistory: an operator at each of three masters without a shared directory decides about the same keys at the same time, while
// masters are cut off from each other, killed and frozen. Afterwards all masters have the same records, and the history of each key obeys the
// documented rule. BRINE_DURABLE_KEYS is the number of keys; BRINE_DURABLE_SEED selects faults and decisions.
func TestKeyDecisionsHistory(t *testing.T) {
	count := 24
	if n, err := strconv.Atoi(os.Getenv("BRINE_DURABLE_KEYS")); err == nil {
		count = n
	}
	seed := uint64(time.Now().UnixNano())
	if n, err := strconv.ParseUint(os.Getenv("BRINE_DURABLE_SEED"), 10, 64); err == nil {
		seed = n
	}
	t.Logf("seed %d", seed)
	f := &trouble{t: t, rand: rand.New(rand.NewPCG(seed, 0)), net: netns.New(t), counts: map[string]int{}}
	var hosts []string
	var machines []*netns.Machine
	for i := range 3 {
		machines = append(machines, f.net.Machine(i+1))
		hosts = append(hosts, machines[i].Addr)
	}
	for i, on := range machines {
		n := daemontest.NewMaster(t, brine, on.Addr, on.Addr, "keysize: 2048\n")
		n.Write("master", n.Read("master")+
			fmt.Sprintf("cluster_id: test\ncluster_isolated_filesystem: True\ncluster_secret: 7ef7697a5ec2e70f7e5755ecd0123456\ncluster_peers: [%s]\n"+
				"cluster_pki_dir: %s\n", strings.Join(slices.Delete(slices.Clone(hosts), i, i+1), ", "), n.Path("cluster")))
		n.Level, n.Within = "info", on.Within()
		f.masters = append(f.masters, &member{node: n, on: on})
		n.Launch()
	}
	for _, m := range f.masters {
		m.Await()
	}
	key, err := crypt.GenerateKey(2048)
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for i := range count {
		ids = append(ids, fmt.Sprintf("key%03d", i))
		f.masters[0].Write(filepath.Join("cluster/minions_pre", ids[i]), string(key.Public().PEM()))
	}
	same := func() (map[string]keyState, error) {
		var first map[string]keyState
		for _, m := range f.masters {
			now, err := keysAt(m, ids)
			if err != nil {
				return nil, err
			}
			if first == nil {
				first = now
			}
			if !maps.Equal(first, now) {
				return nil, fmt.Errorf("%s: %v\n%s: %v", f.masters[0].Name, first, m.Name, now)
			}
		}
		return first, nil
	}
	eventually.Nil(t, 2*waitLimit, "all masters have all keys", func() error {
		now, err := same()
		for id, s := range now {
			if err == nil && s != isPending {
				err = fmt.Errorf("%s is %v", id, s)
			}
		}
		return err
	})

	h := &history{from: time.Now()}
	end, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for i := 0; ; i++ {
			select {
			case <-end:
				if i >= 2 {
					return
				}
			default:
			}
			f.between()
		}
	}()
	var wg sync.WaitGroup
	for client, m := range f.masters {
		rand := rand.New(rand.NewPCG(seed, uint64(client+1)))
		wg.Go(func() {
			// All operators begin with the same keys, so that decisions conflict.
			for _, id := range slices.Concat(ids, ids[:len(ids)/2]) {
				h.do(client, func() keyOp {
					now, err := keysAt(m, ids)
					saw := now[id]
					choices := map[keyState][]keyState{isPending: {isAccepted, isAccepted, isRejected, isDeleted}, isAccepted: {isRejected, isDeleted},
						isRejected: {isAccepted, isRejected, isDeleted}}[saw]
					if err != nil || len(choices) == 0 {
						return keyOp{id: id, master: m.Name, saw: saw, decides: isPending} // no decision
					}
					what := choices[rand.IntN(len(choices))]
					if saw == isRejected && what == isRejected {
						return keyOp{id: id, master: m.Name, saw: saw, decides: isPending}
					}
					return decide(m, id, saw, what)
				})
			}
		})
	}
	wg.Wait()
	close(end)
	<-done
	h.ops = slices.DeleteFunc(h.ops, func(o porcupine.Operation) bool { return o.Input.(keyOp).decides == isPending })

	var last map[string]keyState
	stable := 0
	eventually.Nil(t, 3*waitLimit, "all masters have the same", func() error {
		now, err := same()
		if err == nil && maps.Equal(now, last) {
			stable++
		} else {
			stable = 0
		}
		if last = now; err == nil && stable < 3 {
			err = errNotYet
		}
		return err
	})
	// Keys may have arrived through the third master: until two masters are connected again, a check names one that does not answer.
	eventually.Nil(t, waitLimit, "check finds that all masters have the same", func() error {
		if out, errs, code := f.masters[0].Run(brine, "cluster", "check"); code != 0 {
			return fmt.Errorf("it ends with %d: %s%s", code, out, errs)
		}
		return nil
	})
	for i, m := range f.masters {
		for _, id := range ids {
			h.do(len(f.masters)+i, func() keyOp { return keyOp{id: id, master: m.Name, saw: last[id], known: true} })
		}
	}
	by, known, ends := map[string]int{}, 0, map[string]int{}
	for _, o := range h.ops {
		if op := o.Input.(keyOp); op.decides != 0 && op.known {
			known++
			by[op.id]++
		}
	}
	met := 0
	for _, id := range ids {
		ends[last[id].String()]++
		if by[id] > 1 {
			met++
		}
	}
	for _, text := range h.check() {
		t.Error("an acknowledged decision was undone: " + text)
	}
	if met < count/4 {
		t.Errorf("of %d keys only %d were decided about more than once", count, met)
	}
	t.Logf("%d keys, %d operations, %d of them acknowledged; %d keys were decided about more than once; faults: %v; they are %v now", count, len(h.ops), known,
		met, f.counts, ends)
}
