package sources

import (
	"strings"
	"unicode/utf16"

	"brine/internal/call/fn"
)

// Encode encodes a string, by Python's names of encodings.
func Encode(text, encoding, onError string) ([]byte, error) {
	name := strings.NewReplacer("-", "", "_", "", " ", "").Replace(strings.ToLower(encoding))
	var limit rune
	switch name {
	case "", "utf8":
		return []byte(text), nil
	case "utf8sig":
		return append([]byte("\xef\xbb\xbf"), text...), nil
	case "ascii", "usascii":
		limit = 0x7f
	case "latin1", "iso88591", "l1":
		limit = 0xff
	case "utf16", "utf16le", "utf16be":
		return encode16(text, name), nil
	default:
		return nil, fn.Errorf("the encoding %s is not known here: use utf-8, utf-16, latin-1 or ascii", encoding)
	}
	out := make([]byte, 0, len(text))
	for _, r := range text {
		switch {
		case r <= limit:
			out = append(out, byte(r))
		case onError == "ignore":
		case onError == "replace":
			out = append(out, '?')
		default:
			return nil, fn.Errorf("the character %q cannot be written in %s", r, encoding)
		}
	}
	return out, nil
}

func encode16(text, name string) []byte {
	var out []byte
	put := func(u uint16) {
		if name == "utf16be" {
			out = append(out, byte(u>>8), byte(u))
		} else {
			out = append(out, byte(u), byte(u>>8))
		}
	}
	if name == "utf16" {
		put(0xfeff)
	}
	for _, u := range utf16.Encode([]rune(text)) {
		put(u)
	}
	return out
}
