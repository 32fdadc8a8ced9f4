package field

import (
	"errors"
	"fmt"
	"math/big"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	"brine/internal/py/value"
)

type ports struct {
	Publish uint16 `salt:"publish_port" default:"4505" doc:"port minions subscribe to" change:"restart"`
	Return  uint16 `salt:"ret_port" default:"4506" alias:"master_port, old_port"`
}

type word string

func (w *word) SetValue(v any) error {
	s, ok := v.(string)
	if !ok || s != "yes" {
		return errors.New("only yes will do")
	}
	*w = word(s)
	return nil
}

func (w word) Value() any { return string(w) }

type nested struct {
	Driver string `salt:"driver" default:"localfs"`
	Tries  int    `salt:"tries" default:"3"`
}

type all struct {
	ports
	Text   string            `salt:"text" default:"1.10"`
	User   string            `salt:"user" default:"null"`
	On     bool              `salt:"on" default:"true"`
	I8     int8              `salt:"i8" default:"-5"`
	Big    uint64            `salt:"big"`
	F      float64           `salt:"f" default:"1.5"`
	Wait   time.Duration     `salt:"wait" default:"0.25"`
	Peers  []string          `salt:"peers" default:"[a, 'true']" list:"comma"`
	Plain  []string          `salt:"plain"`
	Ints   []int             `salt:"ints" default:"[]"`
	M      map[string]string `salt:"m" default:"{}"`
	MA     map[string]any    `salt:"ma"`
	Any    any               `salt:"any" default:"null"`
	D      *value.Dict       `salt:"d"`
	L      *value.List       `salt:"l"`
	P      *int              `salt:"p" default:"null"`
	W      word              `salt:"w"`
	Addr   netip.Addr        `salt:"addr" default:"0.0.0.0"`
	Keys   nested            `salt:"keys"`
	Hosts  []nested          `salt:"hosts"`
	B      []byte            `salt:"b"`
	Skip   func()
	hidden int
}

func fields(t *testing.T) map[string]Field {
	t.Helper()
	fs, err := Of(reflect.TypeFor[*all]())
	if err != nil {
		t.Fatal(err)
	}
	m := map[string]Field{}
	for _, f := range fs {
		m[f.Name] = f
	}
	return m
}

func TestOf(t *testing.T) {
	fs, err := Of(reflect.TypeFor[all]())
	if err != nil {
		t.Fatal(err)
	}
	p := fs[0]
	if p.Name != "publish_port" || p.Doc != "port minions subscribe to" || p.Change != "restart" || p.Go != "ports.Publish" || p.Type.Kind() != reflect.Uint16 {
		t.Errorf("first field: %+v", p)
	}
	if got := fs[1].Alias; !reflect.DeepEqual(got, []string{"master_port", "old_port"}) {
		t.Errorf("aliases: %q", got)
	}
	if n := len(fs); n != 23 {
		t.Errorf("%d fields", n)
	}
}

func TestOfRefusesBadTags(t *testing.T) {
	type clash struct {
		ports
		X int `salt:"old_port"`
	}
	for want, typ := range map[string]reflect.Type{
		"not a struct": reflect.TypeFor[int](),
		"both named":   reflect.TypeFor[clash](),
		"not exported": reflect.TypeOf(struct {
			x int `salt:"x"`
		}{}),
		"empty salt": reflect.TypeOf(struct {
			X int `salt:""`
		}{}),
		"no salt tag": reflect.TypeOf(struct {
			X int `default:"1"`
		}{}),
		"not live": reflect.TypeOf(struct {
			X int `salt:"x" change:"now"`
		}{}),
		"not comma": reflect.TypeOf(struct {
			X int `salt:"x" list:"blank"`
		}{}),
		"whole number": reflect.TypeOf(struct {
			X int `salt:"x" default:"many"`
		}{}),
		"not supported": reflect.TypeOf(struct {
			X any `salt:"x" default:"{a: 1}"`
		}{}),
		"from -128 to 127": reflect.TypeOf(struct {
			X int8 `salt:"x" default:"128"`
		}{}),
		"cannot set a": reflect.TypeOf(struct {
			X chan int `salt:"x" default:"1"`
		}{}),
	} {
		if _, err := Of(typ); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: got %v, want ...%s...", typ, err, want)
		}
	}
}

func TestDefaults(t *testing.T) {
	a := all{User: "set before", Plain: []string{"kept"}}
	if err := Defaults(&a); err != nil {
		t.Fatal(err)
	}
	want := all{
		ports: ports{4505, 4506}, Text: "1.10", On: true, I8: -5, F: 1.5, Wait: 250 * time.Millisecond,
		Peers: []string{"a", "true"}, Plain: []string{"kept"}, Ints: []int{}, M: map[string]string{}, Addr: netip.IPv4Unspecified(),
	}
	if !reflect.DeepEqual(a, want) {
		t.Errorf("got  %+v\nwant %+v", a, want)
	}
	_ = a.hidden
	if err := Defaults(a); err == nil {
		t.Error("a struct that is not a pointer was accepted")
	}
}

func TestSet(t *testing.T) {
	fs := fields(t)
	one := 1
	for _, c := range []struct {
		name string
		in   any
		want any
	}{
		{"text", "x", "x"},
		{"text", int64(644), "644"},
		{"text", true, "True"},
		{"text", 1.5, "1.5"},
		{"text", []byte("raw"), "raw"},
		{"user", nil, ""},
		{"on", false, false},
		{"on", int64(0), false},
		{"on", "Yes", true},
		{"i8", int64(-128), int8(-128)},
		{"i8", "7", int8(7)},
		{"i8", 7.0, int8(7)},
		{"big", new(big.Int).SetUint64(1 << 63), uint64(1 << 63)},
		{"f", int64(2), 2.0},
		{"f", "1e3", 1000.0},
		{"wait", int64(60), time.Minute},
		{"wait", 0.001, time.Millisecond},
		{"wait", "1.5", 1500 * time.Millisecond},
		{"wait", int64(-1), -time.Second},
		{"peers", "a, b,c", []string{"a", "b", "c"}},
		{"peers", "", []string{}},
		{"peers", value.ListOf("a,b", 1), []string{"a,b", "1"}},
		{"plain", "a,b", []string{"a,b"}},
		{"plain", nil, []string(nil)},
		{"plain", value.Tuple{"x"}, []string{"x"}},
		{"ints", value.ListOf(1, 2), []int{1, 2}},
		{"ints", int64(3), []int{3}},
		{"m", value.DictOf("a", 1, 2, "b"), map[string]string{"a": "1", "2": "b"}},
		{"ma", value.DictOf("a", nil), map[string]any{"a": nil}},
		{"any", nil, nil},
		{"any", int64(3), int64(3)},
		{"p", nil, (*int)(nil)},
		{"p", int64(1), &one},
		{"w", "yes", word("yes")},
		{"addr", "::1", netip.IPv6Loopback()},
		{"keys", value.DictOf("tries", 9), nested{"localfs", 9}},
		{"hosts", value.ListOf(value.DictOf("driver", "x")), []nested{{"x", 3}}},
		{"b", "text", []byte("text")},
	} {
		var a all
		f := fs[c.name]
		if err := f.Set(reflect.ValueOf(&a).Elem(), c.in); err != nil {
			t.Errorf("%s = %s: %v", c.name, value.Repr(c.in), err)
			continue
		}
		if got := f.In(reflect.ValueOf(a)).Interface(); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s = %s: got %#v, want %#v", c.name, value.Repr(c.in), got, c.want)
		}
	}
}

func TestSetErrors(t *testing.T) {
	fs := fields(t)
	for _, c := range []struct {
		name string
		in   any
		want string
	}{
		{"wait", value.ListOf(1), "expected a number of seconds, got list"},
		{"wait", 1e300, "expected a number of seconds, got the number 1e+300"},
		{"wait", true, "expected a number of seconds, got true"},
		{"wait", nil, "expected a number of seconds, got null"},
		{"text", value.DictOf(), "expected a string, got mapping"},
		{"on", "maybe", `expected true or false, got the string "maybe"`},
		{"i8", int64(128), "expected a whole number from -128 to 127, got the number 128"},
		{"i8", 1.5, "expected a whole number, got the number 1.5"},
		{"i8", true, "expected a whole number, got true"},
		{"publish_port", int64(-1), "expected a whole number from 0 to 65535, got the number -1"},
		{"publish_port", int64(65536), "expected a whole number from 0 to 65535, got the number 65536"},
		{"big", int64(-1), "expected a whole number from 0 to 18446744073709551615, got the number -1"},
		{"f", "many", `expected a number, got the string "many"`},
		{"plain", value.DictOf("a", 1), "expected a list, got mapping"},
		{"plain", value.ListOf("a", value.ListOf()), "[1]: expected a string, got list"},
		{"ints", "x", `expected a list, got the string "x"`},
		{"ints", value.ListOf(1, "x"), `[1]: expected a whole number, got the string "x"`},
		{"m", "x", `expected a mapping, got the string "x"`},
		{"m", value.DictOf("a", value.ListOf()), "a: expected a string, got list"},
		{"d", "x", `expected a mapping, got the string "x"`},
		{"l", int64(1), "expected a list, got the number 1"},
		{"p", "x", `expected a whole number, got the string "x"`},
		{"w", "no", "only yes will do"},
		{"keys", value.DictOf("tires", 9), `unknown key "tires"`},
		{"hosts", value.ListOf(value.DictOf("tries", "x")), `[0].tries: expected a whole number, got the string "x"`},
		{"addr", value.ListOf(), "expected a string, got list"},
	} {
		var a all
		err := fs[c.name].Set(reflect.ValueOf(&a).Elem(), c.in)
		if err == nil || err.Error() != c.want {
			t.Errorf("%s = %s:\ngot  %v\nwant %s", c.name, value.Repr(c.in), err, c.want)
		}
	}
}

func TestGetReversesSet(t *testing.T) {
	a := all{Wait: 1500 * time.Millisecond, Big: 1 << 63, MA: map[string]any{"b": int64(1), "a": nil}, W: "yes", Hosts: []nested{{"x", 1}}}
	if err := Defaults(&a); err != nil {
		t.Fatal(err)
	}
	a.Wait = 90 * time.Second
	got := Get(reflect.ValueOf(a))
	const want = `{'publish_port': 4505, 'ret_port': 4506, 'text': '1.10', 'user': '', 'on': True, 'i8': -5, 'big': 9223372036854775808, ` +
		`'f': 1.5, 'wait': 90, 'peers': ['a', 'true'], 'plain': [], 'ints': [], 'm': {}, 'ma': {'a': None, 'b': 1}, 'any': None, ` +
		`'d': None, 'l': None, 'p': None, 'w': 'yes', 'addr': '0.0.0.0', 'keys': {'driver': '', 'tries': 0}, ` +
		`'hosts': [{'driver': 'x', 'tries': 1}], 'b': b''}`
	if value.Repr(got) != want {
		t.Errorf("got  %s\nwant %s", value.Repr(got), want)
	}
}

func TestDescribeIsShort(t *testing.T) {
	if got := Describe(strings.Repeat("ü", 500)); len(got) > 100 {
		t.Errorf("%d bytes: %s", len(got), got)
	}
}

func ExampleSet() {
	var d time.Duration
	err := Set(reflect.ValueOf(&d).Elem(), value.ListOf(1))
	fmt.Println(err)
	// Output: expected a number of seconds, got list
}
