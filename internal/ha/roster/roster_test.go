package roster

import (
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"

	"brine/internal/base/salt"
	"brine/internal/net/crypt"
	"brine/internal/py/msgpack"
	"brine/internal/py/value"
	"brine/test/fuzztest"
)

var testKey = sync.OnceValue(func() *crypt.PrivateKey {
	k, err := crypt.GenerateKey(2048)
	if err != nil {
		panic(err)
	}
	return k
})

func sample() List {
	return List{Cluster: "main", Version: 7, Members: []Member{
		{ID: "a", Host: "192.0.2.1", Ports: map[string]int{"zeromq": 4506}, Zone: "north"},
		{ID: "b", Host: "2001:db8::1", Ports: map[string]int{"zeromq": 4506}, Zone: "south", Draining: true, Share: 70},
	}}
}

func TestSigned(t *testing.T) {
	b, err := sample().Sign(testKey())
	if err != nil {
		t.Fatal(err)
	}
	l, err := Open(b, testKey().Public())
	if err != nil || !reflect.DeepEqual(l, sample()) {
		t.Fatalf("%+v %v", l, err)
	}
	other, err := crypt.GenerateKey(2048)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Open(b, other.Public()); salt.KindOf(err) != salt.Denied {
		t.Errorf("another key: %v", err)
	}
	forged := []byte(strings.Replace(string(b), "192.0.2.1", "192.0.2.9", 1))
	if _, err := Open(forged, testKey().Public()); salt.KindOf(err) != salt.Denied {
		t.Errorf("forged: %v", err)
	}
	// A signature of the same bytes without the domain prefix.
	v, _ := msgpack.UnmarshalTyped(b)
	text := v.(*value.Dict).Bytes("list")
	sig, err := testKey().Sign(crypt.PKCS1v15SHA224, text)
	if err != nil {
		t.Fatal(err)
	}
	bare, _ := msgpack.Marshal(value.DictOf("list", text, "sig", sig), msgpack.NewSpec)
	if _, err := Open(bare, testKey().Public()); salt.KindOf(err) != salt.Denied {
		t.Errorf("a signature of something else: %v", err)
	}
	if _, err := Open(make([]byte, MaxBytes+1), testKey().Public()); salt.KindOf(err) != salt.Invalid {
		t.Errorf("too large: %v", err)
	}
}

func TestCheck(t *testing.T) {
	one := map[string]int{"tcp": 1}
	for _, bad := range []Member{
		{ID: "a/b", Host: "h", Ports: one}, {ID: "a", Ports: one}, {ID: "a", Host: "x y", Ports: one}, {ID: "a", Host: "h"},
		{ID: "a", Host: "h", Ports: map[string]int{"tcp": 65536}}, {ID: "a", Host: "h", Ports: one, Share: MaxShare + 1}, {ID: "a", Host: "h", Ports: one, Share: -1},
		{ID: "a", Host: "h", Ports: one, Zone: strings.Repeat("z", 256)},
	} {
		if _, err := (List{Version: 1, Members: []Member{bad}}).Sign(testKey()); err == nil {
			t.Errorf("signed %+v", bad)
		}
	}
	if _, err := (List{Version: 1, Members: make([]Member, MaxMembers+1)}).Sign(testKey()); err == nil {
		t.Error("signed too many")
	}
}

// TestCheckInOrder checks that the same one of several errors is always reported.
func TestCheckInOrder(t *testing.T) {
	m := Member{ID: "a", Host: "h", Ports: map[string]int{"a": 0, "b": -1, "c": -2, "d": -3}}
	for range 50 {
		if err := m.Check(); err == nil || err.Error() != "0 is not a port" {
			t.Fatalf("%v", err)
		}
	}
}

// TestPrefer checks that zones come first, draining masters last, that minions are distributed evenly, and that an additional master takes
// its share from all without other moves.
func TestPrefer(t *testing.T) {
	members := []Member{{ID: "a", Zone: "n"}, {ID: "b", Zone: "n"}, {ID: "c", Zone: "s"}, {ID: "d", Zone: "n", Draining: true}}
	got := Prefer(members, "m", "s", nil)
	if got[0].ID != "c" || got[3].ID != "d" {
		t.Errorf("%v", got)
	}
	three := []Member{{ID: "a"}, {ID: "b"}, {ID: "c"}}
	four := append(three, Member{ID: "d"})
	counts := map[string]int{}
	const n = 4000
	for i := range n {
		id := fmt.Sprint("minion", i)
		before, now := Prefer(three, id, "", nil)[0].ID, Prefer(four, id, "", nil)[0].ID
		counts[now]++
		if now != before && now != "d" {
			t.Fatalf("%s goes from %s to %s since d is there", id, before, now)
		}
	}
	for id, c := range counts {
		if c < n/4*8/10 || c > n/4*12/10 {
			t.Errorf("%s has %d of %d minions", id, c, n)
		}
	}
}

func FuzzDecode(tf *testing.F) {
	f := fuzztest.Wrap(tf)
	b, err := sample().Sign(testKey())
	if err != nil {
		f.Fatal(err)
	}
	v, _ := msgpack.UnmarshalTyped(b)
	f.Add(v.(*value.Dict).Bytes("list"))
	f.Add(b)
	f.Fuzz(func(t *testing.T, text []byte) {
		if _, err := Open(text, testKey().Public()); err == nil && string(text) != string(b) {
			// msgpack can encode a value in several ways.
			if l, _ := Open(text, testKey().Public()); !reflect.DeepEqual(l, sample()) {
				t.Fatalf("another list is believed: %+v", l)
			}
		}
		l, err := decode(text)
		if err != nil {
			return
		}
		if len(l.Members) > MaxMembers || l.Version <= 0 {
			t.Fatalf("%+v", l)
		}
		for _, m := range l.Members {
			if err := m.Check(); err != nil {
				t.Fatal(err)
			}
		}
	})
}
