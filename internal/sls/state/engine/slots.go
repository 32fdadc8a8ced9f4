package engine

import (
	"context"
	"log/slog"
	"strings"

	"brine/internal/call/fn"
	"brine/internal/py/value"
	"brine/internal/sls/state"
)

// slotMark begins a string that is replaced by a function's result when the
// state runs: "__slot__:salt:module.function(arg, key=arg).path ~ text".
const slotMark = "__slot__:"

// slots calls the functions in slots of arguments.
type slots struct{ log *slog.Logger }

// fill replaces the slots in arguments: strings, also one level down in lists
// and mappings. Arguments without slots are returned unchanged.
func (s slots) fill(ctx context.Context, c *fn.Call, kwargs *value.Dict) (*value.Dict, error) {
	if !hasSlot(kwargs, 3) {
		return kwargs, nil
	}
	out := value.NewDict(kwargs.Len())
	for k, v := range kwargs.All() {
		nv, err := s.one(ctx, c, v, 2)
		if err != nil {
			return nil, err
		}
		out.Set(k, nv)
	}
	return out, nil
}

// dropNulls drops arguments whose slots yielded null, if they are optional and
// their type excludes null: Salt passes None to its functions, which usually
// has the same effect.
func dropNulls(f *state.Func, before, filled *value.Dict) {
	for k, v := range before.All() {
		name := value.Str(k)
		if p, ok := f.Param(name); ok && p.Optional && v != nil && filled.Has(name) && filled.At(name) == nil && !f.Takes(name, nil) {
			filled.Delete(name)
		}
	}
}

func (s slots) list(ctx context.Context, c *fn.Call, args []any) ([]any, error) {
	out := make([]any, len(args))
	for i, v := range args {
		var err error
		if out[i], err = s.one(ctx, c, v, 2); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func hasSlot(v any, depth int) bool {
	switch x := v.(type) {
	case string:
		return strings.HasPrefix(x, slotMark)
	case *value.Dict:
		for _, w := range x.All() {
			if depth > 0 && hasSlot(w, depth-1) {
				return true
			}
		}
	case *value.List:
		for _, w := range x.Items {
			if depth > 0 && hasSlot(w, depth-1) {
				return true
			}
		}
	}
	return false
}

func (s slots) one(ctx context.Context, c *fn.Call, v any, depth int) (any, error) {
	switch x := v.(type) {
	case string:
		if strings.HasPrefix(x, slotMark) {
			return s.eval(ctx, c, x)
		}
	case *value.Dict:
		if depth == 0 || !hasSlot(x, 1) {
			return v, nil
		}
		out := value.NewDict(x.Len())
		for k, w := range x.All() {
			nv, err := s.one(ctx, c, w, 0)
			if err != nil {
				return nil, err
			}
			out.Set(k, nv)
		}
		return out, nil
	case *value.List:
		if depth == 0 || !hasSlot(x, 2) {
			return v, nil
		}
		out := &value.List{}
		for _, w := range x.Items {
			nv, err := s.one(ctx, c, w, 1)
			if err != nil {
				return nil, err
			}
			out.Append(nv)
		}
		return out, nil
	}
	return v, nil
}

// eval calls the function of a slot. An invalid slot stays as it is, with a
// warning, as in Salt.
func (s slots) eval(ctx context.Context, c *fn.Call, text string) (any, error) {
	parts := strings.SplitN(text, ":", 3)
	if len(parts) != 3 || parts[1] != "salt" {
		s.log.Warn("a slot must begin with __slot__:salt:", "slot", text)
		return text, nil
	}
	call, more, appended := strings.Cut(parts[2], "~")
	fun, args, kwargs, rest, ok := parseCall(call)
	if !ok || !c.Funcs.Has(fun) {
		s.log.Warn("a slot must call an execution function, as in test.arg('arg', kw='kwarg')", "slot", text)
		return text, nil
	}
	got, err := c.Funcs.Call(ctx, c, fun, args, kwargs)
	if err != nil {
		return nil, err
	}
	if path := strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(rest), ".")); path != "" {
		got, _ = value.Traverse(got, path, ".")
	}
	if t, isText := got.(string); appended && isText {
		return t + strings.TrimSpace(more), nil
	} else if appended {
		s.log.Error("a slot appends to a value that is not a string", "slot", text)
	}
	return got, nil
}

// parseCall parses "module.function(a, 'b c', k=v)rest". All arguments are
// strings; quotes protect blanks and commas, and brackets must match.
func parseCall(s string) (fun string, args []any, kwargs *value.Dict, rest string, ok bool) {
	fun, body, ok := strings.Cut(s, "(")
	if !ok || strings.TrimSpace(fun) == "" {
		return "", nil, nil, "", false
	}
	kwargs = value.NewDict(0)
	var word strings.Builder
	key, hasKey, given := "", false, false
	var brackets []byte
	end := func() {
		switch {
		case hasKey:
			kwargs.Set(key, word.String())
		case given:
			args = append(args, word.String())
		}
		word.Reset()
		key, hasKey, given = "", false, false
	}
	closing := map[byte]byte{'(': ')', '[': ']', '{': '}'}
	for i := 0; i < len(body); i++ {
		ch := body[i]
		switch {
		case ch == '\'' || ch == '"':
			text, n, closed := quoted(body[i:])
			if !closed {
				return "", nil, nil, "", false
			}
			word.WriteString(text)
			given, i = true, i+n-1
		case ch == ' ' || ch == '\t' || ch == '\n':
		case closing[ch] != 0:
			brackets = append(brackets, closing[ch])
			word.WriteByte(ch)
			given = true
		case len(brackets) > 0 && ch == brackets[len(brackets)-1]:
			brackets = brackets[:len(brackets)-1]
			word.WriteByte(ch)
		case ch == ']' || ch == '}':
			return "", nil, nil, "", false
		case len(brackets) == 0 && ch == ',':
			end()
		case len(brackets) == 0 && ch == ')':
			end()
			return strings.TrimSpace(fun), args, kwargs, body[i+1:], true
		case len(brackets) == 0 && ch == '=' && !hasKey:
			key, hasKey = word.String(), true
			word.Reset()
		default:
			word.WriteByte(ch)
			given = true
		}
	}
	return "", nil, nil, "", false
}

// quoted parses a quoted string; a backslash escapes a quote or backslash.
func quoted(s string) (text string, n int, ok bool) {
	var b strings.Builder
	for i := 1; i < len(s); i++ {
		switch {
		case s[i] == s[0]:
			return b.String(), i + 1, true
		case s[i] == '\\' && i+1 < len(s) && (s[i+1] == s[0] || s[i+1] == '\\'):
			i++
			b.WriteByte(s[i])
		default:
			b.WriteByte(s[i])
		}
	}
	return "", 0, false
}
