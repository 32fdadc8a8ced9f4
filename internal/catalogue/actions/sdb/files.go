package sdb

import (
	"context"
	"os"

	"brine/internal/call/fn"
	"brine/internal/py/serialize"
	"brine/internal/py/value"
	"brine/internal/py/yaml"
)

func init() {
	drivers.Register("env", driver{get: getEnv, set: setEnv})
	drivers.Register("yaml", driver{get: getYAML})
}

func getEnv(_ context.Context, _ *fn.Call, key string, _ *value.Dict) (any, error) {
	if v, ok := os.LookupEnv(key); ok {
		return v, nil
	}
	return nil, nil
}

// setEnv sets a variable of this process unless it is set, and returns its value.
func setEnv(_ context.Context, _ *fn.Call, key string, v any, _ *value.Dict) (any, error) {
	if old, ok := os.LookupEnv(key); ok {
		return old, nil
	}
	text, ok := v.(string)
	if !ok {
		return nil, fn.Errorf("an environment variable must be a string, not %s", value.TypeName(v))
	}
	return text, os.Setenv(key, text)
}

// getYAML returns the value at a path in the merged content of the files that the profile names. As in
// Salt, files that do not exist or are no maps are left out.
func getYAML(ctx context.Context, c *fn.Call, key string, profile *value.Dict) (any, error) {
	var all any = value.NewDict(0)
	strategy, lists := value.MergeSmart, false
	how := profile.Dict("merge")
	if s := how.Str("strategy"); s != "" {
		strategy = s
	}
	if v, ok := how.Get("merge_lists"); ok {
		lists = value.Truth(v)
	}
	renderer := how.Str("renderer")
	if renderer == "" {
		renderer = "yaml"
	}
	for _, path := range value.Texts(profile.At("files")) {
		text, err := os.ReadFile(path)
		if err != nil {
			c.Log.Error("sdb: leaving out a file that cannot be read", "err", err)
			continue
		}
		v, err := yaml.LoadText(string(text), path)
		if err != nil {
			return nil, fn.Errorf("sdb: %w", err)
		}
		merged, err := value.Merge(all, v, strategy, renderer, lists)
		if err != nil {
			c.Log.Error("sdb: leaving out a file that is no map", "path", path, "err", err)
			continue
		}
		all = merged
	}
	if value.Truth(profile.At("gpg")) {
		if c.Templates == nil {
			return nil, fn.Errorf("sdb: values cannot be decrypted here: there is no renderer gpg")
		}
		text, err := serialize.DumpYAML(all, nil)
		if err != nil {
			return nil, err
		}
		if all, err = c.Templates.Data(ctx, c, "yaml|gpg", fn.Template{Source: []byte(text), Path: "sdb"}); err != nil {
			return nil, err
		}
	}
	v, _ := value.Traverse(all, key, ":")
	return v, nil
}
