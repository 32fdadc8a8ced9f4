package osrelease

import (
	"reflect"
	"testing"

	"brine/test/fuzztest"
)

func TestParseRelease(t *testing.T) {
	for line, want := range map[string]Release{
		"CentOS Linux release 7.9.2009 (Core)":                   {"CentOS Linux", "7.9.2009", "Core"},
		"Red Hat Enterprise Linux Server release 5.11 (Tikanga)": {"Red Hat Enterprise Linux Server", "5.11", "Tikanga"},
		"Fedora release 40 (Forty)":                              {"Fedora", "40", "Forty"},
		"Slackware 15.0":                                         {"Slackware", "15.0", ""},
		"VMware Photon OS 4.0":                                   {"VMware Photon OS", "4.0", ""},
		"openEuler release 22.03 (LTS-SP1)":                      {"openEuler", "22.03", "LTS-SP1"},
		"Arch":                                                   {"Arch", "", ""},
		"  ":                                                     {"", "", ""},
	} {
		if got := ParseRelease(line); got != want {
			t.Errorf("%q is %+v, want %+v", line, got, want)
		}
	}
}

func TestParse(t *testing.T) {
	got := Parse("NAME=\"A \\\"b\\\" \\$c\"\r\nID='x'\nEMPTY=\nODD=\"open\n#NO=1\n NO=1\nBAD LINE\nQ='\n")
	want := Fields{"NAME": `A "b" $c`, "ID": "x", "PRETTY_NAME": "Linux", "EMPTY": "", "ODD": `"open`, "Q": "'"}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func FuzzParseRelease(tf *testing.F) {
	f := fuzztest.Wrap(tf)
	for _, s := range []string{"CentOS Linux release 7.9.2009 (Core)", "a (b) (c)", "\xff", "((", "1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, line string) {
		if r := ParseRelease(line); len(r.Version) > 0 && r.Name == "" {
			t.Errorf("%q has a version but no name", line)
		}
	})
}
