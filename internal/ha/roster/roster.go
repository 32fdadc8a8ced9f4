// Package roster implements the signed list of a cluster's masters for minions: addresses, zones, and whether minions should leave a
// master. It is signed by the cluster's key, which minions know as their master's; the version prevents the use of an older list. The
// package also decides which masters a minion prefers (Prefer), rates their latency (Latency), and which share of the minions a loaded
// master requests (Load), without sockets, files or a clock.
package roster

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"

	"brine/internal/base/salt"
	"brine/internal/net/crypt"
	"brine/internal/py/msgpack"
	"brine/internal/py/value"
)

// Bounds of a list.
const (
	MaxMembers = 64
	MaxBytes   = 64 << 10 // of Signed
	maxText    = 255      // of a host or a zone
	maxPorts   = 8
)

// Member is one master.
type Member struct {
	ID string
	// Host is the address or name to which minions connect. Ports are the request ports by transport.
	Host  string
	Ports map[string]int
	// Zone is its location, "" if not configured.
	Zone string
	// Draining means that minions should use other masters.
	Draining bool
	// Share is its weight relative to the other masters; 0 means FullShare.
	Share int
}

// Shares of masters.
const (
	FullShare = 100
	MaxShare  = 10_000
)

// Address returns the address of the master for a transport, "" if it has none.
func (m Member) Address(transport string) string {
	if m.Ports[transport] == 0 {
		return ""
	}
	return net.JoinHostPort(m.Host, strconv.Itoa(m.Ports[transport]))
}

// Check returns an error for an invalid member.
func (m Member) Check() error {
	switch {
	case salt.CheckID(m.ID) != nil:
		return salt.CheckID(m.ID)
	case m.Host == "" || len(m.Host) > maxText || strings.ContainsAny(m.Host, " \t\r\n/[]"):
		return salt.Errorf(salt.Invalid, "%.80q is not a host", m.Host)
	case len(m.Ports) == 0 || len(m.Ports) > maxPorts:
		return salt.Errorf(salt.Invalid, "it has %d ports", len(m.Ports))
	case len(m.Zone) > maxText:
		return salt.Errorf(salt.Invalid, "the name of the zone is longer than %d characters", maxText)
	case m.Share < 0 || m.Share > MaxShare:
		return salt.Errorf(salt.Invalid, "invalid share of the minions %d: must be from 1 to %d", m.Share, MaxShare)
	}
	for _, name := range slices.Sorted(maps.Keys(m.Ports)) {
		port := m.Ports[name]
		if port < 1 || port > 65535 || len(name) > maxText {
			return salt.Errorf(salt.Invalid, "%d is not a port", port)
		}
	}
	return nil
}

// List is the list of all masters of a cluster.
type List struct {
	Cluster string
	// Version grows with each change.
	Version int64
	Members []Member
}

// domain is a prefix of the signed data. No other data signed by the key begins with it, so that no other signature is valid for a list.
const domain = "brine members of a cluster\n"

// Sign returns the signed list for minions.
func (l List) Sign(key *crypt.PrivateKey) ([]byte, error) {
	if len(l.Members) > MaxMembers {
		return nil, salt.Errorf(salt.Invalid, "a cluster of more than %d masters cannot be listed", MaxMembers)
	}
	members := &value.List{}
	for _, m := range l.Members {
		if err := m.Check(); err != nil {
			return nil, err
		}
		ports := value.NewDict(len(m.Ports))
		for _, name := range slices.Sorted(maps.Keys(m.Ports)) {
			ports.Set(name, int64(m.Ports[name]))
		}
		members.Append(value.DictOf("id", m.ID, "host", m.Host, "ports", ports, "zone", m.Zone, "draining", m.Draining, "share", int64(m.Share)))
	}
	text, err := msgpack.Marshal(value.DictOf("cluster", l.Cluster, "version", l.Version, "members", members), msgpack.NewSpec)
	if err != nil {
		return nil, err
	}
	sig, err := key.Sign(crypt.PKCS1v15SHA224, append([]byte(domain), text...))
	if err != nil {
		return nil, err
	}
	return msgpack.Marshal(value.DictOf("list", text, "sig", sig), msgpack.NewSpec)
}

// limits bounds the decoders.
var limits = msgpack.Limits{Items: 32 * MaxMembers, Bytes: MaxBytes, Depth: 8}

// Open decodes a list and verifies its signature.
func Open(signed []byte, key *crypt.PublicKey) (List, error) {
	if len(signed) > MaxBytes {
		return List{}, salt.Errorf(salt.Invalid, "a list of masters of %d bytes", len(signed))
	}
	v, err := limits.UnmarshalTyped(signed)
	d, _ := v.(*value.Dict)
	if err != nil || d == nil {
		return List{}, salt.Errorf(salt.Invalid, "it is not a list of masters")
	}
	text := d.Bytes("list")
	if err := key.Verify(crypt.PKCS1v15SHA224, append([]byte(domain), text...), d.Bytes("sig")); err != nil {
		return List{}, salt.Errorf(salt.Denied, "the list of masters is not signed by the key of this minion's master: %w", err)
	}
	return decode(text)
}

var errList = errors.New("it is not a list of masters")

func decode(text []byte) (l List, err error) {
	v, err := limits.UnmarshalTyped(text)
	d, _ := v.(*value.Dict)
	if err != nil || d == nil {
		return l, errList
	}
	l.Cluster, l.Version = d.Str("cluster"), d.Int("version")
	members := d.List("members")
	if l.Version <= 0 || len(members) > MaxMembers {
		return List{}, errList
	}
	for _, it := range members {
		m, _ := it.(*value.Dict)
		x := Member{ID: m.Str("id"), Host: m.Str("host"), Ports: map[string]int{}, Zone: m.Str("zone"), Draining: m.Bool("draining"),
			Share: int(max(-1, min(m.Int("share"), MaxShare+1)))}
		for name, port := range m.Dict("ports").All() {
			n, _ := port.(int64)
			x.Ports[value.Str(name)] = int(max(0, min(n, 1<<16)))
		}
		if err := x.Check(); err != nil {
			return List{}, fmt.Errorf("%w: %w", errList, err)
		}
		l.Members = append(l.Members, x)
	}
	return l, nil
}
