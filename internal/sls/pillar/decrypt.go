package pillar

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"brine/internal/py/value"
	"brine/internal/sls/render"
)

// decrypt decrypts the values that the option decrypt_pillar names. It owns
// only the pillar's top level, so it copies the path to each value.
func (r *run) decrypt(ctx context.Context, pillar *value.Dict) *value.Dict {
	what := repack(r.o.Decrypt)
	if what == nil {
		return pillar
	}
	var faults []string
	if what.Len() == 0 {
		faults = append(faults, "decrypt_pillar config option is malformed")
	}
	for k, rend := range what.All() {
		key := value.Str(k)
		v, ok := traverseDicts(pillar, strings.Split(key, r.o.DecryptDelimiter))
		if !ok || v == nil {
			continue
		}
		name := r.o.DecryptDefault
		if value.Truth(rend) {
			name = value.Str(rend)
		}
		plain, err := r.decryptValue(ctx, name, v)
		if err != nil {
			faults = append(faults, fmt.Sprintf("Failed to decrypt pillar key '%s': %v", key, err))
			r.log.Error(faults[len(faults)-1], "minion", r.q.ID)
			continue
		}
		pillar = replaceAt(pillar, strings.Split(key, r.o.DecryptDelimiter), plain)
	}
	if len(faults) > 0 {
		l, _ := pillar.At("_errors").(*value.List)
		if l == nil {
			l = &value.List{}
		}
		pillar.Set("_errors", &value.List{Items: append(slices.Clone(l.Items), value.Strings(faults).Items...)})
	}
	return pillar
}

// repack reads the option: a map of paths to renderers, or a list of paths and
// such maps. nil means nothing to decrypt; an empty map means that the option
// has another form.
func repack(v any) *value.Dict {
	switch x := v.(type) {
	case *value.Dict:
		if x.Len() > 0 {
			return x
		}
	case *value.List:
		if x.Len() == 0 {
			return nil
		}
		d := value.NewDict(x.Len())
		for _, it := range x.Items {
			switch y := it.(type) {
			case string:
				d.Set(y, nil)
			case *value.Dict:
				d.Update(y)
			default:
				return value.NewDict(0)
			}
		}
		return d
	default:
		if value.Truth(v) {
			return value.NewDict(0)
		}
	}
	return nil
}

// decryptValue decrypts with one of the permitted renderers; with any, if the
// option names none.
func (r *run) decryptValue(ctx context.Context, name string, v any) (any, error) {
	if len(r.o.DecryptRenderers) > 0 && !slices.Contains(r.o.DecryptRenderers, name) {
		return nil, fmt.Errorf("'%s' is not a valid decryption renderer. Valid choices are: %s", name, strings.Join(r.o.DecryptRenderers, ", "))
	}
	return r.c.Renderer.Decrypt(ctx, name, value.DeepCopy(v), render.Request{Opts: r.opts})
}

// traverseDicts follows keys through dicts.
func traverseDicts(v any, keys []string) (any, bool) {
	for _, k := range keys {
		d, ok := v.(*value.Dict)
		if !ok {
			return nil, false
		}
		if v, ok = d.Get(k); !ok {
			return nil, false
		}
	}
	return v, true
}

// replaceAt returns d with another value at an existing path.
func replaceAt(d *value.Dict, keys []string, v any) *value.Dict {
	out := d.Clone()
	if len(keys) > 1 {
		sub, _ := out.At(keys[0]).(*value.Dict)
		v = replaceAt(sub, keys[1:], v)
	}
	out.Set(keys[0], v)
	return out
}
