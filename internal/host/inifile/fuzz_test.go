package inifile

import (
	"regexp"
	"strings"
	"testing"

	"brine/test/fuzztest"
)

func FuzzParse(tf *testing.F) {
	f := fuzztest.Wrap(tf)
	for _, s := range []string{"own = 1\n[main]\n# a = 2\na = 1\n  more\n; c\n\n[empty]\n[x]\nb=c=d\n", "[a\n]\n", "[a]\n[a]\nk\n", "=x\n[=]\n==\n"} {
		f.Add(s)
	}
	option := regexp.MustCompile(`^(\s*)(.+?)\s*` + regexp.QuoteMeta("=") + `\s*(.*)`)
	parse := func(text string) *File {
		file := &File{separator: "=", option: option}
		file.parse(text)
		return file
	}
	f.Fuzz(func(t *testing.T, text string) {
		file := parse(text)
		sections := 0
		for _, e := range file.entries {
			if e.section != nil {
				sections++
			}
		}
		if most := strings.Count(text, "["); sections > most {
			t.Errorf("%q has %d sections", text, sections)
		}
	})
}
