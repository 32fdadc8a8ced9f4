package output

import (
	"regexp"
	"strconv"
	"strings"
	"testing"

	"brine/internal/py/value"
)

// For recorded state runs (testdata/golden/cli) without data, the data is parsed from the output,
// which must render the same again.

var (
	escape = regexp.MustCompile(`\x1b\[[\d;]*m`)
	terse  = regexp.MustCompile(`^  Name: (.*) - Function: (\S+) - Result: (\w+) - Started: (\S*) - Duration: ([\d.]+) ms$`)
)

// stateReader parses output of the outputter highstate.
type stateReader struct {
	lines []string
	hosts *value.Dict
	run   int
}

func readStates(text string) *value.Dict {
	r := &stateReader{lines: strings.Split(escape.ReplaceAllString(text, ""), "\n"), hosts: value.NewDict(1)}
	var states *value.Dict
	for len(r.lines) > 0 {
		l := r.lines[0]
		switch {
		case states != nil && l == "----------" && len(r.lines) > 1 && strings.HasPrefix(r.lines[1], "          ID: "):
			r.lines = r.lines[1:]
			r.block(states)
			continue
		case states != nil && terse.MatchString(l):
			m := terse.FindStringSubmatch(l)
			s := value.DictOf("name", m[1], "__id__", m[1], "comment", "", "start_time", m[4], "duration", number(m[5]), "changes", value.NewDict(0),
				"result", true)
			switch m[3] {
			case "Changed":
				s.Set("changes", value.DictOf("a", "b"))
			case "Failed":
				s.Set("result", false)
			case "Differs":
				s.Set("result", nil)
			}
			r.add(states, s, m[2])
		case regexp.MustCompile(`^\S+:$`).MatchString(l):
			states = value.NewDict(4)
			r.hosts.Set(strings.TrimSuffix(l, ":"), states)
			r.run = 0
		case strings.HasPrefix(l, "Summary for "):
			states = nil
		}
		r.lines = r.lines[1:]
	}
	return r.hosts
}

func number(text string) any {
	if f, err := strconv.ParseFloat(text, 64); err == nil {
		return f
	}
	return text
}

func (r *stateReader) add(states, s *value.Dict, fun string) {
	s.Set("__run_num__", r.run)
	r.run++
	mod, f, _ := strings.Cut(fun, ".")
	states.Set(strings.Join([]string{mod, s.Str("__id__"), s.Str("name"), f}, stateSep), s)
}

// block parses one full result.
func (r *stateReader) block(states *value.Dict) {
	s := value.DictOf("changes", value.NewDict(0))
	fun, last := "", ""
	for len(r.lines) > 0 && r.lines[0] != "" && r.lines[0] != "----------" {
		l := r.lines[0]
		r.lines = r.lines[1:]
		name, v, ok := strings.Cut(l, ":")
		if !ok || len(name) != 12 || strings.HasPrefix(l, strings.Repeat(" ", 14)) { // continues the comment
			s.Set(last, s.Str(last)+"\n"+strings.TrimPrefix(l, strings.Repeat(" ", 14)))
			continue
		}
		v = strings.TrimPrefix(v, " ")
		last = strings.ToLower(strings.TrimSpace(name))
		switch last {
		case "id":
			s.Set("__id__", v)
			s.Set("name", v)
		case "function":
			fun = v
		case "result":
			s.Set("result", map[string]any{"True": true, "False": false}[v])
		case "started":
			s.Set("start_time", v)
		case "duration":
			s.Set("duration", number(strings.TrimSuffix(v, " ms")))
		case "changes":
			var nested []string
			for len(r.lines) > 0 && strings.HasPrefix(r.lines[0], strings.Repeat(" ", 14)) {
				nested = append(nested, r.lines[0][14:])
				r.lines = r.lines[1:]
			}
			if len(nested) > 0 {
				s.Set("changes", readNested(nested))
			}
		default:
			s.Set(last, v)
		}
	}
	r.add(states, s, fun)
}

// readNested parses a map or string from output of the outputter nested.
func readNested(lines []string) any {
	if lines[0] != "----------" {
		text := strings.Join(lines, "\n")
		if n, err := strconv.ParseInt(text, 10, 64); err == nil {
			return n
		}
		return text
	}
	d := value.NewDict(4)
	for lines = lines[1:]; len(lines) > 0; {
		key := strings.TrimSuffix(lines[0], ":")
		lines = lines[1:]
		var inner []string
		for len(lines) > 0 && strings.HasPrefix(lines[0], "    ") {
			inner = append(inner, lines[0][4:])
			lines = lines[1:]
		}
		if len(inner) == 0 {
			d.Set(key, "")
		} else {
			d.Set(key, readNested(inner))
		}
	}
	return d
}

// The same SLS as in TestHighstateForms, run by other programs.
func TestRecordedFailures(t *testing.T) {
	data := fromJSON(t, recording(t, "state_fail_json", "stdout"))
	short := func(o *Options) { o.StateOutput = "terse" }
	for _, rec := range []string{"call_state_fail", "call_state_retcode"} {
		got := strings.NewReplacer("alpha", "local").Replace(render(t, "highstate", data, short))
		same(t, mask(got), mask(recording(t, rec, "stdout")))
	}
	want, _, _ := strings.Cut(recording(t, "state_fail_summary_cli", "stdout"), "\n\n\n")
	same(t, mask(render(t, "highstate", data, nil)), mask(want+"\n"))
}

func TestRecordedStates(t *testing.T) {
	form := func(f string) func(*Options) { return func(o *Options) { o.StateOutput = f } }
	for rec, change := range map[string]func(*Options){
		"call_state": nil, "run_jobs_lookup_state": nil,
		"state_apply_changes": nil, "state_apply_edit_diff": nil, "state_apply_edit_test": nil, "state_apply_highstate": nil, "state_apply_nochange": nil,
		"state_apply_test_true": nil, "state_bad_function": nil, "state_changes_color": inColor, "state_check_pillar": nil,
		"state_ok_verbose_false": func(o *Options) { o.StateVerbose = false }, "state_running_queue": form("terse"), "state_single": nil,
		"state_single_test": nil,
		"state_test_color":  inColor, "state_two_minions": form("terse"),
	} {
		t.Run(rec, func(t *testing.T) {
			want := recording(t, rec, "stdout")
			data := readStates(want)
			if data.Len() == 0 {
				t.Fatal("no minion found")
			}
			if rec == "state_ok_verbose_false" { // two states are not shown
				for _, id := range []string{"x", "y"} {
					s := value.DictOf("name", id, "__id__", id, "comment", "", "start_time", "", "duration", 0.874, "changes", value.NewDict(0), "result",
						true, "__run_num__", 9)
					data.Dict("alpha").Set("test_|-"+id+"_|-"+id+"_|-nop", s)
				}
			}
			same(t, render(t, "highstate", data, change), want)
		})
	}
}
