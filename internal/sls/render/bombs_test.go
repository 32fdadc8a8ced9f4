package render

import (
	"errors"
	"runtime"
	"runtime/metrics"
	"strings"
	"syscall"
	"testing"
	"time"

	"brine/test/tools"
)

// bombs are templates that try to use all memory or all time. Each must end
// with an error that names the template and the line.
var bombs = map[string]string{
	"filter replace":            "{{ ('a'*100000) | replace('a', 'b'*100000) }}",
	"filter replace of grains":  "{{ grains.big | replace('a', grains.big) }}",
	"filter replace of nothing": "{{ ('a'*100000) | replace('', 'b'*100000) }}",
	"method replace":            "{{ ('a'*100000).replace('a', 'b'*100000) }}",
	"method replace of nothing": "{{ ('a'*100000).replace('', 'b'*100000) }}",
	"bytes replace":             "{{ ('a'*100000).encode().replace('a'.encode(), ('b'*100000).encode()) }}",
	"bytes that double":         "{% set ns = namespace(b='aaaaaaaa'.encode()) %}{% for i in range(64) %}{% set ns.b = ns.b + ns.b %}{% endfor %}",
	"bytes times":               "{{ 'a'.encode() * 10**11 }}",
	"times":                     "{{ 'ab' * 10**11 }}",
	"list times":                "{{ [1, 2] * 10**10 }}",
	"tuple times":               "{{ (1, 2) * 10**10 }}",
	"concatenation":             "{% set ns = namespace(s='aaaaaaaa') %}{% for i in range(64) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}",
	"concatenation of many":     "{% set a = 'a' * 10**7 %}{{ a ~ " + strings.Repeat("a ~ ", 100) + "a }}",
	"sum of texts":              "{% set ns = namespace(s='aaaaaaaa') %}{% for i in range(64) %}{% set ns.s = ns.s + ns.s %}{% endfor %}",
	"sum of safe texts":         "{% set ns = namespace(s='aaaaaaaa'|safe) %}{% for i in range(64) %}{% set ns.s = ns.s + ns.s %}{% endfor %}",
	"filter join":               "{{ range(90000) | join('x' * 100000) }}",
	"method join":               "{{ ('x' * 100000).join(['a'] * 100000) }}",
	"filter center":             "{{ 'a' | center(10**11) }}",
	"method center":             "{{ 'a'.center(10**11) }}",
	"ljust":                     "{{ 'a'.ljust(10**11) }}",
	"rjust of wide":             "{{ 'a'.rjust(10**9, '€') }}",
	"zfill":                     "{{ '1'.zfill(10**11) }}",
	"indent":                    "{{ ('a\\n' * 100000) | indent(100000) }}",
	"indent by text":            "{{ ('a\\n' * 100000) | indent('x' * 100000) }}",
	"percent":                   "{{ '%2000000000d' % 1 }}",
	"percent star":              "{{ '%*d' % (10**9, 1) }}",
	"percent precision":         "{{ '%.1000000000f' % 1.5 }}",
	"many percents":             "{{ ('%1000000d' * 1000) % ((1,) * 1000) }}",
	"filter format":             "{{ '%2000000000s' | format('x') }}",
	"format":                    "{{ '{:>2000000000}'.format('x') }}",
	"format with zeros":         "{{ '{:02000000000d}'.format(1) }}",
	"many fields":               "{{ ('{0:>1000000}' * 1000).format('x') }}",
	"field of a field":          "{{ '{0:{1}}'.format('x', 2000000000) }}",
	"fields of a big text":      "{{ ('{0}' * 10000).format('x' * 1000000) }}",
	"format_map":                "{{ ('{a}' * 10000).format_map({'a': 'x' * 1000000}) }}",
	"range":                     "{% for x in range(10**9) %}{% endfor %}",
	"ranges":                    "{% for x in range(100000) %}{% for y in range(100000) %}{% endfor %}{% endfor %}",
	"list of a range of ranges": "{% set l = [] %}{% for x in range(100000) %}{% do l.append(range(100000) | list) %}{% endfor %}",
	"wordwrap":                  "{{ ('a' * 1000000) | wordwrap(1, wrapstring='x' * 10000) }}",
	"batch":                     "{{ [1] | batch(10**11, 'x') | list }}",
	"batches":                   "{{ range(100000) | batch(1, 'x') | map('batch', 100000, 'y') | map('list') | list }}",
	"slice":                     "{{ [1] | slice(10**11, 'x') | list }}",
	"expandtabs":                "{{ ('\\t' * 100000).expandtabs(100000) }}",
	"translate":                 "{{ ('a' * 100000).translate({97: 'x' * 100000}) }}",
	"tojson":                    "{{ ([[]] * 100000) | tojson(indent=100000) }}",
	"json":                      "{{ ([[1]] * 100000) | json(indent=100000) }}",
	"nested tojson": "{% set ns = namespace(l=[]) %}{% for i in range(300) %}{% set ns.l = [ns.l] %}{% endfor %}{{ ns.l | " +
		"tojson(indent=1000000) }}",
	"lists of lists": "{% set ns = namespace(l=['x' * 1000]) %}{% for i in range(30) %}{% set ns.l = [ns.l, ns.l, ns.l, ns.l] %}{% endfor " +
		"%}{{ ns.l }}",
	"lists of lists to a text": "{% set ns = namespace(l=['x' * 1000]) %}{% for i in range(30) %}{% set ns.l = [ns.l, ns.l, ns.l, ns.l] %}{% endfor " +
		"%}{{ ns.l | string | length }}",
	"lists of lists as JSON": "{% set ns = namespace(l=['x' * 1000]) %}{% for i in range(30) %}{% set ns.l = [ns.l, ns.l, ns.l, ns.l] %}{% endfor " +
		"%}{{ ns.l | tojson }}",
	"lists of lists, compared": "{% set ns = namespace(l=['x'], m=['x']) %}{% for i in range(40) %}{% set ns.l = [ns.l, ns.l, ns.l, ns.l] %}{% set " +
		"ns.m = [ns.m, ns.m, ns.m, ns.m] %}{% endfor %}{{ ns.l == ns.m }}",
	"lists of lists, ordered": "{% set ns = namespace(l=['x'], m=['x']) %}{% for i in range(40) %}{% set ns.l = [ns.l, ns.l, ns.l, ns.l] %}{% set " +
		"ns.m = [ns.m, ns.m, ns.m, ns.m] %}{% endfor %}{{ ns.l < ns.m }}",
	"lists of lists as YAML": "{% set ns = namespace(l=['x' * 1000]) %}{% for i in range(30) %}{% set ns.l = [ns.l, ns.l, ns.l, ns.l] %}{% endfor " +
		"%}{{ ns.l | yaml }}{{ ns.l | python }}",
	"lists of lists, printed": "{% set ns = namespace(l=['x' * 1000]) %}{% for i in range(30) %}{% set ns.l = [ns.l, ns.l, ns.l, ns.l] %}{% endfor " +
		"%}{{ ns.l | pprint }}",
	"lists of lists, in ~": "{% set ns = namespace(l=['x' * 1000]) %}{% for i in range(30) %}{% set ns.l = [ns.l, ns.l, ns.l, ns.l] %}{% endfor " +
		"%}{{ ns.l ~ 'x' }}",
	"lists of lists, flattened": "{% set ns = namespace(l=['x' * 1000]) %}{% for i in range(30) %}{% set ns.l = [ns.l, ns.l, ns.l, ns.l] %}{% endfor " +
		"%}{{ ns.l | flatten | length }}",
	"dicts": "{% set d = {} %}{% for x in range(100000) %}{% for y in range(100000) %}{% do d.update({x ~ '-' ~ y: 1}) %}{% " +
		"endfor %}{% endfor %}",
	"dict from keys": "{% set l = [] %}{% for x in range(100000) %}{% do l.append({}.fromkeys(range(100000))) %}{% endfor %}",
	"lists in a list": "{% set l = [] %}{% for x in range(100000) %}{% for y in range(100000) %}{% do l.append([x, y, [x]]) %}{% endfor " +
		"%}{% endfor %}",
	"inserts":     "{% set l = [] %}{% for x in range(100000) %}{% for y in range(100000) %}{% do l.insert(0, [x]) %}{% endfor %}{% endfor %}",
	"copies":      "{% set a = range(100000) | list %}{% set l = [] %}{% for x in range(100000) %}{% do l.append(a.copy()) %}{% endfor %}",
	"slices":      "{% set a = range(100000) | list %}{% set l = [] %}{% for x in range(100000) %}{% do l.append(a[:]) %}{% endfor %}",
	"text slices": "{% set a = 'é' * 100000 %}{% set l = [] %}{% for x in range(100000) %}{% do l.append(a[1:]) %}{% endfor %}",
	"splits":      "{% set a = 'a,' * 1000000 %}{% set l = [] %}{% for x in range(100000) %}{% do l.append(a.split(',')) %}{% endfor %}",
	"reversals":   "{% set a = 'a' * 1000000 %}{% set l = [] %}{% for x in range(100000) %}{% do l.append(a | reverse) %}{% endfor %}",
	"escapes":     "{% set a = '<' * 1000000 %}{% set l = [] %}{% for x in range(100000) %}{% do l.append(a | escape) %}{% endfor %}",
	"encodings": "{% set a = 'a' * 1000000 %}{% set l = [] %}{% for x in range(100000) %}{% do l.append(a.encode()) %}{% do " +
		"l.append(a | base64_encode) %}{% do l.append(a | urlencode) %}{% endfor %}",
	"sorts": "{% set a = range(100000) | list %}{% set l = [] %}{% for x in range(100000) %}{% do l.append(a | sort) %}{% endfor %}",
	"finds": "{% set a = 'a' * 10000000 %}{% for x in range(100000) %}{% if (a ~ '') is undefined or 'b' in a or a.count('b') or " +
		"a.find('ab') > 0 %}{% endif %}{% endfor %}",
	"comparisons": "{% set a = 'a' * 10000000 %}{% set b = 'a' * 10000000 %}{% for x in range(100000) %}{% for y in range(100000) %}{% " +
		"if a < b %}{% endif %}{% endfor %}{% endfor %}",
	"searches": "{% set a = 'a' * 10000000 %}{% for x in range(100000) %}{% for y in range(100000) %}{% if 'b' in a %}{% endif %}{% " +
		"endfor %}{% endfor %}",
	"counts in lists": "{% set a = range(100000) | list %}{% for x in range(100000) %}{% for y in range(100000) %}{% if a.count(-1) %}{% " +
		"endif %}{% endfor %}{% endfor %}",
	"lengths": "{% set a = 'é' * 10000000 %}{% for x in range(100000) %}{% for y in range(100000) %}{% if a | length == 1 %}{% " +
		"endif %}{% endfor %}{% endfor %}",
	"power":                     "{{ 2 ** 10 ** 10 }}",
	"powers":                    "{% set ns = namespace(n=3) %}{% for i in range(100) %}{% set ns.n = ns.n * ns.n %}{% endfor %}",
	"power of powers":           "{% for i in range(100000) %}{% for i in range(100000) %}{% if 3 ** 80000 == 1 %}{% endif %}{% endfor %}{% endfor %}",
	"to_bytes":                  "{{ (1).to_bytes(10**11) }}",
	"regex that goes back":      "{{ ('a' * 50) | regex_search('(a+)+(a+)+b') }}",
	"many regexes that go back": "{% for i in range(1000) %}{{ ('a' * 40) | regex_match('(a|aa)+(a|aa)+$b') }}{% endfor %}",
	"regex_replace":             "{{ ('a' * 100000) | regex_replace('a', 'b' * 100000) }}",
	"recursive macro":           "{% macro m(x) %}{{ m(x ~ x) }}{% endmacro %}{{ m('aaaa') }}",
	"macro that calls twice":    "{% macro m(n) %}{% if n %}{{ m(n - 1) }}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(100) }}",
	"recursive loop":            "{% set l = [] %}{% do l.append(l) %}{% for x in l recursive %}{{ loop(x) }}{% endfor %}",
	"endless loop":              "{% set l = [1] %}{% for x in l %}{% do l.append(1) %}{% endfor %}",
	"include of itself":         "{% include 'web/itself.jinja' %}",
	"include twice":             "{% include 'web/twice.jinja' %}",
	"import of itself":          "{% import 'web/self.jinja' as s with context %}",
	"product":                   "{{ range(1000) | product(range(1000), range(1000), range(1000)) | list }}",
	"product repeated":          "{{ [0, 1] | product(repeat=60) | list | length }}",
	"combinations":              "{{ range(100) | combinations(50) | list }}",
	"permutations":              "{{ range(30) | permutations | list }}",
	"permutations that fail":    "{{ range(64) | combinations_with_replacement(60) | last }}",
	"zip of endless":            "{{ range(100000) | zip(range(100000)) | list | product(range(100000)) | list }}",
	"lipsum":                    "{{ lipsum(n=10**9) }}",
	"lipsum of one":             "{{ lipsum(n=1, min=10**9, max=10**9+1) }}",
	"writes":                    "{% for x in range(100000) %}{{ 'x' * 100000 }}{% endfor %}",
	"block sets": "{% set ns = namespace(s='x' * 1000) %}{% for i in range(100) %}{% set t %}{{ ns.s }}{{ ns.s }}{% endset %}{% set " +
		"ns.s = t %}{% endfor %}",
	"load_yaml": "{% for x in range(100000) %}{% set d = ('[' ~ '1,' * 100000 ~ ']') | load_yaml %}{% endfor %}",
	"YAML aliases": "{% set d = 'a: &a [x,x,x,x,x,x,x,x]\\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a]\\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b]\\nd: &d " +
		"[*c,*c,*c,*c,*c,*c,*c,*c]\\ne: &e [*d,*d,*d,*d,*d,*d,*d,*d]\\nf: &f [*e,*e,*e,*e,*e,*e,*e,*e]\\ng: &g [*f,*f,*f,*f,*f,*f,*f,*f]\\nh: " +
		"[*g,*g,*g,*g,*g,*g,*g,*g]' | load_yaml %}{% for i in range(100) %}{{ d }}{% endfor %}",
	"chained filters":  "{{ range(100000) | map('string') | map('replace', '1', 'x' * 10000) | join }}",
	"map of a sum":     "{{ [[1] * 10000] * 10000 | sum(start=[]) }}{{ ([[1] * 1000] * 100000) | sum(start=[]) }}",
	"unique":           "{% for x in range(100000) %}{% set a = range(100000) | unique | list %}{% endfor %}",
	"group by":         "{% for x in range(100000) %}{% set a = range(100000) | groupby(0) | list %}{% endfor %}",
	"union":            "{% for x in range(100000) %}{% set a = range(100000) | union(range(100000)) %}{% endfor %}",
	"quotes":           "{% set ns = namespace(s=\"'\") %}{% for i in range(100) %}{% set ns.s = ns.s | quote %}{% endfor %}",
	"yaml_dquote":      "{% set ns = namespace(s='\"') %}{% for i in range(100) %}{% set ns.s = ns.s | yaml_dquote %}{% endfor %}",
	"tojson of tojson": "{% set ns = namespace(s='\"') %}{% for i in range(100) %}{% set ns.s = ns.s | tojson %}{% endfor %}",
	"random_str":       "{{ 10**11 | random_str }}",
	"strftime":         "{{ 0 | strftime('%c' * 1000000) | length }}{% for i in range(100000) %}{% set a = 0 | strftime('%c' * 100000) %}{% endfor %}",
	"keywords": "{% for x in range(100000) %}{% set d = dict(**{'a': 1}) %}{% for y in range(100000) %}{% set e = dict(d, b=1) %}{% endfor " +
		"%}{% endfor %}",
	"many names": "{% for x in range(100000) %}{% set c = show_full_context() | string %}{% endfor %}",
}

// heap returns the bytes of live and dead objects.
func heap() uint64 {
	s := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(s)
	return s[0].Value.Uint64()
}

// peak runs do and returns the maximum growth of the heap meanwhile.
func peak(do func()) uint64 {
	runtime.GC()
	before, most := heap(), uint64(0)
	look := func() {
		// One reading: between two of them, a collection can make the heap smaller than before.
		if now := heap(); now > before {
			most = max(most, now-before)
		}
	}
	done := make(chan struct{})
	go func() { defer close(done); do() }()
	for {
		select {
		case <-done:
			look()
			return most
		case <-time.After(time.Millisecond):
			look()
		}
	}
}

// cpuTime returns the CPU time of the process, because the test may have to
// wait for others.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func TestBombs(t *testing.T) {
	if len(bombs) < 40 {
		t.Fatalf("only %d bombs", len(bombs))
	}
	limits := Limits{MaxTime: 3 * time.Second, MaxSteps: 4_000_000}
	few := testing.Short() || tools.Race
	if few { // the limits of time and steps apply earlier
		limits = Limits{MaxTime: 500 * time.Millisecond, MaxSteps: 400_000}
	}
	for name, src := range bombs {
		if few && len(src)%3 != 0 { // a third of them, always the same ones
			continue
		}
		t.Run(name, func(t *testing.T) {
			req := request("line one\n" + src + "\n")
			req.Grains.Set("big", strings.Repeat("a", 100000))
			more := req.Loader.(tree)
			more["web/itself.jinja"] = "{% include 'web/itself.jinja' %}"
			more["web/twice.jinja"] = "{% for i in range(10) %}{% include 'web/deep.jinja' %}{% endfor %}"
			more["web/deep.jinja"] = "{% include 'web/twice.jinja' %}"
			more["web/self.jinja"] = "{% import 'web/self.jinja' as s with context %}"
			req.Default = "jinja"
			var err error
			var out any
			begin := cpuTime()
			grown := peak(func() {
				out, err = New(Options{Limits: limits}).Render(t.Context(), req)
			})
			took := cpuTime() - begin
			var e *Error
			switch s, _ := out.(string); {
			case err == nil && len(s) < 64<<20: // the language itself bounds the size
			case !errors.As(err, &e):
				t.Errorf("%d bytes, error %v", len(s), err)
			case e.Name == "" || e.Line == 0:
				t.Errorf("no place: %v", err)
			}
			if grown > 512<<20 || took > time.Minute {
				t.Errorf("the heap grew by %d MB, in %v", grown>>20, took)
			}
			if testing.Verbose() {
				msg := ""
				if e != nil {
					msg, _, _ = strings.Cut(e.Message, "\n")
				}
				t.Logf("%d MB, %v: %s", grown>>20, took.Round(time.Millisecond), msg)
			}
		})
	}
}
