package network

import (
	"brine/internal/call/fn"
	"brine/internal/catalogue/actions/hosts"
	"brine/internal/host"
)

func init() { units.Register("hosts", hostsModule) }

func hostsModule(m *host.Machine) fn.Module {
	h := hosts.File{M: m}
	return fn.Module{Name: "hosts", Doc: `The file that names addresses: /etc/hosts, or what the option hosts.file names.`, Funcs: []fn.Func{
		fn.Of("list_hosts", h.List, `Return all addresses with their names.`, fn.Example("salt '*' hosts.list_hosts")),
		fn.Of("get_ip", h.Ip, `Return the address of a name, or an empty text.`, fn.Example("salt '*' hosts.get_ip db1")),
		fn.Of("get_alias", h.Names, `Return the names of an address.`, fn.Example("salt '*' hosts.get_alias 10.0.0.1")),
		fn.Of("has_pair", h.Has, `Say whether an address has a name, or all of several.`, fn.Example("salt '*' hosts.has_pair 10.0.0.1 db1")),
		fn.Of("set_host", h.Set, `Make a name, or several with blanks, all the names of an address; an empty text removes it.`,
			fn.Example("salt '*' hosts.set_host 10.0.0.1 db1")),
		fn.Of("add_host", h.Add, `Give an address another name.`, fn.Example("salt '*' hosts.add_host 10.0.0.1 db1")),
		fn.Of("rm_host", h.Remove, `Take a name from an address.`, fn.Example("salt '*' hosts.rm_host 10.0.0.1 db1")),
		fn.Of("set_comment", h.Comment, `Set the comment of an address.`, fn.Example("salt '*' hosts.set_comment 10.0.0.1 'the database'")),
	}}
}
