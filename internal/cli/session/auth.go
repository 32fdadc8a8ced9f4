package session

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/term"

	"brine/internal/call/auth"
	"brine/internal/files/extmods"
	"brine/internal/py/value"
)

type tokenOptions struct {
	TokenFile string `salt:"token_file" default:"" doc:"file for the token of --make-token; empty: .salt_token in the user's home"`
}

// ErrAuthentication means that there are no credentials. The reason has been printed.
var ErrAuthentication = errors.New("ERROR: Authentication failed")

// Authenticate applies the options for external authentication. It asks for missing values and adds
// the credentials to the client. Without such options it does nothing.
func (s *Session) Authenticate(ctx context.Context) error {
	o := &s.opts.EAuth
	if o.EAuth == "" {
		return nil
	}
	// Only the master knows whether the system is configured.
	own := s.ownAuth()
	if systems := auth.Systems(); !slices.Contains(systems, o.EAuth) && len(own.Claims[o.EAuth]) == 0 {
		if len(own.Claims) > 0 {
			systems = append(slices.Clone(systems), slices.Collect(maps.Keys(own.Claims))...)
			slices.Sort(systems)
			systems = slices.Compact(systems)
		}
		fmt.Fprintf(s.Env.Stdout, "The specified external authentication system \"%s\" is not available\nAvailable eauth types: %s\n",
			o.EAuth, strings.Join(systems, ", "))
		return ErrAuthentication
	}
	s.warnUnusable(o.EAuth)
	if tok := s.readToken(); tok != "" {
		s.Client = s.Client.As(value.DictOf("token", tok))
		return nil
	}
	in := bufio.NewReader(s.Env.Stdin)
	name, err := s.askUnless(o.Username, "username: ", in, false)
	if err != nil {
		return err
	}
	if name == "" {
		if u, err := user.Current(); err == nil {
			name = u.Username
		}
	}
	password, err := s.askUnless(o.Password, "password: ", in, true)
	if err != nil {
		return err
	}
	creds := value.DictOf("username", name, "password", password, "eauth", o.EAuth)
	if o.MakeToken {
		tok, err := s.makeToken(ctx, creds)
		if err != nil {
			return err
		}
		creds = value.DictOf("token", tok)
	}
	s.Client = s.Client.As(creds)
	return nil
}

// warnUnusable warns if the master of this machine cannot use a configured system, since the
// master's reply would only say that the user is refused.
func (s *Session) warnUnusable(system string) {
	only := s.Conf.Auth
	conf, ok := only.External.Get(system)
	if !ok {
		return
	}
	if len(s.ownAuth().Claims[system]) > 0 {
		return // a module in Python
	}
	only.External = value.DictOf(system, conf)
	if _, faults := auth.New(only, nil, nil, s.Log.Logger); len(faults) > 0 {
		s.Log.Warn("the master does not support this authentication system", "eauth", system, "err", faults[0])
	}
}

// ownAuth lists the user's own authentication modules on this machine.
func (s *Session) ownAuth() extmods.Listing {
	return extmods.Scan(extmods.Dirs(s.Tree.Values, s.Conf.Files.ExtensionModules, "auth"))
}

func (s *Session) askUnless(given, question string, in *bufio.Reader, hidden bool) (string, error) {
	if given != "" {
		return given, nil
	}
	fmt.Fprint(s.Env.Stderr, question)
	if f, ok := s.Env.Stdin.(*os.File); ok && hidden && s.Env.IsTerminal(f) {
		b, err := term.ReadPassword(int(f.Fd()))
		fmt.Fprintln(s.Env.Stderr)
		return string(b), err
	}
	line, err := in.ReadString('\n')
	if err != nil && line == "" {
		return "", fmt.Errorf("no answer to the question for the %s: %w", strings.TrimSuffix(question, ": "), err)
	}
	return strings.TrimRight(line, "\r\n"), nil
}

func (s *Session) tokenPath() string {
	if p := s.Settings.TokenFile.TokenFile; p != "" {
		return p
	}
	return filepath.Join(s.Env.Getenv("HOME"), ".salt_token")
}

// maxToken bounds the token file in bytes.
const maxToken = 4096

// readToken returns the stored token, unless the options name an account or request a new token.
func (s *Session) readToken() string {
	o := &s.opts.EAuth
	if o.Username != "" || o.Password != "" || o.MakeToken {
		return ""
	}
	b, err := os.ReadFile(s.tokenPath())
	if err != nil || len(b) > maxToken {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// makeToken requests a token from the master and stores it in a file that only the user can read.
func (s *Session) makeToken(ctx context.Context, creds *value.Dict) (string, error) {
	load := value.DictOf("cmd", "mk_token")
	load.Update(creds)
	reply, err := s.local.Request(ctx, load)
	if err != nil {
		return "", fmt.Errorf("cannot ask the master for a token: %w", err)
	}
	d, _ := reply.(*value.Dict)
	tok := d.Str("token")
	if tok == "" {
		return "", ErrAuthentication
	}
	path := s.tokenPath()
	os.Remove(path) // so that the new file has the right mode
	if err := os.WriteFile(path, []byte(tok), 0o600); err != nil {
		s.Log.Warn("cannot save the token", "err", err)
	}
	return tok, nil
}
