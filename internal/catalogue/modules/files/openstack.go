package files

import (
	"context"

	"brine/internal/call/fn"
	"brine/internal/host"
	"brine/internal/py/value"
)

// openstack asks openstack-config(1), of openstack-utils.
type openstack struct{ m *host.Machine }

func init() { units.Register("openstack_config", openstackModule) }

func openstackModule(m *host.Machine) fn.Module {
	o := openstack{m}
	return fn.Module{Name: "openstack_config", Doc: `Options of OpenStack's services, by openstack-config.`, Funcs: []fn.Func{
		fn.Of("set", o.set, `Set an option.`, fn.Example("salt '*' openstack_config.set /etc/keystone/keystone.conf sql connection foo")),
		fn.Of("get", o.do("--get"), `Return an option.`, fn.Example("salt '*' openstack_config.get /etc/keystone/keystone.conf sql connection")),
		fn.Of("delete", o.do("--del"), `Remove an option.`, fn.Example("salt '*' openstack_config.delete /etc/keystone/keystone.conf sql connection")),
	}}
}

func (o openstack) run(ctx context.Context, words ...string) (string, error) {
	const program = "openstack-config"
	if o.m.Which(program) == "" {
		return "", &fn.ProgramError{Program: program}
	}
	out, err := o.m.Do(ctx, program, words...)
	if err == nil && out.Exit != 0 {
		err = fn.Errorf("%s", trimmed(out.Stderr))
	}
	return trimmed(out.Stdout), err
}

// trimmed is a text without the line breaks at its end, as Salt has what
// commands print.
func trimmed(s string) string {
	for len(s) > 0 && (s[len(s)-1] == '\n' || s[len(s)-1] == '\r') {
		s = s[:len(s)-1]
	}
	return s
}

type openstackArgs struct {
	File      string `salt:"filename" doc:"path of the file"`
	Section   string `salt:"section" doc:"section"`
	Parameter string `salt:"parameter" doc:"name of the option"`
}

func (o openstack) do(verb string) func(context.Context, *fn.Call, openstackArgs) (string, error) {
	return func(ctx context.Context, _ *fn.Call, a openstackArgs) (string, error) {
		return o.run(ctx, verb, a.File, a.Section, a.Parameter)
	}
}

type openstackSetArgs struct {
	File      string `salt:"filename" doc:"path of the file"`
	Section   string `salt:"section" doc:"section"`
	Parameter string `salt:"parameter" doc:"name of the option"`
	Value     any    `salt:"value" doc:"value"`
}

func (o openstack) set(ctx context.Context, _ *fn.Call, a openstackSetArgs) (string, error) {
	return o.run(ctx, "--set", a.File, a.Section, a.Parameter, value.Str(a.Value))
}
