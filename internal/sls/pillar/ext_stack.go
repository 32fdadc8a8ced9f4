package pillar

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"brine/internal/base/salt"
	"brine/internal/py/value"
	"brine/internal/py/yaml"
	"brine/internal/sls/render"
)

func init() { externals.Register("stack", stack) }

// stack builds pillar from YAML files that are merged in order: configuration
// files, which are templates, list them. Each file sees the result so far in
// the variable stack, and sets its merge strategy by the key __: merge-last
// (the default), merge-first, overwrite or remove.
func stack(ctx context.Context, r *run, pillar *value.Dict, a args) (any, error) {
	env := textOr(orNil(r.env), textOr(orNil(r.q.Saltenv), "base"))
	var files []string
	for _, it := range a.list {
		files = append(files, value.Str(it))
	}
	for k, v := range a.named.All() {
		more, err := r.stackFiles(pillar, value.Str(k), v, env)
		if err != nil {
			return nil, err
		}
		files = append(files, more...)
	}
	out := value.NewDict(8)
	for _, file := range files {
		if st, err := os.Stat(file); err != nil || !st.Mode().IsRegular() {
			r.log.Info(`Ignoring pillar stack cfg "` + file + `": file does not exist`)
			continue
		}
		var err error
		if out, err = r.stackFile(ctx, file, out, pillar); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func unknownTraverse(where string) error {
	return salt.Errorf(salt.Invalid, "Unknown traverse option \"%s\", should be one of pillar, grains, opts", where)
}

// stackFiles reads an argument such as grains:role: {web: FILE, db: [FILE…]}.
func (r *run) stackFiles(pillar *value.Dict, key string, v any, env string) ([]string, error) {
	where, path, _ := strings.Cut(key, ":")
	trees := map[string]*value.Dict{"pillar": pillar, "grains": r.q.Grains, "opts": r.opts}
	tree, ok := trees[where]
	if !ok {
		return nil, unknownTraverse(where)
	}
	choices, _ := v.(*value.Dict)
	found, ok := value.Traverse(tree, path, ":")
	if !ok || !value.Hashable(found) {
		return nil, nil
	}
	got, ok := choices.Get(found)
	if !ok && value.Equal(found, env) {
		got = choices.At("__env__")
	}
	var out []string
	for _, f := range items(got) {
		out = append(out, strings.ReplaceAll(value.Str(f), "__env__", env))
	}
	return out, nil
}

func items(v any) []any {
	switch x := v.(type) {
	case nil:
		return nil
	case *value.List:
		return x.Items
	}
	return []any{v}
}

// dirLoader loads templates beside the configuration file.
type dirLoader struct{ dir string }

// Load implements render.Loader.
func (l dirLoader) Load(_ context.Context, _, path string) ([]byte, error) {
	return os.ReadFile(filepath.Join(l.dir, path))
}

// local keeps absolute paths below the directory, too, like Jinja's own loader.
func (l dirLoader) local(_, path string) ([]byte, error) {
	return os.ReadFile(filepath.Join(l.dir, path))
}

// stackText renders a template.
func (r *run) stackText(ctx context.Context, dir, file string, stack, pillar *value.Dict) (string, error) {
	source, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	return r.c.Renderer.Text(ctx, "jinja", render.Request{
		Source: source, Path: file, Saltenv: "base", Funcs: r.funcs, Grains: r.q.Grains, Pillar: pillar, Opts: r.opts, Loader: dirLoader{dir},
		Local: dirLoader{dir}.local,
		Context: value.DictOf("stack", stack, "minion_id", r.q.ID, "pillar", pillar, "pillarenv", orNil(r.env), "ymlpath", file,
			"__grains__", r.q.Grains, "__opts__", r.opts, "__stack__", value.DictOf("cfg_path", file)),
	})
}

func (r *run) stackFile(ctx context.Context, cfg string, stack, pillar *value.Dict) (*value.Dict, error) {
	dir := filepath.Dir(cfg)
	text, err := r.stackText(ctx, dir, cfg, stack, pillar)
	if err != nil {
		return nil, err
	}
	for _, item := range stackItems(text) {
		if strings.TrimSpace(item) == "" {
			continue
		}
		paths, err := filepath.Glob(filepath.Join(dir, item))
		if err != nil || len(paths) == 0 {
			r.log.Info(fmt.Sprintf(`Ignoring pillar stack template "%s": can't find from root dir "%s"`, item, dir))
			continue
		}
		slices.Sort(paths)
		for _, p := range paths {
			text, err := r.stackText(ctx, dir, p, stack, pillar)
			if err != nil {
				return nil, salt.Errorf(salt.Invalid, "Stack pillar template render error in %s:\n\"%w\"", p, err)
			}
			v, err := yaml.Load([]byte(text), p)
			if err != nil {
				return nil, salt.Errorf(salt.Invalid, "Stack pillar yaml parsing error in %s:\n%w", p, err)
			}
			if d, ok := v.(*value.Dict); ok {
				if stack, err = stackDict(stack, d); err != nil {
					return nil, err
				}
			}
		}
	}
	return stack, nil
}

// stackItems reads a rendered configuration file: a YAML list, or a name per
// line.
func stackItems(text string) []string {
	if v, err := yaml.Load([]byte(text), "stack"); err == nil {
		if l, ok := v.(*value.List); ok {
			return value.ListTexts(l)
		}
	}
	return strings.Split(strings.TrimRight(text, "\n"), "\n")
}

// The merge strategies.
const (
	mergeLast  = "merge-last"
	mergeFirst = "merge-first"
	overwrite  = "overwrite"
	remove     = "remove"
)

func strategyOf(v any) (string, error) {
	s := value.Str(v)
	if slices.Contains([]string{overwrite, mergeFirst, mergeLast, remove}, s) {
		return s, nil
	}
	return "", salt.Errorf(salt.Invalid, "Unknown strategy \"%s\", should be one of overwrite, merge-first, merge-last, remove", s)
}

const strategyKey = "__"

// clean removes merge strategies from new data.
func clean(v any) any {
	switch x := v.(type) {
	case *value.Dict:
		out := value.NewDict(x.Len())
		for k, w := range x.All() {
			if k != strategyKey {
				out.Set(k, clean(w))
			}
		}
		return out
	case *value.List:
		if x.Len() > 0 {
			if d, ok := x.Items[0].(*value.Dict); ok && d.Has(strategyKey) {
				return &value.List{Items: slices.Clone(x.Items[1:])}
			}
		}
	}
	return v
}

func stackDict(stack, obj *value.Dict) (*value.Dict, error) {
	strategy := mergeLast
	if v, ok := obj.Get(strategyKey); ok {
		var err error
		if strategy, err = strategyOf(v); err != nil {
			return nil, err
		}
	}
	if strategy == overwrite {
		return clean(obj).(*value.Dict), nil
	}
	out := stack.Clone()
	for k, v := range obj.All() {
		if k == strategyKey {
			continue
		}
		old, ok := out.Get(k)
		switch {
		case strategy == remove:
			out.Delete(k)
			continue
		case !ok:
			out.Set(k, clean(v))
			continue
		case strategy == mergeFirst:
			old, v = clean(v), old
		}
		got, err := stackValue(old, v)
		if err != nil {
			return nil, err
		}
		out.Set(k, got)
	}
	return out, nil
}

func stackValue(old, v any) (any, error) {
	switch x := v.(type) {
	case *value.Dict:
		if o, ok := old.(*value.Dict); ok {
			return stackDict(o, x)
		}
	case *value.List:
		if o, ok := old.(*value.List); ok {
			return stackList(o, x)
		}
	default:
		if value.TypeName(old) == value.TypeName(v) {
			return v, nil
		}
	}
	return clean(v), nil
}

func stackList(stack, obj *value.List) (any, error) {
	items, strategy := obj.Items, mergeLast
	if len(items) > 0 {
		if d, ok := items[0].(*value.Dict); ok && d.Has(strategyKey) {
			var err error
			if strategy, err = strategyOf(d.At(strategyKey)); err != nil {
				return nil, err
			}
			items = items[1:]
		}
	}
	switch strategy {
	case overwrite:
		return &value.List{Items: slices.Clone(items)}, nil
	case remove:
		return &value.List{Items: slices.DeleteFunc(slices.Clone(stack.Items), func(it any) bool {
			return slices.ContainsFunc(items, func(x any) bool { return value.Equal(x, it) })
		})}, nil
	case mergeFirst:
		return &value.List{Items: slices.Concat(items, stack.Items)}, nil
	}
	return &value.List{Items: slices.Concat(stack.Items, items)}, nil
}
