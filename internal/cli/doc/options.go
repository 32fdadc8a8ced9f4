package doc

import (
	"strings"

	"brine/internal/cli/witness"
	"brine/internal/daemons/api"
	"brine/internal/daemons/config"
	"brine/internal/daemons/hub"
	"brine/internal/py/yaml"
)

// optionPrefix is the prefix of the names of configuration kinds.
const optionPrefix = "options-"

// optionKinds returns the configurations, one for each daemon.
func optionKinds() []kind {
	of := func(name, title, about string, k config.Kind, ptr any) kind {
		return kind{name: optionPrefix + name, title: title, about: about, units: func() ([]unit, error) { return optionsOf(k, ptr) }}
	}
	return []kind{
		of("master", "Options of the master", "The options in the file `master`, which salt-master and all programs on a master read.",
			config.MasterKind, &config.Master{}),
		of("minion", "Options of the minion", "The options in the file `minion`, which salt-minion and salt-call read.", config.MinionKind, &config.Minion{}),
		of("api", "Options of salt-api", "The options of salt-api, which are in the file `master`.\nThe keys of `rest_cherrypy` are in [rest-api](../rest-api.md).",
			config.MasterKind, &apiOptions{}),
		of("witness", "Options of a witness", "The options in the file `witness`, which brine witness reads.", config.WitnessKind, &witness.Settings{}),
		of("hub", "Options of brine-hub", "The options in the file `hub`, which brine-hub reads.", config.HubKind, &hub.Settings{}),
	}
}

// apiOptions are the options of salt-api only.
type apiOptions struct {
	API api.Options `title:"salt-api"`
}

// described returns the options declared by a struct. For a daemon it adds those that are read by
// name.
func described(k config.Kind, ptr any) ([]config.Description, error) {
	all, err := config.Describe(k, ptr)
	if err != nil {
		return nil, err
	}
	if _, api := ptr.(*apiOptions); api {
		return all, nil
	}
	more, err := config.DescribeByName(k)
	return append(all, more...), err
}

func optionsOf(k config.Kind, ptr any) ([]unit, error) {
	all, err := described(k, ptr)
	if err != nil {
		return nil, err
	}
	units := make([]unit, len(all))
	for i := range all {
		d := &all[i]
		units[i] = unit{name: d.Name, group: d.Group, summary: d.Doc, write: func(w *page, level int) { w.option(d, level) }}
	}
	return units, nil
}

// option writes one option.
func (w *page) option(d *config.Description, level int) {
	w.heading(level, d.Name)
	w.text(sentence(d.Doc))
	w.item("Value: " + valueWord(d))
	w.item("Default: " + quoted(flow(d.Default)))
	switch d.Change {
	case "live":
		w.item("Takes effect when the daemon reads its files again (SIGHUP).")
	case "restart":
		w.item("Takes effect at the next start.")
	}
	if len(d.Alias) > 0 {
		w.item("Former names: " + quoted(strings.Join(d.Alias, ", ")))
	}
	w.line("")
	if d.Example != nil {
		w.yaml(d.Name, d.Example)
	}
}

// valueWord describes the type and unit of a value.
func valueWord(d *config.Description) string {
	switch d.Type {
	case "any":
		return "see the description"
	case "seconds":
		return "a number of seconds"
	case "number":
		if unit := unitOf(d.Doc); unit != "" {
			return "a number of " + unit
		}
		return "a number"
	case "text":
		return "a string"
	case "list":
		return "a list"
	case "mapping":
		return "a mapping"
	}
	return d.Type
}

// unitOf returns the unit at the beginning of a number's description, or "".
func unitOf(doc string) string {
	for _, u := range []string{"milliseconds", "seconds", "minutes", "hours", "days", "bytes", "MiB", "MB"} {
		if strings.HasPrefix(doc, u+" ") {
			return u
		}
	}
	return ""
}

// sentence adds a capital letter and a full stop to a line of help.
func sentence(s string) string {
	s = strings.TrimSpace(s)
	if s == "" {
		return s
	}
	if first, _, _ := strings.Cut(s, " "); !strings.ContainsAny(first, "._:") && first == strings.ToLower(first) {
		s = strings.ToUpper(s[:1]) + s[1:]
	}
	if !strings.HasSuffix(s, ".") {
		s += "."
	}
	return s
}

// flow returns a value as one line of YAML.
func flow(v any) string {
	if s, ok := v.(string); ok && s == "" {
		return "''"
	}
	text := strings.TrimSpace(yaml.Dump(v, yaml.Flow(), yaml.Width(-1)))
	return strings.TrimSpace(strings.TrimSuffix(text, "..."))
}
