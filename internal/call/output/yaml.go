package output

import "brine/internal/py/yaml"

func init() { outputters.Register("yaml", (*Printer).yaml) }

// yaml writes one YAML document in block style, or in braces on as few lines
// as possible when the indentation is negative.
func (p *Printer) yaml(data any, _ Call) (string, error) {
	ind := p.opts.Indent
	switch {
	case !ind.Given || ind.Sort:
		return yaml.Dump(data), nil
	case ind.Width < 0:
		return yaml.Dump(data, yaml.Flow()), nil
	}
	return yaml.Dump(data, yaml.Indent(ind.Width)), nil
}
