package files

import (
	"context"
	"errors"
	"os/exec"

	"brine/internal/call/fn"
	"brine/internal/host"
	"brine/internal/host/openstack"
	"brine/internal/py/value"
)

type openstackConfig struct{ m *host.Machine }

func init() { units.Register("openstack_config", openstackModule) }

func openstackModule(m *host.Machine) fn.Module {
	o := openstackConfig{m}
	return fn.Module{Name: "openstack_config", Doc: `Options of OpenStack's services, by openstack-config.`, Funcs: []fn.Func{
		fn.Of("set", o.set, `Set an option.`, fn.Example("salt '*' openstack_config.set /etc/keystone/keystone.conf sql connection foo")),
		fn.Of("get", o.get, `Return an option.`, fn.Example("salt '*' openstack_config.get /etc/keystone/keystone.conf sql connection")),
		fn.Of("delete", o.remove, `Remove an option.`, fn.Example("salt '*' openstack_config.delete /etc/keystone/keystone.conf sql connection")),
	}}
}

type openstackArgs struct {
	File      string `salt:"filename" doc:"path of the file"`
	Section   string `salt:"section" doc:"section"`
	Parameter string `salt:"parameter" doc:"name of the option"`
}

// outcome returns the output of the program. Its errors have Salt's words.
func outcome(out string, err error) (string, error) {
	if errors.Is(err, exec.ErrNotFound) {
		return "", &fn.ProgramError{Program: openstack.Program}
	}
	return out, fn.FromHost(err)
}

func (o openstackConfig) option(a openstackArgs) openstack.Option {
	return openstack.Option{M: o.m, File: a.File, Section: a.Section, Name: a.Parameter}
}

func (o openstackConfig) get(ctx context.Context, _ *fn.Call, a openstackArgs) (string, error) {
	return outcome(o.option(a).Get(ctx))
}

func (o openstackConfig) remove(ctx context.Context, _ *fn.Call, a openstackArgs) (string, error) {
	return outcome(o.option(a).Delete(ctx))
}

type openstackSetArgs struct {
	File      string `salt:"filename" doc:"path of the file"`
	Section   string `salt:"section" doc:"section"`
	Parameter string `salt:"parameter" doc:"name of the option"`
	Value     any    `salt:"value" doc:"value"`
}

func (o openstackConfig) set(ctx context.Context, _ *fn.Call, a openstackSetArgs) (string, error) {
	return outcome(openstack.Option{M: o.m, File: a.File, Section: a.Section, Name: a.Parameter}.Set(ctx, value.Str(a.Value)))
}
