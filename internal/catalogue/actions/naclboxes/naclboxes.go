// Package naclboxes implements the execution module and the runner nacl: secrets that are encrypted
// with NaCl, in Salt's formats.
package naclboxes

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"brine/internal/base/atomicfile"
	"brine/internal/base/naclbox"
	"brine/internal/call/fn"
	"brine/internal/py/value"
)

// Boxes are the functions for one kind of caller.
type Boxes struct {
	// Command is what examples begin with, such as "salt-run".
	Command string
	// Read returns a file that enc_file or dec_file names.
	Read func(ctx context.Context, c *fn.Call, name string) ([]byte, error)
}

// Module returns the module nacl.
func Module(b Boxes) fn.Module {
	example := func(line string) fn.Option { return fn.Example(b.Command + " nacl." + line) }
	sealed, secret := b.as(naclbox.Sealed), b.as(naclbox.Secret)
	return fn.Module{Name: "nacl", Doc: `Secrets that are encrypted with NaCl: with a public key (sealedbox) or with a secret one (secretbox).
		Keys are those of the option nacl.config (box_type, sk, sk_file, pk, pk_file) and of keywords with these names;
		the default files are nacl and nacl.pub in the directory master of pki_dir.`, Funcs: []fn.Func{
		fn.Of("keygen", keygen, `Make a pair of keys: in files, or as the result.
			The file of the secret key gets mode 0600. If only that file exists, its public key is written.`,
			example("keygen"), example("keygen sk_file=/etc/salt/pki/master/nacl")),
		fn.Of("enc", b.enc, `Encrypt a text by the box type of the configuration.`, example("enc 'my password'")),
		fn.Of("enc_file", b.encFile, `Encrypt a file, to a new file if out names one.`, example("enc_file name=/tmp/id_rsa out=/tmp/id_rsa.nacl")),
		fn.Of("dec", b.dec, `Decrypt a text by the box type of the configuration.`, example("dec data=pEXHQM6cuaF7A=")),
		fn.Of("dec_file", b.decFile, `Decrypt a file, to a new file if out names one.`, example("dec_file name=/tmp/id_rsa.nacl out=/tmp/id_rsa")),
		fn.Of("sealedbox_encrypt", sealed.enc, `Encrypt a text with a public key.`, example("sealedbox_encrypt 'my password'")),
		fn.Of("sealedbox_decrypt", sealed.dec, `Decrypt a text of sealedbox_encrypt with the secret key.`, example("sealedbox_decrypt data=pEXHQM6cuaF7A=")),
		fn.Of("secretbox_encrypt", secret.enc, `Encrypt a text with a secret key.`, example("secretbox_encrypt 'my password'")),
		fn.Of("secretbox_decrypt", secret.dec, `Decrypt a text of secretbox_encrypt with the same key.`, example("secretbox_decrypt data=pEXHQM6cuaF7A=")),
	}}
}

// maxFile bounds a file to encrypt or decrypt.
const maxFile = 64 << 20

// ReadLocal reads a file of this machine. A file of more than 64 MiB is an error.
func ReadLocal(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(data) > maxFile {
		err = fmt.Errorf("it has more than %d MiB", maxFile>>20)
	}
	return data, err
}

type boxes struct {
	Boxes
	kind string // of boxes; "" is the configured one
}

func (b Boxes) as(kind string) boxes { return boxes{b, kind} }

type keygenArgs struct {
	SKFile string    `salt:"sk_file" doc:"file of the secret key; null: return the keys" default:"null"`
	PKFile string    `salt:"pk_file" doc:"file of the public key; null: that of the secret one with .pub" default:"null"`
	Kwargs fn.Kwargs `salt:"kwargs"`
}

func keygen(_ context.Context, _ *fn.Call, a keygenArgs) (any, error) {
	if a.Kwargs.Has("keyfile") {
		a.SKFile = value.Str(a.Kwargs.At("keyfile"))
	}
	pair, err := naclbox.NewPair()
	if err != nil {
		return nil, err
	}
	if a.SKFile == "" {
		if a.PKFile != "" {
			return nil, fn.Errorf("sk_file: Must be set inorder to generate a public key.")
		}
		return value.DictOf("sk", pair.Secret, "pk", pair.Public), nil
	}
	if a.PKFile == "" {
		a.PKFile = a.SKFile + ".pub"
	}
	if isFile(a.SKFile) {
		if isFile(a.PKFile) {
			return nil, fn.Errorf("sk_file:%s and pk_file:%s already exist.", a.SKFile, a.PKFile)
		}
		if pair.Public, err = naclbox.PublicOf(a.SKFile); err != nil {
			return nil, fn.Errorf("%w", err)
		}
		if err := create(a.PKFile, pair.Public, 0o644); err != nil {
			return nil, err
		}
		return "saved pk_file: " + a.PKFile, nil
	}
	if isFile(a.PKFile) {
		// Salt overwrites it: secrets that others encrypt with it later would be lost without the other key.
		return nil, fn.Errorf("pk_file:%s exists without its secret key %s: move it away, or name another file", a.PKFile, a.SKFile)
	}
	if err := create(a.SKFile, pair.Secret, 0o600); err != nil {
		return nil, err
	}
	if err := create(a.PKFile, pair.Public, 0o644); err != nil {
		return nil, err
	}
	return "saved sk_file:" + a.SKFile + "  pk_file: " + a.PKFile, nil
}

// create writes a new file and leaves an existing one alone.
func create(path string, data []byte, mode fs.FileMode) error {
	err := atomicfile.Create(path, data, mode)
	if errors.Is(err, fs.ErrExist) {
		return fn.Errorf("file:%s already exist.", path)
	}
	if err != nil {
		return fn.Errorf("cannot write %s: %w", path, err)
	}
	return nil
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

type textArgs struct {
	Data   any       `salt:"data" doc:"text"`
	Kwargs fn.Kwargs `salt:"kwargs"`
}

type fileArgs struct {
	Name   string    `salt:"name" doc:"file to read"`
	Out    string    `salt:"out" doc:"file to write; null: return the text" default:"null"`
	Kwargs fn.Kwargs `salt:"kwargs"`
}

func (b Boxes) enc(ctx context.Context, c *fn.Call, a textArgs) (any, error) {
	return b.as("").enc(ctx, c, a)
}
func (b Boxes) dec(ctx context.Context, c *fn.Call, a textArgs) (any, error) {
	return b.as("").dec(ctx, c, a)
}

func (b boxes) enc(_ context.Context, c *fn.Call, a textArgs) (any, error) {
	data, err := bytesOf(a.Data)
	if err != nil {
		return nil, err
	}
	out, err := b.config(c, a.Kwargs).Encrypt(data)
	if err != nil {
		return nil, fn.Errorf("%w", err)
	}
	return out, nil
}

func (b boxes) dec(_ context.Context, c *fn.Call, a textArgs) (any, error) {
	if a.Data == nil && b.kind != "" {
		return nil, nil
	}
	data, err := bytesOf(a.Data)
	if err != nil {
		return nil, err
	}
	out, err := b.config(c, a.Kwargs).Decrypt(data)
	if err != nil {
		return nil, fn.Errorf("%w", err)
	}
	return out, nil
}

func bytesOf(v any) ([]byte, error) {
	switch x := v.(type) {
	case string:
		return []byte(x), nil
	case []byte:
		return x, nil
	}
	return nil, fn.Invalidf("data must be a text, and %s is none: put a number into quotation marks twice", value.Repr(v))
}

func (b boxes) config(c *fn.Call, keywords fn.Kwargs) naclbox.Config {
	option, _ := c.Config.Get("nacl.config").(*value.Dict)
	conf := naclbox.New(option, keywords.Clean(), value.Str(c.Config.Get("pki_dir")))
	if b.kind != "" {
		conf.BoxType = b.kind
	}
	return conf
}

func (b Boxes) encFile(ctx context.Context, c *fn.Call, a fileArgs) (any, error) {
	return b.file(ctx, c, a, b.enc)
}
func (b Boxes) decFile(ctx context.Context, c *fn.Call, a fileArgs) (any, error) {
	return b.file(ctx, c, a, b.dec)
}

func (b Boxes) file(ctx context.Context, c *fn.Call, a fileArgs, do func(context.Context, *fn.Call, textArgs) (any, error)) (any, error) {
	data, err := b.Read(ctx, c, a.Name)
	if err != nil {
		return nil, fn.Errorf("cannot read %s: %w", a.Name, err)
	}
	got, err := do(ctx, c, textArgs{data, a.Kwargs})
	if err != nil || a.Out == "" {
		return got, err
	}
	out, _ := got.([]byte)
	if err := create(a.Out, out, 0o600); err != nil {
		return nil, err
	}
	return "Wrote: " + a.Out, nil
}
