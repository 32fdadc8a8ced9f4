package tools

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
)

// Binary puts Brine's program into dir and returns its path. All tests of a tree share one build in
// the user's cache directory, because go build does not link an up-to-date binary again. Each test
// gets a copy, since the build is replaced when the sources change.
func Binary(dir string) (string, error) { return Program(dir, "brine") }

// Program is Binary for a program of cmd.
func Program(dir, name string) (string, error) {
	root, err := moduleRoot()
	if err != nil {
		return "", err
	}
	own := filepath.Join(dir, name)
	cache, err := os.UserCacheDir()
	if err != nil {
		return own, build(root, name, own)
	}
	shared := filepath.Join(cache, "brine-test", fmt.Sprintf("%x", sha256.Sum256([]byte(root)))[:16])
	if err := os.MkdirAll(shared, 0o700); err != nil {
		return own, build(root, name, own)
	}
	lock, err := os.OpenFile(filepath.Join(shared, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return "", err
	}
	defer lock.Close() // unlocks
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return "", err
	}
	built := filepath.Join(shared, name)
	if err := build(root, name, built); err != nil {
		return "", err
	}
	return own, copyProgram(built, own)
}

// moduleRoot returns the directory of go.mod; tests run in or below it.
func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	for ; err == nil; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", errors.New("there is no go.mod in this directory or above it")
		}
	}
	return "", err
}

func build(root, name, to string) error {
	c := exec.Command("go", "build", "-o", to, "brine/cmd/"+name)
	c.Dir = root
	c.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("cannot build the program: %w\n%s", err, out)
	}
	return nil
}

func copyProgram(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close(), os.Chmod(to, 0o755))
}
