package files

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"

	"brine/internal/base/log/redact"
	"brine/internal/base/salt"
	"brine/internal/call/fn"
	"brine/internal/files/fileclient"
	"brine/internal/host/filesys"
	"brine/internal/host/proc"
	"brine/internal/py/pyre"
	"brine/internal/py/value"
	"brine/internal/sls/state/perms"
	"brine/internal/sls/state/sources"
)

// sourced returns the functions about a file's source, and those about SELinux.
func (f file) sourced() []fn.Func {
	return []fn.Func{
		fn.Of("get_source_sum", f.getSourceSum, `Read the argument source_hash of states: a hash, kind=hash, or the URL or path of a file of hashes.`,
			fn.Example("salt '*' file.get_source_sum /tmp/foo.tar.gz source=http://mydomain.tld/foo.tar.gz source_hash=https://mydomain.tld/hashes.md5")),
		fn.Of("extract_hash", f.extractHash, `Find the hash of a file in a file of hashes.
			It is in the line that names source_hash_name, else file_name, else source, else it is the first hash, and null if there is none.`,
			fn.Example("salt '*' file.extract_hash /path/to/hash/file sha512 /etc/foo")),
		fn.Of("source_list", f.sourceList, `Choose the first source of a list that is there, and return it and its hash.`,
			fn.Example("salt '*' file.source_list salt://http/httpd.conf d41d8cd98f00b204e9800998ecf8427e base")),
		fn.Of("apply_template_on_contents", f.applyTemplate, `Fill a text in as a template.`,
			fn.Example(`salt '*' file.apply_template_on_contents contents='This is a {{ template }} string.' template=jinja "context={}" `+
				`"defaults={'template': 'cool'}" saltenv=base`)),
		fn.Of("psed", f.psed, `Replace in a file what a regular expression finds. file.replace is the better choice.`,
			fn.Example("salt '*' file.psed /etc/httpd/httpd.conf 'LogLevel warn' 'LogLevel info'")),
		fn.Of("get_selinux_context", f.getContext, `Return the SELinux context of a file.`, fn.Example("salt '*' file.get_selinux_context /etc/hosts")),
		fn.Of("set_selinux_context", f.setContext, `Change the SELinux context of a file and return it, false if that failed.`,
			fn.Example("salt '*' file.set_selinux_context /etc/yum.repos.d/epel.repo system_u object_r system_conf_t s0")),
		fn.Of("restorecon", f.restorecon, `Give a file the SELinux context that the policy says, and say whether that was done.`,
			fn.Example("salt '*' file.restorecon /home/user/.ssh/authorized_keys")),
	}
}

type sourceSumArgs struct {
	Name       string `salt:"file_name" doc:"path of the file, to find its line in a file of hashes" default:""`
	Source     string `salt:"source" doc:"URL of the file, for the same" default:""`
	SourceHash any    `salt:"source_hash" doc:"a hash, kind=hash, or the URL or path of a file of hashes" default:"null"`
	HashName   string `salt:"source_hash_name" doc:"name to look for in a file of hashes" default:"null"`
	Saltenv    string `salt:"saltenv" doc:"environment of salt:// files" default:"base"`
	VerifySSL  bool   `salt:"verify_ssl" doc:"check certificates" default:"true"`
	HashSig    any    `salt:"source_hash_sig" doc:"URL or path of the signature of the file of hashes, or true: that holds it" default:"null"`
	sources.SignerArgs
}

func (a sourceSumArgs) how() sources.How {
	return sources.How{Name: a.Name, HashName: a.HashName, Insecure: !a.VerifySSL,
		Signed: sources.SignatureArgs{HashSig: a.HashSig, SignerArgs: a.SignerArgs}}
}

func (a sourceSumArgs) sum(ctx context.Context, c *fn.Call) (fileclient.Hash, error) {
	return sources.Hash(ctx, c.Files, sources.Source{URL: a.Source, Hash: textOf(a.SourceHash), Env: a.Saltenv}, a.how())
}

func (file) getSourceSum(ctx context.Context, c *fn.Call, a sourceSumArgs) (any, error) {
	h, err := a.sum(ctx, c)
	if err != nil {
		return nil, err
	}
	return hashDict(h), nil
}

func hashDict(h fileclient.Hash) *value.Dict {
	return value.DictOf("hsum", h.Sum, "hash_type", h.Type)
}

type extractHashArgs struct {
	Path     string `salt:"hash_fn" doc:"path of the file of hashes"`
	Type     any    `salt:"hash_type" doc:"kind of hash; any, if it is of no known kind" default:"sha256"`
	Name     any    `salt:"file_name" doc:"path of the file" default:""`
	Source   any    `salt:"source" doc:"URL of the file" default:""`
	HashName any    `salt:"source_hash_name" doc:"name to look for" default:"null"`
}

func (file) extractHash(_ context.Context, _ *fn.Call, a extractHashArgs) (any, error) {
	r, err := os.Open(a.Path)
	if err != nil {
		return nil, fn.Errorf("%w", err)
	}
	defer r.Close()
	b, err := io.ReadAll(io.LimitReader(r, maxRead))
	if err != nil {
		return nil, fn.Errorf("%w", err)
	}
	h, ok := sources.FindHash(string(b), textOf(a.Type), textOf(a.Source), sources.How{Name: textOf(a.Name), HashName: textOf(a.HashName)})
	if !ok {
		return nil, nil
	}
	return hashDict(h), nil
}

type sourceListArgs struct {
	Source  any    `salt:"source" doc:"URL or path, or a list of such, and of maps of one to its hash"`
	Hash    any    `salt:"source_hash" doc:"hash of those that have none of their own"`
	Saltenv string `salt:"saltenv" doc:"environment of salt:// files"`
}

func (file) sourceList(ctx context.Context, c *fn.Call, a sourceListArgs) (any, error) {
	url, hash, err := chooseSource(ctx, c, a.Source, a.Hash, a.Saltenv)
	return value.ListOf(url, hash), err
}

// chooseSource returns the first existing source, and its hash. A single
// source, outside of a list, is not looked up.
func chooseSource(ctx context.Context, c *fn.Call, source, hash any, saltenv string) (url, sum any, err error) {
	if _, ok := source.(*value.List); !ok {
		return source, hash, nil
	}
	all, err := sources.Read(source, "", saltenv)
	if err != nil {
		return nil, nil, err
	}
	s, err := sources.FirstThere(ctx, c.Files, all)
	if err != nil {
		return nil, nil, err
	}
	if s.Hash != "" {
		hash = s.Hash
	}
	return s.URL, hash, nil
}

type applyTemplateArgs struct {
	Contents string `salt:"contents" doc:"the template"`
	Template string `salt:"template" doc:"template engine"`
	Context  any    `salt:"context" doc:"variables"`
	Defaults any    `salt:"defaults" doc:"variables that context does not give"`
	Saltenv  string `salt:"saltenv" doc:"environment of what the template imports"`
}

func (file) applyTemplate(ctx context.Context, c *fn.Call, a applyTemplateArgs) (any, error) {
	if a.Template != templateEngine {
		return value.DictOf("result", false, "comment", unsupported(a.Template)), nil
	}
	vars := value.NewDict(4)
	for _, m := range []any{a.Defaults, a.Context} {
		if d, ok := m.(*value.Dict); ok {
			vars.Update(d)
		}
	}
	out, err := fill(ctx, c, fn.Template{Engine: a.Template, Source: []byte(a.Contents), Saltenv: a.Saltenv, Context: vars})
	if err != nil {
		return nil, fn.Errorf("%w", err)
	}
	return out, nil
}

const templateEngine = "jinja"

func unsupported(engine string) string {
	return "Specified template format " + engine + " is not supported"
}

type getManagedArgs struct {
	Name       string  `salt:"name" doc:"path of the file"`
	Template   *string `salt:"template" doc:"template engine that fills the source in; none if empty"`
	Source     *string `salt:"source" doc:"URL or path of what the file is to hold"`
	SourceHash any     `salt:"source_hash" doc:"a hash, kind=hash, or the URL or path of a file of hashes"`
	HashName   *string `salt:"source_hash_name" doc:"name to look for in a file of hashes"`
	User       any     `salt:"user" doc:"owner, for the template"`
	Group      any     `salt:"group" doc:"group, for the template"`
	Mode       any     `salt:"mode" doc:"mode, for the template"`
	Attrs      any     `salt:"attrs" doc:"attributes, for the template"`
	Saltenv    string  `salt:"saltenv" doc:"environment of salt:// files"`
	Context    any     `salt:"context" doc:"variables of the template"`
	Defaults   any     `salt:"defaults" doc:"variables that context does not give"`
	SkipVerify bool    `salt:"skip_verify" doc:"do not check the hash of what is fetched" default:"false"`
	VerifySSL  bool    `salt:"verify_ssl" doc:"check certificates" default:"true"`
	UseETag    bool    `salt:"use_etag" doc:"fetch again only what the web server says has changed" default:"false"`
	HashSig    any     `salt:"source_hash_sig" doc:"URL or path of the signature of the file of hashes, or true: that holds it" default:"null"`
	sources.SignerArgs
	Kwargs fn.Kwargs `salt:"kwargs"`
}

func (file) getManaged(ctx context.Context, c *fn.Call, a getManagedArgs) (any, error) {
	g, err := a.get(ctx, c)
	return value.ListOf(g.path, g.sumDict(), g.problem), err
}

// gotten is the result of get_managed: the file with the content ("" if it is
// not needed), its hash, and the reason if there is neither.
type gotten struct {
	path, problem string
	sum           fileclient.Hash
	temporary     bool // remove the file after use
}

func (g gotten) sumDict() *value.Dict {
	if g.sum.Sum == "" {
		return value.NewDict(0)
	}
	return hashDict(g.sum)
}

// drop removes a temporary file.
func (g gotten) drop() {
	if g.temporary {
		os.Remove(g.path)
	}
}

func (a *getManagedArgs) get(ctx context.Context, c *fn.Call) (gotten, error) {
	if of(a.Source) == "" {
		return gotten{}, nil
	}
	src := sources.Source{URL: of(a.Source), Hash: textOf(a.SourceHash), Env: a.Saltenv}
	g, err := a.find(ctx, c, src)
	if err != nil {
		return gotten{problem: err.Error()}, nil
	}
	if of(a.Template) != "" || src.Web() {
		if g.path == "" {
			content, err := sources.Fetch(ctx, c.Files, src, a.how(), "")
			if err != nil {
				return gotten{problem: err.Error()}, nil
			}
			g.path = content.Path
		}
		if g.path == a.Name {
			return gotten{}, fn.Invalidf("Source file cannot be the same as destination")
		}
		if g.sum.Sum == "" {
			if g.sum, err = sum256(g.path); err != nil {
				return gotten{}, err
			}
		}
	}
	if of(a.Template) == "" {
		return g, nil
	}
	return a.fill(ctx, c, g)
}

func (a *getManagedArgs) how() sources.How {
	return sources.How{Name: a.Name, HashName: of(a.HashName), SkipVerify: a.SkipVerify, Insecure: !a.VerifySSL, ETag: a.UseETag,
		Signed: sources.SignatureArgs{HashSig: a.HashSig, SignerArgs: a.SignerArgs}}
}

// find looks up the source: a file of this machine and its hash, or only the
// hash.
func (a *getManagedArgs) find(ctx context.Context, c *fn.Call, src sources.Source) (g gotten, err error) {
	switch src.Scheme() {
	case "salt":
		g.sum, err = c.Files.Hash(ctx, src.URL, src.Env)
		if salt.KindOf(err) == salt.NotFound && err != nil {
			return g, fn.Errorf("Source file %s not found in saltenv '%s'", src.URL, src.Env)
		}
		return g, err
	case "", "file":
		g.path = strings.TrimPrefix(src.URL, "file://")
		if !filesys.Exists(g.path, true) {
			return g, fn.Errorf("Local file source %s does not exist", g.path)
		}
		if src.Hash == "" {
			g.sum, err = sum256(g.path)
			return g, err
		}
	}
	switch {
	case a.SkipVerify:
	case src.Hash != "":
		g.sum, err = sources.Hash(ctx, c.Files, src, a.how())
	case !a.UseETag:
		err = fn.Errorf("Unable to verify upstream hash of source file %s, please set source_hash or set skip_verify to True", redact.Text(src.URL))
	}
	return g, err
}

// fill renders the template into a temporary file.
func (a *getManagedArgs) fill(ctx context.Context, c *fn.Call, g gotten) (gotten, error) {
	if of(a.Template) != templateEngine {
		return gotten{path: g.path, problem: unsupported(of(a.Template))}, nil
	}
	text, err := os.ReadFile(g.path)
	if err != nil {
		return gotten{}, fn.Errorf("%w", err)
	}
	t := sources.Target{Name: a.Name, User: a.User, Group: a.Group, Mode: a.Mode, Attrs: a.Attrs}
	out, err := fill(ctx, c, fn.Template{Engine: of(a.Template), Source: text, Path: of(a.Source), Saltenv: a.Saltenv,
		Context: t.Variables(of(a.Source), a.Kwargs.Clean(), a.Defaults, a.Context)})
	if err != nil {
		return gotten{path: g.path, problem: err.Error()}, nil
	}
	done, err := os.CreateTemp("", "__salt.tmp.*")
	if err != nil {
		return gotten{}, fn.Errorf("%w", err)
	}
	_, err = done.WriteString(out)
	if e := done.Close(); err == nil {
		err = e
	}
	if err == nil {
		g.sum, err = sum256(done.Name())
	}
	if err != nil {
		os.Remove(done.Name())
		return gotten{}, fn.Errorf("%w", err)
	}
	g.path, g.temporary = done.Name(), true
	return g, nil
}

// of returns the string, "" for null: some of Salt's required arguments may be
// null.
func of(text *string) string {
	if text == nil {
		return ""
	}
	return *text
}

func sum256(path string) (fileclient.Hash, error) {
	sum, err := hashOf(path, "sha256")
	return fileclient.Hash{Type: "sha256", Sum: sum}, err
}

type psedArgs struct {
	Path   string `salt:"path" doc:"path"`
	Before any    `salt:"before" doc:"regular expression"`
	After  any    `salt:"after" doc:"what to put in its place"`
	Limit  any    `salt:"limit" doc:"regular expression of what must come before" default:""`
	Backup string `salt:"backup" doc:"end of the name of a copy of the old file; none if empty" default:".bak"`
	Flags  string `salt:"flags" doc:"letters: g, not only the first; I, L, M, S, U and X as in Python's re" default:"gMS"`
	Escape bool   `salt:"escape_all" doc:"take the expressions for plain texts" default:"false"`
	Multi  bool   `salt:"multi" ignored:"files are edited whole" default:"false"`
}

func (file) psed(_ context.Context, _ *fn.Call, a psedArgs) (any, error) {
	path, text, err := load(a.Path, "File not found: "+filesys.ExpandUser(a.Path))
	if err != nil {
		return nil, err
	}
	count := 1
	var flags pyre.Flags
	for _, letter := range a.Flags {
		flag, ok := pyre.FlagByName(string(letter))
		switch {
		case letter == 'g':
			count = 0
		case !ok || letter >= 'a':
			return nil, fn.Invalidf("flags: %q is none of g, I, L, M, S, U and X", letter)
		}
		flags |= flag
	}
	// The text before the match of limit, and the match itself, stay unchanged.
	from := 0
	if limit := plain(a.Limit, a.Escape); limit != "" {
		re, err := pyre.Compile(limit, 0)
		if err != nil {
			return nil, fn.Errorf("limit: %w", err)
		}
		rest, err := re.Split(text, 1)
		if err != nil {
			return nil, fn.Errorf("limit: %w", err)
		}
		if len(rest) < 2 || rest[len(rest)-1] == nil {
			return nil, nil
		}
		from = len(text) - len(*rest[len(rest)-1])
	}
	re, err := pyre.Compile(plain(a.Before, a.Escape), flags)
	if err != nil {
		return nil, fn.Errorf("before: %w", err)
	}
	edited, _, err := re.Sub(value.Str(a.After), text[from:], count)
	if err != nil {
		return nil, fn.Errorf("%w", err)
	}
	return nil, save(path, a.Backup, text[:from]+edited)
}

// plain escapes special characters of a regular expression if escape is set, as
// Salt's sed functions do, but not for a shell.
func plain(v any, escape bool) string {
	if !escape {
		return value.Str(v)
	}
	return pyre.Escape(value.Str(v))
}

func (file) getContext(ctx context.Context, _ *fn.Call, a pathArg) (any, error) {
	now, err := perms.Context(ctx, a.Path)
	if err != nil {
		return "No selinux context information is available for " + a.Path, nil
	}
	return strings.Join(now[:], ":"), nil
}

type setContextArgs struct {
	Path    string `salt:"path" doc:"path"`
	User    string `salt:"user" doc:"SELinux user" default:"null"`
	Role    string `salt:"role" doc:"role" default:"null"`
	Type    string `salt:"type" doc:"type" default:"null"`
	Range   string `salt:"range" doc:"range of levels" default:"null"`
	Persist bool   `salt:"persist" doc:"enter it in the policy, too" default:"false"`
}

func (f file) setContext(ctx context.Context, c *fn.Call, a setContextArgs) (any, error) {
	want := [4]string{a.User, a.Role, a.Type, a.Range}
	if want == [4]string{} {
		return false, nil
	}
	if err := perms.Label(ctx, a.Path, want, a.Persist); err != nil {
		if a.Persist {
			return nil, err
		}
		c.Log.Error(err.Error())
		return false, nil
	}
	return f.getContext(ctx, c, pathArg{Path: a.Path})
}

type restoreconArgs struct {
	Path      string `salt:"path" doc:"path"`
	Recursive bool   `salt:"recursive" doc:"all that is in a directory, too" default:"false"`
}

func (file) restorecon(ctx context.Context, c *fn.Call, a restoreconArgs) (any, error) {
	option := "-F"
	if a.Recursive {
		option = "-FR"
	}
	r, err := proc.Run(ctx, proc.Cmd{Args: []string{"restorecon", option, "--", filepath.Clean(a.Path)}, Env: os.Environ(), MaxOutput: 1 << 20})
	if err != nil {
		return nil, fn.Errorf("cannot run restorecon: %w", err)
	}
	if r.Code != 0 {
		c.Log.Error("restorecon " + option + " " + a.Path + ": " + strings.TrimSpace(string(r.Stderr)))
		return false, nil
	}
	return true, nil
}
