package pillar

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"brine/internal/base/httpclient"
	"brine/internal/base/salt"
	"brine/internal/py/json"
	"brine/internal/py/value"
	"brine/internal/py/yaml"
)

func init() { externals.Register("http_json", httpJSON) }

func httpJSON(ctx context.Context, r *run, _ *value.Dict, a args) (any, error) {
	in, err := a.bind(httpJSONArgs...)
	if err != nil {
		return nil, err
	}
	v, answered, err := r.ask(ctx, in, json.Load)
	if answered && err == nil && value.Truth(in["namespace"]) {
		return value.DictOf(value.Str(in["namespace"]), v), nil
	}
	return v, err
}

func init() { externals.Register("http_yaml", httpYAML) }

func httpYAML(ctx context.Context, r *run, _ *value.Dict, a args) (any, error) {
	in, err := a.bind(httpArgs...)
	if err != nil {
		return nil, err
	}
	v, _, err := r.ask(ctx, in, func(text string) (any, error) { return yaml.Load([]byte(text), "the answer") })
	return v, err
}

// httpArgs are the parameters of both sources; http_json has one more, the last
// one as in Salt.
var (
	httpArgs     = []string{"url", "with_grains", "header_dict", "auth", "username", "password"}
	httpJSONArgs = append(slices.Clone(httpArgs), "namespace")
)

// maxAnswer bounds the answer of a web server in bytes.
const maxAnswer = 32 << 20

var grainName = regexp.MustCompile(`<(.*?)>`)

// ask sends a request to a web server and decodes its answer. %s in the URL is the
// minion's id; with with_grains, <NAME> is a grain. As in Salt an unreachable server
// or an error response adds nothing and is logged; an incomplete or invalid answer is
// an error of the pillar.
func (r *run) ask(ctx context.Context, in map[string]any, read func(string) (any, error)) (v any, answered bool, err error) {
	text, ok := in["url"].(string)
	if !ok {
		return nil, false, salt.Errorf(salt.Invalid, "ext_pillar() missing 1 required positional argument: 'url'")
	}
	text = strings.ReplaceAll(text, "%s", quote(r.q.ID))
	if value.Truth(in["with_grains"]) {
		for _, m := range grainName.FindAllStringSubmatch(text, -1) {
			g, ok := value.Traverse(r.q.Grains, m[1], ":")
			if !ok || !value.Truth(g) {
				r.log.Error("Unable to get minion '" + r.q.ID + "' grain: " + m[1])
				return nil, false, nil
			}
			text = strings.ReplaceAll(text, m[0], quote(value.Str(g)))
		}
	}
	if u, err := url.Parse(text); err != nil || u.Scheme != "http" && u.Scheme != "https" {
		return nil, false, salt.Errorf(salt.Invalid, "Unsupported url scheme: %s", text)
	}
	body, err := r.get(ctx, text, in)
	if err != nil && salt.KindOf(err) == salt.Unavailable {
		r.log.Error("web server returned no pillar", "minion", r.q.ID, "url", text, "err", err)
		return nil, false, nil
	}
	if err == nil {
		v, err = read(body)
	}
	if err != nil { // the minion sees the error, but not the URL, which may contain a secret
		r.log.Error("web server returned no pillar", "minion", r.q.ID, "url", text, "err", err)
		return nil, false, fmt.Errorf("the answer cannot be read: %w", err)
	}
	return v, true, nil
}

// quote escapes a string like Python's urllib.parse.quote, which keeps slashes.
func quote(s string) string { return strings.ReplaceAll(url.PathEscape(s), "%2F", "/") }

var client = sync.OnceValue(func() *http.Client {
	return httpclient.New(httpclient.Options{Proxies: true, HTTP2: true, IdleTimeout: time.Minute})
})

func (r *run) get(ctx context.Context, text string, in map[string]any) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, text, nil)
	if err != nil {
		return "", err
	}
	req.Header.Set("User-Agent", "Salt/"+salt.Version+" http.query()") // some servers require a user agent
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
		req.SetBasicAuth(value.Str(user), textOr(password, ""))
	}
	resp, err := client().Do(req)
	if err != nil {
		return "", salt.Errorf(salt.Unavailable, "%w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode >= 400 {
		return "", salt.Errorf(salt.Unavailable, "HTTP %s", resp.Status)
	}
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if err == nil && len(b) > maxAnswer {
		err = salt.Errorf(salt.Invalid, "the answer has more than %d bytes", maxAnswer)
	}
	if err == nil && !utf8.Valid(b) {
		err = salt.Errorf(salt.Invalid, "the answer is not UTF-8")
	}
	return string(b), err
}
