// Package hub has the options of brine-hub, the program that runs the bus of a federation. The
// package server below it runs the bus; only that program contains it.
package hub

import (
	"net"
	"strconv"

	"brine/internal/base/metrics"
	"brine/internal/base/salt"
	"brine/internal/net/sealed"
)

// Options are the options of brine-hub.
type Options struct {
	ID       string   `salt:"id" default:"" doc:"name of this node; empty: the host name" change:"restart"`
	Listen   string   `salt:"listen" default:"0.0.0.0:4515" doc:"address and port where masters connect" change:"restart"`
	DataDir  string   `salt:"data_dir" default:"/var/lib/brine-hub" doc:"directory of the streams, of the list of sites, and of the certificate if none is configured" change:"restart"`
	Masters  []string `salt:"masters" default:"[]" doc:"fingerprints of the masters or clusters that command sites through this hub, as salt-key -F master prints them" change:"restart"`
	TLSCert  string   `salt:"tls_cert" default:"" doc:"file of the certificate; empty: one is made in data_dir" change:"restart"`
	TLSKey   string   `salt:"tls_key" default:"" doc:"file of the key of tls_cert" change:"restart"`
	TLSNames []string `salt:"tls_names" default:"[]" doc:"names and addresses in the certificate that is made, besides the host name, localhost and the address of listen" change:"restart"`

	ClusterListen string   `salt:"cluster_listen" default:"" doc:"address and port where the other nodes connect; empty: this is the only node" change:"restart"`
	ClusterNodes  []string `salt:"cluster_nodes" default:"[]" doc:"addresses and ports of cluster_listen of all nodes" change:"restart"`
	ClusterSecret string   `salt:"cluster_secret" default:"" doc:"secret by which nodes accept each other, the same on all" change:"restart"`
	ClusterCA     string   `salt:"cluster_ca" default:"" doc:"file of certificates by which a node checks the others; empty: tls_cert, which all nodes then share" change:"restart"`

	MaxData int64 `salt:"max_data" default:"2147483648" doc:"bytes that the streams may take on disk; they contain only copies" change:"restart"`
}

// Settings are all options in the file hub.
type Settings struct {
	Hub            Options
	Metrics        metrics.Options
	Level          string `salt:"log_level" default:"info" doc:"log level on stderr: debug, info, warning or error" change:"restart"`
	DefaultInclude any    `salt:"default_include" default:"hub.d/*.conf" doc:"further files, relative to this one; later ones take precedence" change:"restart"`
	Include        any    `salt:"include" default:"null" doc:"path, pattern or list of further files, which take precedence over all others" change:"restart"`
}

// Metrics of a node.
var (
	Connections = metrics.Family{Name: "brine_hub_connections", Help: "Masters that are connected to this node, by what they are.", Labels: []string{"role"}}
	Nodes       = metrics.Family{Name: "brine_hub_nodes_connected", Help: "Other nodes of the hub that are connected to this one."}
	StreamBytes = metrics.Family{Name: "brine_hub_stream_bytes", Help: "Disk that the streams of this node take, in bytes."}
	StreamLimit = metrics.Family{Name: "brine_hub_stream_limit_bytes", Help: "Disk that the streams of this node may take, in bytes (max_data)."}
	Refused     = metrics.Family{Name: "brine_hub_refused_total", Kind: metrics.Counter, Help: "Connections that were refused because of their keys."}
)

// Families returns the metrics of a node.
func Families() []*metrics.Family {
	return append(metrics.ProcessFamilies(), &Connections, &Nodes, &StreamBytes, &StreamLimit, &Refused)
}

// Check implements config.Checker.
func (o *Options) Check() error {
	invalid := func(format string, args ...any) error { return salt.Errorf(salt.Invalid, format, args...) }
	if len(o.Masters) == 0 {
		return invalid("masters: name the fingerprint of at least one master, which this prints on it: salt-key -F master")
	}
	for _, f := range o.Masters {
		if !sealed.ValidFingerprint(f) {
			return invalid("masters: %.100q is no fingerprint such as 3a:f1:... with 32 bytes", f)
		}
	}
	if (o.TLSCert == "") != (o.TLSKey == "") {
		return invalid("tls_cert and tls_key need each other")
	}
	if o.ClusterListen != "" {
		switch {
		case len(o.ClusterNodes) == 0:
			return invalid("cluster_nodes: name the addresses of all nodes")
		case len(o.ClusterSecret) < 16:
			return invalid("cluster_secret: it needs at least 16 characters")
		case o.TLSCert == "":
			return invalid("tls_cert: nodes of a cluster need certificates that the others know; make one that is valid for all, or set cluster_ca")
		}
	}
	for _, of := range []struct {
		name string
		list []string
	}{{"listen", []string{o.Listen}}, {"cluster_listen", []string{o.ClusterListen}}, {"cluster_nodes", o.ClusterNodes}} {
		for _, a := range of.list {
			if _, _, err := SplitAddress(a); a != "" && err != nil {
				return invalid("%s: %w", of.name, err)
			}
		}
	}
	return nil
}

// SplitAddress splits an address into host and port.
func SplitAddress(a string) (host string, port int, err error) {
	host, p, err := net.SplitHostPort(a)
	if err != nil {
		return "", 0, salt.Errorf(salt.Invalid, "%.100q is not an address with a port", a)
	}
	if port, err = strconv.Atoi(p); err != nil || port < 1 || port > 65535 {
		return "", 0, salt.Errorf(salt.Invalid, "%.100q has no port from 1 to 65535", a)
	}
	return host, port, nil
}
