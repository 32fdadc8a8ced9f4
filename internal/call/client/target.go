package client

import (
	"strings"

	"brine/internal/base/salt"
	"brine/internal/base/target"
	"brine/internal/py/value"
)

// expandTarget replaces nodegroups by their definition, since minions do not know them.
func (c *Client) expandTarget(typ string, tgt any) (string, any, error) {
	switch typ {
	case "":
		return "glob", tgt, nil
	case "nodegroup":
		words, err := c.nodegroup(value.Str(tgt))
		if err != nil {
			return "", nil, err
		}
		return "compound", strings.Join(words, " "), nil
	case "compound":
		var out []string
		for _, w := range compoundWords(tgt) {
			name, ok := strings.CutPrefix(w, "N@")
			if !ok || name == "" {
				out = append(out, w)
				continue
			}
			words, err := c.nodegroup(name)
			if err != nil {
				return "", nil, err
			}
			out = append(out, words...)
		}
		return typ, strings.Join(out, " "), nil
	}
	return typ, tgt, nil
}

func compoundWords(tgt any) []string {
	if l, ok := tgt.(*value.List); ok {
		return value.OnlyTexts(l)
	}
	return strings.Fields(value.Str(tgt))
}

func (c *Client) nodegroup(name string) ([]string, error) {
	groups := make(target.Nodegroups, c.o.Nodegroups.Len())
	for k, v := range c.o.Nodegroups.All() {
		groups[value.Str(k)] = v
	}
	if _, ok := groups[name]; !ok {
		return nil, &salt.Error{Kind: salt.Invalid, Err: &UnknownNodegroup{name, c.conf}}
	}
	return groups.Expand(name)
}
