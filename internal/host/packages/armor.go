package packages

import (
	"bytes"
	"encoding/base64"
	"errors"
	"strings"
)

// Dearmor returns a key in its binary form, in which apt wants the files that
// do not end in .asc. A key that is binary already is returned as it is.
func Dearmor(key []byte) ([]byte, error) {
	const begin, end = "-----BEGIN PGP PUBLIC KEY BLOCK-----", "-----END PGP PUBLIC KEY BLOCK-----"
	if !bytes.Contains(key, []byte(begin)) {
		return key, nil
	}
	var out []byte
	rest := strings.ReplaceAll(string(key), "\r\n", "\n")
	for {
		_, after, ok := strings.Cut(rest, begin)
		if !ok {
			return out, nil
		}
		block, after, ok := strings.Cut(after, end)
		if !ok {
			return nil, errors.New("the key has no end")
		}
		rest = after
		_, body, ok := strings.Cut(block, "\n\n") // headers end with an empty line
		if !ok {
			body = block
		}
		var text strings.Builder
		for line := range strings.SplitSeq(body, "\n") {
			if line = strings.TrimSpace(line); strings.HasPrefix(line, "=") {
				break // the checksum, which base64 needs not
			}
			text.WriteString(line)
		}
		b, err := base64.StdEncoding.DecodeString(text.String())
		if err != nil || len(b) == 0 {
			return nil, errors.New("the key is no base64")
		}
		out = append(out, b...)
	}
}
