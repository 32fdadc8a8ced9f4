package minion

import (
	"slices"

	"brine/internal/call/fn"
	"brine/internal/py/value"
)

// permitted returns the modules that disable_modules (off) and whitelist_modules
// (only) allow. Salt compares the first with file names and the second with the
// names in functions; its sample configuration has file names in both. Here both
// options accept both names, so that no module stays enabled because the
// administrator used the other name.
func permitted(all []fn.Module, off, only []string, grains fn.Reader) []fn.Module {
	if len(off) == 0 && len(only) == 0 {
		return all
	}
	return slices.DeleteFunc(all, func(mod fn.Module) bool {
		names := append([]string{mod.Name, saltFile(mod.Name, grains)}, mod.Aliases...)
		in := func(list []string) bool {
			return slices.ContainsFunc(names, func(n string) bool { return n != "" && slices.Contains(list, n) })
		}
		return in(off) || len(only) > 0 && !in(only)
	})
}

// saltFiles maps modules to Salt's file names where they differ.
var saltFiles = map[string]string{
	"acl": "linux_acl", "cmd": "cmdmod", "debconf": "debconfmod", "group": "groupadd", "ini": "ini_manage", "locale": "localemod", "log": "logmod",
	"lvm": "linux_lvm", "random": "mod_random", "shadow": "linux_shadow", "sys": "sysmod", "sysctl": "linux_sysctl", "user": "useradd",
	"virtualenv": "virtualenv_mod",
}

// saltFile uses these for modules that have one file per operating system in Salt.
var (
	pkgFiles     = map[string]string{"Debian": "aptpkg", "RedHat": "yumpkg"}
	lowpkgFiles  = map[string]string{"Debian": "dpkg_lowpkg", "RedHat": "rpm_lowpkg"}
	serviceFiles = map[string]string{"Debian": "debian_service", "RedHat": "rh_service", "Alpine": "gentoo_service"} // without systemd
)

// saltFile returns the name of a module's file in Salt on a machine with these grains, or
// "" if it is the name of the module.
func saltFile(mod string, grains fn.Reader) string {
	family := value.Str(grains.Get("os_family"))
	switch mod {
	case "pkg":
		return pkgFiles[family]
	case "lowpkg":
		return lowpkgFiles[family]
	case "service":
		if grains.Get("init") == "systemd" {
			return "systemd_service"
		}
		return serviceFiles[family]
	}
	return saltFiles[mod]
}
