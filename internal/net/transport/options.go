package transport

import (
	"fmt"
	"net"
	"net/netip"
	"sort"
	"strconv"
	"strings"
	"time"
)

// KeepAliveOptions configure the system's probes on a quiet connection.
type KeepAliveOptions struct {
	KeepAlive bool          `salt:"tcp_keepalive"       default:"true" doc:"have the system probe quiet connections"                   change:"restart"`
	Idle      time.Duration `salt:"tcp_keepalive_idle"  default:"300"  doc:"seconds of silence before the first probe, -1: the system's" change:"restart"`
	Count     int           `salt:"tcp_keepalive_cnt"   default:"-1"   doc:"lost probes that end a connection, -1: the system's"       change:"restart"`
	Interval  time.Duration `salt:"tcp_keepalive_intvl" default:"-1"   doc:"seconds between probes, -1: the system's"                  change:"restart"`
}

// Config returns the options for ListenOptions and DialOptions.
func (k KeepAliveOptions) Config() net.KeepAliveConfig {
	if !k.KeepAlive {
		// Not the zero value, which means the defaults.
		return net.KeepAliveConfig{Idle: -1, Interval: -1, Count: -1}
	}
	c := net.KeepAliveConfig{Enable: true, Idle: k.Idle, Interval: k.Interval, Count: k.Count}
	if c.Idle <= 0 {
		c.Idle = -1
	}
	if c.Interval <= 0 {
		c.Interval = -1
	}
	if c.Count <= 0 {
		c.Count = -1
	}
	return c
}

// Options are the master's addresses.
type Options struct {
	Interface     string           `salt:"interface"      default:"0.0.0.0" doc:"address to listen on"                                        change:"restart"`
	PublishPort   uint16           `salt:"publish_port"   default:"4505"    doc:"port that minions subscribe to"                              change:"restart"`
	RetPort       uint16           `salt:"ret_port"       default:"4506"    doc:"port for requests and returns"                               change:"restart"`
	Transport     string           `salt:"transport"      default:"zeromq"  doc:"transport for minions: zeromq, tcp or ws"                   change:"restart"`
	TransportOpts map[string]Ports `salt:"transport_opts" default:"{}"      doc:"further transports, each with publish_port and ret_port"     change:"restart"`
	IPv6          bool             `salt:"ipv6"           default:"false"   doc:"listen on IPv6 unless interface is an IPv4 address"               change:"restart"`
	Backlog       int              `salt:"zmq_backlog"    default:"1000"    doc:"replies queued for one peer"                                 change:"restart"`
	HighWater     int              `salt:"pub_hwm"        default:"1000"    doc:"publications queued for one minion before it misses some"    change:"restart"`
	Filter        bool             `salt:"zmq_filtering"  default:"false"   doc:"send a publication only to the minions it is for (zeromq)"   change:"restart"`
	SSL           any              `salt:"ssl"            default:"null"    doc:"TLS for tcp and ws: a mapping of certfile, keyfile and more" change:"restart"`
	KeepAliveOptions
}

// Ports are the ports of one further transport; 0 means the general option.
type Ports struct {
	PublishPort uint16 `salt:"publish_port" default:"0" doc:"port that minions subscribe to"`
	RetPort     uint16 `salt:"ret_port"     default:"0" doc:"port for requests and returns"`
}

// Endpoint is the address of one transport, as host:port.
type Endpoint struct {
	Transport string
	Publish   string
	Requests  string
}

// Endpoints returns the addresses of the master: one for each of TransportOpts, and one for
// Transport if it is not among them, which comes first. The others are ordered by name. Two
// transports with the same port are an error.
func (o Options) Endpoints() ([]Endpoint, error) {
	if err := o.checkInterface(); err != nil {
		return nil, err
	}
	names := make([]string, 0, len(o.TransportOpts)+1)
	for name := range o.TransportOpts {
		if name != o.Transport {
			names = append(names, name)
		}
	}
	sort.Strings(names)
	names = append([]string{o.Transport}, names...)

	used := make(map[uint16]string)
	endpoints := make([]Endpoint, 0, len(names))
	for _, name := range names {
		p := o.ports(name)
		for _, use := range []struct {
			option string
			port   uint16
		}{{"publish_port", p.PublishPort}, {"ret_port", p.RetPort}} {
			what := use.option + " of " + name
			if other := used[use.port]; other != "" && use.port != 0 {
				return nil, fmt.Errorf("options transport, transport_opts: %s and %s are both port %d", other, what, use.port)
			}
			used[use.port] = what
		}
		endpoints = append(endpoints, Endpoint{name, o.addr(p.PublishPort), o.addr(p.RetPort)})
	}
	return endpoints, nil
}

// checkInterface returns an error for what users write instead of an address.
func (o Options) checkInterface() error {
	host := strings.Trim(o.Interface, "[]")
	if _, err := netip.ParseAddr(host); err == nil {
		return nil
	}
	if strings.ContainsAny(host, ":/ ") {
		return fmt.Errorf("interface: %.80q is not an address; the ports are the options publish_port and ret_port", o.Interface)
	}
	i, err := net.InterfaceByName(host)
	if err != nil {
		return nil // a host name: the bind reports an unknown one
	}
	example := ""
	if addrs, err := i.Addrs(); err == nil && len(addrs) > 0 {
		address, _, _ := strings.Cut(addrs[0].String(), "/")
		example = ", such as " + address
	}
	return fmt.Errorf("interface: %s is the name of an interface: write its address%s", host, example)
}

func (o Options) ports(name string) Ports {
	p := o.TransportOpts[name]
	if p.PublishPort == 0 {
		p.PublishPort = o.PublishPort
	}
	if p.RetPort == 0 {
		p.RetPort = o.RetPort
	}
	return p
}

func (o Options) addr(port uint16) string {
	host := strings.Trim(o.Interface, "[]")
	if o.IPv6 && host == "0.0.0.0" {
		host = "::"
	}
	return net.JoinHostPort(host, strconv.Itoa(int(port)))
}

// Listen returns the options for a listener of the named transport. Filter is always on for tcp,
// where it uses registrations, which minions must send. With syndics below (order_masters) the
// caller sets Syndics, and resets Filter for tcp.
func (o Options) Listen(name string) (ListenOptions, error) {
	l := ListenOptions{
		HighWater: o.HighWater,
		Backlog:   o.Backlog,
		Filter:    o.Filter || name == "tcp",
		KeepAlive: o.Config(),
	}
	if name == "zeromq" {
		return l, nil
	}
	t, err := ParseTLS(o.SSL)
	if err == nil && t != nil {
		l.TLS, err = ServerTLS(*t)
	}
	return l, err
}

// ClientOptions are the minion's and the command line's options for connections to a master.
type ClientOptions struct {
	Transport         string `salt:"transport"             default:"zeromq" doc:"transport to the master: zeromq, tcp or ws"                 change:"restart"`
	IPv6              bool   `salt:"ipv6"                  default:"false"  doc:"reach the master over IPv6"                                   change:"restart"`
	SourceInterface   string `salt:"source_interface_name" default:""       doc:"network interface to connect from"                            change:"restart"`
	SourceAddress     string `salt:"source_address"        default:""       doc:"address to connect from, if source_interface_name is not set" change:"restart"`
	SourceRetPort     uint16 `salt:"source_ret_port"       default:"0"      doc:"port to send requests from"                                   change:"restart"`
	SourcePublishPort uint16 `salt:"source_publish_port"   default:"0"      doc:"port to subscribe from"                                       change:"restart"`
	Filter            bool   `salt:"zmq_filtering"         default:"false"  doc:"subscribe only to what is for this minion (zeromq)"           change:"restart"`
	SSL               any    `salt:"ssl"                   default:"null"   doc:"TLS for tcp and ws: a mapping of ca_certs, certfile and more" change:"restart"`
	KeepAliveOptions
}

// Dial returns the options of connections for requests, and of the subscription. They differ in
// their local port.
func (o ClientOptions) Dial() (requests, publish DialOptions, err error) {
	d := DialOptions{KeepAlive: o.Config()}
	if o.Transport != "zeromq" {
		t, err := ParseTLS(o.SSL)
		if err == nil && t != nil {
			d.TLS, err = ClientTLS(*t)
		}
		if err != nil {
			return d, d, err
		}
	}
	ip, err := o.source()
	if err != nil {
		return d, d, err
	}
	requests, publish = d, d
	if ip != nil || o.SourceRetPort != 0 {
		requests.LocalAddr = &net.TCPAddr{IP: ip, Port: int(o.SourceRetPort)}
	}
	if ip != nil || o.SourcePublishPort != 0 {
		publish.LocalAddr = &net.TCPAddr{IP: ip, Port: int(o.SourcePublishPort)}
	}
	return requests, publish, nil
}

// source returns the local address to connect from, nil for any.
func (o ClientOptions) source() (net.IP, error) {
	if o.SourceInterface != "" {
		return o.interfaceIP()
	}
	if o.SourceAddress == "" {
		return nil, nil
	}
	network := "ip4"
	if o.IPv6 {
		network = "ip6"
	}
	a, err := net.ResolveIPAddr(network, strings.Trim(o.SourceAddress, "[]"))
	if err != nil {
		return nil, fmt.Errorf("option source_address: %w", err)
	}
	return a.IP, nil
}

func (o ClientOptions) interfaceIP() (net.IP, error) {
	i, err := net.InterfaceByName(o.SourceInterface)
	if err != nil {
		return nil, fmt.Errorf("option source_interface_name: %s: %w", o.SourceInterface, err)
	}
	addrs, err := i.Addrs()
	if err != nil {
		return nil, fmt.Errorf("option source_interface_name: %s: %w", o.SourceInterface, err)
	}
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok && (n.IP.To4() == nil) == o.IPv6 {
			return n.IP, nil
		}
	}
	return nil, fmt.Errorf("option source_interface_name: %s has no address of the wanted kind (option ipv6)", o.SourceInterface)
}
