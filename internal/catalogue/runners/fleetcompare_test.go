package runners

import (
	"fmt"
	"strings"
	"testing"

	"brine/internal/py/value"
)

// TestCompare compares jobs of states and of another function.
func TestCompare(t *testing.T) {
	before, after := map[string]*value.Dict{}, map[string]*value.Dict{}
	state := func(result any, change, comment string) *value.Dict {
		d := value.DictOf("result", result, "changes", value.NewDict(0), "comment", comment, "duration", 1.5, "__run_num__", 0)
		if change != "" {
			d.Set("changes", value.DictOf("diff", change))
		}
		return d
	}
	ret := func(states ...any) *value.Dict {
		return value.DictOf("return", value.DictOf(states...), "retcode", int64(0))
	}
	const motd, nginx, old = "file_|-motd_|-/etc/motd_|-managed", "pkg_|-nginx_|-nginx_|-installed", "x_|-old_|-old_|-y"
	for i := range 3 {
		id := fmt.Sprintf("m%d", i)
		before[id] = ret(motd, state(true, "+a", "done"), nginx, state(true, "", "there"))
		after[id] = ret(motd, state(true, "", "in order"), nginx, state(false, "", "no such package"))
	}
	before["m3"] = ret(motd, state(true, "", "x"), old, state(false, "", "y"))
	after["m3"] = ret(motd, state(true, "", "another comment"))
	before["same"], after["same"] = ret(motd, state(nil, "+a", "would")), ret(motd, state(nil, "+a", "would"))
	before["gone"], after["new"] = ret(motd, state(true, "", "")), ret(motd, state(true, "", ""))

	c := comparison{groups: map[[32]byte]*difference{}}
	for id, r := range after {
		if before[id] != nil {
			if differs := c.add(id, before[id], r); differs == (id == "same") {
				t.Errorf("%s differs: %v", id, differs)
			}
		}
	}
	rows, more := c.rows()
	var got []string
	for _, x := range rows.Items {
		d := x.(*value.Dict)
		got = append(got, fmt.Sprint(d.Str("fun"), " ", d.Str("state"), " ", d.Str("from"), "-", d.Str("to"), " ", d.At("count")))
	}
	want := "pkg.installed nginx ok-failed 3, x.y old failed-none 1, file.managed /etc/motd changed-ok 3"
	if strings.Join(got, ", ") != want || more != 0 {
		t.Errorf("%s, want %s; %d more", strings.Join(got, ", "), want, more)
	}

	// Returns that are no states, and many large ones.
	c = comparison{groups: map[[32]byte]*difference{}}
	if c.add("a", value.DictOf("return", "x", "retcode", int64(0)), value.DictOf("return", "x", "retcode", int64(0))) {
		t.Error("equal returns differ")
	}
	if !c.add("a", value.DictOf("return", "x", "retcode", int64(0)), value.DictOf("return", "x", "retcode", int64(1))) {
		t.Error("another return code is no difference")
	}
	for i := range maxDifferences + 10 {
		c.add(fmt.Sprint(i), value.DictOf("return", strings.Repeat("y", maxComparedValue-20)), value.DictOf("return", fmt.Sprint(i)))
	}
	rows, more = c.rows()
	if rows.Len() != maxDifferences || more != 11 || Size(rows, 64<<20) > maxComparedText+maxDifferences*200 {
		t.Errorf("%d rows, %d more, %d bytes", rows.Len(), more, Size(rows, 64<<20))
	}
}

// TestCompareJobs refuses jobs that cannot be compared.
func TestCompareJobs(t *testing.T) {
	h := newHouse(t)
	for line, want := range map[string]string{
		"fleet.compare 20260101120000000000 20260101110000000000": `there is no job "20260101110000000000" in the job cache`,
	} {
		if got := h.text(line); !strings.Contains(got, want) {
			t.Errorf("%s: %s, want %s", line, got, want)
		}
	}
}
