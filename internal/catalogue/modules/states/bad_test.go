package states

import (
	"regexp"
	"strings"
	"testing"

	"brine/internal/py/value"
)

// broken are trees with one error each, in the SLS x or in the top file. want
// are parts of what state.apply reports: the file or SLS, the line if there is
// one, and what is wrong.
var broken = map[string]struct {
	files map[string]string
	want  []string
}{
	// Invalid YAML.
	"tab": {slsFile("a:\n\ttest.nop: []\n"), []string{`SLS 'base:x' failed: found character that cannot start any token\n(line `, `: a tab)`,
		`\n(line 2`}},
	"tab after the key": {slsFile("a:\n  test.nop:\n\t- x: 1\n"), []string{`SLS 'base:x' failed: found character that cannot start any token\n(line `,
		`: a tab)`, `\n(line 3`}},
	"indentation":  {slsFile("a:\n  test.nop:\n    - x: 1\n   - y: 2\n"), []string{`did not find expected key`, `\n(line 4`}},
	"no blank":     {slsFile("a:\n  test.nop:\n    - name:x\n    - y:\n      z\n     w\n"), []string{`could not find expected ':'`, `\n(line 6`}},
	"open quote":   {slsFile("a:\n  test.nop:\n    - name: 'x\n"), []string{`found unexpected end of stream`, `(line 3, column 13`}},
	"open bracket": {slsFile("a:\n  test.nop: [{name: x}\nb: test.nop\n"), []string{`did not find expected ',' or ']'`, `\n(line 3`}},
	"two colons": {slsFile("a:\n  test.nop:\n    - name: x: y\n"),
		[]string{`SLS 'base:x' failed: mapping values are not allowed in this context`, `\n(line 3`}},
	"unquoted template": {slsFile("a:\n  test.nop:\n    - name: {{ '{{' }} x }}\n"),
		[]string{`found unacceptable key [(ScalarNode(tag='tag:yaml.org,2002:str', value='x'), ScalarNode(t`, `\n(line 3`}},
	"percent":          {slsFile("a:\n  test.nop:\n    - name: %d\n"), []string{`found character that cannot start any token`, `\n(line 3`}},
	"at":               {slsFile("a:\n  test.nop:\n    - name: @x\n"), []string{`found character that cannot start any token`, `\n(line 3`}},
	"alias of nothing": {slsFile("a:\n  test.nop:\n    - name: *x\n"), []string{`unknown anchor 'x' referenced`, `\n(line 3`}},
	"anchor twice":     {slsFile("a: &x\n  test.nop: []\nb: &x\n  test.nop: []\n"), []string{`found duplicate anchor x`, `\n(line 3`}},
	"alias of itself":  {slsFile("a: &x\n  test.nop: [*x]\n"), []string{`found unconstructable recursive node`, `\n(line 2`}},
	"tag": {slsFile("a:\n  test.nop:\n    - name: !!python/object:os.system x\n"),
		[]string{`could not determine a constructor for the tag 'tag:yaml.org,2002:python/object:os.system'`, `\n(line 3`}},
	"two documents": {slsFile("a: test.nop\n---\nb: test.nop\n"), []string{`expected a single document in the stream, but found another document`,
		`\n(line 2`}},
	"id twice":       {slsFile("a:\n  test.nop: []\nb:\n  test.nop: []\na:\n  test.nop: []\n"), []string{`found conflicting ID 'a'`, `\n(line 5`}},
	"function twice": {slsFile("a:\n  test.nop: []\n  test.nop: []\n"), []string{`found conflicting ID 'test.nop'`, `\n(line 3`}},
	"merge of a text": {slsFile("a:\n  <<: x\n  test.nop: []\n"), []string{`expected a mapping or list of mappings for merging, but found scalar`,
		`\n(line 2`}},
	"list as a key": {slsFile("? [a, b]\n: test.nop\n"),
		[]string{`found unacceptable key [ScalarNode(tag='tag:yaml.org,2002:str', value='a'), ScalarNode(ta`, `\n(line 1`}},
	"binary": {slsFile("a:\n  test.nop:\n    - name: \x00\x01\n"),
		[]string{`SLS 'base:x' failed: unacceptable character #x0000: control characters are not allowed`, `\n(line 3`}},
	"latin-1":             {slsFile("a:\n  test.nop:\n    - name: caf\xe9\n"), []string{`SLS 'base:x' failed: the text is not valid UTF-8`, `; line 3`}},
	"UTF-16":              {slsFile("\xff\xfea\x00:\x00 \x00t\x00\n\x00"), []string{`SLS 'base:x' failed: the text is not valid UTF-8`, `; line 1`}},
	"a byte that is none": {slsFile("a:\n  test.nop:\n    - name: \xc3\x28\n"), []string{`SLS 'base:x' failed: the text is not valid UTF-8`, `; line 3`}},
	// Templates.
	"open tag": {slsFile("a:\n  test.nop:\n    - name: {{ grains.os\n"),
		[]string{`SLS 'base:x' failed: Jinja syntax error: unexpected end of template, expected 'end of print statement'.`, `; line 3`}},
	"open block": {slsFile("a:\n{% if true %}\n  test.nop\n"),
		[]string{`SLS 'base:x' failed: Jinja syntax error: Unexpected end of template. Jinja was looking for the following tags:`, `; line 2`}},
	"end without a block": {slsFile("a:\n  test.nop: []\n{% endif %}\n"),
		[]string{`SLS 'base:x' failed: Jinja syntax error: Encountered unknown tag 'endif'.`, `; line 3`}},
	"unknown tag": {slsFile("{% unles x %}\na: test.nop\n{% endunles %}\n"),
		[]string{`SLS 'base:x' failed: Jinja syntax error: Encountered unknown tag 'unles'.`, `; line 1`}},
	"unknown filter": {slsFile("a:\n  test.nop:\n    - name: {{ 'x' | nofilter }}\n"),
		[]string{`SLS 'base:x' failed: Jinja syntax error: No filter named 'nofilter'.`, `; line 3`}},
	"unknown test": {slsFile("a:\n  test.nop:\n    - name: {{ 'x' is notest }}\n"),
		[]string{`SLS 'base:x' failed: Jinja syntax error: No test named 'notest'.`, `; line 3`}},
	"undefined": {slsFile("a:\n  test.nop:\n    - name: {{ nothing }}\n"),
		[]string{`SLS 'base:x' failed: Jinja variable 'nothing' is undefined`, `; line 3`}},
	"undefined key": {slsFile("a:\n  test.nop:\n    - name: {{ pillar.nothing.more }}\n"),
		[]string{`SLS 'base:x' failed: Jinja variable 'dict object' has no attribute 'nothing'`, `; line 3`}},
	"unknown function": {slsFile("a:\n  test.nop:\n    - name: {{ salt['no.such']() }}\n"),
		[]string{`SLS 'base:x' failed: Jinja variable 'salt.utils.templates.AliasedLoader object' has no attribute 'no.such'`, `; line 3`}},
	"function fails": {slsFile("a:\n  test.nop:\n    - name: {{ salt['test.ping'](1, 2, 3) }}\n"),
		[]string{`SLS 'base:x' failed: Jinja error: ping() takes 0 positional arguments but 3 were given`, `; line 3`}},
	"raise": {slsFile("{{ raise('this host is too old') }}\n"),
		[]string{`SLS 'base:x' failed: Jinja error: this host is too old`, `; line 1`}},
	"import of nothing": {slsFile("{% from 'none.jinja' import x %}\na: test.nop\n"),
		[]string{`SLS 'base:x' failed: Jinja error: none.jinja\nThis template was not found in the environment "base"; line 1`}},
	"import of no name": {withFile("map.jinja", "{% set y = 1 %}\n", "{% from 'map.jinja' import x %}\na:\n  test.nop:\n    - name: {{ x }}\n"),
		[]string{`SLS 'base:x' failed: Jinja variable the template 'map.jinja' (imported on line 1) does not export the requested name 'x'; line 4`}},
	"fault in an import": {withFile("map.jinja", "{% set y = %}\n", "{% import 'map.jinja' as m %}\na: test.nop\n"),
		[]string{`Rendering SLS 'base:x' failed: Jinja syntax error: Expected an expression, got 'end of statement block`}},
	"bad YAML in import": {withFile("d.yaml", "a: 1\n b: 2\n", "{% import_yaml 'd.yaml' as d %}\na: test.nop\n"),
		[]string{`SLS 'base:x' failed: Jinja syntax error: Encountered error loading yaml: mapping values are not allowed in thi`, `---\n(d.yaml, line 2`,
			`; line 1`}},
	"no end in import": {withFile("d.yaml", "a: 1\nb: [1\n", "{% import_yaml 'd.yaml' as d %}\na: test.nop\n"),
		[]string{`Encountered error loading yaml: did not find expected ',' or ']'\n---`, `\n(d.yaml, line 2, column 4, while`, `b: [1    <===`, `; line 1`}},
	"bad JSON in import": {withFile("d.json", "{\"a\": 1,}", "{% import_json 'd.json' as d %}\na: test.nop\n"),
		[]string{`SLS 'base:x' failed: Jinja syntax error: Unable to load json from {"a": 1,}\n(d.json, Expecting property name enclose`, `; line 1`}},
	"include of itself": {withFile("m.jinja", "{% include 'm.jinja' %}", "{% include 'm.jinja' %}\n"),
		[]string{`Rendering SLS 'base:x' failed: Jinja error: maximum recursion depth exceeded: more than 250 calls, imports or includes within each other`}},
	"macro without end": {slsFile("{% macro m() %}\na: test.nop\n"),
		[]string{`SLS 'base:x' failed: Jinja syntax error: Unexpected end of template. Jinja was looking for the following tags:`, `; line 1`}},
	"division": {slsFile("a:\n  test.nop:\n    - order: {{ 1 / 0 }}\n"),
		[]string{`SLS 'base:x' failed: Jinja error: division by zero`, `; line 3`}},
	"text and number": {slsFile("a:\n  test.nop:\n    - name: {{ 'x' + 1 }}\n"),
		[]string{`SLS 'base:x' failed: Jinja error: can only concatenate str (not "int") to str`, `; line 3`}},
	"too deep a recursion": {slsFile("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}\n"),
		[]string{`SLS 'base:x' failed: Jinja error: maximum recursion depth exceeded: more than 250 calls, imports or includes w`, `; line 1`}},
	// Renderers.
	"unknown renderer": {slsFile("#!nothing\na: test.nop\n"),
		[]string{`SLS 'base:x' failed: The renderer "nothing" is not available: it names "nothing", and there are gpg, jinja, json, `, `; line 1`}},
	"Python": {slsFile("#!py\ndef run():\n  return {}\n"),
		[]string{`SLS 'base:x' failed: the renderer "py" runs Python, which is not available here: write the file with jinja a`, `; line 1`}},
	"bad JSON": {slsFile("#!json\n{\"a\": \n"), []string{`SLS 'base:x' failed: Expecting value`, `; line 3`}},
	// Invalid states.
	"a list": {slsFile("- a\n- b\n"), []string{`SLS x does not render to a dictionary\n(it is a list)\n(x.sls)`}},
	"a text": {slsFile("just words\n"), []string{`SLS x does not render to a dictionary\n(it is a str)\n(x.sls)`}},
	"id is a number": {slsFile("1:\n  test.nop: []\n"),
		[]string{`ID '1' in SLS 'x' is not formed as a string, but is a int. It may need to be quoted.\n(x.sls, line 1)`}},
	"no function": {slsFile("a:\n  test: []\n"), []string{`No function declared in state 'a' in SLS 'x'\n(x.sls, line 1)`}},
	"two functions": {slsFile("a:\n  test:\n    - nop\n    - succeed_with_changes\n"),
		[]string{`Too many functions declared in state 'a' in SLS 'x'. Please choose one of the following: nop, succeed_with_changes\n(x.sls, line 1)`}},
	"function with blank": {slsFile("a:\n  test.nop x: []\n"),
		[]string{`The function "nop x" in state "a" in SLS "x" has whitespace, a function with whitespace is not supported, perhaps this is an ` +
			`argument that is missing a ":"\n(x.sls, line 1`, `(x.sls, line 1)`}},
	"body is a text":     {slsFile("a: nop\n"), []string{`ID a in SLS x is not a dictionary\n(x.sls, line 1)`}},
	"body is a number":   {slsFile("a: 5\n"), []string{`ID a in SLS x is not a dictionary\n(x.sls, line 1)`}},
	"arguments as a map": {slsFile("a:\n  test.nop:\n    name: x\n"), []string{`State 'a' in SLS 'x' is not formed as a list\n(x.sls, line 1)`}},
	"same module twice": {slsFile("a:\n  test.nop: []\n  test.succeed_with_changes: []\n"),
		[]string{`ID 'a' in SLS 'x' contains multiple state declarations of the same type\n(x.sls, line 1)`}},
	"unknown state": {slsFile("a:\n  tset.nop: []\n"),
		[]string{`State 'tset.nop' was not found in SLS 'x'`, `Brine has no state tset.nop; did you mean test.nop?\n(x.sls, line 1)`}},
	"unknown function of": {slsFile("a:\n  test.nopp: []\n"),
		[]string{`State 'test.nopp' was not found in SLS 'x'`, `Brine has no state test.nopp; did you mean test.nop?\n(x.sls, line 1)`}},
	"Salt's state": {slsFile("a:\n  docker_container.running: []\n"), []string{`State 'docker_container.running' was not found in SLS 'x'`,
		`Brine does not have the states of Salt's module docker_container\n(x.sls, line 1)`}},
	"far from any state": {slsFile("b:\n  test.nop: []\na:\n  test.entirely_different: []\n"),
		[]string{`Brine has no state test.entirely_different; it has test.`, `(x.sls, line 3)`}},
	"missing argument": {slsFile("a:\n  test.check_pillar:\n    - present: {x: y}\n"),
		[]string{`keys of the pillar have to be a text or a list of texts, not dict`}},
	"names is a text": {slsFile("a:\n  test.nop:\n    - names: x\n"),
		[]string{`The 'names' argument in state 'a' in SLS 'x' needs to be formed as a list\n(x.sls, line 1)`}},
	// Other SLS files.
	"missing": {map[string]string{"y.sls": ""}, []string{`No matching sls found for 'x' in env 'base`}},
	"missing include": {slsFile("include: [none]\na: test.nop\n"),
		[]string{`Specified SLS none in saltenv base is not available on the salt master or through a configured fileserver\n(included by SLS ` +
			`'base:x')\n(x.sls, line 1)`}},
	"include is a text": {slsFile("include: none\na: test.nop\n"),
		[]string{`Include Declaration in SLS x is not formed as a list\n(x.sls, line 1)', 'ID include in SLS x is not a dictionary\n(x.sls, line 1)`}},
	"include above the top": {slsFile("include: ['...none']\na: test.nop\n"),
		[]string{`Attempted relative include of '...none' within SLS 'base:x' goes beyond top level package \n(x.sls, line 1)`}},
	"include of environment": {slsFile("include: [{dev: none}]\na: test.nop\n"),
		[]string{`Nonexistent saltenv 'dev' found in include of 'none' within SLS 'base:x'\n(x.sls, line 1)`}},
	"fault in an include": {withFile("y.sls", "b:\n  test.nop:\n  - x\n - y\n", "include: [y]\na: test.nop\n"),
		[]string{`did not find expected key`, `\n(line 4`}},
	"id in both": {withFile("y.sls", "a:\n  test.nop: []\n", "include: [y]\na:\n  test.nop: []\n"),
		[]string{`Detected conflicting IDs, SLS IDs need to be globally unique.`, `(y.sls, line 1)`}},
	"extend of nothing": {slsFile("extend:\n  none:\n    test:\n      - name: x\na: test.nop\n"),
		[]string{`Cannot extend ID 'none' in 'base:x'. It is not part of the high state.`, `(x.sls, line 2)`}},
	"extend is a list":  {slsFile("extend: [a]\na: test.nop\n"), []string{`Extension value in SLS 'x' is not a dictionary\n(x.sls, line 1)`}},
	"exclude is a text": {slsFile("exclude: a\na: test.nop\n"), []string{`Exclude Declaration in SLS x is not formed as a list\n(x.sls, line 1)`}},
	// Requisites.
	"requires nothing": {slsFile("a:\n  test.nop:\n    - require: [{test: none}]\n"), []string{`The following requisites were not found:`}},
	"requires itself": {slsFile("a:\n  test.nop:\n    - require: [{test: a}]\n"),
		[]string{`A recursive requisite was found, SLS "x" ID "a" ID "a"\n(x.sls, line 1)`}},
	"require is a text": {slsFile("a:\n  test.nop:\n    - require: b\n"),
		[]string{`The require statement in state 'a' in SLS 'x' needs to be formed as a list\n(x.sls, line 1)`}},
	"require of two": {slsFile("a:\n  test.nop:\n    - require:\n      - test: b\n        cmd: c\n"),
		[]string{`The following requisites were not found:`}},
	"in a circle": {slsFile("a:\n  test.nop:\n    - require: [{test: b}]\nb:\n  test.nop:\n    - require: [{test: a}]\n"),
		[]string{`A recursive requisite was found, SLS "x" ID "b" ID "a"\n(x.sls, line 4)`}},
	"for nothing": {slsFile("a:\n  test.nop:\n    - require_in: [{test: none}]\n"),
		[]string{`Cannot extend ID 'none' in 'base:x'. It is not part of the high state.`, `(x.sls)`}},
	"prereq in a circle": {slsFile("a:\n  test.nop:\n    - prereq: [{test: b}]\nb:\n  test.nop:\n    - prereq: [{test: a}]\n"),
		[]string{`A recursive requisite was found, SLS "x" ID "b" ID "a"\n(x.sls, line 4)`}},
	"umask is no number":   {slsFile("a:\n  test.nop:\n    - umask: x\n"), []string{`Invalid umask: x`}},
	"id with a line break": {slsFile("\"a\\nb\": 5\n"), []string{`ID a`, `(x.sls)`}},
	// Top files.
	"top: tab": {topFile("base:\n\t'*': [x]\n"), []string{`Unable to render top file: found character that cannot start any token\n(line `,
		`\n(line 2`}},
	"top: indentation": {topFile("base:\n  '*':\n    - x\n   - y\n"), []string{`did not find expected key`, `\n(line 4`}},
	"top: a list": {topFile("- x\n"),
		[]string{`Unable to render top file: the top file of the environment base is a list, not a map of environments`}},
	"top: a text": {topFile("x\n"),
		[]string{`Unable to render top file: the top file of the environment base is a str, not a map of environments`}},
	"top: target twice":       {topFile("base:\n  '*': [x]\n  '*': [x]\n"), []string{`found conflicting ID '*'`, `\n(line 3`}},
	"top: unquoted star":      {topFile("base:\n  *: [x]\n"), []string{`did not find expected alphabetic or numeric character`, `\n(line 2`}},
	"top: environment a list": {topFile("base: [x]\n"), []string{`Unable to render top file: Unable to render top file. No targets found.`}},
	"top: SLS a text":         {topFile("base:\n  '*': x\n"), []string{`Malformed topfile (state declarations not formed as a list)`}},
	"top: SLS a map":          {topFile("base:\n  '*': {x: y}\n"), []string{`Malformed topfile (state declarations not formed as a list)`}},
	"top: SLS a number":       {topFile("base:\n  '*': [5]\n"), []string{`No states found for this minion`}},
	"top: empty list":         {topFile("base:\n  '*': []\n"), []string{`No states found for this minion`}},
	"top: unknown match": {topFile("base:\n  'x':\n    - match: nothing\n    - x\n"),
		[]string{`Unable to render top file: the target 'x' of a top file (match: nothing): unknown target type "nothing"`}},
	"top: bad pattern": {topFile("base:\n  'web(':\n    - match: pcre\n    - x\n"),
		[]string{`Unable to render top file: the target 'web(' of a top file (match: pcre): cannot use the regular expression "web(": error parsing ` +
			`regexp: missing cl`}},
	"top: bad compound": {topFile("base:\n  'G@os:Debian and':\n    - match: compound\n    - x\n"),
		[]string{`No Top file or master_tops data matches found`}},
	"top: unknown nodegroup": {topFile("base:\n  'N@none':\n    - match: compound\n    - x\n"), []string{`No Top file or master_tops data matches found`}},
	"top: undefined": {topFile("base:\n  '{{ nothing }}': [x]\n"),
		[]string{`Unable to render top file: Jinja variable 'nothing' is undefined`, `; line 2`}},
	"top: open block": {topFile("base:\n{% if true %}\n  '*': [x]\n"),
		[]string{`Unable to render top file: Jinja syntax error: Unexpected end of template. Jinja was looking for the following`, `; line 2`}},
	"top: latin-1":     {topFile("base:\n  'caf\xe9': [x]\n"), []string{`Unable to render top file: the text is not valid UTF-8`, `; line 2`}},
	"top: missing SLS": {topFile("base:\n  '*': [none]\n"), []string{`No matching sls found for 'none' in env 'base`}},
}

func slsFile(text string) map[string]string { return map[string]string{"x.sls": text} }

func withFile(name, text, sls string) map[string]string {
	return map[string]string{"x.sls": sls, name: text}
}

func topFile(text string) map[string]string {
	return map[string]string{"top.sls": text, "x.sls": "a: test.nop\n"}
}

// TestBadFiles runs broken trees: each is rejected, or its state fails, with a
// message that locates the error. Nothing panics or hangs.
func TestBadFiles(t *testing.T) {
	for name, c := range broken {
		t.Run(name, func(t *testing.T) {
			m := newMinion(t, c.files)
			args := []any{"x"}
			if c.files["top.sls"] != "" {
				args = nil
			}
			o := m.run("state.apply", args...)
			got := strings.ReplaceAll(value.Repr(o.Return), `\'`, "'")
			if o.Retcode == 0 || len(c.want) == 0 {
				t.Errorf("exit code %d, %s", o.Retcode, got)
			}
			// Salt's message takes the whole line: locations are on lines of
			// their own.
			if regexp.MustCompile(`[^n]\((\w+\.\w+, )?line \d`).MatchString(got) {
				t.Errorf("a place behind Salt's text on its line: %s", got)
			}
			for _, w := range c.want {
				if !strings.Contains(got, w) {
					t.Errorf("says %s\nwithout %q", got, w)
				}
			}
		})
	}
}
