package doc

import (
	"fmt"
	"slices"
	"strings"

	"brine/internal/cli/witness"
	"brine/internal/daemons/config"
	"brine/internal/daemons/hub"
)

// sampleKind is the kind of sample configurations.
const sampleKind = "sample"

// sample is a configuration file of a daemon.
type sample struct {
	name string
	kind config.Kind
	// sets are the structs that declare its options.
	sets []any
}

// samples returns the configuration files that have samples. salt-api reads the file master as
// well.
func samples() []sample {
	return []sample{
		{"master", config.MasterKind, []any{&config.Master{}, &apiOptions{}}},
		{"minion", config.MinionKind, []any{&config.Minion{}}},
		{"witness", config.WitnessKind, []any{&witness.Settings{}}},
		{"hub", config.HubKind, []any{&hub.Settings{}}},
	}
}

// sampleFile returns a configuration file with all options and their defaults, commented out.
func sampleFile(name string) ([]byte, error) {
	all := samples()
	i := slices.IndexFunc(all, func(s sample) bool { return s.name == name })
	if i < 0 {
		return nil, fmt.Errorf("there is no sample %q: master, minion, witness and hub have one", name)
	}
	w := &page{}
	w.wrap("Sample of /etc/salt/"+name+" with all options and their defaults. To set an option, remove the # before its name. "+
		"Files in /etc/salt/"+name+".d/*.conf are read as well and override this one.", "# ", "# ")
	group := ""
	for _, set := range all[i].sets {
		options, err := described(all[i].kind, set)
		if err != nil {
			return nil, err
		}
		for j := range options {
			if d := &options[j]; d.Group != group {
				group = d.Group
				w.line("\n\n##### " + group + " #####")
			}
			w.sampleOption(&options[j])
		}
	}
	return w.Bytes(), nil
}

func (w *page) sampleOption(d *config.Description) {
	w.line("")
	w.wrap(sentence(d.Doc), "# ", "# ")
	how := ""
	if d.Change == "live" {
		how = "; read again at SIGHUP"
	}
	w.wrap("Value: "+valueWord(d)+how+".", "# ", "# ")
	if d.Example != nil {
		w.wrap("Example:", "# ", "# ")
		for line := range strings.Lines(block(d.Name, d.Example)) {
			w.line("#   " + strings.TrimRight(line, "\n"))
		}
	}
	w.line("#" + d.Name + ": " + flow(d.Default))
}
