package accounts

import (
	"context"
	"path/filepath"

	"brine/internal/call/fn"
	"brine/internal/py/value"
	"brine/internal/sls/state"
)

func init() {
	units.Declare("ssh_known_hosts", func() state.Module {
		return state.Module{Name: "ssh_known_hosts", Doc: `Keep the keys of hosts that users trust.`, Funcs: []state.Func{
			state.Of("present", knownPresent, `Have the key of a host: one that is given, or one that the host sends and that has a fingerprint.`),
			state.Of("absent", knownAbsent, `Have no key of a host.`),
		}}
	})
}

type knownArgs struct {
	Name        string `salt:"name" doc:"name of the host"`
	User        string `salt:"user" doc:"whose file; the machine's without" default:"null"`
	Fingerprint string `salt:"fingerprint" doc:"fingerprint that the key must have" default:"null"`
	Key         string `salt:"key" doc:"the key in base64; the host is asked without" default:"null"`
	Port        any    `salt:"port" doc:"port of the host" default:"null"`
	Enc         string `salt:"enc" doc:"type of the key" default:"null"`
	Config      string `salt:"config" doc:"the file, below the home or with its full path" default:"null"`
	Hide        bool   `salt:"hash_known_hosts" doc:"hide the name" default:"true"`
	Timeout     any    `salt:"timeout" doc:"seconds to wait for the host" default:"5"`
	Hash        any    `salt:"fingerprint_hash_type" doc:"hash of the fingerprints; null for sha256" default:"null"`
}

// knownFile returns the path of the known hosts file.
func knownFile(user, config string) (string, error) {
	switch {
	case config == "" && user == "":
		return "/etc/ssh/ssh_known_hosts", nil
	case config == "":
		return ".ssh/known_hosts", nil
	case user == "" && !filepath.IsAbs(config):
		return "", fn.Errorf(`If not specifying a "user", specify an absolute "config".`)
	}
	return config, nil
}

func textOrNone(s string) any {
	if s == "" {
		return nil
	}
	return s
}

// knownPresent uses the key if both key and fingerprint are given, as Salt
// does. Salt's test mode fails then; Brine's shows what a run would do.
func knownPresent(ctx context.Context, e *state.Env, a knownArgs) (state.Plan, error) {
	config, err := knownFile(a.User, a.Config)
	switch {
	case err != nil:
		return state.Plan{}, err
	case a.Key != "" && a.Enc == "":
		return state.Plan{}, fn.Errorf(`Required argument "enc" if using "key" argument.`)
	}
	common := value.DictOf("key", textOrNone(a.Key), "fingerprint", textOrNone(a.Fingerprint), "config", config, "port", a.Port, "fingerprint_hash_type",
		a.Hash)
	check, err := e.Exec(ctx, "ssh.check_known_host", common, textOrNone(a.User), a.Name)
	if err != nil {
		return state.Plan{}, err
	}
	p := state.Plan{Steps: []state.Step{{
		Change: state.Change{Comment: "Key for " + a.Name + " is set to be updated in " + config},
		Do: func(ctx context.Context) (state.Change, error) {
			kw := common.Clone()
			kw.Update(value.DictOf("user", textOrNone(a.User), "hostname", a.Name, "enc", textOrNone(a.Enc), "hash_known_hosts", a.Hide, "timeout",
				a.Timeout))
			v, err := e.Exec(ctx, "ssh.set_known_host", kw)
			if err != nil {
				return state.Change{}, err
			}
			d, _ := v.(*value.Dict)
			return a.saved(d, config)
		},
	}}}
	switch d, _ := check.(*value.Dict); {
	case d != nil:
		p.Forecast = &state.Result{Verdict: state.Failed, Comment: d.Str("error")}
	case check == "exists":
		return state.Plan{Comment: a.Name + " already exists in " + config,
			Forecast: &state.Result{Verdict: state.Succeeded, Comment: "Host " + a.Name + " is already in " + config}}, nil
	case check == "add":
		p.Steps[0].Change.Comment = "Key for " + a.Name + " is set to be added to " + config
	}
	return p, nil
}

// saved converts the result of ssh.set_known_host to a change.
func (a knownArgs) saved(d *value.Dict, config string) (state.Change, error) {
	switch d.Str("status") {
	case "exists":
		return state.Change{Comment: a.Name + " already exists in " + config}, nil
	case "error":
		return state.Change{}, fn.Errorf("%s", d.Str("error"))
	}
	c := state.Change{Diff: value.DictOf("old", d.At("old"), "new", d.At("new")), Comment: a.Name + "'s key(s) saved to " + config}
	var first *value.Dict
	if l := d.List("new"); len(l) > 0 {
		first, _ = l[0].(*value.Dict)
	}
	switch {
	case a.Key != "":
		c.Comment = a.Name + "'s key saved to " + config + " (key: " + first.Str("key") + ")"
	case a.Fingerprint != "":
		c.Comment = a.Name + "'s key saved to " + config + " (fingerprint: " + first.Str("fingerprint") + ")"
	case a.Enc != "":
		c.Comment = a.Name + "'s " + a.Enc + " key saved to " + config + " (key: " + first.Str("key") + ")"
	}
	return c, nil
}

type knownAbsentArgs struct {
	Name   string `salt:"name" doc:"name of the host"`
	User   string `salt:"user" doc:"whose file; the machine's without" default:"null"`
	Config string `salt:"config" doc:"the file, below the home or with its full path" default:"null"`
}

func knownAbsent(ctx context.Context, e *state.Env, a knownAbsentArgs) (state.Plan, error) {
	config, err := knownFile(a.User, a.Config)
	if err != nil {
		return state.Plan{}, err
	}
	kw := value.DictOf("user", a.User, "hostname", a.Name, "config", config)
	old, err := e.Exec(ctx, "ssh.get_known_host_entries", kw)
	if err != nil || !value.Truth(old) {
		return state.Plan{Comment: "Host is already absent"}, err
	}
	return state.Plan{Steps: []state.Step{{
		Change: state.Change{Comment: "Key for " + a.Name + " is set to be removed from " + config},
		Do: func(ctx context.Context) (state.Change, error) {
			v, err := e.Exec(ctx, "ssh.rm_known_host", kw)
			if err != nil {
				return state.Change{}, err
			}
			d, _ := v.(*value.Dict)
			if d.Str("status") == "error" {
				return state.Change{}, fn.Errorf("%s", d.Str("error"))
			}
			return state.Change{Diff: value.DictOf("old", old, "new", nil), Comment: d.Str("comment")}, nil
		},
	}}}, nil
}
