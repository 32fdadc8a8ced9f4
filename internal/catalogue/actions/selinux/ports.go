package selinux

import (
	"context"
	"regexp"
	"slices"
	"strings"

	"brine/internal/call/fn"
	"brine/internal/py/value"
)

// Port names a port by name, or else by protocol and port.
type Port struct {
	Name     string `salt:"name" doc:"protocol and port, as tcp/8080 or udp/20-21, or any name if protocol and port are given"`
	Protocol any    `salt:"protocol" doc:"tcp or udp" default:"null"`
	Port     any    `salt:"port" doc:"port or range of ports" default:"null"`
}

var portForm = regexp.MustCompile(`^(tcp|udp)/(\d+-?\d+)\n?$`)

// parse returns protocol and port.
func (n Port) parse() (protocol, port string, err error) {
	m := portForm.FindStringSubmatch(n.Name)
	if m == nil {
		m = portForm.FindStringSubmatch(value.Str(n.Protocol) + "/" + value.Str(n.Port))
	}
	if m == nil {
		return "", "", fn.Invalidf(`Invalid name "%s" format and protocol and port not provided or invalid: "%s" "%s".`, n.Name, value.Str(n.Protocol),
			value.Str(n.Port))
	}
	return m[1], m[2], nil
}

// portEntry is a line of semanage port -l.
var portEntry = regexp.MustCompile(`^(\w+) +(\w+) +([\d\-, ]+)`)

// GetPort implements selinux.port_get_policy: nil if the port has no type, or
// not this one.
func (p Policy) GetPort(ctx context.Context, n Port, seltype string) (*value.Dict, error) {
	protocol, port, err := n.parse()
	if err != nil {
		return nil, err
	}
	said, _, err := p.run(ctx, "semanage", "port", "-l")
	if err != nil {
		return nil, err
	}
	for line := range strings.SplitSeq(said, "\n") {
		m := portEntry.FindStringSubmatch(line)
		if m == nil || differs(seltype, m[1]) || m[2] != protocol || !slices.Contains(strings.Split(strings.TrimSpace(m[3]), ", "), port) {
			continue
		}
		return value.DictOf("sel_type", m[1], "protocol", m[2], "port", strings.TrimSpace(m[3])), nil
	}
	return nil, nil
}

// ChangePort implements selinux.port_add_policy, port_modify_policy and
// port_delete_policy: action is add, modify or delete.
func (p Policy) ChangePort(ctx context.Context, c *fn.Call, action string, n Port, seltype, levels string) (*value.Dict, error) {
	if action == "add" && seltype == "" {
		return nil, fn.Invalidf("SELinux Type is required to add a policy")
	}
	protocol, port, err := n.parse()
	if err != nil {
		return nil, err
	}
	words := []string{"semanage", "port", "--" + action, "--proto", protocol}
	if seltype != "" {
		words = append(words, "--type", seltype)
	}
	if levels != "" {
		words = append(words, "--range", levels)
	}
	return runAll(ctx, c, append(words, port)...)
}
