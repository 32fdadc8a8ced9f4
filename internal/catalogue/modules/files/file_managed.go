package files

import (
	"context"
	"fmt"
	"os"
	"strings"

	"brine/internal/base/atomicfile"
	"brine/internal/base/log/redact"
	"brine/internal/call/fn"
	"brine/internal/catalogue/actions/managed"
	"brine/internal/files/fileclient"
	"brine/internal/host/filesys"
	"brine/internal/py/value"
	"brine/internal/sls/state/perms"
	"brine/internal/sls/state/sources"
)

// managed returns the functions that compare and change a file step by step. The
// state file.managed does all steps at once.
func (f file) managed() []fn.Func {
	return []fn.Func{
		fn.Of("get_managed", f.getManaged, `Bring what a file is to hold to this machine, filled in if it is a template.
			Returns the path of that, which is empty for salt:// files that are no templates, its hash, and why there is neither.`,
			fn.Example("salt '*' file.get_managed /etc/httpd/conf.d/httpd.conf jinja salt://http/httpd.conf None None root root 755 None base None None")),
		fn.Of("check_managed", f.checkManaged, `Say whether a file is as wanted, and if not, what is to change.`,
			fn.Example("salt '*' file.check_managed /etc/httpd/conf.d/httpd.conf salt://http/httpd.conf None None root root 755 None jinja None None base")),
		fn.Of("check_managed_changes", f.checkManagedChanges, `Return what is to change in a file for it to be as wanted.`,
			fn.Example("salt '*' file.check_managed_changes /etc/httpd/conf.d/httpd.conf salt://http/httpd.conf None None root root 755 None jinja "+
				"None None base")),
		fn.Of("check_file_meta", f.checkFileMeta, `Return what is to change in a file for it to be as wanted, given the content and its hash.`,
			fn.Example("salt '*' file.check_file_meta /etc/httpd/conf.d/httpd.conf None salt://http/httpd.conf '{hash_type: md5, hsum: "+
				"d41d8cd98f00b204e9800998ecf8427e}' root root 755 None base")),
		fn.Of("check_perms", f.checkPerms, `Give a file owner, mode, attributes and SELinux context.
			Returns a state's result, with test only what would change, and who owned it before.`,
			fn.Example("salt '*' file.check_perms /etc/sudoers '{}' root root 400 ai")),
		fn.Of("manage_file", f.manageFile, `Make a file as wanted, given the content and its hash as file.get_managed finds them. Returns a state's result.`,
			fn.Example("salt '*' file.manage_file /etc/httpd/conf.d/httpd.conf '' '{}' salt://http/httpd.conf '{hash_type: md5, hsum: "+
				"d41d8cd98f00b204e9800998ecf8427e}' root root 755 '' base ''")),
	}
}

// contextArgs are the wanted fields of the SELinux context.
type contextArgs struct {
	SEUser  string `salt:"seuser" doc:"wanted SELinux user" default:"null"`
	SERole  string `salt:"serole" doc:"wanted SELinux role" default:"null"`
	SEType  string `salt:"setype" doc:"wanted SELinux type" default:"null"`
	SERange string `salt:"serange" doc:"wanted SELinux range" default:"null"`
}

func (a contextArgs) marks(attrs any) perms.Marks {
	m := perms.Marks{Context: [4]string{a.SEUser, a.SERole, a.SEType, a.SERange}}
	if attrs != nil {
		s := value.Str(attrs)
		m.Attrs = &s
	}
	return m
}

// wantedArgs describe the wanted file.
type wantedArgs struct {
	Name       string  `salt:"name" doc:"path of the file"`
	Source     any     `salt:"source" doc:"URL or path of what it is to hold, or a list of such"`
	SourceHash any     `salt:"source_hash" doc:"a hash, kind=hash, or the URL or path of a file of hashes"`
	HashName   *string `salt:"source_hash_name" doc:"name to look for in a file of hashes"`
	User       any     `salt:"user" doc:"wanted owner"`
	Group      any     `salt:"group" doc:"wanted group"`
	Mode       any     `salt:"mode" doc:"wanted mode"`
	Attrs      any     `salt:"attrs" doc:"wanted attributes"`
	Template   *string `salt:"template" doc:"template engine that fills the source in; none if empty"`
	Context    any     `salt:"context" doc:"variables of the template"`
	Defaults   any     `salt:"defaults" doc:"variables that context does not give"`
	Saltenv    string  `salt:"saltenv" doc:"environment of salt:// files"`
	Contents   any     `salt:"contents" doc:"what it is to hold, in place of a source" default:"null"`
	SkipVerify bool    `salt:"skip_verify" doc:"do not check the hash of what is fetched" default:"false"`
}

type checkManagedArgs struct {
	wantedArgs
	contextArgs
	Follow bool      `salt:"follow_symlinks" doc:"look at what a symbolic link stands for" default:"false"`
	Kwargs fn.Kwargs `salt:"kwargs"`
}

type checkManagedChangesArgs struct {
	wantedArgs
	KeepMode bool `salt:"keep_mode" doc:"want the mode of the source" default:"false"`
	contextArgs
	VerifySSL bool      `salt:"verify_ssl" doc:"check certificates" default:"true"`
	Follow    bool      `salt:"follow_symlinks" doc:"look at what a symbolic link stands for" default:"false"`
	Kwargs    fn.Kwargs `salt:"kwargs"`
}

func (f file) checkManaged(ctx context.Context, c *fn.Call, a checkManagedArgs) (any, error) {
	changes, problem, err := f.compare(ctx, c, checkManagedChangesArgs{wantedArgs: a.wantedArgs, contextArgs: a.contextArgs, VerifySSL: true,
		Follow: a.Follow, Kwargs: a.Kwargs})
	switch {
	case err != nil:
		return nil, err
	case problem != "":
		return value.ListOf(false, problem), nil
	}
	if strings.HasPrefix(a.Name, os.TempDir()) { // as in Salt
		for _, k := range []string{"user", "group", "mode"} {
			changes.Delete(k)
		}
	}
	if changes.Len() == 0 {
		return value.ListOf(true, "The file "+a.Name+" is in the correct state"), nil
	}
	comment := "The following values are set to be changed:\n"
	for k, v := range changes.All() {
		comment += value.Str(k) + ": " + value.Str(v) + "\n"
	}
	return value.ListOf(nil, comment), nil
}

func (f file) checkManagedChanges(ctx context.Context, c *fn.Call, a checkManagedChangesArgs) (any, error) {
	changes, problem, err := f.compare(ctx, c, a)
	if err == nil && problem != "" {
		return value.ListOf(false, problem), nil
	}
	return changes, err
}

// compare determines the wanted content and returns the changes needed; problem
// says why it cannot.
func (f file) compare(ctx context.Context, c *fn.Call, a checkManagedChangesArgs) (changes *value.Dict, problem string, err error) {
	source, hash, err := chooseSource(ctx, c, a.Source, a.SourceHash, a.Saltenv)
	if err != nil {
		return nil, "", err
	}
	url := textOf(source)
	var g gotten
	if a.Contents == nil {
		get := getManagedArgs{Name: a.Name, Template: a.Template, Source: &url, SourceHash: hash, HashName: a.HashName, User: a.User, Group: a.Group,
			Mode: a.Mode, Attrs: a.Attrs,
			Saltenv: a.Saltenv, Context: a.Context, Defaults: a.Defaults, SkipVerify: a.SkipVerify, VerifySSL: a.VerifySSL, Kwargs: a.Kwargs}
		if g, err = get.get(ctx, c); err != nil {
			return nil, "", err
		}
		defer g.drop()
		if g.problem != "" {
			return nil, g.problem, nil
		}
		if g.path != "" && a.KeepMode {
			a.Mode = modeOf(ctx, c, url, a.Saltenv, a.Mode)
		}
	}
	changes, err = f.meta(ctx, c, fileMetaArgs{Name: a.Name, Path: &g.path, Source: &url, Sum: g.sumDict(), User: a.User, Group: a.Group, Mode: a.Mode,
		Attrs: a.Attrs, Saltenv: a.Saltenv,
		Contents: a.Contents, contextArgs: a.contextArgs, VerifySSL: true, Follow: a.Follow})
	return changes, "", err
}

// modeOf returns the mode of a source on the file server or this machine; for
// other sources, the wanted mode.
func modeOf(ctx context.Context, c *fn.Call, url, saltenv string, wanted any) any {
	if bits, ok := managed.SourceMode(ctx, c.Files, sources.Source{URL: url, Env: saltenv}); ok {
		return fmt.Sprintf("%04o", bits)
	}
	return wanted
}

type fileMetaArgs struct {
	Name     string      `salt:"name" doc:"path of the file"`
	Path     *string     `salt:"sfn" doc:"path of what it is to hold, if that is on this machine"`
	Source   *string     `salt:"source" doc:"URL of that"`
	Sum      *value.Dict `salt:"source_sum" doc:"map of hash_type and hsum: its hash"`
	User     any         `salt:"user" doc:"wanted owner"`
	Group    any         `salt:"group" doc:"wanted group"`
	Mode     any         `salt:"mode" doc:"wanted mode"`
	Attrs    any         `salt:"attrs" doc:"wanted attributes"`
	Saltenv  string      `salt:"saltenv" doc:"environment of salt:// files"`
	Contents any         `salt:"contents" doc:"what it is to hold, in place of a source" default:"null"`
	contextArgs
	VerifySSL bool `salt:"verify_ssl" doc:"check certificates" default:"true"`
	Follow    bool `salt:"follow_symlinks" doc:"look at what a symbolic link stands for" default:"false"`
}

func (f file) checkFileMeta(ctx context.Context, c *fn.Call, a fileMetaArgs) (any, error) {
	return f.meta(ctx, c, a)
}

func (f file) meta(ctx context.Context, c *fn.Call, a fileMetaArgs) (*value.Dict, error) {
	if !value.Truth(a.Attrs) {
		a.Attrs = nil
	}
	t := managed.File{M: f.m, Name: filesys.ExpandUser(a.Name), Marks: a.marks(a.Attrs), Config: c.Config,
		Own: managed.Owner{User: a.User, Group: a.Group, Mode: filesys.NormalizeMode(a.Mode)}}
	now, err := filesys.Look(f.m, t.Name, a.Follow)
	if err != nil {
		return value.DictOf("newfile", a.Name), nil
	}
	changes := value.NewDict(4)
	if a.Sum.Has("hsum") {
		sum, err := hashOf(t.Name, a.Sum.Str("hash_type"))
		if err != nil {
			return nil, err
		}
		if sum != a.Sum.Str("hsum") {
			if err := metaDiff(ctx, c, a, &t, changes); err != nil {
				return nil, err
			}
		}
	}
	if a.Contents != nil {
		diff, err := t.DiffUnlessSame(&sources.Content{Data: bytesOf(a.Contents)})
		if err != nil {
			return nil, err
		}
		if diff != "" {
			changes.Set("diff", diff)
		}
	}
	more, err := t.Differs(ctx, now)
	changes.Update(more)
	return changes, err
}

// metaDiff returns how a file differs from its source.
func metaDiff(ctx context.Context, c *fn.Call, a fileMetaArgs, t *managed.File, changes *value.Dict) error {
	path := of(a.Path)
	if path == "" && of(a.Source) != "" {
		var err error
		if path, err = cached(ctx, c, of(a.Source), a.Saltenv, a.VerifySSL); err != nil {
			return err
		}
	}
	if path == "" {
		changes.Set("sum", "Checksum differs")
		return nil
	}
	diff, err := t.DiffUnlessSame(&sources.Content{Path: path})
	changes.Set("diff", diff)
	return err
}

func cached(ctx context.Context, c *fn.Call, url, saltenv string, verify bool) (string, error) {
	path, err := c.Files.GetURL(ctx, url, "", fileclient.URLOptions{Saltenv: saltenv, Makedirs: true, Insecure: !verify})
	if err != nil {
		return "", fn.Errorf("Source file '%s' not found: %w", redact.Text(url), err)
	}
	return path, nil
}

func bytesOf(v any) []byte {
	if b, ok := v.([]byte); ok {
		return append([]byte{}, b...)
	}
	return []byte(value.Str(v))
}

type checkPermsArgs struct {
	Name   string `salt:"name" doc:"path of the file"`
	Ret    any    `salt:"ret" doc:"a state's result, to add to; a new one if empty"`
	User   any    `salt:"user" doc:"owner"`
	Group  any    `salt:"group" doc:"group"`
	Mode   any    `salt:"mode" doc:"mode"`
	Attrs  any    `salt:"attrs" doc:"attributes, as chattr takes them; empty removes all" default:"null"`
	Follow bool   `salt:"follow_symlinks" doc:"change what a symbolic link stands for" default:"false"`
	contextArgs
}

func dryRun(c *fn.Call) bool { t, _ := c.Config.Get("test").(bool); return t }

func (f file) checkPerms(ctx context.Context, c *fn.Call, a checkPermsArgs) (any, error) {
	ret, before, err := f.permit(ctx, c, a)
	return value.ListOf(ret, before), err
}

func (f file) permit(ctx context.Context, c *fn.Call, a checkPermsArgs) (ret, before *value.Dict, err error) {
	name := filesys.ExpandUser(a.Name)
	now, err := filesys.Look(f.m, name, a.Follow)
	if err != nil {
		_, err = f.look(name, a.Follow)
		return nil, nil, err
	}
	ret = value.DictOf("name", name, "changes", value.NewDict(0), "comment", "", "result", true)
	if given, err := priorResult(a.Ret); err != nil {
		return nil, nil, err
	} else if given.Len() > 0 {
		ret = given.Clone()
	}
	changes := ret.Dict("changes").Clone()
	var comments []string
	if s := ret.Str("comment"); s != "" {
		comments = append(comments, s)
	}
	fail := func(text string) {
		ret.Set("result", false)
		comments = append(comments, text)
	}
	mode := filesys.NormalizeMode(a.Mode)
	due := perms.Differs(a.User, a.Group, mode, now)
	before = value.DictOf("luser", now.User(), "lgroup", now.Group(), "lmode", now.Mode)
	if _, ok := a.User.(int64); ok {
		before.Set("luser", now.UID)
	}
	if _, ok := a.Group.(int64); ok {
		before.Set("lgroup", now.GID)
	}
	for _, k := range []string{"user", "group"} {
		if due.Has(k) {
			before.Set("c"+k, due.At(k))
		}
	}
	done, marks := due, a.marks(a.Attrs)
	if now.IsDir() || now.IsLink() {
		marks.Attrs = nil
	}
	var marked *value.Dict
	if dryRun(c) {
		marked, err = marks.Forecast(ctx, name)
	} else {
		if due.Has("mode") {
			before.Set("cmode", mode)
		}
		if done, err = f.setPerms(ctx, c, a, name, due, fail); err != nil {
			return nil, nil, err
		}
		marked, err = marks.Apply(ctx, name)
		if marked.Has("selinux") {
			comments = append(comments, "The file "+name+" is set to be changed")
		}
	}
	if err != nil {
		fail(err.Error())
	}
	changes.Update(done)
	changes.Update(marked)
	ret.Set("changes", changes)
	ret.Set("comment", strings.Join(comments, "; "))
	if dryRun(c) && changes.Len() > 0 {
		ret.Set("result", nil)
	}
	return ret, before, nil
}

// setPerms applies the changes of owner and mode in due, and returns those that
// succeeded.
func (f file) setPerms(ctx context.Context, c *fn.Call, a checkPermsArgs, name string, due *value.Dict, fail func(string)) (*value.Dict, error) {
	if due.Has("user") || due.Has("group") {
		wrong, err := f.chown(a.Follow)(ctx, c, chownArgs{Path: name, User: a.User, Group: a.Group})
		switch {
		case err != nil:
			fail(err.Error())
		case wrong != nil:
			fail(value.Str(wrong))
		}
	}
	mode := due.Str("mode")
	if bits, err := filesys.ParseMode(mode); err != nil {
		return nil, fn.Errorf("mode: %w", err)
	} else if bits >= 0 {
		if err := filesys.SetMode(name, bits); err != nil {
			fail(atomicfile.Cause(err).Error())
		}
	}
	now, err := f.look(name, a.Follow)
	if err != nil {
		return nil, err
	}
	left, done := perms.Differs(a.User, a.Group, mode, now), value.NewDict(due.Len())
	for k, v := range due.All() {
		if left.Has(k) {
			fail("Failed to change " + value.Str(k) + " to " + value.Str(v))
		} else {
			done.Set(k, v)
		}
	}
	return done, nil
}

type manageFileArgs struct {
	Name       string      `salt:"name" doc:"path of the file"`
	Path       *string     `salt:"sfn" doc:"path of what it is to hold, if that is on this machine"`
	Ret        any         `salt:"ret" doc:"a state's result, to add to; a new one if empty"`
	Source     *string     `salt:"source" doc:"URL of what it is to hold"`
	Sum        *value.Dict `salt:"source_sum" doc:"map of hash_type and hsum: its hash"`
	User       any         `salt:"user" doc:"owner"`
	Group      any         `salt:"group" doc:"group"`
	Mode       any         `salt:"mode" doc:"mode"`
	Attrs      any         `salt:"attrs" doc:"attributes; empty removes all"`
	Saltenv    string      `salt:"saltenv" doc:"environment of salt:// files"`
	Backup     any         `salt:"backup" doc:"minion: keep a copy of the old file"`
	Makedirs   bool        `salt:"makedirs" doc:"make the directories above that are missing" default:"false"`
	Template   any         `salt:"template" ignored:"sfn is rendered already" default:"null"`
	Show       bool        `salt:"show_changes" doc:"show the changes" default:"true"`
	Contents   any         `salt:"contents" doc:"what it is to hold, in place of a source" default:"null"`
	DirMode    any         `salt:"dir_mode" doc:"mode of directories that are made" default:"null"`
	Follow     bool        `salt:"follow_symlinks" doc:"change what a symbolic link stands for, in place of the link" default:"true"`
	SkipVerify bool        `salt:"skip_verify" doc:"do not check the hash of what is fetched" default:"false"`
	KeepMode   bool        `salt:"keep_mode" doc:"give it the mode of the source" default:"false"`
	Encoding   string      `salt:"encoding" doc:"encoding of contents, by Python's names" default:"null"`
	OnError    string      `salt:"encoding_errors" doc:"what to do with characters that it lacks: strict, ignore or replace" default:"strict"`
	contextArgs
	VerifySSL bool `salt:"verify_ssl" doc:"check certificates" default:"true"`
	UseETag   bool `salt:"use_etag" doc:"fetch again only what the web server says has changed" default:"false"`
	sources.SignatureArgs
	Kwargs fn.Kwargs `salt:"kwargs"`
}

// priorResult reads the argument ret; an empty value counts as absent.
func priorResult(ret any) (*value.Dict, error) {
	given, ok := ret.(*value.Dict)
	if value.Truth(ret) && !ok {
		return nil, fn.Errorf("ret must be a mapping, not %s", value.Repr(ret))
	}
	return given, nil
}

func (f file) manageFile(ctx context.Context, c *fn.Call, a manageFileArgs) (any, error) {
	a.Name = filesys.ExpandUser(a.Name)
	ret := value.DictOf("name", a.Name, "changes", value.NewDict(0), "comment", "", "result", true)
	if given, err := priorResult(a.Ret); err != nil {
		return nil, err
	} else if given.Len() > 0 {
		ret = given.Clone()
	}
	failed := func(err error) (any, error) {
		ret.Set("result", false)
		ret.Set("comment", err.Error())
		return ret, nil
	}
	want, err := a.content(ctx, c)
	if err != nil {
		return failed(err)
	}
	if a.KeepMode && of(a.Source) != "" {
		a.Mode = modeOf(ctx, c, of(a.Source), a.Saltenv, a.Mode)
	}
	there := filesys.IsFile(a.Name) || filesys.IsLink(a.Name)
	changes, err := f.place(ctx, c, a, want, there)
	if err != nil {
		return failed(err)
	}
	if dryRun(c) && !there { // nothing to compare with
		ret.Set("comment", "File "+a.Name+" not updated")
		if ret.Set("changes", changes); changes.Len() > 0 {
			ret.Set("result", nil)
		}
		return ret, nil
	}
	ret.Set("comment", "")
	ret, _, err = f.permit(ctx, c, checkPermsArgs{Name: a.Name, Ret: ret, User: a.User, Group: a.Group, Mode: a.Mode, Attrs: a.Attrs, Follow: a.Follow &&
		there, contextArgs: a.contextArgs})
	if err != nil {
		return failed(err)
	}
	changes.Update(ret.Dict("changes"))
	ret.Set("changes", changes)
	switch {
	case !there && want == nil && ret.Str("comment") == "":
		ret.Set("comment", "Empty file")
	case changes.Len() > 0 && (there || ret.Str("comment") == ""):
		ret.Set("comment", "File "+a.Name+" updated")
	case changes.Len() == 0 && value.Truth(ret.At("result")):
		ret.Set("comment", "File "+a.Name+" is in the correct state")
	}
	if dryRun(c) && changes.Len() > 0 {
		ret.Set("result", nil)
	}
	return ret, nil
}

// content returns the wanted content, nil if none is given.
func (a *manageFileArgs) content(ctx context.Context, c *fn.Call) (*sources.Content, error) {
	if a.Contents != nil {
		return managed.Encoded(a.Contents, a.Encoding, a.OnError)
	}
	if of(a.Source) == "" {
		if of(a.Path) == "" {
			return nil, nil
		}
		return &sources.Content{Path: of(a.Path)}, nil
	}
	src := sources.Source{URL: of(a.Source), Env: a.Saltenv}
	if sum := a.Sum.Str("hsum"); sum != "" && src.Scheme() != "salt" {
		src.Hash = a.Sum.Str("hash_type") + "=" + strings.ToLower(sum)
	}
	how := sources.How{Name: a.Name, SkipVerify: a.SkipVerify, Insecure: !a.VerifySSL, ETag: a.UseETag, Signed: a.SignatureArgs}
	if of(a.Path) != "" {
		return sources.Check(ctx, c.Files, src, how, of(a.Path))
	}
	if src.Hash == "" {
		how.SkipVerify = true // as in Salt: without sfn, the hash is that of the fetched source
	}
	return sources.Fetch(ctx, c.Files, src, how, "")
}

// target returns the file that the arguments describe.
func (f file) target(ctx context.Context, c *fn.Call, a manageFileArgs) (*managed.File, error) {
	own, err := managed.OwnerOf(ctx, f.m, a.User, a.Group, filesys.NormalizeMode(a.Mode))
	if err != nil {
		return nil, fn.Errorf("mode: %w", err)
	}
	return &managed.File{M: f.m, Name: a.Name, Own: own, Follow: a.Follow, Parent: managed.Parent{Make: a.Makedirs, Mode: a.DirMode},
		Backup: a.Backup, Config: c.Config, HideChanges: !a.Show}, nil
}

// place writes the content if the file differs, and returns the changes; in a
// test run, the predicted ones. It leaves a missing owner to check_perms, which
// reports it.
func (f file) place(ctx context.Context, c *fn.Call, a manageFileArgs, want *sources.Content, there bool) (*value.Dict, error) {
	t, err := f.target(ctx, c, a)
	if err != nil {
		return nil, err
	}
	if !there {
		if err := t.MakeParent(); err != nil {
			return nil, err
		}
		if dryRun(c) {
			return t.Created(want), nil
		}
		return t.Create(want, of(a.Source) != "", nil)
	}
	if want == nil {
		return value.NewDict(0), nil
	}
	diff := "Replace symbolic link with regular file"
	if a.Follow || !filesys.IsLink(a.Name) || filesys.IsFile(a.Name) {
		if diff, err = t.DiffUnlessSame(want); err != nil || diff == "" {
			return value.NewDict(2), err
		}
	}
	changes := value.DictOf("diff", diff)
	if dryRun(c) {
		return changes, nil
	}
	was, err := filesys.Look(f.m, a.Name, a.Follow)
	if err != nil {
		return nil, fn.Errorf("Failed to commit change: %w", atomicfile.Cause(err))
	}
	if err := t.Replace(want, nil); err != nil {
		return nil, err
	}
	now, err := filesys.Look(f.m, a.Name, a.Follow)
	if err != nil {
		return nil, fn.Errorf("Failed to commit change: %w", atomicfile.Cause(err))
	}
	left := t.Own.Differs(now)
	for k, v := range t.Own.Differs(was).All() {
		if !left.Has(k) {
			changes.Set(k, v)
		}
	}
	return changes, nil
}
