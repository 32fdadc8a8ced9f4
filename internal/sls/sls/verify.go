package sls

import (
	"fmt"
	"strconv"
	"strings"

	"brine/internal/py/value"
)

// Verify returns the errors in the structure of high data.
func Verify(high *value.Dict) []*Error {
	v := &verifier{reqs: map[any]*value.Dict{}}
	for id, b := range high.All() {
		if hidden(id) {
			continue
		}
		body, ok := b.(*value.Dict)
		v.id, v.at, v.sls = id, placeOf(body), value.Str(body.At("__sls__"))
		if _, isText := id.(string); !isText {
			v.faultf("ID '%s' in SLS '%s' is not formed as a string, but is a %s. It may need to be quoted.", value.Str(id), v.sls, value.TypeName(id))
		}
		if !ok {
			v.faultf("The type %s in %s is not formatted as a dictionary", value.Str(id), value.Str(b))
			continue
		}
		for mod, run := range body.All() {
			if !hidden(mod) {
				v.state(mod, run)
			}
		}
	}
	return v.errs
}

type verifier struct {
	id   any
	at   place
	sls  string
	reqs map[any]*value.Dict // requisites of the ids so far
	errs []*Error
}

func (v *verifier) faultf(format string, args ...any) {
	v.errs = append(v.errs, &Error{Text: fmt.Sprintf(format, args...), SLS: v.at.sls, Saltenv: v.at.env, ID: value.Str(v.id)})
}

func (v *verifier) state(mod, body any) {
	m, id := value.Str(mod), value.Str(v.id)
	if body == nil {
		v.faultf("ID '%s' in SLS '%s' contains a short declaration (%s) with a trailing colon. When not passing any arguments to a state, "+
			"the colon must be omitted.", id, v.sls, m)
		return
	}
	run, ok := body.(*value.List)
	if !ok {
		v.faultf("State '%s' in SLS '%s' is not formed as a list", id, v.sls)
		return
	}
	var funs []string
	if _, fun, ok := strings.Cut(m, "."); ok {
		funs = append(funs, fun)
	}
	for _, arg := range run.Items {
		switch x := arg.(type) {
		case string:
			funs = append(funs, x)
			if strings.Contains(strings.TrimSpace(x), " ") {
				v.faultf("The function \"%s\" in state \"%s\" in SLS \"%s\" has whitespace, a function with whitespace is not supported, "+
					"perhaps this is an argument that is missing a \":\"", x, id, v.sls)
			}
		case *value.Dict:
			v.argument(mod, x)
		}
	}
	switch {
	case len(funs) == 0 && m != "require" && m != "watch":
		v.faultf("No function declared in state '%s' in SLS '%s'", id, v.sls)
	case len(funs) > 1:
		v.faultf("Too many functions declared in state '%s' in SLS '%s'. Please choose one of the following: %s", id, v.sls, strings.Join(funs, ", "))
	}
}

func (v *verifier) argument(mod any, arg *value.Dict) {
	key, val := firstKey(arg)
	name, _ := key.(string)
	l, isList := val.(*value.List)
	switch name {
	case "names":
		if !isList {
			v.faultf("The 'names' argument in state '%s' in SLS '%s' needs to be formed as a list", value.Str(v.id), v.sls)
		}
		return
	case "order":
		// Salt puts a state with any other string after those with a number. A string
		// that a template derived from a number, or an empty one, does not justify a
		// failed run; a misspelt word does.
		if word, ok := val.(string); ok && word != "first" && word != "last" && word != "" && !isNumber(word) {
			v.faultf("The order of state '%s' in SLS '%s' is '%s', but must be a number, first or last", value.Str(v.id), v.sls, word)
		}
		return
	case "require", "watch", "prereq", "onchanges":
	default:
		return
	}
	if !isList {
		v.faultf("The %s statement in state '%s' in SLS '%s' needs to be formed as a list", name, value.Str(v.id), v.sls)
		return
	}
	v.reqs[hashable(v.id)] = value.DictOf("state", mod)
	for _, req := range l.Items {
		v.requisite(mod, req)
	}
	if arg.Len() != 1 {
		v.faultf("Multiple dictionaries defined in argument of state '%s' in SLS '%s'", value.Str(v.id), v.sls)
	}
}

func (v *verifier) requisite(mod, req any) {
	if s, ok := req.(string); ok {
		req = value.DictOf("id", s)
	}
	d, ok := req.(*value.Dict)
	if !ok || d.Len() == 0 {
		v.faultf("Requisite declaration %s in SLS %s is not formed as a single key dictionary", value.Str(req), v.sls)
		return
	}
	key, val := firstKey(d)
	k := value.Str(key)
	if first, _, dotted := strings.Cut(k, "."); dotted {
		v.faultf("Invalid requisite type '%s' in state '%s', in SLS '%s'. Requisite types must not contain dots, did you mean '%s'?",
			k, value.Str(v.id), v.sls, first)
	}
	if !value.Hashable(val) {
		v.faultf("Illegal requisite \"%s\", please check your syntax.\n", value.Str(val))
		return
	}
	v.reqs[hashable(v.id)].Set(val, key)
	// The two states require each other.
	other, ok := v.reqs[hashable(val)]
	if ok && other.Has(v.id) && value.Equal(other.At(v.id), mod) && value.Equal(other.At("state"), v.reqs[hashable(v.id)].At(val)) {
		v.faultf("A recursive requisite was found, SLS \"%s\" ID \"%s\" ID \"%s\"", v.sls, value.Str(v.id), value.Str(val))
	}
}

// hashable returns a key for a Go map: ids are strings, or invalid.
func hashable(id any) any {
	if s, ok := id.(string); ok {
		return s
	}
	return value.TypeName(id) + value.Repr(id)
}

func isNumber(text string) bool {
	_, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
	return err == nil
}
