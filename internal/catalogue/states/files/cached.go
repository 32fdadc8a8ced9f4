package files

import (
	"context"
	"path/filepath"
	"strings"

	"brine/internal/base/atomicfile"
	"brine/internal/base/log/redact"
	"brine/internal/base/salt"
	"brine/internal/call/fn"
	"brine/internal/files/fileclient"
	"brine/internal/host/filesys"
	"brine/internal/py/value"
	"brine/internal/sls/state"
	"brine/internal/sls/state/sources"
)

func init() {
	add(func(f file) []state.Func {
		return []state.Func{
			state.Of("cached", f.cached, `Have a file of the file server or the web in the minion's cache.`),
			state.Of("not_cached", f.notCached, `Have a file not in the minion's cache.`),
		}
	})
}

type cachedArgs struct {
	Name       string `salt:"name" doc:"URL of the file, or a path of this machine, which only has to be there"`
	SourceHash string `salt:"source_hash" doc:"hash of the file, kind=hash, or a file of hashes" default:"''"`
	HashName   string `salt:"source_hash_name" doc:"name of the file in a file of hashes" default:"null"`
	SkipVerify bool   `salt:"skip_verify" doc:"take a file of the web without a hash" default:"false"`
	Saltenv    string `salt:"saltenv" doc:"environment of a salt:// file" default:"base"`
	UseETag    bool   `salt:"use_etag" doc:"ask the http server whether the file has changed, in place of a hash" default:"false"`
	HashSig    any    `salt:"source_hash_sig" doc:"URL or path of the signature of the file of hashes, or true: that holds it" default:"null"`
	sources.SignerArgs
}

func (f file) cached(ctx context.Context, e *state.Env, a cachedArgs) (state.Plan, error) {
	src := sources.Source{URL: a.Name, Hash: a.SourceHash, Env: a.Saltenv}
	if src.Web() && a.SourceHash == "" && !a.SkipVerify && !a.UseETag {
		return state.Plan{}, fn.Errorf("Unable to verify upstream hash of source file %s, please set source_hash or set skip_verify or use_etag to True",
			redact.Text(a.Name))
	}
	var want fileclient.Hash
	if a.SourceHash != "" {
		var err error
		if want, err = sources.Hash(ctx, e.Files, src,
			sources.How{Name: a.Name, HashName: a.HashName, Signed: sources.SignatureArgs{HashSig: a.HashSig, SignerArgs: a.SignerArgs}}); err != nil {
			return state.Plan{}, err
		}
	}
	kind := want.Type
	if kind == "" {
		if kind, _ = e.Config.Get("hash_type").(string); kind == "" {
			kind = "sha256"
		}
	}
	if s := src.Scheme(); s == "" || s == "file" {
		if s == "" && strings.Contains(a.Name, "://") {
			return state.Plan{}, fn.Errorf("Unsupported url scheme: %s", redact.Text(a.Name))
		}
		return localCopy(strings.TrimPrefix(a.Name, "file://"), want, kind, a.SkipVerify)
	}
	copied := e.Files.IsCached(a.Name, a.Saltenv)
	var old any
	if copied != "" {
		if sum, err := sources.Sum(copied, kind); err == nil {
			old = sum
		}
	}
	comment := "File will be cached: " + a.Name
	switch {
	case copied != "" && want.Sum == "":
		comment = "No hash found. " + comment
	case copied != "" && old != want.Sum:
		comment = "Hashes don't match.\n" + comment
	case copied != "" && !a.SkipVerify:
		done := "File is already cached to " + copied + " with hash " + want.Sum
		return state.Plan{Comment: done, Forecast: &state.Result{Verdict: state.Succeeded, Comment: "File already cached: " + a.Name}}, nil
	}
	return state.Plan{Steps: []state.Step{{Change: state.Change{Comment: comment}, Do: func(ctx context.Context) (state.Change, error) {
		return f.intoCache(ctx, e, a, want, kind, old)
	}}}}, nil
}

// localCopy returns the plan for a file of this machine, which is not copied.
func localCopy(path string, want fileclient.Hash, kind string, skip bool) (state.Plan, error) {
	full := filesys.ExpandUser(path)
	if real, err := filepath.EvalSymlinks(full); err == nil {
		full = real
	}
	if !filesys.Exists(full, true) {
		return state.Plan{}, fn.Errorf("File %s is not present on the minion", full)
	}
	if want.Sum == "" || skip {
		return state.Plan{Comment: "File " + full + " is present on the minion"}, nil
	}
	sum, err := sources.Sum(full, kind)
	switch {
	case err != nil:
		return state.Plan{}, fn.Errorf("%s: %w", full, atomicfile.Cause(err))
	case sum != want.Sum:
		return state.Plan{}, fn.Errorf("File %s is present on the minion, but the hash (%s) does not match the specified hash (%s)", full, sum, want.Sum)
	}
	return state.Plan{Comment: "File " + full + " is present on the minion and has hash " + sum}, nil
}

func (file) intoCache(ctx context.Context, e *state.Env, a cachedArgs, want fileclient.Hash, kind string, old any) (state.Change, error) {
	o := fileclient.URLOptions{Saltenv: a.Saltenv, Makedirs: true, ETag: a.UseETag}
	if want.Sum != "" {
		o.SourceHash = want.Type + "=" + want.Sum
	}
	path, err := e.Files.GetURL(ctx, a.Name, "", o)
	switch {
	case err != nil && salt.KindOf(err) == salt.NotFound:
		return state.Change{}, fn.Errorf("Failed to cache %s, there is no such file", redact.Text(a.Name))
	case err != nil:
		return state.Change{}, fn.Errorf("Failed to cache %s: %w", redact.Text(a.Name), err)
	}
	sum, err := sources.Sum(path, kind)
	if err != nil {
		return state.Change{}, fn.Errorf("%s: %w", path, atomicfile.Cause(err))
	}
	var change state.Change
	if old != sum {
		change.Diff = value.DictOf("hash", value.DictOf("old", old, "new", sum))
	}
	switch {
	case want.Sum == "" || a.SkipVerify:
		change.Comment = "File is cached to " + path
	case sum == want.Sum:
		change.Comment = "File is already cached to " + path + " with hash " + sum
	default:
		return change, fn.Errorf("File is cached to %s, but the hash (%s) does not match the specified hash (%s)", path, sum, want.Sum)
	}
	return change, nil
}

type notCachedArgs struct {
	Name    string `salt:"name" doc:"URL of the file"`
	Saltenv string `salt:"saltenv" doc:"environment of a salt:// file" default:"base"`
}

func (file) notCached(_ context.Context, e *state.Env, a notCachedArgs) (state.Plan, error) {
	if s := (sources.Source{URL: a.Name}).Scheme(); s == "" || s == "file" {
		return state.Plan{Comment: "File " + filesys.ExpandUser(strings.TrimPrefix(a.Name, "file://")) + " is a local path, no action taken"}, nil
	}
	path := e.Files.IsCached(a.Name, a.Saltenv)
	if path == "" {
		return state.Plan{Comment: a.Name + " is not cached"}, nil
	}
	gone := value.DictOf("deleted", true)
	return state.Plan{Steps: []state.Step{{Change: state.Change{Diff: gone, Comment: path + " is set to be deleted"},
		Do: func(context.Context) (state.Change, error) {
			if err := e.Files.Forget(a.Name, a.Saltenv); err != nil {
				return state.Change{}, fn.Errorf("Failed to delete %s: %w", path, atomicfile.Cause(err))
			}
			return state.Change{Diff: gone, Comment: path + " was deleted"}, nil
		}}}}, nil
}
