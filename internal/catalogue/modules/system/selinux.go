package system

import (
	"context"

	"brine/internal/call/fn"
	"brine/internal/catalogue/actions/selinux"
	"brine/internal/host"
	"brine/internal/py/value"
)

type selinuxFuncs struct{ p selinux.Policy }

func init() { units.Register("selinux", selinuxModule) }

func selinuxModule(m *host.Machine) fn.Module {
	s := selinuxFuncs{selinux.Policy{M: m}}
	ex := func(text string) fn.Option { return fn.Example("salt '*' selinux." + text) }
	return fn.Module{Name: "selinux", When: s.p.Usable, Doc: `SELinux: its mode, booleans, modules, contexts of files and types of ports.`, Funcs: []fn.Func{
		fn.Of("selinux_fs_path", s.path, `Return the directory of the kernel's SELinux files.`, ex("selinux_fs_path")),
		fn.Of("getenforce", s.mode, `Return the mode: Enforcing, Permissive or Disabled.`, ex("getenforce")),
		fn.Of("getconfig", s.configured, `Return the mode from the configuration file.`, ex("getconfig")),
		fn.Of("setenforce", s.setMode, `Set the mode, now and in the configuration file, and return the mode.`, ex("setenforce enforcing")),
		fn.Of("getsebool", s.boolean, `Return the state of a boolean.`, ex("getsebool virt_use_usb")),
		fn.Of("setsebool", s.setBoolean, `Set a boolean, and report whether that succeeded.`, ex("setsebool virt_use_usb off")),
		fn.Of("setsebools", s.setBooleans, `Set several booleans, and report whether that succeeded.`,
			ex("setsebools '{virt_use_usb: on, squid_use_tproxy: off}'")),
		fn.Of("list_sebool", s.booleans, `Return all booleans.`, ex("list_sebool")),
		fn.Of("getsemod", s.module, `Return the state of a policy module.`, ex("getsemod mysql")),
		fn.Of("setsemod", s.setModule, `Enable or disable a policy module, and report whether that succeeded.`, ex("setsemod nagios Enabled")),
		fn.Of("install_semod", s.install, `Install a policy module from a file, and report whether that succeeded.`,
			ex("install_semod salt://path/to/module.pp")),
		fn.Of("remove_semod", s.remove, `Remove a policy module, and report whether that succeeded.`, ex("remove_semod module_name")),
		fn.Of("list_semod", s.modules, `Return all policy modules.`, ex("list_semod")),
		fn.Of("filetype_id_to_string", fileType, `Return the name of a type of files.`, ex("filetype_id_to_string f")),
		fn.Of("fcontext_get_policy", s.getFile, `Return the policy for a file specification.`, ex("fcontext_get_policy '/srv/www(/.*)?'")),
		fn.Of("fcontext_add_policy", s.addFile, `Add or change the policy for a file specification, and return what cmd.run_all does.`,
			ex("fcontext_add_policy '/srv/www(/.*)?' sel_type=httpd_sys_content_t")),
		fn.Of("fcontext_delete_policy", s.deleteFile, `Delete the policy for a file specification, and return what cmd.run_all does.`,
			ex("fcontext_delete_policy '/srv/www(/.*)?'")),
		fn.Of("fcontext_policy_is_applied", s.unapplied, `Return what restorecon(8) would change: nothing if files have the contexts of the policy.`,
			ex("fcontext_policy_is_applied /srv/www recursive=true")),
		fn.Of("fcontext_apply_policy", s.apply, `Give files the contexts of the policy, and return what cmd.run_all does, and changes.`,
			ex("fcontext_apply_policy /srv/www recursive=true")),
		fn.Of("port_get_policy", s.getPort, `Return the policy for a port.`, ex("port_get_policy tcp/80")),
		fn.Of("port_add_policy", s.addPort, `Add a policy for a port, and return what cmd.run_all does.`, ex("port_add_policy tcp/8080 http_port_t")),
		fn.Of("port_modify_policy", s.modifyPort, `Change the policy for a port, and return what cmd.run_all does.`,
			ex("port_modify_policy tcp/8080 http_port_t")),
		fn.Of("port_delete_policy", s.deletePort, `Delete the policy for a port, and return what cmd.run_all does.`, ex("port_delete_policy tcp/8080")),
	}}
}

func (s selinuxFuncs) path(context.Context, *fn.Call, struct{}) (any, error) {
	if dir := s.p.Path(); dir != "" {
		return dir, nil
	}
	return nil, nil
}

func (s selinuxFuncs) mode(context.Context, *fn.Call, struct{}) (string, error) {
	return s.p.Mode(), nil
}

func (s selinuxFuncs) configured(context.Context, *fn.Call, struct{}) (any, error) {
	return s.p.Configured(), nil
}

type modeArgs struct {
	Mode any `salt:"mode" doc:"enforcing, permissive or disabled; 1 or 0"`
}

func (s selinuxFuncs) setMode(_ context.Context, _ *fn.Call, a modeArgs) (string, error) {
	return s.p.SetMode(a.Mode)
}

type booleanArgs struct {
	Name string `salt:"boolean" doc:"name of the boolean"`
}

// oneOf returns an entry of a list, or an empty one.
func oneOf(all *value.Dict, name string, err error) (*value.Dict, error) {
	if d, ok := all.At(name).(*value.Dict); ok {
		return d, err
	}
	return value.NewDict(0), err
}

func (s selinuxFuncs) boolean(ctx context.Context, _ *fn.Call, a booleanArgs) (*value.Dict, error) {
	all, err := s.p.Booleans(ctx)
	return oneOf(all, a.Name, err)
}

type setBooleanArgs struct {
	Name    string `salt:"boolean" doc:"name of the boolean"`
	Value   any    `salt:"value" doc:"on or off"`
	Persist bool   `salt:"persist" doc:"also from the next boot on" default:"false"`
}

func (s selinuxFuncs) setBoolean(ctx context.Context, _ *fn.Call, a setBooleanArgs) (bool, error) {
	return s.p.SetBoolean(ctx, a.Name, value.Str(a.Value), a.Persist)
}

type setBooleansArgs struct {
	Pairs   any  `salt:"pairs" doc:"map from names to on or off"`
	Persist bool `salt:"persist" doc:"also from the next boot on" default:"false"`
}

func (s selinuxFuncs) setBooleans(ctx context.Context, _ *fn.Call, a setBooleansArgs) (any, error) {
	pairs, ok := a.Pairs.(*value.Dict)
	if !ok {
		return value.NewDict(0), nil
	}
	return s.p.SetBooleans(ctx, pairs, a.Persist)
}

func (s selinuxFuncs) booleans(ctx context.Context, _ *fn.Call, _ struct{}) (*value.Dict, error) {
	return s.p.Booleans(ctx)
}

type semoduleArgs struct {
	Module string `salt:"module" doc:"name of the policy module"`
}

func (s selinuxFuncs) module(ctx context.Context, _ *fn.Call, a semoduleArgs) (*value.Dict, error) {
	all, err := s.p.Modules(ctx)
	return oneOf(all, a.Module, err)
}

type setModuleArgs struct {
	Module string `salt:"module" doc:"name of the policy module"`
	State  string `salt:"state" doc:"Enabled or Disabled"`
}

func (s selinuxFuncs) setModule(ctx context.Context, _ *fn.Call, a setModuleArgs) (bool, error) {
	return s.p.SetModule(ctx, a.Module, a.State)
}

type installArgs struct {
	Path string `salt:"module_path" doc:"file of the policy module, possibly salt://"`
}

func (s selinuxFuncs) install(ctx context.Context, c *fn.Call, a installArgs) (bool, error) {
	return s.p.Install(ctx, c, a.Path)
}

func (s selinuxFuncs) remove(ctx context.Context, _ *fn.Call, a semoduleArgs) (bool, error) {
	return s.p.Remove(ctx, a.Module)
}

func (s selinuxFuncs) modules(ctx context.Context, _ *fn.Call, _ struct{}) (*value.Dict, error) {
	return s.p.Modules(ctx)
}

type fileTypeArgs struct {
	Type string `salt:"filetype" doc:"a, f, d, c, b, s, l or p" default:"a"`
}

func fileType(_ context.Context, _ *fn.Call, a fileTypeArgs) (string, error) {
	return selinux.FileType(a.Type)
}

type fileContextArgs struct {
	Name     string `salt:"name" doc:"file specification, a regular expression"`
	FileType string `salt:"filetype" doc:"a, f, d, c, b, s, l or p; null: any" default:"null"`
	Type     string `salt:"sel_type" doc:"type of the context" default:"null"`
	User     string `salt:"sel_user" doc:"SELinux user" default:"null"`
	Level    string `salt:"sel_level" doc:"MLS range" default:"null"`
}

func (a fileContextArgs) context() selinux.FileContext {
	return selinux.FileContext{Type: a.Type, User: a.User, Level: a.Level}
}

// orNone returns None for a nil map.
func orNone(d *value.Dict, err error) (any, error) {
	if d == nil {
		return nil, err
	}
	return d, err
}

func (s selinuxFuncs) getFile(ctx context.Context, _ *fn.Call, a fileContextArgs) (any, error) {
	return orNone(s.p.GetFile(ctx, a.Name, a.FileType, a.context()))
}

func (s selinuxFuncs) addFile(ctx context.Context, c *fn.Call, a fileContextArgs) (*value.Dict, error) {
	return s.p.AddFile(ctx, c, a.Name, a.FileType, a.context())
}

func (s selinuxFuncs) deleteFile(ctx context.Context, c *fn.Call, a fileContextArgs) (*value.Dict, error) {
	return s.p.DeleteFile(ctx, c, a.Name, a.FileType, a.context())
}

type relabelArgs struct {
	Name      string `salt:"name" doc:"path of the files"`
	Recursive bool   `salt:"recursive" doc:"also below directories" default:"false"`
}

func (s selinuxFuncs) unapplied(ctx context.Context, c *fn.Call, a relabelArgs) (string, error) {
	return s.p.Unapplied(ctx, c, a.Name, a.Recursive)
}

func (s selinuxFuncs) apply(ctx context.Context, c *fn.Call, a relabelArgs) (*value.Dict, error) {
	return s.p.Apply(ctx, c, a.Name, a.Recursive)
}

type getPortArgs struct {
	Name     string `salt:"name" doc:"protocol and port, as tcp/8080 or udp/20-21, or any name if protocol and port are given"`
	Type     string `salt:"sel_type" doc:"type of the port" default:"null"`
	Protocol any    `salt:"protocol" doc:"tcp or udp" default:"null"`
	Port     any    `salt:"port" doc:"port or range of ports" default:"null"`
}

func (a getPortArgs) port() selinux.Port {
	return selinux.Port{Name: a.Name, Protocol: a.Protocol, Port: a.Port}
}

func (s selinuxFuncs) getPort(ctx context.Context, _ *fn.Call, a getPortArgs) (any, error) {
	return orNone(s.p.GetPort(ctx, a.port(), a.Type))
}

type setPortArgs struct {
	getPortArgs
	Range string `salt:"sel_range" doc:"MLS range" default:"null"`
}

func (s selinuxFuncs) addPort(ctx context.Context, c *fn.Call, a setPortArgs) (*value.Dict, error) {
	return s.p.ChangePort(ctx, c, "add", a.port(), a.Type, a.Range)
}

func (s selinuxFuncs) modifyPort(ctx context.Context, c *fn.Call, a setPortArgs) (*value.Dict, error) {
	return s.p.ChangePort(ctx, c, "modify", a.port(), a.Type, a.Range)
}

func (s selinuxFuncs) deletePort(ctx context.Context, c *fn.Call, a selinux.Port) (*value.Dict, error) {
	return s.p.ChangePort(ctx, c, "delete", a, "", "")
}
