package remote

import (
	"crypto/hmac"
	"crypto/md5"
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"brine/internal/base/salt"
	"brine/internal/py/value"
)

// PostgresSecret returns the form in which a PostgreSQL server stores the password of a role: md5 (also for
// true and nil), scram-sha-256, or, for false, unchanged. A password that already has the form is returned
// unchanged.
func PostgresSecret(role, password string, how any) (string, error) {
	switch how {
	case nil, true, "md5":
		if strings.HasPrefix(password, "md5") {
			return password, nil
		}
		sum := md5.Sum([]byte(password + role))
		return "md5" + hex.EncodeToString(sum[:]), nil
	case "scram-sha-256":
		if strings.HasPrefix(password, "SCRAM-SHA-256") {
			return password, nil
		}
		random := make([]byte, 16)
		rand.Read(random)
		return scram(password, random, 4096)
	case false:
		return password, nil
	}
	return "", salt.Errorf(salt.Invalid, "Unknown password algorithm: %s", value.Str(how))
}

var verifier = regexp.MustCompile(`^SCRAM-SHA-256\$(\d{1,6}):([^$]+)\$`)

// IsPostgresSecret reports whether a stored secret matches a password.
func IsPostgresSecret(kept, role, password string, how any) bool {
	if how == "scram-sha-256" && !strings.HasPrefix(password, "SCRAM-SHA-256") {
		m := verifier.FindStringSubmatch(kept)
		if m == nil {
			return false
		}
		n, _ := strconv.Atoi(m[1])
		random, err := base64.StdEncoding.DecodeString(m[2])
		if err != nil || n == 0 {
			return false
		}
		want, err := scram(password, random, n)
		return err == nil && want == kept
	}
	want, err := PostgresSecret(role, password, how)
	return err == nil && want == kept
}

// scram makes the verifier of RFC 5803 in PostgreSQL's format.
func scram(password string, random []byte, n int) (string, error) {
	salted, err := pbkdf2.Key(sha256.New, password, random, n, sha256.Size)
	if err != nil {
		return "", salt.Errorf(salt.Internal, "cannot hash the password: %w", err)
	}
	mac := func(text string) []byte {
		h := hmac.New(sha256.New, salted)
		h.Write([]byte(text))
		return h.Sum(nil)
	}
	stored := sha256.Sum256(mac("Client Key"))
	b64 := base64.StdEncoding.EncodeToString
	return fmt.Sprintf("SCRAM-SHA-256$%d:%s$%s:%s", n, b64(random), b64(stored[:]), b64(mac("Server Key"))), nil
}
