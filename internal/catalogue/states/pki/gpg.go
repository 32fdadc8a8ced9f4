package pki

import (
	"context"
	"os"
	"slices"
	"strings"

	"brine/internal/call/fn"
	"brine/internal/catalogue/actions/gpg"
	"brine/internal/host"
	"brine/internal/py/value"
	"brine/internal/sls/state"
)

func init() { units.Declare("gpg", gpgModule) }

func gpgModule() state.Module {
	return state.Module{Name: "gpg", Doc: `Public keys in the keyrings of GnuPG.`, Funcs: []state.Func{
		state.Of("present", gpgPresent, `Have keys in a keyring. Keys that are missing come from a key server.`),
		state.Of("absent", gpgAbsent, `Have no such keys in a keyring.`),
	}}
}

type gpgArgs struct {
	Name    string    `salt:"name" doc:"long id of the key"`
	Keys    any       `salt:"keys" doc:"ids of the keys, instead of the name" default:"null"`
	User    any       `salt:"user" doc:"owner of the keyring; null: the minion's user" default:"null"`
	Home    any       `salt:"gnupghome" doc:"directory of the keyring; null: .gnupg in the user's home directory" default:"null"`
	Keyring any       `salt:"keyring" doc:"file of the only keyring to use" default:"null"`
	Kwargs  fn.Kwargs `salt:"kwargs"`
}

func (a gpgArgs) ids() []string {
	if text, ok := a.Keys.(string); ok && text != "" {
		return []string{text}
	}
	if value.Truth(a.Keys) {
		return value.Texts(a.Keys)
	}
	return []string{a.Name}
}

// keyrings are those of this machine.
var keyrings = gpg.Keyrings{M: &host.Machine{}}

// keyring returns the keyring of the arguments.
func (a gpgArgs) keyring() gpg.KeyringArgs {
	text := func(v any) string { s, _ := v.(string); return s }
	return gpg.KeyringArgs{User: text(a.User), Home: text(a.Home), Keyring: text(a.Keyring)}
}

// keys returns the trust in the owner of each key by the key's id.
func (a gpgArgs) keys(ctx context.Context, e *state.Env) (*value.Dict, error) {
	l, err := keyrings.ListKeys(ctx, e.Call, a.keyring())
	if err != nil {
		return nil, err
	}
	all := value.NewDict(4)
	for _, k := range l.Items {
		if key, ok := k.(*value.Dict); ok {
			all.Set(key.Str("keyid"), key.Str("ownerTrust"))
		}
	}
	return all, nil
}

// succeeded returns an error with the message of a function that has failed.
func succeeded(d *value.Dict, err error) error {
	if err != nil || value.Truth(d.At("res")) {
		return err
	}
	message := d.Str("message")
	if l, ok := d.At("message").(*value.List); ok {
		message = strings.Join(value.Texts(l), "\n")
	}
	return state.Errorf("%s", message)
}

type gpgPresentArgs struct {
	gpgArgs
	Server any `salt:"keyserver" doc:"key server; null: keys.openpgp.org" default:"null"`
	Trust  any `salt:"trust" doc:"trust in the owner: expired, unknown, not_trusted, marginally, fully or ultimately" default:"null"`
}

func gpgPresent(ctx context.Context, e *state.Env, a gpgPresentArgs) (state.Plan, error) {
	now, err := a.keys(ctx, e)
	if err != nil {
		return state.Plan{}, err
	}
	level := ""
	if value.Truth(a.Trust) {
		if level = value.Str(a.Trust); gpg.OwnerTrust(level) == "" {
			return state.Plan{}, state.Errorf("Invalid trust level %s", level)
		}
	}
	var p state.Plan
	var fine []string
	for _, id := range a.ids() {
		trusting := func(ctx context.Context) error {
			return succeeded(keyrings.TrustKey(ctx, e.Call, gpg.TrustArgs{KeyID: id, Level: level, KeyringArgs: a.keyring()}))
		}
		if !now.Has(id) {
			p.Steps = append(p.Steps, state.Step{
				Change: state.Change{Comment: "Would have added " + id + " to GPG keychain", Diff: value.DictOf(id, value.DictOf("added", true))},
				Do: func(ctx context.Context) (state.Change, error) {
					server, _ := a.Server.(string)
					err := succeeded(keyrings.ReceiveKeys(ctx, e.Call, gpg.ReceiveArgs{Server: server, Keys: id, KeyringArgs: a.keyring()}))
					if err != nil {
						return state.Change{}, err
					}
					c := state.Change{Comment: "Added " + id + " to GPG keychain", Diff: value.DictOf(id, value.DictOf("added", true))}
					if level == "" {
						return c, nil
					}
					if err = trusting(ctx); err == nil {
						c.Comment += "\nSet trust level for " + id + " to " + level
					}
					return c, err
				}})
			continue
		}
		// Salt compares the validity of the key instead, and so sets most levels in every run.
		if level != "" && now.Str(id) != gpg.OwnerTrust(level) {
			diff := value.DictOf(id, value.DictOf("trust", level))
			p.Steps = append(p.Steps, state.Step{
				Change: state.Change{Comment: "Would have set trust level for " + id + " to " + level, Diff: diff},
				Do: func(ctx context.Context) (state.Change, error) {
					if err := trusting(ctx); err != nil {
						return state.Change{}, err
					}
					return state.Change{Comment: "Set trust level for " + id + " to " + level + "\nGPG Public Key " + id + " already in keychain", Diff: diff}, nil
				}})
			continue
		}
		if level != "" {
			fine = append(fine, "GPG Public Key "+id+" already in correct trust state")
		}
		fine = append(fine, "GPG Public Key "+id+" already in keychain")
	}
	p.Comment = strings.Join(fine, "\n")
	return p, nil
}

type gpgAbsentArgs struct {
	gpgArgs
	RemoveEmpty bool `salt:"keyring_absent_if_empty" doc:"remove the file of the keyring if no key is left" default:"false"`
}

func gpgAbsent(ctx context.Context, e *state.Env, a gpgAbsentArgs) (state.Plan, error) {
	now, err := a.keys(ctx, e)
	if err != nil {
		return state.Plan{}, err
	}
	var gone, missing []string
	for _, id := range a.ids() {
		if now.Has(id) {
			gone = append(gone, id)
		} else {
			missing = append(missing, id+" not found in GPG keychain")
		}
	}
	p := state.Plan{Comment: strings.Join(missing, "\n")}
	if len(gone) > 0 {
		would := make([]string, len(gone))
		for i, id := range gone {
			would[i] = "Would have deleted " + id + " from GPG keychain"
		}
		p.Steps = append(p.Steps, state.Step{Change: state.Change{Comment: strings.Join(would, "\n"), Diff: value.DictOf("deleted", value.Strings(gone))},
			Do: func(ctx context.Context) (state.Change, error) {
				c := state.Change{}
				var done, said []string
				for _, id := range gone {
					ring := a.keyring()
					err := succeeded(keyrings.DeleteKey(ctx, e.Call, gpg.DeleteArgs{KeyID: id, User: ring.User, Home: ring.Home, Keyring: ring.Keyring}))
					if err != nil {
						return c, err
					}
					done, said = append(done, id), append(said, "Deleted "+id+" from GPG keychain")
					c = state.Change{Comment: strings.Join(said, "\n"), Diff: value.DictOf("deleted", value.Strings(done))}
				}
				return c, nil
			}})
	}
	ring, _ := a.Keyring.(string)
	left := slices.ContainsFunc(now.Keys(), func(k any) bool { return !slices.Contains(gone, value.Str(k)) })
	if _, err := os.Stat(ring); a.RemoveEmpty && ring != "" && err == nil && !left {
		removed := state.Change{Comment: "Removed empty keyring file " + ring, Diff: value.DictOf("removed", ring)}
		p.Steps = append(p.Steps, state.Step{Change: removed, Do: func(context.Context) (state.Change, error) { return removed, os.Remove(ring) }})
	}
	return p, nil
}
