package wheel

import (
	"context"
	"regexp"
	"strings"

	"brine/internal/fn"
	"brine/internal/value"
)

type configuration struct{}

func configModule() fn.Module {
	return fn.Module{Name: "config", Doc: `The options of the master.`, Funcs: []fn.Func{
		fn.Of("values", configuration{}.values, `Return the options of the master, without passwords.`),
	}}
}

// hidden is shown in place of a password.
const hidden = "**********"

// secret reports whether an option, or a key in one, is called what passwords
// are: by the whole name, or what is behind the last dot or underscore.
func secret(name string) bool {
	name = strings.ToLower(name)
	if name == "s3.key" || name == "sharedsecret" {
		return true
	}
	if i := strings.LastIndexAny(name, "._^-"); i >= 0 {
		name = name[i+1:]
	}
	switch name {
	case "pass", "passwd", "password", "passphrase", "secret", "bindpw", "token", "apikey":
		return true
	}
	return false
}

// userinfo is the password in an address.
var userinfo = regexp.MustCompile(`(\w://[^/@:\s]*:)[^/@\s]+@`)

// hide returns v with its passwords hidden, at any depth.
func hide(v any) any {
	switch x := v.(type) {
	case *value.Dict:
		out := value.NewDict(x.Len())
		for k, v := range x.All() {
			text, _ := k.(string)
			switch v.(type) {
			case *value.Dict, *value.List, bool, nil:
				v = hide(v)
			default:
				if v = hide(v); secret(text) && value.Truth(v) {
					v = hidden
				}
			}
			if key, ok := hide(k).(string); ok {
				k = key // an address, as those of repositories
			}
			out.Set(k, v)
		}
		return out
	case *value.List:
		out := &value.List{}
		for _, it := range x.Items {
			out.Append(hide(it))
		}
		return out
	case string:
		return userinfo.ReplaceAllString(x, "${1}"+hidden+"@")
	}
	return v
}

func (configuration) values(_ context.Context, c *fn.Call, _ none) (*value.Dict, error) {
	return hide(c.Config.All()).(*value.Dict), nil
}
