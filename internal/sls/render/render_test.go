package render

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"brine/internal/call/fn"
	"brine/internal/py/value"
)

// tree is a Loader of files by path, in the environment base.
type tree map[string]string

func (t tree) Load(_ context.Context, saltenv, path string) ([]byte, error) {
	s, ok := t[path]
	if !ok || saltenv != "base" {
		return nil, fs.ErrNotExist
	}
	return []byte(s), nil
}

type functions struct{ calls []string }

func (f *functions) Has(name string) bool {
	return name == "test.echo" || name == "test.fail" || name == "test.away" || name == "grains.get"
}
func (f *functions) Names() []string { return []string{"grains.get", "test.echo", "test.fail"} }
func (f *functions) Call(_ context.Context, name string, args []any, kw *value.Dict) (any, error) {
	f.calls = append(f.calls, name)
	if name == "test.fail" {
		return nil, fn.Errorf("it does not work")
	}
	if name == "test.away" {
		return nil, fn.Errorf("the server: %w", away{})
	}
	if len(args) == 0 {
		return kw, nil
	}
	return args[0], nil
}

// away is an error with a return value.
type away struct{}

func (away) Error() string { return "it cannot be asked" }
func (away) Answer() any   { return value.NewDict(0) }

func TestAnswerBesideAnError(t *testing.T) {
	got, err := New(Options{}).Text(t.Context(), "jinja", request("{{ salt['test.away']() }} {{ salt['test.away']('x') | length }}"))
	if err != nil || got != "{} 0" {
		t.Errorf("%q, %v", got, err)
	}
}

func request(src string) Request {
	return Request{
		Source: []byte(src), Path: "/srv/salt/web/init.sls", SLS: "web", Saltenv: "base", Funcs: &functions{},
		Grains: value.DictOf("os", "Debian", "id", "m1"), Pillar: value.DictOf("port", 80),
		Loader: tree{
			"web/map.jinja": "{% import_yaml 'web/defaults.yaml' as defaults %}{% set web = salt['test.echo'](defaults.web) %}{% do " +
				"web.update({'os': grains.os}) %}",
			"web/defaults.yaml": "web:\n  port: 0644\n  name: nginx\n",
			"web/libtpl.jinja":  "{% macro m(x) %}{{ tpldir }}:{{ tplfile }}:{{ x }}{% endmacro %}",
			"web/broken.jinja":  "\n\n{{ nothing.here }}\n",
			"web/imports.jinja": "{% from 'web/map.jinja' import nope %}\n{% set x = nope ~ 'a' %}\n",
		},
	}
}

func TestRender(t *testing.T) {
	for _, c := range []struct{ name, src, want string }{
		{"pipe", "a: {{ grains.os }}\nb: {{ salt.test.echo(5) + pillar['port'] }}\n", "{'a': 'Debian', 'b': 85}"},
		{"import", "{% from 'web/map.jinja' import web %}\nx: {{ web | yaml }}\n", "{'x': {'name': 'nginx', 'os': 'Debian', 'port': 644}}"},
		{"relative", "{% from './libtpl.jinja' import m %}\nx: '{{ m(1) }} {{ tplfile }} {{ slspath }}'\n", "{'x': 'web:./libtpl.jinja:1 web/init.sls web'}"},
		{"load", "{% load_yaml as d %}\n- {{ grains.id }}\n- b\n{% endload %}\nx: {{ d | tojson }}\n", "{'x': ['m1', 'b']}"},
		{"ordered map", "a: !!omap {z: 1, b: 2}\n{% set m = '!!omap {z: 1, b: 2}' | load_yaml %}\nkeys: {{ m.keys() | list }}\n",
			"{'a': {'z': 1, 'b': 2}, 'keys': ['z', 'b']}"},
		{"set", "a: !!set {x, y}\n{% set m = '!!set {x, y}' | load_yaml %}\nb: {{ 'x' in m and m | length == 2 }}\n", "{'a': ['x', 'y'], 'b': True}"},
		{"shebang", "#!yaml\na: '{{ x }}'\n", "{'a': '{{ x }}'}"},
		{"json", "#!jinja|json\n{\"a\": [1, {{ 1 + 1 }}]}", "{'a': [1, 2]}"},
		{"text", "#!jinja|text\nx{{ 1 }}\n", `'x1\n'`},
		{"old name", "#!yaml_jinja\na: {{ 1 }}\n", "{'a': 1}"},
		{"empty", " \n", "{}"},
		{"nothing", "# only a comment\n", "{}"},
		{"membership", "a: {{ 'test.echo' in salt and 'no.such' not in salt }}\n", "{'a': True}"},
		{"crlf", "#!jinja|text\r\na\r\n", `'a\r\n'`},
	} {
		t.Run(c.name, func(t *testing.T) {
			v, err := New(Options{}).Render(t.Context(), request(c.src))
			if err != nil {
				t.Fatal(err)
			}
			if got := value.Repr(v); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

func TestErrors(t *testing.T) {
	for _, c := range []struct{ name, src, want string }{
		{"undefined", "a: 1\n{% if true %}\nb: {{ nope.x }}\n{% endif %}\n",
			"Jinja variable 'nope' is undefined; line 3\n\n---\na: 1\n{% if true %}\nb: {{ nope.x }}    <======================\n{% endif %}\n---"},
		{"syntax", "a\n{% for x in %}",
			"Jinja syntax error: Expected an expression, got 'end of statement block'; line 2\n\n---\na\n{% for x in %}    <======================\n---"},
		{"function", "{{ salt['test.fail']() }}",
			"Problem running salt function in Jinja template: it does not work; line 1\n\n---\n{{ salt['test.fail']() }}    <======================\n---"},
		{"no function", "{{ salt['no.such']() }}",
			"Jinja variable 'salt.utils.templates.AliasedLoader object' has no attribute 'no.such'; line 1\n\n---\n{{ salt['no.such']() }}    " +
				"<======================\n---"},
		{"elsewhere", "x\n{% include 'web/broken.jinja' %}",
			"Jinja variable 'nothing' is undefined\nweb/broken.jinja(3):\n---\n\n\n{{ nothing.here }}    <======================\n---"},
		{"not found", "{% import 'no/such' as x %}",
			"Jinja error: no/such\nThis template was not found in the environment \"base\"; line 1\n\n---\n{% import 'no/such' as x %}    " +
				"<======================\n---"},
		{"not exported", "{% from 'web/map.jinja' import nope %}\n{{ nope }}",
			"Jinja variable the template 'web/map.jinja' (imported on line 1) does not export the requested name 'nope'; line 2\n\n---\n" +
				"{% from 'web/map.jinja' import nope %}\n{{ nope }}    <======================\n---"},
		{"not exported to another file", "{% from 'web/imports.jinja' import x %}{{ x }}",
			"Jinja variable the template 'web/map.jinja' (imported on line 1 in 'web/imports.jinja') does not export the requested name 'nope'\n" +
				"web/imports.jinja(2):\n---\n{% from 'web/map.jinja' import nope %}\n{% set x = nope ~ 'a' %}    <======================\n---"},
		{"above", "{% import '../../etc/passwd' as x %}",
			"Jinja error: ../../etc/passwd\nThis template was not found in the environment \"base\"; line 1\n\n---\n{% import '../../etc/passwd' " +
				"as x %}    <======================\n---"},
		{"yaml", "a: 1\nb:\n\t- c\n",
			"found character that cannot start any token\n(line 3, column 1: a tab)\n\n---\na: 1\nb:\n\t- c    <======================\n---"},
		{"py", "#!py\ndef run(): pass\n", "the renderer \"py\" runs Python, which is not available here: write the file with jinja and yaml; line 1"},
		{"mako", "#!mako|yaml\n", "the renderer \"mako\" runs Python, which is not available here: write the file with jinja and yaml; line 1"},
		{"utf-8", "a\nb\xff\n", "the text is not valid UTF-8; line 2"},
		{"raise", "{{ raise('stop it') }}", "Jinja error: stop it; line 1\n\n---\n{{ raise('stop it') }}    <======================\n---"},
	} {
		t.Run(c.name, func(t *testing.T) {
			v, err := New(Options{}).Render(t.Context(), request(c.src))
			var e *Error
			if !errors.As(err, &e) {
				t.Fatalf("got %v, %v", v, err)
			}
			if e.Error() != c.want {
				t.Errorf("got\n%s\nwant\n%s", e, c.want)
			}
		})
	}
}

// TestAbsoluteImports checks that absolute paths are files of the machine if
// templates may read these, and names in the tree otherwise.
func TestAbsoluteImports(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"map.jinja": "{% from './two.jinja' import y %}{% set x = [tpldir, tplfile, tpldot, y] %}",
		"two.jinja": "{% set y = 'two ' ~ tplfile %}",
		"d.yaml":    "a: {{ 1 }}\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(dir+"/directory", 0o700); err != nil {
		t.Fatal(err)
	}
	only := func(_, path string) ([]byte, error) {
		if !strings.HasPrefix(path, dir+"/") {
			return nil, fs.ErrNotExist
		}
		return os.ReadFile(path)
	}
	in := func(src string) string { return strings.ReplaceAll(src, "DIR", dir) }
	for _, c := range []struct {
		name, src  string
		local, own LocalFiles
		want       string
	}{
		{"import", "{% from 'DIR/map.jinja' import x %}{{ x[0] == 'DIR' and x[1] == 'DIR/map.jinja' }} {{ x[3] }}", AnyFile, nil, "True two ./two.jinja"},
		{"with context", "{% from 'DIR/map.jinja' import x with context %}{{ x[0] }} {{ x[1] }}", AnyFile, nil, "web web/init.sls"},
		{"not clean", "{% from 'DIR//directory/../two.jinja' import y %}{{ y }}", AnyFile, nil, in("two DIR/two.jinja")},
		{"yaml", "{% import_yaml 'DIR/d.yaml' as d %}{{ d.a }}", AnyFile, nil, "1"},
		{"include", "{% include 'DIR/d.yaml' %}", AnyFile, nil, "a: 1"},
		{"of the request", "{% include 'DIR/d.yaml' %}", nil, only, "a: 1"},
		{"in the tree without files", "{% from '/web/map.jinja' import web %}{{ web.port }}", nil, nil, "644"},
		{"not in the tree with files", "{% from '/web/map.jinja' import web %}", AnyFile, nil, "was not found"},
		{"outside of what is allowed", "{% include '/etc/passwd' %}", only, nil, "was not found"},
		{"above what is allowed", "{% include 'DIR/../../../../../../etc/passwd' %}", only, only, "was not found"},
		{"may be missing", "{% include '/etc/passwd' ignore missing %}x", only, nil, "x"},
		{"a directory", "{% include 'DIR/directory' %}", AnyFile, nil, "was not found"},
		{"a device", "{% include '/dev/zero' %}", AnyFile, nil, "was not found"},
		{"out of the tree", "{% include '../../../../../../../../etc/passwd' %}", AnyFile, nil, "was not found"},
	} {
		t.Run(c.name, func(t *testing.T) {
			req := request(in(c.src))
			req.Default, req.Local = "jinja", c.own
			v, err := New(Options{Local: c.local}).Render(t.Context(), req)
			if err != nil {
				v = err.Error()
			}
			if s, _ := v.(string); s != c.want && (err == nil || !strings.Contains(s, c.want)) {
				t.Errorf("got %v, want %q", v, c.want)
			}
		})
	}
	if err := os.WriteFile(dir+"/climb.jinja", []byte("{% include '../../../../../../../../etc/passwd' %}"), 0o600); err != nil {
		t.Fatal(err)
	}
	if v, err := New(Options{Local: only}).Render(t.Context(), request(in("{% include 'DIR/climb.jinja' %}"))); err == nil {
		t.Errorf("climbed out: %v", v)
	}
}

func TestTextOfFile(t *testing.T) {
	req := request("{{ grains.id }} {{ port }}\n")
	req.SLS, req.Context = "", value.DictOf("port", 8080)
	s, err := New(Options{}).Text(t.Context(), "jinja", req)
	if err != nil || s != "m1 8080\n" {
		t.Errorf("got %q, %v", s, err)
	}
	if _, err := New(Options{}).Text(t.Context(), "mako", req); err == nil || !strings.Contains(err.Error(), "mako") {
		t.Errorf("mako: %v", err)
	}
}
