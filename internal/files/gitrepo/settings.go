package gitrepo

import (
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"time"

	"brine/internal/base/log/redact"
	"brine/internal/base/salt"
	"brine/internal/net/crypt"
	"brine/internal/py/value"
)

// Settings are the parameters of one remote, with the global options as
// defaults.
type Settings struct {
	// ID is the remote's entry in the configuration.
	ID string
	// Set holds the parameters of this remote.
	Set *value.Dict
	// All holds the global options, without their prefix.
	All map[string]any
}

// ReadSettings reads an entry of a list of remotes: a URL, or a map of one URL
// to parameters, which are a map or a list of maps. Only the allowed
// parameters are accepted.
func ReadSettings(entry any, all map[string]any, allowed ...string) (Settings, error) {
	s := Settings{Set: value.NewDict(0), All: all}
	d, ok := entry.(*value.Dict)
	if !ok {
		text, ok := entry.(string)
		if !ok || strings.TrimSpace(text) == "" {
			return s, salt.Errorf(salt.Invalid, "a git remote is an address, or a map of one to its parameters, not a %s; put quotes around it",
				value.TypeName(entry))
		}
		s.ID = strings.TrimSpace(text)
		return s, nil
	}
	if d.Len() == 0 {
		return s, salt.Errorf(salt.Invalid, "a git remote has no address")
	}
	var conf any
	for k, v := range d.All() {
		s.ID, conf = strings.TrimSpace(value.Str(k)), v
		break
	}
	s.Set = Repack(conf)
	if s.Set.Len() == 0 {
		return s, salt.Errorf(salt.Invalid, "the git remote %s has no parameters: take away the colon behind its address", redact.Text(s.ID))
	}
	for k, v := range s.Set.All() {
		name := value.Str(k)
		if !slices.Contains(allowed, name) {
			return s, salt.Errorf(salt.Invalid, "the git remote %s has the parameter %s, which there is none of: there are %s", redact.Text(s.ID),
				name, strings.Join(allowed, ", "))
		}
		if want := wanted(name, v); want != "" {
			return s, salt.Errorf(salt.Invalid, "the git remote %s: %s must be %s, not a %s", redact.Text(s.ID), name, want, value.TypeName(v))
		}
	}
	return s, nil
}

// wanted returns what the value of a parameter must be, "" if v is that.
func wanted(name string, v any) string {
	switch name {
	case "update_interval":
		switch n := v.(type) {
		case int64:
			if n >= 0 {
				return ""
			}
		case float64:
			if n >= 0 {
				return ""
			}
		}
		return "a number of seconds"
	case "ssl_verify", "insecure_auth", "disable_saltenv_mapping":
		if _, isText := v.(string); isText {
			return "True or False"
		}
	}
	return ""
}

// Repack converts a list of maps, as in configurations, to one map, including
// nested lists of maps.
func Repack(v any) *value.Dict {
	out := value.NewDict(0)
	add := func(d *value.Dict) {
		for k, x := range d.All() {
			if l, ok := x.(*value.List); ok && l.Len() > 0 && allDicts(l) {
				x = Repack(l)
			} else if m, ok := x.(*value.Dict); ok {
				x = Repack(m)
			}
			out.Set(value.Str(k), x)
		}
	}
	switch x := v.(type) {
	case *value.Dict:
		add(x)
	case *value.List:
		for _, it := range x.Items {
			if d, ok := it.(*value.Dict); ok {
				add(d)
			}
		}
	}
	return out
}

func allDicts(l *value.List) bool {
	return !slices.ContainsFunc(l.Items, func(v any) bool { _, ok := v.(*value.Dict); return !ok })
}

// Get returns a parameter, nil if it is not set.
func (s Settings) Get(name string) any {
	if v, ok := s.Set.Get(name); ok {
		return v
	}
	return s.All[name]
}

// Text, Bool, Texts and Seconds return parameters with their types.
func (s Settings) Text(name string) string {
	if v := s.Get(name); v != nil {
		return value.Str(v)
	}
	return ""
}

// Bool reports whether Python regards the parameter as true.
func (s Settings) Bool(name string) bool { return value.Truth(s.Get(name)) }

// Texts reads a list, or a comma-separated string.
func (s Settings) Texts(name string) []string {
	v := s.Get(name)
	if l, ok := v.([]string); ok {
		return l
	}
	if v == nil || v == "" {
		return nil
	}
	return value.Split(v)
}

// Seconds reads a duration.
func (s Settings) Seconds(name string) time.Duration {
	switch x := s.Get(name).(type) {
	case time.Duration:
		return x
	case int64:
		return time.Duration(x) * time.Second
	case float64:
		return time.Duration(x * float64(time.Second))
	}
	return 0
}

// Remote returns the remote at a URL, with the parameters for authentication
// and fetching.
func (s Settings) Remote(address string) (Remote, error) {
	r := Remote{
		ID: s.ID, URL: address, Refspecs: s.Texts("refspecs"), NoVerify: !s.Bool("ssl_verify"),
		Auth: Auth{
			User: s.Text("user"), Password: s.Text("password"), InsecureAuth: s.Bool("insecure_auth"),
			PrivKey: s.Text("privkey"), PubKey: s.Text("pubkey"), Passphrase: s.Text("passphrase"),
		},
	}
	return r, r.Check()
}

// DirectoryName returns the name of a remote's directory in a cache: the remote's
// name or, as in Salt, a hash of its id.
func (s Settings) DirectoryName(hashType string) (string, error) {
	if name := s.Text("name"); name != "" {
		if name == "." || name == ".." || strings.ContainsAny(name, "/\x00") || slices.Contains([]string{"work", "links", "hash", "refs", "objects"}, name) {
			return "", salt.Errorf(salt.Invalid, "the name %q of the git remote %s cannot be that of a directory", name, redact.Text(s.ID))
		}
		return name, nil
	}
	h := crypt.NewHash(strings.ToLower(hashType))
	if h == nil {
		return "", salt.Errorf(salt.Invalid, "%q is not a known hash_type", hashType)
	}
	fmt.Fprint(h, s.ID)
	return strings.ReplaceAll(base64.StdEncoding.EncodeToString(h.Sum(nil)), "/", "_"), nil
}
