package gpg

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"brine/internal/base/atomicfile"
	"brine/internal/call/fn"
	"brine/internal/host"
	"brine/internal/py/value"
)

// maxMessage bounds the contents of a message, in bytes.
const maxMessage = 256 << 20

// input returns the message of a call: a text, or the contents of a file.
func input(text, filename string) (string, error) {
	switch {
	case text != "":
		return text, nil
	case filename == "":
		return "", fn.Invalidf("filename or text must be passed.")
	}
	data, err := readMessage(filename)
	if err != nil {
		return "", fn.Errorf("cannot read the file: %w", err)
	}
	return string(data), nil
}

func readMessage(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxMessage+1))
	if err == nil && len(data) > maxMessage {
		err = fmt.Errorf("%s has more than %d bytes", path, maxMessage)
	}
	return data, err
}

// passphrase returns the passphrase of the pillar.
func passphrase(c *fn.Call, wanted bool) (string, error) {
	if !wanted {
		return "", nil
	}
	phrase := value.Str(c.Pillar.Get("gpg_passphrase"))
	if c.Pillar.Get("gpg_passphrase") == nil || phrase == "" {
		return "", fn.Invalidf("gpg_passphrase not available in pillar.")
	}
	if strings.ContainsAny(phrase, "\n\x00") {
		return "", fn.Invalidf("gpg_passphrase in the pillar must be one line")
	}
	return phrase, nil
}

// convert runs gpg on a message and returns what it makes of it: bytes of any kind, which therefore
// do not pass through its standard output.
func (g Keyrings) convert(ctx context.Context, c *fn.Call, ring KeyringArgs, phrase, message string, words ...string) (
	made []byte, status [][]string, out host.Output, err error,
) {
	cmd, err := g.command(ctx, c, ring, true)
	if err != nil {
		return nil, nil, out, err
	}
	dir, err := os.MkdirTemp("", "brine-gpg-")
	if err != nil {
		return nil, nil, out, fn.Errorf("cannot create a directory for the message: %w", err)
	}
	defer os.RemoveAll(dir)
	if cmd.As != nil {
		if err := os.Chown(dir, int(cmd.As.Uid), int(cmd.As.Gid)); err != nil {
			return nil, nil, out, fn.Errorf("cannot give the directory for the message to its user: %w", err)
		}
	}
	file := filepath.Join(dir, "message")
	options := []string{"--output", file}
	if phrase != "" {
		// gpg reads the passphrase from the first line and the message from the rest.
		options = append(options, "--pinentry-mode", "loopback", "--passphrase-fd", "0")
		message = phrase + "\n" + message
	}
	out, status, err = g.run(ctx, c, ring, true, message, append(options, words...)...)
	if err != nil {
		return nil, nil, out, err
	}
	made, err = readMessage(file)
	if errors.Is(err, os.ErrNotExist) {
		err = nil // gpg has made nothing
	}
	if err != nil {
		return nil, nil, out, fn.Errorf("cannot read what gpg has made: %w", err)
	}
	return made, status, out, nil
}

// has reports whether gpg has written a status.
func has(status [][]string, word string) bool {
	return slices.ContainsFunc(status, func(s []string) bool { return len(s) > 0 && s[0] == word })
}

// failure says in Salt's words why gpg could neither encrypt nor decrypt a message.
func failure(status [][]string) string {
	words := ""
	for _, s := range status {
		if len(s) == 0 {
			continue
		}
		switch s[0] {
		case "NODATA":
			if words == "" {
				words = "no data was provided"
			}
		case "NEED_PASSPHRASE", "BAD_PASSPHRASE", "MISSING_PASSPHRASE":
			words = strings.ToLower(strings.ReplaceAll(s[0], "_", " "))
		case "NO_SECKEY":
			words = "no secret key"
		case "INV_RECP":
			words = "invalid recipient"
		case "KEYEXPIRED":
			words = "key expired"
		case "DECRYPTION_FAILED":
			if words != "no secret key" {
				words = "decryption failed"
			}
		}
	}
	return words
}

// content is a message as a result: text, or bytes if it is none.
func content(data []byte) any {
	if utf8.Valid(data) {
		return string(data)
	}
	return data
}

// result returns the result of EncryptMessage or DecryptMessage.
func result(c *fn.Call, done bool, made []byte, status [][]string, out host.Output, output, what string, bare bool) (any, error) {
	if !done {
		c.Log.Error("gpg failed", "stderr", out.Stderr)
		if bare {
			return false, nil
		}
		return value.DictOf("res", false, "comment", failure(status)+".\nPlease check the salt-minion log."), nil
	}
	if output != "" {
		if err := atomicfile.Write(output, made, 0o600, false); err != nil {
			return nil, fn.Errorf("cannot write the message: %w", err)
		}
	}
	switch {
	case output != "" && bare:
		return "", nil
	case output != "":
		return value.DictOf("res", true, "comment", what+" data has been written to "+output), nil
	case bare:
		return content(made), nil
	}
	return value.DictOf("res", true, "comment", content(made)), nil
}

// EncryptArgs are the arguments of EncryptMessage.
type EncryptArgs struct {
	User       string `salt:"user" doc:"owner of the keyring; salt: the keys of the minion; null: the minion's user" default:"null"`
	Recipients any    `salt:"recipients" doc:"ids, fingerprints, names or addresses of the keys that can decrypt it: one, or a list" default:"null"`
	Text       string `salt:"text" doc:"the message" default:"null"`
	Filename   string `salt:"filename" doc:"file with the message" default:"null"`
	Output     string `salt:"output" doc:"file to write to, instead of returning the text" default:"null"`
	Sign       any    `salt:"sign" doc:"sign it as well: true, or the fingerprint of the key" default:"null"`
	Passphrase bool   `salt:"use_passphrase" doc:"the key that signs is protected by the passphrase in the pillar gpg_passphrase" default:"false"`
	Trust      bool   `salt:"always_trust" doc:"use keys that are not trusted" default:"false"`
	Home       string `salt:"gnupghome" doc:"directory of the keyring; null: .gnupg in the user's home directory" default:"null"`
	Bare       bool   `salt:"bare" doc:"return the text alone" default:"false"`
	Keyring    string `salt:"keyring" doc:"file of the only keyring to use" default:"null"`
}

// EncryptMessage encrypts a message for the owners of keys.
func (g Keyrings) EncryptMessage(ctx context.Context, c *fn.Call, a EncryptArgs) (any, error) {
	signs := value.Truth(a.Sign)
	phrase, err := passphrase(c, signs && a.Passphrase)
	if err != nil {
		return nil, err
	}
	message, err := input(a.Text, a.Filename)
	if err != nil {
		return nil, err
	}
	recipients := value.Texts(a.Recipients)
	if one, ok := a.Recipients.(string); ok {
		recipients = []string{one}
	}
	if len(recipients) == 0 {
		return nil, fn.Invalidf("recipients must be the keys that can decrypt the message")
	}
	words := []string{"--armor", "--encrypt"}
	for _, r := range recipients {
		words = append(words, "--recipient", r)
	}
	if signs {
		words = append(words, "--sign")
		if key, ok := a.Sign.(string); ok {
			words = append(words, "--local-user", key)
		}
	}
	if a.Trust {
		words = append(words, "--trust-model", "always")
	}
	made, status, out, err := g.convert(ctx, c, KeyringArgs{a.User, a.Home, a.Keyring}, phrase, message, words...)
	if err != nil {
		return nil, err
	}
	return result(c, has(status, "END_ENCRYPTION") && out.Exit == 0, made, status, out, a.Output, "Encrypted", a.Bare)
}

// DecryptArgs are the arguments of DecryptMessage.
type DecryptArgs struct {
	User       string `salt:"user" doc:"owner of the keyring; salt: the keys of the minion; null: the minion's user" default:"null"`
	Text       string `salt:"text" doc:"the encrypted message" default:"null"`
	Filename   string `salt:"filename" doc:"file with the encrypted message" default:"null"`
	Output     string `salt:"output" doc:"file to write to, instead of returning the message" default:"null"`
	Passphrase bool   `salt:"use_passphrase" doc:"the key is protected by the passphrase in the pillar gpg_passphrase" default:"false"`
	Home       string `salt:"gnupghome" doc:"directory of the keyring; null: .gnupg in the user's home directory" default:"null"`
	Bare       bool   `salt:"bare" doc:"return the message alone" default:"false"`
	Keyring    string `salt:"keyring" doc:"file of the only keyring to use" default:"null"`
}

// DecryptMessage decrypts a message.
func (g Keyrings) DecryptMessage(ctx context.Context, c *fn.Call, a DecryptArgs) (any, error) {
	phrase, err := passphrase(c, a.Passphrase)
	if err != nil {
		return nil, err
	}
	message, err := input(a.Text, a.Filename)
	if err != nil {
		return nil, err
	}
	made, status, out, err := g.convert(ctx, c, KeyringArgs{a.User, a.Home, a.Keyring}, phrase, message, "--decrypt")
	if err != nil {
		return nil, err
	}
	return result(c, has(status, "DECRYPTION_OKAY") && !has(status, "DECRYPTION_FAILED"), made, status, out, a.Output, "Decrypted", a.Bare)
}

// SignArgs are the arguments of SignMessage.
type SignArgs struct {
	User       string `salt:"user" doc:"owner of the keyring; salt: the keys of the minion; null: the minion's user" default:"null"`
	KeyID      string `salt:"keyid" doc:"id of the key; null: gpg's default" default:"null"`
	Text       string `salt:"text" doc:"the message" default:"null"`
	Filename   string `salt:"filename" doc:"file with the message" default:"null"`
	Output     string `salt:"output" doc:"file to which a signed file is written" default:"null"`
	Passphrase bool   `salt:"use_passphrase" doc:"the key is protected by the passphrase in the pillar gpg_passphrase" default:"false"`
	Home       string `salt:"gnupghome" doc:"directory of the keyring; null: .gnupg in the user's home directory" default:"null"`
	Keyring    string `salt:"keyring" doc:"file of the only keyring to use" default:"null"`
}

// SignMessage returns a message with its signature, "" if it cannot be signed.
func (g Keyrings) SignMessage(ctx context.Context, c *fn.Call, a SignArgs) (any, error) {
	phrase, err := passphrase(c, a.Passphrase)
	if err != nil {
		return nil, err
	}
	message, err := input(a.Text, a.Filename)
	if err != nil {
		return nil, err
	}
	words := []string{"--armor", "--clear-sign"}
	if a.KeyID != "" {
		words = append(words, "--local-user", a.KeyID)
	}
	made, status, out, err := g.convert(ctx, c, KeyringArgs{a.User, a.Home, a.Keyring}, phrase, message, words...)
	if err != nil {
		return nil, err
	}
	if !has(status, "SIG_CREATED") {
		c.Log.Error("gpg failed", "stderr", out.Stderr)
		made = nil
	}
	if a.Output != "" && a.Text == "" && len(made) > 0 {
		if err := atomicfile.Write(a.Output, made, 0o644, false); err != nil {
			return nil, fn.Errorf("cannot write the signed file: %w", err)
		}
	}
	return content(made), nil
}

// VerifyArgs are the arguments of VerifyMessage.
type VerifyArgs struct {
	Text       string `salt:"text" doc:"the message with its signature" default:"null"`
	User       string `salt:"user" doc:"owner of the keyring; salt: the keys of the minion; null: the minion's user" default:"null"`
	Filename   string `salt:"filename" doc:"file with the message" default:"null"`
	Home       string `salt:"gnupghome" doc:"directory of the keyring; null: .gnupg in the user's home directory" default:"null"`
	Signature  string `salt:"signature" doc:"file with the signature, if that is not in the message" default:"null"`
	TrustModel string `salt:"trustmodel" doc:"pgp, classic, tofu, tofu+pgp, direct, always or auto" default:"null"`
	Any        any    `salt:"signed_by_any" doc:"fingerprints of keys, one of which must have signed it" default:"null"`
	Every      any    `salt:"signed_by_all" doc:"fingerprints of keys that must all have signed it" default:"null"`
	Keyring    string `salt:"keyring" doc:"file of the only keyring to use" default:"null"`
}

// trustModels are gpg's models of trust.
var trustModels = []string{"pgp", "classic", "tofu", "tofu+pgp", "direct", "always", "auto"}

// signature is one signature of a message.
type signature struct {
	user, key, fingerprint, trust, status string
	// good means that the signature is that of a key which is neither expired nor revoked.
	good bool
}

// valid reports whether the signature counts.
func (s signature) valid() bool { return s.good && s.trust != "" && s.fingerprint != "" }

// readSignatures reads the signatures from gpg's status lines.
func readSignatures(status [][]string) []signature {
	var all []signature
	for _, s := range status {
		if len(s) == 0 {
			continue
		}
		if s[0] == "NEWSIG" {
			all = append(all, signature{})
			continue
		}
		if len(all) == 0 {
			continue
		}
		last := &all[len(all)-1]
		at := func(i int) string {
			if i < len(s) {
				return s[i]
			}
			return ""
		}
		name := func() { last.key, last.user = at(1), strings.Join(s[min(2, len(s)):], " ") }
		switch s[0] {
		case "GOODSIG":
			name()
			last.good, last.status = true, "signature good"
		case "BADSIG":
			name()
			last.status = "signature bad"
		case "EXPSIG":
			name()
			last.status = "signature expired"
		case "EXPKEYSIG", "REVKEYSIG":
			name()
			last.status = strings.ToLower(s[0][:3] + " " + s[0][3:])
		case "ERRSIG":
			last.key, last.status = at(1), "signature error"
		case "NO_PUBKEY":
			last.key, last.status = at(1), "no public key"
		case "VALIDSIG":
			last.fingerprint = s[len(s)-1] // that of the primary key
			if last.good {
				last.status = "signature valid"
			}
		case "TRUST_UNDEFINED", "TRUST_NEVER", "TRUST_MARGINAL", "TRUST_FULLY", "TRUST_ULTIMATE":
			word := strings.TrimPrefix(s[0], "TRUST_")
			last.trust = word[:1] + strings.ToLower(word[1:])
		}
	}
	return all
}

// VerifyMessage verifies the signatures of a message: {res, message} and more. A signature by an
// expired or revoked key is not valid.
func (g Keyrings) VerifyMessage(ctx context.Context, c *fn.Call, a VerifyArgs) (*value.Dict, error) {
	failed := func(message string) *value.Dict { return value.DictOf("res", false, "message", message) }
	if a.TrustModel != "" && !slices.Contains(trustModels, a.TrustModel) {
		return failed(fmt.Sprintf("Invalid trustmodel defined: %s. Use one of: %s", a.TrustModel, strings.Join(trustModels, ", "))), nil
	}
	words := []string{}
	if a.TrustModel != "" {
		words = append(words, "--trust-model", a.TrustModel)
	}
	either, every := signers(a.Any), signers(a.Every)
	if len(either)+len(every) > 0 {
		words = append(words, "--no-batch") // otherwise gpg stops at the first signature that is not valid
	}
	message := ""
	if a.Text == "" && a.Filename != "" && a.Signature != "" {
		words = append(words, "--verify", "--", a.Signature, a.Filename)
	} else {
		var err error
		if message, err = input(a.Text, a.Filename); err != nil {
			return nil, err
		}
		words = append(words, "--verify")
	}
	_, status, err := g.run(ctx, c, KeyringArgs{a.User, a.Home, a.Keyring}, true, message, words...)
	if err != nil {
		return nil, err
	}
	all := readSignatures(status)
	if len(either)+len(every) == 0 {
		// Signatures by unknown keys do not count, but a bad one shows that the message was changed.
		valid := slices.DeleteFunc(slices.Clone(all), func(s signature) bool { return !s.valid() })
		if len(valid) == 0 || slices.ContainsFunc(all, func(s signature) bool { return s.status == "signature bad" }) {
			return failed("The signature could not be verified."), nil
		}
		last := valid[len(valid)-1]
		return value.DictOf("res", true, "username", last.user, "key_id", last.key, "trust_level", last.trust, "message", "The signature is verified."), nil
	}
	list := &value.List{}
	for _, s := range all {
		list.Append(value.DictOf("username", orNil(s.user), "key_id", s.key, "fingerprint", orNil(s.fingerprint), "trust_level", orNil(s.trust),
			"status", s.status))
	}
	end := func(ok bool, message string) (*value.Dict, error) {
		return value.DictOf("res", ok, "message", message, "signatures", list), nil
	}
	signed := func(fingerprint string) bool {
		return slices.ContainsFunc(all, func(s signature) bool { return s.valid() && s.fingerprint == fingerprint })
	}
	if len(either) > 0 && !slices.ContainsFunc(either, signed) {
		return end(false, "None of the public keys listed in signed_by_any provided a valid signature")
	}
	for _, fingerprint := range every {
		if !signed(fingerprint) {
			return end(false, "Public key "+fingerprint+" has not provided a valid signature, but was listed in signed_by_all")
		}
	}
	return end(true, "All required keys have provided a signature")
}

func orNil(s string) any {
	if s == "" {
		return nil
	}
	return s
}

// signers returns the fingerprints of an argument: one, or a list.
func signers(v any) []string {
	if l, ok := v.(*value.List); ok {
		var all []string
		for _, item := range l.Items {
			all = append(all, value.Str(item))
		}
		return all
	}
	if !value.Truth(v) {
		return nil
	}
	return []string{value.Str(v)}
}

// SearchArgs are the arguments of SearchKeys.
type SearchArgs struct {
	Text   string `salt:"text" doc:"what to search for: a name, an address or an id"`
	Server string `salt:"keyserver" doc:"key server; null: keys.openpgp.org" default:"null"`
	User   string `salt:"user" doc:"owner of the keyring; salt: the keys of the minion; null: the minion's user" default:"null"`
	Home   string `salt:"gnupghome" doc:"directory of the keyring; null: .gnupg in the user's home directory" default:"null"`
}

// SearchKeys returns the keys that a key server finds.
func (g Keyrings) SearchKeys(ctx context.Context, c *fn.Call, a SearchArgs) (*value.List, error) {
	server := a.Server
	if server == "" {
		server = "keys.openpgp.org"
	}
	out, _, err := g.run(ctx, c, KeyringArgs{User: a.User, Home: a.Home}, true, "",
		"--fixed-list-mode", "--with-colons", "--keyserver", server, "--search-keys", "--", a.Text)
	if err != nil {
		return nil, err
	}
	return readFound(out.Stdout), nil
}

// readFound reads the keys that a key server has found.
func readFound(text string) *value.List {
	keys := &value.List{}
	var key *value.Dict
	for line := range strings.Lines(text) {
		at := fields(line)
		switch at(0) {
		case "pub":
			key = value.DictOf("keyid", at(1), "uids", &value.List{})
			setDate(key, "expires", at(5))
			setDate(key, "created", at(4))
			if at(3) != "" {
				key.Set("keyLength", at(3))
			}
			keys.Append(key)
		case "uid":
			if uids, ok := key.At("uids").(*value.List); ok {
				uids.Append(at(1))
			}
		}
	}
	return keys
}

// CreateArgs are the arguments of CreateKey.
type CreateArgs struct {
	Type         string `salt:"key_type" doc:"type of the key" default:"RSA"`
	Length       int64  `salt:"key_length" doc:"its length in bits" default:"1024"`
	Name         string `salt:"name_real" doc:"name of its owner" default:"Autogenerated Key"`
	Comment      string `salt:"name_comment" doc:"comment of its owner's name" default:"Generated by SaltStack"`
	Email        string `salt:"name_email" doc:"address of its owner; null: user and host" default:"null"`
	SubkeyType   string `salt:"subkey_type" doc:"type of a further key for encryption" default:"null"`
	SubkeyLength any    `salt:"subkey_length" doc:"its length in bits" default:"null"`
	Expires      any    `salt:"expire_date" doc:"date, or days, weeks (2w), months (2m) or years (2y), after which it is not valid" default:"null"`
	Passphrase   bool   `salt:"use_passphrase" doc:"protect it by the passphrase in the pillar gpg_passphrase" default:"false"`
	KeyringArgs
}

// CreateKey creates a key: {res, fingerprint, message}.
func (g Keyrings) CreateKey(ctx context.Context, c *fn.Call, a CreateArgs) (*value.Dict, error) {
	failed := func(message string) (*value.Dict, error) {
		return value.DictOf("res", false, "fingerprint", "", "message", message), nil
	}
	phrase, err := passphrase(c, a.Passphrase)
	if err != nil {
		return failed("gpg_passphrase not available in pillar.")
	}
	email := a.Email
	if email == "" {
		name, machine := "unspecified", "localhost"
		if u, err := user.Current(); err == nil {
			name = u.Username
		}
		if h, err := os.Hostname(); err == nil {
			machine = h
		}
		email = name + "@" + machine
	}
	var b strings.Builder
	for _, p := range []struct {
		name  string
		value any
	}{{"Key-Type", a.Type}, {"Key-Length", a.Length}, {"Name-Real", a.Name}, {"Name-Comment", a.Comment}, {"Name-Email", email},
		{"Subkey-Type", a.SubkeyType}, {"Subkey-Length", a.SubkeyLength}, {"Expire-Date", a.Expires}, {"Passphrase", phrase}} {
		if !value.Truth(p.value) {
			continue
		}
		text := value.Str(p.value)
		if strings.ContainsAny(text, "\r\n\x00") {
			return nil, fn.Invalidf("%s must be one line", p.name)
		}
		fmt.Fprintf(&b, "%s: %s\n", p.name, text)
	}
	if phrase == "" {
		b.WriteString("%no-protection\n")
	}
	b.WriteString("%commit\n")
	out, status, err := g.run(ctx, c, a.KeyringArgs, true, b.String(), "--gen-key")
	if err != nil {
		return nil, err
	}
	for _, s := range status {
		if len(s) > 2 && s[0] == "KEY_CREATED" {
			return value.DictOf("res", true, "fingerprint", s[2], "message", "GPG key pair successfully generated."), nil
		}
	}
	c.Log.Error("gpg failed", "stderr", out.Stderr)
	return failed("Unable to generate GPG key pair.")
}
