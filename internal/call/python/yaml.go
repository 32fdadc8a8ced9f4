package python

import (
	"brine/internal/py/serialize"
	"brine/internal/py/value"
	"brine/internal/py/yaml"
)

// The keys of a dict that stands for a value which the pipe lacks, or for a list or dict that occurs
// more than once.
const (
	yamlTag   = "\x00tag" // of PyYAML, or timestamp or null
	yamlSame  = "\x00same"
	yamlValue = "\x00value"
)

// dumpYAML writes a value as YAML. Its arguments are the value, the options, and whether PyYAML's own
// emitter is the model, and not libyaml.
func dumpYAML(a arguments) (any, error) {
	options, _ := a.at(1).(*value.Dict)
	var more []yaml.Option
	if a.at(2) == true {
		more = append(more, yaml.Python())
	}
	return serialize.DumpYAML((&tagged{same: map[any]any{}}).value(a.at(0)), options, more...)
}

// tagged puts values in place of the dicts that stand for them.
type tagged struct {
	same map[any]any
}

func (t *tagged) value(v any) any {
	switch x := v.(type) {
	case *value.List:
		for i, item := range x.Items {
			x.Items[i] = t.value(item)
		}
	case value.Tuple:
		for i, item := range x {
			x[i] = t.value(item)
		}
	case *value.Dict:
		return t.dict(x)
	}
	return v
}

func (t *tagged) dict(d *value.Dict) any {
	inner, ok := d.Get(yamlValue)
	if number := d.At(yamlSame); ok && number != nil {
		if known, ok := t.same[number]; ok {
			return known
		}
		t.same[number] = t.value(inner)
		return t.same[number]
	}
	switch tag := d.At(yamlTag); {
	case !ok || tag == nil:
		out := value.NewDict(d.Len())
		for k, v := range d.All() {
			out.Set(t.value(k), t.value(v))
		}
		return out
	case tag == "timestamp":
		return yaml.Timestamp(value.Str(inner))
	case tag == "null":
		return unknown{}
	default:
		return yaml.Tagged{Tag: value.Str(tag), Value: t.value(inner)}
	}
}

// unknown is an object that YAML does not have; it is written as NULL.
type unknown struct{}
