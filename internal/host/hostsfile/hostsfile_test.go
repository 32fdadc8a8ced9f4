package hostsfile

import (
	"testing"

	"brine/internal/host"
)

func TestEdit(t *testing.T) {
	m := &host.Machine{Root: t.TempDir()}
	const path = "/etc/hosts"
	if err := m.WriteFile(path, []byte("# top\n127.0.0.1  localhost  lo # self\n\n10.0.0.1\ta\n10.0.0.1 b\n::1 localhost")); err != nil {
		t.Fatal(err)
	}
	f, err := Read(m, path)
	if err != nil {
		t.Fatal(err)
	}
	if f.IP("lo") != "127.0.0.1" || f.IP("none") != "" || len(f.Names("10.0.0.1")) != 2 {
		t.Errorf("%+v", f.Lines)
	}
	if err := f.Add("127.0.0.1", "me"); err != nil {
		t.Fatal(err)
	}
	if err := f.Add("10.0.0.9", "new"); err != nil {
		t.Fatal(err)
	}
	f.Remove("127.0.0.1", "lo")
	if err := f.Set("10.0.0.1", []string{"c", "d"}, "two"); err != nil {
		t.Fatal(err)
	}
	if !f.SetComment("::1", "six") || f.SetComment("1.1.1.1", "x") {
		t.Error("comments")
	}
	f.Remove("10.0.0.9", "new")
	for _, bad := range []string{"", "a b", "a#b", "a\nb"} {
		if f.Add("10.0.0.2", bad) == nil || f.Add(bad, "x") == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
	if err := f.Rename("d", "e"); err != nil {
		t.Fatal(err)
	}
	if f.Rename("e", "a b") == nil {
		t.Error("a name with a blank is accepted")
	}
	if err := f.Write(); err != nil {
		t.Fatal(err)
	}
	want := "# top\n127.0.0.1\t\tlocalhost me\t\t# self\n10.0.0.1\t\tc e\t\t# two\n::1\t\tlocalhost\t\t# six\n"
	if got := m.Text(path); got != want {
		t.Errorf("%q\nwant %q", got, want)
	}
	empty, err := Read(m, "/none")
	if err != nil || len(empty.Lines) != 0 {
		t.Errorf("%v, %v", empty, err)
	}
}
