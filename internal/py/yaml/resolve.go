package yaml

import (
	"fmt"
	"math"
	"math/big"
	"regexp"
	"strconv"
	"strings"
	"sync"

	"brine/internal/py/value"
)

// The known tags in full.
const (
	core         = "tag:yaml.org,2002:"
	tagNull      = core + "null"
	tagBool      = core + "bool"
	tagInt       = core + "int"
	tagFloat     = core + "float"
	tagStr       = core + "str"
	tagBinary    = core + "binary"
	tagTimestamp = core + "timestamp"
	tagMerge     = core + "merge"
	tagValue     = core + "value"
	tagSeq       = core + "seq"
	tagMap       = core + "map"
	tagSet       = core + "set"
	tagOmap      = core + "omap"
	tagPairs     = core + "pairs"
	tagUnicode   = core + "python/unicode"
)

var (
	floatText = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^(?:[-+]?[0-9][0-9_]*\.[0-9_]*(?:[eE][-+][0-9]+)?` +
			`|\.[0-9][0-9_]*(?:[eE][-+][0-9]+)?` +
			`|[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+\.[0-9_]*` +
			`|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$`)
	})
	intText = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^(?:[-+]?0b[0-1_]+|[-+]?0[0-7_]+|[-+]?(?:0|[1-9][0-9_]*)` +
			`|[-+]?0x[0-9a-fA-F_]+|[-+]?[1-9][0-9_]*(?::[0-5]?[0-9])+)$`)
	})
	pythonFloat = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[-+]?[0-9]+)?$|^[-+]?(?:inf|infinity|nan)$`)
	})
)

// decimal reports whether text is a number of a few digits and nothing else.
func decimal(s string) bool {
	if len(s) == 0 || len(s) > 18 || s[0] == '0' && len(s) > 1 {
		return false
	}
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return true
}

// implicitTag returns the tag of a plain scalar. Timestamps have their own tag
// in YAML, but are strings in Salt. Python's $ also matches before a last line
// end; a plain scalar never has one.
func implicitTag(s string) string {
	if s == "" {
		return tagNull
	}
	switch c := s[0]; {
	case c >= '0' && c <= '9', c == '-', c == '+', c == '.':
		if decimal(s) {
			return tagInt
		}
		if strings.Trim(s, "0123456789abcdefABCDEFxinIN_.:+-") != "" {
			return tagStr // has a letter that does not occur in numbers
		}
		if intText().MatchString(s) {
			return tagInt
		}
		if floatText().MatchString(s) {
			return tagFloat
		}
		return tagStr
	}
	switch s {
	case "~", "null", "Null", "NULL":
		return tagNull
	case "yes", "Yes", "YES", "no", "No", "NO", "true", "True", "TRUE", "false", "False", "FALSE",
		"on", "On", "ON", "off", "Off", "OFF":
		return tagBool
	case "<<":
		return tagMerge
	case "=":
		return tagValue
	case "!", "&", "*":
		return core + "yaml"
	}
	return tagStr
}

// maxDigits is Python's limit of the digits of integers.
const maxDigits = 4300

// parseInt parses an integer as PyYAML does after Salt removed leading zeros.
func parseInt(text string) (any, error) {
	if decimal(text) {
		n, err := strconv.ParseInt(text, 10, 64)
		return n, err
	}
	bad := fmt.Errorf("invalid integer %q", shorten(text))
	if len(text) > maxDigits {
		return nil, bad
	}
	if s := text; s != "0" && strings.HasPrefix(s, "0") && !strings.HasPrefix(s, "0b") && !strings.HasPrefix(s, "0x") {
		if text = strings.TrimLeft(s, "0"); text == "" {
			text = "0"
		}
	}
	s := strings.ReplaceAll(text, "_", "")
	if s == "" {
		return nil, bad
	}
	negative := s[0] == '-'
	if negative || s[0] == '+' {
		s = s[1:]
	}
	i, ok := unsigned(s)
	if !ok {
		return nil, bad
	}
	if negative {
		i.Neg(i)
	}
	return value.Big(i), nil
}

func unsigned(s string) (*big.Int, bool) {
	switch {
	case s == "":
		return nil, false
	case strings.HasPrefix(s, "0b"):
		return digits(s[2:], 2)
	case strings.HasPrefix(s, "0x"):
		return digits(s[2:], 16)
	case s != "0" && s[0] == '0':
		return digits(strings.TrimPrefix(strings.TrimPrefix(s, "0o"), "0O"), 8)
	case strings.Contains(s, ":"):
		sum, sixty := new(big.Int), big.NewInt(60)
		for part := range strings.SplitSeq(s, ":") {
			i, ok := digits(part, 10)
			if !ok {
				return nil, false
			}
			sum.Add(sum.Mul(sum, sixty), i)
		}
		return sum, true
	}
	return digits(s, 10)
}

func digits(s string, base int) (*big.Int, bool) {
	s = strings.TrimSpace(s)
	if s == "" || s[0] == '+' || s[0] == '-' {
		return nil, false
	}
	return new(big.Int).SetString(s, base)
}

func parseFloat(text string) (any, error) {
	bad := fmt.Errorf("could not convert %q to a float", shorten(text))
	s := strings.ToLower(strings.ReplaceAll(text, "_", ""))
	if s == "" {
		return nil, bad
	}
	sign := 1.0
	if s[0] == '-' {
		sign = -1
	}
	if s[0] == '-' || s[0] == '+' {
		s = s[1:]
	}
	switch {
	case s == ".inf":
		return math.Inf(int(sign)), nil
	case s == ".nan":
		return math.NaN(), nil
	case strings.Contains(s, ":"):
		parts := strings.Split(s, ":")
		base, sum := 1.0, 0.0
		for i := len(parts) - 1; i >= 0; i-- {
			f, ok := pyFloat(parts[i])
			if !ok {
				return nil, bad
			}
			sum += f * base
			base *= 60
		}
		return sign * sum, nil
	}
	f, ok := pyFloat(s)
	if !ok {
		return nil, bad
	}
	return sign * f, nil
}

// pyFloat is Python's float() of a string in lower case.
func pyFloat(s string) (float64, bool) {
	s = strings.TrimSpace(s)
	if !pythonFloat().MatchString(s) {
		return 0, false
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil && !math.IsInf(f, 0) {
		return 0, false
	}
	return f, true
}

func shorten(s string) string {
	if len(s) > 60 {
		return strings.ToValidUTF8(s[:60], "") + "…"
	}
	return s
}
