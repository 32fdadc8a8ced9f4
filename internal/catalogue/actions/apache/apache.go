// Package apache implements the execution module apache and the states
// apache_module, apache_site and apache_conf.
package apache

import (
	"context"
	"os"
	"strings"

	"brine/internal/call/fn"
	"brine/internal/host"
	"brine/internal/py/value"
)

// Part is a kind of configuration that Debian's Apache can enable: a site, a
// module or a configuration file.
type Part struct {
	m           *host.Machine
	title, word string
	// enabled returns links below /etc/apache2; the name is enabled if one of them
	// exists.
	enabled func(name string) []string
}

// Parts returns the three parts of a machine's Apache.
func Parts(m *host.Machine) (site, mod, conf Part) {
	site = Part{m, "Site", "site", func(name string) []string {
		links := []string{"sites-enabled/" + withConf(name)}
		if name == "default" {
			links = append(links, "sites-enabled/000-default.conf")
		}
		return links
	}}
	mod = Part{m, "Mod", "mod", func(name string) []string {
		if !strings.HasSuffix(name, ".load") && !strings.HasSuffix(name, ".conf") {
			name += ".load"
		}
		return []string{"mods-enabled/" + name}
	}}
	conf = Part{m, "Conf", "conf", func(name string) []string { return []string{"conf-enabled/" + withConf(name)} }}
	return site, mod, conf
}

// withConf returns the name with the suffix .conf.
func withConf(name string) string { return strings.TrimSuffix(name, ".conf") + ".conf" }

// Enabled reports whether name is enabled, that is, whether a link to it
// exists.
func (p Part) Enabled(name string) bool {
	for _, link := range p.enabled(name) {
		if st, err := os.Lstat(p.m.Path("/etc/apache2/" + link)); err == nil && st.Mode()&os.ModeSymlink != 0 {
			return true
		}
	}
	return false
}

// Set enables or disables name and returns the outcome in Salt's words.
func (p Part) Set(ctx context.Context, name string, on bool) (*value.Dict, error) {
	verb, title := "dis", "Dis"
	if on {
		verb, title = "en", "En"
	}
	program := "a2" + verb + p.word
	if err := host.NoOption(program, name); err != nil {
		return nil, fn.FromHost(err)
	}
	out, err := p.m.Command(ctx, host.Cmd{Program: program, Args: []string{name}})
	if err != nil {
		return nil, fn.Errorf("cannot run %s: %w", program, err)
	}
	d := value.DictOf("Name", "Apache2 "+title+"able "+p.title, p.title, name, "Status", any(int64(out.Exit)))
	switch {
	case out.Exit == 0:
		d.Set("Status", p.title+" "+name+" "+verb+"abled")
	case out.Exit == 1 && on:
		d.Set("Status", p.title+" "+name+" Not found")
	}
	return d, nil
}
