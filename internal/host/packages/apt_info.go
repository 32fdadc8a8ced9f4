package packages

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// infoFields maps the fields of dpkg-query's format to their names here.
var infoFields = [][2]string{
	{"package", "Package"}, {"architecture", "Architecture"}, {"maintainer", "Maintainer"}, {"source", "source:Package"},
	{"version", "Version"}, {"section", "Section"}, {"size", "Size"}, {"MD5", "MD5sum"}, {"SHA1", "SHA1"}, {"SHA256", "SHA256"},
	{"origin", "Origin"}, {"homepage", "Homepage"}, {"status", "db:Status-Abbrev"}, {"description", "Description"},
}

const (
	fieldEnd = "\x1f"
	entryEnd = "\x1e"
)

// Info holds the fields of an installed package that have a value, by name.
type Info map[string]string

// Info returns dpkg's data of packages, all if none is named. The field
// install_date is the time of unpacking; license is from the copyright file.
func (a apt) Info(ctx context.Context, names []string) ([]Info, error) {
	if err := plain(names...); err != nil {
		return nil, err
	}
	var format strings.Builder
	for _, f := range infoFields {
		fmt.Fprintf(&format, "%s:${%s}%s", f[0], f[1], fieldEnd)
	}
	out, err := ask(ctx, a.m, "dpkg-query", append([]string{"-W", "-f=" + format.String() + entryEnd}, names...)...)
	if err != nil {
		return nil, err
	}
	var all []Info
	for entry := range strings.SplitSeq(out, entryEnd) {
		p := Info{}
		for f := range strings.SplitSeq(entry, fieldEnd) {
			if k, v, ok := strings.Cut(f, ":"); ok && v != "" {
				p[k] = v
			}
		}
		if p["package"] == "" {
			continue
		}
		p["description"] += "\n"
		p["install_date"] = a.unpacked(p["package"], p["architecture"])
		p["license"] = a.license(p["package"])
		for k, v := range p {
			if v == "" {
				delete(p, k)
			}
		}
		all = append(all, p)
	}
	return all, nil
}

func (a apt) unpacked(name, _ string) string {
	st, err := a.m.Stat("/var/lib/dpkg/info/" + name + ".list")
	if err != nil {
		return ""
	}
	return st.ModTime().UTC().Format(time.DateOnly+"T"+time.TimeOnly) + "Z"
}

func (a apt) license(name string) string {
	found := map[string]bool{}
	for _, line := range a.m.Lines("/usr/share/doc/" + name + "/copyright") {
		if v, ok := strings.CutPrefix(line, "License:"); ok {
			found[strings.TrimSpace(v)] = true
		}
	}
	return strings.Join(sorted(found), ", ")
}
