package sshkeys

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha1"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"

	"brine/internal/host"
)

// Host is a line of known_hosts.
type Host struct {
	Name string // as written: comma-separated names, or a hash
	Type string
	Key  string
}

// String returns the line.
func (h Host) String() string { return h.Name + " " + h.Type + " " + h.Key }

// HostName returns the notation of a host with a port in known_hosts, which
// omits the ports 22 and 0.
func HostName(name string, port int) string {
	if port == 0 || port == 22 {
		return name
	}
	return "[" + name + "]:" + strconv.Itoa(port)
}

// Hash hashes a name as ssh-keygen -H does.
func Hash(name string) string {
	salt := make([]byte, sha1.Size)
	if _, err := rand.Read(salt); err != nil {
		panic(err) // the documentation of Read promises that it never fails
	}
	return hashed(salt, name)
}

func hashed(salt []byte, name string) string {
	mac := hmac.New(sha1.New, salt)
	mac.Write([]byte(name))
	return "|1|" + base64.StdEncoding.EncodeToString(salt) + "|" + base64.StdEncoding.EncodeToString(mac.Sum(nil))
}

// Is reports whether the line is about a host.
func (h Host) Is(name string) bool {
	if rest, ok := strings.CutPrefix(h.Name, "|1|"); ok {
		text, _, _ := strings.Cut(rest, "|")
		salt, err := base64.StdEncoding.DecodeString(text)
		return err == nil && hmac.Equal([]byte(hashed(salt, name)), []byte(h.Name))
	}
	for n := range strings.SplitSeq(h.Name, ",") {
		if strings.EqualFold(n, name) {
			return true
		}
	}
	return false
}

// ParseHost parses a line. ok is false for comments, marked lines and lines with
// fewer than three words.
func ParseHost(line string) (Host, bool) {
	w := strings.Fields(line)
	if len(w) < 3 || strings.HasPrefix(w[0], "#") || strings.HasPrefix(w[0], "@") {
		return Host{}, false
	}
	return Host{w[0], w[1], w[2]}, true
}

// Known returns the lines of a file about a host.
func Known(m *host.Machine, path, name string) ([]Host, error) {
	b, err := m.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var out []Host
	for line := range strings.Lines(string(b)) {
		if h, ok := ParseHost(line); ok && h.Is(name) {
			out = append(out, h)
		}
	}
	return out, err
}

// Learn replaces the lines of a host, of the types of the new lines or with all
// of every type. It creates the file if missing.
func Learn(m *host.Machine, path, name string, lines []Host, all bool) error {
	b, err := m.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	replaced := map[string]bool{}
	for _, h := range lines {
		replaced[h.Type] = true
		if strings.ContainsAny(h.String(), "\r\n\x00") || len(strings.Fields(h.String())) != 3 {
			return fmt.Errorf("%q is not a line of known_hosts", h.String())
		}
	}
	var out strings.Builder
	for line := range strings.Lines(string(b)) {
		if h, ok := ParseHost(line); ok && h.Is(name) && (all || replaced[h.Type]) {
			continue
		}
		out.WriteString(strings.TrimRight(line, "\n") + "\n")
	}
	for _, h := range lines {
		out.WriteString(h.String() + "\n")
	}
	return m.WriteFile(path, []byte(out.String()))
}

// Scan reads the keys of a host with ssh-keyscan, with or without hashed names.
func Scan(ctx context.Context, m *host.Machine, name string, port int, typ string, hash bool, seconds int) ([]Host, error) {
	if name == "" || name[0] == '-' || strings.HasPrefix(typ, "-") {
		return nil, fmt.Errorf("%q is not a host name", name)
	}
	var args []string
	if port != 0 {
		args = append(args, "-p", strconv.Itoa(port))
	}
	if typ != "" {
		args = append(args, "-t", typ)
	}
	if hash {
		args = append(args, "-H")
	}
	out, err := m.Do(ctx, "ssh-keyscan", append(args, "-T", strconv.Itoa(seconds), name)...)
	if err != nil {
		return nil, fmt.Errorf("cannot run ssh-keyscan: %w", err)
	}
	var found []Host
	for line := range strings.SplitSeq(out.Stdout, "\n") {
		if h, ok := ParseHost(line); ok {
			found = append(found, h)
		}
	}
	return found, nil
}

// HashAll hashes all names in a file.
func HashAll(m *host.Machine, path string) error {
	b, err := m.ReadFile(path)
	if err != nil {
		return err
	}
	var out strings.Builder
	for line := range strings.Lines(string(b)) {
		h, ok := ParseHost(line)
		if !ok || strings.HasPrefix(h.Name, "|1|") || strings.ContainsAny(h.Name, "*?!") {
			out.WriteString(line)
			continue
		}
		for n := range strings.SplitSeq(h.Name, ",") {
			out.WriteString(Host{Hash(n), h.Type, h.Key}.String() + "\n")
		}
	}
	return m.WriteFile(path, []byte(out.String()))
}
