package files

import (
	"brine/internal/call/fn"
	"brine/internal/catalogue/actions/acl"
	"brine/internal/host"
)

func init() { units.Register("acl", aclModule) }

func aclModule(m *host.Machine) fn.Module {
	a := acl.Lists{M: m}
	when := func(fn.Reader) (string, bool) {
		return "The linux_acl execution module cannot be loaded: the getfacl binary is not in the path.", m.Which("getfacl") != ""
	}
	return fn.Module{Name: "acl", When: when, Doc: `Access control lists of files.`, Funcs: []fn.Func{
		fn.Of("version", a.Version, `Return the version of getfacl.`, fn.Example("salt '*' acl.version")),
		fn.Of("getfacl", a.Get, `Return the access control lists of files by their paths. The keyword is recursive.`,
			fn.Example("salt '*' acl.getfacl /tmp/house/kitchen recursive=true")),
		fn.Of("wipefacls", a.Wipe, `Remove all but the owner's, the group's and others' rights. The keyword is recursive.`,
			fn.Example("salt '*' acl.wipefacls /tmp/house/kitchen")),
		fn.Of("modfacl", a.Modify,
			`Set the rights of a user or group: acl_type is user, group or mask, for the rights that new files get with "default:" before it.
			The keywords are recursive and raise_err.`, fn.Example("salt '*' acl.modfacl default:group mygroup rx /tmp/house/kitchen recursive=True")),
		fn.Of("delfacl", a.Remove, `Remove the rights of a user or group. The keyword is recursive.`,
			fn.Example("salt '*' acl.delfacl user myuser /tmp/house/kitchen")),
	}}
}
