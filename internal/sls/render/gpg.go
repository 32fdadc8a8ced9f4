package render

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"unicode/utf8"

	"brine/internal/py/value"
)

// gpg decrypts the messages of one pipe run with the keys of one directory.
type gpg struct {
	program, home string
	must          bool
	r             *Renderer
}

func init() { steps.Register("gpg", renderGPG) }

// renderGPG decrypts every armoured message in a string, or in the strings of
// data. A failure is an error, unless the option gpg_decrypt_must_succeed is
// False: then the message stays, with a warning.
func renderGPG(ctx context.Context, r *Renderer, req *Request, in any, _ string) (any, error) {
	program, err := exec.LookPath("gpg")
	if err != nil {
		return nil, &Error{Message: "GPG unavailable: the program gpg is not installed", Name: req.name(), Err: err}
	}
	must, set := req.Opts.Get("gpg_decrypt_must_succeed")
	g := gpg{program: program, home: req.Opts.Str("gpg_keydir"), must: !set || value.Truth(must), r: r}
	if g.home == "" {
		dir := req.Opts.Str("config_dir")
		if dir == "" {
			dir = filepath.Dir(req.Opts.Str("conf_file"))
		}
		g.home = filepath.Join(dir, "gpgkeys")
	}
	return g.object(ctx, in)
}

// object walks lists and dicts and modifies them in place.
func (g gpg) object(ctx context.Context, v any) (any, error) {
	var err error
	switch x := v.(type) {
	case string:
		return g.text(ctx, []byte(x))
	case []byte:
		return g.text(ctx, x)
	case *value.Dict:
		for i := range x.Len() {
			k, w := x.Entry(i)
			if w, err = g.object(ctx, w); err != nil {
				return nil, err
			}
			x.Set(k, w)
		}
	case *value.List:
		for i := range x.Items {
			if x.Items[i], err = g.object(ctx, x.Items[i]); err != nil {
				return nil, err
			}
		}
	}
	return v, nil
}

// text replaces each message by its plaintext. It removes the line ends that a
// YAML block leaves after a message.
func (g gpg) text(ctx context.Context, b []byte) (any, error) {
	if !bytes.Contains(b, []byte("-----BEGIN PGP MESSAGE-----")) {
		return asString(b), nil
	}
	var failed error
	n := 0
	out := message().ReplaceAllFunc(b, func(m []byte) []byte {
		n++
		if failed != nil {
			return m
		}
		var plain []byte
		plain, failed = g.decrypt(ctx, m)
		return plain
	})
	if failed != nil {
		return nil, failed
	}
	if n > 0 {
		out = bytes.TrimRight(out, "\n")
	}
	return asString(out), nil
}

// message matches an armoured message.
func message() *regexp.Regexp {
	return regexp.MustCompile(`(?s)-----BEGIN PGP MESSAGE-----.*?-----END PGP MESSAGE-----`)
}

func asString(b []byte) any {
	if utf8.Valid(b) {
		return string(b)
	}
	return b
}

// decrypt runs gpg on one message. On the command line a message has \n for its
// line ends.
func (g gpg) decrypt(ctx context.Context, m []byte) ([]byte, error) {
	cmd := exec.CommandContext(ctx, g.program, "--homedir", g.home, "--status-fd", "2", "--no-tty", "-d")
	cmd.Stdin = strings.NewReader(strings.ReplaceAll(string(m), `\n`, "\n"))
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if stdout.Len() > 0 {
		return stdout.Bytes(), nil
	}
	if g.must {
		return nil, &Error{Message: fmt.Sprintf("Could not decrypt cipher %s, received: %s",
			value.Repr(m), value.Repr(stderr.Bytes())), Err: err}
	}
	g.r.log.Warn("cannot decrypt a message", "gpg", strings.TrimSpace(stderr.String()), "homedir", g.home)
	return m, nil
}
