// Package sources fetches the files from which states take content, from the
// file server, the web or this machine, and verifies their hashes.
package sources

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"brine/internal/base/log/redact"
	"brine/internal/base/salt"
	"brine/internal/base/textedit"
	"brine/internal/call/fn"
	"brine/internal/files/fileclient"
	"brine/internal/host/filesys"
	"brine/internal/net/crypt"
	"brine/internal/py/value"
)

// Content is the wanted content of a file: in memory, or in another file.
type Content struct {
	Data []byte
	Path string // of the file with the content, if Data is nil
}

// Open reads the content.
func (c *Content) Open() (io.ReadCloser, error) {
	if c.Data != nil || c.Path == "" {
		return io.NopCloser(bytes.NewReader(c.Data)), nil
	}
	return os.Open(c.Path)
}

// Bytes returns the content; it must not be modified.
func (c *Content) Bytes() ([]byte, error) {
	if c.Data != nil || c.Path == "" {
		return c.Data, nil
	}
	return os.ReadFile(c.Path)
}

// Size returns the size in bytes.
func (c *Content) Size() (int64, error) {
	if c.Data != nil || c.Path == "" {
		return int64(len(c.Data)), nil
	}
	st, err := os.Stat(c.Path)
	if err != nil {
		return 0, err
	}
	return st.Size(), nil
}

// Pour writes the content.
func (c *Content) Pour(w io.Writer) error {
	if c.Data != nil || c.Path == "" {
		_, err := w.Write(c.Data)
		return err
	}
	r, err := c.Open()
	if err != nil {
		return err
	}
	defer r.Close()
	// Most contents are small. For those, the kernel's file copy, which io.Copy
	// uses, is several times slower.
	buf := buffers.Get().(*buffer)
	defer buffers.Put(buf)
	n, err := io.ReadFull(r, buf[:])
	if err != nil && !ended(err) {
		return err
	}
	if _, e := w.Write(buf[:n]); e != nil || err != nil {
		return e
	}
	_, err = io.Copy(w, r)
	return err
}

// buffer is a read buffer. Buffers are reused: a run manages thousands of
// files.
type buffer [32 << 10]byte

var buffers = sync.Pool{New: func() any { return new(buffer) }}

// Same reports whether a regular file has the content.
func (c *Content) Same(path string) (bool, error) {
	there, err := filesys.OpenRegular(path)
	if err != nil {
		return false, err
	}
	defer there.Close()
	r, err := c.Open()
	if err != nil {
		return false, err
	}
	defer r.Close()
	return SameContent(there, r)
}

// SameContent reports whether two readers return the same bytes.
func SameContent(there, r io.Reader) (bool, error) {
	a, b := buffers.Get().(*buffer), buffers.Get().(*buffer)
	defer buffers.Put(a)
	defer buffers.Put(b)
	for {
		n, errA := io.ReadFull(there, a[:])
		m, errB := io.ReadFull(r, b[:])
		if !bytes.Equal(a[:n], b[:m]) {
			return false, nil
		}
		endA, endB := ended(errA), ended(errB)
		switch {
		case errA != nil && !endA:
			return false, errA
		case errB != nil && !endB:
			return false, errB
		case endA || endB:
			return endA == endB, nil
		}
	}
}

func ended(err error) bool { return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) }

// maxDiff is the maximum size of files whose changes are shown, in bytes.
const maxDiff = 16 << 20

// Diff returns the difference between the content and a file.
func (c *Content) Diff(path string) (string, error) {
	old, err := head(os.Open(path))
	if err != nil {
		return "", err
	}
	r, err := c.Open()
	new, err := head(r, err)
	if err != nil {
		return "", err
	}
	a, b := filesys.IsText(old[:min(len(old), 512)]), filesys.IsText(new[:min(len(new), 512)])
	switch {
	case !a && !b:
		return "Replace binary file", nil
	case !a:
		return "Replace binary file with text file", nil
	case !b:
		return "Replace text file with binary file", nil
	case len(old) > maxDiff || len(new) > maxDiff:
		return "<the file is too large to show its changes>", nil
	}
	return textedit.DiffLines(textedit.SplitLines(string(old)), textedit.SplitLines(string(new)), "", ""), nil
}

// head reads as much as diff needs.
func head(r io.ReadCloser, err error) ([]byte, error) {
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return io.ReadAll(io.LimitReader(r, maxDiff+1))
}

// Source is where a file comes from.
type Source struct {
	// URL is the name in the SLS, Hash its source_hash.
	URL, Hash string
	// Env is the environment of salt:// names.
	Env string
}

// AbsentError means that a source does not exist.
type AbsentError struct{ URL, Env string }

func (e *AbsentError) Error() string {
	return "Source file " + e.URL + " not found in saltenv '" + e.Env + "'"
}

// Scheme returns salt, http, https, ftp, file, or "" for a path.
func (s Source) Scheme() string {
	scheme, _, ok := strings.Cut(s.URL, "://")
	switch {
	case ok && (scheme == "salt" || scheme == "http" || scheme == "https" || scheme == "ftp" || scheme == "file"):
		return scheme
	case ok && scheme == "swift", ok && scheme == "s3":
		return scheme
	}
	return ""
}

// Web reports whether the source is on a web server.
func (s Source) Web() bool {
	c := s.Scheme()
	return c != "" && c != "salt" && c != "file"
}

// Read parses the argument source: a name, or a list of names and of maps of a
// name to a hash.
func Read(v any, hash, env string) ([]Source, error) {
	var out []Source
	switch v := v.(type) {
	case nil:
	case string:
		if v != "" {
			out = append(out, Source{v, hash, env})
		}
	case *value.List:
		for _, it := range v.Items {
			switch it := it.(type) {
			case string:
				out = append(out, Source{it, hash, env})
			case *value.Dict:
				if it.Len() != 1 {
					continue
				}
				k, h := it.Entry(0)
				s := Source{value.Str(k), hash, env}
				if h != nil && h != "" {
					s.Hash = value.Str(h)
				}
				out = append(out, s)
			}
		}
	default:
		return nil, fn.Errorf("source must be a text or a list, not a %s", value.TypeName(v))
	}
	return out, nil
}

// Files are the methods of *fileclient.Client that find and fetch sources.
type Files interface {
	CacheDir() string
	CacheFile(ctx context.Context, url, saltenv string) (string, error)
	Content(ctx context.Context, url, saltenv string) (string, error)
	ExternPath(text, saltenv string) (string, error)
	GetURL(ctx context.Context, text, dest string, o fileclient.URLOptions) (string, error)
	Hash(ctx context.Context, path, saltenv string) (fileclient.Hash, error)
	List(ctx context.Context, what fileclient.Listing, saltenv, prefix string) ([]string, error)
	Small(ctx context.Context, url, saltenv string) (data []byte, path string, err error)
}

// Choose returns the first source that exists. It does not check a single one.
func Choose(ctx context.Context, files Files, all []Source) (Source, error) {
	if len(all) == 1 {
		return all[0], nil
	}
	return FirstThere(ctx, files, all)
}

// FirstThere returns the first source that exists.
func FirstThere(ctx context.Context, files Files, all []Source) (Source, error) {
	for _, s := range all {
		var err error
		switch s.Scheme() {
		case "salt":
			_, err = files.Hash(ctx, s.URL, s.Env)
			if err != nil && isDir(ctx, files, s) {
				err = nil
			}
		case "http", "https", "ftp":
			_, err = files.CacheFile(ctx, s.URL, s.Env)
		case "file":
			_, err = os.Stat(strings.TrimPrefix(s.URL, "file://"))
		default:
			_, err = os.Stat(s.URL)
		}
		if err == nil {
			return s, nil
		}
	}
	return Source{}, fn.Errorf("none of the specified sources were found")
}

// isDir reports whether a salt:// source is a directory.
func isDir(ctx context.Context, files Files, s Source) bool {
	path, env, _ := fileclient.SplitURL(s.URL)
	if env == "" {
		env = s.Env
	}
	// For a master, a directory is a prefix, but a.conf is also a prefix of
	// a.conf.jinja.
	dir := strings.Trim(path, "/") + "/"
	names, err := files.List(ctx, fileclient.Files, env, dir)
	return err == nil && slices.ContainsFunc(names, func(f string) bool { return strings.HasPrefix(f, dir) })
}

// How describes how to fetch a source.
type How struct {
	Name       string // the managed file, to find its line in a file of hashes
	HashName   string // source_hash_name
	SkipVerify bool
	Insecure   bool // skip the verification of certificates
	ETag       bool
	// InMemory fetches small salt:// files into memory, without a path.
	InMemory bool
	// Signed describes who must have signed the source and the file of hashes.
	Signed SignatureArgs
}

// Fetch fetches the source to this machine. old is the managed file: a salt://
// file with the same content is not fetched, nor is a web source whose
// source_hash it matches; then it returns nil.
func Fetch(ctx context.Context, files Files, s Source, o How, old string) (*Content, error) {
	c, err := fetch(ctx, files, s, o, old)
	if err != nil || c == nil {
		return nil, err
	}
	return c, o.CheckSignature(ctx, files, s, c.Path)
}

func fetch(ctx context.Context, files Files, s Source, o How, old string) (*Content, error) {
	switch s.Scheme() {
	case "salt":
		return fetchSalt(ctx, files, s, o, old)
	case "", "file":
		path := strings.TrimPrefix(s.URL, "file://")
		if _, err := os.Stat(path); err != nil {
			return nil, fn.Errorf("Local file source %s does not exist", path)
		}
		if s.Hash != "" && !o.SkipVerify {
			return verified(ctx, files, s, o, path)
		}
		return &Content{Path: path}, nil
	}
	return fetchWeb(ctx, files, s, o, old)
}

func fetchSalt(ctx context.Context, files Files, s Source, o How, old string) (*Content, error) {
	failed := func(err error) error {
		_, env, _ := fileclient.SplitURL(s.URL)
		if env == "" {
			env = s.Env
		}
		if salt.KindOf(err) == salt.NotFound {
			return fn.Errorf("%w", &AbsentError{s.URL, env})
		}
		return fn.Errorf("Failed to cache %s: %w", s.URL, err)
	}
	if old != "" {
		h, err := files.Hash(ctx, s.URL, s.Env)
		if err != nil {
			return nil, failed(err)
		}
		if sum, err := sumRegular(old, h.Type); err == nil && sum == h.Sum {
			return nil, nil
		}
	}
	if o.InMemory && !value.Truth(o.Signed.Signature) {
		data, path, err := files.Small(ctx, s.URL, s.Env)
		if err != nil {
			return nil, failed(err)
		}
		return &Content{Data: data, Path: path}, nil
	}
	path, err := files.Content(ctx, s.URL, s.Env)
	if err != nil {
		return nil, failed(err)
	}
	return &Content{Path: path}, nil
}

func fetchWeb(ctx context.Context, files Files, s Source, o How, old string) (*Content, error) {
	if s.Hash == "" && !o.SkipVerify && !o.ETag {
		return nil, fn.Errorf("Unable to verify upstream hash of source file %s, please set source_hash or set skip_verify to True", redact.Text(s.URL))
	}
	opt := fileclient.URLOptions{Saltenv: s.Env, Makedirs: true, Insecure: o.Insecure, ETag: o.ETag}
	var want fileclient.Hash
	if s.Hash != "" && !o.SkipVerify {
		var err error
		if want, err = Hash(ctx, files, s, o); err != nil {
			return nil, err
		}
		if sum, err := sumRegular(old, want.Type); old != "" && err == nil && sum == want.Sum {
			return nil, nil
		}
		opt.SourceHash = want.Type + "=" + want.Sum
	} else if cached, err := files.ExternPath(s.URL, s.Env); err == nil && o.SkipVerify && !o.ETag && filesys.IsFile(cached) {
		return &Content{Path: cached}, nil // as in Salt, the cached file suffices
	}
	path, err := files.GetURL(ctx, s.URL, "", opt)
	if err != nil {
		return nil, fn.Errorf("Failed to cache %s: %w", redact.Text(s.URL), err)
	}
	return check(s, path, want)
}

// verified checks the hash of a file of this machine.
func verified(ctx context.Context, files Files, s Source, o How, path string) (*Content, error) {
	want, err := Hash(ctx, files, s, o)
	if err != nil {
		return nil, err
	}
	return check(s, path, want)
}

// Check verifies hash and signature of a file that was fetched before.
func Check(ctx context.Context, files Files, s Source, o How, path string) (*Content, error) {
	c := &Content{Path: path}
	if s.Hash != "" && !o.SkipVerify && !o.ETag {
		var err error
		if c, err = verified(ctx, files, s, o, path); err != nil {
			return nil, err
		}
	}
	return c, o.CheckSignature(ctx, files, s, path)
}

func check(s Source, path string, want fileclient.Hash) (*Content, error) {
	if want.Sum != "" {
		sum, err := Sum(path, want.Type)
		if err != nil {
			return nil, err
		}
		if sum != want.Sum {
			return nil, fn.Errorf("Specified %s checksum for %s (%s) does not match actual checksum (%s). If the 'source_hash' value refers to a "+
				"remote file with multiple possible matches, then it may be necessary to set 'source_hash_name'.",
				want.Type, redact.Text(s.URL), want.Sum, sum)
		}
	}
	return &Content{Path: path}, nil
}

// Sum returns the hash of a file in hexadecimal digits.
func Sum(path, kind string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	return sumOf(f, kind)
}

// sumRegular is Sum for a regular file.
func sumRegular(path, kind string) (string, error) {
	f, err := filesys.OpenRegular(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	return sumOf(f, kind)
}

func sumOf(r io.Reader, kind string) (string, error) {
	h := fileclient.NewHash(kind)
	if h == nil {
		return "", fn.Errorf("%s is no hash", kind)
	}
	if err := crypt.HashReader(h, r); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// hashes are the hash types by their number of hexadecimal digits.
var hashes = map[int]string{32: "md5", 40: "sha1", 56: "sha224", 64: "sha256", 96: "sha384", 128: "sha512"}

var hexadecimal = regexp.MustCompile(`^[0-9a-fA-F]+$`)

// Hash parses the argument source_hash: a hash, type=hash, or the name of a
// file of hashes.
func Hash(ctx context.Context, files Files, s Source, o How) (fileclient.Hash, error) {
	invalid := fn.Errorf("Source hash %s format is invalid. The supported formats are: 1) a hash, 2) an expression in the format <hash_type>=<hash>, "+
		"or 3) either a path to a local file containing hashes, or a URI of a remote hash file. Supported protocols for remote hash files are: salt, "+
		"file, http, https, ftp. The hash may also not be of a valid length, the following are supported hash types and lengths: md5 (32), sha1 "+
		"(40), sha224 (56), sha256 (64), sha384 (96), sha512 (128).", redact.Text(s.Hash))
	if filepath.IsAbs(s.Hash) || strings.Contains(s.Hash, "://") {
		path := s.Hash
		if !filepath.IsAbs(path) {
			if (Source{URL: path}).Scheme() == "" {
				return fileclient.Hash{}, invalid
			}
			var err error
			if path, err = files.GetURL(ctx, s.Hash, "", fileclient.URLOptions{Saltenv: s.Env, Makedirs: true, Insecure: o.Insecure}); err != nil {
				return fileclient.Hash{}, noHashFile(s.Hash, err)
			}
		}
		if err := o.Signed.signed(ctx, files, path, o.Signed.HashSig, s, o); err != nil {
			return fileclient.Hash{}, err
		}
		text, err := head(os.Open(path))
		if err != nil {
			return fileclient.Hash{}, noHashFile(s.Hash, err)
		}
		if h, ok := FindHash(string(text), "", s.URL, o); ok {
			h.Sum = strings.ToLower(h.Sum)
			return h, nil
		}
		return fileclient.Hash{}, invalid
	}
	kind, sum, ok := strings.Cut(s.Hash, "=")
	if !ok {
		kind, sum = hashes[len(s.Hash)], s.Hash
	}
	kind, sum = strings.TrimSpace(kind), strings.ToLower(strings.TrimSpace(sum))
	switch {
	case !hexadecimal.MatchString(sum) || kind == "":
		return fileclient.Hash{}, invalid
	case fileclient.NewHash(kind) == nil:
		return fileclient.Hash{},
			fn.Errorf("Invalid hash type '%s'. Supported hash types are: sha512, sha384, sha256, sha224, sha1, md5. Either remove the hash type and "+
				"simply use '%s' as the source_hash, or change the hash type to a supported type.", kind, sum)
	case hashes[len(sum)] == "":
		return fileclient.Hash{}, invalid
	case hashes[len(sum)] != kind:
		return fileclient.Hash{},
			fn.Errorf("Invalid length (%d) for hash type '%s'. Either remove the hash type and simply use '%s' as the source_hash, or change the "+
				"hash type to '%s'", len(sum), kind, sum, hashes[len(sum)])
	}
	return fileclient.Hash{Type: kind, Sum: sum}, nil
}

// noHashFile is the error for a file of hashes that cannot be read.
func noHashFile(url string, err error) error {
	url = redact.Text(url)
	if salt.KindOf(err) == salt.NotFound || errors.Is(err, fs.ErrNotExist) {
		return fn.Errorf("Source hash file %s not found", url)
	}
	return fn.Errorf("cannot read the source hash file %s: %w", url, err)
}

var word = regexp.MustCompile(`[0-9a-zA-Z]+`)

// hashWord returns the first word of a line that is a hash of a type, or of any
// type if kind is "".
func hashWord(line, kind string) (fileclient.Hash, bool) {
	for _, w := range word.FindAllString(line, -1) {
		n := len(w)
		if n < 32 || n > 128 || !hexadecimal.MatchString(w) || kind != "" && hashes[n] != kind {
			continue
		}
		return fileclient.Hash{Type: hashes[n], Sum: w}, hashes[n] != ""
	}
	return fileclient.Hash{}, false
}

// FindHash finds a file's hash in a file of hashes. It takes the first line that
// names source_hash_name, else the file, else the source, and otherwise the
// first hash. kind is the hash type; "" and unknown types mean any.
func FindHash(text, kind, url string, o How) (fileclient.Hash, bool) {
	if fileclient.NewHash(kind) == nil {
		kind = ""
	}
	if o.Name != "" {
		o.Name = filepath.Base(o.Name)
	}
	names := [3]string{o.HashName, o.Name, url[strings.LastIndexByte(url, '/')+1:]}
	var found [len(names) + 1]fileclient.Hash
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		h, ok := hashWord(line, kind)
		if !ok {
			continue
		}
		for i := range found {
			if found[i].Sum == "" && (i == len(names) || namesFile(line, names[i])) {
				found[i] = h
			}
		}
	}
	for _, h := range found {
		if h.Sum != "" {
			return h, true
		}
	}
	return fileclient.Hash{}, false
}

// namesFile reports whether a line of a file of hashes names a file: the name
// is a word of it, perhaps with directories in front.
func namesFile(line, name string) bool {
	if name == "" {
		return false
	}
	for _, w := range strings.FieldsFunc(line, func(r rune) bool { return strings.ContainsRune(" \t*()=:,;'\"", r) }) {
		if w == name || strings.HasSuffix(w, "/"+name) {
			return true
		}
	}
	// A name may have spaces.
	before, ok := strings.CutSuffix(line, name)
	return ok && before != "" && strings.Contains(" \t/\\*", before[len(before)-1:])
}
