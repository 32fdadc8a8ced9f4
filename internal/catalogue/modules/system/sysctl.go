package system

import (
	"context"

	"brine/internal/call/fn"
	"brine/internal/catalogue/actions/parameters"
	"brine/internal/host"
	"brine/internal/host/sysctl"
)

func init() { units.Register("sysctl", sysctlModule) }

func sysctlModule(m *host.Machine) fn.Module {
	k := parameters.Kernel{M: m}
	return fn.Module{Name: "sysctl", Doc: `Parameters of the kernel.`, Funcs: []fn.Func{
		fn.Of("show", k.Show, `Return all parameters, or those that a file sets.`, fn.Example("salt '*' sysctl.show")),
		fn.Of("get", k.Get, `Return the value of a parameter.`, fn.Example("salt '*' sysctl.get net.ipv4.ip_forward")),
		fn.Of("assign", k.Assign, `Set a parameter until the next boot.`, fn.Example("salt '*' sysctl.assign net.ipv4.ip_forward 1")),
		fn.Of("persist", k.Persist, `Set a parameter now and at every boot.`, fn.Example("salt '*' sysctl.persist net.ipv4.ip_forward 1")),
		fn.Of("default_config", func(context.Context, *fn.Call, none) (string, error) { return sysctl.DefaultFile(m), nil },
			`Return the file that sysctl.persist writes.`, fn.Example("salt '*' sysctl.default_config")),
	}}
}
