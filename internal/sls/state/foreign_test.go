package state

import (
	"strings"
	"testing"

	"brine/internal/py/value"
)

func TestReadResult(t *testing.T) {
	d := value.DictOf("name", "n", "result", nil, "changes", value.DictOf("a", 1), "comment", value.ListOf("one", "two"), "warnings", value.ListOf("w"),
		"skip_watch", true, "more", 1)
	r, err := ReadResult(d)
	if err != nil || r.Verdict != Undecided || r.Comment != "one\ntwo" || r.Changes.Len() != 1 || len(r.Warnings) != 1 || !r.SkipWatch ||
		!value.Equal(r.Extra, value.DictOf("name", "n", "more", 1)) {
		t.Errorf("%+v %v", r, err)
	}
	for _, c := range []struct {
		change func(*value.Dict)
		want   Verdict
		text   string
	}{
		{func(d *value.Dict) { d.Set("result", true) }, Succeeded, ""},
		{func(d *value.Dict) { d.Set("result", false) }, Failed, ""},
		{func(d *value.Dict) { d.Set("changes", "none") }, Undecided, "'Changes' should be a dictionary."},
		{func(d *value.Dict) { d.Delete("comment"); d.Delete("name") }, Undecided, "were not present in the state return: name, comment."},
	} {
		again := d.Clone()
		c.change(again)
		r, err := ReadResult(again)
		if r.Verdict != c.want || (err != nil) != (c.text != "") || err != nil && !strings.Contains(err.Error(), c.text) {
			t.Errorf("%+v %v", r, err)
		}
	}
	if _, err := ReadResult("text"); err == nil {
		t.Error("a text was taken as a result")
	}
}
