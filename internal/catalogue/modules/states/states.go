// Package states holds the execution module state: it applies SLS files to the
// minion, shows their compiled form, and controls active runs. It uses package
// highstate; Deps has what a run needs of the daemon.
package states

import (
	"strings"

	"brine/internal/call/fn"
	"brine/internal/sls/highstate"
)

// Deps are what the module needs of the minion.
type Deps struct {
	highstate.Deps
	// Running lists the active jobs of this minion, including those of other
	// processes.
	Running func() []Job
	// Autoload makes a highstate fetch the user's own modules first.
	Autoload bool
	// Configured returns a call with the minion's options overridden by a
	// file, which the argument localconfig names.
	Configured func(c *fn.Call, path string) (*fn.Call, error)
}

// Job is an active job.
type Job struct {
	JID, Fun string
	PID      int
}

// Exit codes of runs.
const (
	codeCompile = 1
	codeFailure = 2
	codePillar  = 5
)

type mod struct {
	deps Deps
	gate *gate
}

// args are the arguments of all functions; each takes some of them.
type args struct {
	Mods        any       `salt:"mods" doc:"names of SLS files, as a list or with commas"`
	IDs         any       `salt:"ids" doc:"ids of states, as a list or with commas"`
	ID          string    `salt:"id_" doc:"id of a state"`
	Top         string    `salt:"topfn" doc:"name of the top file"`
	Tem         string    `salt:"tem" doc:"the template"`
	Data        any       `salt:"data" doc:"the data"`
	Fun         string    `salt:"fun" doc:"state function, such as file.absent"`
	Name        any       `salt:"name" doc:"name of what the state is about"`
	Test        any       `salt:"test" doc:"only show what would be done; null: as configured" default:"null"`
	Exclude     any       `salt:"exclude" doc:"SLS files, or maps of sls or id, that are left out" default:"null"`
	Queue       any       `salt:"queue" doc:"wait for other state runs: true, or for how many at most; null: as configured" default:"null"`
	SyncMods    any       `salt:"sync_mods" doc:"kinds of the user's own modules to fetch first, as a list or with commas, or all" default:"null"`
	StateEvents *bool     `salt:"state_events" doc:"tell the master of every state as it is done; null: as configured" default:"null"`
	Kwargs      fn.Kwargs `salt:"kwargs"`
}

// Module returns the module.
func Module(d Deps) fn.Module {
	m := &mod{deps: d, gate: newGate(d.Running)}
	return fn.Module{Name: "state", Doc: `Bring the minion into the state that SLS files describe.`,
		Funcs: append(append(append(m.runs(), m.shows()...), m.requests()...), m.controls()...)}
}

func takes(names string, opts ...fn.Option) []fn.Option {
	return append(opts, fn.Params(strings.Fields(names)...))
}

var asStates = fn.Out("highstate")

func (m *mod) runs() []fn.Func {
	return []fn.Func{
		fn.Of("apply", m.apply, `Apply SLS files, or without names all that the top file gives this minion.`,
			takes("mods", asStates, fn.Default("mods", "null"), fn.Example("salt '*' state.apply web,db test=True"))...),
		fn.Of("highstate", m.highstate, `Apply all that the top file gives this minion.`,
			takes("test queue state_events", asStates, fn.Example("salt '*' state.highstate exclude='[base_packages]'"))...),
		fn.Of("sls", m.sls, `Apply SLS files.`,
			takes("mods test exclude queue sync_mods state_events", asStates, fn.Example(`salt '*' state.sls web,db pillar='{"port": 81}'`))...),
		fn.Of("top", m.top, `Apply what another top file gives this minion.`,
			takes("topfn test queue", asStates, fn.Example("salt '*' state.top reverse_top.sls"))...),
		fn.Of("test", m.test, `Show what state.apply would do.`,
			takes("mods", asStates, fn.Default("mods", "null"), fn.Example("salt '*' state.test web"))...),
		fn.Of("sls_id", m.slsID, `Apply one state of SLS files, and what it requires.`,
			takes("id_ mods test queue state_events", asStates, fn.Example("salt '*' state.sls_id my_state web"))...),
		fn.Of("single", m.single, `Apply one state, given by its arguments.`,
			takes("fun name test queue", asStates, fn.Example("salt '*' state.single file.absent /tmp/old"))...),
		fn.Of("low", m.low, `Apply one low chunk.`,
			takes("data queue", fn.Example(`salt '*' state.low '{"state": "pkg", "fun": "installed", "name": "vi"}'`))...),
		fn.Of("high", m.high, `Apply high data.`, takes("data test queue", fn.Example(`salt '*' state.high '{"vim": {"pkg": ["installed"]}}'`))...),
		fn.Of("template", m.template, `Apply an SLS file of the minion itself.`,
			takes("tem queue", asStates, fn.Example("salt '*' state.template /srv/local.sls"))...),
		fn.Of("template_str", m.templateStr, `Apply the text of an SLS.`,
			takes("tem queue", asStates, fn.Example("salt '*' state.template_str 'a: test.nop'"))...),
	}
}

func (m *mod) shows() []fn.Func {
	return []fn.Func{
		fn.Of("show_highstate", m.showHighstate, `Show the high data of what the top file gives this minion.`,
			takes("queue", fn.Example("salt '*' state.show_highstate"))...),
		fn.Of("show_lowstate", m.showLowstate, `Show the chunks of what the top file gives this minion, in the order in which they run.`,
			takes("queue", fn.Example("salt '*' state.show_lowstate"))...),
		fn.Of("show_sls", m.showSLS, `Show the high data of SLS files.`, takes("mods test queue", fn.Example("salt '*' state.show_sls web"))...),
		fn.Of("show_low_sls", m.showLowSLS, `Show the chunks of SLS files.`, takes("mods test queue", fn.Example("salt '*' state.show_low_sls web"))...),
		fn.Of("show_top", m.showTop, `Show which SLS files the top file gives this minion.`, takes("queue", fn.Example("salt '*' state.show_top"))...),
		fn.Of("show_states", m.showStates, `List the SLS files that apply to this minion, with those that others include.`,
			takes("queue", fn.Example("salt '*' state.show_states"))...),
		fn.Of("show_state_usage", m.showUsage, `Show which SLS files of each environment the top file gives this minion, and which not.`,
			takes("queue", fn.Example("salt '*' state.show_state_usage"))...),
		fn.Of("sls_exists", m.slsExists, `Say whether SLS files are there and can be rendered.`,
			takes("mods test queue", fn.Example("salt '*' state.sls_exists web"))...),
		fn.Of("id_exists", m.idExists, `Say whether SLS files have states of some ids.`,
			takes("ids mods test queue", fn.Example("salt '*' state.id_exists nginx web"))...),
	}
}
