package network

import (
	"context"

	"brine/internal/call/fn"
	"brine/internal/host/netif"
	"brine/internal/py/value"
)

func (n network) netstat(ctx context.Context, _ *fn.Call, _ none) (*value.List, error) {
	list, err := netif.Sockets(ctx, n.Machine)
	if err != nil {
		return nil, fn.Errorf("%w", err)
	}
	out := &value.List{}
	for _, s := range list {
		d := value.DictOf("proto", s.Proto, "recv-q", s.RecvQ, "send-q", s.SendQ, "local-address", s.Local, "remote-address", s.Remote)
		if s.State != "" {
			d.Set("state", s.State)
		}
		d.Set("user", s.User)
		d.Set("inode", s.Inode)
		d.Set("program", s.Program)
		out.Append(d)
	}
	return out, nil
}

func (n network) arp(ctx context.Context, _ *fn.Call, _ none) (*value.Dict, error) {
	if err := n.needs("arp"); err != nil {
		return nil, err
	}
	list, err := netif.ARP(ctx, n.Machine)
	return byHardware(list, true), expected(err)
}

func (n network) neighbours(v4 bool) func(context.Context, *fn.Call, none) (*value.Dict, error) {
	return func(ctx context.Context, _ *fn.Call, _ none) (*value.Dict, error) {
		list, err := netif.Neighbours(ctx, n.Machine)
		return byHardware(list, v4), expected(err)
	}
}

// byHardware maps hardware addresses to addresses of one IP version. The last
// one wins, as in Salt.
func byHardware(list []netif.Neighbour, v4 bool) *value.Dict {
	d := value.NewDict(len(list))
	for _, one := range list {
		if one.Addr.Is4() == v4 {
			d.Set(one.Hardware, one.Addr.String())
		}
	}
	return d
}

// needs returns an error if a program is not installed.
func (n network) needs(program string) error {
	if n.Machine.Which(program) == "" {
		return &fn.ProgramError{Program: program}
	}
	return nil
}

// expected marks an error to be shown to users as it is.
func expected(err error) error {
	if err == nil {
		return nil
	}
	return fn.Errorf("%w", err)
}
