package wheel

import (
	"context"

	"brine/internal/fn"
	"brine/internal/value"
)

type configuration struct{}

func configModule() fn.Module {
	return fn.Module{Name: "config", Doc: `The options of the master.`, Funcs: []fn.Func{
		fn.Of("values", configuration{}.values, `Return the options of the master, without passwords.`),
	}}
}

// secret are the options that are passwords, which nobody needs to see.
var secret = []string{"key_pass", "signing_key_pass", "sharedsecret", "cluster_secret", "auth.ldap.bindpw"}

// hidden is shown in place of a password.
const hidden = "**********"

func (configuration) values(_ context.Context, c *fn.Call, _ none) (*value.Dict, error) {
	d := c.Config.All().Clone()
	for _, name := range secret {
		if value.Truth(d.At(name)) {
			d.Set(name, hidden)
		}
	}
	return d, nil
}
