package field

import (
	"fmt"
	"math/big"
	"regexp"
	"strconv"
	"strings"

	"brine/internal/py/value"
)

var (
	decimal  = regexp.MustCompile(`^[-+]?[0-9]+$`)
	fraction = regexp.MustCompile(`^[-+]?[0-9]*\.?[0-9]+([eE][-+]?[0-9]+)?$`)
)

// parseDefault parses a default tag. literal is set for fields of type string,
// where only null is special.
func parseDefault(text string, literal bool) (any, error) {
	if text == "null" {
		return nil, nil
	}
	if s, ok := unquote(text); ok {
		return s, nil
	}
	if literal {
		return text, nil
	}
	switch {
	case text == "{}":
		return value.NewDict(0), nil
	case strings.HasPrefix(text, "[") && strings.HasSuffix(text, "]"):
		l := &value.List{}
		for _, item := range splitComma(text[1 : len(text)-1]).Items {
			v, err := parseDefault(item.(string), false)
			if err != nil {
				return nil, err
			}
			l.Append(v)
		}
		return l, nil
	case strings.HasPrefix(text, "{"), strings.HasPrefix(text, "["):
		return nil, fmt.Errorf("default %q is not supported: write null and set it in code", text)
	}
	return scalar(text), nil
}

func scalar(text string) any {
	switch {
	case text == "true":
		return true
	case text == "false":
		return false
	case decimal.MatchString(text):
		if i, ok := new(big.Int).SetString(text, 10); ok {
			return value.Big(i)
		}
	case fraction.MatchString(text):
		if f, err := strconv.ParseFloat(text, 64); err == nil {
			return f
		}
	}
	return text
}

func unquote(s string) (string, bool) {
	if len(s) >= 2 && (s[0] == '\'' || s[0] == '"') && s[len(s)-1] == s[0] {
		return s[1 : len(s)-1], true
	}
	return "", false
}

// splitComma splits at commas and trims the parts; a blank string has none.
func splitComma(s string) *value.List {
	l := &value.List{}
	if strings.TrimSpace(s) == "" {
		return l
	}
	for part := range strings.SplitSeq(s, ",") {
		l.Append(strings.TrimSpace(part))
	}
	return l
}
