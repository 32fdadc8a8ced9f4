package control

import (
	"context"
	"fmt"
	"slices"

	"brine/internal/base/textedit"
	"brine/internal/call/fn"
	"brine/internal/py/value"
	"brine/internal/py/yaml"
)

// Lookout manages the beacons of a minion.
type Lookout interface {
	// Manage handles a request in the form of Salt's event manage_beacons:
	// func, name, beacon_data. The answer has the resulting beacons, and a
	// comment if complete is false.
	Manage(ctx context.Context, req *value.Dict) (*value.Dict, error)
	// Save stores the configuration for the next start, and returns its path.
	Save(all *value.Dict) (path string, err error)
}

type beaconModule struct{ l Lookout }

// Beacons returns the module beacons.
func Beacons(l Lookout) fn.Module {
	m := beaconModule{l}
	return fn.Module{Name: "beacons", Doc: `What the minion watches and tells the masters of.`, Funcs: []fn.Func{
		fn.Of("list", m.list, `Return the configured beacons.`, fn.Example("salt '*' beacons.list")),
		fn.Of("list_available", m.available, `Return the beacons that there are.`, fn.Example("salt '*' beacons.list_available")),
		fn.Of("add", m.add, `Add a beacon.`, fn.Example("salt '*' beacons.add ps \"[{'processes': {'nginx': 'stopped'}}]\"")),
		fn.Of("modify", m.modify, `Replace the settings of a beacon.`, fn.Example("salt '*' beacons.modify ps \"[{'processes': {'nginx': 'stopped'}}]\"")),
		fn.Of("delete", m.delete, `Remove a beacon.`, fn.Example("salt '*' beacons.delete ps")),
		fn.Of("save", m.save, `Save the beacons for the next start of the minion.`, fn.Example("salt '*' beacons.save")),
		fn.Of("enable", m.turn("enable"), `Enable all beacons.`, fn.Example("salt '*' beacons.enable")),
		fn.Of("disable", m.turn("disable"), `Disable all beacons.`, fn.Example("salt '*' beacons.disable")),
		fn.Of("enable_beacon", m.turnOne("enable"), `Enable a beacon.`, fn.Example("salt '*' beacons.enable_beacon ps")),
		fn.Of("disable_beacon", m.turnOne("disable"), `Disable a beacon.`, fn.Example("salt '*' beacons.disable_beacon ps")),
		fn.Of("reset", m.reset, `Go back to the beacons of the configuration.`, fn.Example("salt '*' beacons.reset")),
	}}
}

type beaconListArgs struct {
	YAML   bool      `salt:"return_yaml" doc:"as a text of YAML" default:"true"`
	Pillar bool      `salt:"include_pillar" doc:"also those of the pillar" default:"true"`
	Opts   bool      `salt:"include_opts" doc:"also those of the minion's options" default:"true"`
	Kw     fn.Kwargs `salt:"kwargs"`
}

func (m beaconModule) list(ctx context.Context, _ *fn.Call, a beaconListArgs) (any, error) {
	answer, err := m.l.Manage(ctx, value.DictOf("func", "list", "include_pillar", a.Pillar, "include_opts", a.Opts))
	if err != nil {
		return nil, err
	}
	if a.YAML {
		return yaml.Dump(value.DictOf("beacons", answer.Dict("beacons"))), nil
	}
	return answer.Dict("beacons"), nil
}

type beaconAvailableArgs struct {
	YAML bool      `salt:"return_yaml" doc:"as a text of YAML" default:"true"`
	Kw   fn.Kwargs `salt:"kwargs"`
}

func (m beaconModule) available(ctx context.Context, _ *fn.Call, a beaconAvailableArgs) (any, error) {
	answer, err := m.l.Manage(ctx, value.DictOf("func", "list_available"))
	if err != nil {
		return nil, err
	}
	names := value.Strings(value.Texts(answer.At("beacons")))
	if a.YAML {
		return yaml.Dump(value.DictOf("beacons", names)), nil
	}
	return names, nil
}

type beaconDataArgs struct {
	Name string    `salt:"name" doc:"name of the beacon"`
	Data any       `salt:"beacon_data" doc:"its settings"`
	Kw   fn.Kwargs `salt:"kwargs"`
}

func beaconResult(ok bool, format string, args ...any) *value.Dict {
	return value.DictOf("comment", fmt.Sprintf(format, args...), "result", ok)
}

// known returns the configured beacons.
func (m beaconModule) known(ctx context.Context) (*value.Dict, error) {
	answer, err := m.l.Manage(ctx, value.DictOf("func", "list", "include_pillar", true, "include_opts", true))
	if err != nil {
		return nil, err
	}
	return answer.Dict("beacons"), nil
}

// manage sends a request about one beacon; done is the comment on success.
func (m beaconModule) manage(ctx context.Context, done string, kv ...any) (*value.Dict, error) {
	answer, err := m.l.Manage(ctx, value.DictOf(kv...))
	if err != nil {
		return nil, err
	}
	if !answer.Bool("complete") {
		return beaconResult(false, "%s", answer.Str("comment")), nil
	}
	return beaconResult(true, "%s", done), nil
}

// fault returns what is wrong with settings, "" if nothing.
func (m beaconModule) fault(ctx context.Context, a beaconDataArgs) (string, error) {
	answer, err := m.l.Manage(ctx, value.DictOf("func", "validate_beacon", "name", a.Name, "beacon_data", a.Data))
	if err != nil || answer.Bool("valid") {
		return "", err
	}
	return answer.Str("vcomment"), nil
}

func (m beaconModule) add(ctx context.Context, _ *fn.Call, a beaconDataArgs) (any, error) {
	known, err := m.known(ctx)
	if err != nil {
		return nil, err
	}
	if known.Has(a.Name) {
		return beaconResult(true, "Beacon %s is already configured.", a.Name), nil
	}
	kind := a.Name
	if l, ok := a.Data.(*value.List); ok {
		for _, it := range l.Items {
			if d, ok := it.(*value.Dict); ok && d.Str("beacon_module") != "" {
				kind = d.Str("beacon_module")
			}
		}
	}
	answer, err := m.l.Manage(ctx, value.DictOf("func", "list_available"))
	if err != nil {
		return nil, err
	}
	if !slices.Contains(value.Texts(answer.At("beacons")), kind) {
		return beaconResult(false, "Beacon \"%s\" is not available.", kind), nil
	}
	if a.Kw.Bool("test") {
		return beaconResult(true, "Beacon: %s would be added.", a.Name), nil
	}
	if why, err := m.fault(ctx, a); err != nil || why != "" {
		return beaconResult(false, "Beacon %s configuration invalid, not adding.\n%s", a.Name, why), err
	}
	return m.manage(ctx, fmt.Sprintf("Added beacon: %s.", a.Name), "func", "add", "name", a.Name, "beacon_data", a.Data)
}

func (m beaconModule) modify(ctx context.Context, _ *fn.Call, a beaconDataArgs) (any, error) {
	known, err := m.known(ctx)
	if err != nil {
		return nil, err
	}
	old, ok := known.Get(a.Name)
	switch {
	case !ok:
		return beaconResult(false, "Beacon %s is not configured.", a.Name), nil
	case a.Kw.Bool("test"):
		return beaconResult(true, "Beacon: %s would be modified.", a.Name), nil
	}
	if why, err := m.fault(ctx, a); err != nil || why != "" {
		return beaconResult(false, "Beacon %s configuration invalid, not modifying.\n%s", a.Name, why), err
	}
	if value.Equal(old, a.Data) {
		return beaconResult(true, "Job %s in correct state", a.Name), nil
	}
	ret, err := m.manage(ctx, fmt.Sprintf("Modified beacon: %s.", a.Name), "func", "modify", "name", a.Name, "beacon_data", a.Data)
	if err == nil && ret.Bool("result") {
		ret.Set("changes", value.DictOf("diff", textedit.DiffLines(settingLines(old), settingLines(a.Data), "", "")))
	}
	return ret, err
}

// settingLines returns the settings of a beacon as the lines that Salt compares.
func settingLines(settings any) []string {
	var lines []string
	for _, it := range value.Items(settings) {
		d, _ := it.(*value.Dict)
		for k, v := range d.All() {
			lines = append(lines, value.Str(k)+":"+value.Str(v)+"\n")
		}
	}
	return lines
}

type beaconNameArgs struct {
	Name string    `salt:"name" doc:"name of the beacon"`
	Kw   fn.Kwargs `salt:"kwargs"`
}

func (m beaconModule) delete(ctx context.Context, _ *fn.Call, a beaconNameArgs) (any, error) {
	if a.Kw.Bool("test") {
		return beaconResult(true, "Beacon: %s would be deleted.", a.Name), nil
	}
	return m.manage(ctx, fmt.Sprintf("Deleted beacon: %s.", a.Name), "func", "delete", "name", a.Name)
}

type beaconKwArgs struct {
	Kw fn.Kwargs `salt:"kwargs"`
}

func (m beaconModule) save(ctx context.Context, _ *fn.Call, _ beaconKwArgs) (any, error) {
	answer, err := m.l.Manage(ctx, value.DictOf("func", "list", "include_pillar", false, "include_opts", true))
	if err != nil {
		return nil, err
	}
	path, err := m.l.Save(answer.Dict("beacons"))
	if err != nil {
		return beaconResult(false, "%v", err), nil
	}
	return beaconResult(true, "Beacons saved to %s.", path), nil
}

func (m beaconModule) turn(fun string) func(context.Context, *fn.Call, beaconKwArgs) (any, error) {
	return func(ctx context.Context, _ *fn.Call, a beaconKwArgs) (any, error) {
		if a.Kw.Bool("test") {
			return beaconResult(true, "Beacons would be %sd.", fun), nil
		}
		return m.manage(ctx, fmt.Sprintf("%sd beacons on minion.", title(fun)), "func", fun)
	}
}

func (m beaconModule) turnOne(fun string) func(context.Context, *fn.Call, beaconNameArgs) (any, error) {
	return func(ctx context.Context, _ *fn.Call, a beaconNameArgs) (any, error) {
		known, err := m.known(ctx)
		switch {
		case err != nil:
			return nil, err
		case !known.Has(a.Name):
			return beaconResult(false, "Beacon %s is not currently configured.", a.Name), nil
		case a.Kw.Bool("test"):
			if fun == "disable" { // Salt's text is that of all beacons
				return beaconResult(true, "Beacons would be disabled."), nil
			}
			return beaconResult(true, "Beacon %s would be %sd.", a.Name, fun), nil
		}
		return m.manage(ctx, fmt.Sprintf("%sd beacon %s on minion.", title(fun), a.Name), "func", fun+"_beacon", "name", a.Name)
	}
}

func (m beaconModule) reset(ctx context.Context, _ *fn.Call, a beaconKwArgs) (any, error) {
	if a.Kw.Bool("test") {
		return beaconResult(true, "Beacons would be reset."), nil
	}
	return m.manage(ctx, "Beacon configuration reset.", "func", "reset")
}
