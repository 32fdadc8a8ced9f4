package jinja

import (
	"strings"
	"testing"

	"brine/internal/py/value"
)

// Known sandbox escapes of Python's jinja2. Each must end with an error or an
// undefined value and must not call any function.
func TestSandboxEscapes(t *testing.T) {
	called := false
	vars := map[string]any{
		"d": value.DictOf("a", 1), "l": value.ListOf(1), "s": "text",
		"f": NewFunc("x()", func(*Call) (any, error) { called = true; return nil, nil }),
	}
	for _, expr := range []string{
		"''.__class__", "''.__class__.__mro__[1].__subclasses__()", "[].__class__.__base__.__subclasses__()", "d.__class__.__init__.__globals__",
		"l.__init__.__globals__['__builtins__']",
		"f.__globals__", "f.__code__", "f.__call__('x')", "f.__self__", "s.format.__globals__", "s.__init__.__globals__['os'].popen('id').read()",
		"cycler.__init__.__globals__.os.popen('id').read()", "joiner.__init__.__globals__", "namespace.__init__.__globals__",
		"lipsum.__globals__['os'].popen('id').read()",
		"self.__init__.__globals__", "self._TemplateReference__context", "self.__class__", "range.__class__", "dict.mro()", "loop.__class__",
		"caller.__class__",
		"request.application.__globals__.__builtins__.__import__('os')", "config.__class__", "get_flashed_messages.__globals__", "url_for.__globals__",
		"''|attr('__class__')", "''|attr('__cl' ~ 'ass__')", "''['__class__']", "''['\\x5f\\x5fclass\\x5f\\x5f']", "d|attr('__init__')|attr('__globals__')",
		"f|attr('__globals__')",
		"'{0.__class__}'.format(s)", "'{0.__class__.__mro__}'.format(d)", "'%(__class__)s' % s", "'{a.__init__.__globals__}'.format(a=f)",
		"'{0[__class__]}'.format(s)",
		"['a']|map(attribute='__class__')|list", "['a']|groupby('__class__')", "['a']|map('attr', '__class__')|list", "[s]|sum(attribute='__class__')",
		"[s]|selectattr('__class__')|list",
		"__import__('os')", "open('/etc/passwd')", "eval('1')", "exec('1')", "os.popen('id')", "import_module('os')", "globals()", "__builtins__",
		"getattr(s, '__class__')",
		"(s).__reduce_ex__(2)", "(1).__class__.__bases__", "(f for f in l).gi_frame", "s.__getattribute__('__class__')", "d.__getitem__.__self__",
	} {
		for _, o := range []Options{{Undefined: StrictUndefined}, {Undefined: ChainableUndefined}, {Undefined: DefaultUndefined}} {
			out, err := renderFiles(New(o), value.DictOf("main", "<{{ "+expr+" }}>"), vars)
			if err != nil {
				continue
			}
			// undefined, or a list of undefined values
			if got := strings.NewReplacer("'a'", "", "Undefined", "", "None", "", "[", "", "]", "", " ", "", ",", "", "(", "", ")",
				"").Replace(out); got != "<>" {
				t.Errorf("%s: %s", expr, out)
			}
		}
	}
	if called {
		t.Error("a sandbox escape called a function")
	}
	for _, name := range []string{"/etc/passwd", "../../etc/passwd", "file:///etc/passwd"} {
		for _, tag := range []string{"{% include '" + name + "' %}", "{% import '" + name + "' as x %}", "{% extends '" + name + "' %}",
			"{% from '" + name + "' import x %}"} {
			if out, err := renderFiles(New(Options{}), value.DictOf("main", tag), vars); err == nil {
				t.Errorf("%s: %s", tag, out)
			}
		}
	}
}
