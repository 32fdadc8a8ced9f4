// Package sshkeys reads and edits the files of keys that SSH trusts: those of
// users who may log in (authorized_keys) and those of machines (known_hosts).
package sshkeys

import (
	"crypto/md5"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"brine/internal/host"
	"brine/internal/host/account"
)

// Key is a line of authorized_keys.
type Key struct {
	Options []string // as they are written, separated by commas outside of quotes
	Type    string   // "ssh-ed25519"
	Key     string   // base64
	Comment string
}

var keyLine = regexp.MustCompile(`^(.*?)\s?((?:sk-)?(?:ssh-|ecds)[\w@.-]+\s.+)$`)

// ParseKey parses a line; ok is false for comments and invalid keys.
func ParseKey(line string) (Key, bool) {
	line = strings.TrimSpace(line)
	if line == "" || line[0] == '#' {
		return Key{}, false
	}
	m := keyLine.FindStringSubmatch(line)
	if m == nil {
		return Key{}, false
	}
	w := strings.Fields(m[2])
	if len(w) < 2 {
		return Key{}, false
	}
	k := Key{Type: w[0], Key: w[1], Comment: strings.Join(w[2:], " ")}
	if m[1] != "" {
		k.Options = strings.Split(m[1], ",")
	}
	return k, true
}

// String returns the line.
func (k Key) String() string {
	line := k.Type + " " + k.Key + " " + k.Comment
	if len(k.Options) > 0 {
		line = strings.Join(k.Options, ",") + " " + line
	}
	return line
}

// Fingerprint returns the hash of a key in pairs of digits; hash is sha256 if
// empty. It fails for invalid base64 and unknown hashes. Like Python, it
// accepts superfluous padding and trailing bits.
func Fingerprint(key, hash string) (string, error) {
	digits := strings.TrimRight(key, "=")
	padding, needed := len(key)-len(digits), -len(digits)&3
	raw, err := base64.RawStdEncoding.DecodeString(digits)
	if err != nil || len(raw) == 0 || padding != needed && (needed > 0 || padding > 2) || strings.ContainsAny(key, "\r\n") {
		return "", errors.New("invalid public key")
	}
	var sum []byte
	switch strings.ToLower(hash) {
	case "", "sha256":
		s := sha256.Sum256(raw)
		sum = s[:]
	case "md5":
		s := md5.Sum(raw)
		sum = s[:]
	case "sha1":
		s := sha1.Sum(raw)
		sum = s[:]
	case "sha512":
		s := sha512.Sum512(raw)
		sum = s[:]
	default:
		return "", fmt.Errorf("unknown hash %q for fingerprints", hash)
	}
	text := hex.EncodeToString(sum)
	var pairs []string
	for ; text != ""; text = text[2:] {
		pairs = append(pairs, text[:2])
	}
	return strings.Join(pairs, ":"), nil
}

var types = []string{
	"ssh-rsa", "ssh-dss", "ecdsa-sha2-nistp521", "ecdsa-sha2-nistp384", "ecdsa-sha2-nistp256", "ssh-ed25519",
	"rsa-sha2-512", "rsa-sha2-256", "rsa-sha2-512-cert-v01@openssh.com", "rsa-sha2-256-cert-v01@openssh.com", "ssh-rsa-cert-v01@openssh.com",
	"ecdsa-sha2-nistp256-cert-v01@openssh.com", "ecdsa-sha2-nistp384-cert-v01@openssh.com", "ecdsa-sha2-nistp521-cert-v01@openssh.com",
	"sk-ecdsa-sha2-nistp256@openssh.com", "sk-ecdsa-sha2-nistp256-cert-v01@openssh.com", "ssh-ed25519-cert-v01@openssh.com",
	"sk-ssh-ed25519@openssh.com", "sk-ssh-ed25519-cert-v01@openssh.com",
}

// TypeOf returns the full name of a type of keys, which may be a short one
// such as "rsa".
func TypeOf(name string) (string, error) {
	short := map[string]string{"r": "ssh-rsa", "rsa": "ssh-rsa", "d": "ssh-dss", "dsa": "ssh-dss", "dss": "ssh-dss",
		"e": "ecdsa-sha2-nistp256", "ecdsa": "ecdsa-sha2-nistp256", "ed25519": "ssh-ed25519"}
	if full, ok := short[name]; ok {
		return full, nil
	}
	if slices.Contains(types, name) {
		return name, nil
	}
	return "", fmt.Errorf("%q is not a key type", name)
}

// File returns the path of a user's file: config is relative to the home
// directory, and may hold %u, %h and %%.
func File(u account.User, config string) (string, error) {
	var b strings.Builder
	for i := 0; i < len(config); i++ {
		if config[i] != '%' {
			b.WriteByte(config[i])
			continue
		}
		if i++; i == len(config) {
			return "", errors.New("the path of authorized keys: the last character can't be escape character")
		}
		switch config[i] {
		case '%':
			b.WriteByte('%')
		case 'u':
			b.WriteString(u.Name)
		case 'h':
			b.WriteString(u.Home)
		default:
			return "", fmt.Errorf("the path of authorized keys: unknown token character %q", "%"+config[i:i+1])
		}
	}
	path := b.String()
	if !filepath.IsAbs(path) {
		path = filepath.Join(u.Home, path)
	}
	return path, nil
}

// Read returns the keys of a file, none if there is no such file.
func Read(m *host.Machine, path string) ([]Key, error) {
	b, err := m.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var out []Key
	for line := range strings.Lines(string(b)) {
		if k, ok := ParseKey(line); ok {
			out = append(out, k)
		}
	}
	return out, nil
}

// Results of Set and Remove.
const (
	Same     = "no change"
	New      = "new"
	Replaced = "replace"
)

// Set adds a key to a user's file, replacing a line with the same key. A new
// file or directory is accessible to the user only.
func Set(m *host.Machine, u account.User, path string, k Key) (string, error) {
	if strings.ContainsAny(k.String(), "\r\n\x00") || strings.ContainsAny(k.Key+k.Type, " \t") {
		return "", errors.New("a key must be a single line")
	}
	b, err := m.ReadFile(path)
	isNew := errors.Is(err, fs.ErrNotExist)
	if err != nil && !isNew {
		return "", err
	}
	var lines strings.Builder
	done := New
	for line := range strings.Lines(string(b)) {
		line = strings.TrimRight(line, "\r\n")
		if old, ok := ParseKey(line); ok && old.Key == k.Key {
			if old.String() == k.String() {
				return Same, nil
			}
			done, line = Replaced, k.String()
		}
		lines.WriteString(line + "\n")
	}
	text := lines.String()
	if done == New {
		text += k.String() + "\n"
	} else {
		text = withoutBlank(text)
	}
	if isNew {
		if err := own(m, u, path); err != nil {
			return "", err
		}
	}
	return done, m.WriteFile(path, []byte(text))
}

// withoutBlank trims all lines and drops the empty ones, as Salt does where it
// replaces or removes a key.
func withoutBlank(text string) string {
	var out strings.Builder
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" {
			out.WriteString(line + "\n")
		}
	}
	return out.String()
}

// own creates an empty file, accessible to the user only, and its directory.
func own(m *host.Machine, u account.User, path string) error {
	dir := filepath.Dir(path)
	made := !m.IsDir(dir)
	if made {
		if err := os.MkdirAll(m.Path(dir), 0o700); err != nil {
			return err
		}
	}
	f, err := os.OpenFile(m.Path(path), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	f.Close()
	if os.Geteuid() != 0 {
		return nil
	}
	if made {
		err = os.Lchown(m.Path(dir), u.UID, u.GID)
	}
	return errors.Join(err, os.Lchown(m.Path(path), u.UID, u.GID))
}

// Remove removes a key from a file, and reports whether it existed.
func Remove(m *host.Machine, path, key string) (bool, error) {
	b, err := m.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	var out strings.Builder
	found := false
	for line := range strings.Lines(string(b)) {
		if k, ok := ParseKey(line); ok && k.Key == key {
			found = true
			continue
		}
		out.WriteString(line)
	}
	if !found {
		return false, nil
	}
	return true, m.WriteFile(path, []byte(withoutBlank(out.String())))
}
