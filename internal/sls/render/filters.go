package render

import (
	"brine/internal/py/jinja"
)

// saltFilters are the filters that Salt adds to those of the language.
func saltFilters() map[string]*jinja.Func {
	m := map[string]*jinja.Func{}
	for _, fs := range [][]*jinja.Func{serializers(), textFilters(), regexFilters(), listFilters(), dictFilters(), iterFilters(),
		hashFilters(), fileFilters(), networkFilters(), timeFilters()} {
		for _, f := range fs {
			m[f.Name()] = f
		}
	}
	for alias, name := range map[string]string{"str_to_num": "to_num", "date_format": "strftime", "rand_str": "random_hash",
		"json_decode_dict": "json_encode_dict", "json_decode_list": "json_encode_list"} {
		m[alias] = m[name]
	}
	return m
}

// saltTests are the tests that Salt adds.
func saltTests() map[string]*jinja.Func {
	return map[string]*jinja.Func{
		"list": filter("list(value)", func(c *jinja.Call) (any, error) { return jinja.TypeName(c.Bound[0]) == "list", nil }),
		"match": filter("match(txt, rgx, ignorecase=False, multiline=False)", func(c *jinja.Call) (any, error) {
			re, err := pattern(c, 1, 2, 3)
			if err != nil {
				return nil, err
			}
			m, err := re.Match(c.Str(0))
			return m != nil, err
		}),
		"equalto": filter("equalto(value, other)", func(c *jinja.Call) (any, error) { return jinja.Equal(c.Bound[0], c.Bound[1]), nil }),
	}
}

func invalid(format string, args ...any) error { return jinja.Errorf("ValueError", format, args...) }

func wrongType(format string, args ...any) error { return jinja.Errorf("TypeError", format, args...) }
