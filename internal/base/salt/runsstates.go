package salt

var runsStates = map[string]bool{
	"state.apply": true, "state.highstate": true, "state.sls": true, "state.sls_id": true, "state.single": true, "state.top": true, "state.high": true,
	"state.low": true, "state.template": true, "state.template_str": true,
}

// RunsStates reports whether an execution function runs states.
func RunsStates(fun string) bool { return runsStates[fun] }
