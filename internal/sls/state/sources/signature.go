package sources

import (
	"context"
	"os"
	"slices"
	"strings"

	"brine/internal/base/log/redact"
	"brine/internal/call/fn"
	"brine/internal/files/fileclient"
	"brine/internal/host/proc"
	"brine/internal/py/value"
)

// SignatureArgs are the arguments of states for the signature of a source.
// gpg(1) verifies signatures.
type SignatureArgs struct {
	Signature any `salt:"signature" doc:"URL or path of the signature of the source, or true: the source holds it" default:"null"`
	HashSig   any `salt:"source_hash_sig" doc:"URL or path of the signature of the file of hashes, or true: that holds it" default:"null"`
	SignerArgs
}

// SignerArgs are the arguments that name the accepted signers.
type SignerArgs struct {
	ByAny     any    `salt:"signed_by_any" doc:"fingerprints of keys, one of which must have signed" default:"null"`
	ByAll     any    `salt:"signed_by_all" doc:"fingerprints of keys that must all have signed" default:"null"`
	Keyring   string `salt:"keyring" doc:"file with the keys to trust" default:"null"`
	GnuPGHome string `salt:"gnupghome" doc:"directory with the keys to trust; null: that of the minion's user" default:"null"`
}

// CheckSignature verifies the signature of a source in the file path.
func (o How) CheckSignature(ctx context.Context, files Files, s Source, path string) error {
	return o.Signed.signed(ctx, files, path, o.Signed.Signature, s, o)
}

// signed verifies the signature of a file. sig is the argument: nothing, true,
// or the location of the signature. A file without a valid signature is removed
// from the cache.
func (a SignatureArgs) signed(ctx context.Context, files Files, path string, sig any, s Source, o How) error {
	if !value.Truth(sig) {
		return nil
	}
	words := []string{"gpg", "--no-batch", "--no-tty", "--status-fd", "1"}
	if a.GnuPGHome != "" {
		words = append(words, "--homedir", a.GnuPGHome)
	}
	if a.Keyring != "" {
		words = append(words, "--no-default-keyring", "--keyring", a.Keyring)
	}
	words = append(words, "--verify", "--")
	detached := ""
	if url, ok := sig.(string); ok {
		var err error
		if detached, err = files.GetURL(ctx, url, "", fileclient.URLOptions{Saltenv: s.Env, Makedirs: true, Insecure: o.Insecure}); err != nil {
			return fn.Errorf("Detached signature file %s not found", redact.Text(url))
		}
		words = append(words, detached)
	}
	r, err := proc.Run(ctx, proc.Cmd{Args: append(words, path), Env: append(os.Environ(), "LC_ALL=C"), MaxOutput: 1 << 20})
	if err != nil {
		return fn.Errorf("signatures are checked with gpg, which cannot be run: %w", err)
	}
	problem := a.judge(string(r.Stdout))
	if problem == "" {
		return nil
	}
	for _, p := range []string{detached, path} {
		if strings.HasPrefix(p, files.CacheDir()+"/") {
			os.Remove(p)
		}
	}
	return fn.Errorf("The file's signature could not be verified: %s", problem)
}

// judge parses the output of gpg and returns why the signature is not accepted,
// "" if it is.
func (a SignatureArgs) judge(status string) string {
	var signers []string
	bad := false
	for line := range strings.Lines(status) {
		words := strings.Fields(line)
		if len(words) < 3 || words[0] != "[GNUPG:]" {
			continue
		}
		switch words[1] {
		case "VALIDSIG": // the last word is the fingerprint of the primary key
			signers = append(signers, words[2], words[len(words)-1])
		case "BADSIG", "EXPSIG", "EXPKEYSIG", "REVKEYSIG":
			bad = true
		}
	}
	byAny, byAll := value.Texts(a.ByAny), value.Texts(a.ByAll)
	has := func(key string) bool {
		return slices.Contains(signers, strings.ToUpper(strings.ReplaceAll(key, " ", "")))
	}
	if len(byAny) == 0 && len(byAll) == 0 {
		if len(signers) == 0 || bad {
			return "The signature could not be verified."
		}
		return ""
	}
	if len(byAny) > 0 && !slices.ContainsFunc(byAny, has) {
		return "None of the public keys listed in signed_by_any provided a valid signature"
	}
	for _, key := range byAll {
		if !has(key) {
			return "Public key " + key + " has not provided a valid signature, but was listed in signed_by_all"
		}
	}
	return ""
}
