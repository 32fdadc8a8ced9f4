package python

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"brine/internal/py/value"
	"brine/test/tools"
)

// evaluator is a module that evaluates expressions of Salt's package; stock Salt runs it, too.
const evaluator = `
import collections, datetime, importlib, pkgutil, xml.etree.ElementTree as tree
import salt.loader, salt.payload, salt.template, salt.utils, salt.version
from salt.utils.decorators import memoize
from salt.utils.odict import OrderedDict
NAMES = "args compat configcomparer data dateutils decorators dictupdate files hashutils http immutabletypes itertools jid json minions network path"
NAMES += " platform state stringutils systemd url user validate.net verify versions xmlutil yaml"
for name in NAMES.split():
    importlib.import_module("salt.utils." + name)
import salt.serializers.json, salt.serializers.yaml
u = salt.utils

counts = []
@memoize
def counted(*args, **kwargs):
    counts.append(args)
    return len(counts)

def evaluate(expressions):
    out = []
    for expression in expressions:
        try:
            text = repr(eval(expression, globals()))
        except Exception as exc:
            text = "{}: {}".format(type(exc).__name__, exc)
        out.append(text)
    return out
`

// TestBesideSalt compares what functions of Salt's package return with what they return in Salt.
// BRINE_RECORD=1 with BRINE_STOCK_SALT records the results of stock Salt again.
func TestBesideSalt(t *testing.T) {
	path := filepath.Join("testdata", "expressions.json")
	data, err := os.ReadFile(path)
	var table [][2]string
	if err == nil {
		err = json.Unmarshal(data, &table)
	}
	if err != nil {
		t.Fatal(err)
	}
	expressions := make([]string, len(table))
	asked := make([]any, len(table))
	for i, row := range table {
		expressions[i], asked[i] = row[0], row[0]
	}
	if os.Getenv("BRINE_RECORD") != "" {
		for i, result := range inStock(t, expressions) {
			table[i][1] = result
		}
		var out bytes.Buffer
		out.WriteString("[\n")
		for i, row := range table {
			line, _ := json.Marshal(row)
			out.Write(line)
			if i < len(table)-1 {
				out.WriteByte(',')
			}
			out.WriteByte('\n')
		}
		out.WriteString("]\n")
		if err := os.WriteFile(path, out.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	f := newFixture(t, map[string]string{"sample": evaluator}, nil)
	got, err := f.run(t, "sample.evaluate", value.ListOf(asked...))
	if err != nil {
		t.Fatal(err)
	}
	results := value.Items(got)
	if len(results) != len(table) {
		t.Fatal(got)
	}
	lacksMsgpack := exec.CommandContext(t.Context(), "/usr/bin/python3", "-c", "import msgpack").Run() != nil
	for i, row := range table {
		if lacksMsgpack && strings.Contains(row[0], "salt.payload") {
			continue
		}
		if results[i] != row[1] {
			t.Errorf("%s\n\tBrine %v\n\tSalt  %s", row[0], results[i], row[1])
		}
	}
}

// inStock evaluates expressions in stock Salt.
func inStock(t *testing.T, expressions []string) (results []string) {
	tree, program := tools.StockSalt(t)
	in, _ := json.Marshal(expressions)
	cmd := exec.CommandContext(t.Context(), program, "-W", "ignore", "-c", evaluator+
		"\nimport json, sys\nprint(json.dumps(evaluate(json.load(sys.stdin))))")
	cmd.Env = append(os.Environ(), "PYTHONPATH="+tree)
	cmd.Stdin = strings.NewReader(string(in))
	out, err := cmd.Output()
	if err == nil {
		err = json.Unmarshal(out, &results)
	}
	if err != nil || len(results) != len(expressions) {
		t.Fatal(err, string(out))
	}
	return results
}

// replaced has the name of a function that cannot be called, since a module of the user's replaces
// the one of Brine that has it.
type replaced struct{ *echoFunctions }

func (r replaced) Names() []string { return []string{"brine.echo", "gone.name"} }

// TestNamesOfOthers checks that neither the name of a replaced function nor a helper of a module of
// Salt's ends a module that gets hold of it.
func TestNamesOfOthers(t *testing.T) {
	f := newFixture(t, map[string]string{"sample": `
from salt.states import git
fail = git._fail
def names():
    return [name for name, function in __salt__.items() if name in ("brine.echo", "gone.name")], len(__salt__.values()) > 0
def ends():
    return fail("x")
`}, nil)
	f.env.Functions["modules"] = replaced{f.own}
	if v, err := f.run(t, "sample.names"); err != nil || value.Repr(v) != "(['brine.echo'], True)" {
		t.Error(value.Repr(v), err)
	}
	if v, err := f.run(t, "sample.ends"); err == nil || !strings.Contains(err.Error(), "salt.states.git._fail") {
		t.Error(v, err)
	}
}

// TestRendererMapping checks that code can look for renderers, and add one, as in Salt.
func TestRendererMapping(t *testing.T) {
	f := newFixture(t, map[string]string{"sample": `
import salt.loader
def look():
    renderers = salt.loader.render(__opts__, __salt__)
    renderers["own"] = lambda data, *args, **kwargs: "own " + data
    return ["yaml" in renderers, "nosuch" in renderers, renderers.get("nosuch"), [n for n in renderers if n in ("jinja", "own")],
            renderers["own"]("x"), callable(renderers["json"])]
`}, nil)
	if v, err := f.run(t, "sample.look"); err != nil || value.Repr(v) != "[True, False, None, ['jinja', 'own'], 'own x', True]" {
		t.Error(value.Repr(v), err)
	}
}
