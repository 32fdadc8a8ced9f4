// Package shadow hashes passwords for /etc/shadow: the methods sha512, sha256 and md5 of the C
// library's crypt(3).
package shadow

import (
	"crypto/md5"
	"crypto/sha256"
	"crypto/sha512"
	"fmt"
	"hash"
	"strconv"
	"strings"
)

const (
	defaultRounds = 5000
	minRounds     = 1000
	// maxRounds bounds the work that one call may cause.
	maxRounds = 10_000_000
	// maxPassword is the C library's limit in bytes.
	maxPassword = 512
)

// Hash returns a password hashed by a method, with a salt that may begin with
// rounds=N$ for the sha methods.
func Hash(method, password, salt string) (string, error) {
	if len(password) > maxPassword || strings.ContainsRune(password, 0) {
		return "", fmt.Errorf("a password must have at most %d bytes and no zero byte", maxPassword)
	}
	switch method {
	case "sha512":
		return sha("$6$", sha512.New, order512, password, salt)
	case "sha256":
		return sha("$5$", sha256.New, order256, password, salt)
	case "md5":
		salt, err := clean(salt, 8)
		return md5Hash(password, salt), err
	}
	return "", fmt.Errorf("cannot hash with %q; use sha512, sha256 or md5", method)
}

// clean bounds a salt, which ends at a dollar sign.
func clean(salt string, most int) (string, error) {
	salt, _, _ = strings.Cut(salt, "$")
	if strings.ContainsAny(salt, ":\n!*;\\ \t") {
		return "", fmt.Errorf("the salt %q has other characters than letters, digits, dots and slashes", salt)
	}
	return salt[:min(len(salt), most)], nil
}

// sha is the method of Ulrich Drepper's "Unix crypt using SHA-256 and SHA-512".
func sha(prefix string, h func() hash.Hash, order func(n int) [3]int, password, salt string) (string, error) {
	rounds, shown := defaultRounds, ""
	if rest, ok := strings.CutPrefix(salt, "rounds="); ok {
		number, after, _ := strings.Cut(rest, "$")
		n, err := strconv.ParseUint(number, 10, 32)
		if err != nil || n < minRounds || n > maxRounds {
			return "", fmt.Errorf("the salt %q must begin with rounds=NUMBER$, from %d to %d", salt, minRounds, maxRounds)
		}
		rounds, shown, salt = int(n), "rounds="+number+"$", after
	}
	salt, err := clean(salt, 16)
	if err != nil {
		return "", err
	}
	sum := shaSum(h, []byte(password), []byte(salt), rounds)
	return prefix + shown + salt + "$" + encode(sum, order), nil
}

func shaSum(newHash func() hash.Hash, password, salt []byte, rounds int) []byte {
	h := newHash()
	put := func(parts ...[]byte) []byte {
		h.Reset()
		for _, p := range parts {
			h.Write(p)
		}
		return h.Sum(nil)
	}
	b := put(password, salt, password)
	a := [][]byte{password, salt, repeat(b, len(password))}
	for n := len(password); n > 0; n >>= 1 {
		if n&1 != 0 {
			a = append(a, b)
		} else {
			a = append(a, password)
		}
	}
	sum := put(a...)
	h.Reset()
	for range password {
		h.Write(password)
	}
	p := repeat(h.Sum(nil), len(password))
	h.Reset()
	for range 16 + int(sum[0]) {
		h.Write(salt)
	}
	s := repeat(h.Sum(nil), len(salt))
	for i := range rounds {
		sum = round(h, sum, p, s, i)
	}
	return sum
}

// round is one round of either method: it hashes password, salt and the previous sum in an order
// that depends on the round's number.
func round(h hash.Hash, sum, p, s []byte, i int) []byte {
	h.Reset()
	first, last := sum, p
	if i%2 != 0 {
		first, last = p, sum
	}
	h.Write(first)
	if i%3 != 0 {
		h.Write(s)
	}
	if i%7 != 0 {
		h.Write(p)
	}
	h.Write(last)
	return h.Sum(nil)
}

// repeat fills n bytes with b.
func repeat(b []byte, n int) []byte {
	out := make([]byte, n)
	for i := range out {
		out[i] = b[i%len(b)]
	}
	return out
}

// md5Hash is the method of FreeBSD.
func md5Hash(password, salt string) string {
	p, s := []byte(password), []byte(salt)
	final := md5.Sum([]byte(password + salt + password))
	h := md5.New()
	h.Write([]byte(password + "$1$" + salt))
	h.Write(repeat(final[:], len(p)))
	for n := len(p); n > 0; n >>= 1 {
		if n&1 != 0 {
			h.Write([]byte{0})
		} else {
			h.Write(p[:1])
		}
	}
	sum := h.Sum(nil)
	for i := range 1000 {
		sum = round(h, sum, p, s, i)
	}
	return "$1$" + salt + "$" + encode(sum, orderMD5)
}

const digits = "./0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

// encode writes a sum in groups of three bytes, 24 bits as four digits with
// the lowest first. order names the bytes of the n-th group, the highest
// first; -1 is no byte.
func encode(sum []byte, order func(n int) [3]int) string {
	var out []byte
	for n := 0; n*3 < len(sum); n++ {
		bits, count := 0, 0
		for _, at := range order(n) {
			bits <<= 8
			if at >= 0 {
				bits |= int(sum[at])
				count++
			}
		}
		for range (count*8 + 5) / 6 {
			out = append(out, digits[bits&63])
			bits >>= 6
		}
	}
	return string(out)
}

// rotate returns three consecutive numbers, rotated by n places.
func rotate(a, b, c, n int) [3]int {
	v := [3]int{a, b, c}
	return [3]int{v[n%3], v[(n+1)%3], v[(n+2)%3]}
}

func order512(n int) [3]int {
	if n == 21 {
		return [3]int{-1, -1, 63}
	}
	return rotate(n, n+21, n+42, n)
}

func order256(n int) [3]int {
	if n == 10 {
		return [3]int{-1, 31, 30}
	}
	return rotate(n, n+10, n+20, 2*n)
}

func orderMD5(n int) [3]int {
	switch n {
	case 4:
		return [3]int{4, 10, 5}
	case 5:
		return [3]int{-1, -1, 11}
	}
	return [3]int{n, n + 6, n + 12}
}
