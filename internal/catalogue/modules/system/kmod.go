package system

import (
	"context"
	"errors"
	"slices"

	"brine/internal/call/fn"
	"brine/internal/host"
	"brine/internal/host/kmod"
	"brine/internal/py/value"
)

type kmods struct{ m *host.Machine }

func init() { units.Register("kmod", kmodModule) }

func kmodModule(m *host.Machine) fn.Module {
	k := kmods{m}
	return fn.Module{Name: "kmod", Doc: `Modules of the kernel.`, Funcs: []fn.Func{
		fn.Of("available", k.available, `Return the names of all modules that there are.`, fn.Example("salt '*' kmod.available")),
		fn.Of("check_available", k.checkAvailable, `Say whether there is a module.`, fn.Example("salt '*' kmod.check_available kvm")),
		fn.Of("lsmod", k.lsmod, `Return the loaded modules with size and users.`, fn.Example("salt '*' kmod.lsmod")),
		fn.Of("mod_list", k.modList, `Return the names of the loaded modules, or of those that are loaded at boot.`, fn.Example("salt '*' kmod.mod_list")),
		fn.Of("is_loaded", k.isLoaded, `Say whether a module is loaded.`, fn.Example("salt '*' kmod.is_loaded kvm")),
		fn.Of("load", k.load, `Load a module, and return the names of those that are new.`, fn.Example("salt '*' kmod.load kvm")),
		fn.Of("remove", k.remove, `Unload a module, and return the names of those that are gone.`, fn.Example("salt '*' kmod.remove kvm")),
	}}
}

func (k kmods) kernel(c *fn.Call) kmod.Kernel {
	return kmod.Kernel{M: k.m, Systemd: c.Grains.Get("systemd") != nil}
}

func (k kmods) available(_ context.Context, c *fn.Call, _ none) (*value.List, error) {
	return value.Strings(k.kernel(c).Available()), nil
}

type modArgs struct {
	Mod string `salt:"mod" doc:"name of the module"`
}

func (k kmods) checkAvailable(_ context.Context, c *fn.Call, a modArgs) (bool, error) {
	return slices.Contains(k.kernel(c).Available(), a.Mod), nil
}

func (k kmods) lsmod(_ context.Context, c *fn.Call, _ none) (*value.List, error) {
	out := &value.List{}
	for _, m := range k.kernel(c).Modules() {
		out.Append(value.DictOf("size", m.Size, "module", m.Name, "depcount", m.Users, "deps", value.Strings(m.UsedBy)))
	}
	return out, nil
}

type modListArgs struct {
	OnlyPersist bool `salt:"only_persist" doc:"those that are loaded at boot" default:"false"`
}

func (k kmods) modList(_ context.Context, c *fn.Call, a modListArgs) (*value.List, error) {
	if a.OnlyPersist {
		return value.Strings(k.kernel(c).AtBoot()), nil
	}
	return value.Strings(k.kernel(c).Loaded()), nil
}

func (k kmods) isLoaded(_ context.Context, c *fn.Call, a modArgs) (bool, error) {
	return slices.Contains(k.kernel(c).Loaded(), a.Mod), nil
}

type loadArgs struct {
	Mod     string `salt:"mod" doc:"name of the module, possibly with its parameters"`
	Persist bool   `salt:"persist" doc:"load it at boot too" default:"false"`
}

// changedNames returns names, or the error message of the program, which Salt
// returns as the result.
func changedNames(all []string, err error) (any, error) {
	var failed *kmod.ProgramError
	if errors.As(err, &failed) {
		return failed.Error(), nil
	}
	return value.Strings(all), fn.FromHost(err)
}

func (k kmods) load(ctx context.Context, c *fn.Call, a loadArgs) (any, error) {
	return changedNames(k.kernel(c).Load(ctx, a.Mod, a.Persist))
}

type removeArgs struct {
	Mod     string `salt:"mod" doc:"name of the module"`
	Persist bool   `salt:"persist" doc:"do not load it at boot any more" default:"false"`
	Comment bool   `salt:"comment" doc:"with persist: make its line a comment instead of removing it" default:"true"`
}

func (k kmods) remove(ctx context.Context, c *fn.Call, a removeArgs) (any, error) {
	return changedNames(k.kernel(c).Remove(ctx, a.Mod, a.Persist, a.Comment))
}
