package fn_test

import (
	"testing"

	"brine/internal/call/fn"
	"brine/internal/py/value"
)

// described has functions of users, by full name.
type described map[string]*fn.Foreign

func (d described) Find(full string, _ bool) *fn.Func {
	if f := d[full]; f != nil {
		return f.Func()
	}
	return nil
}
func (described) Hides(string) bool          { return false }
func (described) Claims(string) bool         { return true }
func (described) Missing() map[string]string { return nil }
func (d described) Names() ([]string, uint64) {
	return []string{"mine.blocks", "mine.none"}, 1
}

// sys.doc shows docstrings of users' functions as Salt does.
func TestDocsOfForeignFunctions(t *testing.T) {
	r := &fn.Registry{}
	r.Attach(described{
		"mine.none": {Name: "none"},
		"mine.blocks": {Name: "blocks", Doc: "\n    Do it.\n\n    .. versionadded:: 3.1\n\n    .. note::\n        Slow.\n\n    CLI Example:\n\n" +
			"    .. code-block:: bash\n\n        salt '*' mine.blocks\n"},
	})
	want := value.DictOf("mine.blocks", "\n    Do it.\n\n    New in version 3.1\n\n    Note:\n        Slow.\n\n    CLI Example:\n\n        salt '*' mine.blocks\n",
		"mine.none", nil)
	if got := r.Docs("mine"); !value.Equal(got, want) {
		t.Errorf("%s\nwant %s", value.Repr(got), value.Repr(want))
	}
}

// Arguments that can only be given by name are in sys.argspec, as in Salt.
func TestArgSpecsOfForeignFunctions(t *testing.T) {
	r := &fn.Registry{}
	r.Attach(described{"mine.none": {Name: "none", Args: []string{"a"}, Only: []string{"b", "c"}, OnlyDefaults: value.DictOf("c", "x")}})
	want := value.DictOf("mine.none", value.DictOf("args", value.ListOf("a", "b", "c"), "defaults", value.Tuple{"x"}, "varargs", nil, "kwargs", nil))
	if got := r.ArgSpecs("mine"); !value.Equal(got, want) {
		t.Errorf("%s\nwant %s", value.Repr(got), value.Repr(want))
	}
}
