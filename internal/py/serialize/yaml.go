package serialize

import (
	"strings"

	"brine/internal/py/value"
	"brine/internal/py/yaml"
)

// yamlOptions parses the options of PyYAML's dump.
func yamlOptions(o *options) ([]yaml.Option, error) {
	opts := []yaml.Option{yaml.Indent(o.number("indent", 2))}
	if width := o.number("width", 80); width >= 0 || o.format == "yaml" { // only libyaml has no end of lines
		opts = append(opts, yaml.Width(width))
	}
	flow, _ := o.take("default_flow_style")
	if flow == nil {
		opts = append(opts, yaml.FlowLeaves())
	} else if value.Truth(flow) {
		opts = append(opts, yaml.Flow())
	}
	if !o.truth("sort_keys", true) {
		opts = append(opts, yaml.KeepOrder())
	}
	if !o.truth("allow_unicode", false) {
		opts = append(opts, yaml.ASCII())
	}
	if o.truth("explicit_start", false) {
		opts = append(opts, yaml.ExplicitStart())
	}
	if o.truth("explicit_end", false) {
		opts = append(opts, yaml.ExplicitEnd())
	}
	if o.truth("canonical", false) {
		opts = append(opts, yaml.Canonical())
	}
	switch b, _ := o.take("line_break"); b {
	case "\r", "\r\n":
		opts = append(opts, yaml.LineBreak(b.(string)))
	}
	switch s, _ := o.take("default_style"); s {
	case "'", `"`, "|", ">":
		opts = append(opts, yaml.Style(s.(string)[0]))
	}
	if v, ok := o.take("version"); ok && v != nil {
		if l, isList := v.(*value.List); !isList || l.Len() < 2 || !value.Equal(l.Items[0], int64(1)) || !value.Equal(l.Items[1], int64(1)) {
			o.fail("version must be [1, 1], not %s", value.Repr(v))
		}
		opts = append(opts, yaml.Directive())
	}
	if v, _ := o.take("encoding"); v != nil {
		o.fail("encoding cannot be set (it fails in Salt too); set the encoding of the state")
	}
	o.null("tags", "Dumper", "stream")
	return opts, o.done()
}

func init() { register("yaml", Format{writeYAML, readYAML}) }

func writeYAML(v any, opts *value.Dict) (any, error) {
	o, err := yamlOptions(of("yaml", opts))
	if err != nil {
		return nil, err
	}
	return dumpYAML(v, o)
}

// DumpYAML returns v as PyYAML's function dump does with the same options.
// Other than a serializer it ends a scalar with the document end marker.
func DumpYAML(v any, opts *value.Dict, more ...yaml.Option) (string, error) {
	o, err := yamlOptions(of("yaml", opts))
	if err == nil {
		err = depthOK(v, 0)
	}
	if err != nil {
		return "", err
	}
	return yaml.Dump(v, append(o, more...)...), nil
}

// dumpYAML omits the document end marker as Salt does.
func dumpYAML(v any, opts []yaml.Option) (any, error) {
	if err := depthOK(v, 0); err != nil {
		return nil, err
	}
	text := yaml.Dump(v, opts...)
	if cut, ok := strings.CutSuffix(text, "\n...\n"); ok {
		return cut, nil
	}
	return strings.TrimSuffix(text, "\n"), nil
}

func readYAML(data []byte, opts *value.Dict) (any, error) {
	o := of("yaml", opts)
	o.null("Loader")
	if err := o.done(); err != nil {
		return nil, err
	}
	return yaml.Load(data, "the text")
}

func init() { register("yamlex", Format{writeYamlex, readYamlex}) }

// writeYamlex writes plain YAML; YAMLEX is a superset of it.
func writeYamlex(v any, opts *value.Dict) (any, error) {
	o, err := yamlOptions(of("yamlex", opts))
	if err != nil {
		return nil, err
	}
	return dumpYAML(v, append(o, yaml.Python()))
}

func readYamlex(data []byte, opts *value.Dict) (any, error) {
	o := of("yamlex", opts)
	o.null("Loader")
	if err := o.done(); err != nil {
		return nil, err
	}
	return yaml.LoadExtended(data, "the text")
}
