package accounts

import (
	"context"
	"regexp"
	"slices"
	"strings"

	"brine/internal/call/fn"
	"brine/internal/files/fileclient"
	"brine/internal/py/value"
	"brine/internal/sls/state"
)

func init() {
	units.Declare("ssh_auth", func() state.Module {
		return state.Module{Name: "ssh_auth", Doc: `Keep the keys with which users may log in.`, Funcs: []state.Func{
			state.Of("present", authPresent, `Have a key that may log in as a user, or all keys of a file.`),
			state.Of("absent", authAbsent, `Have no such key, or none of a file.`),
			state.Of("manage", authManage, `Have keys, and no others, that may log in as a user.`),
		}}
	})
}

// authArgs are the arguments of the states for SSH keys.
type authArgs struct {
	Name    string    `salt:"name" doc:"the key in base64, or a line with options, type, key and comment"`
	User    string    `salt:"user" doc:"user"`
	Enc     string    `salt:"enc" doc:"type of the key" default:"ssh-rsa"`
	Comment string    `salt:"comment" doc:"comment of the key" default:""`
	Source  string    `salt:"source" doc:"file with keys, in place of the name" default:""`
	Options any       `salt:"options" doc:"list of options" default:"null"`
	Config  string    `salt:"config" doc:"the file; %h is the home, %u the user" default:".ssh/authorized_keys"`
	Hash    any       `salt:"fingerprint_hash_type" doc:"hash of the fingerprints; null for sha256" default:"null"`
	Kwargs  fn.Kwargs `salt:"kwargs"`
}

var keyLine = regexp.MustCompile(`^(.*?)\s?((?:sk-)?(?:ssh-|ecds)[\w@.-]+\s.+)$`)

// read parses a whole key line given as the name.
func (a *authArgs) read() error {
	name := strings.TrimSpace(a.Name)
	if name == "" {
		return fn.Errorf("a key is needed as the name")
	}
	if m := keyLine.FindStringSubmatch(name); m != nil {
		if m[1] != "" {
			a.Options = value.Strings(strings.Split(m[1], ","))
		}
		part := strings.Fields(m[2])
		a.Enc, name = part[0], strings.Join(part[1:], " ")
	}
	key, comment, _ := strings.Cut(name, " ")
	a.Name = key
	if comment = strings.TrimSpace(comment); comment != "" {
		a.Comment = comment
	}
	return nil
}

func (a authArgs) options() any {
	if a.Options == nil {
		return value.ListOf()
	}
	return a.Options
}

// check returns what must be done for the key: add, update or exists.
func (a authArgs) check(ctx context.Context, e *state.Env) (any, error) {
	return e.Exec(ctx, "ssh.check_key", value.DictOf("config", a.Config, "fingerprint_hash_type", a.Hash), a.User, a.Name, a.Enc, a.Comment, a.options())
}

// checkFile returns the same for all keys of the source. A source without keys
// is an error.
func (a authArgs) checkFile(ctx context.Context, e *state.Env) (*value.Dict, error) {
	v, err := e.Exec(ctx, "ssh.check_key_file", value.DictOf("saltenv", e.Saltenv, "fingerprint_hash_type", a.Hash), a.User, a.Source, a.Config)
	d, _ := v.(*value.Dict)
	if err == nil && d.Len() == 0 {
		err = fn.Errorf("No keys detected in %s. Is file properly formatted?", a.Source)
	}
	return d, err
}

// fetch fetches the source into the cache, since ssh.check_key_file returns
// nothing if it cannot.
func (a authArgs) fetch(ctx context.Context, e *state.Env) error {
	_, err := e.Files.GetURL(ctx, a.Source, "", fileclient.URLOptions{Saltenv: e.Saltenv, Makedirs: true})
	return err
}

func authPresent(ctx context.Context, e *state.Env, a authArgs) (state.Plan, error) {
	if a.Source != "" {
		return a.presentFile(ctx, e)
	}
	if err := a.read(); err != nil {
		return state.Plan{}, err
	}
	check, err := a.check(ctx, e)
	if err != nil {
		return state.Plan{}, err
	}
	predicted := "Key " + a.Name + " for user " + a.User + " is set to be added"
	switch check {
	case "exists":
		return state.Plan{Comment: "The authorized host key " + a.Name + " is already present for user " + a.User}, nil
	case "update":
		predicted = "Key " + a.Name + " for user " + a.User + " is set to be updated"
	}
	return state.Plan{Steps: []state.Step{{
		Change: state.Change{Comment: predicted},
		Do: func(ctx context.Context) (state.Change, error) {
			kw := value.DictOf("enc", a.Enc, "comment", a.Comment, "options", a.options(), "config", a.Config, "fingerprint_hash_type", a.Hash)
			v, err := e.Exec(ctx, "ssh.set_auth_key", kw, a.User, a.Name)
			if err != nil {
				return state.Change{}, err
			}
			return a.outcome(v)
		},
	}}}, nil
}

// outcome converts the result of ssh.set_auth_key to a change.
func (a authArgs) outcome(v any) (state.Change, error) {
	of := "The authorized host key " + a.Name
	switch v {
	case "replace":
		return state.Change{Diff: value.DictOf(a.Name, "Updated"), Comment: of + " for user " + a.User + " was updated"}, nil
	case "no change":
		return state.Change{Comment: of + " is already present for user " + a.User}, nil
	case "new":
		return state.Change{Diff: value.DictOf(a.Name, "New"), Comment: of + " for user " + a.User + " was added"}, nil
	case "fail":
		return state.Change{}, fn.Errorf("Failed to add the ssh key. Is the home directory available, and/or does the key file exist?")
	}
	return state.Change{}, fn.Errorf("Invalid public ssh key, most likely has spaces or invalid syntax")
}

func (a authArgs) presentFile(ctx context.Context, e *state.Env) (state.Plan, error) {
	if err := a.fetch(ctx, e); err != nil {
		return state.Plan{}, fn.Errorf("Failed to add the ssh key. Source file %s is missing", a.Source)
	}
	all, err := a.checkFile(ctx, e)
	if err != nil {
		return state.Plan{}, err
	}
	predicted := ""
	for key, status := range all.All() {
		if status != "exists" {
			predicted += "Set to " + value.Str(status) + ": " + value.Str(key) + "\n"
		}
	}
	done := state.Plan{Comment: "The authorized host key " + a.Name + " is already present for user " + a.User,
		Forecast: &state.Result{Verdict: state.Succeeded, Comment: "All host keys in file " + a.Source + " are already present"}}
	if predicted == "" {
		return done, nil
	}
	return state.Plan{Steps: []state.Step{{
		Change: state.Change{Comment: predicted},
		Do: func(ctx context.Context) (state.Change, error) {
			kw := value.DictOf("config", a.Config, "saltenv", e.Saltenv, "fingerprint_hash_type", a.Hash, "options", a.Options)
			v, err := e.Exec(ctx, "ssh.set_auth_key_from_file", kw, a.User, a.Source)
			if err != nil {
				return state.Change{}, err
			}
			return a.outcome(v)
		},
	}}}, nil
}

func authAbsent(ctx context.Context, e *state.Env, a authArgs) (state.Plan, error) {
	if a.Source != "" {
		return a.absentFile(ctx, e)
	}
	if err := a.read(); err != nil {
		return state.Plan{}, err
	}
	check, err := a.check(ctx, e)
	step := state.Step{
		Change: state.Change{Comment: "Key " + a.Name + " for user " + a.User + " is set for removal"},
		Do: func(ctx context.Context) (state.Change, error) {
			v, err := e.Exec(ctx, "ssh.rm_auth_key", value.DictOf("config", a.Config, "fingerprint_hash_type", a.Hash), a.User, a.Name)
			if err != nil {
				return state.Change{}, err
			}
			return removed(v, a.Name)
		},
	}
	p := state.Plan{Steps: []state.Step{step}}
	switch {
	case err != nil: // an invalid type does not prevent removing a key
		p.Forecast = &state.Result{Verdict: state.Failed, Comment: err.Error()}
	case check != "exists" && check != "update":
		p.Forecast = &state.Result{Verdict: state.Succeeded, Comment: "Key is already absent"}
	}
	return p, nil
}

// removed converts the result of the execution function to a change.
func removed(v any, name string) (state.Change, error) {
	switch said := value.Str(v); said {
	case "User authorized keys file not present":
		return state.Change{}, fn.Errorf("%s", said)
	case "Key removed":
		return state.Change{Diff: value.DictOf(name, "Removed"), Comment: said}, nil
	default:
		return state.Change{Comment: said}, nil
	}
}

// absentFile keeps the keys if the source is missing, as Salt does, but adds a
// warning.
func (a authArgs) absentFile(ctx context.Context, e *state.Env) (state.Plan, error) {
	if err := a.fetch(ctx, e); err != nil {
		return state.Plan{Warnings: []string{"Source file " + a.Source + " is missing: no key was removed"},
			Forecast: &state.Result{Verdict: state.Succeeded, Comment: "All host keys in file " + a.Source + " are already absent"}}, nil
	}
	all, err := a.checkFile(ctx, e)
	if err != nil {
		return state.Plan{}, err
	}
	predicted := ""
	for key, status := range all.All() {
		if status != "add" {
			predicted += "Set to remove: " + value.Str(key) + "\n"
		}
	}
	p := state.Plan{Steps: []state.Step{{
		Change: state.Change{Comment: predicted},
		Do: func(ctx context.Context) (state.Change, error) {
			v, err := e.Exec(ctx, "ssh.rm_auth_key_from_file", value.DictOf("saltenv", e.Saltenv, "fingerprint_hash_type", a.Hash), a.User, a.Source, a.Config)
			if err != nil {
				return state.Change{}, err
			}
			return removed(v, a.Name)
		},
	}}}
	if predicted == "" {
		p.Forecast = &state.Result{Verdict: state.Succeeded, Comment: "All host keys in file " + a.Source + " are already absent"}
	}
	return p, nil
}

type authManageArgs struct {
	Name    string    `salt:"name" doc:"anything"`
	Keys    any       `salt:"ssh_keys" doc:"list of keys"`
	User    string    `salt:"user" doc:"user"`
	Enc     string    `salt:"enc" doc:"type of the keys" default:"ssh-rsa"`
	Comment string    `salt:"comment" doc:"comment of the keys" default:""`
	Source  string    `salt:"source" doc:"file with keys, in place of each" default:""`
	Options any       `salt:"options" doc:"list of options" default:"null"`
	Config  string    `salt:"config" doc:"the file; %h is the home, %u the user" default:".ssh/authorized_keys"`
	Hash    any       `salt:"fingerprint_hash_type" doc:"hash of the fingerprints; null for sha256" default:"null"`
	Kwargs  fn.Kwargs `salt:"kwargs"`
}

func (m authManageArgs) one(key string) authArgs {
	return authArgs{Name: key, User: m.User, Enc: m.Enc, Comment: m.Comment, Source: m.Source, Options: m.Options, Config: m.Config, Hash: m.Hash}
}

func authManage(ctx context.Context, e *state.Env, m authManageArgs) (state.Plan, error) {
	wanted := value.Texts(m.Keys)
	var parts []string
	for _, key := range wanted {
		parts = append(parts, strings.Fields(key)...)
	}
	v, err := e.Exec(ctx, "ssh.auth_keys", value.DictOf("user", m.User, "config", m.Config, "fingerprint_hash_type", m.Hash))
	if err != nil {
		return state.Plan{}, err
	}
	have, _ := v.(*value.Dict)
	var plan state.Plan
	var said []string
	for k := range have.All() {
		key := value.Str(k)
		if slices.Contains(parts, key) {
			continue
		}
		p, err := authAbsent(ctx, e, m.one(key))
		if err != nil {
			return plan, err
		}
		for _, s := range p.Steps {
			s.Change.Comment = key + " Key set for removal"
			do := s.Do
			s.Do = func(ctx context.Context) (state.Change, error) {
				c, err := do(ctx)
				return state.Change{Diff: value.DictOf(key, c.Comment)}, err
			}
			plan.Steps = append(plan.Steps, s)
		}
	}
	for _, key := range wanted {
		p, err := authPresent(ctx, e, m.one(key))
		if err != nil {
			return plan, err
		}
		for _, s := range p.Steps {
			do := s.Do
			s.Do = func(ctx context.Context) (state.Change, error) {
				c, err := do(ctx)
				if c.Diff.Len() > 0 {
					c.Comment = ""
				}
				return c, err
			}
			plan.Steps = append(plan.Steps, s)
		}
		if len(p.Steps) == 0 {
			said = append(said, p.Comment)
		}
	}
	plan.Comment = strings.Join(said, "\n")
	if n := len(plan.Steps); n > 0 && plan.Comment != "" {
		plan.Steps[n-1].Change.Comment += "\n" + plan.Comment
	}
	return plan, nil
}
