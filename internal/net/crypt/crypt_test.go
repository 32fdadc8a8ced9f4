package crypt

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
)

const vectors = "../../../testdata/vectors"

func read(t testing.TB, path ...string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(path...))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func readJSON(t testing.TB, v any, path ...string) {
	t.Helper()
	if err := json.Unmarshal(read(t, path...), v); err != nil {
		t.Fatal(err)
	}
}

func private(t testing.TB, name string) *PrivateKey {
	t.Helper()
	k, err := ParsePrivate(read(t, vectors, "keys", name+".pem"), "")
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func public(t testing.TB, name string) *PublicKey {
	t.Helper()
	k, err := ParsePublic(read(t, vectors, "keys", name+".pub"))
	if err != nil {
		t.Fatal(err)
	}
	return k
}
