package frame

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"brine/internal/base/salt"
)

// Version is the version of Brine.
var Version = salt.BrineVersion

// VersionLine returns the output of --version. Its first two words are Salt's, whose protocol and
// messages Brine follows, so that scripts that compare them still work. Brine's own version is in
// the parentheses, where Salt has its release name.
func VersionLine(program string) string {
	return fmt.Sprintf("%s %s (Brine %s)", program, salt.Version, Version)
}

// VersionsReport returns the output of --versions-report: sections in Salt's layout, with the
// modules that Brine is built from.
func VersionsReport() string {
	type entry struct{ name, version string }
	deps, revision := []entry{}, "unknown"
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, d := range info.Deps {
			deps = append(deps, entry{d.Path, strings.TrimPrefix(d.Version, "v")})
		}
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				revision = s.Value
			}
		}
	}
	sections := []struct {
		title   string
		entries []entry
	}{
		{"Salt Version", []entry{{"Salt", salt.Version}}},
		{"Brine Version", []entry{{"Brine", Version}, {"revision", revision}, {"Go", strings.TrimPrefix(runtime.Version(), "go")}}},
		{"Dependency Versions", deps},
		{"System Versions", []entry{{"machine", runtime.GOARCH}, {"system", runtime.GOOS}}},
	}
	wide := 0
	for _, s := range sections {
		for _, e := range s.entries {
			wide = max(wide, len(e.name))
		}
	}
	var b strings.Builder
	for _, s := range sections {
		b.WriteString(s.title + ":\n")
		for _, e := range s.entries {
			fmt.Fprintf(&b, "%*s: %s\n", wide+2, e.name, e.version)
		}
		b.WriteString(" \n")
	}
	return b.String()
}
