package files

import (
	"brine/internal/call/fn"
	"brine/internal/catalogue/actions/augeas"
	"brine/internal/host"
)

func init() { units.Register("augeas", augeasModule) }

func augeasModule(m *host.Machine) fn.Module {
	t := augeas.Tool{M: m}
	return fn.Module{Name: "augeas", When: t.Usable, Doc: `Values in configuration files, by augtool(1).`, Funcs: []fn.Func{
		fn.Of("execute", t.Execute, `Change files by commands of augeas. Nothing is written if one of them fails.`,
			fn.Example(`salt '*' augeas.execute /files/etc/redis/redis.conf commands='["set bind 0.0.0.0", "set maxmemory 1G"]'`)),
		fn.Of("get", t.Get, `Return the value of a path.`, fn.Example("salt '*' augeas.get /files/etc/hosts/1/ ipaddr")),
		fn.Of("setvalue", t.Set, `Set the values of paths.`, fn.Example("salt '*' augeas.setvalue /files/etc/hosts/1/canonical localhost")),
		fn.Of("match", t.Match, `Return the paths that an expression finds, with their values; with value, those that have it.`,
			fn.Example("salt '*' augeas.match /files/etc/services/service-name ssh")),
		fn.Of("remove", t.Remove, `Remove a path with all below it.`, fn.Example("salt '*' augeas.remove /files/etc/sysctl.conf/net.ipv4.ip_forward")),
		fn.Of("ls", t.List, `Return what is directly below a path.`, fn.Example("salt '*' augeas.ls /files/etc/passwd")),
		fn.Of("tree", t.Tree, `Return all below a path.`, fn.Example("salt '*' augeas.tree /files/etc/hosts")),
	}}
}
