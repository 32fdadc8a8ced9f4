package value

import "strings"

// Salt's arguments and options are often a list, or one string that stands for a
// list. These functions read them; they differ in what a string means.

// ListTexts returns the items of a list as strings; nil if v is no list.
func ListTexts(v any) []string {
	items := Items(v)
	if len(items) == 0 {
		return nil
	}
	out := make([]string, len(items))
	for i, it := range items {
		out[i] = Str(it)
	}
	return out
}

// OnlyTexts returns those items of a list that are strings.
func OnlyTexts(v any) []string {
	var out []string
	for _, it := range Items(v) {
		if s, ok := it.(string); ok {
			out = append(out, s)
		}
	}
	return out
}

// Texts returns the items of a list as strings, or v alone if it is not a list;
// nothing if v is nil or empty. Salt's arguments often allow both.
func Texts(v any) []string {
	if l, ok := v.(*List); ok {
		out := make([]string, l.Len())
		for i, it := range l.Items {
			out[i] = Str(it)
		}
		return out
	}
	if v == nil || v == "" {
		return nil
	}
	return []string{Str(v)}
}

// Split is Texts for arguments that may also be one comma-separated string;
// blanks around commas are ignored.
func Split(v any) []string {
	if _, ok := v.(*List); ok || v == nil {
		return Texts(v)
	}
	parts := strings.Split(Str(v), ",")
	for i, p := range parts {
		parts[i] = strings.TrimSpace(p)
	}
	return parts
}

// Commas is Split without the removal of blanks.
func Commas(v any) []string {
	if s, ok := v.(string); ok {
		return strings.Split(s, ",")
	}
	return Texts(v)
}

// Words is Split without empty parts of a string.
func Words(v any) []string {
	if l, ok := v.(*List); ok {
		return Texts(l)
	}
	var out []string
	for w := range strings.SplitSeq(Str(v), ",") {
		if w = strings.TrimSpace(w); w != "" {
			out = append(out, w)
		}
	}
	return out
}

// Bytes returns the bytes of a value that peers send as bytes or as a string, nil for any other.
func Bytes(v any) []byte {
	switch x := v.(type) {
	case []byte:
		return x
	case string:
		return []byte(x)
	}
	return nil
}
