package core

import (
	"context"
	"strings"

	"brine/internal/call/fn"
)

type jinja struct{}

func init() {
	j := jinja{}
	units.Declare("jinja", func() fn.Module {
		return fn.Module{Name: "jinja", Doc: `What templates of the state tree come to.`, Funcs: []fn.Func{
			fn.Of("load_map", j.loadMap, `Return a variable of a template, such as the map of a formula.`,
				fn.Example("salt '*' jinja.load_map template-formula/map.jinja template")),
			fn.Of("import_yaml", j.importAs("import_yaml"), `Return the data of a YAML file, after its Jinja.`,
				fn.Example("salt '*' jinja.import_yaml template-formula/defaults.yaml")),
			fn.Of("import_json", j.importAs("import_json"), `Return the data of a JSON file, after its Jinja.`,
				fn.Example("salt '*' jinja.import_json template-formula/defaults.json")),
		}}
	})
}

type loadMapArgs struct {
	Path  string `salt:"path" doc:"path in the state tree"`
	Value string `salt:"value" doc:"name of the variable"`
}

type importArgs struct {
	Path string `salt:"path" doc:"path in the state tree"`
}

// quoted returns a path as a string literal for a template.
func quoted(path string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(path) + `"`
}

func (jinja) loadMap(ctx context.Context, c *fn.Call, a loadMapArgs) (any, error) {
	if a.Value == "" || strings.Trim(a.Value, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") != "" {
		return nil, fn.Invalidf("%q is not the name of a variable", a.Value)
	}
	return evaluate(ctx, c, "{% from "+quoted(a.Path)+" import "+a.Value+" with context %}{{ "+a.Value+" | tojson }}")
}

func (jinja) importAs(tag string) func(context.Context, *fn.Call, importArgs) (any, error) {
	return func(ctx context.Context, c *fn.Call, a importArgs) (any, error) {
		return evaluate(ctx, c, "{% "+tag+" "+quoted(a.Path)+" as imported %}{{ imported | tojson }}")
	}
}

// evaluate renders a template that produces JSON, and returns its data. The
// variables that depend on the SLS are set, since the first line of a
// formula's map.jinja usually derives tplroot from tpldir.
func evaluate(ctx context.Context, c *fn.Call, source string) (any, error) {
	if c.Templates == nil {
		return nil, fn.Errorf("there are no renderers here")
	}
	v, err := c.Templates.Data(ctx, c, "jinja|json", fn.Template{Source: []byte(source), Path: textPath, Saltenv: "base"})
	if err != nil {
		return nil, fn.Errorf("%w", err)
	}
	return v, nil
}

// textPath is the path that templates see if they are not in a file.
const textPath = ":string:"
