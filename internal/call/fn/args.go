package fn

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"brine/internal/base/salt"
	"brine/internal/py/value"
	"brine/internal/py/yaml"
)

// kwargMark is the key that marks a map in a job's arguments as keywords.
const kwargMark = "__kwarg__"

// Keywords returns an argument of a job that is a marked map of keywords, nil for any other.
func Keywords(arg any) *value.Dict {
	if d, ok := arg.(*value.Dict); ok && d.At(kwargMark) == true {
		return d
	}
	return nil
}

// Mark marks a map as keywords, Unmark removes the mark.
func Mark(kwargs *value.Dict)   { kwargs.Set(kwargMark, true) }
func Unmark(kwargs *value.Dict) { kwargs.Delete(kwargMark) }

// pubPrefix begins the names of keywords that carry data of the job.
const pubPrefix = "__pub_"

// SplitKwarg splits a string of the form name=value. The name begins with a letter or underscore,
// followed by these, digits, dots and dashes. The value contains no newline and does not begin with
// another equals sign.
func SplitKwarg(s string) (name, val string, ok bool) {
	name, val, ok = strings.Cut(s, "=")
	if !ok || name == "" || strings.HasPrefix(val, "=") {
		return "", "", false
	}
	val = strings.TrimSuffix(val, "\n")
	if strings.Contains(val, "\n") {
		return "", "", false
	}
	for i, r := range name {
		word := r == '_' || unicode.IsLetter(r) || unicode.IsNumber(r)
		if r == utf8.RuneError || !word && r != '.' && r != '-' || i == 0 && (!word || unicode.IsDigit(r)) {
			return "", "", false
		}
	}
	return name, val, true
}

// ParseWords parses the words of a command line: each is YAML, or name=value with a YAML value.
// Values of the names in raw stay strings.
func ParseWords(words []string, raw map[string]bool) (args []any, kwargs *value.Dict) {
	kwargs = value.NewDict(0)
	for _, w := range words {
		name, val, ok := SplitKwarg(w)
		switch {
		case !ok:
			args = append(args, yaml.LoadArg(w))
		case raw[name]:
			kwargs.Set(name, val)
		default:
			kwargs.Set(name, yaml.LoadArg(val))
		}
	}
	return args, kwargs
}

// Wire converts arguments to the form in a job. A number that looks like a job id becomes a string again.
func Wire(args []any, kwargs *value.Dict) []any {
	out := make([]any, 0, len(args)+1)
	for _, a := range args {
		if s := value.Str(a); value.TypeName(a) == "int" && salt.ValidJID(s) {
			a = s
		}
		out = append(out, a)
	}
	if kwargs.Len() > 0 {
		kw := value.NewDict(kwargs.Len() + 1)
		kw.Set(kwargMark, true)
		kw.Update(kwargs)
		out = append(out, kw)
	}
	return out
}

// Load splits the arguments of a job as a minion does: marked maps and strings of the form
// name=value are keywords. A function that takes any keyword also gets every entry of pub, the
// job's map, under a name that begins with __pub_. Unknown keywords are an *InvocationError.
func (f *Func) Load(arg []any, pub *value.Dict) (args []any, kwargs *value.Dict, err error) {
	args, kwargs, bad := f.split(arg)
	if len(bad) > 0 {
		return nil, nil, Invalidf(textBadKwargs, strings.Join(bad, ", "))
	}
	if f.sig().kwargs != nil {
		for k, v := range pub.All() {
			kwargs.Set(pubPrefix+value.Str(k), v)
		}
	}
	return args, kwargs, nil
}

// Known splits the arguments of a job like Load, but drops unknown keywords.
func (f *Func) Known(arg []any) (args []any, kwargs *value.Dict) {
	args, kwargs, _ = f.split(arg)
	return args, kwargs
}

// split separates arguments and keywords. bad lists the unknown keywords.
func (f *Func) split(arg []any) (args []any, kwargs *value.Dict, bad []string) {
	kwargs = value.NewDict(0)
	add := func(k, v any) {
		if f.sig().kwargs != nil || f.index(k) >= 0 {
			kwargs.Set(k, v)
		} else {
			bad = append(bad, value.Str(k)+"="+value.Str(v))
		}
	}
	for _, a := range arg {
		switch x := a.(type) {
		case *value.Dict:
			if x.At(kwargMark) != true {
				args = append(args, unmarked(x))
				continue
			}
			for k, v := range x.All() {
				if k != kwargMark {
					add(k, v)
				}
			}
		case string:
			if name, val, ok := SplitKwarg(x); ok {
				add(name, yaml.LoadArg(val))
				continue
			}
			args = append(args, a)
		default:
			args = append(args, a)
		}
	}
	return args, kwargs, bad
}

// unmarked returns a map argument without the mark.
func unmarked(d *value.Dict) *value.Dict {
	if d.Has(kwargMark) {
		d = d.Clone()
		d.Delete(kwargMark)
	}
	return d
}
