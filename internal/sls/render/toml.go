package render

import (
	"context"

	"brine/internal/py/serialize"
	"brine/internal/py/value"
	"brine/internal/py/yaml"
)

func init() { steps.Register("toml", renderTOML) }

// renderTOML decodes a TOML document. Dates become strings, as in YAML.
func renderTOML(_ context.Context, _ *Renderer, req *Request, in any, _ string) (any, error) {
	text, err := asText(req, in, "toml")
	if err != nil {
		return nil, err
	}
	format, _ := serialize.Named("toml")
	v, err := format.Read([]byte(text), nil)
	if err != nil {
		return nil, &Error{Message: err.Error(), Name: req.name(), Err: err}
	}
	return serialize.Plain(v), nil
}

func init() { steps.Register("yamlex", renderYamlex) }

// renderYamlex decodes YAML with the tags !aggregate and !reset. Empty input is
// an empty dict.
func renderYamlex(_ context.Context, _ *Renderer, req *Request, in any, _ string) (any, error) {
	text, err := asText(req, in, "yamlex")
	if err != nil {
		return nil, err
	}
	v, err := yaml.LoadExtended([]byte(text), req.name())
	if err != nil {
		return nil, yamlError(req, err, text)
	}
	if !value.Truth(v) {
		return value.NewDict(0), nil
	}
	return v, nil
}
