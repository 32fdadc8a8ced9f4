package pillar

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"time"

	"brine/internal/json"
	"brine/internal/salt"
	"brine/internal/value"
	"brine/internal/yaml"
)

func httpJSON(ctx context.Context, r *run, _ *value.Dict, a args) (any, error) {
	v, in, err := r.httpText(ctx, a, json.Load)
	if d, ok := v.(*value.Dict); ok && value.Truth(in["namespace"]) && err == nil {
		return value.DictOf(value.Str(in["namespace"]), d), nil
	}
	return v, err
}

func httpYAML(ctx context.Context, r *run, _ *value.Dict, a args) (any, error) {
	v, _, err := r.httpText(ctx, a, func(text string) (any, error) { return yaml.Load([]byte(text), "the answer") })
	return v, err
}

// maxAnswer bounds the answer of a web server in bytes.
const maxAnswer = 32 << 20

var grainName = regexp.MustCompile(`<(.*?)>`)

// httpText asks a web server and reads its answer. %s in the URL is the
// minion's id; with with_grains, <NAME> is a grain. As in Salt a server that
// does not answer well adds nothing, and the log tells why.
func (r *run) httpText(ctx context.Context, a args, read func(string) (any, error)) (any, map[string]any, error) {
	in, err := a.bind("url", "with_grains", "header_dict", "auth", "username", "password", "namespace")
	if err != nil {
		return nil, in, err
	}
	text, ok := in["url"].(string)
	if !ok {
		return nil, in, salt.Errorf(salt.Invalid, "ext_pillar() missing 1 required positional argument: 'url'")
	}
	text = strings.ReplaceAll(text, "%s", quote(r.q.ID))
	if value.Truth(in["with_grains"]) {
		for _, m := range grainName.FindAllStringSubmatch(text, -1) {
			g, ok := value.Traverse(r.q.Grains, m[1], ":")
			if !ok || !value.Truth(g) {
				r.log.Error("Unable to get minion '" + r.q.ID + "' grain: " + m[1])
				return nil, in, nil
			}
			text = strings.ReplaceAll(text, m[0], quote(value.Str(g)))
		}
	}
	body, err := r.get(ctx, text, in)
	if err == nil {
		var v any
		if v, err = read(body); err == nil {
			return v, in, nil
		}
	}
	r.log.Error("a web server gives no pillar", "minion", r.q.ID, "url", text, "err", err)
	return nil, in, nil
}

// quote escapes a text as Python's urllib.parse.quote, which leaves slashes.
func quote(s string) string { return strings.ReplaceAll(url.PathEscape(s), "%2F", "/") }

func (r *run) get(ctx context.Context, text string, in map[string]any) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, text, nil)
	if err != nil {
		return "", err
	}
	if d, ok := in["header_dict"].(*value.Dict); ok {
		for k, v := range d.All() {
			req.Header.Set(value.Str(k), value.Str(v))
		}
	}
	user, password := in["username"], in["password"]
	if l, ok := in["auth"].(*value.List); ok && l.Len() == 2 {
		user, password = l.Items[0], l.Items[1]
	}
	if user != nil {
		req.SetBasicAuth(value.Str(user), value.Str(password))
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	if resp.StatusCode >= 400 {
		return "", salt.Errorf(salt.Unavailable, "HTTP %s", resp.Status)
	}
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if err == nil && len(b) > maxAnswer {
		err = salt.Errorf(salt.Invalid, "the answer has more than %d bytes", maxAnswer)
	}
	return string(b), err
}
