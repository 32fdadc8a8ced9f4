package network

import (
	"context"
	"regexp"
	"strconv"
	"strings"
	"sync"

	"brine/internal/call/fn"
	"brine/internal/host"
	"brine/internal/host/hostsfile"
	"brine/internal/py/value"
)

const ethtool = "/sbin/ethtool"

var (
	interfaceName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[^-\s/][^\s/]{0,14}$`) })
	bufferSize    = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^(.+):\s+(\d+)$`) })
)

func (n network) bufsize(ctx context.Context, _ *fn.Call, a ifaceArgs) (*value.Dict, error) {
	if !n.Machine.Exists(ethtool) {
		return value.NewDict(0), nil
	}
	if !interfaceName().MatchString(a.Iface) {
		return nil, fn.Invalidf("%q is no name of an interface", a.Iface)
	}
	out, err := n.Machine.Do(ctx, ethtool, "-g", a.Iface)
	if err != nil {
		return nil, fn.Errorf("cannot run ethtool: %w", err)
	}
	d, suffix := value.DictOf("result", false), "max-"
	for line := range strings.SplitSeq(out.Stdout, "\n") {
		switch m := bufferSize().FindStringSubmatch(line); {
		case m != nil:
			size, _ := strconv.ParseInt(m[2], 10, 64)
			d.Set(strings.ReplaceAll(strings.ToLower(m[1]), " ", "-")+suffix, size)
			d.Set("result", true)
		case strings.HasSuffix(line, "maximums:"):
			suffix = "-max"
		case strings.HasSuffix(line, "settings:"):
			suffix = ""
		}
	}
	if !d.Bool("result") {
		d.Set("comment", strings.TrimSpace(out.Stdout+"\n"+out.Stderr))
	}
	return d, nil
}

type setBufsizeArgs struct {
	Iface  string    `salt:"iface" doc:"name of the interface"`
	Args   fn.Args   `salt:"args"`
	Kwargs fn.Kwargs `salt:"kwargs"`
}

func (n network) setBufsize(ctx context.Context, _ *fn.Call, a setBufsizeArgs) (any, error) {
	if !n.Machine.Exists(ethtool) {
		return false, nil
	}
	if !interfaceName().MatchString(a.Iface) {
		return nil, fn.Invalidf("%q is no name of an interface", a.Iface)
	}
	said := func(ok bool, comment string) (any, error) { return value.DictOf("result", ok, "comment", comment), nil }
	if len(a.Args) > 0 {
		var unknown strings.Builder
		for _, v := range a.Args {
			unknown.WriteString(" " + value.Str(v))
		}
		return said(false, "Unknown arguments:"+unknown.String())
	}
	var words []string
	for _, key := range []string{"rx", "tx", "rx-mini", "rx-jumbo"} {
		v, ok := a.Kwargs.Get(key)
		if !ok || v == nil {
			continue
		}
		if _, err := strconv.ParseUint(value.Str(v), 10, 32); err != nil {
			return nil, fn.Invalidf("%s is a number of entries, not %s", key, value.Repr(v))
		}
		words = append(words, key, value.Str(v))
	}
	if len(words) == 0 {
		return said(false, "Requires rx=<val> tx==<val> rx-mini=<val> and/or rx-jumbo=<val>")
	}
	out, err := n.Machine.Do(ctx, ethtool, append([]string{"-G", a.Iface}, words...)...)
	if err != nil {
		return nil, fn.Errorf("cannot run ethtool: %w", err)
	}
	if text := strings.TrimSpace(out.Stdout + "\n" + out.Stderr); text != "" {
		return said(false, text)
	}
	return said(true, strings.Join(words, " "))
}

type hostnameArgs struct {
	Hostname any `salt:"hostname" doc:"the new name; null does nothing"`
}

var hostName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_])?$`) })

// maxHostName is the maximum length of a host name, in bytes.
const maxHostName = 253

func (n network) setHostname(ctx context.Context, c *fn.Call, a hostnameArgs) (bool, error) {
	if a.Hostname == nil {
		return false, nil
	}
	name := value.Str(a.Hostname)
	if len(name) > maxHostName || !hostName().MatchString(name) {
		return false, fn.Invalidf("%q cannot be a host name", name)
	}
	old, ok, err := n.renameKernel(ctx, c, name)
	if err != nil || !ok {
		return false, err
	}
	f, err := hostsfile.Read(n.Machine, "/etc/hosts")
	if err == nil {
		err = f.Rename(old, name)
	}
	if err == nil {
		err = f.Write()
	}
	if err != nil {
		return false, fn.Errorf("cannot change /etc/hosts: %w", err)
	}
	switch c.Grains.Get("os_family") {
	case "RedHat":
		err = n.setVariable("/etc/sysconfig/network", "HOSTNAME", name)
	case "Debian":
		err = n.Machine.WriteFile("/etc/hostname", []byte(name+"\n"))
	}
	if err != nil {
		return false, fn.Errorf("cannot write the host name: %w", err)
	}
	return true, nil
}

// renameKernel sets the host name and returns the old one. The change is
// permanent only where systemd runs. ok is false if hostnamectl fails.
func (n network) renameKernel(ctx context.Context, c *fn.Call, name string) (old string, ok bool, err error) {
	if n.Machine.Which("hostnamectl") == "" {
		if old, err = n.getFQDN(ctx, c, none{}); err != nil {
			return "", false, err
		}
		out, err := n.Machine.Do(ctx, "hostname", host.Operands(name)...)
		if err == nil && out.Exit != 0 {
			err = fn.Errorf("hostname failed: %s", out.Stderr)
		}
		return old, err == nil, expected(err)
	}
	old = n.Machine.Uname().Node
	status, err := n.Machine.Do(ctx, "hostnamectl", "status")
	if err == nil && status.Exit == 0 {
		for line := range strings.SplitSeq(status.Stdout, "\n") {
			if key, v, _ := strings.Cut(line, ":"); strings.TrimSpace(key) == "Static hostname" {
				old = strings.TrimSpace(v)
			}
		}
	}
	out, err := n.Machine.Do(ctx, "hostnamectl", append([]string{"set-hostname"}, host.Operands(name)...)...)
	if err != nil {
		return "", false, fn.Errorf("cannot run hostnamectl: %w", err)
	}
	if out.Exit != 0 {
		c.Log.Error("cannot set the host name", "stderr", out.Stderr)
	}
	return old, out.Exit == 0, nil
}

// setVariable changes the value of a variable in a shell file and keeps its
// quotes. A file without the variable stays unchanged.
func (n network) setVariable(path, name, val string) error {
	data, err := n.Machine.ReadFile(path)
	if err != nil {
		return err
	}
	var b strings.Builder
	for line := range strings.Lines(string(data)) {
		if key, old, ok := strings.Cut(strings.TrimRight(line, "\r\n"), "="); ok && key == name {
			quote := ""
			if len(old) > 1 && (old[0] == '"' || old[0] == '\'') && old[len(old)-1] == old[0] {
				quote = old[:1]
			}
			line = name + "=" + quote + val + quote + "\n"
		}
		b.WriteString(line)
	}
	return n.Machine.WriteFile(path, []byte(b.String()))
}
