package render

import (
	"context"
	"regexp"
	"sync"

	"brine/internal/base/naclbox"
	"brine/internal/py/value"
)

func init() { steps.Register("nacl", renderNaCl) }

// renderNaCl decrypts each string of the form NACL[base64], with the keys of the option nacl.config.
// The results are bytes, as in Salt.
func renderNaCl(_ context.Context, _ *Renderer, req *Request, in any, _ string) (any, error) {
	option, _ := req.Opts.Get("nacl.config")
	d, _ := option.(*value.Dict)
	out, err := decryptNaCl(naclbox.New(d, nil, req.Opts.Str("pki_dir")), in)
	if err != nil {
		return nil, &Error{Message: "the renderer nacl: " + err.Error(), Name: req.name(), Err: err}
	}
	return out, nil
}

// naclText matches what the renderer decrypts.
var naclText = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^NACL\[(.*)\]\n?$`) })

// decryptNaCl walks lists and dicts and modifies them in place.
func decryptNaCl(c naclbox.Config, v any) (any, error) {
	var err error
	switch x := v.(type) {
	case string:
		if m := naclText().FindStringSubmatch(x); m != nil {
			return c.Decrypt([]byte(m[1]))
		}
	case *value.Dict:
		for i := range x.Len() {
			k, w := x.Entry(i)
			if w, err = decryptNaCl(c, w); err != nil {
				return nil, err
			}
			x.Set(k, w)
		}
	case *value.List:
		for i := range x.Items {
			if x.Items[i], err = decryptNaCl(c, x.Items[i]); err != nil {
				return nil, err
			}
		}
	}
	return v, nil
}
