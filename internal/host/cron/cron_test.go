package cron

import (
	"context"
	"strings"
	"testing"

	"brine/internal/host"
	"brine/test/fuzztest"
)

const sample = `# mine
5 4 * * * /above
# Lines below here are managed by Salt, do not edit
PATH=/bin:/usr/bin
# says SALT_CRON_IDENTIFIER:one
0 1 * * * /bin/one a=b
#DISABLED#1 2 3 4 5 /bin/two  x
# two
# lines
@daily /bin/three
`

func TestRoundTrip(t *testing.T) {
	tab := Parse(sample)
	if len(tab.Above) != 2 || len(tab.Jobs) != 2 || len(tab.Specials) != 1 || tab.Jobs[0].Identifier != "one" || tab.Jobs[0].Comment != "says" ||
		!tab.Jobs[1].Disabled || tab.Jobs[1].Cmd != "/bin/two  x" || tab.Specials[0].Comment != "two\nlines" {
		t.Errorf("%+v", tab)
	}
	if got := tab.String(); got != sample {
		t.Errorf("%s", got)
	}
	if got := Parse("").String(); got != mark+"\n" {
		t.Errorf("%q", got)
	}
}

func TestSet(t *testing.T) {
	tab := Parse(sample)
	times := Job{Minute: "0", Hour: "1", Day: "*", Month: "*", Weekday: "*"}
	job := func(cmd, id string, change func(*Job)) Job {
		j := times
		j.Cmd, j.Identifier, j.HasIdentifier = cmd, id, id != ""
		if change != nil {
			change(&j)
		}
		return j
	}
	for i, c := range []struct {
		j    Job
		want string
	}{
		{job("/bin/one a=b", "one", nil), Present},
		{job("/bin/other", "one", nil), Updated},
		{job("/bin/other", "one", func(j *Job) { j.Comment, j.HasComment = "new", true }), Updated},
		{job("/bin/four", "", nil), New},
		{job("/bin/four", "", nil), Present},
		{job("/bin/four", "four", nil), Updated},
		{job("/bin/four", "four", func(j *Job) { *j = Job{Special: "@hourly", Cmd: j.Cmd, Identifier: "four", HasIdentifier: true} }), Updated},
	} {
		if got, err := tab.Set(c.j); got != c.want || err != nil {
			t.Errorf("%d: %s, %v, want %s", i, got, err, c.want)
		}
	}
	if got := tab.Remove("", "four", true, nil); got != Removed {
		t.Error(got)
	}
	if got := tab.Remove("/bin/four", "", false, nil); got != Absent {
		t.Error(got)
	}
	if got := tab.Remove("/bin/other", "one", false, nil); got != Removed {
		t.Error(got)
	}
	for _, bad := range []Job{job("a\n* * * * * root", "", nil), job("a", "", func(j *Job) { j.Hour = "1 2" }), job("a", "x\ny", nil),
		{Special: "daily", Cmd: "x"}} {
		if _, err := tab.Set(bad); err == nil {
			t.Errorf("%+v is accepted", bad)
		}
	}
	for _, c := range [][3]string{{"A", "1", New}, {"A", "1", Present}, {"PATH", "/x", Updated}} {
		if got, err := tab.SetEnv(c[0], c[1]); got != c[2] || err != nil {
			t.Errorf("%v: %s, %v", c, got, err)
		}
	}
	if tab.RemoveEnv("A") != Removed || tab.RemoveEnv("A") != Absent {
		t.Error("environment")
	}
	want := "# mine\n5 4 * * * /above\n" + mark + "\nPATH=/x\n#DISABLED#1 2 3 4 5 /bin/two  x\n# two\n# lines\n@daily /bin/three\n"
	if got := tab.String(); got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
}

func TestReadWrite(t *testing.T) {
	m := &host.Machine{Root: t.TempDir()}
	if err := m.WriteFile("/usr/bin/crontab", nil); err != nil {
		t.Fatal(err)
	}
	if err := m.Chmod("/usr/bin/crontab", 0o755); err != nil {
		t.Fatal(err)
	}
	stored, has := "", false
	m.ExecCmd = func(_ context.Context, c host.Cmd) (host.Output, error) {
		if len(c.Args) != 3 || c.Args[0] != "-u" || c.Args[1] != "bob" {
			t.Errorf("ran %v", c.Args)
		}
		if c.Args[2] == "-" {
			stored, has = c.Stdin, true
			return host.Output{}, nil
		}
		if !has {
			return host.Output{Exit: 1, Stderr: "no crontab for bob"}, nil
		}
		return host.Output{Stdout: stored[:len(stored)-1]}, nil
	}
	tab, err := Read(t.Context(), m, "bob")
	if err != nil || len(tab.Above) != 0 {
		t.Fatalf("%+v, %v", tab, err)
	}
	if _, err := tab.Set(Job{Special: "@daily", Cmd: "x"}); err != nil {
		t.Fatal(err)
	}
	if err := tab.Write(t.Context(), m, "bob"); err != nil {
		t.Fatal(err)
	}
	if again, err := Read(t.Context(), m, "bob"); err != nil || again.String() != stored {
		t.Errorf("%+v, %v", again, err)
	}
	if _, err := Read(t.Context(), m, "-l"); err == nil {
		t.Error("an option as user is accepted")
	}
}

func FuzzParse(tf *testing.F) {
	f := fuzztest.Wrap(tf)
	f.Add(sample)
	f.Add(mark + "\n# SALT_CRON_IDENTIFIER:one\n# ends with spaces  \n0 1 * * * /bin/one\n")
	f.Fuzz(func(t *testing.T, text string) {
		_, managed, _ := strings.Cut(text, mark+"\n")
		if strings.Contains(managed, strings.TrimPrefix(mark, "# ")) {
			return // it looks like a comment, which Parse drops
		}
		once := Parse(text).String()
		if twice := Parse(once).String(); twice != once {
			t.Errorf("%q becomes %q", once, twice)
		}
	})
}
