// Package discovery lets minions without a configured master find those of their network, as Salt's option
// discovery does: a minion asks by broadcast, over UDP, and masters answer. It supports IPv4 only, since IPv6
// has no broadcast.
//
//	question  __salt_master_service<seconds since 1970, as a decimal number>
//	answer    __salt_master_service:@:{"mapping": {...}, "master": "<address>"}
//	refusal   __salt_master_service:E:<reason>
//
// Brine masters add "ret_port" and "instance" to the answer, which Salt's minions ignore. They are the port
// for requests, and a string that is the same in the answers of one master over several addresses. Salt's
// masters ignore a question that is older than 20 seconds by their own clock. Ours answer it: a wrong clock
// should not separate a minion from its masters, and a replayed question has no side effects.
//
// Answers are not authenticated: the sign-in verifies the master.
package discovery

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"brine/internal/base/field"
	"brine/internal/base/salt"
	"brine/internal/py/json"
	"brine/internal/py/value"
)

// signature begins every message.
const signature = "__salt_master_service"

// DefaultPort is the UDP port of masters.
const DefaultPort = 4520

// maxAnswer is the longest answer that Salt's minions read; ours read more.
const maxAnswer = 1024

// Options are the value of the option discovery: False, True for the defaults, or a map. Masters and minions
// can use the same map.
type Options struct {
	On bool
	// Attempts is how often a minion asks before it continues without an answer. Pause is the time between
	// attempts.
	Attempts int
	Pause    time.Duration
	Port     int
	// All requires a master to match the whole mapping of the minion, not just one item.
	All bool
	// Mapping is what a master offers, or what a minion requires.
	Mapping *value.Dict
}

var (
	_ field.Setter = (*Options)(nil)
	_ field.Getter = Options{}
)

// SetValue takes the value of the option.
func (o *Options) SetValue(v any) error {
	*o = Options{Attempts: 3, Pause: 5 * time.Second, Port: DefaultPort, Mapping: value.NewDict(0)}
	switch x := v.(type) {
	case nil:
		return nil
	case bool:
		o.On = x
		return nil
	case *value.Dict:
		o.On = true
		for k, v := range x.All() {
			if err := o.set(value.Str(k), v); err != nil {
				return err
			}
		}
		return nil
	}
	return salt.Errorf(salt.Invalid, "expected True, False or a map with attempts, pause, port, match and mapping, got %s", value.TypeName(v))
}

// Value is the counterpart of SetValue.
func (o Options) Value() any {
	if !o.On {
		return false
	}
	match := "any"
	if o.All {
		match = "all"
	}
	return value.DictOf("attempts", int64(o.Attempts), "pause", int64(o.Pause/time.Second), "port", int64(o.Port), "match", match, "mapping", o.Mapping)
}

func (o *Options) set(key string, v any) error {
	bad := func(want string) error {
		return salt.Errorf(salt.Invalid, "%s must be %s, got %s", key, want, value.Repr(v))
	}
	number := func(from, to int64) (n int64, ok bool) {
		n, ok = v.(int64)
		return n, ok && n >= from && n <= to
	}
	switch key {
	case "attempts":
		n, ok := number(1, 1000)
		if !ok {
			return bad("a number from 1 to 1000")
		}
		o.Attempts = int(n)
	case "pause":
		n, ok := number(0, 3600)
		if !ok {
			return bad("a number of seconds up to 3600")
		}
		o.Pause = time.Duration(n) * time.Second
	case "port":
		n, ok := number(1, 65535)
		if !ok {
			return bad("a port (1 to 65535)")
		}
		o.Port = int(n)
	case "match":
		if v != "any" && v != "all" {
			return bad("any or all")
		}
		o.All = v == "all"
	case "mapping":
		d, ok := v.(*value.Dict)
		if !ok && v != nil {
			return bad("a map")
		}
		if ok {
			o.Mapping = d
		}
	default:
		return salt.Errorf(salt.Invalid, "%q is not known; there are attempts, pause, port, match and mapping", key)
	}
	return nil
}

// fits reports whether a master with this mapping is acceptable.
func (o *Options) fits(mapping *value.Dict) bool {
	same := 0
	for k, v := range o.Mapping.All() {
		if w, ok := mapping.Get(k); ok && value.Equal(v, w) {
			same++
		}
	}
	return same == o.Mapping.Len() || !o.All && same > 0
}

// Found is a master that has answered.
type Found struct {
	Host string
	Port int // for requests; 0 if not reported
	// instance is the same in all answers of one master; "" for stock masters.
	instance string
}

// String is the master as the option master names it.
func (f Found) String() string {
	if f.Port == 0 {
		return f.Host
	}
	return f.Host + ":" + strconv.Itoa(f.Port)
}

// question returns a minion's request.
func question(now time.Time) []byte {
	return strconv.AppendFloat([]byte(signature), float64(now.UnixMicro())/1e6, 'f', 6, 64)
}

// isQuestion reports whether a message is a question.
func isQuestion(b []byte) bool {
	rest, ok := strings.CutPrefix(string(b), signature)
	if !ok {
		return false
	}
	_, err := strconv.ParseFloat(strings.TrimSpace(rest), 64)
	return err == nil
}

// parse reads an answer.
func parse(b []byte) (f Found, mapping *value.Dict, err error) {
	text, ok := strings.CutPrefix(string(b), signature+":@:")
	if !ok {
		return f, nil, salt.Errorf(salt.Invalid, "not an answer: %.100q", b)
	}
	v, err := json.Load(text)
	if err != nil {
		return f, nil, salt.Errorf(salt.Invalid, "an answer that is not JSON: %w", err)
	}
	d, ok := v.(*value.Dict)
	if !ok || !isHost(d.Str("master")) {
		return f, nil, salt.Errorf(salt.Invalid, "an answer that names no master: %.100q", b)
	}
	f = Found{Host: d.Str("master"), instance: d.Str("instance")}
	if p := d.Int("ret_port"); p > 0 && p < 1<<16 {
		f.Port = int(p)
	}
	return f, d.Dict("mapping"), nil
}

// isHost reports whether a string is a name or an IPv4 address, without characters that have a meaning in the
// option master.
func isHost(s string) bool {
	return s != "" && len(s) < 256 && s[0] != '_' && !strings.ContainsFunc(s, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_.", r))
	})
}

// enter adds a master to those found unless it is in the list.
func enter(found []Found, f Found) []Found {
	if slices.ContainsFunc(found, func(g Found) bool {
		return g.Host == f.Host && g.Port == f.Port || f.instance != "" && g.instance == f.instance
	}) {
		return found
	}
	return append(found, f)
}
