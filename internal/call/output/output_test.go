package output

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"brine/internal/base/field"
	"brine/internal/py/value"
	"brine/test/fuzztest"
	"brine/test/tools"
)

// recording returns a section of one of the recordings of Salt's programs.
func recording(t *testing.T, name, section string) string {
	t.Helper()
	ar, err := txtar.ParseFile(filepath.Join("../../../testdata/golden/cli", name+".txt"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range ar.Files {
		if f.Name == section {
			return string(f.Data)
		}
	}
	t.Fatalf("%s has no section %s", name, section)
	return ""
}

// decode decodes one JSON document, keeping the order of keys.
func decode(t testing.TB, dec *json.Decoder) any {
	t.Helper()
	dec.UseNumber()
	tok, err := dec.Token()
	if err != nil {
		t.Fatal(err)
	}
	switch x := tok.(type) {
	case json.Delim:
		if x == '[' {
			l := &value.List{}
			for dec.More() {
				l.Append(decode(t, dec))
			}
			closing(t, dec)
			return l
		}
		d := value.NewDict(0)
		for dec.More() {
			k := decode(t, dec)
			d.Set(k, decode(t, dec))
		}
		closing(t, dec)
		return d
	case json.Number:
		if i, ok := new(big.Int).SetString(x.String(), 10); ok {
			return value.Big(i)
		}
		f, err := x.Float64()
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	return tok
}

func closing(t testing.TB, dec *json.Decoder) {
	t.Helper()
	if _, err := dec.Token(); err != nil {
		t.Fatal(err)
	}
}

func fromJSON(t testing.TB, text string) any {
	t.Helper()
	return decode(t, json.NewDecoder(strings.NewReader(text)))
}

// defaults returns the options of an unconfigured program.
func defaults(t testing.TB) Options {
	t.Helper()
	var o Options
	if err := field.Defaults(&o); err != nil {
		t.Fatal(err)
	}
	return o
}

func render(t testing.TB, name string, data any, change func(*Options)) string {
	t.Helper()
	o := defaults(t)
	if change != nil {
		change(&o)
	}
	var b bytes.Buffer
	if err := New(o, slog.New(slog.DiscardHandler)).Print(&b, name, data, Call{}); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func same(t *testing.T, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

func inColor(o *Options) { o.Color = new(true) }

// The recordings all show the same pillar, so the data of the JSON recording must render to the
// bytes of the others.
func TestPillarInAllForms(t *testing.T) {
	data := fromJSON(t, recording(t, "pillar_items_json_indent0", "stdout"))
	for _, tc := range []struct {
		rec, out string
		change   func(*Options)
	}{
		{"pillar_items", "nested", nil},
		{"pillar_items", "", nil},
		{"pillar_items_color", "nested", inColor},
		{"pillar_items_raw", "raw", nil},
		{"pillar_items_txt", "txt", nil},
		{"pillar_items_txt", "text", nil},
		{"pillar_items_yaml", "yaml", nil},
		{"pillar_items_no_return", "no_return", nil},
		{"pillar_items_json_indent0", "json", func(o *Options) { o.Indent = Indent{Given: true, Width: 2} }},
		{"pillar_items", "table", nil}, // not tabular
		{"pillar_items", "nosuch", nil},
	} {
		t.Run(tc.rec+"/"+tc.out, func(t *testing.T) {
			same(t, render(t, tc.out, data, tc.change), recording(t, tc.rec, "stdout"))
		})
	}
}

// Each JSON recording must render to itself.
func TestJSONRecordings(t *testing.T) {
	for _, name := range []string{
		"test_ping_json", "test_ping_json_static", "test_ping_json_noreturn", "test_ping_json_indent_neg",
		"cmd_run_json", "err_exception_json", "key_list_json", "state_apply_edit_json", "state_fail_json",
		"run_manage_status_json", "run_jobs_lookup_json", "call_json",
	} {
		t.Run(name, func(t *testing.T) {
			text := recording(t, name, "stdout")
			var change func(*Options)
			if strings.HasSuffix(name, "_neg") {
				change = func(o *Options) { o.Indent = Indent{Given: true, Width: -1} }
			}
			if i := strings.IndexAny(text, "{["); i > 0 {
				text = text[i:]
			}
			dec := json.NewDecoder(strings.NewReader(text))
			var got strings.Builder
			for dec.More() {
				got.WriteString(render(t, "json", decode(t, dec), change))
			}
			want := regexp.MustCompile(`(?m)^[^\s{}"\[\]].*\n|^\n`).ReplaceAllString(text, "")
			same(t, got.String(), want)
		})
	}
}

func TestSmallRecordings(t *testing.T) {
	types := fromJSON(t, `{"alpha": {"a": null, "b": true, "c": false, "d": 1, "e": 1.5, "f": "", "g": [], "h": {}, "i": [1, [2, 3], {"x": "y"}], `+
		`"j": "multi\nline"}}`)
	lines := fromJSON(t, `{"alpha": "one\ntwo"}`)
	noReturn := fromJSON(t, `{"gamma": "Minion did not return. [No response]\nThe minions may not have all finished running and any remaining `+
		`minions will return upon completion. To look up the return data for this job later, run the following command:\n\nsalt-run jobs.lookup_jid `+
		`20261121040205511730"}`)
	sls := func(errs string) any { return fromJSON(t, `{"alpha": [`+errs+`]}`) }
	for _, tc := range []struct {
		rec, out string
		data     any
		change   func(*Options)
	}{
		{"test_types", "nested", types, nil},
		{"test_types_color", "nested", types, inColor},
		{"test_ping_color", "nested", fromJSON(t, `{"alpha": true}`), inColor},
		{"test_ping_noreturn_color", "no_return", noReturn, inColor},
		{"cmd_run_txt", "txt", lines, nil},
		{"cmd_run_raw", "raw", lines, nil},
		{"cmd_run_nvo", "newline_values_only", lines, nil},
		{"cmd_run_json", "json", lines, nil},
		{"cmd_run_yaml", "yaml", lines, nil},
		{"cmd_run_color", "nested", fromJSON(t, `{"alpha": "one\n  two"}`), inColor},
		{"cmd_run_multiline", "nested", fromJSON(t, `{"alpha": "one\n  two\n\nthree"}`), nil},
		{"cmd_run_unicode", "nested", fromJSON(t, `{"alpha": "héllo ✓"}`), nil},
		{"cmd_run_pprint", "pprint", fromJSON(t, `{"alpha": {"retcode": 0, "stdout": "one\ntwo", "pid": 32567, "stderr": ""}}`), nil},
		{"test_ping_quiet", "quiet", types, nil},
		{"pillar_get_missing", "nested", fromJSON(t, `{"alpha": ""}`), nil},
		{"grains_get_nested", "nested", fromJSON(t, `{"alpha": {"rack": 7, "env": "lab"}}`), nil},
		{"state_missing_sls", "highstate", sls(`"No matching sls found for 'nosuch' in env 'base'"`), nil},
		{"state_bad_yaml", "highstate",
			sls(`"Rendering SLS 'base:broken' failed: while parsing a flow sequence\n  in \"<unicode string>\", line 1, column 11\ndid not find ` +
				`expected ',' or ']'\n  in \"<unicode string>\", line 2, column 7"`), nil},
		{"key_list_force_color", "key",
			fromJSON(t, `{"minions": ["gamma"], "minions_pre": ["beta", "alpha", "delta", "eta", "theta"], "minions_rejected": ["epsilon"], `+
				`"minions_denied": ["zeta"]}`), inColor},
		{"key_gen_keys", "key", fromJSON(t, `{"return": "ee:c4:9b:67:d1:98:60:03:ae:ea:be:be:d3:0e:6b:22:3c:a5:16:4e:d3:3f:29:6b:3c:36:7a:a0:be:b0:ab:ba"}`),
			nil},
		{"key_gen_signature", "key", fromJSON(t, `{"return": true}`), nil},
	} {
		t.Run(tc.rec, func(t *testing.T) {
			same(t, render(t, tc.out, tc.data, tc.change), recording(t, tc.rec, "stdout"))
		})
	}
}

// mask hides values that differ between two runs of the same states.
func mask(s string) string {
	s = regexp.MustCompile(`\d\d:\d\d:\d\d\.\d+`).ReplaceAllString(s, "TIME")
	s = regexp.MustCompile(`Duration: [\d.]+ ms`).ReplaceAllString(s, "Duration: MS")
	s = regexp.MustCompile(`Total run time: +[\d.]+ m?s`).ReplaceAllString(s, "Total run time: T")
	return regexp.MustCompile(`(pid\S*:\n\s*(?:\x1b\[0;1;33m)?)\d+`).ReplaceAllString(s, "${1}PID")
}

// All recordings of `state.apply fail` come from the same SLS, so the data of the JSON recording
// must render to each of them, except for times and pids.
func TestHighstateForms(t *testing.T) {
	data := fromJSON(t, recording(t, "state_fail_json", "stdout"))
	form := func(f string) func(*Options) { return func(o *Options) { o.StateOutput = f } }
	for rec, change := range map[string]func(*Options){
		"state_fail_full":           nil,
		"state_fail_full_color":     inColor,
		"state_fail_full_id":        form("full_id"),
		"state_fail_terse":          form("terse"),
		"state_fail_terse_id":       form("terse_id"),
		"state_ok_terse_color":      func(o *Options) { o.StateOutput = "terse"; o.Color = new(true) },
		"state_fail_mixed":          form("mixed"),
		"state_fail_mixed_id":       form("mixed_id"),
		"state_fail_changes":        form("changes"),
		"state_fail_changes_id":     form("changes_id"),
		"state_fail_filter_exclude": func(o *Options) { o.StateOutput = "filter"; o.StateExclude = []string{"bad", "True"} },
		"state_fail_verbose_false":  func(o *Options) { o.StateVerbose = false },
		"state_output_diff":         func(o *Options) { o.StateDiff = true },
	} {
		t.Run(rec, func(t *testing.T) {
			same(t, mask(render(t, "highstate", data, change)), mask(recording(t, rec, "stdout")))
		})
	}
}

func TestYAMLAndNestedOfStates(t *testing.T) {
	data := fromJSON(t, recording(t, "state_fail_json", "stdout"))
	hide := func(s string) string {
		s = regexp.MustCompile(`(duration:\s+)[\d.]+`).ReplaceAllString(s, "${1}MS")
		s = regexp.MustCompile(`(pid:\s+)\d+`).ReplaceAllString(s, "${1}PID")
		return mask(s)
	}
	same(t, hide(render(t, "nested", data, nil)), hide(recording(t, "state_fail_nested", "stdout")))
	same(t, hide(render(t, "yaml", data, nil)), hide(recording(t, "state_fail_yaml", "stdout")))
}

func TestUnknownOutputterIsLogged(t *testing.T) {
	var b bytes.Buffer
	h := slog.NewTextHandler(&b, nil)
	p := New(defaults(t), slog.New(h))
	same(t, p.Render("compact", value.DictOf("beta", true), Call{}), "beta:\n    True")
	want := strings.TrimPrefix(strings.SplitN(recording(t, "test_ping_compact_unknown_out", "stderr"), "\n", 2)[0], "[ERROR   ] ")
	if !strings.Contains(b.String(), `level=ERROR msg="`+want+`"`) {
		t.Errorf("log %q lacks %q", b.String(), want)
	}
}

func TestEscapesFromData(t *testing.T) {
	data := value.DictOf("a\x1b[2J", "x\x1b[0m", "b", value.ListOf("\x1b]0;t\a"))
	if got := render(t, "nested", data, nil); strings.Contains(got, "\x1b") {
		t.Errorf("escape character passed through: %q", got)
	}
	if got := render(t, "nested", value.DictOf("a", "b\u009b2Jc\u0086\a\b \u00e9 \xff\u00a0d"), nil); !strings.Contains(got, "b?2Jc??? \u00e9 \xff\u00a0d") {
		t.Errorf("control characters passed through, or others did not: %q", got)
	}
	raw := func(o *Options) { o.StripColors = false }
	if got := render(t, "nested", data, raw); !strings.Contains(got, "x\x1b[0m") {
		t.Errorf("strip_colors: false still strips: %q", got)
	}
	state := fromJSON(t, `{"m": {"t_|-i\u001b_|-n_|-f": {"result": false, "comment": "\u001b[1m", "changes": {"a": "\u001b"}, "__run_num__": 0, `+
		`"warnings": ["\u001b"]}}}`)
	if got := render(t, "highstate", state, nil); strings.Contains(got, "\x1b") {
		t.Errorf("escape character passed through highstate: %q", got)
	}
}

func TestIndentValue(t *testing.T) {
	for _, v := range []any{nil, int64(0), int64(3), "pretty"} {
		var i Indent
		if err := i.SetValue(v); err != nil {
			t.Fatal(err)
		}
		if !value.Equal(i.Value(), v) {
			t.Errorf("%v became %v", v, i.Value())
		}
	}
	var i Indent
	if err := i.SetValue("wide"); err == nil {
		t.Error("a word other than pretty was accepted")
	}
}

func TestProfile(t *testing.T) {
	data := fromJSON(t, `{"m": {"file_|-i_|-/etc/x_|-managed": {"name": "/etc/x", "duration": 63.145}, "pkg_|-j_|-j_|-installed": {"__id__": "j"}}}`)
	same(t, render(t, "profile", data, nil), `    ------------------------------------------
    |  name  |    mod.fun    | duration (ms) |
    ------------------------------------------
    |   j    | pkg.installed |       -1.0000 |
    ------------------------------------------
    | /etc/x |  file.managed |       63.1450 |
    ------------------------------------------
`)
	same(t, render(t, "profile", fromJSON(t, `{"m": {"a": {"duration": "long"}}}`), nil),
		render(t, "nested", fromJSON(t, `{"m": {"a": {"duration": "long"}}}`), nil))
	long := render(t, "profile", fromJSON(t, `{"m": {"a": {"name": "`+strings.Repeat("nine char ", 6)+`"}}}`), nil)
	if n := strings.Count(long, "nine char"); n != 6 { // Salt loses wrapped lines
		t.Errorf("a wrapped name is incomplete:\n%s", long)
	}
	same(t, render(t, "progress", data, nil), render(t, "nested", data, nil))
}

// oracle runs Salt's own outputters: one case per input line, the rendered text as JSON as output.
const oracle = `
import json, sys, logging
logging.disable(logging.CRITICAL)
import salt.output, salt.config, tempfile, types
sys.modules["progressbar"] = types.ModuleType("progressbar") # the outputter progress is there only with it
base = dict(salt.config.DEFAULT_MASTER_OPTS, extension_modules=tempfile.gettempdir() + "/none", strip_colors=True)
for line in sys.stdin:
    c = json.loads(line)
    opts = dict(base, color=c["color"])
    opts.update(c["opts"])
    try:
        text = salt.output.out_format(c["data"], c["out"], opts, **c.get("kw", {}))
    except Exception as exc:
        text = "RAISED " + repr(exc)
    print(json.dumps(text), flush=True)
`

type oracleCase struct {
	out    string
	data   string
	color  bool
	opts   string // JSON
	change func(*Options)
	call   Call
	kw     string // JSON
}

// TestAgainstSalt compares with Salt's own outputters if they are installed.
func TestAgainstSalt(t *testing.T) {
	src, python := tools.StockSalt(t)
	cmd := exec.Command(python, "-W", "ignore", "-c", oracle)
	cmd.Env = append(os.Environ(), "PYTHONPATH="+src, "PYTHONIOENCODING=utf-8")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer in.Close()
	answers := bufio.NewReader(out)
	for i, c := range oracleCases(t) {
		t.Run(fmt.Sprintf("%d_%s", i, c.out), func(t *testing.T) {
			same(t, c.ours(t), c.theirs(t, in, answers))
		})
	}
}

func (c oracleCase) ours(t *testing.T) string {
	o := defaults(t)
	o.Color = &c.color
	if c.change != nil {
		c.change(&o)
	}
	return New(o, slog.New(slog.DiscardHandler)).Render(c.out, fromJSON(t, c.data), c.call)
}

func (c oracleCase) theirs(t *testing.T, in io.Writer, answers *bufio.Reader) string {
	opts, kw := c.opts, c.kw
	if opts == "" {
		opts = "{}"
	}
	if kw == "" {
		kw = "{}"
	}
	var data bytes.Buffer
	if err := json.Compact(&data, []byte(c.data)); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(in, "{\"out\": %q, \"color\": %t, \"opts\": %s, \"kw\": %s, \"data\": %s}\n", c.out, c.color, opts, kw, data.Bytes())
	line, err := answers.ReadBytes('\n')
	if err != nil {
		t.Fatal(err)
	}
	var text string
	if err := json.Unmarshal(line, &text); err != nil {
		t.Fatal(err)
	}
	return text
}

func oracleCases(t *testing.T) []oracleCase {
	fail := recording(t, "state_fail_json", "stdout")
	long := `{"alpha": {"` + strings.Repeat("key", 20) + `": ["` + strings.Repeat("some words and ", 12) + `", {"a": [` +
		strings.TrimSuffix(strings.Repeat("123456789, ", 20), ", ") + `]}], "b": "` +
		strings.Repeat("x", 100) +
		`", "c": "line one\nline two that is rather longer than the other ones are, really, it is\n", "d": {}, "e": [[], [[]]], "f": 1e22, "g": ` +
		`-0.00001, "h": "it's \"q\" é \u2028 \u0001"}}`
	names := `{"m": {"cmd_|-ids_|-a_|-run": {"__id__": "ids", "__sls__": "s", "name": "a", "result": true, "comment": "", "changes": {"x": 1}, "__run_num__": 1, "duration": 1.2345, "start_time": "10:00:02.1"},
		"cmd_|-ids_|-b_|-run": {"__id__": "ids", "__sls__": "s", "name": "b", "result": true, "comment": "", "changes": {"y": 2}, "__run_num__": 0, "duration": 2.5, "start_time": "10:00:01.1"},
		"cmd_|-ids_|-c_|-run": {"__id__": "ids", "__sls__": "s", "name": "c", "result": false, "comment": ["l"], "changes": {}, "__run_num__": 2, "duration": 2.5, "start_time": "10:00:03.1"},
		"cmd_|-one_|-d_|-run": {"__id__": "one", "__sls__": "s", "name": "d", "result": null, "comment": "x\n y \n", "changes": {}, "__run_num__": 3, "duration": 1200, "start_time": "10:00:04.1", "__parallel__": true}}}`
	orch := `{"outputter": "highstate", "data": {"host_master": {"salt_|-run_|-run_|-state": {"result": true, "name": "run", "__id__": "run", ` +
		`"comment": "ok", "__run_num__": 0, "duration": 12.5, "start_time": "1", "changes": {"out": "highstate", "ret": ` + names + `}},
		"salt_|-f_|-f_|-function": {"result": true, "name": "f", "__id__": "f", "comment": "ok", "__run_num__": 1, "changes": {"out": "highstate", "ret": {"a": "two\nlines", "b": 7}}, "data": ["d1", 2]},
		"salt_|-o_|-o_|-runner": {"result": true, "name": "state.orch", "__id__": "o", "comment": "ok", "__run_num__": 2, "changes": ` + names +
		`, "data": {"k": "v"}},
		"salt_|-w_|-w_|-runner": {"result": true, "name": "w", "__id__": "w", "comment": "ok", "__run_num__": 3, "changes": ["odd"], "warnings": ["` + strings.Repeat("a warning of some-what greater length, ", 6) + `", "` + strings.Repeat("z", 150) + ` and more"]}}}, "retcode": 0}`
	cases := []oracleCase{
		{out: "highstate", data: names, opts: `{"state_compress_ids": true}`, change: func(o *Options) { o.StateCompress = true }},
		{out: "highstate", data: names, opts: `{"state_compress_ids": true, "state_output": "terse_id"}`,
			change: func(o *Options) { o.StateCompress, o.StateOutput = true, "terse_id" }},
		{out: "highstate", data: fail, color: true, opts: `{"state_output_pct": true}`, change: func(o *Options) { o.StatePercent = true }},
		{out: "highstate", data: fail, opts: `{"state_tabular": true, "state_output": "terse"}`,
			change: func(o *Options) { o.StateTabular, o.StateOutput = true, "terse" }},
		{out: "highstate", data: fail, opts: `{"state_output_profile": false}`, change: func(o *Options) { o.StateProfile = false }},
		{out: "highstate", data: fail, opts: `{"state_output": "filter", "state_output_terse": "True,None", "state_output_exclude": ["False"]}`,
			change: func(o *Options) {
				o.StateOutput, o.StateTerse, o.StateExclude = "filter", []string{"True", "None"}, []string{"False"}
			}},
		{out: "highstate", data: `{"a": {"t_|-x_|-n_|-f": {"result": true, "comment": "c", "changes": {}, "name": "n"}}}`}, // no run order
		{out: "highstate", data: `{"a": {"x_|-a_|-b_|-c": {"name": "one"}, "changes": {"k": 1}, "z_|-a_|-b_|-c": {"name": "two"}}}`},
		{out: "highstate", data: `{"a": {}}`},
		{out: "highstate", data: `{"a": 5, "b": true, "c": null, "d": "t"}`},
		{out: "highstate", data: `"text"`},
		{out: "highstate", data: `17`},
		{out: "highstate", data: `null`},
		{out: "highstate", data: `[1]`},
		{out: "highstate", data: `{"m": {"jid": "1", "fun": "state.apply", "return": {"data": ` + names + `}}}`},
		{out: "highstate", data: `{"return": ` + names + `}`},
		{out: "nested", data: `{"a": [[1], {"b": null}, "x\ny"], "b": "q\u001b[0m\u2028r", "c": [[], [[2]]]}`, color: true, call: Call{Retcode: 1},
			kw: `{"_retcode": 1}`},
		{out: "nested", data: `{"a": {"b": [1, {"c": 1e100}]}}`, call: Call{Indent: 3}, kw: `{"nested_indent": 3}`},
		{out: "nested", data: `[1, [2, "a\nb"]]`},
		{out: "table", data: `{"m": {"out": [{"if_name": "eth0", "mac": "00:11", "up": true}, {"if_name": "eth10", "mac": "22", "up": false}], ` +
			`"comment": "", "n": ["a", "bc", "` + strings.Repeat("x", 60) + `"]}}`, color: true},
		{out: "table", data: `{"m": [["a", "b"], ["cc", "dddd"]], "mixed": ["a", {}]}`},
		{out: "table", data: `["a", "b"]`},
		{out: "table", data: `[["` + strings.Repeat("some words ", 12) + `"]]`},
		{out: "profile", data: names, color: true},
		{out: "profile", data: fail, call: Call{Indent: 2}, kw: `{"nested_indent": 2}`},
		{out: "profile", data: `{"a": ["Rendering failed", "two"], "b": "xy", "c": {}, "d": {"pkg_|-i_|-` + strings.Repeat("long name ", 8) +
			`_|-f": {"name": "` +
			strings.Repeat("näme.", 14) +
			`", "duration": "12345678901.5"}, "x": 5, "y_|-z": {"__id__": "the id"}, "z": {"name": null, "__id__": "other", "duration": 3}}}`},
		{out: "profile", data: `{"a": {}}`},
		{out: "profile", data: `{"a": true}`},
		{out: "profile", data: `{"a": {"x": {"name": 5}}}`},
		{out: "progress", data: `{"a": {"x": 1}}`, color: true},
		{out: "progress", data: `{"return_count": 1, "minion_count": 2}`},
		{out: "key", data: `{"local": {"master.pub": "00:11"}, "minions_pre": {"b": "11", "a": "22"}}`, color: true},
		{out: "no_return", data: `{"b": "x\ny\n", "a": {"c": "d", "e": 1}}`, color: true},
	}
	for _, data := range []string{long, orch, fail, `"text\nmore"`, `"` + strings.Repeat("words in a row ", 12) + `"`, `[1, "two", null]`, `{}`, `[]`, `3.0`,
		`null`} {
		for _, out := range []string{"nested", "json", "txt", "raw", "pprint", "newline_values_only", "yaml"} {
			if out == "newline_values_only" && !strings.HasPrefix(data, "{") {
				continue
			}
			cases = append(cases, oracleCase{out: out, data: data})
		}
	}
	for _, ind := range []string{"0", "1", "3", "-1"} {
		set := func(o *Options) {
			v := fromJSON(t, ind)
			if err := o.Indent.SetValue(v); err != nil {
				t.Fatal(err)
			}
		}
		for _, out := range []string{"json", "pprint", "yaml"} {
			cases = append(cases, oracleCase{out: out, data: long, opts: `{"output_indent": ` + ind + `}`, change: set})
		}
	}
	pretty := func(o *Options) { o.Indent = Indent{Given: true, Width: 4, Sort: true} }
	cases = append(cases, oracleCase{out: "json", data: long, opts: `{"output_indent": "pretty"}`, change: pretty})
	return append(cases, oracleCase{out: "highstate", data: orch})
}

// TestTableOfUnlikeRows: a row that lacks a key has an empty cell in its column, whichever row is the
// first.
func TestTableOfUnlikeRows(t *testing.T) {
	for _, data := range []string{`[{"a": "1", "c": "3"}, {"a": "4", "b": "5"}]`, `[{"a": "4", "b": "5"}, {"a": "1", "c": "3"}]`} {
		got := render(t, "table", fromJSON(t, data), nil)
		for _, want := range []string{"| A | B | C |", "| 1 |   | 3 |", "| 4 | 5 |   |"} {
			if !strings.Contains(got, want) {
				t.Errorf("%s: no %q in\n%s", data, want, got)
			}
		}
	}
}

// FuzzRender checks that no data makes an outputter panic or passes an escape character to the
// terminal in the human-readable forms.
func FuzzRender(tf *testing.F) {
	f := fuzztest.Wrap(tf)
	for _, seed := range []string{
		`{"a": [1, {"b": null}, "x\ny"], "c": 1.5}`,
		`{"m": {"t_|-i_|-n_|-f": {"result": null, "changes": {"ret": {"h": {}}, "out": "highstate"}, "name": "state.sls", "warnings": "w", "data": ` +
			`{"k": "\u001b"}}}}`,
		`{"minions": ["\u001b[2J"], "local": {"a": "\u001b"}}`,
		`{"minion": "\u001b[2J"}`, `"\u001b[2J"`,
		`{"m": {"t\u001b_|-i\u001b_|-n\u001b_|-f\u001b": {"result": true, "changes": {"\u001b": "\u001b", "diff": "\u001b"}, "name": "\u001b", "comment": "\u001b", "__id__": "\u001b",
			"__sls__": "\u001b", "start_time": "\u001b", "duration": "\u001b", "warnings": ["\u001b"], "__run_num__": 0, "skip_watch": "\u001b", "padding": "x", "pchanges": {"\u001b": 1}}}}`,
		`[["a b", "c\u2028d"], ["e", "` + strings.Repeat("x y ", 40) + `"]]`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if !json.Valid([]byte(text)) || len(text) > 1<<12 {
			return
		}
		data := fromJSON(t, text)
		for _, name := range Names() {
			got := render(t, name, data, func(o *Options) {
				o.StateCompress, o.StateTabular = len(text)%2 == 0, len(text)%5 == 0
				o.StateOutput = []string{"full", "terse", "mixed", "changes"}[len(text)%4]
			})
			switch name {
			case "nested", "highstate", "key", "table", "no_return", "json", "pprint", "yaml", "profile", "progress":
				if strings.Contains(got, "\x1b") {
					t.Errorf("%s passes an escape character: %q", name, got)
				}
			}
		}
	})
}
