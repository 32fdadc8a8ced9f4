package render

import (
	"errors"
	"fmt"
	"strings"

	"brine/internal/py/jinja"
	"brine/internal/py/json"
	"brine/internal/py/value"
	"brine/internal/py/yaml"
)

// The filters in this file convert between data and text.

func filter(sig string, do func(c *jinja.Call) (any, error)) *jinja.Func {
	return jinja.NewFunc(sig, do)
}

func serializers() []*jinja.Func {
	return []*jinja.Func{
		filter("yaml(value, flow_style=True)", func(c *jinja.Call) (any, error) { return formatYAML(c.Bound[0], c.Bound[1]) }),
		filter("json(value, sort_keys=True, indent=None)", func(c *jinja.Call) (any, error) {
			f := json.Format{SortKeys: c.Bool(1)}
			setIndent(&f, c.Bound[2])
			s, err := dumpJSON(c.Bound[0], f)
			return jinja.Markup(strings.TrimSpace(s)), err
		}),
		filter("tojson(val, indent=None, **options)", func(c *jinja.Call) (any, error) {
			o := c.Bound[2].(*value.Dict)
			f := json.Format{ASCII: !o.Has("ensure_ascii") || o.Bool("ensure_ascii"), SortKeys: o.Bool("sort_keys")}
			setIndent(&f, c.Bound[1])
			if sep := o.List("separators"); len(sep) == 2 {
				f.Comma, f.Colon = value.Str(sep[0]), value.Str(sep[1])
			}
			s, err := dumpJSON(c.Bound[0], f)
			return strings.NewReplacer("<", `\u003c`, ">", `\u003e`, "&", `\u0026`, "'", `\u0027`).Replace(s), err
		}),
		filter("python(value)", func(c *jinja.Call) (any, error) {
			s, err := jinja.Pretty(c.Bound[0])
			return jinja.Markup(strings.TrimSpace(s)), err
		}),
		filter("xml(value)", func(c *jinja.Call) (any, error) { return formatXML(c.Bound[0]) }),
		filter("dict_to_sls_yaml_params(value, flow_style=False)", func(c *jinja.Call) (any, error) {
			d, ok := c.Bound[0].(*value.Dict)
			if !ok {
				return nil, jinja.Errorf("AttributeError", "'%s' object has no attribute 'items'", jinja.TypeName(c.Bound[0]))
			}
			l := &value.List{}
			for k, v := range d.All() {
				one := value.NewDict(1)
				one.Set(k, v)
				l.Append(one)
			}
			return formatYAML(l, c.Bound[1])
		}),
		filter("load_yaml(value)", loadYAML), filter("load_json(value)", loadJSON),
		filter("load_text(value)", func(c *jinja.Call) (any, error) {
			if m, ok := c.Bound[0].(*jinja.Module); ok {
				return m.String(), nil
			}
			return c.Bound[0], nil
		}),
	}
}

func setIndent(f *json.Format, v any) {
	switch x := v.(type) {
	case int64:
		f.Indent = json.Spaces(int(min(max(x, 0), 64)))
	case string:
		f.Indent = &x
	}
}

func dumpJSON(v any, f json.Format) (string, error) {
	p, err := jinja.Convert(v, func(v any) (any, error) {
		if s, ok := jinja.Text(v); ok {
			return s, nil
		}
		if jinja.IsUndefined(v) {
			return jinja.Plain(v)
		}
		name := jinja.TypeName(v)
		return nil, jinja.Errorf("TypeError", "Object of type %s is not JSON serializable", name[strings.LastIndexByte(name, '.')+1:])
	})
	if err != nil {
		return "", err
	}
	s, err := json.Dump(p, f)
	if err != nil {
		return "", jinja.Errorf("TypeError", "%s", err)
	}
	return s, nil
}

// object stands for values that only templates have: YAML cannot represent
// them.
var object = value.Ext{}

// formatYAML encodes v. Values that are not plain data become NULL, as in Salt:
// undefined ones, Markup of an earlier filter, keys(), values() and items() of
// a dict, ranges and iterators, unless they are converted to a list.
func formatYAML(v, flow any) (any, error) {
	p, err := jinja.Convert(v, func(v any) (any, error) {
		if s, ok := v.(*jinja.Set); ok {
			return jinja.Plain(s)
		}
		return object, nil
	})
	if err != nil {
		return nil, err
	}
	var opts []yaml.Option
	switch {
	case flow == nil:
		opts = append(opts, yaml.FlowLeaves())
	case value.Truth(flow):
		opts = append(opts, yaml.Flow())
	}
	s := strings.TrimSpace(yaml.Dump(p, opts...))
	return jinja.Markup(strings.TrimSuffix(s, "\n...")), nil
}

// document returns the text that load_yaml and load_json parse.
func document(v any) (string, bool) {
	switch x := v.(type) {
	case *jinja.Module:
		return x.String(), true
	case []byte:
		return string(x), true
	}
	return jinja.Text(v)
}

func loadYAML(c *jinja.Call) (any, error) {
	text, ok := document(c.Bound[0])
	if !ok {
		return nil, jinja.Errorf(jinja.RuntimeError, "Unable to load yaml from %s", jinja.Str(c.Bound[0]))
	}
	v, err := yaml.Load([]byte(text), "")
	if err == nil {
		return v, nil
	}
	msg := "Encountered error loading yaml: "
	var ye *yaml.Error
	if !errors.As(err, &ye) || ye.Line == 0 {
		return nil, jinja.Errorf(jinja.RuntimeError, "%s%s%s", msg, err, origin(c.Bound[0], ""))
	}
	at := faultPlace(ye, text)
	return nil, jinja.Errorf(jinja.RuntimeError, "%s%s\n%s%s", msg, ye.Reason, excerpt(text, at.Line), origin(c.Bound[0], placeText(at)+doing(ye)))
}

// origin returns, on a separate line, which imported file has an error and
// where.
func origin(v any, place string) string {
	m, ok := v.(*jinja.Module)
	switch {
	case !ok && place == "":
		return ""
	case !ok:
		return "\n(" + place + ")"
	case place == "":
		return "\n(" + m.Name() + ")"
	}
	return "\n(" + m.Name() + ", " + place + ")"
}

func loadJSON(c *jinja.Call) (any, error) {
	text, ok := document(c.Bound[0])
	if ok {
		v, err := json.Load(text)
		if err == nil {
			return v, nil
		}
		return nil, jinja.Errorf(jinja.RuntimeError, "Unable to load json from %s%s", text, origin(c.Bound[0], err.Error()))
	}
	return nil, jinja.Errorf(jinja.RuntimeError, "Unable to load json from %s", jinja.Str(c.Bound[0]))
}

// formatXML writes nested dicts as elements: scalars in a dict become
// attributes, the rest nested elements.
func formatXML(v any) (any, error) {
	var b strings.Builder
	b.WriteString("<?xml version=\"1.0\" ?>\n")
	d, ok := v.(*value.Dict)
	if !ok || d.Len() == 0 {
		return nil, jinja.Errorf(jinja.RuntimeError, "Value is not a dict or list. Cannot render as XML")
	}
	k, w := d.Entry(0)
	if err := writeXML(&b, jinja.Str(k), w, 0); err != nil {
		return nil, err
	}
	return jinja.Markup(b.String()), nil
}

func writeXML(b *strings.Builder, tag string, v any, depth int) error {
	if depth > 200 {
		return jinja.Errorf("RecursionError", "a value nests too deep for XML")
	}
	if strings.ContainsAny(tag, " <>&\"'/=\n\t") || tag == "" {
		return jinja.Errorf("ValueError", "%q is no name for an XML element", tag)
	}
	esc := strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&quot;")
	pad := strings.Repeat(" ", depth)
	switch x := v.(type) {
	case *value.List:
		for _, it := range x.Items {
			if err := writeXML(b, tag, it, depth); err != nil {
				return err
			}
		}
		return nil
	case *value.Dict:
		fmt.Fprintf(b, "%s<%s", pad, tag)
		inner := 0
		for k, w := range x.All() {
			switch w.(type) {
			case *value.Dict, *value.List:
				inner++
				continue
			}
			fmt.Fprintf(b, ` %s="%s"`, jinja.Str(k), esc.Replace(jinja.Str(w)))
		}
		if inner == 0 {
			b.WriteString("/>\n")
			return nil
		}
		b.WriteString(">\n")
		for k, w := range x.All() {
			switch w.(type) {
			case *value.Dict, *value.List:
				if err := writeXML(b, jinja.Str(k), w, depth+1); err != nil {
					return err
				}
			}
		}
		fmt.Fprintf(b, "%s</%s>\n", pad, tag)
		return nil
	}
	s := jinja.Str(v)
	if s == "" {
		fmt.Fprintf(b, "%s<%s/>\n", pad, tag)
		return nil
	}
	fmt.Fprintf(b, "%s<%s>%s</%s>\n", pad, tag, strings.ReplaceAll(esc.Replace(s), "&quot;", "&quot;"), tag)
	return nil
}
