package files

import (
	"context"
	"encoding/base64"
	"strings"

	"brine/internal/call/fn"
	"brine/internal/host/filesys"
	"brine/internal/py/value"
	"brine/internal/sls/state"
)

func init() {
	add(func(f file) []state.Func {
		return []state.Func{state.Of("decode", f.decode, `Keep a file whose content is given in base64.`)}
	})
}

type decodeArgs struct {
	Name     string `salt:"name" doc:"path of the file"`
	Encoded  any    `salt:"encoded_data" doc:"the content, in base64" default:"null"`
	Pillar   any    `salt:"contents_pillar" doc:"pillar key that holds it" default:"null"`
	Encoding string `salt:"encoding_type" doc:"base64" ignored:"there is no other encoding, as in Salt" default:"base64"`
	Checksum string `salt:"checksum" doc:"hash that tells whether the file is as it should be: md5, sha256 or sha512" default:"md5"`
}

func (file) decode(ctx context.Context, e *state.Env, a decodeArgs) (state.Plan, error) {
	content := a.Encoded
	switch has := value.Truth(a.Encoded); {
	case !has && !value.Truth(a.Pillar):
		return state.Plan{}, fn.Errorf("Specify either the 'encoded_data' or 'contents_pillar' argument.")
	case has && value.Truth(a.Pillar):
		return state.Plan{}, fn.Errorf("Specify only one 'encoded_data' or 'contents_pillar' argument.")
	case !has:
		var ok bool
		if content, ok = value.Traverse(e.Pillar.All(), value.Str(a.Pillar), ":"); !ok {
			return state.Plan{}, fn.Errorf("Pillar data not found.")
		}
	}
	var old any
	want, err := decodedHash(ctx, e, content, a.Checksum)
	if err != nil {
		return state.Plan{}, err
	}
	if filesys.IsFile(a.Name) {
		if old, err = e.Exec(ctx, "hashutil.digest_file", nil, a.Name, a.Checksum); err != nil {
			return state.Plan{}, err
		}
		if value.Equal(old, want) {
			return state.Plan{Comment: "File is in the correct state."}, nil
		}
	}
	predicted, done := value.NewDict(0), value.DictOf("old", old, "new", want)
	if old != nil {
		predicted = done
	}
	return state.Plan{Steps: []state.Step{{Change: state.Change{Diff: predicted, Comment: "File is set to be updated."},
		Do: func(ctx context.Context) (state.Change, error) {
			if _, err := e.Exec(ctx, "hashutil.base64_decodefile", nil, content, a.Name); err != nil {
				return state.Change{}, err
			}
			return state.Change{Diff: done, Comment: "File was updated."}, nil
		}}}}, nil
}

// decodedHash returns the hash of base64-encoded content.
func decodedHash(ctx context.Context, e *state.Env, content any, kind string) (any, error) {
	text := strings.Join(strings.Fields(value.Str(content)), "")
	b, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return nil, fn.Errorf("the content is no base64: %w", err)
	}
	return e.Exec(ctx, "hashutil.digest", nil, b, kind)
}
