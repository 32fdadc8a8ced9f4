package packages

import (
	"bytes"
	"encoding/base64"
	"errors"
	"strings"
)

// Dearmor returns a key in binary format, which apt requires for files that do
// not end in .asc. A binary key is returned unchanged.
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
			return nil, errors.New("the key has no end line")
		}
		rest = after
		_, body, ok := strings.Cut(block, "\n\n") // headers end with an empty line
		if !ok {
			body = block
		}
		var text strings.Builder
		for line := range strings.SplitSeq(body, "\n") {
			if line = strings.TrimSpace(line); strings.HasPrefix(line, "=") {
				break // the checksum, not part of the base64 data
			}
			text.WriteString(line)
		}
		b, err := base64.StdEncoding.DecodeString(text.String())
		if err != nil || len(b) == 0 {
			return nil, errors.New("the key is not base64")
		}
		out = append(out, b...)
	}
}
