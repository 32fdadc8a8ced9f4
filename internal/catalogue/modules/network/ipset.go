package network

import (
	"brine/internal/call/fn"
	"brine/internal/catalogue/actions/ipset"
	"brine/internal/host"
)

func init() { units.Register("ipset", ipsetModule) }

func ipsetModule(m *host.Machine) fn.Module {
	x := ipset.Sets{M: m}
	when := func(fn.Reader) (string, bool) {
		return "The ipset execution modules cannot be loaded: ipset binary not in path.", m.Which("ipset") != ""
	}
	family := fn.Ignored("a set has its family", "family")
	return fn.Module{Name: "ipset", When: when, Doc: `Sets of addresses, networks and ports for the packet filter, by ipset(8).`, Funcs: []fn.Func{
		fn.Of("version", x.Version, `Return the version of ipset.`, fn.Example("salt '*' ipset.version")),
		fn.Of("new_set", x.New, `Create a set. Returns true, or what is wrong.`, fn.Example("salt '*' ipset.new_set custom_set list:set comment=True")),
		fn.Of("delete_set", x.DeleteSet, `Delete a set. Returns true, or what is wrong.`, family, fn.Example("salt '*' ipset.delete_set custom_set")),
		fn.Of("rename_set", x.Rename, `Rename a set. Returns true, or what is wrong.`,
			family, fn.Example("salt '*' ipset.rename_set custom_set new_set=new_set_name")),
		fn.Of("list_sets", x.List, `Return all sets, without their entries.`, family, fn.Example("salt '*' ipset.list_sets")),
		fn.Of("check_set", x.CheckSet, `Report whether a set exists.`, family, fn.Example("salt '*' ipset.check_set name")),
		fn.Of("add", x.Add, `Add an entry to a set. Returns Success, or what is wrong.`,
			family, fn.Example("salt '*' ipset.add name 192.168.0.3,AA:BB:CC:DD:EE:FF")),
		fn.Of("delete", x.DeleteEntry, `Delete an entry of a set. Returns Success, or what is wrong.`,
			family, fn.Example("salt '*' ipset.delete name 192.168.0.3,AA:BB:CC:DD:EE:FF")),
		fn.Of("check", x.Check, `Report whether a set has an entry, or one that stands for it.`,
			family, fn.Example(`salt '*' ipset.check name '192.168.0.1 comment "Hello"'`)),
		fn.Of("test", x.Test, `Report whether the kernel finds an entry in a set.`, family, fn.Example("salt '*' ipset.test name 192.168.0.2")),
		fn.Of("flush", x.Flush, `Delete all entries of a set, or of all sets, and report whether that succeeded.`, family, fn.Example("salt '*' ipset.flush set")),
	}}
}
