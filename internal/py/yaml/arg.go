package yaml

import (
	"strings"

	"brine/internal/py/value"
)

// plainWord reports whether text is an ordinary word that YAML would return
// unchanged, as most arguments are.
func plainWord(text string) bool {
	for i := range len(text) {
		c := text[i]
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z':
		case i > 0 && (c >= '0' && c <= '9' || c == '.' || c == '_' || c == '-' || c == '/'):
		case i > 0 && c == '=':
		default:
			return false
		}
	}
	return implicitTag(text) == tagStr
}

// argValue decides between the loaded value v and its source text.
func argValue(text, trimmed string, v any) any {
	if strings.Contains(text, "#") {
		if _, ok := v.(string); ok || v == nil {
			return text // the text after # was read as a comment
		}
		return v
	}
	switch x := v.(type) {
	case *value.Dict:
		if !strings.HasPrefix(text, "{") {
			return text
		}
	case *value.List:
		if !strings.HasPrefix(text, "[") {
			return text
		}
	case string:
		if x == "" && (text == "|" || text == "!") {
			return text
		}
	case nil:
		if trimmed == "!" {
			return text
		}
	case []byte, value.Tuple:
		return text
	}
	return v
}
