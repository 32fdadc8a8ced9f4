package services

import (
	"brine/internal/call/fn"
	"brine/internal/catalogue/actions/supervisord"
	"brine/internal/host"
)

func init() { units.Register("supervisord", supervisordModule) }

func supervisordModule(m *host.Machine) fn.Module {
	s := supervisord.Control{M: m}
	place := []string{"user", "conf_file", "bin_env"}
	named := append([]string{"name"}, place...)
	return fn.Module{Name: "supervisord",
		Doc: `Programs that the daemon supervisord runs, by way of supervisorctl. A name that ends with a colon is that of a group.`, Funcs: []fn.Func{
			fn.Of("start", s.Do("start"), `Start a program or a group.`, fn.Params(named...), fn.Example("salt '*' supervisord.start <group>:")),
			fn.Of("restart", s.Do("restart"), `Stop a program or a group and start it again.`, fn.Params(named...),
				fn.Example("salt '*' supervisord.restart <service>")),
			fn.Of("stop", s.Do("stop"), `Stop a program or a group.`, fn.Params(named...), fn.Example("salt '*' supervisord.stop <service>")),
			fn.Of("add", s.Known("add"), `Have the daemon run what its configuration says of a program or a group.`,
				fn.Example("salt '*' supervisord.add <name>")),
			fn.Of("remove", s.Known("remove"), `Have the daemon forget a program or a group.`, fn.Example("salt '*' supervisord.remove <name>")),
			fn.Of("reread", s.Reread, `Have the daemon read its configuration, and change nothing yet.`, fn.Params(place...),
				fn.Example("salt '*' supervisord.reread")),
			fn.Of("update", s.Update, `Have the daemon read its configuration and follow it, for all groups or for one.`,
				fn.Example("salt '*' supervisord.update")),
			fn.Of("status", s.Status, `Return the states of programs by their names, and the reasons.`, fn.Example("salt '*' supervisord.status")),
			fn.Of("status_raw", s.StatusRaw, `Return what supervisorctl prints of states.`, fn.Example("salt '*' supervisord.status_raw")),
			fn.Of("status_bool", s.StatusBool, `Say whether a program is in the state that is expected, or running if none is named.`,
				fn.Example("salt '*' supervisord.status_bool nginx expected_state='RUNNING'")),
			fn.Of("custom", s.Custom, `Have supervisorctl do something else.`, fn.Example(`salt '*' supervisord.custom "mstop '*gunicorn*'"`)),
			fn.Of("options", s.Options, `Return what the configuration says of a program.`, fn.Example("salt '*' supervisord.options foo")),
		}}
}
