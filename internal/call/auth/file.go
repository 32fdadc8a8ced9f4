package auth

import (
	"bufio"
	"context"
	"crypto/md5"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"golang.org/x/crypto/bcrypt"

	"brine/internal/base/salt"
	"brine/internal/net/crypt/shadow"
	"brine/internal/py/value"
)

// file authenticates against a text file: fields with names and passwords (plain or hashed), or the
// formats of Apache's htpasswd and htdigest.
type file struct {
	path, kind, hash, separator, realm string
	name, password                     int // fields, from 0
}

func init() { systems.Register("file", newFile) }

func newFile(conf *value.Dict, _ *Options) (System, error) {
	set := func(key, usual string) string {
		if v, ok := conf.Get("^" + key); ok {
			return value.Str(v)
		}
		return usual
	}
	f := &file{path: set("filename", ""), kind: strings.ToLower(set("filetype", "text")), hash: set("hashtype", "plaintext"),
		separator: set("field_separator", ":"), realm: set("realm", "")}
	for _, n := range []struct {
		key, usual string
		to         *int
	}{{"username_field", "1", &f.name}, {"password_field", "2", &f.password}} {
		if _, err := fmt.Sscan(set(n.key, n.usual), n.to); err != nil || *n.to < 1 {
			return nil, salt.Errorf(salt.Invalid, "^%s must be a number from 1", n.key)
		}
		*n.to--
	}
	switch {
	case f.path == "":
		return nil, salt.Errorf(salt.Invalid, "^filename is missing: the file of names and passwords")
	case f.separator == "":
		return nil, salt.Errorf(salt.Invalid, "^field_separator is empty")
	case f.kind != "text" && f.kind != "htpasswd" && f.kind != "htdigest":
		return nil, salt.Errorf(salt.Invalid, "^filetype %q is unknown; supported: text, htpasswd and htdigest", f.kind)
	case f.kind == "htdigest" && f.realm == "":
		return nil, salt.Errorf(salt.Invalid, "^realm is missing, which the type htdigest needs")
	case f.kind == "text" && f.hash != "plaintext" && digest("", f.hash) == "":
		return nil, salt.Errorf(salt.Invalid, "^hashtype %q is unknown; supported: plaintext, md5, sha1, sha256 and sha512", f.hash)
	}
	return f, nil
}

// Check implements checked.
func (f *file) Check() error {
	r, err := os.Open(f.path)
	if err != nil {
		return fmt.Errorf("cannot read the file of users: %w", err)
	}
	defer r.Close()
	if fi, err := r.Stat(); err == nil && fi.IsDir() {
		return salt.Errorf(salt.Invalid, "the file of users, %s, is a directory", f.path)
	}
	return nil
}

// maxFile bounds the size of a user file that is read, in bytes.
const maxFile = 64 << 20

// Authenticate implements System. As in Salt, the first line with the name decides, and in a file
// of type text a line without both fields ends the search.
func (f *file) Authenticate(_ context.Context, c Credentials) (Vouched, error) {
	r, err := os.Open(f.path)
	if err != nil {
		return Vouched{}, fmt.Errorf("cannot read the file of users: %w", err)
	}
	defer r.Close()
	lines := bufio.NewScanner(io.LimitReader(r, maxFile))
	lines.Buffer(nil, 1<<20)
	for n := 1; lines.Scan(); n++ {
		name, stored, err := f.split(lines.Text())
		if err != nil {
			return Vouched{}, salt.Errorf(salt.Invalid, "%s line %d: %w", f.path, n, err)
		}
		if name != c.Name {
			continue
		}
		ok, err := f.fits(c, stored)
		if err != nil {
			return Vouched{}, salt.Errorf(salt.Invalid, "%s line %d: %w", f.path, n, err)
		}
		if !ok {
			return Vouched{}, ErrRefused
		}
		return Vouched{}, nil
	}
	if err := lines.Err(); err != nil {
		return Vouched{}, fmt.Errorf("cannot read the file of users: %w", err)
	}
	return Vouched{}, ErrRefused
}

func (f *file) split(line string) (name, stored string, err error) {
	line = strings.TrimSpace(line)
	switch f.kind {
	case "text":
		fields := strings.Split(line, f.separator)
		if f.name >= len(fields) || f.password >= len(fields) {
			return "", "", salt.Errorf(salt.Invalid, "fields are missing")
		}
		return fields[f.name], fields[f.password], nil
	case "htdigest":
		fields := strings.SplitN(line, ":", 3)
		if len(fields) < 3 || strings.HasPrefix(line, "#") || fields[1] != f.realm {
			return "", "", nil
		}
		return fields[0], fields[2], nil
	}
	if strings.HasPrefix(line, "#") {
		return "", "", nil
	}
	name, stored, _ = strings.Cut(line, ":")
	return name, stored, nil
}

func (f *file) fits(c Credentials, stored string) (bool, error) {
	switch {
	case f.kind == "htdigest":
		return equal(digest(c.Name+":"+f.realm+":"+c.Password, "md5"), strings.ToLower(stored)), nil
	case f.kind == "htpasswd":
		return htpasswd(c.Password, stored)
	case f.hash == "plaintext":
		return equal(c.Password, stored), nil
	}
	return equal(digest(c.Password, f.hash), stored), nil
}

// digest returns a hash in hexadecimal digits, "" for an unknown type.
func digest(text, kind string) string {
	switch b := []byte(text); kind {
	case "md5":
		s := md5.Sum(b)
		return hex.EncodeToString(s[:])
	case "sha1":
		s := sha1.Sum(b)
		return hex.EncodeToString(s[:])
	case "sha256":
		s := sha256.Sum256(b)
		return hex.EncodeToString(s[:])
	case "sha512":
		s := sha512.Sum512(b)
		return hex.EncodeToString(s[:])
	}
	return ""
}

// htpasswd compares a password with a hash of htpasswd: $apr1$ (its default), bcrypt (-B), {SHA},
// or crypt(3)'s SHA-256 (-2) and SHA-512 (-5).
func htpasswd(password, stored string) (bool, error) {
	switch {
	case strings.HasPrefix(stored, "{SHA}"):
		s := sha1.Sum([]byte(password))
		return equal("{SHA}"+base64.StdEncoding.EncodeToString(s[:]), stored), nil
	case strings.HasPrefix(stored, "$2y$"), strings.HasPrefix(stored, "$2a$"), strings.HasPrefix(stored, "$2b$"):
		if cost, err := bcrypt.Cost([]byte(stored)); err != nil || cost > maxBcrypt {
			return false, salt.Errorf(salt.Invalid, "the bcrypt hash is malformed, or takes too long (more than cost %d)", maxBcrypt)
		}
		return bcrypt.CompareHashAndPassword([]byte(stored), []byte(password)) == nil, nil
	case strings.HasPrefix(stored, "$apr1$"):
		salt, _, _ := strings.Cut(strings.TrimPrefix(stored, "$apr1$"), "$")
		return equal(apr1(password, salt), stored), nil
	case strings.HasPrefix(stored, "$5$"):
		return sha("sha256", password, stored)
	case strings.HasPrefix(stored, "$6$"):
		return sha("sha512", password, stored)
	}
	return false, salt.Errorf(salt.Invalid,
		"the password is stored in a form that is not supported: use htpasswd -B (bcrypt), -5 (SHA-512), -2 (SHA-256), -m (apr1) or -s (SHA)")
}

// maxRounds bounds the rounds of a crypt(3) hash. This many take about a second.
const maxRounds = 1_000_000

// sha compares a password with a hash of crypt(3), $5$ or $6$.
func sha(method, password, stored string) (bool, error) {
	set := stored[len("$5$"):]
	if rest, ok := strings.CutPrefix(set, "rounds="); ok {
		number, _, _ := strings.Cut(rest, "$")
		if n, err := strconv.Atoi(number); err != nil || n > maxRounds {
			return false, salt.Errorf(salt.Invalid, "the hash is malformed, or takes too long (more than %d rounds)", maxRounds)
		}
	}
	hashed, err := shadow.Hash(method, password, set)
	if err != nil {
		return false, salt.Errorf(salt.Invalid, "%w", err)
	}
	return equal(hashed, stored), nil
}

// maxBcrypt bounds the cost of a bcrypt hash: 2^maxBcrypt rounds take about four seconds.
const maxBcrypt = 16

// apr1 is Apache's form of the crypt(3) hash of MD5.
func apr1(password, salt string) string {
	salt = salt[:min(len(salt), 8)]
	p := []byte(password)
	inner := md5.Sum([]byte(password + salt + password))
	h := md5.New()
	h.Write([]byte(password + "$apr1$" + salt))
	for n := len(p); n > 0; n -= 16 {
		h.Write(inner[:min(n, 16)])
	}
	for n := len(p); n > 0; n >>= 1 {
		if n&1 == 1 {
			h.Write([]byte{0})
		} else {
			h.Write(p[:1])
		}
	}
	sum := h.Sum(nil)
	for i := range 1000 {
		h.Reset()
		if i&1 == 1 {
			h.Write(p)
		} else {
			h.Write(sum)
		}
		if i%3 != 0 {
			h.Write([]byte(salt))
		}
		if i%7 != 0 {
			h.Write(p)
		}
		if i&1 == 1 {
			h.Write(sum)
		} else {
			h.Write(p)
		}
		sum = h.Sum(sum[:0])
	}
	const letters = "./0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	out := []byte("$apr1$" + salt + "$")
	add := func(v uint, n int) {
		for range n {
			out = append(out, letters[v&63])
			v >>= 6
		}
	}
	for _, i := range [][3]int{{0, 6, 12}, {1, 7, 13}, {2, 8, 14}, {3, 9, 15}, {4, 10, 5}} {
		add(uint(sum[i[0]])<<16|uint(sum[i[1]])<<8|uint(sum[i[2]]), 4)
	}
	add(uint(sum[11]), 2)
	return string(out)
}
