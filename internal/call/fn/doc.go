// Package fn declares functions that are called by name: execution modules, runners, wheels. A Go
// function and the tags of its argument struct are the only declaration. Argument binding, Salt's
// argument errors, sys.doc and sys.argspec are derived from it.
//
//	type chownArgs struct {
//		Path string `salt:"path" doc:"path to change"`
//		User string `salt:"user" doc:"new owner, name or uid"`
//		Mode string `salt:"mode" doc:"new mode" default:"null"`
//	}
//	fn.Of("chown", file{}.chown, `Set the owner of a path.`, fn.Example("salt '*' file.chown /etc/motd root"))
//
// The order of the fields is the order of positional arguments, a default makes an argument
// optional, and the tags are those of package field. A field of type Args takes all further
// positional arguments (*args); fields after it can only be given by name. A field of type Kwargs
// takes all further keywords (**kwargs).
//
// A Registry is a set of modules whose functions are looked up as "module.function". Run executes a
// function as a job and returns the job's result; it turns errors and panics into Salt's messages.
// Arguments and results use the types of package value.
//
// The package does not depend on transports, daemons or states.
package fn
