// Package archives holds the state module archive, which unpacks archives into
// directories. The texts of comments and the shape of changes are Salt's.
package archives

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"brine/internal/base/log/redact"
	"brine/internal/call/fn"
	"brine/internal/catalogue/states"
	"brine/internal/files/fileclient"
	"brine/internal/host"
	"brine/internal/host/archive"
	"brine/internal/host/filesys"
	"brine/internal/host/proc"
	"brine/internal/py/value"
	"brine/internal/sls/state"
	"brine/internal/sls/state/sources"
)

type archives struct{ m *host.Machine }

// units holds the modules, which the files of this package register.
var units = states.Family()

// Modules returns the modules of this family.
func Modules(m *host.Machine) []state.Module { return units.Modules(m) }

func init() { units.Register("archive", archiveModule) }

func archiveModule(m *host.Machine) state.Module {
	a := archives{m}
	return state.Module{Name: "archive", Doc: `Unpack archives.`, Funcs: []state.Func{
		state.Of("extracted", a.extracted, `Keep what is in an archive unpacked in a directory.`),
	}}
}

type extractedArgs struct {
	Name           string `salt:"name" doc:"directory to unpack into"`
	Source         any    `salt:"source" doc:"the archive: salt://, http://, https:// or ftp:// URL, or path; of a list, the first that exists"`
	SourceHash     string `salt:"source_hash" doc:"hash of the archive, kind=hash, or a file of hashes; needed for http, https and ftp" default:"null"`
	SourceHashName string `salt:"source_hash_name" doc:"name of the archive in a file of hashes" default:"null"`
	HashUpdate     bool   `salt:"source_hash_update" doc:"unpack again when source_hash has changed" default:"false"`
	SkipList       bool   `salt:"skip_files_list_verify" doc:"do not look at the files when the archive was unpacked with this source_hash; needs source_hash_update" default:"false"`
	SkipVerify     bool   `salt:"skip_verify" doc:"take an archive of http, https or ftp without a hash" default:"false"`
	Password       any    `salt:"password" doc:"password of a zip file; it needs the program unzip" default:"null"`
	Options        any    `salt:"options" doc:"options of the program tar or unzip, which is run then" default:"null"`
	ListOptions    string `salt:"list_options" doc:"program that gets the name of a tar file and prints it without its compression, to list it" default:"null"`
	Force          bool   `salt:"force" doc:"remove directories that are in the way of files and the like" default:"false"`
	Overwrite      bool   `salt:"overwrite" doc:"unpack each time" default:"false"`
	Clean          bool   `salt:"clean" doc:"before unpacking remove what has the names at the top of the archive" default:"false"`
	CleanParent    bool   `salt:"clean_parent" doc:"before unpacking remove the directory" default:"false"`
	User           any    `salt:"user" doc:"user that owns the files" default:"null"`
	Group          any    `salt:"group" doc:"group that owns the files" default:"null"`
	IfMissing      any    `salt:"if_missing" doc:"do nothing if there is something at this path" default:"null"`
	TrimOutput     any    `salt:"trim_output" doc:"number of names among the changes; true for 100" default:"false"`
	UseUnzip       any    `salt:"use_cmd_unzip" doc:"use the program unzip" default:"null"`
	ExtractPerms   bool   `salt:"extract_perms" doc:"take the modes from the zip file" default:"true"`
	EnforceTop     bool   `salt:"enforce_toplevel" doc:"fail if the archive has more than one directory at its top" default:"true"`
	EnforceOn      any    `salt:"enforce_ownership_on" doc:"path to give to user and group in place of what is at the top of the archive" default:"null"`
	Format         any    `salt:"archive_format" doc:"tar, zip or rar; by the name if null" default:"null"`
	UseETag        bool   `salt:"use_etag" doc:"ask the http server whether the archive has changed, in place of a hash" default:"false"`
	KeepSource     any    `salt:"keep_source" doc:"keep the archive in the minion's cache" default:"null"`
	Keep           any    `salt:"keep" doc:"old name of keep_source" default:"null"`
	Excludes       any    `salt:"excludes" doc:"names in a zip file to leave out" default:"null"`
	sources.SignatureArgs
	Kwargs fn.Kwargs `salt:"kwargs"`
}

// unpacking is an archive to be unpacked.
type unpacking struct {
	extractedArgs
	m    *host.Machine
	e    *state.Env
	name string // with a trailing slash
	uid  int
	gid  int
	src  sources.Source
	want fileclient.Hash // from source_hash
	// shown is the source as the user sees it.
	shown  string
	format string
	opts   string
	// trim is the number of names to show, 0 for all.
	trim    int
	file    string // path of the archive
	content archive.Content
	// viaProgram is set if only the program of list_options could list the archive.
	viaProgram bool
	missing    bool     // some of the content is missing
	wrong      []string // existing paths of another type
	// hash is the hash of the archive, and noted the hash when it was last unpacked.
	hash, noted string
	updated     bool // the hash has changed
}

func (a archives) extracted(ctx context.Context, e *state.Env, args extractedArgs) (state.Plan, error) {
	u := &unpacking{extractedArgs: args, m: a.m, e: e}
	var plan state.Plan
	if args.HashUpdate && args.SourceHash == "" {
		plan.Warnings = append(plan.Warnings, "The 'source_hash_update' argument is ignored when 'source_hash' is not also specified.")
	}
	if args.Keep != nil && args.KeepSource != nil {
		plan.Warnings = append(plan.Warnings, "Both 'keep_source' and 'keep' were used. Since these both do the same thing, 'keep' was ignored.")
	}
	if err := u.check(); err != nil {
		return plan, err
	}
	if p := text(args.IfMissing); p != "" && filesys.Exists(p, true) {
		plan.Comment = "Path " + p + " exists"
		return plan, nil
	}
	if err := u.owner(ctx); err != nil {
		return plan, err
	}
	if err := u.find(ctx); err != nil {
		return plan, err
	}
	if u.format == "zip" && value.Truth(u.Password) && value.Truth(u.UseUnzip) {
		plan.Warnings = append(plan.Warnings, "Using a password in combination with setting 'use_cmd_unzip' to True is considered insecure. It is "+
			"recommended to remove the 'use_cmd_unzip' argument (or set it to False) and allow Salt to extract the archive using Python's built-in "+
			"ZIP file support.")
	}
	p, err := u.plan(ctx)
	p.Warnings = plan.Warnings
	return p, err
}

func text(v any) string {
	if v == nil {
		return ""
	}
	return value.Str(v)
}

// check rejects invalid combinations of arguments.
func (u *unpacking) check() error {
	on := text(u.EnforceOn)
	u.name = strings.TrimRight(u.Name, "/") + "/"
	inside, err := filepath.Rel(u.name, on)
	switch {
	case u.SkipList && u.SkipVerify:
		return fn.Errorf(`Only one of "skip_files_list_verify" and "skip_verify" can be set to True`)
	case !filepath.IsAbs(u.Name):
		return fn.Errorf("%s is not an absolute path", u.Name)
	case filesys.IsFile(strings.TrimRight(u.Name, "/")):
		return fn.Errorf("%s exists and is not a directory", strings.TrimRight(u.Name, "/"))
	case u.IfMissing != nil && !filepath.IsAbs(text(u.IfMissing)):
		return fn.Errorf("Value for 'if_missing' is not an absolute path")
	case on != "" && !filepath.IsAbs(on):
		return fn.Errorf("Value for 'enforce_ownership_on' is not an absolute path")
	case on != "" && (err != nil || strings.HasPrefix(inside, "../")):
		return fn.Errorf("Value for 'enforce_ownership_on' must be within %s", u.name)
	}
	return nil
}

// owner looks up the declared user and group.
func (u *unpacking) owner(ctx context.Context) error {
	u.uid, u.gid = -1, -1
	var ok bool
	if value.Truth(u.User) {
		if u.uid, ok = filesys.UserID(ctx, u.m, u.User); !ok {
			return fn.Errorf("User %s does not exist", value.Str(u.User))
		}
	}
	if value.Truth(u.Group) {
		if u.gid, ok = filesys.GroupID(ctx, u.m, u.Group); !ok {
			return fn.Errorf("Group %s does not exist", value.Str(u.Group))
		}
	}
	return nil
}

// find chooses the source and determines its format.
func (u *unpacking) find(ctx context.Context) error {
	all, err := sources.Read(u.Source, u.SourceHash, u.e.Saltenv)
	if err != nil {
		return err
	}
	if _, list := u.Source.(*value.List); list && len(all) == 0 {
		return fn.Errorf("none of the specified sources were found")
	}
	if len(all) == 0 {
		return fn.Errorf(`Invalid source "%s"`, value.Str(u.Source))
	}
	if u.src, err = sources.Choose(ctx, u.e.Files, all); err != nil {
		return err
	}
	u.shown = redact.Text(u.src.URL)
	if u.local() {
		path := strings.TrimPrefix(u.src.URL, "file://")
		if real, err := filepath.EvalSymlinks(path); err == nil {
			path = real
		}
		if !filesys.IsFile(path) {
			return fn.Errorf("Source file '%s' does not exist", path)
		}
		u.file, u.shown = path, path
	}
	path, _, _ := strings.Cut(u.src.URL, "?")
	u.format = archive.FormatOf(path)
	if value.Truth(u.Format) {
		u.format = strings.ToLower(text(u.Format))
	}
	switch u.format {
	case "":
		return fn.Errorf("Could not guess archive_format from the value of the 'source' argument. Please set this archive_format to one of the " +
			"following: tar, rar, zip")
	case "tar", "rar", "zip":
		return u.checkOptions()
	}
	return fn.Errorf("Invalid archive_format '%s'. Either set it to a supported value (tar, rar, zip) or remove this argument and the archive format "+
		"will be guessed based on file extension.", u.format)
}

func (u *unpacking) local() bool { return u.src.Scheme() == "" || u.src.Scheme() == "file" }

// checkOptions rejects options that do not fit the format.
func (u *unpacking) checkOptions() error {
	u.opts = text(u.Options)
	switch {
	case u.format != "zip" && value.Truth(u.Password):
		return fn.Errorf("The 'password' argument is only supported for zip archives")
	case u.format == "rar" && u.opts != "":
		return fn.Errorf("The 'options' argument is only compatible with the following archive formats: tar, zip")
	case u.format == "rar":
		return fn.Errorf("archive.unrar function not available, rar/unrar might not be installed on minion")
	case u.format == "zip" && u.opts != "" && u.UseUnzip != nil && !value.Truth(u.UseUnzip):
		return fn.Errorf("'use_cmd_unzip' cannot be set to False if CLI options are being specified (via the 'options' argument). Either remove " +
			"'use_cmd_unzip', or set it to True.")
	case u.format == "zip" && u.runsUnzip() && u.m.Which("unzip") == "":
		return fn.Errorf("archive.cmd_unzip function not available, unzip might not be installed on minion")
	}
	switch x := u.TrimOutput.(type) {
	case nil:
	case bool:
		if x {
			u.trim, u.TrimOutput = 100, int64(100)
		}
	default:
		n, err := strconv.Atoi(value.Str(x))
		if err != nil {
			return fn.Errorf("Invalid value for trim_output, must be True/False or an integer")
		}
		u.trim = n
	}
	return nil
}

func (u *unpacking) runsUnzip() bool {
	return u.opts != "" || value.Truth(u.Password) || value.Truth(u.UseUnzip)
}

// how returns how to fetch and verify the archive.
func (u *unpacking) how() sources.How {
	return sources.How{Name: filepath.Base(u.src.URL), HashName: u.SourceHashName, SkipVerify: u.SkipVerify, ETag: u.UseETag, Signed: u.SignatureArgs}
}

// resolveHash reads source_hash, and checks the signature if it names a file of
// hashes. Then the source has the hash instead of the name of that file.
func (u *unpacking) resolveHash(ctx context.Context) error {
	if u.src.Hash == "" {
		return nil
	}
	var err error
	if u.want, err = sources.Hash(ctx, u.e.Files, u.src, u.how()); err != nil {
		return err
	}
	u.src.Hash = u.want.Type + "=" + u.want.Sum
	return nil
}

// fetch copies the archive to this machine and checks its signature.
func (u *unpacking) fetch(ctx context.Context) error {
	if !u.local() {
		unsigned := u.how()
		unsigned.Signed = sources.SignatureArgs{} // checked below
		c, err := sources.Fetch(ctx, u.e.Files, u.src, unsigned, "")
		if err != nil {
			return err
		}
		u.file = c.Path
		// Web sources were checked against the hash while they were fetched.
		if u.src.Scheme() == "salt" && u.src.Hash != "" && !u.SkipVerify {
			if sum, err := sources.Sum(u.file, u.want.Type); err != nil || sum != u.want.Sum {
				return fn.Errorf("File is cached to %s, but the hash (%s) does not match the specified hash (%s)", u.file, sum, u.want.Sum)
			}
		}
	}
	if err := u.how().CheckSignature(ctx, u.e.Files, u.src, u.file); err != nil {
		return fn.Errorf("Failed verifying the source file's signature: %w", err)
	}
	return nil
}

// verified checks a local archive against its hash.
func (u *unpacking) verified() error {
	if !u.local() || u.src.Hash == "" || u.SkipVerify {
		return nil
	}
	if sum, err := sources.Sum(u.file, u.want.Type); err != nil || sum != u.want.Sum {
		return fn.Errorf("%s does not match the desired source_hash %s", u.shown, u.want.Sum)
	}
	return nil
}

var strip = regexp.MustCompile(`--strip(?:-components)?(?:\s+|=)(\d+)`)

// list lists the content of the archive.
func (u *unpacking) list(ctx context.Context) error {
	if u.format == "zip" && !value.Truth(u.Password) {
		if secret, err := archive.Encrypted(u.file); err == nil && secret {
			return fn.Errorf("Archive %s is password-protected, but no password was specified. Please set the 'password' argument.", u.shown)
		}
	}
	content, err := archive.List(ctx, u.file, u.format)
	if err != nil && u.ListOptions != "" && u.format == "tar" { // the compression is not known here
		via, bad := proc.Split(u.ListOptions)
		if bad != nil {
			return fn.Errorf("cannot read list_options: %w", bad)
		}
		content, err = archive.List(ctx, u.file, u.format, via...)
		u.viaProgram = true
	}
	if err != nil {
		return u.unlisted(err)
	}
	if m := strip.FindStringSubmatch(u.opts); m != nil && u.format == "tar" {
		if n, err := strconv.Atoi(m[1]); err == nil && n > 0 {
			content = content.Strip(n)
		}
	}
	for _, names := range [][]string{content.Dirs, content.Files, content.Links} {
		slices.Sort(names)
	}
	u.content = content
	if top := content.Top(); u.EnforceTop && (len(top.Dirs) > 1 || len(top.Files) > 0) {
		return fn.Errorf("Archive does not have a single top-level directory. To allow this archive to be extracted, set 'enforce_toplevel' to "+
			"False. To avoid a '%s-bomb' it may also be advisable to set a top-level directory by adding it to the 'name' value (for example, "+
			"setting 'name' to %s instead of %s).",
			u.format, filepath.Join(u.name, "some_dir"), u.name)
	}
	if u.Clean && u.CleanParent {
		return fn.Errorf("Only one of 'clean' and 'clean_parent' can be set to True")
	}
	return nil
}

// unlisted returns the error for an unreadable archive.
func (u *unpacking) unlisted(err error) error {
	text := "Failed to list contents of " + u.file + ": " + err.Error()
	if u.format == "tar" {
		text += "\n\nIf it is a tar archive in a compression that is not known here, set list_options to a program that unpacks it to its output."
	}
	return fn.Errorf("%s", text)
}

// compare checks which files of the archive exist.
func (u *unpacking) compare() error {
	kinds := []struct {
		names []string
		right func(fs.FileMode) bool
	}{
		{u.content.Dirs, fs.FileMode.IsDir},
		{u.content.Files, func(m fs.FileMode) bool { return !m.IsDir() && m&fs.ModeSymlink == 0 }},
		{u.content.Links, func(m fs.FileMode) bool { return m&fs.ModeSymlink != 0 }},
	}
	for _, k := range kinds {
		for _, name := range k.names {
			info, err := os.Lstat(strings.TrimRight(filepath.Join(u.name, name), "/"))
			switch {
			case errors.Is(err, fs.ErrNotExist):
				u.missing = true
			case errors.Is(err, syscall.ENOTDIR):
			case err != nil:
				return fn.Errorf("%w", err)
			case !k.right(info.Mode()):
				u.wrong = append(u.wrong, name)
			}
		}
	}
	return nil
}

// note returns the path of the file that stores the hash with which an archive
// was unpacked.
func (u *unpacking) note() (path, kind string) {
	cache := text(u.e.Config.Get("cachedir"))
	rel, err := filepath.Rel(cache, u.file)
	if err != nil || strings.HasPrefix(rel, "../") {
		rel = filepath.Join("local", u.file)
	}
	kind = text(u.e.Config.Get("hash_type"))
	if kind == "" {
		kind = "sha256"
	}
	return filepath.Join(cache, "archive_hash", rel+".hash"), kind
}

// readNote reads the hash that the archive was last unpacked with.
func (u *unpacking) readNote() error {
	path, kind := u.note()
	b, err := os.ReadFile(path)
	if err == nil {
		for line := range strings.Lines(string(b)) {
			if k, sum, ok := strings.Cut(strings.TrimSpace(line), ":"); ok && k == kind {
				u.noted = sum
			}
		}
	}
	if !u.notes() {
		return nil
	}
	if u.hash, err = sources.Sum(u.file, kind); err != nil {
		return err
	}
	u.updated = u.noted != "" && u.noted != u.hash
	return nil
}

func (u *unpacking) notes() bool { return u.HashUpdate && u.SourceHash != "" && !u.SkipVerify }

func (u *unpacking) writeNote() error {
	if !u.notes() || u.noted == u.hash {
		return nil
	}
	path, kind := u.note()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, []byte(kind+":"+u.hash+"\n"), 0o644)
}

// lookUp returns a function that maps user and group names to ids of this
// machine, if they exist.
func (u *unpacking) lookUp(ctx context.Context) func(user, group string, uid, gid int) (int, int) {
	return func(user, group string, uid, gid int) (int, int) {
		if id, ok := filesys.UserID(ctx, u.m, user); ok && user != "" && id >= 0 {
			uid = id
		}
		if id, ok := filesys.GroupID(ctx, u.m, group); ok && group != "" && id >= 0 {
			gid = id
		}
		return uid, gid
	}
}

// sameHash reports whether the archive was last unpacked with the hash in the
// SLS.
func (u *unpacking) sameHash() (bool, error) {
	if !u.SkipList || u.noted == "" || u.src.Hash == "" {
		return false, nil
	}
	if _, err := hex.DecodeString(u.noted); err != nil {
		return false, fmt.Errorf("the note of the hash is damaged: %w", err)
	}
	return u.want.Sum == u.noted, nil
}
