// Package fn declares things that can be called by name: execution modules,
// runners, wheels. One Go function and the tags of its argument struct are
// the only declaration; binding, Salt's argument errors, sys.doc and
// sys.argspec are derived from it.
//
//	type chownArgs struct {
//		Path string `salt:"path" doc:"path to change"`
//		User string `salt:"user" doc:"new owner, name or uid"`
//		Mode string `salt:"mode" doc:"new mode" default:"null"`
//	}
//	fn.Of("chown", file{}.chown, `Set the owner of a path.`, fn.Example("salt '*' file.chown /etc/motd root"))
//
// The order of the fields is the order of positional arguments, a default
// makes an argument optional, and the tags are those of package field. A
// field of type Args takes all further positional arguments (*args); fields
// after it can only be given by name. A field of type Kwargs takes all further
// keywords (**kwargs).
//
// A Registry is a set of modules whose functions are looked up as
// "module.function". Run executes one of them as a job does and says what the
// job returns; it turns errors and panics into Salt's texts. Values that go
// in and come out are of the model of package value.
//
// The package knows of no transport, no daemon and no state system.
package fn
