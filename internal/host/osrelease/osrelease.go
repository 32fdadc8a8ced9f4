// Package osrelease reads which Linux distribution a machine runs, from
// os-release, lsb-release and the older files such as /etc/redhat-release. The
// caller maps them to Salt's names.
package osrelease

import (
	"regexp"
	"slices"
	"strings"
	"sync"

	"brine/internal/host"
)

// Fields are the variables of an os-release file.
type Fields map[string]string

// Info is the content of the release files of a machine.
type Info struct {
	// OSRelease holds the variables of os-release, nil without that file.
	// NAME, ID and PRETTY_NAME are always set if it is there.
	OSRelease Fields
	// LSB holds the DISTRIB_… variables of /etc/lsb-release.
	LSB Fields
	// Release is the first of the older files that names a distribution.
	Release Release
	// DebianVersion is the content of /etc/debian_version.
	DebianVersion string
}

// Release is the information in a line such as "CentOS Linux release 7.9.2009
// (Core)". Every field may be empty.
type Release struct {
	Name, Version, Codename string
}

// Read reads the files of m.
func Read(m *host.Machine) *Info {
	info := &Info{
		LSB:     ParseLSB(m.Text("/etc/lsb-release")),
		Release: readRelease(m),
	}
	for _, path := range []string{"/etc/os-release", "/usr/lib/os-release"} {
		if text, err := m.ReadFile(path); err == nil {
			info.OSRelease = Parse(strings.ToValidUTF8(string(text), "\ufffd"))
			break
		}
	}
	if lines := m.Lines("/etc/debian_version"); len(lines) > 0 {
		info.DebianVersion = strings.TrimRight(lines[0], " \t\r")
	}
	return info
}

var assignment = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^([A-Za-z0-9_]+)=(.*)$`) })

// Parse parses an os-release file.
func Parse(text string) Fields {
	f := Fields{"NAME": "Linux", "ID": "linux", "PRETTY_NAME": "Linux"}
	for line := range strings.SplitSeq(text, "\n") {
		m := assignment().FindStringSubmatch(strings.TrimSuffix(line, "\r"))
		if m == nil {
			continue
		}
		v := m[2]
		if n := len(v); n >= 2 && (v[0] == '"' || v[0] == '\'') && v[n-1] == v[0] {
			v = v[1 : n-1]
		}
		f[m[1]] = unescape(v)
	}
	return f
}

// unescape drops the backslash before the characters that a shell would
// otherwise expand.
func unescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+1 < len(s) && strings.IndexByte("\\$\"'`", s[i+1]) >= 0 {
			i++
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

var lsbLine = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^(DISTRIB_(?:ID|RELEASE|CODENAME|DESCRIPTION))=['"]?([\p{L}\p{N}\s.\-_]+)['"]?`)
})

// ParseLSB reads the text of /etc/lsb-release. A value ends at the first
// character other than letters, digits, blanks, dots, hyphens and underscores.
func ParseLSB(text string) Fields {
	f := Fields{}
	for line := range strings.SplitSeq(text, "\n") {
		if m := lsbLine().FindStringSubmatch(line); m != nil {
			f[m[1]] = strings.TrimSpace(m[2])
		}
	}
	return f
}

var (
	releaseFile = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[\p{L}\p{N}_]+[-_](release|version)$`) })
	// The line is matched from its end, since a name may contain numbers and
	// the word "release" may be missing.
	reversedRelease = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^(?:[^)]*\)(.*)\()? *(?:STL )?([\d.+\-a-z]*\d) *(?:esaeler *)?(.+)`)
	})
	notReleases = []string{"debian_version", "lsb-release", "oem-release", "os-release", "system-release", "plesk-release", "iredmail-release"}
)

func readRelease(m *host.Machine) Release {
	for _, name := range m.List("/etc") {
		if !releaseFile().MatchString(name) || slices.Contains(notReleases, name) || !m.IsFile("/etc/"+name) {
			continue
		}
		if lines := m.Lines("/etc/" + name); len(lines) > 0 {
			if r := ParseRelease(lines[0]); r.Name != "" {
				return r
			}
		}
	}
	return Release{}
}

// ParseRelease reads the line of an older release file. A line without a
// version is a name.
func ParseRelease(line string) Release {
	line = strings.TrimSpace(line)
	m := reversedRelease().FindStringSubmatch(reverse(line))
	if m == nil {
		return Release{Name: line}
	}
	return Release{Name: reverse(m[3]), Version: reverse(m[2]), Codename: reverse(m[1])}
}

func reverse(s string) string {
	r := []rune(s)
	slices.Reverse(r)
	return string(r)
}

// Name returns the name of the distribution, or "".
func (i *Info) Name() string {
	if n := i.OSRelease["NAME"]; n != "" {
		return n
	}
	return i.Release.Name
}

// Version returns the most precise version in the files, the first of equally
// precise ones, or "".
func (i *Info) Version() string {
	versions := []string{i.OSRelease["VERSION_ID"], i.Release.Version, ParseRelease(i.OSRelease["PRETTY_NAME"]).Version}
	if i.OSRelease["ID"] == "debian" || slices.Contains(strings.Fields(i.OSRelease["ID_LIKE"]), "debian") {
		versions = append(versions, i.DebianVersion)
	}
	best := ""
	for _, v := range versions {
		if best == "" || strings.Count(v, ".") > strings.Count(best, ".") {
			best = v
		}
	}
	return best
}

var versionCodename = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`\((\D+)\)|,\s*(\D+)`) })

// Codename returns the code name of the version, or "".
func (i *Info) Codename() string {
	if c, ok := i.OSRelease["VERSION_CODENAME"]; ok {
		return c // may be empty intentionally
	}
	if c, ok := i.OSRelease["UBUNTU_CODENAME"]; ok {
		return c
	}
	if m := versionCodename().FindStringSubmatch(i.OSRelease["VERSION"]); m != nil {
		return m[1] + m[2]
	}
	return i.Release.Codename
}
