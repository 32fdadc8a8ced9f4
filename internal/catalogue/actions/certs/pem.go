package certs

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"strings"

	"brine/internal/base/atomicfile"
	"brine/internal/call/fn"
)

// Entry returns the first PEM entry of a string, optionally of one of the types, with normal line
// breaks. The string may have lost its line breaks. Errors do not quote it, as it may hold
// secrets.
func Entry(v any, types ...string) (string, error) {
	b, err := Source(v)
	if err != nil {
		return "", err
	}
	s := strings.ReplaceAll(string(b), `\n`, "\n")
	one := len(strings.Fields(s)) > 0 && !strings.Contains(strings.TrimRight(s, "\n"), "\n")
	rest := s
	for {
		i := strings.Index(rest, "-----BEGIN ")
		if i < 0 {
			break
		}
		rest = rest[i+len("-----BEGIN "):]
		kind, body, ok := strings.Cut(rest, "-----")
		if !ok || strings.ContainsFunc(kind, func(c rune) bool { return c != ' ' && (c < '0' || c > '9') && (c < 'A' || c > 'Z') }) || !wanted(kind, types) {
			continue
		}
		body, _, ok = strings.Cut(body, "-----END "+kind+"-----")
		if !ok || !one && (strings.TrimLeft(body, " \t\r\n") == body || strings.TrimRight(body, " \t\r\n") == body) {
			continue
		}
		if out := entry(kind, body); out != "" {
			return out, nil
		}
	}
	if len(types) > 0 {
		return "", fn.Invalidf("PEM does not contain a single entry of type %s", strings.Join(types, " or "))
	}
	return "", fn.Invalidf("PEM text not valid")
}

func wanted(kind string, types []string) bool {
	for _, t := range types {
		if t == kind {
			return true
		}
	}
	return len(types) == 0
}

// entry formats an entry.
func entry(kind, body string) string {
	var out strings.Builder
	out.WriteString("-----BEGIN " + kind + "-----\n")
	body = strings.TrimSpace(body)
	if rest, ok := strings.CutPrefix(body, "Proc-Type: 4,ENCRYPTED"); ok {
		out.WriteString("Proc-Type: 4,ENCRYPTED\n")
		body = strings.TrimSpace(rest)
	}
	if strings.HasPrefix(body, "DEK-Info: ") {
		end := strings.IndexAny(body[len("DEK-Info: "):], " \t\r\n") + len("DEK-Info: ")
		if end < len("DEK-Info: ") {
			return ""
		}
		out.WriteString(body[:end] + "\n\n")
		body = body[end:]
	}
	if body = strings.Join(strings.Fields(body), ""); body == "" {
		return ""
	}
	for len(body) > 64 {
		out.WriteString(body[:64] + "\n")
		body = body[64:]
	}
	out.WriteString(body + "\n-----END " + kind + "-----\n")
	return out.String()
}

// WritePEM writes the PEM entry of a string to a file. A new file is accessible to its owner
// only. Without overwrite, a certificate keeps the private key and the parameters that the file
// has.
func WritePEM(text, path string, overwrite bool, types ...string) error {
	out, err := Entry(text, types...)
	if err != nil {
		return err
	}
	if !overwrite && len(types) == 1 && types[0] == "CERTIFICATE" && isFile(path) {
		old, err := readFile(path)
		if err != nil {
			return err
		}
		if key, err := Entry(old, "PRIVATE KEY", "RSA PRIVATE KEY"); err == nil {
			out = key + out
		}
		if params, err := Entry(old, "DH PARAMETERS"); err == nil {
			out += params
		}
	}
	return WriteFile(path, []byte(out))
}

// WriteFile writes a file. A new file is accessible to its owner only.
func WriteFile(path string, content []byte) error {
	mode := -1
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		mode = 0o600
	}
	err := atomicfile.Replace(path, mode, func(w io.Writer) error { _, err := w.Write(content); return err })
	if err != nil {
		return fn.Errorf("%w", err)
	}
	return nil
}
