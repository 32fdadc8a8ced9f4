package event

import (
	"crypto/md5"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"fmt"
	"hash"
	"net"
	"path/filepath"
	"strconv"

	"brine/internal/base/salt"
)

// Options are the common options of the buses of master and minion.
type Options struct {
	IPCMode      string `salt:"ipc_mode"                   default:"ipc"     doc:"transport of the event bus for other programs: ipc for socket files in sock_dir, tcp for ports of 127.0.0.1" change:"restart"`
	MaxEventSize int    `salt:"max_event_size"             default:"1048576" doc:"bytes of one event for other programs; larger values are replaced by VALUE_TRIMMED, 0 means never" change:"restart"`
	PubHWM       int    `salt:"event_publisher_pub_hwm"    default:"100000"  doc:"events kept for all slow readers together; beyond that they miss the oldest" change:"restart"`
	PubBuffer    int    `salt:"event_publisher_pub_buffer" default:"64"      doc:"MiB of events kept for all slow readers together" change:"restart"`
}

// MasterOptions are the addresses of the master's bus.
type MasterOptions struct {
	Options
	SockDir  string `salt:"sock_dir"             default:"/var/run/salt/master" doc:"directory of the master's socket files" change:"restart"`
	PubPort  uint16 `salt:"tcp_master_pub_port"  default:"4512" doc:"port to read events from, if ipc_mode is tcp" change:"restart"`
	PullPort uint16 `salt:"tcp_master_pull_port" default:"4513" doc:"port to send events to, if ipc_mode is tcp" change:"restart"`
}

// MinionOptions are the addresses of a minion's bus.
type MinionOptions struct {
	Options
	SockDir  string `salt:"sock_dir"      default:"/var/run/salt/minion" doc:"directory of the minion's socket files" change:"restart"`
	PubPort  uint16 `salt:"tcp_pub_port"  default:"4510" doc:"port to read events from, if ipc_mode is tcp" change:"restart"`
	PullPort uint16 `salt:"tcp_pull_port" default:"4511" doc:"port to send events to, if ipc_mode is tcp" change:"restart"`
}

// Sockets are the two sockets of a bus for other programs.
type Sockets struct {
	// Network is unix or tcp.
	Network string
	// Pub is the address to read events from, Pull to send them to: paths, or host and port.
	Pub, Pull string
	// PubMode is the mode of the file Pub; that of Pull is 0600.
	PubMode uint32
	// Markers are files that Listen creates because Salt's programs take them as the sign that the
	// daemon runs.
	Markers []string
}

// Sockets returns the addresses of the master's bus.
func (o MasterOptions) Sockets() Sockets {
	s := Sockets{
		Network: "unix",
		Pub:     filepath.Join(o.SockDir, "master_event_pub.ipc"),
		Pull:    filepath.Join(o.SockDir, "master_event_pull.ipc"),
		PubMode: 0o660,
	}
	if o.IPCMode == "tcp" {
		s = tcpSockets(o.PubPort, o.PullPort)
	}
	// The salt command, salt-key and NetapiClient check the first one, and NetapiClient (salt-api)
	// with zeromq the second one.
	for _, name := range []string{"publish_pull.ipc", "workers.ipc"} {
		s.Markers = append(s.Markers, filepath.Join(o.SockDir, name))
	}
	return s
}

// Sockets returns the addresses of a minion's bus. Its socket files are named after a hash of the
// id by the algorithm hashType (option hash_type, "" means sha256).
func (o MinionOptions) Sockets(id, hashType string) (Sockets, error) {
	if o.IPCMode == "tcp" {
		return tcpSockets(o.PubPort, o.PullPort), nil
	}
	h := newHash(hashType)
	if h == nil {
		return Sockets{}, salt.Errorf(salt.Invalid, "unknown hash_type %q", hashType)
	}
	h.Write([]byte(id))
	base := filepath.Join(o.SockDir, "minion_event_"+hex.EncodeToString(h.Sum(nil))[:10])
	return Sockets{Network: "unix", Pub: base + "_pub.ipc", Pull: base + "_pull.ipc", PubMode: 0o600}, nil
}

func newHash(name string) hash.Hash {
	switch name {
	case "", "sha256":
		return sha256.New()
	case "md5":
		return md5.New()
	case "sha1":
		return sha1.New()
	case "sha224":
		return sha256.New224()
	case "sha384":
		return sha512.New384()
	case "sha512":
		return sha512.New()
	}
	return nil
}

func tcpSockets(pub, pull uint16) Sockets {
	at := func(p uint16) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(int(p))) }
	return Sockets{Network: "tcp", Pub: at(pub), Pull: at(pull)}
}

// maxSunPath is the kernel's limit for the path of a socket, without the final NUL; some systems
// allow four bytes less.
const maxSunPath = 107

// check validates the addresses.
func (s Sockets) check() error {
	switch s.Network {
	case "tcp":
		return nil
	case "unix":
	default:
		return salt.Errorf(salt.Invalid, "unknown network %q for the event bus", s.Network)
	}
	for _, p := range []string{s.Pub, s.Pull} {
		if len(p) > maxSunPath {
			return salt.Errorf(salt.Invalid, "%w",
				fmt.Errorf("the path of the socket %s has %d bytes, the limit is %d: set sock_dir to a shorter directory, or ipc_mode to tcp", p, len(p),
					maxSunPath))
		}
	}
	return nil
}
