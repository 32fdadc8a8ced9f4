// Package gpg implements the execution module and the states gpg: it controls keys of users in the
// keyrings of GnuPG by the program gpg, and returns results in Salt's format.
package gpg

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"brine/internal/base/atomicfile"
	"brine/internal/call/fn"
	"brine/internal/host"
	"brine/internal/host/account"
	"brine/internal/py/value"
)

// Keyrings are the keyrings of the users of a machine.
type Keyrings struct{ M *host.Machine }

// KeyringArgs select a keyring. They are the last arguments of Salt's functions.
type KeyringArgs struct {
	User    string `salt:"user" doc:"owner of the keyring; salt: the keys of the minion; null: the minion's user" default:"null"`
	Home    string `salt:"gnupghome" doc:"directory of the keyring; null: .gnupg in the user's home directory" default:"null"`
	Keyring string `salt:"keyring" doc:"file of the only keyring to use" default:"null"`
}

// command returns the call of gpg for a keyring. With create the directory exists afterwards.
func (g Keyrings) command(ctx context.Context, c *fn.Call, a KeyringArgs, create bool) (host.Cmd, error) {
	cmd := host.Cmd{Program: "gpg"}
	uid, gid := os.Geteuid(), os.Getegid()
	home := a.Home
	var u account.User
	known := false
	if a.User != "" && a.User != "salt" {
		if u, known = account.ByName(ctx, g.M, a.User); !known {
			return cmd, fn.Invalidf("User %s does not exist", a.User)
		}
		uid, gid = u.UID, u.GID
	}
	switch {
	case home != "":
	case known:
		home = filepath.Join(u.Home, ".gnupg")
	case a.User == "salt":
		dir, _ := c.Config.Get("config_dir").(string)
		home = filepath.Join(dir, "gpgkeys")
	default:
		if u, ok := account.ByID(g.M, uid); ok {
			home = filepath.Join(u.Home, ".gnupg")
		}
	}
	if !filepath.IsAbs(home) {
		return cmd, fn.Invalidf("gnupghome must be an absolute path, not %s", value.Repr(home))
	}
	if uid != os.Geteuid() {
		cmd.As = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	}
	if _, err := os.Stat(home); create && errors.Is(err, fs.ErrNotExist) {
		if err := os.MkdirAll(home, 0o700); err != nil {
			return cmd, fn.Errorf("cannot create the directory of the keyring: %w", err)
		}
		if err := os.Chown(home, uid, gid); err != nil {
			return cmd, fn.Errorf("cannot give the directory of the keyring to its user: %w", err)
		}
	}
	cmd.Args = []string{"--homedir", home, "--batch", "--no-tty", "--yes", "--status-fd", "1"}
	if a.Keyring != "" {
		cmd.Args = append(cmd.Args, "--no-default-keyring", "--keyring", a.Keyring)
	}
	return cmd, nil
}

// run runs gpg and returns its output and the words of its status lines.
func (g Keyrings) run(ctx context.Context, c *fn.Call, a KeyringArgs, create bool, stdin string, args ...string) (
	out host.Output, status [][]string, err error,
) {
	cmd, err := g.command(ctx, c, a, create)
	if err != nil {
		return out, nil, err
	}
	cmd.Args, cmd.Stdin = append(cmd.Args, args...), stdin
	if out, err = g.M.Command(ctx, cmd); err != nil {
		return out, nil, fn.Errorf("cannot run gpg: %w", err)
	}
	var rest strings.Builder
	for line := range strings.Lines(out.Stdout) {
		if words, ok := strings.CutPrefix(line, "[GNUPG:] "); ok {
			status = append(status, strings.Fields(words))
		} else {
			rest.WriteString(line)
		}
	}
	out.Stdout = rest.String()
	return out, status, nil
}

// trusts are gpg's letters for the trust in a key, in Salt's words.
var trusts = map[string]string{"e": "Expired", "q": "Unknown", "n": "Not Trusted", "f": "Fully Trusted", "m": "Marginally Trusted",
	"u": "Ultimately Trusted", "r": "Revoked", "-": "Unknown"}

// fields returns a function that returns a field of a line with colons, "" for one that is missing.
func fields(line string) func(i int) string {
	f := strings.Split(strings.TrimRight(line, "\n"), ":")
	return func(i int) string {
		if i < len(f) {
			return unescape(f[i])
		}
		return ""
	}
}

// readKeyring reads the listing of keys with colons.
func readKeyring(text string) *value.List {
	keys := &value.List{}
	var key *value.Dict
	wanted := false // the next fingerprint is that of the key
	for line := range strings.Lines(text) {
		at := fields(line)
		switch at(0) {
		case "pub", "sec":
			key, wanted = value.DictOf("keyid", at(4), "fingerprint", "", "uids", &value.List{}), true
			setDate(key, "expires", at(6))
			setDate(key, "created", at(5))
			if at(2) != "" {
				key.Set("keyLength", at(2))
			}
			for _, t := range []struct {
				name  string
				field int
			}{{"ownerTrust", 8}, {"trust", 1}} {
				if letter := at(t.field); letter != "" {
					word := trusts[letter]
					if word == "" {
						word = "Unknown"
					}
					key.Set(t.name, word)
				}
			}
			keys.Append(key)
		case "fpr":
			if wanted && key != nil {
				key.Set("fingerprint", at(9))
			}
			wanted = false
		case "uid":
			if uids, ok := key.At("uids").(*value.List); ok {
				uids.Append(at(9))
			}
		case "sub", "ssb":
			wanted = false
		}
	}
	return keys
}

// setDate sets the date of a time in seconds, if there is one.
func setDate(key *value.Dict, name, seconds string) {
	if n, err := strconv.ParseInt(seconds, 10, 64); err == nil {
		key.Set(name, time.Unix(n, 0).Format(time.DateOnly))
	}
}

// unescape decodes \xNN in a field of a listing.
func unescape(s string) string {
	if !strings.Contains(s, `\x`) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+4 <= len(s) && s[i+1] == 'x' {
			if n, err := strconv.ParseUint(s[i+2:i+4], 16, 8); err == nil {
				b.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

func (g Keyrings) list(ctx context.Context, c *fn.Call, a KeyringArgs, what string) (*value.List, error) {
	out, _, err := g.run(ctx, c, a, false, "", "--fixed-list-mode", "--with-colons", "--with-fingerprint", what)
	if err != nil {
		return nil, err
	}
	return readKeyring(out.Stdout), nil
}

// ListKeys returns the public keys of a keyring.
func (g Keyrings) ListKeys(ctx context.Context, c *fn.Call, a KeyringArgs) (*value.List, error) {
	return g.list(ctx, c, a, "--list-keys")
}

// ListSecretKeys returns the secret keys of a keyring.
func (g Keyrings) ListSecretKeys(ctx context.Context, c *fn.Call, a KeyringArgs) (*value.List, error) {
	return g.list(ctx, c, a, "--list-secret-keys")
}

// KeyArgs select a key.
type KeyArgs struct {
	KeyID       string `salt:"keyid" doc:"short or long id of the key" default:"null"`
	Fingerprint string `salt:"fingerprint" doc:"fingerprint of the key" default:"null"`
	KeyringArgs
}

// find returns a key of a keyring, or nil.
func (g Keyrings) find(ctx context.Context, c *fn.Call, a KeyArgs, what string) (*value.Dict, error) {
	keys, err := g.list(ctx, c, a.KeyringArgs, what)
	if err != nil {
		return nil, err
	}
	var found *value.Dict
	for _, k := range keys.Items {
		key, _ := k.(*value.Dict)
		id := key.Str("keyid")
		if a.Fingerprint != "" && key.Str("fingerprint") == a.Fingerprint || a.KeyID != "" && (id == a.KeyID || len(id) > 8 && id[8:] == a.KeyID) {
			found = key
		}
	}
	return found, nil
}

func orFalse(d *value.Dict, err error) (any, error) {
	if d == nil {
		return false, err
	}
	return d, err
}

// GetKey returns a public key, or false.
func (g Keyrings) GetKey(ctx context.Context, c *fn.Call, a KeyArgs) (any, error) {
	return orFalse(g.find(ctx, c, a, "--list-keys"))
}

// GetSecretKey returns a secret key, or false.
func (g Keyrings) GetSecretKey(ctx context.Context, c *fn.Call, a KeyArgs) (any, error) {
	return orFalse(g.find(ctx, c, a, "--list-secret-keys"))
}

// ImportArgs are the arguments of ImportKey.
type ImportArgs struct {
	Text     string `salt:"text" doc:"the keys" default:"null"`
	Filename string `salt:"filename" doc:"file with the keys" default:"null"`
	KeyringArgs
}

// ImportKey imports keys from a text or a file: {res, message}.
func (g Keyrings) ImportKey(ctx context.Context, c *fn.Call, a ImportArgs) (*value.Dict, error) {
	if a.Text == "" && a.Filename == "" {
		return nil, fn.Invalidf("filename or text must be passed.")
	}
	text := a.Text
	if a.Filename != "" {
		b, err := os.ReadFile(a.Filename)
		if err != nil {
			return nil, fn.Invalidf("filename does not exist.")
		}
		text = string(b)
	}
	_, status, err := g.run(ctx, c, a.KeyringArgs, true, text, "--import")
	if err != nil {
		return nil, err
	}
	var count []string
	for _, s := range status {
		if len(s) > 5 && s[0] == "IMPORT_RES" {
			count = s[1:]
		}
	}
	switch {
	case count != nil && (count[2] != "0" || count[3] != "0"):
		return value.DictOf("res", true, "message", "Successfully imported key(s)."), nil
	case count != nil && count[4] != "0":
		return value.DictOf("res", true, "message", "Key(s) already exist in keychain."), nil
	}
	return value.DictOf("res", false, "message", "Unable to import key."), nil
}

// ExportArgs are the arguments of ExportKey.
type ExportArgs struct {
	KeyIDs     any    `salt:"keyids" doc:"ids, fingerprints or addresses, as a list or with commas; null: all keys" default:"null"`
	Secret     bool   `salt:"secret" doc:"export secret keys" default:"false"`
	User       string `salt:"user" doc:"owner of the keyring; salt: the keys of the minion; null: the minion's user" default:"null"`
	Home       string `salt:"gnupghome" doc:"directory of the keyring; null: .gnupg in the user's home directory" default:"null"`
	Passphrase bool   `salt:"use_passphrase" doc:"the secret key is protected by the passphrase in the pillar gpg_passphrase" default:"false"`
	Output     string `salt:"output" doc:"file to write to, instead of returning the text" default:"null"`
	Bare       bool   `salt:"bare" doc:"return the text alone" default:"false"`
	Keyring    string `salt:"keyring" doc:"file of the only keyring to use" default:"null"`
}

// ExportKey returns keys as text, or writes them to a file.
func (g Keyrings) ExportKey(ctx context.Context, c *fn.Call, a ExportArgs) (any, error) {
	words := []string{"--armor", "--export"}
	stdin := ""
	if a.Secret {
		words[1] = "--export-secret-keys"
		if a.Passphrase {
			if stdin = value.Str(c.Pillar.Get("gpg_passphrase")); c.Pillar.Get("gpg_passphrase") == nil {
				return nil, fn.Invalidf("gpg_passphrase not available in pillar.")
			}
			words = append([]string{"--pinentry-mode", "loopback", "--passphrase-fd", "0"}, words...)
		}
	}
	words = append(append(words, "--"), value.Commas(a.KeyIDs)...)
	out, _, err := g.run(ctx, c, KeyringArgs{a.User, a.Home, a.Keyring}, false, stdin, words...)
	if err != nil {
		return nil, err
	}
	switch {
	case out.Stdout == "" && a.Bare:
		return false, nil
	case out.Stdout == "":
		return value.DictOf("res", false), nil
	}
	text := strings.TrimRight(out.Stdout, "\n") + "\n"
	if a.Output != "" {
		if err := atomicfile.Write(a.Output, []byte(text), 0o600, false); err != nil {
			return nil, fn.Errorf("cannot write the keys: %w", err)
		}
	}
	switch {
	case a.Bare:
		return text, nil
	case a.Output != "":
		return value.DictOf("res", true, "comment", "Exported key data has been written to "+a.Output), nil
	}
	return value.DictOf("res", true, "comment", text), nil
}

// ReceiveArgs are the arguments of ReceiveKeys.
type ReceiveArgs struct {
	Server string `salt:"keyserver" doc:"key server; null: keys.openpgp.org" default:"null"`
	Keys   any    `salt:"keys" doc:"ids of the keys, as a list or with commas" default:"null"`
	KeyringArgs
}

// ReceiveKeys fetches keys from a key server: {res, message}.
func (g Keyrings) ReceiveKeys(ctx context.Context, c *fn.Call, a ReceiveArgs) (*value.Dict, error) {
	server := a.Server
	if server == "" {
		server = "keys.openpgp.org"
	}
	ids := value.Commas(a.Keys)
	if len(ids) == 0 {
		return nil, fn.Invalidf("keys must be the ids of the keys to fetch")
	}
	out, status, err := g.run(ctx, c, a.KeyringArgs, true, "", append([]string{"--keyserver", server, "--recv-keys", "--"}, ids...)...)
	if err != nil {
		return nil, err
	}
	messages := &value.List{}
	there := false
	for _, s := range status {
		if len(s) < 3 || s[0] != "IMPORT_OK" {
			continue
		}
		there = true
		if s[1] == "0" {
			messages.Append("Key " + s[2] + " already exists in keychain")
		} else {
			messages.Append("Key " + s[2] + " added to keychain")
		}
	}
	if !there {
		messages.Append("GPG reported failure: " + out.Stderr)
	}
	return value.DictOf("res", there, "message", messages), nil
}

// levels are the names of the levels of trust, with gpg's numbers and letters and with the word in the
// message of TrustKey.
var levels = []struct{ name, number, letter, word string }{{"expired", "1", "e", "Expired"}, {"unknown", "2", "q", "Unknown"},
	{"not_trusted", "3", "n", "Not Trusted"}, {"marginally", "4", "m", "Marginally"}, {"fully", "5", "f", "Fully Trusted"},
	{"ultimately", "6", "u", "Ultimately Trusted"}}

// OwnerTrust returns the word by which ListKeys shows a level of trust, "" for an unknown level.
func OwnerTrust(level string) string {
	for _, l := range levels {
		if l.name == level {
			return trusts[l.letter]
		}
	}
	return ""
}

// TrustArgs are the arguments of TrustKey.
type TrustArgs struct {
	KeyID       string `salt:"keyid" doc:"short or long id of the key" default:"null"`
	Fingerprint string `salt:"fingerprint" doc:"fingerprint of the key" default:"null"`
	Level       string `salt:"trust_level" doc:"expired, unknown, not_trusted, marginally, fully or ultimately" default:"null"`
	KeyringArgs
}

// TrustKey sets how far the owner of a key is trusted: {res, message}.
func (g Keyrings) TrustKey(ctx context.Context, c *fn.Call, a TrustArgs) (*value.Dict, error) {
	if (a.KeyID == "") == (a.Fingerprint == "") {
		return nil, fn.Invalidf("Exactly one of keyid or fingerprint is required")
	}
	number, word, names := "", "", make([]string, 0, len(levels))
	for _, l := range levels {
		names = append(names, l.name)
		if l.name == a.Level {
			number, word = l.number, l.word
		}
	}
	if number == "" {
		return nil, fn.Invalidf("ERROR: Valid trust levels - %s", strings.Join(names, ","))
	}
	key, err := g.find(ctx, c, KeyArgs{a.KeyID, a.Fingerprint, a.KeyringArgs}, "--list-keys")
	if err != nil {
		return nil, err
	}
	if key == nil {
		return value.DictOf("res", false, "message", "Key "+a.KeyID+a.Fingerprint+" not in GPG keychain"), nil
	}
	fingerprint := key.Str("fingerprint")
	out, _, err := g.run(ctx, c, a.KeyringArgs, true, fingerprint+":"+number+":\n", "--import-ownertrust")
	if err != nil {
		return nil, err
	}
	if out.Exit != 0 {
		return value.DictOf("res", false, "message", out.Message()), nil
	}
	return value.DictOf("res", true, "message", "Setting ownership trust to "+word+".", "fingerprint", fingerprint), nil
}

// DeleteArgs are the arguments of DeleteKey.
type DeleteArgs struct {
	KeyID       string `salt:"keyid" doc:"short or long id of the key" default:"null"`
	Fingerprint string `salt:"fingerprint" doc:"fingerprint of the key" default:"null"`
	Secret      bool   `salt:"delete_secret" doc:"remove a secret key, too" default:"false"`
	User        string `salt:"user" doc:"owner of the keyring; salt: the keys of the minion; null: the minion's user" default:"null"`
	Home        string `salt:"gnupghome" doc:"directory of the keyring; null: .gnupg in the user's home directory" default:"null"`
	Passphrase  any    `salt:"use_passphrase" ignored:"gpg needs none to remove a key" default:"true"`
	Keyring     string `salt:"keyring" doc:"file of the only keyring to use" default:"null"`
}

// DeleteKey removes a key from a keyring: {res, message}.
func (g Keyrings) DeleteKey(ctx context.Context, c *fn.Call, a DeleteArgs) (*value.Dict, error) {
	failed := func(message string) (*value.Dict, error) { return value.DictOf("res", false, "message", message), nil }
	switch {
	case a.KeyID != "" && a.Fingerprint != "":
		return failed("Only specify one argument, fingerprint or keyid")
	case a.KeyID == "" && a.Fingerprint == "":
		return failed("Required argument, fingerprint or keyid")
	}
	ring := KeyringArgs{a.User, a.Home, a.Keyring}
	key, err := g.find(ctx, c, KeyArgs{a.KeyID, a.Fingerprint, ring}, "--list-keys")
	if err != nil {
		return nil, err
	}
	if key == nil {
		return failed("Key not available in keychain.")
	}
	fingerprint, done := key.Str("fingerprint"), ""
	secret, err := g.find(ctx, c, KeyArgs{"", fingerprint, ring}, "--list-secret-keys")
	if err != nil {
		return nil, err
	}
	if secret != nil {
		if !a.Secret {
			return failed("Secret key exists, delete first or pass delete_secret=True.")
		}
		out, _, err := g.run(ctx, c, ring, true, "", "--delete-secret-keys", fingerprint)
		if err != nil {
			return nil, err
		}
		if out.Exit != 0 {
			return failed("Failed to delete secret key for " + fingerprint + ": " + out.Message())
		}
		done = "Secret key for " + fingerprint + " deleted\n"
	}
	out, _, err := g.run(ctx, c, ring, true, "", "--delete-keys", fingerprint)
	if err != nil {
		return nil, err
	}
	if out.Exit != 0 {
		return failed(done + "Failed to delete public key for " + fingerprint + ": " + out.Message())
	}
	return value.DictOf("res", true, "message", done+"Public key for "+fingerprint+" deleted"), nil
}
